/* SPDX-License-Identifier: Apache-2.0 */
/* The rules one after another, then all that is known of nodes. */
#include "monitor/cases/judge.h"

int sl_judge(const struct sl_job *job, const struct sl_judge_options *options,
             struct sl_verdicts *verdicts)
{
    int err = sl_hang_find(job, &options->hang, verdicts);

    if (err == 0)
        err = sl_gauges_find(job, verdicts);
    if (err == 0)
        err = sl_slow_find(job, &options->slow, verdicts);
    if (err == 0)
        err = sl_comm_find(job, &options->comm, verdicts);
    if (err == 0)
        err = sl_nodes_find(job, verdicts);
    if (err != 0)
        return err;
    /* Nothing is wrong: unless something else is. */
    sl_verdicts_drop(verdicts, SL_VERDICT_NOT_HUNG);
    sl_verdicts_sort(verdicts);
    err = sl_fuse(job, &options->fuse, verdicts);
    /* Another object may be the accused now. */
    sl_verdicts_sort(verdicts);
    return err;
}

bool sl_verdicts_accuse(const struct sl_verdicts *verdicts)
{
    for (uint32_t i = 0; i < verdicts->count; i++)
        if (verdicts->list[i].cls != SL_VERDICT_NOT_HUNG)
            return true;
    return false;
}
