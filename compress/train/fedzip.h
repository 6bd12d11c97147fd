/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FedZip: what a rank has changed of a model, layer by layer as the largest elements' places and
 * one of few centroids each (codec "kmeans"), so that each layer has centroids of its own. Ranks
 * get all ranks' messages and take the mean.
 *
 * Source: A. Malekijoo et al., "FedZip: a compression framework for communication-efficient
 * federated learning", 2021.
 */
#ifndef SL_TRAIN_FEDZIP_H
#define SL_TRAIN_FEDZIP_H

#include "compress/train/messages.h"

struct sl_fedzip_config {
    const size_t *layers; /* elements of each; lent as long as f is used */
    uint32_t layer_count;
    struct sl_codec_spec spec; /* "kmeans:k=41,bits=2", or any other of f32 */
};

struct sl_fedzip {
    struct sl_fedzip_config config;
    const struct sl_net *net;
    uint32_t step;
    struct sl_messages messages;
    size_t sent; /* bytes of this rank's last message */
};

int sl_fedzip_size(const struct sl_fedzip_config *config, const struct sl_net *net, size_t *size);
void sl_fedzip_init(struct sl_fedzip *f, const struct sl_fedzip_config *config,
                    const struct sl_net *net, void *memory);
/* out = the mean of what ranks sent of their change; it may be change. The same bits on all. */
int sl_fedzip_mean(struct sl_fedzip *f, const float *change, float *out);

#endif
