/* SPDX-License-Identifier: Apache-2.0 */
/* A seed becomes a run: ranks, hosts, calls, settings and faults. */
#include "tests/sim/swarm.h"

#include <inttypes.h>
#include <string.h>

static uint64_t pick(struct sl_rng *rng, uint64_t low, uint64_t high)
{
    return sl_rng_range(rng, low, high);
}

static void draw_hosts(struct swarm *s, struct sl_rng *rng)
{
    uint64_t kind = pick(rng, 0, 3), per = pick(rng, 1, s->ranks <= SWARM_RANKS ? 4 : 64);

    for (uint32_t r = 0; r < s->ranks; r++)
        s->host[r] = kind <= 1 ? 0 : kind == 2 ? r / (uint32_t)per : (uint32_t)pick(rng, 0, 2);
}

/* This build does that collective on ranks that share no memory. */
static bool has_algorithm(enum sl_coll coll)
{
    for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++)
        if (((*a)->colls & 1u << coll) != 0 && !(*a)->needs_windows &&
            strcmp((*a)->name, "self") != 0)
            return true;
    return false;
}

static void draw_call(struct swarm *s, struct sl_rng *rng, struct swarm_call *c)
{
    static const enum sl_coll colls[] = {
        SL_ALLREDUCE,    SL_ALLREDUCE, SL_ALLREDUCE, SL_REDUCE_SCATTER, SL_ALL_GATHER,
        SL_BROADCAST,    SL_REDUCE,    SL_GATHER,    SL_SCATTER,        SL_ALL_TO_ALL,
        SL_ALL_TO_ALL_V, SL_BARRIER,   SL_SEND,
    };
    uint64_t bytes;

    c->coll = colls[pick(rng, 0, sizeof(colls) / sizeof(colls[0]) - 1)];
    if (!has_algorithm(c->coll))
        c->coll = SL_ALLREDUCE;
    c->dtype = (enum sluice_dtype)pick(rng, 0, SLUICE_DTYPE_COUNT - 1);
    c->op = (enum sluice_op)pick(rng, 0, SLUICE_OP_COUNT - 1);
    c->comm = s->split ? (uint32_t)pick(rng, 0, 1) : 0;
    /* The smallest group of a split has half of the ranks. */
    c->root = (uint32_t)pick(rng, 0, (c->comm == 0 ? s->ranks : s->ranks / 2) - 1);
    bytes = pick(rng, 0, 1) ? pick(rng, 0, 64) : UINT64_C(1) << pick(rng, 0, 16);
    bytes += pick(rng, 0, bytes / 2);
    c->count = bytes / sluice_dtype_size(c->dtype);
    c->in_place = sl_rng_chance(rng, 4) && c->coll != SL_ALL_TO_ALL_V && c->coll != SL_SEND;
    /* A communicator moves only inside calls on it: with two, nobody may block in one of them. */
    c->blocking = c->coll != SL_SEND && !s->split && sl_rng_chance(rng, 3);
}

/* Of many ranks all together move no more than some MiB, no rank needs all others, and sums need
 * more than 8 bits. */
static void make_small(const struct swarm *s, struct swarm_call *c)
{
    if (sluice_dtype_size(c->dtype) < 4)
        c->dtype = SLUICE_I32;
    size_t most = (size_t)1024 / sluice_dtype_size(c->dtype);

    switch (c->coll) {
    case SL_ALL_TO_ALL:
    case SL_ALL_TO_ALL_V: c->coll = SL_ALL_GATHER; /* fall through */
    case SL_ALL_GATHER:
    case SL_REDUCE_SCATTER:
    case SL_GATHER:
    case SL_SCATTER: most = (size_t)(32768 / s->ranks) / sluice_dtype_size(c->dtype); break;
    default: break;
    }
    c->count = c->count > most ? most : c->count;
}

static void draw_config(struct swarm *s, struct sl_rng *rng)
{
    static const char *const algos[] = {"flat",    "direct", "ring",     "biring", "tree",
                                        "halving", "bruck",  "pairwise", "hier"};
    struct sl_config *c = &s->config;

    sl_config_defaults(c);
    c->timeout_ms = 400;
    c->connect_timeout_ms = 2000;
    c->shm_window_bytes = 1 << pick(rng, 12, 17);
    c->status_signal = SL_OFF;
    c->tune = SL_TUNE_OFF;
    if (sl_rng_chance(rng, 4))
        c->chunk_bytes = (int64_t)pick(rng, 1, 5000);
    if (sl_rng_chance(rng, 2)) {
        const char *name = algos[pick(rng, 0, sizeof(algos) / sizeof(algos[0]) - 1)];

        /* One that this build lacks is left out; one that does not suit is refused on all ranks. */
        for (const struct sl_algo *const *a = sl_algos; *a != NULL; a++)
            if (strcmp((*a)->name, name) == 0)
                snprintf(c->algo, sizeof(c->algo), "%s", name);
    }
}

static void draw_network(struct swarm *s, struct sl_rng *rng)
{
    struct sl_sim_params *p = &s->params;

    sl_sim_params_init(p, s->ranks, sl_rng_u64(rng));
    p->host = s->host;
    p->windows = !sl_rng_chance(rng, 3);
    p->latency_ns = UINT64_C(1) << pick(rng, 6, 16);
    p->jitter_ns = sl_rng_chance(rng, 2) ? UINT64_C(1) << pick(rng, 0, 18) : 0;
    p->ns_per_kib = pick(rng, 0, 400);
    p->eager_max = sl_rng_chance(rng, 3) ? 0 : UINT64_C(1) << pick(rng, 0, 14);
    p->sends_max = (unsigned)pick(rng, 1, 64);
    p->recvs_max = (unsigned)pick(rng, 1, 64);
    p->ctrls_max = (unsigned)pick(rng, 2, 16);
    if (sl_rng_chance(rng, 2))
        p->eagain_in = (uint32_t)pick(rng, 2, 60);
    if (sl_rng_chance(rng, 2))
        p->stall_in = (uint32_t)pick(rng, 20, 400);
    if (sl_rng_chance(rng, 2))
        p->late_in = (uint32_t)pick(rng, 2, 6);
}

static bool is_large(const struct swarm *s)
{
    return s->ranks > SWARM_RANKS;
}

/* A message may pass through all of them one after the other, and a slow rank holds it up: nobody
 * must take that for the end. */
static void suit_many(struct swarm *s)
{
    s->config.timeout_ms = 4000;
    s->config.connect_timeout_ms = 20000;
    s->config.shm_window_bytes = 4096;
    s->params.latency_ns = s->params.latency_ns > 4096 ? 4096 : s->params.latency_ns;
    s->params.jitter_ns = s->params.jitter_ns > 4096 ? 4096 : s->params.jitter_ns;
    s->call_count = s->call_count > 3 ? 3 : s->call_count;
}

static uint32_t other_than(struct swarm *s, struct sl_rng *rng, uint32_t rank)
{
    return (rank + (uint32_t)pick(rng, 1, s->ranks - 1)) % s->ranks;
}

static void add_fault(struct swarm *s, struct sl_sim_fault fault)
{
    if (s->params.fault_count < SWARM_FAULTS)
        s->faults[s->params.fault_count++] = fault;
}

/* Those that pass: shorter, all together, than the time limit. */
static void draw_mild(struct swarm *s, struct sl_rng *rng, uint64_t span_ns)
{
    uint64_t left = 4;

    if (sl_rng_chance(rng, 3))
        add_fault(s, (struct sl_sim_fault){SL_SIM_SLOW, (uint32_t)pick(rng, 0, s->ranks - 1), 0, 0,
                                           0, (uint32_t)pick(rng, 2, 20)});
    while (left-- > 0 && sl_rng_chance(rng, 2)) {
        uint32_t a = (uint32_t)pick(rng, 0, s->ranks - 1);
        uint64_t at = pick(rng, 0, span_ns), len = pick(rng, 1000, 30 * SL_NS_PER_MS);

        if (s->ranks > 1 && pick(rng, 0, 1))
            add_fault(s, (struct sl_sim_fault){SL_SIM_CUT, a, other_than(s, rng, a), at, len, 0});
        else
            add_fault(s, (struct sl_sim_fault){SL_SIM_FREEZE, a, 0, at, len, 0});
    }
}

static void draw_fatal(struct swarm *s, struct sl_rng *rng, uint64_t span_ns)
{
    uint32_t a = (uint32_t)pick(rng, 0, s->ranks - 1);
    uint64_t at = pick(rng, 0, span_ns);
    uint64_t notice = sl_rng_chance(rng, 2) ? SL_NEVER : pick(rng, 0, 50 * SL_NS_PER_MS);

    if (sl_rng_chance(rng, 4))
        s->params.ctrl_loss_in = (uint32_t)pick(rng, 2, 10);
    switch (pick(rng, 0, 3)) {
    case 0: add_fault(s, (struct sl_sim_fault){SL_SIM_CRASH, a, 0, at, notice, 0}); break;
    case 1: add_fault(s, (struct sl_sim_fault){SL_SIM_FREEZE, a, 0, at, 3 * SL_NS_PER_S, 0}); break;
    case 2:
        add_fault(s, (struct sl_sim_fault){SL_SIM_CUT, a, other_than(s, rng, a), at, SL_NEVER, 0});
        break;
    default:
        add_fault(s, (struct sl_sim_fault){SL_SIM_LOSE, a, other_than(s, rng, a), at, 1000, 0});
        break;
    }
}

/* A call that differs from c in one thing that matters. */
static void draw_wrong(struct swarm *s, struct sl_rng *rng)
{
    struct swarm_call *c = &s->calls[s->odd], *w = &s->wrong;

    c->comm = 0;
    c->in_place = false;
    c->root %= s->ranks;
    if (c->coll == SL_SEND || c->coll == SL_ALL_TO_ALL_V)
        c->coll = SL_ALLREDUCE;
    if (c->count == 0)
        c->count = 1;
    *w = *c;
    switch (c->coll == SL_BARRIER ? 3 : pick(rng, 0, 4)) {
    case 0: w->count = pick(rng, 0, 1) ? c->count + 1 : c->count / 2; return;
    case 1: w->dtype = (enum sluice_dtype)((c->dtype + 1) % SLUICE_DTYPE_COUNT); return;
    case 2:
        if (sl_coll_reduces(c->coll)) {
            w->op = (enum sluice_op)((c->op + 1) % SLUICE_OP_COUNT);
            return;
        }
        break;
    case 3: break;
    default:
        if (c->coll == SL_BROADCAST || c->coll == SL_REDUCE || c->coll == SL_GATHER ||
            c->coll == SL_SCATTER) {
            w->root = (c->root + 1) % s->ranks;
            return;
        }
        break;
    }
    w->coll = c->coll == SL_ALLREDUCE ? SL_BROADCAST : SL_ALLREDUCE;
}

void swarm_draw(struct swarm *s, uint64_t seed, uint32_t ranks)
{
    struct sl_rng rng;
    uint64_t span_ns = UINT64_C(1) << 19;

    memset(s, 0, sizeof(*s));
    s->seed = seed;
    sl_rng_init(&rng, seed);
    s->mode = (enum swarm_mode)(seed % 8 < 4    ? SWARM_WELL
                                : seed % 8 < 6  ? SWARM_FATAL
                                : seed % 8 == 6 ? SWARM_MISMATCH
                                                : SWARM_ABORT);
    s->ranks = (uint32_t)(pick(&rng, 0, 2) ? pick(&rng, 1, 6) : pick(&rng, 1, SWARM_RANKS));
    if (s->mode != SWARM_WELL && s->ranks < 2)
        s->ranks = 2;
    s->ranks = ranks != 0 ? ranks : s->ranks;
    s->split = s->ranks >= 4 && sl_rng_chance(&rng, 4);
    draw_hosts(s, &rng);
    draw_config(s, &rng);
    /* Comparing calls needs progress on the communicator that disagrees, and a call that is not
     * refused. */
    if (s->mode == SWARM_MISMATCH) {
        s->split = false;
        s->config.algo[0] = 0;
    }
    s->anew = s->split && seed / 8 % 2 == 0; /* not drawn, as below */
    draw_network(s, &rng);
    s->call_count = (unsigned)pick(&rng, 1, SWARM_CALLS - 1);
    if (is_large(s))
        suit_many(s);
    for (unsigned i = 0; i < s->call_count; i++) {
        draw_call(s, &rng, &s->calls[i]);
        if (is_large(s))
            make_small(s, &s->calls[i]);
        /* Not drawn: all else of a seed stays as it was. */
        s->calls[i].persistent = s->calls[i].coll != SL_SEND && (seed + i) % 3 == 0;
    }
    span_ns <<= pick(&rng, 0, 5);
    s->culprit = (uint32_t)pick(&rng, 0, s->ranks - 1);
    if (s->mode == SWARM_WELL || sl_rng_chance(&rng, 2))
        draw_mild(s, &rng, span_ns);
    if (s->mode == SWARM_FATAL)
        draw_fatal(s, &rng, span_ns);
    s->odd = (unsigned)pick(&rng, 0, s->call_count - 1);
    s->abort_at = s->odd;
    if (s->mode == SWARM_MISMATCH) {
        draw_wrong(s, &rng);
        /* Nobody leaves before all have met: the disagreement reaches every rank. */
        s->calls[s->call_count++] = (struct swarm_call){
            .coll = has_algorithm(SL_BARRIER) ? SL_BARRIER : SL_ALLREDUCE, .count = 1};
    }
    s->params.faults = s->faults;
}

static void print_call(const struct swarm_call *c, FILE *out)
{
    fprintf(out, "%s of %zu %s %s root %u on comm %u%s%s%s\n", sl_coll_name(c->coll), c->count,
            sluice_dtype_name(c->dtype), sluice_op_name(c->op), c->root, c->comm,
            c->in_place ? ", in place" : "", c->blocking ? ", blocking" : "",
            c->persistent ? ", persistent" : "");
}

void swarm_print(const struct swarm *s, FILE *out)
{
    static const char *const modes[] = {"well", "fatal", "mismatch", "abort"};
    static const char *const faults[] = {"crash", "freeze", "cut", "slow", "lose"};

    fprintf(out,
            "# seed %" PRIu64 ": %u ranks, must end %s, algo '%s', chunk %lld, window %lld%s\n",
            s->seed, s->ranks, modes[s->mode], s->config.algo, (long long)s->config.chunk_bytes,
            s->params.windows ? (long long)s->config.shm_window_bytes : 0,
            s->anew    ? ", made anew"
            : s->split ? ", split"
                       : "");
    fprintf(out, "# hosts");
    for (uint32_t r = 0; r < s->ranks && r < SWARM_RANKS; r++)
        fprintf(out, " %u", s->host[r]);
    fprintf(out,
            "; latency %" PRIu64 " ns, jitter %" PRIu64 ", %" PRIu64
            " ns/KiB, eager %zu, queues %u %u\n",
            s->params.latency_ns, s->params.jitter_ns, s->params.ns_per_kib, s->params.eager_max,
            s->params.sends_max, s->params.recvs_max);
    for (size_t i = 0; i < s->params.fault_count; i++)
        fprintf(out, "# fault %s of %u (%u) at %.3f us for %.3f us\n", faults[s->faults[i].kind],
                s->faults[i].rank, s->faults[i].peer, (double)s->faults[i].at_ns / 1e3,
                s->faults[i].for_ns == SL_NEVER ? -1.0 : (double)s->faults[i].for_ns / 1e3);
    for (unsigned i = 0; i < s->call_count; i++) {
        fprintf(out, "# call %u: ", i);
        print_call(&s->calls[i], out);
    }
    if (s->mode == SWARM_MISMATCH) {
        fprintf(out, "# rank %u calls in place of %u: ", s->culprit, s->odd);
        print_call(&s->wrong, out);
    }
    if (s->mode == SWARM_ABORT)
        fprintf(out, "# rank %u aborts before call %u\n", s->culprit, s->abort_at);
}
