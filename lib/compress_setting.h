/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a setting of compression, taken apart: "bq8:min=1M,seed=7". */
#ifndef SL_LIB_COMPRESS_SETTING_H
#define SL_LIB_COMPRESS_SETTING_H

#include <stdbool.h>
#include <stdint.h>

#define SL_COMPRESSION_TEXT_MAX 256
#define SL_COMPRESSION_INSIDE_MAX 32

/* min= where costs decide and it is not said, below the break-even of any link that is worth it: at
 * 100 Mbit/s it lies near 4 KiB. Smaller calls are metrics and counts, in which nobody expects an
 * error. */
#define SL_COMPRESSION_MIN_BYTES (4 << 10)

struct sl_compression_setting {
    char codec[SL_COMPRESSION_TEXT_MAX];    /* what is for the codec: "bq8:seed=7" */
    char inside[SL_COMPRESSION_INSIDE_MAX]; /* codec within hosts */
    const char *recipe;                     /* NULL: none is asked for */
    int64_t min_bytes, keep_bytes;
    bool feedback, measure, vote;
    bool always; /* when=always: whatever it costs */
};

/* -EINVAL, and a sentence with the choices there are. */
int sl_compression_parse(const char *text, struct sl_compression_setting *out);

#endif
