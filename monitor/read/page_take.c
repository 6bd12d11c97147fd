/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page into a job: its communicators, what it has called and not ended. What went by each path is
 * page_paths.c's.
 *
 * A page counts collectives and lists those that are waited for. Others that are pending are known
 * by the counts alone: they are the newest ones that are not listed, as operations mostly end in
 * turn.
 */
#include "core/err.h"
#include "monitor/diagnosis/job_late.h"
#include "monitor/read/page_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENDING_MAX 64 /* of a communicator; beyond, only the first and the last matter */

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for what a process of Sluice says");
}

uint32_t sl_page_text(struct sl_job *job, const char *text)
{
    char clean[512];
    size_t len = 0;

    for (; text[len] != '\0' && len + 1 < sizeof(clean); len++)
        clean[len] = text[len] >= ' ' && text[len] < 127 ? text[len] : '?';
    return sl_job_text(job, clean, len);
}

static int64_t wall_of(const struct sl_page *page, uint64_t time)
{
    int64_t wall;

    if (time == 0 || time > INT64_MAX ||
        __builtin_add_overflow((int64_t)time, page->wall_ns, &wall))
        return SL_JOB_NEVER;
    return wall;
}

/* ---- who it is ---- */

/* A number alone is another process's in the next container. */
uint32_t sl_page_identity(struct sl_job *job, const struct sl_state_process *self)
{
    char text[192];

    if (self->start_ticks == 0 || self->pid_space == 0)
        return 0;
    snprintf(text, sizeof(text), "pid %d in %" PRIu64 ", since %" PRIu64 ", on %.64s", self->pid,
             self->pid_space, self->start_ticks, self->host);
    return sl_page_text(job, text);
}

static int take_self(struct sl_page_taking *taking)
{
    const struct sl_state_process *self = &taking->page->self;
    struct sl_job *job = taking->job;
    char text[128];
    struct sl_job_rank *rank;
    uint32_t process;
    int err;

    if (self->rank < 0)
        return sl_fail(-EBADMSG, "process %d of host %s does not say which rank it is", self->pid,
                       self->host);
    err = sl_job_rank_of(job, sl_page_identity(job, self), (uint32_t)self->rank, &taking->rank);
    if (err == 0)
        err = sl_job_add_rank(job, taking->rank);
    if (err != 0)
        return err;
    snprintf(text, sizeof(text), "pid %d on %s", self->pid, self->host);
    process = sl_page_text(job, text);
    rank = &job->ranks[taking->rank];
    if (process == SL_JOB_NONE)
        return no_memory();
    if (rank->process != 0 && rank->process != process && rank->is_told)
        return sl_fail(-EBADMSG,
                       "two processes say that they are rank %u, %s and %s: give the pages of one "
                       "job",
                       taking->rank, sl_job_string(job, rank->process), text);
    rank->process = process;
    rank->host = sl_page_text(job, self->host);
    rank->is_told = true;
    rank->is_gone = rank->is_gone ||
                    (taking->page->life == SL_PAGE_DEAD && (self->flags & SL_STATE_ENDED) == 0);
    if (taking->page->halt[0] != '\0')
        rank->halt = sl_page_text(job, taking->page->halt);
    return rank->host != SL_JOB_NONE && rank->halt != SL_JOB_NONE ? 0 : no_memory();
}

/* When the process last looked after what it has begun. With a progress thread it is not the
 * waiting one that does. */
static void take_moved(struct sl_page_taking *taking)
{
    const struct sl_page *page = taking->page;
    struct sl_job_rank *rank = &taking->job->ranks[taking->rank];
    uint64_t latest = 0;
    int64_t wall;

    for (uint32_t i = 0; i < page->comm_count; i++) {
        if ((page->comms[i].flags & SL_STATE_THREAD) != 0)
            return;
        if (page->comms[i].updated_ns > latest)
            latest = page->comms[i].updated_ns;
    }
    for (uint32_t i = 0; i < page->op_count; i++)
        if (page->ops[i].updated_ns > latest)
            latest = page->ops[i].updated_ns;
    wall = wall_of(page, latest);
    if (wall > rank->moved_ns)
        rank->moved_ns = wall;
}

/* ---- communicators ---- */

static int take_comm(struct sl_page_taking *taking, const struct sl_page_comm *in, uint32_t *out)
{
    struct sl_job *job = taking->job;
    char text[64];
    uint32_t label;
    int err;

    snprintf(text, sizeof(text), "sluice %016" PRIx64 " of %u", in->id, in->size);
    err = sl_job_add_comm(job, sl_job_text(job, text, strlen(text)), out);
    if (err == 0)
        err = sl_job_add_member(job, *out, in->rank, in->size, taking->rank);
    if (err != 0)
        return err;
    snprintf(text, sizeof(text), "communicator %" PRIx64 " of %u ranks", in->id, in->size);
    label = sl_job_text(job, text, strlen(text));
    if (label == SL_JOB_NONE)
        return no_memory();
    job->comms[*out].label = label;
    return 0;
}

/* ---- operations ---- */

static uint32_t shape_of(struct sl_job *job, uint64_t count, const char *dtype, const char *redop,
                         int32_t root)
{
    char text[96] = "";

    if (dtype[0] != '\0')
        snprintf(text, sizeof(text), "%" PRIu64 " %.8s%s%.8s", count, dtype,
                 redop[0] != '\0' ? " " : "", redop);
    if (root >= 0)
        sl_text_add(text, sizeof(text), "%sroot %d", text[0] != '\0' ? ", " : "", root);
    return sl_page_text(job, text);
}

static int add_op(struct sl_page_taking *taking, struct sl_job_op *op, const char *coll)
{
    op->rank = taking->rank;
    op->peer = SL_JOB_NONE;
    op->step = SL_JOB_NONE;
    op->start_ns = SL_JOB_NEVER;
    if (op->state != SL_JOB_DONE || op->end_ns == 0)
        op->end_ns = SL_JOB_NEVER;
    op->kind = (uint8_t)sl_job_kind_of(coll, strlen(coll));
    op->name = sl_page_text(taking->job, coll);
    if (op->name == SL_JOB_NONE || op->shape == SL_JOB_NONE)
        return no_memory();
    return sl_job_add_op(taking->job, op);
}

static int add_listed(struct sl_page_taking *taking, uint32_t comm, const struct sl_state_op *in,
                      uint64_t *messages)
{
    struct sl_job_op op = {.comm = comm,
                           .seq = in->seq,
                           .bytes = in->bytes,
                           .state = SL_JOB_ISSUED,
                           .issue_ns = wall_of(taking->page, in->since_ns)};

    if (in->seq == 0) {
        op.seq = ++*messages;
        op.is_seq_own = true;
        op.peer_place = (uint32_t)in->root + 1;
        if (in->root < 0 || in->root >= (int32_t)SL_JOB_RANKS_MAX)
            return 0;
    } else {
        op.shape = shape_of(taking->job, in->count, in->dtype, in->redop, in->root);
        if (in->doing[0] != '\0' && in->peer >= 0 && in->peer < (int32_t)SL_JOB_RANKS_MAX)
            op.awaits_place = (uint32_t)in->peer + 1;
    }
    return add_op(taking, &op, in->coll);
}

/* Of all_to_all_v ranks may have other counts. */
static bool is_shaped(const struct sl_state_shape *shape)
{
    return shape->coll[0] != '\0' && strstr(shape->coll, "_v") == NULL;
}

/* Known by its number alone; the last one's shape is told. */
static int add_counted(struct sl_page_taking *taking, uint32_t comm, const struct sl_page_comm *in,
                       uint64_t seq, enum sl_job_state state, int64_t issue_ns)
{
    bool is_last = seq == in->begun[0];
    struct sl_job_op op = {.comm = comm, .seq = seq, .state = (uint8_t)state, .issue_ns = issue_ns};

    if (is_last && is_shaped(&in->last))
        op.shape =
            shape_of(taking->job, in->last.count, in->last.dtype, in->last.redop, in->last.root);
    return add_op(taking, &op, is_last ? in->last.coll : "");
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Those that are pending and not waited for. A process may say that any number is pending. */
static int add_unlisted(struct sl_page_taking *taking, uint32_t comm, const struct sl_page_comm *in,
                        uint64_t done, uint64_t *listed, unsigned listed_count)
{
    uint64_t left = in->begun[0] > in->ended[0] ? in->begun[0] - in->ended[0] : 0;
    int64_t at = taking->page->now_ns != SL_JOB_NEVER
                     ? wall_of(taking->page, (uint64_t)taking->page->now_ns)
                     : wall_of(taking->page, in->updated_ns);
    unsigned added = 0;
    int err = 0;

    left = left > listed_count ? left - listed_count : 0;
    qsort(listed, listed_count, sizeof(*listed), by_seq);
    for (uint64_t seq = in->begun[0]; seq > done && left > 0 && added < PENDING_MAX && err == 0;
         seq--) {
        if (listed_count > 0 && bsearch(&seq, listed, listed_count, sizeof(seq), by_seq) != NULL)
            continue;
        err = add_counted(taking, comm, in, seq, SL_JOB_ISSUED, at);
        left--;
        added++;
    }
    return err;
}

/* The newest that has ended, and all before it. */
static uint64_t done_of(const struct sl_page_comm *in, const uint64_t *listed, unsigned count)
{
    uint64_t done = in->ended[0] < in->begun[0] ? in->ended[0] : in->begun[0];

    for (unsigned i = 0; i < count; i++)
        done = listed[i] <= done ? listed[i] - 1 : done;
    return done;
}

/* What failed is over for the process, and never will be for the job. Later calls fail at once. */
static uint64_t failed_of(const struct sl_page_comm *in)
{
    if ((in->flags & SL_STATE_BROKEN) == 0)
        return 0;
    return in->disputed != 0 && in->disputed <= in->begun[0] ? in->disputed : in->begun[0];
}

static bool is_over(const struct sl_state_call *call)
{
    enum sl_job_kind kind = sl_job_kind_of(call->coll, strlen(call->coll));
    bool is_message = kind == SL_JOB_SEND || kind == SL_JOB_RECV;

    return call->issued_ns != 0 && call->ended_ns >= call->issued_ns && call->seq != 0 &&
           is_message == (call->peer >= 0) && call->peer < (int32_t)SL_JOB_RANKS_MAX;
}

/* Those before `done` are over for the counts as well: a later one may be told as pending. */
static int take_call(struct sl_page_taking *taking, const struct sl_state_call *call,
                     uint32_t place, uint64_t done)
{
    struct sl_job_op op = {.comm = taking->comms[place],
                           .seq = call->seq,
                           .bytes = call->bytes,
                           .state = SL_JOB_DONE,
                           .issue_ns = wall_of(taking->page, call->issued_ns),
                           .end_ns = wall_of(taking->page, call->ended_ns)};

    if (!is_over(call) || (call->peer < 0 && call->seq >= done))
        return 0;
    if (call->peer >= 0) {
        op.is_seq_own = true;
        op.peer_place = (uint32_t)call->peer + 1;
    }
    return add_op(taking, &op, call->coll);
}

static int take_calls(struct sl_page_taking *taking, uint32_t place, uint64_t done)
{
    const struct sl_page *page = taking->page;
    int err = 0;

    for (uint32_t i = 0; i < page->call_count && err == 0; i++)
        if (page->calls[i].comm == page->comms[place].number)
            err = take_call(taking, &page->calls[i], place, done);
    return err;
}

static int take_ops(struct sl_page_taking *taking, uint32_t place)
{
    const struct sl_page *page = taking->page;
    const struct sl_page_comm *in = &page->comms[place];
    uint32_t comm = taking->comms[place];
    uint64_t listed[PENDING_MAX], messages = in->ended[1], done, failed = failed_of(in);
    unsigned count = 0;
    int err = 0;

    for (uint32_t i = 0; i < page->op_count && err == 0; i++) {
        if (page->ops[i].comm != in->number)
            continue;
        if (page->ops[i].seq != 0 && count < PENDING_MAX)
            listed[count++] = page->ops[i].seq;
        err = add_listed(taking, comm, &page->ops[i], &messages);
    }
    done = done_of(in, listed, count);
    if (failed != 0 && failed <= done)
        done = failed - 1;
    else
        failed = 0;
    if (err == 0 && done > 0)
        err = add_counted(taking, comm, in, done, SL_JOB_DONE, wall_of(page, in->made_ns));
    if (err == 0 && failed != 0)
        err = add_counted(taking, comm, in, failed, SL_JOB_FAILED, SL_JOB_NEVER);
    else if (err == 0)
        err = add_unlisted(taking, comm, in, done, listed, count);
    return err == 0 ? take_calls(taking, place, done) : err;
}

/* ---- all of it ---- */

static int take_all(struct sl_page_taking *taking, const struct sl_page *earlier)
{
    const struct sl_page *page = taking->page;
    int err = take_self(taking);

    for (uint32_t i = 0; i < page->comm_count && err == 0; i++)
        err = take_comm(taking, &page->comms[i], &taking->comms[i]);
    for (uint32_t i = 0; i < page->comm_count && err == 0; i++)
        err = take_ops(taking, i);
    for (uint32_t i = 0; i < page->path_count && err == 0; i++)
        err = sl_page_take_path(taking, earlier, i);
    if (err == 0)
        take_moved(taking);
    return err;
}

int sl_page_take(struct sl_job *job, const struct sl_page *page, const struct sl_page *earlier)
{
    struct sl_page_taking taking = {
        .job = job, .page = page, .has_writes = sl_page_has_writes(page)};
    int64_t now = wall_of(page, sl_page_time(page));
    int err;

    taking.comms = calloc(page->comm_count + 1, sizeof(*taking.comms));
    if (taking.comms == NULL)
        return no_memory();
    err = take_all(&taking, earlier);
    free(taking.comms);
    if (err == 0 && now > job->now_ns)
        job->now_ns = now;
    return err;
}
