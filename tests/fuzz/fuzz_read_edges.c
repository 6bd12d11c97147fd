/* SPDX-License-Identifier: Apache-2.0 */
/* What passed from rank to rank, and the rule over it. */
#include "read.h"
#include "monitor/diagnosis/comm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sl_comm_options options = SL_COMM_OPTIONS;
    struct fuzz_read read = fuzz_read_of(data, size);
    struct sl_verdicts verdicts = {0};
    struct sl_job *job = sl_job_new();
    int err;

    sl_assert(job != NULL);
    sl_read_edges.is((const char *)data, size);
    err = sl_read_edges.read(job, &read.in);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(err == 0 || sluice_last_error()[0] != 0);
    sl_assert(sl_job_seal(job) == 0);
    if (job->rank_count <= 4096) /* a rank of many digits: it only takes time */
        sl_assert(sl_comm_find(job, &options, &verdicts) == 0);
    sl_verdicts_free(&verdicts);
    sl_job_free(job);
    return 0;
}
