/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two endpoints get their connections: one listens, the other dials, both say hello.
 *
 * Both sides know both addresses, so they agree without talking: the endpoint with the lower token
 * dials. It tries the peer's addresses in order with the control connection, then opens the data
 * connections to the address that answered. Tokens are random, so only a peer with the address from
 * the exchange can attach; others are turned away, by the rules of core/pending.h.
 * Tokens do not travel:
 *
 *   dialler                                        listener
 *   hello (name of the other endpoint, nonce)  ->
 *                                              <-  answer (nonce, proof), once its endpoint
 *                                                  connects
 *   proof                                      ->
 *                  TLS, or frames at once
 *
 * A proof is a digest of all that was said on the connection, under a key made of both tokens and
 * the job's session key (proof.h).
 */
#include "tcp/conn.h"
#include "tcp/config.h"

#include "core/fork.h"
#include "core/log.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- sockets ---- */

void sl_tcp_set_int(int fd, int level, int name, int64_t value)
{
    int v = value > INT32_MAX ? INT32_MAX : (int)value;

    setsockopt(fd, level, name, &v, sizeof(v));
}

void sl_tcp_tune_early(const struct sl_tcp_iface *iface, int fd)
{
    int64_t bytes = sl_tcp_config(iface->config)->socket_bytes;

    if (bytes > 0) {
        sl_tcp_set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
        sl_tcp_set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
    }
    if (iface->congestion[0] != '\0')
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, iface->congestion,
                   (socklen_t)strlen(iface->congestion));
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/*
 * Only the control connection watches for a cut link: it is always read, so its bytes are always
 * acknowledged while the peer's kernel lives. On a data connection TCP_USER_TIMEOUT would also fire
 * for a rank that is just not reading because it computes.
 */
static void tune_control(const struct sl_tcp_iface *iface, int fd)
{
    int64_t timeout_s = (iface->config->timeout_ms + 999) / 1000;
    int64_t idle = timeout_s / 3 < 1 ? 1 : timeout_s / 3;
    int64_t interval = timeout_s / 6 < 1 ? 1 : timeout_s / 6;

    sl_tcp_set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, iface->config->timeout_ms);
}

int sl_tcp_socket_new(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return sl_fail(-errno, "no socket to be had: %s%s", sluice_strerror(-errno),
                       errno == EMFILE ? "; raise 'ulimit -n'" : "");
    return sl_fork_closes(fd);
}

void sl_tcp_watch_close(struct sl_tcp_iface *iface, struct sl_tcp_watch *watch)
{
    if (watch->fd < 0)
        return;
    iface->engine_ops->del(iface->engine, watch);
    close(watch->fd);
    watch->fd = -1;
    watch->readable = watch->writable = false;
}

void sl_tcp_conn_close(struct sl_tcp_conn *conn)
{
    sl_tcp_watch_close(conn->ep->iface, &conn->watch);
    conn->state = SL_TCP_CLOSED;
    sl_tls_free(conn->tls);
    conn->tls = NULL;
    free(conn->tx.own);
    conn->tx.own = NULL;
    conn->tx.active = false;
}

void sl_tcp_conn_fresh(struct sl_tcp_conn *conn)
{
    conn->eof = conn->stalled = conn->have_frame = false;
    conn->rx_pos = conn->rx_end = conn->piece_got = 0;
    conn->last_channel = conn->next_seq = 0;
    conn->next_off = 0;
    if (conn->idx != 0)
        return;
    conn->ep->bye = false;
    conn->ep->ctrl_seq_in = 0;
}

bool sl_tcp_stays_here(int fd)
{
    struct sockaddr_storage mine = {0}, theirs = {0};
    socklen_t mine_len = sizeof(mine), theirs_len = sizeof(theirs);
    char text[2][64];

    if (getsockname(fd, (struct sockaddr *)&mine, &mine_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&theirs, &theirs_len) != 0)
        return false;
    sl_sockaddr_host(&mine, text[0], sizeof(text[0]));
    sl_sockaddr_host(&theirs, text[1], sizeof(text[1]));
    return sl_sockaddr_loopback(&theirs) || strcmp(text[0], text[1]) == 0;
}

static void local_text(struct sl_tcp_ep *ep, int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0)
        sl_sockaddr_text(&addr, ep->local_text, sizeof(ep->local_text));
}

/* ---- one connection after the other ---- */

/* The request itself ends in progress: ep_connect() may be running. */
static void connect_end(struct sl_tcp_ep *ep, int status)
{
    sl_tcp_knock_end(ep);
    ep->iface->connecting--;
    sl_tcp_pending_forget(ep); /* others that name it have proved nothing */
    /* Who dials again gives up only where nobody is left to answer. */
    if (ep->redials && status == -ECONNREFUSED && !ep->peer_gone)
        status = -ECONNRESET;
    ep->connect_status = status;
    ep->connect_over = true;
    sl_tcp_ep_news(ep);
}

void sl_tcp_connect_fail(struct sl_tcp_ep *ep, int status)
{
    ep->state = SL_TCP_EP_DOWN;
    ep->down_status = status;
    sl_text_set(&ep->why, "%s", sluice_last_error());
    for (unsigned i = 0; i <= ep->data_conns; i++)
        sl_tcp_conn_close(&ep->conns[i]);
    connect_end(ep, status);
}

void sl_tcp_connect_lost(struct sl_tcp_ep *ep)
{
    int status = ep->down_status == -ECONNRESET ? -ECONNREFUSED : ep->down_status;

    sl_tcp_connect_fail(ep, sl_fail(status, "%u of %u connections to %s at %s were open: %s",
                                    ep->open_conns, ep->data_conns + 1, sl_ep_peer_name(&ep->base),
                                    ep->peer_text, sl_text_of(ep->why)));
}

static void conn_opened(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    char conns[32];

    conn->state = SL_TCP_OPEN;
    /* Bytes behind the hello produced no further edge: read once. */
    conn->watch.readable = conn->watch.writable = true;
    sl_tcp_conn_ready(conn);
    if (conn->idx == 0) {
        tune_control(ep->iface, conn->watch.fd);
        local_text(ep, conn->watch.fd);
    }
    if (++ep->open_conns < ep->data_conns + 1) {
        if (conn->idx == 0 && ep->dials)
            sl_tcp_dial_data(ep);
        return;
    }
    ep->state = SL_TCP_EP_UP;
    if (ep->dials)
        sl_tcp_found_at(ep, ep->target_idx);
    sl_tcp_conns_describe(ep, conns, sizeof(conns));
    sl_info("tcp", "connected to %s: %s to %s, %s, %s, crc %s, %s%s", sl_ep_peer_name(&ep->base),
            ep->local_text, ep->peer_text, conns, ep->iface->congestion, ep->crc ? "on" : "off",
            ep->tls ? "TLS 1.3 " : "no TLS", ep->tls ? sl_tls_cipher(conn->tls) : "");
    connect_end(ep, 0);
}

/* ---- TLS ---- */

void sl_tcp_conn_secure(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    char text[SL_ERROR_TEXT_MAX];
    bool wants_write;
    int err = sl_tls_handshake(conn->tls, conn->watch.fd, &wants_write);

    if (err == 1) {
        conn_opened(conn);
    } else if (err < 0) {
        snprintf(text, sizeof(text), "%s", sluice_last_error());
        sl_tcp_connect_fail(ep, sl_fail(err, "connection %u to %s at %s: %s", conn->idx,
                                        sl_ep_peer_name(&ep->base), ep->peer_text, text));
    } else if (wants_write) {
        conn->watch.writable = false;
    } else {
        conn->watch.readable = false;
    }
}

int sl_tcp_conn_proved(struct sl_tcp_conn *conn, const uint8_t *hello, const uint8_t *answer)
{
    struct sl_tcp_ep *ep = conn->ep;
    const struct sl_worker *worker = ep->iface->base.worker;
    char identity[SL_TLS_IDENTITY_MAX];
    uint8_t psk[SL_DIGEST_BYTES];

    if (!ep->tls) {
        conn_opened(conn);
        return 0;
    }
    int32_t peer = ep->base.peer, mine = worker->rank;

    snprintf(identity, sizeof(identity), "sluice job '%.64s' rank %d to %d connection %u",
             ep->iface->config->job, ep->dials ? mine : peer, ep->dials ? peer : mine, conn->idx);
    int err = sl_tcp_proof_make(ep->link_key, SL_TCP_PROOF_TLS, hello, answer, psk);

    err = err ?: sl_tls_new(ep->iface->tls, &ep->tls_terms, ep->dials, psk, identity, &conn->tls);
    explicit_bzero(psk, sizeof(psk));
    if (err != 0)
        return sl_iface_note_memory(&ep->iface->base, err);
    conn->state = SL_TCP_SECURING;
    sl_tcp_conn_secure(conn);
    return 0;
}

/* ---- from the start to the deadline ---- */

int sl_tcp_connect_start(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;

    ep->state = SL_TCP_EP_CONNECTING;
    ep->connect_deadline_ns =
        sl_tcp_now(iface) + (uint64_t)iface->config->connect_timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    if (ep->dials)
        sl_tcp_dial_control(ep);
    else
        sl_tcp_pending_claim(ep);
    if (ep->redials && !ep->dials)
        sl_tcp_knock_start(ep);
    return 0;
}

static void ep_timer(struct sl_tcp_ep *ep, uint64_t time)
{
    if (ep->state != SL_TCP_EP_CONNECTING)
        return;
    if (time >= ep->connect_deadline_ns) {
        sl_tcp_note_silence(ep);
        sl_tcp_connect_fail(
            ep, sl_fail(-ETIMEDOUT,
                        "%s was not connected within %lld ms: %u of %u connections are "
                        "open%s%s",
                        sl_ep_peer_name(&ep->base),
                        (long long)ep->iface->config->connect_timeout_ms, ep->open_conns,
                        ep->data_conns + 1, ep->tried != NULL ? "; " : "", sl_text_of(ep->tried)));
    } else if (ep->dials && ep->conns[0].state < SL_TCP_SECURING &&
               time >= ep->conns[0].deadline_ns) {
        /* Who has proved itself is the peer, at whatever address: no other is tried. */
        sl_tcp_dial_failed(&ep->conns[0], -ETIMEDOUT, sl_tcp_silence(&ep->conns[0]));
    } else if (ep->knock != NULL) {
        sl_tcp_knock_timer(ep, time);
    }
}

void sl_tcp_timers(struct sl_tcp_iface *iface)
{
    uint64_t time;

    if (iface->connecting == 0 && iface->pending_set.count == 0)
        return;
    time = sl_tcp_now(iface);
    if (iface->connecting > 0) {
        sl_list_foreach(&iface->eps, node)
            ep_timer(sl_container_of(node, struct sl_tcp_ep, link), time);
    }
    sl_tcp_pending_timers(iface, time);
}
