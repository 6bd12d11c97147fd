/* SPDX-License-Identifier: Apache-2.0 */
/* From which link and size on a codec pays: the engine's own predictions (docs/design/0045), of an
 * allreduce between two hosts with a rank each. */
#ifndef SC_TOOLS_COMPRESS_PAYS_H
#define SC_TOOLS_COMPRESS_PAYS_H

#include "tools/compress/speed.h"

#include "core/code.h"

/* This machine, in seconds a byte. */
struct pays_machine {
    double copy, unit;
};

struct pays_codec {
    struct sl_code code;
    struct sl_codec_spec spec;
};

/* Of a codec as fast as it was measured. */
void pays_init(struct pays_codec *codec, const struct sl_codec_spec *spec,
               const struct pays_machine *machine, const struct speed *speed);

/* How many times less time a call of so many bytes takes over a link of so many bytes per
 * second. */
double pays_gain(const struct pays_codec *codec, const struct pays_machine *machine, double link,
                 size_t bytes);

/* The least power of two, not below min= where it is not said, from which on, up to most, calls are
 * compressed; 0: none. */
size_t pays_from(const struct pays_codec *codec, const struct pays_machine *machine, double link,
                 size_t most);

/* Link rate up to which calls of so many bytes are compressed; 0: none. */
double pays_below(const struct pays_codec *codec, const struct pays_machine *machine, size_t bytes);

#endif
