/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and their data path.
 *
 * The receiver announces every irecv (a group: tags and sizes) by a small message on the same
 * endpoint; the sender keeps a ring of receives for these. An isend takes the first free slot of
 * its tag in the oldest group that is not complete, and none without an announcement: that is
 * NCCL's "try again". Messages leave in slot order, each as soon as all slots before it have left.
 *
 *     irecv(n)                      isend ... isend
 *       post n receives
 *       announce (tags, sizes) ───▶ slots
 *                              ◀─── slot 0, slot 1, ...
 *
 * A request is done for the receiver when all its slots are, for the sender when its bytes are its
 * own again.
 */
#include "tools/nccl/adapt.h"
#include "tools/nccl/flow.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Apart from numbers of messages, so that a mix-up shows. */
#define CALL_TAG (UINT64_C(1) << 63)

/* Looks at the transport before an endpoint ends: a message that was copied is its sender's again
 * before it has left, and a verbs endpoint that has receives posted, as the announcements' are,
 * waits for none of its own to arrive. */
#define LAST_LOOKS 16

/* ---- life ---- */

static void on_called(struct sl_req *req);
static void on_calling_sent(struct sl_req *req);
static void on_sent(struct sl_req *req);
static void on_received(struct sl_req *req);

static void init_send(struct sl_nccl_comm *comm)
{
    struct sl_nccl_send_side *side = &comm->send;

    sl_list_init(&side->queue);
    sl_list_init(&side->free);
    for (unsigned i = 0; i < SL_NCCL_SENDS; i++) {
        struct sl_nccl_send *send = &side->sends[i];

        send->base.kind = SL_NCCL_REQ_SEND;
        send->base.comm = comm;
        send->req.done = on_sent;
        sl_list_push_back(&side->free, &send->base.link);
    }
}

static void init_recv(struct sl_nccl_comm *comm)
{
    struct sl_nccl_recv_side *side = &comm->recv;

    sl_list_init(&side->queue);
    sl_list_init(&side->free);
    for (unsigned i = 0; i < SL_NCCL_CALLS; i++)
        side->calling[i].req.done = on_calling_sent;
    for (unsigned i = 0; i < SL_NCCL_RECVS; i++) {
        struct sl_nccl_recv *recv = &side->recvs[i];

        recv->base.kind = SL_NCCL_REQ_RECV;
        recv->base.comm = comm;
        for (unsigned k = 0; k < SL_NCCL_GROUP_MAX; k++) {
            recv->reqs[k].done = on_received;
            recv->reqs[k].arg = recv;
        }
        sl_list_push_back(&side->free, &recv->base.link);
    }
}

int sl_nccl_comm_new(struct sl_nccl_engine *engine, const struct sl_nccl_ctx *ctx, bool is_send,
                     struct sl_nccl_comm **out)
{
    struct sl_nccl_comm *comm = calloc(1, sizeof(*comm));

    if (comm == NULL)
        return sl_fail(-ENOMEM, "no memory for a connection");
    comm->engine = engine;
    comm->ctx = ctx;
    comm->profiler = ctx->profiler;
    comm->is_send = is_send;
    sl_list_init(&comm->mrs);
    sl_list_init(&comm->waiting);
    if (is_send)
        init_send(comm);
    else
        init_recv(comm);
    sl_list_push_back(&engine->comms, &comm->link);
    *out = comm;
    return 0;
}

void sl_nccl_comm_lose(struct sl_nccl_comm *comm, int status, const char *why)
{
    if (comm->lost != 0)
        return;
    comm->lost = status;
    sl_text_set(&comm->why, "%s", why);
}

bool sl_nccl_comm_tells(struct sl_nccl_comm *comm)
{
    bool first;

    sl_nccl_lock(comm->engine);
    first = comm->lost == 0 || !comm->told;
    comm->told = comm->lost != 0;
    sl_nccl_unlock(comm->engine);
    return first;
}

void sl_nccl_comm_cut(struct sl_nccl_comm *comm)
{
    sl_nccl_comm_lose(comm, -ECANCELED, "the connection was closed");
    sl_nccl_flow_leave(comm);
}

void sl_nccl_comm_free(struct sl_nccl_comm *comm)
{
    sl_nccl_comm_cut(comm);
    if (comm->is_waiting)
        sl_list_remove(&comm->waiting);
    sl_list_foreach(&comm->mrs, node) /* NCCL puts them away first; an abort may not */
        sl_nccl_mr_end(sl_container_of(node, struct sl_nccl_mr, link));
    sl_list_remove(&comm->link);
    free(comm->why);
    free(comm);
}

void sl_nccl_close(struct sl_nccl_comm *comm)
{
    struct sl_nccl_engine *engine = comm->engine;

    if (!sl_fork_same(engine->life))
        return; /* a child says nothing to its parent's peer */
    sl_nccl_lock(engine);
    for (unsigned i = 0; i < LAST_LOOKS && comm->lost == 0; i++)
        sl_nccl_progress(engine);
    sl_nccl_comm_free(comm);
    sl_nccl_unlock(engine);
    sl_nccl_engine_put(engine);
}

/* ---- waiting requests ---- */

static void wait_for_room(struct sl_nccl_comm *comm)
{
    if (comm->is_waiting)
        return;
    comm->is_waiting = true;
    sl_list_push_back(&comm->engine->backlog, &comm->waiting);
}

/* The sentence for a connection that is of no use any more. */
static int lost(const struct sl_nccl_comm *comm)
{
    return sl_fail(comm->lost, "the connection to %s is lost: %s", comm->peer_name,
                   sl_text_of(comm->why));
}

/* The result of a transport's call: true when it took the request, which may be over already. */
static bool taken(struct sl_nccl_comm *comm, int err)
{
    if (SL_UNLIKELY(err < 0 && err != -EAGAIN))
        sl_nccl_comm_lose(comm, err, sluice_last_error());
    return err >= 0;
}

/* ---- announcements, at the sender ---- */

static void await_call(struct sl_nccl_comm *comm, uint64_t group)
{
    struct sl_nccl_called *called = &comm->send.called[group % SL_NCCL_CALLS];
    int err;

    called->here = false;
    called->sink = (struct sl_sink){.dst = called->bytes,
                                    .len = sizeof(called->bytes),
                                    .tag = CALL_TAG | group,
                                    .channel = comm->channel,
                                    .granule = 1,
                                    .shorter = true};
    called->req = (struct sl_req){.done = on_called, .arg = comm};
    err = comm->ep->iface->ops->recv(comm->ep, &called->sink, &called->req);
    if (taken(comm, err))
        called->here = err == 1;
    else if (err == -EAGAIN) /* no transport's queue is that short */
        sl_nccl_comm_lose(comm, -ENOBUFS, "the transport takes too few receives");
}

static void on_called(struct sl_req *req)
{
    struct sl_nccl_called *called = sl_container_of(req, struct sl_nccl_called, req);

    if (SL_UNLIKELY(req->status != 0))
        sl_nccl_comm_lose(req->arg, req->status, sluice_last_error());
    called->here = req->status == 0;
}

int sl_nccl_comm_start(struct sl_nccl_comm *comm)
{
    comm->transport = comm->ep->iface->ops->name;
    for (uint64_t i = 0; comm->is_send && i < SL_NCCL_CALLS && comm->lost == 0; i++)
        await_call(comm, i);
    return comm->lost != 0 ? lost(comm) : 0;
}

/* Reads the announcement of the oldest group, once it is here. */
static bool open_group(struct sl_nccl_comm *comm)
{
    struct sl_nccl_send_side *side = &comm->send;
    struct sl_nccl_called *called = &side->called[side->group % SL_NCCL_CALLS];

    if (side->is_open)
        return true;
    if (!called->here || comm->lost != 0)
        return false;
    if (sl_nccl_call_decode(called->bytes, called->req.len, &side->call) != 0 ||
        side->call.number != (uint32_t)side->group) {
        sl_nccl_comm_lose(comm, -EBADMSG, "the receiver announced nonsense");
        return false;
    }
    memset(side->taken, 0, sizeof(side->taken));
    side->given = 0;
    side->is_open = true;
    return true;
}

/* ---- sending ---- */

static void end_send(struct sl_nccl_send *send)
{
    send->base.left = 0;
    send->base.comm->send.under_way--;
    if (send->mr != NULL)
        send->mr->uses--;
    send->mr = NULL;
}

static void on_sent(struct sl_req *req)
{
    struct sl_nccl_send *send = sl_container_of(req, struct sl_nccl_send, req);

    if (SL_UNLIKELY(req->status != 0))
        sl_nccl_comm_lose(send->base.comm, req->status, sluice_last_error());
    end_send(send);
}

static void push_sends(struct sl_nccl_comm *comm)
{
    struct sl_node *queue = &comm->send.queue;
    const struct sl_transport_ops *ops = comm->ep->iface->ops;

    while (!sl_list_empty(queue)) {
        struct sl_nccl_send *send = sl_container_of(queue->next, struct sl_nccl_send, base.link);
        int err = ops->send(comm->ep, &send->buf, send->tag, &send->req);

        if (!taken(comm, err))
            break;
        sl_list_remove(&send->base.link);
        if (err == 1)
            end_send(send);
    }
}

/* Slots leave in their order; the last one ends the group. */
static void give_slots(struct sl_nccl_comm *comm)
{
    struct sl_nccl_send_side *side = &comm->send;

    while (side->given < side->call.count && side->taken[side->given]) {
        struct sl_nccl_send *send = side->slots[side->given++];

        send->tag = side->message++;
        sl_list_push_back(&side->queue, &send->base.link);
    }
    if (side->given < side->call.count)
        return;
    side->is_open = false;
    await_call(comm, side->group + SL_NCCL_CALLS);
    side->group++;
}

static int slot_of(const struct sl_nccl_send_side *side, uint32_t tag)
{
    for (unsigned i = 0; i < side->call.count; i++)
        if (side->call.tags[i] == tag && !side->taken[i])
            return (int)i;
    return -1;
}

/* The registration, if it has the bytes: a transport trusts it. */
static struct sl_nccl_mr *covering(struct sl_nccl_mr *mr, const void *data, size_t len)
{
    if (mr == NULL || mr->mr == NULL || len == 0)
        return NULL;
    return (uintptr_t)data - mr->addr <= mr->len && len <= mr->len - ((uintptr_t)data - mr->addr)
               ? mr
               : NULL;
}

/* The registration for memory of NCCL: the connection's own registration, and all of what a GPU
 * holds. */
static int check_memory(const struct sl_nccl_comm *comm, struct sl_nccl_mr *mr, const void *data,
                        size_t len)
{
    if (mr != NULL && mr->comm != comm)
        return sl_fail(-EINVAL, "a request has memory that is registered for another connection");
    if (mr != NULL && mr->is_gpu && len > 0 && covering(mr, data, len) == NULL)
        return sl_fail(-EINVAL, "%zu bytes at %p are not within the GPU memory that was registered",
                       len, data);
    return 0;
}

static void fill_send(struct sl_nccl_comm *comm, struct sl_nccl_send *send, unsigned slot,
                      void *data, size_t len, struct sl_nccl_mr *mr)
{
    struct sl_nccl_send_side *side = &comm->send;

    if (len > side->call.sizes[slot])
        len = side->call.sizes[slot];
    send->buf = (struct sl_buf){.addr = data, .len = len, .channel = comm->channel};
    send->mr = mr;
    send->event = NULL;
    if (mr != NULL)
        mr->uses++;
    mr = covering(mr, data, len);
    send->buf.mr = mr != NULL ? mr->mr : NULL;
    send->base.left = 1;
    side->under_way++;
    side->slots[slot] = send;
    side->taken[slot] = true;
}

int sl_nccl_isend(struct sl_nccl_comm *comm, void *data, size_t len, int tag, struct sl_nccl_mr *mr,
                  struct sl_nccl_req **out)
{
    struct sl_nccl_send_side *side = &comm->send;
    struct sl_node *node = NULL;
    int slot = -1, err;

    *out = NULL;
    if (SL_UNLIKELY(!sl_fork_same(comm->engine->life)))
        return sl_fork_refuse();
    err = check_memory(comm, mr, data, len);
    if (err != 0)
        return err;
    sl_nccl_lock(comm->engine);
    if (!open_group(comm)) {
        sl_nccl_progress_once(comm->engine, &comm->looks);
        open_group(comm);
    }
    if (SL_UNLIKELY(comm->lost != 0))
        err = lost(comm);
    else if (side->is_open)
        slot = slot_of(side, (uint32_t)tag);
    if (slot >= 0)
        node = sl_list_pop_front(&side->free);
    if (node != NULL) {
        struct sl_nccl_send *send = sl_container_of(node, struct sl_nccl_send, base.link);

        fill_send(comm, send, (unsigned)slot, data, len, mr);
        give_slots(comm);
        sl_nccl_comm_push(comm);
        *out = &send->base;
    }
    sl_nccl_unlock(comm->engine);
    return err;
}

/* ---- receiving ---- */

static void on_received(struct sl_req *req)
{
    struct sl_nccl_recv *recv = req->arg;
    unsigned k = (unsigned)(req - recv->reqs);

    if (SL_UNLIKELY(req->status != 0))
        sl_nccl_comm_lose(recv->base.comm, req->status, sluice_last_error());
    recv->base.left--;
    if (recv->mrs[k] != NULL)
        recv->mrs[k]->uses--;
    recv->mrs[k] = NULL;
}

static void push_recvs(struct sl_nccl_comm *comm)
{
    struct sl_node *queue = &comm->recv.queue;
    const struct sl_transport_ops *ops = comm->ep->iface->ops;

    while (!sl_list_empty(queue)) {
        struct sl_nccl_recv *recv = sl_container_of(queue->next, struct sl_nccl_recv, base.link);

        while (recv->posted < recv->count) {
            struct sl_req *req = &recv->reqs[recv->posted];
            int err = ops->recv(comm->ep, &recv->sinks[recv->posted], req);

            if (!taken(comm, err))
                return;
            recv->posted++;
            if (err == 1)
                on_received(req);
        }
        sl_list_remove(&recv->base.link);
    }
}

static void on_calling_sent(struct sl_req *req)
{
    struct sl_nccl_calling *calling = sl_container_of(req, struct sl_nccl_calling, req);

    if (SL_UNLIKELY(req->status != 0))
        sl_nccl_comm_lose(req->arg, req->status, sluice_last_error());
    calling->busy = false;
}

static void push_calls(struct sl_nccl_comm *comm)
{
    struct sl_nccl_recv_side *side = &comm->recv;

    while (side->announced < side->group) {
        struct sl_nccl_calling *calling = &side->calling[side->announced % SL_NCCL_CALLS];
        struct sl_buf buf = {.addr = calling->bytes, .len = calling->len, .channel = comm->channel};
        int err =
            comm->ep->iface->ops->send(comm->ep, &buf, CALL_TAG | side->announced, &calling->req);

        if (!taken(comm, err))
            break;
        side->announced++;
        if (err == 1)
            calling->busy = false;
    }
}

void sl_nccl_comm_push(struct sl_nccl_comm *comm)
{
    bool rest = false;

    if (comm->lost == 0 && comm->ep != NULL) {
        if (comm->is_send) {
            push_sends(comm);
            rest = !sl_list_empty(&comm->send.queue);
        } else {
            push_recvs(comm);
            push_calls(comm);
            rest = !sl_list_empty(&comm->recv.queue) || comm->recv.announced < comm->recv.group;
        }
    }
    if (rest && comm->lost == 0) {
        wait_for_room(comm);
    } else if (comm->is_waiting) {
        comm->is_waiting = false;
        sl_list_remove(&comm->waiting);
    }
}

static void announce(struct sl_nccl_comm *comm, unsigned count, const size_t *lens, const int *tags)
{
    struct sl_nccl_recv_side *side = &comm->recv;
    struct sl_nccl_calling *calling = &side->calling[side->group % SL_NCCL_CALLS];
    struct sl_nccl_call call = {.number = (uint32_t)side->group, .count = count};

    for (unsigned k = 0; k < count; k++) {
        call.tags[k] = (uint32_t)tags[k];
        call.sizes[k] = lens[k];
    }
    calling->busy = true;
    calling->req.arg = comm;
    calling->len = (uint16_t)sl_nccl_call_encode(&call, calling->bytes);
    side->group++;
}

static void fill_recv(struct sl_nccl_comm *comm, struct sl_nccl_recv *recv, unsigned k, void *data,
                      size_t len, struct sl_nccl_mr *mr)
{
    const struct sl_nccl_mr *cover = covering(mr, data, len);

    recv->mrs[k] = mr;
    recv->events[k] = NULL;
    if (mr != NULL)
        mr->uses++;
    recv->sinks[k] = (struct sl_sink){.dst = data,
                                      .len = len,
                                      .tag = comm->recv.message++,
                                      .channel = comm->channel,
                                      .granule = 1,
                                      .shorter = true,
                                      .mr = cover != NULL ? cover->mr : NULL};
}

static int check_recv(const struct sl_nccl_comm *comm, unsigned count, void *const *data,
                      const size_t *lens, struct sl_nccl_mr *const *mrs)
{
    int err = 0;

    if (count == 0 || count > SL_NCCL_GROUP_MAX)
        return sl_fail(-EINVAL, "irecv has a group of %u; from 1 to %d are possible", count,
                       SL_NCCL_GROUP_MAX);
    for (unsigned k = 0; mrs != NULL && k < count && err == 0; k++)
        err = check_memory(comm, mrs[k], data[k], lens[k]);
    return err;
}

int sl_nccl_irecv(struct sl_nccl_comm *comm, unsigned count, void **data, const size_t *lens,
                  const int *tags, struct sl_nccl_mr **mrs, struct sl_nccl_req **out)
{
    struct sl_nccl_recv_side *side = &comm->recv;
    struct sl_node *node = NULL;
    int err;

    *out = NULL;
    if (SL_UNLIKELY(!sl_fork_same(comm->engine->life)))
        return sl_fork_refuse();
    err = check_recv(comm, count, data, lens, mrs);
    if (err != 0)
        return err;
    sl_nccl_lock(comm->engine);
    if (side->calling[side->group % SL_NCCL_CALLS].busy)
        sl_nccl_progress(comm->engine);
    if (SL_UNLIKELY(comm->lost != 0))
        err = lost(comm);
    else if (!side->calling[side->group % SL_NCCL_CALLS].busy)
        node = sl_list_pop_front(&side->free);
    if (node != NULL) {
        struct sl_nccl_recv *recv = sl_container_of(node, struct sl_nccl_recv, base.link);

        recv->count = recv->base.left = count;
        recv->posted = 0;
        for (unsigned k = 0; k < count; k++)
            fill_recv(comm, recv, k, data[k], lens[k], mrs != NULL ? mrs[k] : NULL);
        sl_list_push_back(&side->queue, &recv->base.link);
        announce(comm, count, lens, tags);
        sl_nccl_comm_push(comm);
        *out = &recv->base;
    }
    sl_nccl_unlock(comm->engine);
    return err;
}

/* ---- completion ---- */

/* NCCL knows sizes as int; devices tell that messages are shorter (SL_NCCL_BYTES_MAX). */
static void finish(struct sl_nccl_req *req, int *sizes)
{
    struct sl_nccl_comm *comm = req->comm;

    if (req->kind == SL_NCCL_REQ_SEND) {
        struct sl_nccl_send *send = sl_container_of(req, struct sl_nccl_send, base);

        if (sizes != NULL)
            sizes[0] = (int)send->buf.len;
        sl_list_push_back(&comm->send.free, &req->link);
    } else {
        struct sl_nccl_recv *recv = sl_container_of(req, struct sl_nccl_recv, base);

        for (unsigned k = 0; sizes != NULL && k < recv->count; k++)
            sizes[k] = (int)recv->reqs[k].len;
        sl_list_push_back(&comm->recv.free, &req->link);
    }
}

/* A request of a lost connection is over well only if all its parts ended before. */
static bool is_well(const struct sl_nccl_req *req)
{
    const struct sl_nccl_send *send = sl_container_of(req, struct sl_nccl_send, base);
    const struct sl_nccl_recv *recv = sl_container_of(req, struct sl_nccl_recv, base);

    if (req->left > 0)
        return false;
    if (req->kind == SL_NCCL_REQ_SEND)
        return send->req.status == 0;
    for (unsigned k = 0; k < recv->count; k++)
        if (recv->reqs[k].status != 0)
            return false;
    return true;
}

int sl_nccl_test(struct sl_nccl_req *req, int *sizes)
{
    struct sl_nccl_comm *comm = req->comm;
    struct sl_nccl_engine *engine = comm->engine;
    int done = 0;

    if (SL_UNLIKELY(!sl_fork_same(engine->life)))
        return sl_fork_refuse();
    sl_nccl_lock(engine);
    if (req->left > 0)
        sl_nccl_progress_once(engine, &req->looks);
    if (SL_LIKELY(comm->lost == 0 || is_well(req))) {
        done = req->left == 0;
        if (done)
            finish(req, sizes);
    } else {
        done = lost(comm);
    }
    sl_nccl_unlock(engine);
    return done;
}
