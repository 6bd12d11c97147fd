/* SPDX-License-Identifier: Apache-2.0 */
/* Source: PCIe links of NICs and GPUs, in sysfs (monitor/pcie.h). */
#include "monitor/pcie.h"
#include "monitor/source.h"

#include "core/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PERIOD_NS (10 * SL_MON_S)
#define DEVICES_MAX 128
#define TRAFFIC_MAX 8 /* files that count what a NIC carries */
#define NAME_MOST 16  /* "0000:0c:00.0", with domains of five digits */

struct device {
    char name[NAME_MOST];
    struct sl_mon_subject *subject;
    int folder, speed, lanes, config; /* descriptors; -1: it has none */
    int traffic[TRAFFIC_MAX];
    unsigned traffic_count;
    struct sl_mon_pcie_link now, most;
    uint64_t carried;
    bool has_carried, was_used, is_there;
    unsigned ifindex;        /* 0: none */
    char rdma[NAME_MAX + 1]; /* "mlx5_0"; "": none */
};

struct source {
    struct sl_source_host host;
    unsigned count;
    struct device devices[DEVICES_MAX];
};

/* ---- files ---- */

static int open_at(int folder, const char *path, int flags)
{
    return openat(folder, path, O_RDONLY | O_CLOEXEC | flags);
}

static bool read_text(int fd, char *out, size_t cap)
{
    ssize_t len = fd < 0 ? -1 : pread(fd, out, cap - 1, 0);

    if (len <= 0)
        return false;
    out[len] = '\0';
    return true;
}

static bool read_text_at(int folder, const char *path, char *out, size_t cap)
{
    int fd = open_at(folder, path, 0);
    bool is_read = read_text(fd, out, cap);

    if (fd >= 0)
        close(fd);
    return is_read;
}

static void close_all(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* The first name in a folder that is no dot. */
static bool first_in(int folder, const char *path, char *out, size_t cap)
{
    int fd = open_at(folder, path, O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool is_found = false;

    if (dir == NULL)
        return false;
    for (const struct dirent *at = readdir(dir); at != NULL && !is_found; at = readdir(dir))
        if (at->d_name[0] != '.' && strlen(at->d_name) < cap) {
            strcpy(out, at->d_name);
            is_found = true;
        }
    closedir(dir);
    return is_found;
}

/* ---- a device ---- */

static struct sl_mon_pcie_link read_most(int folder, const char *above)
{
    struct sl_mon_pcie_link link = {.lanes = 0};
    char path[64], text[64];

    snprintf(path, sizeof(path), "%smax_link_speed", above);
    if (read_text_at(folder, path, text, sizeof(text)))
        link.mega_transfers = sl_mon_pcie_speed(text);
    snprintf(path, sizeof(path), "%smax_link_width", above);
    if (read_text_at(folder, path, text, sizeof(text)))
        link.lanes = sl_mon_pcie_lanes(text);
    return link;
}

static void add_traffic(struct device *device, const char *path)
{
    int fd = device->traffic_count < TRAFFIC_MAX ? open_at(device->folder, path, 0) : -1;

    if (fd >= 0)
        device->traffic[device->traffic_count++] = fd;
}

/* Its interface and its RDMA device: what they are called, and what they carry. */
static void find_classes(struct device *device)
{
    char name[NAME_MAX + 1], path[2 * NAME_MAX], text[32];

    close_all(device->traffic, device->traffic_count);
    device->traffic_count = 0;
    if (first_in(device->folder, "net", name, sizeof(name))) {
        snprintf(path, sizeof(path), "net/%s/ifindex", name);
        if (read_text_at(device->folder, path, text, sizeof(text)))
            device->ifindex = (unsigned)strtoul(text, NULL, 10);
        snprintf(path, sizeof(path), "net/%s/statistics/rx_bytes", name);
        add_traffic(device, path);
        snprintf(path, sizeof(path), "net/%s/statistics/tx_bytes", name);
        add_traffic(device, path);
    }
    if (first_in(device->folder, "infiniband", name, sizeof(name))) {
        snprintf(device->rdma, sizeof(device->rdma), "%s", name);
        snprintf(path, sizeof(path), "infiniband/%s/ports/1/counters/port_rcv_data", name);
        add_traffic(device, path);
        snprintf(path, sizeof(path), "infiniband/%s/ports/1/counters/port_xmit_data", name);
        add_traffic(device, path);
    }
}

static void device_close(struct device *device)
{
    close_all(device->traffic, device->traffic_count);
    device->traffic_count = 0;
    close_all(&device->speed, 1);
    close_all(&device->lanes, 1);
    close_all(&device->config, 1);
    close_all(&device->folder, 1);
}

/* False: it is none that is watched. */
static bool device_open(struct device *device, int root, const char *name)
{
    char text[32];
    enum sl_mon_kind kind;
    struct stat status;
    int folder = open_at(root, name, O_DIRECTORY);

    if (folder < 0)
        return false;
    /* A virtual function has no link of its own. */
    if (!read_text_at(folder, "class", text, sizeof(text)) || !sl_mon_pcie_kind(text, &kind) ||
        fstatat(folder, "physfn", &status, AT_SYMLINK_NOFOLLOW) == 0) {
        close(folder);
        return false;
    }
    device->folder = folder;
    device->speed = open_at(folder, "current_link_speed", 0);
    device->lanes = open_at(folder, "current_link_width", 0);
    device->config = open_at(folder, "config", 0);
    device->most = sl_mon_pcie_common(read_most(folder, ""), read_most(folder, "../"));
    return true;
}

static void use(const struct source *source, struct device *device)
{
    uint64_t carried = 0;
    char text[32];

    for (unsigned i = 0; i < device->traffic_count; i++)
        if (read_text(device->traffic[i], text, sizeof(text)))
            carried += strtoull(text, NULL, 10);
    if (device->has_carried && carried != device->carried)
        sl_mon_use(source->host.mon, device->subject);
    device->carried = carried;
    device->has_carried = true;
    device->was_used = sl_mon_in_use(source->host.mon, device->subject);
}

/* A device that has fallen off the bus reads as ones. */
static bool is_off_bus(const struct device *device)
{
    unsigned char id[2];

    return device->config >= 0 && pread(device->config, id, 2, 0) == 2 && id[0] == 0xff &&
           id[1] == 0xff;
}

/* Does the network's or RDMA's own list still have it? */
static bool is_class_gone(const struct source *source, const struct device *device)
{
    char name[IF_NAMESIZE], path[SL_MON_PATH + NAME_MAX + 2];
    struct stat status;

    if (device->ifindex == 0 && device->rdma[0] == '\0')
        return false; /* it was on no list, so none can say */
    if (device->ifindex != 0 && if_indextoname(device->ifindex, name) != NULL)
        return false;
    snprintf(path, sizeof(path), "%s/%s", source->host.config->rdma_root, device->rdma);
    return device->rdma[0] == '\0' || stat(path, &status) != 0;
}

static void check(struct source *source, struct device *device)
{
    bool pci_gone = !device->is_there || is_off_bus(device);
    char text[64];

    if (!pci_gone) {
        use(source, device);
        device->now = (struct sl_mon_pcie_link){.lanes = 0};
        if (read_text(device->speed, text, sizeof(text)))
            device->now.mega_transfers = sl_mon_pcie_speed(text);
        if (read_text(device->lanes, text, sizeof(text)))
            device->now.lanes = sl_mon_pcie_lanes(text);
        sl_mon_pcie_judge(source->host.mon, device->subject, device->now, device->most);
    }
    if (device->subject->kind == SL_MON_NIC)
        sl_mon_pcie_presence(
            source->host.mon, device->subject,
            &(struct sl_mon_presence){.pci_gone = pci_gone,
                                      .class_gone = pci_gone && is_class_gone(source, device),
                                      .was_used = device->was_used});
}

/* ---- the list ---- */

static struct device *find(struct source *source, const char *name)
{
    for (unsigned i = 0; i < source->count; i++)
        if (strcmp(source->devices[i].name, name) == 0)
            return &source->devices[i];
    return NULL;
}

static void found(struct source *source, int root, const char *name)
{
    struct device *device = find(source, name), fresh;
    char text[32];
    enum sl_mon_kind kind = SL_MON_NIC;

    if (device != NULL && device->is_there) {
        /* A file that cannot be read any more is of a device that went and came back. */
        if (device->folder >= 0 && read_text_at(device->folder, "class", text, sizeof(text)))
            return;
        device_close(device);
        if (!device_open(device, root, name))
            return;
        find_classes(device);
        return;
    }
    memset(&fresh, 0, sizeof(fresh));
    fresh.folder = fresh.speed = fresh.lanes = fresh.config = -1;
    if (strlen(name) >= sizeof(fresh.name) || !device_open(&fresh, root, name))
        return;
    (void)(read_text_at(fresh.folder, "class", text, sizeof(text)) &&
           sl_mon_pcie_kind(text, &kind));
    if (device == NULL && source->count < DEVICES_MAX)
        fresh.subject = sl_mon_subject(source->host.mon, kind, name);
    else if (device != NULL)
        fresh.subject = device->subject;
    if (fresh.subject == NULL) {
        device_close(&fresh);
        return;
    }
    strcpy(fresh.name, name);
    fresh.is_there = true;
    if (device == NULL)
        device = &source->devices[source->count++];
    *device = fresh;
    find_classes(device);
}

static int tick(void *arg)
{
    struct source *source = arg;
    const char *root = source->host.config->pci_root;
    DIR *dir = opendir(root);
    bool was_there[DEVICES_MAX] = {false};

    if (dir == NULL)
        return sl_fail(errno == ENOENT ? -ENODEV : -errno, "%s cannot be read: %s", root,
                       sluice_strerror(-errno));
    for (const struct dirent *at = readdir(dir); at != NULL; at = readdir(dir)) {
        if (at->d_name[0] == '.')
            continue;
        found(source, dirfd(dir), at->d_name);
        for (unsigned i = 0; i < source->count; i++)
            if (strcmp(source->devices[i].name, at->d_name) == 0)
                was_there[i] = true;
    }
    closedir(dir);
    for (unsigned i = 0; i < source->count; i++) {
        struct device *device = &source->devices[i];

        device->is_there = was_there[i];
        if (!device->is_there)
            device_close(device);
        else if (device->traffic_count == 0)
            find_classes(device); /* its driver may have come since */
        check(source, device);
    }
    return 0;
}

/* ---- its life ---- */

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for PCIe devices");
    source->host = *host;
    *out = source;
    return 0;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    for (unsigned i = 0; i < source->count; i++)
        device_close(&source->devices[i]);
    source->count = 0;
}

static int open_source(void *arg)
{
    const struct source *source = arg;
    const char *root = source->host.config->pci_root;
    DIR *dir = opendir(root);

    if (dir == NULL)
        return sl_fail(errno == ENOENT ? -ENODEV : -errno, "%s cannot be read: %s", root,
                       sluice_strerror(-errno));
    closedir(dir);
    return 0;
}

/* ---- what others ask ---- */

static void family(const struct source *source, enum sl_mon_format format, FILE *out,
                   const char *name, const char *help, bool of_lanes)
{
    sl_mon_metrics_family(format, out, name, "gauge", "", help);
    for (unsigned i = 0; i < source->count; i++) {
        const struct device *device = &source->devices[i];
        const struct sl_mon_pcie_link *links[] = {&device->now, &device->most};

        if (device->most.lanes == 0)
            continue;
        for (unsigned n = 0; n < 2; n++) {
            sl_mon_metrics_open(out, name, "device", device->name);
            sl_mon_metrics_label(out, "of", n == 0 ? "now" : "most");
            sl_mon_metrics_number(out, of_lanes ? links[n]->lanes
                                                : links[n]->mega_transfers * UINT64_C(1000000));
        }
    }
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;

    family(source, format, out, "sluice_pcie_lanes", "Lanes of the PCIe link: now, and at most.",
           true);
    family(source, format, out, "sluice_pcie_lane_transfers_per_second",
           "Speed of a lane of the PCIe link: now, and at most.", false);
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    struct json_object *devices = json_object_new_array();

    for (unsigned i = 0; i < source->count; i++) {
        const struct device *at = &source->devices[i];
        struct json_object *device = json_object_new_object();

        json_object_object_add(device, "name", json_object_new_string(at->name));
        json_object_object_add(device, "kind",
                               json_object_new_string(sl_mon_kind_name(at->subject->kind)));
        json_object_object_add(device, "lanes", json_object_new_int64(at->now.lanes));
        json_object_object_add(device, "lanes_max", json_object_new_int64(at->most.lanes));
        json_object_object_add(device, "gt_per_second",
                               json_object_new_double(at->now.mega_transfers / 1e3));
        json_object_object_add(device, "gt_per_second_max",
                               json_object_new_double(at->most.mega_transfers / 1e3));
        json_object_array_add(devices, device);
    }
    json_object_object_add(out, "devices", devices);
}

const struct sl_source_class sl_source_pcie = {.name = "pcie",
                                               .how = "sysfs",
                                               .wanted = offsetof(struct sl_mon_config, pcie),
                                               .period_ns = PERIOD_NS,
                                               .create = create,
                                               .destroy = free,
                                               .open = open_source,
                                               .close = close_source,
                                               .tick = tick,
                                               .metrics = metrics,
                                               .json = json};
