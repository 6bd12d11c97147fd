/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meeting on one host: a unix socket named after the port (or by chance), in the abstract namespace
 * of this network namespace. The kernel tells each end which user the other runs as, so that
 * without any setting nobody else joins a job or passes himself off as its rank 0; and who floods
 * the TCP port does not stand in this queue.
 */
#ifndef SL_LAUNCH_NEARBY_H
#define SL_LAUNCH_NEARBY_H

#include <stdbool.h>
#include <stdint.h>

#define SL_NEARBY_NAME_MAX 32

/* "@sluice-meet-4711": where rank 0 is met. */
void sl_nearby_name(uint16_t port, char out[SL_NEARBY_NAME_MAX]);
/* "@sluice-seat-0123456789abcdef": where another rank awaits its children. */
void sl_nearby_seat_name(uint64_t id, char out[SL_NEARBY_NAME_MAX]);

/* Whether this process may make such sockets: some sandboxes forbid it. */
bool sl_nearby_possible(void);

/* A listening socket, which does not block. -EADDRINUSE: a process of this user has the name;
 * -EACCES: one of another; both say who. */
int sl_nearby_listen(const char *name, int *out);

/* A connection to a process of this user. -EAGAIN: its queue is full; -ECONNREFUSED: nobody
 * listens; -EACCES: somebody else does. */
int sl_nearby_dial(const char *name, int *out);

#endif
