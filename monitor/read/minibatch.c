/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of mini-batches by worker, as CSV with a header (Alibaba's cluster-trace-gpu-v2020):
 *
 *     ,worker,gpu,time,batch_time_norm
 *     0,0,25,1,476
 *
 * Columns may come in any order; worker, time and batch_time_norm (or batch_time) must be there. A
 * worker becomes a rank, a time becomes a sample.
 */
#include "core/err.h"
#include "monitor/read/csv.h"
#include "monitor/read/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKER, TIME, VALUE, NEEDED };

static const struct sl_csv_column columns[] = {{"worker", WORKER},
                                               {"time", TIME},
                                               {"batch_time_norm", VALUE},
                                               {"batch_time", VALUE},
                                               {NULL, 0}};

struct table {
    struct sl_job *job;
    uint32_t name;
};

static bool is_minibatch(const char *head, size_t len)
{
    return sl_csv_is(columns, NEEDED, head, len);
}

static int read_row(struct sl_csv *csv, void *context)
{
    const struct table *table = context;
    const char *worker = sl_csv_field(csv, WORKER), *time = sl_csv_field(csv, TIME),
               *value = sl_csv_field(csv, VALUE);
    uint64_t rank = 0, at = 0;
    double seconds;
    char *end;

    if (!sl_text_number(worker, strlen(worker), &rank) || rank >= SL_JOB_RANKS_MAX)
        return sl_lines_bad(&csv->lines, "\"%.40s\" is no worker's number", worker);
    if (!sl_text_number(time, strlen(time), &at) || at > INT64_MAX)
        return sl_lines_bad(&csv->lines, "\"%.40s\" is no time", time);
    seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(seconds) || seconds < 0)
        return sl_lines_bad(&csv->lines, "\"%.40s\" is no time of a mini-batch", value);
    return sl_job_add_sample(table->job, &(struct sl_job_sample){.rank = (uint32_t)rank,
                                                                 .name = table->name,
                                                                 .at = (int64_t)at,
                                                                 .value = seconds});
}

static int read_minibatch(struct sl_job *job, struct sl_read_in *in)
{
    struct table table = {.job = job, .name = sl_job_text(job, "batch_time", 10)};
    struct sl_csv csv = {
        .columns = columns, .needed = NEEDED, .header = "worker, time and batch_time_norm"};

    if (table.name == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    return sl_csv_read(&csv, in, read_row, &table);
}

const struct sl_read_format sl_read_minibatch = {
    .name = "mini-batch times (CSV)", .is = is_minibatch, .read = read_minibatch};
