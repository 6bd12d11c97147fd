/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed Lion: ranks send one bit an element, the sign of their update.
 *
 *   c = beta1 * m + (1 - beta1) * g;   m = beta2 * m + (1 - beta2) * g
 *   update = sign of the sum of the ranks' signs (vote), or their mean (average)
 *   theta -= rate * (update + decay * theta)
 *
 * Each rank counts the votes of a shard of elements, bit-sliced, and sends what came out to all: by
 * vote, whether the majority is below zero and whether votes are even (update 0), 2 bits; or the
 * counters, as many bits as the number of ranks has. Zeros and NaN vote as positive numbers do.
 *
 * Source: B. Liu, L. Wu, L. Chen, K. Liang, J. Zhu, C. Liang, R. Krishnamoorthi, Q. Liu,
 * "Communication efficient distributed training with Distributed Lion", NeurIPS 2024.
 */
#ifndef SL_TRAIN_LION_H
#define SL_TRAIN_LION_H

#include "compress/state.h"
#include "compress/train/net.h"

struct sl_lion_config {
    size_t count;
    float beta1, beta2; /* 0.9 and 0.99 */
    bool average;       /* otherwise they vote */
};

struct sl_lion {
    struct sl_lion_config config;
    const struct sl_net *net;
    float *m;
    size_t words;             /* of a shard */
    unsigned planes;          /* of counters */
    uint64_t *signs, *in;     /* ranks shards */
    uint64_t *counters, *all; /* planes of a shard, and of all shards */
    uint64_t *whole;          /* planes of all elements, in their order */
    float *c;
};

size_t sl_lion_size(const struct sl_lion_config *config, const struct sl_net *net);
void sl_lion_init(struct sl_lion *l, const struct sl_lion_config *config, const struct sl_net *net,
                  void *memory);

/* out: -1 to 1 each, the same on all ranks. */
int sl_lion_step(struct sl_lion *l, const float *gradient, float *out);
/* theta -= rate * (update + decay * theta) */
void sl_lion_apply(const float *update, float rate, float decay, size_t count, float *theta);
size_t sl_lion_state(const struct sl_lion *l, uint64_t id, struct sl_state_part parts[1]);

#endif
