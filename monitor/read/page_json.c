/* SPDX-License-Identifier: Apache-2.0 */
/* What a process says of itself, from JSON: a page of sluice-bench --status, or a rank of a node
 * agent's /v1/ranks. */
#include "core/err.h"
#include "monitor/read/json.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 4096 /* members of an array that are looked at */

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for what a process of Sluice says");
}

/* ---- members of an object: of one that is not there, nothing ---- */

static uint64_t number_of(struct json_object *object, const char *key)
{
    uint64_t number = 0;

    return sl_json_u64(sl_json_get(object, key), &number) ? number : 0;
}

static uint32_t small_of(struct json_object *object, const char *key)
{
    uint64_t number = number_of(object, key);

    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* null, or what is no rank: -1. */
static int32_t rank_of(struct json_object *object, const char *key)
{
    uint64_t number;

    return sl_json_u64(sl_json_get(object, key), &number) && number < SL_JOB_RANKS_MAX
               ? (int32_t)number
               : -1;
}

/* Numbers of processes go beyond those of ranks. */
static int32_t pid_of(struct json_object *object)
{
    uint64_t number;

    return sl_json_u64(sl_json_get(object, "pid"), &number) && number <= INT32_MAX ? (int32_t)number
                                                                                   : -1;
}

static bool is_true(struct json_object *object, const char *key)
{
    return json_object_get_boolean(sl_json_get(object, key));
}

static void text_of(struct json_object *object, const char *key, char *out, size_t cap)
{
    size_t len = 0;
    const char *text = sl_json_text(sl_json_get(object, key), &len);

    memset(out, 0, cap);
    if (text != NULL)
        memcpy(out, text, len < cap ? len : cap - 1);
}

#define TEXT(object, key, field) text_of(object, key, field, sizeof(field))

/* Seconds, as nanoseconds. */
static uint64_t seconds_of(struct json_object *object, const char *key)
{
    double seconds = json_object_get_double(sl_json_get(object, key));

    return seconds > 0 && seconds < 9e9 ? (uint64_t)(seconds * 1e9) : 0;
}

static uint64_t id_of(struct json_object *object, const char *key)
{
    char text[24];

    TEXT(object, key, text);
    return strtoull(text, NULL, 16);
}

/* An array of records, each filled by fill(). */
static uint32_t length_of(struct json_object *array)
{
    size_t count =
        json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;

    return count < LIST_MAX ? (uint32_t)count : LIST_MAX;
}

static int fill_all(struct json_object *object, const char *key, void *list, size_t size,
                    uint32_t *count, void (*fill)(struct json_object *from, void *to))
{
    struct json_object *array = sl_json_get(object, key);
    uint32_t length = length_of(array);
    char *records = calloc(length + 1, size);

    if (records == NULL)
        return no_memory();
    memcpy(list, &records, sizeof(records));
    for (uint32_t i = 0; i < length; i++) {
        struct json_object *from = json_object_array_get_idx(array, i);

        if (json_object_is_type(from, json_type_object))
            fill(from, records + size * (*count)++);
    }
    return 0;
}

/* ---- sluice-bench --status ---- */

static void fill_shape(struct json_object *from, struct sl_state_shape *to)
{
    to->count = number_of(from, "count");
    to->root = rank_of(from, "root");
    TEXT(from, "collective", to->coll);
    TEXT(from, "type", to->dtype);
    TEXT(from, "redop", to->redop);
}

static void status_comm(struct json_object *from, void *record)
{
    struct sl_page_comm *to = record;
    struct json_object *calls = sl_json_get(from, "collectives"),
                       *messages = sl_json_get(from, "sends_and_receives"),
                       *error = sl_json_get(from, "error");

    *to = (struct sl_page_comm){.number = number_of(from, "number"),
                                .id = id_of(from, "id"),
                                .rank = small_of(from, "rank"),
                                .size = small_of(from, "size"),
                                .disputed = small_of(from, "disputed"),
                                .made_ns = number_of(from, "made_ns"),
                                .updated_ns = number_of(from, "updated_ns"),
                                .begun = {number_of(calls, "begun"), number_of(messages, "begun")},
                                .ended = {number_of(calls, "ended"), number_of(messages, "ended")}};
    to->error = json_object_get_int(error);
    to->flags = (to->error != 0 ? SL_STATE_BROKEN : 0) |
                (is_true(from, "progress_thread") ? SL_STATE_THREAD : 0);
    fill_shape(sl_json_get(calls, "last"), &to->last);
}

static void status_op(struct json_object *from, void *record)
{
    struct sl_state_op *to = record;
    struct sl_state_shape shape = {.turn = 0};

    fill_shape(from, &shape);
    to->comm = number_of(from, "communicator");
    to->seq = small_of(from, "seq");
    to->count = shape.count;
    to->bytes = number_of(from, "bytes");
    to->root = shape.root;
    to->peer = rank_of(from, "peer");
    to->since_ns = number_of(from, "since_ns");
    to->updated_ns = number_of(from, "updated_ns");
    memcpy(to->coll, shape.coll, sizeof(to->coll));
    memcpy(to->dtype, shape.dtype, sizeof(to->dtype));
    memcpy(to->redop, shape.redop, sizeof(to->redop));
    TEXT(from, "doing", to->doing);
}

static void fill_quickest(struct json_object *list, struct sl_state_path *to)
{
    for (uint32_t i = 0; i < length_of(list) && i < SL_ARRAY_LEN(to->quickest); i++) {
        struct json_object *from = json_object_array_get_idx(list, i);

        to->quickest[i] = (struct sl_state_quickest){.ns = number_of(from, "ns"),
                                                     .bytes = number_of(from, "bytes"),
                                                     .messages = small_of(from, "messages"),
                                                     .window = small_of(from, "window")};
    }
}

void sl_page_path_of(struct json_object *from, struct sl_state_path *to)
{
    struct json_object *histogram = sl_json_get(from, "histogram");

    *to = (struct sl_state_path){.comm = number_of(from, "communicator")};
    to->peer = rank_of(from, "peer");
    to->number = rank_of(from, "path");
    to->sent_bytes = number_of(from, "sent_bytes");
    to->sent_messages = number_of(from, "sent_messages");
    to->arriving_ns = number_of(from, "arriving_ns");
    to->arriving_bytes = number_of(from, "arriving_bytes");
    to->arriving_messages = number_of(from, "arriving_messages");
    to->resent = number_of(from, "resent");
    to->updated_ns = number_of(from, "updated_ns");
    TEXT(from, "name", to->name);
    fill_quickest(sl_json_get(from, "quickest"), to);
    for (uint32_t i = 0; i < length_of(histogram) && i < SL_HISTOGRAM_BINS; i++)
        sl_json_u64(json_object_array_get_idx(histogram, i), &to->histogram[i]);
}

static void status_path(struct json_object *from, void *record)
{
    sl_page_path_of(from, record);
}

static void fill_self(struct json_object *from, struct sl_state_process *to)
{
    to->pid = pid_of(from);
    to->uid = small_of(from, "uid");
    to->start_ticks = number_of(from, "start_ticks");
    to->made_ns = number_of(from, "made_ns");
    to->made_wall_s = number_of(from, "made_wall_s");
    to->rank = rank_of(from, "rank");
    to->size = rank_of(from, "size");
    to->flags = is_true(from, "ended") ? SL_STATE_ENDED : 0;
    TEXT(from, "program", to->program);
    TEXT(from, "version", to->version);
    TEXT(from, "host", to->host);
    TEXT(from, "job", to->job);
}

int sl_page_of_status(struct json_object *object, struct sl_page *out)
{
    uint64_t looked;
    int err;

    *out = (struct sl_page){.now_ns = SL_JOB_NEVER};
    if (sl_json_get(object, "lives") == NULL || is_true(object, "torn"))
        return sl_fail(-EBADMSG, "a page does not say whose it is");
    out->life = is_true(object, "lives") ? SL_PAGE_LIVES : SL_PAGE_DEAD;
    fill_self(object, &out->self);
    if (out->self.made_wall_s < INT64_MAX / 1000000000)
        out->wall_ns = (int64_t)(out->self.made_wall_s * 1000000000 - out->self.made_ns);
    if (sl_json_u64(sl_json_get(object, "looked_ns"), &looked) && looked < INT64_MAX)
        out->now_ns = (int64_t)looked;
    err = fill_all(object, "communicators", &out->comms, sizeof(*out->comms), &out->comm_count,
                   status_comm);
    if (err == 0)
        err =
            fill_all(object, "operations", &out->ops, sizeof(*out->ops), &out->op_count, status_op);
    if (err == 0)
        err = fill_all(object, "paths", &out->paths, sizeof(*out->paths), &out->path_count,
                       status_path);
    if (err != 0)
        sl_page_free(out);
    return err;
}

/* ---- a rank of the agent's answer: times are ages ---- */

static void agent_comm(struct json_object *from, void *record)
{
    struct sl_page_comm *to = record;
    uint64_t begun = number_of(from, "collectives"), ended;

    if (!sl_json_u64(sl_json_get(from, "collectives_ended"), &ended)) /* an older agent */
        ended = begun - (number_of(from, "under_way") > 0 && begun > 0);
    *to = (struct sl_page_comm){
        .number = number_of(from, "number"),
        .id = id_of(from, "id"),
        .rank = small_of(from, "rank"),
        .size = small_of(from, "size"),
        .flags = is_true(from, "broken") ? SL_STATE_BROKEN : 0,
        .disputed = small_of(from, "disputed"),
        .begun = {begun, number_of(from, "messages")},
        .ended = {ended, number_of(from, "messages_ended")},
    };
    to->flags |= is_true(from, "progress_thread") ? SL_STATE_THREAD : 0;
    /* Ages so far, and 1. */
    if (sl_json_get(from, "made_seconds") != NULL)
        to->made_ns = seconds_of(from, "made_seconds") + 1;
    if (sl_json_get(from, "updated_seconds") != NULL)
        to->updated_ns = seconds_of(from, "updated_seconds") + 1;
    fill_shape(sl_json_get(from, "last"), &to->last);
}

static void agent_path(struct json_object *from, void *record)
{
    struct sl_state_path *to = record;

    sl_page_path_of(from, to);
    to->comm = id_of(from, "communicator"); /* its id so far */
    to->updated_ns = 0;
}

/* Its number; 0: the rank says nothing of it. */
static uint64_t comm_of(const struct sl_page *page, uint64_t id)
{
    for (uint32_t i = 0; i < page->comm_count; i++)
        if (page->comms[i].id == id)
            return page->comms[i].number;
    return 0;
}

/* As the process numbers them, so that looks one after another agree. An older agent does not tell;
 * and several pages of one process have the same numbers. */
static void number_comms(struct sl_page *page)
{
    bool is_told = true;

    for (uint32_t i = 0; i < page->comm_count && is_told; i++) {
        is_told = page->comms[i].number != 0;
        for (uint32_t k = 0; k < i && is_told; k++)
            is_told = page->comms[k].number != page->comms[i].number;
    }
    for (uint32_t i = 0; i < page->comm_count && !is_told; i++)
        page->comms[i].number = i + 1;
}

static int agent_op(struct json_object *waits, struct sl_page *page)
{
    struct sl_state_op *to;

    page->ops = to = calloc(1, sizeof(*page->ops));
    if (to == NULL)
        return no_memory();
    to->comm = comm_of(page, id_of(waits, "communicator"));
    to->seq = small_of(waits, "number");
    to->count = number_of(waits, "elements");
    to->root = rank_of(waits, "root");
    to->peer = rank_of(waits, "peer");
    to->since_ns = seconds_of(waits, "for_seconds");
    to->updated_ns = seconds_of(waits, "updated_seconds");
    TEXT(waits, "operation", to->coll);
    TEXT(waits, "type", to->dtype);
    TEXT(waits, "reduction", to->redop);
    TEXT(waits, "doing", to->doing);
    page->op_count = to->comm != 0;
    return 0;
}

static uint64_t time_of(const struct sl_page *page, uint64_t age)
{
    return (uint64_t)page->now_ns > age ? (uint64_t)page->now_ns - age : 1;
}

int sl_page_of_agent(struct json_object *rank, const char *host, int64_t now_ns,
                     struct sl_page *out)
{
    struct json_object *waits = sl_json_get(rank, "waits");
    char state[4];
    int err;

    *out = (struct sl_page){
        .life = SL_PAGE_LIVES, .now_ns = now_ns, .window = number_of(rank, "window")};
    fill_self(rank, &out->self);
    snprintf(out->self.host, sizeof(out->self.host), "%s", host);
    TEXT(rank, "state", state);
    if (state[0] == 'T' || state[0] == 't')
        snprintf(out->halt, sizeof(out->halt), "is stopped");
    err = fill_all(rank, "communicators", &out->comms, sizeof(*out->comms), &out->comm_count,
                   agent_comm);
    number_comms(out);
    for (uint32_t i = 0; i < out->comm_count && err == 0; i++) {
        struct sl_page_comm *comm = &out->comms[i];

        if (comm->made_ns != 0)
            comm->made_ns = time_of(out, comm->made_ns - 1);
        if (comm->updated_ns != 0)
            comm->updated_ns = time_of(out, comm->updated_ns - 1);
    }
    if (err == 0 && waits != NULL)
        err = agent_op(waits, out);
    if (err == 0 && out->op_count > 0) {
        out->ops[0].since_ns = time_of(out, out->ops[0].since_ns);
        out->ops[0].updated_ns = time_of(out, out->ops[0].updated_ns);
    }
    if (err == 0)
        err =
            fill_all(rank, "paths", &out->paths, sizeof(*out->paths), &out->path_count, agent_path);
    for (uint32_t i = 0; i < out->path_count && err == 0; i++)
        out->paths[i].comm = comm_of(out, out->paths[i].comm);
    if (err != 0)
        sl_page_free(out);
    return err;
}
