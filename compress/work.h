/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What codecs cost the processor, for those who predict. A figure is told in encodings of as many
 * elements of f32 by bq8 in the caches, which each process measures on its own machine
 * (sl_codec_work_unit()): a table of ratios holds for processors that differ by far more than it is
 * wrong (docs/design/0045-compressed-collectives.md).
 */
#ifndef SL_COMPRESS_WORK_H
#define SL_COMPRESS_WORK_H

#include "compress/codec.h"
#include "core/code.h"

/* Of elements that come from memory or go there, as those of collectives do. */
struct sl_code_work sl_codec_work(const struct sl_codec_spec *spec);

/* Bytes that an element of spec->dtype usually takes, where size() is but the most; 0: as size()
 * says. */
float sl_codec_usual(const struct sl_codec_spec *spec);

/* The unit: encodes len bytes of f32. out: as many bytes, aligned to 16. */
void sl_codec_work_unit(const void *in, size_t len, void *out);

#endif
