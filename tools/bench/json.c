/* SPDX-License-Identifier: Apache-2.0 */
/* The run as JSON, made by json-c: every row with each rank's times. And the devices of --list. */
#include "report.h"

#include "colls.h"
#include "core/err.h"
#include "paths.h"

#include <json.h>
#include <math.h>
#include <string.h>

static void add_text(struct json_object *to, const char *key, const char *text)
{
    json_object_object_add(to, key, text != NULL ? json_object_new_string(text) : NULL);
}

static void add_int(struct json_object *to, const char *key, int64_t value)
{
    json_object_object_add(to, key, json_object_new_int64(value));
}

/* JSON has no infinity. */
static void add_number(struct json_object *to, const char *key, double value)
{
    json_object_object_add(to, key, isfinite(value) ? json_object_new_double(value) : NULL);
}

static struct json_object *stat_object(const struct sb_stat *stat)
{
    struct json_object *o = json_object_new_object();

    add_number(o, "mean_us", stat->mean * 1e6);
    if (stat->max > 0) {
        add_number(o, "min_us", stat->min * 1e6);
        add_number(o, "p50_us", stat->p50 * 1e6);
        add_number(o, "p99_us", stat->p99 * 1e6);
        add_number(o, "max_us", stat->max * 1e6);
    }
    return o;
}

static struct json_object *cell_object(const struct sb_cell *cell, int ranks, bool coded)
{
    struct json_object *o, *list;

    if (!cell->valid)
        return NULL;
    o = json_object_new_object();
    add_number(o, "time_us", cell->time_s * 1e6);
    add_number(o, "algbw_GBps", cell->algbw);
    add_number(o, "busbw_GBps", cell->busbw);
    json_object_object_add(o, "wrong", cell->wrong < 0 ? NULL : json_object_new_int64(cell->wrong));
    add_int(o, "iters", (int64_t)cell->iters);
    if (coded) {
        add_number(o, "wire_bytes", cell->wire_bytes > 0 ? cell->wire_bytes : NAN);
        add_number(o, "wire_ratio", cell->wire_bytes > 0 ? cell->wire_ratio : NAN);
        add_number(o, "error", cell->error >= 0 ? cell->error : NAN);
    }
    list = json_object_new_array();
    for (int rank = 0; cell->ranks != NULL && rank < ranks; rank++)
        json_object_array_add(list, stat_object(&cell->ranks[rank]));
    json_object_object_add(o, "ranks", list);
    return o;
}

static struct json_object *row_object(const struct sb_row *row, int ranks)
{
    struct json_object *o = json_object_new_object();

    add_text(o, "collective", sb_colls[row->coll].name);
    add_int(o, "size_bytes", (int64_t)row->bytes);
    add_int(o, "count", (int64_t)row->count);
    add_text(o, "type", sb_colls[row->coll].sized ? sluice_dtype_name(row->dtype) : NULL);
    add_text(o, "redop", row->op >= 0 ? sluice_op_name((enum sluice_op)row->op) : NULL);
    if (row->codec != NULL)
        add_text(o, "codec", row->codec);
    json_object_object_add(o, "root", row->root >= 0 ? json_object_new_int(row->root) : NULL);
    json_object_object_add(o, "out_of_place",
                           cell_object(&row->cell[0], ranks, row->codec != NULL));
    json_object_object_add(o, "in_place", cell_object(&row->cell[1], ranks, row->codec != NULL));
    return o;
}

static struct json_object *path_object(const struct sb_path *path)
{
    struct json_object *o = json_object_new_object(), *bins = json_object_new_array();
    const struct sl_state_path *stat = &path->stat;
    bool timed = sl_histogram_total(stat->histogram) > 0;

    add_int(o, "rank", path->rank);
    add_int(o, "peer", stat->peer);
    json_object_object_add(o, "path", stat->number >= 0 ? json_object_new_int(stat->number) : NULL);
    add_text(o, "name", stat->name);
    add_text(o, "state", stat->state);
    add_text(o, "last_error", stat->why[0] != '\0' ? stat->why : NULL);
    add_int(o, "sent_bytes", (int64_t)stat->sent_bytes);
    add_int(o, "sent_messages", (int64_t)stat->sent_messages);
    add_int(o, "received_bytes", (int64_t)stat->received_bytes);
    add_int(o, "received_messages", (int64_t)stat->received_messages);
    add_int(o, "arriving_ns", (int64_t)stat->arriving_ns);
    add_int(o, "arriving_bytes", (int64_t)stat->arriving_bytes);
    add_int(o, "arriving_messages", (int64_t)stat->arriving_messages);
    add_int(o, "resent", (int64_t)stat->resent);
    add_int(o, "failures", (int64_t)stat->failures);
    add_int(o, "ups", (int64_t)stat->ups);
    add_int(o, "label", stat->label);
    add_int(o, "source_port", stat->source_port);
    add_int(o, "weight", stat->weight);
    json_object_object_add(o, "avoided", json_object_new_boolean(stat->is_avoided != 0));
    add_number(o, "p50_us", timed ? sl_histogram_percentile(stat->histogram, 50) / 1000 : NAN);
    add_number(o, "p99_us", timed ? sl_histogram_percentile(stat->histogram, 99) / 1000 : NAN);
    for (unsigned i = 0; i < SL_HISTOGRAM_BINS; i++)
        json_object_array_add(bins, json_object_new_int64((int64_t)stat->histogram[i]));
    json_object_object_add(o, "histogram", bins);
    return o;
}

static struct json_object *event_object(const struct sb_event *event)
{
    struct json_object *o = json_object_new_object();
    uint32_t peer = event->event.peer;

    add_int(o, "rank", event->rank);
    add_number(o, "time_s", (double)event->event.time_ns * 1e-9);
    add_text(o, "event", sl_event_name(event->event.kind));
    json_object_object_add(o, "peer", peer != SL_EVENT_NOBODY ? json_object_new_int64(peer) : NULL);
    add_int(o, "a", (int64_t)event->event.a);
    add_int(o, "b", (int64_t)event->event.b);
    return o;
}

static void add_paths(struct json_object *to, const struct sb_paths *paths)
{
    struct json_object *list = json_object_new_array(), *events = json_object_new_array();

    for (size_t i = 0; i < paths->path_count; i++)
        json_object_array_add(list, path_object(&paths->paths[i]));
    for (size_t i = 0; i < paths->event_count; i++)
        json_object_array_add(events, event_object(&paths->events[i]));
    json_object_object_add(to, "path_statistics", list);
    add_int(to, "paths_left_out", (int64_t)paths->paths_left_out);
    json_object_object_add(to, "events", events);
    add_int(to, "events_dropped", (int64_t)paths->dropped);
    add_int(to, "ranks_without_state_page", (int64_t)paths->without_page);
}

static struct json_object *results_object(const struct sb_results *results)
{
    const struct sb_facts *facts = &results->facts;
    struct json_object *o = json_object_new_object(), *rows = json_object_new_array();

    add_text(o, "tool", "sluice-bench");
    add_text(o, "version", facts->version);
    add_int(o, "ranks", facts->ranks);
    add_int(o, "hosts", facts->hosts);
    add_text(o, "paths", facts->paths);
    add_text(o, "algorithm", facts->algo);
    add_text(o, "kernel", facts->kernel);
    add_text(o, "buffers", facts->allocation);
    json_object_object_add(o, "blocking", json_object_new_boolean(results->options->blocking));
    json_object_object_add(o, "persistent", json_object_new_boolean(results->options->persistent));
    for (size_t i = 0; i < results->row_count; i++)
        json_object_array_add(rows, row_object(&results->rows[i], facts->ranks));
    json_object_object_add(o, "rows", rows);
    add_int(o, "out_of_bounds_values", (int64_t)results->wrong);
    add_int(o, "results_that_differ_between_ranks", (int64_t)results->differing);
    add_number(o, "average_busbw_GBps",
               results->busbw_count > 0 ? results->busbw_sum / results->busbw_count : 0);
    if (results->paths != NULL)
        add_paths(o, results->paths);
    add_text(o, "error", results->error);
    return o;
}

/* Takes o. */
static int write_object(const char *path, struct json_object *o)
{
    const char *text =
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
    FILE *out;
    int err = sb_file_open(path, &out);

    if (err == 0) {
        fprintf(out, "%s\n", text);
        err = sb_file_close(path, out);
    }
    json_object_put(o);
    return err;
}

int sb_json_write(const char *path, const struct sb_results *results)
{
    return write_object(path, results_object(results));
}

static struct json_object *device_object(const struct sl_device *device)
{
    struct json_object *o = json_object_new_object(), *lines = json_object_new_array();
    const char *at = device->more;

    add_text(o, "name", device->name);
    json_object_object_add(o, "usable", json_object_new_boolean(device->why[0] == '\0'));
    add_text(o, "why", device->why[0] != '\0' ? device->why : NULL);
    add_text(o, "detail", device->detail);
    json_object_object_add(o, "speed_Gbps",
                           device->speed > 0 ? json_object_new_double((double)device->speed * 8e-9)
                                             : NULL);
    while (*at != '\0') {
        int len = (int)strcspn(at, "\n");

        json_object_array_add(lines, json_object_new_string_len(at, len));
        at += len + (at[len] == '\n');
    }
    json_object_object_add(o, "more", lines);
    return o;
}

int sb_json_write_list(const char *path, const char *version, const struct sb_transport *transports,
                       size_t count)
{
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();

    add_text(o, "tool", "sluice-bench");
    add_text(o, "version", version);
    for (size_t i = 0; i < count; i++) {
        struct json_object *transport = json_object_new_object(),
                           *devices = json_object_new_array();

        add_text(transport, "name", transports[i].name);
        add_text(transport, "why", transports[i].err != 0 ? transports[i].why : NULL);
        for (size_t k = 0; k < transports[i].shown; k++)
            json_object_array_add(devices, device_object(&transports[i].devices[k]));
        json_object_object_add(transport, "devices", devices);
        json_object_array_add(list, transport);
    }
    json_object_object_add(o, "transports", list);
    return write_object(path, o);
}
