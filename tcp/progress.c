/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: which sockets are tried, when the engine is polled, and the callbacks to the owner of
 * an endpoint. */
#include "tcp/tcp.h"

/* With so few endpoints awaited, asking their sockets beats asking the engine. */
#define DIRECT_MAX 4
/* Rounds of progress between polls of the engine: while few endpoints are awaited, all on one
 * connection; the same with several connections each; while nothing is awaited at all. */
#define ENGINE_EVERY_DIRECT 256
#define ENGINE_EVERY_STRIPED 8
#define ENGINE_EVERY_IDLE 16
#define TIMER_NS (10 * SL_NS_PER_MS)

bool sl_tcp_asks_sockets(const struct sl_tcp_iface *iface)
{
    return iface->active_count <= DIRECT_MAX;
}

void sl_tcp_conn_ready(struct sl_tcp_conn *conn)
{
    if (conn->is_ready || conn->watch.fd < 0)
        return;
    conn->is_ready = true;
    sl_list_push_back(&conn->ep->iface->ready, &conn->ready);
}

void sl_tcp_conn_unready(struct sl_tcp_conn *conn)
{
    if (!conn->is_ready)
        return;
    conn->is_ready = false;
    sl_list_remove(&conn->ready);
}

bool sl_tcp_conn_has_work(const struct sl_tcp_conn *conn)
{
    const struct sl_tcp_ep *ep = conn->ep;

    if (conn->watch.fd < 0)
        return false;
    if (conn->idx == 0)
        return (conn->watch.readable && !conn->eof) ||
               (conn->watch.writable && (ep->ctrl_count > 0 || !sl_list_empty(&ep->closing)));
    if (conn->watch.writable && (conn->tx.active || ep->tx_assign < ep->tx_tail))
        return true;
    if (conn->stalled)
        return false;
    if (conn->have_frame && (conn->rx_end > conn->rx_pos || conn->piece_got == conn->frame.len))
        return true;
    return (conn->watch.readable && !conn->eof) ||
           conn->rx_end - conn->rx_pos >= SL_TCP_FRAME_BYTES;
}

/* Messages of the peer before its end are still in the sockets: receives that it completes end
 * well. */
static void drain(struct sl_tcp_ep *ep)
{
    ep->is_failing = false;
    for (unsigned i = 1; i <= ep->data_conns; i++)
        while (!ep->is_failing && ep->rx_open > 0 && !ep->conns[i].eof &&
               sl_tcp_conn_rx(&ep->conns[i]) > 0)
            ;
    ep->is_failing = true;
    sl_tcp_ctrl_rx_all(ep); /* its reason for going may be among it */
}

/* Receives of messages that were kept meanwhile end, as far as the budget goes. */
static int settle(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;
    int ended =
        (int)sl_channels_settle(&ep->channels, iface->budget > 0 ? (unsigned)iface->budget : 0);

    iface->budget -= ended;
    if (ep->bye)
        sl_tcp_check_end(ep);
    return ended;
}

static int tell_news(struct sl_tcp_iface *iface)
{
    struct sl_node *node, later;
    int told = 0;

    sl_list_init(&later);
    while ((node = sl_list_pop_front(&iface->news)) != NULL) {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, news);

        ep->has_news = false;
        told++;
        if (ep->is_failing && ep->state == SL_TCP_EP_CONNECTING)
            sl_tcp_connect_lost(ep);
        if (ep->connect_over && ep->connect_req != NULL) {
            struct sl_req *req = ep->connect_req;

            ep->connect_req = NULL;
            if (ep->connect_status != 0)
                sl_fail_text(ep->connect_status, sl_text_of(ep->why));
            sl_req_end(req, ep->connect_status);
        }
        if (sl_channels_due(&ep->channels))
            told += settle(ep);
        if (!ep->is_failing || ep->state != SL_TCP_EP_UP) {
            if (sl_channels_due(&ep->channels) && !ep->has_news) {
                ep->has_news = true;
                sl_list_push_back(&later, &ep->news);
            }
            continue;
        }
        if (ep->down_status != -EBADMSG) {
            int budget = iface->budget;

            iface->budget = INT32_MAX;
            drain(ep);
            settle(ep);
            iface->budget = budget;
        }
        ep->state = SL_TCP_EP_DOWN;
        for (unsigned i = 0; i <= ep->data_conns; i++) {
            sl_tcp_conn_unready(&ep->conns[i]);
            sl_tcp_conn_close(&ep->conns[i]);
        }
        if (iface->base.handler.down != NULL)
            iface->base.handler.down(iface->base.handler.arg, &ep->base, ep->down_status,
                                     sl_text_of(ep->why));
        sl_fail(ep->down_status, "%s is gone: %s", sl_ep_peer_name(&ep->base), sl_text_of(ep->why));
        sl_tcp_lose(ep, ep->down_status);
    }
    while ((node = sl_list_pop_front(&later)) != NULL)
        sl_list_push_back(&iface->news, node);
    return told;
}

static void on_event(void *arg, struct sl_tcp_watch *watch)
{
    struct sl_tcp_iface *iface = arg;

    switch (watch->kind) {
    case SL_TCP_WATCH_LISTENER: sl_tcp_accept(iface); break;
    case SL_TCP_WATCH_PENDING: sl_tcp_pending_event(iface, (struct sl_tcp_pending *)watch); break;
    case SL_TCP_WATCH_KNOCK: sl_tcp_knock_event((struct sl_tcp_knock *)watch); break;
    default: {
        struct sl_tcp_conn *conn = (struct sl_tcp_conn *)watch;

        if (conn->state == SL_TCP_OPEN)
            sl_tcp_conn_ready(conn);
        else
            sl_tcp_dial_event(conn);
    }
    }
}

static int poll_engine(struct sl_tcp_iface *iface)
{
    int events = iface->engine_ops->poll(iface->engine, on_event, iface);

    if (events < 0)
        return events;
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        if (iface->listeners[i].readable) {
            sl_tcp_accept(iface);
            break;
        }
    if (iface->connecting > 0 || iface->pending_set.count > 0) {
        uint64_t time = sl_now(iface->base.worker->clock);

        if (time >= iface->next_timer_ns) {
            iface->next_timer_ns = time + TIMER_NS;
            sl_tcp_timers(iface);
        }
    }
    return events;
}

static int try_conn(struct sl_tcp_conn *conn)
{
    int moved = 0;

    if (conn->watch.readable || conn->have_frame || conn->rx_end > conn->rx_pos)
        moved += sl_tcp_conn_rx(conn);
    if (conn->watch.writable && !conn->ep->is_failing)
        moved += sl_tcp_conn_tx(conn);
    return moved;
}

/* One turn for each connection that was ready when it began. */
static int run_ready(struct sl_tcp_iface *iface)
{
    struct sl_node turn, *node;
    int moved = 0;

    if (sl_list_empty(&iface->ready))
        return 0;
    /* The whole list moves to turn: connections that get ready meanwhile wait for the next. */
    turn = iface->ready;
    turn.next->prev = turn.prev->next = &turn;
    sl_list_init(&iface->ready);
    while ((node = sl_list_pop_front(&turn)) != NULL) {
        struct sl_tcp_conn *conn = sl_container_of(node, struct sl_tcp_conn, ready);

        conn->is_ready = false;
        if (iface->budget > 0)
            moved += try_conn(conn);
        if (sl_tcp_conn_has_work(conn))
            sl_tcp_conn_ready(conn);
    }
    return moved;
}

/* Asks the first socket of awaited endpoints without waiting for the engine to name it. */
static int run_awaited(struct sl_tcp_iface *iface)
{
    int moved = 0;

    sl_list_foreach(&iface->active, node)
    {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, active);
        struct sl_tcp_conn *conn = &ep->conns[1];

        if (iface->budget <= 0)
            break;
        if (ep->rx_open > 0 && !conn->is_ready && !conn->stalled && !conn->eof && !ep->is_failing)
            moved += sl_tcp_conn_rx(conn);
        if (ep->tx_head < ep->tx_tail && !conn->watch.writable && !ep->is_failing)
            moved += sl_tcp_conn_tx(conn);
    }
    return moved;
}

static unsigned engine_every(const struct sl_tcp_iface *iface)
{
    if (iface->connecting > 0 || iface->pending_set.count > 0 || !sl_tcp_asks_sockets(iface))
        return 1;
    if (iface->active_count == 0)
        return ENGINE_EVERY_IDLE;
    return iface->striped ? ENGINE_EVERY_STRIPED : ENGINE_EVERY_DIRECT;
}

int sl_tcp_progress(struct sl_iface *base, unsigned budget)
{
    struct sl_tcp_iface *iface = sl_tcp_iface_of(base);
    int moved = 0;

    iface->budget = budget > INT32_MAX ? INT32_MAX : (int)budget;
    iface->round++;
    if (!sl_list_empty(&iface->news))
        moved += tell_news(iface);
    if (sl_tcp_asks_sockets(iface))
        moved += run_awaited(iface);
    moved += run_ready(iface);
    if (iface->round % engine_every(iface) == 0) {
        int events = poll_engine(iface);

        if (events < 0)
            return events;
        moved += events;
    }
    return moved;
}

int sl_tcp_wake_fd(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = sl_tcp_iface_of(base);

    return iface->engine_ops->fd(iface->engine);
}

int sl_tcp_arm(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = sl_tcp_iface_of(base);

    if (!sl_list_empty(&iface->news) || !sl_list_empty(&iface->ready))
        return -EAGAIN;
    return poll_engine(iface) != 0 || !sl_list_empty(&iface->news) ? -EAGAIN : 0;
}
