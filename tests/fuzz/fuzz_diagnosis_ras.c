/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of NCCL RAS, of whatever origin: they are read or refused with a sentence, and the rules
 * come to an end with what was read. */
#include "core/err.h"
#include "monitor/diagnosis/hang.h"
#include "monitor/read/read.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(struct sl_job *job)
{
    const struct sl_hang_options options = {.now_ns = SL_JOB_NEVER, .stall_ns = SL_HANG_STALL_NS};
    struct sl_verdicts verdicts = {.list = NULL};

    int sealed = sl_job_seal(job);

    sl_assert(sealed == 0 || sealed == -EBADMSG);
    if (sealed != 0)
        return;
    if (job->rank_count > 4096) /* a rank of many digits: it only takes time */
        return;
    sl_assert(sl_hang_find(job, &options, &verdicts) == 0);
    sl_assert(verdicts.count > 0);
    sl_verdicts_free(&verdicts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_job *job = sl_job_new();
    int err;

    sl_assert(job != NULL);
    err = sl_read_bytes(job, "_dump_1", data, size);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != '\0');
    judge(job);
    sl_job_free(job);
    return 0;
}
