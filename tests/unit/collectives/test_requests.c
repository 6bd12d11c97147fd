/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, groups, split, and operations that end early. */
#include "world.h"

#include "collectives/window.h"
#include "core/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 64

static int allreduce(struct sluice_comm *comm, int32_t *buf, struct sluice_req **req)
{
    return sluice_allreduce(comm, buf, buf, N, SLUICE_I32, SLUICE_SUM, req);
}

static void fill(int32_t *buf, int32_t value)
{
    for (int i = 0; i < N; i++)
        buf[i] = value;
}

static bool all_are(const int32_t *buf, int32_t value)
{
    for (int i = 0; i < N; i++)
        if (buf[i] != value)
            return false;
    return true;
}

/* ---- several in flight ---- */

static void many_in_flight(struct sluice_comm **comm, int rank)
{
    int32_t buf[16][N];
    struct sluice_req *req[16];

    for (int i = 0; i < 16; i++) {
        fill(buf[i], rank + i);
        EXPECT(allreduce(*comm, buf[i], &req[i]) == 0);
    }
    for (int i = 15; i >= 0; i--) { /* waited for in another order than they started */
        EXPECT(sluice_wait(req[i]) == 0);
        EXPECT(all_are(buf[i], 3 + 3 * i));
        sluice_req_free(req[i]);
    }
}

static void sends_in_order(struct sluice_comm **comm, int rank)
{
    int32_t buf[8][N], sum[N];
    struct sluice_req *req[8], *all;

    fill(sum, 1);
    for (int i = 0; i < 8; i++) {
        fill(buf[i], rank == 0 ? i : -1);
        EXPECT((rank == 0 ? sluice_send(*comm, buf[i], N, SLUICE_I32, 1, &req[i])
                          : sluice_recv(*comm, buf[i], N, SLUICE_I32, 0, &req[i])) == 0);
        if (i == 3)
            EXPECT(allreduce(*comm, sum, &all) == 0);
    }
    EXPECT(sluice_wait(all) == 0 && all_are(sum, 2));
    sluice_req_free(all);
    for (int i = 0; i < 8; i++) {
        EXPECT(sluice_wait(req[i]) == 0);
        EXPECT(all_are(buf[i], i));
        sluice_req_free(req[i]);
    }
}

/* Rank 1 has begun the sum, and read nothing of it, when rank 0 is so many calls ahead that the
 * next one would have the same slot of its window. */
static void far_ahead(struct sluice_comm **comm, int rank)
{
    const struct sl_clock *clock = (*comm)->worker->clock;
    uint64_t start = sl_now(clock), until = start + (rank == 0 ? 50 : 200) * SL_NS_PER_MS;
    int32_t in = rank + 1, out = 0;
    struct sluice_req *sum = NULL;

    if (rank == 1)
        EXPECT(sluice_allreduce(*comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, &sum) == 0);
    while (sl_now(clock) < until)
        (*comm)->worker->idle((*comm)->worker);
    if (rank == 0)
        EXPECT(sluice_allreduce(*comm, &in, &out, 1, SLUICE_I32, SLUICE_SUM, &sum) == 0);
    for (int32_t i = 0; i < SL_WIN_SLOTS + 6; i++) {
        int32_t word = rank == 0 ? 1000 + i : 0;

        EXPECT(sluice_broadcast(*comm, &word, &word, 1, SLUICE_I32, 0, NULL) == 0);
        EXPECT(word == 1000 + i);
    }
    EXPECT(sluice_wait(sum) == 0);
    EXPECT(out == 3);
    sluice_req_free(sum);
}

static void who_is_far_ahead_overwrites_nothing_unread(void **state)
{
    RUN(2, "ALGO=flat", far_ahead);
}

static void operations_in_flight_keep_the_order_of_the_calls(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", many_in_flight);
    RUN(3, "ALGO=flat", many_in_flight);
    RUN(3, "", many_in_flight);
    RUN(2, "", sends_in_order);
}

/* ---- requests ---- */

static void freed_early(struct sluice_comm **comm, int rank)
{
    static int32_t buf[2]
                      [N]; /* outlives the fiber's frame: a request that was given back goes on */
    struct sluice_req *req;

    fill(buf[rank], rank + 1);
    EXPECT(allreduce(*comm, buf[rank], &req) == 0);
    sluice_req_free(req);
    EXPECT(rank == 1 ||
           (*comm)->calls.active_count == 1); /* the last to come may be done at once */
    while ((*comm)->calls.active_count != 0 && sluice_comm_async_error(*comm) == 0)
        (*comm)->worker->idle((*comm)->worker);
    EXPECT(all_are(buf[rank], 3));
    EXPECT(sluice_barrier(*comm, NULL) == 0);
}

static void a_request_freed_before_its_end_goes_on_by_itself(void **state)
{
    (void)state;
    RUN(2, "", freed_early);
    RUN(2, "ALGO=ring", freed_early);
}

static void test_tells_the_end(struct sluice_comm **comm, int rank)
{
    int32_t buf[N];
    struct sluice_req *req;
    int state = 0;

    fill(buf, rank);
    EXPECT(allreduce(*comm, buf, &req) == 0);
    while (state == 0) {
        state = sluice_test(req);
        (*comm)->worker->idle((*comm)->worker);
    }
    EXPECT(state == 1);
    EXPECT(sluice_test(req) == 1 && sluice_wait(req) == 0);
    EXPECT(all_are(buf, 1));
    sluice_req_free(req);
}

static void testing_a_request_tells_its_end_and_may_be_repeated(void **state)
{
    (void)state;
    RUN(2, "", test_tells_the_end);
}

static void destroyed_while_pending(struct sluice_comm **comm, int rank)
{
    int32_t buf[2][N] = {0};
    struct sluice_req *req[2];

    if (rank == 1) { /* does not take part */
        while (sluice_comm_async_error(*comm) == 0)
            (*comm)->worker->idle((*comm)->worker);
        EXPECT_ERROR(sluice_comm_async_error(*comm), -ECANCELED,
                     "rank 0 destroyed the communicator");
        return;
    }
    EXPECT(allreduce(*comm, buf[0], &req[0]) == 0);
    EXPECT(allreduce(*comm, buf[1], &req[1]) == 0);
    sluice_comm_destroy(*comm);
    *comm = NULL;
    EXPECT_ERROR(sluice_wait(req[0]), -ECANCELED, "rank 0 destroyed the communicator");
    EXPECT(sluice_test(req[1]) == -ECANCELED);
    sluice_req_free(req[0]);
    sluice_req_free(req[1]); /* frees the communicator: the address sanitizer sees to it */
}

static void requests_pending_at_destroy_are_canceled_and_can_be_freed_after(void **state)
{
    (void)state;
    RUN(2, "", destroyed_while_pending);
    RUN(2, "ALGO=ring", destroyed_while_pending);
}

static void too_many(struct sluice_comm **comm, int rank)
{
    int32_t buf[3][N];
    struct sluice_req *req[3];

    for (int i = 0; i < 3; i++)
        fill(buf[i], rank);
    EXPECT(allreduce(*comm, buf[0], &req[0]) == 0);
    EXPECT(allreduce(*comm, buf[1], &req[1]) == 0);
    EXPECT_ERROR(allreduce(*comm, buf[2], &req[2]), -EAGAIN, "SLUICE_INFLIGHT_MAX");
    EXPECT(sluice_wait(req[0]) == 0);
    sluice_req_free(req[0]);
    EXPECT(allreduce(*comm, buf[2], &req[2]) == 0);
    EXPECT(sluice_wait(req[2]) == 0 && all_are(buf[2], 1));
    EXPECT(sluice_wait(req[1]) == 0);
    sluice_req_free(req[1]);
    sluice_req_free(req[2]);
}

static void more_in_flight_than_the_limit_is_refused_and_nothing_is_taken(void **state)
{
    (void)state;
    RUN(2, "INFLIGHT_MAX=2", too_many);
}

/* ---- groups ---- */

/* Ranks are fibers of one thread, and a group belongs to the thread: with several ranks nothing may
 * wait inside a group's end. */
static void nested_group(struct sluice_comm **comm, int rank)
{
    int32_t buf[3][N], got[N];
    struct sluice_req *req[4] = {NULL};

    for (int i = 0; i < 3; i++)
        fill(buf[i], rank + i);
    EXPECT(sluice_group_start() == 0);
    EXPECT(allreduce(*comm, buf[0], &req[0]) == 0);
    EXPECT(sluice_group_start() == 0);
    EXPECT(allreduce(*comm, buf[1], &req[1]) == 0);
    EXPECT(sluice_send(*comm, buf[2], N, SLUICE_I32, 1 - rank, &req[2]) == 0);
    EXPECT(sluice_recv(*comm, got, N, SLUICE_I32, 1 - rank, &req[3]) == 0);
    EXPECT(sluice_group_end() == 0);
    EXPECT(req[0] == NULL && req[3] == NULL); /* nothing starts before the outermost end */
    EXPECT(sluice_group_end() == 0);
    for (int i = 0; i < 4; i++) {
        EXPECT(req[i] != NULL && sluice_wait(req[i]) == 0);
        sluice_req_free(req[i]);
    }
    EXPECT(all_are(buf[0], 1) && all_are(buf[1], 3) && all_are(got, 1 - rank + 2));
}

static void grouped_in_turn(struct sluice_comm **comm, int rank)
{
    int32_t buf[4][N];
    struct sluice_req *req[4] = {NULL};
    int err = 0;

    for (int i = 0; i < 4; i++)
        fill(buf[i], rank);
    EXPECT(sluice_group_start() == 0);
    for (int i = 0; i < 4 && err == 0; i++)
        err = allreduce(*comm, buf[i], &req[i]);
    EXPECT(err == 0);
    EXPECT_ERROR(sluice_group_end(), -EAGAIN, "SLUICE_INFLIGHT_MAX");
    EXPECT(req[0] != NULL && req[1] != NULL && req[2] == NULL && req[3] == NULL);
    for (int i = 0; i < 2; i++) {
        EXPECT(sluice_wait(req[i]) == 0 && all_are(buf[i], 1));
        sluice_req_free(req[i]);
    }
}

static void alone_in_a_group(struct sluice_comm **comm, int rank)
{
    int32_t buf[N], more[N];
    struct sluice_req *req;

    fill(buf, 5);
    fill(more, 6);
    EXPECT_ERROR(sluice_group_end(), -EINVAL, "was not started");
    EXPECT(sluice_group_start() == 0);
    EXPECT_ERROR(sluice_allreduce(*comm, NULL, buf, N, SLUICE_I32, SLUICE_SUM, NULL), -EINVAL,
                 "the input buffer is NULL");
    EXPECT(allreduce(*comm, buf, NULL) == 0);
    EXPECT(allreduce(*comm, more, &req) == 0);
    EXPECT(sluice_group_end() == 0);
    EXPECT((*comm)->calls.active_count == 1); /* the one without a request was given back */
    EXPECT(all_are(buf, 5) && rank == 0);
    EXPECT(sluice_wait(req) == 0);
    sluice_req_free(req);
}

static void a_group_starts_together_and_waits_for_calls_without_a_request(void **state)
{
    (void)state;
    RUN(1, "", alone_in_a_group);
    RUN(2, "", nested_group);
}

static void a_group_that_is_too_full_leaves_the_requests_of_calls_not_started_null(void **state)
{
    (void)state;
    RUN(2, "INFLIGHT_MAX=2", grouped_in_turn);
}

/* ---- split ---- */

static void split_by_color(struct sluice_comm **comm, int rank)
{
    struct sluice_comm *child = NULL;
    int32_t buf[N];

    /* Colors 0 and 1; rank 4 stays out; keys turn the order around. */
    EXPECT(sluice_comm_split(*comm, rank == 4 ? -1 : rank % 2, -rank, &child) == 0);
    EXPECT((child == NULL) == (rank == 4));
    if (child == NULL)
        return;
    fill(buf, 1 << rank);
    EXPECT(sluice_comm_size(child) == 2);
    EXPECT(sluice_comm_rank(child) == (rank < 2 ? 1 : 0));
    EXPECT(allreduce(child, buf, NULL) == 0);
    EXPECT(all_are(buf, rank % 2 == 0 ? 1 + 4 : 2 + 8));
    sluice_comm_destroy(child);
}

static void equal_keys(struct sluice_comm **comm, int rank)
{
    struct sluice_comm *child;

    EXPECT(sluice_comm_split(*comm, 7, 0, &child) == 0);
    EXPECT(sluice_comm_rank(child) == rank && sluice_comm_size(child) == 3);
    sluice_comm_destroy(child);
}

static void split_makes_one_communicator_per_color_ordered_by_key(void **state)
{
    (void)state;
    RUN(5, "", split_by_color);
    RUN(3, "", equal_keys);
}

/* ---- order, abort ---- */

static void other_type(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};

    if (rank == 0)
        sluice_send(*comm, buf, N, SLUICE_F32, 1, NULL);
    else
        EXPECT_ERROR(sluice_recv(*comm, buf, N, SLUICE_I32, 0, NULL), -EPROTO,
                     "rank 0 sends f32 where this rank receives i32");
}

static void other_length(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};

    if (rank == 0)
        sluice_send(*comm, buf, N, SLUICE_I32, 1, NULL);
    else
        EXPECT_ERROR(sluice_recv(*comm, buf, N / 2, SLUICE_I32, 0, NULL), -EPROTO,
                     "rank 0 sends 256 bytes where this rank receives 128");
}

static void other_order(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};

    if (rank == 0)
        sluice_send(*comm, buf, N, SLUICE_I32, 1, NULL);
    else
        EXPECT_ERROR(allreduce(*comm, buf, NULL), -EPROTO, "the order of calls differs");
}

static void other_count(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};

    EXPECT_ERROR(sluice_allreduce(*comm, buf, buf, rank == 1 ? 8 : N, SLUICE_I32, SLUICE_SUM, NULL),
                 -EPROTO, "rank 1 called allreduce(8 i32 sum)");
}

static void sends_and_receives_that_do_not_fit_say_how(void **state)
{
    (void)state;
    RUN(2, "", other_type);
    RUN(2, "", other_length);
    RUN(2, "ALGO=ring", other_order);
}

static void ranks_that_call_something_else_are_told_on_every_rank(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", other_count);
    RUN(3, "ALGO=flat", other_count);
}

static void abort_then_destroy(struct sluice_comm **comm, int rank)
{
    int32_t buf[N] = {0};

    if (rank == 1) {
        sluice_comm_abort(
            *comm); /* destroyed right after: the others must hear of it all the same */
        sluice_comm_abort(NULL);
        return;
    }
    EXPECT_ERROR(allreduce(*comm, buf, NULL), -ECANCELED, "rank 1 aborted the communicator");
    EXPECT_ERROR(allreduce(*comm, buf, NULL), -ECANCELED, "rank 1 aborted the communicator");
    EXPECT(sluice_comm_async_error(*comm) == -ECANCELED);
}

static void an_abort_just_before_destroy_reaches_the_others(void **state)
{
    (void)state;
    RUN(3, "", abort_then_destroy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_in_flight_keep_the_order_of_the_calls),
        cmocka_unit_test(who_is_far_ahead_overwrites_nothing_unread),
        cmocka_unit_test(a_request_freed_before_its_end_goes_on_by_itself),
        cmocka_unit_test(testing_a_request_tells_its_end_and_may_be_repeated),
        cmocka_unit_test(requests_pending_at_destroy_are_canceled_and_can_be_freed_after),
        cmocka_unit_test(more_in_flight_than_the_limit_is_refused_and_nothing_is_taken),
        cmocka_unit_test(a_group_starts_together_and_waits_for_calls_without_a_request),
        cmocka_unit_test(a_group_that_is_too_full_leaves_the_requests_of_calls_not_started_null),
        cmocka_unit_test(split_makes_one_communicator_per_color_ordered_by_key),
        cmocka_unit_test(sends_and_receives_that_do_not_fit_say_how),
        cmocka_unit_test(ranks_that_call_something_else_are_told_on_every_rank),
        cmocka_unit_test(an_abort_just_before_destroy_reaches_the_others),
    };

    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
