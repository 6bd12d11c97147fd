/* SPDX-License-Identifier: Apache-2.0 */
/* Lossless codecs: what all paths share, and which path runs here. */
#include "compress/lossless.h"

#include "compress/elements.h"
#include "core/err.h"

#include <string.h>

const struct sl_lossless_path *const sl_lossless_paths[] = {
#ifdef __x86_64__
    &sl_lossless_avx512,
    &sl_lossless_avx2,
#endif
    &sl_lossless_c,
};
const size_t sl_lossless_path_count = SL_ARRAY_LEN(sl_lossless_paths);

const struct sl_lossless_path *sl_lossless_path(void)
{
    for (size_t i = 0; i + 1 < SL_ARRAY_LEN(sl_lossless_paths); i++)
        if (sl_lossless_paths[i]->lacks() == NULL)
            return sl_lossless_paths[i];
    return &sl_lossless_c;
}

const void *sl_lossless_tile(unsigned dtype, const void *in, size_t first, size_t count, void *room,
                             size_t *n)
{
    size_t width = sl_lossless_width(dtype);
    const char *tile = (const char *)in + first * width;
    char *copy = room;

    *n = sl_lossless_round(count);
    if (*n == count)
        return tile;
    memcpy(copy, tile, count * width);
    for (size_t i = count; i < *n; i++)
        memcpy(copy + i * width, copy + (count - 1) * width, width);
    return room;
}

void sl_lossless_add(unsigned dtype, const void *in, size_t count, float *sum)
{
    size_t width = sl_lossless_width(dtype);
    float some[256];

    for (size_t i = 0; i < count; i += 256) {
        size_t n = count - i < 256 ? count - i : 256;
        const float *x = sl_elements_floats(dtype, (const char *)in + i * width, n, some);

        for (size_t j = 0; j < n; j++)
            sum[i + j] += x[j];
    }
}
