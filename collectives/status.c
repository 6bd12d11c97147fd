/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a communicator's records of the state page. */
#include "collectives/status.h"

#include "collectives/family.h"
#include "collectives/report.h"
#include "core/state_page.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX 16       /* of a communicator, the oldest */
#define STATS_MAX 65     /* paths of an endpoint: 64, and one over TCP */
#define PATHS_AT_ONCE 32 /* in some ten microseconds: no message waits for the page */

struct sl_status {
    int place;       /* of its record; -1: all were taken */
    int error_place; /* the same of its error's, while error_shown */
    bool error_shown;
    uint64_t number; /* on the page */
    uint64_t made_ns;
    uint32_t next_peer;                    /* whose paths are written next */
    uint32_t paths_left_out, paths_missed; /* of the last round; so far of this one */
};

/* Paths of one peer, by their place on the page: the next one, from 1. */
static uint16_t next_path[SL_STATE_PATHS_MAX];

/* ---- coming and going ---- */

/* Times on the page are those of one clock: the simulator's ranks have another. */
static bool may_show(const struct sluice_comm *comm)
{
    if (comm->worker->clock != &sl_clock_monotonic)
        return false;
    sl_state_open(&comm->config, (int)comm->rank, (int)comm->size);
    return sl_state_events() != NULL && comm->config.state != SL_PUBLISH_OFF;
}

/* Its counts go on where they were. */
static bool take_place(struct sluice_comm *comm)
{
    struct sl_status *status = comm->status;
    struct sl_state_calls *calls;

    status->place = sl_state_take(SL_STATE_COMM);
    if (status->place < 0)
        return false;
    calls = &sl_state_comm_at(status->place)->calls;
    for (int i = 0; i < 2; i++) {
        atomic_store(&calls->begun[i], atomic_load(&comm->shown->begun[i]));
        atomic_store(&calls->ended[i], atomic_load(&comm->shown->ended[i]));
    }
    comm->shown = calls;
    return true;
}

static int show(struct sluice_comm *comm)
{
    comm->status = calloc(1, sizeof(*comm->status));
    if (comm->status == NULL)
        return -ENOMEM;
    comm->status->number = sl_state_number();
    comm->status->made_ns = comm->calls.paced_ns = sl_now(comm->worker->clock);
    comm->calls.is_timed = true;
    if (take_place(comm))
        comm->state_place = (uint8_t)(comm->status->place + 1);
    else
        sl_state_left_out(SL_STATE_COMM, 1);
    return 0;
}

int sl_status_begin(struct sluice_comm *comm)
{
    struct sl_worker *worker = comm->worker;
    int err;

    comm->shown = &comm->unseen;
    if (!may_show(comm))
        return 0;
    err = show(comm);
    if (err == 0 && worker->events == NULL) {
        worker->events = sl_state_events();
        worker->state_place = comm->state_place;
    }
    return err;
}

static void give_paths(uint16_t *shown)
{
    while (*shown != 0) {
        int place = *shown - 1;

        *shown = next_path[place];
        sl_state_give(SL_STATE_PATH, place);
    }
}

void sl_status_close(struct sluice_comm *comm)
{
    struct sl_status *status = comm->status;

    if (comm->worker != NULL && comm->worker->state_place == comm->state_place)
        comm->worker->state_place = 0;
    comm->shown = &comm->unseen;
    comm->calls.is_timed = false;
    if (status == NULL)
        return;
    sl_peers_foreach(&comm->peers, rank) give_paths(&sl_comm_peer(comm, rank)->shown_paths);
    if (status->error_shown && status->error_place >= 0)
        sl_state_give(SL_STATE_ERROR, status->error_place);
    else if (status->error_shown)
        sl_state_left_out(SL_STATE_ERROR, -1);
    if (status->place >= 0)
        sl_state_give(SL_STATE_COMM, status->place);
    else
        sl_state_left_out(SL_STATE_COMM, -1);
    comm->status = NULL;
    free(status);
}

/* ---- the communicator ---- */

static void copy_text(char *out, size_t cap, const char *text)
{
    snprintf(out, cap, "%s", text);
}

#define TEXT(field, text) copy_text(field, sizeof(field), text)

static void list_transports(const struct sluice_comm *comm, char *out, size_t cap)
{
    for (unsigned i = 0; i < comm->worker->slot_count; i++)
        if (comm->worker->slots[i].iface != NULL)
            sl_text_add(out, cap, "%s%s", out[0] != '\0' ? "," : "",
                        comm->worker->slots[i].ops->name);
}

static uint32_t flags_of(const struct sluice_comm *comm)
{
    return (comm->health.error.code != 0 ? SL_STATE_BROKEN : 0) |
           (comm->health.torn_down ? SL_STATE_TORN_DOWN : 0) |
           (comm->health.is_speaker ? SL_STATE_SPEAKER : 0) |
           (comm->win.slots != NULL ? SL_STATE_WINDOWS : 0) |
           (comm->worker->threaded ? SL_STATE_THREAD : 0) |
           (comm->wait.oversubscribed ? SL_STATE_CROWDED : 0);
}

static void count_peers(const struct sluice_comm *comm, struct sl_state_comm *out)
{
    sl_peers_foreach(&comm->peers, i)
    {
        const struct sl_peer *peer = sl_comm_peer(comm, i);

        out->connected += peer->ep != NULL;
        out->lost += peer->down && !peer->left;
        out->left += peer->left;
    }
}

static void put_error(struct sluice_comm *comm, uint64_t now)
{
    const struct sl_error *error = &comm->health.error;
    struct sl_status *status = comm->status;
    struct sl_state_error record = {
        .comm = status->number, .updated_ns = now, .code = error->code, .culprit = error->culprit};

    if (!status->error_shown) {
        status->error_shown = true;
        status->error_place = sl_state_take(SL_STATE_ERROR);
        if (status->error_place < 0)
            sl_state_left_out(SL_STATE_ERROR, 1);
    }
    if (status->error_place < 0)
        return;
    TEXT(record.area, error->area);
    TEXT(record.text, error->text);
    sl_state_put(SL_STATE_ERROR, status->error_place, &record);
}

static void put_comm(struct sluice_comm *comm, uint64_t now)
{
    const struct sl_health *health = &comm->health;
    bool lost = health->pending_ns != 0 && health->told_len == 0;
    struct sl_state_comm record = {
        .number = comm->status->number,
        .id = comm->id,
        .made_ns = comm->status->made_ns,
        .updated_ns = now,
        .idle_ns = sl_list_empty(&comm->calls.active) ? 0 : comm->wait.idle_ns,
        .rank = comm->rank,
        .size = comm->size,
        .hosts = comm->host_count,
        .local_ranks = comm->local_size,
        .flags = flags_of(comm),
        .error = health->error.code,
        .culprit = health->error.code != 0 ? health->error.culprit : -1,
        .lost_rank = lost ? health->pending.culprit : -1,
        .lost_status = lost ? health->pending.code : 0,
        .disputed = health->mismatch_seq,
        .paths_left_out = comm->status->paths_left_out,
    };

    count_peers(comm, &record);
    list_transports(comm, record.transports, sizeof(record.transports));
    if (health->error.code != 0) {
        put_error(comm, now);
        TEXT(record.error_text, health->error.text);
    }
    sl_state_put(SL_STATE_COMM, comm->status->place, &record);
}

/* ---- operations ---- */

static void put_op(struct sluice_req *op, uint64_t now)
{
    struct sl_state_op record;

    if (op->shown == 0) {
        int place = sl_state_take(SL_STATE_OP);

        if (place < 0)
            return; /* the reader knows by the counts that there are more */
        op->shown = (uint8_t)(place + 1);
        op->shown_ns = op->called_ns != 0 ? op->called_ns : op->began_ns != 0 ? op->began_ns : now;
    }
    sl_report_fill(op, &record);
    record.comm = op->comm->status->number;
    record.since_ns = op->shown_ns;
    record.updated_ns = now;
    sl_state_put(SL_STATE_OP, op->shown - 1, &record);
}

static void put_ops(struct sluice_comm *comm, uint64_t now)
{
    int count = 0;

    sl_list_foreach(&comm->calls.active, node)
    {
        if (++count > OPS_MAX)
            break;
        put_op(sl_container_of(node, struct sluice_req, link), now);
    }
}

void sl_status_op_over(struct sluice_req *op)
{
    sl_state_give(SL_STATE_OP, op->shown - 1);
    op->shown = 0;
}

/* ---- a call that has yet to be made ---- */

int sl_status_show_next(const struct sluice_comm *comm, const char *coll, const char *doing)
{
    uint64_t now = sl_now(comm->worker->clock);
    int place = comm->status != NULL ? sl_state_take(SL_STATE_OP) : -1;
    struct sl_state_op record = {
        .since_ns = now, .updated_ns = now, .seq = comm->calls.seq + 1, .root = -1, .peer = -1};

    if (place < 0)
        return -1;
    record.comm = comm->status->number;
    TEXT(record.coll, coll);
    TEXT(record.algo, "not called yet");
    TEXT(record.doing, doing);
    sl_state_put(SL_STATE_OP, place, &record);
    return place;
}

void sl_status_hide_next(int place)
{
    sl_state_give(SL_STATE_OP, place);
}

/* ---- calls that are over ---- */

void sl_status_pace(struct sluice_comm *comm)
{
    uint64_t now = sl_now(comm->worker->clock);

    comm->calls.is_timed =
        comm->status != NULL && now - comm->calls.paced_ns >= SL_STATUS_PACE * SL_STATUS_PACE_NS;
    comm->calls.paced_ns = now;
    comm->calls.paced = 0;
}

void sl_status_call_over(const struct sluice_req *op)
{
    const struct sl_call *call = &op->plan->call;
    const char *name = sl_coll_name(call->coll);
    struct sl_state_call record = {.issued_ns = op->called_ns, .peer = -1};

    if (op->comm->status == NULL)
        return;
    record.comm = op->comm->status->number;
    record.ended_ns = sl_now(op->comm->worker->clock);
    record.bytes = call->coll != SL_BARRIER ? call->count * sluice_dtype_size(call->dtype) : 0;
    record.seq = op->seq;
    if (op->plan->p2p) {
        record.seq = (uint32_t)(op->tag >> 32 & 0x7fffffff) + 1;
        record.peer = (int32_t)call->root;
    }
    memcpy(record.coll, name, strnlen(name, sizeof(record.coll) - 1));
    sl_state_add_call(&record);
}

/* ---- shapes ---- */

void sl_status_plan(struct sluice_comm *comm, struct sl_plan *plan)
{
    int place = comm->status != NULL ? sl_state_take(SL_STATE_SHAPE) : -1;
    struct sl_state_shape record = {.comm = comm->status != NULL ? comm->status->number : 0,
                                    .steps = plan->schedule.step_count};

    if (place < 0)
        return;
    sl_report_fill_call(&plan->call, plan->schedule.algo, &record);
    sl_state_put(SL_STATE_SHAPE, place, &record);
    plan->shown_shape = (uint64_t)(place + 1) << SL_STATE_SHAPE_SHIFT;
}

void sl_status_plan_gone(struct sl_plan *plan)
{
    if (plan->shown_shape != 0)
        sl_state_give(SL_STATE_SHAPE, (int)(plan->shown_shape >> SL_STATE_SHAPE_SHIFT) - 1);
    plan->shown_shape = 0;
}

/* ---- paths ---- */

/* The paths of a link are shown once, as those of the oldest communicator that uses it, whichever
 * of them waits. */
static struct sl_peer *shown_as(const struct sl_peer *peer)
{
    struct sl_peer *oldest = sl_container_of(peer->link->users.next, struct sl_peer, of_link);

    return oldest->comm->status != NULL ? oldest : NULL;
}

/* Returns how many there are. What paths did stays when their link is gone. */
static unsigned put_peer_paths(struct sluice_comm *comm, const struct sl_peer *peer, uint64_t now)
{
    struct sl_peer *as = peer->link != NULL && peer->ep != NULL ? shown_as(peer) : NULL;
    struct sl_state_path records[STATS_MAX];
    unsigned count, i;
    uint16_t *shown;

    if (as == NULL)
        return 0;
    count = (unsigned)peer->ep->iface->ops->ep_stats(peer->ep, records, STATS_MAX);
    shown = &as->shown_paths;
    for (i = 0; i < count && i < STATS_MAX; i++) {
        int place = *shown != 0 ? *shown - 1 : sl_state_take(SL_STATE_PATH);

        if (place < 0)
            break;
        if (*shown == 0)
            next_path[place] = 0;
        *shown = (uint16_t)(place + 1);
        records[i].comm = as->comm->status->number;
        records[i].updated_ns = now;
        records[i].peer = (int32_t)as->rank; /* an endpoint knows that of the family */
        sl_state_put(SL_STATE_PATH, place, &records[i]);
        shown = &next_path[place];
    }
    give_paths(shown);
    comm->status->paths_missed += count - i;
    return count;
}

/* In turns, from where it ended last. Not every transport has paths, but each peer costs a call. */
static void put_paths(struct sluice_comm *comm, unsigned most, uint64_t now)
{
    struct sl_status *status = comm->status;
    uint32_t rank = sl_peers_next(&comm->peers, status->next_peer);
    unsigned written = 0;

    for (unsigned asked = 0; rank < comm->size && written < most && asked < most;
         rank = sl_peers_next(&comm->peers, rank + 1), asked++)
        written += put_peer_paths(comm, sl_comm_peer(comm, rank), now);
    status->next_peer = rank;
    if (rank < comm->size)
        return;
    status->next_peer = 0;
    status->paths_left_out = status->paths_missed;
    status->paths_missed = 0;
}

/* ---- all of it ---- */

static void write_all(struct sluice_comm *comm, unsigned paths_most)
{
    struct sl_status *status = comm->status;
    uint64_t now;

    if (status == NULL)
        return;
    if (status->place < 0) { /* another one may have gone */
        if (!take_place(comm))
            return;
        sl_state_left_out(SL_STATE_COMM, -1);
    }
    now = sl_now(comm->worker->clock);
    put_paths(comm, paths_most, now);
    put_ops(comm, now);
    put_comm(comm, now);
}

void sl_status_refresh(struct sluice_comm *comm)
{
    write_all(comm, PATHS_AT_ONCE);
}

void sl_status_publish(struct sluice_comm *comm)
{
    if (comm->status != NULL) {
        comm->status->next_peer = 0;
        comm->status->paths_missed = 0;
    }
    write_all(comm, UINT_MAX);
}
