/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time, the event queue, the links between ranks and the faults that were drawn for a
 * run. */
#include "testing/sim/net.h"

#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_NS 100
#define PAUSE_MAX_NS (2 * SL_NS_PER_MS)
#define TURNS_MAX 20000000 /* calls of progress without a pause: the rank spins for ever */

static uint64_t virtual_now(const struct sl_clock *clock)
{
    return ((const struct sl_sim *)(const void *)clock)->now_ns;
}

void sl_sim_params_init(struct sl_sim_params *params, uint32_t ranks, uint64_t seed)
{
    *params = (struct sl_sim_params){
        .ranks = ranks,
        .seed = seed,
        .latency_ns = 2000,
        .ns_per_kib = 100,
        .eager_max = 1024,
        .sends_max = 64,
        .recvs_max = 256,
        .ctrls_max = 64,
        .windows = true,
    };
}

const struct sl_clock *sl_sim_clock(const struct sl_sim *sim)
{
    return &sim->clock;
}

uint64_t sl_sim_now(const struct sl_sim *sim)
{
    return sim->now_ns;
}

struct sl_sim_stats sl_sim_stats(const struct sl_sim *sim)
{
    return sim->stats;
}

const char *sl_sim_violation(const struct sl_sim *sim)
{
    return sim->violation[0] != '\0' ? sim->violation : NULL;
}

bool sl_sim_crashed(const struct sl_sim *sim, uint32_t rank)
{
    return sim->ranks[rank].crashed;
}

void sl_sim_violate(struct sl_sim *sim, const char *fmt, ...)
{
    va_list args;

    if (sim->violation[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(sim->violation, sizeof(sim->violation), fmt, args);
    va_end(args);
    sl_sim_trace(sim, "VIOLATION %s", sim->violation);
}

void sl_sim_trace(struct sl_sim *sim, const char *fmt, ...)
{
    va_list args;

    if (sim->params.trace == NULL)
        return;
    fprintf(sim->params.trace, "%12.3f us  ", (double)sim->now_ns / 1000);
    va_start(args, fmt);
    vfprintf(sim->params.trace, fmt, args);
    va_end(args);
    fputc('\n', sim->params.trace);
}

bool sl_sim_chance(struct sl_sim *sim, uint32_t in)
{
    if (sim->params.calm_ns != 0 && sim->now_ns >= sim->params.calm_ns)
        return false;
    return sl_rng_chance(&sim->rng, in);
}

/* A binary heap by time, then by order of scheduling. */
static bool before(const struct sl_sim_event *a, const struct sl_sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

struct sl_sim_event *sl_sim_at(struct sl_sim *sim, uint64_t at_ns,
                               void (*happen)(struct sl_sim *, struct sl_sim_event *))
{
    struct sl_sim_event *event = calloc(1, sizeof(*event));
    size_t i = sim->heap_len;

    sl_assert(event != NULL);
    if (sim->heap_len == sim->heap_cap) {
        sim->heap_cap = sim->heap_cap * 2 + 64;
        sim->heap = realloc(sim->heap, sim->heap_cap * sizeof(sim->heap[0]));
        sl_assert(sim->heap != NULL);
    }
    event->at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns;
    event->seq = sim->seq++;
    event->happen = happen;
    sim->heap_len++;
    for (; i > 0 && before(event, sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
    return event;
}

static struct sl_sim_event *heap_pop(struct sl_sim *sim)
{
    struct sl_sim_event *top = sim->heap[0], *last = sim->heap[--sim->heap_len];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < sim->heap_len) {
        if (child + 1 < sim->heap_len && before(sim->heap[child + 1], sim->heap[child]))
            child++;
        if (!before(sim->heap[child], last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return top;
}

bool sl_sim_step(struct sl_sim *sim)
{
    struct sl_sim_event *event;

    if (sim->heap_len == 0)
        return false;
    event = heap_pop(sim);
    if (sim->now_ns < event->at_ns)
        sim->now_ns = event->at_ns;
    sim->stats.events++;
    event->happen(sim, event);
    free(event);
    return true;
}

/* That link, made when it is first used. */
static struct sl_sim_link *link_of(struct sl_sim *sim, uint32_t from, uint32_t to)
{
    uint64_t pair = ((uint64_t)from << 32 | to) + 1;
    struct sl_sim_link *link = sl_sim_table_get(&sim->links, pair);

    if (link != NULL)
        return link;
    link = calloc(1, sizeof(*link));
    sl_assert(link != NULL);
    sl_sim_table_put(&sim->links, pair, link);
    return link;
}

uint64_t sl_sim_transit(struct sl_sim *sim, uint32_t from, uint32_t to, size_t len)
{
    struct sl_sim_link *link = link_of(sim, from, to);
    uint64_t start = sim->now_ns, at;

    if (sim->ranks[from].crashed)
        return SL_NEVER;
    if (sim->now_ns < link->cut_until)
        start = link->cut_until;
    if (start == SL_NEVER)
        return SL_NEVER;
    if (start < link->busy_until)
        start = link->busy_until;
    link->busy_until = start + len * sim->params.ns_per_kib / 1024;
    at = link->busy_until + sim->params.latency_ns;
    if (sim->params.jitter_ns != 0)
        at += sl_rng_below(&sim->rng, sim->params.jitter_ns);
    return at;
}

static void rank_resume(struct sl_sim *sim, struct sl_sim_event *event);

static void rank_schedule(struct sl_sim_rank *r, uint64_t at_ns)
{
    struct sl_sim *sim = r->sim;
    struct sl_sim_event *event;

    if (at_ns < r->frozen_until)
        at_ns = r->frozen_until;
    if (at_ns == SL_NEVER)
        return;
    event = sl_sim_at(sim, at_ns, rank_resume);
    event->a = r->rank;
    event->b = ++r->generation;
    r->resume_ns = at_ns;
}

static void rank_resume(struct sl_sim *sim, struct sl_sim_event *event)
{
    struct sl_sim_rank *r = &sim->ranks[event->a];

    if (event->b != r->generation || r->ended || (r->crashed && !r->released))
        return;
    if (sim->now_ns < r->frozen_until) {
        rank_schedule(r, r->frozen_until);
        return;
    }
    sim->stats.resumes++;
    sim->current = r;
    sl_sim_fiber_enter(r->fiber);
    sim->current = NULL;
}

void sl_sim_kick(struct sl_sim_rank *r)
{
    struct sl_sim *sim = r->sim;
    uint64_t at = sim->now_ns + PAUSE_MIN_NS * r->slow;

    if (r->fiber == NULL || r->ended)
        return;
    r->kicked = true;
    if (sim->current != r && at < r->resume_ns)
        rank_schedule(r, at);
}

void *sl_sim_idle_arg(struct sl_sim *sim, uint32_t rank)
{
    sl_assert(rank < sim->params.ranks);
    return &sim->ranks[rank];
}

void sl_sim_idle(struct sl_worker *worker)
{
    struct sl_sim_rank *r = worker->idle_arg;
    struct sl_sim *sim = r->sim;
    uint64_t pause;

    r->turns = 0;
    if (sim->current == NULL) {
        /* Not further than a fiber would sleep: who waits may have something to do by itself. */
        if (sim->heap_len > 0 && sim->heap[0]->at_ns <= sim->now_ns + PAUSE_MAX_NS)
            sl_sim_step(sim);
        else
            sim->now_ns += PAUSE_MAX_NS;
        return;
    }
    sl_assert(sim->current == r);
    r->pause_ns = r->kicked ? PAUSE_MIN_NS : r->pause_ns * 2;
    if (r->pause_ns > PAUSE_MAX_NS)
        r->pause_ns = PAUSE_MAX_NS;
    r->kicked = false;
    pause = r->pause_ns / 2 + sl_rng_below(&sim->rng, r->pause_ns);
    rank_schedule(r, sim->now_ns + pause * r->slow);
    sl_sim_fiber_leave(r->fiber);
}

static void fiber_main(void *arg)
{
    struct sl_sim_rank *r = arg;

    r->program(r->arg);
    r->ended = true;
    r->sim->held -= r->crashed && !r->released; /* it has not idled since */
    r->sim->live--;
    sl_sim_trace(r->sim, "rank %u has ended", r->rank);
}

int sl_sim_spawn(struct sl_sim *sim, uint32_t rank, void (*program)(void *arg), void *arg)
{
    struct sl_sim_rank *r = &sim->ranks[rank];

    sl_assert(rank < sim->params.ranks && r->fiber == NULL);
    r->fiber = sl_sim_fiber_create(fiber_main, r);
    if (r->fiber == NULL)
        return sl_fail(-ENOMEM, "no memory for the stack of simulated rank %u", rank);
    r->program = program;
    r->arg = arg;
    sim->live++;
    sim->held += r->crashed;
    rank_schedule(r, sim->now_ns + sl_rng_below(&sim->rng, 1000));
    return 0;
}

/* Crashed ranks run on once nobody else does: they find all endpoints lost, and clean up. */
static void release_crashed(struct sl_sim *sim)
{
    sim->held = 0;
    for (uint32_t i = 0; i < sim->params.ranks; i++) {
        struct sl_sim_rank *r = &sim->ranks[i];

        if (r->fiber == NULL || r->ended)
            continue;
        r->released = true;
        r->frozen_until = 0;
        sl_sim_eps_lose(sim, i, UINT32_MAX, 0);
        rank_schedule(r, sim->now_ns + 1);
    }
}

static int report_stuck(struct sl_sim *sim)
{
    char list[128] = "";
    size_t len = 0;

    for (uint32_t i = 0; i < sim->params.ranks && len < sizeof(list) - 8; i++)
        if (sim->ranks[i].fiber != NULL && !sim->ranks[i].ended)
            len += (size_t)snprintf(list + len, sizeof(list) - len, " %u", i);
    return sl_fail(-ETIMEDOUT, "at %.3f ms of virtual time these ranks still run:%s",
                   (double)sim->now_ns / 1e6, list);
}

int sl_sim_run(struct sl_sim *sim, uint64_t limit_ns)
{
    while (sim->live > 0) {
        if (sim->live == sim->held)
            release_crashed(sim);
        if (!sl_sim_step(sim) || sim->now_ns > limit_ns)
            return report_stuck(sim);
        if (sim->violation[0] != '\0')
            return sl_fail(-EPROTO, "%s", sim->violation);
    }
    return 0;
}

static void inflict(struct sl_sim *sim, const struct sl_sim_fault *f)
{
    struct sl_sim_rank *r = &sim->ranks[f->rank];
    uint64_t until = f->for_ns == SL_NEVER ? SL_NEVER : sim->now_ns + f->for_ns;

    if (r->ended)
        return;
    switch (f->kind) {
    case SL_SIM_CRASH:
        sl_sim_trace(sim, "rank %u crashes", f->rank);
        sim->held += r->fiber != NULL && !r->crashed;
        r->crashed = true;
        if (until != SL_NEVER)
            sl_sim_eps_lose(sim, f->rank, UINT32_MAX, f->for_ns);
        break;
    case SL_SIM_FREEZE:
        sl_sim_trace(sim, "rank %u freezes for %.3f ms", f->rank, (double)f->for_ns / 1e6);
        r->frozen_until = until;
        break;
    case SL_SIM_CUT:
        sl_sim_trace(sim, "link %u to %u is cut", f->rank, f->peer);
        link_of(sim, f->rank, f->peer)->cut_until = until;
        break;
    case SL_SIM_SLOW: r->slow = f->factor; break;
    case SL_SIM_LOSE:
        sl_sim_trace(sim, "the connection of %u and %u is reset", f->rank, f->peer);
        sl_sim_eps_lose(sim, f->rank, f->peer, f->for_ns);
        break;
    }
}

static void fault_happen(struct sl_sim *sim, struct sl_sim_event *event)
{
    inflict(sim, event->ptr);
}

void sl_sim_fault_now(struct sl_sim *sim, const struct sl_sim_fault *fault)
{
    inflict(sim, fault);
}

void sl_sim_deliver(struct sl_sim *sim, uint32_t rank, uint32_t thousandths)
{
    sim->ranks[rank].lost = 1000 - thousandths;
}

int sl_sim_create(const struct sl_sim_params *params, struct sl_sim **out)
{
    struct sl_sim *sim = calloc(1, sizeof(*sim));
    struct sl_sim_fault *faults = calloc(params->fault_count + 1, sizeof(*faults));
    uint32_t n = params->ranks;

    if (sim == NULL || faults == NULL)
        goto err_free;
    sim->ranks = calloc(n, sizeof(sim->ranks[0]));
    if (sim->ranks == NULL)
        goto err_free;
    sim->clock.now_ns = virtual_now;
    sim->params = *params;
    /* Not 0: "never" and "not yet" are often told by 0. */
    sim->now_ns = SL_NS_PER_MS;
    sl_rng_init(&sim->rng, params->seed);
    sl_list_init(&sim->mems);
    sl_list_init(&sim->ifaces);
    if (params->fault_count > 0)
        memcpy(faults, params->faults, params->fault_count * sizeof(*faults));
    sim->params.faults = faults;
    for (uint32_t i = 0; i < n; i++)
        sim->ranks[i] = (struct sl_sim_rank){.sim = sim,
                                             .rank = i,
                                             .host = params->host != NULL ? params->host[i] : 0,
                                             .pause_ns = PAUSE_MIN_NS,
                                             .slow = 1};
    sim->params.host = NULL;
    for (size_t i = 0; i < params->fault_count; i++)
        sl_sim_at(sim, sim->now_ns + faults[i].at_ns, fault_happen)->ptr = &faults[i];
    *out = sim;
    return 0;
err_free:
    free(sim);
    free(faults);
    return sl_fail(-ENOMEM, "no memory for a simulation of %u ranks", n);
}

void sl_sim_destroy(struct sl_sim *sim)
{
    if (sim == NULL)
        return;
    for (uint32_t i = 0; i < sim->params.ranks; i++)
        sl_sim_fiber_destroy(sim->ranks[i].fiber);
    /* What events own is freed by their happening; nobody is left to notice. */
    for (uint32_t i = 0; i < sim->params.ranks; i++)
        sim->ranks[i].ended = true;
    while (sl_sim_step(sim))
        ;
    free((void *)(uintptr_t)sim->params.faults);
    free(sim->eps);
    free(sim->heap);
    free(sim->ranks);
    sl_sim_table_fini(&sim->links, free);
    sl_sim_table_fini(&sim->mem_of_id, NULL);
    sl_sim_table_fini(&sim->mem_of_addr, NULL);
    sl_sim_table_fini(&sim->wires, NULL);
    free(sim);
}
