/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/agent.h"

#include "monitor/event_line.h"
#include "monitor/klog.h"
#include "monitor/link.h"
#include "monitor/rdma.h"
#include "monitor/store.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LINKS_MAX 256
#define SCAN_NS (10 * SL_MON_S)  /* between looks for new devices */
#define RETRY_NS (10 * SL_MON_S) /* and attempts to have a source back */
#define STALE_PERIODS 5          /* a source that was not read for so many is stale */
#define KMSG_PER_TURN 4096       /* records: a flood must not keep the others waiting */
#define EVENTS_PER_TICK 256

enum probe { PROBE_LINK, PROBE_RDMA, PROBE_KMSG, PROBES };

struct netif {
    int ifindex; /* 0: a place that is free */
    struct sl_mon_link_track track;
    struct sl_mon_port port;
};

struct sl_agent {
    struct sl_agent_options options;
    struct sl_mon_config config;
    struct sl_mon *mon;
    struct sl_mon_store *store;
    struct sl_mon_probe probes[PROBES];
    uint64_t down_ns[PROBES]; /* tried last */
    struct sl_mon_links *links;
    struct sl_mon_rdma *rdma;
    struct sl_mon_klog klog;
    struct netif netifs[LINKS_MAX];
    struct sl_mon_port rdma_ports[SL_MON_RDMA_PORTS_MAX];
    unsigned rdma_count;
    uint64_t scanned_ns, written; /* the last event that was */
    uint64_t transitions[SL_MON_CHECK_COUNT][SL_MON_STATES];
    uint64_t not_stored;
    FILE *events; /* NULL: none */
    struct sl_mon_port scratch_ports[SL_MON_RDMA_PORTS_MAX];
    struct sl_mon_record scratch_records[64];
    int epoll_fd;
    bool config_is_bad;
    char note[512];
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

static void sampled(struct sl_agent *agent, enum probe which)
{
    agent->probes[which].is_up = true;
    agent->probes[which].why[0] = '\0';
    agent->probes[which].sampled_ns = sl_mon_time(agent->mon)->wall_ns;
    agent->down_ns[which] = now_ns(agent);
}

static void failed(struct sl_agent *agent, enum probe which)
{
    agent->probes[which].is_up = false;
    snprintf(agent->probes[which].why, sizeof(agent->probes[which].why), "%s", sluice_last_error());
    agent->down_ns[which] = now_ns(agent);
}

static bool may_retry(const struct sl_agent *agent, enum probe which)
{
    return agent->down_ns[which] == 0 || now_ns(agent) - agent->down_ns[which] >= RETRY_NS;
}

static void watch(struct sl_agent *agent, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    (void)epoll_ctl(agent->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* ---- links ---- */

static bool is_ignored(const struct sl_agent *agent, const struct sl_mon_link *link)
{
    if (link->is_loopback)
        return true;
    for (const char *at = agent->config.link_ignore; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ",");

        if (len > 0 && strncmp(link->name, at, len) == 0)
            return true;
        at += len;
    }
    return false;
}

static struct netif *netif_of(struct sl_agent *agent, const struct sl_mon_link *link)
{
    struct netif *free_one = NULL;

    for (unsigned i = 0; i < LINKS_MAX; i++) {
        if (agent->netifs[i].ifindex == link->ifindex)
            return &agent->netifs[i];
        if (agent->netifs[i].ifindex == 0 && free_one == NULL)
            free_one = &agent->netifs[i];
    }
    struct sl_mon_subject *subject =
        free_one == NULL ? NULL : sl_mon_subject(agent->mon, SL_MON_PORT, link->name);

    if (subject == NULL)
        return NULL;
    *free_one = (struct netif){.ifindex = link->ifindex};
    sl_mon_port_init(&free_one->port, subject);
    return free_one;
}

static void on_link(void *arg, const struct sl_mon_link *link)
{
    struct sl_agent *agent = arg;
    struct sl_mon_link_change change;
    struct sl_mon_reading reading;

    if (is_ignored(agent, link))
        return;
    struct netif *netif = netif_of(agent, link);

    if (netif == NULL)
        return;
    if (link->is_gone) { /* what is known of the subject stays, for when it returns */
        netif->ifindex = 0;
        return;
    }
    sl_mon_link_track(&netif->track, link, now_ns(agent), &change);
    sl_mon_link_reading(link, &reading);
    if (link->is_answer) /* once a period, so that what is down for a moment is not what is down */
        sl_mon_port_read(agent->mon, &netif->port, "rtnetlink", &reading);
    if (change.flaps != 0)
        sl_mon_port_flapped(agent->mon, &netif->port, "rtnetlink", change.flaps, change.lasted_ns);
}

static void links_read(struct sl_agent *agent)
{
    if (agent->links == NULL)
        return;
    int n = sl_mon_links_read(agent->links, on_link, agent);

    agent->probes[PROBE_LINK].dropped = sl_mon_links_lost(agent->links);
    if (n > 0)
        sampled(agent, PROBE_LINK);
    if (n >= 0 || n == -ENOBUFS)
        return;
    failed(agent, PROBE_LINK);
    sl_mon_links_close(agent->links);
    agent->links = NULL;
}

static void links_tick(struct sl_agent *agent)
{
    if (!agent->config.link)
        return;
    if (agent->links != NULL) {
        (void)sl_mon_links_ask(agent->links);
        return;
    }
    if (!may_retry(agent, PROBE_LINK))
        return;
    if (sl_mon_links_open(&agent->links) != 0) {
        failed(agent, PROBE_LINK);
        return;
    }
    sampled(agent, PROBE_LINK);
    watch(agent, sl_mon_links_fd(agent->links));
}

/* ---- RDMA ports ---- */

/* Those that were there keep what is known of them. */
static void rdma_match(struct sl_agent *agent, unsigned count)
{
    struct sl_mon_port *ports = agent->scratch_ports;
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        struct sl_mon_subject *subject =
            sl_mon_subject(agent->mon, SL_MON_PORT, sl_mon_rdma_port(agent->rdma, i)->name);

        if (subject == NULL)
            continue;
        sl_mon_port_init(&ports[kept], subject);
        for (unsigned j = 0; j < agent->rdma_count; j++)
            if (agent->rdma_ports[j].subject == subject)
                ports[kept] = agent->rdma_ports[j];
        kept++;
    }
    memcpy(agent->rdma_ports, ports, kept * sizeof(ports[0]));
    agent->rdma_count = kept;
}

static void rdma_tick(struct sl_agent *agent)
{
    struct sl_mon_reading reading;

    if (!agent->config.rdma)
        return;
    if (agent->scanned_ns == 0 || now_ns(agent) - agent->scanned_ns >= SCAN_NS) {
        int count = sl_mon_rdma_scan(agent->rdma);

        agent->scanned_ns = now_ns(agent);
        if (count < 0) {
            failed(agent, PROBE_RDMA);
            return;
        }
        rdma_match(agent, (unsigned)count);
    }
    for (unsigned i = 0; i < agent->rdma_count; i++)
        if (sl_mon_rdma_read(agent->rdma, i, &reading) == 0)
            sl_mon_port_read(agent->mon, &agent->rdma_ports[i], "sysfs", &reading);
        else
            agent->scanned_ns = 0; /* it is gone: look again */
    sampled(agent, PROBE_RDMA);
}

/* ---- the kernel's log ---- */

static void on_record(void *arg, const struct sl_mon_kmsg *record)
{
    struct sl_agent *agent = arg;
    struct sl_mon_finding finding;
    struct sl_mon_evidence evidence = {.source = "kmsg", .after = record->number};
    struct sl_mon_subject *subject;

    if (!sl_mon_kmsg_find(record->text, &finding))
        return;
    subject = sl_mon_subject(agent->mon, sl_mon_checks[finding.check].kind, finding.name);
    if (subject == NULL)
        return;
    snprintf(evidence.text, sizeof(evidence.text), "%.*s", SL_MON_TEXT - 1, record->text);
    sl_mon_sample(agent->mon, subject, finding.check, true, &evidence);
}

static void klog_read(struct sl_agent *agent)
{
    int n = sl_mon_klog_read(&agent->klog, KMSG_PER_TURN, on_record, agent);

    agent->probes[PROBE_KMSG].dropped = agent->klog.lost;
    if (n < 0)
        failed(agent, PROBE_KMSG);
}

static void klog_tick(struct sl_agent *agent)
{
    if (!agent->config.kmsg)
        return;
    if (agent->klog.fd >= 0) {
        klog_read(agent);
        if (agent->klog.fd >= 0)
            sampled(agent, PROBE_KMSG); /* that nothing was said is a sample, too */
        return;
    }
    if (!may_retry(agent, PROBE_KMSG))
        return;
    if (sl_mon_klog_open(&agent->klog, agent->config.kmsg_path, false) != 0) {
        agent->klog.fd = -1;
        failed(agent, PROBE_KMSG);
        return;
    }
    sampled(agent, PROBE_KMSG);
    watch(agent, agent->klog.fd);
}

/* ---- what is quiet ---- */

/* Which source a quiet check depends on: it calms down only while that one is alive. */
static enum probe probe_of(enum sl_mon_check check)
{
    switch (check) {
    case SL_MON_CHECK_PORT_FLAP: return PROBE_LINK;
    case SL_MON_CHECK_PORT_INTEGRITY: return PROBE_RDMA;
    default: return PROBE_KMSG;
    }
}

static void calm(struct sl_agent *agent)
{
    for (unsigned i = 0; i < SL_MON_CHECK_COUNT; i++)
        if (sl_mon_checks[i].policy.quiet && agent->probes[probe_of(i)].is_up)
            sl_mon_calm(agent->mon, (enum sl_mon_check)i);
}

/* ---- transitions ---- */

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    struct sl_agent *agent = arg;

    agent->transitions[transition->check][transition->step.to]++;
    if (sl_mon_store_put(agent->store, transition) != 0)
        agent->not_stored++;
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

static int engine_open(struct sl_agent *agent)
{
    const struct sl_mon_options options = {.subjects_max = (size_t)agent->config.subjects,
                                           .next_id = sl_mon_store_next(agent->store),
                                           .on_transition = on_transition,
                                           .arg = agent};
    char boot_id[SL_MON_BOOT_ID];
    int err = sl_mon_create(&options, &agent->mon);

    if (err != 0)
        return err;
    set_time(agent);
    if (agent->options.boot_id != NULL)
        snprintf(boot_id, sizeof(boot_id), "%s", agent->options.boot_id);
    else
        read_boot_id(boot_id, sizeof(boot_id));
    err = sl_mon_store_restore(agent->store, agent->mon);
    sl_mon_set_boot(agent->mon, boot_id);
    return err != 0 ? err : sl_mon_store_boot(agent->store, boot_id);
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
    agent->klog.fd = -1;
    agent->probes[PROBE_LINK] = (struct sl_mon_probe){.name = "link", .how = "rtnetlink"};
    agent->probes[PROBE_RDMA] = (struct sl_mon_probe){.name = "rdma", .how = "sysfs"};
    agent->probes[PROBE_KMSG] = (struct sl_mon_probe){.name = "kmsg", .how = "/dev/kmsg"};
    agent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = agent->epoll_fd < 0 ? sl_fail(-errno, "epoll: %s", sluice_strerror(-errno))
                              : store_open(agent);
    if (err == 0)
        err = engine_open(agent);
    if (err == 0)
        err = sl_mon_rdma_open(agent->config.rdma_root, &agent->rdma);
    if (err == 0)
        err = outputs_open(agent);
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
    if (agent->events != NULL && agent->events != stdout)
        fclose(agent->events);
    sl_mon_links_close(agent->links);
    sl_mon_rdma_close(agent->rdma);
    sl_mon_klog_close(&agent->klog);
    sl_mon_destroy(agent->mon);
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
    set_time(agent);
    links_read(agent);
    if (agent->klog.fd >= 0)
        klog_read(agent);
    write_events(agent);
}

void sl_agent_tick(struct sl_agent *agent)
{
    set_time(agent);
    links_tick(agent);
    rdma_tick(agent);
    klog_tick(agent);
    links_read(agent);
    calm(agent);
    write_events(agent);
}

/* ---- what others ask ---- */

bool sl_agent_is_fresh(struct sl_agent *agent, char *why, size_t cap)
{
    const bool wanted[PROBES] = {agent->config.link, agent->config.rdma, agent->config.kmsg};
    uint64_t period_ns = (uint64_t)agent->config.period_ms * 1000000;
    size_t used = 0;

    set_time(agent);
    why[0] = '\0';
    for (unsigned i = 0; i < PROBES; i++) {
        const struct sl_mon_probe *probe = &agent->probes[i];
        bool is_stale = now_ns(agent) - agent->down_ns[i] > STALE_PERIODS * period_ns;

        if (!wanted[i] || (probe->is_up && !is_stale))
            continue;
        used +=
            (size_t)snprintf(why + used, cap - used, "%s%s: %s", used > 0 ? "; " : "", probe->name,
                             probe->is_up         ? "was not read in time"
                             : probe->why[0] != 0 ? probe->why
                                                  : "has not begun");
        if (used >= cap)
            break;
    }
    return why[0] == '\0';
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

bool sl_agent_metrics(struct sl_agent *agent, enum sl_mon_format format, FILE *out)
{
    const struct sl_mon_port *ports[LINKS_MAX + SL_MON_RDMA_PORTS_MAX];
    struct sl_mon_metrics metrics = {.format = format,
                                     .mon = agent->mon,
                                     .ports = ports,
                                     .probes = agent->probes,
                                     .probe_count = PROBES,
                                     .cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                                     .resident_bytes = resident_bytes(),
                                     .version = agent->options.version,
                                     .config_is_good = !agent->config_is_bad};

    for (unsigned i = 0; i < agent->rdma_count; i++)
        ports[metrics.port_count++] = &agent->rdma_ports[i];
    for (unsigned i = 0; i < LINKS_MAX; i++)
        if (agent->netifs[i].ifindex != 0)
            ports[metrics.port_count++] = &agent->netifs[i].port;
    memcpy(metrics.transitions, agent->transitions, sizeof(metrics.transitions));
    return sl_mon_metrics_write(&metrics, out);
}

void sl_agent_reloaded(struct sl_agent *agent, bool good)
{
    agent->config_is_bad = !good;
}

struct sl_mon *sl_agent_mon(struct sl_agent *agent)
{
    return agent->mon;
}

const struct sl_mon_probe *sl_agent_probes(const struct sl_agent *agent, unsigned *count)
{
    *count = PROBES;
    return agent->probes;
}

const char *sl_agent_note(const struct sl_agent *agent)
{
    return agent->note;
}
