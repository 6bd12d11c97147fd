/* SPDX-License-Identifier: Apache-2.0 */
/* rANS messages by a path of the caller's choice, for tests and benchmarks. */
#ifndef SL_COMPRESS_RANS_BY_H
#define SL_COMPRESS_RANS_BY_H

#include "compress/lossless.h"

/* table: one that both sides have, which then is not in the message; NULL: each segment has its own
 * in the message. */
size_t sl_rans_encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                         const struct sl_rans_table *table, const void *in, size_t count,
                         void *out);
int sl_rans_decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                      const struct sl_rans_table *table, const void *in, size_t len, size_t count,
                      void *out);

#endif
