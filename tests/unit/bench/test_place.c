/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: all ranks of a made-up job lie in one process, a plain loop plays the collective, and
 * the judge must agree with it; then one byte is spoilt, and it must not. */
#include "place.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SIZE 3
#define COUNT 21
#define SEED 7

struct job {
    char memory[SIZE][2][4096];
    size_t tables[SIZE][4 * SIZE];
    struct sb_place places[SIZE];
};

static void job_init(struct job *job, enum sb_coll_id coll, bool in_place, int root)
{
    struct sb_row row = {.coll = coll,
                         .dtype = SLUICE_U32,
                         .op = sb_colls[coll].reduces ? SLUICE_SUM : -1,
                         .root = sb_colls[coll].rooted ? root : -1,
                         .count = COUNT};

    row.bytes = sb_coll_bytes(&sb_colls[coll], COUNT, 4, SIZE);
    assert_true(sb_place_need(&row, SIZE) <= sizeof(job->memory[0][0]));
    for (int rank = 0; rank < SIZE; rank++) {
        memset(job->memory[rank], 0x11, sizeof(job->memory[rank]));
        sb_place_init(&job->places[rank], &row, in_place, NULL, rank, SIZE, job->memory[rank][0],
                      job->memory[rank][1], job->tables[rank]);
        sb_place_fill(&job->places[rank], SEED);
    }
}

/* in[rank] as it was before anything was written. */
struct operands {
    uint32_t in[SIZE][2 * SIZE * COUNT];
};

static uint32_t sum_at(const struct operands *o, size_t at)
{
    uint32_t sum = 0;

    for (int rank = 0; rank < SIZE; rank++)
        sum += o->in[rank][at];
    return sum;
}

/* The plain meaning of each collective, from the comments of sluice/comm.h. */
static void play_rank(const struct operands *o, const struct sb_place *p)
{
    const struct sb_call *c = &p->call;
    uint32_t *out = c->out;
    bool is_root = c->rank == c->root;

    for (size_t i = 0; i < COUNT; i++) {
        size_t mine = (size_t)c->rank * COUNT + i;

        if (p->id == SB_ALLREDUCE || (p->id == SB_REDUCE && is_root))
            out[i] = sum_at(o, i);
        if (p->id == SB_REDUCE_SCATTER)
            out[i] = sum_at(o, mine);
        if (p->id == SB_BROADCAST)
            out[i] = o->in[c->root][i];
        if (p->id == SB_SCATTER)
            out[i] = o->in[c->root][mine];
        if (p->id == SB_SENDRECV)
            out[i] = o->in[(c->rank + SIZE - 1) % SIZE][i];
        for (int peer = 0; peer < SIZE; peer++) {
            if (p->id == SB_ALL_GATHER || (p->id == SB_GATHER && is_root))
                out[(size_t)peer * COUNT + i] = o->in[peer][i];
            if (p->id == SB_ALL_TO_ALL)
                out[(size_t)peer * COUNT + i] = o->in[peer][mine];
        }
    }
}

static void play_alltoallv(const struct operands *o, const struct job *job, int rank)
{
    const struct sb_call *c = &job->places[rank].call;
    uint32_t *out = c->out;

    for (int peer = 0; peer < SIZE; peer++) {
        const struct sb_call *from = &job->places[peer].call;

        assert_int_equal(from->in_counts[rank], c->out_counts[peer]);
        memcpy(out + c->out_offsets[peer], o->in[peer] + from->in_offsets[rank],
               c->out_counts[peer] * sizeof(*out));
    }
}

static void play(struct job *job)
{
    struct operands o = {0};

    for (int rank = 0; rank < SIZE; rank++) {
        assert_true(job->places[rank].in_bytes <= sizeof(o.in[rank]));
        memcpy(o.in[rank], job->places[rank].in, job->places[rank].in_bytes);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        if (job->places[rank].id == SB_ALL_TO_ALL_V)
            play_alltoallv(&o, job, rank);
        else
            play_rank(&o, &job->places[rank]);
    }
}

static uint64_t judge(const struct job *job)
{
    uint64_t wrong = 0;

    for (int rank = 0; rank < SIZE; rank++)
        wrong += sb_place_check(&job->places[rank], SEED, NULL);
    return wrong;
}

typedef void for_each_fn(enum sb_coll_id coll, bool in_place, int root);

static void for_each(for_each_fn *check)
{
    for (int coll = 0; coll < SB_COLL_COUNT; coll++)
        for (int root = 0; root < (sb_colls[coll].rooted ? SIZE : 1); root++)
            for (int in_place = 0; in_place <= sb_colls[coll].in_place; in_place++)
                if (sb_colls[coll].sized)
                    check((enum sb_coll_id)coll, in_place != 0, root);
}

static void check_right(enum sb_coll_id coll, bool in_place, int root)
{
    struct job job;

    job_init(&job, coll, in_place, root);
    if (judge(&job) == 0)
        fail_msg("%s passes before anything was done", sb_colls[coll].name);
    play(&job);
    if (judge(&job) != 0)
        fail_msg("%s %s, root %d: %d right elements were called wrong", sb_colls[coll].name,
                 in_place ? "in place" : "out of place", root, (int)judge(&job));
}

static void every_collective_passes_when_it_did_what_it_says_and_only_then(void **state)
{
    (void)state;
    for_each(check_right);
}

static void check_spoilt(enum sb_coll_id coll, bool in_place, int root)
{
    struct job job;

    job_init(&job, coll, in_place, root);
    play(&job);
    for (int rank = 0; rank < SIZE; rank++) {
        const struct sb_place *p = &job.places[rank];
        char *spots[] = {p->out, p->out + p->out_bytes - 1, p->out + p->out_bytes,
                         p->out + p->out_bytes + SB_FENCE - 1};

        for (size_t i = p->out_bytes > 0 ? 0 : 2; i < SL_ARRAY_LEN(spots); i++) {
            /* In place, what follows out may still be in's. */
            if (i >= 2 && in_place && p->in + p->in_bytes > p->out + p->out_bytes)
                continue;
            *spots[i] ^= 1;
            if (judge(&job) != 1)
                fail_msg("%s %s, rank %d, spot %zu: a spoilt byte was counted as %d wrong",
                         sb_colls[coll].name, in_place ? "in place" : "out of place", rank, i,
                         (int)judge(&job));
            *spots[i] ^= 1;
        }
    }
}

static void the_first_and_last_byte_and_the_fence_are_watched(void **state)
{
    (void)state;
    for_each(check_spoilt);
}

static void check_operand(enum sb_coll_id coll, bool in_place, int root)
{
    struct job job;

    if (in_place)
        return;
    job_init(&job, coll, false, root);
    play(&job);
    for (int rank = 0; rank < SIZE; rank++) {
        const struct sb_place *p = &job.places[rank];

        if (p->in_bytes == 0)
            continue;
        p->in[p->in_bytes / 2] ^= 1;
        assert_int_equal(judge(&job), 1);
        p->in[p->in_bytes / 2] ^= 1;
    }
}

static void an_operand_that_was_changed_is_wrong(void **state)
{
    (void)state;
    for_each(check_operand);
}

static void counts_and_sizes_are_those_of_nccl_tests(void **state)
{
    (void)state;
    /* 1 MiB of f32 on 4 ranks: whole buffers, blocks a quarter. */
    assert_int_equal(sb_coll_count(&sb_colls[SB_ALLREDUCE], 1 << 20, 4, 4), 262144);
    assert_int_equal(sb_coll_count(&sb_colls[SB_ALL_GATHER], 1 << 20, 4, 4), 65536);
    assert_int_equal(sb_coll_bytes(&sb_colls[SB_ALL_GATHER], 65536, 4, 4), 1 << 20);
    assert_int_equal(sb_coll_count(&sb_colls[SB_ALL_TO_ALL], 1 << 20, 4, 4), 65536);
    /* Too small for a block each: one element each. */
    assert_int_equal(sb_coll_count(&sb_colls[SB_REDUCE_SCATTER], 8, 4, 4), 1);
    assert_int_equal(sb_coll_count(&sb_colls[SB_BARRIER], 1 << 20, 4, 4), 0);
    assert_true(sb_colls[SB_ALLREDUCE].bus_factor(4) == 1.5);
    assert_true(sb_colls[SB_ALL_TO_ALL].bus_factor(4) == 0.75);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_passes_when_it_did_what_it_says_and_only_then),
        cmocka_unit_test(the_first_and_last_byte_and_the_fence_are_watched),
        cmocka_unit_test(an_operand_that_was_changed_is_wrong),
        cmocka_unit_test(counts_and_sizes_are_those_of_nccl_tests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
