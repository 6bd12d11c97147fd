/* SPDX-License-Identifier: Apache-2.0 */
/* sluice/compress.h over the real transport that the argument names: ranks are threads. */
#include "crew.h"

#include "collectives/code.h"
#include "collectives/plan.h"
#include "core/err.h"
#include "core/registry.h"
#include "lib/compress_report.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define N 100003
#define ROUNDS 6

static const char *transport;

struct rank {
    float in[N], out[N], other[N];
    uint32_t words[N], word_sums[N];
};

static struct rank *rank_new(int number)
{
    struct rank *r = calloc(1, sizeof(*r));

    sl_assert(r != NULL);
    for (int i = 0; i < N; i++) {
        r->in[i] = (float)((i * 7919 + number * 104729) % 2003 - 1001) / 333.0f;
        r->words[i] = (uint32_t)(i + number);
    }
    return r;
}

static void run(crew_body *what)
{
    const struct sl_transport_ops *ops = sl_transport_find(transport, strlen(transport));
    struct crew crew = {.ranks = RANKS, .settings = "", .ops = {ops, ops, ops}};

    RUN_CREW(&crew, what);
}

static double exact(int i)
{
    double sum = 0;

    for (int rank = 0; rank < RANKS; rank++)
        sum += (double)((float)((i * 7919 + rank * 104729) % 2003 - 1001) / 333.0f);
    return sum;
}

/* Mean square error over the mean square. */
static double error_of(const float *out, double factor)
{
    double power = 0, error = 0;

    for (int i = 0; i < N; i++) {
        double want = exact(i) * factor;

        power += want * want;
        error += (out[i] - want) * (out[i] - want);
    }
    return error / power;
}

static void texts(struct sluice_comm *comm, int rank)
{
    const struct {
        const char *text, *says;
    } bad[] = {
        {"zip", "there is no codec \"zip\": the choices are"},
        {"bq8:k=3", "codec bq8 has no k"},
        {"bq8:speed=3", "\"speed\" is no parameter of codec bq8"},
        {"bq8:feedback=maybe", "feedback=maybe: the choices are on, off"},
        {"bq8:measure=1", "measure=1: the choices are on, off"},
        {"bq8:when=maybe", "when=maybe: the choices are cost, always"},
        {"bq8:min=x", "min=x: that is no number of bytes"},
        {"bq8:min=", "min=: that is no number of bytes"},
        {"bq8:keep=-1", "keep=-1: that is no number of bytes"},
        {"row8:row=96,feedback=on", "there is no feedback=on for row8: what comes in a row"},
        {"bq8:feedback=on,inside=rowe4m3:row=5000", "there is no feedback=on for rowe4m3"},
        {"row8", "row=32 to 8192 elements are one"},
        {"bq8:recipe=star", "recipe=star: the choices are auto, sum, gather, hosts, oneshot, ring"},
        {"bq8:dtype=bf16", "the type of elements is that of each call"},
    };
    struct sluice_compression_report report;
    char longest[400];

    for (size_t i = 0; i < SL_ARRAY_LEN(bad); i++) {
        CREW_EXPECT(sluice_comm_set_compression(comm, bad[i].text) == -EINVAL);
        CREW_EXPECT(strstr(sluice_last_error(), bad[i].says) != NULL);
        CREW_EXPECT(comm->coding == NULL);
    }
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    CREW_EXPECT(sluice_comm_set_compression(comm, longest) == -EINVAL);
    CREW_EXPECT(sluice_comm_set_compression(NULL, "bq8") == -EINVAL);
    CREW_EXPECT(sluice_operation_set_compression(NULL, "bq8") == -EINVAL);
    CREW_EXPECT(sluice_comm_compression_report(comm, NULL) == -EINVAL);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 0 && report.raw_bytes == 0 && report.error < 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:min=1M,stochastic=on,seed=5") == 0);
    CREW_EXPECT(comm->coding->min_bytes == 1 << 20);
    CREW_EXPECT(sluice_comm_set_compression(comm, "zip") == -EINVAL && comm->coding != NULL);
    CREW_EXPECT(sluice_comm_set_compression(comm, "") == 0 && comm->coding == NULL);
    CREW_EXPECT(sluice_comm_set_compression(comm, NULL) == 0);
}

static void a_text_that_is_wrong_is_named_and_changes_nothing(void **state)
{
    (void)state;
    run(texts);
}

/* Those that are not for a codec have the results that they had. */
static bool others_are_exact(struct sluice_comm *comm, struct rank *r)
{
    struct sluice_compression_report before, after;
    bool right = sluice_comm_compression_report(comm, &before) == 0;

    right = right &&
            sluice_allreduce(comm, r->words, r->word_sums, N, SLUICE_U32, SLUICE_SUM, NULL) == 0;
    for (int i = 0; i < N; i++)
        right = right && r->word_sums[i] == (uint32_t)(RANKS * i + 3);
    right = right &&
            sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_MAX, NULL) == 0 &&
            sluice_allreduce(comm, r->in, r->other, 100, SLUICE_F32, SLUICE_SUM, NULL) == 0 &&
            sluice_reduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_SUM, 0, NULL) == 0 &&
            sluice_barrier(comm, NULL) == 0;
    right = right && sluice_comm_compression_report(comm, &after) == 0;
    return right && after.calls == before.calls;
}

static void calls(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always,measure=on") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 1e-7 && error_of(r->out, 1) < 1e-4);
    CREW_EXPECT(crew_alike(comm, r->out, sizeof(r->out)));
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1.0 / RANKS) < 1e-4);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 2);
    CREW_EXPECT(report.raw_bytes > 2 * sizeof(r->in) && report.raw_bytes < 3 * sizeof(r->in));
    CREW_EXPECT((double)report.wire_bytes / (double)report.raw_bytes < 8.2 / 32);
    CREW_EXPECT(report.error > 1e-7 && report.error < 1e-4);
    CREW_EXPECT(others_are_exact(comm, r));

    /* Off again: a call of the same shape is exact. */
    CREW_EXPECT(sluice_comm_set_compression(comm, NULL) == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-13);
    free(r);
}

static void calls_that_a_codec_is_for_send_fewer_bytes(void **state)
{
    (void)state;
    run(calls);
}

/* Nothing is known of what an algorithm takes that cannot do it. */
static void of_no_cost(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;
    struct sl_compression_sums sums = {0};
    char text[256];

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 1 && report.saved_ns == 0);
    sums.calls = report.calls;
    CREW_EXPECT(sl_compression_text(&sums, text, sizeof(text)) && strstr(text, "about") == NULL);
    free(r);
}

static void time_is_compared_where_it_is_known_without(void **state)
{
    const struct sl_transport_ops *ops = sl_transport_find(transport, strlen(transport));
    struct crew crew = {.ranks = RANKS, .settings = "ALGO=allreduce:hier", .ops = {ops, ops, ops}};

    (void)state;
    RUN_CREW(&crew, of_no_cost);
}

/* Others' errors are read while they encode, as by the thread that ends the process. */
static void adds_up(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sl_compression_sums sums;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always,measure=on") == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
        sl_compression_sum(&sums);
        CREW_EXPECT(sums.measured && sums.power > 0 && sums.calls > round);
        CREW_EXPECT(sums.error > 1e-7 * sums.power && sums.error < 1e-4 * sums.power);
    }
    free(r);
}

static void what_all_came_to_is_added_up_while_they_work(void **state)
{
    (void)state;
    run(adds_up);
}

/* Nonblocking, many at once, and a setting that changes while they are under way. */
static void in_flight(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_req *reqs[3];

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &reqs[0]) == 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, "sign:when=always") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_SUM, &reqs[1]) == 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, NULL) == 0);
    CREW_EXPECT(
        sluice_allreduce(comm, r->words, r->word_sums, N, SLUICE_U32, SLUICE_SUM, &reqs[2]) == 0);
    for (int i = 0; i < 3; i++) {
        CREW_EXPECT(sluice_wait(reqs[i]) == 0);
        sluice_req_free(reqs[i]);
    }
    CREW_EXPECT(error_of(r->out, 1) < 1e-4);
    CREW_EXPECT(error_of(r->other, 1) > 0.1);
    CREW_EXPECT(crew_alike(comm, r->out, sizeof(r->out)) &&
                crew_alike(comm, r->other, sizeof(r->other)));

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq4:when=always") == 0);
    CREW_EXPECT(sluice_group_start() == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(sluice_group_end() == 0);
    CREW_EXPECT(error_of(r->out, 1) < 0.1 && error_of(r->other, 1.0 / RANKS) < 0.1);
    free(r);
}

static void calls_under_way_keep_the_codec_that_they_began_with(void **state)
{
    (void)state;
    run(in_flight);
}

static void mismatch(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(sluice_comm_set_compression(comm, rank == 1 ? "bq8:when=always,stochastic=on"
                                                            : "bq8:when=always") == 0);
    int err = sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL);

    CREW_EXPECT(err == -EPROTO);
    CREW_EXPECT(strstr(sluice_last_error(), "ranks disagree on collective number 1") != NULL);
    CREW_EXPECT(strstr(sluice_last_error(),
                       "rank 1 called allreduce(100003 f32 sum) by codec bq8, parameters") != NULL);
    for (int i = 0; i < N; i++)
        CREW_EXPECT(r->out[i] == 0);
    free(r);
}

static void ranks_with_other_parameters_are_named_before_anything_is_written(void **state)
{
    (void)state;
    run(mismatch);
}

/* ---- persistent operations ---- */

static int start(struct sluice_operation *operation, struct rank *r, int round)
{
    for (int i = 0; i < N; i++)
        r->in[i] = (float)((i * 31 + round * 7) % 199 - 99) / 50.0f;
    return sluice_start(operation, NULL);
}

static void kept(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_operation *once, *again;
    static float outs[RANKS][ROUNDS][N];
    struct sluice_req *req;
    size_t size = 0;
    void *bytes;

    /* What the codec loses comes the next time: the same elements again have the exact mean. */
    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &once) == 0);
    CREW_EXPECT(sluice_operation_save(once, NULL, &size) == -EINVAL);
    CREW_EXPECT(strstr(sluice_last_error(), "keeps nothing") != NULL);
    CREW_EXPECT(
        sluice_operation_set_compression(once, "bq4:when=always,feedback=on,stochastic=on") == 0);
    CREW_EXPECT(comm->coding == NULL);
    CREW_EXPECT(sluice_operation_save(once, NULL, &size) == 0 && size > N * sizeof(float));
    bytes = malloc(size);
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 3)
            CREW_EXPECT(sluice_operation_save(once, bytes, &size) == 0);
        CREW_EXPECT(start(once, r, round) == 0);
        memcpy(outs[rank][round], r->out, sizeof(r->out));
        CREW_EXPECT(crew_alike(comm, r->out, sizeof(r->out)));
    }

    /* Another one that goes on from there has the same bits. */
    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &again) == 0);
    CREW_EXPECT(sluice_operation_set_compression(again, "bq4:when=always,feedback=on") == 0);
    CREW_EXPECT(sluice_operation_load(again, bytes, size) == -EINVAL); /* of another codec */
    CREW_EXPECT(
        sluice_operation_set_compression(again, "bq4:when=always,feedback=on,stochastic=on") == 0);
    CREW_EXPECT(sluice_operation_load(again, bytes, size - 1) == -EBADMSG);
    CREW_EXPECT(sluice_operation_load(again, bytes, size) == 0);
    for (int round = 3; round < ROUNDS; round++) {
        CREW_EXPECT(start(again, r, round) == 0);
        CREW_EXPECT(memcmp(outs[rank][round], r->out, sizeof(r->out)) == 0);
    }
    size--;
    CREW_EXPECT(sluice_operation_save(again, bytes, &size) == -EINVAL);
    if (rank != 0) /* it cannot end before rank 0 starts */
        CREW_EXPECT(sluice_start(again, &req) == 0);
    CREW_EXPECT(rank == 0 || sluice_operation_save(again, NULL, &size) == -EINVAL);
    CREW_EXPECT(rank == 0 || sluice_operation_load(again, bytes, size) == -EINVAL);
    CREW_EXPECT(rank != 0 || sluice_start(again, &req) == 0);
    CREW_EXPECT(sluice_wait(req) == 0);
    free(bytes);
    sluice_operation_free(once);
    sluice_operation_free(again);
    free(r);
}

static void what_an_operation_keeps_can_be_saved_and_loaded(void **state)
{
    (void)state;
    run(kept);
}

static void feedback(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    double(*means)[N] = calloc(2, sizeof(*means));
    struct sluice_operation *operations[2];
    struct sluice_req *req;
    double errors[2];

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq2:when=always,feedback=on") == 0);
    CREW_EXPECT(
        sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operations[0]) == 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, "bq2:when=always") == 0);
    CREW_EXPECT(
        sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operations[1]) == 0);
    for (int o = 0; o < 2; o++) {
        for (int round = 0; round < 20; round++) {
            CREW_EXPECT(sluice_start(operations[o], NULL) == 0);
            for (int i = 0; i < N; i++)
                means[o][i] += r->out[i] / 20;
        }
        for (int i = 0; i < N; i++)
            r->other[i] = (float)means[o][i];
        errors[o] = error_of(r->other, 1);
    }
    CREW_EXPECT(errors[0] < errors[1] / 20);
    CREW_EXPECT(sluice_start(operations[0], &req) == 0);
    if (sluice_test(req) == 0)
        CREW_EXPECT(sluice_operation_set_compression(operations[0], NULL) == -EINVAL);
    CREW_EXPECT(sluice_wait(req) == 0);
    CREW_EXPECT(sluice_operation_set_compression(operations[0], NULL) == 0);
    CREW_EXPECT(sluice_start(operations[0], NULL) == 0 && error_of(r->out, 1) < 1e-13);
    sluice_operation_free(operations[0]);
    sluice_operation_free(operations[1]);
    free(means);
    free(r);
}

static void error_feedback_makes_up_for_what_was_lost(void **state)
{
    (void)state;
    run(feedback);
}

static void own_report(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;
    struct sluice_operation *operation;

    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operation) ==
                0);
    CREW_EXPECT(sluice_operation_compression_report(operation, NULL) == -EINVAL);
    CREW_EXPECT(sluice_operation_compression_report(NULL, &report) == -EINVAL);
    CREW_EXPECT(sluice_start(operation, NULL) == 0);
    CREW_EXPECT(sluice_operation_compression_report(operation, &report) == 0);
    CREW_EXPECT(report.calls == 0 && report.raw_bytes == 0 && report.error < 0);
    CREW_EXPECT(sluice_operation_set_compression(operation, "bq8:when=always,measure=on") == 0);
    for (int i = 0; i < 2; i++)
        CREW_EXPECT(sluice_start(operation, NULL) == 0);
    CREW_EXPECT(sluice_operation_compression_report(operation, &report) == 0);
    CREW_EXPECT(report.calls == 2 && report.raw_bytes > 2 * sizeof(r->in));
    CREW_EXPECT((double)report.wire_bytes / (double)report.raw_bytes < 8.2 / 32);
    CREW_EXPECT(report.error > 1e-7 && report.error < 1e-4);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0 && report.calls == 0);
    sluice_operation_free(operation);
    free(r);
}

static void starts_of_an_operation_with_its_own_setting_are_reported(void **state)
{
    (void)state;
    run(own_report);
}

/* Random numbers go by the starts of the one, and by the calls of the other. */
static void mixed(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_operation *operation;
    int err;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always") == 0);
    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operation) ==
                0);
    if (rank == 2)
        err = sluice_start(operation, NULL);
    else
        err = sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL);
    CREW_EXPECT(err == -EPROTO);
    sluice_operation_free(operation);
    free(r);
}

static void a_compressed_start_is_another_call_than_a_compressed_call(void **state)
{
    (void)state;
    run(mixed);
}

static void splits(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;
    struct sluice_comm *child;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always") == 0);
    CREW_EXPECT(sluice_comm_split(comm, 0, -rank, &child) == 0);
    CREW_EXPECT(sluice_allreduce(child, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 1e-7 && error_of(r->out, 1) < 1e-4);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0 && report.calls == 1);
    CREW_EXPECT(sluice_comm_set_compression(child, NULL) == 0);
    CREW_EXPECT(sluice_comm_compression_report(child, &report) == 0 && report.calls == 0);
    CREW_EXPECT(sluice_allreduce(child, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-13);
    sluice_comm_destroy(child);
    free(r);
}

static void a_split_starts_with_the_setting_of_its_parent(void **state)
{
    (void)state;
    run(splits);
}

/* As if ranks were on hosts of their own, over such links; the same on all ranks. */
static void set_links(struct sluice_comm *comm, double ns_a_byte)
{
    static const uint32_t hosts[RANKS] = {0, 1, 2};

    comm->host = hosts;
    comm->host_count = RANKS;
    comm->most_local = 1;
    comm->costs.net.beta = ns_a_byte;
    comm->correction = (struct sl_correction){0, 0};
    sl_plans_drop(comm);
}

static void by_cost(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report report;
    struct sluice_operation *operation;
    const uint32_t *host = comm->host;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8") == 0);
    set_links(comm, 0.01); /* memory that costs nothing */
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-13);
    CREW_EXPECT(sluice_allreduce_init(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, &operation) ==
                0);
    for (int i = 0; i < 3; i++)
        CREW_EXPECT(sluice_start(operation, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 1e-13);
    CREW_EXPECT(others_are_exact(comm, r));
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 0 && report.raw_bytes == 0 && report.saved_ns == 0);
    CREW_EXPECT(report.raw_calls == 4);

    /* Hours for each call: nearly all of that is saved. */
    set_links(comm, 1e7);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 1e-7 && error_of(r->out, 1) < 1e-4);
    CREW_EXPECT(sluice_operation_set_compression(operation, "bq8:feedback=on") == 0);
    CREW_EXPECT(sluice_start(operation, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) > 1e-7 && error_of(r->out, 1) < 1e-4);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 1 && report.raw_calls == 4);
    CREW_EXPECT(report.saved_ns > (int64_t)N * 1000000);
    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always") == 0);
    set_links(comm, 1e-3);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0);
    CREW_EXPECT(report.calls == 1 && report.raw_calls == 0 && report.saved_ns < 0);
    sluice_operation_free(operation);
    comm->host = host;
    comm->host_count = 1;
    comm->most_local = RANKS;
    free(r);
}

static void calls_are_compressed_where_links_are_slow_and_not_where_they_are_fast(void **state)
{
    (void)state;
    run(by_cost);
}

/* A ring is taken by those alone who ask for it, and not where there is none. */
static void recipes(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_compression_report shot, ring, gather;

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always,recipe=auto") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->other, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(sluice_comm_compression_report(comm, &shot) == 0);
    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always,recipe=ring") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_AVG, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1.0 / RANKS) < 1e-4 && crew_alike(comm, r->out, sizeof(r->out)));
    CREW_EXPECT(memcmp(r->out, r->other, sizeof(r->out)) != 0);
    CREW_EXPECT(sluice_comm_compression_report(comm, &ring) == 0 && ring.calls == 1);
    CREW_EXPECT(ring.wire_bytes < shot.wire_bytes * 3 / 2);
    CREW_EXPECT(sluice_broadcast(comm, r->out, r->out, N, SLUICE_F32, 1, NULL) == 0);
    CREW_EXPECT(sluice_comm_compression_report(comm, &ring) == 0 && ring.calls == 2);

    CREW_EXPECT(sluice_comm_set_compression(comm, "bq8:when=always,recipe=gather") == 0);
    CREW_EXPECT(sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL) == 0);
    CREW_EXPECT(error_of(r->out, 1) < 5e-5 && crew_alike(comm, r->out, sizeof(r->out)));
    CREW_EXPECT(sluice_comm_compression_report(comm, &gather) == 0);
    CREW_EXPECT(gather.raw_bytes == (RANKS - 1) * sizeof(r->in));
    free(r);
}

static void a_recipe_that_is_asked_for_is_taken_where_it_can_be(void **state)
{
    (void)state;
    run(recipes);
}

static void mixed_recipes(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(sluice_comm_set_compression(comm, rank == 1 ? "bq8:when=always,recipe=ring"
                                                            : "bq8:when=always") == 0);
    int err = sluice_allreduce(comm, r->in, r->out, N, SLUICE_F32, SLUICE_SUM, NULL);
    const char *theirs = strstr(sluice_last_error(), "rank 1 called allreduce(100003 f32 sum) by");
    const char *ours = strstr(sluice_last_error(), "ranks 0,2 called allreduce(100003 f32 sum) by");

    /* A rank that is slow to call may not have told yet what it calls. */
    CREW_EXPECT(err == -EPROTO && (theirs != NULL || ours != NULL));
    theirs = theirs != NULL ? strstr(theirs, "parameters ") : NULL;
    ours = ours != NULL ? strstr(ours, "parameters ") : NULL;
    CREW_EXPECT(theirs == NULL || ours == NULL || strncmp(theirs, ours, 17) != 0);
    free(r);
}

static void ranks_with_another_recipe_are_named(void **state)
{
    (void)state;
    run(mixed_recipes);
}

#define ROW 96
#define TOKENS 100 /* of each rank for each other */

static float token(int from, int to, int i)
{
    float size = i / ROW % 2 != 0 ? 1e3f : 1e-3f;

    return size * (float)((i * 7919 + from * 31 + to * 17) % 2001 - 1000) / 1000.0f;
}

/* What is lost of the worst of the others' tokens, in mean squares of that token. */
static double worst_token(const float *out, int rank)
{
    double worst = 0;

    for (int row = 0; row < RANKS * TOKENS; row++) {
        double power = 0, error = 0;

        for (int i = 0; i < ROW && row / TOKENS != rank; i++) {
            double want = token(row / TOKENS, rank, row % TOKENS * ROW + i);

            power += want * want;
            error += (out[row * ROW + i] - want) * (out[row * ROW + i] - want);
        }
        worst = power > 0 && error / power > worst ? error / power : worst;
    }
    return worst;
}

static void tokens(struct sluice_comm *comm, int rank)
{
    static const struct {
        const char *text;
        double least, most;
    } cases[] = {{"row8:row=96,when=always", 1e-6, 1e-4},
                 {"rowe4m3:row=96,when=always,measure=on", 1e-5, 2e-3},
                 {"bq8:when=always", 0.5, 2}};
    struct sluice_compression_report report;
    struct rank *r = rank_new(rank);
    const int n = TOKENS * ROW;

    for (int i = 0; i < RANKS * n; i++)
        r->in[i] = token(rank, i / n, i % n);
    for (size_t c = 0; c < SL_ARRAY_LEN(cases); c++) {
        CREW_EXPECT(sluice_comm_set_compression(comm, cases[c].text) == 0);
        CREW_EXPECT(sluice_all_to_all(comm, r->in, r->out, n, SLUICE_F32, NULL) == 0);
        double worst = worst_token(r->out, rank);

        CREW_EXPECT(worst > cases[c].least && worst < cases[c].most);
        CREW_EXPECT(sluice_comm_compression_report(comm, &report) == 0 && report.calls == 1);
        CREW_EXPECT(report.wire_bytes < (RANKS - 1) * (uint64_t)n * 11 / 10);
        CREW_EXPECT(c != 1 || (report.error > 1e-5 && report.error < 2e-3));
    }
    free(r);
}

static void small_tokens_are_not_lost_beside_large_ones(void **state)
{
    (void)state;
    run(tokens);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_that_is_wrong_is_named_and_changes_nothing),
        cmocka_unit_test(calls_that_a_codec_is_for_send_fewer_bytes),
        cmocka_unit_test(time_is_compared_where_it_is_known_without),
        cmocka_unit_test(what_all_came_to_is_added_up_while_they_work),
        cmocka_unit_test(calls_under_way_keep_the_codec_that_they_began_with),
        cmocka_unit_test(ranks_with_other_parameters_are_named_before_anything_is_written),
        cmocka_unit_test(what_an_operation_keeps_can_be_saved_and_loaded),
        cmocka_unit_test(error_feedback_makes_up_for_what_was_lost),
        cmocka_unit_test(starts_of_an_operation_with_its_own_setting_are_reported),
        cmocka_unit_test(a_compressed_start_is_another_call_than_a_compressed_call),
        cmocka_unit_test(a_split_starts_with_the_setting_of_its_parent),
        cmocka_unit_test(calls_are_compressed_where_links_are_slow_and_not_where_they_are_fast),
        cmocka_unit_test(a_recipe_that_is_asked_for_is_taken_where_it_can_be),
        cmocka_unit_test(ranks_with_another_recipe_are_named),
        cmocka_unit_test(small_tokens_are_not_lost_beside_large_ones),
    };

    transport = argc > 1 ? argv[1] : "shm";
    return cmocka_run_group_tests_name("compress", tests, NULL, NULL);
}
