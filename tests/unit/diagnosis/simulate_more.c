/* SPDX-License-Identifier: Apache-2.0 */
/* The rules' accuracy on made-up jobs, class by class, against its bars: of what can be known 99 %
 * is found, in hangs the culprit is always in the set, and nobody innocent is accused alone. */
#include "monitor/cases/judge.h"
#include "monitor/simulate/quiet.h"
#include "monitor/simulate/trial.h"

#include <stdio.h>

#define JOBS 300
#define NODE_DAYS 1000

static int judge(const struct sl_job *job, struct sl_verdicts *verdicts)
{
    static const struct sl_judge_options options = SL_JUDGE_OPTIONS;

    return sl_judge(job, &options, verdicts);
}

static bool try_class(unsigned number, uint32_t ranks, enum sl_verdict_class cls)
{
    double strength = cls == SL_VERDICT_SLOW_RANK ? 1.5 : 2;
    struct sl_trials it;
    bool is_good;

    if (sl_trials_run(ranks, cls, strength, 20000, JOBS, false, judge, &it) != 0)
        return false;
    if (cls == SL_VERDICT_NOT_HUNG)
        is_good = it.silent == it.count;
    else
        is_good = it.identifiable > 0 && it.found * 100 >= it.identifiable * 99 && it.wrong == 0 &&
                  (cls >= SL_VERDICT_SLOW_RANK || it.in_set == it.count);
    printf("%sok %u - %s, %u jobs of %u ranks: %u identifiable, %u found, %u in the set (%.1f), %u "
           "accuse an innocent one\n",
           is_good ? "" : "not ", number, sl_verdict_class_name(cls), it.count, ranks,
           it.identifiable, it.found, it.in_set, it.set, it.wrong);
    fflush(stdout);
    return is_good;
}

int main(void)
{
    static const uint32_t sizes[] = {16, 64, 256};
    unsigned number = 0;
    struct sl_quiet quiet;
    bool is_good = true;

    for (unsigned i = 0; i < 3; i++)
        for (unsigned cls = 0; cls <= SL_VERDICT_SLOW_RANK; cls++)
            is_good = try_class(++number, sizes[i], (enum sl_verdict_class)cls) && is_good;
    is_good = sl_quiet_run(1, NODE_DAYS, 10000, &quiet) == 0 && quiet.alarms == 0 && is_good;
    printf("%sok %u - %.0f node-days of healthy ranks, %llu accused\n",
           quiet.alarms == 0 ? "" : "not ", ++number, quiet.node_days,
           (unsigned long long)quiet.alarms);
    printf("1..%u\n", number);
    return is_good ? 0 : 1;
}
