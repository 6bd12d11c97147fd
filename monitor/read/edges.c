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
#include "monitor/read/formats.h"
#include "monitor/read/lines.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 64

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

static const char *const names[KNOWN] = {[SRC] = "src",           [DST] = "dst",
                                         [BYTES] = "bytes",       [WIRE] = "wire_s",
                                         [MESSAGES] = "messages", [LOST] = "lost",
                                         [PATH] = "path",         [SRC_HOST] = "src_host",
                                         [DST_HOST] = "dst_host", [GPU] = "gpu_s",
                                         [PEER] = "peer_s",       [DATA] = "data_s",
                                         [FLUSH] = "flush_s",     [CONSUMER] = "consumer_s"};

struct table {
    struct sl_lines lines;
    struct sl_job *job;
    int column[KNOWN]; /* which one holds it; -1: none */
    int column_count;
    char *fields[COLUMNS_MAX];
};

static int which(const char *text, size_t len)
{
    for (int i = 0; i < KNOWN; i++)
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0)
            return i;
    return -1;
}

/* Fields of a line, ended by 0 each: how many, or -1 where there are too many. */
static int split(char *line, char *fields[COLUMNS_MAX])
{
    int count = 0;

    for (char *at = line; at != NULL && count < COLUMNS_MAX; count++) {
        fields[count] = at;
        at = strchr(at, ',');
        if (at == NULL)
            return count + 1;
        *at++ = '\0';
    }
    return -1;
}

static bool is_edges(const char *head, size_t len)
{
    const char *end = memchr(head, '\n', len);
    unsigned found = 0;

    if (end == NULL)
        return false;
    if (end > head && end[-1] == '\r')
        end--;
    for (const char *at = head; at <= end;) {
        const char *next = memchr(at, ',', (size_t)(end - at));
        int what = which(at, (size_t)((next != NULL ? next : end) - at));

        if (what >= 0 && what < NEEDED)
            found |= 1u << what;
        if (next == NULL)
            break;
        at = next + 1;
    }
    return found == (1u << NEEDED) - 1;
}

static int read_header(struct table *table)
{
    int err = sl_lines_next(&table->lines);

    if (err < 0)
        return err;
    for (int i = 0; i < KNOWN; i++)
        table->column[i] = -1;
    table->column_count = err > 0 ? split(table->lines.text, table->fields) : -1;
    for (int i = 0; i < table->column_count; i++) {
        int what = which(table->fields[i], strlen(table->fields[i]));

        if (what >= 0 && table->column[what] >= 0)
            return sl_lines_bad(&table->lines, "column %s is there twice", table->fields[i]);
        if (what >= 0)
            table->column[what] = i;
    }
    for (int i = 0; i < NEEDED; i++)
        if (table->column[i] < 0)
            return sl_lines_bad(&table->lines, "the header must name src, dst, bytes and wire_s");
    return 0;
}

static const char *field(const struct table *table, int what)
{
    return table->column[what] >= 0 ? table->fields[table->column[what]] : "";
}

static int take_number(struct table *table, int what, uint64_t most, uint64_t *out)
{
    const char *text = field(table, what);

    *out = 0;
    if (text[0] == '\0' && what >= NEEDED)
        return 0;
    if (!sl_text_number(text, strlen(text), out) || *out > most)
        return sl_lines_bad(&table->lines, "\"%.40s\" is no number for %s", text, names[what]);
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
        return sl_lines_bad(&table->lines, "\"%.40s\" is no time for %s", text, names[what]);
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
        return sl_lines_bad(&table->lines, "a text for %s is longer than 255 bytes", names[what]);
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
        return sl_lines_bad(&table->lines, "rank %u is on %.60s here and on %.60s elsewhere", rank,
                            sl_job_string(table->job, host), sl_job_string(table->job, *known));
    *known = host;
    return 0;
}

static int read_row(struct table *table)
{
    static const int waits[SL_JOB_WAITS] = {
        [SL_JOB_WAIT_GPU] = GPU,   [SL_JOB_WAIT_PEER] = PEER,   [SL_JOB_WAIT_WIRE] = WIRE,
        [SL_JOB_WAIT_DATA] = DATA, [SL_JOB_WAIT_FLUSH] = FLUSH, [SL_JOB_WAIT_CONSUMER] = CONSUMER};
    struct sl_job_edge edge = {.comm = SL_JOB_NONE};
    int count = split(table->lines.text, table->fields), err;
    uint64_t src = 0, dst = 0;

    if (count != table->column_count)
        return sl_lines_bad(&table->lines, "it has %d fields where the header has %d", count,
                            table->column_count);
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
    struct table table = {.job = job};
    int err = sl_lines_open(&table.lines, in);

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

const struct sl_read_format sl_read_edges = {
    .name = "edges (CSV)", .is = is_edges, .read = read_edges};
