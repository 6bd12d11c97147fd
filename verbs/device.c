/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of this host: their state, and for those that cannot be used a reason that tells what
 * to do. */
#include "verbs/device.h"
#include "verbs/config.h"

#include "core/config.h"
#include "core/err.h"
#include "verbs/gid.h"
#include "verbs/memlock.h"
#include "verbs/near.h"
#include "verbs/open_device.h"
#include "verbs/pkey.h"
#include "verbs/lid.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shorter than this part of the fastest port's speed: a port for management, not for data. */
#define SLOW_PART 4
/* What a rail pins besides staging: frames, receive buffers, queues. A round figure, for the
 * check. */
#define MEMLOCK_BASE (UINT64_C(6) << 20)

/* ---- the list of names ---- */

/* Does one entry of the list, without its ^, mean that name? "mlx5_0" means all its ports. A device
 * is meant by an entry for one of its ports too, if part_counts. */
static bool entry_matches(const char *entry, size_t len, const char *name, bool part_counts)
{
    size_t device_len = strcspn(name, ":"), entry_device_len;
    const char *colon;

    if (len > 0 && entry[len - 1] == '*') {
        size_t prefix = len - 1, name_len = strlen(name);

        if (prefix <= name_len)
            return memcmp(entry, name, prefix) == 0;
        return part_counts && name[device_len] == '\0' && memcmp(entry, name, name_len) == 0 &&
               entry[name_len] == ':';
    }
    if (len == strlen(name) && memcmp(entry, name, len) == 0)
        return true;
    colon = memchr(entry, ':', len);
    entry_device_len = colon != NULL ? (size_t)(colon - entry) : len;
    if (entry_device_len != device_len || memcmp(entry, name, device_len) != 0)
        return false;
    return colon == NULL || (part_counts && name[device_len] == '\0');
}

/* The place in the list of the first entry that asks for name: 0 for an empty list and lists that
 * only exclude. -1: it is left out. */
static int place_in_list(const char *list, const char *name)
{
    int place = -1, count = 0;
    bool asks = false;

    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ",");

        if (len > 0 && at[0] == '^') {
            if (len > 1 && entry_matches(at + 1, len - 1, name, false))
                return -1;
        } else if (len > 0) {
            asks = true;
            if (place < 0 && entry_matches(at, len, name, true))
                place = count;
            count++;
        }
        at += len;
    }
    return asks ? place : 0;
}

bool sl_verbs_name_allowed(const char *list, const char *name)
{
    return place_in_list(list, name) >= 0;
}

/* ---- one port ---- */

/* Bytes per second of a lane, by the code of InfiniBand, which Ethernet devices use too. The
 * figures are those that the kernel shows: 10 Gbit/s for QDR and for FDR10. */
static uint64_t lane_speed(uint8_t code)
{
    static const struct {
        uint8_t code;
        uint32_t mbit;
    } lanes[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                 {16, 14062}, {32, 25000}, {64, 50000}, {128, 100000}};

    for (size_t i = 0; i < SL_ARRAY_LEN(lanes); i++)
        if (lanes[i].code == code)
            return lanes[i].mbit * UINT64_C(125000);
    return 0;
}

static unsigned lane_count(uint8_t code)
{
    switch (code) {
    case 1: return 1;
    case 2: return 4;
    case 4: return 8;
    case 8: return 12;
    case 16: return 2;
    default: return 0;
    }
}

/* Speeds that the code has no bit for (XDR) stand in sysfs: "800 Gb/sec (4X XDR)". */
static uint64_t speed_from_sysfs(const struct ibv_device *device, uint8_t num)
{
    char path[IBV_SYSFS_PATH_MAX + 32];
    double gbit = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/ports/%u/rate", device->ibdev_path, num);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lf", &gbit) != 1 || !(gbit > 0 && gbit < 1e6))
        gbit = 0;
    fclose(file);
    return (uint64_t)(gbit * 125e6);
}

/* As ibstat and `rdma link` write them; the texts of libibverbs are not the same in all its
 * versions. */
const char *sl_verbs_state_name(uint8_t state)
{
    static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};

    return state < SL_ARRAY_LEN(names) ? names[state] : "in an unknown state";
}

static void explain_state(struct sl_verbs_port *port)
{
    const char *state = sl_verbs_state_name(port->state);

    if (port->link_layer == IBV_LINK_LAYER_ETHERNET)
        snprintf(port->why, sizeof(port->why),
                 "port is %s: check the cable, the switch port, and `ip link` (the interface must "
                 "be up)",
                 state);
    else if (port->state == IBV_PORT_INIT || port->state == IBV_PORT_ARMED)
        snprintf(port->why, sizeof(port->why),
                 "port is %s: the link is up, but no subnet manager has activated it; start one "
                 "(opensm, or a switch's)",
                 state);
    else
        snprintf(port->why, sizeof(port->why),
                 "port is %s: check the cable, the switch port, and `ibstat`", state);
}

static bool all_orphans(const struct sl_verbs_port *port)
{
    for (unsigned i = 0; i < port->gid_count; i++)
        if (!port->gids[i].is_orphan)
            return false;
    return true;
}

/* Leaves why empty when the port can be used. */
static void explain(struct sl_verbs_port *port)
{
    port->why[0] = '\0';
    port->may_return = port->node_type == IBV_NODE_CA;
    if (port->node_type == IBV_NODE_RNIC)
        snprintf(port->why, sizeof(port->why),
                 "an iWARP device: these connect by rdma_cm only, which this transport does not "
                 "use; its interface serves the tcp transport");
    else if (port->node_type != IBV_NODE_CA)
        snprintf(port->why, sizeof(port->why), "not an InfiniBand or RoCE device (node type %d)",
                 port->node_type);
    else if (port->state != IBV_PORT_ACTIVE && port->state != IBV_PORT_ACTIVE_DEFER)
        explain_state(port);
    else if (port->link_layer == IBV_LINK_LAYER_INFINIBAND && port->lid == 0)
        snprintf(port->why, sizeof(port->why),
                 "port has no LID: no subnet manager has given it one; start one (opensm, or a "
                 "switch's)");
    else if (port->gid_count == 0)
        snprintf(port->why, sizeof(port->why),
                 "port has no GID yet: give its network interface an address (`ip addr add`)");
    else if (all_orphans(port))
        snprintf(
            port->why, sizeof(port->why),
            "port has no GID that its network interface answers for: give the interface an address "
            "(`ip addr add`)");
}

int sl_verbs_port_read(const struct sl_ibv *ibv, struct ibv_context *context, uint8_t num,
                       struct sl_verbs_port *out)
{
    /* The library knows two sizes of this structure, and by its plain name fills the older, shorter
     * one. */
    struct ibv_port_attr attr = {0};
    struct _compat_ibv_port_attr *compat = (struct _compat_ibv_port_attr *)&attr;
    const char *device = (ibv->ibv_get_device_name)(context->device);
    struct sl_verbs_port port = {.num = num, .node_type = (uint8_t)context->device->node_type};
    int err;

    errno = 0;
    err = (ibv->ibv_query_port)(context, num, compat);
    if (err != 0) {
        err = err > 0 ? err : errno;
        return sl_fail(err == ENODEV ? -ENODEV : -EIO,
                       "port %s:%u is gone: it cannot be queried: %s", device, num, strerror(err));
    }
    snprintf(port.device, sizeof(port.device), "%s", device);
    snprintf(port.name, sizeof(port.name), "%s:%u", port.device, num);
    port.state = (uint8_t)attr.state;
    port.mtu = (uint8_t)attr.active_mtu;
    port.lid = attr.lid;
    port.lmc = attr.lmc <= SL_VERBS_LMC_MAX ? attr.lmc : 0;
    /* Devices from before RoCE say nothing. */
    port.link_layer =
        attr.link_layer != IBV_LINK_LAYER_UNSPECIFIED ? attr.link_layer : IBV_LINK_LAYER_INFINIBAND;
    port.speed = lane_speed(attr.active_speed) * lane_count(attr.active_width);
    if (port.speed == 0)
        port.speed = speed_from_sysfs(context->device, num);
    sl_verbs_gids_read(ibv, context, attr.gid_tbl_len > 0 ? (unsigned)attr.gid_tbl_len : 0, &port);
    sl_verbs_pkeys_read(ibv, context, attr.pkey_tbl_len, &port);
    explain(&port);
    *out = port;
    return 0;
}

/* ---- all ports ---- */

struct listed {
    struct sl_verbs_port port;
    int place;
    bool slow;
};

struct listing {
    const struct sl_ibv *ibv;
    const struct sl_config *config;
    struct listed *items; /* owned */
    size_t count, room;
};

static struct listed *list_add(struct listing *list)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 8 : list->room * 2;
        struct listed *items = realloc(list->items, room * sizeof(*items));

        if (items == NULL)
            return NULL;
        list->items = items;
        list->room = room;
    }
    memset(&list->items[list->count], 0, sizeof(*list->items));
    return &list->items[list->count++];
}

static void explain_open(const struct ibv_device *device, int error, struct sl_verbs_port *port)
{
    const char *file = device->dev_name;
    char path[IBV_SYSFS_NAME_MAX + 32];

    /* After a refusal the library looks for the file elsewhere, and ends with not having found
     * it. */
    snprintf(path, sizeof(path), "/dev/infiniband/%s", file);
    if (error == ENOENT && faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) != 0)
        error = errno;
    if (error == ENOENT)
        snprintf(port->why, sizeof(port->why),
                 "cannot be opened: there is no /dev/infiniband/%s; load ib_uverbs, or give the "
                 "container --device=/dev/infiniband",
                 file);
    else if (error == EACCES || error == EPERM)
        snprintf(port->why, sizeof(port->why),
                 "cannot be opened: no permission for /dev/infiniband/%s; it must be readable and "
                 "writable "
                 "(mode 0666, or your group), and a container needs --device=/dev/infiniband",
                 file);
    else
        snprintf(port->why, sizeof(port->why), "cannot be opened: /dev/infiniband/%s: %s", file,
                 strerror(error));
}

/* A device of which nothing but the name is known. */
static int list_closed(struct listing *list, struct ibv_device *device, int error)
{
    struct listed *item = list_add(list);

    if (item == NULL)
        return sl_fail(-ENOMEM, "no memory for the list of RDMA ports");
    item->port.node_type = (uint8_t)device->node_type;
    snprintf(item->port.device, sizeof(item->port.device), "%s",
             (list->ibv->ibv_get_device_name)(device));
    snprintf(item->port.name, sizeof(item->port.name), "%s", item->port.device);
    explain_open(device, error, &item->port);
    return 0;
}

static int list_port(struct listing *list, struct ibv_context *context, uint8_t num)
{
    struct listed *item = list_add(list);
    struct sl_verbs_port *port;

    if (item == NULL)
        return sl_fail(-ENOMEM, "no memory for the list of RDMA ports");
    port = &item->port;
    if (sl_verbs_port_read(list->ibv, context, num, port) != 0) {
        snprintf(port->device, sizeof(port->device), "%s",
                 (list->ibv->ibv_get_device_name)(context->device));
        snprintf(port->name, sizeof(port->name), "%s:%u", port->device, num);
        port->num = num;
        snprintf(port->why, sizeof(port->why), "%s", sluice_last_error());
    }
    return 0;
}

static int list_device(struct listing *list, struct ibv_device *given)
{
    const char *name = (list->ibv->ibv_get_device_name)(given);
    struct ibv_device_attr attr = {0};
    struct sl_verbs_device *device;
    size_t before = list->count;
    int err = sl_verbs_device_get(list->ibv, name, given, &device);

    if (err != 0)
        return list_closed(list, given, -err);
    errno = 0;
    err = (list->ibv->ibv_query_device)(device->context, &attr);
    if (err != 0) {
        err = list_closed(list, given, err > 0 ? err : errno);
        goto err_device;
    }
    for (unsigned num = 1; err == 0 && num <= attr.phys_port_cnt; num++)
        err = list_port(list, device->context, (uint8_t)num);
    if (list->count > before && sl_verbs_device_takes_dmabuf(device))
        for (size_t i = before; i < list->count; i++)
            list->items[i].port.takes_dmabuf = true;
err_device:
    sl_verbs_device_put(device);
    return err;
}

/* What only the settings know. */
static void explain_settings(const struct sl_config *config, struct listed *item)
{
    struct sl_verbs_port *port = &item->port;
    struct sl_verbs_gid gid;
    struct sl_verbs_pkey pkey;

    item->place = place_in_list(sl_verbs_config(config)->devices, port->name);
    if (item->place < 0) {
        port->may_return = false;
        snprintf(port->why, sizeof(port->why), "left out by SLUICE_VERBS_DEVICES '%.160s'",
                 sl_verbs_config(config)->devices);
    } else if (port->why[0] == '\0' && (sl_verbs_gid_choose(config, port, &gid) != 0 ||
                                        sl_verbs_pkey_choose(config, port, &pkey) != 0)) {
        snprintf(port->why, sizeof(port->why), "%s", sluice_last_error());
    }
}

/* Every rail pins the same memory, and each time it counts. */
static void explain_memlock(const struct sl_config *config, struct listed *items, size_t count)
{
    uint64_t rails = 0,
             rail_bytes = (uint64_t)sl_verbs_config(config)->mp.staging_bytes + MEMLOCK_BASE;
    char why[SL_VERBS_WHY_MAX];

    for (size_t i = 0; i < count; i++)
        rails += items[i].port.why[0] == '\0' && rails < SL_MP_RAILS_MAX;
    if (rails == 0)
        return; /* what is missing are rails */
    for (size_t i = 0; i < count; i++)
        rails +=
            items[i].port.why[0] != '\0' && items[i].port.may_return && rails < SL_MP_RAILS_MAX;
    if (sl_verbs_memlock_fits(rails * rail_bytes, why, sizeof(why)))
        return;
    for (size_t i = 0; i < count; i++)
        if (items[i].port.why[0] == '\0')
            memcpy(items[i].port.why, why, sizeof(why));
    for (size_t i = 0; i < count; i++)
        items[i].port.may_return = false;
}

static bool is_candidate(const struct sl_verbs_port *port)
{
    return port->why[0] == '\0' || port->may_return;
}

/* The order of rails: it must not depend on which of them are up at the moment. */
static int compare_places(const void *left, const void *right)
{
    const struct listed *a = left, *b = right;

    if (is_candidate(&a->port) != is_candidate(&b->port))
        return is_candidate(&a->port) ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->slow != b->slow)
        return a->slow ? 1 : -1;
    return strverscmp(a->port.name, b->port.name); /* mlx5_2 before mlx5_10 */
}

/* The order of the list: what can be used now comes first. */
static int compare(const void *left, const void *right)
{
    const struct sl_verbs_port *a = &((const struct listed *)left)->port;
    const struct sl_verbs_port *b = &((const struct listed *)right)->port;

    if ((a->why[0] != '\0') != (b->why[0] != '\0'))
        return a->why[0] != '\0' ? 1 : -1;
    return compare_places(left, right);
}

static int compare_picked(const void *left, const void *right)
{
    const struct sl_verbs_port *a = left, *b = right;

    return a->place - b->place;
}

size_t sl_verbs_ports_pick(struct sl_verbs_port *ports, size_t count, size_t cap)
{
    size_t picked = 0;

    if (count == 0 || ports[0].why[0] != '\0')
        return 0;
    while (picked < count && picked < cap && is_candidate(&ports[picked]))
        picked++;
    qsort(ports, picked, sizeof(*ports), compare_picked);
    return picked;
}

/* A slow port makes no other one far, however near it is. */
static void find_near(struct listing *list)
{
    struct sl_verbs_near near;

    sl_verbs_near_begin(list->config, &near);
    for (size_t i = 0; i < list->count; i++)
        sl_verbs_near_measure(&near, &list->items[i].port,
                              is_candidate(&list->items[i].port) && !list->items[i].slow);
    for (size_t i = 0; i < list->count; i++)
        if (is_candidate(&list->items[i].port))
            sl_verbs_near_judge(&near, &list->items[i].port);
}

static void list_sort(struct listing *list)
{
    uint64_t fastest = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct listed *item = &list->items[i];

        explain_settings(list->config, item);
        if (item->port.why[0] == '\0' && item->port.speed > fastest)
            fastest = item->port.speed;
    }
    for (size_t i = 0; i < list->count; i++)
        list->items[i].slow = list->items[i].port.why[0] == '\0' &&
                              list->items[i].port.speed != 0 &&
                              list->items[i].port.speed < fastest / SLOW_PART;
    find_near(list);
    explain_memlock(list->config, list->items, list->count);
    if (list->count == 0)
        return;
    qsort(list->items, list->count, sizeof(*list->items), compare_places);
    for (size_t i = 0; i < list->count; i++)
        list->items[i].port.place = (uint16_t)i;
    qsort(list->items, list->count, sizeof(*list->items), compare);
}

/* The name of a file in folder that starts so; false: there is none. */
static bool find_file(const char *folder, const char *start, char *out, size_t cap)
{
    DIR *dir = opendir(folder);
    bool found = false;

    if (dir == NULL)
        return false;
    for (const struct dirent *at = readdir(dir); at != NULL && !found; at = readdir(dir)) {
        found = at->d_name[0] != '.' && strncmp(at->d_name, start, strlen(start)) == 0;
        if (found)
            snprintf(out, cap, "%s", at->d_name);
    }
    closedir(dir);
    return found;
}

/* The kernel may have devices that the library leaves out, for want of their file or of a
 * driver. */
static int fail_no_device(void)
{
    char device[IBV_SYSFS_NAME_MAX], file[IBV_SYSFS_NAME_MAX];

    if (!find_file("/sys/class/infiniband", "", device, sizeof(device)))
        return sl_fail(-ENODEV,
                       "no RDMA device: load ib_uverbs and the driver of the device (mlx5_ib for "
                       "NVIDIA's), or "
                       "try soft-RoCE: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0");
    if (!find_file("/dev/infiniband", "uverbs", file, sizeof(file)))
        return sl_fail(
            -ENODEV,
            "the kernel has the RDMA device %s, but there is no /dev/infiniband/uverbs* here: load "
            "ib_uverbs, or give the container --device=/dev/infiniband",
            device);
    return sl_fail(
        -ENODEV,
        "the kernel has the RDMA device %s, but libibverbs does not show it: install the library's "
        "drivers (rdma-core; Debian: ibverbs-providers)",
        device);
}

int sl_verbs_ports_list(const struct sl_config *config, struct sl_verbs_port *out, size_t cap,
                        size_t *count)
{
    struct listing list = {.config = config};
    struct ibv_device **devices;
    int err, device_count = 0;

    err = sl_ibv_get(&list.ibv);
    if (err != 0)
        return err;
    devices = (list.ibv->ibv_get_device_list)(&device_count);
    if (devices == NULL || device_count <= 0) {
        err = fail_no_device();
        goto err_devices;
    }
    for (int i = 0; i < device_count && err == 0; i++)
        err = list_device(&list, devices[i]);
    if (err != 0)
        goto err_devices;
    list_sort(&list);
    for (size_t i = 0; i < list.count && i < cap; i++)
        out[i] = list.items[i].port;
    *count = list.count;
err_devices:
    free(list.items);
    if (devices != NULL)
        (list.ibv->ibv_free_device_list)(devices);
    return err;
}
