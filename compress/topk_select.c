/* SPDX-License-Identifier: Apache-2.0 */
/* Selects by a threshold in plain C, and finds the path of the codecs' kernels. */
#include "compress/topk_kernels.h"

#include "compress/elements.h"
#include "compress/kernels.h"
#include "core/err.h"

#define BLOCK 64 /* elements looked at together: nearly all blocks have none */

size_t sl_topk_select_c(const float *in, size_t count, uint32_t threshold, uint32_t base,
                        const struct sl_topk_out *out)
{
    size_t found = 0;

    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        uint32_t any = 0;

        for (size_t i = first; i < first + n; i++)
            any |= (sl_f32_bits(in[i]) & SL_BITS_ABS) >= threshold;
        for (size_t i = first; any && i < first + n; i++) {
            if ((sl_f32_bits(in[i]) & SL_BITS_ABS) < threshold)
                continue;
            if (found < out->cap) {
                out->index[found] = base + (uint32_t)i;
                out->value[found] = in[i];
            }
            found++;
        }
    }
    return found;
}

const struct sl_topk_path sl_topk_paths[] = {
#ifdef __x86_64__
    {"avx512", sl_topk_select_avx512},
    {"avx2", sl_topk_select_avx2},
#endif
    {"c", sl_topk_select_c},
};
const size_t sl_topk_path_count = SL_ARRAY_LEN(sl_topk_paths);

sl_topk_select *sl_topk_best(void)
{
    const char *name = sl_codec_kernels()->name;
    size_t i = 0;

    while (i + 1 < sl_topk_path_count && strcmp(sl_topk_paths[i].name, name) != 0)
        i++;
    return sl_topk_paths[i].select;
}
