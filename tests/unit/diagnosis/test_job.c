/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a job: what is refused, and in which order it lies after it was sealed. */
#include "monitor/diagnosis/job.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int begin(void **state)
{
    *state = sl_job_new();
    return *state == NULL;
}

static int end(void **state)
{
    sl_job_free(*state);
    return 0;
}

static uint32_t comm_of(struct sl_job *job, const char *name)
{
    uint32_t comm = SL_JOB_NONE;

    assert_int_equal(sl_job_add_comm(job, sl_job_text(job, name, strlen(name)), &comm), 0);
    return comm;
}

static struct sl_job_op op_of(uint32_t rank, uint32_t comm, uint64_t seq, int64_t issue)
{
    return (struct sl_job_op){.rank = rank,
                              .comm = comm,
                              .peer = SL_JOB_NONE,
                              .seq = seq,
                              .issue_ns = issue,
                              .start_ns = SL_JOB_NEVER,
                              .end_ns = SL_JOB_NEVER,
                              .kind = SL_JOB_ALLREDUCE};
}

static void equal_texts_have_equal_numbers(void **state)
{
    struct sl_job *job = *state;
    uint32_t numbers[1000];
    char text[32];

    assert_int_equal(sl_job_text(job, "", 0), 0);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "text %u", i);
        numbers[i] = sl_job_text(job, text, strlen(text));
    }
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "text %u", i);
        assert_int_equal(sl_job_text(job, text, strlen(text)), numbers[i]);
        assert_string_equal(sl_job_string(job, numbers[i]), text);
    }
    assert_int_not_equal(sl_job_text(job, "a\0b", 3), sl_job_text(job, "a\0c", 3));
    assert_string_equal(sl_job_string(job, SL_JOB_NONE), "");
}

static void a_text_that_is_too_long_is_none(void **state)
{
    char *text = calloc(1, SL_JOB_TEXT_MAX + 1);

    assert_int_not_equal(sl_job_text(*state, text, SL_JOB_TEXT_MAX), SL_JOB_NONE);
    assert_int_equal(sl_job_text(*state, text, SL_JOB_TEXT_MAX + 1), SL_JOB_NONE);
    free(text);
}

static void ops_lie_by_rank_and_then_by_issue(void **state)
{
    static const int64_t issued[] = {30, 10, SL_JOB_NEVER, 20, 10};
    static const uint64_t order[] = {1, 2, 4, 3, 0};
    struct sl_job *job = *state;
    uint32_t comm = comm_of(job, "c");

    for (uint32_t i = 0; i < 5; i++) {
        struct sl_job_op of_3 = op_of(3, comm, i, issued[i]), of_1 = op_of(1, comm, 10 + i, 1);

        assert_int_equal(sl_job_add_op(job, &of_3), 0);
        assert_int_equal(sl_job_add_op(job, &of_1), 0);
    }
    for (unsigned again = 0; again < 2; again++) {
        assert_int_equal(sl_job_seal(job), 0);
        assert_int_equal(job->rank_count, 4);
        assert_int_equal(job->first_op[0], 0);
        assert_int_equal(job->first_op[1], 0);
        assert_int_equal(job->first_op[2], 5);
        assert_int_equal(job->first_op[3], 5);
        assert_int_equal(job->first_op[4], 10);
        for (unsigned i = 0; i < 5; i++) {
            assert_int_equal(job->ops[i].seq, 10 + i);
            assert_int_equal(job->ops[5 + i].seq, order[i]);
        }
    }
    assert_int_equal(job->ranks[3].last_ns, 30);
    assert_true(job->ranks[3].is_told);
    assert_false(job->ranks[2].is_told);
}

static void more_may_be_added_after_it_was_sealed(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = comm_of(job, "c");
    struct sl_job_op op = op_of(0, comm, 1, 5);

    assert_int_equal(sl_job_seal(job), 0);
    for (unsigned i = 0; i < 100; i++) {
        op.seq = i;
        op.rank = i % 7;
        assert_int_equal(sl_job_add_op(job, &op), 0);
        assert_int_equal(sl_job_seal(job), 0);
        assert_int_equal(job->first_op[job->rank_count], i + 1);
    }
    for (uint32_t r = 0; r < 7; r++)
        for (size_t i = job->first_op[r]; i < job->first_op[r + 1]; i++)
            assert_int_equal(job->ops[i].seq % 7, r);
}

static void members_that_contradict_are_refused(void **state)
{
    static const uint32_t some[] = {2, 0, 5}, others[] = {0, 2, 5}, twice[] = {1, 7, 1};
    static const uint32_t large[] = {0, SL_JOB_RANKS_MAX};
    struct sl_job *job = *state;
    uint32_t comm = comm_of(job, "c"), second = comm_of(job, "d");

    assert_int_equal(comm_of(job, "c"), comm);
    assert_int_equal(sl_job_set_members(job, comm, some, 3), 0);
    assert_int_equal(sl_job_set_members(job, comm, some, 3), 0);
    assert_int_equal(sl_job_set_members(job, comm, some, 2), -EBADMSG);
    assert_int_equal(sl_job_set_members(job, comm, others, 3), -EBADMSG);
    assert_int_equal(sl_job_set_members(job, second, twice, 3), -EBADMSG);
    assert_int_equal(sl_job_set_members(job, second, large, 2), -EBADMSG);
    assert_int_equal(sl_job_set_members(job, second, some, 0), -EBADMSG);
    assert_int_equal(job->comms[second].member_count, 0);
    assert_memory_equal(job->comms[comm].members, some, sizeof(some));
    assert_int_equal(job->rank_count, 6);
}

static void what_no_job_can_have_is_refused(void **state)
{
    struct sl_job *job = *state;
    struct sl_job_op op = op_of(0, 0, 1, 1);
    struct sl_job_edge edge = {.src = 1, .dst = SL_JOB_NONE};
    struct sl_job_sample sample = {.rank = SL_JOB_RANKS_MAX};

    assert_int_equal(sl_job_add_op(job, &op), -EBADMSG); /* no such communicator */
    op.comm = comm_of(job, "c");
    op.rank = SL_JOB_RANKS_MAX;
    assert_int_equal(sl_job_add_op(job, &op), -EBADMSG);
    op.rank = 0;
    op.kind = SL_JOB_SEND;
    assert_int_equal(sl_job_add_op(job, &op), -EBADMSG); /* no peer */
    op.peer = 0;
    assert_int_equal(sl_job_add_op(job, &op), -EBADMSG); /* itself */
    assert_int_equal(sl_job_add_edge(job, &edge), -EBADMSG);
    assert_int_equal(sl_job_add_sample(job, &sample), -EBADMSG);
    assert_int_equal(job->op_count + job->edge_count + job->sample_count, 0);
}

static void own_work_needs_no_communicator(void **state)
{
    struct sl_job *job = *state;
    struct sl_job_op op = op_of(0, SL_JOB_NONE, 1, 1);

    assert_int_equal(sl_job_add_op(job, &op), -EBADMSG);
    op.kind = SL_JOB_COMPUTE;
    assert_int_equal(sl_job_add_op(job, &op), 0);
}

static void names_of_operations_are_known(void **state)
{
    static const struct {
        const char *name;
        enum sl_job_kind kind;
    } cases[] = {
        {"nccl:_all_gather_base", SL_JOB_ALLGATHER},
        {"nccl:all_reduce", SL_JOB_ALLREDUCE},
        {"nccl:allreduce_coalesced", SL_JOB_ALLREDUCE},
        {"nccl:_reduce_scatter_base", SL_JOB_REDUCE_SCATTER},
        {"nccl:reduce", SL_JOB_REDUCE},
        {"nccl:send 0->3", SL_JOB_SEND},
        {"nccl:recv 3<-0", SL_JOB_RECV},
        {"nccl:all_to_all", SL_JOB_ALLTOALL},
        {"nccl:all_to_allv", SL_JOB_ALLTOALL},
        {"gloo:barrier", SL_JOB_BARRIER},
        {"c10d::allreduce_", SL_JOB_ALLREDUCE},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", SL_JOB_ALLREDUCE},
        {"ncclKernel_Broadcast_RING_LL_Sum_int8_t", SL_JOB_BROADCAST},
        {"ncclDevKernel_SendRecv(ncclDevKernelArgs)", SL_JOB_OTHER},
        {"AllGather", SL_JOB_ALLGATHER},
        {"MPI_Iallreduce", SL_JOB_ALLREDUCE},
        {"MPI_Bcast", SL_JOB_BROADCAST},
        {"MPI_Isend", SL_JOB_SEND},
        {"sluice_reduce_scatter", SL_JOB_REDUCE_SCATTER},
        {"forward-compute", SL_JOB_OTHER},
        {"", SL_JOB_OTHER},
        {"i", SL_JOB_OTHER},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (sl_job_kind_of(cases[i].name, strlen(cases[i].name)) != cases[i].kind)
            fail_msg("%s is %s", cases[i].name,
                     sl_job_kind_name(sl_job_kind_of(cases[i].name, strlen(cases[i].name))));
    for (unsigned kind = 1; kind < SL_JOB_KINDS; kind++) {
        const char *name = sl_job_kind_name(kind);

        assert_int_equal(sl_job_kind_of(name, strlen(name)), kind);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(equal_texts_have_equal_numbers),      CASE(a_text_that_is_too_long_is_none),
        CASE(ops_lie_by_rank_and_then_by_issue),   CASE(more_may_be_added_after_it_was_sealed),
        CASE(members_that_contradict_are_refused), CASE(what_no_job_can_have_is_refused),
        CASE(own_work_needs_no_communicator),      CASE(names_of_operations_are_known),
    };

    return cmocka_run_group_tests_name("diagnosis_job", tests, NULL, NULL);
}
