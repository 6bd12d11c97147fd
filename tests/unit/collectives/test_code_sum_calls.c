/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduces by encodings that add, over the real transport that the argument names: ranks are
 * threads. */
#include "crew.h"

#include "collectives/code.h"
#include "core/err.h"
#include "core/registry.h"
#include "lib/compress.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define N 100003
#define ROUNDS 20

static const char *transport;

struct rank {
    float in[N], out[N], other[N];
    double means[N];
};

static float element(int rank, int i)
{
    return (float)((i * 7919 + rank * 104729) % 2003 - 1001) / 333.0f;
}

static struct rank *rank_new(int number)
{
    struct rank *r = calloc(1, sizeof(*r));

    sl_assert(r != NULL);
    for (int i = 0; i < N; i++)
        r->in[i] = element(number, i);
    return r;
}

static void run(crew_body *what, const char *settings)
{
    const struct sl_transport_ops *ops = sl_transport_find(transport, strlen(transport));
    struct crew crew = {.ranks = RANKS, .settings = settings, .ops = {ops, ops, ops}};

    RUN_CREW(&crew, what);
}

/* Mean square error over the mean square. */
static double error_of(const float *out, double factor)
{
    double power = 0, error = 0;

    for (int i = 0; i < N; i++) {
        double want = 0;

        for (int rank = 0; rank < RANKS; rank++)
            want += (double)element(rank, i) * factor;
        power += want * want;
        error += (out[i] - want) * (out[i] - want);
    }
    return error / power;
}

static bool same_bits(const void *a, const void *b)
{
    return memcmp(a, b, N * sizeof(float)) == 0;
}

static void calls(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;

    CREW_EXPECT(sluice_comm_set_compression(comm, "shiq:bits=16,measure=on,when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 1e-12 && error_of(r->out, 1) < 1e-8);
    CREW_EXPECT(crew_alike(comm, r->out, N * sizeof(float)));
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0 && report.calls == 1);
    double part = (double)report.wire_bytes / (double)report.raw_bytes;

    CREW_EXPECT(part > 0.507 && part < 0.509); /* 16 bits, and 32 of each 128 elements */
    CREW_EXPECT(report.error > 1e-12 && report.error < 1e-8);

    CREW_EXPECT(sluice_comm_set_compression(comm, "shiq:when=always") == 0);
    memcpy(r->other, r->in, sizeof(r->in));
    CREW_EXPECT(sluice_allreduce(comm, r->other, r->other, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(error_of(r->other, 1.0 / RANKS) > 1e-5 && error_of(r->other, 1.0 / RANKS) < 1e-3);
    CREW_EXPECT(crew_alike(comm, r->other, N * sizeof(float)));

    /* All that is kept is right: of nearly half of the elements. */
    CREW_EXPECT(sluice_comm_set_compression(comm, "randk:k=2000,seed=5,when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 0.45 && error_of(r->out, 1) < 0.56 &&
                crew_alike(comm, r->out, N * sizeof(float)));
    CREW_EXPECT(sluice_comm_set_compression(comm, "sketch:k=800,rows=5,when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(crew_alike(comm, r->out, N * sizeof(float)));
    free(r);
}

/* Of three ranks two decide. */
static void votes(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:vote=on") == -EINVAL);
    CREW_EXPECT(strstr(sluice_last_error(), "vote=on is for codec sign") != NULL);
    CREW_EXPECT(sluice_comm_set_compression(comm, "sign:vote=on,recipe=oneshot") == -EINVAL);
    CREW_EXPECT(strstr(sluice_last_error(), "vote=on has allreduces go by recipe=sum") != NULL);
    CREW_EXPECT(sluice_comm_set_compression(comm, "sketch:k=9,rows=1,feedback=on") == -EINVAL);
    CREW_EXPECT(strstr(sluice_last_error(), "no feedback=on for sketch") != NULL);
    CREW_EXPECT(sluice_comm_set_compression(comm, "sign:vote=on,when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    for (int i = 0; i < N; i++) {
        int below = (element(0, i) < 0) + (element(1, i) < 0) + (element(2, i) < 0);

        CREW_EXPECT((r->out[i] < 0) == (below > 1) && r->out[i] != 0);
    }
    CREW_EXPECT(crew_alike(comm, r->out, N * sizeof(float)));
    free(r);
}

static void signs_are_those_of_the_majority(void **state)
{
    (void)state;
    run(votes, "");
}

static void sums_have_the_same_bits_on_all_ranks(void **state)
{
    (void)state;
    run(calls, "");
}

/* With the algorithm that the setting names, as calls that are not compressed. */
static void by_name(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(sluice_comm_set_compression(comm, "shiq:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-3 && crew_alike(comm, r->out, N * sizeof(float)));
    free(r);
}

static void terms_are_reduced_by_any_algorithm(void **state)
{
    static const char *const names[] = {"ALGO=ring", "ALGO=doubling", "ALGO=halving", "ALGO=dtree",
                                        "ALGO=weighted"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++)
        run(by_name, names[i]);
    if (strcmp(transport, "shm") == 0)
        run(by_name, "ALGO=direct");
}

static const char *algo_with(const char *text, uint32_t ranks, enum sl_coll coll)
{
    struct sluice_comm comm = {.size = ranks, .host_count = 1, .most_local = ranks};
    struct sl_call call = {
        .coll = coll, .dtype = SLUICE_F32, .op = SLUICE_SUM, .count = UINT64_C(1) << 20};
    struct sl_runner *runners[2];
    struct sl_recipe recipe;
    struct sl_coding *coding;

    assert_int_equal(sl_compression_create(text, &coding), 0);
    assert_true(sl_coding_recipe(coding, &comm, &call, NULL, runners, &recipe));
    sl_coding_put(coding);
    return recipe.algo->name;
}

/* And so do collectives that are no allreduce. */
static void ranks_whose_sums_do_not_fit_go_by_one_shot(void **state)
{
    (void)state;
    assert_string_equal(algo_with("shiq:when=always", 127, SL_ALLREDUCE), "code_sum");
    assert_string_equal(algo_with("shiq:when=always", 128, SL_ALLREDUCE), "oneshot");
    assert_string_equal(algo_with("shiq:bits=16,when=always", 128, SL_ALLREDUCE), "code_sum");
    assert_string_equal(algo_with("sign:vote=on,when=always", 1000, SL_ALLREDUCE), "code_sum");
    assert_string_equal(algo_with("sign:when=always", 1000, SL_ALLREDUCE), "oneshot");
    assert_string_equal(algo_with("shiq:recipe=oneshot,when=always", 3, SL_ALLREDUCE), "oneshot");
    assert_string_equal(algo_with("bq8:recipe=sum,when=always", 3, SL_ALLREDUCE), "oneshot");
    assert_string_equal(algo_with("shiq:when=always", 3, SL_REDUCE_SCATTER), "oneshot");
    assert_string_equal(algo_with("randk:k=9,when=always", 3, SL_BROADCAST), "code_chain");
}

/* Of four hosts at 100 Mbit/s, where one shot by signs has half the bytes of votes. */
static const char *algo_by_cost(const char *text)
{
    static uint32_t hosts[] = {0, 1, 2, 3};
    struct sluice_comm comm = {
        .size = 4,
        .host = hosts,
        .host_count = 4,
        .local_size = 1,
        .most_local = 1,
        .costs = {{250, 0.08}, {100000, 80}, 150, 0.03, 0.03, 0.05, 10, 0.03, 1}};
    struct sl_call call = {
        .coll = SL_ALLREDUCE, .dtype = SLUICE_F32, .op = SLUICE_SUM, .count = UINT64_C(1) << 20};
    struct sl_coding_choice choice;
    struct sl_coding *coding;

    sl_config_defaults(&comm.config);
    assert_int_equal(sl_compression_create(text, &coding), 0);
    sl_coding_choose(coding, &comm, &call, NULL, &choice);
    sl_coding_put(coding);
    assert_true(choice.taken);
    return choice.algo->name;
}

static void costs_do_not_decide_whether_votes_are_counted(void **state)
{
    (void)state;
    assert_string_equal(algo_by_cost("sign:vote=on"), "code_sum");
    assert_string_equal(algo_by_cost("sign"), "oneshot");
    assert_string_equal(algo_by_cost("shiq"), "code_sum");
    assert_string_equal(algo_by_cost("shiq:recipe=oneshot"), "oneshot");
    assert_string_equal(algo_by_cost("randk:k=410"), "code_sum");
}

/* Nonblocking, many at once, in groups, and with a setting that changes meanwhile. */
static void in_flight(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_req *reqs[2];

    CREW_EXPECT(sluice_comm_set_compression(comm, "shiq:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &reqs[0]) == 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, NULL) == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_SUM, &reqs[1]) == 0);
    for (int i = 0; i < 2; i++) {
        CREW_EXPECT(sluice_wait(reqs[i]) == 0);
        sluice_req_free(reqs[i]);
    }
    CREW_EXPECT(error_of(r->out, 1) > 1e-5 && error_of(r->out, 1) < 1e-3);
    CREW_EXPECT(error_of(r->other, 1) < 1e-13);

    CREW_EXPECT(sluice_comm_set_compression(comm, "shiq:bits=16,when=always") == 0);
    CREW_EXPECT(sluice_group_start() == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(sluice_group_end() == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-8 && error_of(r->other, 1.0 / RANKS) < 1e-8);
    free(r);
}

static void several_are_in_flight_at_once(void **state)
{
    (void)state;
    run(in_flight, "");
}

static void mismatch(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(sluice_comm_set_compression(comm, rank == 1 ? "shiq:ranks=9,when=always"
                                                            : "shiq:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == -EPROTO);
    CREW_EXPECT(strstr(sluice_last_error(),
                       "rank 1 called allreduce(100003 f32 sum) by codec shiq, parameters") !=
                NULL);
    for (int i = 0; i < N; i++)
        CREW_EXPECT(r->out[i] == 0);
    free(r);
}

static void a_rank_with_other_scales_is_named_before_anything_is_written(void **state)
{
    (void)state;
    run(mismatch, "");
}

/* The mean of many starts comes nearer with error feedback, and goes on from what was saved. */
static void kept(struct sluice_comm *comm, int rank)
{
    static const char text[] = "randk:k=1024,feedback=on,when=always";
    struct rank *r = rank_new(rank);
    struct sluice_operation *operation, *again;
    size_t size = 0;

    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operation) ==
                0);
    CREW_EXPECT(sluice_operation_set_compression(operation, text) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CREW_EXPECT(sluice_start(operation, NULL) == 0);
        for (int i = 0; i < N; i++)
            r->means[i] += (double)r->out[i] / ROUNDS;
    }
    for (int i = 0; i < N; i++)
        r->other[i] = (float)r->means[i];
    CREW_EXPECT(error_of(r->out, 1) > 0.5 && error_of(r->other, 1) < 0.1);

    CREW_EXPECT(sluice_operation_save(operation, NULL, &size) == 0 && size > N * sizeof(float));
    void *bytes = malloc(size);

    CREW_EXPECT(sluice_operation_save(operation, bytes, &size) == 0);
    CREW_EXPECT(sluice_start(operation, NULL) == 0);
    memcpy(r->other, r->out, sizeof(r->out));
    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &again) == 0);
    CREW_EXPECT(sluice_operation_set_compression(again, text) == 0);
    CREW_EXPECT(sluice_operation_load(again, bytes, size) == 0);
    CREW_EXPECT(sluice_start(again, NULL) == 0);
    CREW_EXPECT(same_bits(r->other, r->out));
    free(bytes);
    sluice_operation_free(operation);
    sluice_operation_free(again);
    free(r);
}

static void an_operation_keeps_what_its_own_numbers_lack(void **state)
{
    (void)state;
    run(kept, "");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_same_bits_on_all_ranks),
        cmocka_unit_test(signs_are_those_of_the_majority),
        cmocka_unit_test(terms_are_reduced_by_any_algorithm),
        cmocka_unit_test(ranks_whose_sums_do_not_fit_go_by_one_shot),
        cmocka_unit_test(costs_do_not_decide_whether_votes_are_counted),
        cmocka_unit_test(several_are_in_flight_at_once),
        cmocka_unit_test(a_rank_with_other_scales_is_named_before_anything_is_written),
        cmocka_unit_test(an_operation_keeps_what_its_own_numbers_lack),
    };

    transport = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name("code_sum_calls", tests, NULL, NULL);
}
