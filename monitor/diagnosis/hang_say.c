/* SPDX-License-Identifier: Apache-2.0 */
/* The evidence of a hang, in sentences. */
#include "monitor/diagnosis/hang_inside.h"
#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 8       /* ranks in a list */
#define TEXT 640      /* of an operation, with its communicator's name */
#define WORDY_MAX 256 /* verdicts that are explained one by one */

const char *sl_hang_rank_name(const struct sl_hang *hang, uint32_t rank, char out[SL_HANG_NAME])
{
    const struct sl_job_rank *it = &hang->job->ranks[rank];
    const char *host = sl_job_string(hang->job, it->host);
    const char *process = sl_job_string(hang->job, it->process);

    snprintf(out, SL_HANG_NAME, "rank %u", rank);
    if (process[0] != '\0')
        sl_text_add(out, SL_HANG_NAME, " (%.200s)", process);
    else if (host[0] != '\0')
        sl_text_add(out, SL_HANG_NAME, " (host %.200s)", host);
    return out;
}

const char *sl_hang_comm_name(const struct sl_hang *hang, uint32_t comm)
{
    const struct sl_job_comm *it = &hang->job->comms[comm];
    const char *label = sl_job_string(hang->job, it->label);

    return label[0] != '\0' ? label : sl_job_string(hang->job, it->name);
}

/* "all_reduce 3460 of TENSOR (63)", "send to rank 3 in PIPELINE (43)". */
static const char *op_name(const struct sl_hang *hang, size_t at, char out[TEXT])
{
    const struct sl_job_op *op = &hang->job->ops[at];
    const char *kind = sl_job_kind_name(op->kind);

    if (op->kind == SL_JOB_OTHER && op->name != 0)
        kind = sl_job_string(hang->job, op->name);
    if (sl_hang_is_message(op))
        snprintf(out, TEXT, "its %s %" PRIu64 " %s rank %u in %.300s", kind, op->seq,
                 op->kind == SL_JOB_SEND ? "to" : "from", op->peer,
                 sl_hang_comm_name(hang, op->comm));
    else
        snprintf(out, TEXT, "%.100s %" PRIu64 " of %.300s", kind, op->seq,
                 sl_hang_comm_name(hang, op->comm));
    return out;
}

static const char *count_name(const struct sl_hang *hang, uint32_t comm, uint64_t seq,
                              char out[TEXT])
{
    snprintf(out, TEXT, "collective %" PRIu64 " of %.300s", seq, sl_hang_comm_name(hang, comm));
    return out;
}

/* " for 181 s", where it is known when the job was looked at. */
static const char *age_of(const struct sl_hang *hang, int64_t since, char out[40])
{
    int64_t now = hang->options->now_ns;

    out[0] = '\0';
    if (now != SL_JOB_NEVER && since != SL_JOB_NEVER && now > since)
        snprintf(out, 40, " for %.0f s", (double)(now - since) / 1e9);
    return out;
}

static void earlier(struct sl_verdict *verdict, int64_t since)
{
    if (since != SL_JOB_NEVER && (verdict->since_ns == SL_JOB_NEVER || since < verdict->since_ns))
        verdict->since_ns = since;
}

/* ---- who waits ---- */

/* Ranks as "3, 5-8, 11, ... (40 in all)". They come ascending. */
struct ranks {
    char text[256];
    uint32_t from, to, shown, count;
};

static void end_range(struct ranks *ranks)
{
    if (ranks->count == 0 || ranks->shown >= SHOWN)
        return;
    sl_text_add(ranks->text, sizeof(ranks->text), ranks->to == ranks->from ? "%s%u" : "%s%u-%u",
                ranks->shown > 0 ? ", " : "", ranks->from, ranks->to);
    ranks->shown++;
}

static void add_rank(struct ranks *ranks, uint32_t rank)
{
    if (ranks->count == 0 || rank != ranks->to + 1) {
        end_range(ranks);
        ranks->from = rank;
    }
    ranks->to = rank;
    ranks->count++;
}

static void end_ranks(struct ranks *ranks)
{
    uint32_t shown = ranks->shown;

    end_range(ranks);
    if (shown >= SHOWN)
        sl_text_add(ranks->text, sizeof(ranks->text), ", ... (%u in all)", ranks->count);
}

struct waiting {
    const struct sl_hang_slot *slot; /* of the one that is waited for */
    struct ranks ranks;
    size_t op;    /* the oldest operation that somebody waits in */
    uint64_t seq; /* its number */
    int64_t since;
};

/* Who waits for the member of this slot by rule 1. Members ascend in most communicators; where they
 * do not, ranges are only shorter. */
static void look(const struct sl_hang *hang, const struct sl_hang_slot *slot, struct waiting *out)
{
    const size_t *first = &hang->index.first_slot[slot->comm];

    *out = (struct waiting){
        .slot = slot, .op = SL_HANG_NO_OP, .seq = UINT64_MAX, .since = SL_JOB_NEVER};
    for (size_t i = first[0]; i < first[1]; i++) {
        const struct sl_hang_slot *it = &hang->index.slots[i];

        if (!it->has_first || it->first <= slot->last)
            continue;
        add_rank(&out->ranks, it->rank);
        if (it->first < out->seq) {
            out->seq = it->first;
            out->op = it->op;
        }
        if (it->op != SL_HANG_NO_OP && hang->job->ops[it->op].issue_ns != SL_JOB_NEVER &&
            (out->since == SL_JOB_NEVER || hang->job->ops[it->op].issue_ns < out->since))
            out->since = hang->job->ops[it->op].issue_ns;
    }
    end_ranks(&out->ranks);
}

/* What was waited for first tells the most; then what most wait for. */
static bool is_better(const struct waiting *a, const struct waiting *b)
{
    if (a->ranks.count == 0 || b->ranks.count == 0)
        return a->ranks.count > 0;
    if (a->since != b->since && a->since != SL_JOB_NEVER && b->since != SL_JOB_NEVER)
        return a->since < b->since;
    return a->ranks.count > b->ranks.count;
}

static int say_message(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank)
{
    char name[SL_HANG_NAME], text[TEXT], age[40];

    for (size_t i = 0; i < hang->index.pair_count; i++) {
        const struct sl_hang_pair *pair = &hang->index.pairs[i];
        bool is_src = pair->src == rank;
        size_t op = is_src ? pair->recv : pair->send;
        uint32_t peer = is_src ? pair->dst : pair->src;

        if ((!is_src && pair->dst != rank) || op == SL_HANG_NO_OP ||
            sl_hang_step_of(hang, peer, rank).reason != SL_HANG_NO_MESSAGE)
            continue;
        earlier(verdict, hang->job->ops[op].issue_ns);
        return sl_verdict_say(verdict, "%s has not called the %s for which rank %u waits%s in %s",
                              sl_hang_rank_name(hang, rank, name), is_src ? "send" : "receive",
                              peer, age_of(hang, hang->job->ops[op].issue_ns, age),
                              op_name(hang, op, text));
    }
    return 0;
}

int sl_hang_say_waited(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank)
{
    struct waiting best = {.slot = NULL}, it;
    char name[SL_HANG_NAME], text[TEXT], age[40];

    if (hang->verdicts->count > WORDY_MAX)
        return sl_verdict_say(verdict, "%s is waited for as the ones before it are",
                              sl_hang_rank_name(hang, rank, name));
    for (size_t i = hang->index.first_of[rank]; i < hang->index.first_of[rank + 1]; i++) {
        look(hang, &hang->index.slots[hang->index.slots_of[i]], &it);
        if (is_better(&it, &best))
            best = it;
    }
    if (best.ranks.count == 0)
        return say_message(hang, verdict, rank);
    earlier(verdict, best.since);
    if (best.op != SL_HANG_NO_OP)
        op_name(hang, best.op, text);
    else
        count_name(hang, best.slot->comm, best.seq, text);
    return sl_verdict_say(verdict, "%s has not called %s; %s %s %s in it%s",
                          sl_hang_rank_name(hang, rank, name), text,
                          best.ranks.count == 1 ? "rank" : "ranks", best.ranks.text,
                          best.ranks.count == 1 ? "waits" : "wait", age_of(hang, best.since, age));
}

/* Who is at the same operation as this rank, whose slot it is. */
static int say_beside(const struct sl_hang *hang, struct sl_verdict *verdict,
                      const struct sl_hang_slot *slot)
{
    const size_t *first = &hang->index.first_slot[slot->comm];
    struct ranks ranks = {.count = 0};
    char text[TEXT], age[40];

    for (size_t i = first[0]; i < first[1]; i++) {
        const struct sl_hang_slot *it = &hang->index.slots[i];

        if (it->has_first && it->first == slot->first && it->rank != slot->rank)
            add_rank(&ranks, it->rank);
    }
    end_ranks(&ranks);
    if (ranks.count == 0)
        return 0;
    earlier(verdict, hang->job->ops[slot->op].issue_ns);
    return sl_verdict_say(verdict, "%s %s %s for it in %s%s", ranks.count == 1 ? "rank" : "ranks",
                          ranks.text, ranks.count == 1 ? "waits" : "wait",
                          op_name(hang, slot->op, text),
                          age_of(hang, hang->job->ops[slot->op].issue_ns, age));
}

int sl_hang_say_halted(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank)
{
    const struct sl_job_rank *it = &hang->job->ranks[rank];
    size_t head = hang->index.head[rank];
    const struct sl_hang_slot *slot;
    char name[SL_HANG_NAME];
    int err;

    sl_hang_rank_name(hang, rank, name);
    err = it->halt != 0
              ? sl_verdict_say(verdict, "%s %s", name, sl_job_string(hang->job, it->halt))
              : sl_verdict_say(verdict,
                               "%s has not looked after what it has begun for %.0f s: its process "
                               "is stopped, or does something else",
                               name, (double)(hang->options->now_ns - it->moved_ns) / 1e9);
    if (err != 0 || head == SL_HANG_NO_OP || sl_hang_is_message(&hang->job->ops[head]))
        return err;
    slot = sl_hang_slot_of(&hang->index, rank, hang->job->ops[head].comm);
    return slot != NULL && slot->has_first && slot->op != SL_HANG_NO_OP
               ? say_beside(hang, verdict, slot)
               : 0;
}

/* ---- rule 2, and all the others ---- */

int sl_hang_say_stuck(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank)
{
    const struct sl_hang_slot *slot = &hang->index.slots[hang->stuck_slot[rank]];
    const struct sl_hang_slot *by = &hang->index.slots[hang->stuck_by[rank]];
    int64_t since = hang->job->ops[slot->op].issue_ns;
    uint32_t from = sl_hang_awaited_by(hang, rank);
    char name[SL_HANG_NAME], text[TEXT], age[40];

    earlier(verdict, since);
    sl_hang_rank_name(hang, rank, name);
    op_name(hang, slot->op, text);
    age_of(hang, since, age);
    if (from != SL_JOB_NONE)
        return sl_verdict_say(verdict,
                              "%s waits in %s for data of rank %u, which has ended it or waits "
                              "for nobody else%s: the data does not arrive",
                              name, text, from, age);
    return sl_verdict_say(verdict,
                          "%s has not ended %s, which it called and rank %u has ended%s: its GPU "
                          "or engine does not go on",
                          name, text, by->rank, age);
}

int sl_hang_say_holds(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank)
{
    struct ranks ranks = {.count = 0};
    size_t op = SL_HANG_NO_OP;
    char text[TEXT];

    for (uint32_t r = 0; r < hang->job->rank_count && hang->verdicts->count <= WORDY_MAX; r++)
        if (hang->is_held[r] && sl_hang_holds(hang, rank, r)) {
            op = ranks.count == 0 ? hang->index.slots[hang->stuck_slot[r]].op : op;
            add_rank(&ranks, r);
        }
    end_ranks(&ranks);
    if (ranks.count == 0)
        return 0;
    earlier(verdict, hang->job->ops[op].issue_ns);
    return sl_verdict_say(verdict,
                          "%s %s %s not ended %s, as rank %u has not passed on all of the data "
                          "that goes through it",
                          ranks.count == 1 ? "rank" : "ranks", ranks.text,
                          ranks.count == 1 ? "has" : "have", op_name(hang, op, text), rank);
}

static void say_shape(const struct sl_hang *hang, size_t at, char out[TEXT])
{
    const char *shape = sl_job_string(hang->job, hang->job->ops[at].shape);

    op_name(hang, at, out);
    if (shape[0] != '\0')
        sl_text_add(out, TEXT, " with %.100s", shape);
}

static int say_counts(const struct sl_hang *hang, struct sl_verdict *verdict,
                      const struct sl_hang_mismatch *mismatch)
{
    char name[SL_HANG_NAME], other[SL_HANG_NAME];

    return sl_verdict_say(
        verdict,
        "%s has called as many collectives of %s as %s, but of other kinds "
        "(%u and %u ranks)",
        sl_hang_rank_name(hang, mismatch->rank, name), sl_hang_comm_name(hang, mismatch->comm),
        sl_hang_rank_name(hang, mismatch->other_rank, other), mismatch->few, mismatch->many);
}

int sl_hang_say_mismatch(const struct sl_hang *hang, struct sl_verdict *verdict,
                         const struct sl_hang_mismatch *mismatch)
{
    char name[SL_HANG_NAME], other_name[SL_HANG_NAME], text[TEXT], other[TEXT], more[64] = "";
    int err;

    if (mismatch->op == SL_HANG_NO_OP)
        return say_counts(hang, verdict, mismatch);
    earlier(verdict, hang->job->ops[mismatch->op].issue_ns);
    say_shape(hang, mismatch->op, text);
    say_shape(hang, mismatch->other, other);
    if (mismatch->few > 1)
        snprintf(more, sizeof(more), " and %u more", mismatch->few - 1);
    err = sl_verdict_say(verdict, "%s%s called %s, where %s called %s (%u and %u ranks)",
                         sl_hang_rank_name(hang, mismatch->rank, name), more, text,
                         sl_hang_rank_name(hang, mismatch->other_rank, other_name), other,
                         mismatch->few, mismatch->many);
    if (err == 0 && mismatch->is_order)
        err = sl_verdict_say(verdict, "each of both calls next what the other one has called: "
                                      "the order differs");
    return err;
}

int sl_hang_say_comm(const struct sl_hang *hang, struct sl_verdict *verdict, size_t op)
{
    int64_t since = hang->job->ops[op].issue_ns;
    char text[TEXT], age[40];

    earlier(verdict, since);
    if (sl_hang_is_message(&hang->job->ops[op]))
        return sl_verdict_say(verdict,
                              "rank %u has called %s, rank %u has called its half as well, and it "
                              "does not end%s",
                              hang->job->ops[op].rank, op_name(hang, op, text),
                              hang->job->ops[op].peer, age_of(hang, since, age));
    return sl_verdict_say(verdict,
                          "all members whose data is here have called %s, none has "
                          "ended it, and none is at something earlier%s",
                          op_name(hang, op, text), age_of(hang, since, age));
}

/* ---- one step of a cycle ---- */

static struct sl_hang_step message_step(const struct sl_hang *hang, uint32_t rank, uint32_t next)
{
    const struct sl_job *job = hang->job;

    for (size_t i = job->first_op[rank]; i < job->first_op[rank + 1]; i++) {
        const struct sl_job_op *op = &job->ops[i];
        const struct sl_hang_pair *pair;
        bool is_send = op->kind == SL_JOB_SEND;
        uint64_t issued;

        if (!sl_hang_is_message(op) || !sl_hang_is_pending(op) || op->peer != next)
            continue;
        pair =
            sl_hang_pair_of(&hang->index, op->comm, is_send ? rank : next, is_send ? next : rank);
        issued = is_send ? pair->received : pair->sent;
        if (pair->is_own ? (is_send ? pair->sends > pair->recvs : pair->recvs > pair->sends)
                         : issued < op->seq)
            return (struct sl_hang_step){SL_HANG_NO_MESSAGE, i, op->comm};
        if (hang->index.head[rank] == i && hang->index.head[next] != SL_HANG_NO_OP)
            return (struct sl_hang_step){SL_HANG_EARLIER, i, op->comm};
    }
    return (struct sl_hang_step){SL_HANG_NOT, SL_HANG_NO_OP, SL_JOB_NONE};
}

struct sl_hang_step sl_hang_step_of(const struct sl_hang *hang, uint32_t rank, uint32_t next)
{
    struct sl_hang_step found = {SL_HANG_NOT, SL_HANG_NO_OP, SL_JOB_NONE};

    for (size_t i = hang->index.first_of[rank]; i < hang->index.first_of[rank + 1]; i++) {
        const struct sl_hang_slot *slot = &hang->index.slots[hang->index.slots_of[i]], *other;

        other = slot->has_first ? sl_hang_slot_of(&hang->index, next, slot->comm) : NULL;
        if (other == NULL)
            continue;
        if (other->is_known && other->last < slot->first)
            return (struct sl_hang_step){SL_HANG_NOT_ISSUED, slot->op, slot->comm};
        if (other->has_first && other->first <= slot->first && sl_hang_is_at_head(hang, slot) &&
            !sl_hang_is_at_head(hang, other))
            found = (struct sl_hang_step){SL_HANG_EARLIER, slot->op, slot->comm};
    }
    return found.reason != SL_HANG_NOT ? found : message_step(hang, rank, next);
}

int sl_hang_say_step(const struct sl_hang *hang, struct sl_verdict *verdict, uint32_t rank,
                     uint32_t next)
{
    struct sl_hang_step step = sl_hang_step_of(hang, rank, next);
    char name[SL_HANG_NAME], text[TEXT], at[TEXT];
    size_t head = hang->index.head[next];

    sl_hang_rank_name(hang, rank, name);
    if (step.op != SL_HANG_NO_OP) {
        op_name(hang, step.op, text);
        earlier(verdict, hang->job->ops[step.op].issue_ns);
    } else if (step.comm != SL_JOB_NONE) {
        snprintf(text, sizeof(text), "%.300s", sl_hang_comm_name(hang, step.comm));
    }
    switch (step.reason) {
    case SL_HANG_NOT_ISSUED:
    case SL_HANG_NO_MESSAGE:
        return sl_verdict_say(verdict, "%s waits in %s for rank %u, which has not called %s", name,
                              text, next,
                              step.reason == SL_HANG_NOT_ISSUED ? "it" : "its half of it");
    case SL_HANG_EARLIER:
        return sl_verdict_say(
            verdict, "%s is at %s, which rank %u has called after %s, where it is", name, text,
            next, head != SL_HANG_NO_OP ? op_name(hang, head, at) : "something else");
    case SL_HANG_NOT: break;
    }
    return sl_verdict_say(verdict, "%s waits for rank %u", name, next);
}
