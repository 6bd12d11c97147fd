/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin as a proxy's progress thread drives it, timed: half the round trip of one message, and
 * streams with a window in flight. Beside it one blocking TCP stream, which is what a plain program
 * would use.
 */
#include "tools/nccl-driver/runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LANES_MOST 16
#define REPEATS_MOST 25
#define PINGS_MOST 20000
#define WARM_UP 4
#define FIGURES_A_LINE 4

struct bench_options bench_options = {
    .from = 8, .to = 4 << 20, .in_flight = 8, .connections = 1, .repeats = 5, .time_ns = 300 * MS};

struct lane { /* one connection, one way */
    void *comm, *mr;
    uint8_t *memory;
    bool send;
    uint64_t posted, done, count;
    void *requests[FLOW_WINDOW];
};

struct bench {
    struct rank *r;
    struct conn conns[2 * LANES_MOST];
    struct lane lanes[2 * LANES_MOST];
    unsigned lane_count;
};

/* Processor time of this process. */
static uint64_t cpu_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How busy the two processes were while a stream ran: 100 is one processor. Rank 1 leaves its share
 * where rank 0, which comes later, finds it. */
static void tell_busy(struct rank *r, size_t size, uint64_t cpu_ns, uint64_t wall_ns)
{
    uint64_t share = wall_ns == 0 ? 0 : cpu_ns * 100 / wall_ns;

    if (r->idx == 1) {
        atomic_store(&watch_shared->word[0], share);
        return;
    }
    watch_figure("busy_sender_percent", size, bench_options.in_flight, (double)share);
    watch_figure("busy_receiver_percent", size, bench_options.in_flight,
                 (double)atomic_load(&watch_shared->word[0]));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

static bool crowded; /* one processor for both: who waits must yield */

/* To the idx-th processor that this process may use, from here on and for this thread alone. */
static void pin(int idx)
{
    cpu_set_t may, one;
    int at = 0;

    crowded = sched_getaffinity(0, sizeof(may), &may) != 0 || CPU_COUNT(&may) < 2;
    if (crowded)
        return;
    idx %= CPU_COUNT(&may);
    while (idx > 0 || !CPU_ISSET(at, &may)) {
        idx -= CPU_ISSET(at, &may);
        at++;
    }
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static int post(struct bench *b, struct lane *lane, size_t size)
{
    unsigned at = lane->posted % bench_options.in_flight;
    uint8_t *data = lane->memory + at * bench_options.to;
    void *request = NULL;
    int rc, tag = 0;

    if (lane->send)
        rc = net_isend(b->r->net, lane->comm, data, size, tag, lane->mr, NULL, &request);
    else
        rc = net_irecv(b->r->net, lane->comm, 1, (void **)&data, &size, &tag, &lane->mr, NULL,
                       &request);
    if (rc != NET_OK)
        return watch_fail("%s gave %s", lane->send ? "isend" : "irecv", net_result_name(rc));
    lane->requests[at] = request;
    lane->posted += request != NULL;
    return request != NULL;
}

static int reap(struct bench *b, struct lane *lane)
{
    int done = 0, size, rc;

    rc = net_test(b->r->net, lane->requests[lane->done % bench_options.in_flight], &done, &size, 1);
    if (rc != NET_OK)
        return watch_fail("test gave %s", net_result_name(rc));
    lane->done += done != 0;
    return done != 0;
}

/* One turn of one lane: 1 if something moved. */
static int turn(struct bench *b, struct lane *lane, size_t size, unsigned window)
{
    int moved = 0, rc;

    while (lane->posted < lane->count && lane->posted - lane->done < window) {
        rc = post(b, lane, size);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        moved = 1;
    }
    while (lane->done < lane->posted) {
        rc = reap(b, lane);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        moved = 1;
    }
    return moved;
}

static int drive(struct bench *b, struct lane *lanes, unsigned count, size_t size, unsigned window)
{
    unsigned idle = 0, left = count;

    watch_wait("messages");
    while (left > 0) {
        int moved = 0;

        left = 0;
        for (unsigned i = 0; i < count; i++) {
            int rc = turn(b, &lanes[i], size, window);

            if (rc < 0)
                return -1;
            moved |= rc;
            left += lanes[i].done < lanes[i].count;
        }
        idle = moved ? 0 : idle + 1;
        if (idle > 1000 && crowded)
            sched_yield();
        if (idle % 100000 == 99999 && watch_over(0))
            return -1;
    }
    watch_leave(false);
    return 0;
}

static int swap_word(struct rank *r, uint64_t *word)
{
    if (r->idx == 0)
        return boot_send(r, 1, word, sizeof(*word)) != 0 ? -1
                                                         : boot_recv(r, 1, word, sizeof(*word));
    if (boot_recv(r, 0, word, sizeof(*word)) != 0)
        return -1;
    return boot_send(r, 0, word, sizeof(*word));
}

/* Rank 1 tells first. */
static int end_stream(struct rank *r, size_t size, uint64_t cpu_ns, uint64_t wall_ns)
{
    uint64_t word = 0;

    if (r->idx == 1)
        tell_busy(r, size, cpu_ns, wall_ns);
    if (swap_word(r, &word) != 0)
        return -1;
    if (r->idx == 0)
        tell_busy(r, size, cpu_ns, wall_ns);
    return 0;
}

/* count messages on each lane. Writes the time between both ends being ready and both being done.
 */
static int stream_once(struct bench *b, size_t size, uint64_t count, uint64_t *ns)
{
    uint64_t start, word = count;

    if (swap_word(b->r, &word) != 0)
        return -1;
    for (unsigned i = 0; i < b->lane_count; i++) {
        b->lanes[i].posted = b->lanes[i].done = 0;
        b->lanes[i].count = word;
    }
    start = watch_now();
    if (drive(b, b->lanes, b->lane_count, size, bench_options.in_flight) != 0 ||
        swap_word(b->r, &word) != 0)
        return -1;
    *ns = watch_now() - start;
    return 0;
}

static int stream(struct bench *b, size_t size)
{
    uint64_t count = 32, ns = 1, want = bench_options.time_ns / bench_options.repeats;
    double rates[REPEATS_MOST];
    unsigned lanes = bench_options.connections * (bench_options.both ? 2 : 1);
    uint64_t cpu, wall;

    for (int i = 0; i < WARM_UP; i++) {
        if (stream_once(b, size, count, &ns) != 0)
            return -1;
        count = count * want / (ns == 0 ? 1 : ns);
        count = count < 16 ? 16 : count > 1000000 ? 1000000 : count;
    }
    cpu = cpu_now();
    wall = watch_now();
    for (unsigned i = 0; i < bench_options.repeats; i++) {
        if (stream_once(b, size, count, &ns) != 0)
            return -1;
        /* Rank 0 said how many: rank 1's own figure counts for nothing. */
        rates[i] = (double)(count * lanes) * (double)size / (double)ns * 1e3;
    }
    if (b->r->idx == 0)
        watch_figure("stream_mb_s", size, bench_options.in_flight,
                     median(rates, bench_options.repeats));
    return end_stream(b->r, size, cpu_now() - cpu, watch_now() - wall);
}

static int ping(struct bench *b, size_t size)
{
    static double us[PINGS_MOST];
    struct lane *out = &b->lanes[b->r->idx == 0 ? 0 : 1], *in = &b->lanes[b->r->idx == 0 ? 1 : 0];
    uint64_t began = watch_now(), word;
    unsigned n = 0;

    out->posted = out->done = in->posted = in->done = 0;
    for (word = 1; word != 0;) {
        for (int burst = 0; burst < 100 && n < PINGS_MOST; burst++, n++) {
            uint64_t start = watch_now();

            for (int half = 0; half < 2; half++) {
                struct lane *lane = (half == 0) == (b->r->idx == 0) ? out : in;

                lane->count = lane->done + 1;
                if (drive(b, lane, 1, size, 1) != 0)
                    return -1;
            }
            us[n] = (double)(watch_now() - start) / 2e3;
        }
        word = watch_now() - began < bench_options.time_ns && n < PINGS_MOST;
        if (swap_word(b->r, &word) != 0) /* rank 0's word counts */
            return -1;
    }
    if (b->r->idx == 0)
        watch_figure("latency_us", size, 1, median(us, n));
    return 0;
}

static int lane_open(struct bench *b, struct conn *c)
{
    struct lane *lane = &b->lanes[b->lane_count++];
    size_t len = bench_options.to * bench_options.in_flight;
    struct job job = {.kind = JOB_REG, .conn = c->id, .len = len};

    lane->send = c->send_comm != NULL;
    lane->comm = job.comm = lane->send ? c->send_comm : c->recv_comm;
    lane->memory = job.data =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (lane->memory == MAP_FAILED)
        return watch_fail("no memory for %zu bytes", len);
    memset(lane->memory, 1, len);
    if (rank_do(b->r, &job) != 0)
        return -1;
    lane->mr = job.mr;
    return 0;
}

static int lane_shut(struct bench *b, struct lane *lane)
{
    struct job job = {.kind = JOB_DEREG, .comm = lane->comm, .mr = lane->mr};

    return rank_do(b->r, &job);
}

/* Both directions are connected, for the ping; a stream one way uses every second lane. */
static int measure(struct bench *b, unsigned conns)
{
    unsigned all = 2 * conns;
    struct lane *lanes = b->lanes;

    if (!bench_options
             .both) /* to the front: those from rank 0 to rank 1, then one back for the ping */
        for (unsigned i = 1; i < conns; i++) {
            struct lane keep = lanes[i];

            lanes[i] = lanes[2 * i];
            lanes[2 * i] = keep;
        }
    for (size_t size = bench_options.from; size <= bench_options.to;
         size = size == 0 ? 1 : size * 4) {
        struct lane first = lanes[0];
        struct lane back = bench_options.both || conns == 1 ? lanes[1] : lanes[all - 1];
        struct bench two = {.r = b->r, .lanes = {first, back}, .lane_count = 2};

        if (ping(&two, size) != 0)
            return -1;
        b->lane_count = bench_options.both ? all : conns;
        if (stream(b, size) != 0)
            return -1;
    }
    b->lane_count = all;
    return 0;
}

static int bench_rank(struct rank *r)
{
    struct bench *b = calloc(1, sizeof(*b));
    unsigned conns = bench_options.connections;
    int rc = -1;

    if (b == NULL)
        return watch_fail("no memory");
    b->r = r;
    case_ring(r, b->conns, 2 * conns, 0);
    for (unsigned i = 0; i < 2 * conns; i++) { /* even: to rank 1; odd: back */
        b->conns[i].from = i % 2 == 0 ? 0 : 1;
        b->conns[i].to = 1 - b->conns[i].from;
    }
    if (rank_start(r) != 0 || rank_connect(r, b->conns, 2 * conns) != 0)
        goto out;
    for (unsigned i = 0; i < 2 * conns; i++)
        if (lane_open(b, &b->conns[i]) != 0)
            goto out;
    rank_stop_progress(r);
    pin(r->idx);
    r->net->quick = true;
    rc = measure(b, conns);
    r->net->quick = false;
    for (unsigned i = 0; i < b->lane_count && rc == 0; i++)
        rc = lane_shut(b, &b->lanes[i]);
    if (rc == 0) {
        rank_close(r, b->conns, 2 * conns);
        rc = rank_stop(r);
    }
out:
    free(b);
    return rc;
}

/* One TCP stream in the hands of blocking calls. Nothing is in flight, but the messages lie in as
 * much memory. */
static int socket_open(struct rank *r)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, peer;

    if (r->idx == 0) {
        if (boot_recv(r, 1, &address, sizeof(address)) != 0 ||
            connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            return watch_fail("connect: %s", strerror(errno));
        peer = fd;
    } else {
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 1) != 0 ||
            getsockname(fd, (struct sockaddr *)&address, &len) != 0 ||
            boot_send(r, 0, &address, sizeof(address)) != 0 || (peer = accept(fd, NULL, NULL)) < 0)
            return watch_fail("accept: %s", strerror(errno));
        close(fd);
    }
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return peer;
}

static int whole(int fd, uint8_t *data, size_t len, bool out)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = out ? send(fd, data + at, len - at, MSG_NOSIGNAL)
                        : recv(fd, data + at, len - at, MSG_WAITALL);

        if (n <= 0)
            return watch_fail("the stream broke: %s", strerror(errno));
        at += (size_t)n;
    }
    return 0;
}

static int socket_stream(struct rank *r, int fd, uint8_t *data, size_t size)
{
    uint64_t count = 32, want = bench_options.time_ns / bench_options.repeats;
    uint64_t cpu = 0, wall = 0;
    double rates[REPEATS_MOST];

    for (unsigned i = 0; i < WARM_UP + bench_options.repeats; i++) {
        uint64_t start, word = count, ns;

        if (i == WARM_UP) {
            cpu = cpu_now();
            wall = watch_now();
        }

        if (swap_word(r, &word) != 0)
            return -1;
        start = watch_now();
        for (uint64_t m = 0; m < word; m++)
            if (whole(fd, data + m % bench_options.in_flight * size, size, r->idx == 0) != 0)
                return -1;
        if (swap_word(r, &word) != 0)
            return -1;
        ns = watch_now() - start;
        if (i >= WARM_UP) {
            rates[i - WARM_UP] = (double)count * (double)size / (double)ns * 1e3;
        } else {
            count = count * want / (ns == 0 ? 1 : ns);
            count = count < 16 ? 16 : count > 1000000 ? 1000000 : count;
        }
    }
    if (r->idx == 0)
        watch_figure("stream_mb_s", size, bench_options.in_flight,
                     median(rates, bench_options.repeats));
    return end_stream(r, size, cpu_now() - cpu, watch_now() - wall);
}

static int socket_ping(struct rank *r, int fd, uint8_t *data, size_t size)
{
    static double us[PINGS_MOST];
    unsigned count = size < 65536 ? 2000 : 200;

    for (unsigned n = 0; n < count; n++) {
        uint64_t start = watch_now();

        if (whole(fd, data, size, r->idx == 0) != 0 || whole(fd, data, size, r->idx != 0) != 0)
            return -1;
        us[n] = (double)(watch_now() - start) / 2e3;
    }
    if (r->idx == 0)
        watch_figure("latency_us", size, 1, median(us, count));
    return 0;
}

static int socket_rank(struct rank *r)
{
    uint8_t *data = calloc(bench_options.in_flight, bench_options.to);
    int fd = socket_open(r);

    if (fd < 0 || data == NULL) {
        free(data);
        return -1;
    }
    memset(data, 1, bench_options.to * bench_options.in_flight);
    pin(r->idx);
    for (size_t size = bench_options.from; size <= bench_options.to; size *= 4)
        if (socket_ping(r, fd, data, size) != 0 || socket_stream(r, fd, data, size) != 0) {
            free(data);
            return -1;
        }
    close(fd);
    free(data);
    return 0;
}

static void print(const struct run_options *o, const char *what)
{
    const struct shared *s = watch_shared;

    if (bench_options.json)
        printf("{\"what\": \"%s\", \"api\": %d, \"connections\": %u, \"both\": %s, \"figures\": [",
               what, o->version, bench_options.connections, bench_options.both ? "true" : "false");
    else
        printf("# %s, API v%d, %u connection%s%s\n# %10s %10s %14s %14s %10s\n", what, o->version,
               bench_options.connections, bench_options.connections > 1 ? "s" : "",
               bench_options.both ? ", both ways" : "", "bytes", "in flight", "latency us", "MB/s",
               "busy %");
    for (unsigned i = 0; i < s->figure_count; i++) {
        const struct figure *f = &s->figures[i];

        if (bench_options.json)
            printf("%s{\"what\": \"%s\", \"bytes\": %llu, \"in_flight\": %u, \"value\": %.3f}",
                   i > 0 ? ", " : "", f->what, (unsigned long long)f->bytes, f->in_flight,
                   f->value);
        else if (i % FIGURES_A_LINE == FIGURES_A_LINE - 1)
            printf("  %10llu %10u %14.2f %14.1f %6.0f %3.0f\n", (unsigned long long)f->bytes,
                   f->in_flight, f[-3].value, f[-2].value, f[-1].value, f->value);
    }
    if (bench_options.json)
        printf("]}\n");
}

static int run(const struct run_options *options, int (*rank)(struct rank *), const char *what)
{
    const struct driver_case c = {"bench", rank, 2, CASE_PROCESSES};
    struct run_options o = *options;
    char text[600];

    if (bench_options.in_flight == 0 || bench_options.in_flight > FLOW_WINDOW ||
        bench_options.connections == 0 || bench_options.connections > LANES_MOST ||
        bench_options.repeats == 0 || bench_options.repeats > REPEATS_MOST ||
        bench_options.from == 0 || bench_options.from > bench_options.to) {
        fprintf(stderr,
                "nccl_driver: 1 to %d in flight, 1 to %d connections, 1 to %d repeats, --min to "
                "--max\n",
                FLOW_WINDOW, LANES_MOST, REPEATS_MOST);
        return 2;
    }
    if (o.version == 0)
        o.version = 11;
    o.placement = PLACE_PROCESSES;
    if (run_case(&o, &c, text, sizeof(text)) != RUN_PASSED) {
        fprintf(stderr, "nccl_driver: %s\n", text);
        return 1;
    }
    print(&o, what);
    return 0;
}

int bench_run(const struct run_options *o)
{
    return run(o, bench_rank, o->path);
}

int bench_socket(const struct run_options *o)
{
    return run(o, socket_rank, "one blocking TCP stream");
}
