/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts over time: one that the rules give for long enough is open, one that they no longer give
 * for as long is closed. Each opening and closing has a number, for those who follow, and so has
 * that what came in meanwhile makes it worth isolating the node.
 */
#ifndef SL_MONITOR_CLUSTER_BOOK_H
#define SL_MONITOR_CLUSTER_BOOK_H

#include "monitor/cluster/judge.h"

#define SL_BOOK_CLOSED_MAX 1024 /* that are kept after they were closed: the latest */

struct sl_book_entry {
    struct sl_cluster_verdict verdict;
    uint64_t first_ns, last_ns;   /* the rules gave it: this instance's monotonic clock */
    int64_t opened_ms, closed_ms; /* 0: not yet; of the wall clock */
    uint64_t change;              /* number of its last opening, closing, or of act */
    bool has_acted;               /* while it is open, isolating its node was worth the risk */
    /* cases.h: its bundle is there; with what made act true; how often it was tried */
    bool has_case, has_case_of_act;
    unsigned case_tries;
};

struct sl_book {
    struct sl_book_entry *list; /* by id */
    unsigned count;
    uint64_t changes; /* so far */
    uint64_t opened, closed;
};

/*
 * The rules gave these; the book takes over their memory, and verdicts is empty then. changed: of
 * each that was opened or closed; may be NULL. -ENOMEM: nothing was taken.
 */
int sl_book_update(struct sl_book *book, struct sl_cluster_verdicts *verdicts, uint64_t now_ns,
                   int64_t now_ms, uint64_t confirm_ns,
                   void (*changed)(void *arg, const struct sl_book_entry *entry), void *arg);
void sl_book_fini(struct sl_book *book);

static inline bool sl_book_is_open(const struct sl_book_entry *entry)
{
    return entry->opened_ms != 0 && entry->closed_ms == 0;
}

#endif
