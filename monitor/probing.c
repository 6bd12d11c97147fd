/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probing.h"

#include "monitor/event_line.h"
#include "monitor/child.h"
#include "monitor/json_add.h"
#include "monitor/probe_rdma.h"
#include "monitor/probe_secret.h"
#include "monitor/probe_udp.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LATE_NS (8 * SL_MON_S) /* besides count times gap, until a probe is given up */

struct one {
    uint64_t id;
    struct sl_probing_wish wish;
    struct sl_probe_order order;
    struct sl_probe_report report; /* once it is over */
};

struct sl_probing {
    const struct sl_mon_config *config;
    char host[SL_PROBE_HOST];
    struct sl_mon_child child;
    bool is_running; /* the first of those that wait */
    uint64_t last_id, done, failed;
    struct one waiting[SL_PROBING_WAITING];
    unsigned waiting_count;
    struct one kept[SL_PROBING_KEPT]; /* the latest first */
    unsigned kept_count;
};

int sl_probing_open(const struct sl_mon_config *config, struct sl_probing **out)
{
    struct sl_probing *probing = calloc(1, sizeof(*probing));

    if (probing == NULL)
        return sl_fail(-ENOMEM, "no memory for probes");
    probing->config = config;
    probing->child.fd = -1;
    if (gethostname(probing->host, sizeof(probing->host) - 1) != 0)
        probing->host[0] = '\0';
    *out = probing;
    return 0;
}

void sl_probing_close(struct sl_probing *probing)
{
    if (probing == NULL)
        return;
    sl_mon_child_kill(&probing->child);
    free(probing);
}

/* ---- what is asked for ---- */

/* An address alone. */
static bool take_from(const char *text, struct sl_probe_order *order)
{
    char with_port[72];

    snprintf(with_port, sizeof(with_port), strchr(text, ':') != NULL ? "[%s]:0" : "%s:0", text);
    return sl_mon_address(with_port, &order->from, &order->from_len);
}

/* The interface of an RDMA port, by sysfs; of an interface itself. */
static int take_rail(const struct sl_probing *probing, const char *rail,
                     struct sl_probe_order *order)
{
    char path[2 * SL_MON_PATH], text[32] = "";
    const char *colon = strrchr(rail, ':');
    FILE *file;

    if (rail[0] == '.' || strchr(rail, '/') != NULL)
        return sl_fail(-EINVAL, "'%s' is no name of a rail", rail);
    if (colon == NULL) {
        if (strlen(rail) >= IFNAMSIZ)
            return sl_fail(-EINVAL, "there is no interface %s", rail);
        snprintf(order->device, sizeof(order->device), "%s", rail);
        return 0;
    }
    snprintf(path, sizeof(path), "%s/%.*s/ports/%s/gid_attrs/ndevs/0", probing->config->rdma_root,
             (int)(colon - rail), rail, colon + 1);
    file = fopen(path, "re");
    if (file == NULL || fgets(text, sizeof(text), file) == NULL)
        text[0] = '\0';
    if (file != NULL)
        fclose(file);
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0' || strlen(text) >= sizeof(order->device))
        return sl_fail(-EINVAL, "RDMA port %s has no interface here to probe over", rail);
    snprintf(order->device, sizeof(order->device), "%s", text);
    return 0;
}

/* A port is found when it is asked for, though it is the other process that uses it. */
static int take_port(const struct sl_probing *probing, const struct sl_probing_wish *wish,
                     struct sl_probe_order *order)
{
    struct sl_probe_rail rail;

    if (wish->rail[0] == '\0')
        return sl_fail(-EINVAL, "a probe over RDMA needs a port: rail=mlx5_0:1");
    if (wish->bytes > SL_PROBE_UD_MOST)
        return sl_fail(-EINVAL, "a probe over RDMA has packets of %u bytes at most",
                       SL_PROBE_UD_MOST);
    order->is_rdma = true;
    order->traffic_class = (uint8_t)wish->traffic_class;
    order->rdma_root = probing->config->rdma_root;
    order->library = probing->config->probe_library;
    memcpy(order->rail, wish->rail, sizeof(order->rail));
    memcpy(order->to_rail, wish->to_rail, sizeof(order->to_rail));
    return sl_probe_rail_read(order->rdma_root, order->rail, NULL, &rail) == 0 ? 0 : -EINVAL;
}

static int take(const struct sl_probing *probing, const struct sl_probing_wish *wish,
                struct sl_probe_order *order)
{
    uint64_t span_us = (uint64_t)wish->count * wish->gap_us;
    int err = sl_probe_secret(probing->config->probe_secret, order->key);

    if (err != 0)
        return err;
    if (!sl_mon_address(wish->to, &order->to, &order->to_len))
        return sl_fail(-EINVAL, "to is to be an address and a port, as 192.0.2.2:9495, and is '%s'",
                       wish->to);
    if (wish->from[0] != '\0' && !take_from(wish->from, order))
        return sl_fail(-EINVAL, "from is to be an address, and is '%s'", wish->from);
    if (!wish->is_rdma && (wish->to_rail[0] != '\0' || wish->traffic_class != 0))
        return sl_fail(-EINVAL, "to_rail and traffic_class are for probes over RDMA");
    if (wish->traffic_class > UINT8_MAX)
        return sl_fail(-EINVAL, "traffic_class is to be 0 to 255, and is %u", wish->traffic_class);
    if (!wish->is_rdma && order->from_len > 0 && order->from.ss_family != order->to.ss_family)
        return sl_fail(-EINVAL, "from and to are addresses of two kinds");
    if (wish->count == 0 || wish->count > SL_PROBE_COUNT_MAX || wish->bytes < SL_PROBE_LEAST ||
        wish->bytes > SL_PROBE_MOST || wish->gap_us < 100)
        return sl_fail(-EINVAL,
                       "a probe has 1 to %u packets of %u to %u bytes, 100 us apart at least",
                       SL_PROBE_COUNT_MAX, SL_PROBE_LEAST, SL_PROBE_MOST);
    if (span_us > SL_PROBE_TIME_MAX_S * UINT64_C(1000000))
        return sl_fail(-EINVAL, "a probe takes %d s at most, and this one %" PRIu64,
                       SL_PROBE_TIME_MAX_S, span_us / 1000000);
    order->count = wish->count;
    order->bytes = wish->bytes;
    order->gap_ns = (uint64_t)wish->gap_us * 1000;
    if (getrandom(&order->session, sizeof(order->session), 0) != sizeof(order->session))
        return sl_fail(-EIO, "there is no chance to be had for a probe");
    if (wish->is_rdma)
        return take_port(probing, wish, order);
    return wish->rail[0] != '\0' ? take_rail(probing, wish->rail, order) : 0;
}

int sl_probing_ask(struct sl_probing *probing, const struct sl_probing_wish *wish,
                   const struct sl_mon_time *now, uint64_t *id)
{
    struct one *one = &probing->waiting[probing->waiting_count];
    int err;

    if (probing->waiting_count == SL_PROBING_WAITING)
        return sl_fail(-EAGAIN, "%u probes wait already: ask again later", SL_PROBING_WAITING);
    *one = (struct one){.wish = *wish};
    err = take(probing, wish, &one->order);
    if (err != 0)
        return err;
    one->id = *id = ++probing->last_id;
    probing->waiting_count++;
    sl_probing_tick(probing, now);
    return 0;
}

/* ---- one after another ---- */

static void work(const void *arg, void *answer)
{
    const struct sl_probe_order *order = arg;

    (order->is_rdma ? sl_probe_rdma : sl_probe_udp)(order, answer);
}

static void keep(struct sl_probing *probing)
{
    struct one *done = &probing->waiting[0];

    *(done->report.why[0] == '\0' ? &probing->done : &probing->failed) += 1;
    memmove(&probing->kept[1], &probing->kept[0], (SL_PROBING_KEPT - 1) * sizeof(probing->kept[0]));
    probing->kept[0] = *done;
    explicit_bzero(probing->kept[0].order.key, SL_DIGEST_BYTES);
    probing->kept_count += probing->kept_count < SL_PROBING_KEPT;
    memmove(&probing->waiting[0], &probing->waiting[1],
            --probing->waiting_count * sizeof(probing->waiting[0]));
    probing->is_running = false;
}

static void fail(struct sl_probing *probing, uint64_t wall_ns)
{
    struct sl_probe_report *report = &probing->waiting[0].report;

    *report = (struct sl_probe_report){.wall_ns = wall_ns};
    snprintf(report->why, sizeof(report->why), "%s", sluice_last_error());
    keep(probing);
}

void sl_probing_tick(struct sl_probing *probing, const struct sl_mon_time *now)
{
    struct one *first = &probing->waiting[0];
    int got;

    _Static_assert(sizeof(struct sl_probe_report) <= SL_MON_CHILD_ANSWER, "it goes back whole");
    if (probing->is_running) {
        got =
            sl_mon_child_poll(&probing->child, now->mono_ns, &first->report, sizeof(first->report));
        if (got == 0)
            return;
        /* It comes from a process of our own, and is a text all the same. */
        first->report.why[sizeof(first->report.why) - 1] = '\0';
        first->report.host[sizeof(first->report.host) - 1] = '\0';
        first->report.to_rail[sizeof(first->report.to_rail) - 1] = '\0';
        if (got < 0)
            fail(probing, now->wall_ns);
        else
            keep(probing);
    }
    if (probing->waiting_count == 0)
        return;
    got = sl_mon_child_start(&probing->child, work, &first->order, sizeof(first->report),
                             now->mono_ns + first->order.count * first->order.gap_ns + LATE_NS +
                                 (first->order.is_rdma ? SL_PROBE_RDMA_NS : 0));
    probing->is_running = got == 0;
    if (got != 0)
        fail(probing, now->wall_ns);
}

/* ---- what others ask ---- */

static void add_spread(struct json_object *to, const char *key,
                       const struct sl_probe_spread *spread)
{
    struct json_object *one = json_object_new_object();

    sl_json_add_signed(one, "least", spread->least_ns);
    sl_json_add_signed(one, "mean", spread->mean_ns);
    sl_json_add_signed(one, "p50", spread->p50_ns);
    sl_json_add_signed(one, "p99", spread->p99_ns);
    sl_json_add_signed(one, "most", spread->most_ns);
    json_object_object_add(to, key, one);
}

static void add_ports(struct json_object *to, const struct one *one)
{
    const struct sl_probe_report *report = &one->report;
    char gid[48], to_gid[48];

    sl_json_add_text(to, "to_rail",
                     report->to_rail[0] != '\0' ? report->to_rail : one->wish.to_rail);
    sl_json_add_signed(to, "traffic_class", one->wish.traffic_class);
    if (report->mtu == 0)
        return; /* it did not come to that */
    sl_probe_gid_text(report->gid, gid, sizeof(gid));
    sl_probe_gid_text(report->to_gid, to_gid, sizeof(to_gid));
    sl_json_add_text(to, "gid", gid);
    sl_json_add_signed(to, "gid_index", report->gid_index);
    sl_json_add_text(to, "to_gid", to_gid);
    sl_json_add_signed(to, "mtu", report->mtu);
}

static struct json_object *one_json(const struct sl_probing *probing, const struct one *one)
{
    const struct sl_probe_report *report = &one->report;
    struct json_object *object = json_object_new_object();
    char time_text[48];

    sl_mon_time_text(report->wall_ns, time_text, sizeof(time_text));
    sl_json_add_signed(object, "version", 1);
    sl_json_add_text(object, "type", "probe");
    sl_json_add_signed(object, "id", (int64_t)one->id);
    sl_json_add_text(object, "time", time_text);
    sl_json_add_text(object, "from", probing->host);
    sl_json_add_text(object, "to", report->host);
    sl_json_add_text(object, "address", one->wish.to);
    sl_json_add_text(object, "rail", one->wish.rail);
    sl_json_add_text(object, "transport", one->wish.is_rdma ? "rdma" : "udp");
    if (one->wish.is_rdma)
        add_ports(object, one);
    sl_json_add_signed(object, "bytes", one->wish.bytes);
    sl_json_add_signed(object, "sent", report->result.sent);
    sl_json_add_signed(object, "answered", report->result.answered);
    sl_json_add_signed(object, "lost_there", report->result.lost_there);
    sl_json_add_signed(object, "lost_back", report->result.lost_back);
    add_spread(object, "rtt_ns", &report->result.rtt);
    add_spread(object, "there_ns", &report->result.there);
    add_spread(object, "back_ns", &report->result.back);
    sl_json_add_text(object, "why", report->why);
    return object;
}

void sl_probing_json(const struct sl_probing *probing, struct json_object *out)
{
    struct json_object *own = json_object_new_object(), *list = json_object_new_array();

    json_object_object_add(out, "probing", own);
    sl_json_add_signed(own, "waiting", probing->waiting_count);
    sl_json_add_signed(own, "last", (int64_t)probing->last_id);
    for (unsigned i = 0; i < probing->kept_count; i++)
        json_object_array_add(list, one_json(probing, &probing->kept[i]));
    json_object_object_add(own, "results", list);
}

void sl_probing_metrics(const struct sl_probing *probing, enum sl_mon_format format, FILE *out)
{
    sl_mon_metrics_family(format, out, "sluice_probing", "counter", "",
                          "Probes that this agent was asked for.");
    sl_mon_metrics_open(out, "sluice_probing_total", "result", "done");
    sl_mon_metrics_number(out, probing->done);
    sl_mon_metrics_open(out, "sluice_probing_total", "result", "failed");
    sl_mon_metrics_number(out, probing->failed);
}
