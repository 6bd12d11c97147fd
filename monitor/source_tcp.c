/* SPDX-License-Identifier: Apache-2.0 */
/* Source: TCP connections, by inet_diag, and the host's counters (monitor/tcp.h). */
#include "monitor/netlink_list.h"
#include "monitor/source.h"
#include "monitor/tcp.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OWN_MAX 256            /* addresses of this host */
#define OWN_NS (10 * SL_MON_S) /* between looks for new ones */
#define TEXT_MAX (16u << 10)   /* of /proc/net/netstat */
#define FLOWS_PER_S 2000       /* more are listed less often: 8,000 take 12 ms on a busy machine */

struct own {
    uint8_t address[16];
    char netif[IF_NAMESIZE]; /* "": it is not watched */
};

struct source {
    struct sl_source_host host;
    struct sl_mon_tcp *tcp;
    struct sl_mon_netlink diag, route;
    int files[2]; /* snmp, netstat; -1: none */
    struct own own[OWN_MAX];
    unsigned own_count;
    uint64_t own_ns;    /* 0: look again */
    uint64_t listed_ns; /* last; 0: never */
};

/* ---- addresses of this host ---- */

static bool take_own(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct source *source = arg;
    struct own *own = &source->own[source->own_count];
    unsigned ifindex;

    if (source->own_count == OWN_MAX)
        return false;
    if (!sl_mon_tcp_parse_own(message, len, own->address, &ifindex))
        return true;
    if (if_indextoname(ifindex, own->netif) == NULL ||
        sl_mon_config_ignores(source->host.config, own->netif))
        own->netif[0] = '\0';
    source->own_count++;
    return true;
}

static int read_own(struct source *source)
{
    char bytes[64] __attribute__((aligned(8)));
    struct nlmsghdr *message = mnl_nlmsg_put_header(bytes);
    struct ifaddrmsg *header;
    int err;

    message->nlmsg_type = RTM_GETADDR;
    header = mnl_nlmsg_put_extra_header(message, sizeof(*header));
    header->ifa_family = AF_UNSPEC;
    source->own_count = 0;
    source->own_ns = sl_mon_time(source->host.mon)->mono_ns;
    err = sl_mon_netlink_list(&source->route, message, take_own, source);
    return err == 0 ? 0
                    : sl_fail(err, "rtnetlink does not list addresses: %s", sluice_strerror(err));
}

static const struct own *own_of(const struct source *source, const uint8_t address[16])
{
    for (unsigned i = 0; i < source->own_count; i++)
        if (memcmp(source->own[i].address, address, 16) == 0)
            return &source->own[i];
    return NULL;
}

/* ---- connections ---- */

static bool take_flow(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct source *source = arg;
    struct sl_mon_tcp_flow flow;
    const struct own *own;

    if (!sl_mon_tcp_parse(message, len, &flow))
        return true;
    own = own_of(source, flow.local);
    if (own == NULL)
        source->own_ns = 0; /* an address that is new */
    else if (own->netif[0] != '\0' && own_of(source, flow.remote) == NULL)
        sl_mon_tcp_flow(source->tcp, own->netif, &flow);
    return true;
}

static int list_flows(struct source *source, uint8_t family)
{
    char bytes[128] __attribute__((aligned(8)));
    struct nlmsghdr *message = mnl_nlmsg_put_header(bytes);
    struct inet_diag_req_v2 *request;

    message->nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request = mnl_nlmsg_put_extra_header(message, sizeof(*request));
    request->sdiag_family = family;
    request->sdiag_protocol = IPPROTO_TCP;
    request->idiag_ext = 1 << (INET_DIAG_INFO - 1);
    request->idiag_states = 1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT; /* those that may send */
    return sl_mon_netlink_list(&source->diag, message, take_flow, source);
}

static void read_counters(struct source *source, struct sl_mon_tcp_counters *out)
{
    char text[TEXT_MAX];

    *out = (struct sl_mon_tcp_counters){.has = 0};
    for (unsigned i = 0; i < 2; i++) {
        ssize_t len = pread(source->files[i], text, sizeof(text) - 1, 0);

        if (len <= 0)
            continue;
        text[len] = '\0';
        sl_mon_tcp_read_counters(text, out);
    }
}

static int tick(void *arg)
{
    struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;
    uint64_t wait_ns = sl_mon_tcp_flows(source->tcp) * (SL_MON_S / FLOWS_PER_S);
    struct sl_mon_tcp_counters counters;
    int err = 0;

    if (source->listed_ns != 0 && now_ns - source->listed_ns < wait_ns)
        return 0;
    source->listed_ns = now_ns;
    if (source->own_ns == 0 || now_ns - source->own_ns >= OWN_NS)
        err = read_own(source);
    if (err != 0)
        return err;
    sl_mon_tcp_begin(source->tcp);
    err = list_flows(source, AF_INET);
    if (err == 0)
        err = list_flows(source, AF_INET6);
    if (err == -ENOENT || err == -EINVAL)
        err =
            sl_fail(-ENOTSUP, "this kernel lists no TCP connections: it needs CONFIG_INET_TCP_DIAG "
                              "(modprobe tcp_diag)");
    else if (err != 0)
        err = sl_fail(err, "inet_diag does not list connections: %s", sluice_strerror(err));
    read_counters(source, &counters);
    sl_mon_tcp_end(source->tcp, &counters);
    return err;
}

/* ---- its life ---- */

static void close_source(void *arg)
{
    struct source *source = arg;

    sl_mon_netlink_close(&source->diag);
    sl_mon_netlink_close(&source->route);
    for (unsigned i = 0; i < 2; i++) {
        if (source->files[i] >= 0)
            close(source->files[i]);
        source->files[i] = -1;
    }
}

static void destroy(void *arg)
{
    struct source *source = arg;

    sl_mon_tcp_destroy(source->tcp);
    free(source);
}

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));
    int err;

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for TCP connections");
    source->host = *host;
    source->files[0] = source->files[1] = -1;
    err = sl_mon_tcp_create(host->mon, &source->tcp);
    if (err != 0) {
        free(source);
        return err;
    }
    *out = source;
    return 0;
}

static int open_source(void *arg)
{
    struct source *source = arg;
    int err = sl_mon_netlink_open(&source->diag, NETLINK_SOCK_DIAG);

    if (err == 0)
        err = sl_mon_netlink_open(&source->route, NETLINK_ROUTE);
    source->files[0] = open("/proc/net/snmp", O_RDONLY | O_CLOEXEC);
    source->files[1] = open("/proc/net/netstat", O_RDONLY | O_CLOEXEC);
    source->own_ns = source->listed_ns = 0;
    if (err == -EPROTONOSUPPORT)
        err = sl_fail(-ENOTSUP, "this kernel has no inet_diag (CONFIG_INET_DIAG)");
    else if (err != 0)
        err = sl_fail(err, "inet_diag cannot be had: %s", sluice_strerror(err));
    else
        err = tick(source);
    if (err != 0)
        close_source(source);
    return err;
}

/* ---- what others ask ---- */

static uint64_t dropped(const void *arg)
{
    const struct source *source = arg;

    return sl_mon_tcp_left_out(source->tcp);
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;
    const uint64_t *totals = sl_mon_tcp_totals(source->tcp);

    sl_mon_metrics_family(format, out, "sluice_tcp_connections", "gauge", "",
                          "Connections to other hosts.");
    fprintf(out, "sluice_tcp_connections %u\n", sl_mon_tcp_flows(source->tcp));
    sl_mon_metrics_family(format, out, "sluice_tcp_events", "counter", "",
                          "What TCP of this host counted, by kind.");
    for (unsigned i = 0; i < SL_MON_TCP_COUNTER_COUNT; i++) {
        sl_mon_metrics_open(out, "sluice_tcp_events_total", "kind",
                            sl_mon_tcp_counter_kind((enum sl_mon_tcp_counter)i));
        sl_mon_metrics_number(out, totals[i]);
    }
}

static void json(void *arg, struct json_object *out)
{
    const struct source *source = arg;
    struct json_object *peers = json_object_new_array();
    struct sl_mon_tcp_view view;

    json_object_object_add(out, "connections",
                           json_object_new_int64(sl_mon_tcp_flows(source->tcp)));
    for (unsigned i = 0; sl_mon_tcp_view(source->tcp, i, &view); i++) {
        struct json_object *peer;

        if (view.name[0] == '\0')
            continue;
        peer = json_object_new_object();
        json_object_object_add(peer, "name", json_object_new_string(view.name));
        json_object_object_add(peer, "connections", json_object_new_int64(view.flows));
        json_object_object_add(peer, "bytes_per_second",
                               json_object_new_int64((int64_t)view.acked_bytes));
        json_object_object_add(peer, "best_bytes_per_second",
                               json_object_new_int64((int64_t)view.best_bytes));
        json_object_object_add(peer, "sent_again_per_second", json_object_new_double(view.again));
        json_object_object_add(peer, "spurious_per_second", json_object_new_double(view.twice));
        json_object_object_add(peer, "round_trip_us", json_object_new_int64(view.rtt_us));
        json_object_array_add(peers, peer);
    }
    json_object_object_add(out, "peers", peers);
}

const struct sl_source_class sl_source_tcp = {.name = "tcp",
                                              .how = "inet_diag",
                                              .wanted = offsetof(struct sl_mon_config, tcp),
                                              .period_ns = SL_MON_S * 9 / 10,
                                              .create = create,
                                              .destroy = destroy,
                                              .open = open_source,
                                              .close = close_source,
                                              .tick = tick,
                                              .dropped = dropped,
                                              .metrics = metrics,
                                              .json = json};
