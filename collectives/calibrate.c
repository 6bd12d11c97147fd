/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link costs for the selector: measured between two ranks when a communicator starts, in a few ms, and
 * kept on disk. All ranks use what rank 0 found, or they would choose different algorithms.
 *
 * Costs are rounded to a quarter of an octave, so that small differences from run to run do not
 * change a choice, and with it the order of additions.
 */
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
#define PINGS 32
#define WARM_UPS 4
#define BLOCK ((size_t)128 << 10) /* of the copy and reduce rates: cached, as window slots are */
#define BLOCKS 16
#define CROSS_BYTES ((size_t)64 << 10)
#define COST_MAX 1e13 /* ns: hours for one message are no measurement */

/* Costs of a common server, in ns and ns per byte. */
static const struct sl_costs built_in = {
    .shm = {.alpha = 250, .beta = 0.08},
    .net = {.alpha = 8000, .beta = 0.15},
    .sync = 150,
    .copy = 0.03,
    .reduce = 0.03,
    .cross = 0.05,
    .step = 10,
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

    comm->active_count--;
    sl_op_put(op);
    return err == 0 ? 0 : sl_fail_text(comm->error, comm->error_text);
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
    if (err == 0)
        err = finish(comm, sending);
    int late = finish(comm, receiving);

    return err != 0 ? err : late;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median: the least would be the luck of ranks that share a core. */
static double middle(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof(*samples), by_value);
    return samples[count / 2];
}

/* Time of an exchange, in ns. */
static int ping(struct sluice_comm *comm, uint32_t peer, uint8_t *buf, size_t len, int rounds,
                double *out)
{
    double ns[PINGS];
    int err = 0;

    for (int i = -WARM_UPS; i < rounds && err == 0; i++) {
        uint64_t begin = sl_now(comm->worker.clock);

        err = exchange_once(comm, peer, buf, len);
        if (i >= 0)
            ns[i] = (double)(sl_now(comm->worker.clock) - begin);
    }
    if (err == 0)
        *out = middle(ns, rounds);
    return err;
}

static int measure_link(struct sluice_comm *comm, uint32_t a, uint32_t b, uint8_t *buf,
                        struct sl_link_cost *out)
{
    uint32_t peer = comm->rank == a ? b : a;
    double small, large;

    if (comm->rank != a && comm->rank != b)
        return 0;
    int err = ping(comm, peer, buf, PING_SMALL, PINGS, &small);

    if (err == 0)
        err = ping(comm, peer, buf, PING_LARGE, PINGS / 4, &large);
    if (err == 0) {
        out->alpha = small;
        out->beta = large > small ? (large - small) / (double)(PING_LARGE - PING_SMALL) : 0;
    }
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
    const struct sl_clock *clock = comm->worker.clock;
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

/* Time of a collective that every rank calls, in ns. */
static int time_call(struct sluice_comm *comm, const struct sl_call *call, uint8_t *buf,
                     double *out)
{
    double ns[PINGS];
    int err = 0;

    for (int i = -WARM_UPS; i < PINGS && err == 0; i++) {
        uint64_t begin = sl_now(comm->worker.clock);

        err = call_now(comm, call, buf, buf + PING_LARGE);
        if (i >= 0)
            ns[i] = (double)(sl_now(comm->worker.clock) - begin);
    }
    if (err == 0)
        *out = middle(ns, PINGS);
    return err;
}

/* One POST to AWAIT is what a barrier takes. What an allreduce in one stage takes beyond that, beyond copying
 * in and beyond adding, is bytes that cross from the caches of those who wrote them. */
static int measure_windows(struct sluice_comm *comm, uint8_t *buf, struct sl_costs *out)
{
    struct sl_call barrier = {.coll = SL_BARRIER, .dtype = SLUICE_U8};
    struct sl_call sum = {.coll = SL_ALLREDUCE, .dtype = SLUICE_F32, .count = CROSS_BYTES / 4};
    double crowd = comm->costs.ranks_per_core, n = comm->size, bytes = CROSS_BYTES, flat;
    char algo[SL_TEXT_MAX];

    memcpy(algo, comm->config.algo, sizeof(algo));
    snprintf(comm->config.algo, sizeof(comm->config.algo), "flat");
    int err = time_call(comm, &barrier, buf, &out->sync);

    if (err == 0)
        err = time_call(comm, &sum, buf, &flat);
    memcpy(comm->config.algo, algo, sizeof(algo));
    if (err == 0)
        out->cross = ((flat - out->sync) / crowd - bytes * (out->copy + n * out->reduce)) /
                     ((n - 1) * bytes);
    return err;
}

static int measure(struct sluice_comm *comm, struct sl_costs *out)
{
    uint32_t local, remote;
    uint8_t *buf;
    int err = 0;

    if (posix_memalign((void **)&buf, 4096, 2 * PING_LARGE) != 0)
        return sl_fail(-ENOMEM, "no memory to measure link costs");
    memset(buf, 0, 2 * PING_LARGE);
    find_pair(comm, &local, &remote);
    if (comm->rank == 0)
        measure_rates(comm, buf, out);
    if (local != 0)
        err = measure_link(comm, 0, local, buf, &out->shm);
    if (err == 0 && remote != 0)
        err = measure_link(comm, 0, remote, buf, &out->net);
    if (err == 0 && comm->host_count == 1 && comm->win_bytes >= CROSS_BYTES + SL_CACHE_LINE)
        err = measure_windows(comm, buf, out);
    free(buf);
    return err;
}

/* ---- agreeing ---- */

static double rounded(double value)
{
    uint64_t bits;

    if (!(value > 0))
        return 1e-3;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + (UINT64_C(1) << 49)) & ~((UINT64_C(1) << 50) - 1); /* two bits of mantissa */
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void round_costs(struct sl_costs *costs)
{
    double *const all[] = {&costs->shm.alpha, &costs->shm.beta, &costs->net.alpha,
                           &costs->net.beta,  &costs->sync,     &costs->copy,
                           &costs->reduce,    &costs->cross,    &costs->step};

    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        *all[i] = rounded(*all[i]);
}

/* The file and rank 0 are others' words: a cost that is no number, negative or absurd would make every
 * comparison of algorithms meaningless. */
bool sl_costs_sane(const struct sl_costs *costs)
{
    const double all[] = {costs->shm.alpha, costs->shm.beta, costs->net.alpha, costs->net.beta,
                          costs->sync,      costs->copy,     costs->reduce,    costs->cross,
                          costs->step};

    for (size_t i = 0; i < SL_ARRAY_LEN(all); i++)
        if (!(all[i] > 0 && all[i] <= COST_MAX))
            return false;
    return true;
}

/* What the costs of a communicator depend on, for the cache: kernels stand for the CPU. */
static uint64_t cache_key(const struct sluice_comm *comm)
{
    char text[512];

    snprintf(text, sizeof(text), "2 %s %s %u %u %u %s", comm->kernels->name,
             comm->peers[comm->size - 1].ep->iface->ops->name, comm->host_count, comm->local_size,
             comm->costs.ranks_per_core, comm->config.transport);
    return sl_hash_text(text) ^ sl_host_hash(&comm->config);
}

/* Rank 0's word; what the others hand in is not looked at. */
struct verdict {
    struct sl_costs costs;
    uint32_t known; /* no need to measure */
    char source[84];
};

static int take_word_of_rank_0(struct sluice_comm *comm, struct sl_exchange *exchange,
                               struct verdict *word)
{
    struct verdict *all = calloc(comm->size, sizeof(*all));

    if (all == NULL)
        return sl_fail(-ENOMEM, "no memory to agree on link costs");
    int err = exchange->allgather(exchange, word, sizeof(*word), all);

    if (err == 0)
        *word = all[0];
    free(all);
    if (err == 0 && !sl_costs_sane(&word->costs))
        return sl_fail(-EPROTO, "rank 0 sent link costs that are not positive numbers; try "
                                "SLUICE_TUNE=off there");
    word->source[sizeof(word->source) - 1] = '\0';
    return err;
}

static void first_word(struct sluice_comm *comm, uint64_t key, struct verdict *word)
{
    const char *tune = comm->config.tune;
    struct sl_costs kept;

    *word = (struct verdict){.costs = built_in};
    snprintf(word->source, sizeof(word->source), "built in");
    if (strcmp(tune, "off") == 0 || comm->size == 1) {
        word->known = 1;
    } else if (strcmp(tune, "measure") != 0 && comm->rank == 0 &&
               sl_tune_cache_read(&comm->config, key, &kept, sizeof(kept)) &&
               sl_costs_sane(&kept)) {
        word->costs = kept;
        word->known = 1;
        snprintf(word->source, sizeof(word->source), "measured earlier, cached");
    }
}

static int check_setting(const struct sluice_comm *comm)
{
    const char *tune = comm->config.tune;

    return strcmp(tune, "auto") == 0 || strcmp(tune, "measure") == 0 || strcmp(tune, "off") == 0
               ? 0
               : sl_fail(-EINVAL, "SLUICE_TUNE is '%s', but must be auto, measure or off", tune);
}

int sl_costs_find(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    uint32_t ranks_per_core = comm->costs.ranks_per_core;
    uint64_t key = comm->size > 1 && comm->rank == 0 ? cache_key(comm) : 0;
    struct verdict word;
    int err = check_setting(comm);

    if (err != 0)
        return err;
    first_word(comm, key, &word);
    comm->costs = word.costs; /* measuring needs plans, plans need costs */
    comm->costs.ranks_per_core = ranks_per_core;
    err = take_word_of_rank_0(comm, exchange, &word);
    if (err == 0 && !word.known) {
        uint64_t start = sl_now(comm->worker.clock);

        err = measure(comm, &word.costs);
        round_costs(&word.costs);
        snprintf(word.source, sizeof(word.source), "measured in %.1f ms",
                 (double)(sl_now(comm->worker.clock) - start) / 1e6);
        if (err == 0)
            err = take_word_of_rank_0(comm, exchange, &word);
        if (err == 0 && comm->rank == 0 && strcmp(comm->config.tune, "auto") == 0)
            sl_tune_cache_write(&comm->config, key, &word.costs, sizeof(word.costs));
    }
    if (err != 0)
        return err;
    comm->costs = word.costs;
    comm->costs.ranks_per_core = ranks_per_core;
    snprintf(comm->costs_source, sizeof(comm->costs_source), "%s", word.source);
    sl_plans_fini(comm); /* those of the measurement chose by other costs */
    return 0;
}
