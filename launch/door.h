/* SPDX-License-Identifier: Apache-2.0 */
/* A place where a rank lets others in: rank 0 all of them, another rank its children. Strangers are
 * turned away.
 *
 * Who has proved nothing is a pending connection by the rules of core/pending.h: those that find no
 * place wait in the kernel. So strangers can delay a rank but never keep it out, since a rank's
 * hello is there as it is accepted, its proof a round trip later, and it stays in the queue or
 * comes again until it is let in. */
#ifndef SL_LAUNCH_DOOR_H
#define SL_LAUNCH_DOOR_H

#include "launch/address.h"
#include "launch/wire.h"

struct sl_door;

/* What the owner of a door knows and does; owner is its own. */
struct sl_door_owner {
    void *owner;
    /* May this rank come now? -EPROTO says why not: it is here already, or does not belong here. */
    int (*expects)(void *owner, int rank);
    /* It has proved itself and has its welcome; fd becomes the owner's. nearby: it is a process of
     * this host and user. */
    void (*admit)(void *owner, int rank, int fd, bool nearby, const struct sl_meeting_keys *keys,
                  const char *from);
};

/* listeners become the door's, also after an error; terms and job are borrowed. */
int sl_door_open(const struct sl_terms *terms, const struct sl_job_keys *job,
                 const struct sl_listeners *listeners, const struct sl_door_owner *owner,
                 struct sl_door **out);

/* One more place to come in; becomes the door's. */
int sl_door_listen(struct sl_door *door, const struct sl_listeners *listeners);

/* For poll(): readable when there is something to do. */
int sl_door_fd(const struct sl_door *door);

/* When sl_door_round() has something to do by the clock. */
uint64_t sl_door_due_ns(const struct sl_door *door);

/* Does what is to do, and does not wait. */
void sl_door_round(struct sl_door *door);

/* Who still knocks finds it closed and, if it belongs to the next job here, knocks again. NULL is
 * nothing. */
void sl_door_close(struct sl_door *door);

#endif
