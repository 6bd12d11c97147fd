/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What encoders fill up with zeros, and decoders do not look at: bytes from outside must have zeros
 * there too, so that a message has one form, and later versions may give such places a meaning.
 */
#ifndef SL_COMPRESS_PADDING_H
#define SL_COMPRESS_PADDING_H

#include "compress/codec.h"

/* in: an encoding of count elements that has the right size. -EBADMSG and a sentence where what a
 * codec of blocks fills up with zeros has others; other codecs check what they read. */
int sl_codec_check_padding(const struct sl_codec_spec *spec, const void *in, uint64_t count);

#endif
