/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank says which place it has in a communicator. A place that nobody told is filled in at the
 * end: by the rank of the same number where all others have their own number, by the only rank that
 * nobody speaks for, or by a new one. So the members are the same in whatever order ranks were
 * read.
 */
#include "monitor/diagnosis/job_members.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for the members of communicators");
}

int sl_job_members_add(struct sl_job_members *members, const struct sl_job *job, uint32_t comm,
                       uint32_t place, uint32_t size, uint32_t rank)
{
    const char *name = sl_job_string(job, job->comms[comm].name);

    if (place >= size || size > SL_JOB_RANKS_MAX)
        return sl_fail(-EBADMSG, "rank %u says that it is member %u of %u of communicator %s", rank,
                       place, size, name);
    if (members->count == members->cap) {
        size_t cap = members->cap == 0 ? 64 : members->cap * 2;
        struct sl_job_member *more = reallocarray(members->list, cap, sizeof(*more));

        if (more == NULL)
            return no_memory();
        members->list = more;
        members->cap = cap;
    }
    members->list[members->count++] =
        (struct sl_job_member){.comm = comm, .place = place, .size = size, .rank = rank};
    return 0;
}

void sl_job_members_fini(struct sl_job_members *members)
{
    free(members->list);
    *members = (struct sl_job_members){.list = NULL};
}

/* ---- one communicator ---- */

static int by_place(const void *a, const void *b)
{
    const struct sl_job_member *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Which rank has the place: in the largest communicator, where all that are told have the rank of
 * their place, that of the number. Else the only one that no source speaks for; SL_JOB_NONE: there
 * is none, or several. */
static uint32_t guess(const struct sl_job *job, const struct sl_job_members *members,
                      uint32_t place, bool is_plain)
{
    uint32_t found = SL_JOB_NONE;

    if (is_plain)
        return place;
    for (uint32_t r = 0; r < members->rank_count; r++) {
        if (job->ranks[r].is_told)
            continue;
        if (found != SL_JOB_NONE)
            return SL_JOB_NONE;
        found = r;
    }
    return found;
}

static bool is_among(const uint32_t *ranks, uint32_t count, uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

/* The places that nobody told. The first of them may be guessed, if it is the only one. */
static int fill_in(struct sl_job *job, const struct sl_job_members *members, uint32_t *ranks,
                   uint32_t size, uint32_t told, bool is_plain)
{
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank = SL_JOB_NONE;
        int err;

        if (ranks[i] != SL_JOB_NONE)
            continue;
        if (is_plain || told + 1 == size)
            rank = guess(job, members, i, is_plain);
        if (rank != SL_JOB_NONE && !is_plain && is_among(ranks, size, rank))
            rank = SL_JOB_NONE;
        rank = rank != SL_JOB_NONE ? rank : job->rank_count;
        err = sl_job_add_rank(job, rank);
        if (err != 0)
            return err;
        ranks[i] = rank;
    }
    return 0;
}

static int make(struct sl_job *job, const struct sl_job_members *members, size_t from, size_t to)
{
    const struct sl_job_member *list = members->list;
    struct sl_job_comm *comm = &job->comms[list[from].comm];
    uint32_t size = list[from].size, told = 0, *ranks = reallocarray(NULL, size, sizeof(*ranks));
    bool is_plain = true;
    int err = 0;

    if (ranks == NULL)
        return no_memory();
    memset(ranks, 0xff, size * sizeof(*ranks));
    for (size_t i = from; i < to && err == 0; i++) {
        if (list[i].size != size ||
            (i > from && list[i].place == list[i - 1].place && list[i].rank != list[i - 1].rank))
            err = sl_fail(-EBADMSG,
                          "ranks %u and %u do not agree on the members of communicator %s: are "
                          "they of one job?",
                          list[from].rank, list[i].rank, sl_job_string(job, comm->name));
        else
            ranks[list[i].place] = list[i].rank;
        is_plain = is_plain && list[i].place == list[i].rank && size == members->largest;
    }
    for (uint32_t i = 0; i < size; i++)
        told += ranks[i] != SL_JOB_NONE;
    if (err == 0)
        err = fill_in(job, members, ranks, size, told, is_plain);
    if (err == 0) {
        free(comm->members);
        comm->members = NULL;
        comm->member_count = 0;
        err = sl_job_set_members(job, list[from].comm, ranks, size);
    }
    free(ranks);
    return err;
}

/* ---- all of them ---- */

static uint32_t rank_at(const struct sl_job *job, uint32_t comm, uint32_t place)
{
    return comm < job->comm_count && place < job->comms[comm].member_count
               ? job->comms[comm].members[place]
               : SL_JOB_NONE;
}

/* A place that the communicator does not have is a number of no rank: what names it is dropped. */
static void name_peers(struct sl_job *job)
{
    size_t kept = 0;

    for (size_t i = 0; i < job->op_count; i++) {
        struct sl_job_op *op = &job->ops[i];

        if (op->peer_place != 0)
            op->peer = rank_at(job, op->comm, op->peer_place - 1);
        if (op->peer_place == 0 || (op->peer != SL_JOB_NONE && op->peer != op->rank))
            job->ops[kept++] = *op;
    }
    job->op_count = kept;
    kept = 0;
    for (size_t i = 0; i < job->edge_count; i++) {
        struct sl_job_edge *edge = &job->edges[i];

        if (edge->src_place != 0)
            edge->src = rank_at(job, edge->comm, edge->src_place - 1);
        if (edge->dst_place != 0)
            edge->dst = rank_at(job, edge->comm, edge->dst_place - 1);
        if (edge->src != SL_JOB_NONE && edge->dst != SL_JOB_NONE)
            job->edges[kept++] = *edge;
    }
    job->edge_count = kept;
}

/* A source claims a size: communicators for whose unknown members there is no room here are left to
 * those members that are told. */
#define UNKNOWN_MAX (1u << 18)

static size_t count_told(const struct sl_job_members *members, size_t from, size_t to)
{
    size_t told = 1;

    for (size_t i = from + 1; i < to; i++)
        told += members->list[i].place != members->list[i - 1].place;
    return told;
}

int sl_job_members_seal(struct sl_job_members *members, struct sl_job *job)
{
    size_t from = 0, unknown = 0;
    int err = 0;

    if (members->count == 0)
        return 0;
    qsort(members->list, members->count, sizeof(*members->list), by_place);
    members->rank_count = job->rank_count;
    members->largest = 0;
    for (size_t i = 0; i < members->count; i++)
        if (members->list[i].size > members->largest)
            members->largest = members->list[i].size;
    for (size_t i = 1; i <= members->count && err == 0; i++) {
        size_t more;

        if (i < members->count && members->list[i].comm == members->list[from].comm)
            continue;
        more = members->list[from].size - count_told(members, from, i);
        if (more <= UNKNOWN_MAX - unknown) {
            unknown += more;
            err = make(job, members, from, i);
        }
        from = i;
    }
    if (err == 0)
        name_peers(job);
    return err;
}
