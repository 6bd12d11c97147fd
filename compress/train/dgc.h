/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deep gradient compression: each rank sends the few largest elements of what has gathered in it,
 * with momentum applied before, not after, so that an element that waited arrives as it would have.
 *
 *   g is cut to a norm of clip / sqrt(ranks)
 *   u = momentum * u + g;         v += u          (nesterov: u = momentum * (u + g); v += u + g)
 *   the ratio * count largest of v are sent, and are 0 in v then, and in u (factor masking)
 *
 * In the first steps, more is sent (warm-up). What is sent has u16 places and f32 or bf16 values
 * (compress/sparse.h); all ranks' are added in the order of ranks, gathered or by regions of equal
 * numbers of entries (compress/train/sparse_sum.h).
 *
 * Source: Y. Lin, S. Han, H. Mao, Y. Wang, W. Dally, "Deep gradient compression: reducing the
 * communication bandwidth for distributed training", ICLR 2018. In place of a threshold from a
 * sample, the k largest are found exactly, or by the threshold of the step before
 * (compress/topk.h).
 */
#ifndef SL_TRAIN_DGC_H
#define SL_TRAIN_DGC_H

#include "compress/sparse.h"
#include "compress/state.h"
#include "compress/topk.h"
#include "compress/train/sparse_sum.h"

#define SL_DGC_STAGES_MOST 8

struct sl_dgc_config {
    size_t count;
    float momentum; /* 0: none, and v is the residual of plain top-k with error feedback */
    float clip;     /* of the norm of one rank's gradient at one rank; 0: none */
    float ratio;    /* of elements that are sent, after warm-up */
    /* Warm-up: so many stages of so many steps, the ratio of each. */
    float warm_ratio[SL_DGC_STAGES_MOST];
    uint32_t stages, stage_steps;
    bool nesterov;
    bool keep_momentum; /* no factor masking */
    bool reused;        /* about k elements, by a threshold that is reused */
    struct sl_sparse_spec sparse;
};

struct sl_dgc {
    struct sl_dgc_config config;
    const struct sl_net *net;
    uint32_t step;
    float *u, *v; /* momentum, and what was not sent yet */
    struct sl_topk_state *topk;
    struct sl_topk_work *work;
    struct sl_topk_out kept;
    struct sl_sparse_sum sum;
    size_t sent; /* bytes of this rank's last messages */
};

/* Five stages of the paper: 25 %, 6.3 %, 1.6 %, 0.4 % and 0.1 % of elements, down to ratio. */
void sl_dgc_warm_up(struct sl_dgc_config *config, uint32_t stage_steps);

/* Elements that are sent in a step. */
size_t sl_dgc_kept(const struct sl_dgc_config *config, uint32_t step);

/* -EINVAL: ratios out of (0, 1], or too many elements. */
int sl_dgc_size(const struct sl_dgc_config *config, const struct sl_net *net, size_t *size);
void sl_dgc_init(struct sl_dgc *d, const struct sl_dgc_config *config, const struct sl_net *net,
                 void *memory);

/* out = the mean of what the ranks sent: theta -= rate * out, with no momentum of its own. */
int sl_dgc_step(struct sl_dgc *d, const float *gradient, float *out);
size_t sl_dgc_state(const struct sl_dgc *d, uint64_t id, struct sl_state_part parts[3]);

#endif
