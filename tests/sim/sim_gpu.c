/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on GPU memory, by the real engine in simulated networks and on an emulated GPU, whose
 * memory the processor is killed for touching: results are those of the plain reference, bit for
 * bit, and what fails says so.
 */
#include "collectives/comm.h"
#include "core/err.h"
#include "lib/compress.h"
#include "testing/sim/sim.h"
#include "tests/sim/coded_reference.h"
#include "tests/unit/compress/emulated_gpu.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS_MAX 4
#define ROUNDS 2 /* of the same elements */
#define LIMIT_NS (60 * SL_NS_PER_S)
#define IN_MAX ((size_t)4 * 9000)

/* What all ranks call. */
static struct job {
    struct coded_reference ref;
    char setting[64];
    bool kept, in_place;
    bool pairs;       /* two operations at once */
    bool moves;       /* ... the second on GPU 1 */
    bool swaps;       /* rank 0's second call is on memory of the other kind than its first */
    uint32_t on_host; /* bits of ranks whose memory is the host's */
    uint32_t timeout_ms;
    bool late;                /* the elements come on a stream, after the call */
    bool two_sides, two_gpus; /* of in and out */
    bool alone;               /* rank 1 calls, the others do not */
    unsigned aborts;          /* rank 1 gives up after so many looks; 0: it does not */
    void (*before)(uint32_t rank);
} job;

static struct sl_sim *sim;
static struct sl_exchange *exchanges[RANKS_MAX];
static float ins[RANKS_MAX][IN_MAX], wants[ROUNDS][RANKS_MAX][IN_MAX];
static int results[RANKS_MAX];
static char whys[RANKS_MAX][512];

static size_t esize(void)
{
    return job.ref.spec.dtype == SLUICE_F32 ? 4 : 2;
}

static size_t in_len(void)
{
    bool blocks = job.ref.coll == SL_REDUCE_SCATTER || job.ref.coll == SL_ALL_TO_ALL;

    return job.ref.count * esize() * (blocks ? job.ref.ranks : 1);
}

static size_t out_len(void)
{
    bool blocks = job.ref.coll == SL_ALL_GATHER || job.ref.coll == SL_ALL_TO_ALL;

    return job.ref.count * esize() * (blocks ? job.ref.ranks : 1);
}

static void fill(uint32_t rank, uint64_t seed)
{
    struct sl_rng rng;

    sl_rng_init(&rng, seed * 10 + rank);
    for (size_t i = 0; i < in_len() / esize(); i++) {
        float x = (float)((int)sl_rng_below(&rng, 2001) - 1000) / (float)(1 << (i / 256 % 9));
        uint32_t word;

        memcpy(&word, &x, sizeof(word));
        if (job.ref.spec.dtype == SLUICE_F32)
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
    return job.two_sides  ? calloc(1, out_len())
           : job.two_gpus ? emulated_gpu_alloc(1, out_len())
                          : take(p, out_len());
}

static void take_place(struct place *p, uint32_t rank, unsigned round)
{
    size_t block = job.ref.count * esize() * rank;

    p->on_host = (job.on_host >> rank & 1) != 0;
    if (job.swaps && rank == 0 && round != 0)
        p->on_host = !p->on_host;
    p->both = job.in_place ? take(p, in_len() > out_len() ? in_len() : out_len()) : NULL;
    p->in =
        job.in_place ? p->both + (job.ref.coll == SL_ALL_GATHER ? block : 0) : take(p, in_len());
    p->out = job.in_place ? p->both + (job.ref.coll == SL_REDUCE_SCATTER ? block : 0) : take_out(p);
}

static void put_place_back(struct place *p)
{
    put_back(p, p->both);
    if (p->both != NULL)
        return;
    put_back(p, p->in);
    if (job.two_sides)
        free(p->out);
    else
        put_back(p, p->out);
}

static int call(struct sluice_comm *comm, const struct place *p, struct sluice_operation **made)
{
    const struct coded_reference *ref = &job.ref;
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
    else if (job.late)
        emulated_gpu_copy_later(stream, p->in, ins[rank], in_len());
    else
        emulated_gpu_put(p->in, ins[rank], in_len());
}

/* Gives up with kernels under way. */
static int start_and_abort(struct sluice_comm *comm, const struct place *p)
{
    struct sluice_req *req;
    int err = sluice_allreduce(comm, p->in, p->out, job.ref.count, SLUICE_F32, SLUICE_SUM, &req);

    for (unsigned i = 0; err == 0 && i < job.aborts; i++)
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
    int err = 0;

    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        struct place p = {.gpu = 0};

        take_place(&p, rank, round);
        give_elements(&p, rank, stream);
        err = job.aborts != 0 && rank == 1 ? start_and_abort(comm, &p) : call(comm, &p, NULL);
        err = err ?: is_right(&p, rank, round);
        put_place_back(&p);
    }
    return err;
}

/* Two operations, both of which the runner has at once; in the second round the other way round. */
static int run_pairs(struct sluice_comm *comm, uint32_t rank)
{
    struct sluice_operation *operations[2] = {NULL, NULL};
    struct place places[2];
    int err = 0;

    for (unsigned i = 0; i < 2; i++) {
        places[i].gpu = job.moves ? i : 0;
        take_place(&places[i], rank, 0);
        err = err ?: call(comm, &places[i], &operations[i]);
    }
    for (unsigned round = 0; round < ROUNDS && err == 0; round++) {
        struct sluice_req *reqs[2] = {NULL, NULL};

        for (unsigned i = 0; i < 2; i++) {
            give_elements(&places[i ^ round], rank, NULL);
            err = err ?: sluice_start(operations[i ^ round], &reqs[i]);
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
    void *stream = job.late && rank != 0 ? emulated_gpu_stream() : NULL; /* rank 0: the default */
    int err = stream != NULL ? sluice_comm_set_stream(comm, stream) : 0;

    if (job.before != NULL)
        job.before(rank);
    err = err
              ?: job.pairs ? run_pairs(comm, rank)
             : job.kept    ? run_kept(comm, rank, stream)
                           : run_calls(comm, rank, stream);
    snprintf(whys[rank], sizeof(whys[rank]), "%s", err != 0 ? sluice_last_error() : "");
    emulated_gpu_stream_end(stream);
    return err;
}

static void live(void *arg)
{
    static struct sl_transport_ops complete;
    uint32_t rank = (uint32_t)(uintptr_t)arg;
    struct sl_comm_transport transport = {.ops = sl_transport_complete(&sl_sim_ops, &complete)};
    struct sl_config config;
    struct sl_comm_params params = {
        .config = &config,
        .clock = sl_sim_clock(sim),
        .seed = rank,
        .idle = sl_sim_idle,
        .idle_arg = sl_sim_idle_arg(sim, rank),
        .transports = &transport,
        .transport_count = 1,
        .codec_name = sl_compression_name,
    };
    struct sluice_comm *comm = NULL;

    sl_config_defaults(&config);
    config.status_signal = SL_OFF;
    config.tune = SL_TUNE_OFF;
    config.chunk_bytes = 4096; /* a tile or two a piece */
    config.timeout_ms = 400;
    results[rank] = sl_comm_create(exchanges[rank], &params, &comm);
    results[rank] = results[rank] ?: sluice_comm_set_compression(comm, job.setting);
    if (!job.alone || rank == 1)
        results[rank] = results[rank] ?: run_rank(comm, rank);
    sluice_comm_destroy(comm);
}

static void run_ranks(uint64_t seed)
{
    struct sl_sim_meeting *meeting;
    struct sl_sim_params params;

    sl_sim_params_init(&params, job.ref.ranks, seed);
    assert_int_equal(sl_sim_create(&params, &sim), 0);
    assert_int_equal(sl_sim_meeting_create(sim, job.ref.ranks, 2 * SL_NS_PER_S, &meeting), 0);
    for (uint32_t i = 0; i < job.ref.ranks; i++) {
        exchanges[i] = sl_sim_meeting_exchange(meeting, i, i);
        assert_int_equal(sl_sim_spawn(sim, i, live, (void *)(uintptr_t)i), 0);
    }
    if (sl_sim_run(sim, LIMIT_NS) != 0)
        fail_msg("%s", sluice_last_error());
    sl_sim_meeting_destroy(meeting);
    sl_sim_destroy(sim);
    if (emulated_gpu_misuse() != NULL)
        fail_msg("%s", emulated_gpu_misuse());
    assert_int_equal(emulated_gpu_live(), 0);
}

/* Runs it, with the plain reference beside it. */
static void run_job(uint64_t seed)
{
    const void *in[RANKS_MAX];
    void *want[RANKS_MAX];

    emulated_gpu_use(seed);
    coded_reference_init(&job.ref);
    for (uint32_t i = 0; i < job.ref.ranks; i++) {
        fill(i, seed);
        in[i] = ins[i];
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < job.ref.ranks; i++)
            want[i] = wants[round][i];
        coded_reference_run(&job.ref, round + 1, in, want);
    }
    coded_reference_fini(&job.ref);
    run_ranks(seed);
}

/* An allreduce of three ranks by bq8. */
static void usual(void)
{
    job = (struct job){.setting = "bq8:min=1"};
    assert_int_equal(sl_codec_parse("bq8", &job.ref.spec), 0);
    job.ref.coll = SL_ALLREDUCE;
    job.ref.op = SLUICE_SUM;
    job.ref.ranks = 3;
    job.ref.hosts = 1;
    job.ref.count = 3 * SL_TILE + 77;
}

static void assert_all_well(const char *what)
{
    for (uint32_t i = 0; i < job.ref.ranks; i++)
        if (results[i] != 0)
            fail_msg("%s: rank %u ended with %d: %s", what, i, results[i], whys[i]);
}

/* ---- cases ---- */

static void draw(struct sl_rng *rng)
{
    static const char *const codecs[] = {"bq8",  "bq4",  "bq4:stochastic=on,seed=7", "e4m3", "bf16",
                                         "sign", "mxfp4"};
    static const enum sl_coll colls[] = {SL_ALLREDUCE,  SL_ALLREDUCE, SL_REDUCE_SCATTER,
                                         SL_ALL_GATHER, SL_BROADCAST, SL_ALL_TO_ALL};
    static const enum sluice_dtype dtypes[] = {SLUICE_F32, SLUICE_F32, SLUICE_BF16, SLUICE_F16};
    const char *codec = codecs[sl_rng_below(rng, SL_ARRAY_LEN(codecs))];

    usual();
    assert_int_equal(sl_codec_parse(codec, &job.ref.spec), 0);
    job.ref.coll = colls[sl_rng_below(rng, SL_ARRAY_LEN(colls))];
    job.ref.spec.dtype = (uint8_t)dtypes[sl_rng_below(rng, SL_ARRAY_LEN(dtypes))];
    job.ref.op = sl_rng_chance(rng, 2) ? SLUICE_AVG : SLUICE_SUM;
    job.ref.ranks = (uint32_t)sl_rng_range(rng, 2, RANKS_MAX);
    job.ref.root = (uint32_t)sl_rng_below(rng, job.ref.ranks);
    job.ref.count = sl_rng_range(rng, 1, 9000);
    if (job.ref.coll != SL_ALLREDUCE && job.ref.coll != SL_BROADCAST)
        job.ref.count = job.ref.count / job.ref.ranks + 1;
    job.in_place = sl_rng_chance(rng, 3);
    job.kept = job.ref.coll == SL_ALLREDUCE && sl_rng_chance(rng, 2);
    job.ref.feedback = job.kept && sl_rng_chance(rng, 2);
    snprintf(job.setting, sizeof(job.setting), "%s%cmin=1%s", codec,
             strchr(codec, ':') != NULL ? ',' : ':', job.ref.feedback ? ",feedback=on" : "");
    job.on_host = sl_rng_chance(rng, 3) ? 1u << sl_rng_below(rng, job.ref.ranks) : 0;
    job.late = sl_rng_chance(rng, 3);
    job.swaps = !job.kept && sl_rng_chance(rng, 3);
}

static void results_are_those_of_the_processor_whatever_the_call(void **state)
{
    struct sl_rng rng;
    char what[160];

    (void)state;
    sl_rng_init(&rng, 14);
    for (uint64_t seed = 1; seed <= 80; seed++) {
        draw(&rng);
        snprintf(what, sizeof(what), "seed %u: %s of %u %s by %s, %u ranks%s%s%s%s", (unsigned)seed,
                 sl_coll_name(job.ref.coll), (unsigned)job.ref.count,
                 sluice_dtype_name((enum sluice_dtype)job.ref.spec.dtype), job.setting,
                 job.ref.ranks, job.in_place ? ", in place" : "", job.kept ? ", kept" : "",
                 job.on_host != 0 ? ", one on the host" : "", job.late ? ", late" : "");
        run_job(seed);
        assert_all_well(what);
        assert_true(emulated_gpu_kernels() != 0);
    }
}

static void operations_that_overlap_are_right_each(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        usual();
        assert_int_equal(sl_codec_parse("bq4:stochastic=on,seed=9", &job.ref.spec), 0);
        snprintf(job.setting, sizeof(job.setting), "bq4:stochastic=on,seed=9,min=1,feedback=on");
        job.ref.feedback = true;
        job.pairs = true;
        run_job(seed);
        assert_all_well("two operations");
    }
}

/* The rank that something goes wrong on is 1. */
static void assert_ends(int result, const char *word)
{
    if (results[1] != result || strstr(whys[1], word) == NULL)
        fail_msg("rank 1 ended with %d: %s", results[1], whys[1]);
    for (uint32_t i = 0; i < job.ref.ranks; i++)
        if (i != 1 && (results[i] == 0 || results[i] == -EBADMSG))
            fail_msg("rank %u ended with %d: %s", i, results[i], whys[i]);
}

static void fail_a_kernel(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("kernel", 3, 700);
}

static void a_kernel_that_fails_ends_the_call_on_all_ranks(void **state)
{
    unsigned failed = 0;

    (void)state;
    usual();
    job.before = fail_a_kernel;
    run_job(1);
    /* One GPU is all ranks': whoever asks first is told, the others then, too, or by the first. */
    for (uint32_t i = 0; i < job.ref.ranks; i++) {
        assert_true(results[i] != 0 && results[i] != -EBADMSG);
        failed += strstr(whys[i], "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL;
    }
    assert_true(failed != 0);
}

static void refuse_a_launch(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuLaunchKernel", 1, 700);
}

static void a_kernel_that_cannot_be_started_is_named_with_its_step(void **state)
{
    (void)state;
    usual();
    job.on_host = 5; /* the driver is rank 1's alone */
    job.before = refuse_a_launch;
    run_job(2);
    assert_ends(-EIO, "by codec");
    assert_non_null(strstr(whys[1], "cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_non_null(strstr(whys[0], "rank 1"));
}

static void refuse_an_event(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuEventQuery", 2, 700);
}

static void a_context_that_is_lost_ends_the_call(void **state)
{
    (void)state;
    usual();
    job.on_host = 5;
    job.before = refuse_an_event;
    run_job(3);
    assert_ends(-EIO, "a codec's kernel on the GPU failed: CUDA_ERROR_ILLEGAL_ADDRESS");
}

static void refuse_memory(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuMemAlloc", 1, 2);
}

static void refuse_pinned_memory(uint32_t rank)
{
    if (rank == 1)
        emulated_gpu_fail("cuMemHostAlloc", 1, 2);
}

static void a_gpu_without_memory_refuses_the_call(void **state)
{
    (void)state;
    usual();
    job.on_host = 5;
    job.before = refuse_memory;
    run_job(4);
    assert_ends(-ENOMEM, "no memory on GPU 0 for");
    job.before = refuse_pinned_memory;
    run_job(5);
    assert_ends(-ENOMEM, "no pinned memory for");
}

static void a_call_that_is_aborted_leaves_no_kernel_behind(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        usual();
        job.on_host = 5;
        job.aborts = 4 + 3 * seed;
        run_job(seed); /* it looks for kernels that touch memory later */
        assert_ends(-ECANCELED, "rank");
    }
}

/* A call that rank 1's library refuses, of which others see nothing. */
static void refused(int result, const char *word)
{
    job.alone = true;
    run_job(1);
    if (results[1] != result || strstr(whys[1], word) == NULL)
        fail_msg("%s: %d: %s", job.setting, results[1], whys[1]);
}

static void what_a_gpu_cannot_do_is_refused_in_a_sentence(void **state)
{
    (void)state;
    usual();
    snprintf(job.setting, sizeof(job.setting), "bq8:min=1M");
    refused(-ENOTSUP, "goes by no codec: switch compression on, with min=0");
    snprintf(job.setting, sizeof(job.setting), "topk:k=41,min=1");
    refused(-ENOTSUP, "topk does not work on GPU memory: these do: bf16, fp16, bq8, ");
    snprintf(job.setting, sizeof(job.setting), "bq8:rotated=on,min=1");
    refused(-ENOTSUP, "bq8 with rotated=on does not work on GPU memory");
    snprintf(job.setting, sizeof(job.setting), "bq8:measure=on,min=1");
    refused(-ENOTSUP, "bq8 with measure=on");
    usual();
    job.setting[0] = '\0'; /* never switched on */
    refused(-ENOTSUP, "goes by no codec: switch compression on");
    usual();
    job.ref.op = SLUICE_MAX;
    refused(-ENOTSUP, "allreduce of 12365 f32 is on GPU memory");
    usual();
    job.two_sides = true;
    refused(-EINVAL, "allreduce: the input buffer is GPU memory, and the other is not");
    usual();
    job.two_gpus = true;
    refused(-EINVAL, "the input is memory of GPU 0, the output of GPU 1");
}

/* A second operation is on another GPU than the first. */
static void a_communicator_compresses_on_one_gpu(void **state)
{
    (void)state;
    usual();
    job.pairs = job.moves = true;
    refused(-ENOTSUP, "a communicator compresses on one GPU, and GPU 1 is not");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_processor_whatever_the_call),
        cmocka_unit_test(operations_that_overlap_are_right_each),
        cmocka_unit_test(a_kernel_that_fails_ends_the_call_on_all_ranks),
        cmocka_unit_test(a_kernel_that_cannot_be_started_is_named_with_its_step),
        cmocka_unit_test(a_context_that_is_lost_ends_the_call),
        cmocka_unit_test(a_gpu_without_memory_refuses_the_call),
        cmocka_unit_test(a_call_that_is_aborted_leaves_no_kernel_behind),
        cmocka_unit_test(what_a_gpu_cannot_do_is_refused_in_a_sentence),
        cmocka_unit_test(a_communicator_compresses_on_one_gpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
