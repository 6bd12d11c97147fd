/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank makes the same calls a step: for each of two micro-batches it receives from the stage
 * before, reduces with its tensor group twice, and sends to the next stage; then it reduces with
 * its replicas, and with all. A GPU does what it is given in turn. A call ends when the GPUs of all
 * members have come to it.
 */
#include "job_play.h"
#include "job_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BATCHES 2
#define CALLS_MAX (BATCHES * 4 + 2)

struct call {
    uint32_t comm; /* of the played ones: tensor groups, replica groups, all, pairs of stages */
    uint8_t kind;
    uint32_t peer;
    uint64_t seq, own;
};

struct table {
    const struct play *play;
    uint32_t ranks, comms;
    struct call *calls; /* CALLS_MAX a rank */
    uint32_t *length, *head;
    uint32_t *arrived; /* CALLS_MAX a communicator, by number */
    uint32_t *queue;
};

/* Tensor ranks are next to each other, then replicas, then stages. */
static uint32_t tensor_of(const struct play *play, uint32_t rank)
{
    return rank % play->tensor;
}

static uint32_t stage_of(const struct play *play, uint32_t rank)
{
    return rank / play->tensor / play->replicas;
}

static uint32_t per_stage(const struct play *play)
{
    return play->tensor * play->replicas;
}

/* Communicators by number. */
static uint32_t tensor_comm(const struct play *play, uint32_t rank)
{
    return rank / play->tensor;
}

static uint32_t replica_comm(const struct play *play, uint32_t rank)
{
    return play->replicas * play->stages + stage_of(play, rank) * play->tensor +
           tensor_of(play, rank);
}

static uint32_t world_comm(const struct play *play)
{
    return play->replicas * play->stages + play->stages * play->tensor;
}

/* From the rank to the same one of the next stage. */
static uint32_t pair_comm(const struct play *play, uint32_t rank)
{
    return world_comm(play) + 1 + rank;
}

static uint32_t list_calls(const struct play *play, uint32_t rank, struct call *out)
{
    uint32_t count = 0, stage = stage_of(play, rank);
    uint64_t own = 40;

    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        if (stage > 0)
            out[count++] = (struct call){pair_comm(play, rank - per_stage(play)), SL_JOB_RECV,
                                         rank - per_stage(play), batch + 1, ++own};
        for (uint32_t i = 0; i < 2; i++)
            out[count++] = (struct call){tensor_comm(play, rank), SL_JOB_ALLREDUCE, SL_JOB_NONE,
                                         2 * batch + i + 1, 0};
        if (stage + 1 < play->stages)
            out[count++] = (struct call){pair_comm(play, rank), SL_JOB_SEND, rank + per_stage(play),
                                         batch + 1, ++own};
    }
    if (play->replicas > 1)
        out[count++] =
            (struct call){replica_comm(play, rank), SL_JOB_REDUCE_SCATTER, SL_JOB_NONE, 1, 0};
    out[count++] = (struct call){world_comm(play), SL_JOB_ALLREDUCE, SL_JOB_NONE, 1, 0};
    return count;
}

uint32_t play_length(const struct play *play, uint32_t rank)
{
    struct call calls[CALLS_MAX];

    return list_calls(play, rank, calls);
}

bool play_is_collective(const struct play *play, uint32_t rank, uint32_t at)
{
    struct call calls[CALLS_MAX];

    list_calls(play, rank, calls);
    return calls[at].peer == SL_JOB_NONE;
}

/* ---- until nothing moves ---- */

static uint32_t issued(const struct table *table, uint32_t rank)
{
    const struct play *play = table->play;
    uint32_t most = table->head[rank] + play->ahead;

    most = most < table->length[rank] ? most : table->length[rank];
    if (rank == play->fault_rank && !play->is_gpu && most > play->fault_at)
        most = play->fault_at;
    return most;
}

static bool is_stuck(const struct table *table, uint32_t rank)
{
    return table->play->is_gpu && rank == table->play->fault_rank &&
           table->head[rank] == table->play->fault_at;
}

/* The members of a played communicator, the first one and the distance to the next. */
static uint32_t members(const struct table *table, uint32_t comm, uint32_t *first, uint32_t *step)
{
    const struct play *play = table->play;

    *step = 1;
    *first = 0;
    if (comm < play->replicas * play->stages) {
        *first = comm * play->tensor;
        return play->tensor;
    }
    if (comm < world_comm(play)) {
        comm -= play->replicas * play->stages;
        *first = comm / play->tensor * per_stage(play) + comm % play->tensor;
        *step = play->tensor;
        return play->replicas;
    }
    if (comm == world_comm(play))
        return table->ranks;
    *first = comm - world_comm(play) - 1;
    *step = per_stage(play);
    return 2;
}

static void advance(struct table *table, uint32_t rank, uint32_t *tail)
{
    const struct call *call = &table->calls[rank * CALLS_MAX + table->head[rank]];
    uint32_t *arrived, first, step, count;

    if (table->head[rank] >= issued(table, rank))
        return;
    arrived = &table->arrived[call->comm * CALLS_MAX + call->seq];
    count = members(table, call->comm, &first, &step);
    if (++*arrived < count)
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t member = first + i * step;

        if (is_stuck(table, member))
            continue;
        table->head[member]++;
        table->queue[(*tail)++] = member;
    }
}

static void run(struct table *table)
{
    uint32_t head = 0, tail = 0;

    for (uint32_t r = 0; r < table->ranks; r++)
        table->queue[tail++] = r;
    while (head < tail)
        advance(table, table->queue[head++], &tail);
}

/* ---- as it stands ---- */

static void tell_comms(const struct table *table, struct sl_job *job)
{
    uint32_t *list = calloc(table->ranks, sizeof(*list)), first, step;
    char name[32];

    for (uint32_t c = 0; c < table->comms; c++) {
        uint32_t count = members(table, c, &first, &step);

        for (uint32_t i = 0; i < count; i++)
            list[i] = first + i * step;
        snprintf(name, sizeof(name), "comm %u", c);
        if (c > world_comm(table->play) && list[count - 1] >= table->ranks)
            count = 1; /* the last stage sends to nobody */
        assert_int_equal(make_comm(job, name, list, count), c);
    }
    free(list);
}

/* The number of the last call of each communicator is known where the calls are forgotten. */
static void tell_counts(const struct table *table, struct sl_job *job, uint32_t rank)
{
    for (uint32_t i = 0; i < issued(table, rank); i++) {
        const struct call *call = &table->calls[rank * CALLS_MAX + i];
        const struct sl_job_count count = {.rank = rank,
                                           .comm = call->comm,
                                           .kind = SL_JOB_KINDS,
                                           .issued = call->seq,
                                           .done = i < table->head[rank] ? call->seq : 0,
                                           .at_ns = SL_JOB_NEVER};

        if (call->peer == SL_JOB_NONE)
            assert_int_equal(sl_job_add_count(job, &count), 0);
    }
}

static void tell_calls(const struct table *table, struct sl_job *job, uint32_t rank)
{
    uint32_t end = issued(table, rank), from = table->head[rank] > 2 ? table->head[rank] - 2 : 0;

    for (uint32_t i = from; i < end; i++) {
        const struct call *call = &table->calls[rank * CALLS_MAX + i];
        int state = i < table->head[rank] ? SL_JOB_DONE : SL_JOB_ISSUED;
        bool is_own = table->play->is_seq_own;

        if (call->peer == SL_JOB_NONE)
            make_op(job, rank, call->comm, call->kind, call->seq, state, 1000 + i);
        else
            make_message(job, rank, call->comm, call->kind, call->peer,
                         is_own ? call->own : call->seq, state, 1000 + i, is_own);
    }
}

struct sl_job *play_job(const struct play *play)
{
    struct table table = {.play = play, .ranks = per_stage(play) * play->stages};
    struct sl_job *job = sl_job_new();

    table.comms = pair_comm(play, table.ranks);
    table.calls = calloc((size_t)table.ranks * CALLS_MAX, sizeof(*table.calls));
    table.length = calloc(table.ranks, sizeof(*table.length));
    table.head = calloc(table.ranks, sizeof(*table.head));
    table.arrived = calloc((size_t)table.comms * CALLS_MAX, sizeof(*table.arrived));
    table.queue = calloc((size_t)table.ranks * (CALLS_MAX + 1), sizeof(*table.queue));
    for (uint32_t r = 0; r < table.ranks; r++)
        table.length[r] = list_calls(play, r, &table.calls[r * CALLS_MAX]);
    run(&table);
    tell_comms(&table, job);
    for (uint32_t r = 0; r < table.ranks; r++) {
        tell_calls(&table, job, r);
        tell_counts(&table, job, r);
    }
    free(table.calls);
    free(table.length);
    free(table.head);
    free(table.arrived);
    free(table.queue);
    return job;
}
