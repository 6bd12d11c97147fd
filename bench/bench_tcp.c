/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tcp transport costs above the sockets: two processes, each pinned to a core, exchange
 * messages both ways at once over loopback; beside each figure what plain sockets reach in the same
 * run. Variants take turns in every round, medians are printed.
 *
 *   usage: bench_tcp [ROUNDS]     SLUICE_TCP_* apply
 */
#include "kernels/reduce.h"
#include "core/config.h"
#include "core/log.h"
#include "core/transport.h"
#include "lib/start.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST ((size_t)32 << 20)
#define ROUNDS_MAX 64
#define SLICE ((size_t)1 << 20)

extern const struct sl_transport_ops sl_tcp_ops;

struct side {
    int meet; /* stream to the other process: swaps and barriers */
    int raw;  /* plain tcp connection to it */
    struct sl_transport_ops ops;
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    const struct sl_kernels *kernels;
    char *src, *dst, *acc, *staging;
    uint64_t tag;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_tcp: %s: %s\n", what, sluice_last_error());
    exit(1);
}

static void swap(struct side *s, const void *out, void *in, size_t len)
{
    if (write(s->meet, out, len) != (ssize_t)len || read(s->meet, in, len) != (ssize_t)len)
        die("the other process is gone");
}

static double now_us(void)
{
    return (double)sl_now(&sl_clock_monotonic) / 1e3;
}

static void add(struct side *s, size_t off, const void *bytes, size_t len)
{
    const void *src[2] = {s->acc + off, bytes};

    s->kernels->reduce[SLUICE_F32][SLUICE_SUM](s->acc + off, NULL, src, 2, len / 4, 1);
}

/* ---- plain sockets ---- */

/* Both ways at once by calls that never block, as any single-threaded rank must do it. */
static void raw_exchange(struct side *s, size_t len, bool consume)
{
    size_t sent = 0, got = 0;

    while (sent < len || got < len) {
        ssize_t n;

        if (sent < len) {
            size_t want = len - sent < SLICE ? len - sent : SLICE;

            n = send(s->raw, s->src + sent, want, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n > 0)
                sent += (size_t)n;
        }
        if (got < len) {
            size_t want = len - got < SLICE ? len - got : SLICE;

            n = recv(s->raw, consume ? s->staging : s->dst + got, want, MSG_DONTWAIT);
            if (n > 0) {
                if (consume && len >= 4096)
                    add(s, got, s->staging, (size_t)n & ~(size_t)3);
                got += (size_t)n;
            }
        }
    }
}

/* ---- ours ---- */

static void sum_into_acc(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    struct side *s = sl_container_of(sink->mr, struct side, tag);

    add(s, off, bytes, len);
}

static void our_exchange(struct side *s, size_t len, bool consume)
{
    struct sl_buf buf = {.addr = s->src, .len = len};
    /* mr smuggles the side into consume: the transport ignores it. */
    struct sl_sink sink = {.dst = consume ? NULL : s->dst,
                           .len = len,
                           .tag = s->tag,
                           .granule = 4,
                           .mr = (struct sl_mr *)&s->tag,
                           .consume = consume ? sum_into_acc : NULL};
    struct sl_req send = {0}, recv = {0};
    int rc = s->ops.recv(s->ep, &sink, &recv);

    if (rc < 0)
        die("recv");
    rc = s->ops.send(s->ep, &buf, s->tag, &send);
    if (rc < 0)
        die("send");
    while (send.status == SL_PENDING || recv.status == SL_PENDING)
        if (s->ops.progress(s->iface, 16) < 0)
            die("progress");
    if (send.status != 0 || recv.status != 0)
        die("exchange");
    s->tag++;
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    (void)arg, (void)ep;
    fprintf(stderr, "bench_tcp: down: %d %s\n", status, why);
}

static void open_ours(struct side *s, int rank)
{
    struct sl_handler handler = {.down = on_down};
    struct sl_req req = {0};
    struct sl_addr mine, theirs;

    if (sl_start(&s->config, environ) != 0 || sl_log_configure(s->config.log) != 0)
        die("configuration");
    s->worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &s->config, .rank = rank};
    sl_transport_complete(&sl_tcp_ops, &s->ops);
    if (s->ops.open(&s->worker, NULL, &handler, &s->iface) != 0 ||
        s->ops.ep_create(s->iface, &s->ep) != 0)
        die("open");
    s->ep->peer = 1 - rank;
    s->ops.ep_addr(s->ep, &mine);
    swap(s, &mine, &theirs, sizeof(mine));
    if (s->ops.ep_connect(s->ep, &theirs, &req) != 0)
        die("connect");
    while (req.status == SL_PENDING)
        s->ops.progress(s->iface, 16);
    if (req.status != 0)
        die("connect");
}

static void open_raw(struct side *s, int rank)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in other;
    socklen_t len = sizeof(addr);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    if (rank == 0) {
        if (bind(fd, (struct sockaddr *)&addr, len) != 0 || listen(fd, 1) != 0 ||
            getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
            die("listen");
        swap(s, &addr, &other, sizeof(addr));
        s->raw = accept(fd, NULL, NULL);
        close(fd);
    } else {
        swap(s, &addr, &other, sizeof(addr));
        if (connect(fd, (struct sockaddr *)&other, len) != 0)
            die("connect");
        s->raw = fd;
    }
    setsockopt(s->raw, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int run(int rank, int meet, int rounds)
{
    static const struct {
        size_t len;
        int repeats;
    } sizes[] = {{8, 200},       {4096, 100},    {32 << 10, 30},
                 {64 << 10, 20}, {512 << 10, 4}, {32 << 20, 1}};
    static double times[SL_ARRAY_LEN(sizes)][4][ROUNDS_MAX];
    struct side s = {.meet = meet};
    char text[256];
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(rank, &set);
    sched_setaffinity(0, sizeof(set), &set);
    if (sl_kernels_select(SL_KERNEL_AUTO, &s.kernels) != 0)
        die("kernels");
    s.src = calloc(1, LARGEST);
    s.dst = malloc(LARGEST);
    s.acc = malloc(LARGEST);
    s.staging = malloc(SLICE);
    memset(s.dst, 1, LARGEST);
    memset(s.acc, 0, LARGEST);
    open_raw(&s, rank);
    open_ours(&s, rank);
    for (int round = -1; round < rounds; round++) {
        for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            for (int variant = 0; variant < 4; variant++) {
                double begin;
                char go = 1;

                swap(&s, &go, &go, 1);
                begin = now_us();
                for (int n = 0; n < sizes[i].repeats; n++) {
                    if (variant < 2)
                        raw_exchange(&s, sizes[i].len, variant == 1);
                    else
                        our_exchange(&s, sizes[i].len, variant == 3);
                }
                if (round >= 0)
                    times[i][variant][round] = (now_us() - begin) / sizes[i].repeats;
            }
        }
    }
    if (rank == 0) {
        s.ops.ep_describe(s.ep, text, sizeof(text));
        printf("%s\n%10s %19s %19s %19s %19s   us: least, median of %d rounds\n", text, "bytes",
               "raw", "raw+sum", "ours", "ours+sum", rounds);
        for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            printf("%10zu", sizes[i].len);
            for (int variant = 0; variant < 4; variant++) {
                qsort(times[i][variant], (size_t)rounds, sizeof(double), compare);
                printf(" %9.2f %9.2f", times[i][variant][0], times[i][variant][rounds / 2]);
            }
            printf("\n");
        }
    }
    swap(&s, text, text, 1);
    s.ops.ep_destroy(s.ep);
    s.ops.close(s.iface);
    return 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 9, pair[2], status = 0;
    pid_t child;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_tcp [ROUNDS]   (1 to %d)\n", ROUNDS_MAX);
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return 1;
    child = fork();
    if (child == 0)
        return run(1, pair[1], rounds);
    close(pair[1]);
    run(0, pair[0], rounds);
    waitpid(child, &status, 0);
    return status != 0;
}
