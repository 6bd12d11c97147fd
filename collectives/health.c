/* SPDX-License-Identifier: Apache-2.0 */
/* Notices lost, silent and disagreeing ranks; finds whom to blame; tells everybody. */
#include "collectives/health.h"

#include "collectives/connect.h"
#include "collectives/dispute.h"
#include "collectives/exec.h"
#include "collectives/family.h"
#include "collectives/report.h"
#include "collectives/steps.h"
#include "collectives/status.h"
#include "core/event.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_LOST_NS (2 * SL_NS_PER_MS) /* for the culprit's name to arrive by another way */
#define TELL_NS_MIN (10 * SL_NS_PER_MS)
#define TELL_NS_MAX (500 * SL_NS_PER_MS)
#define HERE "; here: " /* between the reason and this rank's own operation */
#define LAST_TRIES 100  /* for each of the last messages to a peer */
#define TEXT_AT offsetof(struct sl_error, text)
#define PIECE (SL_CTRL_MAX - sizeof(struct sl_ctrl_head) - 2 * sizeof(uint16_t))

enum ctrl_flag {
    CTRL_ANSWER = 1 << 0, /* STATUS: calls differ; tell yours for this number */
    CTRL_FLOOD = 1 << 1,  /* STATUS: pass it on to all that you are connected to, but its sender */
    CTRL_OPENED = 1 << 2, /* BYE: messages may have gone to you, the channel's end says how many */
};

/* STATUS and BYE. What travels as a control message. Both ends run the same build: launch/ compared
 * versions. */
struct ctrl_status {
    struct sl_ctrl_head head;
    int32_t waits_for;
    uint32_t step;
    uint32_t origin, number; /* whose it is, and which of its */
    int32_t culprit;         /* as struct sl_peer_status */
    uint32_t culprit_seq, culprit_age;
    uint32_t reserved;
    struct sl_told told; /* BYE: of the last call */
};

/* A status that goes on to all connected peers but the one that it came from. */
struct sl_relay {
    struct ctrl_status msg;
    int from;
};

/* A piece of a struct sl_error, which goes from its first byte to the end of its text. All pieces
 * but the last are full, so the first has all but the text's end. */
struct ctrl_abort {
    struct sl_ctrl_head head;
    uint16_t len, at; /* bytes of all pieces, and of those before this one */
    uint8_t bytes[PIECE];
};

_Static_assert(sizeof(struct ctrl_status) <= SL_CTRL_MAX, "a status fits a control message");
_Static_assert(sizeof(struct ctrl_abort) == SL_CTRL_MAX, "a piece fills a control message");
_Static_assert(TEXT_AT < PIECE, "the first piece has more than the text");
_Static_assert(sizeof(struct sl_error) == TEXT_AT + SL_ERROR_TEXT_MAX, "it has no holes");

/* To all that this rank is connected to, but the one that it heard it of (-1: of nobody). */
static void broadcast(struct sluice_comm *comm, int but, const void *msg, size_t len)
{
    sl_peers_foreach(&comm->peers, r)
    {
        struct sl_peer *peer = sl_comm_peer(comm, r);

        if (peer->ep != NULL && !peer->down && !peer->left && (int)r != but)
            peer->ep->iface->ops->ctrl(peer->ep, msg, len); /* lost when full: the next one comes */
    }
}

/* One of the last messages of this rank to a peer. A full queue is given a while to drain. Not from
 * inside progress. False: it is not told. */
static bool say_last(struct sluice_comm *comm, const struct sl_link *link, struct sl_ctrl_head *msg,
                     size_t len)
{
    uint32_t rank = link->ep != NULL ? sl_family_member(comm, link->rank) : comm->size;

    for (int tries = 0; tries < LAST_TRIES && rank < comm->size && link->status == 0 &&
                        !sl_comm_peer(comm, rank)->left;
         tries++) {
        const struct sl_transport_ops *ops = link->ep->iface->ops;

        msg->flags = sl_comm_peer(comm, rank)->open ? CTRL_OPENED : 0;
        int err = ops->ctrl(link->ep, msg, len);

        if (err != -EAGAIN)
            return err == 0;
        if (ops->progress(link->ep->iface, 64) <= 0 && comm->worker->idle != NULL)
            comm->worker->idle(comm->worker);
    }
    return false;
}

/* The oldest operation that still waits for something. */
static const struct sluice_req *oldest(const struct sluice_comm *comm)
{
    sl_list_foreach(&comm->calls.active, node)
    {
        const struct sluice_req *op = sl_container_of(node, const struct sluice_req, link);

        if (!sl_op_is_over(op))
            return op;
    }
    return NULL;
}

/* ---- failure ---- */

/* What is known of the pending error becomes the communicator's. */
static void settle(struct sluice_comm *comm)
{
    struct sl_health *health = &comm->health;
    struct sl_error *error = &health->pending;
    char rest[48] = "";

    if (health->told_len == 0) {
        sl_comm_fail(comm, error->code, error->culprit, "rank %d is lost: %s", error->culprit,
                     error->text);
    } else {
        error->code = error->code < 0 && error->code > -4096 ? error->code : -EPROTO;
        if (error->culprit < 0 || error->culprit >= (int32_t)comm->size)
            error->culprit = -1;
        error->area[sizeof(error->area) - 1] = '\0';
        error->text[health->told - TEXT_AT] = '\0';
        sl_tame_text(error->area);
        sl_tame_text(error->text);
        if (health->told < health->told_len)
            snprintf(rest, sizeof(rest), " ... (in full at rank %u)", health->teller);
        health->pending_ns = 0;
        health->told_len = 0;
        sl_comm_fail(comm, error->code, error->culprit, "%s%s", error->text, rest);
    }
    memcpy(health->error.area, error->area, sizeof(error->area)); /* of who detected it */
}

void sl_comm_fail(struct sluice_comm *comm, int code, int32_t culprit, const char *fmt, ...)
{
    const struct sluice_req *op = oldest(comm);
    struct sl_error *error = &comm->health.error;
    size_t cap = sizeof(error->text), at;
    va_list args;

    if (error->code != 0)
        return;
    if (comm->health.told_len != 0) { /* a peer was first */
        settle(comm);
        return;
    }
    va_start(args, fmt);
    vsnprintf(error->text, cap, fmt, args);
    va_end(args);
    at = strlen(error->text);
    if (op != NULL && at + sizeof(HERE) < cap) {
        memcpy(error->text + at, HERE, sizeof(HERE));
        at += sizeof(HERE) - 1;
        sl_report_op(op, error->text + at, cap - at);
    }
    error->code = code;
    error->culprit = culprit;
    snprintf(error->area, sizeof(error->area), "comm");
    sl_event_of(comm->worker, comm->state_place, SL_EVENT_COMM_FAILED,
                culprit >= 0 ? (uint32_t)culprit : SL_EVENT_NOBODY, (uint64_t)(int64_t)code, 0);
}

/* Bytes of the error that others are told: all but this rank's own operation. */
static uint16_t abort_len(const struct sluice_comm *comm)
{
    const char *text = comm->health.error.text, *end = strstr(text, HERE);

    return (uint16_t)(TEXT_AT + (end != NULL ? (size_t)(end - text) : strlen(text)));
}

static struct ctrl_abort abort_piece(const struct sluice_comm *comm, uint16_t len, uint16_t at)
{
    struct ctrl_abort msg = {
        .head = {.type = SL_CTRL_ABORT, .channel = comm->channel}, .len = len, .at = at};

    memcpy(msg.bytes, (const char *)&comm->health.error + at, len - at < PIECE ? len - at : PIECE);
    return msg;
}

/* All that some communicator connects this rank to: they may wait for it in this one. */
static void tell_abort(struct sluice_comm *comm)
{
    uint16_t len = abort_len(comm);

    sl_list_foreach(&comm->family->links, node)
    {
        const struct sl_link *link = sl_container_of(node, const struct sl_link, of_family);
        bool taken = true;

        for (uint16_t at = 0; taken && at < len; at += PIECE) {
            struct ctrl_abort msg = abort_piece(comm, len, at);

            taken = say_last(comm, link, &msg.head, sizeof(msg));
        }
    }
}

void sl_health_answer(const struct sluice_comm *comm, struct sl_ep *ep, uint32_t channel)
{
    struct ctrl_status bye = {
        .head = {.type = SL_CTRL_BYE, .flags = CTRL_OPENED, .channel = channel},
        .waits_for = -1,
        .culprit = -1};

    if (comm == NULL) {
        /* If it was never open here, it ends now, as it began. */
        if (ep->iface->ops->channel_open(ep, channel) == 0)
            ep->iface->ops->channel_close(ep, channel);
        ep->iface->ops->ctrl(ep, &bye, sizeof(bye)); /* when full: to the next question */
        return;
    }
    uint16_t len = abort_len(comm);
    int err = 0;

    for (uint16_t at = 0; err == 0 && at < len; at += PIECE) {
        struct ctrl_abort msg = abort_piece(comm, len, at);

        err = ep->iface->ops->ctrl(ep, &msg, sizeof(msg));
    }
}

static uint64_t tell_interval(const struct sluice_comm *comm)
{
    uint64_t ns = (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 8;

    return ns < TELL_NS_MIN ? TELL_NS_MIN : ns > TELL_NS_MAX ? TELL_NS_MAX : ns;
}

/* What a peer said so long ago says nothing about now. */
static bool is_fresh(const struct sluice_comm *comm, const struct sl_peer *peer, uint64_t now)
{
    return peer->status.heard_ns != 0 && now - peer->status.heard_ns <= 3 * tell_interval(comm);
}

/* All ranks know of the error: the lowest that can still speak is the one that people hear of it
 * from. */
static bool is_speaker(const struct sluice_comm *comm)
{
    uint64_t now = sl_now(comm->worker->clock);

    for (uint32_t r = 0; r < comm->rank; r++) {
        const struct sl_peer *peer = sl_comm_peer(comm, r);

        if ((int32_t)r == comm->health.error.culprit || peer->left)
            continue;
        /* Of those that it is not connected to, this rank would have heard if they were to
         * blame. */
        if (peer->gave_up || (!peer->down && (comm->health.error.code != -ETIMEDOUT ||
                                              peer->ep == NULL || is_fresh(comm, peer, now))))
            return false;
    }
    return true;
}

void sl_health_tear_down(struct sluice_comm *comm)
{
    if (comm->health.torn_down)
        return;
    comm->health.torn_down = true;
    sl_info("comm", "%s", comm->health.error.text);
    comm->health.is_speaker = is_speaker(comm);
    tell_abort(comm);
    sl_status_publish(comm); /* the last words of its paths */
    sl_links_detach(comm);
    sl_peers_foreach(&comm->peers, r) sl_comm_peer(comm, r)->slots = NULL;
    sl_family_broke(comm->family);
    sl_list_foreach(&comm->calls.active, node)
    {
        struct sluice_req *op = sl_container_of(node, struct sluice_req, link);

        /* The last step may have been completed in the pass that saw the error. */
        sl_op_end(op, sl_op_is_over(op) ? 0 : comm->health.error.code);
    }
    sl_status_refresh(comm);
}

/* Calls that differ may have been met by nothing: those that left first said what they called
 * last. */
static void hear_leavers(struct sluice_comm *comm)
{
    char text[SL_ERROR_TEXT_MAX];

    sl_worker_move_ifaces(comm->worker, 0);
    if (comm->health.mismatch_ns == 0)
        return;
    sl_dispute_describe(comm, text, sizeof(text));
    sl_warn("comm", "%s; noticed as rank %u destroyed the communicator", text, comm->rank);
}

void sl_health_goodbye(struct sluice_comm *comm)
{
    struct ctrl_status msg = {.head = {.type = SL_CTRL_BYE, .channel = comm->channel},
                              .waits_for = -1,
                              .origin = comm->rank,
                              .culprit = -1};

    if (comm->health.error.code != 0)
        return;
    sl_dispute_tell(comm, comm->calls.seq, &msg.told);
    sl_list_foreach(&comm->family->links, node)
    {
        say_last(comm, sl_container_of(node, const struct sl_link, of_family), &msg.head,
                 sizeof(msg));
    }
    hear_leavers(comm);
}

/* ---- what peers tell ---- */

static void on_status(struct sluice_comm *comm, struct sl_peer *peer, const struct ctrl_status *msg)
{
    /* What it called under the disputed number is evidence: nothing later replaces it. */
    if (comm->health.mismatch_ns == 0 || peer->status.call.seq != comm->health.mismatch_seq)
        peer->status.call = msg->told.call;
    /* What others wait for goes from rank to rank at once, or a long chain would take as many
     * intervals as it has ranks. */
    if (peer->status.waits_for != msg->waits_for || peer->status.culprit != msg->culprit)
        comm->health.tell_soon = true;
    peer->status.heard_ns = sl_now(comm->worker->clock);
    peer->status.waits_for = msg->waits_for;
    peer->status.step = msg->step;
    peer->status.number = msg->number;
    peer->status.culprit = msg->culprit;
    peer->status.culprit_seq = msg->culprit_seq;
    peer->status.culprit_age = msg->culprit_age;
    sl_dispute_hear(comm, &msg->told, (msg->head.flags & CTRL_ANSWER) != 0);
}

/* Goes out with the next tick: nothing is sent from inside progress. Of each origin the last one
 * does, as it says all that those before it said. Without memory it is left to the other ways it
 * takes, and to its next repetition. */
static void relay(struct sluice_comm *comm, struct sl_peer *origin, const struct ctrl_status *msg,
                  int from)
{
    struct sl_health *health = &comm->health;

    if (origin->relay < health->relay_count &&
        health->relays[origin->relay].msg.origin == msg->origin) {
        health->relays[origin->relay] = (struct sl_relay){*msg, from};
        return;
    }
    if (health->relay_count == health->relay_room) {
        uint32_t room = health->relay_room * 2 + 16;
        struct sl_relay *relays = realloc(health->relays, room * sizeof(*relays));

        if (relays == NULL)
            return;
        health->relays = relays;
        health->relay_room = room;
    }
    origin->relay = health->relay_count++;
    health->relays[origin->relay] = (struct sl_relay){*msg, from};
}

static void send_relays(struct sluice_comm *comm)
{
    struct sl_health *health = &comm->health;

    for (uint32_t i = 0; i < health->relay_count; i++)
        broadcast(comm, health->relays[i].from, &health->relays[i].msg,
                  sizeof(health->relays[i].msg));
    health->relay_count = 0;
}

/* A status, of the peer itself or passed on by it. */
static void take_status(struct sluice_comm *comm, uint32_t rank, const struct ctrl_status *msg)
{
    bool flood = (msg->head.flags & CTRL_FLOOD) != 0;

    if (msg->origin >= comm->size || msg->origin == comm->rank || (!flood && msg->origin != rank))
        return;
    struct sl_peer *origin = sl_peers_make(&comm->peers, msg->origin);

    if (origin == NULL)
        return; /* the next one may find memory */
    if (flood && (int32_t)(msg->number - origin->status.number) <= 0 &&
        origin->status.heard_ns != 0)
        return; /* it came another way before */
    on_status(comm, origin, msg);
    if (flood)
        relay(comm, origin, msg, (int)rank);
}

/* The first rank that tells one is heard to its end, so long as it takes no longer than a status
 * would. Its pieces come in their order; others are passed over. */
static void on_abort(struct sluice_comm *comm, uint32_t rank, const struct ctrl_abort *msg)
{
    struct sl_health *health = &comm->health;

    if (health->error.code == 0 && health->told_len == 0 && msg->at == 0 && msg->len >= TEXT_AT &&
        msg->len < sizeof(health->pending)) {
        health->pending_ns = sl_now(comm->worker->clock);
        health->teller = rank;
        health->told_len = msg->len;
        health->told = 0;
    }
    if (health->told_len == 0 || rank != health->teller || msg->len != health->told_len ||
        msg->at != health->told)
        return;
    size_t len = msg->len - msg->at < PIECE ? msg->len - msg->at : PIECE;

    memcpy((char *)&health->pending + msg->at, msg->bytes, len);
    health->told += (uint16_t)len;
    if (health->told == health->told_len)
        settle(comm);
}

void sl_health_ctrl(struct sluice_comm *comm, uint32_t rank, const void *msg, size_t len)
{
    struct sl_peer *peer = sl_comm_peer(comm, rank);
    uint8_t type = *(const uint8_t *)msg;
    struct ctrl_status status;
    struct ctrl_abort stop;

    if (len == sizeof(status) && type == SL_CTRL_STATUS) {
        memcpy(&status, msg, sizeof(status));
        take_status(comm, rank, &status);
    } else if (len == sizeof(stop) && type == SL_CTRL_ABORT) {
        memcpy(&stop, msg, sizeof(stop));
        peer->gave_up = true;
        on_abort(comm, rank, &stop);
    } else if (len == sizeof(status) && type == SL_CTRL_BYE) {
        memcpy(&status, msg, sizeof(status));
        peer->left = true;
        peer->mute = (status.head.flags & CTRL_OPENED) == 0;
        status.head.flags = 0;
        on_status(comm, peer, &status);
    } else {
        sl_warn("comm", "rank %u sent a control message of %zu bytes that is not known; ignored",
                rank, len);
    }
}

void sl_health_parts(struct sluice_comm *comm, uint32_t rank)
{
    struct sl_peer *peer = rank < comm->size ? sl_peers_make(&comm->peers, rank) : NULL;

    if (peer != NULL)
        peer->gave_up = true;
}

void sl_health_odd_ctrl(const struct sl_ep *ep, size_t len)
{
    sl_warn("comm", "rank %d sent a control message of %zu bytes that is not known; ignored",
            ep->peer, len);
}

/* The verdict waits a little: whoever ended the connection may have told why, here or elsewhere. */
static void note_loss(struct sluice_comm *comm, int32_t rank, int status, const char *why)
{
    struct sl_health *health = &comm->health;

    if (health->told_len != 0 && (uint32_t)rank == health->teller)
        settle(comm);
    if (health->told_len != 0 || (health->pending_ns != 0 && health->pending.culprit != rank))
        return;
    if (health->pending_ns == 0)
        health->pending_ns = sl_now(comm->worker->clock);
    struct sl_error *lost = &health->pending;
    const struct sl_ep *ep = sl_comm_peer(comm, (uint32_t)rank)->ep;

    lost->culprit = rank;
    lost->code = status;
    snprintf(lost->area, sizeof(lost->area), "%s", ep != NULL ? ep->iface->ops->name : "comm");
    snprintf(lost->text, sizeof(lost->text), "%s", why);
}

void sl_health_down(struct sluice_comm *comm, uint32_t rank, int status, const char *why)
{
    struct sl_peer *peer = sl_comm_peer(comm, rank);

    peer->down = true;
    sl_event_of(comm->worker, comm->state_place, SL_EVENT_PEER_LOST, rank,
                (uint64_t)(int64_t)status, 0);
    if (!peer->left)
        note_loss(comm, (int32_t)rank, status, why);
}

/* ---- steps that failed ---- */

static void p2p_order_differs(struct sluice_req *op, const struct sl_step *step, uint64_t tag)
{
    bool peer_is_p2p = tag >> 63;

    if (peer_is_p2p && op->seq == 0 && (tag & 0xff) != (op->tag & 0xff))
        sl_comm_fail(op->comm, -EPROTO, (int32_t)step->peer,
                     "rank %u sends %s where this rank receives %s", step->peer,
                     sluice_dtype_name((enum sluice_dtype)(tag & 0xff)),
                     sluice_dtype_name((enum sluice_dtype)(op->tag & 0xff)));
    else
        sl_comm_fail(
            op->comm, -EPROTO, (int32_t)step->peer,
            "the next message from rank %u belongs to %s number %u where this rank is in %s "
            "number %u: the order of calls differs between the two",
            step->peer, peer_is_p2p ? "send" : "collective", (unsigned)(tag >> 32) & 0x7fffffff,
            op->seq == 0 ? "receive" : "collective", (unsigned)(op->tag >> 32) & 0x7fffffff);
}

static void miss(struct sluice_comm *comm, uint32_t rank)
{
    sl_comm_fail(comm, -ECONNRESET, (int32_t)rank,
                 "rank %u has destroyed its communicator while others still need it", rank);
}

void sl_health_step_failed(struct sluice_req *op, const struct sl_step *step,
                           const struct sl_req *req, int status)
{
    struct sluice_comm *comm = op->comm;

    if (comm->health.error.code != 0 || comm->health.pending_ns != 0)
        return; /* the endpoint's loss, or an abort, is being dealt with */
    if (status == -EPROTO && op->seq != 0 && req->tag >> 63 == 0) {
        sl_dispute_open(comm, op->seq);
    } else if (status == -EPROTO) {
        p2p_order_differs(op, step, req->tag);
    } else if (status == -EMSGSIZE) {
        sl_comm_fail(comm, -EPROTO, (int32_t)step->peer,
                     "rank %u sends %llu bytes where this rank receives %llu", step->peer,
                     (unsigned long long)req->len, (unsigned long long)sl_op_len(op, step));
    } else if (!sl_comm_peer(comm, step->peer)->left) {
        note_loss(comm, (int32_t)step->peer, status, sluice_strerror(status));
    } else {
        miss(comm, step->peer);
    }
}

/* ---- ticks ---- */

/* Where a chain of waits ends. */
struct chain_end {
    int32_t rank;    /* -1: nobody is waited for */
    uint32_t seq;    /* of its last known call */
    uint32_t age_ms; /* since this rank, or one that told it, heard of it; UINT32_MAX: never */
};

static struct chain_end end_at(const struct sluice_comm *comm, int32_t rank, uint64_t now)
{
    const struct sl_peer_status *status =
        rank >= 0 ? &sl_comm_peer(comm, (uint32_t)rank)->status : NULL;

    if (status == NULL)
        return (struct chain_end){-1, 0, UINT32_MAX};
    return (struct chain_end){
        rank, status->call.seq,
        status->heard_ns == 0 ? UINT32_MAX : (uint32_t)((now - status->heard_ns) / SL_NS_PER_MS)};
}

/* Follows the chain of waits from a rank that this one waits for, to one that is silent or does not
 * wait itself. Beyond those that this rank hears itself, the last one's own word is taken. */
static struct chain_end find_culprit(const struct sluice_comm *comm, uint64_t now, int32_t rank)
{
    for (uint32_t hops = 0; rank >= 0 && hops < comm->size; hops++) {
        const struct sl_peer_status *status = &sl_comm_peer(comm, (uint32_t)rank)->status;
        int32_t next = status->waits_for;

        if (!is_fresh(comm, sl_comm_peer(comm, (uint32_t)rank), now) || next < 0 ||
            next >= (int32_t)comm->size || next == (int32_t)comm->rank)
            break;
        if (sl_comm_peer(comm, (uint32_t)next)->ep == NULL &&
            sl_comm_peer(comm, (uint32_t)next)->status.heard_ns == 0 && status->culprit >= 0 &&
            status->culprit < (int32_t)comm->size && status->culprit != (int32_t)comm->rank)
            return (struct chain_end){status->culprit, status->culprit_seq, status->culprit_age};
        rank = next;
    }
    return end_at(comm, rank, now);
}

static void tell_status(struct sluice_comm *comm, uint64_t now)
{
    const struct sluice_req *op = oldest(comm);
    struct ctrl_status msg = {.head = {.type = SL_CTRL_STATUS, .channel = comm->channel},
                              .waits_for = -1,
                              .origin = comm->rank,
                              .culprit = -1};
    struct sl_waiting waiting;

    comm->health.told_ns = now;
    comm->health.tell_soon = false;
    if (op == NULL && comm->health.mismatch_ns == 0)
        return;
    if (op != NULL) {
        sl_op_waiting(op, &waiting);
        struct chain_end end = find_culprit(comm, now, waiting.rank);

        msg.waits_for = waiting.rank;
        msg.step = waiting.step;
        msg.culprit = end.rank;
        msg.culprit_seq = end.seq;
        msg.culprit_age = end.age_ms;
    }
    msg.number = ++comm->health.told_number;
    sl_dispute_tell(comm, comm->health.mismatch_ns != 0 ? comm->health.mismatch_seq : op->seq,
                    &msg.told);
    if (comm->health.mismatch_ns != 0)
        msg.head.flags |= CTRL_ANSWER | CTRL_FLOOD;
    broadcast(comm, -1, &msg, sizeof(msg));
}

static bool is_lacked(const struct sluice_comm *comm, uint32_t rank)
{
    sl_list_foreach(&comm->calls.active,
                    node) if (sl_op_lacks(sl_container_of(node, const struct sluice_req, link),
                                          rank)) return true;
    return false;
}

static bool is_awaited(const struct sluice_comm *comm, uint32_t rank)
{
    sl_list_foreach(&comm->calls.active, node)
    {
        if (sl_op_receives(sl_container_of(node, const struct sluice_req, link), rank))
            return true;
    }
    return false;
}

/* Something waits for a message of that rank, or for its word in a window, which will not come. */
static bool is_missed(const struct sluice_comm *comm, uint32_t rank)
{
    const struct sl_peer *peer = sl_comm_peer(comm, rank);

    if (is_lacked(comm, rank))
        return true;
    if (!peer->open)
        return false;
    return peer->mute ? is_awaited(comm, rank)
                      : peer->ep->iface->ops->channel_starves(peer->ep, comm->channel);
}

/* Ranks that left in good order are missed only when something needs them. */
static void miss_leavers(struct sluice_comm *comm)
{
    sl_peers_foreach(&comm->peers, r)
    {
        const struct sl_peer *peer = sl_comm_peer(comm, r);

        if (comm->health.error.code == 0 && peer->left && is_missed(comm, r))
            miss(comm, r);
    }
}

static void time_out(struct sluice_comm *comm, uint64_t now)
{
    const struct sluice_req *op = oldest(comm);
    struct sl_waiting waiting;

    if (op == NULL)
        return;
    sl_op_waiting(op, &waiting);
    struct chain_end end = find_culprit(comm, now, waiting.rank);

    if (end.rank == (int32_t)comm->rank)
        sl_comm_fail(comm, -ETIMEDOUT, end.rank,
                     "rank %d made no progress within %lld ms: its own step does not end", end.rank,
                     (long long)comm->config.timeout_ms);
    else if (end.rank < 0)
        sl_comm_fail(comm, -ETIMEDOUT, -1, "no progress within %lld ms",
                     (long long)comm->config.timeout_ms);
    else if (end.age_ms == UINT32_MAX)
        sl_comm_fail(comm, -ETIMEDOUT, end.rank,
                     "rank %d gave no sign of life within %lld ms: it is stopped, cut off, or has "
                     "not called this operation",
                     end.rank, (long long)comm->config.timeout_ms);
    else
        sl_comm_fail(comm, -ETIMEDOUT, end.rank,
                     "rank %d made no progress within %lld ms; last heard of %.1f s ago in "
                     "collective number %u",
                     end.rank, (long long)comm->config.timeout_ms, (double)end.age_ms / 1e3,
                     end.seq);
}

static void decide(struct sluice_comm *comm)
{
    char text[SL_ERROR_TEXT_MAX];
    int32_t suspect = sl_dispute_describe(comm, text, sizeof(text));

    sl_comm_fail(comm, -EPROTO, suspect, "%s", text);
}

void sl_health_tick(struct sluice_comm *comm, uint64_t now)
{
    if (comm->health.error.code != 0)
        return;
    if (comm->health.pending_ns != 0 &&
        now - comm->health.pending_ns >=
            (comm->health.told_len != 0 ? tell_interval(comm) : GRACE_LOST_NS))
        settle(comm);
    send_relays(comm);
    if (now - comm->health.told_ns >= tell_interval(comm) / (comm->health.tell_soon ? 8 : 1))
        tell_status(comm, now);
    if (comm->health.mismatch_ns != 0 && sl_dispute_is_ripe(comm, now)) {
        tell_status(comm, now); /* once more: after the verdict this rank says nothing */
        decide(comm);
    }
    if (sl_list_empty(&comm->calls.active))
        return;
    miss_leavers(comm);
    if (comm->wait.idle_ns >= (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS &&
        comm->health.pending_ns == 0)
        time_out(comm, now);
}

void sl_format_ranks(const bool *set, uint32_t size, char *out, size_t cap)
{
    size_t len = 0;

    out[0] = '\0';
    for (uint32_t r = 0; r < size && len + 1 < cap; r++) {
        uint32_t last = r;
        int n;

        if (!set[r])
            continue;
        while (last + 1 < size && set[last + 1])
            last++;
        n = last == r ? snprintf(out + len, cap - len, "%s%u", len == 0 ? "" : ",", r)
                      : snprintf(out + len, cap - len, "%s%u-%u", len == 0 ? "" : ",", r, last);
        len = n < 0 || (size_t)n >= cap - len ? cap : len + (size_t)n;
        r = last;
    }
}
