/* SPDX-License-Identifier: Apache-2.0 */
/* A tile's elements on their way between the caller's memory and the kernels. */
#include "compress/tile.h"

#include "compress/elements.h"

const float *sl_tile_floats(const struct sl_tile *tile, unsigned dtype, const void *in,
                            size_t count, float scratch[SL_TILE], const void **next)
{
    const char *from = (const char *)in + tile->first * sl_dtype_bytes(dtype);
    const float *floats = sl_elements_floats(dtype, from, tile->count, scratch);

    *next = NULL;
    if (count - tile->first > SL_TILE)
        *next = from + SL_TILE * sl_dtype_bytes(dtype);
    if (tile->count == tile->units)
        return floats;
    if (floats != scratch)
        memcpy(scratch, floats, tile->count * sizeof(float));
    memset(scratch + tile->count, 0, (tile->units - tile->count) * sizeof(float));
    return scratch;
}

struct sl_input sl_tile_input(const struct sl_tile *tile, unsigned dtype, const void *in,
                              size_t count, float scratch[SL_TILE])
{
    struct sl_input input = {(const char *)in + tile->first * sl_dtype_bytes(dtype), dtype, NULL};

    if (dtype == SLUICE_F32 || tile->count != tile->units) {
        input.at = sl_tile_floats(tile, dtype, in, count, scratch, &input.next);
        input.dtype = SLUICE_F32;
    } else if (count - tile->first > SL_TILE) {
        input.next = (const char *)input.at + SL_TILE * sizeof(uint16_t);
    }
    return input;
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

struct sl_output sl_tile_output(const struct sl_tile *tile, unsigned dtype, void *out, size_t count,
                                bool add, float scratch[SL_TILE])
{
    struct sl_output output = {.dtype = dtype, .put = SL_PUT_STORE};

    if (dtype == SLUICE_F32 || tile->count != tile->units) {
        output.at = sl_tile_target(tile, dtype, out, count, add, scratch, &output.put);
        output.dtype = SLUICE_F32;
        return output;
    }
    output.at = (char *)out + tile->first * sizeof(uint16_t);
    return output;
}

void sl_tile_deliver(const struct sl_tile *tile, unsigned dtype, void *out, bool add,
                     const float *numbers)
{
    char *to = (char *)out + tile->first * sl_dtype_bytes(dtype);

    if (add)
        sl_codec_kernels()->feedback_sum((float *)out + tile->first, numbers, tile->count,
                                         (float *)out + tile->first);
    else
        sl_elements_narrow(dtype, numbers, tile->count, to);
}
