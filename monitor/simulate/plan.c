/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up jobs: their layout, and how one is drawn. */
#include "monitor/simulate/plan.h"
#include "core/err.h"
#include "monitor/simulate/calls.h"

#include <errno.h>
#include <math.h>

uint32_t sl_play_ranks(const struct sl_play_plan *plan)
{
    return plan->tensor * plan->stages * plan->replicas;
}

uint32_t sl_play_stage(const struct sl_play_plan *plan, uint32_t rank)
{
    return rank / plan->tensor / plan->replicas;
}

uint32_t sl_play_replica(const struct sl_play_plan *plan, uint32_t rank)
{
    return rank / plan->tensor % plan->replicas;
}

uint32_t sl_play_tensor(const struct sl_play_plan *plan, uint32_t rank)
{
    return rank % plan->tensor;
}

uint32_t sl_play_host(const struct sl_play_plan *plan, uint32_t rank)
{
    return rank / plan->ranks_per_host;
}

uint32_t sl_play_rail(const struct sl_play_plan *plan, uint32_t src, uint32_t dst)
{
    (void)src;
    return dst % plan->ranks_per_host;
}

uint32_t sl_play_leaf(const struct sl_play_plan *plan, uint32_t rank, uint32_t rail)
{
    return sl_play_host(plan, rank) / plan->hosts_per_leaf * plan->ranks_per_host + rail;
}

uint32_t sl_play_spine(const struct sl_play_plan *plan, uint32_t from, uint32_t to, uint32_t rail)
{
    uint32_t low = from < to ? from : to, high = from < to ? to : from;

    low /= plan->ranks_per_host;
    high /= plan->ranks_per_host;
    return rail * SL_PLAY_SPINES + (low * 7 + high * 3) % SL_PLAY_SPINES;
}

bool sl_play_passes(const struct sl_play_plan *plan, uint32_t src, uint32_t dst,
                    enum sl_play_group group, uint32_t number)
{
    uint32_t rail = sl_play_rail(plan, src, dst);
    uint32_t from = sl_play_leaf(plan, src, rail), to = sl_play_leaf(plan, dst, rail);

    switch (group) {
    case SL_PLAY_LEAF: return from == number || to == number;
    case SL_PLAY_RAIL: return rail == number;
    case SL_PLAY_PLANE: return rail / 2 == number;
    case SL_PLAY_SPINE: return from != to && sl_play_spine(plan, from, to, rail) == number;
    default: return false;
    }
}

void sl_play_default(struct sl_play_plan *plan)
{
    *plan = (struct sl_play_plan){.seed = 1,
                                  .tensor = 2,
                                  .stages = 4,
                                  .replicas = 8,
                                  .batches = 4,
                                  .steps = 40,
                                  .ahead = 4,
                                  .ranks_per_host = 8,
                                  .hosts_per_leaf = 4,
                                  .channels = 2,
                                  .compute_s = 0.02,
                                  .noise = 0.01,
                                  .jitter = 0.05,
                                  .has_compute = true,
                                  .has_layout = true,
                                  .has_edges = true,
                                  .has_fabric = true,
                                  .has_starts = true};
}

int sl_play_check(const struct sl_play_plan *plan)
{
    uint64_t ranks = (uint64_t)plan->tensor * plan->stages * plan->replicas;

    if (ranks < 2 || ranks > 65536 || plan->tensor > 1024 || plan->stages > 1024)
        return sl_fail(-EINVAL, "a job has 2 to 65536 ranks: tensor x stages x replicas is %llu",
                       (unsigned long long)ranks);
    if (plan->batches < 1 || plan->batches > 24)
        return sl_fail(-EINVAL, "a step has 1 to 24 micro-batches, and not %u", plan->batches);
    if (plan->steps < 3 || plan->steps > 100000)
        return sl_fail(-EINVAL, "a job has 3 to 100000 steps, and not %u", plan->steps);
    if (plan->experts > 1 && plan->replicas % plan->experts != 0)
        return sl_fail(-EINVAL, "%u replicas cannot be dealt to groups of %u experts",
                       plan->replicas, plan->experts);
    if (plan->ahead < 1 || plan->ahead > 64 || plan->ranks_per_host < 1 ||
        plan->hosts_per_leaf < 1 || plan->channels < 1 || plan->channels > 16)
        return sl_fail(-EINVAL, "a host is 1 to 64 calls ahead and has a rank at least, a leaf a "
                                "host at least, a job 1 to 16 channels");
    if (plan->fault.cls != SL_VERDICT_NOT_HUNG && plan->fault.cls != SL_VERDICT_SLOW_GROUP &&
        plan->fault.rank >= ranks)
        return sl_fail(-EINVAL, "there is no rank %u in a job of %llu", plan->fault.rank,
                       (unsigned long long)ranks);
    return 0;
}

/* ---- drawing ---- */

static double between(struct sl_rng *rng, double low, double high)
{
    return low + (high - low) * (double)(sl_rng_u64(rng) >> 11) * 0x1p-53;
}

/* Evenly in its logarithm. */
static double evenly(struct sl_rng *rng, double low, double high)
{
    return exp(between(rng, log(low), log(high)));
}

static uint32_t power_of_two(struct sl_rng *rng, uint32_t most)
{
    uint32_t value = 1;

    while (value * 2 <= most && sl_rng_below(rng, 3) != 0)
        value *= 2;
    return value;
}

void sl_play_draw(struct sl_play_plan *plan, uint32_t ranks, uint64_t seed)
{
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    sl_play_default(plan);
    plan->seed = seed;
    plan->ranks_per_host = ranks < 64 ? 4 : 8;
    plan->tensor = power_of_two(&rng, ranks >= 64 ? 8 : 2);
    plan->stages = power_of_two(&rng, ranks / plan->tensor >= 32 ? 8 : 2);
    plan->replicas = ranks / plan->tensor / plan->stages;
    plan->replicas = plan->replicas > 0 ? plan->replicas : 1;
    plan->experts = sl_rng_chance(&rng, 3) && plan->replicas % 4 == 0 ? 4 : 0;
    plan->batches = (uint32_t)sl_rng_range(&rng, 1, ranks > 1024 ? 2 : 4);
    plan->ahead = (uint32_t)sl_rng_range(&rng, 1, 8);
    plan->hosts_per_leaf = (uint32_t)sl_rng_range(&rng, 2, 8);
    plan->algorithm = (uint8_t)sl_rng_below(&rng, plan->replicas <= 64 ? 3 : 2);
    plan->channels = (uint32_t)sl_rng_range(&rng, 1, 4);
    plan->noise = evenly(&rng, 0.001, 0.05);
    plan->jitter = evenly(&rng, 0.01, 0.2);
    plan->pauses = sl_rng_chance(&rng, 2) ? evenly(&rng, 1e-4, 1e-2) : 0;
    plan->stages_differ = sl_rng_chance(&rng, 2) ? between(&rng, 0, 0.5) : 0;
    plan->has_layout = !sl_rng_chance(&rng, 3);
    plan->sequences = plan->stages > 1 && sl_rng_chance(&rng, 3) ? evenly(&rng, 0.01, 0.3) : 0;
    plan->second_kind = sl_rng_chance(&rng, 4) ? between(&rng, 0.05, 0.4) : 0;
    plan->has_compute = !sl_rng_chance(&rng, 3);
    plan->has_starts = !sl_rng_chance(&rng, 2);
}

static bool is_message(const struct sl_play_call *call)
{
    return call->kind == SL_JOB_SEND || call->kind == SL_JOB_RECV;
}

/* A call that a fault of that class can be at. */
static bool draw_call(struct sl_play_plan *plan, struct sl_rng *rng)
{
    struct sl_play_call calls[SL_PLAY_CALLS_MAX];
    struct sl_play_fault *fault = &plan->fault;
    uint32_t count = sl_play_calls(plan, fault->rank, 1, calls);
    bool any = fault->cls == SL_VERDICT_HOST_STALLED || fault->cls == SL_VERDICT_DEAD;

    for (unsigned tries = 0; tries < 100; tries++) {
        const struct sl_play_call *call;

        fault->call = (uint32_t)sl_rng_below(rng, count);
        call = &calls[fault->call];
        if (call->kind != SL_JOB_COMPUTE && (any || !is_message(call)))
            return true;
    }
    return false;
}

/* Two ranks of a replica group on different hosts, whose collective has messages from the first to
 * the second. */
static bool draw_link(struct sl_play_plan *plan, struct sl_rng *rng)
{
    uint32_t stride = plan->tensor, place;

    if (plan->replicas < 2)
        return false;
    plan->fault.rank = (uint32_t)sl_rng_below(rng, sl_play_ranks(plan));
    place = sl_play_replica(plan, plan->fault.rank);
    /* Next to each other in the first ring, and parent and child of the trees that matter. */
    plan->fault.peer = plan->fault.rank - place * stride + (place + 1) % plan->replicas * stride;
    if (plan->algorithm == SL_PLAY_TREE) {
        if (place == 0)
            return false;
        plan->fault.peer = plan->fault.rank - place * stride + (place - 1) / 2 * stride;
    }
    return sl_play_host(plan, plan->fault.rank) != sl_play_host(plan, plan->fault.peer);
}

static bool draw_any_link(struct sl_play_plan *plan, struct sl_rng *rng)
{
    for (unsigned tries = 0; tries < 100; tries++)
        if (draw_link(plan, rng))
            return true;
    return false;
}

/* A part of the network that some message passes. */
static bool draw_group(struct sl_play_plan *plan, struct sl_rng *rng)
{
    struct sl_play_fault *fault = &plan->fault;
    uint32_t rail, from, to;

    if (!draw_any_link(plan, rng))
        return false;
    fault->group = (uint8_t)sl_rng_below(rng, SL_PLAY_GROUPS);
    rail = sl_play_rail(plan, fault->rank, fault->peer);
    from = sl_play_leaf(plan, fault->rank, rail);
    to = sl_play_leaf(plan, fault->peer, rail);
    switch (fault->group) {
    case SL_PLAY_LEAF: fault->rank = from; break;
    case SL_PLAY_RAIL: fault->rank = rail; break;
    case SL_PLAY_PLANE: fault->rank = rail / 2; break;
    default: fault->rank = sl_play_spine(plan, from, to, rail); return from != to;
    }
    return true;
}

static bool draw_whose(struct sl_play_plan *plan, enum sl_verdict_class cls, struct sl_rng *rng)
{
    struct sl_play_fault *fault = &plan->fault;
    uint32_t ranks = sl_play_ranks(plan);

    switch (cls) {
    case SL_VERDICT_SLOW_LINK: return draw_any_link(plan, rng);
    case SL_VERDICT_SLOW_SENDER: /* it has messages to another host at all */
    case SL_VERDICT_SLOW_RECEIVER:
        if (!draw_any_link(plan, rng))
            return false;
        if (cls == SL_VERDICT_SLOW_RECEIVER)
            fault->rank = fault->peer;
        return true;
    case SL_VERDICT_SLOW_GROUP: return draw_group(plan, rng);
    case SL_VERDICT_MISMATCH:
    case SL_VERDICT_DEADLOCK:
        fault->rank = (uint32_t)sl_rng_below(rng, ranks);
        return plan->replicas >= 3;
    default: fault->rank = (uint32_t)sl_rng_below(rng, ranks); return true;
    }
}

bool sl_play_draw_fault(struct sl_play_plan *plan, enum sl_verdict_class cls, double strength)
{
    struct sl_play_fault *fault = &plan->fault;
    struct sl_rng rng;

    sl_rng_init(&rng, plan->seed ^ UINT64_C(0x6661756c74));
    *fault = (struct sl_play_fault){.cls = (uint8_t)cls, .strength = strength};
    if (!draw_whose(plan, cls, &rng))
        return false;
    switch (cls) {
    case SL_VERDICT_HOST_STALLED:
    case SL_VERDICT_DEAD:
    case SL_VERDICT_GPU_STUCK:
    case SL_VERDICT_COMM_STUCK:
        fault->step = (uint32_t)sl_rng_range(&rng, 1, plan->steps - 1);
        fault->is_in_kernel = sl_rng_chance(&rng, 2);
        return draw_call(plan, &rng);
    case SL_VERDICT_MISMATCH:
    case SL_VERDICT_DEADLOCK: fault->step = (uint32_t)sl_rng_range(&rng, 1, plan->steps - 1); break;
    case SL_VERDICT_SLOW_RANK: /* from the beginning, or later */
        fault->step = sl_rng_chance(&rng, 2) ? 0 : plan->steps / 2;
        break;
    default: break;
    }
    return true;
}
