/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/rdma.h"

#include "core/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    struct sl_mon_rdma_port port;
    int state, rate, counters[SL_MON_COUNTER_COUNT]; /* descriptors; -1: it has none */
    bool is_there;
};

struct sl_mon_rdma {
    char root[PATH_MAX];
    unsigned count;
    struct entry entries[SL_MON_RDMA_PORTS_MAX];
};

/* ---- what files say ---- */

bool sl_mon_rdma_state(const char *text, bool *is_up)
{
    char *end;
    unsigned long state = strtoul(text, &end, 10);

    if (end == text || *end != ':' || state > 5)
        return false;
    *is_up = state == 4 || state == 5; /* ACTIVE, ACTIVE_DEFER */
    return true;
}

bool sl_mon_rdma_rate(const char *text, uint64_t *bits)
{
    char *end;
    double gbit = strtod(text, &end);

    if (end == text || strncmp(end, " Gb/sec", 7) != 0 || !(gbit >= 0 && gbit < 1e6))
        return false;
    *bits = (uint64_t)(gbit * 1e9);
    return true;
}

/* False: it cannot be read. sysfs gives a file at once. */
static bool read_text(int fd, char *out, size_t cap)
{
    ssize_t len = fd < 0 ? -1 : pread(fd, out, cap - 1, 0);

    if (len <= 0)
        return false;
    out[len] = '\0';
    return true;
}

static bool read_number(int fd, uint64_t *out)
{
    char text[32], *end;

    if (!read_text(fd, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\n' || *end == '\0');
}

/* ---- files ---- */

__attribute__((format(printf, 1, 2))) static int open_file(const char *fmt, ...)
{
    char path[2 * PATH_MAX];
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path, sizeof(path), fmt, args);

    va_end(args);
    return len < 0 || (size_t)len >= sizeof(path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
}

static int open_counter(const struct sl_mon_rdma *rdma, const struct sl_mon_rdma_port *port,
                        const char *name)
{
    static const char *const folders[] = {"counters", "hw_counters"};
    int fd = -1;

    for (unsigned i = 0; i < 2 && fd < 0 && name[0] != '\0'; i++)
        fd = open_file("%s/%s/ports/%u/%s/%s", rdma->root, port->device, port->num, folders[i],
                       name);
    return fd;
}

/* The last part of what a link points to; "" where there is none. */
static void link_name(const char *path, char *out, size_t cap)
{
    char target[PATH_MAX];
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    const char *slash;

    out[0] = '\0';
    if (len <= 0)
        return;
    target[len] = '\0';
    slash = strrchr(target, '/');
    snprintf(out, cap, "%s", slash != NULL ? slash + 1 : target);
}

static void find_hardware(const struct sl_mon_rdma *rdma, struct sl_mon_rdma_port *port)
{
    char path[2 * PATH_MAX], text[64];
    int fd;

    snprintf(path, sizeof(path), "%s/%s/device", rdma->root, port->device);
    link_name(path, port->pci, sizeof(port->pci));
    fd = open_file("%s/%s/ports/%u/gid_attrs/ndevs/0", rdma->root, port->device, port->num);
    if (read_text(fd, text, sizeof(text))) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(port->netif, sizeof(port->netif), "%s", text);
    }
    if (fd >= 0)
        close(fd);
}

static void entry_open(const struct sl_mon_rdma *rdma, struct entry *entry)
{
    const struct sl_mon_rdma_port *port = &entry->port;

    find_hardware(rdma, &entry->port);
    entry->state = open_file("%s/%s/ports/%u/state", rdma->root, port->device, port->num);
    entry->rate = open_file("%s/%s/ports/%u/rate", rdma->root, port->device, port->num);
    for (unsigned i = 0; i < SL_MON_COUNTER_COUNT; i++) {
        entry->counters[i] = open_counter(rdma, port, sl_mon_counters[i].name);
        if (entry->counters[i] < 0)
            entry->counters[i] = open_counter(rdma, port, sl_mon_counters[i].alias);
    }
}

static void entry_close(struct entry *entry)
{
    const int others[] = {entry->state, entry->rate};

    for (unsigned i = 0; i < 2; i++)
        if (others[i] >= 0)
            close(others[i]);
    for (unsigned i = 0; i < SL_MON_COUNTER_COUNT; i++)
        if (entry->counters[i] >= 0)
            close(entry->counters[i]);
}

/* ---- the list ---- */

int sl_mon_rdma_open(const char *root, struct sl_mon_rdma **out)
{
    struct sl_mon_rdma *rdma = calloc(1, sizeof(*rdma));

    if (rdma == NULL)
        return sl_fail(-ENOMEM, "no memory for the list of RDMA ports");
    snprintf(rdma->root, sizeof(rdma->root), "%s", root);
    *out = rdma;
    return 0;
}

void sl_mon_rdma_close(struct sl_mon_rdma *rdma)
{
    if (rdma == NULL)
        return;
    for (unsigned i = 0; i < rdma->count; i++)
        entry_close(&rdma->entries[i]);
    free(rdma);
}

static bool is_number(const char *text, unsigned *out)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (end == text || *end != '\0' || value == 0 || value > 255)
        return false;
    *out = (unsigned)value;
    return true;
}

static void found(struct sl_mon_rdma *rdma, const char *device, unsigned num)
{
    struct entry *entry = &rdma->entries[rdma->count];

    for (unsigned i = 0; i < rdma->count; i++)
        if (rdma->entries[i].port.num == num && strcmp(rdma->entries[i].port.device, device) == 0) {
            rdma->entries[i].is_there = true;
            return;
        }
    if (rdma->count == SL_MON_RDMA_PORTS_MAX || strlen(device) + 5 > SL_MON_NAME)
        return;
    *entry = (struct entry){.port.num = num, .is_there = true};
    snprintf(entry->port.device, sizeof(entry->port.device), "%s", device);
    snprintf(entry->port.name, sizeof(entry->port.name), "%.58s:%u", device, num);
    entry_open(rdma, entry);
    rdma->count++;
}

static void scan_device(struct sl_mon_rdma *rdma, const char *device)
{
    char path[2 * PATH_MAX];
    unsigned num;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/%s/ports", rdma->root, device);
    dir = opendir(path);
    if (dir == NULL)
        return;
    for (const struct dirent *at = readdir(dir); at != NULL; at = readdir(dir))
        if (is_number(at->d_name, &num))
            found(rdma, device, num);
    closedir(dir);
}

static int compare(const void *left, const void *right)
{
    return strverscmp(((const struct entry *)left)->port.name,
                      ((const struct entry *)right)->port.name);
}

int sl_mon_rdma_scan(struct sl_mon_rdma *rdma)
{
    DIR *dir = opendir(rdma->root);
    unsigned kept = 0;

    if (dir == NULL && errno != ENOENT)
        return sl_fail(-EIO, "%s cannot be read: %s", rdma->root, sluice_strerror(-errno));
    for (unsigned i = 0; i < rdma->count; i++)
        rdma->entries[i].is_there = false;
    for (const struct dirent *at = dir == NULL ? NULL : readdir(dir); at != NULL; at = readdir(dir))
        if (at->d_name[0] != '.')
            scan_device(rdma, at->d_name);
    if (dir != NULL)
        closedir(dir);
    for (unsigned i = 0; i < rdma->count; i++) {
        if (!rdma->entries[i].is_there)
            entry_close(&rdma->entries[i]);
        else
            rdma->entries[kept++] = rdma->entries[i];
    }
    rdma->count = kept;
    if (kept > 0)
        qsort(rdma->entries, kept, sizeof(rdma->entries[0]), compare);
    return (int)kept;
}

const struct sl_mon_rdma_port *sl_mon_rdma_port(const struct sl_mon_rdma *rdma, unsigned i)
{
    return i < rdma->count ? &rdma->entries[i].port : NULL;
}

int sl_mon_rdma_read(struct sl_mon_rdma *rdma, unsigned i, struct sl_mon_reading *out)
{
    const struct entry *entry = &rdma->entries[i];
    char text[64];

    sl_assert(i < rdma->count);
    *out = (struct sl_mon_reading){.has = 0};
    if (!read_text(entry->state, text, sizeof(text)))
        return sl_fail(-ENODEV, "the state of %s cannot be read", entry->port.name);
    out->has_state = sl_mon_rdma_state(text, &out->is_up);
    if (read_text(entry->rate, text, sizeof(text)))
        (void)sl_mon_rdma_rate(text, &out->speed);
    for (unsigned c = 0; c < SL_MON_COUNTER_COUNT; c++)
        if (read_number(entry->counters[c], &out->counters[c]))
            out->has |= UINT64_C(1) << c;
    return 0;
}
