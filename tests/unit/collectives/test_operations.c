/* SPDX-License-Identifier: Apache-2.0 */
/* Persistent operations: started again and again, in groups, and freed at any time. */
#include "world.h"

#include "collectives/operation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 64
#define ROUNDS 5

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

static int allreduce_init(struct sluice_comm *comm, int32_t *buf,
                          struct sluice_operation **operation)
{
    return sluice_allreduce_init(comm, buf, buf, N, SLUICE_I32, SLUICE_SUM, operation);
}

/* Of three ranks that gave round + rank each. */
static int32_t sum_of(int round)
{
    return 3 * round + 3;
}

/* ---- starts ---- */

static void again_and_again(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation;
    struct sluice_req *req, *first = NULL;
    int32_t buf[N] = {0};

    EXPECT(allreduce_init(*comm, buf, &operation) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        fill(buf, rank + i);
        EXPECT(sluice_start(operation, i % 2 == 0 ? NULL : &req) == 0);
        if (i % 2 != 0) {
            EXPECT(sluice_wait(req) == 0);
            EXPECT(sluice_test(req) == 1);
            sluice_req_free(req); /* does nothing */
            EXPECT(sluice_test(req) == 1);
            EXPECT(first == NULL || first == req);
            first = req;
        }
        EXPECT(all_are(buf, sum_of(i)));
        EXPECT((*comm)->calls.active_count == 0);
    }
    sluice_operation_free(operation);
    EXPECT((*comm)->calls.kept == 0);
}

static void an_operation_is_started_again_and_again(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", again_and_again);
    RUN(3, "ALGO=flat", again_and_again);
    RUN(3, "", again_and_again);
}

static void some_call(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation;
    int32_t buf[N] = {0};

    EXPECT(allreduce_init(*comm, buf, &operation) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        fill(buf, rank + i);
        EXPECT((i % 3 == rank ? sluice_allreduce(*comm, buf, buf, N, SLUICE_I32, SLUICE_SUM, NULL)
                              : sluice_start(operation, NULL)) == 0);
        EXPECT(all_are(buf, sum_of(i)));
    }
    sluice_operation_free(operation);
}

static void a_start_meets_the_call_of_another_rank(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", some_call);
    RUN(3, "", some_call);
}

static void messages(struct sluice_comm **comm, int rank)
{
    size_t counts[2] = {N / 2, N / 2}, offsets[2] = {0, N / 2};
    struct sluice_operation *one, *v;
    int32_t buf[N] = {0}, blocks[N] = {0};

    EXPECT((rank == 0 ? sluice_send_init(*comm, buf, N, SLUICE_I32, 1, &one)
                      : sluice_recv_init(*comm, buf, N, SLUICE_I32, 0, &one)) == 0);
    EXPECT(sluice_all_to_all_v_init(*comm, buf, counts, offsets, blocks, counts, offsets,
                                    SLUICE_I32, &v) == 0);
    counts[0] = counts[1] = 1; /* were borrowed */
    for (int i = 0; i < ROUNDS; i++) {
        fill(buf, rank == 0 ? i : -1);
        EXPECT(sluice_start(one, NULL) == 0);
        EXPECT(all_are(buf, i));
        EXPECT(sluice_start(v, NULL) == 0);
        EXPECT(all_are(blocks, i));
    }
    sluice_operation_free(v);
    sluice_operation_free(one);
}

static void sends_receives_and_uneven_blocks_can_be_kept(void **state)
{
    (void)state;
    RUN(2, "", messages);
}

static void together(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation[4];
    struct sluice_req *req[4] = {NULL};
    int32_t buf[4][N] = {{0}};

    for (int i = 0; i < 4; i++)
        EXPECT(allreduce_init(*comm, buf[i], &operation[i]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT(sluice_group_start() == 0);
        for (int i = 0; i < 4; i++) {
            fill(buf[i], rank + i + round);
            EXPECT(sluice_start(operation[i], &req[i]) == 0);
            EXPECT(req[i] == NULL); /* not started yet */
        }
        EXPECT(sluice_group_end() == 0);
        for (int i = 3; i >= 0; i--) {
            EXPECT(sluice_wait(req[i]) == 0);
            EXPECT(all_are(buf[i], sum_of(i + round)));
        }
    }
    for (int i = 0; i < 4; i++)
        sluice_operation_free(operation[i]);
}

static void a_group_starts_operations_together(void **state)
{
    (void)state;
    RUN(3, "ALGO=ring", together);
    RUN(3, "", together);
}

/* ---- refused ---- */

static void started_twice(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation;
    struct sluice_req *req, *other;
    int32_t buf[N] = {0};

    fill(buf, rank);
    EXPECT(allreduce_init(*comm, buf, &operation) == 0);
    if (rank == 0) {
        EXPECT(sluice_start(operation, &req) == 0); /* alone: cannot end */
        EXPECT_ERROR(sluice_start(operation, &other), -EINVAL, "was started and has not ended");
        EXPECT(other == NULL);
        EXPECT_ERROR(sluice_start(operation, NULL), -EINVAL, "allreduce");
        EXPECT(sluice_group_start() == 0 && sluice_start(operation, NULL) == 0);
        EXPECT_ERROR(sluice_group_end(), -EINVAL, "was started and has not ended");
        EXPECT(sluice_wait(req) == 0);
    } else {
        EXPECT(sluice_start(operation, NULL) == 0);
    }
    EXPECT(all_are(buf, 1));
    sluice_operation_free(operation);
}

static void too_many(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *a, *b;
    struct sluice_req *req, *other;
    int32_t buf[2][N] = {{0}};

    (void)rank;
    EXPECT(allreduce_init(*comm, buf[0], &a) == 0 && allreduce_init(*comm, buf[1], &b) == 0);
    EXPECT(sluice_start(a, &req) == 0);
    if (sluice_test(req) == 0)
        EXPECT_ERROR(sluice_start(b, &other), -EAGAIN, "SLUICE_INFLIGHT_MAX");
    EXPECT(sluice_wait(req) == 0);
    EXPECT(sluice_start(b, NULL) == 0); /* what has ended counts no more */
    sluice_operation_free(a);
    sluice_operation_free(b);
}

static void bad_arguments(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation = (struct sluice_operation *)comm;
    struct sluice_req *req = (struct sluice_req *)comm;
    int32_t buf[N] = {0};

    (void)rank;
    EXPECT_ERROR(allreduce_init(NULL, buf, &operation), -EINVAL, "the communicator is NULL");
    EXPECT(operation == NULL);
    EXPECT_ERROR(allreduce_init(*comm, NULL, &operation), -EINVAL, "the input buffer is NULL");
    EXPECT_ERROR(allreduce_init(*comm, buf, NULL), -EINVAL, "no place for the operation");
    EXPECT_ERROR(sluice_send_init(*comm, buf, N, SLUICE_I32, rank, &operation), -EINVAL,
                 "is this rank");
    EXPECT_ERROR(sluice_broadcast_init(*comm, buf, buf, N, SLUICE_I32, 7, &operation), -EINVAL,
                 "rank 7 is not one of the 2");
    EXPECT_ERROR(sluice_start(NULL, &req), -EINVAL, "the operation is NULL");
    EXPECT(req == NULL && operation == NULL && (*comm)->calls.kept == 0);
    sluice_operation_free(NULL);
}

static void what_cannot_be_started_is_refused_with_the_reason(void **state)
{
    (void)state;
    RUN(2, "", started_twice);
    RUN(2, "ALGO=ring", started_twice);
    RUN(2, "INFLIGHT_MAX=1", too_many);
    RUN(2, "", bad_arguments);
}

/* ---- what it owns ---- */

static int forgotten;

static void forget(void *state)
{
    forgotten += *(int *)state;
}

static void states(struct sluice_comm **comm, int rank)
{
    static int one = 1, ten = 10, hundred = 100;
    struct sluice_operation *a, *b;
    int32_t buf[2][N] = {{0}};

    EXPECT(allreduce_init(*comm, buf[0], &a) == 0 && allreduce_init(*comm, buf[1], &b) == 0);
    EXPECT(a->plan != b->plan);
    if (rank != 0) {
        sluice_operation_free(a);
        sluice_operation_free(b);
        return;
    }
    sl_operation_keep(a, &one, forget);
    sl_operation_keep(a, &ten, forget); /* in place of the first */
    sl_operation_keep(b, &hundred, forget);
    EXPECT(forgotten == 1);
    sluice_operation_free(a);
    EXPECT(forgotten == 11);
    EXPECT(b->state == &hundred);
    sluice_operation_free(b);
    EXPECT(forgotten == 111);
}

static void freed_early(struct sluice_comm **comm, int rank)
{
    static int32_t buf[2][N]; /* outlives the fiber's frame */
    static int one = 1;
    struct sluice_operation *operation;
    struct sluice_req *req;

    fill(buf[rank], rank + 1);
    EXPECT(allreduce_init(*comm, buf[rank], &operation) == 0);
    if (rank == 0)
        sl_operation_keep(operation, &one, forget);
    EXPECT(sluice_start(operation, &req) == 0);
    bool pending = (*comm)->calls.active_count != 0;

    sluice_operation_free(operation);
    EXPECT((*comm)->calls.kept == (pending ? 1 : 0));
    EXPECT(rank != 0 || forgotten == (pending ? 0 : 1));
    while ((*comm)->calls.active_count != 0 && sluice_comm_async_error(*comm) == 0)
        (*comm)->worker->idle((*comm)->worker);
    EXPECT((*comm)->calls.kept == 0 && all_are(buf[rank], 3));
    EXPECT(sluice_barrier(*comm, NULL) == 0);
    EXPECT(forgotten == 1);
}

static void an_operation_owns_its_plan_and_its_state(void **state)
{
    (void)state;
    forgotten = 0;
    RUN(2, "", states);
    assert_int_equal(forgotten, 111);
    forgotten = 0;
    RUN(2, "ALGO=ring", freed_early);
}

/* ---- ends ---- */

static void destroyed(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *pending, *idle;
    struct sluice_req *req;
    int32_t buf[2][N] = {{0}};

    EXPECT(allreduce_init(*comm, buf[0], &pending) == 0);
    EXPECT(allreduce_init(*comm, buf[1], &idle) == 0);
    if (rank == 1) { /* does not come */
        sluice_operation_free(pending);
        sluice_operation_free(idle);
        while (sluice_comm_async_error(*comm) == 0)
            (*comm)->worker->idle((*comm)->worker);
        return;
    }
    EXPECT(sluice_start(pending, &req) == 0);
    sluice_comm_destroy(*comm);
    *comm = NULL;
    EXPECT_ERROR(sluice_test(req), -ECANCELED, "rank 0 destroyed the communicator");
    EXPECT_ERROR(sluice_start(idle, NULL), -EINVAL,
                 "the communicator of this allreduce was destroyed");
    sluice_operation_free(pending);
    EXPECT_ERROR(sluice_start(idle, &req), -EINVAL, "was destroyed");
    sluice_operation_free(idle); /* and with it the communicator's memory */
}

static void aborted(struct sluice_comm **comm, int rank)
{
    struct sluice_operation *operation;
    int32_t buf[N] = {0};

    EXPECT(allreduce_init(*comm, buf, &operation) == 0);
    /* Rank 0 may hear of the abort before it has seen the end of the first. */
    int err = sluice_start(operation, NULL);

    EXPECT(err == 0 || (rank == 0 && err == -ECANCELED));
    if (rank == 1) {
        sluice_comm_abort(*comm);
        EXPECT(sluice_comm_async_error(*comm) == -ECANCELED);
    }
    EXPECT_ERROR(sluice_start(operation, NULL), -ECANCELED, "rank 1 aborted the communicator");
    EXPECT_ERROR(sluice_start(operation, NULL), -ECANCELED, "rank 1 aborted the communicator");
    sluice_operation_free(operation);
}

static void an_operation_outlives_its_communicator(void **state)
{
    (void)state;
    RUN(2, "", destroyed);
    RUN(2, "ALGO=ring", destroyed);
    RUN(2, "", aborted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_is_started_again_and_again),
        cmocka_unit_test(a_start_meets_the_call_of_another_rank),
        cmocka_unit_test(sends_receives_and_uneven_blocks_can_be_kept),
        cmocka_unit_test(a_group_starts_operations_together),
        cmocka_unit_test(what_cannot_be_started_is_refused_with_the_reason),
        cmocka_unit_test(an_operation_owns_its_plan_and_its_state),
        cmocka_unit_test(an_operation_outlives_its_communicator),
    };

    return cmocka_run_group_tests_name("operations", tests, NULL, NULL);
}
