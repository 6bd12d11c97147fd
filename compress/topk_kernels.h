/* SPDX-License-Identifier: Apache-2.0 */
/* The one pass over memory of top-k, per instruction set. */
#ifndef SL_COMPRESS_TOPK_KERNELS_H
#define SL_COMPRESS_TOPK_KERNELS_H

#include "compress/codec.h"
#include "compress/topk.h"

/* Elements of magnitude threshold or more; index[] counts from base. Returns how many there are. */
typedef size_t sl_topk_select(const float *in, size_t count, uint32_t threshold, uint32_t base,
                              const struct sl_topk_out *out);

sl_topk_select sl_topk_select_c, sl_topk_select_avx2, sl_topk_select_avx512;

/* The paths of this build, plain C last. */
struct sl_topk_path {
    const char *name; /* that of struct sl_codec_kernels */
    sl_topk_select *select;
};
extern const struct sl_topk_path sl_topk_paths[];
extern const size_t sl_topk_path_count;

/* The one that goes with sl_codec_kernels(), forced or not. */
sl_topk_select *sl_topk_best(void);

/* The kept largest of a tile, 1 <= kept <= count. hint: 0, or what the tile before left there,
 * which saves time and changes nothing else. */
void sl_topk_tile(const float *in, size_t count, size_t kept, uint32_t *hint,
                  uint32_t index[SL_TILE], float value[SL_TILE]);

#endif
