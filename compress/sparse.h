/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the few elements that are kept: sorted places, then values.
 *
 * A message of count elements is a row of tiles of SL_SPARSE_TILE elements, each a word of 32 bits
 * (17 of how many are kept, 2 of the kind, 4 of the Rice parameter), the places, zeros up to 4
 * bytes, the values as f32 or bf16, zeros up to 4 bytes. Places are the shortest of a list of u16,
 * a bitmap (above one element of 16), and, where the spec allows them, Rice-coded gaps. So the same
 * elements have the same bytes, and readers refuse others.
 *
 * In memory elements are two arrays of the caller: indices, ascending, none twice, and values.
 */
#ifndef SL_COMPRESS_SPARSE_H
#define SL_COMPRESS_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_SPARSE_TILE 65536
#define SL_SPARSE_COUNT_MOST UINT32_MAX /* elements of a message: indices have 32 bits */

/* Alike on all ranks, as a codec's spec is. */
struct sl_sparse_spec {
    bool bf16; /* values; otherwise f32 */
    bool rice; /* gaps may be coded: fewer bytes, more time */
};

/* Most bytes of any message of kept out of count elements. */
size_t sl_sparse_bound(const struct sl_sparse_spec *spec, size_t count, size_t kept);

/* Returns the bytes written, bound() at most. out: aligned to 4. */
size_t sl_sparse_write(const struct sl_sparse_spec *spec, const uint32_t *index, const float *value,
                       size_t kept, size_t count, void *out);

/* These read what a peer or a file gave, aligned to 4: -EBADMSG and a sentence where it is no
 * message of count elements; then nothing is written. */

int sl_sparse_check(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                    size_t *kept);

/* -ENOSPC: more than cap are kept. */
int sl_sparse_read(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                   size_t cap, uint32_t *index, float *value, size_t *kept);

/* sum[i] += value, of each that is kept. */
int sl_sparse_add(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                  float *sum);

/* out = a + b, kept where either keeps one, even if the sum is 0: how long the result is depends on
 * places alone. out: bound() of both together, none of the inputs. */
int sl_sparse_merge(const struct sl_sparse_spec *spec, const void *a, size_t a_len, const void *b,
                    size_t b_len, size_t count, void *out, size_t *out_len);

#endif
