/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Laws of compressed collectives, by the real engine in simulated networks: the error of a result
 * is that of as many encodings as its recipe has, whatever the number of ranks is. One encoding
 * more than that fails here.
 */
#include "collectives/comm.h"
#include "core/err.h"
#include "lib/compress.h"
#include "tests/sim/ranks.h"

#include "compress/codec.h"
#include "compress/elements.h"
#include "compress/shiq.h"

#include <sluice/compress.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS_MAX 64
#define LIMIT_NS (60 * SL_NS_PER_S)

/* What all ranks call. */
static struct {
    enum sl_coll coll;
    uint32_t ranks, hosts;
    size_t count; /* as of the call */
    char setting[64];
    const char *codec; /* of it */
} job;

static float *ins[RANKS_MAX], *outs[RANKS_MAX];
static int results[RANKS_MAX];

static bool has_blocks(void)
{
    return job.coll == SL_REDUCE_SCATTER;
}

static size_t in_count(void)
{
    return job.count * (has_blocks() ? job.ranks : 1);
}

static size_t out_count(void)
{
    return job.count * (job.coll == SL_ALL_GATHER ? job.ranks : 1);
}

static void fill_gaussian(float *out, size_t count, uint64_t seed)
{
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    for (size_t i = 0; i < count; i++) {
        double u = (double)(sl_rng_u64(&rng) >> 11) * 0x1p-53, v = (double)(sl_rng_u64(&rng) >> 11);

        out[i] = (float)(sqrt(-2 * log(1 - u)) * cos(v * 0x1p-53 * 6.283185307179586));
    }
}

static int call(struct sluice_comm *comm, uint32_t rank)
{
    switch (job.coll) {
    case SL_ALLREDUCE:
        return sluice_allreduce(comm, ins[rank], outs[rank], job.count, SLUICE_F32, SLUICE_SUM,
                                NULL);
    case SL_REDUCE_SCATTER:
        return sluice_reduce_scatter(comm, ins[rank], outs[rank], job.count, SLUICE_F32, SLUICE_AVG,
                                     NULL);
    case SL_ALL_GATHER:
        return sluice_all_gather(comm, ins[rank], outs[rank], job.count, SLUICE_F32, NULL);
    default: return sluice_broadcast(comm, ins[rank], outs[rank], job.count, SLUICE_F32, 0, NULL);
    }
}

static void live(const struct sim_rank *self)
{
    uint32_t rank = self->number;
    struct sluice_comm *comm = NULL;
    struct sl_config config;

    sl_config_defaults(&config);
    config.status_signal = SL_OFF;
    config.tune = SL_TUNE_OFF;
    snprintf(config.host_id, sizeof(config.host_id), "host%u", rank % job.hosts);
    struct sl_comm_params params = sim_comm_params(self, 0, &config);

    results[rank] = sl_comm_create(self->exchange, &params, &comm);
    results[rank] = results[rank] ?: sluice_comm_set_compression(comm, job.setting);
    results[rank] = results[rank] ?: call(comm, rank);
    sluice_comm_destroy(comm);
}

static bool has_ended_well(void *arg, uint32_t rank, char *why, size_t cap)
{
    snprintf(why, cap, "rank %u ended with %d", rank, results[rank]);
    return results[rank] == 0;
}

static void run_ranks(void)
{
    struct sl_sim_params params;
    const struct sim_ranks ranks = {&params, job.ranks, LIMIT_NS, live, has_ended_well, NULL};
    char why[256];

    sl_sim_params_init(&params, job.ranks, 1);
    if (!sim_ranks_run(&ranks, why, sizeof(why)))
        fail_msg("%s", why);
}

/* What element i of rank's result is without a codec. */
static double exact(uint32_t rank, size_t i)
{
    double sum = 0;

    if (job.coll == SL_ALL_GATHER)
        return (double)ins[i / job.count][i % job.count];
    if (job.coll == SL_BROADCAST)
        return (double)ins[0][i];
    for (uint32_t r = 0; r < job.ranks; r++)
        sum += (double)ins[r][i + (has_blocks() ? rank * job.count : 0)];
    return has_blocks() ? sum / job.ranks : sum;
}

/* Mean square of what the results lack, over that of what they should be. */
static double error_of_results(void)
{
    double power = 0, error = 0;

    for (uint32_t r = 0; r < job.ranks; r += has_blocks() ? 1 : job.ranks) {
        for (size_t i = 0; i < out_count(); i++) {
            double want = exact(r, i), lacks = (double)outs[r][i] - want;

            power += want * want;
            error += lacks * lacks;
        }
    }
    return error / power;
}

/* The scales that all ranks share for an allreduce by shared-scale integers. */
static void shared_scales(const struct sl_codec_spec *spec, uint32_t *scales)
{
    size_t blocks = sl_shiq_scale_count(job.count);
    uint32_t *own = calloc(blocks, sizeof(*own));

    memset(scales, 0, blocks * sizeof(*scales));
    for (uint32_t r = 0; r < job.ranks; r++) {
        sl_shiq_scales(spec, ins[r], job.count, own);
        for (size_t b = 0; b < blocks; b++)
            scales[b] = own[b] > scales[b] ? own[b] : scales[b];
    }
    free(own);
}

/* Mean square of what the sums lack, over that of as many roundings as there are ranks, each to the
 * nearest multiple of the shared scale. */
static double error_in_roundings(void)
{
    uint32_t *scales = calloc(sl_shiq_scale_count(job.count), sizeof(*scales));
    struct sl_codec_spec spec;
    double roundings = 0, error = 0;

    assert_int_equal(sl_codec_parse(job.codec, &spec), 0);
    spec.ranks = job.ranks;
    shared_scales(&spec, scales);
    for (size_t i = 0; i < job.count; i++) {
        double step = (double)sl_f32_of(scales[i / SL_SHIQ_BLOCK]);
        double lacks = (double)outs[0][i] - exact(0, i);

        roundings += job.ranks * step * step / 12;
        error += lacks * lacks;
    }
    free(scales);
    return error / roundings;
}

static double (*measure)(void) = error_of_results;

static double run(enum sl_coll coll, uint32_t ranks, uint32_t hosts, const char *setting)
{
    job.coll = coll;
    job.ranks = ranks;
    job.hosts = hosts;
    job.count = coll == SL_ALLREDUCE || coll == SL_BROADCAST ? (size_t)ranks * SL_TILE : SL_TILE;
    job.codec = setting;
    snprintf(job.setting, sizeof(job.setting), "%s%cwhen=always,min=1", setting,
             strchr(setting, ':') != NULL ? ',' : ':');
    for (uint32_t r = 0; r < ranks; r++) {
        ins[r] = calloc(in_count(), sizeof(float));
        outs[r] = calloc(out_count(), sizeof(float));
        fill_gaussian(ins[r], in_count(), r + 1);
    }
    run_ranks();
    double error = measure();

    for (uint32_t r = 1; r < ranks && !has_blocks(); r++)
        assert_memory_equal(outs[0], outs[r], out_count() * sizeof(float));
    for (uint32_t r = 0; r < ranks; r++) {
        free(ins[r]);
        free(outs[r]);
    }
    return error;
}

/* Of one encoding, by the codec alone. */
static double error_of_one(const char *text)
{
    static float in[64 * SL_TILE], out[SL_TILE];
    static _Alignas(64) unsigned char wire[8 * SL_TILE];
    const struct sl_codec_at at = {0};
    struct sl_codec_spec spec;
    double power = 0, error = 0;

    assert_int_equal(sl_codec_parse(text, &spec), 0);
    const struct sl_codec *codec = sl_codec_by_id(spec.id);

    fill_gaussian(in, 64 * SL_TILE, 99);
    for (size_t tile = 0; tile < 64; tile++) {
        const float *from = in + tile * SL_TILE;
        size_t len = codec->encode(&spec, &at, from, SL_TILE, wire);

        assert_int_equal(codec->decode(&spec, &at, wire, len, SL_TILE, out), 0);
        for (size_t i = 0; i < SL_TILE; i++) {
            power += (double)from[i] * from[i];
            error += ((double)out[i] - from[i]) * ((double)out[i] - from[i]);
        }
    }
    return error / power;
}

/* Errors of encodings add up, as they are independent. */
static void check(enum sl_coll coll, uint32_t ranks, uint32_t hosts, const char *setting,
                  double eps, double wanted)
{
    double error = run(coll, ranks, hosts, setting), encodings = error / eps;
    char what[64];

    snprintf(what, sizeof(what), "%s by %s%s", sl_coll_name(coll), setting,
             hosts > 1 ? " on hosts" : "");
    printf("# %-44s %2u ranks: %.3e, of %.2f encodings\n", what, ranks, error, encodings);
    if (encodings < wanted * 0.93 || encodings > wanted * 1.07)
        fail_msg("%s of %u ranks: %.3e is the error of %.2f encodings, not of %.2f", what, ranks,
                 error, encodings, wanted);
}

static void an_allreduce_has_the_error_of_two_encodings_with_2_to_64_ranks(void **state)
{
    const char *const codecs[] = {"bq8", "bq4"};

    (void)state;
    for (size_t c = 0; c < SL_ARRAY_LEN(codecs); c++) {
        double eps = error_of_one(codecs[c]);

        for (uint32_t ranks = 2; ranks <= 64; ranks *= 2)
            check(SL_ALLREDUCE, ranks, 1, codecs[c], eps, 2);
    }
}

static void what_is_encoded_once_has_the_error_of_one(void **state)
{
    double eps = error_of_one("bq4");

    (void)state;
    for (uint32_t ranks = 2; ranks <= 32; ranks *= 4) {
        check(SL_REDUCE_SCATTER, ranks, 1, "bq4", eps, 1);
        check(SL_ALL_GATHER, ranks, 1, "bq4", eps, 1);
        check(SL_BROADCAST, ranks, 1, "bq4", eps, 1);
    }
}

static void hosts_of_several_ranks_add_no_error_but_that_within_them(void **state)
{
    double bq4 = error_of_one("bq4"), bq8 = error_of_one("bq8");

    (void)state;
    check(SL_ALLREDUCE, 8, 2, "bq4", bq4, 2);
    check(SL_ALLREDUCE, 32, 4, "bq4", bq4, 2);
    check(SL_ALLREDUCE, 32, 8, "bq8:inside=bq8", bq8, 3);
    check(SL_ALLREDUCE, 16, 4, "bq8:inside=bq4", bq8, 2 + bq4 / bq8);
}

/* A sum of j ranks is encoded for each j: (1 + 2 + ... + W) / W. */
static void a_ring_has_the_error_of_half_an_encoding_more_with_each_rank(void **state)
{
    double bq8 = error_of_one("bq8"), bq4 = error_of_one("bq4");

    (void)state;
    for (uint32_t ranks = 2; ranks <= 16; ranks *= 2)
        check(SL_ALLREDUCE, ranks, 1, "bq8:recipe=ring", bq8, (ranks + 1) / 2.0);
    for (uint32_t ranks = 2; ranks <= 3; ranks++)
        check(SL_ALLREDUCE, ranks, 1, "bq4:recipe=ring", bq4, (ranks + 1) / 2.0);
    check(SL_ALLREDUCE, 8, 2, "bq8:recipe=ring", bq8, 4.5);
    check(SL_REDUCE_SCATTER, 8, 1, "bq8:recipe=ring", bq8, 3.5);
}

static void what_is_gathered_has_the_error_of_one_encoding(void **state)
{
    double topk = error_of_one("topk:k=409"), bq4 = error_of_one("bq4");

    (void)state;
    check(SL_ALLREDUCE, 2, 1, "topk:k=409", topk, 1);
    check(SL_ALLREDUCE, 8, 1, "topk:k=409,recipe=gather", topk, 1);
    check(SL_ALLREDUCE, 3, 1, "bq4:recipe=gather", bq4, 1);
}

/* And a scale that no value is past, where the nearest one would do. */
static void rounding_at_random_costs_more_than_twice_the_error(void **state)
{
    double eps = error_of_one("bq4:stochastic=on,seed=3");

    (void)state;
    check(SL_ALLREDUCE, 16, 1, "bq4:stochastic=on,seed=3", eps, 2);
    assert_true(eps / error_of_one("bq4") > 2 && eps / error_of_one("bq4") < 2.6);
}

/* However many ranks there are and by whichever way the sums went, each rank's elements are rounded
 * once, and sums not at all. One rounding more, or scales that are not shared, fail here. */
static void sums_of_integers_have_one_rounding_of_each_rank(void **state)
{
    (void)state;
    measure = error_in_roundings;
    for (uint32_t ranks = 2; ranks <= 32; ranks *= 4) {
        check(SL_ALLREDUCE, ranks, 1, "shiq:bits=16", 1, 1);
        if (ranks <= 8)
            check(SL_ALLREDUCE, ranks, 1, "shiq", 1, 1);
    }
    check(SL_ALLREDUCE, 8, 2, "shiq:bits=16", 1, 1);
    measure = error_of_results;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allreduce_has_the_error_of_two_encodings_with_2_to_64_ranks),
        cmocka_unit_test(what_is_encoded_once_has_the_error_of_one),
        cmocka_unit_test(hosts_of_several_ranks_add_no_error_but_that_within_them),
        cmocka_unit_test(a_ring_has_the_error_of_half_an_encoding_more_with_each_rank),
        cmocka_unit_test(what_is_gathered_has_the_error_of_one_encoding),
        cmocka_unit_test(rounding_at_random_costs_more_than_twice_the_error),
        cmocka_unit_test(sums_of_integers_have_one_rounding_of_each_rank),
    };

    return cmocka_run_group_tests_name("code_error", tests, NULL, NULL);
}
