/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: RDMA queue pairs and the asynchronous events of RDMA devices, by BPF (fexit and fentry,
 * or kprobes where the kernel has those). What is sent over a queue pair never enters the kernel;
 * who it is connected to, and how it ends, does.
 */
#include "monitor/bpf.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE "/sys/module/ib_core"
#define DEVICES_MAX 64
#define STATES 7
#define SHOWN 1024 /* queue pairs in an answer */
#define EVENTS_PER_TURN 1024
#define FLAP_NS (60 * SL_MON_S) /* a port that was away for longer is told as down */

static const char *const states[STATES] = {"reset", "init", "rtr", "rts", "sqd", "sqe", "err"};
static const char *const types[] = {"SMI", "GSI", "RC", "UC", "UD"};

/* The kernel's enum ib_event_type. */
enum {
    QP_FATAL = 1,
    QP_REQUEST = 2,
    QP_ACCESS = 3,
    DEVICE_FATAL = 8,
    PORT_ACTIVE = 9,
    PORT_ERR = 10
};
static const char *const event_names[] = {
    "cq_error",   "qp_fatal",      "qp_request_error",     "qp_access_error", "communication",
    "sq_drained", "path_migrated", "path_migration_error", "device_fatal",    "port_active",
    "port_error", "lid_change",    "pkey_change",          "sm_change",       "srq_error",
    "srq_limit",  "last_wqe",      "client_reregister",    "gid_change",      "wq_fatal"};
#define EVENTS (sizeof(event_names) / sizeof(event_names[0]) + 1) /* the last: all others */

static int ready(void)
{
    if (access(MODULE, F_OK) != 0)
        return sl_fail(-ENODEV, "no RDMA device was ever here: the module ib_core is not loaded");
    if (!sl_bpf_may_read_modules())
        return sl_fail(-EPERM, "RDMA is a module of the kernel, whose types it gives to "
                               "CAP_SYS_ADMIN alone: without that capability there is no BPF probe "
                               "of queue pairs and events");
    return 0;
}

/* ---- the life of queue pairs ---- */

static const struct sl_mon_bpf_plan qp_plan = {
    .object = "qp",
    .ways = {(const char *const[]){"create_exit", "modify_exit", "destroy_exit", NULL},
             (const char *const[]){"create_return", "modify_call", "modify_return", "destroy_call",
                                   "destroy_return", NULL}},
    .way_count = 2,
    .counts = SL_BPF_QP_COUNTS};

struct qp_device {
    char name[64];
    unsigned qps[STATES];
};

struct qps {
    struct sl_mon_bpf probe; /* first */
    uint64_t keys[SL_BPF_QPS];
    struct sl_bpf_qp values[SL_BPF_QPS]; /* as they were listed last */
    unsigned count;
    uint64_t changes; /* of all kinds, when they were */
    struct qp_device devices[DEVICES_MAX];
    unsigned device_count;
};

static int qp_create(const struct sl_source_host *host, void **out)
{
    struct qps *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe 'qp'");
    sl_mon_bpf_init(&source->probe, host, &qp_plan);
    *out = source;
    return 0;
}

static int qp_open(void *arg)
{
    struct qps *source = arg;
    int err = ready();

    source->count = 0;
    source->changes = 0;
    return err != 0 ? err : sl_mon_bpf_open(&source->probe);
}

static void qp_close(void *arg)
{
    struct qps *source = arg;

    sl_mon_bpf_close(&source->probe);
}

/* Devices stay when their last queue pair goes: their counts are then 0. */
static struct qp_device *qp_device_of(struct qps *source, const char *name)
{
    struct qp_device *device;

    for (unsigned i = 0; i < source->device_count; i++)
        if (strcmp(source->devices[i].name, name) == 0)
            return &source->devices[i];
    if (source->device_count == DEVICES_MAX)
        return NULL;
    device = &source->devices[source->device_count++];
    *device = (struct qp_device){{0}};
    snprintf(device->name, sizeof(device->name), "%s", name);
    return device;
}

static int list(struct qps *source)
{
    int count = sl_bpf_list(source->probe.bpf, "qps", source->keys, source->values, SL_BPF_QPS);

    if (count < 0)
        return count;
    source->count = (unsigned)count;
    for (unsigned i = 0; i < source->device_count; i++)
        memset(source->devices[i].qps, 0, sizeof(source->devices[i].qps));
    for (unsigned i = 0; i < source->count; i++) {
        struct sl_bpf_qp *qp = &source->values[i];
        struct qp_device *device;

        qp->device[sizeof(qp->device) - 1] = '\0';
        device = qp_device_of(source, qp->device);
        if (device != NULL && qp->state < STATES)
            device->qps[qp->state]++;
    }
    return 0;
}

/* A thousand of them are listed only when one has changed. */
static int qp_tick(void *arg)
{
    struct qps *source = arg;
    uint64_t changes = 0;
    int err = sl_mon_bpf_read(&source->probe);

    for (unsigned i = 0; i < SL_BPF_QP_COUNTS; i++)
        changes += source->probe.now[i];
    if (err != 0 || changes == source->changes)
        return err;
    source->changes = changes;
    return list(source);
}

static void qp_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    static const char *const kinds[SL_BPF_QP_COUNTS] = {"created", "modified", "destroyed"};
    struct qps *source = arg;

    sl_mon_metrics_family(format, out, "sluice_rdma_qps_seen", "gauge", "",
                          "Queue pairs of a device, by the state that the kernel last gave them; "
                          "those that were made or changed since the agent began.");
    for (unsigned i = 0; i < source->device_count; i++)
        for (unsigned state = 0; state < STATES; state++) {
            sl_mon_metrics_open(out, "sluice_rdma_qps_seen", "device", source->devices[i].name);
            sl_mon_metrics_label(out, "state", states[state]);
            sl_mon_metrics_number(out, source->devices[i].qps[state]);
        }
    sl_mon_metrics_family(format, out, "sluice_rdma_qp_changes", "counter", "",
                          "Queue pairs made, changed and destroyed.");
    for (unsigned i = 0; i < SL_BPF_QP_COUNTS; i++) {
        sl_mon_metrics_open(out, "sluice_rdma_qp_changes_total", "kind", kinds[i]);
        sl_mon_metrics_number(out, sl_mon_bpf_count(&source->probe, i));
    }
}

static struct json_object *qp_one(const struct sl_bpf_qp *qp)
{
    struct json_object *one = json_object_new_object();
    char gid[INET6_ADDRSTRLEN] = "";

    (void)inet_ntop(AF_INET6, qp->peer_gid, gid, sizeof(gid));
    json_object_object_add(one, "device", json_object_new_string(qp->device));
    json_object_object_add(one, "qpn", json_object_new_int64(qp->qpn));
    json_object_object_add(
        one, "type",
        json_object_new_string(qp->type < SL_ARRAY_LEN(types) ? types[qp->type] : "other"));
    json_object_object_add(one, "state",
                           json_object_new_string(qp->state < STATES ? states[qp->state] : "?"));
    json_object_object_add(one, "pid", json_object_new_int64(qp->pid));
    json_object_object_add(one, "peer_gid", json_object_new_string(gid));
    json_object_object_add(one, "peer_qpn", json_object_new_int64(qp->peer_qpn));
    json_object_object_add(one, "flow_label", json_object_new_int64(qp->flow_label));
    return one;
}

static void qp_json(void *arg, struct json_object *out)
{
    struct qps *source = arg;
    struct json_object *array = json_object_new_array();

    for (unsigned i = 0; i < source->count && i < SHOWN; i++)
        json_object_array_add(array, qp_one(&source->values[i]));
    json_object_object_add(out, "qps", array);
}

/* ---- events ---- */

static const struct sl_mon_bpf_plan event_plan = {
    .object = "rdma_event",
    .ways = {(const char *const[]){"dispatch_entry", "owner_entry", NULL},
             (const char *const[]){"dispatch_call", "owner_call", NULL}},
    .way_count = 2,
    .counts = 1};

struct event_device {
    char name[64], nic[SL_MON_NAME];
    uint64_t counts[EVENTS];
    uint64_t
        port_error_ns[256]; /* of a port: when it went, but for an administrator; 0: it is there */
};

struct events {
    struct sl_mon_bpf probe; /* first */
    struct event_device devices[DEVICES_MAX];
    unsigned device_count;
};

static int event_create(const struct sl_source_host *host, void **out)
{
    struct events *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe 'rdma_event'");
    sl_mon_bpf_init(&source->probe, host, &event_plan);
    *out = source;
    return 0;
}

/* Its PCI address; a device in software has its own name. */
static void find_nic(const struct events *source, struct event_device *device)
{
    char path[2 * SL_MON_PATH], target[PATH_MAX];
    ssize_t len;
    const char *slash;

    snprintf(path, sizeof(path), "%s/%s/device", source->probe.host.config->rdma_root,
             device->name);
    len = readlink(path, target, sizeof(target) - 1);
    snprintf(device->nic, sizeof(device->nic), "%.63s", device->name);
    if (len <= 0)
        return;
    target[len] = '\0';
    slash = strrchr(target, '/');
    snprintf(device->nic, sizeof(device->nic), "%.63s", slash != NULL ? slash + 1 : target);
}

static struct event_device *event_device_of(struct events *source, const char *name)
{
    struct event_device *device;

    for (unsigned i = 0; i < source->device_count; i++)
        if (strcmp(source->devices[i].name, name) == 0)
            return &source->devices[i];
    if (source->device_count == DEVICES_MAX || name[0] == '\0' || strchr(name, '/') != NULL)
        return NULL;
    device = &source->devices[source->device_count++];
    memset(device, 0, sizeof(*device));
    snprintf(device->name, sizeof(device->name), "%s", name);
    find_nic(source, device);
    return device;
}

/* Whether an administrator took down the interface that a RoCE port is on. */
static bool is_taken_down(const struct events *source, const char *name, unsigned port)
{
    char path[2 * SL_MON_PATH + 64], netif[64] = "";
    unsigned flags = 1;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s/ports/%u/gid_attrs/ndevs/0",
             source->probe.host.config->rdma_root, name, port);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    if (fscanf(file, "%63s", netif) != 1)
        netif[0] = '\0';
    fclose(file);
    snprintf(path, sizeof(path), "/sys/class/net/%s/flags", netif);
    file = netif[0] != '\0' ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    if (fscanf(file, "%x", &flags) != 1)
        flags = 1;
    fclose(file);
    return (flags & 1) == 0; /* IFF_UP */
}

static void accuse(struct events *source, enum sl_mon_check check, const char *name,
                   const char *text)
{
    struct sl_mon *mon = source->probe.host.mon;
    struct sl_mon_subject *subject = sl_mon_subject(mon, sl_mon_checks[check].kind, name);
    struct sl_mon_evidence evidence = {.source = "bpf"};

    if (subject == NULL)
        return;
    snprintf(evidence.text, sizeof(evidence.text), "%s", text);
    sl_mon_sample(mon, subject, check, true, &evidence);
}

static void port_event(struct events *source, struct event_device *device,
                       const struct sl_bpf_rdma_event *event)
{
    char name[SL_MON_NAME], text[SL_MON_TEXT];
    uint64_t *went_ns = &device->port_error_ns[event->port & 0xff];

    if (event->event == PORT_ERR) {
        *went_ns = is_taken_down(source, device->name, event->port) ? 0 : event->at_ns;
        return;
    }
    if (*went_ns != 0 && event->at_ns - *went_ns <= FLAP_NS) {
        snprintf(name, sizeof(name), "%.50s:%u", device->name, event->port);
        snprintf(text, sizeof(text), "the port went down and came back after %.3f s",
                 (double)(event->at_ns - *went_ns) / 1e9);
        accuse(source, SL_MON_CHECK_PORT_FLAP, name, text);
    }
    *went_ns = 0;
}

static void on_event(void *arg, const void *data)
{
    struct events *source = arg;
    struct sl_bpf_rdma_event event = *(const struct sl_bpf_rdma_event *)data;
    struct event_device *device;
    char text[SL_MON_TEXT];

    event.device[sizeof(event.device) - 1] = '\0';
    device = event_device_of(source, event.device);
    if (device == NULL)
        return;
    device->counts[event.event < EVENTS - 1 ? event.event : EVENTS - 1]++;
    switch (event.event) {
    case PORT_ERR:
    case PORT_ACTIVE: port_event(source, device, &event); break;
    case DEVICE_FATAL:
        snprintf(text, sizeof(text), "the driver of %s says that the device failed (DEVICE_FATAL)",
                 device->name);
        accuse(source, SL_MON_CHECK_NIC_DRIVER, device->nic, text);
        break;
    case QP_FATAL: /* the others are faults of a peer or a program */
        snprintf(text, sizeof(text), "queue pair 0x%x of %s failed (QP_FATAL)", event.qpn,
                 device->name);
        accuse(source, SL_MON_CHECK_NIC_QP, device->nic, text);
        break;
    default: break;
    }
}

static int event_open(void *arg)
{
    struct events *source = arg;
    int err = ready();

    if (err == 0)
        err = sl_mon_bpf_open(&source->probe);
    if (err != 0)
        return err;
    for (unsigned i = 0; i < source->device_count; i++)
        memset(source->devices[i].port_error_ns, 0, sizeof(source->devices[i].port_error_ns));
    err = sl_bpf_ring_open(source->probe.bpf, "events", sizeof(struct sl_bpf_rdma_event), on_event,
                           source);
    if (err != 0)
        sl_mon_bpf_close(&source->probe);
    return err;
}

static void event_close(void *arg)
{
    struct events *source = arg;

    sl_mon_bpf_close(&source->probe);
}

static int event_fd(const void *arg)
{
    const struct events *source = arg;

    return sl_bpf_ring_fd(source->probe.bpf);
}

static int event_read(void *arg)
{
    struct events *source = arg;

    return sl_bpf_ring_read(source->probe.bpf, EVENTS_PER_TURN);
}

static int event_tick(void *arg)
{
    struct events *source = arg;
    int n = event_read(source);

    return n < 0 ? n : sl_mon_bpf_read(&source->probe);
}

static uint64_t event_dropped(const void *arg)
{
    const struct events *source = arg;

    return sl_mon_bpf_count(&source->probe, 0);
}

static void event_metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    struct events *source = arg;

    sl_mon_metrics_family(format, out, "sluice_rdma_qp_fatal", "counter", "",
                          "Queue pairs of a device that failed (QP_FATAL).");
    for (unsigned i = 0; i < source->device_count; i++) {
        sl_mon_metrics_open(out, "sluice_rdma_qp_fatal_total", "device", source->devices[i].name);
        sl_mon_metrics_number(out, source->devices[i].counts[QP_FATAL]);
    }
    sl_mon_metrics_family(format, out, "sluice_rdma_events", "counter", "",
                          "Asynchronous events of a device.");
    for (unsigned i = 0; i < source->device_count; i++)
        for (unsigned event = 0; event < EVENTS; event++) {
            sl_mon_metrics_open(out, "sluice_rdma_events_total", "device", source->devices[i].name);
            sl_mon_metrics_label(out, "event", event < EVENTS - 1 ? event_names[event] : "other");
            sl_mon_metrics_number(out, source->devices[i].counts[event]);
        }
}

const struct sl_source_class sl_source_bpf_qp = {.name = "qp",
                                                 .how = "bpf",
                                                 .wanted = offsetof(struct sl_mon_config, bpf_rdma),
                                                 .create = qp_create,
                                                 .destroy = free,
                                                 .open = qp_open,
                                                 .close = qp_close,
                                                 .tick = qp_tick,
                                                 .metrics = qp_metrics,
                                                 .json = qp_json};

const struct sl_source_class sl_source_bpf_rdma_event = {
    .name = "rdma_event",
    .how = "bpf",
    .wanted = offsetof(struct sl_mon_config, bpf_rdma),
    .quiet = SL_SOURCE_QUIET(NIC_QP),
    .create = event_create,
    .destroy = free,
    .open = event_open,
    .close = event_close,
    .fd = event_fd,
    .read = event_read,
    .tick = event_tick,
    .dropped = event_dropped,
    .metrics = event_metrics};
