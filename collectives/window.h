/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks of one host tell each other through their windows, without a lock. A window:
 *
 *   slot 0 … slot 63      a word and SL_WIN_INLINE_BYTES each, in one line; and a line that nobody
 *   uses, since
 *                         processors fetch lines in pairs
 *   area 0 … area 15      for what does not fit in a slot, where ranks run ahead of each other
 *   area 16, area 17      the halves, for all else
 *
 * The n-th operation that uses windows has slot n % 64 of every rank. Its word says how far that
 * rank has come in it; what it shows to the others lies beside the word or in an area, which
 * operations of its kind take in turns. Both are written again when all ranks are known to have
 * begun the operation after the one that they held, for then they have read it: so a rank that
 * needs nothing of the others, as a root, is up to 62 operations ahead of them.
 *
 * A word holds the counter, in units of SL_WIN_UNIT, and below it a tag of all operations up to
 * this one. The counter rises for ever, and wraps: words and counters are compared by their
 * difference.
 */
#ifndef SL_COLLECTIVES_WINDOW_H
#define SL_COLLECTIVES_WINDOW_H

#include "schedules/schedule.h"

#include <stdatomic.h>

#define SL_WIN_SLOTS 64 /* a power of two */
#define SL_WIN_SHORTS 16
#define SL_WIN_AREAS (SL_WIN_SHORTS + 2)
#define SL_WIN_UNIT (UINT64_C(1) << 24)
#define SL_WIN_TAG_MASK (SL_WIN_UNIT - 1)

struct sl_win_slot {
    _Atomic uint64_t word;
    uint64_t reserved;
    uint8_t payload[SL_WIN_INLINE_BYTES];
    uint8_t pad[64];
};

/* Where what an operation shows lies; decided by its plan, alike on all ranks. */
enum sl_win_size { SL_WIN_IN_SLOT, SL_WIN_SHORT, SL_WIN_LONG };

#define SL_WIN_NO_AREA (-1)

struct sluice_comm;

/* Where in a window the payload begins; area SL_WIN_NO_AREA: in the slot. */
size_t sl_win_place(const struct sluice_comm *comm, unsigned slot, int area);

static inline bool sl_win_passed(uint64_t word, uint64_t counter)
{
    return (int64_t)(word - counter) >= 0;
}

/*
 * All that this rank has stored in its window, and read in others', is behind the word (release)
 * for whoever sees it (acquire). So a rank overwrites what others read once all have said, by their
 * words, that they are through.
 */
static inline void sl_win_publish(struct sl_win_slot *slot, uint64_t counter, uint64_t tag)
{
    atomic_store_explicit(&slot->word, counter | tag, memory_order_release);
}

static inline uint64_t sl_win_word(const struct sl_win_slot *slot)
{
    return atomic_load_explicit(&slot->word, memory_order_acquire);
}

/* Of what stands for all calls so far: calls that differ have other tags from then on. */
static inline uint64_t sl_win_tag(uint32_t run)
{
    return run >> 8;
}

#endif
