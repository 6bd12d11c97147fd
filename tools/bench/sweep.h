/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every collective, type, operator, root and size that the options ask for. */
#ifndef SB_SWEEP_H
#define SB_SWEEP_H

#include "bench.h"

/* All ranks call it together. Rank 0 prints the table to out as rows are ready (others pass NULL),
 * and a progress line to a terminal on stderr. results are the same on all ranks but for the text;
 * its facts and options are set by the caller, its rows owned by the caller: sb_results_fini(). 0
 * also when elements were wrong: results->wrong tells. */
int sb_sweep(struct sluice_comm *comm, const struct sb_options *options, FILE *out,
             struct sb_results *results);

void sb_results_fini(struct sb_results *results);

/* Calls visit for every collective, type, operator, root and size that the options ask for, in the
 * order of the tables (but for sendrecv, which takes two ranks, among one); the row's cells are
 * empty. Stops at the first code that is not 0 and returns it. */
typedef int sb_visit(void *arg, const struct sb_row *row);
int sb_sweep_visit(const struct sb_options *options, int size, sb_visit *visit, void *arg);

#endif
