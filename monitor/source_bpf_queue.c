/* SPDX-License-Identifier: Apache-2.0 */
/* Sources: the transmit queues of network interfaces, by BPF: what drivers do not take, queues that
 * stand still, how long packets wait. Only a queue that the kernel's watchdog gave up accuses. */
#include "monitor/bpf.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_PERIODS 10 /* between looks for new interfaces */
#define NUMBERS 3

/* An interface, and what was counted of it. */
struct device {
    char name[IF_NAMESIZE];
    uint64_t totals[NUMBERS];
    uint64_t max_ns; /* in the last period */
};

/* What an entry of a map had when it was read last. */
struct seen {
    struct sl_bpf_queue_key key;
    uint64_t numbers[NUMBERS];
};

struct source {
    struct sl_mon_bpf probe; /* first */
    struct device devices[SL_BPF_DEVICES];
    unsigned device_count, periods;
    struct seen seen[SL_BPF_QUEUES];
    unsigned seen_count;
    union {
        uint32_t ifindexes[SL_BPF_QUEUES];
        struct sl_bpf_queue_key queues[SL_BPF_QUEUES];
    } keys;
    union {
        struct sl_bpf_xmit xmit[SL_BPF_DEVICES];
        struct sl_bpf_timeout timeouts[SL_BPF_QUEUES];
        struct sl_bpf_queueing queueing[SL_BPF_DEVICES];
    } values;
};

static const struct sl_mon_bpf_plan xmit = {.object = "xmit",
                                            .ways = {(const char *const[]){"on_xmit", NULL}},
                                            .way_count = 1,
                                            .has_devices = true};
static const struct sl_mon_bpf_plan timeout = {.object = "timeout",
                                               .ways = {(const char *const[]){"on_timeout", NULL}},
                                               .way_count = 1,
                                               .has_devices = true};
static const struct sl_mon_bpf_plan qdisc = {
    .object = "qdisc",
    .ways = {(const char *const[]){"on_enqueue", "on_dequeue", NULL}},
    .way_count = 1,
    .has_devices = true};
static const struct sl_mon_bpf_plan stall = {.object = "stall",
                                             .ways = {(const char *const[]){"on_stall", NULL}},
                                             .way_count = 1,
                                             .counts = 1};

static int create(const struct sl_mon_bpf_plan *plan, const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe '%s'", plan->object);
    sl_mon_bpf_init(&source->probe, host, plan);
    *out = source;
    return 0;
}

static int create_xmit(const struct sl_source_host *host, void **out)
{
    return create(&xmit, host, out);
}

static int create_timeout(const struct sl_source_host *host, void **out)
{
    return create(&timeout, host, out);
}

static int create_qdisc(const struct sl_source_host *host, void **out)
{
    return create(&qdisc, host, out);
}

static int create_stall(const struct sl_source_host *host, void **out)
{
    return create(&stall, host, out);
}

/* ---- interfaces ---- */

/* NULL: it is not watched, or there are too many. */
static struct device *device_of(struct source *source, const char *name)
{
    struct device *device;

    for (unsigned i = 0; i < source->device_count; i++)
        if (strcmp(source->devices[i].name, name) == 0)
            return &source->devices[i];
    if (name[0] == '\0' || source->device_count == SL_BPF_DEVICES ||
        sl_mon_bpf_is_ignored(&source->probe, name))
        return NULL;
    device = &source->devices[source->device_count++];
    *device = (struct device){{0}};
    snprintf(device->name, sizeof(device->name), "%s", name);
    return device;
}

/* So that their counters are there, at 0, before anything happens. */
static void scan(struct source *source)
{
    struct if_nameindex *list;

    if (source->periods++ % SCAN_PERIODS != 0)
        return;
    list = if_nameindex();
    for (const struct if_nameindex *at = list; at != NULL && at->if_index != 0; at++)
        (void)device_of(source, at->if_name);
    if_freenameindex(list);
}

/* What has come since the last reading. An entry that went and came again began at 0. */
static void add(struct source *source, struct sl_bpf_queue_key key, const char *name,
                const uint64_t *numbers, uint64_t *delta)
{
    struct device *device;
    struct seen *seen = NULL;
    char tame[IF_NAMESIZE];

    for (unsigned i = 0; i < source->seen_count && seen == NULL; i++)
        if (source->seen[i].key.ifindex == key.ifindex && source->seen[i].key.queue == key.queue)
            seen = &source->seen[i];
    if (seen == NULL) {
        if (source->seen_count == SL_BPF_QUEUES)
            source->seen_count = 0; /* all anew; what was there is counted twice at worst */
        seen = &source->seen[source->seen_count++];
        *seen = (struct seen){.key = key};
    }
    snprintf(tame, sizeof(tame), "%.*s", (int)strnlen(name, IF_NAMESIZE - 1), name);
    device = device_of(source, tame);
    for (unsigned i = 0; i < NUMBERS; i++) {
        delta[i] = numbers[i] - (numbers[i] >= seen->numbers[i] ? seen->numbers[i] : 0);
        seen->numbers[i] = numbers[i];
        if (device != NULL)
            device->totals[i] += delta[i];
    }
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_bpf_open(&source->probe);

    if (err == 0 && source->probe.plan->has_devices) {
        source->seen_count = 0;
        source->periods = 0;
        scan(source);
    }
    return err;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_bpf_close(&source->probe);
}

/* ---- what drivers do not take ---- */

static int xmit_tick(void *arg)
{
    struct source *source = arg;
    int count = sl_bpf_list(source->probe.bpf, "devices", source->keys.ifindexes,
                            source->values.xmit, SL_BPF_DEVICES);
    uint64_t delta[NUMBERS];

    if (count < 0)
        return count;
    scan(source);
    for (int i = 0; i < count; i++) {
        const struct sl_bpf_xmit *value = &source->values.xmit[i];
        const uint64_t numbers[NUMBERS] = {value->busy, value->dropped};

        add(source, (struct sl_bpf_queue_key){.ifindex = source->keys.ifindexes[i]}, value->device,
            numbers, delta);
    }
    return 0;
}

static void xmit_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    static const char *const kinds[] = {"busy", "dropped"};
    struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_net_transmit_failures", "counter", "",
                          "Packets that an interface's driver did not take: it was busy, or "
                          "dropped them.");
    for (unsigned i = 0; i < source->device_count; i++)
        for (unsigned kind = 0; kind < SL_ARRAY_LEN(kinds); kind++) {
            sl_mon_metrics_open(out, "sluice_net_transmit_failures_total", "device",
                                source->devices[i].name);
            sl_mon_metrics_label(out, "kind", kinds[kind]);
            sl_mon_metrics_number(out, source->devices[i].totals[kind]);
        }
}

/* ---- queues that stand still ---- */

static void accuse(struct source *source, const char *name, unsigned queue, uint64_t before,
                   uint64_t after)
{
    struct sl_mon_subject *subject = sl_mon_subject(source->probe.host.mon, SL_MON_PORT, name);
    struct sl_mon_evidence evidence = {.source = "bpf", .before = before, .after = after};

    if (subject == NULL)
        return;
    snprintf(evidence.text, sizeof(evidence.text),
             "transmit queue %u stood still until the kernel's watchdog found it, %" PRIu64
             " times since the last look",
             queue, after - before);
    sl_mon_sample(source->probe.host.mon, subject, SL_MON_CHECK_PORT_TIMEOUT, true, &evidence);
}

static int timeout_tick(void *arg)
{
    struct source *source = arg;
    int count = sl_bpf_list(source->probe.bpf, "queues", source->keys.queues,
                            source->values.timeouts, SL_BPF_QUEUES);
    uint64_t delta[NUMBERS];

    if (count < 0)
        return count;
    scan(source);
    for (int i = 0; i < count; i++) {
        struct sl_bpf_timeout *value = &source->values.timeouts[i];
        const uint64_t numbers[NUMBERS] = {value->count};

        value->device[sizeof(value->device) - 1] = '\0';
        add(source, source->keys.queues[i], value->device, numbers, delta);
        if (delta[0] > 0 && !sl_mon_bpf_is_ignored(&source->probe, value->device))
            accuse(source, value->device, source->keys.queues[i].queue, value->count - delta[0],
                   value->count);
    }
    return 0;
}

static void timeout_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_net_transmit_timeouts", "counter", "",
                          "Transmit queues of an interface that the kernel's watchdog found "
                          "standing still.");
    for (unsigned i = 0; i < source->device_count; i++) {
        sl_mon_metrics_open(out, "sluice_net_transmit_timeouts_total", "device",
                            source->devices[i].name);
        sl_mon_metrics_number(out, source->devices[i].totals[0]);
    }
}

/* ---- how long packets wait ---- */

static int qdisc_tick(void *arg)
{
    struct source *source = arg;
    int count = sl_bpf_list(source->probe.bpf, "devices", source->keys.ifindexes,
                            source->values.queueing, SL_BPF_DEVICES);
    uint64_t delta[NUMBERS];

    if (count < 0)
        return count;
    scan(source);
    for (unsigned i = 0; i < source->device_count; i++)
        source->devices[i].max_ns = 0;
    for (int i = 0; i < count; i++) {
        struct sl_bpf_queueing *value = &source->values.queueing[i];
        const uint64_t numbers[NUMBERS] = {value->count, value->sum_ns};
        struct device *device;

        value->device[sizeof(value->device) - 1] = '\0';
        add(source, (struct sl_bpf_queue_key){.ifindex = source->keys.ifindexes[i]}, value->device,
            numbers, delta);
        device = device_of(source, value->device);
        if (device != NULL && value->epoch == source->probe.settings.epoch)
            device->max_ns = value->max_ns;
    }
    return sl_mon_bpf_period(&source->probe);
}

static void qdisc_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_net_queueing_samples", "counter", "",
                          "Packets whose time in an interface's queue was measured: a sample.");
    for (unsigned i = 0; i < source->device_count; i++) {
        sl_mon_metrics_open(out, "sluice_net_queueing_samples_total", "device",
                            source->devices[i].name);
        sl_mon_metrics_number(out, source->devices[i].totals[0]);
    }
    sl_mon_metrics_family(format, out, "sluice_net_queueing_seconds", "counter", "seconds",
                          "Time that those packets spent there, in all.");
    for (unsigned i = 0; i < source->device_count; i++) {
        sl_mon_metrics_open(out, "sluice_net_queueing_seconds_total", "device",
                            source->devices[i].name);
        sl_mon_metrics_seconds(out, source->devices[i].totals[1]);
    }
    sl_mon_metrics_family(format, out, "sluice_net_queueing_max_seconds", "gauge", "seconds",
                          "The longest such time within the last period.");
    for (unsigned i = 0; i < source->device_count; i++) {
        sl_mon_metrics_open(out, "sluice_net_queueing_max_seconds", "device",
                            source->devices[i].name);
        sl_mon_metrics_seconds(out, source->devices[i].max_ns);
    }
}

/* ---- completions that stand still ---- */

static int stall_tick(void *arg)
{
    struct source *source = arg;

    return sl_mon_bpf_read(&source->probe);
}

static void stall_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct source *source = arg;

    sl_mon_bpf_counter(
        format, out, "sluice_net_transmit_stalls",
        "Transmit queues whose completions stood still longer than their interface's "
        "stall_thrs.",
        sl_mon_bpf_count(&source->probe, 0));
}

const struct sl_source_class sl_source_bpf_xmit = {.name = "net_xmit",
                                                   .how = "bpf",
                                                   .wanted =
                                                       offsetof(struct sl_mon_config, bpf_queue),
                                                   .create = create_xmit,
                                                   .destroy = free,
                                                   .open = open_source,
                                                   .close = close_source,
                                                   .tick = xmit_tick,
                                                   .metrics = xmit_metrics};

const struct sl_source_class sl_source_bpf_timeout = {.name = "net_timeout",
                                                      .how = "bpf",
                                                      .wanted =
                                                          offsetof(struct sl_mon_config, bpf_queue),
                                                      .quiet = SL_SOURCE_QUIET(PORT_TIMEOUT),
                                                      .create = create_timeout,
                                                      .destroy = free,
                                                      .open = open_source,
                                                      .close = close_source,
                                                      .tick = timeout_tick,
                                                      .metrics = timeout_metrics};

const struct sl_source_class sl_source_bpf_qdisc = {.name = "net_queueing",
                                                    .how = "bpf",
                                                    .wanted =
                                                        offsetof(struct sl_mon_config, bpf_queue),
                                                    .create = create_qdisc,
                                                    .destroy = free,
                                                    .open = open_source,
                                                    .close = close_source,
                                                    .tick = qdisc_tick,
                                                    .metrics = qdisc_metrics};

const struct sl_source_class sl_source_bpf_stall = {.name = "net_stall",
                                                    .how = "bpf",
                                                    .wanted =
                                                        offsetof(struct sl_mon_config, bpf_queue),
                                                    .create = create_stall,
                                                    .destroy = free,
                                                    .open = open_source,
                                                    .close = close_source,
                                                    .tick = stall_tick,
                                                    .metrics = stall_metrics};
