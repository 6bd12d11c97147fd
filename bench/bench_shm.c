/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm transport between two processes, beside what the processor allows: one cache line from
 * core to core, a block written on one core and copied on the other, and one copy by the kernel.
 *
 * bench_shm [repeats]   every row is measured once per repeat, in turn; medians and spread are
 * shown
 */
#include "core/config.h"
#include "core/err.h"
#include "core/transport.h"
#include "lib/start.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct sl_transport_ops sl_shm_ops;

#define BLOCK_MAX ((size_t)64 << 20)
#define REPEATS_MAX 31
#define GIVE_UP_NS (60 * SL_NS_PER_S)

struct flag {
    _Atomic uint64_t value;
    uint8_t pad[120];
};

/* Seen by both processes. */
static struct shared {
    struct flag ping, pong, written, copied, turn;
    uint8_t block[2 << 20];
} * shared;

static struct bench {
    int side, socket;
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    uint8_t *memory;
    uint64_t turns;
} b;

static uint64_t now(void)
{
    return sl_now(&sl_clock_monotonic);
}

static void die(const char *what)
{
    fprintf(stderr, "bench_shm: %s: %s\n", what, sluice_last_error());
    exit(1);
}

static void await(struct flag *flag, uint64_t value)
{
    uint64_t end = 0;

    for (unsigned n = 0; atomic_load_explicit(&flag->value, memory_order_acquire) < value;) {
        if (++n < 1000000)
            continue;
        n = 0;
        sched_yield();
        if (end == 0)
            end = now() + GIVE_UP_NS;
        else if (now() > end)
            die("the other process does not answer");
    }
}

static void raise_flag(struct flag *flag, uint64_t value)
{
    atomic_store_explicit(&flag->value, value, memory_order_release);
}

/* Both sides begin a row together. */
static void meet(void)
{
    b.turns++;
    atomic_fetch_add(&shared->turn.value, 1);
    await(&shared->turn, 2 * b.turns);
}

static void finish(struct sl_req *req)
{
    uint64_t end = 0;

    for (unsigned n = 0; req->status == SL_PENDING;) {
        sl_shm_ops.progress(b.iface, 64);
        if (++n < 100000)
            continue;
        n = 0;
        if (end == 0)
            end = now() + GIVE_UP_NS;
        else if (now() > end)
            die("a request does not end");
    }
    if (req->status != 0)
        die("a request failed");
}

static void send_one(const void *bytes, size_t len, struct sl_req *req)
{
    struct sl_buf buf = {bytes, len, NULL};
    int rc;

    while ((rc = sl_shm_ops.send(b.ep, &buf, 1, req)) == -EAGAIN)
        sl_shm_ops.progress(b.iface, 64);
    if (rc < 0)
        die("send");
}

static void recv_one(void *dst, size_t len)
{
    struct sl_sink sink = {.dst = dst, .len = len, .tag = 1};
    struct sl_req req = {0};
    int rc;

    while ((rc = sl_shm_ops.recv(b.ep, &sink, &req)) == -EAGAIN)
        sl_shm_ops.progress(b.iface, 64);
    if (rc < 0)
        die("recv");
    if (rc == 0)
        finish(&req);
}

/* Each returns nanoseconds for one of what it measures. */

static double line_one_way(size_t len, unsigned n)
{
    static uint64_t at;
    uint64_t start = now();

    (void)len;
    for (unsigned i = 0; i < n; i++) {
        at++;
        if (b.side == 0) {
            raise_flag(&shared->ping, at);
            await(&shared->pong, at);
        } else {
            await(&shared->ping, at);
            raise_flag(&shared->pong, at);
        }
    }
    return (double)(now() - start) / (2 * n);
}

/* A block that the other core just wrote is copied to private memory: only the copy is timed. */
static double copy_across(size_t len, unsigned n)
{
    static uint64_t at;
    uint64_t spent = 0;

    for (unsigned i = 0; i < n; i++) {
        at++;
        if (b.side == 0) {
            memset(shared->block, (int)i, len);
            raise_flag(&shared->written, at);
            await(&shared->copied, at);
        } else {
            await(&shared->written, at);
            uint64_t start = now();

            memcpy(b.memory, shared->block, len);
            spent += now() - start;
            raise_flag(&shared->copied, at);
        }
    }
    return (double)spent / n;
}

/* memcpy within one process, both at once. */
static double copy_local(size_t len, unsigned n)
{
    uint64_t start = now();

    for (unsigned i = 0; i < n; i++)
        memcpy(b.memory, b.memory + BLOCK_MAX, len);
    return (double)(now() - start) / n;
}

static double message_one_way(size_t len, unsigned n)
{
    struct sl_req req = {0};
    uint64_t start = now();

    for (unsigned i = 0; i < n; i++) {
        if (b.side == 0) {
            send_one(b.memory, len, &req);
            recv_one(b.memory + BLOCK_MAX, len);
        } else {
            recv_one(b.memory + BLOCK_MAX, len);
            send_one(b.memory, len, &req);
        }
        finish(&req);
    }
    return (double)(now() - start) / (2 * n);
}

static double message_stream(size_t len, unsigned n)
{
    struct sl_req req = {0};
    uint8_t word = 0;
    uint64_t start = now();

    for (unsigned i = 0; i < n; i++) {
        if (b.side == 0) {
            send_one(b.memory, len, &req);
            finish(&req);
        } else {
            recv_one(b.memory + BLOCK_MAX, len);
        }
    }
    if (b.side == 0) {
        recv_one(&word, 1);
    } else {
        send_one(&word, 1, &req);
        finish(&req);
    }
    return (double)(now() - start) / n;
}

/* Both send and receive at once: what a ring step does. */
static double message_exchange(size_t len, unsigned n)
{
    uint64_t start = now();

    for (unsigned i = 0; i < n; i++) {
        struct sl_req req = {0};

        send_one(b.memory, len, &req);
        recv_one(b.memory + BLOCK_MAX, len);
        finish(&req);
    }
    return (double)(now() - start) / n;
}

static double kernel_read(size_t len, unsigned n)
{
    uint64_t start = now();

    if ((b.iface->caps & SL_CAP_READ) == 0 || b.side == 0)
        return 0;
    for (unsigned i = 0; i < n; i++) {
        struct sl_req req;

        /* fork() left both processes' memory at the same addresses. */
        if (sl_shm_ops.read(b.ep, (uint64_t)(uintptr_t)b.memory, b.memory + BLOCK_MAX, len, &req) !=
            1)
            die("read");
    }
    return (double)(now() - start) / n;
}

static const struct row {
    const char *name;
    double (*run)(size_t len, unsigned n);
    size_t len;
    unsigned n;
    bool rate; /* GB/s is shown too */
} rows[] = {
    {"floor: cache line, one way", line_one_way, 64, 100000, false},
    {"message, one way", message_one_way, 8, 100000, false},
    {"message, one way", message_one_way, 48, 50000, false},
    {"message, one way", message_one_way, 512, 50000, false},
    {"message, one way", message_one_way, 4096, 20000, true},
    {"message, one way", message_one_way, 16384, 5000, true},
    {"floor: block written there, copied here", copy_across, 65536, 500, true},
    {"floor: memcpy, both cores at once", copy_local, 65536, 1000, true},
    {"message, one way", message_one_way, 65536, 2000, true},
    {"messages, both ways at once", message_exchange, 65536, 2000, true},
    {"kernel: process_vm_readv", kernel_read, 65536, 1000, true},
    {"floor: block written there, copied here", copy_across, 262144, 200, true},
    {"floor: block written there, copied here", copy_across, 1048576, 60, true},
    {"floor: memcpy, both cores at once", copy_local, 1048576, 100, true},
    {"message, one way", message_one_way, 1048576, 100, true},
    {"messages, a stream", message_stream, 1048576, 200, true},
    {"messages, both ways at once", message_exchange, 1048576, 100, true},
    {"kernel: process_vm_readv", kernel_read, 1048576, 100, true},
    {"floor: memcpy, both cores at once", copy_local, BLOCK_MAX, 2, true},
    {"messages, a stream", message_stream, BLOCK_MAX, 3, true},
    {"messages, both ways at once", message_exchange, BLOCK_MAX, 3, true},
    {"kernel: process_vm_readv", kernel_read, BLOCK_MAX, 2, true},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void connect_peer(void)
{
    struct sl_addr mine, theirs;
    struct sl_req req = {0};

    sl_config_defaults(&b.config);
    if (sl_start(&b.config, environ) != 0)
        die("environment");
    b.worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &b.config, .rank = b.side};
    if (sl_shm_ops.open(&b.worker, NULL, NULL, &b.iface) != 0 ||
        sl_shm_ops.ep_create(b.iface, &b.ep) != 0 || sl_shm_ops.ep_addr(b.ep, &mine) != 0)
        die("open");
    if (write(b.socket, &mine, sizeof(mine)) != (ssize_t)sizeof(mine) ||
        read(b.socket, &theirs, sizeof(theirs)) != (ssize_t)sizeof(theirs))
        die("exchange of addresses");
    if (sl_shm_ops.ep_connect(b.ep, &theirs, &req) != 0)
        die("connect");
    finish(&req);
}

static int compare(const void *a, const void *c)
{
    double x = *(const double *)a, y = *(const double *)c;

    return (x > y) - (x < y);
}

static void report(double times[ROWS][REPEATS_MAX], unsigned repeats)
{
    printf("%-42s %10s %12s %18s %8s\n", "what", "bytes", "median us", "min..max", "GB/s");
    for (size_t r = 0; r < ROWS; r++) {
        double *t = times[r], median;

        qsort(t, repeats, sizeof(*t), compare);
        median = t[repeats / 2];
        printf("%-42s %10zu %12.3f %8.3f..%-8.3f", rows[r].name, rows[r].len, median / 1e3,
               t[0] / 1e3, t[repeats - 1] / 1e3);
        if (rows[r].rate && median > 0)
            printf(" %8.2f", (double)rows[r].len / median);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static double times[ROWS][REPEATS_MAX];
    unsigned repeats = argc > 1 ? (unsigned)atoi(argv[1]) : 5;
    int pair[2], status = 0;
    cpu_set_t cpu;
    pid_t child;

    if (repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "bench_shm: repeats must be from 1 to %d\n", REPEATS_MAX);
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    b.memory =
        mmap(NULL, 2 * BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || b.memory == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        die("set-up");
    fflush(NULL);
    child = fork();
    if (child < 0)
        die("fork");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    b.side = child == 0;
    b.socket = pair[b.side];
    CPU_ZERO(&cpu);
    CPU_SET(b.side % (int)sysconf(_SC_NPROCESSORS_ONLN), &cpu);
    sched_setaffinity(0, sizeof(cpu), &cpu);
    memset(b.memory, b.side + 1, 2 * BLOCK_MAX);
    connect_peer();
    for (unsigned i = 0; i < repeats; i++) {
        for (size_t r = 0; r < ROWS; r++) {
            meet();
            times[r][i] = rows[r].run(rows[r].len, rows[r].n);
        }
    }
    /* The second process times the rows of copies and reads, and so all of them. */
    if (b.side == 1)
        report(times, repeats);
    fflush(stdout);
    meet();
    sl_shm_ops.ep_destroy(b.ep);
    sl_shm_ops.close(b.iface);
    if (b.side == 1)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return 0;
}
