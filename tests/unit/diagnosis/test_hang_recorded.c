/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that others recorded when they hung, with the ranks in which a fault was injected; and what
 * simpler rules say of them. */
#include "core/err.h"
#include "job_maker.h"
#include "monitor/read/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define RANKS 16

static struct sl_job *read_case(const char *name)
{
    const char *data = getenv("SLUICE_TEST_DATA");
    struct sl_job *job;
    char path[1024];

    snprintf(path, sizeof(path), "%s/hang/%s", data != NULL ? data : "", name);
    if (data == NULL || access(path, R_OK) != 0) {
        print_message("no recorded jobs at %s\n", path);
        skip();
    }
    job = sl_job_new();
    for (unsigned rank = 0; rank < RANKS; rank++) {
        snprintf(path, sizeof(path), "%s/hang/%s/_dump_%u", data, name, rank);
        if (sl_read_file(job, path) != 0)
            fail_msg("%s", sluice_last_error());
    }
    assert_int_equal(job->rank_count, RANKS);
    return job;
}

static void expect(const char *name, const char *text)
{
    struct sl_job *job = read_case(name);
    struct sl_verdicts verdicts;

    judge_job(job, -1, &verdicts);
    assert_string_equal(verdicts_text(&verdicts), text);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
}

static void gpu_errors_are_told_apart_from_stalled_hosts(void **state)
{
    (void)state;
    expect("gpu_error_1st", "gpu_stuck 12, gpu_stuck 14");
}

static void processes_that_hold_the_interpreter_are_stalled_hosts(void **state)
{
    (void)state;
    expect("lock_gil_1st", "host_stalled 9, host_stalled 14");
}

/* ---- controls ---- */

static bool is_member(const struct sl_job *job, uint32_t comm, uint32_t rank)
{
    for (uint32_t i = 0; i < job->comms[comm].member_count; i++)
        if (job->comms[comm].members[i] == rank)
            return true;
    return false;
}

/* The pending collective that was called first: of its members a bit for each that has, and the one
 * that came last. */
static const struct sl_job_op *oldest(const struct sl_job *job)
{
    const struct sl_job_op *found = NULL;

    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].kind != SL_JOB_SEND && job->ops[i].kind != SL_JOB_RECV &&
            (found == NULL || job->ops[i].issue_ns < found->issue_ns))
            found = &job->ops[i];
    assert_non_null(found);
    return found;
}

static unsigned not_entered(const struct sl_job *job, const struct sl_job_op *op, uint32_t *last)
{
    unsigned missing = 0;
    int64_t latest = SL_JOB_NEVER;

    for (uint32_t r = 0; r < RANKS; r++)
        missing |= is_member(job, op->comm, r) ? 1u << r : 0;
    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].comm == op->comm && job->ops[i].seq >= op->seq) {
            missing &= ~(1u << job->ops[i].rank);
            if (job->ops[i].seq == op->seq && job->ops[i].issue_ns > latest) {
                latest = job->ops[i].issue_ns;
                *last = job->ops[i].rank;
            }
        }
    return missing;
}

static void who_has_not_entered_the_oldest_collective_is_not_all(void **state)
{
    struct sl_job *job = read_case("gpu_error_1st");
    uint32_t last = SL_JOB_NONE;

    (void)state;
    assert_int_equal(sl_job_seal(job), 0);
    assert_int_not_equal(not_entered(job, oldest(job), &last), 1u << 12 | 1u << 14);
    sl_job_free(job);
}

static void who_arrives_last_is_not_at_fault(void **state)
{
    static const char *const cases[] = {"gpu_error_1st", "lock_gil_1st"};
    uint32_t last[2] = {SL_JOB_NONE, SL_JOB_NONE};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_job *job = read_case(cases[i]);

        assert_int_equal(sl_job_seal(job), 0);
        not_entered(job, oldest(job), &last[i]);
        sl_job_free(job);
    }
    /* Of two ranks at fault it could name one at most, and in the second case it names another. */
    assert_true(last[1] != 9 && last[1] != 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_errors_are_told_apart_from_stalled_hosts),
        cmocka_unit_test(processes_that_hold_the_interpreter_are_stalled_hosts),
        cmocka_unit_test(who_has_not_entered_the_oldest_collective_is_not_all),
        cmocka_unit_test(who_arrives_last_is_not_at_fault),
    };

    return cmocka_run_group_tests_name("diagnosis_hang_recorded", tests, NULL, NULL);
}
