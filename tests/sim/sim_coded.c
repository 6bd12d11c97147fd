/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed collectives by the real executor on simulated networks, one run per seed: results are
 * those of the plain reference, bit for bit and on all ranks, or every rank has an error that names
 * the one to blame. Arguments: seeds.h.
 */
#include "collectives/operation.h"
#include "core/err.h"
#include "lib/compress.h"
#include "tests/sim/added_reference.h"
#include "tests/sim/ranks.h"
#include "tests/sim/seeds.h"

#include <sluice/compress.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 6
#define COUNT_MAX 30000
#define OUT_MAX ((size_t)COUNT_MAX * RANKS_MAX)
#define LIMIT_NS (60 * SL_NS_PER_S)

enum mode { WELL, DIFFERS, CRASHES, ABORTS };

static const char *const modes[] = {"well", "differs", "crashes", "aborts"};

/* Those that this build has are drawn. */
static const char *const codecs[] = {
    "bq8",
    "bq4",
    "bq4:stochastic=on,seed=7",
    "bf16",
    "bf16:stochastic=on,seed=3",
    "fp16",
    "bq2",
    "sign",
    "e4m3",
    "mxfp4",
    "nvfp4",
    "topk:k=41",
    "bq8:stochastic=on",
    "raw",
    "e3m0",
    "palette",
    "rans",
    "bq8:rotated=on",
    "e5m2",
    "mxfp8",
    "row8:row=96",
    "rowe4m3:row=5000",
    "topk:k=9,bits=32",
    "shiq",
    "shiq:bits=16,stochastic=on",
    "shiq:ranks=9",
    "randk:k=400,seed=3",
    "sketch:k=300,rows=3",
};

#define LATE_JOBS 6

/* A runner that has another do its jobs, later and in any order, as one with threads would. */
struct late {
    struct sl_runner base, *does;
    struct sl_rng rng;
    struct {
        struct sl_work work;
        struct sl_req *req; /* NULL: free */
    } jobs[LATE_JOBS];
};

struct run {
    uint64_t seed;
    enum mode mode;
    const char *codec;
    char setting[96];
    bool kept, in_place, late;
    uint32_t ranks, rounds, culprit;
    uint32_t resumed; /* round before which operations are saved and made anew; 0: none */
    struct coded_reference ref;
    struct sl_sim_params params;
    struct sl_sim_fault fault;
    struct sl_config config;
};

struct place {
    struct run *run;
    uint32_t rank, started;
    bool through; /* of one call at least */
    int result;
    char text[512];
    struct late late;
};

/* Of a rank: what it gives, what it gets, and what it should get. */
static float ins[RANKS_MAX][OUT_MAX], outs[RANKS_MAX][OUT_MAX], wants[RANKS_MAX][OUT_MAX];

static int late_start(struct sl_runner *base, const struct sl_work *work, struct sl_req *req)
{
    struct late *late = (struct late *)base;

    for (unsigned i = 0; i < LATE_JOBS; i++) {
        if (late->jobs[i].req != NULL)
            continue;
        late->jobs[i].work = *work;
        late->jobs[i].req = req;
        return 0;
    }
    return -EAGAIN;
}

static unsigned late_progress(struct sl_runner *base, unsigned budget)
{
    struct late *late = (struct late *)base;
    unsigned ended = 0;

    late->does->ops->progress(late->does, budget);
    for (unsigned i = 0; i < LATE_JOBS; i++) {
        struct sl_req *req = late->jobs[i].req;

        if (req == NULL || sl_rng_chance(&late->rng, 2))
            continue;
        int result = late->does->ops->start(late->does, &late->jobs[i].work, req);

        if (result == -EAGAIN)
            break;
        late->jobs[i].req = NULL;
        req->status = result == 1 ? 0 : result;
        req->done(req);
        ended++;
    }
    return ended;
}

static void late_cancel(struct sl_runner *base, struct sl_req *req)
{
    struct late *late = (struct late *)base;

    for (unsigned i = 0; i < LATE_JOBS; i++) {
        if (late->jobs[i].req != req)
            continue;
        late->jobs[i].req = NULL;
        req->status = -ECANCELED;
        req->done(req);
    }
}

static const struct sl_runner_ops late_ops = {
    .name = "codec", .start = late_start, .progress = late_progress, .cancel = late_cancel};

/* Puts it before the communicator's own. */
static void make_late(struct place *p, struct sl_coding *coding)
{
    p->late = (struct late){.base.ops = &late_ops, .does = coding->runner};
    sl_rng_init(&p->late.rng, p->run->seed + p->rank);
    coding->runner = &p->late.base;
}

static const char *draw_codec(struct sl_rng *rng, struct sl_codec_spec *spec)
{
    for (;;) {
        const char *text = codecs[sl_rng_below(rng, SL_ARRAY_LEN(codecs))];

        if (sl_codec_parse(text, spec) == 0)
            return text;
    }
}

static void draw_network(struct run *r, struct sl_rng *rng)
{
    sl_sim_params_init(&r->params, r->ranks, sl_rng_u64(rng));
    r->params.latency_ns = UINT64_C(1) << sl_rng_range(rng, 6, 16);
    r->params.jitter_ns = sl_rng_chance(rng, 2) ? UINT64_C(1) << sl_rng_below(rng, 18) : 0;
    r->params.eager_max = sl_rng_chance(rng, 3) ? 0 : UINT64_C(1) << sl_rng_below(rng, 16);
    r->params.sends_max = (unsigned)sl_rng_range(rng, 1, 16);
    r->params.recvs_max = (unsigned)sl_rng_range(rng, 1, 16);
    r->params.eagain_in = sl_rng_chance(rng, 2) ? (uint32_t)sl_rng_range(rng, 2, 60) : 0;
    r->params.stall_in = sl_rng_chance(rng, 2) ? (uint32_t)sl_rng_range(rng, 20, 400) : 0;
    r->params.late_in = sl_rng_chance(rng, 2) ? (uint32_t)sl_rng_range(rng, 2, 6) : 0;
    r->fault = (struct sl_sim_fault){
        SL_SIM_CRASH, r->culprit, 0, sl_rng_below(rng, 1 << 20), sl_rng_below(rng, 1 << 20), 0};
    r->params.faults = &r->fault;
    r->params.fault_count = r->mode == CRASHES;
    sl_config_defaults(&r->config);
    r->config.timeout_ms = 400;
    r->config.connect_timeout_ms = 2000;
    r->config.status_signal = SL_OFF;
    r->config.tune = SL_TUNE_OFF;
    r->config.chunk_bytes = sl_rng_chance(rng, 2) ? 4096 : 0;
}

static void draw(struct run *r, uint64_t seed)
{
    static const enum sl_coll colls[] = {SL_ALLREDUCE,  SL_ALLREDUCE, SL_REDUCE_SCATTER,
                                         SL_ALL_GATHER, SL_BROADCAST, SL_ALL_TO_ALL};
    static const enum sluice_dtype dtypes[] = {SLUICE_F32, SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    struct coded_reference *ref = &r->ref;
    struct sl_rng rng;

    *r = (struct run){.seed = seed};
    sl_rng_init(&rng, seed);
    r->mode = sl_rng_chance(&rng, 4) ? (enum mode)sl_rng_range(&rng, DIFFERS, ABORTS) : WELL;
    r->codec = draw_codec(&rng, &ref->spec);
    bool fixed = (sl_codec_by_id(ref->spec.id)->flags & SL_CODEC_FIXED) != 0;
    bool exact = (sl_codec_by_id(ref->spec.id)->flags & SL_CODEC_LOSSLESS) != 0;

    r->ranks = (uint32_t)sl_rng_range(&rng, 2, RANKS_MAX);
    if (sl_rng_chance(&rng, 2)) /* that can be on several hosts */
        r->ranks = 4 + 2 * (uint32_t)sl_rng_below(&rng, 2);
    r->rounds = (uint32_t)sl_rng_range(&rng, 1, 4);
    r->culprit = (uint32_t)sl_rng_below(&rng, r->ranks);
    r->kept = sl_rng_chance(&rng, 2);
    ref->coll = colls[sl_rng_below(&rng, SL_ARRAY_LEN(colls))];
    ref->spec.dtype = (uint8_t)dtypes[sl_rng_below(&rng, SL_ARRAY_LEN(dtypes))];
    if (exact && sl_coll_reduces(ref->coll))
        ref->spec.dtype = SLUICE_F32; /* others go as they are */
    if (added_reference_knows(ref) && ref->spec.id != SL_CODEC_SHIQ &&
        ref->spec.dtype == SLUICE_F16)
        ref->spec.dtype = SLUICE_BF16; /* sums of floats are to be exact */
    ref->op = sl_rng_chance(&rng, 2) ? SLUICE_AVG : SLUICE_SUM;
    ref->ranks = r->ranks;
    ref->root = (uint32_t)sl_rng_below(&rng, r->ranks);
    ref->count = sl_rng_range(&rng, 1, sl_rng_chance(&rng, 2) ? COUNT_MAX : 5000);
    if (ref->coll != SL_ALLREDUCE && ref->coll != SL_BROADCAST)
        ref->count = ref->count / r->ranks + 1;
    ref->hosts = 1;
    if (ref->coll == SL_ALLREDUCE && r->ranks % 2 == 0 && r->ranks > 2 && !sl_rng_chance(&rng, 4))
        ref->hosts = r->ranks == 6 && sl_rng_chance(&rng, 2) ? 3 : 2;
    ref->dealt = sl_rng_chance(&rng, 2);
    ref->feedback = (r->kept || sl_coll_reduces(ref->coll)) && fixed && !exact &&
                    ref->spec.row == 0 && ref->spec.id != SL_CODEC_SKETCH && sl_rng_chance(&rng, 2);
    r->in_place = sl_rng_chance(&rng, 3);
    r->late = sl_rng_chance(&rng, 2);
    r->resumed = r->kept && r->rounds > 1 ? (uint32_t)sl_rng_range(&rng, 1, r->rounds - 1) : 0;
    if (sl_coll_reduces(ref->coll) && sl_rng_chance(&rng, 3))
        ref->recipe = ref->coll == SL_ALLREDUCE && sl_rng_chance(&rng, 2) ? "gather" : "ring";
    snprintf(r->setting, sizeof(r->setting), "%s%cwhen=always,min=1%s%s%s", r->codec,
             strchr(r->codec, ':') != NULL ? ',' : ':', ref->feedback ? ",feedback=on" : "",
             ref->recipe != NULL ? ",recipe=" : "", ref->recipe != NULL ? ref->recipe : "");
    draw_network(r, &rng);
}

static size_t esize(const struct run *r)
{
    return r->ref.spec.dtype == SLUICE_F32 ? 4 : 2;
}

/* Gaussian-like, of sizes that differ from place to place, and with some zeros. */
static void fill(const struct run *r, uint32_t rank, uint32_t round)
{
    bool blocks = r->ref.coll == SL_REDUCE_SCATTER || r->ref.coll == SL_ALL_TO_ALL;
    uint64_t n = r->ref.count * (blocks ? r->ranks : 1);
    struct sl_rng rng;

    sl_rng_init(&rng, r->seed * 1000 + round * 10 + rank);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits = sl_rng_u64(&rng);
        float x = (float)((int)(bits & 0xff) + (int)(bits >> 8 & 0xff) - 255) *
                  (float)(1 << (i / 512 % 8)) / 4096.0f;
        uint32_t word;

        x = (bits >> 16 & 15) == 0 ? 0 : x;
        memcpy(&word, &x, sizeof(word));
        if (r->ref.spec.dtype == SLUICE_F32)
            ins[rank][i] = x;
        else if (r->ref.spec.dtype == SLUICE_BF16)
            ((uint16_t *)ins[rank])[i] = (uint16_t)(word >> 16);
        else /* any that are finite */
            ((uint16_t *)ins[rank])[i] = (uint16_t)(bits >> 20 & 0xbbff);
    }
}

static uint64_t out_count(const struct run *r)
{
    bool blocks = r->ref.coll == SL_ALL_GATHER || r->ref.coll == SL_ALL_TO_ALL;

    return r->ref.count * (blocks ? r->ranks : 1);
}

/* Once per round, by whoever comes first. All ranks' rounds are the same: nobody ends one before
 * all have begun it. */
static void expect(struct run *r, uint32_t round, uint32_t turn)
{
    static uint64_t seed_of;
    static uint32_t round_of;
    const void *in[RANKS_MAX];
    void *want[RANKS_MAX];

    if (seed_of == r->seed && round_of == round + 1)
        return;
    seed_of = r->seed;
    round_of = round + 1;
    for (uint32_t i = 0; i < r->ranks; i++) {
        fill(r, i, round);
        in[i] = ins[i];
        want[i] = wants[i];
    }
    coded_reference_run(&r->ref, turn, in, want);
}

/* Where a rank's buffers are: in place, in its out. */
static void buffers(const struct run *r, uint32_t rank, const void **in, void **out)
{
    size_t block = r->ref.count * esize(r) * rank;

    *in = ins[rank];
    *out = outs[rank];
    if (!r->in_place)
        return;
    *in = r->ref.coll == SL_ALL_GATHER ? (char *)outs[rank] + block : (char *)outs[rank];
    if (r->ref.coll == SL_REDUCE_SCATTER)
        *out = (char *)outs[rank] + block;
}

static int call(const struct run *r, struct sluice_comm *comm, const void *in, void *out,
                struct sluice_operation **made)
{
    const struct coded_reference *ref = &r->ref;
    enum sluice_dtype dtype = (enum sluice_dtype)ref->spec.dtype;
    int root = (int)ref->root;

    switch (ref->coll) {
    case SL_ALLREDUCE:
        return made != NULL ? sluice_allreduce_init(comm, in, out, ref->count, dtype, ref->op, made)
                            : sluice_allreduce(comm, in, out, ref->count, dtype, ref->op, NULL);
    case SL_REDUCE_SCATTER:
        return made != NULL
                   ? sluice_reduce_scatter_init(comm, in, out, ref->count, dtype, ref->op, made)
                   : sluice_reduce_scatter(comm, in, out, ref->count, dtype, ref->op, NULL);
    case SL_ALL_GATHER:
        return made != NULL ? sluice_all_gather_init(comm, in, out, ref->count, dtype, made)
                            : sluice_all_gather(comm, in, out, ref->count, dtype, NULL);
    case SL_BROADCAST:
        return made != NULL ? sluice_broadcast_init(comm, in, out, ref->count, dtype, root, made)
                            : sluice_broadcast(comm, in, out, ref->count, dtype, root, NULL);
    default:
        return made != NULL ? sluice_all_to_all_init(comm, in, out, ref->count, dtype, made)
                            : sluice_all_to_all(comm, in, out, ref->count, dtype, NULL);
    }
}

static int is_right(const struct run *r, uint32_t rank, uint32_t round, const void *out)
{
    const unsigned char *got = out, *want = (const unsigned char *)wants[rank];
    size_t len = out_count(r) * esize(r);

    for (size_t i = 0; i < len; i++)
        if (got[i] != want[i])
            return sl_fail(-EBADMSG, "round %u: byte %zu of %zu is %02x, not %02x", round, i, len,
                           got[i], want[i]);
    return 0;
}

/* Another operation in its place, which goes on from what it has saved. */
static int resume(const struct run *r, struct sluice_comm *comm, const void *in, void *out,
                  struct sluice_operation **operation)
{
    size_t size = 0;
    int err = sluice_operation_save(*operation, NULL, &size);
    char *bytes = malloc(size + 1);

    sl_assert(bytes != NULL);
    err = err ?: sluice_operation_save(*operation, bytes + 1, &size);
    sluice_operation_free(*operation);
    *operation = NULL;
    err = err ?: call(r, comm, in, out, operation);
    err = err ?: sluice_operation_load(*operation, bytes + 1, size);
    free(bytes);
    return err;
}

static int run_rounds(struct place *p, struct sluice_comm *comm)
{
    struct run *r = p->run;
    struct sluice_operation *operation = NULL;
    bool blocks = r->ref.coll == SL_REDUCE_SCATTER || r->ref.coll == SL_ALL_TO_ALL;
    size_t in_len = r->ref.count * esize(r) * (blocks ? r->ranks : 1);
    const void *in;
    void *out;

    buffers(r, p->rank, &in, &out);
    int err = r->kept ? call(r, comm, in, out, &operation) : 0;

    for (uint32_t round = 0; round < r->rounds && err == 0; round++) {
        if (round > 0 && round == r->resumed)
            err = resume(r, comm, in, out, &operation);
        if (err != 0)
            break;
        expect(r, round, r->kept ? round + 1 : 2 * round + 1);
        memset(outs[p->rank], 0x5c, out_count(r) * esize(r));
        if (r->in_place)
            memcpy((void *)(uintptr_t)in, ins[p->rank], in_len);
        if (r->mode == ABORTS && p->rank == r->culprit)
            sluice_comm_abort(comm);
        err = r->kept ? sluice_start(operation, NULL) : call(r, comm, in, out, NULL);
        if (err == 0 && (r->mode != DIFFERS || p->rank != r->culprit))
            err = is_right(r, p->rank, round, out);
        p->started++;
        p->through = p->through || err == 0;
        /* The reference of the next round comes in place of this one's. */
        err = err ?: sluice_barrier(comm, NULL);
    }
    if (err != 0)
        snprintf(p->text, sizeof(p->text), "%s", sluice_last_error());
    sluice_operation_free(operation);
    return err;
}

static int check_report(const struct place *p, struct sluice_comm *comm)
{
    struct sluice_compression_report report;
    int err = sluice_comm_compression_report(comm, &report);

    if (err == 0 && report.calls != p->started)
        return sl_fail(-EBADMSG, "%" PRIu64 " calls were compressed, not %u", report.calls,
                       p->started);
    return err;
}

static uint32_t host_of(const struct run *r, uint32_t rank)
{
    return r->ref.dealt ? rank % r->ref.hosts : rank / (r->ranks / r->ref.hosts);
}

static void live(const struct sim_rank *rank)
{
    struct place *p = (struct place *)rank->all->arg + rank->number;
    struct sl_config config = p->run->config;
    struct sl_comm_params params = sim_comm_params(rank, p->run->seed, &config);
    bool other = p->run->mode == DIFFERS && p->rank == p->run->culprit;
    struct sluice_comm *comm = NULL;

    params.codec_name = sl_compression_name;
    snprintf(config.host_id, sizeof(config.host_id), "host%u", host_of(p->run, p->rank));
    p->result = sl_comm_create(rank->exchange, &params, &comm);
    p->result = p->result ?: sluice_comm_set_compression(comm, other ? NULL : p->run->setting);
    if (p->result == 0 && p->run->late && comm->coding != NULL)
        make_late(p, comm->coding);
    if (p->result == 0)
        p->result = run_rounds(p, comm);
    if (p->result == 0)
        p->result = check_report(p, comm);
    if (p->result != 0 && p->text[0] == '\0')
        snprintf(p->text, sizeof(p->text), "%s", sluice_last_error());
    sluice_comm_destroy(comm);
}

static bool judge(void *arg, uint32_t rank, char *why, size_t cap)
{
    const struct place *p = (const struct place *)arg + rank;
    const struct run *r = p->run;
    bool good = false;
    char culprit[32];

    snprintf(culprit, sizeof(culprit), "rank %u", r->culprit);
    switch (r->mode) {
    case WELL: good = p->result == 0; break;
    case DIFFERS:
        /* Who had all it needs of those that agree with it meets the others in its next call. */
        good = p->result == -EPROTO && strstr(p->text, "ranks disagree") != NULL &&
               (p->through ||
                (strstr(p->text, " by codec ") != NULL && strstr(p->text, culprit) != NULL));
        break;
    case CRASHES: good = p->result != -EBADMSG; break;
    case ABORTS: good = p->result == -ECANCELED && strstr(p->text, culprit) != NULL; break;
    }
    if (!good)
        snprintf(why, cap, "%s: rank %u ended with %d: %s", modes[r->mode], p->rank, p->result,
                 p->text);
    return good;
}

static bool run_seed(uint64_t seed, bool tell, bool trace, char *why, size_t cap)
{
    struct place *places = calloc(RANKS_MAX, sizeof(*places));
    struct run r;

    sl_assert(places != NULL);
    draw(&r, seed);
    coded_reference_init(&r.ref);
    r.params.trace = trace ? stdout : NULL;
    for (uint32_t i = 0; i < r.ranks; i++) {
        places[i].run = &r;
        places[i].rank = i;
    }
    const struct sim_ranks ranks = {&r.params, r.ranks, LIMIT_NS, live, judge, places};
    bool good = sim_ranks_run(&ranks, why, cap);

    for (uint32_t i = 0; i < r.ranks && tell; i++)
        printf("# rank %u: %d after %u starts: %s\n", i, places[i].result, places[i].started,
               places[i].text);
    if (tell)
        printf("# %s of %" PRIu64 " %s by %s, %u ranks on %u hosts, %s%s, %s\n",
               sl_coll_name(r.ref.coll), r.ref.count,
               sluice_dtype_name((enum sluice_dtype)r.ref.spec.dtype), r.setting, r.ranks,
               r.ref.hosts,
               r.resumed ? "resumed"
               : r.kept  ? "persistent"
                         : "calls",
               r.in_place ? ", in place" : "", modes[r.mode]);
    coded_reference_fini(&r.ref);
    if (good)
        free(places);
    return good;
}

int main(int argc, char **argv)
{
    static const struct seeds seeds = {"sim_coded", run_seed, NULL};

    return seeds_main(&seeds, argc, argv);
}
