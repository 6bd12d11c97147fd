/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank computes between its calls, as programs do (--compute). */
#ifndef SB_WORK_H
#define SB_WORK_H

#include <stddef.h>
#include <stdint.h>

struct sb_work {
    double *memory; /* owned; NULL: none */
    size_t count;   /* doubles of it */
    uint64_t passes;
    double pass_s;          /* what a pass takes, of processor time, where nothing disturbs it */
    double least_s, most_s; /* what was computed at once so far: of processor time */
};

/* Memory of so many bytes, and how long a pass over it takes. -ENOMEM. */
int sb_work_init(struct sb_work *work, size_t bytes);
/* So many passes as take that time where one takes pass_s, at least one. */
void sb_work_size(struct sb_work *work, double pass_s, double seconds);
void sb_work_fini(struct sb_work *work);

/* As many passes as the work has: the same amount however many ranks share the core. */
void sb_work_do(struct sb_work *work);

#endif
