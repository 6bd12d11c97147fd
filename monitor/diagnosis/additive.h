/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Senders, receivers and links of a delay matrix, as effects that add up in logarithms:
 *
 *     excess(i, j) = tx(i) + rx(j) + link(i, j) + noise
 *
 * Fitted by medians in turn (coordinate descent on the sum of absolute residuals), each with two
 * further cells of value 0. So a sender that has one cell or two, as in a ring, gets no effect:
 * what its cell has beyond the others stays with the link, and who of the three it is is left to
 * ambiguity.h.
 */
#ifndef SL_MONITOR_DIAGNOSIS_ADDITIVE_H
#define SL_MONITOR_DIAGNOSIS_ADDITIVE_H

#include "monitor/diagnosis/matrix.h"

struct sl_additive {
    float *tx, *rx;  /* by rank; 0 where it has no cell */
    float *link;     /* by cell: what is left; NAN where excess is */
    float noise;     /* of a cell, a spread (at least 1 %) */
    float tx_spread; /* between senders, of their effects: at least 1 % */
    float rx_spread;
    uint32_t tx_count, rx_count; /* that have a cell */
};

/* 0 or -ENOMEM; sl_additive_fini() in any case. */
int sl_additive_fit(const struct sl_matrix *matrix, const float *excess, struct sl_additive *fit);
void sl_additive_fini(struct sl_additive *fit);

#endif
