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
#include "bench/scale.h"
#include "core/clock.h"
#include "core/err.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "multipath/repair.h"
#include "verbs/iface.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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

struct memory {
    unsigned long rss_kib, pin_kib, available_kib;
};

static struct scale_side sides[2];
static uint8_t *received[2], sent[2][MESSAGE]; /* received: a message of each endpoint */

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

static struct memory memory_now(void)
{
    return (struct memory){scale_kib("/proc/self/status", "VmRSS"),
                           scale_kib("/proc/self/status", "VmPin"),
                           scale_kib("/proc/meminfo", "MemAvailable")};
}

/* ---- connections ---- */

static void open_all(char *const *devices, size_t n)
{
    for (int k = 0; k < 2; k++) {
        received[k] = scale_zeroed(n, MESSAGE);
        memset(sent[k], 'a' + k, MESSAGE);
        scale_open(&sides[k], "verbs", "VERBS_DEVICES", devices[k], k, n);
    }
}

static void talk(size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            scale_post(sides, k, i, sent[k], received[k] + i * MESSAGE, MESSAGE);
    scale_run(sides, "messages");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            if (memcmp(received[k] + i * MESSAGE, sent[!k], MESSAGE) != 0) {
                fprintf(stderr, "bench_verbs_scale: message %zu is not what was sent\n", i);
                exit(1);
            }
}

/* All of one side send as much as they may before anybody receives; then one connection after the
 * other receives, the last first: what it waits for must have found room. */
static void flood(size_t n)
{
    struct sl_req reqs[FLOOD];
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;

    for (size_t i = 0; i < n; i++)
        for (unsigned m = 0; m < FLOOD; m++) {
            struct sl_buf buf = {.addr = sent[0], .len = MESSAGE};
            int rc = sl_verbs_ops.send(sides[0].eps[i], &buf, m, &reqs[m]);

            while (rc == -EAGAIN && sl_now(&sl_clock_monotonic) < deadline_ns) {
                scale_progress(sides);
                rc = sl_verbs_ops.send(sides[0].eps[i], &buf, m, &reqs[m]);
            }
            if (rc != 1)
                scale_die("a short message is not done at once");
        }
    for (size_t i = n; i-- > 0;)
        for (unsigned m = 0; m < FLOOD; m++) {
            scale_receive(sides, 1, i, received[1] + i * MESSAGE, MESSAGE, m);
            scale_run(sides, "messages that came before their receives");
        }
}

static unsigned paths_up(const struct scale_side *s, size_t n)
{
    unsigned up = 0;

    for (size_t i = 0; i < n; i++)
        up += sl_mp_conn_of(s->eps[i])->paths_up;
    return up;
}

static void print_memory(const struct memory *before, const struct memory *after, size_t n)
{
    double ends = 2.0 * (double)n;

    printf("  per endpoint: resident %.1f KiB, pinned %.1f KiB, of the machine %.1f KiB\n",
           ((double)after->rss_kib - (double)before->rss_kib) / ends,
           ((double)after->pin_kib - (double)before->pin_kib) / ends,
           ((double)before->available_kib - (double)after->available_kib) / ends);
}

static void measure(const void *arg, size_t n)
{
    struct memory empty, before, after;
    struct objects alive;
    uint64_t start_ns;
    double connected, talked, flooded;

    empty = memory_now();
    open_all(arg, n);
    before = memory_now();
    start_ns = sl_now(&sl_clock_monotonic);
    scale_connect(sides, n);
    connected = scale_seconds(start_ns);
    start_ns = sl_now(&sl_clock_monotonic);
    talk(n);
    talked = scale_seconds(start_ns);
    after = memory_now();
    start_ns = sl_now(&sl_clock_monotonic);
    flood(n);
    flooded = scale_seconds(start_ns);
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
    printf("  torn down in %.3f s\n", scale_close(sides, n));
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

    raise_limit(n);
    objects_count(&before);
    if (!scale_apart(measure, devices, n))
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
    scale_start("bench_verbs_scale");
    if (argc < 4) {
        fprintf(stderr, "usage: bench_verbs_scale DEVICES_A DEVICES_B N...\n");
        return 2;
    }
    printf("# bytes: endpoint %zu, path %zu, interface %zu\n", sizeof(struct sl_mp_conn),
           sizeof(struct sl_mp_path), sizeof(struct sl_verbs_iface));
    for (int i = 3; i < argc; i++) {
        size_t n = scale_count(argv[i], 100000);

        if (n == 0)
            return 2;
        if (!measure_apart(argv + 1, n))
            return 1;
    }
    return 0;
}
