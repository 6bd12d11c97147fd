/* SPDX-License-Identifier: Apache-2.0 */
/* Error feedback of ordinary calls: ranks are threads over shared memory. */
#include "crew.h"

#include "collectives/recall.h"
#include "core/err.h"
#include "core/registry.h"
#include "lib/compress.h"

#include <sluice/compress.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 3
#define N 20011 /* five tiles: shards of two, two and one, which is not full */
#define ROUNDS 24

/* What one rank keeps of all its N elements and, as owner, of two tiles at most. */
#define KEPT_MOST "112k"

struct rank {
    float in[2][N], out[N], want[N];
    double mean[N];
};

/* As if drawn: what codecs lose of two ranks' elements has nothing to do with each other. */
static float element(int i, int rank, int buffer)
{
    uint32_t h = (uint32_t)(i + N * (rank + RANKS * buffer)) * 2654435761u;

    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    return (float)(int32_t)h * 0x1p-30f;
}

static struct rank *rank_new(int number)
{
    struct rank *r = calloc(1, sizeof(*r));

    sl_assert(r != NULL);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < N; i++)
            r->in[b][i] = element(i, number, b);
    return r;
}

static void run(crew_body *what)
{
    const struct sl_transport_ops *ops = sl_transport_find("shm", 3);
    struct crew crew = {.ranks = RANKS, .settings = "", .ops = {ops, ops, ops}};

    RUN_CREW(&crew, what);
}

static int set(struct sluice_comm *comm, const char *text)
{
    char always[96] = "";

    if (text != NULL) /* ranks of one host save no time */
        snprintf(always, sizeof(always), "%s%cwhen=always", text,
                 strchr(text, ':') != NULL ? ',' : ':');
    return sluice_comm_set_compression(comm, always);
}

static int sum(struct sluice_comm *comm, struct rank *r, int buffer)
{
    return sluice_allreduce(comm, r->in[buffer], r->out, N, SLUICE_F32, SLUICE_SUM, NULL);
}

/* Mean square error of the running mean of so many calls, over the mean square of the exact sum. */
static double error_of_mean(struct sluice_comm *comm, struct rank *r, int rounds)
{
    double power = 0, error = 0;

    memset(r->mean, 0, sizeof(r->mean));
    for (int round = 0; round < rounds; round++) {
        if (sum(comm, r, 0) != 0)
            return 1e9;
        for (int i = 0; i < N; i++)
            r->mean[i] += (double)r->out[i] / rounds;
    }
    for (int i = 0; i < N; i++) {
        double want = 0;

        for (int rank = 0; rank < RANKS; rank++)
            want += (double)element(i, rank, 0);
        power += want * want;
        error += (r->mean[i] - want) * (r->mean[i] - want);
    }
    return error / power;
}

static void repeats(struct sluice_comm *comm, int rank)
{
    static const char *const codecs[] = {"bq2", "bq4"};
    struct rank *r = rank_new(rank);
    char text[64];

    for (int c = 0; c < 2; c++) {
        double errors[2];

        for (int on = 0; on < 2; on++) {
            snprintf(text, sizeof(text), "%s%s", codecs[c], on ? ":feedback=on" : "");
            CREW_EXPECT(set(comm, text) == 0);
            errors[on] = error_of_mean(comm, r, ROUNDS);
            CREW_EXPECT(crew_alike(comm, r->out, sizeof(r->out)));
        }
        if (rank == 0)
            printf("# %s: the mean of %d calls has an error of %.2e, with feedback of %.2e\n",
                   codecs[c], ROUNDS, errors[0], errors[1]);
        CREW_EXPECT(errors[1] < errors[0] / 50);
    }
    free(r);
}

static void the_mean_of_repeated_calls_is_exact_with_feedback_and_not_without(void **state)
{
    run(repeats);
}

static void one_rank(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    double none, one;

    CREW_EXPECT(set(comm, "bq2") == 0);
    none = error_of_mean(comm, r, ROUNDS);
    CREW_EXPECT(set(comm, rank == 1   ? "bq2:feedback=on"
                          : rank == 2 ? "bq2:feedback=on,keep=0"
                                      : "bq2") == 0);
    one = error_of_mean(comm, r, ROUNDS);
    if (rank == 0)
        printf("# bq2: an error of %.2e, with residuals of one rank of %.2e\n", none, one);
    CREW_EXPECT(crew_alike(comm, r->out, sizeof(r->out)));
    CREW_EXPECT(one < 0.9 * none && one > none / 10);
    free(r);
}

static void residuals_of_one_rank_alone_disturb_nobody(void **state)
{
    run(one_rank);
}

/* Without chance in it, calls have the bits of an operation's starts. */
static void two_buffers(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_operation *operations[2];

    CREW_EXPECT(set(comm, "bq4:feedback=on") == 0);
    for (int b = 0; b < 2; b++)
        CREW_EXPECT(sluice_allreduce_init(comm, r->in[b], r->want, N, SLUICE_F32, SLUICE_SUM,
                                          &operations[b]) == 0);
    for (int round = 0; round < 8; round++)
        for (int b = 0; b < 2; b++) {
            CREW_EXPECT(sum(comm, r, b) == 0);
            CREW_EXPECT(sluice_start(operations[b], NULL) == 0);
            CREW_EXPECT(memcmp(r->out, r->want, sizeof(r->out)) == 0);
        }
    /* What is asked for anew begins anew: so do new operations. */
    CREW_EXPECT(set(comm, "bq4:feedback=on") == 0);
    CREW_EXPECT(sum(comm, r, 0) == 0);
    CREW_EXPECT(sluice_start(operations[0], NULL) == 0);
    CREW_EXPECT(memcmp(r->out, r->want, sizeof(r->out)) != 0);
    for (int b = 0; b < 2; b++)
        sluice_operation_free(operations[b]);
    free(r);
}

static void each_buffer_has_residuals_of_its_own(void **state)
{
    run(two_buffers);
}

/* Whether the second of two calls with each of so many buffers differs from the first. */
static bool remembers(struct sluice_comm *comm, struct rank *r, int buffers)
{
    bool differs = false;

    if (sum(comm, r, 0) != 0)
        return false;
    memcpy(r->want, r->out, sizeof(r->out));
    for (int b = 1; b < buffers; b++)
        if (sum(comm, r, b) != 0)
            return false;
    if (sum(comm, r, 0) == 0)
        differs = memcmp(r->out, r->want, sizeof(r->out)) != 0;
    return differs;
}

static void bounds(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=" KEPT_MOST) == 0);
    CREW_EXPECT(!remembers(comm, r, 2)); /* the other buffer's are in its place */
    CREW_EXPECT(remembers(comm, r, 1));
    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=1M") == 0);
    CREW_EXPECT(remembers(comm, r, 2));
    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=60k") == 0); /* less than those of one */
    CREW_EXPECT(!remembers(comm, r, 1));
    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=0") == 0);
    CREW_EXPECT(!remembers(comm, r, 1));
    CREW_EXPECT(set(comm, "bq4:keep=1G") == 0);
    CREW_EXPECT(!remembers(comm, r, 1));
    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=many") == -EINVAL);
    free(r);
}

static void what_was_unused_for_longest_goes_when_keep_is_reached(void **state)
{
    run(bounds);
}

#define KINDS 6
#define BLOCK ((size_t)N / RANKS)

/* Of the same elements. Some have as many tiles as others, too. */
static int call(struct sluice_comm *comm, struct rank *r, int kind, float *out)
{
    const float *in = r->in[0];

    switch (kind) {
    case 0: return sluice_allreduce(comm, in, out, N, SLUICE_F32, SLUICE_SUM, NULL);
    case 1: return sluice_allreduce(comm, in, out, N - 1, SLUICE_F32, SLUICE_SUM, NULL);
    case 2: return sluice_allreduce(comm, in, out, N, SLUICE_F32, SLUICE_AVG, NULL);
    case 3: return sluice_allreduce(comm, in, out, N, SLUICE_F16, SLUICE_SUM, NULL);
    case 4: return sluice_allreduce(comm, in, out, BLOCK, SLUICE_F32, SLUICE_SUM, NULL);
    default: return sluice_reduce_scatter(comm, in, out, BLOCK, SLUICE_F32, SLUICE_SUM, NULL);
    }
}

static void kinds(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    float(*wants)[N] = calloc(KINDS, sizeof(*wants));

    CREW_EXPECT(set(comm, "bq4:min=0") == 0);
    for (int kind = 0; kind < KINDS; kind++)
        CREW_EXPECT(call(comm, r, kind, wants[kind]) == 0);
    CREW_EXPECT(set(comm, "bq4:min=0,feedback=on") == 0);
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            memset(r->out, 0, sizeof(r->out));
            CREW_EXPECT(call(comm, r, kind, r->out) == 0);
            CREW_EXPECT((memcmp(r->out, wants[kind], sizeof(r->out)) == 0) == (round == 0));
        }
    free(wants);
    free(r);
}

static void calls_of_other_kinds_share_nothing(void **state)
{
    run(kinds);
}

/* Who sends what all get has no later call that could make up for it. */
static void copies(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);

    CREW_EXPECT(set(comm, "bq4:min=0,feedback=on") == 0);
    CREW_EXPECT(sluice_broadcast(comm, r->in[0], r->want, N, SLUICE_F32, 0, NULL) == 0);
    CREW_EXPECT(sluice_broadcast(comm, r->in[0], r->out, N, SLUICE_F32, 0, NULL) == 0);
    CREW_EXPECT(memcmp(r->want, r->out, sizeof(r->out)) == 0);
    CREW_EXPECT(sluice_all_gather(comm, r->in[0], r->want, BLOCK, SLUICE_F32, NULL) == 0);
    CREW_EXPECT(sluice_all_gather(comm, r->in[0], r->out, BLOCK, SLUICE_F32, NULL) == 0);
    CREW_EXPECT(memcmp(r->want, r->out, RANKS * BLOCK * sizeof(float)) == 0);
    CREW_EXPECT(comm->recalls == NULL);
    free(r);
}

static void what_is_not_summed_is_sent_as_it_is(void **state)
{
    run(copies);
}

static void in_flight(struct sluice_comm *comm, int rank)
{
    struct rank *r = rank_new(rank);
    struct sluice_req *reqs[4];

    CREW_EXPECT(set(comm, "bq4:feedback=on,keep=" KEPT_MOST) == 0);
    for (int i = 0; i < 4; i++) { /* with one buffer, and with what has no room beside it */
        float *out = i % 2 == 0 ? r->out : r->want;

        CREW_EXPECT(
            sluice_allreduce(comm, r->in[i / 2], out, N, SLUICE_F32, SLUICE_SUM, &reqs[i]) == 0);
    }
    CREW_EXPECT(set(comm, rank == 0 ? "bq4:feedback=on" : NULL) == 0);
    for (int i = 0; i < 4; i++) {
        CREW_EXPECT(sluice_wait(reqs[i]) == 0);
        sluice_req_free(reqs[i]);
    }
    CREW_EXPECT(comm->recalls == NULL);
    CREW_EXPECT(set(comm, "bq4") == 0);
    CREW_EXPECT(sum(comm, r, 0) == 0 && crew_alike(comm, r->out, sizeof(r->out)));
    free(r);
}

static void calls_under_way_keep_what_they_began_with(void **state)
{
    run(in_flight);
}

/* ---- the table alone: a state is a number, of which each tile has a byte ---- */

static unsigned alive;

static int fake_keep(struct sl_coding *coding, const struct sl_coding_extent *extents, void **state)
{
    alive++;
    *state = malloc(1);
    return 0;
}

static uint64_t fake_bytes(const struct sl_coding_extent *extents)
{
    return extents[0].count;
}

static void fake_forget(void *state)
{
    alive--;
    free(state);
}

static void fake_free(struct sl_coding *coding)
{
    fail_msg("who made it uses it still");
}

static struct sl_coding fake = {.users = 1,
                                .keep = fake_keep,
                                .keep_bytes = fake_bytes,
                                .keep_max = 100,
                                .forget = fake_forget,
                                .free = fake_free};

static struct sl_plan plan_of(uint64_t tiles)
{
    return (struct sl_plan){
        .coding = &fake, .call = {.coll = SL_ALLREDUCE, .count = 7}, .extents = {{0, tiles}}};
}

/* Of a call that is over. Whoever is made anew may get the memory of one that is gone. */
static void *state_of(struct sluice_comm *comm, const struct sl_plan *plan, const void *in)
{
    struct sl_recalled *recalled = sl_recall_begin(comm, plan, in);
    void *state = sl_recalled_state(recalled);

    sl_recall_end(recalled);
    return state;
}

static void a_plan_that_encodes_other_tiles_begins_anew(void **state)
{
    static const char buffer;
    struct sluice_comm comm = {0};
    struct sl_plan plan = plan_of(40), moved = plan_of(40);
    struct sl_recalled *held, *other;

    moved.extents[0].first = 1;
    held = sl_recall_begin(&comm, &plan, &buffer);
    other = sl_recall_begin(&comm, &plan, &buffer);
    assert_ptr_equal(held, other); /* calls with one buffer share it */
    sl_recall_end(other);
    other = sl_recall_begin(&comm, &moved, &buffer);
    assert_ptr_not_equal(sl_recalled_state(held), sl_recalled_state(other));
    assert_int_equal(alive, 2);
    sl_recall_end(held); /* what the new one took the place of */
    assert_int_equal(alive, 1);
    sl_recall_drop(&comm);
    assert_int_equal(alive, 1);
    sl_recall_end(other);
    sl_recall_end(NULL);
    assert_null(sl_recalled_state(NULL));
    assert_true(alive == 0 && fake.users == 1 && comm.recalls == NULL);
}

static void what_is_in_use_stays_and_what_is_oldest_goes(void **state)
{
    static const char buffers[4]; /* called with in the order 0, 1, 0, 2, 1, 3, 1, 0 */
    struct sluice_comm comm = {0};
    struct sl_plan plan = plan_of(40), large = plan_of(101), rest = plan_of(60);
    void *first = state_of(&comm, &plan, &buffers[0]);
    struct sl_recalled *held = sl_recall_begin(&comm, &plan, &buffers[1]);

    assert_ptr_equal(state_of(&comm, &plan, &buffers[0]), first);
    assert_int_equal(alive, 2);
    assert_non_null(state_of(&comm, &plan, &buffers[2])); /* for 0, as 1 is in use */
    assert_int_equal(alive, 2);
    assert_ptr_equal(state_of(&comm, &plan, &buffers[1]), sl_recalled_state(held));
    assert_null(state_of(&comm, &large, &buffers[3])); /* nobody goes for what never fits */
    assert_int_equal(alive, 2);
    assert_non_null(state_of(&comm, &rest, &buffers[3])); /* for 2 */
    assert_int_equal(alive, 2);
    sl_recall_end(held);
    first = state_of(&comm, &plan, &buffers[1]);
    assert_non_null(state_of(&comm, &plan, &buffers[0])); /* for 3, which is older than 1 */
    assert_ptr_equal(state_of(&comm, &plan, &buffers[1]), first);
    sl_recall_drop(&comm);
    assert_true(alive == 0 && fake.users == 1);
}

/* More than the table has places for at once. */
static void each_of_many_buffers_is_found_again(void **state)
{
    static const char buffers[40];
    static void *states[1400];
    struct sluice_comm comm = {0};
    struct sl_plan plan = plan_of(0);

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1400; i++) {
            plan.call.count = 7 + i / 40;
            void *found = state_of(&comm, &plan, &buffers[i % 40]);

            assert_true(round == 0 || found == states[i]);
            states[i] = found;
        }
    assert_int_equal(alive, 1400);
    sl_recall_drop(&comm);
    assert_int_equal(alive, 0);
}

static void memory_that_a_call_is_of_can_be_named(void **state)
{
    static const char users[2], staging[2];
    struct sluice_comm comm = {0};
    struct sl_plan plan = plan_of(40);
    void *first;

    sl_compression_of(&comm, &users[0]);
    first = state_of(&comm, &plan, &staging[0]);
    sl_compression_of(&comm, &users[1]);
    assert_ptr_not_equal(state_of(&comm, &plan, &staging[0]), first);
    sl_compression_of(&comm, &users[0]);
    assert_ptr_equal(state_of(&comm, &plan, &staging[1]), first);
    sl_compression_of(&comm, NULL);
    assert_ptr_equal(state_of(&comm, &plan, &users[0]), first);
    sl_recall_drop(&comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_of_repeated_calls_is_exact_with_feedback_and_not_without),
        cmocka_unit_test(residuals_of_one_rank_alone_disturb_nobody),
        cmocka_unit_test(each_buffer_has_residuals_of_its_own),
        cmocka_unit_test(what_was_unused_for_longest_goes_when_keep_is_reached),
        cmocka_unit_test(calls_of_other_kinds_share_nothing),
        cmocka_unit_test(what_is_not_summed_is_sent_as_it_is),
        cmocka_unit_test(calls_under_way_keep_what_they_began_with),
        cmocka_unit_test(a_plan_that_encodes_other_tiles_begins_anew),
        cmocka_unit_test(what_is_in_use_stays_and_what_is_oldest_goes),
        cmocka_unit_test(each_of_many_buffers_is_found_again),
        cmocka_unit_test(memory_that_a_call_is_of_can_be_named),
    };

    return cmocka_run_group_tests_name("recall", tests, NULL, NULL);
}
