/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoupled momentum: ranks keep momenta of their own, and send the few largest cosine coefficients
 * of each chunk of 64 elements, which leave the momentum then. Of each coefficient, the mean over
 * those ranks that sent it is taken, and theta moves by the sign of what they are of elements.
 *
 *   delta = decay * delta + rate * g;   q = the k largest coefficients of each chunk
 *   delta -= what q is of elements;     theta -= rate * sign of the mean of q over ranks
 *
 * Source: B. Peng, J. Quesnelle, D. P. Kingma, "DeMo: decoupled momentum optimization", 2024.
 * Chunks here are of one dimension; sums are in the order of ranks, not of arrival.
 */
#ifndef SL_TRAIN_DEMO_H
#define SL_TRAIN_DEMO_H

#include "compress/state.h"
#include "compress/train/messages.h"

struct sl_demo_config {
    size_t count;
    float decay;               /* 0.999 */
    struct sl_codec_spec spec; /* "dct:k=8" */
};

struct sl_demo {
    struct sl_demo_config config;
    const struct sl_net *net;
    float *delta, *own, *coefficients;
    uint32_t *senders; /* of each coefficient */
    struct sl_messages messages;
};

/* -EINVAL: the codec is another. */
int sl_demo_size(const struct sl_demo_config *config, const struct sl_net *net, size_t *size);
void sl_demo_init(struct sl_demo *d, const struct sl_demo_config *config, const struct sl_net *net,
                  void *memory);
/* out: -1, 0 or 1 each, the same on all ranks: theta -= rate * out. */
int sl_demo_step(struct sl_demo *d, float rate, const float *gradient, float *out);
size_t sl_demo_state(const struct sl_demo *d, uint64_t id, struct sl_state_part parts[1]);

#endif
