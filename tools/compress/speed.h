/* SPDX-License-Identifier: Apache-2.0 */
/* How fast codecs are on this machine. */
#ifndef SC_TOOLS_COMPRESS_SPEED_H
#define SC_TOOLS_COMPRESS_SPEED_H

#include "compress/codec.h"

#include <stdbool.h>
#include <stddef.h>

/* Memory for messages of so many bytes. */
struct speed_buffers {
    size_t bytes;
    float *floats, *sum; /* as many as there are elements of 16 bits */
    void *in, *encoded, *out;
};

/* Of messages of a size: bytes of elements per second, and the part of them that is sent. */
struct speed {
    double encode, decode, add, wire;
};

/* -ENOMEM and a sentence. */
int speed_init(struct speed_buffers *b, size_t bytes);
void speed_fini(struct speed_buffers *b);

/* False: spec makes more of its elements than there is room for. */
bool speed_fits(const struct speed_buffers *b, const struct sl_codec_spec *spec);
int speed_measure(const struct speed_buffers *b, const struct sl_codec_spec *spec,
                  struct speed *out);

/* Seconds a byte in the caches, as the engine measures them: of a copy, and of f32 by the codec
 * that predictions count in (compress/work.h). */
double speed_of_copy(const struct speed_buffers *b);
double speed_of_unit(const struct speed_buffers *b);

#endif
