/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hangs by xpu_timer's gauge XPU_TIMER_COMMON_HANG: 1 where a kernel of the rank has run for longer
 * than the timer's limit. In a collective that hangs these are the ranks that wait; who never came
 * has no kernel that runs. So where some say 1, those that say 0 are accused; where all do, the
 * gauge cannot tell them apart.
 */
#include "core/err.h"
#include "monitor/diagnosis/slow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME "XPU_TIMER_COMMON_HANG"

/* That whom the others wait for is among those that hang, where all do. Not measured: a rank that
 * was not scraped, or the program, is as likely. Above all it must not be enough to isolate the
 * one node that was scraped. */
#define ALL_HANG 0.5

enum { SILENT, RUNS, HANGS };

/* What each rank says last; samples of one time are in the order of their files. */
static int last_words(const struct sl_job *job, uint8_t **out)
{
    uint8_t *words = calloc(job->rank_count + 1, sizeof(*words));
    int64_t *at = calloc(job->rank_count + 1, sizeof(*at));

    if (words == NULL || at == NULL) {
        free(words);
        free(at);
        return sl_fail(-ENOMEM, "no memory for the gauges of a job");
    }
    for (size_t i = 0; i < job->sample_count; i++) {
        const struct sl_job_sample *it = &job->samples[i];

        if (strcmp(sl_job_string(job, it->name), NAME) != 0 ||
            (words[it->rank] != SILENT && it->at < at[it->rank]))
            continue;
        words[it->rank] = it->value > 0 ? HANGS : RUNS;
        at[it->rank] = it->at;
    }
    free(at);
    *out = words;
    return 0;
}

static struct sl_object object_of(uint32_t rank)
{
    return (struct sl_object){.kind = SL_OBJECT_RANK, .a = rank, .b = SL_JOB_NONE};
}

/* The ranks with that word are one ambiguity set. */
static int accuse(const struct sl_job *job, const uint8_t *words, uint8_t word, uint32_t count,
                  enum sl_verdict_class cls, double probability, struct sl_verdicts *verdicts,
                  struct sl_verdict **verdict)
{
    *verdict = NULL;
    for (uint32_t rank = 0; rank < job->rank_count; rank++) {
        int err = 0;

        if (words[rank] != word)
            continue;
        if (*verdict != NULL)
            err = sl_verdict_other(*verdict, object_of(rank));
        else
            *verdict = sl_verdict_add(verdicts, cls, object_of(rank), probability / count);
        if (err != 0 || *verdict == NULL)
            return -ENOMEM;
    }
    return 0;
}

int sl_gauges_find(const struct sl_job *job, struct sl_verdicts *verdicts)
{
    uint32_t runs = 0, hangs = 0;
    struct sl_verdict *verdict;
    uint8_t *words = NULL;
    int err = last_words(job, &words);

    if (err != 0)
        return err;
    for (uint32_t rank = 0; rank < job->rank_count; rank++) {
        runs += words[rank] == RUNS;
        hangs += words[rank] == HANGS;
    }
    if (hangs > 0 && runs == 0) {
        err = accuse(job, words, HANGS, hangs, SL_VERDICT_COMM_STUCK, ALL_HANG, verdicts, &verdict);
        if (err == 0)
            err = sl_verdict_say(verdict,
                                 "all %u ranks that xpu_timer sees hang (" NAME " is 1): a kernel "
                                 "of each runs for longer than the limit",
                                 hangs);
        if (err == 0)
            err = sl_verdict_say(verdict, "the gauge does not tell which of them the others wait "
                                          "for: dumps or stacks of these ranks would");
    } else if (hangs > 0) {
        err = accuse(job, words, RUNS, runs, SL_VERDICT_HOST_STALLED, 0.9, verdicts, &verdict);
        if (err == 0)
            err =
                sl_verdict_say(verdict,
                               "%u ranks hang by xpu_timer (" NAME " is 1) and wait for a peer on "
                               "the GPU; %u say 0: they have not come to what the others wait in",
                               hangs, runs);
    }
    free(words);
    return err;
}
