/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real collectives on simulated networks, one run per seed: shapes, settings and faults are drawn, and
 * every rank's results and errors are judged.
 *
 * usage: sim_swarm [--from N] [--count N]   runs so many seeds (TAP on stdout)
 *        sim_swarm --seed N [--trace]       runs one, and tells what it did
 */
#include "core/err.h"
#include "core/log.h"
#include "tests/sim/swarm.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (60 * SL_NS_PER_S) /* of virtual time, whatever happened */

static bool names_a_rank(const char *text)
{
    return strstr(text, "rank") != NULL;
}

/* A result that is allowed in this mode, or not. Refused means the same on all ranks. */
static bool allowed(const struct swarm *s, const struct swarm_rank *r, int result, const char *text)
{
    if (result >= 0)
        return true;
    if (result == -EINVAL && strstr(text, "SLUICE_ALGO") != NULL)
        return true;
    switch (s->mode) {
    case SWARM_WELL: return false;
    case SWARM_MISMATCH: return result == -EPROTO && names_a_rank(text);
    case SWARM_ABORT:
        return (result == -ECANCELED || result == -ECONNRESET) && names_a_rank(text);
    case SWARM_FATAL:
        break;
    }
    return (result == -ECONNRESET || result == -ETIMEDOUT || result == -EHOSTUNREACH ||
            result == -ECONNREFUSED || result == -ECANCELED) &&
           (names_a_rank(text) || sl_sim_crashed(s->sim, r->rank));
}

static bool refused_somewhere(const struct swarm *s)
{
    for (uint32_t i = 0; i < s->ranks; i++)
        for (unsigned c = 0; c < s->call_count; c++)
            if (s->rank[i].result[c] == -EINVAL)
                return true;
    return false;
}

static bool judge_rank(const struct swarm *s, const struct swarm_rank *r, char *why, size_t cap)
{
    bool protested = false;

    if (r->wrong[0] != '\0') {
        snprintf(why, cap, "%s", r->wrong);
        return false;
    }
    if (!allowed(s, r, r->made, r->text[SWARM_CALLS])) {
        snprintf(why, cap, "rank %u: making communicators ended with %s: %s", r->rank,
                 sluice_strerror(r->made), r->text[SWARM_CALLS]);
        return false;
    }
    for (unsigned c = 0; c < s->call_count && r->made == 0; c++) {
        protested |= r->result[c] == -EPROTO;
        if (r->result[c] != 1 && allowed(s, r, r->result[c], r->text[c]))
            continue;
        snprintf(why, cap, "rank %u: call %u ended with %s: %s", r->rank, c,
                 r->result[c] == 1 ? "nothing" : sluice_strerror(r->result[c]), r->text[c]);
        return false;
    }
    if (s->mode == SWARM_MISMATCH && !protested && !refused_somewhere(s)) {
        snprintf(why, cap, "rank %u was not told that the calls differ", r->rank);
        return false;
    }
    return true;
}

static bool judge(struct swarm *s, int ran, char *why, size_t cap)
{
    if (ran != 0) {
        snprintf(why, cap, "%s", sluice_last_error());
        return false;
    }
    for (uint32_t i = 0; i < s->ranks; i++)
        if (!judge_rank(s, &s->rank[i], why, cap))
            return false;
    sl_sim_check_empty(s->sim);
    if (sl_sim_violation(s->sim) != NULL) {
        snprintf(why, cap, "%s", sl_sim_violation(s->sim));
        return false;
    }
    return true;
}

static void tell_ranks(const struct swarm *s)
{
    struct sl_sim_stats stats = sl_sim_stats(s->sim);

    for (uint32_t i = 0; i < s->ranks; i++) {
        const struct swarm_rank *r = &s->rank[i];

        if (r->made != 0)
            printf("# rank %u: communicators: %s\n", i, r->text[SWARM_CALLS]);
        for (unsigned c = 0; c < s->call_count && r->made == 0; c++)
            printf("# rank %u call %u: %d %s\n", i, c, r->result[c], r->text[c]);
    }
    printf("# %.3f ms of virtual time, %" PRIu64 " messages, %" PRIu64 " bytes, %" PRIu64
           " events, %" PRIu64 " turns\n",
           (double)sl_sim_now(s->sim) / 1e6, stats.messages, stats.bytes, stats.events,
           stats.resumes);
}

static bool run_seed(uint64_t seed, FILE *trace, bool tell, char *why, size_t cap)
{
    struct swarm s;
    struct sl_sim_meeting *meeting = NULL;
    bool good;
    int err;

    swarm_draw(&s, seed);
    s.params.trace = trace;
    if (tell)
        swarm_print(&s, stdout);
    fflush(stdout);
    s.rank = calloc(s.ranks, sizeof(s.rank[0]));
    sl_assert(s.rank != NULL && sl_sim_create(&s.params, &s.sim) == 0);
    sl_assert(sl_sim_meeting_create(s.sim, s.ranks, 2 * SL_NS_PER_S, &meeting) == 0);
    for (uint32_t i = 0; i < s.ranks; i++) {
        s.rank[i].swarm = &s;
        s.rank[i].rank = i;
        s.rank[i].exchange = sl_sim_meeting_exchange(meeting, i, i);
        sl_assert(sl_sim_spawn(s.sim, i, swarm_program, &s.rank[i]) == 0);
    }
    err = sl_sim_run(s.sim, LIMIT_NS);
    good = judge(&s, err, why, cap);
    if (tell)
        tell_ranks(&s);
    sl_sim_meeting_destroy(meeting);
    /* What is stuck cannot be taken down: it ends with the program. */
    if (err == 0)
        sl_sim_destroy(s.sim);
    if (err == 0)
        free(s.rank);
    return good;
}

static void trace_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)level, (void)area;
    fprintf(arg, "              %s\n", line);
}

static void no_log(void *arg, enum sl_log_level level, const char *area, const char *line)
{
    (void)arg, (void)level, (void)area, (void)line;
}

static int run_many(uint64_t from, uint64_t count, const char *self)
{
    uint64_t failed = 0;
    char why[512];

    for (uint64_t seed = from; seed < from + count; seed++) {
        if (run_seed(seed, NULL, false, why, sizeof(why)))
            continue;
        failed++;
        printf("not ok - sim_swarm seed %" PRIu64 "\n# %s\n# replay: %s --seed %" PRIu64
               " --trace\n",
               seed, why, self, seed);
        if (failed >= 20)
            break;
    }
    if (failed == 0)
        printf("ok 1 - %" PRIu64 " seeds from %" PRIu64 " end as they must\n", count, from);
    printf("1..%" PRIu64 "\n", failed > 0 ? failed : 1);
    return failed > 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"count", required_argument, NULL, 'c'},
                                            {"trace", no_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    uint64_t from = 1, count = 1000, seed = 0;
    bool one = false, trace = false;
    char why[512];
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': one = true, seed = strtoull(optarg, NULL, 0); break;
        case 'f': from = strtoull(optarg, NULL, 0); break;
        case 'c': count = strtoull(optarg, NULL, 0); break;
        case 't': trace = true; break;
        default: return 2;
        }
    }
    if (trace)
        sl_log_configure("debug");
    sl_log_set_sink(trace ? trace_log : no_log, stdout);
    if (!one)
        return run_many(from, count, argv[0]);
    if (run_seed(seed, trace ? stdout : NULL, true, why, sizeof(why))) {
        printf("seed %" PRIu64 " ends as it must\n", seed);
        return 0;
    }
    printf("seed %" PRIu64 ": %s\n", seed, why);
    return 1;
}
