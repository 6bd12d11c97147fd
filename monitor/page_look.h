/* SPDX-License-Identifier: Apache-2.0 */
/* Many records of a state page in few calls, as its owner writes them. */
#ifndef SL_MONITOR_PAGE_LOOK_H
#define SL_MONITOR_PAGE_LOOK_H

#include "core/state_read.h"

/* Of a record that may be in the middle of a change: enough to see whether it is worth copying. */
struct sl_mon_glance {
    uint64_t turn, number;
};

/* A look at the records of a kind: which of them are wanted, and what becomes of those. */
struct sl_mon_look {
    bool (*wants)(void *arg, uint32_t place, const struct sl_mon_glance *at);
    /* False: no more of them. NULL: a glance was all. record: whole, zeroes beyond its end. */
    bool (*take)(void *arg, uint32_t place, const void *record);
    void *arg;
    size_t bytes; /* of a record, as this program knows it: at most 1,024 */
};

/* At records from first on, up to so many, of a page that was opened by its descriptor. Returns the
 * place after the last one that was looked at. */
uint32_t sl_mon_look(const struct sl_state_reader *reader, enum sl_state_kind kind, uint32_t first,
                     uint32_t most, const struct sl_mon_look *look);

#endif
