/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's profiler tells of a process, into a job. */
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/read/nccl.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for events of NCCL");
}

static void *more(void *list, size_t *count, size_t *cap, size_t size)
{
    char *at;
    void *old;

    memcpy(&old, list, sizeof(old));
    if (*count == *cap) {
        size_t next = *cap * 2 + 16;

        old = reallocarray(old, next, size);
        if (old == NULL) {
            no_memory();
            return NULL;
        }
        memcpy(list, &old, sizeof(old));
        *cap = next;
    }
    at = (char *)old + (*count)++ * size;
    return memset(at, 0, size);
}

struct sl_nccl_comm *sl_nccl_add_comm(struct sl_nccl_tale *tale)
{
    return more(&tale->comms, &tale->comm_count, &tale->comm_cap, sizeof(*tale->comms));
}

struct sl_nccl_call *sl_nccl_add_call(struct sl_nccl_tale *tale)
{
    return more(&tale->calls, &tale->call_count, &tale->call_cap, sizeof(*tale->calls));
}

struct sl_nccl_part *sl_nccl_add_part(struct sl_nccl_tale *tale)
{
    return more(&tale->parts, &tale->part_count, &tale->part_cap, sizeof(*tale->parts));
}

void sl_nccl_free(struct sl_nccl_tale *tale)
{
    free(tale->comms);
    free(tale->calls);
    free(tale->parts);
}

/* docs/nccl.md has the table. */
enum sl_job_wait sl_nccl_wait_of(unsigned state)
{
    switch (state) {
    case 8: return SL_JOB_WAIT_GPU;
    case 9: return SL_JOB_WAIT_WIRE;
    case 10: return SL_JOB_WAIT_DATA;
    case 11: return SL_JOB_WAIT_FLUSH;
    case 12: return SL_JOB_WAIT_CONSUMER;
    case 20: return SL_JOB_WAIT_PEER;
    default: return SL_JOB_WAITS;
    }
}

/* ---- parts to their calls ---- */

static int by_id(const void *a, const void *b)
{
    const struct sl_nccl_call *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static struct sl_nccl_call *call_of(const struct sl_nccl_tale *tale, uint64_t id)
{
    size_t low = 0, high = tale->call_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (tale->calls[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return id != 0 && low < tale->call_count && tale->calls[low].id == id ? &tale->calls[low]
                                                                          : NULL;
}

static void take_part(const struct sl_nccl_tale *tale, const struct sl_nccl_part *part)
{
    struct sl_nccl_call *call = call_of(tale, part->call);

    if (call == NULL || call->comm != part->comm)
        return;
    call->at_gpu += part->at_gpu;
    call->at_others += part->at_others;
    if (part->peer == SL_JOB_NONE) {
        call->has_kernel = true;
        if (call->kernel_ns == SL_JOB_NEVER || part->start_ns < call->kernel_ns)
            call->kernel_ns = part->start_ns;
    }
    call->parts++;
    call->open += part->is_open;
    if (!part->is_open && part->at_ns > call->end_ns)
        call->end_ns = part->at_ns;
    if (part->awaits != 0 && (call->awaits == 0 || part->awaits_since_ns < call->awaits_since_ns)) {
        call->awaits = part->awaits;
        call->awaits_since_ns = part->awaits_since_ns;
    }
}

/* ---- who it is ---- */

/* The rank of the job is that in the largest communicator, which is taken for that of all. */
static uint32_t rank_of(const struct sl_nccl_tale *tale)
{
    const struct sl_nccl_comm *largest = NULL;

    for (size_t i = 0; i < tale->comm_count; i++)
        if (tale->comms[i].ranks > 0 && (largest == NULL || tale->comms[i].ranks > largest->ranks))
            largest = &tale->comms[i];
    return largest != NULL ? largest->rank : SL_JOB_NONE;
}

static int take_self(struct sl_job *job, const struct sl_nccl_tale *tale, uint32_t *out)
{
    uint32_t process = sl_job_text(job, tale->process, strlen(tale->process)), rank = rank_of(tale);
    struct sl_job_rank *it;
    int err;

    if (rank == SL_JOB_NONE)
        return sl_fail(-EBADMSG, "%s: no communicator is in it, so it is nobody's", tale->name);
    err = sl_job_rank_of(job, sl_page_identity(job, &tale->self), rank, out);
    rank = *out;
    if (err == 0)
        err = sl_job_add_rank(job, rank);
    if (err != 0)
        return err;
    it = &job->ranks[rank];
    if (it->process != 0 && it->process != process && it->is_told)
        return sl_fail(-EBADMSG, "%s: two processes say that they are rank %u, %s and %s",
                       tale->name, rank, sl_job_string(job, it->process), tale->process);
    it->process = process;
    it->host = sl_job_text(job, tale->host, strlen(tale->host));
    it->is_told = true;
    it->is_gone = it->is_gone || tale->is_gone;
    if (tale->halt[0] != '\0')
        it->halt = sl_job_text(job, tale->halt, strlen(tale->halt));
    return process == SL_JOB_NONE || it->host == SL_JOB_NONE ? no_memory() : 0;
}

static int take_comm(struct sl_job *job, const struct sl_nccl_comm *in, uint32_t rank,
                     uint32_t *comm)
{
    char text[128];
    uint32_t label;
    int err;

    snprintf(text, sizeof(text), "nccl %016" PRIx64 " of %u", in->id, in->ranks);
    err = sl_job_add_comm(job, sl_job_text(job, text, strlen(text)), comm);
    if (err == 0)
        err = sl_job_add_member(job, *comm, in->rank, in->ranks, rank);
    if (err != 0)
        return err;
    snprintf(text, sizeof(text), "%s%scommunicator %016" PRIx64 " of %u ranks", in->name,
             in->name[0] != '\0' ? ", " : "", in->id, in->ranks);
    label = sl_job_text(job, text, strlen(text));
    if (label == SL_JOB_NONE)
        return no_memory();
    job->comms[*comm].label = label;
    return 0;
}

/* ---- calls ---- */

static int64_t wall(const struct sl_nccl_tale *tale, int64_t time)
{
    int64_t at;

    return time <= 0 || __builtin_add_overflow(time, tale->wall_ns, &at) ? SL_JOB_NEVER : at;
}

static uint32_t text_of(struct sl_job *job, const char *text)
{
    return sl_job_text(job, text, strlen(text));
}

/* Is its GPU at it? A kernel says so. Without kernels: not where the network waits for this GPU
 * alone, and for no peer: data is there and is not taken, and none comes to be sent. */
static bool is_started(const struct sl_nccl_tale *tale, const struct sl_nccl_call *call)
{
    if (tale->has_kernels)
        return call->has_kernel;
    return call->at_gpu == 0 || call->at_others > 0;
}

static int take_call(struct sl_job *job, const struct sl_nccl_tale *tale, uint32_t rank,
                     uint32_t comm, const struct sl_nccl_call *call, uint64_t number)
{
    bool is_pending = call->open > 0;
    char shape[64];
    struct sl_job_op op = {.rank = rank,
                           .comm = comm,
                           .peer = SL_JOB_NONE,
                           .step = SL_JOB_NONE,
                           .seq = number,
                           .issue_ns = wall(tale, call->start_ns),
                           .start_ns = SL_JOB_NEVER,
                           .end_ns = is_pending ? SL_JOB_NEVER : wall(tale, call->end_ns)};

    if (call->kernel_ns != SL_JOB_NEVER)
        op.start_ns = wall(tale, call->kernel_ns);
    if (call->parts == 0)
        return 0; /* whether it has ended is not told */
    op.kind = (uint8_t)sl_job_kind_of(call->func, strlen(call->func));
    op.name = text_of(job, call->func);
    op.state = SL_JOB_DONE;
    if (is_pending)
        op.state = is_started(tale, call) ? SL_JOB_STARTED : SL_JOB_ISSUED;
    if (call->is_message) {
        if (op.kind != SL_JOB_SEND && op.kind != SL_JOB_RECV)
            return 0;
        if (call->root < 0 || call->root >= (int32_t)SL_JOB_RANKS_MAX)
            return 0;
        op.is_seq_own = true;
        op.peer_place = (uint32_t)call->root + 1;
    } else {
        if (op.kind == SL_JOB_SEND || op.kind == SL_JOB_RECV)
            return 0;
        snprintf(shape, sizeof(shape), "%" PRIu64 " %s", call->count, call->datatype);
        op.shape = text_of(job, shape);
        op.awaits_place = is_pending ? call->awaits : 0;
    }
    if (op.name == SL_JOB_NONE || op.shape == SL_JOB_NONE)
        return no_memory();
    return sl_job_add_op(job, &op);
}

static int by_begin(const void *a, const void *b)
{
    const struct sl_nccl_call *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->is_message != y->is_message)
        return x->is_message ? 1 : -1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

#define FUNCTIONS_MAX 16

/* How many collectives were called in all: as the file says, or by the numbers of each function,
 * which count from 0. */
static uint64_t count_calls(const struct sl_nccl_comm *comm, const struct sl_nccl_call *calls,
                            size_t count)
{
    const struct sl_nccl_call *last[FUNCTIONS_MAX];
    unsigned functions = 0, f;
    uint64_t sum = 0;

    if (comm->calls != 0)
        return comm->calls;
    for (size_t i = 0; i < count; i++) {
        for (f = 0; f < functions && strcmp(last[f]->func, calls[i].func) != 0; f++)
            continue;
        if (f < FUNCTIONS_MAX && (f == functions || calls[i].seq > last[f]->seq))
            last[f] = &calls[i];
        functions += f == functions && f < FUNCTIONS_MAX;
    }
    for (f = 0; f < functions; f++)
        sum += last[f]->seq < UINT64_MAX / 32 ? last[f]->seq + 1 : 0;
    return sum;
}

/* Of one communicator, in the order of their begin. Where events were dropped, which one has which
 * number is not known: only how many there were. */
static int take_collectives(struct sl_job *job, const struct sl_nccl_tale *tale, uint32_t rank,
                            uint32_t comm, const struct sl_nccl_comm *of,
                            const struct sl_nccl_call *calls, size_t count)
{
    uint64_t all = count_calls(of, calls, count);
    struct sl_job_count last = {.rank = rank,
                                .comm = comm,
                                .kind = SL_JOB_KINDS,
                                .issued = all,
                                .done = UINT64_MAX,
                                .at_ns = SL_JOB_NEVER};
    int err = all > 0 ? sl_job_add_count(job, &last) : 0;

    if (tale->is_lossy)
        return err;
    for (size_t i = 0; i < count && err == 0; i++)
        if (all + i >= count)
            err = take_call(job, tale, rank, comm, &calls[i], all - (count - 1 - i));
    return err;
}

static int take_calls(struct sl_job *job, const struct sl_nccl_tale *tale, uint32_t rank,
                      const uint32_t *comms)
{
    const struct sl_nccl_call *calls = tale->calls;
    int err = 0;

    for (size_t i = 0, end; i < tale->call_count && err == 0; i = end) {
        uint32_t comm = calls[i].comm;

        for (end = i; end < tale->call_count && calls[end].comm == comm &&
                      calls[end].is_message == calls[i].is_message;
             end++)
            continue;
        if (comms[comm] == SL_JOB_NONE)
            continue;
        if (!calls[i].is_message)
            err = take_collectives(job, tale, rank, comms[comm], &tale->comms[comm], &calls[i],
                                   end - i);
        for (size_t k = i; k < end && calls[i].is_message && err == 0; k++)
            err = take_call(job, tale, rank, comms[comm], &calls[k], calls[k].seq + 1);
    }
    return err;
}

/* ---- edges ---- */

static int by_peer(const void *a, const void *b)
{
    const struct sl_nccl_part *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->is_send != y->is_send)
        return x->is_send ? -1 : 1;
    return x->peer < y->peer ? -1 : x->peer > y->peer;
}

static int add_edge(struct sl_job *job, const struct sl_nccl_tale *tale, uint32_t comm,
                    const struct sl_nccl_part *part, struct sl_job_edge *edge)
{
    uint32_t self = tale->comms[part->comm].rank + 1, peer = part->peer + 1;
    double sum = 0;

    for (unsigned i = 0; i < SL_JOB_WAITS; i++)
        sum += edge->wait_s[i];
    if (edge->messages == 0 && sum <= 0)
        return 0;
    edge->comm = comm;
    edge->src_place = part->is_send ? self : peer;
    edge->dst_place = part->is_send ? peer : self;
    return sl_job_add_edge(job, edge);
}

/* What passed, of all parts to or from a peer; and what a step waits for that goes on, apart: that
 * is what a hang is told by. Bytes and messages count where they were sent. */
static int take_parts(struct sl_job *job, const struct sl_nccl_tale *tale, const uint32_t *comms)
{
    const struct sl_nccl_part *parts = tale->parts;
    int err = 0;

    for (size_t i = 0, end; i < tale->part_count && err == 0; i = end) {
        struct sl_job_edge over = {.messages = 0}, open = {.messages = 0};

        for (end = i; end < tale->part_count && by_peer(&parts[i], &parts[end]) == 0; end++) {
            over.messages += parts[i].is_send ? parts[end].messages : 0;
            over.bytes += parts[i].is_send ? parts[end].bytes : 0;
            for (unsigned k = 0; k < SL_JOB_WAITS; k++) {
                over.wait_s[k] += parts[end].wait_s[k];
                if (parts[end].waits_s[k] > open.wait_s[k])
                    open.wait_s[k] = parts[end].waits_s[k];
            }
        }
        if (comms[parts[i].comm] == SL_JOB_NONE || parts[i].peer >= SL_JOB_RANKS_MAX)
            continue;
        err = add_edge(job, tale, comms[parts[i].comm], &parts[i], &over);
        if (err == 0)
            err = add_edge(job, tale, comms[parts[i].comm], &parts[i], &open);
    }
    return err;
}

/* ---- all of it ---- */

static int take(struct sl_job *job, struct sl_nccl_tale *tale, uint32_t *comms)
{
    uint32_t rank;
    int err = take_self(job, tale, &rank);

    for (size_t i = 0; i < tale->comm_count && err == 0; i++) {
        comms[i] = SL_JOB_NONE;
        if (tale->comms[i].ranks > 0)
            err = take_comm(job, &tale->comms[i], rank, &comms[i]);
    }
    if (tale->call_count > 0)
        qsort(tale->calls, tale->call_count, sizeof(*tale->calls), by_id);
    for (size_t i = 0; i < tale->part_count; i++)
        take_part(tale, &tale->parts[i]);
    if (tale->call_count > 0)
        qsort(tale->calls, tale->call_count, sizeof(*tale->calls), by_begin);
    if (tale->part_count > 0)
        qsort(tale->parts, tale->part_count, sizeof(*tale->parts), by_peer);
    if (err == 0)
        err = take_calls(job, tale, rank, comms);
    if (err == 0)
        err = take_parts(job, tale, comms);
    return err;
}

int sl_nccl_take(struct sl_job *job, struct sl_nccl_tale *tale)
{
    uint32_t *comms = calloc(tale->comm_count + 1, sizeof(*comms));
    int64_t now = wall(tale, tale->now_ns);
    int err = comms == NULL ? no_memory() : take(job, tale, comms);

    free(comms);
    if (err == 0 && now > job->now_ns)
        job->now_ns = now;
    return err;
}
