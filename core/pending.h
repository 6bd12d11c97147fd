/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that were accepted and have proved nothing yet: how many there may be, how long each
 * may stay, which one makes room for those that wait, and their lines in the log. The same rules
 * for every listener:
 *
 *   limit     the listener's own, but an eighth of the descriptors that the process may
 *             open: the rest are the application's
 *   deadline  SL_PENDING_MS for everything a connection has to say; one that had to wait for its
 *             owner has all of that from then on
 *   room      when the limit is met, one that has said nothing goes after SL_PENDING_GRACE_MS, one
 *             that has said something sensible after SL_PENDING_HEARD_MS; of a source that holds
 *             more than its share (a quarter), any goes after the shorter time, and before those of
 *             others. Those that wait meanwhile stay in the kernel's queue.
 *   log       SL_PENDING_LOG_LINES in SL_PENDING_LOG_MS, then a count
 *
 * A listener embeds struct sl_pending in its struct of a connection, and owns memory and
 * descriptors. One thread at a time.
 */
#ifndef SL_CORE_PENDING_H
#define SL_CORE_PENDING_H

#include "core/clock.h"
#include "core/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SL_PENDING_MS 5000
#define SL_PENDING_GRACE_MS 50
#define SL_PENDING_HEARD_MS 1000
#define SL_PENDING_LOG_LINES 10
#define SL_PENDING_LOG_MS 10000
#define SL_PENDING_SOURCES 256
#define SL_PENDING_LEAST 4 /* of the limit, however few descriptors there are */

enum sl_pending_standing {
    SL_PENDING_SILENT, /* has not said anything whole */
    SL_PENDING_HEARD,  /* its words make sense, but prove nothing */
    SL_PENDING_ASKED,  /* it waited for its owner: the whole deadline is its, also in a crowd */
    SL_PENDING_PROVED, /* it knows what only a peer knows: it stays until its owner removes it */
};

struct sl_pending {
    struct sl_node node;
    uint64_t born_ns;
    uint8_t standing; /* enum sl_pending_standing; its owner raises it */
    uint8_t source;
    char from[64]; /* for the log */
};

struct sl_pending_log {
    uint64_t start_ns;
    unsigned lines;
};

struct sl_pending_set {
    const char *area;           /* of log lines; static storage */
    struct sl_pending_log *log; /* borrowed: several listeners may share one */
    unsigned limit, share, count;
    uint64_t salt;       /* so that nobody can choose whose source he shares */
    struct sl_node list; /* oldest first */
    uint16_t by_source[SL_PENDING_SOURCES];
};

/* most: the limit with descriptors in plenty. */
void sl_pending_init(struct sl_pending_set *set, const char *area, unsigned most,
                     struct sl_pending_log *log);

/* Says in the log how many refusals it has kept to itself. */
void sl_pending_fini(struct sl_pending_set *set);

/* Takes a connection from that address, accepted at now_ns, into the set; full sets take it,
 * too. */
void sl_pending_add(struct sl_pending_set *set, struct sl_pending *pending,
                    const struct sockaddr_storage *from, uint64_t now_ns);
/* The same for a unix socket, whose other end is a process of that user. */
void sl_pending_add_user(struct sl_pending_set *set, struct sl_pending *pending, uid_t uid,
                         pid_t pid, uint64_t now_ns);
void sl_pending_remove(struct sl_pending_set *set, struct sl_pending *pending);

/* It has waited for its owner, not the other way round: its time starts now. */
void sl_pending_ask(struct sl_pending_set *set, struct sl_pending *pending, uint64_t now_ns);

static inline bool sl_pending_full(const struct sl_pending_set *set)
{
    return set->count >= set->limit;
}

/* The one that makes room for one that waits; NULL: none yet. Read its socket once more before it
 * goes. */
struct sl_pending *sl_pending_victim(struct sl_pending_set *set, uint64_t now_ns);

/* One whose deadline is over, or NULL. */
struct sl_pending *sl_pending_late(struct sl_pending_set *set, uint64_t now_ns);

/* When sl_pending_late() or, in a full set, sl_pending_victim() will next name one; SL_NEVER: as it
 * stands, never. */
uint64_t sl_pending_next_ns(const struct sl_pending_set *set);

/* "refused a connection from FROM: WHY", unless there were many lately: strangers must not fill
 * disks. */
void sl_pending_refused(struct sl_pending_set *set, const char *from, const char *why,
                        uint64_t now_ns);

#endif
