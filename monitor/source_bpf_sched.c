/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source: how long processes wait for a processor, sleep and are stopped, by BPF. It follows the
 * processes that are subjects of the engine ("pid 4711"), whoever put them there, and no others:
 * while there are none its programs do not run.
 */
#include "monitor/bpf.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

/* A stop that was shorter is a signal's hand-over, or a debugger's step. */
#define STOP_NS (100 * UINT64_C(1000000))

struct rank {
    uint32_t pid;
    bool is_there; /* among the subjects, in this period */
    struct sl_mon_subject *subject;
    struct sl_bpf_process last;   /* as it was read last */
    struct sl_bpf_process period; /* what of it came in the last period */
};

struct source {
    struct sl_mon_bpf probe; /* first */
    struct rank ranks[SL_BPF_PROCESSES];
    unsigned count;
    uint64_t left_out;
    bool is_attached;
    uint64_t wait_ns, off_ns, stopped_ns, stops; /* of all that were followed, in all */
};

static const struct sl_mon_bpf_plan plan = {
    .object = "sched",
    .ways = {(const char *const[]){"on_wakeup", "on_wakeup_new", "on_switch", NULL}},
    .way_count = 1,
    .has_devices = true};

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe 'sched'");
    sl_mon_bpf_init(&source->probe, host, &plan);
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_bpf_open(&source->probe);

    source->count = 0;
    source->is_attached = err == 0;
    return err;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_bpf_close(&source->probe);
    source->count = 0;
}

/* ---- who is followed ---- */

static struct rank *rank_of(struct source *source, uint32_t pid)
{
    for (unsigned i = 0; i < source->count; i++)
        if (source->ranks[i].pid == pid)
            return &source->ranks[i];
    return NULL;
}

static int follow(struct source *source, struct sl_mon_subject *subject, uint32_t pid)
{
    const struct sl_bpf_process fresh = {0};
    int err;

    if (source->count == SL_BPF_PROCESSES) {
        source->left_out++;
        return 0;
    }
    err = sl_bpf_put(source->probe.bpf, "processes", &pid, &fresh);
    if (err != 0)
        return err;
    source->ranks[source->count++] =
        (struct rank){.pid = pid, .subject = subject, .is_there = true};
    return 0;
}

static void leave(struct source *source, unsigned i)
{
    sl_bpf_remove(source->probe.bpf, "processes", &source->ranks[i].pid);
    source->ranks[i] = source->ranks[--source->count];
}

/* As the engine has them now. */
static int match(struct source *source)
{
    struct sl_mon *mon = source->probe.host.mon;
    const struct sl_mon_subject *at = NULL;
    int err = 0;

    for (unsigned i = 0; i < source->count; i++)
        source->ranks[i].is_there = false;
    while (err == 0 && (at = sl_mon_next(mon, at)) != NULL) {
        struct rank *rank;
        unsigned pid;

        if (at->kind != SL_MON_PROCESS || sscanf(at->name, "pid %u", &pid) != 1)
            continue;
        rank = rank_of(source, pid);
        if (rank != NULL) {
            rank->is_there = true;
            rank->subject = sl_mon_find(mon, SL_MON_PROCESS, at->name);
        } else {
            err = follow(source, sl_mon_find(mon, SL_MON_PROCESS, at->name), pid);
        }
    }
    for (unsigned i = source->count; i-- > 0;)
        if (!source->ranks[i].is_there)
            leave(source, i);
    return err;
}

/* Programs that look at every switch of every task are there for those who are followed. */
static int attach_if_wanted(struct source *source)
{
    bool is_wanted = source->count > 0;
    int err = 0;

    if (is_wanted && !source->is_attached)
        err = sl_bpf_attach(source->probe.bpf);
    else if (!is_wanted && source->is_attached)
        sl_bpf_detach(source->probe.bpf);
    if (err == 0)
        source->is_attached = is_wanted;
    return err;
}

/* ---- what they did ---- */

/* A stop is told while it lasts and, if it was over before anybody looked, afterwards. */
static void judge(struct source *source, const struct rank *rank, uint64_t now_ns)
{
    struct sl_mon *mon = source->probe.host.mon;
    struct sl_mon_evidence evidence = {.source = "bpf"};
    const struct sl_bpf_process *last = &rank->last, *period = &rank->period;
    uint64_t lasts_ns =
        last->state == SL_BPF_STOPPED && now_ns > last->since_ns ? now_ns - last->since_ns : 0;

    if (last->since_ns == 0) /* nothing is known of it yet */
        return;
    if (lasts_ns < STOP_NS && period->stopped_max_ns < STOP_NS) {
        if (lasts_ns == 0)
            sl_mon_sample(mon, rank->subject, SL_MON_CHECK_PROCESS_STOPPED, false, NULL);
        return;
    }
    evidence.before = last->stopped_count - period->stopped_count;
    evidence.after = last->stopped_count;
    if (lasts_ns > 0)
        snprintf(evidence.text, sizeof(evidence.text), "it has been stopped for %.3f s",
                 (double)lasts_ns / 1e9);
    else if (period->stopped_count == 1)
        snprintf(evidence.text, sizeof(evidence.text),
                 "it was stopped since the last look, for %.3f s",
                 (double)period->stopped_max_ns / 1e9);
    else
        snprintf(evidence.text, sizeof(evidence.text),
                 "it was stopped %" PRIu64 " times since the last look, for %.3f s at the most",
                 period->stopped_count, (double)period->stopped_max_ns / 1e9);
    sl_mon_sample(mon, rank->subject, SL_MON_CHECK_PROCESS_STOPPED, true, &evidence);
}

static int read_rank(struct source *source, struct rank *rank, uint64_t now_ns)
{
    struct sl_bpf_process now, *period = &rank->period;
    const struct sl_bpf_process *last = &rank->last;
    int err = sl_bpf_get(source->probe.bpf, "processes", &rank->pid, &now);

    if (err != 0)
        return err;
    *period = (struct sl_bpf_process){.wait_ns = now.wait_ns - last->wait_ns,
                                      .wait_count = now.wait_count - last->wait_count,
                                      .off_ns = now.off_ns - last->off_ns,
                                      .stopped_ns = now.stopped_ns - last->stopped_ns,
                                      .stopped_count = now.stopped_count - last->stopped_count};
    if (now.epoch == source->probe.settings.epoch) {
        period->wait_max_ns = now.wait_max_ns;
        period->off_max_ns = now.off_max_ns;
        period->stopped_max_ns = now.stopped_max_ns;
    }
    /* One that has waited since before this period has no end to be counted by yet. */
    if (now.state == SL_BPF_RUNNABLE && now.since_ns != 0 && now_ns > now.since_ns &&
        now_ns - now.since_ns > period->wait_max_ns)
        period->wait_max_ns = now_ns - now.since_ns;
    rank->last = now;
    source->wait_ns += period->wait_ns;
    source->off_ns += period->off_ns;
    source->stopped_ns += period->stopped_ns;
    source->stops += period->stopped_count;
    judge(source, rank, now_ns);
    return 0;
}

static int tick(void *arg)
{
    struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->probe.host.mon)->mono_ns;
    int err = match(source);

    if (err == 0)
        err = attach_if_wanted(source);
    for (unsigned i = 0; err == 0 && i < source->count; i++)
        err = read_rank(source, &source->ranks[i], now_ns);
    return err == 0 ? sl_mon_bpf_period(&source->probe) : err;
}

static uint64_t dropped(const void *arg)
{
    const struct source *source = arg;

    return source->left_out;
}

/* ---- metrics: of all together, as ranks come and go ---- */

static void seconds(enum sl_mon_format format, FILE *out, const char *name, const char *help,
                    uint64_t ns)
{
    sl_mon_metrics_family(format, out, name, "counter", "seconds", help);
    fprintf(out, "%s_total %.9f\n", name, (double)ns / 1e9);
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct source *source = arg;
    uint64_t longest_ns = 0;

    for (unsigned i = 0; i < source->count; i++)
        if (source->ranks[i].period.wait_max_ns > longest_ns)
            longest_ns = source->ranks[i].period.wait_max_ns;
    sl_mon_metrics_family(format, out, "sluice_ranks_followed", "gauge", "",
                          "Processes whose scheduling is followed by BPF.");
    fprintf(out, "sluice_ranks_followed %u\n", source->count);
    seconds(format, out, "sluice_ranks_run_queue_seconds",
            "Time that their threads were ready to run and had no processor.", source->wait_ns);
    seconds(format, out, "sluice_ranks_off_cpu_seconds",
            "Time that their first threads slept, for whatever they waited.", source->off_ns);
    seconds(format, out, "sluice_ranks_stopped_seconds",
            "Time that they were stopped, by a signal or a debugger.", source->stopped_ns);
    sl_mon_bpf_counter(format, out, "sluice_ranks_stops", "Times that they were.", source->stops);
    sl_mon_metrics_family(format, out, "sluice_ranks_run_queue_max_seconds", "gauge", "seconds",
                          "The longest wait for a processor within the last period.");
    fprintf(out, "sluice_ranks_run_queue_max_seconds %.9f\n", (double)longest_ns / 1e9);
}

static void add_number(struct json_object *out, const char *key, uint64_t value)
{
    json_object_object_add(out, key, json_object_new_int64((int64_t)value));
}

/* Of each, in the last period. */
static void json(void *arg, struct json_object *out)
{
    static const char *const states[] = {"running", "runnable", "sleeping", "stopped"};
    struct source *source = arg;
    struct json_object *list = json_object_new_array();

    for (unsigned i = 0; i < source->count; i++) {
        const struct rank *rank = &source->ranks[i];
        struct json_object *one = json_object_new_object();

        add_number(one, "pid", rank->pid);
        json_object_object_add(one, "state",
                               json_object_new_string(rank->last.since_ns == 0
                                                          ? "unknown"
                                                          : states[rank->last.state & 3]));
        add_number(one, "run_queue_ns", rank->period.wait_ns);
        add_number(one, "run_queue_max_ns", rank->period.wait_max_ns);
        add_number(one, "run_queue_count", rank->period.wait_count);
        add_number(one, "off_cpu_ns", rank->period.off_ns);
        add_number(one, "off_cpu_max_ns", rank->period.off_max_ns);
        add_number(one, "stopped_ns", rank->period.stopped_ns);
        add_number(one, "stops", rank->period.stopped_count);
        json_object_array_add(list, one);
    }
    json_object_object_add(out, "scheduling", list);
}

const struct sl_source_class sl_source_bpf_sched = {.name = "sched",
                                                    .how = "bpf",
                                                    .wanted =
                                                        offsetof(struct sl_mon_config, bpf_sched),
                                                    .create = create,
                                                    .destroy = free,
                                                    .open = open_source,
                                                    .close = close_source,
                                                    .tick = tick,
                                                    .dropped = dropped,
                                                    .metrics = metrics,
                                                    .json = json};
