/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long to look away from a device that rings no bell: at most an eighth of the time for which
 * nothing has moved, so that what comes next is seen late by little of what it took anyway.
 *
 * The timer is for an interface's fd(): a waiter that sleeps is woken to poll.
 */
#ifndef SL_CORE_NAP_H
#define SL_CORE_NAP_H

#include "core/clock.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_NAP_LEAST_NS (50 * 1000) /* less costs the core as much as polling does */
#define SL_NAP_SOON_NS (2 * SL_NS_PER_MS)
#define SL_NAP_MOST_NS (5 * SL_NS_PER_MS)

/* After so long a silence, and at least so much: an eighth of it up to 2 ms, and, once that is but
 * a little of it, a 64th up to 5 ms. */
static inline uint64_t sl_nap_ns(uint64_t silence_ns, uint64_t least_ns)
{
    uint64_t soon = silence_ns / 8, late = silence_ns / 64;

    soon = soon < SL_NAP_SOON_NS ? soon : SL_NAP_SOON_NS;
    late = late < SL_NAP_MOST_NS ? late : SL_NAP_MOST_NS;
    if (soon < late)
        soon = late;
    return soon > least_ns ? soon : least_ns;
}

struct sl_nap {
    int fd;            /* a timer; readable when the nap is over; -1: none */
    uint64_t moved_ns; /* when something moved last, as far as was told */
};

/* A negative errno with a sentence; then fd is -1. */
int sl_nap_open(struct sl_nap *nap, uint64_t now_ns);
void sl_nap_close(struct sl_nap *nap);
/* Something moved: the next nap is a short one. */
static inline void sl_nap_moved(struct sl_nap *nap, uint64_t now_ns)
{
    nap->moved_ns = now_ns;
}
/* Before a sleep: its length. After it: the timer is stopped, and not readable. */
uint64_t sl_nap_begin(struct sl_nap *nap, uint64_t now_ns);
void sl_nap_end(struct sl_nap *nap);

#endif
