/* SPDX-License-Identifier: Apache-2.0 */
/* A tile's elements on their way between the caller's memory and the kernels. */
#include "compress/tile.h"

#include "compress/elements.h"

static size_t size_of(unsigned dtype)
{
    return dtype == SLUICE_F32 ? 4 : 2;
}

const float *sl_tile_floats(const struct sl_tile *tile, unsigned dtype, const void *in,
                            size_t count, float scratch[SL_TILE], const void **next)
{
    const char *from = (const char *)in + tile->first * size_of(dtype);
    const float *floats = sl_elements_floats(dtype, from, tile->count, scratch);

    *next = NULL;
    if (count - tile->first > SL_TILE)
        *next = from + SL_TILE * size_of(dtype);
    if (tile->count == tile->units)
        return floats;
    if (floats != scratch)
        memcpy(scratch, floats, tile->count * sizeof(float));
    memset(scratch + tile->count, 0, (tile->units - tile->count) * sizeof(float));
    return scratch;
}

float *sl_tile_target(const struct sl_tile *tile, unsigned dtype, void *out, size_t count, bool add,
                      float scratch[SL_TILE], enum sl_put *put)
{
    uintptr_t place = (uintptr_t)out;
    bool large = count * sizeof(float) >= SL_STREAM_BYTES;

    *put = SL_PUT_STORE;
    if (tile->count != tile->units || dtype != SLUICE_F32 || place % sizeof(float) != 0)
        return scratch;
    *put = add ? SL_PUT_ADD : large && place % 64 == 0 ? SL_PUT_STREAM : SL_PUT_STORE;
    return (float *)out + tile->first;
}

void sl_tile_deliver(const struct sl_tile *tile, unsigned dtype, void *out, bool add,
                     const float *numbers)
{
    char *to = (char *)out + tile->first * size_of(dtype);

    if (add)
        sl_codec_kernels()->feedback_sum((float *)out + tile->first, numbers, tile->count,
                                         (float *)out + tile->first);
    else
        sl_elements_narrow(dtype, numbers, tile->count, to);
}
