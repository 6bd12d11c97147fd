/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to /v1/calls: their parts, one by one, and what is kept of them. */
#include "monitor/read/calls.h"
#include "core/err.h"
#include "monitor/read/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_MAX 4096
#define COMMS_MAX 256

enum { NUMBER, COMM, SEQ, PEER, BYTES, ISSUED, ENDED, OPERATION, COLUMNS };

static const char *const columns[COLUMNS] = {"number", "communicator", "seq",      "peer",
                                             "bytes",  "issued_ns",    "ended_ns", "operation"};

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for the calls of ranks");
}

static int refuse(const char *what)
{
    return sl_fail(-EBADMSG, "calls of ranks: %s", what);
}

static void process_free(struct sl_calls_process *process)
{
    free(process->comms);
    free(process->calls);
    *process = (struct sl_calls_process){.comms = NULL};
}

void sl_calls_free(struct sl_calls *calls)
{
    for (uint32_t i = 0; i < calls->count; i++)
        process_free(&calls->list[i]);
    free(calls->list);
    *calls = (struct sl_calls){.list = NULL};
}

/* ---- members that have to be there ---- */

static bool number_in(struct json_object *value, uint64_t most, uint64_t *out)
{
    return sl_json_u64(value, out) && *out <= most;
}

/* From -1 on. */
static bool rank_in(struct json_object *value, int32_t *out)
{
    uint64_t number;

    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) == -1) {
        *out = -1;
        return true;
    }
    if (!number_in(value, SL_JOB_RANKS_MAX - 1, &number))
        return false;
    *out = (int32_t)number;
    return true;
}

static bool text_in(struct json_object *value, char *out, size_t cap)
{
    size_t len;
    const char *text = sl_json_text(value, &len);

    if (text == NULL || len >= cap)
        return false;
    memset(out, 0, cap);
    memcpy(out, text, len);
    return strlen(out) == len;
}

static bool array_in(struct json_object *value, size_t most, size_t *count)
{
    if (!json_object_is_type(value, json_type_array))
        return false;
    *count = json_object_array_length(value);
    return *count <= most;
}

static bool id_in(struct json_object *value, uint64_t *out)
{
    char text[20], *end;

    if (!text_in(value, text, 17) || text[0] == '\0' ||
        strspn(text, "0123456789abcdef") != strlen(text))
        return false;
    *out = strtoull(text, &end, 16);
    return true;
}

static bool name_in(struct json_object *value, char *out, size_t cap)
{
    return text_in(value, out, cap) && out[0] != '\0' &&
           strspn(out, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(out);
}

/* ---- one process ---- */

static const struct sl_page_comm *comm_of(const struct sl_calls_process *process, uint64_t number)
{
    for (uint32_t i = 0; i < process->comm_count; i++)
        if (process->comms[i].number == number)
            return &process->comms[i];
    return NULL;
}

static bool take_comm(struct json_object *from, struct sl_page_comm *to)
{
    uint64_t rank, size;

    if (!number_in(sl_json_get(from, "number"), INT64_MAX, &to->number) || to->number == 0 ||
        !id_in(sl_json_get(from, "id"), &to->id) ||
        !number_in(sl_json_get(from, "size"), SL_JOB_RANKS_MAX, &size) ||
        !number_in(sl_json_get(from, "rank"), SL_JOB_RANKS_MAX, &rank) || rank >= size)
        return false;
    to->rank = (uint32_t)rank;
    to->size = (uint32_t)size;
    return true;
}

static int take_comms(struct json_object *from, struct sl_calls_process *to)
{
    struct json_object *list = sl_json_get(from, "communicators");
    size_t count;

    if (!array_in(list, COMMS_MAX, &count))
        return refuse("a process does not list its communicators");
    to->comms = calloc(count + 1, sizeof(*to->comms));
    if (to->comms == NULL)
        return no_memory();
    for (size_t i = 0; i < count; i++) {
        struct sl_page_comm comm = {.number = 0};

        if (!take_comm(json_object_array_get_idx(list, i), &comm) ||
            comm_of(to, comm.number) != NULL)
            return refuse("a communicator is not described as it has to be");
        to->comms[to->comm_count++] = comm;
    }
    return 0;
}

static bool take_call(struct json_object *row, const struct sl_calls_process *process,
                      uint64_t now_ns, struct sl_state_call *to)
{
    uint64_t number, seq;
    size_t count;

#define AT(i) json_object_array_get_idx(row, i)
    *to = (struct sl_state_call){.turn = 0};
    if (!array_in(row, 64, &count) || count < COLUMNS ||
        !number_in(AT(NUMBER), INT64_MAX, &number) || number == 0 ||
        !number_in(AT(COMM), INT64_MAX, &to->comm) || comm_of(process, to->comm) == NULL ||
        !number_in(AT(SEQ), UINT32_MAX, &seq) || !rank_in(AT(PEER), &to->peer) ||
        !number_in(AT(BYTES), INT64_MAX, &to->bytes) ||
        !number_in(AT(ENDED), now_ns, &to->ended_ns) ||
        !number_in(AT(ISSUED), to->ended_ns, &to->issued_ns) ||
        !name_in(AT(OPERATION), to->coll, sizeof(to->coll)))
        return false;
#undef AT
    to->turn = 2 * number;
    to->seq = (uint32_t)seq;
    return true;
}

static int by_turn(const void *a, const void *b)
{
    const struct sl_state_call *x = a, *y = b;

    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* Each once, and of all the newest. */
static void keep_newest(struct sl_calls_process *process)
{
    struct sl_state_call *calls = process->calls;
    uint32_t kept = 0, drop;

    qsort(calls, process->call_count, sizeof(*calls), by_turn);
    for (uint32_t i = 0; i < process->call_count; i++)
        if (kept == 0 || calls[kept - 1].turn != calls[i].turn)
            calls[kept++] = calls[i];
    drop = kept > SL_CALLS_EACH ? kept - SL_CALLS_EACH : 0;
    memmove(calls, calls + drop, (kept - drop) * sizeof(*calls));
    process->call_count = kept - drop;
}

/* before: what is kept of it, or NULL. */
static int take_calls(struct json_object *from, uint64_t now_ns,
                      const struct sl_calls_process *before, struct sl_calls_process *to)
{
    struct json_object *list = sl_json_get(from, "calls");
    uint32_t old = before != NULL ? before->call_count : 0;
    size_t count;

    if (!array_in(list, UINT32_MAX / 2, &count))
        return refuse("a process does not list its calls");
    to->calls = reallocarray(NULL, count + old + 1, sizeof(*to->calls));
    if (to->calls == NULL)
        return no_memory();
    for (; to->call_count < count; to->call_count++)
        if (!take_call(json_object_array_get_idx(list, to->call_count), to, now_ns,
                       &to->calls[to->call_count]))
            return refuse("a call is not described as it has to be");
    /* Of a communicator that is gone nobody asks any more. */
    for (uint32_t i = 0; i < old; i++)
        if (comm_of(to, before->calls[i].comm) != NULL)
            to->calls[to->call_count++] = before->calls[i];
    keep_newest(to);
    return 0;
}

static int take_self(struct json_object *from, const char *host, struct sl_calls_process *to)
{
    struct sl_state_process *self = &to->self;
    uint64_t pid, page;

    if (!number_in(sl_json_get(from, "pid"), INT32_MAX, &pid) || pid == 0 ||
        !number_in(sl_json_get(from, "page"), UINT32_MAX, &page) ||
        !number_in(sl_json_get(from, "start_ticks"), INT64_MAX, &self->start_ticks) ||
        !rank_in(sl_json_get(from, "rank"), &self->rank) ||
        !rank_in(sl_json_get(from, "size"), &self->size) ||
        !text_in(sl_json_get(from, "job"), self->job, sizeof(self->job)))
        return refuse("a process is not described as it has to be");
    self->pid = (int32_t)pid;
    to->page = (uint32_t)page;
    memcpy(self->host, host, sizeof(self->host));
    return 0;
}

static const struct sl_calls_process *find(const struct sl_calls *calls,
                                           const struct sl_calls_process *process)
{
    for (uint32_t i = 0; i < calls->count; i++)
        if (calls->list[i].self.pid == process->self.pid &&
            calls->list[i].self.start_ticks == process->self.start_ticks &&
            calls->list[i].page == process->page)
            return &calls->list[i];
    return NULL;
}

static int take_process(const struct sl_calls *calls, struct json_object *from, const char *host,
                        struct sl_calls *to)
{
    struct sl_calls_process *process = &to->list[to->count];
    int err = take_self(from, host, process);

    if (err == 0 && find(to, process) != NULL)
        return refuse("a process is told twice");
    if (err == 0)
        err = take_comms(from, process);
    if (err == 0)
        err = take_calls(from, (uint64_t)to->now_ns, find(calls, process), process);
    to->count++; /* also what is not whole is freed with the rest */
    return err;
}

/* ---- an answer ---- */

/* More may stand behind those that are known. */
static bool has_columns(struct json_object *answer)
{
    struct json_object *list = sl_json_get(answer, "columns");
    size_t count, len;

    if (!array_in(list, 64, &count) || count < COLUMNS)
        return false;
    for (unsigned i = 0; i < COLUMNS; i++) {
        const char *text = sl_json_text(json_object_array_get_idx(list, i), &len);

        if (text == NULL || strcmp(text, columns[i]) != 0)
            return false;
    }
    return true;
}

static int take_head(struct json_object *answer, char host[64], struct sl_calls *to)
{
    uint64_t version, now, wall;

    if (!number_in(sl_json_get(answer, "version"), UINT32_MAX, &version) || version != 1)
        return refuse("the answer is of no version that is known");
    if (!text_in(sl_json_get(answer, "host"), host, 64) ||
        !number_in(sl_json_get(answer, "monotonic_ns"), INT64_MAX, &now) ||
        !number_in(sl_json_get(answer, "realtime_ns"), INT64_MAX, &wall) ||
        !number_in(sl_json_get(answer, "next"), now, &to->next) || !has_columns(answer))
        return refuse("the answer does not say whose they are, and how it tells of them");
    to->now_ns = (int64_t)now;
    to->wall_ns = (int64_t)wall - (int64_t)now;
    return 0;
}

static int take_all(const struct sl_calls *calls, struct json_object *answer, struct sl_calls *to)
{
    struct json_object *list = sl_json_get(answer, "ranks");
    size_t count;
    char host[64];
    int err = take_head(answer, host, to);

    if (err != 0)
        return err;
    if (!array_in(list, PROCESSES_MAX, &count))
        return refuse("the answer does not list processes");
    to->list = calloc(count + 1, sizeof(*to->list));
    if (to->list == NULL)
        return no_memory();
    for (size_t i = 0; i < count && err == 0; i++)
        err = take_process(calls, json_object_array_get_idx(list, i), host, to);
    return err;
}

int sl_calls_take(struct sl_calls *calls, struct json_object *answer)
{
    struct sl_calls to = {.list = NULL};
    int err = take_all(calls, answer, &to);

    if (err != 0) {
        sl_calls_free(&to);
        return err;
    }
    sl_calls_free(calls);
    *calls = to;
    return 0;
}

/* ---- to a page ---- */

/* The number of the same communicator there; 0: it has none such. */
static uint64_t number_there(const struct sl_page *page, const struct sl_page_comm *comm)
{
    for (uint32_t i = 0; comm != NULL && i < page->comm_count; i++)
        if (page->comms[i].id == comm->id && page->comms[i].size == comm->size &&
            page->comms[i].rank == comm->rank)
            return page->comms[i].number;
    return 0;
}

static int give(const struct sl_calls *calls, const struct sl_calls_process *process,
                struct sl_page *page)
{
    uint64_t shift = (uint64_t)calls->wall_ns - (uint64_t)page->wall_ns;
    struct sl_state_call *more = reallocarray(
        page->calls, (size_t)page->call_count + process->call_count + 1, sizeof(*more));

    if (more == NULL)
        return no_memory();
    page->calls = more;
    for (uint32_t i = 0; i < process->call_count; i++) {
        struct sl_state_call call = process->calls[i];

        call.comm = number_there(page, comm_of(process, call.comm));
        call.issued_ns += shift;
        call.ended_ns += shift;
        if (call.comm != 0)
            page->calls[page->call_count++] = call;
    }
    return 0;
}

int sl_calls_give(const struct sl_calls *calls, struct sl_page *page)
{
    int err = 0;

    for (uint32_t i = 0; i < calls->count && err == 0; i++)
        if (calls->list[i].self.pid == page->self.pid &&
            calls->list[i].self.start_ticks == page->self.start_ticks)
            err = give(calls, &calls->list[i], page);
    return err;
}
