/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a job: arrays that grow, and texts that are kept once. */
#include "monitor/diagnosis/job.h"
#include "core/err.h"
#include "monitor/diagnosis/job_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_job_grow(void *list, size_t *cap, size_t count, size_t size)
{
    void *old, *more;
    size_t next = *cap < 16 ? 16 : *cap + *cap / 2;

    if (count < *cap)
        return 0;
    if (next <= count)
        next = count + 1;
    memcpy(&old, list, sizeof(old));
    more = reallocarray(old, next, size);
    if (more == NULL)
        return sl_fail(-ENOMEM, "no memory for %zu entries of a job", next);
    memcpy(list, &more, sizeof(more));
    *cap = next;
    return 0;
}

struct sl_job *sl_job_new(void)
{
    struct sl_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return NULL;
    job->inside = calloc(1, sizeof(*job->inside));
    job->now_ns = SL_JOB_NEVER;
    if (job->inside == NULL || sl_texts_add(&job->inside->texts, "", 0) != 0) {
        sl_job_free(job);
        return NULL;
    }
    return job;
}

void sl_job_free(struct sl_job *job)
{
    if (job == NULL)
        return;
    for (uint32_t i = 0; i < job->comm_count; i++)
        free(job->comms[i].members);
    free(job->ranks);
    free(job->comms);
    free(job->ops);
    free(job->first_op);
    free(job->counts);
    free(job->edges);
    free(job->samples);
    free(job->events);
    free(job->faults);
    free(job->nodes);
    free(job->ports);
    free(job->routes);
    if (job->inside != NULL) {
        sl_texts_fini(&job->inside->texts);
        free(job->inside->comm_of);
        free(job->inside->rank_of);
        sl_job_members_fini(&job->inside->members);
        sl_job_free_late(job->inside);
        free(job->inside->late);
        free(job->inside->notes);
    }
    free(job->inside);
    free(job);
}

uint32_t sl_job_text(struct sl_job *job, const char *text, size_t len)
{
    return len <= SL_JOB_TEXT_MAX ? sl_texts_add(&job->inside->texts, text, len) : SL_JOB_NONE;
}

const char *sl_job_string(const struct sl_job *job, uint32_t text)
{
    return sl_texts_get(&job->inside->texts, text);
}

/* ---- ranks and communicators ---- */

int sl_job_add_rank(struct sl_job *job, uint32_t rank)
{
    if (rank >= SL_JOB_RANKS_MAX)
        return sl_fail(-EBADMSG, "rank %u is more than a job can have (%u)", rank,
                       SL_JOB_RANKS_MAX - 1);
    if (rank < job->rank_count)
        return 0;
    if (sl_job_grow(&job->ranks, &job->inside->rank_cap, rank, sizeof(*job->ranks)) != 0)
        return -ENOMEM;
    for (; job->rank_count <= rank; job->rank_count++)
        job->ranks[job->rank_count] = (struct sl_job_rank){.replica = SL_JOB_NONE,
                                                           .stage = SL_JOB_NONE,
                                                           .tensor = SL_JOB_NONE,
                                                           .last_ns = SL_JOB_NEVER,
                                                           .moved_ns = SL_JOB_NEVER};
    return 0;
}

int sl_job_add_comm(struct sl_job *job, uint32_t name, uint32_t *comm)
{
    struct sl_job_inside *inside = job->inside;
    size_t known = inside->comm_of_cap;

    if (name == SL_JOB_NONE)
        return sl_fail(-ENOMEM, "no memory for the name of a communicator");
    if (name < known && inside->comm_of[name] != SL_JOB_NONE) {
        *comm = inside->comm_of[name];
        return 0;
    }
    if (sl_job_grow(&inside->comm_of, &inside->comm_of_cap, name, sizeof(*inside->comm_of)) != 0)
        return -ENOMEM;
    for (; known < inside->comm_of_cap; known++)
        inside->comm_of[known] = SL_JOB_NONE;
    if (sl_job_grow(&job->comms, &inside->comm_cap, job->comm_count, sizeof(*job->comms)) != 0)
        return -ENOMEM;
    job->comms[job->comm_count] = (struct sl_job_comm){.name = name};
    inside->comm_of[name] = *comm = job->comm_count++;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Each rank once, and none too large. scratch: room for all. */
static int check_members(struct sl_job *job, uint32_t comm, const uint32_t *ranks, uint32_t count,
                         uint32_t *scratch)
{
    memcpy(scratch, ranks, count * sizeof(*ranks));
    qsort(scratch, count, sizeof(*scratch), by_number);
    for (uint32_t i = 1; i < count; i++)
        if (scratch[i] == scratch[i - 1])
            return sl_fail(-EBADMSG, "rank %u is twice a member of communicator %s", scratch[i],
                           sl_job_string(job, job->comms[comm].name));
    return sl_job_add_rank(job, scratch[count - 1]);
}

int sl_job_set_members(struct sl_job *job, uint32_t comm, const uint32_t *ranks, uint32_t count)
{
    struct sl_job_comm *it = &job->comms[comm];
    uint32_t *members;
    int err;

    if (it->member_count > 0)
        return it->member_count == count && memcmp(it->members, ranks, count * sizeof(*ranks)) == 0
                   ? 0
                   : sl_fail(-EBADMSG, "communicator %s has other members here than elsewhere",
                             sl_job_string(job, it->name));
    if (count == 0)
        return sl_fail(-EBADMSG, "communicator %s has no members", sl_job_string(job, it->name));
    members = reallocarray(NULL, count, sizeof(*members));
    if (members == NULL)
        return sl_fail(-ENOMEM, "no memory for %u members of a communicator", count);
    err = check_members(job, comm, ranks, count, members);
    if (err != 0) {
        free(members);
        return err;
    }
    memcpy(members, ranks, count * sizeof(*ranks));
    it->members = members;
    it->member_count = count;
    return 0;
}

int sl_job_add_member(struct sl_job *job, uint32_t comm, uint32_t place, uint32_t size,
                      uint32_t rank)
{
    int err = sl_job_add_rank(job, rank);

    return err != 0 ? err : sl_job_members_add(&job->inside->members, job, comm, place, size, rank);
}

/* ---- what ranks did ---- */

/* A source speaks for the rank. */
static int hear(struct sl_job *job, uint32_t rank, uint32_t comm, bool needs_comm)
{
    int err = sl_job_add_rank(job, rank);

    if (err != 0)
        return err;
    if (comm >= job->comm_count && (needs_comm || comm != SL_JOB_NONE))
        return sl_fail(-EBADMSG, "rank %u does something in a communicator that nobody named",
                       rank);
    job->ranks[rank].is_told = true;
    return 0;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int sl_job_add_op(struct sl_job *job, const struct sl_job_op *op)
{
    bool is_message = op->kind == SL_JOB_SEND || op->kind == SL_JOB_RECV;
    bool is_alone = op->kind == SL_JOB_COMPUTE || op->kind == SL_JOB_OTHER;
    struct sl_job_rank *rank;
    int err;

    sl_assert(op->kind < SL_JOB_KINDS && op->state <= SL_JOB_FAILED);
    err = hear(job, op->rank, op->comm, !is_alone);
    if (err == 0 && is_message && op->peer_place == 0)
        err = sl_job_add_rank(job, op->peer);
    if (err == 0 && is_message && op->peer_place == 0 && op->peer == op->rank)
        err = sl_fail(-EBADMSG, "rank %u sends to itself", op->rank);
    if (err == 0)
        err = sl_job_grow(&job->ops, &job->inside->op_cap, job->op_count, sizeof(*job->ops));
    if (err != 0)
        return err;
    rank = &job->ranks[op->rank];
    rank->last_ns = later(rank->last_ns, later(op->issue_ns, later(op->start_ns, op->end_ns)));
    job->ops[job->op_count] = *op;
    if (!is_message || op->peer_place != 0)
        job->ops[job->op_count].peer = SL_JOB_NONE;
    job->op_count++;
    return 0;
}

int sl_job_add_count(struct sl_job *job, const struct sl_job_count *count)
{
    int err;

    sl_assert(count->kind <= SL_JOB_KINDS);
    err = hear(job, count->rank, count->comm, true);
    if (err == 0)
        err = sl_job_grow(&job->counts, &job->inside->count_cap, job->count_count,
                          sizeof(*job->counts));
    if (err != 0)
        return err;
    job->ranks[count->rank].last_ns = later(job->ranks[count->rank].last_ns, count->at_ns);
    job->counts[job->count_count++] = *count;
    return 0;
}

int sl_job_add_edge(struct sl_job *job, const struct sl_job_edge *edge)
{
    int err = edge->src_place == 0 ? sl_job_add_rank(job, edge->src) : 0;

    if (err == 0 && edge->dst_place == 0)
        err = sl_job_add_rank(job, edge->dst);
    if (err == 0 && (edge->src_place != 0 || edge->dst_place != 0) && edge->comm >= job->comm_count)
        err = sl_fail(-EBADMSG, "messages are of a communicator that nobody named");
    if (err == 0)
        err =
            sl_job_grow(&job->edges, &job->inside->edge_cap, job->edge_count, sizeof(*job->edges));
    if (err != 0)
        return err;
    job->edges[job->edge_count++] = *edge;
    return 0;
}

int sl_job_add_sample(struct sl_job *job, const struct sl_job_sample *sample)
{
    int err = hear(job, sample->rank, SL_JOB_NONE, false);

    if (err == 0)
        err = sl_job_grow(&job->samples, &job->inside->sample_cap, job->sample_count,
                          sizeof(*job->samples));
    if (err != 0)
        return err;
    job->samples[job->sample_count++] = *sample;
    return 0;
}

int sl_job_add_event(struct sl_job *job, const struct sl_job_event *event)
{
    if (sl_job_grow(&job->events, &job->inside->event_cap, job->event_count,
                    sizeof(*job->events)) != 0)
        return -ENOMEM;
    job->events[job->event_count++] = *event;
    return 0;
}

int sl_job_add_node(struct sl_job *job, const struct sl_job_node *node)
{
    if (sl_job_grow(&job->nodes, &job->inside->node_cap, job->node_count, sizeof(*job->nodes)) != 0)
        return -ENOMEM;
    job->nodes[job->node_count++] = *node;
    return 0;
}

int sl_job_add_fault(struct sl_job *job, const struct sl_job_fault *fault)
{
    if (sl_job_grow(&job->faults, &job->inside->fault_cap, job->fault_count,
                    sizeof(*job->faults)) != 0)
        return -ENOMEM;
    job->faults[job->fault_count++] = *fault;
    return 0;
}

int sl_job_add_port(struct sl_job *job, const struct sl_job_port *port)
{
    if (sl_job_grow(&job->ports, &job->inside->port_cap, job->port_count, sizeof(*job->ports)) != 0)
        return -ENOMEM;
    job->ports[job->port_count++] = *port;
    return 0;
}

int sl_job_add_route(struct sl_job *job, const struct sl_job_route *route)
{
    int err = sl_job_add_rank(job, route->src);

    if (err == 0)
        err = sl_job_add_rank(job, route->dst);
    if (err == 0)
        err = sl_job_grow(&job->routes, &job->inside->route_cap, job->route_count,
                          sizeof(*job->routes));
    if (err != 0)
        return err;
    job->routes[job->route_count++] = *route;
    return 0;
}

/* ---- the order of ops ---- */

struct place {
    int64_t at;
    size_t from; /* where it was: what is equal stays in order */
};

static int by_time(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->from < y->from ? -1 : 1;
}

/* Counts the ops of each rank, and sets where the first of each is. */
static int count_ops(struct sl_job *job)
{
    size_t at = 0;

    if (sl_job_grow(&job->first_op, &job->inside->first_cap, job->rank_count,
                    sizeof(*job->first_op)) != 0)
        return -ENOMEM;
    memset(job->first_op, 0, (job->rank_count + 1) * sizeof(*job->first_op));
    for (size_t i = 0; i < job->op_count; i++)
        job->first_op[job->ops[i].rank]++;
    for (uint32_t r = 0; r <= job->rank_count; r++) {
        size_t count = job->first_op[r];

        job->first_op[r] = at;
        at += count;
    }
    return 0;
}

/* Of one rank: places in the order in which they were added. */
static void sort_rank(const struct sl_job_op *ops, struct place *places, size_t count)
{
    bool is_sorted = true;

    for (size_t i = 0; i < count; i++) {
        const struct sl_job_op *op = &ops[places[i].from];

        places[i].at = op->issue_ns != SL_JOB_NEVER ? op->issue_ns : op->start_ns;
        if (places[i].at == SL_JOB_NEVER && i > 0)
            places[i].at = places[i - 1].at;
        is_sorted = is_sorted && (i == 0 || places[i - 1].at <= places[i].at);
    }
    if (!is_sorted)
        qsort(places, count, sizeof(*places), by_time);
}

int sl_job_seal(struct sl_job *job)
{
    struct place *places;
    struct sl_job_op *sorted;

    int err = sl_job_take_late(job);

    if (err == 0)
        err = sl_job_members_seal(&job->inside->members, job);
    if (err != 0)
        return err;
    if (count_ops(job) != 0)
        return -ENOMEM;
    if (job->op_count == 0)
        return 0;
    places = reallocarray(NULL, job->op_count, sizeof(*places));
    sorted = reallocarray(NULL, job->op_count, sizeof(*sorted));
    if (places == NULL || sorted == NULL) {
        free(places);
        free(sorted);
        return sl_fail(-ENOMEM, "no memory to sort %zu operations", job->op_count);
    }
    for (size_t i = 0; i < job->op_count; i++)
        places[job->first_op[job->ops[i].rank]++].from = i;
    /* first_op is where the next rank begins now. */
    memmove(job->first_op + 1, job->first_op, job->rank_count * sizeof(*job->first_op));
    job->first_op[0] = 0;
    for (uint32_t r = 0; r < job->rank_count; r++)
        sort_rank(job->ops, places + job->first_op[r], job->first_op[r + 1] - job->first_op[r]);
    for (size_t i = 0; i < job->op_count; i++)
        sorted[i] = job->ops[places[i].from];
    free(places);
    free(job->ops);
    job->ops = sorted;
    job->inside->op_cap = job->op_count;
    return 0;
}
