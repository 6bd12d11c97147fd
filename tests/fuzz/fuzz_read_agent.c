/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and events of node agents, and histories of nodes, of whatever origin: read, or refused
 * with a sentence; fusion comes to an end with what was read. */
#include "core/err.h"
#include "monitor/diagnosis/fuse.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuse(struct sl_job *job)
{
    static const struct sl_fuse_options options = SL_FUSE_OPTIONS;
    struct sl_verdicts verdicts = {.list = NULL};
    struct sl_verdict *verdict;
    int sealed;

    for (uint32_t r = 0; r < 4; r++) {
        sl_assert(sl_job_add_rank(job, r) == 0);
        job->ranks[r].host = sl_job_text(job, r % 2 == 0 ? "h1" : "h2", 2);
    }
    verdict =
        sl_verdict_add(&verdicts, SL_VERDICT_COMM_STUCK,
                       (struct sl_object){.kind = SL_OBJECT_RANK, .a = 0, .b = SL_JOB_NONE}, 0.4);
    sl_assert(verdict != NULL);
    verdict->since_ns = 1764103151 * INT64_C(1000000000);
    sl_assert(sl_verdict_other(
                  verdict, (struct sl_object){.kind = SL_OBJECT_RANK, .a = 1, .b = SL_JOB_NONE}) ==
              0);
    sealed = sl_job_seal(job);
    sl_assert(sealed == 0 || sealed == -EBADMSG); /* of another format, by its first bytes */
    if (sealed != 0) {
        sl_verdicts_free(&verdicts);
        return;
    }
    sl_assert(sl_fuse(job, &options, &verdicts) == 0);
    sl_assert(verdicts.list[0].probability > 0 && verdicts.list[0].probability < 1);
    sl_assert(isfinite(verdicts.list[0].node_probability));
    sl_verdicts_free(&verdicts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_job *job = sl_job_new();
    int err;

    sl_assert(job != NULL);
    err = sl_read_bytes(job, "h1.jsonl", data, size);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    if (job->rank_count < 4096)
        fuse(job);
    sl_job_free(job);
    return 0;
}
