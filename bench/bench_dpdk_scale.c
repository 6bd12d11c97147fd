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
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/registry.h"
#include "core/transport.h"
#include "lib/start.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL 64u
#define LARGE (256u << 10)
#define DEADLINE_NS (300 * SL_NS_PER_S)
#define IDLE_ROUNDS 2000

struct side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep **eps;
    struct sl_req *connects, *recvs, *sends;
    struct sl_sink *sinks;
    uint8_t *in, *out; /* LARGE bytes, of all endpoints */
};

static const struct sl_transport_ops *ops;
static unsigned long pending;

static void die(const char *what)
{
    fprintf(stderr, "bench_dpdk_scale: %s: %s\n", what, sluice_last_error());
    exit(1);
}

static unsigned long rss_kib(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long value = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            value = strtoul(line + 6, NULL, 10);
    if (file != NULL)
        fclose(file);
    return value;
}

static double seconds(uint64_t since_ns)
{
    return (double)(sl_now(&sl_clock_monotonic) - since_ns) / 1e9;
}

static void on_done(struct sl_req *req)
{
    if (req->status != 0)
        die("a connection or message");
    pending--;
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL)
        die("no memory");
    return memory;
}

static void open_side(struct side *s, const char *ports, int rank, size_t n)
{
    if (sl_start(&s->config, environ) != 0 || sl_config_set(&s->config, "DPDK_PORTS", ports) != 0)
        die("settings");
    ops = sl_transport_find("dpdk", 4); /* the start has loaded it */
    if (ops == NULL)
        die("SLUICE_MODULES_DIR names no folder of sluice-dpdk.so");
    s->config.connect_timeout_ms = DEADLINE_NS / SL_NS_PER_MS;
    s->worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &s->config, .rank = rank};
    sl_rng_init(&s->worker.rng, (uint64_t)getpid() * 2 + (unsigned)rank);
    s->eps = zeroed(n, sizeof(*s->eps));
    s->connects = zeroed(n, sizeof(*s->connects));
    s->recvs = zeroed(n, sizeof(*s->recvs));
    s->sends = zeroed(n, sizeof(*s->sends));
    s->sinks = zeroed(n, sizeof(*s->sinks));
    s->in = zeroed(1, LARGE);
    s->out = zeroed(1, LARGE);
    memset(s->in, 1, LARGE);
    memset(s->out, 'a' + rank, LARGE);
    if (ops->open(&s->worker, NULL, NULL, &s->iface) != 0)
        die("open");
}

static void progress(struct side *sides)
{
    for (int i = 0; i < 2; i++)
        if (ops->progress(sides[i].iface, 64) < 0)
            die("progress");
}

static void run(struct side *sides, const char *what)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;

    while (pending > 0) {
        progress(sides);
        if (sl_now(&sl_clock_monotonic) > deadline_ns) {
            fprintf(stderr, "bench_dpdk_scale: %s: %lu of them are not done in time\n", what,
                    pending);
            exit(1);
        }
    }
}

static void connect_all(struct side *sides, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sl_addr addr[2];

        for (int k = 0; k < 2; k++) {
            if (ops->ep_create(sides[k].iface, &sides[k].eps[i]) != 0 ||
                ops->ep_addr(sides[k].eps[i], &addr[k]) != 0)
                die("an endpoint");
            sides[k].eps[i]->peer = (int)i;
        }
        for (int k = 0; k < 2; k++) {
            struct sl_req *req = &sides[k].connects[i];

            *req = (struct sl_req){.status = SL_PENDING, .done = on_done};
            pending++;
            if (ops->ep_connect(sides[k].eps[i], &addr[!k], req) < 0)
                die("connect");
        }
    }
    run(sides, "connecting");
}

static void post(struct side *sides, int k, size_t i, size_t len)
{
    struct side *s = &sides[k];
    struct sl_buf buf = {.addr = s->out, .len = len};
    int rc;

    s->sinks[i] = (struct sl_sink){.dst = s->in, .len = len, .tag = len};
    s->recvs[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    s->sends[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    rc = ops->recv(s->eps[i], &s->sinks[i], &s->recvs[i]);
    if (rc < 0)
        die("a receive");
    pending += rc == 0;
    while ((rc = ops->send(s->eps[i], &buf, len, &s->sends[i])) == -EAGAIN)
        progress(sides);
    if (rc < 0)
        die("a send");
    pending += rc == 0;
}

/* A message of each endpoint; of long ones the next begins when the last is through. Seconds. */
static double talk(struct side *sides, size_t n, size_t len)
{
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            post(sides, k, i, len);
        if (len == LARGE)
            run(sides, "long messages");
    }
    run(sides, "messages");
    return seconds(start_ns);
}

static void measure(const char *const ports[2], size_t n)
{
    static struct side sides[2];
    unsigned long before, connected, small, large;
    double ends = 2.0 * (double)n, talked, talked_long, idle;
    uint64_t start_ns;

    for (int k = 0; k < 2; k++)
        open_side(&sides[k], ports[k], k, n);
    before = rss_kib();
    start_ns = sl_now(&sl_clock_monotonic);
    connect_all(sides, n);
    double setup = seconds(start_ns);
    connected = rss_kib();
    talked = talk(sides, n, SMALL);
    small = rss_kib();
    talked_long = talk(sides, n, LARGE);
    large = rss_kib();
    start_ns = sl_now(&sl_clock_monotonic);
    for (int i = 0; i < IDLE_ROUNDS; i++)
        progress(sides);
    idle = seconds(start_ns);
    printf("%zu connections by one port: connected in %.3f s (%.2f ms each)\n", n, setup,
           setup * 1e3 / (double)n);
    printf("  resident an end: %.1f KiB connected, %.1f after 64 B each way, %.1f after 256 KiB\n",
           (double)(connected - before) / ends, (double)(small - before) / ends,
           (double)(large - before) / ends);
    printf("  64 B each way over all in %.1f ms, 256 KiB one connection after the other in %.1f ms "
           "(%.1f Gbit/s)\n",
           talked * 1e3, talked_long * 1e3, ends * LARGE * 8 / talked_long / 1e9);
    printf("  a poll when all are idle: %.2f us\n", idle * 1e6 / (2.0 * IDLE_ROUNDS));
    start_ns = sl_now(&sl_clock_monotonic);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            ops->ep_destroy(sides[k].eps[i]);
    for (int k = 0; k < 2; k++)
        ops->close(sides[k].iface);
    printf("  torn down in %.3f s\n", seconds(start_ns));
    fflush(stdout);
}

/* In a process of its own: DPDK starts once in each. */
static bool measure_apart(const char *const ports[2], size_t n)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        measure(ports, n);
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    const char *ports[2] = {"ring:scale/0", "ring:scale/1"};
    struct rlimit limit;
    int first = 1;

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
        unsigned long n = strtoul(argv[i], NULL, 10);

        if (n == 0 || n > 20000) {
            fprintf(stderr, "bench_dpdk_scale: '%s' is no number of connections\n", argv[i]);
            return 2;
        }
        if (!measure_apart(ports, n))
            return 1;
    }
    return 0;
}
