/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What codecs of blocks and of rows fill up with zeros, and do not look at when they decode: bytes
 * from outside must have zeros there too, so that a message has one form, and later versions may
 * give such places a meaning. Not so yet: topk, randk, shiq, sketch and dct, of whose padding
 * nobody asks.
 */
#ifndef SL_COMPRESS_PADDING_H
#define SL_COMPRESS_PADDING_H

#include "compress/codec.h"

/* in: an encoding of count elements that has the right size. -EBADMSG and a sentence where what a
 * codec of blocks or of rows fills up with zeros has others. 0 for other codecs. */
int sl_codec_check_padding(const struct sl_codec_spec *spec, const void *in, uint64_t count);

#endif
