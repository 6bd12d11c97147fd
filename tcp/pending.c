/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepted connections that are nobody's yet: from accept() to the proof that makes one an
 * endpoint's. core/pending.h decides which one may wait how long.
 */
#include "tcp/conn.h"

#include "core/fork.h"
#include "core/log.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static bool is_parked(const struct sl_tcp_pending *pending)
{
    return pending->base.standing == SL_PENDING_PROVED;
}

static void pending_free(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    sl_tcp_watch_close(iface, &pending->watch);
    sl_pending_remove(&iface->pending_set, &pending->base);
    pending->used = false;
}

static void pending_refuse(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending,
                           const char *why)
{
    sl_pending_refused(&iface->pending_set, pending->base.from, why, sl_tcp_now(iface));
    pending_free(iface, pending);
}

/* ---- accepting ---- */

/* One that has been here long enough goes, unless its hello has come meanwhile: when a thousand
 * ranks connect at once, the next ones wait in the listener's queue. False: they do. */
static bool make_room(struct sl_tcp_iface *iface, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&iface->pending_set, sl_tcp_now(iface));
    struct sl_tcp_pending *pending = sl_container_of(victim, struct sl_tcp_pending, base);

    if (victim == NULL)
        return false;
    sl_tcp_pending_event(iface, pending);
    if (pending->used && is_parked(pending))
        return false;
    if (pending->used)
        pending_refuse(iface, pending, why);
    return true;
}

/* No descriptor for the one that waits: no event comes again, so the clock brings the next try. */
static void accept_starved(struct sl_tcp_iface *iface, int err)
{
    iface->accept_after_ns = sl_tcp_now(iface) + SL_NS_PER_S;
    sl_warn("tcp", "a peer waits but cannot be accepted: %s; raise 'ulimit -n'",
            sluice_strerror(err));
}

static void take_in(struct sl_tcp_iface *iface, int fd, const struct sockaddr_storage *addr)
{
    struct sl_tcp_pending *pending = iface->pending;

    while (pending->used)
        pending++;
    *pending = (struct sl_tcp_pending){.used = true};
    pending->watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_PENDING};
    sl_pending_add(&iface->pending_set, &pending->base, addr, sl_tcp_now(iface));
    sl_tcp_set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (sl_iface_note_memory(&iface->base,
                             iface->engine_ops->add(iface->engine, &pending->watch)) != 0) {
        pending_refuse(iface, pending, sluice_last_error());
        return;
    }
    pending->watch.readable = true;
    sl_tcp_pending_event(iface, pending);
}

/* False: no more can be taken in now, here or elsewhere. */
static bool accept_at(struct sl_tcp_iface *iface, struct sl_tcp_watch *listener)
{
    /* Bounded: a flood of strangers must not keep progress here. */
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof(addr);
        int fd;

        if (sl_pending_full(&iface->pending_set) &&
            !make_room(iface, "it said nothing useful while others waited"))
            return false; /* it stays in its queue; progress polls again */
        fd = accept4(listener->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(iface, sl_fork_closes(fd), &addr);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE) {
            int err = -errno;

            if (make_room(iface, "no descriptor is left"))
                continue;
            accept_starved(iface, err);
            return false;
        }
        if (errno == EAGAIN)
            listener->readable = false;
        return true;
    }
    return true;
}

void sl_tcp_accept(struct sl_tcp_iface *iface)
{
    if (iface->accept_after_ns != 0 && sl_tcp_now(iface) < iface->accept_after_ns)
        return;
    iface->accept_after_ns = 0;
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        if (iface->listeners[i].readable && !accept_at(iface, &iface->listeners[i]))
            return;
}

/* ---- those that know one of our endpoints ---- */

static void answer(struct sl_tcp_iface *iface, int fd, enum sl_tcp_verdict verdict)
{
    struct sl_tcp_answer reply = {.version = SL_TCP_WIRE_VERSION,
                                  .verdict = (uint8_t)verdict,
                                  .rank = iface->base.worker->rank};
    uint8_t bytes[SL_TCP_ANSWER_BYTES];

    sl_tcp_answer_encode(&reply, bytes);
    /* A fresh socket has room for 24 bytes; if it failed, the dialler sees the connection end. */
    if (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(bytes))
        sl_debug("tcp", "an answer could not be sent: %s", sluice_strerror(-errno));
}

/* The dialer has seen the route of the connection. It may be more careful than we. */
static bool same_crc(const struct sl_tcp_ep *ep, const struct sl_tcp_hello *hello, int fd)
{
    if (!ep->crc_by_path)
        return hello->crc == ep->crc;
    return hello->crc || sl_tcp_stays_here(fd);
}

static bool same_shape(const struct sl_tcp_ep *ep, const struct sl_tcp_hello *hello, int fd)
{
    return hello->conn_count == ep->data_conns && same_crc(ep, hello, fd) &&
           hello->tls == ep->tls && hello->conn_idx <= ep->data_conns;
}

/* It names an endpoint that is connecting: shows it that we are the listener it wants. Without
 * both tokens that is of no use. */
static void pending_answer(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending,
                           struct sl_tcp_ep *ep)
{
    struct sl_tcp_answer reply = {.version = SL_TCP_WIRE_VERSION,
                                  .verdict = SL_TCP_WELCOME,
                                  .rank = iface->base.worker->rank};
    uint8_t *nonce = pending->welcome + SL_TCP_ANSWER_BYTES;

    if (!same_shape(ep, &pending->hello, pending->watch.fd)) {
        answer(iface, pending->watch.fd, SL_TCP_WRONG_SHAPE);
        pending_refuse(iface, pending,
                       "it counts connections, or uses checksums or TLS, differently");
        return;
    }
    sl_tcp_answer_encode(&reply, pending->welcome);
    if (getrandom(nonce, SL_TCP_NONCE_BYTES, 0) != SL_TCP_NONCE_BYTES ||
        sl_iface_note_memory(&iface->base, sl_tcp_proof_make(ep->link_key, SL_TCP_PROOF_LISTENER,
                                                             pending->bytes, pending->welcome,
                                                             nonce + SL_TCP_NONCE_BYTES)) != 0) {
        pending_refuse(iface, pending, "no proof can be made");
        return;
    }
    pending->answered = true;
    pending->got = 0;
    if (is_parked(pending)) /* names can be read on the way: it may know no more than that */
        sl_pending_ask(&iface->pending_set, &pending->base, sl_tcp_now(iface));
    else
        pending->base.standing = SL_PENDING_HEARD;
    /* A fresh socket has room for it. */
    if (send(pending->watch.fd, pending->welcome, sizeof(pending->welcome),
             MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(pending->welcome))
        pending_refuse(iface, pending, "it does not take an answer");
}

/* It has proved that it is the peer of that endpoint. */
static void pending_adopt(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending,
                          struct sl_tcp_ep *ep)
{
    const struct sl_tcp_pending proved = *pending;
    struct sl_tcp_conn *conn = &ep->conns[proved.hello.conn_idx];
    int fd = pending->watch.fd, err;

    if (proved.hello.attempt < ep->attempt) {
        pending_refuse(iface, pending, "it is of an attempt that its end gave up");
        return;
    }
    /* The dialler gave up on its first attempt and starts again. What was said in the one must not
     * come in the other: so all connections are of one, whichever of them proves itself first. */
    if (proved.hello.attempt > ep->attempt ||
        (proved.hello.conn_idx == 0 && conn->state != SL_TCP_CLOSED)) {
        for (unsigned i = 0; i <= ep->data_conns; i++)
            sl_tcp_conn_close(&ep->conns[i]);
        ep->open_conns = 0;
        ep->attempt = proved.hello.attempt;
    }
    if (conn->state != SL_TCP_CLOSED) {
        pending_refuse(iface, pending, "it comes twice");
        return;
    }
    iface->engine_ops->del(iface->engine, &pending->watch);
    pending->watch.fd = -1;
    sl_tcp_conn_fresh(conn);
    conn->watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_CONN};
    if (conn->idx == 0) {
        ep->base.connection = proved.hello.attempt;
        sl_tcp_found_from(ep, fd);
        snprintf(ep->peer_text, sizeof(ep->peer_text), "%s", proved.base.from);
        sl_tcp_ep_set_crc(ep, proved.hello.crc);
    }
    pending_free(iface, pending);
    err = iface->engine_ops->add(iface->engine, &conn->watch);
    if (err != 0) {
        close(fd);
        conn->watch.fd = -1;
    }
    err = err ?: sl_tcp_conn_proved(conn, proved.bytes, proved.welcome);
    if (err != 0)
        sl_tcp_connect_fail(ep, err);
}

static struct sl_tcp_ep *ep_by_name(struct sl_tcp_iface *iface, const uint8_t *name)
{
    sl_list_foreach(&iface->eps, node)
    {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, link);

        if (memcmp(ep->name, name, SL_TCP_NAME_BYTES) == 0)
            return ep;
    }
    return NULL;
}

/* The dialling end has lost the connection of an endpoint that is still up here. */
static bool is_dialled_again(const struct sl_tcp_ep *ep, const struct sl_tcp_hello *hello)
{
    return ep->state == SL_TCP_EP_UP && !ep->is_failing && !ep->dials && hello->conn_idx == 0 &&
           hello->attempt > ep->base.connection;
}

static void pending_hello(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    struct sl_tcp_ep *ep;
    int err = sl_tcp_hello_decode(pending->bytes, &pending->hello);

    if (err == -EPROTO)
        answer(iface, pending->watch.fd, SL_TCP_WRONG_VERSION);
    if (err != 0) {
        pending_refuse(iface, pending, sluice_last_error());
        return;
    }
    ep = ep_by_name(iface, pending->hello.to);
    if (ep == NULL) {
        answer(iface, pending->watch.fd, SL_TCP_NOBODY);
        pending_refuse(iface, pending, "it asks for an endpoint that is not waiting here");
    } else if (pending->hello.knocks || ep->state == SL_TCP_EP_DOWN) {
        pending_free(iface, pending); /* that is all a knock wants to know; or it is early */
    } else if (ep->state == SL_TCP_EP_NEW) {
        pending->base.standing = SL_PENDING_PROVED;
    } else if (ep->state == SL_TCP_EP_CONNECTING || is_dialled_again(ep, &pending->hello)) {
        pending_answer(iface, pending, ep);
    } else {
        pending_refuse(iface, pending, "it asks for an endpoint that is not waiting here");
    }
}

/* Its owner hears of it, and then waits for the next attempt. */
static void lost_to(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending,
                    struct sl_tcp_ep *ep)
{
    pending_free(iface, pending);
    sl_tcp_ep_fail(ep, -ECONNRESET, "the peer has lost the connection and dials again");
}

static void pending_proof(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    struct sl_tcp_ep *ep = ep_by_name(iface, pending->hello.to);
    uint8_t want[SL_DIGEST_BYTES];

    if (ep == NULL || (ep->state != SL_TCP_EP_CONNECTING && !is_dialled_again(ep, &pending->hello)))
        pending_refuse(iface, pending, "its endpoint is not waiting here any more");
    else if (sl_iface_note_memory(&iface->base,
                                  sl_tcp_proof_make(ep->link_key, SL_TCP_PROOF_DIALLER,
                                                    pending->bytes, pending->welcome, want)) != 0)
        pending_refuse(iface, pending, "its proof cannot be compared");
    else if (!sl_digest_equal(want, pending->proof, sizeof(want)))
        pending_refuse(iface, pending,
                       "it names an endpoint of ours, but cannot prove that it is its peer");
    else if (ep->state == SL_TCP_EP_UP)
        lost_to(iface, pending, ep);
    else
        pending_adopt(iface, pending, ep);
}

void sl_tcp_pending_event(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    uint8_t *into = pending->answered ? pending->proof : pending->bytes;
    size_t want = pending->answered ? SL_TCP_PROOF_BYTES : SL_TCP_HELLO_BYTES;
    ssize_t n;

    if (!pending->used || (is_parked(pending) && !pending->answered))
        return;
    /* No byte more than hello or proof: the rest belongs to the connection. */
    n = recv(pending->watch.fd, into + pending->got, want - pending->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        pending_refuse(iface, pending,
                       n != 0              ? sluice_strerror(-errno)
                       : pending->answered ? "it left before its proof"
                                           : "it left before its hello");
        return;
    }
    pending->got += (uint16_t)n;
    if (pending->answered) {
        if (pending->got == want)
            pending_proof(iface, pending);
        return;
    }
    /* Strangers are known by their first bytes: no need to wait for the rest. */
    if (pending->got >= 4 && memcmp(pending->bytes, "SLTH", 4) != 0) {
        sl_tcp_hello_decode(pending->bytes, &pending->hello);
        pending_refuse(iface, pending, sluice_last_error());
    } else if (pending->got == SL_TCP_HELLO_BYTES) {
        pending_hello(iface, pending);
    }
}

void sl_tcp_pending_claim(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;

    for (unsigned i = 0; i < SL_TCP_PENDING && ep->state == SL_TCP_EP_CONNECTING; i++) {
        struct sl_tcp_pending *pending = &iface->pending[i];

        if (pending->used && is_parked(pending) &&
            memcmp(pending->hello.to, ep->name, SL_TCP_NAME_BYTES) == 0)
            pending_answer(iface, pending, ep);
    }
}

void sl_tcp_pending_forget(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;

    for (unsigned i = 0; i < SL_TCP_PENDING && iface->pending_set.count > 0; i++)
        if (iface->pending[i].used &&
            (is_parked(&iface->pending[i]) || iface->pending[i].answered) &&
            memcmp(iface->pending[i].hello.to, ep->name, SL_TCP_NAME_BYTES) == 0)
            pending_free(iface, &iface->pending[i]);
}

void sl_tcp_pending_timers(struct sl_tcp_iface *iface, uint64_t time)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&iface->pending_set, time)) != NULL) {
        struct sl_tcp_pending *pending = sl_container_of(late, struct sl_tcp_pending, base);

        /* Where it is we who are late, its words may be here: the engine does not report all
         * sockets at once. */
        sl_tcp_pending_event(iface, pending);
        if (pending->used && !is_parked(pending))
            pending_refuse(iface, pending, "it did not finish its hello in time");
    }
}

void sl_tcp_pending_close(struct sl_tcp_iface *iface)
{
    for (unsigned i = 0; i < SL_TCP_PENDING; i++)
        if (iface->pending[i].used)
            pending_free(iface, &iface->pending[i]);
}
