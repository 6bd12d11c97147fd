/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-to-all of tokens by their like: tokens whose hashes are the same go as one, their mean, and
 * come back as what the expert made of the mean, plus what each token differs from it by.
 *
 * The hash is a cross-polytope's: of a random rotation of the token, which coordinate is the
 * largest, and its sign; several of them must agree. Rotations are three times random signs and a
 * Hadamard transform, of the next power of two.
 *
 * Source: X. Nie et al., "LSH-MoE: communication-efficient MoE training via locality-sensitive
 * hashing", NeurIPS 2024; A. Andoni et al., "Practical and optimal LSH for angular distance",
 * NeurIPS 2015 (the hash).
 */
#ifndef SL_TRAIN_LSH_H
#define SL_TRAIN_LSH_H

#include "compress/train/net.h"

#define SL_LSH_DIM_MOST 16384
#define SL_LSH_HASHES_MOST 16

struct sl_lsh_config {
    uint32_t dim;    /* floats of a token */
    uint32_t hashes; /* that must agree; 6 */
    uint64_t seed;   /* alike on all ranks */
    size_t tokens;   /* most of a call, to all ranks together */
};

struct sl_lsh {
    struct sl_lsh_config config;
    const struct sl_net *net;
    uint32_t padded;
    float *rotated;
    uint64_t *codes;  /* of tokens */
    uint32_t *bucket; /* of tokens, from 0 on for each receiver */
    uint32_t *table;  /* of slots: a bucket + 1, or 0 */
    uint32_t *size;   /* of buckets: tokens */
    size_t slots;     /* a power of two */
    float *centroids; /* of tokens at most, receiver by receiver */
    uint32_t *counts; /* ranks: centroids for each, and from each */
    uint32_t *from;
    float *out, *in; /* ranks blocks of tokens */
};

/* -EINVAL: a dimension or a number of hashes that cannot be. */
int sl_lsh_size(const struct sl_lsh_config *config, const struct sl_net *net, size_t *size);
void sl_lsh_init(struct sl_lsh *l, const struct sl_lsh_config *config, const struct sl_net *net,
                 void *memory);

/* All hashes of a token together. */
uint64_t sl_lsh_code(struct sl_lsh *l, const float *token);

/* Buckets of count tokens, in the order of their first ones: bucket of each, mean of each bucket.
 * Returns how many there are. */
uint32_t sl_lsh_compress(struct sl_lsh *l, const float *tokens, size_t count, uint32_t *bucket,
                         float *centroids);
/* tokens[i] = expert's + (tokens[i] - centroid) of its bucket. */
void sl_lsh_restore(const struct sl_lsh *l, const uint32_t *bucket, const float *centroids,
                    const float *expert, size_t count, float *tokens);

/* What this rank's expert makes of tokens, in place. */
typedef void sl_lsh_expert(void *arg, float *tokens, size_t count);

/* tokens: counts[w] for the expert of rank w, one after the other; they become what the experts
 * made of them. *sent: centroids that went in the place of tokens, if not NULL. */
int sl_lsh_round(struct sl_lsh *l, float *tokens, const uint32_t *counts, sl_lsh_expert *expert,
                 void *arg, size_t *sent);

#endif
