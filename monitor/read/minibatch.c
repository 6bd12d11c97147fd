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
#include "monitor/read/formats.h"
#include "monitor/read/lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 64

enum { WORKER, TIME, VALUE, NEEDED };

struct table {
    struct sl_lines lines;
    struct sl_job *job;
    int column[NEEDED]; /* which one holds it; -1: none */
    int column_count;
    uint32_t name;
};

static int which(const char *text, size_t len)
{
    static const struct {
        const char *name;
        int what;
    } names[] = {
        {"worker", WORKER}, {"time", TIME}, {"batch_time_norm", VALUE}, {"batch_time", VALUE}};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i].name) == len && memcmp(names[i].name, text, len) == 0)
            return names[i].what;
    return -1;
}

/* Fields of a line, ended by 0 each: how many, or -1 where there are too many. */
static int split(char *line, char *fields[COLUMNS_MAX])
{
    int count = 0;

    for (char *at = line; at != NULL && count < COLUMNS_MAX; count++) {
        fields[count] = at;
        at = strchr(at, ',');
        if (at != NULL)
            *at++ = '\0';
        else
            return count + 1;
    }
    return -1;
}

static bool is_minibatch(const char *head, size_t len)
{
    const char *end = memchr(head, '\n', len);
    bool has[NEEDED] = {false};

    if (end == NULL)
        return false;
    if (end > head && end[-1] == '\r')
        end--;
    for (const char *at = head; at <= end;) {
        const char *next = memchr(at, ',', (size_t)(end - at));
        int what = which(at, (size_t)((next != NULL ? next : end) - at));

        if (what >= 0)
            has[what] = true;
        if (next == NULL)
            break;
        at = next + 1;
    }
    return has[WORKER] && has[TIME] && has[VALUE];
}

static int read_header(struct table *table)
{
    char *fields[COLUMNS_MAX];
    int err = sl_lines_next(&table->lines);

    if (err < 0)
        return err;
    for (int i = 0; i < NEEDED; i++)
        table->column[i] = -1;
    table->column_count = err > 0 ? split(table->lines.text, fields) : -1;
    for (int i = 0; i < table->column_count; i++) {
        int what = which(fields[i], strlen(fields[i]));

        if (what >= 0 && table->column[what] >= 0)
            return sl_lines_bad(&table->lines, "column %s is there twice", fields[i]);
        if (what >= 0)
            table->column[what] = i;
    }
    for (int i = 0; i < NEEDED; i++)
        if (table->column[i] < 0)
            return sl_lines_bad(&table->lines,
                                "the header must name worker, time and batch_time_norm");
    return 0;
}

static int read_row(struct table *table)
{
    char *fields[COLUMNS_MAX], *end;
    int count = split(table->lines.text, fields);
    const char *worker, *time, *value;
    uint64_t rank = 0, at = 0;
    double seconds;

    if (count != table->column_count)
        return sl_lines_bad(&table->lines, "it has %d fields where the header has %d", count,
                            table->column_count);
    worker = fields[table->column[WORKER]];
    time = fields[table->column[TIME]];
    value = fields[table->column[VALUE]];
    if (!sl_text_number(worker, strlen(worker), &rank) || rank >= SL_JOB_RANKS_MAX)
        return sl_lines_bad(&table->lines, "\"%.40s\" is no worker's number", worker);
    if (!sl_text_number(time, strlen(time), &at) || at > INT64_MAX)
        return sl_lines_bad(&table->lines, "\"%.40s\" is no time", time);
    seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(seconds) || seconds < 0)
        return sl_lines_bad(&table->lines, "\"%.40s\" is no time of a mini-batch", value);
    return sl_job_add_sample(table->job, &(struct sl_job_sample){.rank = (uint32_t)rank,
                                                                 .name = table->name,
                                                                 .at = (int64_t)at,
                                                                 .value = seconds});
}

static int read_minibatch(struct sl_job *job, struct sl_read_in *in)
{
    struct table table = {.job = job, .name = sl_job_text(job, "batch_time", 10)};
    int err;

    if (table.name == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory to read %s", in->name);
    err = sl_lines_open(&table.lines, in);
    if (err == 0)
        err = read_header(&table);
    while (err == 0) {
        err = sl_lines_next(&table.lines);
        if (err <= 0)
            break;
        err = read_row(&table);
    }
    if (err == 0 && table.lines.number < 2)
        err = sl_lines_bad(&table.lines, "nothing follows the header");
    sl_lines_close(&table.lines);
    return err;
}

const struct sl_read_format sl_read_minibatch = {
    .name = "mini-batch times (CSV)", .is = is_minibatch, .read = read_minibatch};
