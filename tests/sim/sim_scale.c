/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thousands of ranks on the simulated network: they start, do an allreduce by trees and by hosts,
 * and when one of them dies all others name it within the deadline.
 *
 *     sim_scale [--ranks N] [--per-host N] [--seed N] [--silent] [--memory-mib N]
 *
 * Prints what it took; --memory-mib is a limit for the process.
 */
#include "collectives/operation.h"
#include "testing/sim/sim.h"
#include "tests/sim/seeds.h"

#include <sluice/sluice.h>

#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 48 /* elements: slices for some of the ranks of a host, none for the others */
#define LIMIT_NS (600 * SL_NS_PER_S)
#define TIMEOUT_MS 2000

static const char *const algos[] = {"dtree", "hiertree", "hier"};

#define ALGOS (sizeof(algos) / sizeof(algos[0]))

struct scale {
    uint32_t ranks, per_host, dies;
    uint64_t seed;
    bool silent; /* nobody is told that the rank dies */
    struct sl_sim *sim;
    struct sl_sim_meeting *meeting;
    struct scale_rank *rank;
    uint32_t reached[ALGOS + 2]; /* ranks that have ended that stage */
    int32_t want[COUNT];
    uint64_t died_ns;
    struct timespec began;
};

/* What one rank met. */
struct scale_rank {
    struct scale *scale;
    uint32_t rank;
    int error;       /* the first that must not be; 0: none */
    int end;         /* of the operation in which a rank died */
    int32_t culprit; /* as it named it */
    uint64_t end_ns; /* when it knew */
    char text[160];
};

/* ---- what it takes ---- */

static uint64_t status_kib(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    uint64_t kib = 0;

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    fclose(file);
    return kib;
}

static double seconds(const struct scale *s)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - s->began.tv_sec) + (double)(now.tv_nsec - s->began.tv_nsec) / 1e9;
}

/* The last rank of a stage tells what it took so far. */
static void reach(struct scale *s, unsigned stage, const char *what)
{
    struct sl_sim_stats stats = sl_sim_stats(s->sim);

    if (++s->reached[stage] != s->ranks)
        return;
    printf("# %u ranks %s: %.1f s, %" PRIu64 " MiB (most %" PRIu64 "), %.3f ms of virtual time, "
           "%" PRIu64 " messages, %" PRIu64 " control messages, %" PRIu64 " events, %" PRIu64
           " turns\n",
           s->ranks, what, seconds(s), status_kib("VmRSS:") / 1024, status_kib("VmHWM:") / 1024,
           (double)sl_sim_now(s->sim) / 1e6, stats.messages, stats.ctrls, stats.events,
           stats.resumes);
    fflush(stdout);
}

/* ---- what a rank does ---- */

static void note(struct scale_rank *r, int err, const char *text)
{
    if (r->error != 0)
        return;
    r->error = err;
    snprintf(r->text, sizeof(r->text), "%s", text);
}

static int make_comm(struct scale_rank *r, struct sluice_comm **out)
{
    static struct sl_transport_ops complete;
    const struct sl_comm_transport transport = {.ops =
                                                    sl_transport_complete(&sl_sim_ops, &complete)};
    struct scale *s = r->scale;
    struct sl_config config;

    sl_config_defaults(&config);
    config.timeout_ms = TIMEOUT_MS;
    config.connect_timeout_ms = 20000;
    config.shm_window_bytes = 4096;
    config.status_signal = SL_OFF;
    config.tune = SL_TUNE_OFF;
    snprintf(config.host_id, sizeof(config.host_id), "host%u", r->rank / s->per_host);
    const struct sl_comm_params params = {
        .config = &config,
        .clock = sl_sim_clock(s->sim),
        .seed = s->seed + r->rank,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(s->sim, r->rank),
        .wire = &sl_sim_wire_ops,
        .transports = &transport,
        .transport_count = 1,
    };

    return sl_comm_create(sl_sim_meeting_exchange(s->meeting, r->rank, r->rank), &params, out);
}

static const struct sl_algo *find(const char *name)
{
    for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}

static int32_t input(uint32_t rank, unsigned i)
{
    return (int32_t)((rank * 7 + i * 3) % 1009);
}

/* One allreduce by that algorithm. */
static int add_up(struct scale_rank *r, struct sluice_comm *comm, const char *algo)
{
    const struct sl_call call = {
        .coll = SL_ALLREDUCE, .dtype = SLUICE_I32, .op = SLUICE_SUM, .count = COUNT};
    const struct sl_recipe recipe = {.algo = find(algo)};
    struct sluice_operation *operation;
    struct sluice_req *req;
    int32_t in[COUNT], out[COUNT];
    int err;

    for (unsigned i = 0; i < COUNT; i++)
        in[i] = input(r->rank, i);
    err = sl_operation_create(comm, &call, &recipe, in, out, &operation);
    if (err != 0)
        return err;
    err = sluice_start(operation, &req);
    if (err == 0)
        err = sluice_wait(req);
    if (err == 0 && memcmp(out, r->scale->want, sizeof(out)) != 0) {
        note(r, -EBADMSG, "the sum is wrong");
        err = -EBADMSG;
    }
    sluice_operation_free(operation);
    return err;
}

/* Stops for good in the middle of things. */
static void die(struct scale_rank *r, struct sluice_comm *comm)
{
    struct scale *s = r->scale;
    const struct sl_sim_fault fault = {
        .kind = SL_SIM_CRASH, .rank = r->rank, .for_ns = s->silent ? SL_NEVER : SL_NS_PER_MS};

    s->died_ns = sl_sim_now(s->sim);
    sl_sim_fault_now(s->sim, &fault);
    comm->worker->idle(comm->worker); /* comes back when all others have ended */
}

static void program(void *arg)
{
    struct scale_rank *r = arg;
    struct scale *s = r->scale;
    struct sluice_comm *comm = NULL;
    int err = make_comm(r, &comm);

    if (err != 0) {
        note(r, err, sluice_last_error());
        return;
    }
    reach(s, 0, "have started");
    for (unsigned i = 0; i < ALGOS && err == 0; i++) {
        err = add_up(r, comm, algos[i]);
        if (err != 0)
            note(r, err, sluice_last_error());
        reach(s, 1 + i, algos[i]);
    }
    if (err == 0 && r->rank == s->dies)
        die(r, comm);
    if (err == 0) {
        r->end = add_up(r, comm, "dtree");
        r->culprit = comm->health.error.culprit;
        r->end_ns = sl_sim_now(s->sim);
    }
    reach(s, 1 + ALGOS, "know of the death");
    sluice_comm_destroy(comm);
}

/* ---- the judge ---- */

static bool judge(const struct scale *s, char *why, size_t cap)
{
    uint64_t last = 0, deadline = (s->silent ? 2 * TIMEOUT_MS : TIMEOUT_MS) * SL_NS_PER_MS;

    for (uint32_t i = 0; i < s->ranks; i++) {
        const struct scale_rank *r = &s->rank[i];

        if (r->error != 0) {
            snprintf(why, cap, "rank %u: %s: %s", i, sluice_strerror(r->error), r->text);
            return false;
        }
        if (i == s->dies)
            continue;
        if (r->end == 0 || r->culprit != (int32_t)s->dies) {
            snprintf(why, cap, "rank %u ended with %s and names rank %d, not %u", i,
                     sluice_strerror(r->end), r->culprit, s->dies);
            return false;
        }
        last = r->end_ns > last ? r->end_ns : last;
    }
    printf("# the last rank knew of the death after %.3f ms\n", (double)(last - s->died_ns) / 1e6);
    if (last - s->died_ns > deadline) {
        snprintf(why, cap, "the last rank knew of the death after %.3f ms",
                 (double)(last - s->died_ns) / 1e6);
        return false;
    }
    sl_sim_check_empty(s->sim);
    if (sl_sim_violation(s->sim) != NULL)
        snprintf(why, cap, "%s", sl_sim_violation(s->sim));
    return sl_sim_violation(s->sim) == NULL;
}

static bool run(struct scale *s, char *why, size_t cap)
{
    uint32_t *host = calloc(s->ranks, sizeof(*host));
    struct sl_sim_params params;
    bool good;

    sl_assert(host != NULL);
    for (uint32_t i = 0; i < s->ranks; i++)
        host[i] = i / s->per_host;
    for (unsigned k = 0; k < COUNT; k++)
        for (uint32_t i = 0; i < s->ranks; i++)
            s->want[k] += input(i, k);
    sl_sim_params_init(&params, s->ranks, s->seed);
    params.host = host;
    params.jitter_ns = 500;
    s->rank = calloc(s->ranks, sizeof(*s->rank));
    sl_assert(s->rank != NULL && sl_sim_create(&params, &s->sim) == 0);
    sl_assert(sl_sim_meeting_create(s->sim, s->ranks, 20 * SL_NS_PER_S, &s->meeting) == 0);
    for (uint32_t i = 0; i < s->ranks; i++) {
        s->rank[i] = (struct scale_rank){.scale = s, .rank = i};
        sl_assert(sl_sim_spawn(s->sim, i, program, &s->rank[i]) == 0);
    }
    good = sl_sim_run(s->sim, LIMIT_NS) == 0;
    if (!good)
        snprintf(why, cap, "%s", sluice_last_error());
    good = good && judge(s, why, cap);
    if (good) { /* what is stuck cannot be taken down */
        sl_sim_meeting_destroy(s->meeting);
        sl_sim_destroy(s->sim);
        free(s->rank);
    }
    free(host);
    return good;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},      {"per-host", required_argument, NULL, 'p'},
        {"seed", required_argument, NULL, 's'},       {"silent", no_argument, NULL, 'q'},
        {"memory-mib", required_argument, NULL, 'm'}, {NULL, 0, NULL, 0}};
    struct scale s = {.ranks = 256, .per_host = 16, .seed = 1};
    uint64_t memory_mib = 0;
    char why[512] = "";
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'n': s.ranks = (uint32_t)strtoul(optarg, NULL, 0); break;
        case 'p': s.per_host = (uint32_t)strtoul(optarg, NULL, 0); break;
        case 's': s.seed = strtoull(optarg, NULL, 0); break;
        case 'q': s.silent = true; break;
        case 'm': memory_mib = strtoull(optarg, NULL, 0); break;
        default: return 2;
        }
    }
    seeds_quiet();
    /* Tables of all ranks that every rank has for a moment are the system's again at once, and
     * nobody's before they are written. */
    mallopt(M_MMAP_THRESHOLD, 64 << 10);
    clock_gettime(CLOCK_MONOTONIC, &s.began);
    s.dies = (uint32_t)(s.seed * UINT64_C(0x9e3779b9) % s.ranks);
    bool good = run(&s, why, sizeof(why));
    uint64_t most = status_kib("VmHWM:") / 1024;

    printf("# rank %u died; %.1f s and %" PRIu64 " MiB in all\n", s.dies, seconds(&s), most);
    printf("%sok 1 - %u ranks start, add up and name the one that dies%s%s\n", good ? "" : "not ",
           s.ranks, good ? "" : ": ", why);
    if (memory_mib != 0)
        printf("%sok 2 - in %" PRIu64 " MiB at most\n", most <= memory_mib ? "" : "not ",
               memory_mib);
    printf("1..%d\n", memory_mib != 0 ? 2 : 1);
    return !good || (memory_mib != 0 && most > memory_mib);
}
