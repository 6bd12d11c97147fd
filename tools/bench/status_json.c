/* SPDX-License-Identifier: Apache-2.0 */
/* A state page as JSON: the fields of core/state.h by their names. */
#include "core/clock.h"
#include "core/err.h"
#include "core/event.h"
#include "status.h"

#include <inttypes.h>
#include <string.h>

#define RECORDS_MAX 4096 /* of a section */

/* ---- values ---- */

/* Only what a JSON text may hold as it is. */
static void add_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, ",\"%s\":\"", name);
    for (; *text != '\0'; text++)
        fputc(*text >= ' ' && *text < 127 && *text != '"' && *text != '\\' ? *text : '?', out);
    fputc('"', out);
}

static void add_number(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, ",\"%s\":%" PRIu64, name, value);
}

static void add_signed(FILE *out, const char *name, int64_t value)
{
    fprintf(out, ",\"%s\":%" PRId64, name, value);
}

/* -1: there is none. */
static void add_rank(FILE *out, const char *name, int32_t rank)
{
    if (rank < 0)
        fprintf(out, ",\"%s\":null", name);
    else
        add_signed(out, name, rank);
}

static void add_flag(FILE *out, const char *name, bool value)
{
    fprintf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

/* ---- records ---- */

static void add_process(FILE *out, const struct sl_state_reader *reader, bool lives)
{
    struct sl_state_process p;
    enum sl_state_is is = sl_state_get(reader, SL_STATE_PROCESS, 0, &p, sizeof(p));

    fprintf(out, "{\"lives\":%s", lives ? "true" : "false");
    add_number(out, "looked_ns", sl_now(&sl_clock_monotonic));
    add_flag(out, "torn", is == SL_STATE_TORN);
    if (is != SL_STATE_WHOLE)
        return;
    add_signed(out, "pid", p.pid);
    add_number(out, "uid", p.uid);
    add_number(out, "start_ticks", p.start_ticks);
    add_number(out, "pid_space", p.pid_space);
    add_number(out, "made_ns", p.made_ns);
    add_number(out, "made_wall_s", p.made_wall_s);
    add_number(out, "life", p.life);
    add_rank(out, "rank", p.rank);
    add_rank(out, "size", p.size);
    add_flag(out, "ended", (p.flags & SL_STATE_ENDED) != 0);
    add_flag(out, "kept", (p.flags & SL_STATE_KEPT) != 0);
    add_number(out, "communicators_made", p.comms_made);
    add_text(out, "program", p.program);
    add_text(out, "version", p.version);
    add_text(out, "host", p.host);
    add_text(out, "job", p.job);
}

static void add_shape(FILE *out, const struct sl_state_reader *reader, uint64_t comm,
                      uint64_t begun)
{
    uint64_t place = begun >> SL_STATE_SHAPE_SHIFT;
    struct sl_state_shape s;

    if (place == 0 || place > RECORDS_MAX ||
        sl_state_get(reader, SL_STATE_SHAPE, (uint32_t)place - 1, &s, sizeof(s)) !=
            SL_STATE_WHOLE ||
        s.comm != comm) {
        fputs(",\"last\":null", out);
        return;
    }
    fprintf(out, ",\"last\":{\"steps\":%" PRIu32, s.steps);
    add_text(out, "collective", s.coll);
    add_number(out, "count", s.count);
    add_number(out, "bytes", s.bytes);
    add_text(out, "type", s.dtype);
    add_text(out, "redop", s.redop);
    add_rank(out, "root", s.root);
    add_text(out, "algorithm", s.algo);
    fputc('}', out);
}

static void add_calls(FILE *out, const struct sl_state_reader *reader,
                      const struct sl_state_comm *comm)
{
    static const char *const names[] = {"collectives", "sends_and_receives"};

    for (int i = 0; i < 2; i++) {
        uint64_t begun = atomic_load_explicit(&comm->calls.begun[i], memory_order_relaxed);

        fprintf(out, ",\"%s\":{\"begun\":%" PRIu64, names[i],
                begun & ((UINT64_C(1) << SL_STATE_SHAPE_SHIFT) - 1));
        add_number(out, "ended", atomic_load_explicit(&comm->calls.ended[i], memory_order_relaxed));
        add_shape(out, reader, comm->number, begun);
        fputc('}', out);
    }
}

static void add_comm(FILE *out, const struct sl_state_reader *reader, const struct sl_state_comm *c)
{
    struct sl_state_error error = {.turn = 0};
    bool whole = sl_state_get_error(reader, c->number, &error);

    fprintf(out, "{\"number\":%" PRIu64 ",\"id\":\"%016" PRIx64 "\"", c->number, c->id);
    add_number(out, "made_ns", c->made_ns);
    add_number(out, "updated_ns", c->updated_ns);
    add_number(out, "idle_ns", c->idle_ns);
    add_number(out, "rank", c->rank);
    add_number(out, "size", c->size);
    add_number(out, "hosts", c->hosts);
    add_number(out, "local_ranks", c->local_ranks);
    add_number(out, "connected", c->connected);
    add_number(out, "lost", c->lost);
    add_number(out, "left", c->left);
    add_flag(out, "torn_down", (c->flags & SL_STATE_TORN_DOWN) != 0);
    add_flag(out, "windows", (c->flags & SL_STATE_WINDOWS) != 0);
    add_flag(out, "progress_thread", (c->flags & SL_STATE_THREAD) != 0);
    add_flag(out, "oversubscribed", (c->flags & SL_STATE_CROWDED) != 0);
    add_signed(out, "error", c->error);
    add_text(out, "error_text", whole ? error.text : c->error_text);
    add_rank(out, "culprit", c->culprit);
    add_rank(out, "lost_rank", c->lost_rank);
    add_number(out, "disputed", c->disputed);
    add_number(out, "paths_left_out", c->paths_left_out);
    add_text(out, "transports", c->transports);
    add_calls(out, reader, c);
    fputc('}', out);
}

static void add_op(FILE *out, const struct sl_state_op *op)
{
    fprintf(out, "{\"communicator\":%" PRIu64, op->comm);
    add_text(out, "collective", op->coll);
    add_number(out, "seq", op->seq);
    add_number(out, "count", op->count);
    add_number(out, "bytes", op->bytes);
    add_text(out, "type", op->dtype);
    add_text(out, "redop", op->redop);
    add_rank(out, "root", op->root);
    add_text(out, "algorithm", op->algo);
    add_number(out, "step", op->step);
    add_number(out, "steps", op->steps);
    add_number(out, "in_flight", op->in_flight);
    add_number(out, "moved", op->moved);
    add_rank(out, "peer", op->peer);
    add_text(out, "doing", op->doing);
    add_text(out, "path", op->path);
    add_number(out, "since_ns", op->since_ns);
    add_number(out, "updated_ns", op->updated_ns);
    add_number(out, "idle_ns", op->idle_ns);
    fputc('}', out);
}

static void add_quickest(FILE *out, const struct sl_state_path *p)
{
    const char *between = "";

    fputs(",\"quickest\":[", out);
    for (unsigned i = 0; i < SL_ARRAY_LEN(p->quickest); i++) {
        const struct sl_state_quickest *it = &p->quickest[i];

        if (it->window == 0)
            continue;
        fprintf(out,
                "%s{\"window\":%" PRIu32 ",\"messages\":%" PRIu32 ",\"bytes\":%" PRIu64
                ",\"ns\":%" PRIu64 "}",
                between, it->window, it->messages, it->bytes, it->ns);
        between = ",";
    }
    fputc(']', out);
}

static void add_path(FILE *out, const struct sl_state_path *p)
{
    fprintf(out, "{\"communicator\":%" PRIu64, p->comm);
    add_rank(out, "peer", p->peer);
    add_rank(out, "path", p->number);
    add_text(out, "name", p->name);
    add_text(out, "state", p->state);
    add_text(out, "last_error", p->why);
    add_number(out, "updated_ns", p->updated_ns);
    add_number(out, "sent_bytes", p->sent_bytes);
    add_number(out, "sent_messages", p->sent_messages);
    add_number(out, "received_bytes", p->received_bytes);
    add_number(out, "received_messages", p->received_messages);
    add_number(out, "arriving_ns", p->arriving_ns);
    add_number(out, "arriving_bytes", p->arriving_bytes);
    add_number(out, "arriving_messages", p->arriving_messages);
    add_quickest(out, p);
    add_number(out, "resent", p->resent);
    add_number(out, "failures", p->failures);
    add_number(out, "ups", p->ups);
    add_number(out, "label", p->label);
    add_number(out, "source_port", p->source_port);
    add_number(out, "weight", p->weight);
    fprintf(out, ",\"avoided\":%s", p->is_avoided != 0 ? "true" : "false");
    fputs(",\"histogram\":[", out);
    for (unsigned i = 0; i < sizeof(p->histogram) / sizeof(p->histogram[0]); i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? "," : "", p->histogram[i]);
    fputs("]}", out);
}

static void add_event(FILE *out, const struct sl_state_reader *reader, uint64_t number,
                      const struct sl_event *event)
{
    struct sl_event_row row;

    fprintf(out, "{\"number\":%" PRIu64 ",\"time_ns\":%" PRIu64 ",\"kind\":%u", number,
            event->time_ns, event->kind);
    if (sl_state_get(reader, SL_STATE_EVENT_ROW, event->kind, &row, sizeof(row)) ==
        SL_STATE_WHOLE) {
        add_text(out, "area", row.area);
        add_text(out, "event", row.name);
        add_text(out, "a_is", row.a);
        add_text(out, "b_is", row.b);
    }
    add_number(out, "place", event->comm);
    add_rank(out, "peer", event->peer == SL_EVENT_NOBODY ? -1 : (int32_t)(event->peer & INT32_MAX));
    add_signed(out, "a", (int64_t)event->a);
    add_signed(out, "b", (int64_t)event->b);
    fputc('}', out);
}

static void add_row(FILE *out, const struct sl_event_row *row)
{
    fprintf(out, "{\"count\":%" PRIu64, atomic_load_explicit(&row->count, memory_order_relaxed));
    add_number(out, "first_ns", atomic_load_explicit(&row->first_ns, memory_order_relaxed));
    add_number(out, "last_ns", atomic_load_explicit(&row->last_ns, memory_order_relaxed));
    add_text(out, "area", row->area);
    add_text(out, "event", row->name);
    fputc('}', out);
}

/* ---- sections ---- */

/* Reads record i and prints it, if it is one. */
static enum sl_state_is add_record(FILE *out, const struct sl_state_reader *reader,
                                   enum sl_state_kind kind, uint32_t i, const char *comma)
{
    union {
        struct sl_state_comm comm;
        struct sl_state_op op;
        struct sl_state_path path;
        struct sl_event_row row;
    } record;
    struct sl_event event;
    uint64_t number;
    enum sl_state_is is = kind == SL_STATE_EVENT
                              ? sl_state_get_event(reader, i, &event, &number)
                              : sl_state_get(reader, kind, i, &record, sizeof(record));
    bool taken = kind == SL_STATE_EVENT || kind == SL_STATE_EVENT_ROW ||
                 (kind == SL_STATE_COMM ? record.comm.number : record.op.comm) != 0;

    if (is != SL_STATE_WHOLE || !taken)
        return is == SL_STATE_TORN ? is : SL_STATE_UNUSED;
    fputs(comma, out);
    switch (kind) {
    case SL_STATE_COMM: add_comm(out, reader, &record.comm); break;
    case SL_STATE_OP: add_op(out, &record.op); break;
    case SL_STATE_PATH: add_path(out, &record.path); break;
    case SL_STATE_EVENT: add_event(out, reader, number, &event); break;
    default: add_row(out, &record.row); break;
    }
    return is;
}

void sb_status_json(const struct sl_state_reader *reader, bool lives, FILE *out)
{
    static const struct {
        const char *name;
        enum sl_state_kind kind;
    } sections[] = {
        {"communicators", SL_STATE_COMM},     {"operations", SL_STATE_OP}, {"paths", SL_STATE_PATH},
        {"event_counts", SL_STATE_EVENT_ROW}, {"events", SL_STATE_EVENT},
    };
    uint64_t torn = 0;

    add_process(out, reader, lives);
    for (unsigned s = 0; s < sizeof(sections) / sizeof(sections[0]); s++) {
        uint32_t count = sl_state_count(reader, sections[s].kind);
        const char *comma = "";

        fprintf(out, ",\"%s\":[", sections[s].name);
        for (uint32_t i = 0; i < count && i < RECORDS_MAX; i++) {
            enum sl_state_is is = add_record(out, reader, sections[s].kind, i, comma);

            torn += is == SL_STATE_TORN;
            comma = is == SL_STATE_WHOLE ? ",\n" : comma;
        }
        fputs("]\n", out);
    }
    add_number(out, "communicators_left_out", sl_state_count_left_out(reader, SL_STATE_COMM));
    add_number(out, "torn_records", torn);
    fputc('}', out);
}
