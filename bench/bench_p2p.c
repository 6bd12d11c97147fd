/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport between two processes, measured as perftest measures verbs: half the round trip of 8
 * B, and the bandwidth of a stream of messages one way, out of and into registered memory.
 *
 *   usage: bench_p2p [-l] [-w N] [-n NETNS_A,NETNS_B] TRANSPORT [DEVICES_A DEVICES_B]
 *   -l: latency alone. -w N: so many messages in flight, each in memory of its own as a program's
 *   are. -n: files of the ends' network namespaces, such as /run/netns/a. DEVICES_x is
 *   SLUICE_VERBS_DEVICES of either process, for dpdk SLUICE_DPDK_PORTS; all other SLUICE_* apply.
 */
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/host.h"
#include "core/registry.h"
#include "core/transport.h"
#include "lib/start.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 20)
#define WINDOW 32
#define EMPTY_MAX 50
#define PING_ROUNDS 2000
#define WARM_ROUNDS 2048 /* before: rings of that many buffers find their pages */
#define STREAM_ROUNDS 7
#define STREAM_BYTES ((size_t)32 << 20)

struct side {
    bool first;
    int meet;
    const struct sl_transport_ops *ops;
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    struct sl_mr *mr;
    unsigned window;
    size_t apart;    /* from one message in flight to the next */
    uint8_t *memory; /* of all messages at one place, as in perftest, unless apart */
    struct sl_req reqs[WINDOW];
    struct sl_sink sinks[WINDOW];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_p2p: %s: %s\n", what, sluice_last_error());
    _exit(1);
}

/* Progresses meanwhile: what was sent last may still have to leave. */
static void swap(struct side *s, const void *out, void *in, size_t len)
{
    ssize_t got;

    if (send(s->meet, out, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("the other process is gone");
    while ((got = recv(s->meet, in, len, MSG_PEEK | MSG_DONTWAIT)) < (ssize_t)len) {
        if (got == 0 || (got < 0 && errno != EAGAIN))
            die("the other process is gone");
        if (s->iface != NULL)
            s->ops->progress(s->iface, 64);
        sched_yield();
    }
    recv(s->meet, in, len, MSG_WAITALL);
}

/* Each end in a network namespace of its own: files "A,B". */
static void enter_net(const char *nets, bool first)
{
    char file[2][128];
    int fd;

    if (sscanf(nets, "%127[^,],%127[^,]", file[0], file[1]) != 2) {
        fprintf(stderr, "bench_p2p: -n takes two files, with a comma between\n");
        _exit(2);
    }
    fd = open(file[!first], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        fprintf(stderr, "bench_p2p: the network namespace %s: %s\n", file[!first], strerror(errno));
        _exit(1);
    }
    close(fd);
}

static void open_side(struct side *s, const char *transport, const char *devices)
{
    struct sl_addr mine = {0}, peer;
    struct sl_req req = {.status = SL_PENDING};
    const char *variable = strcmp(transport, "dpdk") == 0 ? "DPDK_PORTS" : "VERBS_DEVICES";

    if (sl_start(&s->config, environ) != 0 ||
        (devices != NULL && sl_config_set(&s->config, variable, devices) != 0))
        die("settings");
    s->ops = sl_transport_find(transport, strlen(transport)); /* of a module, too */
    if (s->ops == NULL)
        die(transport);
    s->worker = (struct sl_worker){
        .clock = &sl_clock_monotonic, .config = &s->config, .rank = s->first ? 0 : 1};
    sl_rng_init(&s->worker.rng, (uint64_t)getpid());
    if (s->ops->open(&s->worker, NULL, NULL, &s->iface) != 0 ||
        s->ops->ep_create(s->iface, &s->ep) != 0 || s->ops->ep_addr(s->ep, &mine) != 0)
        die("open");
    s->ep->peer = s->first ? 1 : 0;
    swap(s, &mine, &peer, sizeof(mine));
    if (s->ops->ep_connect(s->ep, &peer, &req) < 0)
        die("connect");
    while (req.status == SL_PENDING)
        s->ops->progress(s->iface, 64);
    if (req.status != 0)
        die("connect");
    struct sl_mem mem = {.len = LARGEST + (s->window - 1) * s->apart, .fd = -1};

    mem.addr = s->memory = aligned_alloc(4096, mem.len);
    if (s->memory == NULL)
        die("memory");
    memset(s->memory, 1, mem.len);

    if (s->ops->mr_reg(s->iface, &mem, &s->mr, NULL) != 0)
        s->mr = NULL;
}

static void post_send(struct side *s, unsigned at, size_t len)
{
    struct sl_buf buf = {.addr = s->memory + at * s->apart, .len = len, .mr = s->mr};
    int rc;

    s->reqs[at] = (struct sl_req){.status = SL_PENDING};
    while ((rc = s->ops->send(s->ep, &buf, 1, &s->reqs[at])) == -EAGAIN)
        s->ops->progress(s->iface, 64);
    if (rc < 0)
        die("send");
    if (rc == 1)
        s->reqs[at].status = 0;
}

static void post_recv(struct side *s, unsigned at, size_t len)
{
    int rc;

    s->sinks[at] =
        (struct sl_sink){.dst = s->memory + at * s->apart, .len = len, .tag = 1, .mr = s->mr};
    s->reqs[at] = (struct sl_req){.status = SL_PENDING};
    while ((rc = s->ops->recv(s->ep, &s->sinks[at], &s->reqs[at])) == -EAGAIN)
        s->ops->progress(s->iface, 64);
    if (rc < 0)
        die("recv");
    if (rc == 1)
        s->reqs[at].status = 0;
}

/* Gives the core away when nothing comes, as bench_dpdk_raw does: the other end may need it. */
static void await(struct side *s, unsigned at)
{
    for (unsigned empty = 0; s->reqs[at].status == SL_PENDING;) {
        empty = s->ops->progress(s->iface, 64) > 0 ? 0 : empty + 1;
        if (empty > EMPTY_MAX)
            sched_yield();
    }
    if (s->reqs[at].status != 0)
        die("a message");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void ping(struct side *s, size_t len)
{
    static double us[PING_ROUNDS];

    for (int r = -WARM_ROUNDS; r < PING_ROUNDS; r++) {
        uint64_t start = sl_now(&sl_clock_monotonic);

        for (int half = 0; half < 2; half++) {
            if (s->first == (half == 0)) {
                post_send(s, 0, len);
            } else {
                post_recv(s, 1, len);
                await(s, 1);
            }
        }
        if (r >= 0)
            us[r] = (double)(sl_now(&sl_clock_monotonic) - start) / 2e3;
    }
    qsort(us, PING_ROUNDS, sizeof(*us), by_value);
    if (s->first)
        printf("latency %8zu B  %10.2f us typical (least %.2f, p99 %.2f)\n", len,
               us[PING_ROUNDS / 2], us[0], us[PING_ROUNDS * 99 / 100]);
}

static void stream(struct side *s, size_t len)
{
    size_t count = STREAM_BYTES / len;
    double mbs[STREAM_ROUNDS];

    for (int r = 0; r < STREAM_ROUNDS; r++) {
        char word = 0;

        swap(s, &word, &word, 1);
        uint64_t start = sl_now(&sl_clock_monotonic);

        for (size_t i = 0; i < count; i++) {
            if (i >= s->window)
                await(s, i % s->window);
            if (s->first)
                post_send(s, i % s->window, len);
            else
                post_recv(s, i % s->window, len);
        }
        for (unsigned i = 0; i < s->window && i < count; i++)
            await(s, i);
        swap(s, &word, &word, 1);
        mbs[r] = (double)(count * len) / ((double)(sl_now(&sl_clock_monotonic) - start) / 1e3);
    }
    qsort(mbs, STREAM_ROUNDS, sizeof(*mbs), by_value);
    if (s->first)
        printf("stream  %8zu B  %10.2f MB/s median (%.2f-%.2f)\n", len, mbs[STREAM_ROUNDS / 2],
               mbs[0], mbs[STREAM_ROUNDS - 1]);
}

struct options {
    bool latency_only;
    const char *nets; /* NULL: both ends in this process's */
};

/* The first word after the options; a window of 0: they make no sense. */
static int read_options(int argc, char **argv, struct side *s, struct options *out)
{
    int option;

    while ((option = getopt(argc, argv, "+lw:n:")) > 0) {
        switch (option) {
        case 'l': out->latency_only = true; break;
        case 'w':
            s->window = (unsigned)atoi(optarg);
            s->apart = LARGEST;
            break;
        case 'n': out->nets = optarg; break;
        default: s->window = 0;
        }
    }
    return optind;
}

int main(int argc, char **argv)
{
    struct side s = {.window = WINDOW};
    struct options options = {0};
    int ends[2], words = read_options(argc, argv, &s, &options);
    pid_t child;

    argc -= words;
    argv += words;
    if ((argc != 1 && argc != 3) || s.window < 2 || s.window > WINDOW) {
        fprintf(stderr,
                "usage: bench_p2p [-l] [-w 2..%d] [-n NETNS_A,NETNS_B] TRANSPORT [DEVICES_A "
                "DEVICES_B]\n",
                WINDOW);
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        die("start");
    child = fork();
    s.first = child != 0;
    s.meet = ends[s.first];
    close(ends[!s.first]);
    sl_host_bind(s.first ? 0 : 1, 2);
    if (options.nets != NULL)
        enter_net(options.nets, s.first);
    open_side(&s, argv[0], argc == 3 ? argv[s.first ? 1 : 2] : NULL);
    ping(&s, 8);
    if (!options.latency_only) {
        stream(&s, 64 << 10);
        stream(&s, 1 << 20);
    }
    fflush(stdout);
    if (s.mr != NULL)
        s.ops->mr_dereg(s.iface, s.mr);
    s.ops->ep_destroy(s.ep);
    s.ops->close(s.iface);
    free(s.memory);
    if (!s.first)
        _exit(0);
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}
