/* SPDX-License-Identifier: Apache-2.0 */
/* What codecs have alike that encode each tile by itself, and whose decoding adds to a sum. */
#ifndef SL_COMPRESS_TILEWISE_H
#define SL_COMPRESS_TILEWISE_H

#include "compress/codecs.h"

/* How such a codec deals with one tile of count elements. */
struct sl_tilewise {
    size_t (*len)(const struct sl_codec_spec *spec, size_t count); /* bytes; 0 for no elements */
    /* hint: 0 at the first tile of a message, then what the tile before left there. */
    void (*encode)(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const float *in,
                   size_t count, uint32_t *hint, void *out);
    int (*add)(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
               size_t count, float *sum);
};

size_t sl_tilewise_size(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                        size_t count);
size_t sl_tilewise_encode(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                          const struct sl_codec_at *at, const void *in, size_t count, void *out);
int sl_tilewise_decode(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                       const struct sl_codec_at *at, const void *in, size_t len, size_t count,
                       void *out);
int sl_tilewise_decode_add(const struct sl_tilewise *tiles, const struct sl_codec_spec *spec,
                           const struct sl_codec_at *at, const void *in, size_t len, size_t count,
                           float *sum);

/* The row's add() of codecs whose messages are floats alone. */
int sl_tilewise_add_floats(const struct sl_codec_spec *spec, void *sum, const void *in, size_t len,
                           size_t count);

/* The functions of a row, from the struct sl_tilewise named tiles in its file. */
#define SL_TILEWISE_FUNCTIONS                                                                      \
    static size_t size(const struct sl_codec_spec *spec, size_t count)                             \
    {                                                                                              \
        return sl_tilewise_size(&tiles, spec, count);                                              \
    }                                                                                              \
    static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,           \
                         const void *in, size_t count, void *out)                                  \
    {                                                                                              \
        return sl_tilewise_encode(&tiles, spec, at, in, count, out);                               \
    }                                                                                              \
    static int decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,              \
                      const void *in, size_t len, size_t count, void *out)                         \
    {                                                                                              \
        return sl_tilewise_decode(&tiles, spec, at, in, len, count, out);                          \
    }                                                                                              \
    static int decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,          \
                          const void *in, size_t len, size_t count, float *sum)                    \
    {                                                                                              \
        return sl_tilewise_decode_add(&tiles, spec, at, in, len, count, sum);                      \
    }

#endif
