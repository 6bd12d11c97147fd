/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL Inspector's lines of JSON (NVIDIA/nccl, plugins/profiler/inspector; formats v4.0 to v4.3):
 * an object a line, {"header", "metadata", "coll_perf" | "p2p_perf" | "proxy_trace" |
 * "dump_stats"}. From v4.3 on only the object with dump_stats has header and metadata, and counts
 * those that follow it without.
 *
 * A header's rank is that in its communicator. The job's is the one in the process's largest
 * communicator, which is taken for that of all ranks: so what a process says is kept until its file
 * ends. Times are there where NCCL_INSPECTOR_DUMP_VERBOSE=1 was set. A peer in another communicator
 * than the largest is not known here: such a message is an operation of no kind.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/lines.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define COMMS_MAX 4096

struct comm {
    uint32_t name, rank, rank_count;
};

struct record {
    struct sl_job_op op; /* its rank and comm are set at the end */
    uint32_t comm;       /* in comms */
    uint32_t peer;       /* in that communicator, or SL_JOB_NONE */
};

struct file {
    struct sl_lines lines;
    struct json_tokener *tokener;
    struct sl_job *job;
    struct comm *comms;
    struct record *records;
    size_t comm_count, comm_cap, record_count, record_cap;
    uint32_t host, process; /* of the process whose file it is; 0: not known yet */
    uint32_t now;           /* v4.3: the communicator of what follows, or SL_JOB_NONE */
    uint64_t left;          /* v4.3: objects that are still to come of it */
};

/* ---- what lines hold ---- */

static struct json_object *object_at(struct json_object *in, const char *key)
{
    struct json_object *value = json_object_object_get(in, key);

    return json_object_is_type(value, json_type_object) ? value : NULL;
}

/* 0, or -EBADMSG: it is not there, or no whole number from 0 on. */
static int number_at(struct file *file, struct json_object *in, const char *key, uint64_t *number)
{
    struct json_object *value = json_object_object_get(in, key);

    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0)
        return sl_lines_bad(&file->lines, "\"%s\" is missing, or no number from 0 on", key);
    *number = json_object_get_uint64(value);
    return 0;
}

/* A time of the trace: µs to ns, SL_JOB_NEVER for what is not there or 0. */
static int64_t time_at(struct json_object *in, const char *key)
{
    struct json_object *value = in != NULL ? json_object_object_get(in, key) : NULL;
    int64_t us = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;

    return us > 0 && us <= INT64_MAX / 1000 ? us * 1000 : SL_JOB_NEVER;
}

static int text_at(struct file *file, struct json_object *in, const char *key, uint32_t *text)
{
    struct json_object *value = json_object_object_get(in, key);

    if (!json_object_is_type(value, json_type_string))
        return sl_lines_bad(&file->lines, "\"%s\" is missing, or no text", key);
    *text = sl_job_text(file->job, json_object_get_string(value),
                        (size_t)json_object_get_string_len(value));
    return *text != SL_JOB_NONE ? 0 : sl_lines_bad(&file->lines, "\"%s\" is too long", key);
}

static int grow(void *list, size_t *cap, size_t count, size_t size)
{
    void *old, *more;

    if (count < *cap)
        return 0;
    memcpy(&old, list, sizeof(old));
    more = reallocarray(old, *cap * 2 + 16, size);
    if (more == NULL)
        return sl_fail(-ENOMEM, "no memory for what NCCL Inspector wrote");
    memcpy(list, &more, sizeof(more));
    *cap = *cap * 2 + 16;
    return 0;
}

static int find_comm(struct file *file, const struct comm *comm, uint32_t *found)
{
    for (size_t i = 0; i < file->comm_count; i++)
        if (file->comms[i].name == comm->name) {
            *found = (uint32_t)i;
            if (file->comms[i].rank == comm->rank && file->comms[i].rank_count == comm->rank_count)
                return 0;
            return sl_lines_bad(&file->lines,
                                "it has another rank in its communicator than before");
        }
    if (file->comm_count == COMMS_MAX)
        return sl_lines_bad(&file->lines, "there are more than %d communicators", COMMS_MAX);
    if (grow(&file->comms, &file->comm_cap, file->comm_count, sizeof(*file->comms)) != 0)
        return -ENOMEM;
    *found = (uint32_t)file->comm_count;
    file->comms[file->comm_count++] = *comm;
    return 0;
}

static int read_header(struct file *file, struct json_object *header, uint32_t *found)
{
    struct comm comm = {0};
    uint64_t rank = 0, count = 0;
    int err = text_at(file, header, "id", &comm.name);

    if (err == 0)
        err = number_at(file, header, "rank", &rank);
    if (err == 0)
        err = number_at(file, header, "n_ranks", &count);
    if (err != 0)
        return err;
    if (count == 0 || count > SL_JOB_RANKS_MAX || rank >= count)
        return sl_lines_bad(&file->lines, "there is no rank %llu in a communicator of %llu",
                            (unsigned long long)rank, (unsigned long long)count);
    comm.rank = (uint32_t)rank;
    comm.rank_count = (uint32_t)count;
    return find_comm(file, &comm, found);
}

/* A file is of one process. */
static int read_metadata(struct file *file, struct json_object *metadata)
{
    uint32_t host = 0, process = 0;
    char text[32];
    uint64_t pid = 0;
    int err = text_at(file, metadata, "hostname", &host);

    if (err == 0)
        err = number_at(file, metadata, "pid", &pid);
    if (err != 0)
        return err;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)pid);
    process = sl_job_text(file->job, text, strlen(text));
    if (process == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for what NCCL Inspector wrote");
    if (file->process != 0 && (file->host != host || file->process != process))
        return sl_lines_bad(&file->lines, "it is of another process than what stands before it");
    file->host = host;
    file->process = process;
    return 0;
}

/* ---- operations ---- */

/* The first start and the last stop of its channels on the GPU. */
static void read_kernels(struct json_object *trace, struct sl_job_op *op)
{
    struct json_object *list = json_object_object_get(trace, "kernel_events");

    if (!json_object_is_type(list, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *it = json_object_array_get_idx(list, i);
        int64_t start, stop;

        if (!json_object_is_type(it, json_type_object))
            continue;
        start = time_at(it, "kernel_start_ts");
        stop = time_at(it, "kernel_stop_ts");
        if (start != SL_JOB_NEVER && (op->start_ns == SL_JOB_NEVER || start < op->start_ns))
            op->start_ns = start;
        if (stop > op->end_ns)
            op->end_ns = stop;
    }
}

static int set_shape(struct file *file, struct record *record)
{
    char text[64];

    snprintf(text, sizeof(text), "%llu bytes, %u ranks", (unsigned long long)record->op.bytes,
             file->comms[record->comm].rank_count);
    record->op.shape = sl_job_text(file->job, text, strlen(text));
    return record->op.shape != SL_JOB_NONE
               ? 0
               : sl_fail(-ENOMEM, "no memory for what NCCL Inspector wrote");
}

/* prefix: "coll" or "p2p", which stands before its keys. */
static int read_perf(struct file *file, struct json_object *perf, const char *prefix, uint32_t comm)
{
    struct record record = {.comm = comm, .peer = SL_JOB_NONE};
    struct sl_job_op *op = &record.op;
    struct json_object *trace = object_at(perf, "event_trace_ts");
    char key[32];
    uint64_t peer = 0;
    int err;

    *op = (struct sl_job_op){.step = SL_JOB_NONE,
                             .peer = SL_JOB_NONE,
                             .state = SL_JOB_DONE,
                             .issue_ns = SL_JOB_NEVER,
                             .start_ns = SL_JOB_NEVER,
                             .end_ns = SL_JOB_NEVER};
    err = text_at(file, perf, prefix, &op->name);
    snprintf(key, sizeof(key), "%s_sn", prefix);
    if (err == 0)
        err = number_at(file, perf, key, &op->seq);
    snprintf(key, sizeof(key), "%s_msg_size_bytes", prefix);
    if (err == 0)
        err = number_at(file, perf, key, &op->bytes);
    if (err == 0 && prefix[0] == 'p') {
        err = number_at(file, perf, "p2p_peer", &peer);
        if (err == 0 && peer >= file->comms[comm].rank_count)
            err = sl_lines_bad(&file->lines, "its peer is in no communicator of that size");
        record.peer = (uint32_t)peer;
    }
    if (err == 0)
        err = set_shape(file, &record);
    if (err != 0)
        return err;
    if (trace != NULL) {
        snprintf(key, sizeof(key), "%s_start_ts", prefix);
        op->issue_ns = time_at(trace, key);
        read_kernels(trace, op);
    }
    if (grow(&file->records, &file->record_cap, file->record_count, sizeof(*file->records)) != 0)
        return -ENOMEM;
    file->records[file->record_count++] = record;
    return 0;
}

/* ---- lines ---- */

/* v4.3 says how many follow without a header. */
static int read_stats(struct file *file, struct json_object *line, struct json_object *stats,
                      uint32_t comm)
{
    struct json_object *metadata = object_at(line, "metadata");
    struct json_object *version =
        json_object_object_get(metadata, "inspector_output_format_version");
    uint64_t coll = 0, p2p = 0, proxy = 0;
    int err;

    if (file->left != 0)
        return sl_lines_bad(&file->lines, "%llu objects are missing before it",
                            (unsigned long long)file->left);
    file->now = SL_JOB_NONE;
    if (!json_object_is_type(version, json_type_string) ||
        strcmp(json_object_get_string(version), "v4.3") != 0)
        return 0;
    err = number_at(file, stats, "coll_records", &coll);
    if (err == 0)
        err = number_at(file, stats, "p2p_records", &p2p);
    if (err == 0 && json_object_object_get(stats, "proxy_records") != NULL)
        err = number_at(file, stats, "proxy_records", &proxy);
    if (err != 0)
        return err;
    if (coll > UINT32_MAX || p2p > UINT32_MAX || proxy > UINT32_MAX)
        return sl_lines_bad(&file->lines, "it counts more objects than there can be");
    file->now = comm;
    file->left = coll + p2p + proxy;
    return 0;
}

static int read_context(struct file *file, struct json_object *line, uint32_t *comm)
{
    struct json_object *header = object_at(line, "header");
    struct json_object *metadata = object_at(line, "metadata");
    int err;

    if (header == NULL && metadata == NULL && file->now != SL_JOB_NONE) {
        if (file->left == 0)
            return sl_lines_bad(&file->lines, "more objects follow than were counted");
        file->left--;
        *comm = file->now;
        return 0;
    }
    if (header == NULL || metadata == NULL)
        return sl_lines_bad(&file->lines,
                            "it says of no communicator or process that it is theirs");
    err = read_metadata(file, metadata);
    return err != 0 ? err : read_header(file, header, comm);
}

static int read_object(struct file *file, struct json_object *line)
{
    struct json_object *coll = object_at(line, "coll_perf"), *p2p = object_at(line, "p2p_perf");
    struct json_object *stats = object_at(line, "dump_stats");
    uint32_t comm = 0;
    int err = read_context(file, line, &comm);

    if (err != 0)
        return err;
    if (coll != NULL)
        return read_perf(file, coll, "coll", comm);
    if (p2p != NULL)
        return read_perf(file, p2p, "p2p", comm);
    if (stats != NULL)
        return read_stats(file, line, stats, comm);
    if (object_at(line, "proxy_trace") != NULL)
        return 0;
    return sl_lines_bad(&file->lines, "it is nothing that NCCL Inspector writes");
}

static int read_line(struct file *file)
{
    struct json_object *line;
    enum json_tokener_error why;
    int err;

    json_tokener_reset(file->tokener);
    line = json_tokener_parse_ex(file->tokener, file->lines.text, (int)file->lines.len);
    why = json_tokener_get_error(file->tokener);
    if (why != json_tokener_success || !json_object_is_type(line, json_type_object) ||
        json_tokener_get_parse_end(file->tokener) != file->lines.len) {
        json_object_put(line);
        return sl_lines_bad(&file->lines, "it is no object of JSON (%s)",
                            json_tokener_error_desc(why));
    }
    err = read_object(file, line);
    json_object_put(line);
    return err;
}

/* ---- into the job ---- */

/* The rank that the file is of, and who it is: two processes are no one rank. */
static int find_rank(struct file *file, uint32_t *rank, uint32_t *world)
{
    struct sl_job_rank *it;
    int err;

    *world = 0;
    for (size_t i = 1; i < file->comm_count; i++)
        if (file->comms[i].rank_count > file->comms[*world].rank_count)
            *world = (uint32_t)i;
    *rank = file->comms[*world].rank;
    err = sl_job_add_rank(file->job, *rank);
    if (err != 0)
        return err;
    it = &file->job->ranks[*rank];
    if ((it->host != 0 && it->host != file->host) ||
        (it->process != 0 && it->process != file->process))
        return sl_fail(-EBADMSG,
                       "%s: process %s of %s is rank %u in its largest communicator, as process %s "
                       "of %s is: give files of one job that has a communicator of all its ranks",
                       file->lines.in->name, sl_job_string(file->job, file->process),
                       sl_job_string(file->job, file->host), *rank,
                       sl_job_string(file->job, it->process), sl_job_string(file->job, it->host));
    it->host = file->host;
    it->process = file->process;
    return 0;
}

static int add_record(struct file *file, struct record *record, uint32_t rank, uint32_t world)
{
    struct sl_job_op *op = &record->op;
    const char *name = sl_job_string(file->job, op->name);
    int err = sl_job_add_comm(file->job, file->comms[record->comm].name, &op->comm);

    if (err != 0)
        return err;
    op->rank = rank;
    op->kind = (uint8_t)sl_job_kind_of(name, strlen(name));
    if (record->peer != SL_JOB_NONE && (record->comm != world || record->peer == rank))
        op->kind = SL_JOB_OTHER;
    else if (record->peer != SL_JOB_NONE)
        op->peer = record->peer;
    else if (op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV)
        op->kind = SL_JOB_OTHER;
    return sl_job_add_op(file->job, op);
}

static int finish(struct file *file)
{
    uint32_t rank, world;
    int err;

    if (file->left != 0)
        return sl_fail(-EBADMSG, "%s: it ends %llu objects too early", file->lines.in->name,
                       (unsigned long long)file->left);
    if (file->comm_count == 0)
        return sl_fail(-EBADMSG, "%s: nothing is in it", file->lines.in->name);
    err = find_rank(file, &rank, &world);
    for (size_t i = 0; err == 0 && i < file->record_count; i++)
        err = add_record(file, &file->records[i], rank, world);
    return err;
}

static int read_inspector(struct sl_job *job, struct sl_read_in *in)
{
    struct file file = {.job = job, .now = SL_JOB_NONE, .tokener = json_tokener_new_ex(DEPTH_MAX)};
    int err = sl_lines_open(&file.lines, in);

    if (err == 0 && file.tokener == NULL)
        err = sl_fail(-ENOMEM, "no memory to read %s", in->name);
    if (err == 0)
        json_tokener_set_flags(file.tokener, JSON_TOKENER_STRICT);
    while (err == 0) {
        err = sl_lines_next(&file.lines);
        if (err <= 0)
            break;
        err = file.lines.len > 0 ? read_line(&file) : 0;
    }
    if (err == 0)
        err = finish(&file);
    free(file.comms);
    free(file.records);
    if (file.tokener != NULL)
        json_tokener_free(file.tokener);
    sl_lines_close(&file.lines);
    return err;
}

/* It begins with an object that has a header with a communicator's number of ranks. */
static bool is_inspector(const char *head, size_t len)
{
    static const char *const keys[] = {"\"header\"", "\"n_ranks\"",
                                       "\"inspector_output_format_version\""};
    const char *end = memchr(head, '\n', len);

    if (end != NULL)
        len = (size_t)(end - head);
    if (len == 0 || head[0] != '{')
        return false;
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!sl_read_has(head, len, keys[i]))
            return false;
    return true;
}

const struct sl_read_format sl_read_inspector = {
    .name = "NCCL Inspector in JSON", .is = is_inspector, .read = read_inspector};
