/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/read/facts_job.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's number that is much larger than there are ranks is a lie: what is below it takes
 * memory. */
#define RANKS_FOR_ONE 64
#define RANKS_BESIDE 1024

/* ---- which there are ---- */

/* One that has no name is named by its largest communicator. */
static void name_of(const struct sl_fact_rank *rank, char out[64])
{
    uint64_t id = 0;
    uint32_t size = 0;

    if (rank->job[0] != '\0') {
        memcpy(out, rank->job, 64);
        return;
    }
    for (unsigned i = 0; i < rank->comm_count; i++)
        if (rank->comms[i].size > size) {
            size = rank->comms[i].size;
            id = rank->comms[i].id;
        }
    snprintf(out, 64, "unnamed-%" PRIx64, id);
}

static bool is_ranks(const struct sl_fact_rank *rank)
{
    return rank->size > 0 && rank->rank < rank->size;
}

static int by_job(const void *a, const void *b)
{
    const struct sl_facts_rank *x = a, *y = b;
    char of_x[64], of_y[64];
    int order;

    name_of(x->fact, of_x);
    name_of(y->fact, of_y);
    order = strcmp(of_x, of_y);
    if (order != 0)
        return order;
    if (x->fact->rank != y->fact->rank)
        return x->fact->rank < y->fact->rank ? -1 : 1;
    /* The one that lives, then the one that says the newest: the first is believed. */
    if (x->is_silent != y->is_silent)
        return x->is_silent ? 1 : -1;
    if (x->node->ranks_ms != y->node->ranks_ms)
        return x->node->ranks_ms > y->node->ranks_ms ? -1 : 1;
    order = strcmp(x->node->name, y->node->name);
    return order != 0 ? order : y->fact->pid - x->fact->pid;
}

static struct sl_facts_job *job_of(struct sl_facts_jobs *jobs, unsigned *used,
                                   const struct sl_facts_rank *rank)
{
    struct sl_facts_job *last = jobs->count > 0 ? &jobs->list[jobs->count - 1] : NULL;
    char name[64];

    name_of(rank->fact, name);
    if (last != NULL && strcmp(last->name, name) == 0)
        return last;
    last = &jobs->list[jobs->count++];
    memcpy(last->name, name, sizeof(name));
    last->ranks = &jobs->all[*used];
    return last;
}

static void group(struct sl_facts_jobs *jobs, unsigned count)
{
    unsigned used = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct sl_facts_rank rank = jobs->all[i];
        struct sl_facts_job *job = job_of(jobs, &used, &rank);

        if (job->rank_count > 0 && job->ranks[job->rank_count - 1].fact->rank == rank.fact->rank)
            continue;
        jobs->all[used++] = rank;
        job->rank_count++;
        job->size = rank.fact->size > job->size ? rank.fact->size : job->size;
    }
}

int sl_facts_jobs_find(const struct sl_facts_seen *nodes, unsigned node_count,
                       struct sl_facts_jobs *out)
{
    unsigned count = 0, total = 0;

    *out = (struct sl_facts_jobs){.count = 0};
    for (unsigned i = 0; i < node_count; i++)
        total += nodes[i].facts->rank_count;
    if (total == 0)
        return 0;
    out->all = calloc(total, sizeof(*out->all));
    out->list = calloc(total, sizeof(*out->list));
    if (out->all == NULL || out->list == NULL) {
        sl_facts_jobs_free(out);
        return sl_fail(-ENOMEM, "no memory for the cluster's jobs");
    }
    for (unsigned i = 0; i < node_count; i++)
        for (unsigned k = 0; k < nodes[i].facts->rank_count; k++)
            if (is_ranks(&nodes[i].facts->ranks[k]))
                out->all[count++] = (struct sl_facts_rank){.node = nodes[i].facts,
                                                           .fact = &nodes[i].facts->ranks[k],
                                                           .is_silent = nodes[i].is_silent};
    if (count > 0)
        qsort(out->all, count, sizeof(*out->all), by_job);
    group(out, count);
    return 0;
}

void sl_facts_jobs_free(struct sl_facts_jobs *jobs)
{
    free(jobs->list);
    free(jobs->all);
    *jobs = (struct sl_facts_jobs){.count = 0};
}

const struct sl_facts_job *sl_facts_job_named(const struct sl_facts_jobs *jobs, const char *name)
{
    for (unsigned i = 0; i < jobs->count; i++)
        if (strcmp(jobs->list[i].name, name) == 0)
            return &jobs->list[i];
    return NULL;
}

/* ---- communicators ---- */

/* A rank's place in a communicator. */
struct place {
    uint64_t id;
    uint32_t rank, size, global;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->global < y->global ? -1 : x->global > y->global;
}

static int add_comm(struct sl_job *job, uint64_t id, uint32_t *comm)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRIx64, id);

    return sl_job_add_comm(job, sl_job_text(job, text, (size_t)len), comm);
}

/* Members of which nobody says who they are can be told where the communicator is the whole job. */
static int set_members(struct sl_job *job, const struct place *places, unsigned count,
                       uint32_t job_size)
{
    uint32_t size = places[0].size, comm, *members;
    bool is_whole = count == size, is_same = size == job_size && count >= size / 2;
    int err = add_comm(job, places[0].id, &comm);

    for (unsigned i = 0; i < count; i++) {
        is_whole = is_whole && places[i].rank == i && places[i].size == size;
        is_same = is_same && places[i].rank == places[i].global && places[i].size == size;
    }
    if (err != 0 || (!is_whole && !is_same))
        return err;
    members = calloc(size, sizeof(*members));
    if (members == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator");
    for (uint32_t i = 0; i < size; i++)
        members[i] = is_whole ? places[i].global : i;
    err = sl_job_set_members(job, comm, members, size);
    free(members);
    /* A rank is twice in it: somebody lies, and its members stay unknown. */
    return err == -EBADMSG ? 0 : err;
}

static int add_comms(struct sl_job *job, const struct sl_facts_job *from)
{
    unsigned total = 0, count = 0;
    struct place *places;
    int err = 0;

    for (unsigned i = 0; i < from->rank_count; i++)
        total += from->ranks[i].fact->comm_count;
    if (total == 0)
        return 0;
    places = calloc(total, sizeof(*places));
    if (places == NULL)
        return sl_fail(-ENOMEM, "no memory for communicators");
    for (unsigned i = 0; i < from->rank_count; i++)
        for (unsigned k = 0; k < from->ranks[i].fact->comm_count; k++) {
            const struct sl_fact_comm *comm = &from->ranks[i].fact->comms[k];

            if (comm->rank < comm->size)
                places[count++] =
                    (struct place){comm->id, comm->rank, comm->size, from->ranks[i].fact->rank};
        }
    if (count > 0)
        qsort(places, count, sizeof(*places), by_place);
    for (unsigned i = 0, end; i < count && err == 0; i = end) {
        for (end = i; end < count && places[end].id == places[i].id; end++)
            continue;
        err = set_members(job, &places[i], end - i, from->size);
    }
    free(places);
    return err;
}

uint32_t sl_facts_rank_of(struct sl_job *job, uint64_t id, int32_t peer)
{
    uint32_t comm;

    if (peer < 0 || id == 0 || add_comm(job, id, &comm) != 0)
        return SL_JOB_NONE;
    return (uint32_t)peer < job->comms[comm].member_count ? job->comms[comm].members[peer]
                                                          : SL_JOB_NONE;
}

/* ---- one rank ---- */

static int add_counts(struct sl_job *job, const struct sl_facts_rank *rank)
{
    int err = 0;

    for (unsigned i = 0; i < rank->fact->comm_count && err == 0; i++) {
        const struct sl_fact_comm *comm = &rank->fact->comms[i];
        struct sl_job_count count = {.rank = rank->fact->rank,
                                     .kind = SL_JOB_KINDS,
                                     .issued = comm->begun,
                                     .done = comm->ended,
                                     .at_ns = rank->node->ranks_ms * 1000000};

        err = add_comm(job, comm->id, &count.comm);
        if (err == 0)
            err = sl_job_add_count(job, &count);
    }
    return err;
}

/* How long it waits is what it said itself: its clock may be another one, and what it said may be
 * some seconds old, in which it may have gone on. */
static int add_op(struct sl_job *job, const struct sl_facts_rank *rank)
{
    const struct sl_fact_op *from = &rank->fact->op;
    struct sl_job_op op = {.rank = rank->fact->rank,
                           .peer = SL_JOB_NONE,
                           .step = SL_JOB_NONE,
                           .seq = from->number,
                           .state = SL_JOB_STARTED,
                           .issue_ns = job->now_ns - from->for_ms * 1000000,
                           .start_ns = SL_JOB_NEVER,
                           .end_ns = SL_JOB_NEVER};
    char shape[40];
    int len, err;

    /* Of messages there are no numbers. */
    if (!from->is_there || from->number == 0)
        return 0;
    if (from->peer >= 0 && from->peer < (int32_t)SL_JOB_RANKS_MAX)
        op.awaits_place = (uint32_t)from->peer + 1;
    op.kind = (uint8_t)sl_job_kind_of(from->coll, strlen(from->coll));
    if (op.kind == SL_JOB_SEND || op.kind == SL_JOB_RECV)
        return 0;
    op.name = sl_job_text(job, from->coll, strlen(from->coll));
    len = op.kind == SL_JOB_ALLTOALL || op.kind == SL_JOB_BARRIER
              ? 0
              : snprintf(shape, sizeof(shape), "%" PRIu64 " %s", from->elements, from->type);
    op.shape = sl_job_text(job, shape, (size_t)len);
    err = add_comm(job, from->comm, &op.comm);
    return err == 0 ? sl_job_add_op(job, &op) : err;
}

static int add_edges(struct sl_job *job, const struct sl_facts_rank *rank)
{
    int err = 0;

    for (unsigned i = 0; i < rank->fact->path_count && err == 0; i++) {
        const struct sl_fact_path *path = &rank->fact->paths[i];
        struct sl_job_edge edge = {.src = rank->fact->rank,
                                   .dst = sl_facts_rank_of(job, path->comm, path->peer),
                                   .messages = path->messages,
                                   .bytes = path->sent,
                                   .lost = path->resent};

        if (edge.dst == SL_JOB_NONE)
            continue;
        err = add_comm(job, path->comm, &edge.comm);
        edge.path = sl_job_text(job, path->name, strlen(path->name));
        edge.wait_s[SL_JOB_WAIT_WIRE] = (double)path->messages * (double)path->message_ns / 1e9;
        if (err == 0)
            err = sl_job_add_edge(job, &edge);
    }
    return err;
}

/* Its agent's open verdict on the rank's process that says so. */
static bool is_found(const struct sl_facts_rank *rank, const char *check)
{
    char subject[24];

    snprintf(subject, sizeof(subject), "pid %d", rank->fact->pid);
    for (unsigned i = 0; i < rank->node->verdict_count; i++) {
        const struct sl_fact_verdict *fact = &rank->node->verdicts[i];

        if (strcmp(fact->check, check) == 0 && strcmp(fact->kind, "process") == 0 &&
            strcmp(fact->subject, subject) == 0)
            return true;
    }
    return false;
}

/* What keeps it from going on by itself. Being starved or throttled does not: it is evidence. */
static int set_halt(struct sl_job *job, const struct sl_facts_rank *rank)
{
    struct sl_job_rank *out = &job->ranks[rank->fact->rank];
    const char *why = rank->fact->is_stopped || is_found(rank, "stopped") ? "is stopped"
                      : is_found(rank, "blocked") ? "is blocked in the kernel"
                                                  : "";

    out->is_gone = out->is_gone || is_found(rank, "died");
    if (why[0] != '\0')
        out->halt = sl_job_text(job, why, strlen(why));
    return out->halt != SL_JOB_NONE ? 0 : sl_fail(-ENOMEM, "no memory for a rank");
}

static uint64_t begun_by(const struct sl_fact_rank *fact)
{
    uint64_t begun = 0;

    for (unsigned i = 0; i < fact->comm_count; i++)
        begun += fact->comms[i].begun;
    return begun;
}

static int add_rank(struct sl_job *job, const struct sl_facts_rank *rank)
{
    char process[24];
    int len = snprintf(process, sizeof(process), "pid %d", rank->fact->pid);
    int err = sl_job_add_rank(job, rank->fact->rank);
    struct sl_job_rank *out;

    if (err != 0)
        return err;
    out = &job->ranks[rank->fact->rank];
    out->host = sl_job_text(job, rank->node->name, strlen(rank->node->name));
    out->process = sl_job_text(job, process, (size_t)len);
    out->begun = begun_by(rank->fact);
    if (out->host == SL_JOB_NONE || out->process == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for a rank");
    /* What a silent node said last is not how far its ranks have come. */
    if (rank->is_silent)
        return 0;
    err = set_halt(job, rank);
    if (err == 0)
        err = add_counts(job, rank);
    if (err == 0)
        err = add_op(job, rank);
    return err == 0 ? add_edges(job, rank) : err;
}

/* What its agent found wrong with the host; and that it was heard. */
static int add_events(struct sl_job *job, const struct sl_facts *node, bool is_silent)
{
    struct sl_job_event heard = {.host = sl_job_text(job, node->name, strlen(node->name)),
                                 .at_ns = node->status_ms * 1000000,
                                 .end_ns = node->status_ms * 1000000};
    int err = 0;

    for (unsigned i = 0; i < node->verdict_count && err == 0; i++) {
        const struct sl_fact_verdict *fact = &node->verdicts[i];
        struct sl_job_event event = {.host = heard.host,
                                     .kind = sl_job_text(job, fact->kind, strlen(fact->kind)),
                                     .subject =
                                         sl_job_text(job, fact->subject, strlen(fact->subject)),
                                     .check = sl_job_text(job, fact->check, strlen(fact->check)),
                                     .source = sl_job_text(job, "agent", 5),
                                     .text = sl_job_text(job, fact->text, strlen(fact->text)),
                                     .at_ns = fact->opened_ms * 1000000,
                                     .end_ns = heard.at_ns,
                                     .number = fact->id,
                                     .cls = sl_job_text(job, fact->cls, strlen(fact->cls)),
                                     .is_fatal = fact->is_fatal};

        if (event.end_ns < event.at_ns)
            event.end_ns = event.at_ns;
        err = sl_job_add_event(job, &event);
    }
    if (err == 0 && node->is_fresh && !is_silent)
        err = sl_job_add_event(job, &heard);
    return err;
}

int sl_facts_add_node(const struct sl_facts_seen *node, struct sl_job *job)
{
    const struct sl_facts *facts = node->facts;
    const char *why = node->why != NULL ? node->why : "";
    struct sl_job_node out = {.host = sl_job_text(job, facts->name, strlen(facts->name)),
                              .why = sl_job_text(job, why, strlen(why)),
                              .epoch = facts->epoch,
                              .last_ns =
                                  node->last_ms != 0 ? node->last_ms * 1000000 : SL_JOB_NEVER,
                              .is_silent = node->is_silent,
                              .is_dead = node->is_dead};
    int err;

    if (out.host == SL_JOB_NONE || out.why == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for a node");
    err = sl_job_add_node(job, &out);
    if (err == 0)
        err = add_events(job, facts, node->is_silent);
    if (job->rank_count == 0 && facts->status_ms * 1000000 > job->now_ns)
        job->now_ns = facts->status_ms * 1000000;
    return err;
}

static int add_rank_of(struct sl_job *job, const struct sl_facts_rank *rank, bool is_first)
{
    int err = add_rank(job, rank);

    if (err == 0 && is_first)
        err = add_events(job, rank->node, rank->is_silent);
    /* What contradicts the rest is left out. */
    return err == -EBADMSG ? 0 : err;
}

int sl_facts_job_add(const struct sl_facts_job *from, struct sl_job *job)
{
    uint32_t most = RANKS_FOR_ONE * from->rank_count + RANKS_BESIDE;
    int err = 0;

    job->is_watched = true;
    for (unsigned i = 0; i < from->rank_count; i++)
        if (!from->ranks[i].is_silent && from->ranks[i].node->ranks_ms * 1000000 > job->now_ns)
            job->now_ns = from->ranks[i].node->ranks_ms * 1000000;
    for (unsigned i = 0; i < from->rank_count && err == 0; i++)
        if (from->ranks[i].fact->rank < most)
            err = sl_job_add_rank(job, from->ranks[i].fact->rank);
    if (err == 0)
        err = add_comms(job, from);
    for (unsigned i = 0; i < from->rank_count && err == 0; i++)
        if (from->ranks[i].fact->rank < most)
            err = add_rank_of(job, &from->ranks[i],
                              i == 0 || from->ranks[i - 1].node != from->ranks[i].node);
    return err;
}

int sl_facts_job_build(const struct sl_facts_job *from, struct sl_job **out)
{
    struct sl_job *job = sl_job_new();
    int err = job == NULL ? sl_fail(-ENOMEM, "no memory for a job") : 0;

    if (err == 0)
        err = sl_facts_job_add(from, job);
    if (err == 0)
        err = sl_job_seal(job);
    if (err != 0) {
        sl_job_free(job);
        return err;
    }
    *out = job;
    return 0;
}
