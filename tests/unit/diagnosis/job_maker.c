/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that tests make up, a call at a time. */
#include "job_maker.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define SECOND ((int64_t)1000000000)

uint32_t make_comm(struct sl_job *job, const char *name, const uint32_t *ranks, uint32_t count)
{
    uint32_t comm;

    assert_int_equal(sl_job_add_comm(job, sl_job_text(job, name, strlen(name)), &comm), 0);
    assert_int_equal(sl_job_set_members(job, comm, ranks, count), 0);
    for (uint32_t i = 0; i < count; i++)
        job->ranks[ranks[i]].is_told = true;
    return comm;
}

static struct sl_job_op op_of(uint32_t rank, uint32_t comm, int kind, uint64_t seq, int state,
                              int64_t at)
{
    return (struct sl_job_op){.rank = rank,
                              .comm = comm,
                              .peer = SL_JOB_NONE,
                              .step = SL_JOB_NONE,
                              .seq = seq,
                              .issue_ns = at * SECOND,
                              .start_ns = SL_JOB_NEVER,
                              .end_ns = SL_JOB_NEVER,
                              .kind = (uint8_t)kind,
                              .state = (uint8_t)state};
}

void make_op(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint64_t seq, int state,
             int64_t at)
{
    struct sl_job_op op = op_of(rank, comm, kind, seq, state, at);

    assert_int_equal(sl_job_add_op(job, &op), 0);
}

void make_shaped(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint64_t seq,
                 const char *shape, int64_t at)
{
    struct sl_job_op op = op_of(rank, comm, kind, seq, SL_JOB_ISSUED, at);

    op.shape = sl_job_text(job, shape, strlen(shape));
    assert_int_equal(sl_job_add_op(job, &op), 0);
}

void make_message(struct sl_job *job, uint32_t rank, uint32_t comm, int kind, uint32_t peer,
                  uint64_t seq, int state, int64_t at, bool is_own)
{
    struct sl_job_op op = op_of(rank, comm, kind, seq, state, at);

    op.peer = peer;
    op.is_seq_own = is_own;
    assert_int_equal(sl_job_add_op(job, &op), 0);
}

void judge_job(struct sl_job *job, int64_t now, struct sl_verdicts *out)
{
    const struct sl_hang_options options = {.now_ns = now < 0 ? SL_JOB_NEVER : now * SECOND,
                                            .stall_ns = 30 * SECOND};

    *out = (struct sl_verdicts){.list = NULL};
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_equal(sl_hang_find(job, &options, out), 0);
    assert_true(out->count > 0);
    for (uint32_t i = 0; i < out->count; i++) {
        assert_true(out->list[i].evidence_count > 0);
        assert_true(out->list[i].probability > 0 && out->list[i].probability < 1);
    }
}

const char *verdicts_text(const struct sl_verdicts *verdicts)
{
    static char text[4096];

    text[0] = '\0';
    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct sl_verdict *it = &verdicts->list[i];

        sl_text_add(text, sizeof(text), "%s%s", i > 0 ? ", " : "", sl_verdict_class_name(it->cls));
        if (it->accused.a != SL_JOB_NONE)
            sl_text_add(text, sizeof(text), " %u", it->accused.a);
        if (it->accused.kind == SL_OBJECT_LINK)
            sl_text_add(text, sizeof(text), ">%u", it->accused.b);
    }
    return text;
}

bool verdicts_say(const struct sl_verdicts *verdicts, const char *words)
{
    for (uint32_t i = 0; i < verdicts->count; i++)
        for (uint32_t k = 0; k < verdicts->list[i].evidence_count; k++)
            if (strstr(verdicts->list[i].evidence[k], words) != NULL)
                return true;
    return false;
}
