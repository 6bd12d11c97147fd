/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/calls.h"

#include "monitor/event_line.h"
#include "monitor/http_answer.h"
#include "monitor/json_add.h"
#include "monitor/page_look.h"
#include "monitor/ranks_json.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMS_MAX 64 /* of a page, as in /v1/ranks */

/* One answer. */
struct answer {
    const struct sl_mon_time *now;
    uint64_t since_ns, next_ns;
    unsigned each; /* calls of a page */
    bool is_more;
    struct sl_state_reader reader; /* of the page that it is at */
    struct sl_state_comm comms[COMMS_MAX];
    unsigned comm_count;
    struct sl_state_call calls[SL_MON_CALLS_EACH];
    unsigned call_count;
};

/* ---- a page ---- */

static bool wants_comm(void *arg, uint32_t place, const struct sl_mon_glance *at)
{
    (void)arg;
    (void)place;
    return at->number != 0;
}

static bool take_comm(void *arg, uint32_t place, const void *record)
{
    struct answer *answer = arg;

    (void)place;
    memcpy(&answer->comms[answer->comm_count++], record, sizeof(answer->comms[0]));
    return answer->comm_count < COMMS_MAX;
}

static const struct sl_state_comm *comm_of(const struct answer *answer, uint64_t number)
{
    for (unsigned i = 0; i < answer->comm_count; i++)
        if (answer->comms[i].number == number)
            return &answer->comms[i];
    return NULL;
}

static bool wants_call(void *arg, uint32_t place, const struct sl_mon_glance *at)
{
    (void)place;
    return comm_of(arg, at->number) != NULL;
}

/* Not of the future, whatever a page says: what came after it would never be told. */
static bool take_call(void *arg, uint32_t place, const void *record)
{
    struct answer *answer = arg;
    const struct sl_state_call *call = record;

    (void)place;
    if (call->ended_ns > answer->since_ns && call->ended_ns <= answer->now->mono_ns &&
        call->issued_ns <= call->ended_ns)
        answer->calls[answer->call_count++] = *call;
    return answer->call_count < SL_MON_CALLS_EACH;
}

static int by_end(const void *a, const void *b)
{
    const struct sl_state_call *x = a, *y = b;

    if (x->ended_ns != y->ended_ns)
        return x->ended_ns < y->ended_ns ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* Its calls in the order of their ends, and no more than there is room for. */
static bool read_page(struct answer *answer, int fd)
{
    const struct sl_mon_look comms = {
        .wants = wants_comm, .take = take_comm, .arg = answer, .bytes = sizeof(answer->comms[0])};
    const struct sl_mon_look calls = {
        .wants = wants_call, .take = take_call, .arg = answer, .bytes = sizeof(answer->calls[0])};
    unsigned count = answer->each;

    answer->comm_count = answer->call_count = 0;
    if (sl_state_read_fd(fd, &answer->reader) != 0)
        return false;
    sl_mon_look(&answer->reader, SL_STATE_COMM, 0, COMMS_MAX, &comms);
    sl_mon_look(&answer->reader, SL_STATE_CALL, 0, SL_MON_CALLS_EACH, &calls);
    qsort(answer->calls, answer->call_count, sizeof(answer->calls[0]), by_end);
    if (answer->call_count <= count)
        return true;
    while (count < answer->call_count &&
           answer->calls[count].ended_ns == answer->calls[count - 1].ended_ns)
        count++;
    answer->is_more = answer->is_more || count < answer->call_count;
    answer->call_count = count;
    if (answer->calls[count - 1].ended_ns < answer->next_ns)
        answer->next_ns = answer->calls[count - 1].ended_ns;
    return true;
}

/* ---- as JSON ---- */

static struct json_object *comms_of(const struct answer *answer)
{
    struct json_object *list = json_object_new_array();

    for (unsigned i = 0; i < answer->comm_count; i++) {
        const struct sl_state_comm *comm = &answer->comms[i];
        struct json_object *at = json_object_new_object();
        char id[24];

        snprintf(id, sizeof(id), "%" PRIx64, comm->id);
        sl_json_add_number(at, "number", comm->number);
        sl_json_add_text(at, "id", id);
        sl_json_add_number(at, "rank", comm->rank);
        sl_json_add_number(at, "size", comm->size);
        json_object_array_add(list, at);
    }
    return list;
}

/* The object, but for its last bracket. */
static int write_open(struct json_object *object, FILE *out)
{
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN);

    if (text != NULL)
        fwrite(text, 1, strlen(text) - 1, out);
    json_object_put(object);
    return text != NULL ? 0 : sl_fail(-ENOMEM, "no memory for the calls of ranks");
}

/* Names of operations have no others. */
static void write_name(const struct sl_state_call *call, FILE *out)
{
    for (size_t i = 0; i < sizeof(call->coll) && call->coll[i] != '\0'; i++) {
        char c = call->coll[i];

        putc((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_', out);
    }
}

static void write_calls(const struct answer *answer, FILE *out)
{
    for (unsigned i = 0; i < answer->call_count; i++) {
        const struct sl_state_call *call = &answer->calls[i];

        fprintf(out, "%s[%" PRIu64 ",%" PRIu64 ",%u,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",\"",
                i == 0 ? "" : ",", call->turn / 2, call->comm, call->seq, call->peer, call->bytes,
                call->issued_ns, call->ended_ns);
        write_name(call, out);
        fputs("\"]", out);
    }
}

static int write_page(struct answer *answer, const struct sl_mon_rank *rank, unsigned page,
                      FILE *out)
{
    struct json_object *object = json_object_new_object();
    int err;

    sl_mon_json_number(object, "pid", rank->pid);
    sl_mon_json_number(object, "page", page);
    sl_mon_json_number(object, "start_ticks", (int64_t)rank->start_ticks);
    sl_mon_json_text(object, "job", rank->self.job);
    sl_mon_json_number(object, "rank", rank->self.rank);
    sl_mon_json_number(object, "size", rank->self.size);
    json_object_object_add(object, "communicators", comms_of(answer));
    err = write_open(object, out);
    if (err != 0)
        return err;
    fputs(",\"calls\":[", out);
    write_calls(answer, out);
    fputs("]}", out);
    return 0;
}

static int write_head(const struct answer *answer, FILE *out)
{
    static const char *const columns[] = {"number", "communicator", "seq",      "peer",
                                          "bytes",  "issued_ns",    "ended_ns", "operation"};
    struct json_object *object = sl_http_object(), *list = json_object_new_array();
    char host[64] = "?", time[48];

    (void)gethostname(host, sizeof(host) - 1);
    sl_mon_time_text(answer->now->wall_ns, time, sizeof(time));
    sl_json_add_text(object, "host", host);
    sl_json_add_text(object, "time", time);
    sl_json_add_number(object, "monotonic_ns", answer->now->mono_ns);
    sl_json_add_number(object, "realtime_ns", answer->now->wall_ns);
    for (unsigned i = 0; i < SL_ARRAY_LEN(columns); i++)
        json_object_array_add(list, json_object_new_string(columns[i]));
    json_object_object_add(object, "columns", list);
    return write_open(object, out);
}

static unsigned count_pages(const struct sl_mon_ranks *ranks)
{
    unsigned pages = 0;

    for (unsigned i = 0; i < sl_mon_ranks_count(ranks); i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(ranks, i);

        pages += rank != NULL && !rank->is_gone ? rank->page_count : 0;
    }
    return pages;
}

static int write_ranks(struct answer *answer, const struct sl_mon_ranks *ranks, FILE *out)
{
    bool any = false;
    int err = 0;

    for (unsigned i = 0; err == 0 && i < sl_mon_ranks_count(ranks); i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(ranks, i);

        if (rank == NULL || rank->is_gone)
            continue;
        for (unsigned k = 0; err == 0 && k < rank->page_count; k++) {
            if (!read_page(answer, rank->pages[k]))
                continue;
            fputs(any ? ",\n" : "\n", out);
            any = true;
            err = write_page(answer, rank, k, out);
        }
    }
    return err;
}

int sl_mon_calls_write(const struct sl_mon_ranks *ranks, const struct sl_mon_time *now,
                       uint64_t since_ns, unsigned limit, FILE *out)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    unsigned pages = count_pages(ranks);
    int err;

    if (answer == NULL)
        return sl_fail(-ENOMEM, "no memory for the calls of ranks");
    answer->now = now;
    answer->since_ns = since_ns;
    answer->next_ns =
        now->mono_ns > SL_MON_CALLS_AGAIN_NS ? now->mono_ns - SL_MON_CALLS_AGAIN_NS : 0;
    if (answer->next_ns < since_ns && since_ns <= now->mono_ns)
        answer->next_ns = since_ns;
    answer->each = pages > 0 && limit / pages > 0 ? limit / pages : 1;
    err = write_head(answer, out);
    if (err == 0) {
        fputs(",\"ranks\":[", out);
        err = write_ranks(answer, ranks, out);
    }
    fprintf(out, "],\"next\":%" PRIu64 ",\"more\":%s}\n", answer->next_ns,
            answer->is_more ? "true" : "false");
    free(answer);
    return err;
}
