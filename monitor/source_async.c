/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source: asynchronous events of RDMA devices (monitor/async.h), by a process of its own.
 */
#include "monitor/async.h"
#include "monitor/reader.h"
#include "monitor/source.h"
#include "monitor/verbs_events.h"

#include "core/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SILENT_NS (60 * SL_MON_S) /* it says every few seconds that it lives */
#define AGAIN_NS SL_MON_MIN       /* after it ended */
#define PER_READ 256
#define EMPTY_MOST 32 /* places of a GID table, one after another: there are no more GIDs */

struct source {
    struct sl_source_host host;
    struct sl_mon_reader reader;
    uint64_t heard_ns, next_ns, events, restarts;
    char why[SL_MON_TEXT]; /* it is to be begun later */
    unsigned count;
    struct sl_mon_async_port ports[SL_MON_ASYNC_PORTS_MAX];
    struct sl_mon_gids gids; /* scratch */
    char part[sizeof(struct sl_mon_async_record)];
};

static uint64_t now_ns(const struct source *source)
{
    return sl_mon_time(source->host.mon)->mono_ns;
}

/* ---- sysfs ---- */

static bool is_zero(const char *gid)
{
    return gid[strspn(gid, "0:")] == '\0';
}

/* False: it is empty, or there is none. */
static bool read_gid(int folder, unsigned index, struct sl_mon_gids *out)
{
    char name[16], text[64];
    int fd;
    ssize_t len;

    snprintf(name, sizeof(name), "%u", index);
    fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return false;
    text[len] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (is_zero(text) || strlen(text) >= sizeof(out->gids[0]))
        return false;
    strcpy(out->gids[out->count++], text);
    return true;
}

/* The kernel fills its table from the beginning; of thousand places most are empty. */
static void read_gids(const struct source *source, const struct sl_mon_async_port *port,
                      struct sl_mon_gids *out)
{
    char path[SL_MON_PATH + 128];
    unsigned empty = 0;
    int folder;

    out->count = 0;
    snprintf(path, sizeof(path), "%s/%s/ports/%u/gids", source->host.config->rdma_root,
             port->device, port->num);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    for (unsigned i = 0; i < SL_MON_GIDS_MAX && empty < EMPTY_MOST; i++)
        empty = read_gid(folder, i, out) ? 0 : empty + 1;
    close(folder);
}

/* ---- ports ---- */

static struct sl_mon_async_port *port_of(struct source *source, const char *device, uint32_t num)
{
    for (unsigned i = 0; i < source->count; i++)
        if (source->ports[i].num == num && strcmp(source->ports[i].device, device) == 0)
            return &source->ports[i];
    return NULL;
}

static struct sl_mon_async_port *add(struct source *source,
                                     const struct sl_mon_async_record *record, uint32_t num)
{
    struct sl_mon_async_port *port = port_of(source, record->device, num);

    if (port == NULL && source->count < SL_MON_ASYNC_PORTS_MAX)
        port = &source->ports[source->count++];
    if (port == NULL)
        return NULL;
    port->num = num;
    port->down_ns = 0;
    memcpy(port->device, record->device, sizeof(port->device));
    memcpy(port->pci, record->pci, sizeof(port->pci));
    read_gids(source, port, &port->gids);
    return port;
}

static void add_ports(struct source *source, const struct sl_mon_async_record *record)
{
    char path[SL_MON_PATH + 128];
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s/ports", source->host.config->rdma_root, record->device);
    dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *at = readdir(dir); at != NULL; at = readdir(dir)) {
        unsigned long num = strtoul(at->d_name, NULL, 10);

        if (num >= 1 && num <= 255)
            (void)add(source, record, (uint32_t)num);
    }
    closedir(dir);
}

/* An event of the device is told of its first port. */
static void take_event(struct source *source, const struct sl_mon_async_record *record)
{
    struct sl_mon_async_port *port =
        port_of(source, record->device, record->port != 0 ? record->port : 1);

    source->events++;
    if (port == NULL)
        port = add(source, record, record->port != 0 ? record->port : 1);
    if (port == NULL)
        return;
    if (record->event == SL_MON_ASYNC_GID_CHANGE)
        read_gids(source, port, &source->gids);
    sl_mon_async_judge(source->host.mon, port, record->event, &source->gids);
}

/* ---- the process ---- */

static int be_child(const void *arg, int fd)
{
    const struct source *source = arg;

    return sl_mon_verbs_events_run(fd, source->host.config->rdma_events != SL_MON_ON);
}

/* It is no trouble of the agent, which has other ways to see ports. */
static int put_off(struct source *source, const char *why)
{
    snprintf(source->why, sizeof(source->why), "%s", why);
    source->next_ns = now_ns(source) + AGAIN_NS;
    source->restarts++;
    return sl_fail(-ENODEV, "%s", source->why);
}

static bool has_devices(const struct source *source)
{
    DIR *dir = opendir(source->host.config->rdma_root);
    bool has = false;

    if (dir == NULL)
        return false;
    for (const struct dirent *at = readdir(dir); at != NULL && !has; at = readdir(dir))
        has = at->d_name[0] != '.';
    closedir(dir);
    return has;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err;

    if (!has_devices(source))
        return sl_fail(-ENODEV, "there is no RDMA device in %s", source->host.config->rdma_root);
    if (now_ns(source) < source->next_ns)
        return sl_fail(-ENODEV, "%.200s", source->why);
    err = sl_mon_reader_begin(&source->reader, "sluiced-verbs", be_child, source);
    if (err != 0)
        return err;
    source->heard_ns = now_ns(source);
    return 0;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_reader_end(&source->reader);
    source->count = 0;
}

static int take(void *arg)
{
    struct source *source = arg;
    struct sl_mon_async_record record;
    char why[SL_MON_TEXT];

    if (!sl_mon_async_parse(source->part, sizeof(source->part), &record))
        return put_off(source, "the process of async events says what is no record");
    source->heard_ns = now_ns(source);
    switch (record.type) {
    case SL_MON_ASYNC_ABSENT:
        snprintf(why, sizeof(why), "async events cannot be had: %s", record.text);
        return put_off(source, why);
    case SL_MON_ASYNC_OPENED: add_ports(source, &record); break;
    case SL_MON_ASYNC_EVENT: take_event(source, &record); break;
    default: break;
    }
    return 0;
}

static int read_source(void *arg)
{
    struct source *source = arg;
    int taken = sl_mon_reader_each(&source->reader, source->part, sizeof(source->part), PER_READ,
                                   take, source);

    return taken == -EPIPE ? put_off(source, "the process of async events ended") : taken;
}

static int tick(void *arg)
{
    struct source *source = arg;
    int taken = read_source(source);

    (void)sl_mon_reader_reap(&source->reader);
    if (taken < 0)
        return taken;
    if (now_ns(source) - source->heard_ns > SILENT_NS)
        return put_off(source, "a device did not answer for a minute: the process of async events "
                               "is killed");
    return 0;
}

static int fd(const void *arg)
{
    const struct source *source = arg;

    return source->reader.fd;
}

/* ---- its life ---- */

static void destroy(void *arg)
{
    struct source *source = arg;

    sl_mon_reader_fini(&source->reader);
    free(source);
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for async events");
    source->host = *host;
    sl_mon_reader_init(&source->reader);
    *out = source;
    return 0;
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_rdma_async_events", "counter", "",
                          "Asynchronous events of RDMA devices.");
    fprintf(out, "sluice_rdma_async_events_total %" PRIu64 "\n", source->events);
    sl_mon_metrics_family(format, out, "sluice_rdma_async_restarts", "counter", "",
                          "Times that the process that waits for them ended, or was killed.");
    fprintf(out, "sluice_rdma_async_restarts_total %" PRIu64 "\n", source->restarts);
}

const struct sl_source_class sl_source_async = {
    .name = "rdma",
    .how = "async events",
    .wanted = offsetof(struct sl_mon_config, rdma_events),
    .quiet = SL_SOURCE_QUIET(PORT_EVENT) | SL_SOURCE_QUIET(PORT_GID) | SL_SOURCE_QUIET(NIC_DRIVER),
    .create = create,
    .destroy = destroy,
    .open = open_source,
    .close = close_source,
    .fd = fd,
    .read = read_source,
    .tick = tick,
    .metrics = metrics};
