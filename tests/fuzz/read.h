/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzed bytes as a file of a recorded job: it is read in pieces of odd sizes, and what could be
 * read is diagnosed. */
#ifndef SL_TESTS_FUZZ_READ_H
#define SL_TESTS_FUZZ_READ_H

#include "core/err.h"
#include "monitor/diagnosis/slow.h"
#include "monitor/read/formats.h"

#include <errno.h>
#include <string.h>

struct fuzz_read {
    struct sl_read_in in;
    const uint8_t *at;
    size_t left;
};

static inline long fuzz_more(struct sl_read_in *in, void *buffer, size_t cap)
{
    struct fuzz_read *read = (struct fuzz_read *)in;
    size_t len = read->left < cap ? read->left : cap;

    len = len > 61 ? 61 : len;
    if (len > 0)
        memcpy(buffer, read->at, len);
    read->at += len;
    read->left -= len;
    return (long)len;
}

static inline struct fuzz_read fuzz_read_of(const uint8_t *data, size_t size)
{
    return (struct fuzz_read){
        .in = {.name = "fuzzed", .more = fuzz_more}, .at = data, .left = size};
}

static inline void fuzz_format(const struct sl_read_format *format, const uint8_t *data,
                               size_t size)
{
    static const struct sl_slow_options options = SL_SLOW_OPTIONS;
    struct fuzz_read read = fuzz_read_of(data, size);
    struct sl_verdicts verdicts = {0};
    struct sl_job *job = sl_job_new();
    int err;

    sl_assert(job != NULL);
    format->is((const char *)data, size);
    err = format->read(job, &read.in);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != 0);
    sl_assert(sl_job_seal(job) == 0);
    sl_assert(sl_slow_find(job, &options, &verdicts) == 0);
    sl_assert(sl_gauges_find(job, &verdicts) == 0);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

#endif
