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
};

/* Memory of so many bytes, and how long a pass over it takes, in seconds of processor time. -ENOMEM. */
int sb_work_init(struct sb_work *work, size_t bytes, double *pass_s);
void sb_work_fini(struct sb_work *work);

/* As many passes as the work has: the same amount however many ranks share the core. */
void sb_work_do(const struct sb_work *work);

#endif
