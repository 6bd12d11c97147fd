/* SPDX-License-Identifier: Apache-2.0 */
/* Every class of a hang in a small job, and what must not be accused. */
#include "job_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum {
    ISSUED = SL_JOB_ISSUED,
    STARTED = SL_JOB_STARTED,
    DONE = SL_JOB_DONE,
    ALLREDUCE = SL_JOB_ALLREDUCE,
    BROADCAST = SL_JOB_BROADCAST,
    SEND = SL_JOB_SEND,
    RECV = SL_JOB_RECV
};

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

static void expect(struct sl_job *job, int64_t now, const char *text, const char *words)
{
    struct sl_verdicts verdicts;

    judge_job(job, now, &verdicts);
    if (strcmp(verdicts_text(&verdicts), text) != 0 ||
        (words != NULL && !verdicts_say(&verdicts, words)))
        fail_msg("%s, because %s", verdicts_text(&verdicts), verdicts.list[0].evidence[0]);
    sl_verdicts_free(&verdicts);
}

/* Ranks 0 to 3 are at all_reduce 7 but for those in `without`. */
static uint32_t four(struct sl_job *job, uint32_t without)
{
    uint32_t comm = MAKE_COMM(job, "TP", 0, 1, 2, 3);

    for (uint32_t r = 0; r < 4; r++) {
        make_op(job, r, comm, ALLREDUCE, 6, DONE, 1);
        if ((without >> r & 1) == 0)
            make_op(job, r, comm, ALLREDUCE, 7, ISSUED, 2 + r);
    }
    return comm;
}

static void a_job_without_operations_is_not_hung(void **state)
{
    MAKE_COMM(*state, "TP", 0, 1);
    expect(*state, 100, "not_hung", "no operation is pending");
}

static void a_job_whose_operations_have_ended_is_not_hung(void **state)
{
    four(*state, 0xf);
    expect(*state, 1000, "not_hung", "no operation is pending");
}

static void what_is_pending_within_the_deadline_is_no_hang(void **state)
{
    four(*state, 1 << 2);
    expect(*state, 31, "not_hung", "within their deadline");
    expect(*state, 32, "host_stalled 2", NULL);
    expect(*state, -1, "host_stalled 2", NULL);
}

static void a_rank_that_does_not_call_is_stalled(void **state)
{
    four(*state, 1 << 2);
    expect(*state, 183, "host_stalled 2",
           "rank 2 has not called all_reduce 7 of TP; ranks 0-1, 3 wait in it for 181 s");
}

static void what_was_waited_for_first_is_told(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "A", 1, 2);

    four(job, 1 << 2);
    make_op(job, 1, comm, ALLREDUCE, 1, ISSUED, 1);
    expect(job, 100, "host_stalled 2", "rank 2 has not called all_reduce 1 of A; rank 1 waits");
}

static void two_ranks_that_do_not_call_are_both_accused(void **state)
{
    four(*state, 1 << 1 | 1 << 2);
    expect(*state, 183, "host_stalled 1, host_stalled 2", "ranks 0, 3 wait in it");
}

static void the_chain_is_followed_over_communicators(void **state)
{
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 1, 2),
             c = MAKE_COMM(*state, "C", 2, 3);

    make_op(*state, 0, a, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 1, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 2, c, ALLREDUCE, 1, ISSUED, 1);
    expect(*state, 100, "host_stalled 3", "rank 3 has not called all_reduce 1 of C; rank 2 waits");
}

static void who_has_not_ended_what_another_has_is_stuck(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2);

    make_op(*state, 0, comm, ALLREDUCE, 1, DONE, 1);
    make_op(*state, 1, comm, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 2, comm, ALLREDUCE, 1, DONE, 1);
    make_op(*state, 0, comm, ALLREDUCE, 2, ISSUED, 2);
    make_op(*state, 2, comm, ALLREDUCE, 2, ISSUED, 2);
    expect(*state, 100, "gpu_stuck 1",
           "rank 1 has not ended all_reduce 1 of TP, which it called "
           "and rank 0 has ended for 99 s");
}

static void the_root_of_a_broadcast_may_end_before_the_others(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2), other = MAKE_COMM(*state, "PP", 1, 2, 3);

    make_op(*state, 0, comm, BROADCAST, 1, DONE, 1);
    for (uint32_t r = 1; r < 3; r++) {
        make_op(*state, r, other, ALLREDUCE, 1, ISSUED, 1);
        make_op(*state, r, comm, BROADCAST, 1, ISSUED, 2);
    }
    expect(*state, 100, "host_stalled 3", NULL);
}

static void a_stuck_gpu_explains_who_waits_for_it_in_all_that_was_called(void **state)
{
    /* 0 is done with A 1, which 1 is at; 1 has called B 1 as well, after it; 2 is at B 1. */
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 1, 2),
             c = MAKE_COMM(*state, "C", 2, 3);

    make_op(*state, 0, a, ALLREDUCE, 1, DONE, 1);
    make_op(*state, 1, a, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 1, b, ALLREDUCE, 1, ISSUED, 2);
    make_op(*state, 2, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 3, c, ALLREDUCE, 1, ISSUED, 1);
    expect(*state, 100, "gpu_stuck 1", NULL);
}

static void a_rank_that_has_forgotten_what_it_did_there_is_not_accused(void **state)
{
    /* Nothing tells of 1 in A, and 1 is at B: it may have ended A 5 long ago. */
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 1, 2);

    make_op(*state, 0, a, ALLREDUCE, 5, ISSUED, 1);
    make_op(*state, 1, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 2, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 2, b, ALLREDUCE, 2, ISSUED, 1);
    expect(*state, 100, "comm_stuck 0, comm_stuck 1", NULL);
}

static void a_process_that_is_gone_is_dead(void **state)
{
    struct sl_job *job = *state;

    four(job, 1 << 3);
    job->ranks[3].is_gone = true;
    expect(job, 100, "dead 3", "the process of rank 3 is gone");
}

static void a_rank_of_which_nothing_is_known_is_asked_for(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "TP", 0, 1, 2);

    job->ranks[2].is_told = false;
    make_op(job, 0, comm, ALLREDUCE, 1, ISSUED, 1);
    make_op(job, 1, comm, ALLREDUCE, 1, ISSUED, 1);
    expect(job, 100, "dead 2", "nothing is known of 1 of the members");
}

static void a_file_that_is_missing_accuses_nobody_where_another_rank_explains_it(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "TP", 0, 1, 2, 3);

    job->ranks[3].is_told = false;
    make_op(job, 0, comm, ALLREDUCE, 1, ISSUED, 1);
    make_op(job, 1, comm, ALLREDUCE, 1, ISSUED, 1);
    expect(job, 100, "host_stalled 2", NULL);
}

static void one_missing_file_explains_all_communicators_that_it_is_in(void **state)
{
    /* Of 2 and 3 nothing is known, and only 3 is missing in what 0 and 1 are at. */
    struct sl_job *job = *state;
    uint32_t world = MAKE_COMM(job, "B", 2, 3, 4, 5), a = MAKE_COMM(job, "A", 0, 1, 3);

    job->ranks[2].is_told = job->ranks[3].is_told = false;
    for (uint32_t r = 0; r < 2; r++)
        make_op(job, r, a, ALLREDUCE, 1, ISSUED, 1);
    for (uint32_t r = 4; r < 6; r++)
        make_op(job, r, world, ALLREDUCE, 1, ISSUED, 1);
    expect(job, 100, "dead 3", "of the members of A that are waited for");
}

static void of_those_at_one_operation_the_one_that_called_the_least_is_first(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = four(job, 0);

    for (uint32_t r = 0; r < 4; r++)
        if (r != 2)
            make_op(job, r, comm, ALLREDUCE, 8, ISSUED, 9);
    expect(job, 100, "comm_stuck 2", "rank 2 has called the least after it");
}

static void what_all_have_called_and_nobody_ends_is_the_communicators(void **state)
{
    struct sl_job *job = *state;
    struct sl_verdicts verdicts;

    four(job, 0);
    judge_job(job, 100, &verdicts);
    assert_string_equal(verdicts_text(&verdicts), "comm_stuck 0");
    assert_int_equal(verdicts.list[0].other_count, 3);
    assert_true(verdicts_say(&verdicts, "have called all_reduce 7 of TP, none has ended it"));
    sl_verdicts_free(&verdicts);
}

static void edges_narrow_a_stuck_communicator_to_a_link(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = four(job, 0);

    for (uint32_t r = 0; r < 4; r++) {
        struct sl_job_edge edge = {.src = r, .dst = (r + 1) % 4, .comm = comm};

        edge.wait_s[SL_JOB_WAIT_WIRE] = r == 1 ? 97 : 0.5;
        edge.wait_s[r == 1 ? SL_JOB_WAIT_GPU : SL_JOB_WAIT_DATA] = r == 1 ? 0.1 : 96;
        assert_int_equal(sl_job_add_edge(job, &edge), 0);
    }
    expect(job, 100, "comm_stuck 1>2", "from rank 1 to rank 2 have been on the wire the longest");
}

static void a_gpu_that_has_not_started_is_stuck(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2);

    make_op(*state, 0, comm, ALLREDUCE, 1, STARTED, 1);
    make_op(*state, 1, comm, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 2, comm, ALLREDUCE, 1, STARTED, 1);
    expect(*state, 100, "gpu_stuck 1", "has not started what the GPUs of 2 other members have");
}

static void ranks_that_wait_for_each_other_are_a_deadlock(void **state)
{
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 1, 2),
             c = MAKE_COMM(*state, "C", 2, 0), d = MAKE_COMM(*state, "D", 3, 0);

    for (uint32_t r = 0; r < 4; r++) {
        const uint32_t comms[] = {a, b, c, d};

        make_op(*state, r, comms[r], ALLREDUCE, 1, DONE, 1);
        make_op(*state, r < 3 ? (r + 1) % 3 : 0, comms[r], ALLREDUCE, 1, DONE, 1);
        make_op(*state, r, comms[r], ALLREDUCE, 2, ISSUED, 2);
    }
    expect(*state, 100, "deadlock 0", "rank 2 waits in all_reduce 2 of C for rank 0");
}

static void two_communicators_in_another_order_are_a_deadlock(void **state)
{
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 0, 1);

    make_op(*state, 0, a, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 0, b, ALLREDUCE, 1, ISSUED, 2);
    make_op(*state, 1, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 1, a, ALLREDUCE, 1, ISSUED, 2);
    expect(*state, 100, "deadlock 0",
           "rank 0 is at all_reduce 1 of A, which rank 1 has called after all_reduce 1 of B");
}

static void another_order_is_no_matter_where_a_rank_is_missing(void **state)
{
    uint32_t a = MAKE_COMM(*state, "A", 0, 1), b = MAKE_COMM(*state, "B", 0, 1),
             c = MAKE_COMM(*state, "C", 2, 3);

    make_op(*state, 0, a, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 0, b, ALLREDUCE, 1, ISSUED, 2);
    make_op(*state, 1, b, ALLREDUCE, 1, ISSUED, 1);
    make_op(*state, 1, a, ALLREDUCE, 1, ISSUED, 2);
    make_op(*state, 2, c, ALLREDUCE, 1, ISSUED, 1);
    expect(*state, 100, "host_stalled 3", NULL);
}

static void calls_of_another_kind_are_a_mismatch(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2, 3);

    for (uint32_t r = 0; r < 4; r++)
        make_op(*state, r, comm, r == 2 ? BROADCAST : ALLREDUCE, 5, ISSUED, 1);
    expect(
        *state, 100, "mismatch 2",
        "rank 2 called broadcast 5 of TP, where rank 0 called all_reduce 5 of TP (1 and 3 ranks)");
}

static void calls_of_another_size_are_a_mismatch(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2), other = MAKE_COMM(*state, "PP", 2, 3);

    for (uint32_t r = 0; r < 3; r++)
        make_shaped(*state, r, comm, ALLREDUCE, 5, r == 0 ? "8 x Float" : "16 x Float", 1);
    make_op(*state, 3, other, ALLREDUCE, 1, ISSUED, 1);
    expect(*state, 100, "mismatch 0",
           "rank 0 called all_reduce 5 of TP with 8 x Float, where rank");
}

static void calls_in_another_order_are_a_mismatch_that_says_so(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "TP", 0, 1, 2);

    for (uint32_t r = 0; r < 3; r++) {
        make_op(*state, r, comm, r == 1 ? BROADCAST : ALLREDUCE, 5, ISSUED, 1);
        make_op(*state, r, comm, r == 1 ? ALLREDUCE : BROADCAST, 6, ISSUED, 2);
    }
    expect(*state, 100, "mismatch 1", "the order differs");
}

static void an_all_to_all_may_differ_in_size(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "EP", 0, 1, 2);

    for (uint32_t r = 0; r < 2; r++)
        make_shaped(*state, r, comm, SL_JOB_ALLTOALL, 5, "BFloat16", 1);
    expect(*state, 100, "host_stalled 2", NULL);
}

/* ---- messages ---- */

static void a_receiver_waits_for_the_send_of_the_same_number(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 0, 1);

    for (unsigned own = 0; own < 2; own++) {
        make_message(*state, 0, comm, SEND, 1, 1, DONE, 1, own);
        make_message(*state, 1, comm, RECV, 0, 1, DONE, 1, own);
        make_message(*state, 1, comm, RECV, 0, 2 + own, ISSUED, 1, own);
        if (own == 0)
            expect(*state, 100, "host_stalled 0",
                   "rank 0 has not called the send for which rank 1");
    }
    expect(*state, 100, "host_stalled 0", NULL);
}

static void a_sender_waits_for_the_receive_of_the_same_number(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 0, 1);

    make_message(*state, 0, comm, SEND, 1, 1, DONE, 1, false);
    make_message(*state, 1, comm, RECV, 0, 1, DONE, 1, false);
    make_message(*state, 0, comm, SEND, 1, 2, ISSUED, 2, false);
    expect(*state, 100, "host_stalled 1", "has not called the receive for which rank 0 waits");
}

static void numbers_of_their_own_are_compared_by_order(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 0, 1, 2);

    make_message(*state, 0, comm, SEND, 1, 40, ISSUED, 2, true);
    make_message(*state, 0, comm, SEND, 1, 41, ISSUED, 3, true);
    make_message(*state, 1, comm, RECV, 2, 90, ISSUED, 2, true);
    make_message(*state, 1, comm, RECV, 0, 91, ISSUED, 3, true);
    /* 0's second send has no receive; 1 is at its receive from 2. */
    expect(*state, 100, "host_stalled 2", "rank 2 has not called the send for which rank 1 waits");
}

static void a_sender_that_is_through_is_not_accused(void **state)
{
    /* What 0 sent has left it; 1 has not taken it, as it is at A, which 2 has not called. */
    uint32_t pp = MAKE_COMM(*state, "PP", 0, 1), a = MAKE_COMM(*state, "A", 1, 2);

    make_op(*state, 1, a, ALLREDUCE, 1, ISSUED, 1);
    make_message(*state, 1, pp, RECV, 0, 9, ISSUED, 2, true);
    expect(*state, 100, "host_stalled 2", NULL);
}

static void a_message_that_both_have_called_is_the_links(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 3, 4);

    make_message(*state, 3, comm, SEND, 4, 1, ISSUED, 1, false);
    make_message(*state, 4, comm, RECV, 3, 1, ISSUED, 1, false);
    expect(*state, 100, "comm_stuck 3>4", "has called its half as well");
}

static void two_that_send_first_are_a_deadlock(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 0, 1);

    for (uint32_t r = 0; r < 2; r++) {
        make_message(*state, r, comm, SEND, 1 - r, 1, ISSUED, 1, false);
        make_message(*state, r, comm, RECV, 1 - r, 1, ISSUED, 2, false);
    }
    expect(*state, 100, "deadlock 0", "is at its send 1 to rank 1 in PP, which rank 1 has called");
}

static void a_batch_is_one_call(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "PP", 0, 1);

    for (uint32_t r = 0; r < 2; r++) {
        make_message(*state, r, comm, SEND, 1 - r, 7, ISSUED, 1, true);
        make_message(*state, r, comm, RECV, 1 - r, 7, ISSUED, 2, true);
    }
    expect(*state, 100, "comm_stuck 0>1, comm_stuck 1>0", NULL);
}

/* ---- counts ---- */

static void count(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint64_t issued,
                  int64_t at)
{
    const struct sl_job_count it = {.rank = rank,
                                    .comm = comm,
                                    .kind = (uint8_t)kind,
                                    .issued = issued,
                                    .done = UINT64_MAX,
                                    .at_ns = at * 1000000000};

    assert_int_equal(sl_job_add_count(job, &it), 0);
}

static void who_has_called_fewer_is_waited_for_until_it_moves(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "c", 0, 1, 2);

    for (uint32_t r = 0; r < 3; r++)
        count(*state, r, comm, ALLREDUCE, r == 1 ? 9 : 10, 1);
    expect(*state, -1, "host_stalled 1", "counted once");
    for (uint32_t r = 0; r < 3; r++)
        count(*state, r, comm, ALLREDUCE, r == 1 ? 9 : 10, 9);
    expect(*state, -1, "host_stalled 1", "rank 1 has not called collective 10 of c; ranks 0, 2");
    for (uint32_t r = 0; r < 3; r++)
        count(*state, r, comm, ALLREDUCE, 12 + r, 20);
    expect(*state, -1, "not_hung", "went on");
}

static void as_many_of_other_kinds_are_a_mismatch(void **state)
{
    uint32_t comm = MAKE_COMM(*state, "c", 0, 1, 2);

    for (uint32_t r = 0; r < 3; r++) {
        count(*state, r, comm, ALLREDUCE, r == 1 ? 9 : 10, 1);
        count(*state, r, comm, BROADCAST, r == 1 ? 5 : 4, 1);
    }
    expect(*state, -1, "mismatch 1", "as many collectives of c as rank 0, but of other kinds");
}

static void numbers_of_last_calls_complete_what_is_listed(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "TP", 0, 1, 2);
    struct sl_job_count last = {.rank = 1,
                                .comm = comm,
                                .kind = SL_JOB_KINDS,
                                .issued = 8,
                                .done = 8,
                                .at_ns = SL_JOB_NEVER};

    /* 1 has ended what 0 and 2 are at, and lists it no more: they are stuck, not 1 stalled. */
    make_op(job, 0, comm, ALLREDUCE, 8, ISSUED, 1);
    make_op(job, 2, comm, ALLREDUCE, 8, ISSUED, 1);
    expect(job, 100, "host_stalled 1", NULL);
    assert_int_equal(sl_job_add_count(job, &last), 0);
    expect(job, 100, "gpu_stuck 0, gpu_stuck 2", NULL);
}

static void the_last_number_of_a_group_with_messages_may_be_theirs(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "PP", 0, 1);
    struct sl_job_count last = {.rank = 1,
                                .comm = comm,
                                .kind = SL_JOB_KINDS,
                                .issued = 900,
                                .done = 900,
                                .at_ns = SL_JOB_NEVER};

    make_message(job, 1, comm, SEND, 0, 900, DONE, 1, true);
    make_op(job, 0, comm, ALLREDUCE, 8, ISSUED, 1);
    assert_int_equal(sl_job_add_count(job, &last), 0);
    expect(job, 100, "host_stalled 1", NULL);
}

/* ---- who is held by another member (rule 2) ---- */

/* At collective `seq` since 2 s, and waits for the data of the member at that place. */
static void awaits(struct sl_job *job, uint32_t rank, uint32_t comm, uint64_t seq, uint32_t place)
{
    struct sl_job_op op = {.rank = rank,
                           .comm = comm,
                           .peer = SL_JOB_NONE,
                           .step = SL_JOB_NONE,
                           .seq = seq,
                           .issue_ns = 2000000000,
                           .start_ns = SL_JOB_NEVER,
                           .end_ns = SL_JOB_NEVER,
                           .kind = SL_JOB_ALLGATHER,
                           .state = SL_JOB_ISSUED,
                           .awaits_place = place + 1};

    assert_int_equal(sl_job_add_op(job, &op), 0);
}

/* A ring of 8 in which all have ended all_gather 1 but those of `behind`, and wait in the next one
 * but for those of `idle`. */
static uint32_t ring(struct sl_job *job, uint32_t behind, uint32_t idle)
{
    uint32_t comm = MAKE_COMM(job, "ring", 0, 1, 2, 3, 4, 5, 6, 7);

    for (uint32_t r = 0; r < 8; r++) {
        if ((behind >> r & 1) != 0)
            continue;
        make_op(job, r, comm, SL_JOB_ALLGATHER, 1, DONE, 1);
        if ((idle >> r & 1) == 0)
            awaits(job, r, comm, 2, (r + 7) % 8);
    }
    return comm;
}

static uint32_t is_stopped(struct sl_job *job)
{
    return sl_job_text(job, "is stopped by a signal", 22);
}

static void a_neighbour_that_a_stopped_rank_keeps_from_ending_is_not_stuck(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3, 1 << 2);

    job->ranks[2].halt = is_stopped(job);
    make_op(job, 3, comm, SL_JOB_ALLGATHER, 1, ISSUED, 1);
    expect(
        job, 100, "host_stalled 2",
        "rank 3 has not ended all_gather 1 of ring, as rank 2 has not passed on all of the data");
}

/* It says so itself, and of rank 2 nothing is known but that it calls no more. */
static void who_waits_for_one_that_is_at_nothing_is_not_stuck(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3 | 1 << 4, 1 << 2);

    awaits(job, 3, comm, 1, 2);
    awaits(job, 4, comm, 1, 3);
    expect(job, 100, "host_stalled 2", "rank 3 has not ended all_gather 1 of ring, as rank 2");
}

static void all_behind_a_stopped_rank_wait_for_it_along_the_ring(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5, 0);

    job->ranks[2].halt = is_stopped(job);
    for (uint32_t r = 2; r <= 5; r++)
        awaits(job, r, comm, 1, r - 1);
    expect(job, 100, "host_stalled 2", "rank 2 is stopped");
}

/* The only one of a ring whose next call does not wait for the others: nobody is ahead of it. */
static void who_holds_the_last_one_is_named_though_nobody_calls_more(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3, 0xff);

    awaits(job, 3, comm, 1, 2);
    expect(job, 100, "host_stalled 2", "rank 3 has not ended all_gather 1 of ring");
}

static void data_of_one_that_goes_on_is_lost_on_the_link(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3 | 1 << 4 | 1 << 5, 0);

    for (uint32_t r = 3; r <= 5; r++)
        awaits(job, r, comm, 1, r - 1);
    expect(job, 100, "comm_stuck 2>3", "rank 3 waits in all_gather 1 of ring for data of rank 2");
}

/* Rank 2 has ended it, and is kept in another communicator by one that has not called there. */
static void a_chain_goes_on_from_one_that_holds_others(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3, 1 << 2), other = MAKE_COMM(job, "other", 2, 9);

    awaits(job, 3, comm, 1, 2);
    make_op(job, 2, other, ALLREDUCE, 1, ISSUED, 3);
    expect(job, 100, "host_stalled 9", NULL);
}

static void a_circle_of_those_that_wait_for_each_other_has_no_innocent(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3 | 1 << 4, 0);

    awaits(job, 3, comm, 1, 4);
    awaits(job, 4, comm, 1, 3);
    expect(job, 100, "comm_stuck 3>4, comm_stuck 4>3", NULL);
}

/* Of rank 2, whose data rank 3 waits for, there is no source. */
static void who_waits_for_one_of_which_nothing_is_known_asks_for_it(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "ring", 0, 1, 2, 3);

    for (uint32_t r = 0; r < 2; r++) {
        make_op(job, r, comm, SL_JOB_ALLGATHER, 1, DONE, 1);
        awaits(job, r, comm, 2, 3);
    }
    awaits(job, 3, comm, 1, 2);
    job->ranks[2].is_told = false;
    expect(job, 100, "dead 2", "nothing is known of 1 of the members of ring");
}

/* Rank 1 has called it, and its source does not say what has ended: that proves nothing about 0. */
static void who_may_not_have_ended_it_makes_nobody_stuck(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = MAKE_COMM(job, "TP", 0, 1);
    struct sl_job_count last = {.rank = 1,
                                .comm = comm,
                                .kind = SL_JOB_KINDS,
                                .issued = 8,
                                .done = UINT64_MAX,
                                .at_ns = SL_JOB_NEVER};

    make_op(job, 0, comm, ALLREDUCE, 8, STARTED, 1);
    assert_int_equal(sl_job_add_count(job, &last), 0);
    expect(job, 100, "comm_stuck 0", NULL);
}

/* A place that no member has is as good as none. */
static void a_place_beyond_the_members_is_not_told(void **state)
{
    struct sl_job *job = *state;
    uint32_t comm = ring(job, 1 << 3, 0);

    awaits(job, 3, comm, 1, 8);
    expect(job, 100, "gpu_stuck 3", NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_job_without_operations_is_not_hung),
        CASE(a_job_whose_operations_have_ended_is_not_hung),
        CASE(what_is_pending_within_the_deadline_is_no_hang),
        CASE(a_rank_that_does_not_call_is_stalled),
        CASE(what_was_waited_for_first_is_told),
        CASE(two_ranks_that_do_not_call_are_both_accused),
        CASE(the_chain_is_followed_over_communicators),
        CASE(who_has_not_ended_what_another_has_is_stuck),
        CASE(the_root_of_a_broadcast_may_end_before_the_others),
        CASE(a_stuck_gpu_explains_who_waits_for_it_in_all_that_was_called),
        CASE(a_rank_that_has_forgotten_what_it_did_there_is_not_accused),
        CASE(a_process_that_is_gone_is_dead),
        CASE(a_rank_of_which_nothing_is_known_is_asked_for),
        CASE(a_file_that_is_missing_accuses_nobody_where_another_rank_explains_it),
        CASE(one_missing_file_explains_all_communicators_that_it_is_in),
        CASE(of_those_at_one_operation_the_one_that_called_the_least_is_first),
        CASE(what_all_have_called_and_nobody_ends_is_the_communicators),
        CASE(edges_narrow_a_stuck_communicator_to_a_link),
        CASE(a_gpu_that_has_not_started_is_stuck),
        CASE(ranks_that_wait_for_each_other_are_a_deadlock),
        CASE(two_communicators_in_another_order_are_a_deadlock),
        CASE(another_order_is_no_matter_where_a_rank_is_missing),
        CASE(calls_of_another_kind_are_a_mismatch),
        CASE(calls_of_another_size_are_a_mismatch),
        CASE(calls_in_another_order_are_a_mismatch_that_says_so),
        CASE(an_all_to_all_may_differ_in_size),
        CASE(a_receiver_waits_for_the_send_of_the_same_number),
        CASE(a_sender_waits_for_the_receive_of_the_same_number),
        CASE(numbers_of_their_own_are_compared_by_order),
        CASE(a_sender_that_is_through_is_not_accused),
        CASE(a_message_that_both_have_called_is_the_links),
        CASE(two_that_send_first_are_a_deadlock),
        CASE(a_batch_is_one_call),
        CASE(who_has_called_fewer_is_waited_for_until_it_moves),
        CASE(as_many_of_other_kinds_are_a_mismatch),
        CASE(numbers_of_last_calls_complete_what_is_listed),
        CASE(the_last_number_of_a_group_with_messages_may_be_theirs),
        CASE(a_neighbour_that_a_stopped_rank_keeps_from_ending_is_not_stuck),
        CASE(who_waits_for_one_that_is_at_nothing_is_not_stuck),
        CASE(all_behind_a_stopped_rank_wait_for_it_along_the_ring),
        CASE(who_holds_the_last_one_is_named_though_nobody_calls_more),
        CASE(data_of_one_that_goes_on_is_lost_on_the_link),
        CASE(a_chain_goes_on_from_one_that_holds_others),
        CASE(a_circle_of_those_that_wait_for_each_other_has_no_innocent),
        CASE(who_waits_for_one_of_which_nothing_is_known_asks_for_it),
        CASE(a_place_beyond_the_members_is_not_told),
        CASE(who_may_not_have_ended_it_makes_nobody_stuck),
    };

    return cmocka_run_group_tests_name("diagnosis_hang", tests, NULL, NULL);
}
