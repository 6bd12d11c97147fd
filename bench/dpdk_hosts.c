/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/dpdk_hosts.h"

#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/registry.h"
#include "lib/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct host {
    struct sl_worker worker;
    struct sl_iface *iface;
} hosts[HOSTS_MOST];
static const struct sl_transport_ops *ops;
static struct sl_config config;
static unsigned host_count;
static uint64_t away_ns, looked_ns;

void hosts_die(const char *what)
{
    fprintf(stderr, "bench_dpdk_hosts: %s: %s\n", what, sluice_last_error());
    exit(1);
}

uint64_t hosts_now(void)
{
    return sl_now(&sl_clock_monotonic);
}

void hosts_progress(void)
{
    uint64_t now_ns = hosts_now();

    if (now_ns - looked_ns > away_ns)
        away_ns = now_ns - looked_ns;
    looked_ns = now_ns;
    for (unsigned i = 0; i < host_count; i++)
        if (ops->progress(hosts[i].iface, 64) < 0)
            hosts_die("progress");
}

void hosts_open(const char *ports, unsigned count)
{
    host_count = count;
    if (sl_start(&config, environ) != 0 || sl_config_set(&config, "DPDK_PORTS", ports) != 0)
        hosts_die("settings");
    ops = sl_transport_find("dpdk", 4);
    if (ops == NULL)
        hosts_die("no transport");
    for (unsigned i = 0; i < host_count; i++) {
        struct sl_device dev = {0};

        snprintf(dev.name, sizeof(dev.name), "net_memif%u", i);
        hosts[i].worker =
            (struct sl_worker){.clock = &sl_clock_monotonic, .config = &config, .rank = (int)i};
        sl_rng_init(&hosts[i].worker.rng, (uint64_t)getpid() + i);
        if (ops->open(&hosts[i].worker, &dev, NULL, &hosts[i].iface) != 0)
            hosts_die("open");
    }
}

void hosts_connect(unsigned a, unsigned b, struct sl_ep *ends[2])
{
    struct sl_addr addr[2] = {0};
    struct sl_req reqs[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    unsigned of[2] = {a, b};

    for (int i = 0; i < 2; i++)
        if (ops->ep_create(hosts[of[i]].iface, &ends[i]) != 0 ||
            ops->ep_addr(ends[i], &addr[i]) != 0)
            hosts_die("an endpoint");
    for (int i = 0; i < 2; i++) {
        ends[i]->peer = (int)of[!i];
        if (ops->ep_connect(ends[i], &addr[!i], &reqs[i]) < 0)
            hosts_die("connect");
    }
    while (reqs[0].status == SL_PENDING || reqs[1].status == SL_PENDING)
        hosts_progress();
    if (reqs[0].status != 0 || reqs[1].status != 0)
        hosts_die("connect");
}

void hosts_part(struct sl_ep *ends[2])
{
    for (int i = 0; i < 2; i++)
        ops->ep_destroy(ends[i]);
}

void hosts_close(void)
{
    for (unsigned i = 0; i < host_count; i++)
        ops->close(hosts[i].iface);
}

uint64_t hosts_away_ns(void)
{
    uint64_t ns = away_ns;

    away_ns = 0;
    looked_ns = hosts_now();
    return ns;
}

/* ---- flows ---- */

struct flow *flow_make(struct sl_ep *from, struct sl_ep *to, uint32_t channel, size_t len,
                       unsigned window)
{
    struct flow *flow = calloc(1, sizeof(*flow));

    if (flow == NULL || (flow->out = malloc(len)) == NULL || (flow->in = malloc(len)) == NULL)
        hosts_die("memory");
    memset(flow->out, 1, len);
    memset(flow->in, 1, len);
    flow->from = from;
    flow->to = to;
    flow->channel = channel;
    flow->len = len;
    flow->window = window;
    if (channel != 0 &&
        (ops->channel_open(from, channel) != 0 || ops->channel_open(to, channel) != 0))
        hosts_die("a channel");
    return flow;
}

void flow_free(struct flow *flow)
{
    free(flow->log);
    free(flow->out);
    free(flow->in);
    free(flow);
}

static int taken(int rc, struct sl_req *req)
{
    if (rc < 0 && rc != -EAGAIN)
        hosts_die("a message");
    if (rc == 1)
        req->status = 0;
    return rc;
}

/* The receive first, so that a long message never waits for it. False: the queue is full. */
bool flow_post(struct flow *flow)
{
    unsigned at = flow->sent % flow->window;
    struct sl_buf buf = {.addr = flow->out, .len = flow->len, .channel = flow->channel};

    if (flow->recvs[at].status != SL_PENDING || flow->sinks[at].len == 0) {
        flow->sinks[at] =
            (struct sl_sink){.dst = flow->in, .len = flow->len, .tag = 1, .channel = flow->channel};
        flow->recvs[at] = (struct sl_req){.status = SL_PENDING};
        if (taken(ops->recv(flow->to, &flow->sinks[at], &flow->recvs[at]), &flow->recvs[at]) < 0) {
            flow->sinks[at].len = 0;
            flow->recvs[at].status = 0;
            return false;
        }
    }
    flow->sends[at] = (struct sl_req){.status = SL_PENDING};
    flow->posted_ns[at] = hosts_now();
    if (taken(ops->send(flow->from, &buf, 1, &flow->sends[at]), &flow->sends[at]) < 0) {
        flow->sends[at].status = 0;
        return false;
    }
    flow->sent++;
    return true;
}

void flow_step(struct flow *flow)
{
    if (flow == NULL)
        return;
    while (flow->came != flow->sent) {
        unsigned at = flow->came % flow->window;

        if (flow->recvs[at].status == SL_PENDING || flow->sends[at].status == SL_PENDING)
            break;
        if (flow->recvs[at].status != 0 || flow->sends[at].status != 0)
            hosts_die("a message of a flow");
        if (flow->log != NULL && flow->came < MESSAGES_MOST) {
            uint64_t now_ns = hosts_now();
            flow->log[flow->came] = (struct message){now_ns, now_ns - flow->posted_ns[at]};
        }
        flow->sinks[at].len = 0;
        flow->came++;
    }
    while (!flow->is_over && flow->sent - flow->came < flow->window && flow_post(flow))
        ;
}

void flow_end(struct flow *flow)
{
    flow->is_over = true;
    while (flow->came != flow->sent) {
        hosts_progress();
        flow_step(flow);
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

double percentile_us(uint64_t *ns, size_t count, double percent)
{
    qsort(ns, count, sizeof(*ns), by_value);
    return count ? (double)ns[(size_t)((double)(count - 1) * percent / 100)] / 1e3 : 0;
}
