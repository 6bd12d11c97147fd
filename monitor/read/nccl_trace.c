/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of NCCL's example plugin for its profiler interface (NVIDIA/nccl,
 * plugins/profiler/example, NCCL_PROFILE_DUMP_FILE): Chrome's trace events, one a line, of one
 * process and communicator, which it writes when the communicator ends. So there is none of a rank
 * that hangs; it tells what was slow: how long steps of the proxy waited for what, as edges.
 *
 * What the proxy did for a call has a line ("PROXY", with the peer), which its steps follow
 * ("NET"). Versions differ in what else there is; some of those lines are no JSON, and are not
 * looked at. Neither the size of the communicator nor who its ranks are in the job is told: files
 * of one communicator are read together, and its ranks are taken for the job's.
 */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "monitor/read/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "nccl trace "
#define DEPTH_MAX 8

/* Names of steps' waits, of all versions. */
static const struct {
    const char *name;
    enum sl_job_wait wait;
} waits[] = {{"SendGpuWait", SL_JOB_WAIT_GPU},         {"SendPeerWait", SL_JOB_WAIT_PEER},
             {"SendWait", SL_JOB_WAIT_WIRE},           {"RecvWait", SL_JOB_WAIT_DATA},
             {"RecvFlushWait", SL_JOB_WAIT_FLUSH},     {"RecvGpuWait", SL_JOB_WAIT_CONSUMER},
             {"RecvBufferWait", SL_JOB_WAIT_CONSUMER}, {"SendBufferWait", SL_JOB_WAIT_GPU}};

/* What passed to or from a peer. */
struct peer {
    uint32_t rank;
    bool is_send;
    struct sl_job_edge edge;
};

struct file {
    struct sl_lines lines;
    struct json_tokener *tokener;
    struct peer *peers;
    size_t peer_count, peer_cap;
    size_t now;      /* plus 1: whose lines these are; 0: nobody's */
    int64_t wait_ns; /* the begin of the wait that is open; 0: none */
    enum sl_job_wait wait;
    uint64_t hash;
    int64_t rank; /* -1: not told yet */
};

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, key, &value) ||
        !json_object_is_type(value, json_type_string))
        return "";
    return json_object_get_string(value);
}

static bool number_of(struct json_object *object, const char *key, uint64_t *out)
{
    struct json_object *value = NULL;

    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, key, &value) ||
        !json_object_is_type(value, json_type_int))
        return false;
    *out = json_object_get_uint64(value);
    return json_object_get_int64(value) >= 0;
}

/* us of a clock of the process; 0: it has not come to that. */
static int time_of(struct file *file, struct json_object *event, int64_t *ns)
{
    struct json_object *value = NULL;
    double us;

    json_object_object_get_ex(event, "ts", &value);
    us = json_object_get_double(value);
    if (!isfinite(us) || us < 0 || us > 9e15)
        return sl_lines_bad(&file->lines, "\"ts\" is no time");
    *ns = (int64_t)(us * 1000);
    return 0;
}

/* ---- whose it is ---- */

static int take_self(struct file *file, struct json_object *event)
{
    struct json_object *args = NULL, *value = NULL;
    uint64_t rank, hash;

    json_object_object_get_ex(event, "args", &args);
    if (json_object_is_type(args, json_type_object))
        json_object_object_get_ex(args, "CommHash", &value);
    hash = json_object_is_type(value, json_type_int) ? json_object_get_uint64(value) : 0;
    if (hash == 0 || !number_of(args, "Rank", &rank) || rank >= SL_JOB_RANKS_MAX)
        return sl_lines_bad(&file->lines, "it does not say of which communicator and rank it is");
    if (file->rank >= 0 && (file->hash != hash || file->rank != (int64_t)rank))
        return sl_lines_bad(&file->lines,
                            "it is of another communicator or rank than the lines before");
    file->rank = (int64_t)rank;
    file->hash = hash;
    return 0;
}

/* ---- parts and steps ---- */

static int find_peer(struct file *file, uint32_t rank, bool is_send)
{
    for (size_t i = 0; i < file->peer_count; i++)
        if (file->peers[i].rank == rank && file->peers[i].is_send == is_send) {
            file->now = i + 1;
            return 0;
        }
    if (file->peer_count == file->peer_cap) {
        size_t cap = file->peer_cap * 2 + 16;
        struct peer *more = reallocarray(file->peers, cap, sizeof(*more));

        if (more == NULL)
            return sl_fail(-ENOMEM, "no memory for a trace of NCCL");
        file->peers = more;
        file->peer_cap = cap;
    }
    file->peers[file->peer_count++] = (struct peer){.rank = rank, .is_send = is_send};
    file->now = file->peer_count;
    return 0;
}

/* "ScheduleSend" and "ProgressSend" are one, and have the same bytes; older ones are "Send". */
static int begin_part(struct file *file, struct json_object *event)
{
    const char *name = text_of(event, "name");
    struct json_object *args = NULL;
    uint64_t peer = 0, bytes = 0;
    int err;

    json_object_object_get_ex(event, "args", &args);
    if (!number_of(args, "Peer", &peer)) /* of the proxy's own life */
        return 0;
    if (peer >= SL_JOB_RANKS_MAX)
        return sl_lines_bad(&file->lines, "\"Peer\" is no rank");
    err = find_peer(file, (uint32_t)peer, strstr(name, "Send") != NULL);
    file->wait_ns = 0;
    if (err == 0 && strncmp(name, "Progress", 8) != 0 && file->peers[file->now - 1].is_send &&
        number_of(args, "transSize", &bytes) && bytes < UINT64_MAX / 4)
        file->peers[file->now - 1].edge.bytes += bytes;
    return err;
}

static int take_step(struct file *file, struct json_object *event, bool is_begin)
{
    const char *name = text_of(event, "name");
    struct sl_job_edge *edge;
    int64_t at = 0;
    int err = time_of(file, event, &at);

    if (err != 0 || file->now == 0)
        return err;
    edge = &file->peers[file->now - 1].edge;
    for (size_t i = 0; i < SL_ARRAY_LEN(waits); i++) {
        if (strcmp(waits[i].name, name) != 0)
            continue;
        if (is_begin) {
            file->wait_ns = at;
            file->wait = waits[i].wait;
        } else if (file->wait_ns > 0 && file->wait == waits[i].wait && at >= file->wait_ns) {
            edge->wait_s[file->wait] += (double)(at - file->wait_ns) / 1e9;
            edge->messages += waits[i].wait == SL_JOB_WAIT_WIRE;
            file->wait_ns = 0;
        }
    }
    return 0;
}

/* ---- lines ---- */

static int take_event(struct file *file, struct json_object *event)
{
    const char *kind = text_of(event, "cat"), *phase = text_of(event, "ph");
    bool is_begin = strcmp(phase, "b") == 0;

    if (!is_begin && strcmp(phase, "e") != 0)
        return 0;
    if (strcmp(kind, "NET") == 0)
        return take_step(file, event, is_begin);
    if (strcmp(kind, "PROXY") == 0 && is_begin)
        return begin_part(file, event);
    if ((strcmp(kind, "COLL") == 0 || strcmp(kind, "P2P") == 0) && is_begin)
        return take_self(file, event);
    return 0;
}

static bool is_wanted(const char *line)
{
    return strstr(line, "\"cat\": \"COLL\"") != NULL || strstr(line, "\"cat\": \"P2P\"") != NULL ||
           strstr(line, "\"cat\": \"PROXY\"") != NULL || strstr(line, "\"cat\": \"NET\"") != NULL;
}

static int take_line(struct file *file)
{
    struct json_object *event;
    size_t len = file->lines.len;
    int err;

    if (!is_wanted(file->lines.text))
        return 0;
    if (len > 0 && file->lines.text[len - 1] == ',')
        file->lines.text[--len] = '\0';
    json_tokener_reset(file->tokener);
    event = json_tokener_parse_ex(file->tokener, file->lines.text, (int)len + 1);
    if (!json_object_is_type(event, json_type_object)) {
        json_object_put(event);
        return sl_lines_bad(&file->lines, "that is no event of a trace");
    }
    err = take_event(file, event);
    json_object_put(event);
    return err;
}

/* Files of several communicators cannot be told apart: whose rank is it? */
static int find_comm(const struct file *file, struct sl_job *job, uint32_t *comm)
{
    char text[48];

    snprintf(text, sizeof(text), NAME "%016" PRIx64, file->hash);
    for (uint32_t i = 0; i < job->comm_count; i++) {
        const char *name = sl_job_string(job, job->comms[i].name);

        if (strncmp(name, NAME, strlen(NAME)) == 0 && strcmp(name, text) != 0)
            return sl_fail(-EBADMSG,
                           "%s is of another communicator than a trace before: give the traces of "
                           "one at a time, as they do not say who its ranks are in the job",
                           file->lines.in->name);
    }
    return sl_job_add_comm(job, sl_job_text(job, text, strlen(text)), comm);
}

static int finish(struct file *file, struct sl_job *job)
{
    uint32_t comm, rank = (uint32_t)file->rank;
    int err;

    if (file->rank < 0)
        return sl_fail(-EBADMSG, "%s has no collective and no message, so it is nobody's",
                       file->lines.in->name);
    err = find_comm(file, job, &comm);
    if (err == 0)
        err = sl_job_add_rank(job, rank);
    if (err == 0)
        job->ranks[rank].is_told = true;
    for (size_t i = 0; i < file->peer_count && err == 0; i++) {
        struct peer *peer = &file->peers[i];

        if (peer->rank == rank)
            continue;
        peer->edge.comm = comm;
        peer->edge.src = peer->is_send ? rank : peer->rank;
        peer->edge.dst = peer->is_send ? peer->rank : rank;
        err = sl_job_add_edge(job, &peer->edge);
    }
    return err;
}

static int read_trace(struct sl_job *job, struct sl_read_in *in)
{
    struct file file = {.rank = -1};
    int err = sl_lines_open(&file.lines, in);

    file.tokener = json_tokener_new_ex(DEPTH_MAX);
    if (err == 0 && file.tokener == NULL)
        err = sl_fail(-ENOMEM, "no memory to read %s", in->name);
    if (file.tokener != NULL)
        json_tokener_set_flags(file.tokener, JSON_TOKENER_STRICT);
    while (err == 0 && (err = sl_lines_next(&file.lines)) == 1)
        err = take_line(&file);
    if (err == 0)
        err = finish(&file, job);
    if (file.tokener != NULL)
        json_tokener_free(file.tokener);
    sl_lines_close(&file.lines);
    free(file.peers);
    return err;
}

/* Its first event may be of several kinds, which no other trace has so. */
static bool is_trace(const char *head, size_t len)
{
    static const char *const kinds[] = {"GROUP", "GROUP_API", "COLL",  "COLL_API",
                                        "P2P",   "P2P_API",   "PROXY", "KERNEL_LAUNCH"};
    const char *end = len > 2 && head[0] == '[' ? memchr(head + 2, '\n', len - 2) : NULL;
    char text[64];

    for (size_t i = 0; end != NULL && i < SL_ARRAY_LEN(kinds); i++) {
        int wide = snprintf(text, sizeof(text), "\"cat\": \"%s\", \"ph\": \"b\"", kinds[i]);

        if (memmem(head, (size_t)(end - head), text, (size_t)wide) != NULL)
            return true;
    }
    return false;
}

const struct sl_read_format sl_read_nccl_trace = {
    .name = "trace of NCCL's example profiler", .is = is_trace, .read = read_trace};
