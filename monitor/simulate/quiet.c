/* SPDX-License-Identifier: Apache-2.0 */
/* Health, for a long time. */
#include "monitor/simulate/quiet.h"
#include "core/err.h"
#include "core/rng.h"
#include "monitor/diagnosis/change.h"
#include "monitor/diagnosis/peers.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define STEPS 500
#define RANKS_PER_NODE 8
#define TESTS 2
#define MARGIN 0.10
#define DAY_S 86400.0

struct window {
    uint32_t ranks, stages;
    double step_s, noise, memory, pauses, sequences, kind, differ;
};

static double between(struct sl_rng *rng, double low, double high)
{
    return low + (high - low) * (double)(sl_rng_u64(rng) >> 11) * 0x1p-53;
}

static double evenly(struct sl_rng *rng, double low, double high)
{
    return exp(between(rng, log(low), log(high)));
}

/* The sum of four: near enough to a normal deviate. */
static double deviate(struct sl_rng *rng)
{
    uint64_t bits = sl_rng_u64(rng);
    double sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += (double)(bits >> (16 * i) & 0xffff);
    return (sum / 65536.0 - 2) * 1.7320508;
}

static void draw(struct sl_rng *rng, struct window *out)
{
    out->ranks = 8u << sl_rng_range(rng, 1, 7);
    out->stages = 1u << sl_rng_below(rng, 4);
    out->step_s = evenly(rng, 1, 60);
    out->noise = evenly(rng, 0.001, 0.1);
    out->memory = sl_rng_chance(rng, 2) ? between(rng, 0, 0.9) : 0;
    out->pauses = sl_rng_chance(rng, 2) ? evenly(rng, 1e-5, 1e-2) : 0;
    out->sequences = out->stages > 1 && sl_rng_chance(rng, 3) ? evenly(rng, 0.01, 0.3) : 0;
    out->kind = sl_rng_chance(rng, 4) ? between(rng, 0.05, 0.4) : 0;
    out->differ = evenly(rng, 0.0001, 0.02);
}

struct room {
    double *values;
    uint64_t *roles;
    uint32_t *replicas;
    struct sl_job_rank *ranks;
};

static void fill(const struct window *window, struct sl_rng *rng, struct room *room)
{
    uint32_t per_stage = window->ranks / window->stages;
    double factor[STEPS];

    for (uint32_t step = 0; step < STEPS; step++) /* what all have in common */
        factor[step] = 0.1 * deviate(rng);
    for (uint32_t rank = 0; rank < window->ranks; rank++) {
        double own = window->differ * deviate(rng), state = 0;
        double still = sqrt(1 - window->memory * window->memory);

        room->roles[rank] = rank / per_stage;
        room->replicas[rank] = window->stages > 1 ? rank % per_stage : SL_JOB_NONE;
        room->ranks[rank] = (struct sl_job_rank){.host = rank / RANKS_PER_NODE + 1};
        if (window->kind > 0 && rank / RANKS_PER_NODE % 2 == 1)
            own += log1p(window->kind);
        for (uint32_t step = 0; step < STEPS; step++) {
            double *value = &room->values[(size_t)rank * STEPS + step];

            state = window->memory * state + still * window->noise * deviate(rng);
            *value = exp(factor[step] + own + state);
            if (window->pauses > 0 && between(rng, 0, 1) < window->pauses)
                *value += evenly(rng, 0.1, 20);
        }
    }
    /* The same for all stages of a replica: from one stream a replica. */
    for (uint32_t replica = 0; replica < per_stage && window->sequences > 0; replica++)
        for (uint32_t step = 0; step < STEPS; step++) {
            double longer = exp(window->sequences * deviate(rng));

            for (uint32_t stage = 0; stage < window->stages; stage++)
                room->values[((size_t)stage * per_stage + replica) * STEPS + step] *= longer;
        }
}

static int watch(const struct window *window, struct room *room, double node_days,
                 struct sl_quiet *out)
{
    struct sl_suspects found = {.list = NULL};
    struct sl_peers_table table = {.rank_count = window->ranks,
                                   .step_count = STEPS,
                                   .values = room->values,
                                   .roles = room->roles,
                                   .replicas = room->replicas,
                                   .ranks = room->ranks};
    double threshold = sl_change_threshold(node_days, RANKS_PER_NODE, TESTS, window->step_s);
    int err = sl_peers_judge(&table, threshold, MARGIN, &found);

    out->alarms += found.count;
    out->windows++;
    out->node_days += (double)window->ranks / RANKS_PER_NODE * STEPS * window->step_s / DAY_S;
    free(found.list);
    return err;
}

/* The upper end of a one-sided interval of 95 %: what mean gives so few or fewer in one of 20. */
static double most_alarms(uint64_t alarms)
{
    double low = 0, high = 10 + 3 * (double)alarms;

    for (unsigned i = 0; i < 60; i++) {
        double mean = (low + high) / 2, term = exp(-mean), sum = term;

        for (uint64_t k = 1; k <= alarms; k++) {
            term *= mean / (double)k;
            sum += term;
        }
        if (sum > 0.05)
            low = mean;
        else
            high = mean;
    }
    return high;
}

int sl_quiet_run(uint64_t seed, double node_days, double node_days_of_alarm, struct sl_quiet *out)
{
    const uint32_t most = 8u << 7;
    struct room room = {.values = calloc((size_t)most * STEPS, sizeof(double)),
                        .roles = calloc(most, sizeof(uint64_t)),
                        .replicas = calloc(most, sizeof(uint32_t)),
                        .ranks = calloc(most, sizeof(struct sl_job_rank))};
    struct sl_rng rng;
    int err = 0;

    *out = (struct sl_quiet){.node_days = 0};
    sl_rng_init(&rng, seed);
    if (room.values == NULL || room.roles == NULL || room.replicas == NULL || room.ranks == NULL)
        err = sl_fail(-ENOMEM, "no memory to watch healthy ranks");
    while (err == 0 && out->node_days < node_days) {
        struct window window;

        draw(&rng, &window);
        fill(&window, &rng, &room);
        err = watch(&window, &room, node_days_of_alarm, out);
    }
    out->bound = out->node_days > 0 ? most_alarms(out->alarms) / out->node_days * 10000 : 0;
    free(room.values);
    free(room.roles);
    free(room.replicas);
    free(room.ranks);
    return err;
}
