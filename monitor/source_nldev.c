/* SPDX-License-Identifier: Apache-2.0 */
/* Source: resources of RDMA devices, by RDMA netlink (monitor/nldev.h). */
#include "monitor/netlink_list.h"
#include "monitor/nldev.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <json-c/json.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD_NS (10 * SL_MON_S)

struct source {
    struct sl_source_host host;
    struct sl_mon_netlink netlink;
    unsigned count;
    uint32_t indices[SL_MON_NLDEVS_MAX];
    struct sl_mon_nldev devices[SL_MON_NLDEVS_MAX];
    struct sl_mon_nldev *listed; /* whose queue pairs are listed now */
};

/* ---- messages ---- */

static struct sl_mon_nldev *device_of(struct source *source, uint32_t index, const char *name)
{
    struct sl_mon_nldev *device = source->devices;

    for (unsigned i = 0; i < source->count; i++, device++)
        if (strcmp(device->name, name) == 0) {
            source->indices[i] = index;
            return device;
        }
    if (source->count == SL_MON_NLDEVS_MAX)
        return NULL;
    memset(device, 0, sizeof(*device));
    snprintf(device->name, sizeof(device->name), "%s", name);
    source->indices[source->count++] = index;
    return device;
}

static void take_qp(void *arg, const struct sl_mon_qp *qp)
{
    struct source *source = arg;

    sl_mon_nldev_qp(source->host.mon, source->listed, qp);
}

static bool take_message(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct source *source = arg;
    uint64_t counts[SL_MON_NLDEV_KIND_COUNT];
    char name[SL_MON_NAME];
    uint32_t index;

    if (source->listed != NULL) {
        sl_mon_nldev_qps(message, len, take_qp, source);
    } else if (sl_mon_nldev_parse(message, len, &index, name, counts)) {
        struct sl_mon_nldev *device = device_of(source, index, name);

        if (device != NULL)
            memcpy(device->counts, counts, sizeof(counts));
    }
    return true;
}

static int ask(struct source *source, unsigned command, const uint32_t *index)
{
    char bytes[64] __attribute__((aligned(8)));
    struct nlmsghdr *message = mnl_nlmsg_put_header(bytes);

    message->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
    if (index != NULL)
        mnl_attr_put_u32(message, RDMA_NLDEV_ATTR_DEV_INDEX, *index);
    return sl_mon_netlink_list(&source->netlink, message, take_message, source);
}

/* A device that goes while it is listed is no error. */
static int list_qps(struct source *source, unsigned i)
{
    struct sl_mon_nldev *device = &source->devices[i];
    int err;

    sl_mon_nldev_begin(device);
    source->listed = device;
    err = ask(source, RDMA_NLDEV_CMD_RES_QP_GET, &source->indices[i]);
    source->listed = NULL;
    if (err == 0)
        sl_mon_nldev_end(source->host.mon, device);
    return err == -EINVAL || err == -ENODEV ? 0 : err;
}

static int tick(void *arg)
{
    struct source *source = arg;
    int err;

    for (unsigned i = 0; i < source->count; i++)
        memset(source->devices[i].counts, 0, sizeof(source->devices[i].counts));
    err = ask(source, RDMA_NLDEV_CMD_RES_GET, NULL);
    for (unsigned i = 0; err == 0 && i < source->count; i++)
        err = list_qps(source, i);
    if (err == -EOPNOTSUPP || err == -EINVAL)
        return sl_fail(-ENOTSUP, "this kernel has no list of RDMA resources (Linux 4.17)");
    return err == 0 ? 0 : sl_fail(err, "RDMA netlink lists no resources: %s", sluice_strerror(err));
}

/* ---- its life ---- */

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_netlink_close(&source->netlink);
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_netlink_open(&source->netlink, NETLINK_RDMA);

    if (err == -EPROTONOSUPPORT)
        return sl_fail(-ENOTSUP, "this kernel has no RDMA netlink (CONFIG_INFINIBAND; modprobe "
                                 "ib_core)");
    if (err != 0)
        return sl_fail(err, "RDMA netlink cannot be had: %s", sluice_strerror(err));
    err = tick(source);
    if (err != 0)
        close_source(source);
    return err;
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for RDMA resources");
    source->host = *host;
    *out = source;
    return 0;
}

/* ---- what others ask ---- */

static uint64_t dropped(const void *arg)
{
    const struct source *source = arg;
    uint64_t sum = 0;

    for (unsigned i = 0; i < source->count; i++)
        sum += source->devices[i].left_out;
    return sum;
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;

    sl_mon_metrics_family(format, out, "sluice_rdma_qps", "gauge", "",
                          "Queue pairs in each state.");
    for (unsigned i = 0; i < source->count; i++)
        for (unsigned s = 0; s < SL_MON_QP_STATE_COUNT; s++) {
            sl_mon_metrics_open(out, "sluice_rdma_qps", "device", source->devices[i].name);
            sl_mon_metrics_label(out, "state", sl_mon_qp_state_name((enum sl_mon_qp_state)s));
            sl_mon_metrics_number(out, source->devices[i].states[s]);
        }
    sl_mon_metrics_family(format, out, "sluice_rdma_resources", "gauge", "",
                          "Resources of a device, by kind.");
    for (unsigned i = 0; i < source->count; i++)
        for (unsigned k = 0; k < SL_MON_NLDEV_KIND_COUNT; k++) {
            sl_mon_metrics_open(out, "sluice_rdma_resources", "device", source->devices[i].name);
            sl_mon_metrics_label(out, "kind", sl_mon_nldev_kind_name((enum sl_mon_nldev_kind)k));
            sl_mon_metrics_number(out, source->devices[i].counts[k]);
        }
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    struct json_object *devices = json_object_new_array();

    for (unsigned i = 0; i < source->count; i++) {
        struct json_object *device = json_object_new_object();

        json_object_object_add(device, "name", json_object_new_string(source->devices[i].name));
        for (unsigned k = 0; k < SL_MON_NLDEV_KIND_COUNT; k++)
            json_object_object_add(device, sl_mon_nldev_kind_name((enum sl_mon_nldev_kind)k),
                                   json_object_new_int64((int64_t)source->devices[i].counts[k]));
        json_object_object_add(device, "qps_ready",
                               json_object_new_int64(source->devices[i].states[SL_MON_QP_RTS]));
        json_object_object_add(device, "qps_in_error",
                               json_object_new_int64(source->devices[i].states[SL_MON_QP_ERR]));
        json_object_array_add(devices, device);
    }
    json_object_object_add(out, "devices", devices);
}

const struct sl_source_class sl_source_nldev = {.name = "rdma",
                                                .how = "netlink",
                                                .wanted =
                                                    offsetof(struct sl_mon_config, rdma_resources),
                                                .period_ns = PERIOD_NS,
                                                .quiet = SL_SOURCE_QUIET(PORT_QP),
                                                .create = create,
                                                .destroy = free,
                                                .open = open_source,
                                                .close = close_source,
                                                .tick = tick,
                                                .dropped = dropped,
                                                .metrics = metrics,
                                                .json = json};
