/* SPDX-License-Identifier: Apache-2.0 */
/* Records and descriptors over a unix socket; none of these blocks. */
#ifndef SL_SHM_PASS_H
#define SL_SHM_PASS_H

#include "shm/wire.h"

#include <stddef.h>

#define SHM_FDS_MAX 3

/* A listening socket in the abstract namespace, under a random name of *name_len bytes. */
int shm_listen(char name[SHM_NAME_MAX], uint16_t *name_len, int *out);

/* -EAGAIN: its queue is full, try again later; -ECONNREFUSED: no process listens there. */
int shm_dial(const char *name, size_t name_len, int *out);

/* -EAGAIN: none waits. */
int shm_accept(int listener, int *out);

/* Sends one message with count descriptors (which stay the caller's). -EAGAIN: full;
 * -ECONNRESET. */
int shm_post(int fd, uint16_t type, const void *body, size_t len, const int *fds, unsigned count);

/* Takes one message and its descriptors, now the caller's: *fd_count of them, on success only.
 * -EAGAIN: none waits; -ECONNRESET: the other end is closed; -EMFILE: descriptors came for which
 * there was no place, *msg is filled; -EBADMSG, -EPROTO as shm_msg_parse(). */
int shm_take(int fd, struct shm_msg *msg, size_t *body, int fds[SHM_FDS_MAX], unsigned *fd_count);

/* sl_fail() for a descriptor that could not be had; names the limit. */
int shm_fail_fd(int err, const char *what);

#endif
