/* SPDX-License-Identifier: Apache-2.0 */
/* Source: RDMA ports, their state and counters in sysfs (monitor/rdma.h). */
#include "monitor/rdma.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_NS (10 * SL_MON_S) /* between looks for new devices */

struct source {
    struct sl_source_host host;
    struct sl_mon_rdma *rdma;
    struct sl_mon_port ports[SL_MON_RDMA_PORTS_MAX], scratch[SL_MON_RDMA_PORTS_MAX];
    unsigned number[SL_MON_RDMA_PORTS_MAX]; /* of each, in the list of sl_mon_rdma_port() */
    unsigned count;
    uint64_t scanned_ns; /* 0: look again */
};

static const struct sl_mon_port *port_of(const struct source *source,
                                         const struct sl_mon_subject *subject)
{
    for (unsigned i = 0; i < source->count; i++)
        if (source->ports[i].subject == subject)
            return &source->ports[i];
    return NULL;
}

/* Those that were there keep what is known of them. */
static void match(struct source *source, unsigned count)
{
    struct sl_mon_port *ports = source->scratch;
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        struct sl_mon_subject *subject =
            sl_mon_subject(source->host.mon, SL_MON_PORT, sl_mon_rdma_port(source->rdma, i)->name);

        if (subject == NULL)
            continue;
        const struct sl_mon_port *old = port_of(source, subject);

        if (old != NULL)
            ports[kept] = *old;
        else
            sl_source_port_begin(&source->host, &ports[kept], subject);
        source->number[kept++] = i;
    }
    memcpy(source->ports, ports, kept * sizeof(ports[0]));
    source->count = kept;
}

static int scan(struct source *source)
{
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;
    int count;

    if (source->scanned_ns != 0 && now_ns - source->scanned_ns < SCAN_NS)
        return 0;
    source->scanned_ns = now_ns;
    count = sl_mon_rdma_scan(source->rdma);
    if (count < 0)
        return count;
    match(source, (unsigned)count);
    return 0;
}

static int tick(void *arg)
{
    struct source *source = arg;
    struct sl_mon_reading reading;
    int err = scan(source);

    for (unsigned i = 0; err == 0 && i < source->count; i++) {
        struct sl_mon_port *port = &source->ports[i];

        if (sl_mon_rdma_read(source->rdma, source->number[i], &reading) != 0) {
            source->scanned_ns = 0; /* it is gone */
            continue;
        }
        sl_source_port_read(&source->host, port, "sysfs", &reading);
    }
    return err;
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for RDMA ports");
    source->host = *host;
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;

    source->scanned_ns = 0;
    return sl_mon_rdma_open(source->host.config->rdma_root, &source->rdma);
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_rdma_close(source->rdma);
    source->rdma = NULL;
}

static unsigned ports(void *arg, const struct sl_mon_port **out, unsigned most)
{
    struct source *source = arg;
    unsigned count = 0;

    for (; count < source->count && count < most; count++)
        out[count] = &source->ports[count];
    return count;
}

const struct sl_source_class sl_source_rdma = {.name = "rdma",
                                               .how = "sysfs",
                                               .wanted = offsetof(struct sl_mon_config, rdma),
                                               .quiet = SL_SOURCE_QUIET(PORT_INTEGRITY),
                                               .create = create,
                                               .destroy = free,
                                               .open = open_source,
                                               .close = close_source,
                                               .tick = tick,
                                               .ports = ports};
