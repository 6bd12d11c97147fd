/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner of a codec's steps (core/step.h), on the thread that asks: encodes, decodes, and adds
 * what it decodes, in f32.
 *
 * It takes so many elements between two calls of progress(), and is full then: so that what it has
 * encoded is sent while it encodes the next.
 */
#ifndef SL_COMPRESS_RUNNER_H
#define SL_COMPRESS_RUNNER_H

#include "compress/codec.h"
#include "compress/feedback_state.h"
#include "core/code.h"
#include "core/step.h"

#include <stdbool.h>

#define SL_CODE_DTYPES 3 /* f32, bf16, f16 */

/* The codec for elements of one type. */
struct sl_codec_code {
    struct sl_code base;
    struct sl_codec_spec spec;
    bool vote; /* sums are by majority: compress/terms.h */
};

/* What a runner has encoded so far. */
struct sl_code_tally {
    uint64_t messages, elements, bytes;
    /* sums of squares, with measure: of elements, and of what their encodings lack of them. Other
     * threads may read them, by sl_code_tally_read(). */
    double power, error;
};

static inline double sl_code_tally_read(const double *sum)
{
    double now;

    __atomic_load(sum, &now, __ATOMIC_RELAXED);
    return now;
}

/* One writer, any readers. */
static inline void sl_code_tally_add(double *sum, double more)
{
    more += *sum;
    __atomic_store(sum, &more, __ATOMIC_RELAXED);
}

struct sl_code_runner {
    struct sl_runner base;
    const struct sl_codec *codec;
    struct sl_codec_code codes[SL_CODE_DTYPES];
    bool measure;   /* decodes what it has encoded, to know the error */
    uint64_t spent; /* elements since the last progress() */
    struct sl_code_tally tally;
};

/* spec: its dtype does not count, that of each call does. */
void sl_code_runner_init(struct sl_code_runner *runner, const struct sl_codec_spec *spec);

/* Has sums by the majority of signs. -EINVAL: of another codec than sign. */
int sl_code_runner_vote(struct sl_code_runner *runner);

/* For calls with elements of that type; NULL: the codec takes none such. sums: they are reduced,
 * in f32, so that a codec whose bytes are those of bf16 or f16 will not do. */
const struct sl_code *sl_code_runner_code(const struct sl_code_runner *runner,
                                          enum sluice_dtype dtype, bool sums);

#endif
