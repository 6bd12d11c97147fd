/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through operations and counts once, and notes how far everybody has come. */
#include "monitor/diagnosis/hang_index.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory to compare the ranks of a job");
}

/* ---- members ---- */

struct pair {
    uint32_t comm, rank;
};

static int by_pair(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of communicators whose members nobody names: whoever does something in them, once each. */
static size_t guess_members(const struct sl_job *job, struct pair *out)
{
    size_t count = 0, kept = 0;

    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].comm < job->comm_count && job->comms[job->ops[i].comm].member_count == 0)
            out[count++] = (struct pair){job->ops[i].comm, job->ops[i].rank};
    for (size_t i = 0; i < job->count_count; i++)
        if (job->comms[job->counts[i].comm].member_count == 0)
            out[count++] = (struct pair){job->counts[i].comm, job->counts[i].rank};
    if (count > 0)
        qsort(out, count, sizeof(*out), by_pair);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || by_pair(&out[i], &out[i - 1]) != 0)
            out[kept++] = out[i];
    return kept;
}

static void fill_slots(struct sl_hang_index *index, const struct pair *guessed, size_t guess_count)
{
    const struct sl_job *job = index->job;
    size_t slot = 0, guess = 0;

    for (uint32_t c = 0; c < job->comm_count; c++) {
        index->first_slot[c] = slot;
        for (uint32_t i = 0; i < job->comms[c].member_count; i++)
            index->slots[slot++] = (struct sl_hang_slot){
                .rank = job->comms[c].members[i], .comm = c, .op = SL_HANG_NO_OP};
        for (; guess < guess_count && guessed[guess].comm == c; guess++)
            index->slots[slot++] =
                (struct sl_hang_slot){.rank = guessed[guess].rank, .comm = c, .op = SL_HANG_NO_OP};
    }
    index->first_slot[job->comm_count] = slot;
}

/* slots_of: by rank, ascending in communicators, as slots are. */
static void list_slots(struct sl_hang_index *index)
{
    uint32_t ranks = index->job->rank_count;
    size_t at = 0;

    for (size_t i = 0; i < index->slot_count; i++)
        index->first_of[index->slots[i].rank]++;
    for (uint32_t r = 0; r <= ranks; r++) {
        size_t count = index->first_of[r];

        index->first_of[r] = at;
        at += count;
    }
    for (size_t i = 0; i < index->slot_count; i++)
        index->slots_of[index->first_of[index->slots[i].rank]++] = i;
    memmove(index->first_of + 1, index->first_of, ranks * sizeof(*index->first_of));
    index->first_of[0] = 0;
}

static int make_slots(struct sl_hang_index *index)
{
    const struct sl_job *job = index->job;
    struct pair *guessed =
        reallocarray(NULL, job->op_count + job->count_count + 1, sizeof(*guessed));
    size_t guess_count = guessed != NULL ? guess_members(job, guessed) : 0;

    index->slot_count = guess_count;
    for (uint32_t c = 0; c < job->comm_count; c++)
        index->slot_count += job->comms[c].member_count;
    index->first_slot = calloc(job->comm_count + 1, sizeof(*index->first_slot));
    index->slots = calloc(index->slot_count + 1, sizeof(*index->slots));
    index->first_of = calloc(job->rank_count + 2, sizeof(*index->first_of));
    index->slots_of = calloc(index->slot_count + 1, sizeof(*index->slots_of));
    index->head = calloc(job->rank_count + 1, sizeof(*index->head));
    index->has_messages = calloc(job->comm_count + 1, sizeof(bool));
    index->is_counted = calloc(job->comm_count + 1, sizeof(bool));
    index->is_moving = calloc(job->comm_count + 1, sizeof(bool));
    if (guessed == NULL || index->first_slot == NULL || index->slots == NULL ||
        index->first_of == NULL || index->slots_of == NULL || index->head == NULL ||
        index->has_messages == NULL || index->is_counted == NULL || index->is_moving == NULL) {
        free(guessed);
        return no_memory();
    }
    fill_slots(index, guessed, guess_count);
    list_slots(index);
    free(guessed);
    return 0;
}

struct sl_hang_slot *sl_hang_slot_of(const struct sl_hang_index *index, uint32_t rank,
                                     uint32_t comm)
{
    size_t low = index->first_of[rank], high = index->first_of[rank + 1];

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct sl_hang_slot *slot = &index->slots[index->slots_of[middle]];

        if (slot->comm == comm)
            return slot;
        if (slot->comm < comm)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- operations ---- */

static void note_op(struct sl_hang_index *index, size_t at)
{
    const struct sl_job_op *op = &index->job->ops[at];
    struct sl_hang_slot *slot = sl_hang_slot_of(index, op->rank, op->comm);

    if (slot == NULL)
        return;
    slot->is_known = true;
    slot->last = op->seq > slot->last ? op->seq : slot->last;
    if (!sl_hang_is_pending(op)) {
        slot->done = op->seq > slot->done ? op->seq : slot->done;
    } else if (!slot->has_first || op->seq < slot->first) {
        slot->has_first = true;
        slot->first = op->seq;
        slot->op = at;
    }
}

static int by_ends(const void *a, const void *b)
{
    const struct sl_hang_pair *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->src != y->src)
        return x->src < y->src ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst;
}

struct sl_hang_pair *sl_hang_pair_of(const struct sl_hang_index *index, uint32_t comm, uint32_t src,
                                     uint32_t dst)
{
    const struct sl_hang_pair key = {.comm = comm, .src = src, .dst = dst};

    return index->pair_count == 0
               ? NULL
               : bsearch(&key, index->pairs, index->pair_count, sizeof(key), by_ends);
}

static struct sl_hang_pair ends_of(const struct sl_job_op *op)
{
    bool is_send = op->kind == SL_JOB_SEND;

    return (struct sl_hang_pair){.comm = op->comm,
                                 .src = is_send ? op->rank : op->peer,
                                 .dst = is_send ? op->peer : op->rank,
                                 .send = SL_HANG_NO_OP,
                                 .recv = SL_HANG_NO_OP};
}

static void note_message(struct sl_hang_pair *pair, const struct sl_job_op *op, size_t at)
{
    bool is_send = op->kind == SL_JOB_SEND, is_pending = sl_hang_is_pending(op);
    uint64_t *issued = is_send ? &pair->sent : &pair->received;
    uint64_t *ended = is_send ? &pair->ended_s : &pair->ended_r;
    size_t *oldest = is_send ? &pair->send : &pair->recv;

    pair->is_own = pair->is_own || op->is_seq_own;
    *issued = op->seq > *issued ? op->seq : *issued;
    if (!is_pending)
        *ended = op->seq > *ended ? op->seq : *ended;
    else if (*oldest == SL_HANG_NO_OP)
        *oldest = at;
    if (is_pending)
        *(is_send ? &pair->sends : &pair->recvs) += 1;
}

static int make_pairs(struct sl_hang_index *index)
{
    const struct sl_job *job = index->job;
    size_t count = 0, kept = 0;

    for (size_t i = 0; i < job->op_count; i++)
        count += sl_hang_is_message(&job->ops[i]);
    index->pairs = calloc(count + 1, sizeof(*index->pairs));
    if (index->pairs == NULL)
        return no_memory();
    for (size_t i = 0; i < job->op_count; i++)
        if (sl_hang_is_message(&job->ops[i]))
            index->pairs[kept++] = ends_of(&job->ops[i]);
    if (count > 0)
        qsort(index->pairs, count, sizeof(*index->pairs), by_ends);
    kept = 0;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || by_ends(&index->pairs[i], &index->pairs[kept - 1]) != 0)
            index->pairs[kept++] = index->pairs[i];
    index->pair_count = kept;
    return 0;
}

static void note_ops(struct sl_hang_index *index)
{
    const struct sl_job *job = index->job;

    for (uint32_t r = 0; r < job->rank_count; r++)
        index->head[r] = SL_HANG_NO_OP;
    for (size_t i = 0; i < job->op_count; i++) {
        const struct sl_job_op *op = &job->ops[i];

        if (op->comm >= job->comm_count)
            continue;
        if (sl_hang_is_message(op)) {
            struct sl_hang_pair ends = ends_of(op);

            note_message(sl_hang_pair_of(index, ends.comm, ends.src, ends.dst), op, i);
            index->has_messages[op->comm] = true;
        } else {
            note_op(index, i);
        }
        if (sl_hang_is_pending(op) && index->head[op->rank] == SL_HANG_NO_OP)
            index->head[op->rank] = i;
    }
}

/* ---- counts ---- */

/* The number of the last collective. A group that has messages too may mean theirs. */
static void note_last(struct sl_hang_slot *slot, const struct sl_job_count *count)
{
    slot->is_known = true;
    slot->last = count->issued > slot->last ? count->issued : slot->last;
    if (count->done == UINT64_MAX)
        slot->is_end_untold = true;
    else if (count->done > slot->done)
        slot->done = count->done;
}

static void note_counts(struct sl_hang_index *index)
{
    const struct sl_job *job = index->job;
    int64_t begin = INT64_MAX, end = SL_JOB_NEVER;

    for (size_t i = 0; i < job->count_count; i++)
        if (job->counts[i].kind < SL_JOB_KINDS) {
            begin = job->counts[i].at_ns < begin ? job->counts[i].at_ns : begin;
            end = job->counts[i].at_ns > end ? job->counts[i].at_ns : end;
        }
    index->has_two_looks = begin < end;
    for (size_t i = 0; i < job->count_count; i++) {
        const struct sl_job_count *count = &job->counts[i];
        struct sl_hang_slot *slot = sl_hang_slot_of(index, count->rank, count->comm);

        if (slot == NULL)
            continue;
        if (count->kind == SL_JOB_KINDS) {
            if (!index->has_messages[count->comm])
                note_last(slot, count);
            continue;
        }
        index->is_counted[count->comm] = true;
        if (count->at_ns == end) {
            slot->counted += count->issued;
            slot->mix += count->issued * (0x9e3779b97f4a7c15u * (2 * count->kind + 1));
            slot->is_known = true;
        }
        if (count->at_ns == begin)
            slot->was += count->issued;
    }
}

/* A communicator whose collectives were counted: whoever is ahead of the last one waits, as long as
 * nothing moves; and all wait in their last one for a member that does not answer. */
static void weigh_counts(struct sl_hang_index *index)
{
    for (uint32_t c = 0; c < index->job->comm_count; c++) {
        struct sl_hang_slot *slots = &index->slots[index->first_slot[c]];
        size_t count = index->first_slot[c + 1] - index->first_slot[c];
        uint64_t least = UINT64_MAX;
        bool is_silent = false;

        for (size_t i = 0; i < count; i++)
            index->is_counted[c] = index->is_counted[c] && !slots[i].has_first;
        if (!index->is_counted[c])
            continue;
        for (size_t i = 0; i < count; i++) {
            slots[i].last = slots[i].counted;
            is_silent = is_silent || !slots[i].is_known;
            least = slots[i].is_known && slots[i].last < least ? slots[i].last : least;
            index->is_moving[c] =
                index->is_moving[c] || (index->has_two_looks && slots[i].counted != slots[i].was);
        }
        for (size_t i = 0; i < count && !index->is_moving[c]; i++) {
            slots[i].has_first =
                slots[i].is_known && (slots[i].last > least || (is_silent && least > 0));
            slots[i].first = slots[i].last > least ? least + 1 : least;
        }
    }
}

int sl_hang_index_make(const struct sl_job *job, struct sl_hang_index *out)
{
    int err;

    *out = (struct sl_hang_index){.job = job};
    err = make_slots(out);
    if (err == 0)
        err = make_pairs(out);
    if (err != 0) {
        sl_hang_index_free(out);
        return err;
    }
    note_ops(out);
    note_counts(out);
    weigh_counts(out);
    return 0;
}

void sl_hang_index_free(struct sl_hang_index *index)
{
    free(index->first_slot);
    free(index->slots);
    free(index->first_of);
    free(index->slots_of);
    free(index->pairs);
    free(index->head);
    free(index->has_messages);
    free(index->is_counted);
    free(index->is_moving);
    *index = (struct sl_hang_index){.job = NULL};
}
