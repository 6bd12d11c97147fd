/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seed and scalar: a vector of random signs z is known by its seed, so that an update along it is
 * one number. The sender projects its gradient, <z, g>, or measures the loss at both sides along z;
 * whoever hears seed and scalar makes z again and adds scalar * z.
 *
 * Sign of element i: bit i % 128 of the words of philox for counter (i / 128, stream, step); set:
 * -1. A draw of 128 bits serves 128 elements, so that regenerating costs less than reading memory.
 *
 * Source: Z. Qin et al., "Federated full-parameter tuning of billion-sized language models with
 * communication cost under 18 kilobytes", ICML 2024; S. Malladi et al., "Fine-tuning language
 * models with just forward passes", NeurIPS 2023.
 */
#ifndef SL_COMPRESS_SEEDSCALAR_H
#define SL_COMPRESS_SEEDSCALAR_H

#include <stddef.h>
#include <stdint.h>

struct sl_direction {
    uint64_t seed;
    uint32_t stream, step;
};

/* Elements first to first + count - 1 of z; first is a multiple of 128. */
void sl_direction_fill(const struct sl_direction *z, uint64_t first, size_t count, float *out);

/* <z, in>, in f64: 16 lanes strided over each 4096 elements, lanes added from 0 to 15, then the
 * 4096s in order. The same bits everywhere. */
double sl_direction_project(const struct sl_direction *z, uint64_t first, const float *in,
                            size_t count);

/* out[i] += scalar * z[i]. */
void sl_direction_apply(const struct sl_direction *z, uint64_t first, float scalar, size_t count,
                        float *out);

#endif
