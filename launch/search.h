/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a rank that lets others in, at any of the places where it may be, and asks it to. Who has
 * connected waits in the other's queue until its turn comes, be it until the deadline, unless
 * somebody answers wrongly; all other places are tried beside it. */
#ifndef SL_LAUNCH_SEARCH_H
#define SL_LAUNCH_SEARCH_H

#include "launch/rendezvous.h"
#include "launch/wire.h"

#include <poll.h>

#define SL_SEARCH_POLLS (2 * SL_PLACES_MAX)

/* The rank that let us in. */
struct sl_found {
    int fd;
    bool nearby; /* by a unix socket: it is a process of this host and user */
    struct sl_meeting_keys keys;
    struct sl_job_keys job;
    char name[SL_ADDRESS_TEXT_MAX];
};

struct sl_search;

/* target is the rank to find. What is pointed to is borrowed until the end. */
int sl_search_start(const struct sl_terms *terms, int target, const struct sl_places *places,
                    uint64_t timeout_ns, struct sl_search **out);

/* Does what is due by the clock and lists what to wait for: polls[SL_SEARCH_POLLS], how many, and
 * until when. Negative: it is over; -ETIMEDOUT or -EPROTO at the deadline, with the last reason. */
int sl_search_prepare(struct sl_search *search, struct pollfd *polls, unsigned *count,
                      uint64_t *until_ns);

/* Takes the events of those polls. 1: found; 0: not yet; negative: it is over. */
int sl_search_take(struct sl_search *search, const struct pollfd *polls, struct sl_found *out);

/* Our proof is out, so the other rank may have let us in already. */
bool sl_search_proving(const struct sl_search *search);

/* NULL is nothing. */
void sl_search_end(struct sl_search *search);

#endif
