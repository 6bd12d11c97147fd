/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD: gradients of layers as matrices of low rank, with error feedback and a warm start. All
 * layers' left factors go in one all-reduce, their right factors in a second, and what is no
 * matrix, or would not become smaller, goes with the first as it is.
 *
 *   M = g + e;  P = mean of M Q, made orthonormal;  Q = mean of M^T P;  out = P Q^T;  e = M - out
 *
 * Factors may travel encoded (bq4, say), each rank's and then the mean: the low rank and int4 of
 * DiLoCoX.
 *
 * Source: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: practical low-rank gradient
 * compression for distributed optimization", NeurIPS 2019; J. Qi et al., "DiLoCoX: a
 * low-communication large-scale training framework for decentralized cluster", 2025 (factors of 4
 * bits).
 */
#ifndef SL_TRAIN_POWERSGD_H
#define SL_TRAIN_POWERSGD_H

#include "compress/lowrank.h"
#include "compress/train/feedback.h"

#define SL_POWERSGD_LAYERS_MOST 256

/* Elements of a layer, one after the other in the gradient. A vector has rows 1. */
struct sl_layer {
    size_t rows, columns;
};

struct sl_powersgd_config {
    const struct sl_layer *layers; /* lent as long as p is used */
    unsigned layer_count;
    uint32_t rank;
    float times; /* layers whose factors are not so many times smaller go as they are: 1, say */
    uint64_t seed;
    bool cold;                         /* draws Q anew each step */
    const struct sl_codec_spec *codec; /* of factors; NULL: as they are. Borrowed. */
};

/* Of a layer: where it begins in the gradient and in the two messages. */
struct sl_powersgd_place {
    struct sl_lowrank shape;
    bool factored; /* otherwise it goes with the left message as it is */
    size_t first, count, left, right;
};

struct sl_powersgd {
    struct sl_powersgd_config config;
    const struct sl_net *net;
    uint32_t step;
    struct sl_powersgd_place *places; /* of layers */
    size_t count;                     /* elements of all layers */
    size_t left, right;               /* floats of the two messages */
    float *residual;                  /* count */
    float *q;                         /* right: what the next step starts with */
    float *m, *p, *q_new;             /* scratch */
    struct sl_feedback codec[2];      /* for left and right, where factors are encoded */
};

/* -EINVAL: too many layers, rank 0, or a codec without a fixed size. */
int sl_powersgd_size(const struct sl_powersgd_config *config, const struct sl_net *net,
                     size_t *size);
void sl_powersgd_init(struct sl_powersgd *p, const struct sl_powersgd_config *config,
                      const struct sl_net *net, void *memory);

/* out = about the mean gradient, the same bits on all ranks. */
int sl_powersgd_step(struct sl_powersgd *p, const float *gradient, float *out);
size_t sl_powersgd_state(const struct sl_powersgd *p, uint64_t id, struct sl_state_part parts[2]);

#endif
