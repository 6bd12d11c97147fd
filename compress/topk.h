/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k largest elements of a message, by (magnitude's bits descending, index ascending): a NaN is
 * above all numbers, and of equals the first ones are taken. Output ascends by index.
 *
 * Exactly: one pass collects what reaches a threshold, and the rest is done in the output arrays.
 * The threshold is a hint, such as the last step's, or that of a sample. Where it does not hold, a
 * histogram of the upper 11 bits of the magnitudes tells which elements can be among them. With a
 * threshold that is reused from step to step it is one pass, and about k.
 *
 * Source: Y. Lin et al., "Deep gradient compression", ICLR 2018; S. Li, T. Hoefler, "Near-optimal
 * sparse allreduce for distributed deep learning", PPoPP 2022 (thresholds that are reused).
 */
#ifndef SL_COMPRESS_TOPK_H
#define SL_COMPRESS_TOPK_H

#include <stddef.h>
#include <stdint.h>

#define SL_TOPK_COUNT_MOST UINT32_MAX

/* Elements go to index[] and value[], which have room for cap. */
struct sl_topk_out {
    uint32_t *index;
    float *value;
    size_t cap;
};

/* The caller's memory for a pass; what it holds between calls means nothing. */
struct sl_topk_work {
    uint32_t histogram[4][2048];
};

/* Of a row of steps: a threshold, and how old it is. Starts as all zeros. */
struct sl_topk_state {
    uint32_t threshold; /* of magnitudes; 0: none is known */
    uint32_t age;       /* steps since it was exact */
};

#define SL_TOPK_PERIOD 32 /* steps after which sl_topk_reused() is exact once */

/* All elements whose magnitude's bits are threshold at least. Returns how many there are; of more
 * than cap, the first cap are written. One pass. */
size_t sl_topk_above(const float *in, size_t count, uint32_t threshold,
                     const struct sl_topk_out *out);

/* The same of residual + in, where the residual becomes the sum, and 0 where an element was
 * written or is no number. One pass. */
size_t sl_topk_above_feedback(const float *in, float *residual, size_t count, uint32_t threshold,
                              const struct sl_topk_out *out);

/*
 * Exactly the min(k, count) largest: that many are written and returned. cap: k at least; with more
 * (twice as many), a pass or two fewer. hint: a threshold that fewer than cap elements reach and k
 * do, for one pass, or 0, for that of a sample; where it does not hold, there are two more passes.
 * *threshold: the least magnitude taken, if not NULL.
 */
size_t sl_topk_exact(const float *in, size_t count, size_t k, uint32_t hint,
                     struct sl_topk_work *work, const struct sl_topk_out *out, uint32_t *threshold);

/* About k elements: those above the threshold of the state, which follows k. Exactly k in the first
 * step, each SL_TOPK_PERIOD, and where more than cap were above it. Returns how many. */
size_t sl_topk_reused(struct sl_topk_state *state, const float *in, size_t count, size_t k,
                      struct sl_topk_work *work, const struct sl_topk_out *out);

/* The threshold after a step in which found elements were above it and k were wanted. */
void sl_topk_adapt(struct sl_topk_state *state, size_t k, size_t found);

/* The k-th largest magnitude of a few thousand values, 1 <= k <= count. *above: how many are
 * larger. */
uint32_t sl_topk_kth(const float *value, size_t count, size_t k, size_t *above);

#endif
