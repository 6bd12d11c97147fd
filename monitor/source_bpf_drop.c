/* SPDX-License-Identifier: Apache-2.0 */
/* Source: packets that the kernel threw away, by its reasons, by BPF. */
#include "monitor/bpf.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REASON_LENGTH 40
#define PREFIX "SKB_DROP_REASON_"

struct source {
    struct sl_mon_bpf probe; /* first */
    /* Reasons are numbered anew with each kernel: their names are those of the running one's. */
    char names[SL_BPF_REASONS][REASON_LENGTH];
    bool has_names;
};

static const struct sl_mon_bpf_plan plan = {
    .object = "drop",
    .ways = {(const char *const[]){"on_drop", NULL}, (const char *const[]){"on_drop_unsaid", NULL}},
    .way_count = 2,
    .counts = SL_BPF_REASONS};

/* There from the start, whatever was dropped so far. */
static const char *const always[] = {
    "NOT_SPECIFIED", "NO_SOCKET", "TCP_CSUM",  "NETFILTER_DROP", "SOCKET_RCVBUFF", "QDISC_DROP",
    "CPU_BACKLOG",   "DEV_READY", "OTHERHOST", "FULL_RING",      "NOMEM",          "OTHER"};

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe 'drop'");
    sl_mon_bpf_init(&source->probe, host, &plan);
    *out = source;
    return 0;
}

static void on_name(void *arg, const char *name, uint64_t value)
{
    struct source *source = arg;

    if (value < SL_BPF_REASONS - 1 && strncmp(name, PREFIX, strlen(PREFIX)) == 0)
        snprintf(source->names[value], REASON_LENGTH, "%s", name + strlen(PREFIX));
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_bpf_open(&source->probe);

    if (err == 0 && !source->has_names) {
        source->has_names = sl_bpf_enum("skb_drop_reason", on_name, source) == 0;
        if (!source->has_names) /* a kernel before 5.17: all drops are number 0 */
            snprintf(source->names[0], REASON_LENGTH, "NOT_SPECIFIED");
    }
    return err;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_bpf_close(&source->probe);
}

static int tick(void *arg)
{
    struct source *source = arg;

    return sl_mon_bpf_read(&source->probe);
}

static bool is_always(const char *name)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(always); i++)
        if (strcmp(always[i], name) == 0)
            return true;
    return false;
}

/* Those that have no name here: a subsystem's own, or beyond what the probe has places for. */
static const char *name_of(const struct source *source, unsigned reason)
{
    return source->names[reason][0] != '\0' ? source->names[reason] : "OTHER";
}

static uint64_t count_of(const struct source *source, const char *name)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < SL_BPF_REASONS; i++)
        if (strcmp(name_of(source, i), name) == 0)
            count += sl_mon_bpf_count(&source->probe, i);
    return count;
}

static void sample(FILE *out, const char *reason, uint64_t count)
{
    sl_mon_metrics_open(out, "sluice_net_drops_total", "reason", reason);
    sl_mon_metrics_number(out, count);
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_net_drops", "counter", "",
                          "Packets that the kernel threw away, by its reason.");
    for (unsigned i = 0; i < SL_ARRAY_LEN(always); i++)
        sample(out, always[i], count_of(source, always[i]));
    for (unsigned i = 0; i < SL_BPF_REASONS; i++)
        if (sl_mon_bpf_count(&source->probe, i) > 0 && !is_always(name_of(source, i)))
            sample(out, name_of(source, i), sl_mon_bpf_count(&source->probe, i));
}

const struct sl_source_class sl_source_bpf_drop = {.name = "drop",
                                                   .how = "bpf",
                                                   .wanted =
                                                       offsetof(struct sl_mon_config, bpf_tcp),
                                                   .create = create,
                                                   .destroy = free,
                                                   .open = open_source,
                                                   .close = close_source,
                                                   .tick = tick,
                                                   .metrics = metrics};
