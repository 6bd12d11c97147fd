/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that ranks measured of their own work. */
#include "monitor/diagnosis/series.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MIN 1000000000000000 /* ns: 12 days after 1970; no job has as many iterations */
#define CELLS_PER_VALUE 64        /* a table is at most so many times as large as what is known */
#define CELLS_FREE 4096
#define STEPS_MIN 3 /* fewer make no alarm */

struct sl_series_value {
    uint32_t name, rank;
    int64_t at;
    size_t from; /* among samples: of one time the later one comes later */
};

bool sl_series_is_time(int64_t at)
{
    return at >= TIME_MIN;
}

static bool is_own_work(const char *name)
{
    static const char *const prefixes[] = {"batch_time", "XPU_TIMER_MM_KERNEL_AVG_LATENCY"};

    for (unsigned i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static int by_name_and_rank(const void *a, const void *b)
{
    const struct sl_series_value *x = a, *y = b;

    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* Scrapes that do not say when they were made have one time: they are counted instead. */
static void count_times(struct sl_series_value *values, size_t count)
{
    bool is_twice = false;

    for (size_t i = 1; i < count; i++)
        is_twice =
            is_twice || (values[i].rank == values[i - 1].rank && values[i].at == values[i - 1].at);
    for (size_t i = 0; is_twice && i < count; i++)
        values[i].at = i > 0 && values[i].rank == values[i - 1].rank ? values[i - 1].at + 1 : 0;
}

static int lay_out(const struct sl_job *job, const struct sl_series_value *values, size_t count,
                   struct sl_series *series)
{
    size_t cells;

    series->at = reallocarray(NULL, count + 1, sizeof(*series->at));
    if (series->at == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        series->at[i] = values[i].at;
    qsort(series->at, count, sizeof(*series->at), by_time);
    for (size_t i = 0; i < count; i++)
        if (series->step_count == 0 || series->at[series->step_count - 1] != series->at[i])
            series->at[series->step_count++] = series->at[i];
    cells = (size_t)job->rank_count * series->step_count;
    if (series->step_count < STEPS_MIN || cells / CELLS_PER_VALUE > count + CELLS_FREE) {
        series->step_count = 0;
        return 0;
    }
    series->values = reallocarray(NULL, cells + 1, sizeof(*series->values));
    series->roles = calloc(job->rank_count + 1, sizeof(*series->roles));
    if (series->values == NULL || series->roles == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < cells; i++)
        series->values[i] = NAN;
    for (size_t i = 0; i < count; i++) {
        const int64_t *step =
            bsearch(&values[i].at, series->at, series->step_count, sizeof(*series->at), by_time);

        series->values[(size_t)values[i].rank * series->step_count + (size_t)(step - series->at)] =
            job->samples[values[i].from].value;
    }
    return 0;
}

/* The step between: the middle one of their distances. */
static double step_of(const struct sl_series *series)
{
    int64_t first = series->at[0], last = series->at[series->step_count - 1];

    if (!sl_series_is_time(first) || series->step_count < 2)
        return 0;
    return (double)(last - first) * 1e-9 / (series->step_count - 1);
}

int sl_series_open(const struct sl_job *job, struct sl_series_list *list)
{
    uint32_t last = 0;
    bool is_own = false;

    *list = (struct sl_series_list){.job = job};
    list->values = reallocarray(NULL, job->sample_count + 1, sizeof(*list->values));
    if (list->values == NULL)
        return sl_fail(-ENOMEM, "no memory for the samples of a job");
    for (size_t i = 0; i < job->sample_count; i++) {
        const struct sl_job_sample *it = &job->samples[i];

        if (i == 0 || it->name != last)
            is_own = is_own_work(sl_job_string(job, it->name));
        last = it->name;
        if (is_own)
            list->values[list->value_count++] =
                (struct sl_series_value){it->name, it->rank, it->at, i};
    }
    qsort(list->values, list->value_count, sizeof(*list->values), by_name_and_rank);
    for (size_t i = 0; i < list->value_count; i++)
        list->count += i == 0 || list->values[i].name != list->values[i - 1].name;
    return 0;
}

void sl_series_close(struct sl_series_list *list)
{
    free(list->values);
    *list = (struct sl_series_list){0};
}

int sl_series_next(struct sl_series_list *list, struct sl_series *series)
{
    struct sl_series_value *values = list->values + list->next;
    const struct sl_job *job = list->job;
    size_t count = 0;

    *series = (struct sl_series){0};
    if (list->next == list->value_count)
        return 0;
    series->name = values[0].name;
    while (list->next + count < list->value_count && values[count].name == series->name)
        count++;
    list->next += count;
    count_times(values, count);
    if (lay_out(job, values, count, series) != 0)
        return sl_fail(-ENOMEM, "no memory for the samples of a job");
    if (series->step_count == 0)
        return 1;
    for (uint32_t i = 0; i < job->rank_count; i++)
        series->roles[i] = (uint64_t)job->ranks[i].stage << 32 | job->ranks[i].tensor;
    series->step_s = step_of(series);
    return 1;
}

void sl_series_fini(struct sl_series *series)
{
    free(series->at);
    free(series->values);
    free(series->roles);
    *series = (struct sl_series){0};
}
