/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MASHA1 and MASHA2: variational inequalities, find z with F(z) = 0 (games, saddle points), where F
 * is the mean of the ranks' operators, by differences that are sent compressed.
 *
 *   half = tau z + (1 - tau) w - gamma F(w)
 *   1: g = Q(mean of Q(F_m(half) - F_m(w)));  z = half - gamma g
 *   2: s = C(mean of C(gamma (F_m(half) - F_m(w)) + e_m) + e);  z = half - s
 *   w = z with probability 1 - tau: the one step in which F goes around whole
 *
 * MASHA1 takes codecs whose mean is their input (randk with stochastic=on), MASHA2 those that lose
 * a part (topk), with residuals on both sides. All ranks do the owner's part, from the same bits.
 *
 * Where nothing is lost, both are the extragradient method with an anchor that is refreshed at
 * random, of which they are made (A. Alacaoglu, Y. Malitsky, "Stochastic variance reduction for
 * variational inequality methods", COLT 2022), and a unit test holds them against that, step by
 * step. What is compressed, and where the residuals of MASHA2 are, follows the paper's
 * description; its listings were not at hand, so they may differ in when the anchor is taken (here
 * from the new z).
 *
 * Source: A. Beznosikov, P. Richtarik, M. Diskin, M. Ryabinin, A. Gasnikov, "Distributed methods
 * with compressed communication for solving variational inequalities, with theoretical guarantees",
 * NeurIPS 2022.
 */
#ifndef SL_TRAIN_MASHA_H
#define SL_TRAIN_MASHA_H

#include "compress/state.h"
#include "compress/train/messages.h"

struct sl_masha_config {
    size_t count;
    struct sl_codec_spec up, down; /* of f32 */
    bool feedback;                 /* MASHA2 */
    float gamma, tau;
    uint64_t seed; /* of the coin, alike on all ranks */
    void (*f)(void *arg, const float *z, float *out);
    void *arg;
};

struct sl_masha {
    struct sl_masha_config config;
    const struct sl_net *net;
    uint32_t step;
    float *z, *w;                /* the same on all ranks */
    float *mean_at_w, *own_at_w; /* F(w) and F_m(w) */
    float *residual, *owner;     /* e_m and e */
    float *half, *d;
    char *down;
    struct sl_messages messages;
};

int sl_masha_size(const struct sl_masha_config *config, const struct sl_net *net, size_t *size);
/* Starts at z: one all-reduce. */
int sl_masha_init(struct sl_masha *m, const struct sl_masha_config *config,
                  const struct sl_net *net, const float *z, void *memory);
int sl_masha_step(struct sl_masha *m);
size_t sl_masha_state(const struct sl_masha *m, uint64_t id, struct sl_state_part parts[6]);

#endif
