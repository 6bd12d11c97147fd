/* SPDX-License-Identifier: Apache-2.0 */
/* Which operation a name means: NCCL's, PyTorch's, MPI's and our own names. */
#include "monitor/diagnosis/job.h"

#include <string.h>

/* What stands before the operation's name, in letters alone. */
static const char *const before[] = {"nccldevkernel", "ncclkernel", "nccl", "rccl", "gloo",
                                     "mpi",           "sluice",     "ucc",  "cd"};

/* Letters alone, the longest first where one begins another. */
static const struct {
    const char *letters;
    uint8_t kind;
} kinds[] = {
    {"allreduce", SL_JOB_ALLREDUCE},
    {"allgather", SL_JOB_ALLGATHER},
    {"reducescatter", SL_JOB_REDUCE_SCATTER},
    {"alltoall", SL_JOB_ALLTOALL},
    {"broadcast", SL_JOB_BROADCAST},
    {"bcast", SL_JOB_BROADCAST},
    {"reduce", SL_JOB_REDUCE},
    {"gather", SL_JOB_GATHER},
    {"scatter", SL_JOB_SCATTER},
    {"barrier", SL_JOB_BARRIER},
    {"sendrecv", SL_JOB_OTHER},
    {"send", SL_JOB_SEND},
    {"recv", SL_JOB_RECV},
    {"compute", SL_JOB_COMPUTE},
};

static const char *const names[SL_JOB_KINDS] = {
    [SL_JOB_OTHER] = "operation",
    [SL_JOB_ALLREDUCE] = "all_reduce",
    [SL_JOB_ALLGATHER] = "all_gather",
    [SL_JOB_REDUCE_SCATTER] = "reduce_scatter",
    [SL_JOB_BROADCAST] = "broadcast",
    [SL_JOB_REDUCE] = "reduce",
    [SL_JOB_GATHER] = "gather",
    [SL_JOB_SCATTER] = "scatter",
    [SL_JOB_ALLTOALL] = "all_to_all",
    [SL_JOB_BARRIER] = "barrier",
    [SL_JOB_SEND] = "send",
    [SL_JOB_RECV] = "recv",
    [SL_JOB_COMPUTE] = "compute",
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static uint8_t find(const char *letters)
{
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (begins(letters, kinds[i].letters))
            return kinds[i].kind;
    return SL_JOB_OTHER;
}

enum sl_job_kind sl_job_kind_of(const char *name, size_t len)
{
    char letters[64] = "";
    const char *at = letters;
    size_t count = 0;
    uint8_t kind;

    for (size_t i = 0; i < len && count + 1 < sizeof(letters); i++) {
        char c = name[i];

        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if (c >= 'a' && c <= 'z')
            letters[count++] = c;
    }
    letters[count] = '\0';
    for (unsigned i = 0; i < sizeof(before) / sizeof(before[0]); i++)
        if (begins(at, before[i])) {
            at += strlen(before[i]);
            break;
        }
    kind = find(at);
    /* MPI's names of what does not wait: MPI_Iallreduce. */
    return kind == SL_JOB_OTHER && at[0] == 'i' ? find(at + 1) : kind;
}

const char *sl_job_kind_name(enum sl_job_kind kind)
{
    return (unsigned)kind < SL_JOB_KINDS ? names[kind] : names[SL_JOB_OTHER];
}
