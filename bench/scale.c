/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/scale.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/registry.h"
#include "lib/start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_NS (500 * SL_NS_PER_S)

static const char *name = "scale";
static const struct sl_transport_ops *ops;
static unsigned long pending;

void scale_start(const char *program)
{
    name = program;
}

void scale_die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", name, what, sluice_last_error());
    exit(1);
}

void *scale_zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL)
        scale_die("no memory");
    return memory;
}

double scale_seconds(uint64_t since_ns)
{
    return (double)(sl_now(&sl_clock_monotonic) - since_ns) / 1e9;
}

unsigned long scale_kib(const char *path, const char *field)
{
    FILE *file = fopen(path, "re");
    char line[256];
    size_t len = strlen(field);
    unsigned long value = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, field, len) == 0 && line[len] == ':')
            value = strtoul(line + len + 1, NULL, 10);
    if (file != NULL)
        fclose(file);
    return value;
}

void scale_open(struct scale_side *side, const char *transport, const char *setting,
                const char *value, int rank, size_t n)
{
    if (sl_start(&side->config, environ) != 0 || sl_config_set(&side->config, setting, value) != 0)
        scale_die("settings");
    ops = sl_transport_find(transport, strlen(transport)); /* the start has loaded modules */
    if (ops == NULL) {
        fprintf(stderr, "%s: there is no transport %s here: sluice-bench --list says why\n", name,
                transport);
        exit(1);
    }
    side->config.connect_timeout_ms = DEADLINE_NS / SL_NS_PER_MS;
    side->worker =
        (struct sl_worker){.clock = &sl_clock_monotonic, .config = &side->config, .rank = rank};
    sl_rng_init(&side->worker.rng, (uint64_t)getpid() * 2 + (unsigned)rank);
    side->eps = scale_zeroed(n, sizeof(*side->eps));
    side->connects = scale_zeroed(n, sizeof(*side->connects));
    side->recvs = scale_zeroed(n, sizeof(*side->recvs));
    side->sends = scale_zeroed(n, sizeof(*side->sends));
    side->sinks = scale_zeroed(n, sizeof(*side->sinks));
    if (ops->open(&side->worker, NULL, NULL, &side->iface) != 0)
        scale_die("open");
}

/* ---- what is under way ---- */

static void on_done(struct sl_req *req)
{
    if (req->status != 0)
        scale_die("a connection or message");
    pending--;
}

void scale_progress(struct scale_side sides[2])
{
    for (int i = 0; i < 2; i++)
        if (ops->progress(sides[i].iface, 64) < 0)
            scale_die("progress");
}

void scale_run(struct scale_side sides[2], const char *what)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + DEADLINE_NS;

    while (pending > 0) {
        scale_progress(sides);
        if (sl_now(&sl_clock_monotonic) > deadline_ns) {
            fprintf(stderr, "%s: %s: %lu of them are not done in time\n", name, what, pending);
            exit(1);
        }
    }
}

void scale_connect(struct scale_side sides[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sl_addr addr[2];

        for (int k = 0; k < 2; k++) {
            if (ops->ep_create(sides[k].iface, &sides[k].eps[i]) != 0 ||
                ops->ep_addr(sides[k].eps[i], &addr[k]) != 0)
                scale_die("an endpoint");
            sides[k].eps[i]->peer = (int)i;
        }
        for (int k = 0; k < 2; k++) {
            struct sl_req *req = &sides[k].connects[i];

            *req = (struct sl_req){.status = SL_PENDING, .done = on_done};
            pending++;
            if (ops->ep_connect(sides[k].eps[i], &addr[!k], req) < 0)
                scale_die("connect");
        }
    }
    scale_run(sides, "connecting");
}

void scale_receive(struct scale_side sides[2], int k, size_t i, void *dst, size_t len, uint64_t tag)
{
    struct scale_side *side = &sides[k];
    int rc;

    side->sinks[i] = (struct sl_sink){.dst = dst, .len = len, .tag = tag};
    side->recvs[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    rc = ops->recv(side->eps[i], &side->sinks[i], &side->recvs[i]);
    if (rc < 0)
        scale_die("a receive");
    pending += rc == 0;
}

void scale_post(struct scale_side sides[2], int k, size_t i, const void *src, void *dst, size_t len)
{
    struct scale_side *side = &sides[k];
    struct sl_buf buf = {.addr = src, .len = len};
    int rc;

    scale_receive(sides, k, i, dst, len, i);
    side->sends[i] = (struct sl_req){.status = SL_PENDING, .done = on_done};
    while ((rc = ops->send(side->eps[i], &buf, i, &side->sends[i])) == -EAGAIN)
        scale_progress(sides);
    if (rc < 0)
        scale_die("a send");
    pending += rc == 0;
}

double scale_close(struct scale_side sides[2], size_t n)
{
    uint64_t start_ns = sl_now(&sl_clock_monotonic);

    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            ops->ep_destroy(sides[k].eps[i]);
    for (int k = 0; k < 2; k++)
        ops->close(sides[k].iface);
    return scale_seconds(start_ns);
}

/* ---- sizes ---- */

bool scale_apart(void (*measure)(const void *arg, size_t n), const void *arg, size_t n)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        measure(arg, n);
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

size_t scale_count(const char *word, size_t most)
{
    char *end;
    unsigned long n = strtoul(word, &end, 10);

    if (*end == '\0' && n > 0 && n <= most)
        return n;
    fprintf(stderr, "%s: '%s' is no number of connections\n", name, word);
    return 0;
}
