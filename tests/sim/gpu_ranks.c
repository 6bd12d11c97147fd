/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/gpu_ranks.h"

#include "core/err.h"
#include "lib/compress.h"
#include "tests/sim/ranks.h"
#include "tests/unit/compress/emulated_gpu.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ROUNDS 2
#define LIMIT_NS (60 * SL_NS_PER_S)
#define IN_MAX ((size_t)4 * 9000)

struct gpu_job gpu_job;
int gpu_results[GPU_RANKS_MAX];
char gpu_whys[GPU_RANKS_MAX][512];
unsigned gpu_launched;

static float ins[GPU_RANKS_MAX][IN_MAX], wants[ROUNDS][GPU_RANKS_MAX][IN_MAX];

static size_t esize(void)
{
    return gpu_job.ref.spec.dtype == SLUICE_F32 ? 4 : 2;
}

static size_t in_len(void)
{
    bool blocks = gpu_job.ref.coll == SL_REDUCE_SCATTER || gpu_job.ref.coll == SL_ALL_TO_ALL;

    return gpu_job.ref.count * esize() * (blocks ? gpu_job.ref.ranks : 1);
}

static size_t out_len(void)
{
    bool blocks = gpu_job.ref.coll == SL_ALL_GATHER || gpu_job.ref.coll == SL_ALL_TO_ALL;

    return gpu_job.ref.count * esize() * (blocks ? gpu_job.ref.ranks : 1);
}

static void fill(uint32_t rank, uint64_t seed)
{
    struct sl_rng rng;

    sl_rng_init(&rng, seed * 10 + rank);
    for (size_t i = 0; i < in_len() / esize(); i++) {
        float x = (float)((int)sl_rng_below(&rng, 2001) - 1000) / (float)(1 << (i / 256 % 9));
        uint32_t word;

        memcpy(&word, &x, sizeof(word));
        if (gpu_job.ref.spec.dtype == SLUICE_F32)
            ins[rank][i] = x;
        else /* finite ones of either type */
            ((uint16_t *)ins[rank])[i] = (uint16_t)(word >> 16 & 0xbbff);
    }
}

/* ---- a rank ---- */

struct place {
    bool on_host;
    unsigned gpu;
    char *in, *out, *both; /* both: the allocation of what lies in place */
};

static void *take(const struct place *p, size_t len)
{
    void *at = p->on_host ? calloc(1, len) : emulated_gpu_alloc(p->gpu, len);

    sl_assert(at != NULL);
    return at;
}

static void put_back(const struct place *p, void *at)
{
    if (p->on_host)
        free(at);
    else if (at != NULL)
        emulated_gpu_free(at);
}

/* Not of a place in place. */
static void *take_out(const struct place *p)
{
    return gpu_job.two_sides  ? calloc(1, out_len())
           : gpu_job.two_gpus ? emulated_gpu_alloc(1, out_len())
                              : take(p, out_len());
}

static void take_place(struct place *p, uint32_t rank, unsigned round)
{
    size_t block = gpu_job.ref.count * esize() * rank;

    p->on_host = (gpu_job.on_host >> rank & 1) != 0;
    if (gpu_job.swaps && rank == 0 && round != 0)
        p->on_host = !p->on_host;
    p->both = gpu_job.in_place ? take(p, in_len() > out_len() ? in_len() : out_len()) : NULL;
    p->in = gpu_job.in_place ? p->both + (gpu_job.ref.coll == SL_ALL_GATHER ? block : 0)
                             : take(p, in_len());
    p->out = gpu_job.in_place ? p->both + (gpu_job.ref.coll == SL_REDUCE_SCATTER ? block : 0)
                              : take_out(p);
}

static void put_place_back(struct place *p)
{
    put_back(p, p->both);
    if (p->both != NULL)
        return;
    put_back(p, p->in);
    if (gpu_job.two_sides)
        free(p->out);
    else
        put_back(p, p->out);
}

static int call(struct sluice_comm *comm, const struct place *p, struct sluice_operation **made)
{
    const struct coded_reference *ref = &gpu_job.ref;
    enum sluice_dtype dtype = (enum sluice_dtype)ref->spec.dtype;
    int root = (int)ref->root;

    switch (ref->coll) {
    case SL_ALLREDUCE:
        return made != NULL
                   ? sluice_allreduce_init(comm, p->in, p->out, ref->count, dtype, ref->op, made)
                   : sluice_allreduce(comm, p->in, p->out, ref->count, dtype, ref->op, NULL);
    case SL_REDUCE_SCATTER:
        return sluice_reduce_scatter(comm, p->in, p->out, ref->count, dtype, ref->op, NULL);
    case SL_ALL_GATHER: return sluice_all_gather(comm, p->in, p->out, ref->count, dtype, NULL);
    case SL_BROADCAST: return sluice_broadcast(comm, p->in, p->out, ref->count, dtype, root, NULL);
    default: return sluice_all_to_all(comm, p->in, p->out, ref->count, dtype, NULL);
    }
}

static int is_right(const struct place *p, uint32_t rank, unsigned round)
{
    const unsigned char *want = (const unsigned char *)wants[round][rank];
    unsigned char *got = malloc(out_len());
    int err = 0;

    if (p->on_host)
        memcpy(got, p->out, out_len());
    else
        emulated_gpu_get(got, p->out, out_len());
    for (size_t i = 0; i < out_len() && err == 0; i++)
        if (got[i] != want[i])
            err = sl_fail(-EBADMSG, "round %u: byte %zu of %zu is %02x, not %02x", round, i,
                          out_len(), got[i], want[i]);
    free(got);
    return err;
}

/* The elements: there, or on a stream that has not come to them. */
static void give_elements(const struct place *p, uint32_t rank, void *stream)
{
    if (p->on_host)
        memcpy(p->in, ins[rank], in_len());
    else if (gpu_job.late)
        emulated_gpu_copy_later(stream, p->in, ins[rank], in_len());
    else
        emulated_gpu_put(p->in, ins[rank], in_len());
}

/* Gives up with kernels under way. */
static int start_and_abort(struct sluice_comm *comm, const struct place *p)
{
    unsigned before = emulated_gpu_launched();
    struct sluice_req *req;
    int err =
        sluice_allreduce(comm, p->in, p->out, gpu_job.ref.count, SLUICE_F32, SLUICE_SUM, &req);

    gpu_launched = emulated_gpu_launched() - before;
    for (unsigned i = 0; err == 0 && i < gpu_job.aborts; i++)
        err = sluice_test(req);
    if (err != 0)
        return err;
    sluice_comm_abort(comm);
    err = sluice_wait(req);
    sluice_req_free(req);
    return err;
}

static int run_kept(struct sluice_comm *comm, uint32_t rank, void *stream)
{
    struct sluice_operation *operation = NULL;
    struct place p = {.gpu = 0};
    int err;

    take_place(&p, rank, 0);
    err = call(comm, &p, &operation);
    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        give_elements(&p, rank, stream);
        err = sluice_start(operation, NULL);
        err = err ?: is_right(&p, rank, round);
    }
    sluice_operation_free(operation);
    put_place_back(&p);
    return err;
}

static int run_calls(struct sluice_comm *comm, uint32_t rank, void *stream)
{
    struct place p = {.gpu = 0};
    int err = 0;

    take_place(&p, rank, 0);
    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        if (gpu_job.swaps && round != 0) {
            put_place_back(&p);
            take_place(&p, rank, round);
        }
        give_elements(&p, rank, stream);
        err = gpu_job.aborts != 0 && rank == 1 ? start_and_abort(comm, &p) : call(comm, &p, NULL);
        err = err ?: is_right(&p, rank, round);
    }
    put_place_back(&p);
    return err;
}

/* Two operations, both of which the runner has at once; in the second round the other way round. */
static int run_pairs(struct sluice_comm *comm, uint32_t rank)
{
    struct sluice_operation *operations[2] = {NULL, NULL};
    struct place places[2];
    int err = 0;

    for (unsigned i = 0; i < 2; i++) {
        places[i].gpu = gpu_job.moves ? i : 0;
        take_place(&places[i], rank, 0);
        err = err ?: call(comm, &places[i], &operations[i]);
    }
    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        struct sluice_req *reqs[2] = {NULL, NULL};

        for (unsigned i = 0; i < 2; i++) {
            unsigned before = emulated_gpu_launched();

            give_elements(&places[i ^ round], rank, NULL);
            err = err ?: sluice_start(operations[i ^ round], &reqs[i]);
            if (rank == 1 && round == 0 && i == 0)
                gpu_launched = emulated_gpu_launched() - before;
        }
        for (unsigned i = 0; i < 2; i++)
            err = err ?: sluice_wait(reqs[1 - i]);
        for (unsigned i = 0; i < 2; i++)
            err = err ?: is_right(&places[i], rank, round);
    }
    for (unsigned i = 0; i < 2; i++) {
        sluice_operation_free(operations[i]);
        put_place_back(&places[i]);
    }
    return err;
}

static int run_rank(struct sluice_comm *comm, uint32_t rank)
{
    void *stream =
        gpu_job.late && rank != 0 ? emulated_gpu_stream() : NULL; /* rank 0: the default */
    int err = stream != NULL ? sluice_comm_set_stream(comm, stream) : 0;

    if (gpu_job.before != NULL)
        gpu_job.before(rank);
    err = err
              ?: gpu_job.pairs ? run_pairs(comm, rank)
             : gpu_job.kept    ? run_kept(comm, rank, stream)
                               : run_calls(comm, rank, stream);
    snprintf(gpu_whys[rank], sizeof(gpu_whys[rank]), "%s", err != 0 ? sluice_last_error() : "");
    emulated_gpu_stream_end(stream);
    return err;
}

static void live(const struct sim_rank *self)
{
    uint32_t rank = self->number;
    struct sluice_comm *comm = NULL;
    struct sl_config config;

    sl_config_defaults(&config);
    config.status_signal = SL_OFF;
    config.tune = SL_TUNE_OFF;
    config.chunk_bytes = 4096; /* a tile or two a piece */
    config.timeout_ms = 400;
    snprintf(config.host_id, sizeof(config.host_id), "host%u", gpu_job.many_hosts ? rank % 2 : 0);
    struct sl_comm_params params = sim_comm_params(self, 0, &config);

    params.codec_name = sl_compression_name;
    gpu_results[rank] = sl_comm_create(self->exchange, &params, &comm);
    gpu_results[rank] = gpu_results[rank] ?: sluice_comm_set_compression(comm, gpu_job.setting);
    if (!gpu_job.alone || rank == 1)
        gpu_results[rank] = gpu_results[rank] ?: run_rank(comm, rank);
    sluice_comm_destroy(comm);
}

/* By the case. */
static bool any_will_do(void *arg, uint32_t rank, char *why, size_t cap)
{
    return true;
}

static void expect(uint64_t seed)
{
    const void *in[GPU_RANKS_MAX];
    void *want[GPU_RANKS_MAX];

    coded_reference_init(&gpu_job.ref);
    for (uint32_t i = 0; i < gpu_job.ref.ranks; i++) {
        fill(i, seed);
        in[i] = ins[i];
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < gpu_job.ref.ranks; i++)
            want[i] = wants[round][i];
        coded_reference_run(&gpu_job.ref, round + 1, in, want);
    }
    coded_reference_fini(&gpu_job.ref);
}

void gpu_job_run(uint64_t seed)
{
    struct sl_sim_params params;
    struct sim_ranks ranks = {.params = &params,
                              .count = gpu_job.ref.ranks,
                              .limit_ns = LIMIT_NS,
                              .live = live,
                              .judge = any_will_do};
    char why[512];

    emulated_gpu_use(seed);
    expect(seed);
    sl_sim_params_init(&params, gpu_job.ref.ranks, seed);
    if (!sim_ranks_run(&ranks, why, sizeof(why)))
        fail_msg("%s", why);
    if (emulated_gpu_misuse() != NULL)
        fail_msg("%s", emulated_gpu_misuse());
    assert_int_equal(emulated_gpu_live(), 0);
}
