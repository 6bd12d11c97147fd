/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What io_uring could save the tcp transport at most, without the transport: two processes, each
 * pinned to a core, exchange messages both ways at once on many plain sockets, by
 *
 *   epoll    epoll_wait, then a recv() for each socket with news, a send() for each message
 *   batch    the same epoll_wait; the calls are entries of a ring, all made by one io_uring_enter
 *   multi    sends in the ring, multishot receives into a ring of buffers, copied out of them
 *   direct   sends and receives in the ring, each receive to its place, registered files
 *   zc       as direct, but sends without a copy (SEND_ZC)
 *
 * The variants take turns in every round. Printed: time of an exchange on all sockets, and the
 * processor time of both ends for it, medians; and, of zc, how many sends the kernel copied still.
 *
 *   usage: bench_uring [LINK [ROUNDS [spin|sleep|enter [CONNS...]]]]
 *
 * LINK is lo, veth (two network namespaces), or a rate as tc writes it, which that veth is held to.
 * Who waits spins; sleeps until a descriptor is readable, as the transport must, which has others
 * to watch; or sleeps inside epoll_wait() and io_uring_enter().
 */
#include "bench/link.h"
#include "bench/uring.h"
#include "core/clock.h"
#include "core/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define ROUNDS_MAX 64
#define LARGEST ((size_t)16 << 20)

static const char *const names[] = {"epoll", "batch", "multi", "direct", "zc"};
static const char *const waitings[] = {"spin", "sleep", "enter"};

void die(const char *what)
{
    fprintf(stderr, "bench_uring: %s: %s\n", what, strerror(errno));
    exit(1);
}

void sleep_on(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    poll(&pfd, 1, -1);
}

static void swap(struct side *s, const void *out, void *in, size_t len)
{
    if (sl_link_swap(s->meet, out, in, len) != 0)
        die("the other process is gone");
}

static void open_rings(struct side *s)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG,
                                     .cq_entries = 4096};
    struct io_uring_params plain = {.flags = IORING_SETUP_SINGLE_ISSUER};
    struct io_uring_buf_reg reg = {.ring_entries = BUFFERS};
    int fds[CONNS_MAX];

    if (io_uring_queue_init_params(512, &s->ring, &params) != 0 ||
        io_uring_queue_init_params(512, &s->plain, &plain) != 0)
        die("no ring");
    for (unsigned i = 0; i < s->count; i++)
        fds[i] = s->conns[i].fd;
    if (io_uring_register_files(&s->ring, fds, s->count) != 0 ||
        io_uring_register_files(&s->plain, fds, s->count) != 0)
        die("register files");
    s->pool = aligned_alloc(4096, 4096 + BUFFERS * sizeof(struct io_uring_buf));
    s->pool_bytes = aligned_alloc(4096, (size_t)BUFFERS * BUFFER_BYTES);
    reg.ring_addr = (uint64_t)(uintptr_t)s->pool;
    io_uring_buf_ring_init(s->pool);
    if (io_uring_register_buf_ring(&s->ring, &reg, 0) != 0)
        die("register buffers");
    for (unsigned i = 0; i < BUFFERS; i++)
        buffer_give(s, (uint16_t)i);
    io_uring_register_ring_fd(&s->ring);
    io_uring_register_ring_fd(&s->plain);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    /* A ring whose work is deferred does not wake who polls its own descriptor. */
    s->ring_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->waiting == SLEEP && io_uring_register_eventfd(&s->ring, s->ring_event) != 0)
        die("register eventfd");
    for (unsigned i = 0; i < s->count; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = i};

        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->conns[i].fd, &event);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void one(struct side *s, size_t len, enum variant variant)
{
    for (unsigned i = 0; i < s->count; i++) {
        struct conn *conn = &s->conns[i];

        conn->sent = 0;
        conn->got = variant == MULTI && conn->got > len ? conn->got - len : 0;
        conn->readable = conn->writable = true;
    }
    if (variant <= BATCH)
        epoll_exchange(s, len, variant == BATCH);
    else
        ring_exchange(s, len, variant);
}

struct result {
    double time, cpu;
};

static struct result measure(struct side *s, size_t len, int repeats, enum variant variant)
{
    struct result r;
    double cpu, other;
    char go = 1;

    for (unsigned i = 0; i < s->count; i++)
        s->conns[i].got = 0;
    swap(s, &go, &go, 1);
    r.time = (double)sl_now(&sl_clock_monotonic) / 1e3;
    cpu = sl_link_cpu_us();
    for (int n = 0; n < repeats; n++)
        one(s, len, variant);
    r.time = ((double)sl_now(&sl_clock_monotonic) / 1e3 - r.time) / repeats;
    cpu = (sl_link_cpu_us() - cpu) / repeats;
    if (variant == MULTI)
        disarm(s);
    swap(s, &cpu, &other, sizeof(cpu));
    r.cpu = cpu + other;
    return r;
}

struct wish {
    const char *where;
    int rounds;
    enum waiting waiting;
    unsigned conns;
};

static void open_side(struct side *s, const struct sl_link *link, int rank)
{
    s->src = calloc(1, LARGEST);
    s->dst = malloc(LARGEST);
    if (s->src == NULL || s->dst == NULL)
        die("memory");
    memset(s->dst, 1, LARGEST);
    for (unsigned i = 0; i < s->count; i++) {
        s->conns[i].fd = sl_link_connect(link, rank, s->meet);
        if (s->conns[i].fd < 0)
            die("connect");
    }
    open_rings(s);
}

/* All connections together: an exchange would take too long. */
static bool too_much(const struct sl_link *link, size_t bytes)
{
    return bytes > (64u << 20) || (link->bytes_per_s > 0 && bytes > (16u << 20));
}

static int run(int rank, int meet, void *arg)
{
    const struct wish *wish = arg;
    static const size_t sizes[] = {8, 1024, 8192, 64 << 10, 1 << 20, LARGEST};
    static double times[SL_ARRAY_LEN(sizes)][VARIANTS][ROUNDS_MAX],
        cpus[SL_ARRAY_LEN(sizes)][VARIANTS][ROUNDS_MAX];
    unsigned conns = wish->conns;
    int rounds = wish->rounds;
    struct side s = {.meet = meet,
                     .count = conns,
                     .waiting = wish->waiting,
                     .yields = strcmp(wish->where, "lo") != 0};
    struct sl_link link;

    if (sl_link_open(&link, wish->where, rank, meet) != 0)
        die("link");
    open_side(&s, &link, rank);
    for (int round = -1; round < rounds; round++)
        for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            size_t bytes = sizes[i] * conns;
            int repeats = (int)(link.bytes_per_s > 0 ? 1 + 20000 / (20 + bytes / 100)
                                                     : 1 + 20000 / (10 + 4 * conns + bytes / 3000));

            if (too_much(&link, bytes))
                continue;
            for (int variant = 0; variant < VARIANTS; variant++) {
                struct result r = measure(&s, sizes[i], repeats, (enum variant)variant);

                if (round >= 0) {
                    times[i][variant][round] = r.time;
                    cpus[i][variant][round] = r.cpu;
                }
            }
        }
    if (rank == 0) {
        printf("%s, %u connections, %s, %d rounds: us, medians of time / processor time of both; "
               "least time\n%10s",
               link.name, conns, waitings[wish->waiting], rounds, "bytes");
        for (int variant = 0; variant < VARIANTS; variant++)
            printf(" %27s", names[variant]);
        printf("\n");
        for (size_t i = 0; i < SL_ARRAY_LEN(sizes); i++) {
            if (too_much(&link, sizes[i] * conns))
                continue;
            printf("%10zu", sizes[i]);
            for (int variant = 0; variant < VARIANTS; variant++) {
                qsort(times[i][variant], (size_t)rounds, sizeof(double), compare);
                qsort(cpus[i][variant], (size_t)rounds, sizeof(double), compare);
                printf(" %8.1f /%8.1f %8.1f", times[i][variant][rounds / 2],
                       cpus[i][variant][rounds / 2], times[i][variant][0]);
            }
            printf("\n");
        }
        printf("zc: %llu sends, %llu copied\n", (unsigned long long)s.zc_sends,
               (unsigned long long)s.zc_copied);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct wish wish = {.where = argc > 1 ? argv[1] : "lo", .rounds = argc > 2 ? atoi(argv[2]) : 5};
    int failed = 0;

    while (argc > 3 && wish.waiting < ENTER && strcmp(argv[3], waitings[wish.waiting]) != 0)
        wish.waiting++;
    for (int i = 4; (i < argc || i == 4) && !failed; i++) {
        wish.conns = i < argc ? (unsigned)atoi(argv[i]) : 1;
        if (wish.rounds < 1 || wish.rounds > ROUNDS_MAX || wish.conns < 1 ||
            wish.conns > CONNS_MAX) {
            fprintf(stderr, "usage: bench_uring [LINK [ROUNDS [spin|sleep|enter [CONNS...]]]]\n");
            return 2;
        }
        failed = sl_link_run(run, &wish);
    }
    return failed;
}
