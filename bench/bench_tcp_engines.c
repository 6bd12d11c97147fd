/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines of the tcp transport side by side: two processes, each pinned to a core, exchange
 * messages both ways at once on many endpoints, by every engine in turn. Printed for each: the time
 * of an exchange on all endpoints, its spread (from the least to the third quartile), and the
 * processor time of both ends for it.
 *
 *   usage: bench_tcp_engines [LINK [ROUNDS [spin|sleep [ENDPOINTS...]]]]
 *
 * LINK is lo, veth (two network namespaces), or a rate as tc writes it, which that veth is held to.
 * Who waits spins, or sleeps until the interface's descriptor is readable. Checksums are
 * off, and an endpoint has one data connection, unless SLUICE_TCP_CONNECTIONS says otherwise.
 */
#include "bench/link.h"
#include "core/config.h"
#include "core/err.h"
#include "core/transport.h"
#include "tcp/config.h"

#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDPOINTS_MAX 64
#define ROUNDS_MAX 64
#define LARGEST ((size_t)16 << 20)
#define TOTAL ((size_t)64 << 20) /* bytes of one exchange, at most */

extern const struct sl_transport_ops sl_tcp_ops;

static const char *const engines[] = {"epoll", "uring"};
static const enum sl_tcp_engine_kind kinds[] = {SL_TCP_ENGINE_EPOLL, SL_TCP_ENGINE_URING};
#define ENGINES SL_ARRAY_LEN(engines)

static const size_t sizes[] = {8, 1024, 8192, 64 << 10, 512 << 10, 1 << 20, 16 << 20};
#define SIZES SL_ARRAY_LEN(sizes)

struct engine {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *eps[ENDPOINTS_MAX];
    struct sl_sink sinks[ENDPOINTS_MAX];
    struct sl_req sends[ENDPOINTS_MAX], recvs[ENDPOINTS_MAX];
};

struct side {
    int meet, rank;
    unsigned count;
    bool sleeps, yields;
    const struct sl_link *link;
    struct sl_transport_ops ops;
    struct engine engines[ENGINES];
    char *src, *dst;
    uint64_t tag;
};

struct sample {
    double us, cpu_us;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_tcp_engines: %s: %s\n", what, sluice_last_error());
    exit(1);
}

static void swap(struct side *s, const void *out, void *in, size_t len)
{
    if (sl_link_swap(s->meet, out, in, len) != 0)
        die("the other process is gone");
}

static double now_us(void)
{
    return (double)sl_now(&sl_clock_monotonic) / 1e3;
}

/* ---- an exchange ---- */

static void wait_some(struct side *s, struct engine *engine)
{
    struct pollfd pfd = {.fd = s->ops.fd(engine->iface), .events = POLLIN};

    if (!s->sleeps) {
        if (s->yields)
            sched_yield();
        return;
    }
    if (s->ops.arm(engine->iface) != 0)
        return;
    if (poll(&pfd, 1, 5000) == 0)
        die("nothing came for 5 s");
    s->ops.disarm(engine->iface);
}

static void exchange(struct side *s, struct engine *engine, size_t len)
{
    struct sl_buf buf = {.addr = s->src, .len = len};
    bool pending = true;

    for (unsigned i = 0; i < s->count; i++) {
        engine->sinks[i] = (struct sl_sink){.dst = s->dst, .len = len, .tag = s->tag, .granule = 4};
        if (s->ops.recv(engine->eps[i], &engine->sinks[i], &engine->recvs[i]) < 0)
            die("recv");
    }
    for (unsigned i = 0; i < s->count; i++)
        if (s->ops.send(engine->eps[i], &buf, s->tag, &engine->sends[i]) < 0)
            die("send");
    while (pending) {
        int moved = s->ops.progress(engine->iface, 256);

        if (moved < 0)
            die("progress");
        pending = false;
        for (unsigned i = 0; i < s->count; i++) {
            if (engine->sends[i].status < 0 || engine->recvs[i].status < 0)
                die("exchange");
            pending |=
                engine->sends[i].status == SL_PENDING || engine->recvs[i].status == SL_PENDING;
        }
        if (pending && moved == 0)
            wait_some(s, engine);
    }
    s->tag++;
}

static struct sample measure(struct side *s, struct engine *engine, size_t len, int repeats)
{
    struct sample sample;
    double cpu, other;
    char go = 1;

    swap(s, &go, &go, 1);
    sample.us = now_us();
    cpu = sl_link_cpu_us();
    for (int n = 0; n < repeats; n++)
        exchange(s, engine, len);
    cpu = (sl_link_cpu_us() - cpu) / repeats;
    sample.us = (now_us() - sample.us) / repeats;
    swap(s, &cpu, &other, sizeof(cpu));
    sample.cpu_us = cpu + other;
    return sample;
}

/* ---- setting up ---- */

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    (void)arg, (void)ep;
    fprintf(stderr, "bench_tcp_engines: down: %d %s\n", status, why);
}

static void connect_one(struct side *s, struct engine *engine, unsigned i)
{
    struct sl_addr mine, theirs;
    struct sl_req req = {0};

    if (s->ops.ep_create(engine->iface, &engine->eps[i]) != 0)
        die("endpoint");
    engine->eps[i]->peer = 1 - s->rank;
    if (s->ops.ep_addr(engine->eps[i], &mine) != 0)
        die("address");
    swap(s, &mine, &theirs, sizeof(mine));
    if (s->ops.ep_connect(engine->eps[i], &theirs, &req) != 0)
        die("connect");
    while (req.status == SL_PENDING)
        s->ops.progress(engine->iface, 16);
    if (req.status != 0)
        die("connect");
}

static void open_engine(struct side *s, struct engine *engine, enum sl_tcp_engine_kind kind)
{
    struct sl_handler handler = {.down = on_down};
    struct sl_tcp_config *tcp;

    if (sl_config_from_env(&engine->config, environ) != 0)
        die("configuration");
    tcp = sl_tcp_config_edit(&engine->config);
    tcp->engine = kind;
    if (tcp->connections == 0)
        tcp->connections = 1;
    tcp->crc = SL_OFF;
    engine->worker = (struct sl_worker){
        .clock = &sl_clock_monotonic, .config = &engine->config, .rank = s->rank};
    if (s->ops.open(&engine->worker, NULL, &handler, &engine->iface) != 0)
        die("an engine");
    for (unsigned i = 0; i < s->count; i++)
        connect_one(s, engine, i);
}

/* ---- all rounds ---- */

/* So many in a row that a measurement takes some ms, or some tens of them on a slow link. */
static int repeats_of(const struct side *s, size_t bytes)
{
    double rate = s->link->bytes_per_s > 0 ? (double)s->link->bytes_per_s : 4e9;
    double us = 10.0 + 3.0 * s->count + (double)bytes / rate * 1e6;

    return 1 + (int)(20000.0 / us);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->us, y = ((const struct sample *)b)->us;

    return (x > y) - (x < y);
}

static int by_cpu(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->cpu_us, y = ((const struct sample *)b)->cpu_us;

    return (x > y) - (x < y);
}

static void print_cell(struct sample *samples, int rounds)
{
    double least, median, late;

    qsort(samples, (size_t)rounds, sizeof(*samples), by_time);
    least = samples[0].us;
    median = samples[rounds / 2].us;
    late = samples[rounds * 3 / 4].us;
    qsort(samples, (size_t)rounds, sizeof(*samples), by_cpu);
    printf(" | %9.1f (%.1f to %.1f), %.1f", median, least, late, samples[rounds / 2].cpu_us);
}

static void run(struct side *s, int rounds)
{
    static struct sample samples[SIZES][ENGINES][ROUNDS_MAX];
    size_t most = s->link->bytes_per_s > 0 ? s->link->bytes_per_s / 8 : TOTAL;

    for (int round = -1; round < rounds; round++)
        for (size_t i = 0; i < SIZES && sizes[i] * s->count <= most; i++)
            for (size_t e = 0; e < ENGINES; e++) {
                struct sample sample =
                    measure(s, &s->engines[e], sizes[i], repeats_of(s, sizes[i] * s->count));

                if (round >= 0)
                    samples[i][e][round] = sample;
            }
    if (s->rank != 0)
        return;
    printf("%s, %u endpoints, %s, %d rounds; us: median (least to third quartile), processor time "
           "of both\n     bytes",
           s->link->name, s->count, s->sleeps ? "sleep" : "spin", rounds);
    for (size_t e = 0; e < ENGINES; e++)
        printf(" | %s", engines[e]);
    printf("\n");
    for (size_t i = 0; i < SIZES && sizes[i] * s->count <= most; i++) {
        printf("%10zu", sizes[i]);
        for (size_t e = 0; e < ENGINES; e++)
            print_cell(samples[i][e], rounds);
        printf("\n");
    }
}

struct wish {
    const char *where;
    int rounds;
    bool sleeps;
    unsigned count;
};

static int side_main(int rank, int meet, void *arg)
{
    const struct wish *wish = arg;
    struct side *s = calloc(1, sizeof(*s));
    struct sl_link link;
    char go = 1;

    if (s == NULL || sl_link_open(&link, wish->where, rank, meet) != 0)
        die("the link cannot be made (root, ip and tc are needed)");
    /* On a veth pair the kernel moves packets in a thread of the same core. */
    s->yields = strcmp(wish->where, "lo") != 0;
    s->meet = meet;
    s->rank = rank;
    s->count = wish->count;
    s->sleeps = wish->sleeps;
    s->link = &link;
    s->src = calloc(1, LARGEST);
    s->dst = malloc(LARGEST);
    if (s->src == NULL || s->dst == NULL)
        die("no memory");
    memset(s->dst, 1, LARGEST);
    sl_transport_complete(&sl_tcp_ops, &s->ops);
    for (size_t e = 0; e < ENGINES; e++)
        open_engine(s, &s->engines[e], kinds[e]);
    run(s, wish->rounds);
    swap(s, &go, &go, 1);
    for (size_t e = 0; e < ENGINES; e++) {
        for (unsigned i = 0; i < s->count; i++)
            s->ops.ep_destroy(s->engines[e].eps[i]);
        s->ops.close(s->engines[e].iface);
    }
    free(s->src);
    free(s->dst);
    free(s);
    return 0;
}

int main(int argc, char **argv)
{
    struct wish wish = {.where = argc > 1 ? argv[1] : "lo",
                        .rounds = argc > 2 ? atoi(argv[2]) : 9,
                        .sleeps = argc > 3 && strcmp(argv[3], "sleep") == 0};
    int failed = 0;

    for (int i = 4; (i < argc || i == 4) && !failed; i++) {
        int count = i < argc ? atoi(argv[i]) : 1;

        if (wish.rounds < 1 || wish.rounds > ROUNDS_MAX || count < 1 || count > ENDPOINTS_MAX) {
            fprintf(stderr,
                    "usage: bench_tcp_engines [LINK [ROUNDS [spin|sleep [ENDPOINTS...]]]]\n");
            return 2;
        }
        wish.count = (unsigned)count;
        failed = sl_link_run(side_main, &wish);
    }
    return failed;
}
