/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node agent's isolation without its sources: verdicts come by command, and so does time. For
 * tests with a real Slurm, and with a server that answers as Kubernetes does.
 * usage: isolation_driver CONFIG
 *
 *     bad N     GPU N has a fatal error       clear N   an operator says it has not
 *     ack ID    of a verdict                  later S   so many seconds pass
 *     metrics   prints them                   (end of input: it ends)
 *
 * Lines of JSON come on standard output.
 */
#include "core/err.h"
#include "monitor/isolation.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 20

static struct sl_mon_config config;
static struct sl_mon_store *store;
static struct sl_mon *mon;
static struct sl_isolation *isolation;
static uint64_t ahead_ns; /* of the clocks */

static void die(void)
{
    fprintf(stderr, "isolation_driver: %s\n", sluice_last_error());
    exit(1);
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec at;

    clock_gettime(id, &at);
    return (uint64_t)at.tv_sec * SL_MON_S + (uint64_t)at.tv_nsec + ahead_ns;
}

static void tick(void)
{
    const struct sl_mon_time now = {.mono_ns = clock_ns(CLOCK_MONOTONIC),
                                    .wall_ns = clock_ns(CLOCK_REALTIME)};

    sl_mon_set_time(mon, &now);
    sl_isolation_tick(isolation, store, &now);
}

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    if (sl_mon_store_put(store, transition) != 0)
        die();
}

static struct sl_mon_subject *gpu(unsigned long i)
{
    char name[32];

    snprintf(name, sizeof(name), "0000:%02lx:00.0", i);
    return sl_mon_subject(mon, SL_MON_GPU, name);
}

static void obey(const char *line)
{
    static const struct sl_mon_evidence evidence = {
        .source = "kmsg", .text = "XID 79: it's \"fallen off the bus\"; state=resume reason=x"};
    char word[16] = "";
    unsigned long number = 0;

    if (sscanf(line, "%15s %lu", word, &number) < 1)
        return;
    if (strcmp(word, "bad") == 0)
        sl_mon_sample(mon, gpu(number), SL_MON_CHECK_GPU_FATAL, true, &evidence);
    else if (strcmp(word, "clear") == 0)
        (void)sl_mon_clear(mon, gpu(number));
    else if (strcmp(word, "ack") == 0)
        (void)sl_mon_store_verdict_ack(store, number, 1, "test");
    else if (strcmp(word, "later") == 0)
        ahead_ns += number * SL_MON_S;
    else if (strcmp(word, "metrics") == 0) {
        sl_isolation_metrics(isolation, SL_MON_OPENMETRICS, stdout);
        printf("# EOF\n");
        fflush(stdout);
    }
}

/* False: there are no more. */
static bool commands(void)
{
    static char text[4096];
    static size_t used;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char *end;
    ssize_t n;

    if (poll(&in, 1, TICK_MS) <= 0)
        return true;
    n = read(STDIN_FILENO, text + used, sizeof(text) - used - 1);
    if (n <= 0)
        return false;
    used += (size_t)n;
    text[used] = '\0';
    while ((end = strchr(text, '\n')) != NULL) {
        *end = '\0';
        obey(text);
        used -= (size_t)(end + 1 - text);
        memmove(text, end + 1, used + 1);
    }
    return true;
}

int main(int argc, char **argv)
{
    const struct sl_mon_store_options plenty = {.transitions_max = 100000};
    const char *boot_id = getenv("BOOT_ID") != NULL ? getenv("BOOT_ID") : "3f2a9c1d-77";
    char aside[512];

    if (argc != 2 || sl_mon_config_load(argv[1], &config) != 0 ||
        sl_mon_store_open(config.store_path, &plenty, &store, aside, sizeof(aside)) != 0)
        die();
    const struct sl_mon_options own = {
        .subjects_max = 64, .next_id = sl_mon_store_next(store), .on_transition = on_transition};
    const struct sl_isolation_options options = {
        .config = &config, .boot_id = boot_id, .log = stdout};
    const struct sl_mon_time now = {.mono_ns = clock_ns(CLOCK_MONOTONIC),
                                    .wall_ns = clock_ns(CLOCK_REALTIME)};

    if (sl_mon_create(&own, &mon) != 0)
        die();
    sl_mon_set_time(mon, &now);
    if (sl_mon_store_restore(store, mon, now.wall_ns) != 0)
        die();
    sl_mon_set_boot(mon, boot_id);
    if (sl_mon_store_boot(store, boot_id) != 0 || sl_isolation_open(&options, &isolation) != 0)
        die();
    do
        tick();
    while (commands());
    sl_isolation_close(isolation);
    sl_mon_destroy(mon);
    sl_mon_store_close(store);
    return 0;
}
