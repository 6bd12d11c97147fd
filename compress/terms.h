/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodings that add, as numbers that an ordinary allreduce may reduce (core/code.h):
 *
 *   shiq    u32, max: scales that all ranks share · i8, sum: codes, each at most 127 / ranks
 *           with bits=16, u32, sum: two codes in one number, the first in its lower half
 *   randk   f32, sum: the values that are kept, at places that all ranks draw alike
 *   sketch  f32, sum: the cells of the tables
 *   sign    with votes: f32, sum: the mean magnitude of each tile · u32, sum: counters of the ranks
 *           that are below zero, each of as many bits (2, 4, 8, 16, 32) as their number needs. The
 *           sum is that of the means with the sign of more than half of the ranks, 0 where votes
 *           are even
 *
 * Numbers of a tile lie together, and each whole tile has as many. What a codec draws for all ranks
 * alike it draws by stream 0.
 *
 * Source: A. Sapio et al., "Scaling distributed machine learning with in-network aggregation", NSDI
 * 2021, for scales that are agreed on before; S. U. Stich et al., "Sparsified SGD with memory",
 * NeurIPS 2018; D. Rothchild et al., "FetchSGD", ICML 2020; J. Bernstein et al., "signSGD with
 * majority vote is communication efficient and fault tolerant", ICLR 2019.
 */
#ifndef SL_COMPRESS_TERMS_H
#define SL_COMPRESS_TERMS_H

#include "compress/codec.h"
#include "core/code.h"

#include <stdbool.h>

/* Of which message: spec's dtype does not count. */
struct sl_terms_at {
    const struct sl_codec_spec *spec;
    bool vote; /* of SL_CODEC_SIGN */
    struct sl_codec_at at;
    unsigned term;
    uint32_t ranks;     /* whose encodings add up */
    const void *before; /* what has come out of the term before, of the same elements; or NULL */
};

/* Fills in code's terms for a checked spec; none where messages of its codec do not add. */
void sl_terms_of(const struct sl_codec_spec *spec, bool vote, struct sl_code *code);

/* Numbers of count elements from a tile's beginning on. 0: sums of so many ranks do not fit. */
uint64_t sl_terms_len(const struct sl_codec_spec *spec, bool vote, unsigned term, uint32_t ranks,
                      uint64_t count);

/*
 * in: count elements of dtype. out: numbers, aligned to 16.
 *
 * residual: count floats or NULL: as of sl_codec_encode_feedback(), by what this rank's own numbers
 * of the last term decode to. power, error: NULL, or what these numbers lack of what was encoded is
 * added, in squares.
 */
void sl_terms_encode(const struct sl_terms_at *at, unsigned dtype, const void *in, float *residual,
                     size_t count, void *out, double *power, double *error);

/* in: numbers of the last term, reduced over all ranks. out: count elements of dtype, which are
 * the sum times factor. */
void sl_terms_decode(const struct sl_terms_at *at, unsigned dtype, const void *in, size_t count,
                     float factor, void *out);

#endif
