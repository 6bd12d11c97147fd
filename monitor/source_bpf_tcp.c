/* SPDX-License-Identifier: Apache-2.0 */
/* Sources: what TCP does, of all connections of this host, by BPF: retransmits with their causes,
 * zero windows, resets, damaged segments. They count and accuse nobody: a retransmit alone is no
 * fault (docs/design/0040-node-agent.md). */
#include "monitor/bpf.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 32 /* connections that were told to send again most often */

#define PROGRAMS(...)                                                                              \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static const char *const causes[SL_BPF_CAUSES] = {"recovery", "timeout", "other"};

static const struct sl_mon_bpf_plan retransmit = {
    .object = "retransmit",
    /* The one with more arguments first: it does not load where the kernel gives fewer. */
    .ways = {PROGRAMS("on_attempt"), PROGRAMS("on_sent")},
    .way_count = 2,
    .counts = SL_BPF_CAUSES};
static const struct sl_mon_bpf_plan window = {
    .object = "window", .ways = {PROGRAMS("on_probe")}, .way_count = 1, .counts = 1};
static const struct sl_mon_bpf_plan reset = {.object = "reset",
                                             .ways = {PROGRAMS("on_send", "on_receive")},
                                             .way_count = 1,
                                             .counts = SL_BPF_RESETS};
static const struct sl_mon_bpf_plan checksum = {
    .object = "checksum", .ways = {PROGRAMS("on_damaged")}, .way_count = 1, .counts = 1};

static int create(const struct sl_mon_bpf_plan *plan, const struct sl_source_host *host, void **out)
{
    struct sl_mon_bpf *probe = malloc(sizeof(*probe));

    if (probe == NULL)
        return sl_fail(-ENOMEM, "no memory for the BPF probe '%s'", plan->object);
    sl_mon_bpf_init(probe, host, plan);
    *out = probe;
    return 0;
}

static int create_retransmit(const struct sl_source_host *host, void **out)
{
    return create(&retransmit, host, out);
}

static int create_window(const struct sl_source_host *host, void **out)
{
    return create(&window, host, out);
}

static int create_reset(const struct sl_source_host *host, void **out)
{
    return create(&reset, host, out);
}

static int create_checksum(const struct sl_source_host *host, void **out)
{
    return create(&checksum, host, out);
}

static int open_source(void *probe)
{
    return sl_mon_bpf_open(probe);
}

static void close_source(void *probe)
{
    sl_mon_bpf_close(probe);
}

static int tick(void *probe)
{
    return sl_mon_bpf_read(probe);
}

/* ---- metrics ---- */

static void retransmit_metrics(void *probe, enum sl_mon_format format, FILE *out)
{
    sl_mon_metrics_family(format, out, "sluice_tcp_retransmits", "counter", "",
                          "Segments that TCP sent again: after a gap in what the peer acknowledged "
                          "(recovery), after silence (timeout), or else.");
    for (unsigned i = 0; i < SL_BPF_CAUSES; i++) {
        sl_mon_metrics_open(out, "sluice_tcp_retransmits_total", "cause", causes[i]);
        sl_mon_metrics_number(out, sl_mon_bpf_count(probe, i));
    }
}

static void window_metrics(void *probe, enum sl_mon_format format, FILE *out)
{
    sl_mon_bpf_counter(format, out, "sluice_tcp_zero_windows",
                       "Segments that came from peers whose receive window was zero.",
                       sl_mon_bpf_count(probe, 0));
}

static void reset_metrics(void *probe, enum sl_mon_format format, FILE *out)
{
    sl_mon_metrics_family(format, out, "sluice_tcp_resets", "counter", "",
                          "TCP resets, sent and received.");
    sl_mon_metrics_open(out, "sluice_tcp_resets_total", "direction", "sent");
    sl_mon_metrics_number(out, sl_mon_bpf_count(probe, SL_BPF_RESET_SENT));
    sl_mon_metrics_open(out, "sluice_tcp_resets_total", "direction", "received");
    sl_mon_metrics_number(out, sl_mon_bpf_count(probe, SL_BPF_RESET_RECEIVED));
}

static void checksum_metrics(void *probe, enum sl_mon_format format, FILE *out)
{
    sl_mon_bpf_counter(format, out, "sluice_tcp_bad_checksums",
                       "TCP segments that arrived damaged.", sl_mon_bpf_count(probe, 0));
}

/* ---- which connections ---- */

struct flows {
    struct sl_bpf_flow_key keys[SL_BPF_FLOWS];
    struct sl_bpf_flow values[SL_BPF_FLOWS];
    bool is_shown[SL_BPF_FLOWS];
};

static uint64_t count_of(const struct sl_bpf_flow *flow)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < SL_BPF_CAUSES; i++)
        count += flow->counts[i];
    return count;
}

static void add_address(struct json_object *out, const char *name, unsigned family,
                        const uint8_t *address, unsigned port)
{
    char text[INET6_ADDRSTRLEN] = "", both[INET6_ADDRSTRLEN + 10];

    (void)inet_ntop(family == AF_INET6 ? AF_INET6 : AF_INET, address, text, sizeof(text));
    snprintf(both, sizeof(both), family == AF_INET6 ? "[%s]:%u" : "%s:%u", text, port);
    json_object_object_add(out, name, json_object_new_string(both));
}

static struct json_object *flow_json(const struct sl_bpf_flow_key *key,
                                     const struct sl_bpf_flow *flow, uint64_t now_ns)
{
    struct json_object *out = json_object_new_object();

    add_address(out, "local", key->family, key->local, key->local_port);
    add_address(out, "peer", key->family, key->peer, key->peer_port);
    json_object_object_add(
        out, "device",
        json_object_new_string_len(flow->device, (int)strnlen(flow->device, sizeof(flow->device))));
    for (unsigned i = 0; i < SL_BPF_CAUSES; i++)
        json_object_object_add(out, causes[i], json_object_new_int64((int64_t)flow->counts[i]));
    json_object_object_add(out, "ms_ago",
                           json_object_new_int64(now_ns > flow->last_ns
                                                     ? (int64_t)((now_ns - flow->last_ns) / 1000000)
                                                     : 0));
    return out;
}

/* The connections that sent again most, the worst first. */
static void retransmit_json(void *arg, struct json_object *out)
{
    struct sl_mon_bpf *probe = arg;
    struct json_object *list = json_object_new_array();
    struct flows *flows = probe->bpf != NULL ? calloc(1, sizeof(*flows)) : NULL;
    int count = flows != NULL
                    ? sl_bpf_list(probe->bpf, "flows", flows->keys, flows->values, SL_BPF_FLOWS)
                    : 0;

    for (unsigned shown = 0; shown < SHOWN; shown++) {
        int worst = -1;

        for (int i = 0; i < count; i++)
            if (!flows->is_shown[i] &&
                (worst < 0 || count_of(&flows->values[i]) > count_of(&flows->values[worst])))
                worst = i;
        if (worst < 0)
            break;
        flows->is_shown[worst] = true;
        json_object_array_add(list, flow_json(&flows->keys[worst], &flows->values[worst],
                                              sl_mon_time(probe->host.mon)->mono_ns));
    }
    free(flows);
    json_object_object_add(out, "tcp_retransmits", list);
}

const struct sl_source_class sl_source_bpf_retransmit = {
    .name = "tcp_retransmit",
    .how = "bpf",
    .wanted = offsetof(struct sl_mon_config, bpf_tcp),
    .create = create_retransmit,
    .destroy = free,
    .open = open_source,
    .close = close_source,
    .tick = tick,
    .metrics = retransmit_metrics,
    .json = retransmit_json};

const struct sl_source_class sl_source_bpf_window = {.name = "tcp_window",
                                                     .how = "bpf",
                                                     .wanted =
                                                         offsetof(struct sl_mon_config, bpf_tcp),
                                                     .create = create_window,
                                                     .destroy = free,
                                                     .open = open_source,
                                                     .close = close_source,
                                                     .tick = tick,
                                                     .metrics = window_metrics};

const struct sl_source_class sl_source_bpf_reset = {.name = "tcp_reset",
                                                    .how = "bpf",
                                                    .wanted =
                                                        offsetof(struct sl_mon_config, bpf_tcp),
                                                    .create = create_reset,
                                                    .destroy = free,
                                                    .open = open_source,
                                                    .close = close_source,
                                                    .tick = tick,
                                                    .metrics = reset_metrics};

const struct sl_source_class sl_source_bpf_checksum = {.name = "tcp_checksum",
                                                       .how = "bpf",
                                                       .wanted =
                                                           offsetof(struct sl_mon_config, bpf_tcp),
                                                       .create = create_checksum,
                                                       .destroy = free,
                                                       .open = open_source,
                                                       .close = close_source,
                                                       .tick = tick,
                                                       .metrics = checksum_metrics};
