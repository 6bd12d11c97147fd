/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ctl/show.h"

#include "tools/ctl/table.h"

#include <json-c/json.h>
#include <string.h>

struct sc_page sc_page_plain(void)
{
    return (struct sc_page){.out = stdout, .end = "\n", .now = sc_now()};
}

/* ---- the host ---- */

static const char *health_word(const char *health)
{
    if (strcmp(health, "bad") == 0)
        return "BAD";
    return strcmp(health, "degraded") == 0 ? "DEGRADED" : "ok";
}

void sc_show_head(const struct sc_page *page, struct json_object *status)
{
    struct json_object *counts = sc_part(sc_part(status, "counts"), "subjects");
    const char *why = sc_text(status, "why"), *note = sc_text(status, "note");
    char up[32], host_up[32];

    sc_span(sc_real(status, "agent_up_s"), up, sizeof(up));
    sc_span(sc_real(status, "host_up_s"), host_up, sizeof(host_up));
    fprintf(page->out, "%s: %s%s", sc_text(status, "host"), health_word(sc_text(status, "health")),
            page->end);
    fprintf(page->out, "agent %s for %s; host up %s, boot %s%s", sc_text(status, "agent_version"),
            up, host_up, sc_text(status, "boot_id"), page->end);
    fprintf(page->out, "watched: %lld ports, %lld NICs, %lld GPUs, %lld processes%s",
            sc_int(counts, "port"), sc_int(counts, "nic"), sc_int(counts, "gpu"),
            sc_int(counts, "process"), page->end);
    if (why[0] != '\0')
        fprintf(page->out, "not read: %s%s", why, page->end);
    if (!sc_true(status, "config_is_good"))
        fprintf(page->out, "the configuration was refused when it was read last: %s%s",
                "an older one is in force", page->end);
    if (note[0] != '\0')
        fprintf(page->out, "%s%s", note, page->end);
}

void sc_show_probes(const struct sc_page *page, struct json_object *probes)
{
    struct sc_table table;

    sc_table_begin(&table, "SOURCE", "HOW", "STATE", ">LOST", "READ", "WHY", NULL);
    for (unsigned i = 0; i < sc_length(probes); i++) {
        struct json_object *one = sc_at(probes, i);
        double at = sc_time(sc_text(one, "sampled"));
        char ago[32] = "never";

        if (at != 0)
            sc_span(page->now - at, ago, sizeof(ago));
        sc_table_cell(&table, "%s", sc_text(one, "name"));
        sc_table_cell(&table, "%s", sc_text(one, "how"));
        sc_table_cell(&table, "%s", sc_text(one, "state"));
        sc_table_cell(&table, "%lld", sc_int(one, "dropped"));
        sc_table_cell(&table, "%s%s", ago, at != 0 ? " ago" : "");
        sc_table_cell(&table, "%s", sc_text(one, "why"));
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

void sc_show_conditions(const struct sc_page *page, struct json_object *conditions)
{
    struct sc_table table;

    if (sc_length(conditions) == 0)
        return;
    sc_table_begin(&table, "SUBJECT", "CHECK", "STATE", "SEVERITY", "SINCE", "WHAT", NULL);
    for (unsigned i = 0; i < sc_length(conditions); i++) {
        struct json_object *one = sc_at(conditions, i);
        const char *label = sc_text(one, "label");
        char when[80];

        sc_when(sc_text(one, "since"), page->now, when, sizeof(when));
        sc_table_cell(&table, "%s %s%s%s%s", sc_text(one, "kind"), sc_text(one, "subject"),
                      label[0] != '\0' ? " (" : "", label, label[0] != '\0' ? ")" : "");
        sc_table_cell(&table, "%s", sc_text(one, "check"));
        sc_table_cell(&table, "%s", sc_text(one, "state"));
        sc_table_cell(&table, "%s", sc_text(one, "severity"));
        sc_table_cell(&table, "%s", when);
        sc_table_cell(&table, "%s", sc_text(one, "text"));
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

void sc_show_steering(const struct sc_page *page, struct json_object *steering)
{
    struct json_object *ports = sc_part(steering, "ports");
    struct sc_table table;

    if (sc_length(ports) == 0)
        return;
    fprintf(page->out, "%sranks and these ports (mode %s)%s", page->end, sc_text(steering, "mode"),
            page->end);
    if (sc_text(steering, "why")[0] != '\0')
        fprintf(page->out, "the table for ranks is not written: %s%s", sc_text(steering, "why"),
                page->end);
    sc_table_begin(&table, "PORT", "THEY", ">FOR", "CHECK", "WHAT", NULL);
    for (unsigned i = 0; i < sc_length(ports); i++) {
        struct json_object *one = sc_at(ports, i);
        const char *state = sc_text(one, "state");
        char span[32];

        sc_span((double)sc_int(one, "for_s"), span, sizeof(span));
        sc_table_cell(&table, "%s", sc_text(one, "port"));
        if (sc_true(one, "refused"))
            sc_table_cell(&table, "use it: too many are avoided");
        else if (strcmp(state, "avoided") == 0)
            sc_table_cell(&table, "avoid it");
        else
            sc_table_cell(&table, "%s it, weight %lld", strcmp(state, "tried") == 0 ? "try" : "use",
                          sc_int(one, "weight"));
        sc_table_cell(&table, "%s", span);
        sc_table_cell(&table, "%s", sc_text(one, "check"));
        sc_table_cell(&table, "%s", sc_text(one, "text"));
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

/* "ok"; "bad: link_down, link_flap": the worst, and what is not ok. */
static void state_cell(struct sc_table *table, struct json_object *subject)
{
    struct json_object *conditions = sc_part(subject, "conditions");
    char names[128] = "";

    for (unsigned i = 0; i < sc_length(conditions); i++) {
        size_t len = strlen(names);

        snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : ": ",
                 sc_text(sc_at(conditions, i), "check"));
    }
    sc_table_cell(table, "%s%s", sc_text(subject, "state"), names);
}

/* ---- ports ---- */

static struct json_object *find(struct json_object *ports, const char *subject)
{
    for (unsigned i = 0; i < sc_length(ports); i++)
        if (strcmp(sc_text(sc_at(ports, i), "subject"), subject) == 0)
            return sc_at(ports, i);
    return NULL;
}

/* The three largest, by their names. */
static void errors_cell(struct sc_table *table, struct json_object *errors)
{
    char text[128] = "";
    long long below = INT64_MAX;
    int after = -1; /* of equal ones, those after that one */

    for (unsigned shown = 0; shown < 3; shown++) {
        const char *name = NULL;
        long long most = 0;
        size_t len = strlen(text);
        int place = 0, found = 0;

        json_object_object_foreach(errors, key, value)
        {
            long long count = json_object_get_int64(value);

            if (count > most && (count < below || (count == below && place > after))) {
                most = count;
                name = key;
                found = place;
            }
            place++;
        }
        if (name == NULL)
            break;
        snprintf(text + len, sizeof(text) - len, "%s%s %lld", len > 0 ? ", " : "", name, most);
        below = most;
        after = found;
    }
    sc_table_cell(table, "%s", text[0] != '\0' ? text : "-");
}

/* A total, or what comes a second. */
static void amount_cell(struct sc_table *table, struct json_object *port,
                        struct json_object *before, double seconds, const char *key)
{
    char text[32] = "-";
    double amount = sc_real(port, key);

    if (before != NULL && seconds > 0) {
        double more = amount - sc_real(before, key);

        sc_bits(more > 0 ? more * 8 / seconds : 0, text, sizeof(text));
    } else if (amount > 0) {
        sc_bytes(amount, text, sizeof(text));
    }
    sc_table_cell(table, "%s", text);
}

void sc_show_ports(const struct sc_page *page, struct json_object *answer,
                   struct json_object *before)
{
    struct json_object *ports = sc_part(answer, "ports");
    double seconds = sc_time(sc_text(answer, "time")) - sc_time(sc_text(before, "time"));
    struct sc_table table;

    if (sc_length(ports) == 0) {
        fprintf(page->out, "no ports are watched%s", page->end);
        return;
    }
    sc_table_begin(&table, "PORT", "LINK", "IN USE", ">SPEED", ">SENT", ">RECEIVED", ">FLAPS",
                   "ERRORS", "STATE", NULL);
    for (unsigned i = 0; i < sc_length(ports); i++) {
        struct json_object *port = sc_at(ports, i), *up = sc_part(port, "up");
        struct json_object *old = find(sc_part(before, "ports"), sc_text(port, "subject"));
        char speed[32];

        sc_bits(sc_real(port, "speed_bits_per_s"), speed, sizeof(speed));
        sc_table_cell(&table, "%s", sc_text(port, "subject"));
        sc_table_cell(&table, "%s", up == NULL ? "?" : sc_true(port, "up") ? "up" : "down");
        sc_table_cell(&table, "%s", sc_true(port, "in_use") ? "yes" : "no");
        sc_table_cell(&table, "%s", speed);
        amount_cell(&table, port, old, seconds, "transmit_bytes");
        amount_cell(&table, port, old, seconds, "receive_bytes");
        sc_table_cell(&table, "%lld", sc_int(port, "flaps"));
        errors_cell(&table, sc_part(port, "errors"));
        state_cell(&table, port);
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

/* ---- ranks ---- */

static bool is_scalar(struct json_object *value)
{
    return !json_object_is_type(value, json_type_object) &&
           !json_object_is_type(value, json_type_array);
}

/* An array of objects that this program knows nothing of: a column for each of their numbers and
 * words. */
static void show_any(const struct sc_page *page, const char *name, struct json_object *list)
{
    struct sc_table table;
    struct json_object *first = sc_at(list, 0);
    const char *heads[SC_COLUMNS];
    unsigned columns = 0;

    if (sc_length(list) == 0 || !json_object_is_type(first, json_type_object))
        return;
    json_object_object_foreach(first, key, value)
    {
        if (is_scalar(value) && columns < SC_COLUMNS)
            heads[columns++] = key;
    }
    if (columns == 0)
        return;
    sc_table_begin(&table, "", NULL);
    memcpy(table.heads, heads, columns * sizeof(heads[0]));
    table.columns = columns;
    for (unsigned i = 0; i < sc_length(list); i++)
        for (unsigned j = 0; j < table.columns; j++)
            sc_table_cell(&table, "%s", sc_text(sc_at(list, i), table.heads[j]));
    fprintf(page->out, "%s%s:%s", page->end, name, page->end);
    sc_table_print(&table, page->end, page->width, page->out);
}

/* "allreduce 12 for 2.1 s: step 3 of 14, waits for rank 5" */
static void doing_cell(struct sc_table *table, struct json_object *waits)
{
    const char *doing = sc_text(waits, "doing");
    char steps[64] = "", peer[32] = "";

    if (waits == NULL) {
        sc_table_cell(table, "-");
        return;
    }
    if (sc_int(waits, "steps") > 0)
        snprintf(steps, sizeof(steps), ": step %lld of %lld", sc_int(waits, "step"),
                 sc_int(waits, "steps"));
    if (sc_part(waits, "peer") != NULL && sc_int(waits, "peer") >= 0)
        snprintf(peer, sizeof(peer), "%s rank %lld", doing[0] != '\0' ? "" : ",",
                 sc_int(waits, "peer"));
    sc_table_cell(table, "%s %lld for %.1f s%s%s%s%s", sc_text(waits, "operation"),
                  sc_int(waits, "number"), sc_real(waits, "for_seconds"), steps,
                  doing[0] != '\0' ? ", " : "", doing, peer);
}

/* By job, then by rank. */
static int by_rank(const void *left, const void *right)
{
    struct json_object *a = *(struct json_object *const *)left;
    struct json_object *b = *(struct json_object *const *)right;
    int order = strcmp(sc_text(a, "job"), sc_text(b, "job"));

    if (order == 0)
        order = (sc_int(a, "rank") > sc_int(b, "rank")) - (sc_int(a, "rank") < sc_int(b, "rank"));
    return order != 0 ? order : (sc_int(a, "pid") > sc_int(b, "pid")) - 1;
}

static void share_cell(struct sc_table *table, struct json_object *rank, const char *key)
{
    if (sc_part(rank, key) == NULL)
        sc_table_cell(table, "-");
    else
        sc_table_cell(table, "%.0f %%", sc_real(rank, key) * 100);
}

static void show_rank_table(const struct sc_page *page, struct json_object *ranks)
{
    struct sc_table table;

    sc_table_begin(&table, ">PID", "RANK", "PROGRAM", "STATE", ">RUNS", ">WAITS", ">THROTTLED",
                   ">MEMORY", "DOING", NULL);
    for (unsigned i = 0; i < sc_length(ranks); i++) {
        struct json_object *rank = sc_at(ranks, i);
        const char *condition = sc_text(rank, "condition");

        sc_table_cell(&table, "%lld", sc_int(rank, "pid"));
        sc_table_cell(&table, "%s", sc_text(rank, "label"));
        sc_table_cell(&table, "%s", sc_text(rank, "program"));
        sc_table_cell(&table, "%s", condition[0] != '\0' ? condition : "-");
        share_cell(&table, rank, "run_share");
        share_cell(&table, rank, "wait_share");
        share_cell(&table, rank, "throttled_share");
        share_cell(&table, rank, "memory_stall_share");
        doing_cell(&table, sc_part(rank, "waits"));
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

static void show_processes(const struct sc_page *page, struct json_object *processes)
{
    struct sc_table table;

    if (sc_length(processes) == 0) {
        fprintf(page->out, "no processes are watched%s", page->end);
        return;
    }
    sc_table_begin(&table, "PROCESS", "WHAT IT IS", "STATE", NULL);
    for (unsigned i = 0; i < sc_length(processes); i++) {
        struct json_object *one = sc_at(processes, i);

        sc_table_cell(&table, "%s", sc_text(one, "subject"));
        sc_table_cell(&table, "%s", sc_text(one, "label"));
        state_cell(&table, one);
    }
    sc_table_print(&table, page->end, page->width, page->out);
}

void sc_show_ranks(const struct sc_page *page, struct json_object *answer)
{
    struct json_object *ranks = sc_part(answer, "ranks");

    if (sc_length(ranks) > 0) {
        json_object_array_sort(ranks, by_rank);
        show_rank_table(page, ranks);
    } else {
        show_processes(page, sc_part(answer, "processes"));
    }
    json_object_object_foreach(answer, key, value)
    {
        if (strcmp(key, "processes") != 0 && strcmp(key, "ranks") != 0)
            show_any(page, key, value);
    }
}
