/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's RAS in JSON (NCCL 2.28.7 and later, port 28028, SET FORMAT json, STATUS): of every
 * communicator how many collectives of each kind each rank has launched, and which ranks did not
 * answer.
 *
 * Ranks in it are those of a communicator. A process is known by host, pid and GPU, and has the
 * rank that it has in the largest communicator; processes that are not in it come after its ranks.
 * In a second file of the same job a process has the rank that it had in the first. A process that
 * other sources tell of, too, is their rank (ras_join.c), for which all of them have to be there:
 * what was read is taken when the job is sealed.
 */
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/read/json.h"
#include "monitor/read/ras.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for what NCCL RAS says");
}

/* "0x1f", "0x1f:0x2e", a time, a host: into a small array, so that it can be printed. */
static bool get_text(struct json_object *value, char *out, size_t cap)
{
    size_t len = 0;
    const char *text = sl_json_text(value, &len);

    if (text == NULL || len >= cap)
        return false;
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    out[len] = '\0';
    return true;
}

static uint32_t keep(struct sl_ras *ras, const char *text)
{
    return sl_job_text(ras->job, text, strlen(text));
}

/* ---- a rank ---- */

static void read_counts(struct json_object *counts, struct sl_ras_seen *seen)
{
    if (!json_object_is_type(counts, json_type_object))
        return;
    json_object_object_foreach(counts, name, value)
    {
        enum sl_job_kind kind = sl_job_kind_of(name, strlen(name));
        uint64_t number;

        if (kind == SL_JOB_OTHER || kind >= SL_JOB_SEND || !sl_json_u64(value, &number))
            continue;
        seen->counts[kind] += number;
        seen->has[kind] = 1;
    }
}

static int fill_seen(struct sl_ras *ras, struct json_object *object, bool is_missing,
                     struct sl_ras_seen *seen)
{
    const struct sl_ras_comm *comm = &ras->comms[ras->comm_count - 1];
    char host[128] = "unknown", process[256];
    struct json_object *status = sl_json_get(object, "status");
    uint64_t rank, gpu = 0, pid = 0;

    if (!sl_json_u64(sl_json_get(object, "rank"), &rank) || rank >= SL_JOB_RANKS_MAX)
        return sl_json_refuse(ras->json, "a member of a communicator has no rank");
    get_text(sl_json_get(object, "host"), host, sizeof(host));
    sl_json_u64(sl_json_get(object, "nvml_dev"), &gpu);
    sl_json_u64(sl_json_get(object, "pid"), &pid);
    /* A process that RAS knows nothing of is one of its own in each communicator. */
    if (strcmp(host, "unknown") == 0)
        snprintf(process, sizeof(process), "%s rank %" PRIu64, sl_job_string(ras->job, comm->name),
                 rank);
    else
        snprintf(process, sizeof(process), "pid %" PRId64 " on %s, GPU %" PRIu64,
                 json_object_get_int64(sl_json_get(object, "pid")), host, gpu);
    *seen = (struct sl_ras_seen){.comm_rank = (uint32_t)rank,
                                 .process = keep(ras, process),
                                 .pid = pid,
                                 .host = keep(ras, host),
                                 .is_missing = is_missing};
    seen->is_dead = json_object_get_boolean(sl_json_get(status, "considered_dead"));
    if (!is_missing)
        read_counts(sl_json_get(object, "collective_counts"), seen);
    return seen->process != SL_JOB_NONE && seen->host != SL_JOB_NONE ? 0 : no_memory();
}

/* A member by its members: of a rank that is missing NCCL 2.28.7 to 2.28.9 leave out the comma
 * before its status, at which json-c would stop. */
static int read_member(struct sl_ras *ras, struct json_object **out)
{
    struct json_object *member = json_object_new_object(), *value;
    char key[32];
    int got = member == NULL ? no_memory() : sl_json_open(ras->json, '{');

    while (got == 0 && (got = sl_json_next(ras->json, key, sizeof(key))) == 1) {
        got = sl_json_value(ras->json, &value);
        if (got == 0 && json_object_object_add(member, key, value) != 0) {
            json_object_put(value);
            got = no_memory();
        }
    }
    if (got != 0) {
        json_object_put(member);
        return got;
    }
    *out = member;
    return 0;
}

static int read_ranks(struct sl_ras *ras, bool is_missing)
{
    struct json_object *object;
    int got = sl_json_open(ras->json, '[');

    while (got == 0 && (got = sl_json_next(ras->json, NULL, 0)) == 1) {
        got = read_member(ras, &object);
        if (got != 0)
            break;
        if (ras->seen_count == ras->seen_cap) {
            size_t cap = ras->seen_cap == 0 ? 64 : ras->seen_cap * 2;
            struct sl_ras_seen *seen = reallocarray(ras->seen, cap, sizeof(*seen));

            ras->seen = seen != NULL ? seen : ras->seen;
            ras->seen_cap = seen != NULL ? cap : ras->seen_cap;
            got = seen != NULL ? 0 : no_memory();
        }
        if (got == 0)
            got = fill_seen(ras, object, is_missing, &ras->seen[ras->seen_count]);
        json_object_put(object);
        ras->seen_count += got == 0;
    }
    return got;
}

/* ---- a communicator ---- */

static int name_comm(struct sl_ras *ras, const char *hash, const char *second)
{
    struct sl_ras_comm *comm = &ras->comms[ras->comm_count - 1];
    char text[192];

    comm->hash = strtoull(hash, NULL, 16);
    snprintf(text, sizeof(text), "%s:%s", hash, second);
    comm->name = keep(ras, text);
    snprintf(text, sizeof(text), "communicator %s", hash);
    comm->label = keep(ras, text);
    return comm->name != SL_JOB_NONE && comm->label != SL_JOB_NONE ? 0 : no_memory();
}

static int add_comm(struct sl_ras *ras)
{
    if (ras->comm_count == ras->comm_cap) {
        size_t cap = ras->comm_cap == 0 ? 16 : ras->comm_cap * 2;
        struct sl_ras_comm *comms = reallocarray(ras->comms, cap, sizeof(*comms));

        if (comms == NULL)
            return no_memory();
        ras->comms = comms;
        ras->comm_cap = cap;
    }
    ras->comms[ras->comm_count++] = (struct sl_ras_comm){.first = ras->seen_count};
    return 0;
}

/* The hash and the size stand before the ranks. */
static int read_comm(struct sl_ras *ras)
{
    char key[32], hash[40] = "", second[96] = "";
    struct json_object *value;
    uint64_t size;
    int got = add_comm(ras);

    if (got != 0)
        return got;
    got = sl_json_open(ras->json, '{');
    while (got == 0 && (got = sl_json_next(ras->json, key, sizeof(key))) == 1) {
        struct sl_ras_comm *comm = &ras->comms[ras->comm_count - 1];

        if (strcmp(key, "ranks") == 0 || strcmp(key, "missing_ranks") == 0) {
            got = hash[0] != '\0' ? name_comm(ras, hash, second)
                                  : sl_json_refuse(ras->json, "a communicator has no hash");
            if (got == 0)
                got = read_ranks(ras, key[0] == 'm');
            continue;
        }
        got = sl_json_value(ras->json, &value);
        if (got != 0)
            break;
        if (strcmp(key, "hash") == 0)
            get_text(value, hash, sizeof(hash));
        else if (strcmp(key, "secondary_hash") == 0)
            get_text(value, second, sizeof(second));
        else if (strcmp(key, "size") == 0 && sl_json_u64(value, &size))
            comm->size = size < SL_JOB_RANKS_MAX ? (uint32_t)size : SL_JOB_RANKS_MAX;
        json_object_put(value);
    }
    ras->comms[ras->comm_count - 1].count = ras->seen_count - ras->comms[ras->comm_count - 1].first;
    return got;
}

/* "2025-12-19 13:06:53": local time of the host. Only differences matter. */
static void read_time(struct sl_ras *ras, struct json_object *value)
{
    struct tm tm = {.tm_isdst = 0};
    char text[32];

    if (get_text(value, text, sizeof(text)) && strptime(text, "%Y-%m-%d %H:%M:%S", &tm) != NULL &&
        tm.tm_year >= 70 && tm.tm_year < 300)
        ras->at_ns = (int64_t)timegm(&tm) * 1000000000;
}

static int walk(struct sl_ras *ras)
{
    char key[32];
    struct json_object *value;
    int got = sl_json_open(ras->json, '{');

    while (got == 0 && (got = sl_json_next(ras->json, key, sizeof(key))) == 1) {
        if (strcmp(key, "communicators") == 0) {
            got = sl_json_open(ras->json, '[');
            while (got == 0 && (got = sl_json_next(ras->json, NULL, 0)) == 1)
                got = read_comm(ras);
            continue;
        }
        got = sl_json_value(ras->json, &value);
        if (got != 0)
            break;
        if (strcmp(key, "timestamp") == 0)
            read_time(ras, value);
        json_object_put(value);
    }
    return got == 0 ? sl_json_end(ras->json) : got;
}

/* ---- into the job ---- */

static int by_size(const void *a, const void *b)
{
    const struct sl_ras_comm *x = a, *y = b;

    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

static int by_comm_rank(const void *a, const void *b)
{
    const struct sl_ras_seen *x = a, *y = b;

    if (x->comm_rank != y->comm_rank)
        return x->comm_rank < y->comm_rank ? -1 : 1;
    return 0;
}

/* Is the rank nobody's yet, as far as is known? */
static bool is_free(const struct sl_job *job, uint32_t rank)
{
    return rank >= job->rank_count || job->ranks[rank].process == 0;
}

/* wanted: the rank in the communicator, if it is the largest one; SL_JOB_NONE: any. */
static int place(struct sl_ras *ras, struct sl_ras_seen *seen, uint32_t wanted)
{
    struct sl_job *job = ras->job;
    struct sl_job_rank *rank;
    int err;

    seen->rank = ras->rank_of[seen->process] - 1;
    if (ras->rank_of[seen->process] == 0) {
        seen->rank = wanted != SL_JOB_NONE && is_free(job, wanted) ? wanted : job->rank_count;
        err = sl_job_add_rank(job, seen->rank);
        if (err != 0)
            return err;
        ras->rank_of[seen->process] = seen->rank + 1;
    }
    rank = &job->ranks[seen->rank];
    if (!sl_ras_is_joined(ras, seen)) {
        rank->process = seen->process;
        rank->host = seen->host;
    }
    rank->is_gone = rank->is_gone || seen->is_dead;
    return 0;
}

static int add_counts(struct sl_ras *ras, const struct sl_ras_seen *seen, uint32_t comm)
{
    for (unsigned kind = 0; kind < SL_JOB_KINDS; kind++) {
        struct sl_job_count count = {.rank = seen->rank,
                                     .comm = comm,
                                     .kind = (uint8_t)kind,
                                     .issued = seen->counts[kind],
                                     .done = UINT64_MAX,
                                     .at_ns = ras->at_ns};
        int err = seen->has[kind] ? sl_job_add_count(ras->job, &count) : 0;

        if (err != 0)
            return err;
    }
    return 0;
}

static int set_members(struct sl_ras *ras, const struct sl_ras_comm *it, uint32_t comm,
                       uint32_t *members)
{
    const struct sl_ras_seen *seen = &ras->seen[it->first];
    int err = 0;

    for (size_t i = 0; i < it->count; i++)
        members[i] = seen[i].rank;
    if (ras->job->comms[comm].member_count == 0)
        err = sl_job_set_members(ras->job, comm, members, (uint32_t)it->count);
    if (err == 0)
        ras->job->comms[comm].label = it->label;
    for (size_t i = 0; i < it->count && err == 0; i++)
        err = seen[i].is_missing ? 0 : add_counts(ras, &seen[i], comm);
    return err;
}

static int take_comm(struct sl_ras *ras, const struct sl_ras_comm *it, bool is_largest,
                     uint32_t *members)
{
    struct sl_ras_seen *seen;
    uint32_t comm = SL_JOB_NONE;
    int err = 0;

    if (it->count == 0 || ras->seen == NULL)
        return 0;
    seen = &ras->seen[it->first];
    for (size_t i = 0; i < it->count && err == 0; i++)
        err = place(ras, &seen[i], is_largest ? seen[i].comm_rank : SL_JOB_NONE);
    if (err == 0 && it->joined != SL_JOB_NONE)
        return sl_ras_join_members(ras, it);
    if (err == 0)
        err = sl_job_add_comm(ras->job, it->name, &comm);
    return err == 0 ? set_members(ras, it, comm, members) : err;
}

static int take_all(struct sl_ras *ras, uint32_t *members)
{
    struct sl_job *job = ras->job;
    int err;

    for (size_t i = 0; i < ras->comm_count; i++)
        if (ras->comms[i].count > 0)
            qsort(&ras->seen[ras->comms[i].first], ras->comms[i].count, sizeof(*ras->seen),
                  by_comm_rank);
    for (uint32_t r = 0; r < job->rank_count; r++)
        if (job->ranks[r].process != 0 && job->ranks[r].process < ras->rank_of_len)
            ras->rank_of[job->ranks[r].process] = r + 1;
    err = sl_ras_join(ras);
    if (err == 0 && ras->comm_count > 0)
        qsort(ras->comms, ras->comm_count, sizeof(*ras->comms), by_size);
    for (size_t i = 0; i < ras->comm_count && err == 0; i++)
        err = take_comm(ras, &ras->comms[i], i == 0, members);
    return err == 0 ? sl_ras_join_note(ras) : err;
}

static int take(struct sl_job *job, void *arg)
{
    struct sl_ras *ras = arg;
    uint32_t *members = reallocarray(NULL, ras->seen_count + 1, sizeof(*members));
    int err;

    for (size_t i = 0; i < ras->seen_count; i++)
        if (ras->seen[i].process >= ras->rank_of_len)
            ras->rank_of_len = ras->seen[i].process + 1;
    ras->rank_of = calloc(ras->rank_of_len + 1, sizeof(*ras->rank_of));
    err = members == NULL || ras->rank_of == NULL ? no_memory() : take_all(ras, members);
    free(members);
    /* Times of others are of another clock: RAS tells local ones. */
    if (err == 0 && ras->at_ns > job->now_ns && (job->now_ns == SL_JOB_NEVER || !ras->has_others))
        job->now_ns = ras->at_ns;
    return err;
}

static void end(void *arg)
{
    struct sl_ras *ras = arg;

    free(ras->comms);
    free(ras->seen);
    free(ras->rank_of);
    free(ras);
}

static int read_ras(struct sl_job *job, struct sl_read_in *in)
{
    struct sl_ras *ras = calloc(1, sizeof(*ras));
    int err;

    if (ras == NULL)
        return no_memory();
    *ras = (struct sl_ras){.job = job, .json = sl_json_new(in), .at_ns = SL_JOB_NEVER};
    if (ras->json != NULL)
        sl_json_forgive_commas(ras->json);
    err = ras->json == NULL ? no_memory() : walk(ras);
    sl_json_free(ras->json);
    ras->json = NULL;
    if (err == 0)
        return sl_job_later(job, take, end, ras);
    end(ras);
    return err;
}

static bool is_ras(const char *head, size_t len)
{
    return memchr(head, '{', len) != NULL && sl_read_has(head, len, "\"communicators\"") &&
           sl_read_has(head, len, "\"nccl_version\"");
}

const struct sl_read_format sl_read_ras = {
    .name = "NCCL RAS (JSON)", .is = is_ras, .read = read_ras};
