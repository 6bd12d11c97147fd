/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sketched averages: ranks send count sketches of their gradients, which an ordinary all-reduce
 * adds.
 *
 * With k, momentum and residual live in the sketch, and each step the k largest of what it holds
 * come out (FetchSGD):
 *   u = momentum * u + mean of sketches;  e += rate * u;  out = the k largest estimates of e
 *   e -= the sketch of out;  u = 0 in the cells of out
 * With k = 0, out = rate * R^T (mean of R g) with one row: its mean is the gradient, its variance
 * grows as elements over columns, so that the rate must shrink by as much. No state.
 *
 * Source: D. Rothchild et al., "FetchSGD: communication-efficient federated learning with
 * sketching", ICML 2020; Z. Song, Y. Wang, Z. Yu, L. Zhang, "Sketching for first order method:
 * efficient algorithm for low-bandwidth channel and vulnerability", ICML 2023 (who also show that a
 * sketch whose matrix is known hides nothing).
 */
#ifndef SL_TRAIN_SKETCHED_H
#define SL_TRAIN_SKETCHED_H

#include "compress/sketch.h"
#include "compress/state.h"
#include "compress/train/net.h"

struct sl_sketched_config {
    size_t count;
    struct sl_sketch sketch;
    float momentum;
    size_t k; /* elements of a step; 0: all, unbiased */
};

struct sl_sketched {
    struct sl_sketched_config config;
    const struct sl_net *net;
    float *table, *u, *e; /* rows * columns */
    float *scratch;       /* count */
    struct sl_topk_work *work;
    struct sl_topk_out kept;
};

/* -EINVAL: rows that have no median, or several with k = 0. */
int sl_sketched_size(const struct sl_sketched_config *config, size_t *size);
void sl_sketched_init(struct sl_sketched *s, const struct sl_sketched_config *config,
                      const struct sl_net *net, void *memory);
/* theta -= out. The same bits on all ranks. */
int sl_sketched_step(struct sl_sketched *s, float rate, const float *gradient, float *out);
size_t sl_sketched_state(const struct sl_sketched *s, uint64_t id, struct sl_state_part parts[2]);

#endif
