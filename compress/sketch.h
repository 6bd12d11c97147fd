/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Count sketches: each element goes, with a random sign, into one cell of each row of a small
 * table. Tables add up as messages do, and the median over the rows of an element's cells estimates
 * it: well where it is large, so that the largest of a sum can be found without the sum.
 *
 * Source: M. Charikar et al., "Finding frequent items in data streams", ICALP 2002; D. Rothchild et
 * al., "FetchSGD", ICML 2020.
 */
#ifndef SL_COMPRESS_SKETCH_H
#define SL_COMPRESS_SKETCH_H

#include "compress/topk.h"

#define SL_SKETCH_ROWS_MOST 15

/* The same on all ranks. rows: odd, so that there is a median. A table is rows x columns floats. */
struct sl_sketch {
    uint32_t rows, columns;
    uint64_t seed;
};

/* table += the sketch of elements first, first + 1, ... */
void sl_sketch_add(const struct sl_sketch *sketch, uint64_t first, const float *in, size_t count,
                   float *table);

/* out[i] = the estimate of element first + i. NaN is the one without a sign. */
void sl_sketch_estimate(const struct sl_sketch *sketch, const float *table, uint64_t first,
                        size_t count, float *out);

/* The k largest estimates of elements 0 to count - 1. scratch: count floats, the estimates
 * afterwards. Returns min(k, count); out has room for that many at least. */
size_t sl_sketch_topk(const struct sl_sketch *sketch, const float *table, size_t count, size_t k,
                      float *scratch, struct sl_topk_work *work, const struct sl_topk_out *out);

#endif
