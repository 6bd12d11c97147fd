/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of the network explain the cells that are slow, and which of them the data cannot
 * tell apart.
 *
 * A part explains slow cells if all cells that it covers are slow (of ten or more, nine in ten): a
 * slow sender is slow to all. The fewest parts that cover all slow cells are the faults. Where
 * other parts would do as well, in place of one of them, they are its ambiguity set. In a single
 * ring each sender has one receiver: a slow cell gives {link, sender, receiver}.
 *
 * Slow cells that no part has in common are independent. Of each such component all smallest
 * covers are found, where it has up to 64 cells and 64 different parts; of larger ones one cover,
 * the part with the most cells first (greedy set cover), and what could stand in each one's place.
 */
#ifndef SL_MONITOR_DIAGNOSIS_AMBIGUITY_H
#define SL_MONITOR_DIAGNOSIS_AMBIGUITY_H

#include "monitor/diagnosis/lift.h"

#define SL_COMM_FAULTS_MAX 64 /* that are told */

struct sl_candidate {
    struct sl_element element;
    uint32_t total, hot; /* cells that it covers, and slow ones of them */
    uint32_t first;      /* its slow cells: slow[first] to slow[first + hot] */
    bool is_strong;      /* the caller's: its evidence suffices for a verdict */
};

struct sl_comm_fault {
    uint32_t *set; /* of candidates; set[0] is accused */
    uint32_t set_count;
};

struct sl_ambiguity {
    struct sl_candidate *candidates; /* those that explain their cells */
    uint32_t candidate_count;
    uint32_t *slow; /* numbers of the matrix's cells */
    struct sl_comm_fault faults[SL_COMM_FAULTS_MAX];
    uint32_t fault_count;
    bool has_more; /* than are told */
};

/* hot: by cell of the places' matrix, 1 if it is slow. All candidates, in one order whatever that
 * of the data. 0 or -ENOMEM; sl_ambiguity_fini() in any case. */
int sl_ambiguity_find(const struct sl_places *places, const uint8_t *hot,
                      struct sl_ambiguity *ambiguity);
/* The faults: the fewest candidates that cover each slow cell which a strong one covers. 0 or
 * -ENOMEM. */
int sl_ambiguity_cover(struct sl_ambiguity *ambiguity);
void sl_ambiguity_fini(struct sl_ambiguity *ambiguity);

#endif
