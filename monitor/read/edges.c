/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What passed from rank to rank, as CSV with a header: a plain form that probes, simulators and
 * plug-ins may write.
 *
 *     src,dst,path,messages,bytes,lost,wire_s
 *     0,1,mlx5_0,2000,2097152000,0,0.0533
 *
 * Columns may come in any order; src, dst, bytes and wire_s must be there. Others: src_host,
 * dst_host (texts), gpu_s, peer_s, data_s, flush_s, consumer_s: seconds that messages waited in
 * each state, summed. Columns of other names are left out. An empty field is 0.
 */
#include "core/err.h"
#include "monitor/read/csv.h"
#include "monitor/read/formats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SRC,
    DST,
    BYTES,
    WIRE,
    NEEDED,
    MESSAGES = NEEDED,
    LOST,
    PATH,
    SRC_HOST,
    DST_HOST,
    GPU,
    PEER,
    DATA,
    FLUSH,
    CONSUMER,
    KNOWN
};

static const struct sl_csv_column columns[] = {{"src", SRC},
                                               {"dst", DST},
                                               {"bytes", BYTES},
                                               {"wire_s", WIRE},
                                               {"messages", MESSAGES},
                                               {"lost", LOST},
                                               {"path", PATH},
                                               {"src_host", SRC_HOST},
                                               {"dst_host", DST_HOST},
                                               {"gpu_s", GPU},
                                               {"peer_s", PEER},
                                               {"data_s", DATA},
                                               {"flush_s", FLUSH},
                                               {"consumer_s", CONSUMER},
                                               {NULL, 0}};

struct table {
    struct sl_csv csv;
    struct sl_job *job;
};

static const char *name_of(int what)
{
    for (const struct sl_csv_column *it = columns; it->name != NULL; it++)
        if (it->what == what)
            return it->name;
    return "";
}

static bool is_edges(const char *head, size_t len)
{
    return sl_csv_is(columns, NEEDED, head, len);
}

static const char *field(const struct table *table, int what)
{
    return sl_csv_field(&table->csv, what);
}

static int take_number(struct table *table, int what, uint64_t most, uint64_t *out)
{
    const char *text = field(table, what);

    *out = 0;
    if (text[0] == '\0' && what >= NEEDED)
        return 0;
    if (!sl_text_number(text, strlen(text), out) || *out > most)
        return sl_lines_bad(&table->csv.lines, "\"%.40s\" is no number for %s", text,
                            name_of(what));
    return 0;
}

static int take_seconds(struct table *table, int what, double *out)
{
    const char *text = field(table, what);
    char *end;

    *out = 0;
    if (text[0] == '\0')
        return 0;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*out) || *out < 0)
        return sl_lines_bad(&table->csv.lines, "\"%.40s\" is no time for %s", text, name_of(what));
    return 0;
}

/* *out: 0 where the field is empty. */
static int take_text(struct table *table, int what, uint32_t *out)
{
    const char *text = field(table, what);

    *out = 0;
    if (text[0] == '\0')
        return 0;
    if (strlen(text) > 255)
        return sl_lines_bad(&table->csv.lines, "a text for %s is longer than 255 bytes",
                            name_of(what));
    *out = sl_job_text(table->job, text, strlen(text));
    return *out == SL_JOB_NONE ? sl_fail(-ENOMEM, "no memory to read the edges of a job") : 0;
}

static int take_host(struct table *table, int what, uint32_t rank)
{
    uint32_t host, *known = &table->job->ranks[rank].host;
    int err = take_text(table, what, &host);

    if (err != 0 || host == 0)
        return err;
    if (*known != 0 && *known != host)
        return sl_lines_bad(&table->csv.lines, "rank %u is on %.60s here and on %.60s elsewhere",
                            rank, sl_job_string(table->job, host),
                            sl_job_string(table->job, *known));
    *known = host;
    return 0;
}

static int read_row(struct sl_csv *csv, void *context)
{
    static const int waits[SL_JOB_WAITS] = {
        [SL_JOB_WAIT_GPU] = GPU,   [SL_JOB_WAIT_PEER] = PEER,   [SL_JOB_WAIT_WIRE] = WIRE,
        [SL_JOB_WAIT_DATA] = DATA, [SL_JOB_WAIT_FLUSH] = FLUSH, [SL_JOB_WAIT_CONSUMER] = CONSUMER};
    struct sl_job_edge edge = {.comm = SL_JOB_NONE};
    struct table *table = context;
    uint64_t src = 0, dst = 0;
    int err;

    (void)csv;
    err = take_number(table, SRC, SL_JOB_RANKS_MAX - 1, &src);
    if (err == 0)
        err = take_number(table, DST, SL_JOB_RANKS_MAX - 1, &dst);
    if (err == 0)
        err = take_number(table, BYTES, UINT64_MAX, &edge.bytes);
    if (err == 0)
        err = take_number(table, MESSAGES, UINT64_MAX, &edge.messages);
    if (err == 0)
        err = take_number(table, LOST, UINT64_MAX, &edge.lost);
    if (err == 0)
        err = take_text(table, PATH, &edge.path);
    for (int i = 0; i < SL_JOB_WAITS && err == 0; i++)
        err = take_seconds(table, waits[i], &edge.wait_s[i]);
    if (err != 0)
        return err;
    edge.src = (uint32_t)src;
    edge.dst = (uint32_t)dst;
    err = sl_job_add_edge(table->job, &edge);
    if (err != 0)
        return err;
    table->job->ranks[edge.src].is_told = table->job->ranks[edge.dst].is_told = true;
    err = take_host(table, SRC_HOST, edge.src);
    return err == 0 ? take_host(table, DST_HOST, edge.dst) : err;
}

static int read_edges(struct sl_job *job, struct sl_read_in *in)
{
    struct table table = {
        .csv = {.columns = columns, .needed = NEEDED, .header = "src, dst, bytes and wire_s"},
        .job = job};

    return sl_csv_read(&table.csv, in, read_row, &table);
}

const struct sl_read_format sl_read_edges = {
    .name = "edges (CSV)", .is = is_edges, .read = read_edges};
