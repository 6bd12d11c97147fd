/* SPDX-License-Identifier: Apache-2.0 */
/* Source: how the kernel treats ranks, and processes that the configuration names: /proc and
 * cgroups (monitor/procfs.h, monitor/cgroup.h), and what that says (monitor/process.h). */
#include "monitor/cgroup.h"
#include "monitor/ranks.h"
#include "monitor/ranks_json.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAITS 200        /* thousandths of the time */
#define CGROUP_PERIODS 2 /* between two looks at which cgroups a process is in */

struct entry {
    uint64_t number; /* of the process in this place of the list; 0: none */
    struct sl_mon_process process;
    struct sl_mon_membership *membership;
};

struct source {
    struct sl_source_host host;
    struct sl_mon_cgroups *cgroups;
    struct entry entries[SL_MON_RANKS_MAX];
    uint64_t period;
    long cpus;
    unsigned crowd_share; /* struct sl_mon_process_reading, of the period before */
    /* Of all that are watched, since the agent began. */
    uint64_t run_ns, wait_ns, major_faults;
};

static void entry_end(struct source *source, struct entry *entry)
{
    if (source->cgroups != NULL)
        sl_mon_membership_free(source->cgroups, entry->membership);
    *entry = (struct entry){.number = 0};
}

/* The process of this place, from now on. */
static struct entry *entry_of(struct source *source, unsigned place, const struct sl_mon_rank *rank)
{
    struct entry *entry = &source->entries[place];

    if (rank == NULL || rank->is_gone || rank->subject == NULL) {
        if (entry->number != 0)
            entry_end(source, entry);
        return NULL;
    }
    if (entry->number != rank->number) {
        entry_end(source, entry);
        entry->number = rank->number;
        sl_mon_process_init(&entry->process, rank->subject,
                            sl_mon_procfs_ticks_ns(rank->start_ticks));
    }
    return entry;
}

static void read_cgroups(struct source *source, struct entry *entry, const struct sl_mon_rank *rank,
                         struct sl_mon_process_reading *out)
{
    char text[4096];

    if (entry->membership == NULL || (source->period + (uint64_t)rank->pid) % CGROUP_PERIODS == 0) {
        if (sl_mon_procfs_text(sl_mon_ranks_procfs(source->host.ranks), rank->pid, "cgroup", text,
                               sizeof(text)) > 0)
            (void)sl_mon_membership_set(source->cgroups, &entry->membership, text);
    }
    sl_mon_membership_read(source->cgroups, entry->membership, out);
}

static void count(struct source *source, const struct sl_mon_process *process,
                  const struct sl_mon_process_reading *now)
{
    const struct sl_mon_process_reading *before = &process->last;

    if (process->last_ns == 0)
        return;
    if (now->cpu_ns > before->cpu_ns)
        source->run_ns += now->cpu_ns - before->cpu_ns;
    if (now->major_faults > before->major_faults)
        source->major_faults += now->major_faults - before->major_faults;
    if (now->threads[0].wait_ns > before->threads[0].wait_ns)
        source->wait_ns += now->threads[0].wait_ns - before->threads[0].wait_ns;
}

static void read_rank(struct source *source, struct entry *entry, const struct sl_mon_rank *rank)
{
    struct sl_mon_process_reading reading;

    sl_mon_proc_read(rank->proc, &rank->stat, &reading);
    read_cgroups(source, entry, rank, &reading);
    reading.crowd_share = source->crowd_share;
    count(source, &entry->process, &reading);
    sl_mon_process_read(source->host.mon, &entry->process, "procfs", &reading);
}

static void measure_crowd(struct source *source, unsigned busy, uint64_t run_share)
{
    bool is_crowd = source->cpus > 0 && busy > (unsigned long)source->cpus;

    source->crowd_share = is_crowd ? (unsigned)(run_share / (unsigned long)source->cpus) : 0;
}

static int tick(void *arg)
{
    struct source *source = arg;
    struct sl_mon_ranks *ranks = source->host.ranks;
    int err = sl_mon_ranks_update(ranks);
    uint64_t run_share = 0;
    unsigned busy = 0;

    if (err != 0)
        return err;
    source->period++;
    sl_mon_cgroups_begin(source->cgroups);
    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(ranks, i);
        struct entry *entry = entry_of(source, i, rank);

        if (entry == NULL)
            continue;
        read_rank(source, entry, rank);
        busy += sl_mon_process_is_busy(&entry->process);
        run_share += entry->process.run_share;
    }
    measure_crowd(source, busy, run_share);
    return 0;
}

/* ---- its life ---- */

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for ranks");
    source->host = *host;
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    const struct sl_mon_config *config = source->host.config;
    int err = sl_mon_ranks_open(source->host.ranks);

    if (err != 0)
        return err;
    source->cpus = sysconf(_SC_NPROCESSORS_ONLN);
    source->crowd_share = 0;
    err = sl_mon_cgroups_open(config->ranks_cgroups, config->ranks_proc, &source->cgroups);
    if (err != 0)
        sl_mon_ranks_close(source->host.ranks);
    return err;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++)
        entry_end(source, &source->entries[i]);
    sl_mon_cgroups_close(source->cgroups);
    source->cgroups = NULL;
    sl_mon_ranks_close(source->host.ranks);
}

/* ---- what others ask ---- */

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;
    const struct sl_mon_ranks_counts counts = sl_mon_ranks_counts(source->host.ranks);

    sl_mon_metrics_family(format, out, "sluice_ranks", "gauge", "", "Processes that are watched.");
    sl_mon_metrics_open(out, "sluice_ranks", "how", "state page");
    sl_mon_metrics_number(out, counts.ranks);
    sl_mon_metrics_open(out, "sluice_ranks", "how", "named");
    sl_mon_metrics_number(out, counts.named);
    sl_mon_metrics_family(format, out, "sluice_ranks_left_out", "counter", "",
                          "Processes for which there was no room.");
    fprintf(out, "sluice_ranks_left_out_total %" PRIu64 "\n", counts.left_out);
    sl_mon_metrics_family(format, out, "sluice_rank_cpu_seconds", "counter", "seconds",
                          "Processor time of all processes that are watched.");
    fprintf(out, "sluice_rank_cpu_seconds_total %.3f\n", (double)source->run_ns / 1e9);
    sl_mon_metrics_family(format, out, "sluice_rank_wait_seconds", "counter", "seconds",
                          "Time that their first threads were ready and others had the processor.");
    fprintf(out, "sluice_rank_wait_seconds_total %.3f\n", (double)source->wait_ns / 1e9);
    sl_mon_metrics_family(format, out, "sluice_rank_major_faults", "counter", "",
                          "Pages that they read from disk.");
    fprintf(out, "sluice_rank_major_faults_total %" PRIu64 "\n", source->major_faults);
}

static void share(struct json_object *out, const char *key, unsigned thousandths)
{
    char text[32];

    snprintf(text, sizeof(text), "%u.%03u", thousandths / 1000, thousandths % 1000);
    json_object_object_add(out, key, json_object_new_double_s(thousandths / 1000.0, text));
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;

    for (unsigned i = 0; i < SL_MON_RANKS_MAX; i++) {
        const struct sl_mon_rank *rank = sl_mon_ranks_at(source->host.ranks, i);
        const struct sl_mon_process *process = &source->entries[i].process;
        char state[2] = "";
        struct json_object *at;

        if (rank == NULL || rank->is_gone || source->entries[i].number != rank->number)
            continue;
        at = sl_mon_rank_json(out, rank);
        if (at == NULL)
            return;
        state[0] = rank->stat.state;
        sl_mon_json_text(at, "state", state);
        sl_mon_json_text(at, "condition",
                         sl_mon_state_name(sl_mon_subject_state(process->subject)));
        sl_mon_json_number(at, "threads", rank->stat.threads);
        share(at, "run_share", process->run_share);
        share(at, "wait_share", process->wait_share);
        share(at, "throttled_share", process->throttled_share);
        share(at, "memory_stall_share", process->stall_share);
        sl_mon_json_number(at, "major_faults_per_second", (int64_t)process->faults_per_s);
    }
}

const struct sl_source_class sl_source_ranks = {.name = "ranks",
                                                .how = "procfs",
                                                .wanted = offsetof(struct sl_mon_config, ranks),
                                                .create = create,
                                                .destroy = free,
                                                .open = open_source,
                                                .close = close_source,
                                                .tick = tick,
                                                .metrics = metrics,
                                                .json = json};
