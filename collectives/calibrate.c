/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link costs for the selector: measured between two ranks when a communicator starts, in a few ms,
 * and kept on disk. All ranks use what rank 0 found, or they would choose different algorithms.
 * What a measurement is worth, costs.c says.
 *
 * Each figure is measured in rounds, until enough of them agree or the time is up: on an idle
 * machine the first few do, on a busy one those in which all ranks were running.
 */
#include "collectives/calibrate.h"

#include "collectives/connect.h"

#include "collectives/costs.h"
#include "collectives/exec.h"
#include "collectives/select.h"
#include "core/host.h"
#include "core/log.h"
#include "core/tune_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PING_SMALL 8
#define PING_LARGE ((size_t)256 << 10)
#define SMALLS 8
#define LARGES 3
#define SYNCS 12
#define FLATS 4
#define SAMPLES_MAX 16
#define ROUNDS_MIN 5
#define ROUNDS_NS (25 * SL_NS_PER_MS) /* of one link or of the windows, on a busy machine */
#define BLOCK ((size_t)128 << 10) /* of the copy and reduce rates: cached, as window slots are */
#define BLOCKS 16
#define CROSS_SMALL ((size_t)64 << 10)
#define CROSS_LARGE ((size_t)256 << 10)
#define SWITCHES_CALM 3 /* a rank on a core of its own is seldom interrupted in a few ms */

/* What is measured of a link, or of the windows: a short thing and a long one, and one between. */
struct gauge {
    struct sl_series little, middle, large;
    uint64_t start_ns;
};

/* ---- measuring ---- */

static int start(struct sluice_comm *comm, const struct sl_call *call, void *in, void *out,
                 struct sluice_req **op)
{
    struct sl_plan *plan;
    int err = sl_plan_get(comm, call, &plan);

    return err != 0 ? err : sl_op_start(comm, plan, in, out, op);
}

static int finish(struct sluice_comm *comm, struct sluice_req *op)
{
    sl_comm_wait(comm, &op->status);
    int err = op->status;

    comm->calls.active_count--;
    sl_op_put(op);
    return err == 0 ? 0 : sl_fail_error(&comm->health.error);
}

static int call_now(struct sluice_comm *comm, const struct sl_call *call, void *in, void *out)
{
    struct sluice_req *op;
    int err = start(comm, call, in, out, &op);

    return err != 0 ? err : finish(comm, op);
}

/* Both ways at once, as the steps of collectives are. */
static int exchange_once(struct sluice_comm *comm, uint32_t peer, uint8_t *buf, size_t len)
{
    struct sl_call recv = {.coll = SL_RECV, .dtype = SLUICE_U8, .root = peer, .count = len};
    struct sl_call send = {.coll = SL_SEND, .dtype = SLUICE_U8, .root = peer, .count = len};
    struct sluice_req *receiving, *sending;
    int err = start(comm, &recv, NULL, buf, &receiving);

    if (err != 0)
        return err;
    err = start(comm, &send, buf + PING_LARGE, NULL, &sending);
    err = err ?: finish(comm, sending);
    int late = finish(comm, receiving);

    return err != 0 ? err : late;
}

/* Rank 0's question after a round. */
static bool wants_more(const struct sluice_comm *comm, const struct gauge *g,
                       const struct sl_costs_facts *facts)
{
    const struct sl_series *const all[] = {&g->little, &g->middle, &g->large};
    double tolerance = sl_costs_tolerance(facts), ignored;

    if (g->little.count < ROUNDS_MIN)
        return true;
    if (g->little.count == SL_ROUNDS_MAX || sl_now(comm->worker->clock) - g->start_ns > ROUNDS_NS)
        return false;
    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        if (all[i]->count != 0 && !sl_series_estimate(all[i], tolerance, &ignored))
            return true;
    return false;
}

/* A round of calls: of a collective that every rank calls, or of exchanges with the peer of a
 * SL_SEND; the first is a warm-up. Its median counts: the least would be the luck of ranks that
 * share a core. */
static int time_calls(struct sluice_comm *comm, const struct sl_call *call, uint8_t *buf,
                      unsigned count, struct sl_series *series)
{
    double ns[SAMPLES_MAX + 1];
    int err = 0;

    for (unsigned i = 0; i <= count && err == 0; i++) {
        uint64_t begin = sl_now(comm->worker->clock);

        err = call->coll == SL_SEND ? exchange_once(comm, call->root, buf, call->count)
                                    : call_now(comm, call, buf, buf + PING_LARGE);
        ns[i] = (double)(sl_now(comm->worker->clock) - begin);
    }
    if (err == 0 && series->count < SL_ROUNDS_MAX) /* rank 0 asks for no more than that */
        series->of_round[series->count++] = sl_costs_median(ns + 1, count);
    return err;
}

static int measure_link(struct sluice_comm *comm, uint32_t other, uint8_t *buf,
                        const struct sl_costs_facts *facts, struct gauge *g)
{
    uint32_t peer = comm->rank == 0 ? other : 0;
    struct sl_call small = {.coll = SL_SEND, .root = peer, .count = PING_SMALL};
    struct sl_call large = {.coll = SL_SEND, .root = peer, .count = PING_LARGE};
    int err = 0;

    if (comm->rank != 0 && comm->rank != other)
        return 0;
    g->start_ns = sl_now(comm->worker->clock);
    do {
        err = time_calls(comm, &small, buf, SMALLS, &g->little);
        err = err ?: time_calls(comm, &large, buf, LARGES, &g->large);
        buf[PING_LARGE] = comm->rank == 0 && wants_more(comm, g, facts);
        err = err ?: exchange_once(comm, peer, buf, 1);
    } while (err == 0 && buf[comm->rank == 0 ? PING_LARGE : 0] != 0);
    return err;
}

/* A rank of this host and one of another, to ask for; rank 0 when there is none. */
static void find_pair(const struct sluice_comm *comm, uint32_t *local, uint32_t *remote)
{
    *local = *remote = 0;
    for (uint32_t r = comm->size; r-- > 1;)
        *(comm->host[r] == comm->host[0] ? local : remote) = r;
}

static void measure_rates(const struct sluice_comm *comm, uint8_t *buf, struct sl_costs *out)
{
    const struct sl_clock *clock = comm->worker->clock;
    const void *srcs[2] = {buf, buf + BLOCK};
    sl_reduce_fn *reduce = comm->kernels->reduce[SLUICE_F32][SLUICE_SUM];
    uint64_t copy = UINT64_MAX, sum = UINT64_MAX;

    for (int i = 0; i < BLOCKS; i++) {
        uint64_t t0 = sl_now(clock);

        comm->kernels->copy(buf, buf + BLOCK, BLOCK);
        uint64_t t1 = sl_now(clock);

        reduce(buf, NULL, srcs, 2, BLOCK / sizeof(float), 1);
        uint64_t t2 = sl_now(clock);

        copy = t1 - t0 < copy ? t1 - t0 : copy;
        sum = t2 - t1 < sum ? t2 - t1 : sum;
    }
    out->copy = (double)copy / (double)BLOCK;
    out->reduce = (double)sum / (2.0 * (double)BLOCK); /* per operand */
}

/* Of elements that are neither all alike nor small: so those of gradients are. */
static void measure_code(const struct sluice_comm *comm, uint8_t *buf, struct sl_costs *out)
{
    const struct sl_clock *clock = comm->worker->clock;
    uint64_t least = UINT64_MAX;

    out->code = 0;
    if (comm->encode == NULL)
        return;
    for (uint32_t i = 0; i < BLOCK / sizeof(float); i++) {
        float x = (float)(int32_t)(i * 2654435761u) * 0x1p-31f;

        memcpy(buf + i * sizeof(x), &x, sizeof(x));
    }
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t begin = sl_now(clock);

        comm->encode(buf, BLOCK, buf + BLOCK);
        uint64_t took = sl_now(clock) - begin;

        least = took < least ? took : least;
    }
    out->code = (double)least / (double)BLOCK;
}

static int time_sum(struct sluice_comm *comm, size_t bytes, uint8_t *buf, struct sl_series *series)
{
    struct sl_call sum = {.coll = SL_ALLREDUCE, .dtype = SLUICE_F32, .count = bytes / 4};

    return comm->win.bytes < bytes + SL_CACHE_LINE ? 0 : time_calls(comm, &sum, buf, FLATS, series);
}

/* One POST to AWAIT is what a barrier takes; allreduces in one stage say what bytes take. */
static int measure_windows(struct sluice_comm *comm, uint8_t *buf,
                           const struct sl_costs_facts *facts, struct gauge *g)
{
    struct sl_call barrier = {.coll = SL_BARRIER, .dtype = SLUICE_U8};
    struct sl_call more = {.coll = SL_BROADCAST, .dtype = SLUICE_U8, .count = 1};
    char algo[SL_TEXT_MAX];
    int err = 0;

    memcpy(algo, comm->config.algo, sizeof(algo));
    snprintf(comm->config.algo, sizeof(comm->config.algo), "flat");
    g->start_ns = sl_now(comm->worker->clock);
    do {
        err = time_calls(comm, &barrier, buf, SYNCS, &g->little);
        err = err ?: time_sum(comm, CROSS_SMALL, buf, &g->middle);
        err = err ?: time_sum(comm, CROSS_LARGE, buf, &g->large);
        buf[0] = comm->rank == 0 && wants_more(comm, g, facts);
        err = err ?: call_now(comm, &more, buf, buf + PING_LARGE);
    } while (err == 0 && buf[PING_LARGE] != 0);
    memcpy(comm->config.algo, algo, sizeof(algo));
    return err;
}

/* ---- what the samples say ---- */

/* All that was measured; rank 0's is looked at. */
struct gauges {
    struct gauge shm, net, windows;
    struct sl_costs rates;
    uint64_t switches; /* of this thread, in the time it took: sl_host_switches() */
};

static void conclude_link(const struct gauge *g, double tolerance, struct sl_link_cost *out)
{
    double small, large;

    if (g->little.count == 0)
        return;
    sl_series_estimate(&g->little, tolerance, &small);
    sl_series_estimate(&g->large, tolerance, &large);
    out->alpha = small;
    out->beta = large > small ? (large - small) / (double)(PING_LARGE - PING_SMALL) : 0;
}

/* Beyond copying in and beyond adding: bytes that cross from the caches of those who wrote them. */
static double crossing(const struct sl_costs_facts *facts, const struct sl_costs *costs, double ns,
                       double bytes)
{
    double n = facts->ranks;

    return (ns / facts->ranks_per_core - bytes * (costs->copy + n * costs->reduce)) /
           ((n - 1) * bytes);
}

/* The first bytes of a vector cost more than those that the processor sees coming: what counts for
 * the long ones, where the choice matters most, is the difference of two lengths. */
static void conclude_windows(const struct gauge *g, double tolerance,
                             const struct sl_costs_facts *facts, struct sl_costs *out)
{
    double small, large;

    if (g->little.count == 0)
        return;
    sl_series_estimate(&g->little, tolerance, &out->sync);
    sl_series_estimate(&g->middle, tolerance, &small);
    out->cross = crossing(facts, out, small - out->sync, CROSS_SMALL);
    if (g->large.count == 0)
        return;
    sl_series_estimate(&g->large, tolerance, &large);
    double cross = crossing(facts, out, large - small, CROSS_LARGE - CROSS_SMALL);

    if (cross < out->cross) /* but no fourfold, which is noise */
        out->cross = cross > out->cross / 4 ? cross : out->cross / 4;
}

static bool is_calm(const struct gauges *all, const struct sl_costs_facts *facts)
{
    const struct gauge *const gauges[] = {&all->shm, &all->net, &all->windows};
    double tolerance = sl_costs_tolerance(facts);

    for (size_t i = 0; i < SL_ARRAY_LEN(gauges); i++)
        if (sl_series_disturbed(&gauges[i]->little, tolerance) ||
            sl_series_disturbed(&gauges[i]->middle, tolerance) ||
            sl_series_disturbed(&gauges[i]->large, tolerance))
            return false;
    return facts->ranks_per_core > 1 || all->switches <= SWITCHES_CALM;
}

static struct sl_costs_facts facts_of(const struct sluice_comm *comm)
{
    uint32_t local, remote;
    struct sl_costs_facts facts = {.ranks = comm->local_size,
                                   .ranks_per_core = comm->costs.ranks_per_core};

    find_pair(comm, &local, &remote);
    facts.maps = local == 0 || (sl_comm_peer(comm, local)->ep != NULL &&
                                (sl_comm_peer(comm, local)->ep->iface->caps & SL_CAP_MAP) != 0);
    return facts;
}

/* Returns how many figures were not possible and are usual ones now. */
static unsigned conclude(const struct gauges *all, const struct sl_costs_facts *facts,
                         struct sl_kept_costs *out)
{
    double tolerance = sl_costs_tolerance(facts);
    struct sl_costs *costs = &out->costs;

    *costs = sl_costs_built_in;
    costs->copy = all->rates.copy;
    costs->reduce = all->rates.reduce;
    if (all->rates.code != 0)
        costs->code = all->rates.code;
    conclude_link(&all->shm, tolerance, &costs->shm);
    conclude_link(&all->net, tolerance, &costs->net);
    conclude_windows(&all->windows, tolerance, facts, costs);
    sl_costs_round_all(costs);
    out->calm = is_calm(all, facts);
    return sl_costs_repair(costs, facts);
}

static int measure(struct sluice_comm *comm, const struct sl_costs_facts *facts, struct gauges *all)
{
    uint32_t local, remote;
    uint64_t before;
    uint8_t *buf;
    int err = 0;

    if (posix_memalign((void **)&buf, 4096, 2 * PING_LARGE) != 0)
        return sl_fail(-ENOMEM, "no memory to measure link costs");
    memset(buf, 0, 2 * PING_LARGE);
    find_pair(comm, &local, &remote);
    before = sl_host_switches();
    if (comm->rank == 0) {
        measure_rates(comm, buf, &all->rates);
        measure_code(comm, buf, &all->rates);
    }
    if (local != 0)
        err = measure_link(comm, local, buf, facts, &all->shm);
    if (err == 0 && remote != 0)
        err = measure_link(comm, remote, buf, facts, &all->net);
    if (err == 0 && comm->host_count == 1 && comm->win.bytes >= CROSS_SMALL + SL_CACHE_LINE)
        err = measure_windows(comm, buf, facts, &all->windows);
    all->switches = sl_host_switches() - before;
    free(buf);
    return err;
}

/* ---- agreeing ---- */

/* What the costs of a communicator depend on, for the cache: kernels stand for the CPU. */
static uint64_t cache_key(const struct sluice_comm *comm)
{
    char text[512];

    snprintf(text, sizeof(text), "5 %s %s %u %u %u%s %s", comm->kernels->name,
             sl_comm_peer(comm, comm->size - 1)->ep->iface->ops->name, comm->host_count,
             comm->local_size, comm->costs.ranks_per_core, comm->wait.apart ? " apart" : "",
             comm->config.transport);
    return sl_hash_text(text) ^ sl_host_hash(&comm->config);
}

/* Rank 0's word; what the others hand in is not looked at. */
struct verdict {
    struct sl_costs costs;
    struct sl_correction correction;
    uint32_t known; /* no need to measure */
    char source[SL_COSTS_SOURCE_MAX];
};

static int take_word_of_rank_0(struct sluice_comm *comm, struct sl_exchange *exchange,
                               struct verdict *word)
{
    struct verdict *all = calloc(comm->size, sizeof(*all));

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to agree on link costs");
    int err = sl_comm_gather(comm, exchange, word, sizeof(*word), all);

    if (err == 0)
        *word = all[0];
    free(all);
    if (err == 0 && !(sl_costs_sane(&word->costs) && sl_correction_sane(&word->correction)))
        return sl_fail(-EPROTO, "rank 0 sent link costs that are not positive numbers; try "
                                "SLUICE_TUNE=off there");
    word->source[sizeof(word->source) - 1] = '\0';
    return err;
}

static bool uses_cache(const struct sluice_comm *comm)
{
    return comm->rank == 0 && comm->size > 1 && comm->config.tune == SL_TUNE_AUTO &&
           comm->family_of == NULL;
}

/* What earlier jobs left, or version 0. */
static void read_kept(const struct sluice_comm *comm, const struct sl_costs_facts *facts,
                      struct sl_kept_costs *kept)
{
    if (!uses_cache(comm) ||
        !sl_tune_cache_read(&comm->config, cache_key(comm), kept, sizeof(*kept)) ||
        !sl_kept_usable(kept, facts, sl_host_facts(), sl_wall_s()))
        *kept = (struct sl_kept_costs){.version = 0};
}

static void first_word(const struct sluice_comm *comm, const struct sl_costs_facts *facts,
                       const struct sl_kept_costs *kept, struct verdict *word)
{
    *word = (struct verdict){.costs = sl_costs_built_in};
    snprintf(word->source, sizeof(word->source), "built in");
    if (comm->config.tune == SL_TUNE_OFF || comm->size == 1) {
        word->known = 1;
    } else if (kept->version != 0) {
        word->costs = kept->costs;
        word->correction = kept->correction;
        word->known = sl_kept_settled(kept, facts);
        sl_kept_describe(kept, word->source, sizeof(word->source));
    }
}

/* After measuring: what this job uses and the next ones find. Rank 0's. */
static void second_word(const struct sluice_comm *comm, const struct gauges *all, uint64_t ns,
                        const struct sl_costs_facts *facts, struct sl_kept_costs *kept,
                        struct verdict *word)
{
    struct sl_kept_costs fresh = {.measured_s = sl_wall_s(), .host = sl_host_facts()};
    unsigned repaired = conclude(all, facts, &fresh);
    bool write = sl_kept_merge(kept, &fresh, repaired);
    int len;

    if (write && uses_cache(comm))
        sl_tune_cache_write(&comm->config, cache_key(comm), kept, sizeof(*kept));
    word->costs = kept->costs;
    word->correction = kept->correction;
    sl_kept_describe(kept, word->source, sizeof(word->source));
    len = (int)strlen(word->source);
    snprintf(word->source + len, sizeof(word->source) - (size_t)len, "; looked in %.1f ms%s%s",
             (double)ns / 1e6, fresh.calm ? "" : ", on a busy machine",
             repaired != 0 ? ", which showed what cannot be" : "");
    if (repaired != 0)
        sl_info("tune",
                "%u of the measured costs cannot be; usual ones are used and nothing is kept",
                repaired);
}

static int measure_and_agree(struct sluice_comm *comm, struct sl_exchange *exchange,
                             const struct sl_costs_facts *facts, struct sl_kept_costs *kept,
                             struct verdict *word)
{
    struct gauges *all = calloc(1, sizeof(*all));
    uint64_t start_ns = sl_now(comm->worker->clock);
    int err;

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to measure link costs");
    /* Both ways at once are two operations, also where the program may have one. */
    int64_t limit = comm->config.inflight_max;

    comm->config.inflight_max = limit < 2 ? 2 : limit;
    err = measure(comm, facts, all);
    comm->config.inflight_max = limit;
    if (err == 0 && comm->rank == 0)
        second_word(comm, all, sl_now(comm->worker->clock) - start_ns, facts, kept, word);
    free(all);
    return err != 0 ? err : take_word_of_rank_0(comm, exchange, word);
}

/* The pairs that are measured, and the one that names the transport for the cache: on both ends, as
 * who waits for the other's word does not answer a dial. */
static int reach_measured(struct sluice_comm *comm)
{
    uint32_t ranks[3], root = 0;
    bool mine = false;

    find_pair(comm, &ranks[0], &ranks[1]);
    ranks[2] = comm->size - 1;
    if (comm->rank == 0)
        return sl_reach_all(comm, ranks, SL_ARRAY_LEN(ranks));
    for (size_t i = 0; i < SL_ARRAY_LEN(ranks); i++)
        mine |= ranks[i] == comm->rank;
    return mine ? sl_reach_all(comm, &root, 1) : 0;
}

int sl_costs_find(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    uint32_t ranks_per_core = comm->costs.ranks_per_core;
    struct sl_kept_costs kept;
    struct verdict word;
    int err;

    struct sl_costs_facts facts = {.ranks = 0};

    err = comm->size > 1 ? reach_measured(comm) : 0;
    if (err != 0)
        return err;
    if (comm->rank == 0 && comm->size > 1) /* who alone judges */
        facts = facts_of(comm);
    read_kept(comm, &facts, &kept);
    first_word(comm, &facts, &kept, &word);
    comm->costs = word.costs; /* measuring needs plans, plans need costs */
    comm->costs.ranks_per_core = ranks_per_core;
    err = take_word_of_rank_0(comm, exchange, &word);
    if (err == 0 && !word.known)
        err = measure_and_agree(comm, exchange, &facts, &kept, &word);
    if (err != 0)
        return err;
    comm->costs = word.costs;
    comm->costs.ranks_per_core = ranks_per_core;
    comm->correction = word.correction;
    snprintf(comm->costs_source, sizeof(comm->costs_source), "%s", word.source);
    sl_plans_fini(comm); /* those of the measurement chose by other costs */
    return 0;
}

/* ---- what operations took ---- */

#define SAMPLES_MIN 16
#define NS_MIN 20000 /* below, what a rank takes depends on who came first */

void sl_costs_sample(struct sluice_req *op)
{
    struct sl_plan *plan = op->plan;
    uint64_t ns = sl_now(op->comm->worker->clock) - op->began_ns;

    if (plan->samples == 0 || ns < plan->least_ns)
        plan->least_ns = ns;
    plan->samples += plan->samples != UINT32_MAX;
}

/* Where every rank waits for every other, so that no rank is through before its time. */
static bool is_mutual(enum sl_coll coll)
{
    return coll == SL_ALLREDUCE || coll == SL_REDUCE_SCATTER || coll == SL_ALL_GATHER ||
           coll == SL_ALL_TO_ALL;
}

void sl_costs_predict(const struct sluice_comm *comm, struct sl_plan *plan)
{
    bool mixed = plan->schedule.win_values != 0 && plan->post_count != 0;

    plan->sample_mask = 0;
    if (comm->size == 1 || mixed || !is_mutual(plan->call.coll))
        return;
    plan->predicted_ns = sl_select_predict(comm, &plan->shape, plan->schedule.algo);
    if (plan->predicted_ns >= NS_MIN)
        plan->sample_mask = 1;
}

/* The middle of what plans of a kind took over their predictions; 0: none was called often
 * enough. */
static double seen(const struct sluice_comm *comm, bool windows)
{
    double ratios[64];
    uint32_t count = 0;

    sl_list_foreach(&comm->calls.plan_lru, node)
    {
        const struct sl_plan *plan = sl_container_of(node, struct sl_plan, lru);

        if (plan->samples >= SAMPLES_MIN && (plan->schedule.win_values != 0) == windows &&
            count < SL_ARRAY_LEN(ratios))
            ratios[count++] = (double)plan->least_ns / plan->predicted_ns;
    }
    return count != 0 ? sl_costs_median(ratios, count) : 0;
}

void sl_costs_learn(const struct sluice_comm *comm)
{
    struct sl_kept_costs kept;

    if (!uses_cache(comm) || comm->health.error.code != 0 || comm->host == NULL ||
        comm->calls.plans == NULL)
        return;
    struct sl_costs_facts facts = facts_of(comm);
    struct sl_correction now = {seen(comm, true), seen(comm, false)};

    if (now.windows == 0 && now.messages == 0)
        return;
    read_kept(comm, &facts, &kept);
    /* Another job may have written since: what this one saw is of other costs then. */
    if (kept.version != 0 && sl_costs_equal(&kept.costs, &comm->costs) &&
        sl_kept_learn(&kept, &now))
        sl_tune_cache_write(&comm->config, cache_key(comm), &kept, sizeof(kept));
}
