/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many connections on one host: N endpoints of one verbs interface, connected to N of another in
 * the same process. A message goes over each in both directions, then many before their receives.
 * Prints what each end takes of memory and time, and fails when anything that `rdma resource`
 * counts is left behind.
 *
 *   usage: bench_verbs_scale DEVICES_A DEVICES_B N...
 *   DEVICES_x is SLUICE_VERBS_DEVICES of either interface; all other SLUICE_* apply.
 */
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/transport.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "verbs/verbs.h"
#include "lib/start.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGE 64
#define FLOOD 14 /* messages on each connection before a receive: less than its credits */
#define DEADLINE_NS (500 * SL_NS_PER_S)
#define FDS_PER_CONNECTION 4 /* two sockets of the sideband at either end */
#define FDS_BESIDES 256

static const struct {
    const char *name;
} kinds[] = {{"pd"}, {"cq"}, {"qp"}, {"mr"}, {"srq"}};

#define KINDS SL_ARRAY_LEN(kinds)

struct objects {
    unsigned long count[KINDS];
};

/* One of the two interfaces. */
struct side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep **eps;
    struct sl_req *connects, *recvs, *sends;
    struct sl_sink *sinks;
    uint8_t *in;
    uint8_t out[MESSAGE];
};

struct memory {
    unsigned long rss_kib, pin_kib, available_kib;
};

static unsigned long pending;

static void die(const char *what)
{
    fprintf(stderr, "bench_verbs_scale: %s: %s\n", what, sluice_last_error());
    exit(1);
}

/* ---- what is counted ---- */

/* "0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0" */
static void add_line(char *line, struct objects *out)
{
    char *rest = NULL;

    for (char *word = strtok_r(line, " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest))
        for (size_t i = 0; i < KINDS; i++)
            if (strcmp(word, kinds[i].name) == 0) {
                const char *number = strtok_r(NULL, " \n", &rest);

                out->count[i] += number != NULL ? strtoul(number, NULL, 10) : 0;
                break;
            }
}

static void objects_count(struct objects *out)
{
    FILE *list = popen("rdma resource show", "r");
    char line[512];
    unsigned lines = 0;

    *out = (struct objects){0};
    for (; list != NULL && fgets(line, sizeof(line), list) != NULL; lines++)
        add_line(line, out);
    if (list == NULL || pclose(list) != 0 || lines == 0) {
        fprintf(stderr,
                "bench_verbs_scale: `rdma resource show` does not work here: install iproute2\n");
        exit(1);
    }
}

static void objects_print(const char *when, const struct objects *objects)
{
    printf("# %-9s", when);
    for (size_t i = 0; i < KINDS; i++)
        printf(" %s %lu", kinds[i].name, objects->count[i]);
    printf("\n");
    fflush(stdout);
}

/* "Name:  123 kB" */
static unsigned long field(const char *path, const char *name)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned long value = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            value = strtoul(line + strlen(name) + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return value;
}

static struct memory memory_now(void)
{
    return (struct memory){field("/proc/self/status", "VmRSS"), field("/proc/self/status", "VmPin"),
                           field("/proc/meminfo", "MemAvailable")};
}

/* ---- connections ---- */

static void on_done(struct sl_req *req)
{
    if (req->status != 0)
        die("a connection or message");
    pending--;
}

static void open_side(struct side *s, const char *devices, int rank, size_t n)
{
    if (sl_start(&s->config, environ) != 0 ||
        sl_config_set(&s->config, "VERBS_DEVICES", devices) != 0)
        die("settings");
    s->config.connect_timeout_ms = DEADLINE_NS / SL_NS_PER_MS;
    s->worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &s->config, .rank = rank};
    sl_rng_init(&s->worker.rng, (uint64_t)getpid() * 2 + (unsigned)rank);
    s->eps = calloc(n, sizeof(*s->eps));
    s->connects = calloc(n, sizeof(*s->connects));
    s->recvs = calloc(n, sizeof(*s->recvs));
    s->sends = calloc(n, sizeof(*s->sends));
    s->sinks = calloc(n, sizeof(*s->sinks));
    s->in = calloc(n, MESSAGE);
    memset(s->out, 'a' + rank, sizeof(s->out));
    if (s->eps == NULL || s->connects == NULL || s->recvs == NULL || s->sends == NULL ||
        s->sinks == NULL || s->in == NULL ||
        sl_verbs_ops.open(&s->worker, NULL, NULL, &s->iface) != 0)
        die("open");
}

static void run(struct side *sides, const char *what)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;

    while (pending > 0) {
        for (int i = 0; i < 2; i++)
            if (sides[i].iface->ops->progress(sides[i].iface, 64) < 0)
                die(what);
        if (sl_now(&sl_clock_monotonic) > deadline_ns) {
            fprintf(stderr, "bench_verbs_scale: %s: %lu of them are not done in time\n", what,
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
            if (sl_verbs_ops.ep_create(sides[k].iface, &sides[k].eps[i]) != 0 ||
                sl_verbs_ops.ep_addr(sides[k].eps[i], &addr[k]) != 0)
                die("an endpoint");
            sides[k].eps[i]->peer = (int)i;
        }
        for (int k = 0; k < 2; k++) {
            struct sl_req *req = &sides[k].connects[i];

            *req = (struct sl_req){.status = SL_PENDING, .done = on_done};
            pending++;
            if (sl_verbs_ops.ep_connect(sides[k].eps[i], &addr[!k], req) < 0)
                die("connect");
        }
    }
    run(sides, "connecting");
}

static void post(struct side *s, size_t i)
{
    struct sl_buf buf = {.addr = s->out, .len = MESSAGE};
    int rc;

    s->sinks[i] = (struct sl_sink){.dst = s->in + i * MESSAGE, .len = MESSAGE, .tag = i};
    s->recvs[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    s->sends[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    rc = s->iface->ops->recv(s->eps[i], &s->sinks[i], &s->recvs[i]);
    if (rc < 0)
        die("a receive");
    pending += rc == 0;
    while ((rc = s->iface->ops->send(s->eps[i], &buf, i, &s->sends[i])) == -EAGAIN)
        s->iface->ops->progress(s->iface, 64);
    if (rc < 0)
        die("a send");
    pending += rc == 0;
}

static void talk(struct side *sides, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            post(&sides[k], i);
    run(sides, "messages");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            if (memcmp(sides[k].in + i * MESSAGE, sides[!k].out, MESSAGE) != 0) {
                fprintf(stderr, "bench_verbs_scale: message %zu is not what was sent\n", i);
                exit(1);
            }
}

/* All of one side send as much as they may before anybody receives; then one connection after the
 * other receives, the last first: what it waits for must have found room. */
static void flood(struct side *sides, size_t n)
{
    struct sl_req reqs[FLOOD];
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;

    for (size_t i = 0; i < n; i++)
        for (unsigned m = 0; m < FLOOD; m++) {
            struct sl_buf buf = {.addr = sides[0].out, .len = MESSAGE};
            int rc = sl_verbs_ops.send(sides[0].eps[i], &buf, m, &reqs[m]);

            while (rc == -EAGAIN && sl_now(&sl_clock_monotonic) < deadline_ns) {
                for (int k = 0; k < 2; k++)
                    sides[k].iface->ops->progress(sides[k].iface, 64);
                rc = sl_verbs_ops.send(sides[0].eps[i], &buf, m, &reqs[m]);
            }
            if (rc != 1)
                die("a short message is not done at once");
        }
    for (size_t i = n; i-- > 0;) {
        for (unsigned m = 0; m < FLOOD; m++) {
            sides[1].sinks[i] =
                (struct sl_sink){.dst = sides[1].in + i * MESSAGE, .len = MESSAGE, .tag = m};
            sides[1].recvs[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
            int rc = sl_verbs_ops.recv(sides[1].eps[i], &sides[1].sinks[i], &sides[1].recvs[i]);

            if (rc < 0)
                die("a receive");
            pending += rc == 0;
            run(sides, "messages that came before their receives");
        }
    }
}

static unsigned paths_up(const struct side *s, size_t n)
{
    unsigned up = 0;

    for (size_t i = 0; i < n; i++)
        up += sl_mp_conn_of(s->eps[i])->paths_up;
    return up;
}

static double seconds(uint64_t since_ns)
{
    return (double)(sl_now(&sl_clock_monotonic) - since_ns) / 1e9;
}

static void print_memory(const struct memory *before, const struct memory *after, size_t n)
{
    double ends = 2.0 * (double)n;

    printf("  per endpoint: resident %.1f KiB, pinned %.1f KiB, of the machine %.1f KiB\n",
           ((double)after->rss_kib - (double)before->rss_kib) / ends,
           ((double)after->pin_kib - (double)before->pin_kib) / ends,
           ((double)before->available_kib - (double)after->available_kib) / ends);
}

/* In a process of its own, so that no size lives on what another has left in the heap. */
static void measure(char **devices, size_t n)
{
    static struct side sides[2];
    struct memory empty, before, after;
    struct objects alive;
    uint64_t start_ns;
    double connected, talked, flooded;

    empty = memory_now();
    for (int k = 0; k < 2; k++)
        open_side(&sides[k], devices[k], k, n);
    before = memory_now();
    start_ns = sl_now(&sl_clock_monotonic);
    connect_all(sides, n);
    connected = seconds(start_ns);
    start_ns = sl_now(&sl_clock_monotonic);
    talk(sides, n);
    talked = seconds(start_ns);
    after = memory_now();
    start_ns = sl_now(&sl_clock_monotonic);
    flood(sides, n);
    flooded = seconds(start_ns);
    objects_count(&alive);
    printf("%zu connections: connected in %.3f s (%.2f ms each), %u paths; a message each way in "
           "%.3f s, %d early "
           "ones in %.3f s\n",
           n, connected, connected * 1e3 / (double)n, paths_up(&sides[0], n), talked, FLOOD,
           flooded);
    printf("  an interface: resident %.1f MiB, pinned %.1f MiB\n",
           ((double)before.rss_kib - (double)empty.rss_kib) / 2048,
           ((double)before.pin_kib - (double)empty.pin_kib) / 2048);
    print_memory(&before, &after, n);
    start_ns = sl_now(&sl_clock_monotonic);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            sl_verbs_ops.ep_destroy(sides[k].eps[i]);
    for (int k = 0; k < 2; k++)
        sl_verbs_ops.close(sides[k].iface);
    printf("  torn down in %.3f s\n", seconds(start_ns));
    objects_print("in use", &alive);
    fflush(stdout);
}

static void raise_limit(size_t n)
{
    struct rlimit limit;
    rlim_t needed = n * FDS_PER_CONNECTION + FDS_BESIDES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return;
    if (limit.rlim_max < needed) {
        fprintf(stderr,
                "bench_verbs_scale: %zu connections need %lu descriptors, two sockets beside each "
                "end, but "
                "%lu are allowed: raise it with `ulimit -n %lu`\n",
                n, (unsigned long)needed, (unsigned long)limit.rlim_max, (unsigned long)needed);
        exit(1);
    }
    limit.rlim_cur = needed;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* False: a child failed, or left something. */
static bool measure_apart(char **devices, size_t n)
{
    struct objects before, after;
    int status = 0;
    pid_t child;

    raise_limit(n);
    objects_count(&before);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        measure(devices, n);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return false;
    objects_count(&after);
    objects_print("before", &before);
    objects_print("after", &after);
    if (memcmp(&before, &after, sizeof(before)) == 0)
        return true;
    fprintf(stderr, "bench_verbs_scale: %zu connections have left objects behind\n", n);
    return false;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: bench_verbs_scale DEVICES_A DEVICES_B N...\n");
        return 2;
    }
    printf("# bytes: endpoint %zu, path %zu, interface %zu\n", sizeof(struct sl_mp_conn),
           sizeof(struct sl_mp_path), sizeof(struct sl_verbs_iface));
    for (int i = 3; i < argc; i++) {
        char *end;
        unsigned long n = strtoul(argv[i], &end, 10);

        if (*end != '\0' || n == 0 || n > 100000) {
            fprintf(stderr, "bench_verbs_scale: '%s' is no number of connections\n", argv[i]);
            return 2;
        }
        if (!measure_apart(argv + 1, n))
            return 1;
    }
    return 0;
}
