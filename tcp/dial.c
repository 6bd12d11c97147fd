/* SPDX-License-Identifier: Apache-2.0 */
/* The dialling end: tries the peer's addresses, says hello, believes the answer that comes with a
 * proof. */
#include "tcp/conn.h"

#include "core/log.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define HELLO_AT 1024 /* of a connection's read-ahead lies our hello, until frames come */
#define DIAL_NS_MAX (5 * SL_NS_PER_S) /* for one address, at most, while others remain */

static void note_try(struct sl_tcp_ep *ep, int status, const char *text)
{
    char addr[64];

    sl_sockaddr_text(&ep->targets[ep->target_idx].addr, addr, sizeof(addr));
    sl_text_set(&ep->tried, "%s%s%s: %s", sl_text_of(ep->tried), ep->tried != NULL ? "; " : "",
                addr, text);
    sl_debug("tcp", "%s at %s: %s", sl_ep_peer_name(&ep->base), addr, text);
    ep->tried_status = status;
}

const char *sl_tcp_silence(const struct sl_tcp_conn *conn)
{
    return conn->state == SL_TCP_DIALLING ? "no answer; does a firewall close that port?"
           : conn->state == SL_TCP_SECURING
               ? "it stopped in the TLS handshake"
               : "it took the connection and said nothing: is it stopped, or out of "
                 "descriptors (ulimit -n)?";
}

void sl_tcp_note_silence(struct sl_tcp_ep *ep)
{
    const struct sl_tcp_iface *iface = ep->iface;
    char addr[64] = "this host";

    if (ep->open_conns > 0) {
        sl_text_set(&ep->tried, "the others did not come to be");
    } else if (ep->dials && ep->target_idx < ep->target_count) {
        note_try(ep, -ETIMEDOUT, sl_tcp_silence(&ep->conns[0]));
    } else if (!ep->dials && iface->accept_after_ns != 0) {
        sl_text_set(&ep->tried, "there was no descriptor to accept one with: raise 'ulimit -n'");
    } else if (!ep->dials) {
        if (iface->netifs.count > 0)
            sl_sockaddr_host(&iface->netifs.items[0].addr, addr, sizeof(addr));
        sl_text_set(&ep->tried, "it should have come to port %u of %s; does a firewall close that?",
                    iface->port, addr);
    }
}

/* For the current target to answer: those behind it have a turn before the whole time is over. */
static uint64_t target_ns(const struct sl_tcp_ep *ep)
{
    uint64_t left_ns = ep->connect_deadline_ns - sl_tcp_now(ep->iface);
    uint64_t share_ns = left_ns / (ep->target_count - ep->target_idx);

    return share_ns < DIAL_NS_MAX ? share_ns : DIAL_NS_MAX;
}

/* Starts one connection to the current target. */
static int dial(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_iface *iface = ep->iface;
    const struct sl_tcp_target *target = &ep->targets[ep->target_idx];
    int fd = sl_tcp_socket_new(target->addr.ss_family), err;

    if (fd < 0)
        return fd;
    if (conn->idx == 0)
        ep->base.connection = ep->attempt++;
    sl_tcp_tune_early(iface, fd);
    if (connect(fd, (const struct sockaddr *)&target->addr, sl_sockaddr_len(&target->addr)) != 0 &&
        errno != EINPROGRESS) {
        err = sl_fail(-errno, "%s", sluice_strerror(-errno));
        close(fd);
        return err;
    }
    conn->watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_CONN};
    err = iface->engine_ops->add(iface->engine, &conn->watch);
    if (err != 0) {
        conn->watch.fd = -1;
        close(fd);
        return err;
    }
    conn->state = SL_TCP_DIALLING;
    conn->hello_len = 0;
    conn->deadline_ns = ep->connect_deadline_ns;
    if (conn->idx == 0 && ep->target_idx + 1 < ep->target_count)
        conn->deadline_ns = sl_tcp_now(iface) + target_ns(ep);
    return 0;
}

/* When no address is left, the one whose rank may come yet has all the time that is. */
static void next_target(struct sl_tcp_ep *ep)
{
    ep->target_idx++;
    if (ep->target_idx < ep->target_count || ep->late == NULL)
        return;
    ep->targets[0] = *ep->late;
    ep->late = NULL;
    ep->target_idx = 0;
    ep->target_count = 1;
}

void sl_tcp_dial_control(struct sl_tcp_ep *ep)
{
    while (ep->target_idx < ep->target_count) {
        int err = dial(&ep->conns[0]);

        if (err == 0)
            return;
        if (err == -EMFILE || err == -ENFILE || err == -ENOMEM) {
            sl_tcp_connect_fail(ep, err);
            return;
        }
        if (err == -ECONNREFUSED && sl_tcp_nobody(ep, sluice_last_error()))
            return;
        note_try(ep, err, sluice_last_error());
        next_target(ep);
    }
    if (ep->tried_status != -ECONNREFUSED && ep->tried_status != -ETIMEDOUT &&
        ep->tried_status != -EPROTO)
        ep->tried_status = -EHOSTUNREACH;
    sl_tcp_connect_fail(ep, sl_fail(ep->tried_status, "%s cannot be reached by tcp (%s)",
                                    sl_ep_peer_name(&ep->base), sl_text_of(ep->tried)));
}

bool sl_tcp_nobody(struct sl_tcp_ep *ep, const char *text)
{
    if (!ep->redials || !ep->at_first || ep->target_idx != 0)
        return false;
    ep->peer_gone = true;
    sl_tcp_connect_fail(ep, sl_fail(-ECONNREFUSED, "%s is not there any more: %s",
                                    sl_ep_peer_name(&ep->base), text));
    return true;
}

void sl_tcp_dial_failed(struct sl_tcp_conn *conn, int status, const char *text)
{
    struct sl_tcp_ep *ep = conn->ep;

    if (conn->idx == 0 && conn->state == SL_TCP_GREETED && status == -ETIMEDOUT &&
        ep->late == NULL && !ep->redials)
        ep->late = &ep->targets[ep->target_idx];
    sl_tcp_conn_close(conn);
    if (conn->idx != 0 || status == -EPROTO) {
        sl_tcp_connect_fail(ep, sl_fail(status, "connection %u to %s at %s: %s", conn->idx,
                                        sl_ep_peer_name(&ep->base), ep->peer_text, text));
        return;
    }
    note_try(ep, status, text);
    next_target(ep);
    sl_tcp_dial_control(ep);
}

static void dial_hello(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_hello hello = {.version = SL_TCP_WIRE_VERSION,
                                 .conn_idx = conn->idx,
                                 .conn_count = (uint8_t)ep->data_conns,
                                 .crc = ep->crc,
                                 .tls = ep->tls,
                                 .attempt = ep->base.connection,
                                 .rank = ep->iface->base.worker->rank};
    uint8_t *bytes = conn->rx + HELLO_AT;
    socklen_t len = sizeof(int);
    int err = 0;

    getsockopt(conn->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err == ECONNREFUSED && sl_tcp_nobody(ep, sluice_strerror(-err)))
        return;
    if (err != 0) {
        sl_tcp_dial_failed(conn, -err, sluice_strerror(-err));
        return;
    }
    if (conn->idx == 0 && ep->crc_by_path) {
        sl_tcp_ep_set_crc(ep, !sl_tcp_stays_here(conn->watch.fd));
        hello.crc = ep->crc;
    }
    memcpy(hello.to, ep->peer_name, SL_TCP_NAME_BYTES);
    if (getrandom(hello.nonce, sizeof(hello.nonce), 0) != (ssize_t)sizeof(hello.nonce)) {
        sl_tcp_dial_failed(conn, -EIO, "the kernel gave no random bytes");
        return;
    }
    sl_tcp_hello_encode(&hello, bytes);
    if (send(conn->watch.fd, bytes, SL_TCP_HELLO_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL) !=
        SL_TCP_HELLO_BYTES) {
        if (errno != EAGAIN && errno != ENOTCONN)
            sl_tcp_dial_failed(conn, -errno, sluice_strerror(-errno));
        conn->watch.writable = false;
        return;
    }
    conn->state = SL_TCP_GREETED;
    if (conn->idx == 0)
        sl_sockaddr_text(&ep->targets[ep->target_idx].addr, ep->peer_text, sizeof(ep->peer_text));
}

/* A refusal, or 0: welcome. */
static int check_answer(struct sl_tcp_conn *conn, char *text, size_t cap)
{
    struct sl_tcp_answer reply;

    if (sl_tcp_answer_decode(conn->rx, &reply) != 0) {
        snprintf(text, cap, "%s", sluice_last_error());
        return -ECONNREFUSED;
    }
    if (reply.verdict == SL_TCP_WRONG_VERSION || reply.version != SL_TCP_WIRE_VERSION) {
        snprintf(text, cap, "it speaks wire version %u, this side %u", reply.version,
                 SL_TCP_WIRE_VERSION);
        return -EPROTO;
    }
    if (reply.verdict == SL_TCP_NOBODY) {
        snprintf(text, cap, "it has no such endpoint");
        return -ENOENT;
    }
    if (reply.verdict != SL_TCP_WELCOME) {
        snprintf(text, cap,
                 "it counts connections, or uses checksums or TLS, differently; use the same "
                 "SLUICE_TCP_* on all ranks");
        return -EPROTO;
    }
    return 0;
}

/* The listener is the one that was meant, or another that only has its address; ours goes out. */
static int prove(struct sl_tcp_conn *conn, char *text, size_t cap)
{
    const uint8_t *hello = conn->rx + HELLO_AT, *welcome = conn->rx;
    uint8_t mac[SL_DIGEST_BYTES];
    int err = sl_tcp_proof_make(conn->ep->link_key, SL_TCP_PROOF_LISTENER, hello, welcome, mac);

    if (err == 0 &&
        !sl_digest_equal(mac, welcome + SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES, sizeof(mac))) {
        snprintf(text, cap, "it cannot prove that it is the rank that was meant");
        return -ECONNREFUSED;
    }
    err = err ?: sl_tcp_proof_make(conn->ep->link_key, SL_TCP_PROOF_DIALLER, hello, welcome, mac);
    if (err == 0 &&
        send(conn->watch.fd, mac, sizeof(mac), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(mac))
        err = -ECONNREFUSED;
    if (sl_iface_note_memory(&conn->ep->iface->base, err) == -ENOMEM)
        snprintf(text, cap, "%s", sluice_last_error());
    else if (err != 0)
        snprintf(text, cap, "our proof could not be sent");
    return err;
}

void sl_tcp_dial_data(struct sl_tcp_ep *ep)
{
    for (unsigned i = 1; i <= ep->data_conns && ep->state == SL_TCP_EP_CONNECTING; i++) {
        int err = dial(&ep->conns[i]);

        if (err != 0)
            sl_tcp_connect_fail(ep, err);
    }
}

static void dial_answer(struct sl_tcp_conn *conn)
{
    size_t want =
        conn->hello_len < SL_TCP_ANSWER_BYTES ? SL_TCP_ANSWER_BYTES : SL_TCP_WELCOME_BYTES;
    char text[160] = "";
    ssize_t n =
        recv(conn->watch.fd, conn->rx + conn->hello_len, want - conn->hello_len, MSG_DONTWAIT);
    int err = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        conn->watch.readable = errno == EINTR;
        return;
    }
    if (n <= 0) {
        sl_tcp_dial_failed(conn, n == 0 ? -ECONNREFUSED : -errno,
                           n == 0 ? "it hung up after our hello" : sluice_strerror(-errno));
        return;
    }
    conn->hello_len += (uint16_t)n;
    if (conn->hello_len == SL_TCP_ANSWER_BYTES)
        err = check_answer(conn, text, sizeof(text));
    else if (conn->hello_len == SL_TCP_WELCOME_BYTES)
        err = prove(conn, text, sizeof(text));
    if (err == -ENOENT) {
        if (conn->idx == 0 && sl_tcp_nobody(conn->ep, text))
            return;
        err = -ECONNREFUSED;
    }
    if (err != 0) {
        sl_tcp_dial_failed(conn, err, text);
    } else if (conn->hello_len == SL_TCP_WELCOME_BYTES) {
        err = sl_tcp_conn_proved(conn, conn->rx + HELLO_AT, conn->rx);
        if (err != 0)
            sl_tcp_connect_fail(conn->ep, err);
    }
}

void sl_tcp_dial_event(struct sl_tcp_conn *conn)
{
    if (conn->state == SL_TCP_DIALLING && (conn->watch.writable || conn->watch.readable))
        dial_hello(conn);
    while (conn->state == SL_TCP_GREETED && conn->watch.readable)
        dial_answer(conn);
    if (conn->state == SL_TCP_SECURING)
        sl_tcp_conn_secure(conn);
}
