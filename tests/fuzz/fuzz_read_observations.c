/* SPDX-License-Identifier: Apache-2.0 */
/* Observations of nodes, of whatever origin: read, or refused with a sentence, and judged. What
 * they claim of a job's size takes no memory. */
#include "core/err.h"
#include "monitor/cases/judge.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_judge_options options = SL_JUDGE_OPTIONS;
    struct sl_job *job = sl_job_new();
    struct sl_verdicts verdicts = {.list = NULL};
    int err;

    sl_assert(job != NULL);
    err = sl_read_bytes(job, "observations.jsonl", data, size);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    if (err == 0 && job->is_watched)
        sl_assert(job->rank_count <= 1024 + 65 * (size / 16 + 1));
    if (err == 0 && job->rank_count < 4096 && sl_job_seal(job) == 0) {
        sl_assert(sl_judge(job, &options, &verdicts) == 0);
        sl_assert(verdicts.count > 0);
        for (uint32_t i = 0; i < verdicts.count; i++)
            sl_assert(verdicts.list[i].probability >= 0 && verdicts.list[i].probability <= 1 &&
                      isfinite(verdicts.list[i].node_probability));
        sl_verdicts_free(&verdicts);
    }
    sl_job_free(job);
    return 0;
}
