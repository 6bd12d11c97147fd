/* SPDX-License-Identifier: Apache-2.0 */
/* Source: the kernel's log (monitor/klog.h, monitor/kmsg.h). */
#include "monitor/klog.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>

#define KMSG_PER_TURN 4096 /* records: a flood must not keep the others waiting */

struct source {
    struct sl_source_host host;
    struct sl_mon_klog klog;
    uint64_t lost; /* by earlier ones */
};

static void on_record(void *arg, const struct sl_mon_kmsg *record)
{
    struct source *source = arg;
    struct sl_mon_finding finding;
    struct sl_mon_evidence evidence = {.source = "kmsg", .after = record->number};
    struct sl_mon_subject *subject;

    if (!sl_mon_kmsg_find(record->text, &finding))
        return;
    subject = sl_mon_subject(source->host.mon, sl_mon_checks[finding.check].kind, finding.name);
    if (subject == NULL)
        return;
    snprintf(evidence.text, sizeof(evidence.text), "%.*s", SL_MON_TEXT - 1, record->text);
    sl_mon_sample(source->host.mon, subject, finding.check, true, &evidence);
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

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_klog_open(&source->klog, source->host.config->kmsg_path, false);

    if (err != 0)
        source->klog.fd = -1;
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

    return sl_mon_klog_read(&source->klog, KMSG_PER_TURN, on_record, source);
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
    .quiet = SL_SOURCE_QUIET(NIC_DRIVER) | SL_SOURCE_QUIET(NIC_BUS) | SL_SOURCE_QUIET(GPU_FATAL) |
             SL_SOURCE_QUIET(GPU_ERROR) | SL_SOURCE_QUIET(HOST_MACHINE) |
             SL_SOURCE_QUIET(HOST_HUNG) | SL_SOURCE_QUIET(HOST_MEMORY),
    .create = create,
    .destroy = free,
    .open = open_source,
    .close = close_source,
    .fd = fd,
    .read = read_source,
    .tick = read_source,
    .dropped = dropped};
