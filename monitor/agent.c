/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/agent.h"

#include "monitor/bundle.h"
#include "monitor/event_line.h"
#include "monitor/isolation.h"
#include "monitor/metrics_node.h"
#include "monitor/probing.h"
#include "monitor/ranks.h"
#include "monitor/source.h"
#include "monitor/steering.h"
#include "monitor/store.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS (10 * SL_MON_S) /* between attempts to have a source back */
#define STALE_PERIODS 5          /* a source that was not read for so many is stale */
#define EVENTS_PER_TICK 256
#define SOURCES_MAX 32
#define PORTS_MAX 512

/* A source of the table, and how it fares. */
struct place {
    const struct sl_source_class *class;
    void *source;      /* NULL: it is switched off */
    uint64_t tried_ns; /* opened, or not, last; 0: never */
    uint64_t read_ns;  /* well, last */
    uint64_t ticked_ns;
    bool was_up, is_absent; /* once; there is no such thing here */
};

struct sl_agent {
    struct sl_agent_options options;
    struct sl_mon_config config;
    struct sl_mon *mon;
    struct sl_mon_store *store;
    struct sl_mon_ranks *ranks; /* that sources share */
    struct place places[SOURCES_MAX];
    struct sl_mon_probe probes[SOURCES_MAX]; /* of the same places */
    uint64_t written;                        /* the last event that was */
    uint64_t transitions[SL_MON_CHECK_COUNT][SL_MON_STATES];
    FILE *events;             /* NULL: none */
    struct sl_bundle *bundle; /* NULL: nothing is recorded */
    uint64_t began_ns, epoch_ms;
    struct sl_isolation *isolation; /* NULL: nobody asks for it */
    struct sl_steering *steering;   /* the same */
    struct sl_probing *probing;
    struct sl_mon_record scratch_records[64];
    int epoll_fd;
    bool config_is_bad;
    char boot_id[SL_MON_BOOT_ID], note[512];
};

/* ---- time ---- */

static uint64_t clock_ns(clockid_t id)
{
    struct timespec at;

    clock_gettime(id, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static void machine_now(void *arg, struct sl_mon_time *out)
{
    (void)arg;
    *out = (struct sl_mon_time){.mono_ns = clock_ns(CLOCK_MONOTONIC),
                                .wall_ns = clock_ns(CLOCK_REALTIME),
                                .boot_ns = clock_ns(CLOCK_BOOTTIME)};
}

static void set_time(struct sl_agent *agent)
{
    struct sl_mon_time now;

    agent->options.now(agent->options.arg, &now);
    sl_mon_set_time(agent->mon, &now);
}

static uint64_t now_ns(const struct sl_agent *agent)
{
    return sl_mon_time(agent->mon)->mono_ns;
}

static void read_boot_id(char *out, size_t cap)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    snprintf(out, cap, "unknown");
    if (file == NULL)
        return;
    if (fgets(out, (int)cap, file) != NULL)
        out[strcspn(out, "\n")] = '\0';
    fclose(file);
}

/* ---- sources that come and go ---- */

static enum sl_mon_wanted wanted(const struct sl_agent *agent, unsigned i)
{
    const char *config = (const char *)&agent->config;

    return *(const enum sl_mon_wanted *)(const void *)(config + sl_source_classes[i]->wanted);
}

static bool is_up(const struct sl_agent *agent, unsigned i)
{
    return agent->probes[i].is_up;
}

static void sampled(struct sl_agent *agent, unsigned i)
{
    agent->places[i].read_ns = now_ns(agent);
    agent->probes[i].sampled_ns = sl_mon_time(agent->mon)->wall_ns;
}

/* What has just gone wrong with it is the thread's last error. */
static void failed(struct sl_agent *agent, unsigned i, int err)
{
    struct place *place = &agent->places[i];

    snprintf(agent->probes[i].why, sizeof(agent->probes[i].why), "%s", sluice_last_error());
    place->is_absent = err == -ENODEV || err == -ENOTSUP;
    if (is_up(agent, i))
        place->class->close(place->source);
    agent->probes[i].is_up = false;
}

/* A descriptor that is closed leaves the set by itself. */
static void watch(struct sl_agent *agent, unsigned i)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    const struct place *place = &agent->places[i];
    int fd = place->class->fd != NULL ? place->class->fd(place->source) : -1;

    if (fd >= 0)
        (void)epoll_ctl(agent->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static bool try_open(struct sl_agent *agent, unsigned i)
{
    struct place *place = &agent->places[i];
    int err;

    if (place->tried_ns != 0 && now_ns(agent) - place->tried_ns < RETRY_NS)
        return false;
    place->tried_ns = now_ns(agent);
    err = place->class->open(place->source);
    if (err != 0) {
        failed(agent, i, err);
        return false;
    }
    agent->probes[i].is_up = place->was_up = true;
    agent->probes[i].why[0] = '\0';
    place->ticked_ns = 0;
    sampled(agent, i);
    watch(agent, i);
    return true;
}

static void source_tick(struct sl_agent *agent, unsigned i)
{
    struct place *place = &agent->places[i];
    uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int n = 0;

    if (!is_up(agent, i) && !try_open(agent, i))
        return;
    if (place->ticked_ns != 0 && now_ns(agent) - place->ticked_ns < place->class->period_ns)
        return;
    place->ticked_ns = now_ns(agent);
    if (place->class->tick != NULL)
        n = place->class->tick(place->source);
    if (n < 0)
        failed(agent, i, n);
    else
        sampled(agent, i);
    agent->probes[i].cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

static void source_read(struct sl_agent *agent, unsigned i)
{
    const struct place *place = &agent->places[i];
    uint64_t cpu_ns;
    int n;

    if (place->source == NULL || !is_up(agent, i) || place->class->read == NULL)
        return;
    cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    n = place->class->read(place->source);
    if (n < 0)
        failed(agent, i, n);
    else if (n > 0)
        sampled(agent, i);
    agent->probes[i].cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

/* A quiet check calms down only while its source is alive. */
static void calm(struct sl_agent *agent)
{
    uint64_t quiet = 0;

    for (unsigned i = 0; i < sl_source_class_count; i++)
        if (is_up(agent, i))
            quiet |= sl_source_classes[i]->quiet;
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (sl_mon_checks[i].policy.quiet && (quiet >> i & 1) != 0)
            sl_mon_calm(agent->mon, (enum sl_mon_check)i);
}

static uint64_t recall(void *arg, const char *key)
{
    const struct sl_agent *agent = arg;

    return sl_mon_store_recall(agent->store, key, agent->boot_id);
}

/* What cannot be kept is told once more after a restart. */
static void note(void *arg, const char *key, uint64_t value)
{
    const struct sl_agent *agent = arg;

    (void)sl_mon_store_note(agent->store, key, agent->boot_id, value);
}

static int sources_create(struct sl_agent *agent)
{
    const struct sl_source_host host = {.mon = agent->mon,
                                        .config = &agent->config,
                                        .ranks = agent->ranks,
                                        .recall = recall,
                                        .note = note,
                                        .arg = agent};

    _Static_assert(SL_MON_CHECK_COUNT <= 64, "a bit each");
    sl_assert(sl_source_class_count <= SOURCES_MAX);
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        struct place *place = &agent->places[i];
        int err;

        place->class = sl_source_classes[i];
        agent->probes[i] =
            (struct sl_mon_probe){.name = place->class->name, .how = place->class->how};
        if (wanted(agent, i) == SL_MON_OFF) {
            snprintf(agent->probes[i].why, sizeof(agent->probes[i].why),
                     "it is switched off in the configuration");
            continue;
        }
        err = place->class->create(&host, &place->source);
        if (err != 0)
            return err;
    }
    return 0;
}

static void sources_destroy(struct sl_agent *agent)
{
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        const struct place *place = &agent->places[i];

        if (place->source == NULL)
            continue;
        if (is_up(agent, i))
            place->class->close(place->source);
        place->class->destroy(place->source);
    }
}

/* ---- transitions ---- */

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    struct sl_agent *agent = arg;

    if (transition->step.from != transition->step.to)
        agent->transitions[transition->check][transition->step.to]++;
    (void)sl_mon_store_put(agent->store, transition);
    if (agent->bundle != NULL)
        sl_bundle_output(agent->bundle, transition);
}

static void on_input(void *arg, const struct sl_mon_input_record *input)
{
    struct sl_agent *agent = arg;

    sl_bundle_input(agent->bundle, sl_mon_time(agent->mon), input);
}

static void on_forget(void *arg, const struct sl_mon_subject *subject)
{
    struct sl_agent *agent = arg;

    (void)sl_mon_store_forget(agent->store, subject);
}

/* What is stored and not yet written, in order. One that could not be written comes again. */
static void write_events(struct sl_agent *agent)
{
    struct sl_mon_record *records = agent->scratch_records;
    unsigned written = 0;
    int count = 1;

    while (agent->events != NULL && written < EVENTS_PER_TICK && count > 0) {
        count = sl_mon_store_list(agent->store, agent->written + 1, records,
                                  SL_ARRAY_LEN(agent->scratch_records));
        for (int i = 0; i < count; i++) {
            if (sl_mon_event_line(&records[i], agent->events) != 0) {
                clearerr(agent->events);
                return;
            }
            agent->written = records[i].id;
            written++;
        }
        if (count > 0)
            (void)sl_mon_store_ack(agent->store, "events", agent->written);
    }
}

/* ---- its life ---- */

static int outputs_open(struct sl_agent *agent)
{
    const char *path = agent->config.events_path;

    if (path[0] == '\0')
        return 0;
    agent->events = strcmp(path, "-") == 0 ? stdout : fopen(path, "ae");
    if (agent->events == NULL)
        return sl_fail(-errno, "%s cannot be opened for events: %s", path, sluice_strerror(-errno));
    return sl_mon_store_acked(agent->store, "events", &agent->written);
}

static int isolation_open(struct sl_agent *agent)
{
    const struct sl_isolation_options options = {.config = &agent->config,
                                                 .boot_id = agent->boot_id,
                                                 .log = agent->events != NULL ? agent->events
                                                                              : stderr};

    return sl_isolation_open(&options, &agent->isolation);
}

static int steering_open(struct sl_agent *agent)
{
    const struct sl_steering_options options = {.config = &agent->config,
                                                .mon = agent->mon,
                                                .log =
                                                    agent->events != NULL ? agent->events : stderr,
                                                .recall = recall,
                                                .note = note,
                                                .arg = agent};

    return sl_steering_open(&options, &agent->steering);
}

static int store_open(struct sl_agent *agent)
{
    const struct sl_mon_store_options options = {.transitions_max =
                                                     (uint64_t)agent->config.store_transitions,
                                                 .bytes_max = (uint64_t)agent->config.store_bytes};
    char aside[2 * SL_MON_PATH];
    int err =
        sl_mon_store_open(agent->config.store_path, &options, &agent->store, aside, sizeof(aside));

    if (err == 0 && aside[0] != '\0')
        snprintf(agent->note, sizeof(agent->note),
                 "the store was damaged: it is kept as %.400s, and a new one begins", aside);
    return err;
}

static int bundle_open(struct sl_agent *agent)
{
    int err;

    if (agent->config.bundle_path[0] == '\0')
        return 0;
    err = sl_bundle_open(agent->config.bundle_path, (uint64_t)agent->config.bundle_bytes,
                         &agent->bundle);
    if (err == 0)
        sl_bundle_begin(agent->bundle, agent->options.version, (size_t)agent->config.subjects,
                        sl_mon_store_next(agent->store));
    return err;
}

static int engine_open(struct sl_agent *agent)
{
    const struct sl_mon_options options = {.subjects_max = (size_t)agent->config.subjects,
                                           .next_id = sl_mon_store_next(agent->store),
                                           .on_transition = on_transition,
                                           .on_forget = on_forget,
                                           .on_input = agent->bundle != NULL ? on_input : NULL,
                                           .arg = agent};
    int err = sl_mon_create(&options, &agent->mon);

    if (err != 0)
        return err;
    set_time(agent);
    agent->began_ns = now_ns(agent);
    agent->epoch_ms = sl_mon_time(agent->mon)->wall_ns / 1000000;
    if (agent->options.boot_id != NULL)
        snprintf(agent->boot_id, sizeof(agent->boot_id), "%s", agent->options.boot_id);
    else
        read_boot_id(agent->boot_id, sizeof(agent->boot_id));
    err = sl_mon_store_restore(agent->store, agent->mon, sl_mon_time(agent->mon)->wall_ns);
    sl_mon_set_boot(agent->mon, agent->boot_id);
    return err != 0 ? err : sl_mon_store_boot(agent->store, agent->boot_id);
}

int sl_agent_open(const struct sl_agent_options *options, struct sl_agent **out)
{
    struct sl_agent *agent = calloc(1, sizeof(*agent));
    int err;

    if (agent == NULL)
        return sl_fail(-ENOMEM, "no memory for the agent");
    agent->options = *options;
    if (agent->options.now == NULL)
        agent->options.now = machine_now;
    agent->config = *options->config;
    agent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = agent->epoll_fd < 0 ? sl_fail(-errno, "epoll: %s", sluice_strerror(-errno))
                              : store_open(agent);
    if (err == 0)
        err = bundle_open(agent);
    if (err == 0)
        err = engine_open(agent);
    if (err == 0)
        err = sl_mon_ranks_create(agent->mon, &agent->config, &agent->ranks);
    if (err == 0)
        err = sources_create(agent);
    if (err == 0)
        err = outputs_open(agent);
    if (err == 0)
        err = isolation_open(agent);
    if (err == 0)
        err = steering_open(agent);
    if (err == 0)
        err = sl_probing_open(&agent->config, &agent->probing);
    if (err != 0) {
        sl_agent_close(agent);
        return err;
    }
    sl_agent_tick(agent);
    *out = agent;
    return 0;
}

void sl_agent_close(struct sl_agent *agent)
{
    if (agent == NULL)
        return;
    sl_probing_close(agent->probing);
    sl_steering_close(agent->steering);
    sl_isolation_close(agent->isolation);
    if (agent->events != NULL && agent->events != stdout)
        fclose(agent->events);
    sources_destroy(agent);
    sl_mon_ranks_destroy(agent->ranks);
    sl_mon_destroy(agent->mon);
    sl_bundle_close(agent->bundle);
    sl_mon_store_close(agent->store);
    if (agent->epoll_fd >= 0)
        close(agent->epoll_fd);
    free(agent);
}

int sl_agent_fd(const struct sl_agent *agent)
{
    return agent->epoll_fd;
}

void sl_agent_turn(struct sl_agent *agent)
{
    struct epoll_event events[SOURCES_MAX];
    int count = epoll_wait(agent->epoll_fd, events, SOURCES_MAX, 0);

    set_time(agent);
    for (int i = 0; i < count; i++)
        source_read(agent, events[i].data.u32);
    write_events(agent);
}

void sl_agent_tick(struct sl_agent *agent)
{
    const struct sl_mon_port *ports[PORTS_MAX];

    set_time(agent);
    for (unsigned i = 0; i < sl_source_class_count; i++)
        if (agent->places[i].source != NULL)
            source_tick(agent, i);
    calm(agent);
    /* Before anything is written to the disk: ranks wait for it. */
    if (agent->steering != NULL)
        sl_steering_tick(agent->steering, ports, sl_agent_ports(agent, ports, PORTS_MAX));
    (void)sl_mon_store_retry(agent->store);
    write_events(agent);
    if (agent->bundle != NULL)
        sl_bundle_flush(agent->bundle);
    sl_isolation_tick(agent->isolation, agent->store, sl_mon_time(agent->mon));
    sl_probing_tick(agent->probing, sl_mon_time(agent->mon));
}

/* ---- what others ask ---- */

/* NULL: it is as it should be. */
static const char *trouble_of(const struct sl_agent *agent, unsigned i)
{
    const struct place *place = &agent->places[i];
    uint64_t period_ns = (uint64_t)agent->config.period_ms * 1000000;

    if (place->class->period_ns > period_ns)
        period_ns = place->class->period_ns;
    if (wanted(agent, i) == SL_MON_OFF)
        return NULL;
    if (wanted(agent, i) == SL_MON_AUTO && (place->is_absent || !place->was_up))
        return NULL;
    if (!is_up(agent, i))
        return agent->probes[i].why[0] != '\0' ? agent->probes[i].why : "has not begun";
    return now_ns(agent) - place->read_ns > STALE_PERIODS * period_ns ? "was not read in time"
                                                                      : NULL;
}

bool sl_agent_is_fresh(struct sl_agent *agent, char *why, size_t cap)
{
    size_t used = 0;

    set_time(agent);
    why[0] = '\0';
    for (unsigned i = 0; i < sl_source_class_count && used < cap; i++) {
        const char *trouble = trouble_of(agent, i);

        if (trouble != NULL)
            used += (size_t)snprintf(why + used, cap - used, "%s%s: %s", used > 0 ? "; " : "",
                                     agent->probes[i].name, trouble);
    }
    return why[0] == '\0';
}

const char *sl_agent_probe_state(struct sl_agent *agent, unsigned i)
{
    bool is_wrong = trouble_of(agent, i) != NULL;

    if (wanted(agent, i) == SL_MON_OFF)
        return "off";
    if (is_up(agent, i))
        return is_wrong ? "stale" : "up";
    return is_wrong ? "down" : "absent";
}

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void probes_update(struct sl_agent *agent)
{
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        agent->probes[i].is_stale = trouble_of(agent, i) != NULL;
        if (agent->places[i].source != NULL && agent->places[i].class->dropped != NULL)
            agent->probes[i].dropped = agent->places[i].class->dropped(agent->places[i].source);
    }
}

unsigned sl_agent_ports(struct sl_agent *agent, const struct sl_mon_port **out, unsigned most)
{
    unsigned count = 0;

    for (unsigned i = 0; i < sl_source_class_count; i++)
        if (agent->places[i].source != NULL && agent->places[i].class->ports != NULL)
            count +=
                agent->places[i].class->ports(agent->places[i].source, out + count, most - count);
    return count;
}

static void more_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct sl_mon_port *ports[PORTS_MAX];
    struct sl_agent *agent = arg;

    for (unsigned i = 0; i < sl_source_class_count; i++)
        if (agent->places[i].source != NULL && agent->places[i].class->metrics != NULL)
            agent->places[i].class->metrics(agent->places[i].source, format, out);
    if (agent->config.node_names != SL_MON_OFF)
        sl_mon_metrics_node(format, ports, sl_agent_ports(agent, ports, PORTS_MAX), out);
    sl_isolation_metrics(agent->isolation, format, out);
    sl_steering_metrics(agent->steering, format, out);
    sl_probing_metrics(agent->probing, format, out);
}

bool sl_agent_metrics(struct sl_agent *agent, enum sl_mon_format format, FILE *out)
{
    const struct sl_mon_port *ports[PORTS_MAX];
    struct sl_mon_metrics metrics = {.format = format,
                                     .mon = agent->mon,
                                     .ports = ports,
                                     .port_count = sl_agent_ports(agent, ports, PORTS_MAX),
                                     .probes = agent->probes,
                                     .probe_count = sl_source_class_count,
                                     .more = more_metrics,
                                     .arg = agent,
                                     .cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                                     .resident_bytes = resident_bytes(),
                                     .waiting = sl_mon_store_waiting(agent->store),
                                     .lost = sl_mon_store_lost(agent->store),
                                     .version = agent->options.version,
                                     .config_is_good = !agent->config_is_bad};

    probes_update(agent);
    memcpy(metrics.transitions, agent->transitions, sizeof(metrics.transitions));
    return sl_mon_metrics_write(&metrics, out);
}

bool sl_agent_json(struct sl_agent *agent, const char *name, struct json_object *out)
{
    bool found = false;

    if (name == NULL || strcmp(name, "isolation") == 0) {
        sl_isolation_json(agent->isolation, out);
        found = true;
    }
    if (name == NULL || strcmp(name, "steering") == 0) {
        sl_steering_json(agent->steering, out);
        found = true;
    }
    if (name == NULL || strcmp(name, "probing") == 0) {
        sl_probing_json(agent->probing, out);
        found = true;
    }
    for (unsigned i = 0; i < sl_source_class_count; i++) {
        const struct place *place = &agent->places[i];

        if (place->source == NULL || place->class->json == NULL ||
            (name != NULL && strcmp(name, place->class->name) != 0))
            continue;
        place->class->json(place->source, out);
        found = true;
    }
    return found;
}

int sl_agent_probe(struct sl_agent *agent, const struct sl_probing_wish *wish, uint64_t *id)
{
    set_time(agent);
    return sl_probing_ask(agent->probing, wish, sl_mon_time(agent->mon), id);
}

const struct sl_mon_ranks *sl_agent_ranks(const struct sl_agent *agent)
{
    return agent->ranks;
}

struct sl_mon_store *sl_agent_store(struct sl_agent *agent)
{
    return agent->store;
}

const struct sl_mon_config *sl_agent_config(const struct sl_agent *agent)
{
    return &agent->config;
}

uint64_t sl_agent_up_ns(const struct sl_agent *agent)
{
    return now_ns(agent) - agent->began_ns;
}

uint64_t sl_agent_epoch_ms(const struct sl_agent *agent)
{
    return agent->epoch_ms;
}

bool sl_agent_records(const struct sl_agent *agent)
{
    return agent->bundle != NULL && !sl_bundle_is_over(agent->bundle);
}

const char *sl_agent_version(const struct sl_agent *agent)
{
    return agent->options.version;
}

bool sl_agent_config_is_good(const struct sl_agent *agent)
{
    return !agent->config_is_bad;
}

void sl_agent_reloaded(struct sl_agent *agent, bool good)
{
    agent->config_is_bad = !good;
}

struct sl_mon *sl_agent_mon(struct sl_agent *agent)
{
    return agent->mon;
}

const struct sl_mon_probe *sl_agent_probes(struct sl_agent *agent, unsigned *count)
{
    probes_update(agent);
    *count = sl_source_class_count;
    return agent->probes;
}

const char *sl_agent_note(const struct sl_agent *agent)
{
    return agent->note;
}
