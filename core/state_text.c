/* SPDX-License-Identifier: Apache-2.0 */
/* Words for a state page. */
#include "core/state_text.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/event.h"
#include "core/path_table.h"

#include <string.h>

#define EVENTS_SHOWN 20
#define LINE 1024 /* of those without an error */

/* A line that is being made. */
struct line {
    char *out;
    size_t cap, len;
};

/* ---- words and numbers ---- */

static void put(struct line *l, const char *text)
{
    for (; *text != '\0' && l->len + 1 < l->cap; text++) {
        unsigned char c = (unsigned char)*text;

        l->out[l->len++] = c < 0x20 || c == 0x7f ? '?' : *text;
    }
    if (l->cap > 0)
        l->out[l->len] = '\0';
}

static void put_number(struct line *l, const char *before, uint64_t value, const char *after)
{
    char digits[24], *at = &digits[sizeof(digits) - 1];

    *at = '\0';
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    put(l, before);
    put(l, at);
    put(l, after);
}

static void put_signed(struct line *l, const char *before, int64_t value, const char *after)
{
    put(l, before);
    put_number(l, value < 0 ? "-" : "", value < 0 ? 0 - (uint64_t)value : (uint64_t)value, after);
}

/* With three digits behind the point. */
static void put_seconds(struct line *l, const char *before, uint64_t ns, const char *after)
{
    uint64_t ms = ns / SL_NS_PER_MS % 1000;

    put_number(l, before, ns / SL_NS_PER_S, ms < 10 ? ".00" : ms < 100 ? ".0" : ".");
    put_number(l, "", ms, after);
}

static bool end_line(struct line *l, sl_state_line_fn *line, void *arg)
{
    if (l->len + 1 >= l->cap) /* it was cut */
        l->len = l->cap - 2;
    l->out[l->len++] = '\n';
    bool more = line(arg, l->out, l->len);

    l->len = 0;
    return more;
}

/* ---- operations ---- */

static void put_call(struct line *l, uint64_t count, const char *dtype, const char *redop,
                     const char *what_root, int32_t root, const char *algo)
{
    if (dtype[0] != '\0') {
        put_number(l, "", count, " ");
        put(l, dtype);
    }
    put(l, redop[0] != '\0' ? " " : "");
    put(l, redop);
    if (root >= 0)
        put_signed(l, what_root, root, "");
    put(l, dtype[0] != '\0' ? ", " : "");
    put(l, algo);
    put(l, ")");
}

size_t sl_state_op_text(const struct sl_state_op *op, char *out, size_t cap)
{
    struct line l = {.out = out, .cap = cap};

    put(&l, op->coll);
    if (op->seq != 0)
        put_number(&l, " number ", op->seq, "");
    put(&l, " (");
    put_call(&l, op->count, op->dtype, op->redop, op->seq == 0 ? ", peer " : ", root ", op->root,
             op->algo);
    if (op->step < op->steps) {
        put_number(&l, " at step ", op->step, "");
        put_number(&l, " of ", op->steps, "");
    }
    if (op->peer >= 0) {
        put(&l, ", ");
        put(&l, op->doing);
        put_signed(&l, " rank ", op->peer, op->path[0] != '\0' ? " by " : "");
        put(&l, op->path);
    } else if (op->doing[0] != '\0') {
        put(&l, ", ");
        put(&l, op->doing);
        put(&l, op->path[0] != '\0' ? " by " : "");
        put(&l, op->path);
    }
    put_number(&l, ", ", op->moved, " bytes so far");
    put_seconds(&l, ", no progress for ", op->idle_ns, " s");
    return l.len;
}

/* The operations of this communicator; *torn counts records under way, of any communicator. */
static bool text_ops(const struct sl_state_reader *reader, uint64_t comm, uint64_t *shown,
                     uint64_t *torn, sl_state_line_fn *line, void *arg)
{
    uint32_t count = sl_state_count(reader, SL_STATE_OP);
    char text[LINE];

    for (uint32_t i = 0; i < count && i < 1024; i++) {
        struct sl_state_op op;
        enum sl_state_is is = sl_state_get(reader, SL_STATE_OP, i, &op, sizeof(op));
        struct line l = {.out = text, .cap = sizeof(text)};

        *torn += is == SL_STATE_TORN;
        if (is != SL_STATE_WHOLE || op.comm == 0 || op.comm != comm)
            continue;
        put(&l, "  ");
        l.len += sl_state_op_text(&op, text + l.len, sizeof(text) - l.len);
        if (!end_line(&l, line, arg))
            return false;
        ++*shown;
    }
    return true;
}

static void put_shape(struct line *l, const struct sl_state_reader *reader, uint64_t comm,
                      uint64_t begun, bool collective)
{
    uint64_t place = begun >> SL_STATE_SHAPE_SHIFT;
    struct sl_state_shape shape;

    if (place == 0 || sl_state_get(reader, SL_STATE_SHAPE, (uint32_t)place - 1, &shape,
                                   sizeof(shape)) != SL_STATE_WHOLE)
        return;
    if (shape.comm != comm)
        return;
    put(l, "; the last call was ");
    put(l, shape.coll);
    put(l, " (");
    put_call(l, shape.count, shape.dtype, shape.redop, collective ? ", root " : ", peer ",
             shape.root, shape.algo);
}

static uint64_t number_of(uint64_t begun)
{
    return begun & ((UINT64_C(1) << SL_STATE_SHAPE_SHIFT) - 1);
}

/* ---- communicators ---- */

struct calls {
    uint64_t begun[2], ended[2];
};

static void take_calls(const struct sl_state_comm *comm, struct calls *out)
{
    for (int i = 0; i < 2; i++) {
        out->begun[i] = atomic_load_explicit(&comm->calls.begun[i], memory_order_relaxed);
        out->ended[i] = atomic_load_explicit(&comm->calls.ended[i], memory_order_relaxed);
    }
}

static uint64_t under_way(const struct calls *calls)
{
    uint64_t all = 0;

    for (int i = 0; i < 2; i++)
        if (number_of(calls->begun[i]) > calls->ended[i])
            all += number_of(calls->begun[i]) - calls->ended[i];
    return all;
}

static void put_comm(struct line *l, const struct sl_state_comm *comm, const struct calls *calls)
{
    put_number(l, "communicator of ", comm->size, " ranks");
    put_number(l, ", this is rank ", comm->rank, "");
    put_number(l, ", ", number_of(calls->begun[0]), " collectives called");
}

/* The first line of a communicator. */
static bool text_itself(const struct sl_state_reader *reader, const struct sl_state_comm *comm,
                        const struct calls *calls, sl_state_line_fn *line, void *arg)
{
    char text[SL_STATE_LINE];
    struct line l = {.out = text, .cap = sizeof(text)};
    struct sl_state_error error;

    put_comm(&l, comm, calls);
    if (comm->error != 0) {
        put(&l, ", broken: ");
        put(&l, sluice_strerror(comm->error));
        put(&l, ": ");
        put(&l, sl_state_get_error(reader, comm->number, &error) ? error.text : comm->error_text);
    }
    return end_line(&l, line, arg);
}

static bool text_comm(const struct sl_state_reader *reader, const struct sl_state_comm *comm,
                      uint64_t *torn, sl_state_line_fn *line, void *arg)
{
    char text[LINE];
    struct line l = {.out = text, .cap = sizeof(text)};
    uint64_t shown = 0, all;
    struct calls calls;

    take_calls(comm, &calls);
    all = under_way(&calls);
    if (!text_itself(reader, comm, &calls, line, arg) ||
        !text_ops(reader, comm->number, &shown, torn, line, arg))
        return false;
    if (shown >= all && (shown > 0 || comm->error != 0))
        return true;
    if (all > shown)
        put_number(&l, "  ", all - shown, shown > 0 ? " more under way" : " under way");
    else
        put(&l, "  nothing is under way");
    if (number_of(calls.begun[0]) > 0 || number_of(calls.begun[1]) == 0)
        put_shape(&l, reader, comm->number, calls.begun[0], true);
    else
        put_shape(&l, reader, comm->number, calls.begun[1], false);
    return end_line(&l, line, arg);
}

static bool text_left_out(const struct sl_state_reader *reader, uint64_t torn,
                          sl_state_line_fn *line, void *arg)
{
    uint64_t left_out = sl_state_count_left_out(reader, SL_STATE_COMM);
    char text[LINE];
    struct line l = {.out = text, .cap = sizeof(text)};

    if (left_out > 0) {
        put_number(&l, "", left_out, " more communicators are not shown");
        if (!end_line(&l, line, arg))
            return false;
    }
    if (torn == 0)
        return true;
    put_number(&l, "", torn, " entries were being written, and are not shown");
    return end_line(&l, line, arg);
}

bool sl_state_text_comms(const struct sl_state_reader *reader, sl_state_line_fn *line, void *arg)
{
    uint32_t count = sl_state_count(reader, SL_STATE_COMM);
    uint64_t torn = 0;

    for (uint32_t i = 0; i < count && i < 1024; i++) {
        struct sl_state_comm comm;
        enum sl_state_is is = sl_state_get(reader, SL_STATE_COMM, i, &comm, sizeof(comm));
        uint64_t torn_ops = 0;

        torn += is == SL_STATE_TORN;
        if (is != SL_STATE_WHOLE || comm.number == 0)
            continue;
        if (!text_comm(reader, &comm, &torn_ops, line, arg))
            return false;
        torn = torn > torn_ops ? torn : torn_ops;
    }
    return text_left_out(reader, torn, line, arg);
}

/* ---- the rest ---- */

static bool text_process(const struct sl_state_reader *reader, bool lives, uint64_t now_ns,
                         sl_state_line_fn *line, void *arg)
{
    char text[LINE];
    struct line l = {.out = text, .cap = sizeof(text)};
    struct sl_state_process p;

    if (sl_state_get(reader, SL_STATE_PROCESS, 0, &p, sizeof(p)) != SL_STATE_WHOLE)
        return true;
    put_signed(&l, "process ", p.pid, "");
    put(&l, " (");
    put(&l, p.program);
    put(&l, ")");
    if (p.rank >= 0) {
        put_signed(&l, ", rank ", p.rank, "");
        put_signed(&l, " of ", p.size, "");
    }
    put(&l, p.job[0] != '\0' ? " of job " : "");
    put(&l, p.job);
    put(&l, " on ");
    put(&l, p.host);
    put(&l, ", Sluice ");
    put(&l, p.version);
    if (!lives)
        put(&l, (p.flags & SL_STATE_ENDED) != 0 ? "; it has ended" : "; it has died");
    else if (now_ns > p.made_ns)
        put_seconds(&l, ", since ", now_ns - p.made_ns, " s");
    return end_line(&l, line, arg);
}

static void put_hex(struct line *l, const char *before, uint32_t number)
{
    char digits[9], *at = &digits[sizeof(digits) - 1];

    *at = '\0';
    do
        *--at = "0123456789abcdef"[number & 15];
    while ((number >>= 4) != 0);
    put(l, before);
    put(l, at);
}

/* What the path table may have said, and what the lane made of it. */
static void put_route(struct line *l, const struct sl_state_path *p)
{
    if (p->label != 0)
        put_hex(l, ", label ", p->label);
    if (p->source_port != 0)
        put_number(l, " (port ", p->source_port, ")");
    if (p->weight != 0 && p->weight != SL_PATH_TABLE_WEIGHT_MAX)
        put_number(l, ", weight ", p->weight, "");
    if (p->is_avoided)
        put(l, ", avoided");
}

static void put_path(struct line *l, const struct sl_state_path *p)
{
    put(l, "path ");
    put(l, p->name);
    put_signed(l, " to rank ", p->peer, ": ");
    put(l, p->state);
    put_route(l, p);
    put_number(l, ", sent ", p->sent_bytes, " bytes");
    put_number(l, " in ", p->sent_messages, "");
    put_number(l, ", received ", p->received_bytes, " bytes");
    put_number(l, " in ", p->received_messages, "");
    if (p->failures > 0)
        put_number(l, ", failed ", p->failures, " times");
    if (p->resent > 0)
        put_number(l, ", ", p->resent, " messages resent");
    put(l, p->why[0] != '\0' ? ", last " : "");
    put(l, p->why);
}

static bool text_paths(const struct sl_state_reader *reader, sl_state_line_fn *line, void *arg)
{
    uint32_t count = sl_state_count(reader, SL_STATE_PATH);
    char text[LINE];

    for (uint32_t i = 0; i < count && i < SL_STATE_PATHS_MAX; i++) {
        struct line l = {.out = text, .cap = sizeof(text)};
        struct sl_state_path path;

        if (sl_state_get(reader, SL_STATE_PATH, i, &path, sizeof(path)) != SL_STATE_WHOLE ||
            path.comm == 0)
            continue;
        put_path(&l, &path);
        if (!end_line(&l, line, arg))
            return false;
    }
    return true;
}

static void put_event(struct line *l, const struct sl_state_reader *reader,
                      const struct sl_event *event)
{
    struct sl_event_row row;
    uint64_t us = event->time_ns / 1000 % 1000000;

    if (sl_state_get(reader, SL_STATE_EVENT_ROW, event->kind, &row, sizeof(row)) != SL_STATE_WHOLE)
        row = (struct sl_event_row){.name = "unknown", .a = "a", .b = "b"};
    put_number(l, "event at ", event->time_ns / SL_NS_PER_S, ".");
    for (uint64_t digit = 100000; digit > 1 && us < digit; digit /= 10)
        put(l, "0");
    put_number(l, "", us, " ");
    put(l, row.area);
    put(l, " ");
    put(l, row.name);
    if (event->peer != SL_EVENT_NOBODY)
        put_number(l, " peer ", event->peer, "");
    if (row.a[0] != '\0') {
        put(l, " ");
        put(l, row.a);
        put_signed(l, " ", (int64_t)event->a, "");
    }
    if (row.b[0] != '\0') {
        put(l, " ");
        put(l, row.b);
        put_signed(l, " ", (int64_t)event->b, "");
    }
}

/* The number of the newest, 0: none. */
static uint64_t last_event(const struct sl_state_reader *reader, uint32_t count)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct sl_event event;
        uint64_t number;

        if (sl_state_get_event(reader, i, &event, &number) == SL_STATE_WHOLE && number > last)
            last = number;
    }
    return last;
}

static bool text_events(const struct sl_state_reader *reader, sl_state_line_fn *line, void *arg)
{
    uint32_t count = sl_state_count(reader, SL_STATE_EVENT);
    uint64_t last = last_event(reader, count),
             first = last > EVENTS_SHOWN ? last - EVENTS_SHOWN : 0;
    char text[LINE];

    for (uint64_t n = first; n < last; n++) {
        struct line l = {.out = text, .cap = sizeof(text)};
        struct sl_event event;
        uint64_t number;

        if (sl_state_get_event(reader, (uint32_t)(n % count), &event, &number) != SL_STATE_WHOLE ||
            number != n + 1)
            continue;
        put_event(&l, reader, &event);
        if (!end_line(&l, line, arg))
            return false;
    }
    return true;
}

bool sl_state_text_all(const struct sl_state_reader *reader, bool lives, uint64_t now_ns,
                       sl_state_line_fn *line, void *arg)
{
    return text_process(reader, lives, now_ns, line, arg) &&
           sl_state_text_comms(reader, line, arg) && text_paths(reader, line, arg) &&
           text_events(reader, line, arg);
}
