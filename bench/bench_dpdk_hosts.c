/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts of a fabric in one process, each an interface on a port of its own, all polled in turn by
 * one thread: beside the switch's process no other runs, so what is measured is the fabric, its
 * queues and congestion control, and not the scheduler of a machine with few cores.
 *
 *   usage: bench_dpdk_hosts [options] short PORTS     host 0 pings host 1, beside long flows
 *          bench_dpdk_hosts [options] stream PORTS    host 0 streams to host 1
 *   PORTS is SLUICE_DPDK_PORTS: four or two; all other SLUICE_* apply. Prints lines of JSON.
 *   -n N: pings (2000). -t MS: how long to stream (1000). -b BYTES: of a message (1 MiB).
 *   -w N: messages in flight (8). -c FILE -l LINE -a MS: writes a line to the switch meanwhile.
 */
#include "bench/dpdk_hosts.h"
#include "core/clock.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PINGS_MOST 100000
#define LONG_BYTES ((size_t)1 << 20)
#define SETTLE_NS (200 * SL_NS_PER_MS)
#define REST_NS 20000  /* between pings */
#define AWAY_NS 200000 /* without a poll: this process was off its core */
#define BIN_NS (5 * SL_NS_PER_MS)

/* ---- short messages beside a long flow ---- */

static void await(struct flow *flow, struct flow *beside)
{
    while (flow->came != flow->sent) {
        hosts_progress();
        flow_step(beside);
        flow_step(flow);
    }
}

/* One message there and one back. */
static void ping(struct flow *there, struct flow *back, struct flow *beside, unsigned pings,
                 const char *name)
{
    static uint64_t ns[PINGS_MOST], calm_ns[PINGS_MOST], away_ns[PINGS_MOST];
    uint64_t start_ns = hosts_now(), began_ns, long_from = 0;
    unsigned calm = 0;

    for (; beside != NULL && hosts_now() < start_ns + SETTLE_NS;) {
        flow_step(beside);
        hosts_progress();
    }
    began_ns = hosts_now();
    long_from = beside != NULL ? beside->came : 0;
    for (unsigned i = 0; i < pings; i++) {
        uint64_t left_ns = hosts_now();

        hosts_away_ns();
        there->is_over = back->is_over = true; /* one at a time */
        while (!flow_post(there))
            hosts_progress();
        await(there, beside);
        while (!flow_post(back))
            hosts_progress();
        await(back, beside);
        ns[i] = hosts_now() - left_ns;
        away_ns[i] = hosts_away_ns();
        if (away_ns[i] < AWAY_NS)
            calm_ns[calm++] = ns[i];
        for (uint64_t rest_ns = hosts_now() + REST_NS; hosts_now() < rest_ns;) {
            hosts_progress();
            flow_step(beside);
        }
    }
    double seconds = (double)(hosts_now() - began_ns) / 1e9;
    double gbit = beside != NULL
                      ? (double)(beside->came - long_from) * 8e-9 * (double)beside->len / seconds
                      : 0;
    double p50 = percentile_us(ns, pings, 50);
    printf("{\"what\": \"short\", \"wire\": \"switch\", \"fault\": \"%s\", \"p50_us\": %.3f, "
           "\"p99_us\": %.3f, \"calm_p99_us\": %.3f, \"calm\": %u, \"away_p99_us\": %.3f, "
           "\"gbit\": %.4f}\n",
           name, p50, percentile_us(ns, pings, 99), percentile_us(calm_ns, calm, 99), calm,
           percentile_us(away_ns, pings, 99), gbit);
    fflush(stdout);
}

static void short_beside(unsigned pings)
{
    struct sl_ep *ends[2], *apart[2], *far[2], *near[2];
    static const char *const names[] = {
        "idle", "beside a flow elsewhere", "beside a flow of another host",
        "beside a connection of the same host", "beside a channel of the same connection"};

    hosts_connect(0, 1, ends);
    hosts_connect(2, 3, apart);
    hosts_connect(2, 1, far);
    hosts_connect(0, 1, near);
    struct flow *there = flow_make(ends[0], ends[1], 0, 8, 1);
    struct flow *back = flow_make(ends[1], ends[0], 0, 8, 1);
    struct flow *beside[] = {NULL, flow_make(apart[0], apart[1], 0, LONG_BYTES, 8),
                             flow_make(far[0], far[1], 0, LONG_BYTES, 8),
                             flow_make(near[0], near[1], 0, LONG_BYTES, 8),
                             flow_make(ends[0], ends[1], 7, LONG_BYTES, 8)};

    ping(there, back, NULL, pings / 10, "warm up");
    for (unsigned i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        ping(there, back, beside[i], pings, names[i]);
        if (beside[i] != NULL)
            flow_end(beside[i]);
    }
    for (unsigned i = 1; i < sizeof(beside) / sizeof(beside[0]); i++)
        flow_free(beside[i]);
    flow_free(there);
    flow_free(back);
    hosts_part(ends);
    hosts_part(apart);
    hosts_part(far);
    hosts_part(near);
}

/* ---- a stream ---- */

struct stream {
    uint64_t ms, at_ms;
    size_t len;
    unsigned window;
    const char *control, *line;
};

static double processor_s(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void tell_switch(const struct stream *wanted)
{
    int fd = open(wanted->control, O_WRONLY | O_NONBLOCK);

    if (fd < 0 || dprintf(fd, "%s\n", wanted->line) < 0)
        hosts_die("the switch cannot be told");
    close(fd);
}

/* Bytes that came in each BIN_NS from start on. */
static size_t bins_of(const struct flow *flow, uint64_t start_ns, uint64_t ms, double *bins)
{
    size_t count = (size_t)(ms * SL_NS_PER_MS / BIN_NS);

    memset(bins, 0, count * sizeof(*bins));
    for (unsigned i = 0; i < flow->came && i < MESSAGES_MOST; i++) {
        uint64_t bin = (flow->log[i].came_ns - start_ns) / BIN_NS;
        if (flow->log[i].came_ns >= start_ns && bin < count)
            bins[bin] += (double)flow->len;
    }
    return count;
}

/* From the line on until a bin and the next have `part` of what those before it had: ms; and the
 * longest time without a message. */
static void told_of_break(const struct flow *flow, uint64_t start_ns, const struct stream *wanted,
                          double part)
{
    static double bins[100000];
    size_t count = bins_of(flow, start_ns, wanted->ms, bins);
    size_t at = (size_t)(wanted->at_ms * SL_NS_PER_MS / BIN_NS), back = at;
    uint64_t told_ns = start_ns + wanted->at_ms * SL_NS_PER_MS, last_ns = told_ns, gap_ns = 0;
    double before = 0, after = 0;

    for (size_t i = at / 2; i < at; i++)
        before += bins[i] / (double)(at - at / 2);
    while (back + 1 < count && bins[back] + bins[back + 1] < 2 * part * before)
        back++;
    for (size_t i = count - (count - at) / 4; i < count; i++)
        after += bins[i] / (double)((count - at) / 4);
    for (unsigned i = 0; i < flow->came && i < MESSAGES_MOST; i++) {
        if (flow->log[i].came_ns < told_ns)
            continue;
        if (flow->log[i].came_ns - last_ns > gap_ns)
            gap_ns = flow->log[i].came_ns - last_ns;
        last_ns = flow->log[i].came_ns;
    }
    printf(", \"back_ms\": %.1f, \"gap_ms\": %.3f, \"after\": %.4f",
           (double)(back - at) * (double)BIN_NS / 1e6, (double)gap_ns / 1e6,
           before > 0 ? after / before : 0);
}

static void stream(const struct stream *wanted)
{
    struct sl_ep *ends[2];
    size_t memory = mallinfo2().uordblks + mallinfo2().hblkhd;

    hosts_connect(0, 1, ends);
    struct flow *flow = flow_make(ends[0], ends[1], 0, wanted->len, wanted->window);
    for (uint64_t start_ns = hosts_now(); hosts_now() < start_ns + SETTLE_NS;) {
        flow_step(flow);
        hosts_progress();
    }
    memory = mallinfo2().uordblks + mallinfo2().hblkhd - memory - sizeof(*flow) - 2 * flow->len;
    flow->log = calloc(MESSAGES_MOST, sizeof(*flow->log));
    unsigned from = flow->came;
    uint64_t start_ns = hosts_now(), end_ns = start_ns + wanted->ms * SL_NS_PER_MS;
    double used_s = processor_s();
    bool is_told = wanted->line == NULL;
    while (hosts_now() < end_ns) {
        flow_step(flow);
        hosts_progress();
        if (!is_told && hosts_now() >= start_ns + wanted->at_ms * SL_NS_PER_MS) {
            tell_switch(wanted);
            is_told = true;
        }
    }
    used_s = processor_s() - used_s;
    unsigned came = flow->came - from;
    double bytes = (double)came * (double)flow->len;
    static uint64_t took[MESSAGES_MOST];
    size_t logged = 0;
    for (unsigned i = from; i < flow->came && i < MESSAGES_MOST; i++)
        took[logged++] = flow->log[i].took_ns;
    double p50_us = percentile_us(took, logged, 50);
    printf("{\"bytes\": %zu, \"gbit\": %.4f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"cpu_s_per_gb\": "
           "%.4f, \"memory\": %zu",
           flow->len, bytes * 8 / (double)(wanted->ms * SL_NS_PER_MS), p50_us,
           percentile_us(took, logged, 99), used_s / (bytes / 1e9), memory);
    if (wanted->line != NULL)
        told_of_break(flow, start_ns, wanted, 0.9 * 0.75);
    puts("}");
    fflush(stdout);
    flow_end(flow);
    flow_free(flow);
    hosts_part(ends);
}

int main(int argc, char **argv)
{
    struct stream wanted = {.ms = 1000, .at_ms = 300, .len = LONG_BYTES, .window = 8};
    unsigned pings = 2000;
    int c;

    while ((c = getopt(argc, argv, "n:t:b:w:c:l:a:")) != -1) {
        switch (c) {
        case 'n': pings = (unsigned)atoi(optarg); break;
        case 't': wanted.ms = (uint64_t)atoi(optarg); break;
        case 'b': wanted.len = (size_t)atoi(optarg); break;
        case 'w': wanted.window = (unsigned)atoi(optarg); break;
        case 'c': wanted.control = optarg; break;
        case 'l': wanted.line = optarg; break;
        case 'a': wanted.at_ms = (uint64_t)atoi(optarg); break;
        default: return 2;
        }
    }
    if (optind + 2 != argc || wanted.window < 1 || wanted.window > WINDOW_MOST || pings < 10 ||
        pings > PINGS_MOST || (wanted.line != NULL && wanted.control == NULL)) {
        fputs("usage: bench_dpdk_hosts [-n N] [-t MS] [-b BYTES] [-w N] [-c FILE -l LINE -a MS] "
              "short|stream PORTS\n",
              stderr);
        return 2;
    }
    bool is_short = strcmp(argv[optind], "short") == 0;
    hosts_open(argv[optind + 1], is_short ? HOSTS_MOST : 2);
    if (is_short)
        short_beside(pings);
    else
        stream(&wanted);
    hosts_close();
    return 0;
}
