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
#include "core/clock.h"
#include "core/err.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX 64
#define ROUNDS_MAX 64
#define LARGEST ((size_t)16 << 20)
#define BUFFERS 512
#define BUFFER_BYTES (16u << 10)
#define SLICE ((size_t)512 << 10)
#define REPORT_USAGE (1u << 3) /* in ioprio of SEND_ZC: the notification says whether it copied */
#define COPIED (1u << 31)

enum variant { EPOLL, BATCH, MULTI, DIRECT, ZC, VARIANTS };
static const char *const names[] = {"epoll", "batch", "multi", "direct", "zc"};

enum waiting { SPIN, SLEEP, ENTER };
static const char *const waitings[] = {"spin", "sleep", "enter"};

enum { OP_SEND = 1, OP_RECV, OP_IGNORE };

struct conn {
    int fd;
    bool readable, writable, armed;
    size_t sent, got;
};

struct side {
    int meet;
    unsigned count;
    enum waiting waiting;
    bool yields;
    struct conn conns[CONNS_MAX];
    char *src, *dst; /* of all connections: what is in them does not matter */
    int epoll;
    int outer, outer_ring;       /* what is slept on */
    struct io_uring plain, ring; /* of batch; of the others */
    struct io_uring_buf_ring *pool;
    char *pool_bytes;
    uint64_t zc_sends, zc_copied;
    unsigned notifs; /* of SEND_ZC, still due */
};

static void die(const char *what)
{
    fprintf(stderr, "bench_uring: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void swap(struct side *s, const void *out, void *in, size_t len)
{
    if (sl_link_swap(s->meet, out, in, len) != 0)
        die("the other process is gone");
}

/* ---- epoll, and the same calls in a batch ---- */

static void sleep_on(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    poll(&pfd, 1, -1);
}

static void ring_sleep(struct side *s)
{
    uint64_t count;

    sleep_on(s->outer_ring);
    if (read(s->outer_ring, &count, sizeof(count)) < 0 && errno != EAGAIN)
        die("eventfd");
}

static void news(struct side *s)
{
    struct epoll_event events[CONNS_MAX];

    if (s->waiting == SLEEP)
        sleep_on(s->outer);
    else if (s->yields)
        sched_yield();
    int n = epoll_wait(s->epoll, events, CONNS_MAX, s->waiting == ENTER ? -1 : 0);

    for (int i = 0; i < n; i++) {
        struct conn *conn = &s->conns[events[i].data.u32];

        conn->readable |= (events[i].events & EPOLLIN) != 0;
        conn->writable |= (events[i].events & EPOLLOUT) != 0;
    }
}

static void moved(struct side *s, struct conn *conn, bool sends, ssize_t n)
{
    if (n > 0 && sends)
        conn->sent += (size_t)n;
    else if (n > 0)
        conn->got += (size_t)n;
    else if (n == -EAGAIN && sends)
        conn->writable = false;
    else if (n == -EAGAIN)
        conn->readable = false;
    else
        errno = (int)-n, die(sends ? "send" : "recv");
    (void)s;
}

static size_t slice(size_t left)
{
    return left < SLICE ? left : SLICE;
}

static void epoll_exchange(struct side *s, size_t len, bool batch)
{
    unsigned open = s->count;

    while (open > 0) {
        unsigned queued = 0;

        open = 0;
        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];
            bool send_it = conn->sent < len && conn->writable;
            bool recv_it =
                conn->got < len && (conn->readable || (s->count == 1 && s->waiting == SPIN));
            size_t tx = slice(len - conn->sent), rx = slice(len - conn->got);

            if (batch && send_it) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&s->plain);

                io_uring_prep_send(sqe, (int)i, s->src, tx, MSG_DONTWAIT | MSG_NOSIGNAL);
                sqe->flags |= IOSQE_FIXED_FILE;
                io_uring_sqe_set_data64(sqe, (uint64_t)OP_SEND << 32 | i);
                queued++;
            } else if (send_it) {
                ssize_t n = send(conn->fd, s->src, tx, MSG_DONTWAIT | MSG_NOSIGNAL);

                moved(s, conn, true, n < 0 ? -errno : n);
            }
            if (batch && recv_it) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&s->plain);

                io_uring_prep_recv(sqe, (int)i, s->dst, rx, MSG_DONTWAIT);
                sqe->flags |= IOSQE_FIXED_FILE;
                io_uring_sqe_set_data64(sqe, (uint64_t)OP_RECV << 32 | i);
                queued++;
            } else if (recv_it) {
                ssize_t n = recv(conn->fd, s->dst, rx, MSG_DONTWAIT);

                moved(s, conn, false, n < 0 ? -errno : n);
            }
        }
        if (queued > 0) {
            struct io_uring_cqe *cqe;

            io_uring_submit(&s->plain);
            for (; queued > 0 && io_uring_wait_cqe(&s->plain, &cqe) == 0; queued--) {
                moved(s, &s->conns[(uint32_t)cqe->user_data], cqe->user_data >> 32 == OP_SEND,
                      cqe->res);
                io_uring_cqe_seen(&s->plain, cqe);
            }
        }
        bool work = false;

        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];

            open += conn->sent < len || conn->got < len;
            work |= (conn->sent < len && conn->writable) || (conn->got < len && conn->readable);
        }
        if (open > 0 && !work && (s->count > 1 || s->waiting != SPIN))
            news(s);
    }
}

/* ---- the ring moves the bytes ---- */

static void buffer_give(struct side *s, uint16_t bid)
{
    io_uring_buf_ring_add(s->pool, s->pool_bytes + (size_t)bid * BUFFER_BYTES, BUFFER_BYTES, bid,
                          io_uring_buf_ring_mask(BUFFERS), 0);
    io_uring_buf_ring_advance(s->pool, 1);
}

static struct io_uring_sqe *entry(struct side *s, unsigned i, unsigned op)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);

    if (sqe == NULL)
        die("the ring is full");
    io_uring_sqe_set_data64(sqe, (uint64_t)op << 32 | i);
    return sqe;
}

static void put_send(struct side *s, unsigned i, size_t len, bool zc)
{
    struct io_uring_sqe *sqe = entry(s, i, OP_SEND);

    if (zc) {
        io_uring_prep_send_zc(sqe, (int)i, s->src, len - s->conns[i].sent,
                              MSG_WAITALL | MSG_NOSIGNAL, 0);
        sqe->ioprio |= REPORT_USAGE;
        s->zc_sends++;
        s->notifs++;
    } else {
        io_uring_prep_send(sqe, (int)i, s->src, len - s->conns[i].sent, MSG_WAITALL | MSG_NOSIGNAL);
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, (uint64_t)OP_SEND << 32 | i);
}

static void put_recv(struct side *s, unsigned i, size_t len, bool multi)
{
    struct conn *conn = &s->conns[i];
    struct io_uring_sqe *sqe = entry(s, i, OP_RECV);

    if (multi) {
        io_uring_prep_recv_multishot(sqe, (int)i, NULL, 0, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = 0;
    } else {
        io_uring_prep_recv(sqe, (int)i, s->dst, len - conn->got, MSG_WAITALL);
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    }
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, (uint64_t)OP_RECV << 32 | i);
    conn->armed = true;
}

static void on_cqe(struct side *s, const struct io_uring_cqe *cqe, size_t len, bool multi)
{
    struct conn *conn = &s->conns[(uint32_t)cqe->user_data];
    unsigned op = (unsigned)(cqe->user_data >> 32);

    if ((cqe->flags & IORING_CQE_F_NOTIF) != 0) {
        s->notifs--;
        s->zc_copied += ((uint32_t)cqe->res & COPIED) != 0;
        return;
    }
    if (op == OP_IGNORE)
        return;
    if (op == OP_RECV && (cqe->flags & IORING_CQE_F_MORE) == 0)
        conn->armed = false;
    if (op == OP_SEND) {
        if (cqe->res <= 0)
            errno = -cqe->res, die("send in the ring");
        conn->sent += (size_t)cqe->res;
        return;
    }
    if (cqe->res == -ENOBUFS || cqe->res == -ECANCELED)
        return;
    if (cqe->res <= 0)
        errno = -cqe->res, die("recv in the ring");
    if (multi) {
        uint16_t bid = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);

        memcpy(s->dst + conn->got % len, s->pool_bytes + (size_t)bid * BUFFER_BYTES,
               (size_t)cqe->res < len ? (size_t)cqe->res : len);
        buffer_give(s, bid);
    }
    conn->got += (size_t)cqe->res;
}

/* Multishot receives are of the peer's exchange that may come early: got runs over the end of
 * ours. */
static void ring_exchange(struct side *s, size_t len, enum variant variant)
{
    bool multi = variant == MULTI;
    unsigned open = 1;

    for (unsigned i = 0; i < s->count; i++) {
        put_send(s, i, len, variant == ZC);
        if (!s->conns[i].armed)
            put_recv(s, i, len, multi);
    }
    do {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        if (s->waiting == ENTER)
            io_uring_submit_and_wait(&s->ring, 1);
        else if (io_uring_sq_ready(&s->ring) > 0)
            io_uring_submit_and_get_events(&s->ring);
        else if ((*s->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0)
            io_uring_get_events(&s->ring);
        io_uring_for_each_cqe(&s->ring, head, cqe)
        {
            on_cqe(s, cqe, len, multi);
            seen++;
        }
        io_uring_cq_advance(&s->ring, seen);
        if (seen == 0 && s->waiting == SLEEP)
            ring_sleep(s);
        else if (seen == 0 && s->yields)
            sched_yield();
        if (seen == 0)
            continue;
        open = s->notifs;
        for (unsigned i = 0; i < s->count; i++) {
            struct conn *conn = &s->conns[i];

            open += conn->sent < len || conn->got < len;
            if (!conn->armed && conn->got < len)
                put_recv(s, i, len, multi);
        }
    } while (open > 0);
}

/* No multishot receive may be left when another variant reads. */
static void disarm(struct side *s)
{
    bool any = true;

    for (unsigned i = 0; i < s->count; i++)
        if (s->conns[i].armed) {
            struct io_uring_sqe *sqe = entry(s, i, OP_IGNORE);

            io_uring_prep_cancel64(sqe, (uint64_t)OP_RECV << 32 | i, 0);
            io_uring_sqe_set_data64(sqe, (uint64_t)OP_IGNORE << 32);
        }
    while (any) {
        struct io_uring_cqe *cqe;

        any = false;
        for (unsigned i = 0; i < s->count; i++)
            any |= s->conns[i].armed;
        if (!any)
            break;
        io_uring_submit_and_wait(&s->ring, 1);
        while (io_uring_peek_cqe(&s->ring, &cqe) == 0) {
            on_cqe(s, cqe, 1, false);
            io_uring_cqe_seen(&s->ring, cqe);
        }
    }
}

/* ---- setting up, measuring ---- */

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
    s->outer = s->epoll;
    /* A ring whose work is deferred does not wake who polls its own descriptor. */
    s->outer_ring = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->waiting == SLEEP && io_uring_register_eventfd(&s->ring, s->outer_ring) != 0)
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

            if (bytes > (64u << 20) || (link.bytes_per_s > 0 && bytes > (16u << 20)))
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
