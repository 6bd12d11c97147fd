/* SPDX-License-Identifier: Apache-2.0 */
/* Edges of messages that both ends list. */
#include "core/err.h"
#include "monitor/diagnosis/matrix.h"

#include <errno.h>
#include <stdlib.h>

struct end {
    uint32_t src, dst, comm;
    uint64_t seq, bytes;
    int64_t ns;
    bool is_send;
};

static int by_key(const void *a, const void *b)
{
    const struct end *x = a, *y = b;

    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    if (x->dst != y->dst)
        return x->dst < y->dst ? -1 : 1;
    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return (int)x->is_send - (int)y->is_send;
}

/* Messages whose numbers are those of the pair, with a size and with both times. */
static bool is_timed(const struct sl_job_op *op)
{
    return (op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV) && !op->is_seq_own &&
           op->state == SL_JOB_DONE && op->bytes > 0 && op->start_ns != SL_JOB_NEVER &&
           op->end_ns != SL_JOB_NEVER && op->end_ns > op->start_ns;
}

static size_t list_ends(const struct sl_job *job, struct end *ends)
{
    size_t count = 0;

    for (size_t i = 0; i < job->op_count; i++) {
        const struct sl_job_op *op = &job->ops[i];
        bool is_send = op->kind == SL_JOB_SEND;

        if (!is_timed(op))
            continue;
        if (ends != NULL)
            ends[count] = (struct end){.src = is_send ? op->rank : op->peer,
                                       .dst = is_send ? op->peer : op->rank,
                                       .comm = op->comm,
                                       .seq = op->seq,
                                       .bytes = op->bytes,
                                       .ns = op->end_ns - op->start_ns,
                                       .is_send = is_send};
        count++;
    }
    return count;
}

static bool is_same(const struct end *a, const struct end *b)
{
    return a->src == b->src && a->dst == b->dst && a->comm == b->comm && a->seq == b->seq;
}

/* A receive and a send of one number, and no third: one message. */
static bool is_pair(const struct end *ends, size_t count, size_t i)
{
    return i + 1 < count && is_same(&ends[i], &ends[i + 1]) &&
           ends[i].is_send != ends[i + 1].is_send &&
           (i + 2 >= count || !is_same(&ends[i], &ends[i + 2])) &&
           (i == 0 || !is_same(&ends[i], &ends[i - 1]));
}

static size_t add_up(const struct end *ends, size_t count, struct sl_job_edge *edges)
{
    size_t made = 0;

    for (size_t i = 0; i < count; i++) {
        const struct end *end = &ends[i];
        struct sl_job_edge *edge = made > 0 ? &edges[made - 1] : NULL;

        if (!is_pair(ends, count, i))
            continue;
        if (edge == NULL || edge->src != end->src || edge->dst != end->dst ||
            edge->comm != end->comm) {
            edge = &edges[made++];
            *edge = (struct sl_job_edge){.src = end->src, .dst = end->dst, .comm = end->comm};
        }
        edge->messages++;
        edge->bytes += end->bytes < end[1].bytes ? end->bytes : end[1].bytes;
        edge->wait_s[SL_JOB_WAIT_WIRE] += (double)(end->ns < end[1].ns ? end->ns : end[1].ns) / 1e9;
        i++;
    }
    return made;
}

int sl_matrix_edges_of_ops(const struct sl_job *job, struct sl_job_edge **edges, size_t *count)
{
    size_t end_count = list_ends(job, NULL);
    struct end *ends;

    *edges = NULL;
    *count = 0;
    if (end_count < 2)
        return 0;
    ends = reallocarray(NULL, end_count, sizeof(*ends));
    *edges = reallocarray(NULL, end_count / 2, sizeof(**edges));
    if (ends == NULL || *edges == NULL) {
        free(ends);
        free(*edges);
        *edges = NULL;
        return sl_fail(-ENOMEM, "no memory to pair %zu messages", end_count);
    }
    list_ends(job, ends);
    qsort(ends, end_count, sizeof(*ends), by_key);
    *count = add_up(ends, end_count, *edges);
    free(ends);
    return 0;
}
