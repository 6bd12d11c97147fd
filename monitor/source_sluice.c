/* SPDX-License-Identifier: Apache-2.0 */
/* Source: what ranks tell of themselves, in their state pages (monitor/page.h) and in the files of
 * NCCL's events (monitor/nccl.h), after they have died, too. */
#include "monitor/nccl.h"
#include "monitor/page.h"
#include "monitor/ranks.h"
#include "monitor/ranks_json.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define PORTS_MAX 64
#define KINDS_MAX 64       /* of events, by name; those beyond are one */
#define NCCL_CHUNKS 64     /* of all files, in a period */
#define NCCL_CHUNKS_MAX 16 /* of one */
#define SHOWN_EVENTS 8
#define SHOWN_PATHS 64

/* What is read of a process. */
struct entry {
    uint64_t number; /* of the process in this place of the list; 0: none */
    unsigned page_count, nccl_count;
    struct sl_mon_page pages[SL_MON_RANK_PAGES];
    struct sl_mon_nccl nccl[SL_MON_RANK_NCCL];
    uint64_t nccl_written[SL_MON_RANK_NCCL], nccl_dropped[SL_MON_RANK_NCCL];
};

struct port {
    char name[SL_MON_NAME];
    uint64_t failures, failures_before, resent, bytes;
    struct sl_mon_path_verdict verdict; /* of this period */
};

struct source {
    struct sl_source_host host;
    struct entry *entries[SL_MON_RANKS_MAX]; /* by place of the list */
    struct port ports[PORTS_MAX], others;    /* that engine knows; paths over none of these */
    unsigned port_count, nccl_files;
    uint64_t ticked_ns;
    bool is_open;

    /* Of all ranks, since the agent began. */
    uint64_t begun[2], ended[2], broken, deaths, nccl_written, nccl_dropped, unread;
    struct kind {
        char name[24];
        uint64_t count;
    } kinds[KINDS_MAX];
    unsigned kind_count;
    uint64_t other_events;
    /* Of this period. */
    unsigned comms, broken_comms;
    uint64_t under_way, oldest_ns;
};

/* ---- who is read ---- */

static void entry_end(struct source *source, unsigned place)
{
    struct entry *entry = source->entries[place];

    if (entry == NULL)
        return;
    for (unsigned i = 0; i < entry->page_count; i++)
        sl_mon_page_fini(&entry->pages[i]);
    free(entry);
    source->entries[place] = NULL;
}

/* The process of this place, with what it opened since the last time. NULL: there is none, or no
 * memory. */
static struct entry *entry_of(struct source *source, unsigned place, const struct sl_mon_rank *rank)
{
    struct entry *entry = source->entries[place];

    if (entry != NULL && (rank == NULL || entry->number != rank->number)) {
        entry_end(source, place);
        entry = NULL;
    }
    if (rank == NULL || rank->page_count + rank->nccl_count == 0)
        return NULL;
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return NULL;
        entry->number = rank->number;
        source->entries[place] = entry;
    }
    for (; entry->page_count < rank->page_count; entry->page_count++)
        sl_mon_page_init(&entry->pages[entry->page_count], rank->pages[entry->page_count]);
    for (; entry->nccl_count < rank->nccl_count; entry->nccl_count++)
        sl_mon_nccl_init(&entry->nccl[entry->nccl_count], rank->nccl[entry->nccl_count]);
    return entry;
}

/* ---- ports ---- */

/* Only of ports that other sources know: a page may name any. */
static int16_t port_number(void *arg, const char *name)
{
    struct source *source = arg;

    for (unsigned i = 0; i < source->port_count; i++)
        if (strcmp(source->ports[i].name, name) == 0)
            return (int16_t)i;
    if (source->port_count == PORTS_MAX || sl_mon_find(source->host.mon, SL_MON_PORT, name) == NULL)
        return -1;
    snprintf(source->ports[source->port_count].name, SL_MON_NAME, "%s", name);
    return (int16_t)source->port_count++;
}

static void path_changed(void *arg, int16_t number, const struct sl_mon_path_change *change)
{
    struct source *source = arg;
    struct port *port = number < 0 ? &source->others : &source->ports[number];

    port->failures += change->failures;
    port->resent += change->resent;
    port->bytes += change->bytes;
}

static void judge_ports(struct source *source)
{
    for (unsigned i = 0; i < source->port_count; i++) {
        struct port *port = &source->ports[i];
        struct sl_mon_subject *subject = sl_mon_find(source->host.mon, SL_MON_PORT, port->name);

        if (subject != NULL)
            sl_mon_path_sample(source->host.mon, subject, &port->verdict, port->failures_before,
                               port->failures);
        port->failures_before = port->failures;
    }
}

/* ---- what ranks say ---- */

static void count_event(struct source *source, const char *name, uint64_t count)
{
    for (unsigned i = 0; i < source->kind_count; i++)
        if (strcmp(source->kinds[i].name, name) == 0) {
            source->kinds[i].count += count;
            return;
        }
    if (source->kind_count == KINDS_MAX || name[0] == '\0' || strcmp(name, "other") == 0) {
        source->other_events += count;
        return;
    }
    snprintf(source->kinds[source->kind_count].name, sizeof(source->kinds[0].name), "%s", name);
    source->kinds[source->kind_count++].count = count;
}

static void count_page(struct source *source, const struct sl_mon_page *page,
                       const struct sl_mon_page_change *change)
{
    for (unsigned i = 0; i < 2; i++) {
        source->begun[i] += change->begun[i];
        source->ended[i] += change->ended[i];
    }
    source->broken += change->broken;
    source->under_way += page->under_way;
    source->comms += page->comm_count;
    for (unsigned i = 0; i < page->comm_count; i++)
        source->broken_comms += (page->comms[i].flags & SL_STATE_BROKEN) != 0;
    if (page->op_count > 0 && (source->oldest_ns == 0 || page->op.since_ns < source->oldest_ns))
        source->oldest_ns = page->op.since_ns;
    for (unsigned i = 0; i < SL_EVENT_KINDS_MAX; i++)
        if (change->events[i] > 0)
            count_event(source, page->event_names[i], change->events[i]);
}

static void tell_broken(struct source *source, const struct sl_mon_rank *rank,
                        const struct sl_mon_page *page)
{
    struct sl_mon_evidence evidence = {.source = "state pages"};
    char why[SL_MON_TEXT], culprit[48] = "";

    for (unsigned i = 0; i < page->comm_count && rank->subject != NULL; i++) {
        const struct sl_mon_page_comm *comm = &page->comms[i];

        if (!comm->is_new_break)
            continue;
        sl_mon_page_why(page, comm, why, sizeof(why));
        if (comm->culprit >= 0)
            snprintf(culprit, sizeof(culprit), ", by rank %d", comm->culprit);
        snprintf(evidence.text, sizeof(evidence.text),
                 "its communicator of %u ranks is broken%s: %.180s", comm->size, culprit, why);
        sl_mon_sample(source->host.mon, rank->subject, SL_MON_CHECK_PROCESS_COMM, true, &evidence);
    }
}

static void tell_death(struct source *source, const struct sl_mon_rank *rank,
                       const struct entry *entry)
{
    struct sl_mon_subject *subject = sl_mon_ranks_mourn(source->host.ranks, rank);
    struct sl_mon_evidence evidence = {.source = "state pages"};
    char doing[SL_MON_TEXT] = "";

    source->deaths++;
    if (entry != NULL && entry->page_count > 0)
        sl_mon_page_text(&entry->pages[0], sl_mon_time(source->host.mon)->mono_ns, doing,
                         sizeof(doing));
    snprintf(evidence.text, sizeof(evidence.text), "%.90s ended without a goodbye; %.140s",
             rank->label, doing);
    if (subject != NULL)
        sl_mon_sample(source->host.mon, subject, SL_MON_CHECK_PROCESS_DIED, true, &evidence);
}

static void read_pages(struct source *source, const struct sl_mon_rank *rank, struct entry *entry)
{
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;
    struct sl_mon_path_verdict verdicts[PORTS_MAX];

    for (unsigned i = 0; i < entry->page_count; i++) {
        struct sl_mon_page *page = &entry->pages[i];
        struct sl_mon_page_change change;

        if (sl_mon_page_read(page, &change) != 0) {
            source->unread++;
            continue;
        }
        count_page(source, page, &change);
        tell_broken(source, rank, page);
        if (rank->is_gone)
            continue;
        sl_mon_page_paths(page, now_ns, port_number, path_changed, source);
        memset(verdicts, 0, sizeof(verdicts));
        sl_mon_path_judge(page->paths, page->path_count, now_ns, source->ticked_ns, verdicts,
                          source->port_count);
        for (unsigned k = 0; k < source->port_count; k++) {
            source->ports[k].verdict.paths += verdicts[k].paths;
            source->ports[k].verdict.down += verdicts[k].down;
            source->ports[k].verdict.carries += verdicts[k].carries;
            source->ports[k].verdict.accuse += verdicts[k].accuse;
        }
    }
}

static void read_nccl(struct source *source, struct entry *entry)
{
    unsigned chunks = NCCL_CHUNKS / (source->nccl_files > 0 ? source->nccl_files : 1);

    chunks = chunks == 0 ? 1 : chunks > NCCL_CHUNKS_MAX ? NCCL_CHUNKS_MAX : chunks;
    for (unsigned i = 0; i < entry->nccl_count; i++) {
        struct sl_mon_nccl *nccl = &entry->nccl[i];

        if (sl_mon_nccl_read(nccl, chunks) != 0) {
            source->unread++;
            continue;
        }
        if (nccl->written > entry->nccl_written[i])
            source->nccl_written += nccl->written - entry->nccl_written[i];
        if (nccl->dropped > entry->nccl_dropped[i])
            source->nccl_dropped += nccl->dropped - entry->nccl_dropped[i];
        entry->nccl_written[i] = nccl->written;
        entry->nccl_dropped[i] = nccl->dropped;
    }
}

static int tick(void *arg)
{
    struct source *source = arg;
    struct sl_mon_ranks *ranks = source->host.ranks;
    unsigned nccl_files = 0;
    int err = sl_mon_ranks_update(ranks);

    if (err != 0)
        return err;
    source->comms = source->broken_comms = 0;
    source->under_way = source->oldest_ns = 0;
    for (unsigned i = 0; i < source->port_count; i++)
        source->ports[i].verdict = (struct sl_mon_path_verdict){.paths = 0};
    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(ranks, i);
        struct entry *entry = entry_of(source, i, rank);

        if (entry != NULL) {
            read_pages(source, rank, entry);
            read_nccl(source, entry);
            nccl_files += entry->nccl_count;
        }
        if (rank != NULL && rank->is_gone && rank->page_count > 0 && !rank->left_well)
            tell_death(source, rank, entry);
    }
    judge_ports(source);
    source->nccl_files = nccl_files;
    source->ticked_ns = sl_mon_time(source->host.mon)->mono_ns;
    return 0;
}

/* ---- its life ---- */

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for state pages");
    source->host = *host;
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    const struct source *source = arg;

    return sl_mon_ranks_open(source->host.ranks);
}

static void close_source(void *arg)
{
    struct source *source = arg;

    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++)
        entry_end(source, i);
    sl_mon_ranks_close(source->host.ranks);
}

/* ---- metrics ---- */

static void write_counter(FILE *out, enum sl_mon_format format, const char *name, const char *help,
                          uint64_t value)
{
    sl_mon_metrics_family(format, out, name, "counter", "", help);
    fprintf(out, "%s_total %" PRIu64 "\n", name, value);
}

static void write_gauge(FILE *out, enum sl_mon_format format, const char *name, const char *help,
                        uint64_t value)
{
    sl_mon_metrics_family(format, out, name, "gauge", "", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_calls(FILE *out, enum sl_mon_format format, const char *name, const char *help,
                        const uint64_t *values)
{
    static const char *const kinds[] = {"collective", "point_to_point"};
    char sample[64];

    snprintf(sample, sizeof(sample), "%s_total", name);
    sl_mon_metrics_family(format, out, name, "counter", "", help);
    for (unsigned i = 0; i < 2; i++) {
        sl_mon_metrics_open(out, sample, "kind", kinds[i]);
        sl_mon_metrics_number(out, values[i]);
    }
}

static uint64_t of_port(const struct port *port, unsigned which)
{
    return which == 0 ? port->failures : which == 1 ? port->resent : port->bytes;
}

static void write_ports(FILE *out, enum sl_mon_format format, const struct source *source)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        {"sluice_path_failures", "Paths of ranks that failed, by port."},
        {"sluice_path_resent_messages", "Messages that went by another path after a failure."},
        {"sluice_path_bytes", "Bytes over paths of ranks, both ways."},
    };
    char sample[64];

    for (unsigned f = 0; f < SL_ARRAY_LEN(families); f++) {
        snprintf(sample, sizeof(sample), "%s_total", families[f].name);
        sl_mon_metrics_family(format, out, families[f].name, "counter", "", families[f].help);
        for (unsigned i = 0; i <= source->port_count; i++) {
            const struct port *port = i < source->port_count ? &source->ports[i] : &source->others;

            sl_mon_metrics_open(out, sample, "port", i < source->port_count ? port->name : "other");
            sl_mon_metrics_number(out, of_port(port, f));
        }
    }
    sl_mon_metrics_family(format, out, "sluice_paths", "gauge", "", "Paths of ranks, by port.");
    for (unsigned i = 0; i < source->port_count; i++) {
        const struct port *port = &source->ports[i];

        sl_mon_metrics_open(out, "sluice_paths", "port", port->name);
        sl_mon_metrics_label(out, "state", "up");
        sl_mon_metrics_number(out, port->verdict.paths - port->verdict.down);
        sl_mon_metrics_open(out, "sluice_paths", "port", port->name);
        sl_mon_metrics_label(out, "state", "down");
        sl_mon_metrics_number(out, port->verdict.down);
    }
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;

    write_calls(out, format, "sluice_collective_started", "Operations that ranks began.",
                source->begun);
    write_calls(out, format, "sluice_collective_ended", "Operations that ranks ended.",
                source->ended);
    write_gauge(out, format, "sluice_collective_under_way", "Operations that go on.",
                source->under_way);
    sl_mon_metrics_family(format, out, "sluice_collective_oldest_seconds", "gauge", "seconds",
                          "For how long the operation that goes on longest is waited for.");
    fprintf(out, "sluice_collective_oldest_seconds %.3f\n",
            source->oldest_ns != 0 && now_ns > source->oldest_ns
                ? (double)(now_ns - source->oldest_ns) / 1e9
                : 0.0);
    write_gauge(out, format, "sluice_communicators", "Communicators of ranks.", source->comms);
    write_gauge(out, format, "sluice_communicators_broken", "Those that are broken.",
                source->broken_comms);
    write_counter(out, format, "sluice_communicator_breaks", "Communicators that broke.",
                  source->broken);
    write_counter(out, format, "sluice_rank_deaths", "Ranks that ended without a goodbye.",
                  source->deaths);
    sl_mon_metrics_family(format, out, "sluice_rank_events", "counter", "",
                          "Events in the rings of ranks, by kind.");
    for (unsigned i = 0; i < source->kind_count; i++) {
        sl_mon_metrics_open(out, "sluice_rank_events_total", "kind", source->kinds[i].name);
        sl_mon_metrics_number(out, source->kinds[i].count);
    }
    sl_mon_metrics_open(out, "sluice_rank_events_total", "kind", "other");
    sl_mon_metrics_number(out, source->other_events);
    write_ports(out, format, source);
    write_counter(out, format, "sluice_nccl_events", "Events of NCCL that are over.",
                  source->nccl_written);
    write_counter(out, format, "sluice_nccl_events_dropped", "Those that found no room.",
                  source->nccl_dropped);
    write_counter(out, format, "sluice_page_unread", "Readings of state pages that failed.",
                  source->unread);
    write_gauge(out, format, "sluice_page_unreadable", "Ranks whose pages may not be read.",
                sl_mon_ranks_counts(source->host.ranks).unreadable);
}

/* ---- for people ---- */

static void hex(struct json_object *out, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIx64, value);
    sl_mon_json_text(out, key, text);
}

static struct json_object *array_of(struct json_object *out, const char *key)
{
    struct json_object *array;

    if (json_object_object_get_ex(out, key, &array))
        return array;
    array = json_object_new_array();
    json_object_object_add(out, key, array);
    return array;
}

/* The last collective that it called. */
static void json_last(const struct sl_mon_page *page, const struct sl_mon_page_comm *comm,
                      struct json_object *out)
{
    struct json_object *at;
    struct sl_state_shape shape;

    if (comm->shape == 0 ||
        sl_state_get(&page->reader, SL_STATE_SHAPE, (uint32_t)comm->shape - 1, &shape,
                     sizeof(shape)) != SL_STATE_WHOLE ||
        shape.comm != comm->number)
        return;
    at = json_object_new_object();
    sl_mon_json_text(at, "collective", shape.coll);
    sl_mon_json_number(at, "count", (int64_t)shape.count);
    sl_mon_json_text(at, "type", shape.dtype);
    sl_mon_json_text(at, "redop", shape.redop);
    sl_mon_json_number(at, "root", shape.root);
    json_object_object_add(out, "last", at);
}

/* What a diagnosis of the whole job compares. */
static void json_calls(const struct sl_mon_page *page, const struct sl_mon_page_comm *comm,
                       uint64_t now_ns, struct json_object *out)
{
    sl_mon_json_number(out, "collectives_ended", (int64_t)comm->ended[0]);
    sl_mon_json_number(out, "messages", (int64_t)comm->begun[1]);
    sl_mon_json_number(out, "messages_ended", (int64_t)comm->ended[1]);
    sl_mon_json_number(out, "disputed", comm->disputed);
    json_object_object_add(out, "progress_thread",
                           json_object_new_boolean((comm->flags & SL_STATE_THREAD) != 0));
    sl_mon_json_seconds(out, "made_seconds", now_ns > comm->made_ns ? now_ns - comm->made_ns : 0);
    sl_mon_json_seconds(out, "updated_seconds",
                        now_ns > comm->updated_ns ? now_ns - comm->updated_ns : 0);
    json_last(page, comm, out);
}

static void json_comms(const struct sl_mon_page *page, uint64_t now_ns, struct json_object *out)
{
    struct json_object *array = array_of(out, "communicators");

    for (unsigned i = 0; i < page->comm_count; i++) {
        const struct sl_mon_page_comm *comm = &page->comms[i];
        struct json_object *at = json_object_new_object();
        char why[512];

        sl_mon_json_number(at, "number", (int64_t)comm->number);
        hex(at, "id", comm->id);
        sl_mon_json_number(at, "rank", comm->rank);
        sl_mon_json_number(at, "size", comm->size);
        sl_mon_json_number(at, "lost", comm->lost);
        sl_mon_json_number(at, "collectives", (int64_t)comm->begun[0]);
        sl_mon_json_number(at, "ended", (int64_t)comm->ended[0]);
        sl_mon_json_number(at, "under_way",
                           (int64_t)(comm->begun[0] - comm->ended[0]) +
                               (int64_t)(comm->begun[1] - comm->ended[1]));
        json_calls(page, comm, now_ns, at);
        json_object_object_add(at, "broken",
                               json_object_new_boolean((comm->flags & SL_STATE_BROKEN) != 0));
        if ((comm->flags & SL_STATE_BROKEN) != 0) {
            sl_mon_json_number(at, "culprit", comm->culprit);
            sl_mon_page_why(page, comm, why, sizeof(why));
            sl_mon_json_text(at, "why", why);
        }
        json_object_array_add(array, at);
    }
}

static void json_op(const struct sl_mon_page *page, uint64_t now_ns, struct json_object *out)
{
    const struct sl_state_op *op = &page->op;
    struct json_object *at;

    if (page->op_count == 0 || json_object_object_get_ex(out, "waits", NULL))
        return;
    at = json_object_new_object();
    hex(at, "communicator", page->op_comm_id);
    sl_mon_json_text(at, "operation", op->coll);
    sl_mon_json_number(at, "number", op->seq);
    sl_mon_json_number(at, "elements", (int64_t)op->count);
    sl_mon_json_text(at, "type", op->dtype);
    sl_mon_json_text(at, "reduction", op->redop);
    sl_mon_json_number(at, "root", op->root);
    sl_mon_json_text(at, "algorithm", op->algo);
    sl_mon_json_number(at, "step", op->step);
    sl_mon_json_number(at, "steps", op->steps);
    sl_mon_json_text(at, "doing", op->doing);
    sl_mon_json_number(at, "peer", op->peer);
    sl_mon_json_text(at, "path", op->path);
    sl_mon_json_seconds(at, "for_seconds", now_ns > op->since_ns ? now_ns - op->since_ns : 0);
    sl_mon_json_seconds(at, "idle_seconds", op->idle_ns);
    sl_mon_json_seconds(at, "updated_seconds",
                        now_ns > op->updated_ns ? now_ns - op->updated_ns : 0);
    json_object_object_add(out, "waits", at);
}

/* Of a communicator by its number in the process; 0: it is not shown. */
static uint64_t comm_id(const struct sl_mon_page *page, uint64_t number)
{
    for (unsigned i = 0; i < page->comm_count; i++)
        if (page->comms[i].number == number)
            return page->comms[i].id;
    return 0;
}

/* Up to the last bin that has something; absent where none has. */
static void json_histogram(const uint64_t *histogram, struct json_object *out)
{
    struct json_object *array;
    unsigned count = SL_HISTOGRAM_BINS;

    while (count > 0 && histogram[count - 1] == 0)
        count--;
    if (count == 0)
        return;
    array = array_of(out, "histogram");
    for (unsigned i = 0; i < count; i++)
        json_object_array_add(array, json_object_new_uint64(histogram[i]));
}

/* Only over transports that measure it. */
static void json_quickest(const struct sl_state_path *path, struct json_object *out)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(path->quickest); i++) {
        const struct sl_state_quickest *it = &path->quickest[i];
        struct json_object *at;

        if (it->window == 0)
            continue;
        at = json_object_new_object();
        sl_mon_json_number(at, "window", it->window);
        sl_mon_json_number(at, "messages", it->messages);
        sl_mon_json_number(at, "bytes", (int64_t)it->bytes);
        sl_mon_json_number(at, "ns", (int64_t)it->ns);
        json_object_array_add(array_of(out, "quickest"), at);
    }
}

static void json_paths(const struct sl_mon_page *page, struct json_object *out)
{
    struct json_object *array = array_of(out, "paths");
    struct sl_state_path record;

    for (unsigned i = 0; i < page->path_count && json_object_array_length(array) < SHOWN_PATHS;
         i++) {
        struct json_object *at;

        if (page->paths[i].comm == 0 ||
            sl_state_get(&page->reader, SL_STATE_PATH, i, &record, sizeof(record)) !=
                SL_STATE_WHOLE ||
            record.comm == 0)
            continue;
        at = json_object_new_object();
        sl_mon_json_text(at, "name", record.name);
        sl_mon_json_text(at, "state", record.state);
        hex(at, "communicator", comm_id(page, record.comm));
        sl_mon_json_number(at, "peer", record.peer);
        sl_mon_json_number(at, "path", record.number);
        sl_mon_json_number(at, "sent_messages", (int64_t)record.sent_messages);
        sl_mon_json_number(at, "sent_bytes", (int64_t)record.sent_bytes);
        sl_mon_json_number(at, "received_bytes", (int64_t)record.received_bytes);
        sl_mon_json_number(at, "message_ns",
                           (int64_t)sl_histogram_percentile(record.histogram, 50));
        json_histogram(record.histogram, at);
        sl_mon_json_number(at, "arriving_messages", (int64_t)record.arriving_messages);
        sl_mon_json_number(at, "arriving_bytes", (int64_t)record.arriving_bytes);
        sl_mon_json_number(at, "arriving_ns", (int64_t)record.arriving_ns);
        json_quickest(&record, at);
        sl_mon_json_number(at, "failures", (int64_t)record.failures);
        sl_mon_json_number(at, "resent", (int64_t)record.resent);
        sl_mon_json_text(at, "why", record.why);
        json_object_array_add(array, at);
    }
}

/* The latest of its ring, the newest first. */
static void json_events(const struct sl_mon_page *page, uint64_t now_ns, struct json_object *out)
{
    struct json_object *array = array_of(out, "events");
    struct {
        struct sl_event event;
        uint64_t number;
    } last[SHOWN_EVENTS] = {{.number = 0}};
    uint32_t count = sl_state_count(&page->reader, SL_STATE_EVENT);

    for (uint32_t i = 0; i < count && i < SL_EVENT_RING; i++) {
        struct sl_event event;
        uint64_t number;

        if (sl_state_get_event(&page->reader, i, &event, &number) != SL_STATE_WHOLE)
            continue;
        for (unsigned k = 0; k < SHOWN_EVENTS; k++) {
            if (number <= last[k].number)
                continue;
            memmove(&last[k + 1], &last[k], (SHOWN_EVENTS - 1 - k) * sizeof(last[0]));
            last[k].event = event;
            last[k].number = number;
            break;
        }
    }
    for (unsigned k = 0; k < SHOWN_EVENTS && last[k].number > 0; k++) {
        const struct sl_event *event = &last[k].event;
        struct json_object *at = json_object_new_object();

        sl_mon_json_number(at, "number", (int64_t)last[k].number);
        sl_mon_json_text(at, "kind",
                         event->kind < SL_EVENT_KINDS_MAX ? page->event_names[event->kind] : "");
        sl_mon_json_seconds(at, "ago_seconds",
                            now_ns > event->time_ns ? now_ns - event->time_ns : 0);
        sl_mon_json_number(at, "peer", event->peer == SL_EVENT_NOBODY ? -1 : (int64_t)event->peer);
        sl_mon_json_number(at, "a", (int64_t)event->a);
        sl_mon_json_number(at, "b", (int64_t)event->b);
        json_object_array_add(array, at);
    }
}

static void json_nccl(const struct sl_mon_nccl *nccl, uint64_t now_ns, struct json_object *out)
{
    const struct sl_mon_nccl_view *view = &nccl->now;
    struct json_object *at = json_object_new_object();
    const char *waits = sl_mon_nccl_waits(view->step_state);

    sl_mon_json_number(at, "open", view->open);
    sl_mon_json_number(at, "written", (int64_t)nccl->written);
    sl_mon_json_number(at, "dropped", (int64_t)nccl->dropped);
    if (view->open > 0) {
        hex(at, "communicator", nccl->comm_id);
        sl_mon_json_text(at, "operation", view->func);
        sl_mon_json_number(at, "number", (int64_t)view->seq);
        sl_mon_json_number(at, "elements", (int64_t)view->count);
        sl_mon_json_text(at, "type", view->datatype);
        sl_mon_json_number(at, view->is_p2p ? "peer" : "root", view->peer);
        sl_mon_json_seconds(at, "for_seconds",
                            now_ns > view->since_ns ? now_ns - view->since_ns : 0);
    }
    if (view->step_ns != 0 && waits != NULL) {
        sl_mon_json_text(at, "step_waits_for", waits);
        sl_mon_json_seconds(at, "step_for_seconds",
                            now_ns > view->step_ns ? now_ns - view->step_ns : 0);
    }
    json_object_array_add(array_of(out, "nccl"), at);
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;

    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(source->host.ranks, i);
        const struct entry *entry = source->entries[i];
        struct json_object *at;

        if (rank == NULL || rank->is_gone || entry == NULL || entry->number != rank->number)
            continue;
        at = sl_mon_rank_json(out, rank);
        if (at != NULL)
            sl_mon_json_number(at, "window", (int64_t)(now_ns / SL_STATE_WINDOW_NS + 1));
        for (unsigned k = 0; at != NULL && k < entry->page_count; k++) {
            json_comms(&entry->pages[k], now_ns, at);
            json_op(&entry->pages[k], now_ns, at);
            json_paths(&entry->pages[k], at);
            json_events(&entry->pages[k], now_ns, at);
        }
        for (unsigned k = 0; at != NULL && k < entry->nccl_count; k++)
            json_nccl(&entry->nccl[k], now_ns, at);
    }
}

const struct sl_source_class sl_source_sluice = {.name = "sluice",
                                                 .how = "state pages",
                                                 .wanted = offsetof(struct sl_mon_config, sluice),
                                                 .quiet = SL_SOURCE_QUIET(PROCESS_DIED) |
                                                          SL_SOURCE_QUIET(PROCESS_COMM),
                                                 .create = create,
                                                 .destroy = free,
                                                 .open = open_source,
                                                 .close = close_source,
                                                 .tick = tick,
                                                 .metrics = metrics,
                                                 .json = json};
