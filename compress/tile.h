/* SPDX-License-Identifier: Apache-2.0 */
/* A tile's elements on their way between the caller's memory and the kernels. */
#ifndef SL_COMPRESS_TILE_H
#define SL_COMPRESS_TILE_H

#include "compress/kernels.h"

struct sl_tile {
    size_t first, count; /* elements of the message */
    size_t units;        /* count, rounded up to whole units of SL_UNIT */
};

/* The tile that begins at element first. */
static inline struct sl_tile sl_tile_at(size_t first, size_t count)
{
    size_t n = count - first < SL_TILE ? count - first : SL_TILE;

    return (struct sl_tile){first, n, (n + SL_UNIT - 1) / SL_UNIT * SL_UNIT};
}

/* The tile's elements as floats, whole units, the last filled up with zeros: where they lie, or in
 * scratch. *next: where the next tile lies, for kernels to ask for, or NULL. */
const float *sl_tile_floats(const struct sl_tile *tile, unsigned dtype, const void *in,
                            size_t count, float scratch[SL_TILE], const void **next);

/* The same for kernels that widen as they load: where they lie, of the type they have, but for what
 * must be filled up. */
struct sl_input sl_tile_input(const struct sl_tile *tile, unsigned dtype, const void *in,
                              size_t count, float scratch[SL_TILE]);

/* Where kernels shall put decoded numbers of this tile: straight into out, or to scratch, for
 * sl_tile_deliver(). *put: the kernel's. add: to f32. */
float *sl_tile_target(const struct sl_tile *tile, unsigned dtype, void *out, size_t count, bool add,
                      float scratch[SL_TILE], enum sl_put *put);
/* The same for kernels that narrow as they store, which measures slower past the caches. Only what
 * lies in scratch is to be delivered. */
struct sl_output sl_tile_output(const struct sl_tile *tile, unsigned dtype, void *out, size_t count,
                                bool add, float scratch[SL_TILE]);
void sl_tile_deliver(const struct sl_tile *tile, unsigned dtype, void *out, bool add,
                     const float *numbers);

/* After the last tile of an output of so many bytes: many of them went past the caches. */
static inline void sl_tile_fence(size_t len)
{
    if (len >= SL_STREAM_BYTES)
        sl_codec_kernels()->fence();
}

#endif
