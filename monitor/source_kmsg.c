/* SPDX-License-Identifier: Apache-2.0 */
/* Source: the kernel's log (monitor/klog.h, monitor/kmsg.h). */
#include "monitor/klog.h"
#include "monitor/source.h"

#include "core/err.h"
#include "monitor/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KMSG_PER_TURN 4096 /* records: a flood must not keep the others waiting */
#define XIDS_MAX 128       /* 16 GPUs with eight kinds each; what comes then is counted as other */

#define NOTE "kmsg" /* number of the last record that accused */

/* How often a GPU said an XID, and when last: an error that comes twice is two. */
struct xid {
    char gpu[64];
    uint32_t code;
    uint64_t count, last_ns; /* wall clock */
};

struct source {
    struct sl_source_host host;
    struct sl_mon_klog klog;
    uint64_t lost;        /* by earlier ones */
    uint64_t counted;     /* the last record with a finding */
    uint64_t told, noted; /* the last that accused; … and is noted for a later agent */
    struct xid xids[XIDS_MAX];
    unsigned xid_count;
    uint64_t other_xids;
};

static void count_xid(struct source *source, const struct sl_mon_finding *finding)
{
    struct xid *xid = source->xids;

    while (xid < source->xids + source->xid_count &&
           (xid->code != finding->code || strcmp(xid->gpu, finding->name) != 0))
        xid++;
    if (xid == source->xids + XIDS_MAX) {
        source->other_xids++;
        return;
    }
    if (xid == source->xids + source->xid_count) {
        source->xid_count++;
        snprintf(xid->gpu, sizeof(xid->gpu), "%s", finding->name);
        xid->code = finding->code;
    }
    xid->count++;
    xid->last_ns = sl_mon_time(source->host.mon)->wall_ns;
}

static void write_xid(const struct xid *xid, FILE *out, const char *name)
{
    char code[16];

    snprintf(code, sizeof(code), "%" PRIu32, xid->code);
    sl_mon_metrics_open(out, name, "gpu", xid->gpu);
    sl_mon_metrics_label(out, "xid", code);
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_gpu_xid", "counter", "",
                          "XIDs and SXIDs in the kernel's log, also those of before the agent.");
    for (unsigned i = 0; i < source->xid_count; i++) {
        write_xid(&source->xids[i], out, "sluice_gpu_xid_total");
        sl_mon_metrics_number(out, source->xids[i].count);
    }
    sl_mon_metrics_open(out, "sluice_gpu_xid_total", "gpu", "other");
    sl_mon_metrics_label(out, "xid", "other");
    sl_mon_metrics_number(out, source->other_xids);
    sl_mon_metrics_family(format, out, "sluice_gpu_xid_last_timestamp_seconds", "gauge", "seconds",
                          "When one was read last.");
    for (unsigned i = 0; i < source->xid_count; i++) {
        write_xid(&source->xids[i], out, "sluice_gpu_xid_last_timestamp_seconds");
        fprintf(out, "} %.3f\n", (double)source->xids[i].last_ns / 1e9);
    }
}

static bool is_known(const struct sl_mon_kmsg *record, uint64_t last)
{
    return record->has_number && record->number <= last;
}

/* What the kernel said before the agent began counts for as long as its condition would hold. */
static bool is_over(const struct source *source, const struct sl_mon_kmsg *record,
                    enum sl_mon_check check, uint64_t *age_ns)
{
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns, at_ns = record->time_us * 1000;

    *age_ns = record->has_number && now_ns > at_ns ? now_ns - at_ns : 0;
    return *age_ns > sl_mon_checks[check].policy.hold_ns;
}

static void evidence_text(char *out, size_t cap, const char *text, uint64_t age_ns)
{
    if (age_ns < SL_MON_MIN)
        snprintf(out, cap, "%.*s", (int)cap - 1, text);
    else
        snprintf(out, cap, "%" PRIu64 " min ago: %.*s", age_ns / SL_MON_MIN, (int)cap / 2, text);
}

static void on_record(void *arg, const struct sl_mon_kmsg *record)
{
    struct source *source = arg;
    struct sl_mon_finding finding;
    struct sl_mon_evidence evidence = {.source = "kmsg", .after = record->number};
    struct sl_mon_subject *subject;
    uint64_t age_ns;

    if (!sl_mon_kmsg_find(record->text, &finding))
        return;
    if (finding.code != 0 && !is_known(record, source->counted))
        count_xid(source, &finding);
    if (record->has_number)
        source->counted = record->number;
    if (is_known(record, source->told) || is_over(source, record, finding.check, &age_ns))
        return;
    subject = sl_mon_subject(source->host.mon, sl_mon_checks[finding.check].kind, finding.name);
    if (subject == NULL)
        return;
    evidence_text(evidence.text, sizeof(evidence.text), record->text, age_ns);
    sl_mon_sample(source->host.mon, subject, finding.check, true, &evidence);
    if (record->has_number)
        source->told = record->number;
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the kernel's log");
    source->host = *host;
    source->klog.fd = -1;
    *out = source;
    return 0;
}

/* All that the kernel still has: what it said while no agent was there must not be lost. */
static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_klog_open(&source->klog, source->host.config->kmsg_path, true);

    if (err != 0)
        source->klog.fd = -1;
    if (source->told == 0 && source->host.recall != NULL)
        source->told = source->noted = source->host.recall(source->host.arg, NOTE);
    return err;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    source->lost += source->klog.lost;
    source->klog.lost = 0;
    sl_mon_klog_close(&source->klog);
}

static int fd(const void *arg)
{
    const struct source *source = arg;

    return source->klog.fd;
}

/* Also once a period: that nothing was said is a sample, too. */
static int read_source(void *arg)
{
    struct source *source = arg;
    int n;

    n = sl_mon_klog_read(&source->klog, KMSG_PER_TURN, on_record, source);
    if (source->told != source->noted && source->host.note != NULL) {
        source->host.note(source->host.arg, NOTE, source->told);
        source->noted = source->told;
    }
    return n;
}

static uint64_t dropped(const void *arg)
{
    const struct source *source = arg;

    return source->lost + source->klog.lost;
}

const struct sl_source_class sl_source_kmsg = {
    .name = "kmsg",
    .how = "/dev/kmsg",
    .wanted = offsetof(struct sl_mon_config, kmsg),
    .quiet = SL_SOURCE_QUIET(NIC_DRIVER) | SL_SOURCE_QUIET(NIC_BUS) |
             SL_SOURCE_QUIET(NIC_BUS_FATAL) | SL_SOURCE_QUIET(NIC_BUS_CORRECTED) |
             SL_SOURCE_QUIET(GPU_FATAL) | SL_SOURCE_QUIET(GPU_ERROR) |
             SL_SOURCE_QUIET(HOST_MACHINE) | SL_SOURCE_QUIET(HOST_HUNG) |
             SL_SOURCE_QUIET(HOST_MEMORY),
    .create = create,
    .destroy = free,
    .open = open_source,
    .close = close_source,
    .fd = fd,
    .read = read_source,
    .tick = read_source,
    .dropped = dropped,
    .metrics = metrics};
