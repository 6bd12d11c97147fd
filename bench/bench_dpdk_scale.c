/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many connections of the DPDK transport by one port: N endpoints of one interface, connected to N
 * of another in the same process, over a ring between the two ports. A message of 64 bytes goes
 * over each in both directions, then one of 256 KiB over each. Prints what an end takes of memory,
 * and how long it takes.
 *
 *   usage: bench_dpdk_scale [PORTS_A PORTS_B] N...
 *   PORTS_x is SLUICE_DPDK_PORTS of either interface; all other SLUICE_* apply.
 */
#include "bench/scale.h"
#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define SMALL 64u
#define LARGE (256u << 10)
#define IDLE_ROUNDS 2000

static struct scale_side sides[2];
static uint8_t *in, *out[2]; /* LARGE bytes, of all endpoints */

static unsigned long rss_kib(void)
{
    return scale_kib("/proc/self/status", "VmRSS");
}

/* A message of each endpoint; of long ones the next begins when the last is through. Seconds. */
static double talk(size_t n, size_t len)
{
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            scale_post(sides, k, i, out[k], in, len);
        if (len == LARGE)
            scale_run(sides, "long messages");
    }
    scale_run(sides, "messages");
    return scale_seconds(start_ns);
}

static void open_all(const char *const ports[2], size_t n)
{
    in = scale_zeroed(1, LARGE);
    memset(in, 1, LARGE);
    for (int k = 0; k < 2; k++) {
        out[k] = scale_zeroed(1, LARGE);
        memset(out[k], 'a' + k, LARGE);
        scale_open(&sides[k], "dpdk", "DPDK_PORTS", ports[k], k, n);
    }
}

/* In a process of its own: DPDK starts once in each. */
static void measure(const void *arg, size_t n)
{
    unsigned long before, connected, small, large;
    double ends = 2.0 * (double)n, setup, talked, talked_long, idle;
    uint64_t start_ns;

    open_all(arg, n);
    before = rss_kib();
    start_ns = sl_now(&sl_clock_monotonic);
    scale_connect(sides, n);
    setup = scale_seconds(start_ns);
    connected = rss_kib();
    talked = talk(n, SMALL);
    small = rss_kib();
    talked_long = talk(n, LARGE);
    large = rss_kib();
    start_ns = sl_now(&sl_clock_monotonic);
    for (int i = 0; i < IDLE_ROUNDS; i++)
        scale_progress(sides);
    idle = scale_seconds(start_ns);
    printf("%zu connections by one port: connected in %.3f s (%.2f ms each)\n", n, setup,
           setup * 1e3 / (double)n);
    printf("  resident an end: %.1f KiB connected, %.1f after 64 B each way, %.1f after 256 KiB\n",
           (double)(connected - before) / ends, (double)(small - before) / ends,
           (double)(large - before) / ends);
    printf("  64 B each way over all in %.1f ms, 256 KiB one connection after the other in %.1f ms "
           "(%.1f Gbit/s)\n",
           talked * 1e3, talked_long * 1e3, ends * LARGE * 8 / talked_long / 1e9);
    printf("  a poll when all are idle: %.2f us\n", idle * 1e6 / (2.0 * IDLE_ROUNDS));
    printf("  torn down in %.3f s\n", scale_close(sides, n));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *ports[2] = {"ring:scale/0", "ring:scale/1"};
    struct rlimit limit;
    int first = 1;

    scale_start("bench_dpdk_scale");
    if (argc > 3 && strtoul(argv[1], NULL, 10) == 0) {
        ports[0] = argv[1];
        ports[1] = argv[2];
        first = 3;
    }
    if (argc <= first) {
        fprintf(stderr, "usage: bench_dpdk_scale [PORTS_A PORTS_B] N...\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max; /* sockets beside the connections */
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int i = first; i < argc; i++) {
        size_t n = scale_count(argv[i], 20000);

        if (n == 0)
            return 2;
        if (!scale_apart(measure, ports, n))
            return 1;
    }
    return 0;
}
