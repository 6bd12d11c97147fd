/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FedKSeed: steps without gradients, along a few directions that all ranks can make from seeds, so
 * that what a rank has done is one number a seed, however long it went on.
 *
 *   a step: seed j at random;  g = (loss(theta + eps z_j) - loss(theta - eps z_j)) / (2 eps)
 *           theta -= rate * g * z_j;  a[j] += g
 *   a round: a = its mean over ranks;  theta = start - rate * (the sum over j of a[j] z_j)
 *
 * Source: Z. Qin, D. Chen, B. Qian, B. Ding, Y. Li, S. Deng, "Federated full-parameter tuning of
 * billion-sized language models with communication cost under 18 kilobytes", ICML 2024. Directions
 * are of random signs (compress/seedscalar.h), not Gaussian.
 */
#ifndef SL_TRAIN_FEDKSEED_H
#define SL_TRAIN_FEDKSEED_H

#include "compress/state.h"
#include "compress/train/net.h"

struct sl_fedkseed_config {
    size_t count;
    uint32_t seeds; /* 4096 in the paper */
    uint64_t seed;  /* they are made from; alike on all ranks */
    float epsilon, rate;
    double (*loss)(void *arg, const float *theta);
    void *arg;
};

struct sl_fedkseed {
    struct sl_fedkseed_config config;
    const struct sl_net *net;
    uint32_t step;
    float *start, *a, *work;
};

size_t sl_fedkseed_size(const struct sl_fedkseed_config *config);
void sl_fedkseed_init(struct sl_fedkseed *f, const struct sl_fedkseed_config *config,
                      const struct sl_net *net, const float *theta, void *memory);
/* This rank alone; returns g. */
float sl_fedkseed_step(struct sl_fedkseed *f, float *theta);
/* All ranks: theta is the same bits on all afterwards. */
int sl_fedkseed_round(struct sl_fedkseed *f, float *theta);
size_t sl_fedkseed_state(const struct sl_fedkseed *f, uint64_t id, struct sl_state_part parts[2]);

#endif
