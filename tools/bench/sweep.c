/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing loops.
 *
 * The mean comes from a batch of operations with a clock before and after, so that nothing disturbs
 * small sizes; minimum, median and 99th percentile from a pass of their own with a clock around
 * each. The number of operations is agreed by all ranks: the slowest decides.
 */
#include "sweep.h"

#include "colls.h"
#include "core/clock.h"
#include "core/err.h"
#include "options.h"
#include "place.h"
#include "report.h"
#include "verify.h"
#include "work.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define AGG_MAX 64
#define ITERS_MIN 3
#define ITERS_MAX 1000000
#define SAMPLES_MAX 20000
#define PAGE 4096
#define PROGRESS_AFTER_NS (2 * SL_NS_PER_S)

/* What a rank tells the others after a measurement. Sent as bytes between equal programs. */
struct record {
    struct sb_stat stat;
    uint64_t wrong, hash;
    uint64_t wire_bytes, raw_bytes; /* of the batch, where a codec was used */
    struct sb_error lossy;
};

struct sweep {
    struct sluice_comm *comm;
    const struct sb_options *options;
    FILE *out;
    struct sb_results *results;
    int rank, size;
    /* two buffers; each holds agg slots of slot_bytes */
    char *memory[2];
    size_t slot_bytes, memory_bytes;
    struct sluice_buffer *registered[2];
    size_t *tables;         /* [4 * size] */
    struct record *records; /* [size] */
    double *samples;        /* [SAMPLES_MAX] */
    struct sb_place places[AGG_MAX];
    struct sb_work work; /* between operations */
    uint64_t seed, started_ns;
    size_t rows_expected, rows_done;
    int last_coll; /* whose table head was printed; -1: none */
    const char *last_codec;
    bool coded; /* the calls of this row go by a codec */
    bool one_host;
};

static double now_s(void)
{
    return (double)sl_now(&sl_clock_monotonic) * 1e-9;
}

/* Waits for and frees those that were made (the others are NULL). The first error stays, with its
 * sentence. */
static int finish_requests(struct sluice_req **reqs, int count, int err)
{
    struct sl_error error;

    sl_error_take(err, &error);
    for (int i = 0; i < count; i++) {
        int status = reqs[i] != NULL ? sluice_wait(reqs[i]) : 0;

        if (err == 0 && status != 0) {
            err = status;
            sl_error_take(err, &error);
        }
        sluice_req_free(reqs[i]);
    }
    return err == 0 ? 0 : sl_fail_error(&error);
}

/* The round of operations that is timed as one: agg calls, all in flight together. */
static int run_group(struct sweep *s)
{
    struct sluice_req *reqs[AGG_MAX * SB_REQS_MAX] = {NULL};
    int agg = s->options->agg, err = sluice_group_start(), total = 0;

    for (int i = 0; i < agg && err == 0; i++) {
        int count = 0;

        err = sb_place_start(&s->places[i], reqs + total, &count);
        if (err == 0)
            total += count;
    }
    int end = sluice_group_end();
    return finish_requests(reqs, total, err != 0 ? err : end);
}

static int run_nonblocking(const struct sb_place *place)
{
    struct sluice_req *reqs[SB_REQS_MAX] = {NULL};
    int count = 0, err = sb_place_start(place, reqs, &count);

    return finish_requests(reqs, count, err);
}

static int run_once(struct sweep *s)
{
    const struct sb_place *place = &s->places[0];

    if (s->options->agg > 1)
        return run_group(s);
    return s->options->blocking ? sb_place_start(place, NULL, NULL) : run_nonblocking(place);
}

static int run_batch(struct sweep *s, uint64_t iters)
{
    int (*start)(const struct sb_call *, struct sluice_req **, int *) = s->places[0].coll->start;
    const struct sb_call *call = &s->places[0].call;
    int err = 0;

    if (s->options->agg > 1 || !s->options->blocking || s->work.memory != NULL ||
        s->places[0].operation_count > 1) {
        for (uint64_t i = 0; i < iters && err == 0; i++) {
            sb_work_do(&s->work);
            err = run_once(s);
        }
        return err;
    }
    /* The shortest way, as small sizes are a few hundred nanoseconds. */
    if (s->places[0].operation_count == 1) {
        for (uint64_t i = 0; i < iters && err == 0; i++)
            err = sluice_start(s->places[0].operations[0], NULL);
        return err;
    }
    for (uint64_t i = 0; i < iters && err == 0; i++)
        err = start(call, NULL, NULL);
    return err;
}

static int time_batch(struct sweep *s, uint64_t iters, double *out_s)
{
    int err = sluice_barrier(s->comm, NULL);
    double start = now_s();

    if (err == 0)
        err = run_batch(s, iters);
    *out_s = (now_s() - start) / (double)iters / s->options->agg;
    return err;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int time_samples(struct sweep *s, uint64_t iters, struct sb_stat *stat)
{
    size_t count = iters < SAMPLES_MAX ? (size_t)iters : SAMPLES_MAX;
    int err = sluice_barrier(s->comm, NULL);
    double before = now_s();

    for (size_t i = 0; i < count && err == 0; i++) {
        double after;

        if (s->work.memory != NULL) {
            sb_work_do(&s->work);
            before = now_s();
        }
        err = run_once(s);
        after = now_s();
        s->samples[i] = (after - before) / s->options->agg;
        before = after;
    }
    if (err != 0)
        return err;
    qsort(s->samples, count, sizeof(double), compare_doubles);
    stat->min = s->samples[0];
    stat->p50 = s->samples[count / 2];
    stat->p99 = s->samples[(count - 1) * 99 / 100];
    stat->max = s->samples[count - 1];
    return 0;
}

static int share_records(struct sweep *s, const struct record *mine)
{
    return sluice_all_gather(s->comm, mine, s->records, sizeof(*mine), SLUICE_U8, NULL);
}

/* Seconds per operation of the slowest rank, by a batch of iters. */
static int time_slowest(struct sweep *s, uint64_t iters, double *out_s)
{
    struct record mine = {0};
    int err = time_batch(s, iters, &mine.stat.mean);

    if (err == 0)
        err = share_records(s, &mine);
    if (err != 0)
        return err;
    *out_s = 1e-9;
    for (int rank = 0; rank < s->size; rank++)
        *out_s = fmax(*out_s, s->records[rank].stat.mean * s->options->agg);
    return 0;
}

/* How many operations fill the time that a size is given; the same on all ranks. */
static int agree_iters(struct sweep *s, uint64_t *out)
{
    double budget = s->options->budget_s, slowest = 0;
    int err;

    if (s->options->iters > 0) {
        *out = (uint64_t)s->options->iters;
        return 0;
    }
    err = time_slowest(s, 1, &slowest);
    /* One operation says little when it takes a microsecond. */
    if (err == 0 && slowest * 40 < budget)
        err = time_slowest(s, (uint64_t)(budget / 20 / slowest), &slowest);
    if (err != 0)
        return err;
    *out = (uint64_t)fmin(fmax(budget / slowest, ITERS_MIN), ITERS_MAX);
    return 0;
}

static double over_ranks(const struct sweep *s, size_t offset)
{
    double sum = 0, low = INFINITY, high = 0, first = 0;

    for (int rank = 0; rank < s->size; rank++) {
        double value;

        memcpy(&value, (const char *)&s->records[rank].stat + offset, sizeof(value));
        if (rank == 0)
            first = value;
        sum += value;
        low = fmin(low, value);
        high = fmax(high, value);
    }
    switch (s->options->average) {
    case SB_RANK0: return first;
    case SB_MIN: return low;
    case SB_MAX: return high;
    default: return sum / s->size;
    }
}

/* A barrier has no data; what can be judged on one host is that nobody left before all came. */
static int check_barrier(struct sweep *s, struct record *mine)
{
    double last_enter = 0, first_leave = INFINITY;
    int err = sluice_barrier(s->comm, NULL);

    for (int rank = 0; rank < s->rank % 4 * 50; rank++)
        now_s(); /* ranks come at different times */
    mine->stat.min = now_s();
    if (err == 0)
        err = run_once(s);
    mine->stat.max = now_s();
    if (err == 0)
        err = share_records(s, mine);
    if (err != 0 || !s->one_host)
        return err;
    for (int rank = 0; rank < s->size; rank++) {
        last_enter = fmax(last_enter, s->records[rank].stat.min);
        first_leave = fmin(first_leave, s->records[rank].stat.max);
    }
    mine->wrong += s->rank == 0 && first_leave < last_enter;
    return 0;
}

/* Runs the row check times on known data. */
static int check(struct sweep *s, struct record *mine)
{
    mine->wrong = mine->hash = 0;
    mine->lossy = (struct sb_error){0, 0};
    for (int i = 0; i < s->options->check; i++) {
        int err;

        if (!s->places[0].coll->sized) {
            struct record times = {0};

            err = check_barrier(s, &times);
            mine->wrong += times.wrong;
            if (err != 0)
                return err;
            continue;
        }
        s->seed++;
        for (int slot = 0; slot < s->options->agg; slot++)
            sb_place_fill(&s->places[slot], s->seed + (uint64_t)slot * 1000003);
        err = run_once(s);
        if (err != 0)
            return err;
        for (int slot = 0; slot < s->options->agg; slot++) {
            const struct sb_place *place = &s->places[slot];

            mine->wrong += sb_place_check(place, s->seed + (uint64_t)slot * 1000003,
                                          s->coded ? &mine->lossy : NULL);
            if (place->id == SB_ALLREDUCE)
                mine->hash = mine->hash * 31 + sb_hash(place->out, place->out_bytes);
        }
    }
    return 0;
}

/* What the codec came to, on all ranks. */
static void sum_codec(const struct sweep *s, uint64_t iters, struct sb_cell *cell)
{
    struct sb_error lossy = {0, 0};
    double raw = 0;

    for (int rank = 0; rank < s->size; rank++) {
        cell->wire_bytes += (double)s->records[rank].wire_bytes / (double)iters / s->size;
        raw += (double)s->records[rank].raw_bytes / (double)iters / s->size;
        lossy.power += s->records[rank].lossy.power;
        lossy.error += s->records[rank].lossy.error;
    }
    cell->wire_ratio = raw > 0 ? cell->wire_bytes / raw : 1;
    cell->error = -1;
    if (s->coded && s->options->check > 0)
        cell->error = lossy.error == 0 ? 0 : lossy.error / lossy.power;
    if (isnan(cell->error))
        cell->wrong++;
}

static int finish_cell(struct sweep *s, const struct sb_row *row, const struct record *mine,
                       uint64_t iters, struct sb_cell *cell)
{
    const struct sb_coll *coll = &sb_colls[row->coll];
    bool idle = s->size == 1 && cell == &row->cell[1]; /* one rank in place has nothing to do */
    int err = share_records(s, mine);

    if (err != 0)
        return err;
    cell->ranks = calloc((size_t)s->size, sizeof(*cell->ranks));
    if (cell->ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for the times of %d ranks", s->size);
    cell->valid = true;
    cell->iters = iters;
    cell->wrong = s->options->check > 0 ? 0 : -1;
    for (int rank = 0; rank < s->size; rank++) {
        cell->ranks[rank] = s->records[rank].stat;
        cell->wrong += s->options->check > 0 ? (int64_t)s->records[rank].wrong : 0;
        s->results->differing += s->records[rank].hash != s->records[0].hash;
    }
    sum_codec(s, iters * (uint64_t)s->options->agg, cell);
    cell->time_s = over_ranks(s, offsetof(struct sb_stat, mean));
    cell->p50_s = over_ranks(s, offsetof(struct sb_stat, p50));
    cell->p99_s = over_ranks(s, offsetof(struct sb_stat, p99));
    cell->algbw = cell->time_s > 0 ? (double)row->bytes / cell->time_s * 1e-9 : 0;
    cell->busbw = cell->algbw * (coll->bus_factor != NULL ? coll->bus_factor(s->size) : 1);
    if (cell->wrong > 0)
        s->results->wrong += (uint64_t)cell->wrong;
    if (idle)
        cell->algbw = cell->busbw = NAN;
    if (coll->sized && !idle) {
        s->results->busbw_sum += cell->busbw;
        s->results->busbw_count++;
    }
    return 0;
}

/* Lays out the row's calls. */
static int place_calls(struct sweep *s, const struct sb_row *row, bool in_place)
{
    size_t esize = sluice_dtype_size(row->dtype);
    int err = 0;

    for (int slot = 0; slot < s->options->agg && err == 0; slot++) {
        size_t at = (size_t)slot * s->slot_bytes + s->options->unaligned * esize;

        sb_place_init(&s->places[slot], row, in_place, s->comm, s->rank, s->size, s->memory[0] + at,
                      s->memory[1] + at, s->tables);
        if (sb_colls[row->coll].sized)
            sb_place_fill(&s->places[slot], s->seed);
        if (s->options->persistent)
            err = sb_place_keep(&s->places[slot]);
    }
    return err;
}

static int measure_cell(struct sweep *s, const struct sb_row *row, bool in_place,
                        struct sb_cell *cell)
{
    bool singles = s->options->stats || s->options->json != NULL || s->options->csv != NULL;
    struct record mine = {0};
    uint64_t iters = 0;
    struct sluice_compression_report before = {0}, after = {0};
    bool raw = row->codec == NULL || strcmp(row->codec, "raw") == 0;
    int err =
        row->codec != NULL ? sluice_comm_set_compression(s->comm, raw ? NULL : row->codec) : 0;

    err = err ?: place_calls(s, row, in_place);
    for (int i = 0; i < s->options->warmup && err == 0; i++)
        err = run_once(s);
    if (err == 0)
        err = agree_iters(s, &iters);
    err = err ?: sluice_comm_compression_report(s->comm, &before);
    if (err == 0)
        err = time_batch(s, iters, &mine.stat.mean);
    err = err ?: sluice_comm_compression_report(s->comm, &after);
    s->coded = after.calls != before.calls;
    mine.wire_bytes = after.wire_bytes - before.wire_bytes;
    mine.raw_bytes = after.raw_bytes - before.raw_bytes;
    if (err == 0 && singles)
        err = time_samples(s, iters, &mine.stat);
    if (err == 0)
        err = check(s, &mine);
    for (int slot = 0; slot < s->options->agg; slot++)
        sb_place_forget(&s->places[slot]);
    return err != 0 ? err : finish_cell(s, row, &mine, iters, cell);
}

static void show_progress(struct sweep *s, const struct sb_row *row, bool clear)
{
    if (s->out == NULL || isatty(STDERR_FILENO) != 1)
        return;
    if (clear)
        fprintf(stderr, "\r\033[K");
    else if (sl_now(&sl_clock_monotonic) - s->started_ns > PROGRESS_AFTER_NS)
        fprintf(stderr, "\r\033[K%zu of %zu: %s, %llu bytes ...", s->rows_done + 1,
                s->rows_expected, sb_colls[row->coll].name, (unsigned long long)row->bytes);
    fflush(stderr);
}

static int keep_row(struct sb_results *results, const struct sb_row *row)
{
    if (results->row_count == results->row_cap) {
        size_t cap = results->row_cap > 0 ? 2 * results->row_cap : 64;
        struct sb_row *rows = realloc(results->rows, cap * sizeof(*rows));

        if (rows == NULL)
            return sl_fail(-ENOMEM, "no memory for %zu rows of results", cap);
        results->rows = rows;
        results->row_cap = cap;
    }
    results->rows[results->row_count++] = *row;
    return 0;
}

static int measure_row(void *arg, const struct sb_row *wanted)
{
    struct sweep *s = arg;
    struct sb_row row = *wanted;
    int err;

    show_progress(s, &row, false);
    if (s->out != NULL && (s->last_coll != (int)row.coll || s->last_codec != row.codec))
        sb_report_table_head(s->out, &row, s->options);
    s->last_coll = (int)row.coll;
    s->last_codec = row.codec;
    err = measure_cell(s, &row, false, &row.cell[0]);
    if (err == 0 && sb_colls[row.coll].in_place)
        err = measure_cell(s, &row, true, &row.cell[1]);
    show_progress(s, &row, true);
    if (err == 0)
        err = keep_row(s->results, &row);
    if (err != 0) {
        free(row.cell[0].ranks);
        free(row.cell[1].ranks);
        return err;
    }
    s->rows_done++;
    if (s->out != NULL)
        sb_report_row(s->out, &row, s->options, (int64_t)time(NULL));
    return 0;
}

static int visit_sizes(const struct sb_options *o, int size, struct sb_row *row, sb_visit *visit,
                       void *arg)
{
    const struct sb_coll *coll = &sb_colls[row->coll];
    size_t esize = sluice_dtype_size(row->dtype);
    uint64_t bytes = o->min_bytes, done = 0;

    if (!coll->sized) {
        row->bytes = row->count = 0;
        return visit(arg, row);
    }
    do {
        row->count = sb_coll_count(coll, bytes, esize, size);
        row->bytes = sb_coll_bytes(coll, (size_t)row->count, esize, size);
        if (row->bytes != done) { /* small sizes may round to the same count */
            int err = visit(arg, row);

            if (err != 0)
                return err;
        }
        done = row->bytes;
        bytes = sb_options_next_size(o, bytes);
    } while (bytes != 0);
    return 0;
}

static int visit_roots(const struct sb_options *o, int size, struct sb_row *row, sb_visit *visit,
                       void *arg)
{
    int first = o->root >= 0 ? o->root : 0, last = o->root >= 0 ? o->root : size - 1;

    if (!sb_colls[row->coll].rooted) {
        row->root = -1;
        return visit_sizes(o, size, row, visit, arg);
    }
    for (row->root = first; row->root <= last; row->root++) {
        int err = visit_sizes(o, size, row, visit, arg);

        if (err != 0)
            return err;
    }
    return 0;
}

static int visit_types(const struct sb_options *o, int size, struct sb_row *row, sb_visit *visit,
                       void *arg)
{
    const struct sb_coll *coll = &sb_colls[row->coll];

    for (int dtype = 0; dtype < SLUICE_DTYPE_COUNT; dtype++) {
        if ((o->dtypes & 1u << dtype) == 0)
            continue;
        row->dtype = (enum sluice_dtype)dtype;
        for (int op = 0; op < SLUICE_OP_COUNT; op++) {
            int err;

            if (coll->reduces && (o->ops & 1u << op) == 0)
                continue;
            row->op = coll->reduces ? op : SB_NO_OP;
            err = visit_roots(o, size, row, visit, arg);
            if (err != 0)
                return err;
            if (!coll->reduces)
                break;
        }
        if (!coll->sized)
            break;
    }
    return 0;
}

static int visit_codecs(const struct sb_options *o, int size, struct sb_row *row, sb_visit *visit,
                        void *arg)
{
    bool sized = sb_colls[row->coll].sized;

    if (o->codec_count == 0)
        return visit_types(o, size, row, visit, arg);
    for (int i = 0; i < (sized ? o->codec_count : 1); i++) {
        row->codec = o->codecs[i];
        int err = visit_types(o, size, row, visit, arg);

        if (err != 0)
            return err;
    }
    return 0;
}

int sb_sweep_visit(const struct sb_options *options, int size, sb_visit *visit, void *arg)
{
    for (int cycle = 0; cycle < options->cycles; cycle++) {
        for (int coll = 0; coll < SB_COLL_COUNT; coll++) {
            struct sb_row row = {.coll = (enum sb_coll_id)coll};
            int err;

            if ((options->colls & 1u << coll) == 0 || (coll == SB_SENDRECV && size == 1))
                continue;
            err = visit_codecs(options, size, &row, visit, arg);
            if (err != 0)
                return err;
        }
    }
    return 0;
}

static int count_row(void *arg, const struct sb_row *row)
{
    struct sweep *s = arg;
    size_t need = sb_place_need(row, s->size);

    s->rows_expected++;
    if (need > s->slot_bytes)
        s->slot_bytes = need;
    return 0;
}

static int allocate_buffer(struct sweep *s, int which)
{
    const struct sb_options *o = s->options;
    void *memory = NULL;
    int err = 0;

    if (o->shared_buffers)
        err = sluice_alloc(s->comm, s->memory_bytes, &memory);
    else if (posix_memalign(&memory, PAGE, s->memory_bytes) != 0)
        err = sl_fail(-ENOMEM,
                      "no memory for a buffer of %zu bytes on rank %d; give a smaller -e or -m",
                      s->memory_bytes, s->rank);
    if (err != 0)
        return err;
    s->memory[which] = memory;
    if (o->register_buffers) {
        err = sluice_register(s->comm, memory, s->memory_bytes, &s->registered[which]);
        if (err == -ENOTSUP) /* no transport here has a use for it: no harm */
            err = 0;
    }
    return err;
}

/* The same work on all ranks: what takes the slowest of them the time that was asked for. */
static int prepare_work(struct sweep *s)
{
    double slowest_s;
    int err;

    if (s->options->compute_us == 0)
        return 0;
    err = sb_work_init(&s->work, s->options->touch_bytes);
    if (err == 0)
        err =
            sluice_allreduce(s->comm, &s->work.pass_s, &slowest_s, 1, SLUICE_F64, SLUICE_MAX, NULL);
    if (err == 0)
        sb_work_size(&s->work, slowest_s, 1e-6 * s->options->compute_us);
    return err;
}

/* What the computing took in truth: processors are shared, and not as fast at each moment. */
static int report_work(struct sweep *s)
{
    struct record mine = {.stat = {.min = s->work.least_s, .max = s->work.most_s}};
    double least_s = s->work.least_s, most_s = 0;
    int err = share_records(s, &mine);

    if (err != 0 || s->out == NULL)
        return err;
    for (int rank = 0; rank < s->size; rank++) {
        least_s = fmin(least_s, s->records[rank].stat.min);
        most_s = fmax(most_s, s->records[rank].stat.max);
    }
    fprintf(s->out,
            "# Computing before an operation: %.1f to %.1f us of processor time, %" PRIu64
            " passes of %.4f us\n",
            1e6 * least_s, 1e6 * most_s, s->work.passes, 1e6 * s->work.pass_s);
    return 0;
}

static void sweep_fini(struct sweep *s)
{
    sb_work_fini(&s->work);
    for (int i = 0; i < 2; i++) {
        sluice_deregister(s->comm, s->registered[i]);
        if (s->options->shared_buffers)
            sluice_free(s->comm, s->memory[i]);
        else
            free(s->memory[i]);
    }
    free(s->tables);
    free(s->records);
    free(s->samples);
}

static int sweep_init(struct sweep *s)
{
    int err;

    s->slot_bytes = SB_FENCE;
    sb_sweep_visit(s->options, s->size, count_row, s);
    s->slot_bytes = (s->slot_bytes + PAGE - 1) / PAGE * PAGE;
    s->memory_bytes = s->slot_bytes * (size_t)s->options->agg + PAGE;
    s->tables = calloc(4 * (size_t)s->size, sizeof(*s->tables));
    s->records = calloc((size_t)s->size, sizeof(*s->records));
    s->samples = calloc(SAMPLES_MAX, sizeof(*s->samples));
    if (s->tables == NULL || s->records == NULL || s->samples == NULL)
        return sl_fail(-ENOMEM, "no memory for the tables of %d ranks", s->size);
    err = allocate_buffer(s, 0);
    if (err == 0)
        err = allocate_buffer(s, 1);
    return err != 0 ? err : prepare_work(s);
}

/* The largest of all ranks' peak memory. */
static int report_memory(struct sweep *s)
{
    struct record mine = {0};
    struct rusage usage;
    double most = 0;
    int err;

    getrusage(RUSAGE_SELF, &usage);
    mine.stat.max = (double)usage.ru_maxrss / 1024;
    err = share_records(s, &mine);
    if (err != 0 || s->out == NULL)
        return err;
    for (int rank = 0; rank < s->size; rank++)
        most = fmax(most, s->records[rank].stat.max);
    fprintf(s->out, "# Peak memory of a rank : %.1f MiB\n", most);
    return 0;
}

int sb_sweep(struct sluice_comm *comm, const struct sb_options *options, FILE *out,
             struct sb_results *results)
{
    struct sweep *s = calloc(1, sizeof(*s));
    int err;

    if (s == NULL)
        return sl_fail(-ENOMEM, "no memory to begin with");
    s->comm = comm;
    s->options = options;
    s->out = out;
    s->results = results;
    s->rank = sluice_comm_rank(comm);
    s->size = sluice_comm_size(comm);
    s->started_ns = sl_now(&sl_clock_monotonic);
    s->last_coll = -1;
    s->seed = 1;
    s->one_host = results->facts.hosts == 1;
    err = sweep_init(s);
    if (err == 0)
        err = sb_sweep_visit(options, s->size, measure_row, s);
    if (err == 0 && options->compute_us != 0)
        err = report_work(s);
    if (err == 0 && options->memory)
        err = report_memory(s);
    sweep_fini(s);
    free(s);
    return err;
}

void sb_results_fini(struct sb_results *results)
{
    for (size_t i = 0; i < results->row_count; i++) {
        free(results->rows[i].cell[0].ranks);
        free(results->rows[i].cell[1].ranks);
    }
    free(results->rows);
    results->rows = NULL;
    results->row_count = results->row_cap = 0;
}
