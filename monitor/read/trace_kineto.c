/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kineto's traces (PyTorch's profiler): what the GPU of one rank did. Kernels of collectives carry
 * what they are in their args; all others, copies and fills are the rank's own work.
 *
 *     {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)", ...,
 *      "args": {"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "BFloat16",
 *               "Group size": 4, "Process Group Name": "1", "Process Group Ranks": "[0, 1, 2, 3]"}}
 *
 * NCCL's kernels wait for their peers on the GPU: where one starts, the rank came to it. Kernels of
 * one stream that follow each other closely become one operation: what a rank did is summed anyway.
 * Steps are those of the "ProfilerStep#N" annotations, of the GPU's timeline where there are such.
 */
#include "monitor/read/trace.h"
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_NS 50000 /* kernels that follow each other within it are one */
#define MEMBERS_MAX 4096

struct span {
    int64_t start_ns, end_ns;
    uint32_t step;
};

struct sl_kineto {
    struct sl_job *job;
    uint32_t rank, compute; /* compute: the name of the rank's own work */
    size_t first;           /* of the job's operations, which is the file's */
    size_t near;            /* of the job's operations: the last compute, SIZE_MAX: none */
    int64_t near_thread;
    struct span *spans; /* steps on the GPU, or on the CPU */
    size_t span_count, span_cap;
    bool is_gpu; /* the spans */
};

struct sl_kineto *sl_kineto_new(struct sl_job *job, uint32_t rank)
{
    struct sl_kineto *kineto = calloc(1, sizeof(*kineto));

    if (kineto == NULL)
        return NULL;
    kineto->job = job;
    kineto->rank = rank;
    kineto->first = job->op_count;
    kineto->near = SIZE_MAX;
    kineto->compute = sl_job_text(job, "kernels", 7);
    return kineto;
}

void sl_kineto_free(struct sl_kineto *kineto)
{
    if (kineto == NULL)
        return;
    free(kineto->spans);
    free(kineto);
}

static int add_step(struct sl_kineto *kineto, const struct sl_trace_event *event)
{
    bool is_gpu = strcmp(event->category, "gpu_user_annotation") == 0;
    unsigned step;

    if (sscanf(event->name, "ProfilerStep#%u", &step) != 1 || step == SL_JOB_NONE)
        return 0;
    if (is_gpu && !kineto->is_gpu)
        kineto->span_count = 0; /* those of the CPU end before their kernels do */
    kineto->is_gpu = kineto->is_gpu || is_gpu;
    if (is_gpu != kineto->is_gpu)
        return 0;
    if (kineto->span_count == kineto->span_cap) {
        size_t cap = kineto->span_cap * 2 + 64;
        struct span *spans = reallocarray(kineto->spans, cap, sizeof(*spans));

        if (spans == NULL)
            return sl_fail(-ENOMEM, "no memory for the steps of a trace");
        kineto->spans = spans;
        kineto->span_cap = cap;
    }
    kineto->spans[kineto->span_count++] = (struct span){event->start_ns, event->end_ns, step};
    return 0;
}

/* ---- collectives ---- */

static uint64_t bytes_of(const struct sl_trace_event *event)
{
    static const struct {
        const char *name;
        unsigned size;
    } types[] = {{"Byte", 1},   {"Char", 1},          {"Bool", 1},        {"Short", 2},
                 {"Half", 2},   {"BFloat16", 2},      {"Int", 4},         {"Float", 4},
                 {"Double", 8}, {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1}, {"Long", 8}};
    const char *type = sl_trace_text(event, "dtype");
    int64_t count;

    if (type == NULL || !sl_trace_arg(event, "In msg nelems", &count) || count < 0 ||
        count > INT64_MAX / 8)
        return 0;
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, type) == 0)
            return (uint64_t)count * types[i].size;
    return (uint64_t)count;
}

/* "[0, 1, 2]"; false where the list is cut ("..."), or is no such list. */
static bool read_members(const char *text, uint32_t *members, uint32_t *count)
{
    char *end;

    *count = 0;
    if (*text++ != '[')
        return false;
    while (*text != ']') {
        unsigned long rank = strtoul(text, &end, 10);

        if (end == text || rank >= SL_JOB_RANKS_MAX || *count == MEMBERS_MAX)
            return false;
        members[(*count)++] = (uint32_t)rank;
        text = end + strspn(end, ", ");
    }
    return true;
}

static int find_comm(struct sl_kineto *kineto, const struct sl_trace_event *event, uint32_t *comm)
{
    const char *name = sl_trace_text(event, "Process Group Name");
    const char *ranks = sl_trace_text(event, "Process Group Ranks");
    uint32_t members[MEMBERS_MAX], count, text;
    char whole[256];
    int64_t size = 0;
    int err;

    sl_trace_arg(event, "Group size", &size);
    snprintf(whole, sizeof(whole), "%s %s of %lld", name != NULL ? name : "group",
             ranks != NULL ? ranks : "", (long long)size);
    text = sl_job_text(kineto->job, whole, strlen(whole));
    if (text == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for communicators of a trace");
    err = sl_job_add_comm(kineto->job, text, comm);
    if (err != 0 || kineto->job->comms[*comm].member_count > 0 || ranks == NULL ||
        !read_members(ranks, members, &count) || (int64_t)count != size)
        return err;
    return sl_job_set_members(kineto->job, *comm, members, count);
}

/* The other rank of a message, SL_JOB_NONE where it is not told. */
static uint32_t peer_of(const struct sl_kineto *kineto, const struct sl_trace_event *event,
                        uint8_t kind)
{
    int64_t peer;

    if (!sl_trace_arg(event, kind == SL_JOB_SEND ? "Dst Rank" : "Src Rank", &peer) || peer < 0 ||
        peer >= SL_JOB_RANKS_MAX || peer == kineto->rank)
        return SL_JOB_NONE;
    return (uint32_t)peer;
}

static struct sl_job_op op_of(const struct sl_kineto *kineto, const struct sl_trace_event *event)
{
    return (struct sl_job_op){.rank = kineto->rank,
                              .comm = SL_JOB_NONE,
                              .peer = SL_JOB_NONE,
                              .step = SL_JOB_NONE,
                              .issue_ns = event->start_ns,
                              .start_ns = event->start_ns,
                              .end_ns = event->end_ns,
                              .state = SL_JOB_DONE};
}

static int add_collective(struct sl_kineto *kineto, const struct sl_trace_event *event,
                          const char *name)
{
    struct sl_job_op op = op_of(kineto, event);
    int64_t seq;
    int err;

    op.kind = (uint8_t)sl_job_kind_of(name, strlen(name));
    op.name = sl_job_text(kineto->job, name, strlen(name));
    if (op.name == SL_JOB_NONE)
        return sl_fail(-EBADMSG, "an event's name is longer than a name can be");
    op.bytes = bytes_of(event);
    if (sl_trace_arg(event, "Seq", &seq) && seq >= 0)
        op.seq = (uint64_t)seq;
    if (op.kind == SL_JOB_SEND || op.kind == SL_JOB_RECV) {
        op.is_seq_own = true;
        op.peer = peer_of(kineto, event, op.kind);
        if (op.peer == SL_JOB_NONE)
            op.kind = SL_JOB_OTHER;
    } else if (op.kind == SL_JOB_COMPUTE) {
        op.kind = SL_JOB_OTHER;
    }
    err = find_comm(kineto, event, &op.comm);
    return err != 0 ? err : sl_job_add_op(kineto->job, &op);
}

/* ---- the rank's own work ---- */

static int add_compute(struct sl_kineto *kineto, const struct sl_trace_event *event)
{
    struct sl_job_op op = op_of(kineto, event);
    int err;

    if (kineto->near != SIZE_MAX && kineto->near_thread == event->thread) {
        struct sl_job_op *near = &kineto->job->ops[kineto->near];

        if (event->start_ns >= near->start_ns && event->start_ns - near->end_ns <= NEAR_NS) {
            if (event->end_ns > near->end_ns)
                near->end_ns = event->end_ns;
            return 0;
        }
    }
    op.kind = SL_JOB_COMPUTE;
    op.name = kineto->compute;
    kineto->near = kineto->job->op_count;
    kineto->near_thread = event->thread;
    err = sl_job_add_op(kineto->job, &op);
    if (err != 0)
        kineto->near = SIZE_MAX;
    return err;
}

static bool is_gpu_work(const char *category)
{
    static const char *const known[] = {"kernel", "gpu_memcpy", "gpu_memset",
                                        "Kernel", "Memcpy",     "Memset"};

    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i], category) == 0)
            return true;
    return false;
}

int sl_kineto_add(struct sl_kineto *kineto, const struct sl_trace_event *event)
{
    const char *collective;

    if (event->phase != 'X')
        return 0;
    if (!is_gpu_work(event->category))
        return strncmp(event->name, "ProfilerStep#", 13) == 0 ? add_step(kineto, event) : 0;
    collective = sl_trace_text(event, "Collective name");
    if (collective == NULL &&
        (strncmp(event->name, "nccl", 4) == 0 || strncmp(event->name, "rccl", 4) == 0))
        collective = event->name;
    return collective != NULL ? add_collective(kineto, event, collective)
                              : add_compute(kineto, event);
}

/* ---- steps ---- */

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

/* The last span that begins at or before; what begins before the first one is of no step. */
static uint32_t step_at(const struct sl_kineto *kineto, int64_t at)
{
    size_t low = 0, high = kineto->span_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (kineto->spans[middle].start_ns <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? kineto->spans[low - 1].step : SL_JOB_NONE;
}

int sl_kineto_finish(struct sl_kineto *kineto, const char *name)
{
    struct sl_job *job = kineto->job;

    if (job->op_count == kineto->first)
        return sl_fail(-EBADMSG, "%s: nothing that a GPU did is in it", name);
    if (kineto->span_count > 0)
        qsort(kineto->spans, kineto->span_count, sizeof(*kineto->spans), by_start);
    for (size_t i = kineto->first; i < job->op_count; i++)
        job->ops[i].step = step_at(kineto, job->ops[i].start_ns);
    return 0;
}
