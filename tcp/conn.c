/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two endpoints get their connections: one listens, the other dials, both say hello.
 *
 * Both sides know both addresses, so they agree without talking: the endpoint with the lower token
 * dials. It tries the peer's addresses in order with the control connection, then opens the data
 * connections to the address that answered. Tokens are random, so only who got the address through
 * the exchange can attach; whoever else connects is turned away, by the rules of core/pending.h. Tokens do not travel:
 *
 *   dialler                                        listener
 *   hello (name of the other endpoint, nonce)  ->
 *                                              <-  answer (nonce, proof), once its endpoint connects
 *   proof                                      ->
 *                  TLS, or frames at once
 *
 * A proof is a digest of all that was said on the connection, under a key made of both tokens and the
 * job's session key (proof.h).
 */
#include "tcp/tcp.h"

#include "core/fork.h"
#include "core/log.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKLOG 1024
#define PORT_TRIES 64
#define HELLO_AT 1024 /* of a connection's read-ahead lies our hello, until frames come */
#define DIAL_NS_MAX (5 * SL_NS_PER_S)  /* one address, while others remain */

static uint64_t now(const struct sl_tcp_iface *iface)
{
    return sl_now(iface->base.worker->clock);
}

/* ---- socket settings ---- */

static void set_int(int fd, int level, int name, int64_t value)
{
    int v = value > INT32_MAX ? INT32_MAX : (int)value;

    setsockopt(fd, level, name, &v, sizeof(v));
}

/* What must be set before connect() or listen() to count for the handshake. */
static void tune_early(const struct sl_tcp_iface *iface, int fd)
{
    int64_t bytes = iface->config->tcp_socket_bytes;

    if (bytes > 0) {
        set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
        set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
    }
    if (iface->congestion[0] != '\0')
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, iface->congestion,
                   (socklen_t)strlen(iface->congestion));
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
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

    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, iface->config->timeout_ms);
}

static void choose_congestion(struct sl_tcp_iface *iface, int fd)
{
    const char *want = iface->config->tcp_congestion;
    socklen_t len = sizeof(iface->congestion) - 1;

    if (strcmp(want, "system") != 0) {
        const char *name = strcmp(want, "auto") == 0 ? "cubic" : want;

        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0 &&
            strcmp(want, "auto") != 0)
            sl_warn("tcp",
                    "congestion control '%s' is not to be had (%s); net.ipv4.tcp_available_congestion_"
                    "control lists what is",
                    name, sluice_strerror(-errno));
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, iface->congestion, &len) != 0)
        iface->congestion[0] = '\0';
}

/* ---- listening ---- */

/* A descriptor or a negative errno. */
static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return sl_fail(-errno, "no socket to be had: %s%s", sluice_strerror(-errno),
                       errno == EMFILE ? "; raise 'ulimit -n'" : "");
    return sl_fork_closes(fd);
}

static void watch_close(struct sl_tcp_iface *iface, struct sl_tcp_watch *watch);

static void set_port(struct sockaddr_storage *addr, uint16_t port)
{
    if (addr->ss_family == AF_INET)
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

static uint16_t port_of(const struct sockaddr_storage *addr)
{
    return ntohs(addr->ss_family == AF_INET ? ((const struct sockaddr_in *)addr)->sin_port
                                            : ((const struct sockaddr_in6 *)addr)->sin6_port);
}

/* A socket that listens at that address and *port; 0: any, and *port tells which. */
static int listen_at(struct sl_tcp_iface *iface, const struct sockaddr_storage *at, uint16_t *port, int *out)
{
    struct sockaddr_storage addr = *at;
    socklen_t len = sl_sockaddr_len(at);
    int fd = new_socket(at->ss_family), err;

    if (fd < 0)
        return fd;
    if (at->ss_family == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (iface->congestion[0] == '\0')
        choose_congestion(iface, fd);
    tune_early(iface, fd);
    /* Who says nothing stays in the kernel: the dialling side speaks first. */
    set_int(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, SL_PENDING_MS / 1000);
    set_port(&addr, *port);
    if (bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&addr, &len) == 0) {
        *port = port_of(&addr);
        *out = fd;
        return 0;
    }
    err = -errno;
    close(fd);
    return sl_fail(err, "%s", sluice_strerror(err));
}

static void close_listeners(struct sl_tcp_iface *iface)
{
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        watch_close(iface, &iface->listeners[i]);
}

/* At all published addresses, but those that are not usable yet: IPv6 takes a moment to find out whether an address is
 * alone. */
static int listen_everywhere(struct sl_tcp_iface *iface, uint16_t port)
{
    unsigned count = 0;
    int err = -EADDRNOTAVAIL;

    for (unsigned i = 0; i < iface->netifs.count && i < SL_TCP_ADDRS; i++) {
        struct sl_tcp_watch *watch = &iface->listeners[i];
        int fd = -1;

        err = listen_at(iface, &iface->netifs.items[i].addr, &port, &fd);
        if (err == -EADDRNOTAVAIL)
            continue;
        if (err == 0) {
            *watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_LISTENER};
            err = iface->engine_ops->add(iface->engine, watch);
            if (err != 0) {
                close(fd);
                watch->fd = -1;
            }
        }
        if (err != 0) {
            close_listeners(iface);
            return err;
        }
        count++;
    }
    iface->port = port;
    return count > 0 ? 0 : err;
}

static int listen_in_range(struct sl_tcp_iface *iface)
{
    const char *range = iface->config->port_range;
    unsigned low, high, start, span;
    char end;
    int err = 0;

    if (sscanf(range, "%u-%u%c", &low, &high, &end) != 2 || low == 0 || low > high || high > 65535)
        return sl_fail(-EINVAL, "SLUICE_PORT_RANGE is '%s', but must be low-high, such as 5000-5100",
                       range);
    /* Ranks of one host start at different places, so that they do not all fight for the first. */
    span = high - low + 1;
    start = (unsigned)getpid() % span;
    for (unsigned i = 0; i < span; i++) {
        err = listen_everywhere(iface, (uint16_t)(low + (start + i) % span));
        if (err != -EADDRINUSE)
            break;
    }
    if (err == 0)
        return 0;
    return sl_fail(err, "no port of SLUICE_PORT_RANGE %s can be listened on: %s", range,
                   sluice_strerror(err));
}

int sl_tcp_listen(struct sl_tcp_iface *iface)
{
    int err = -EADDRINUSE;

    if (iface->config->port_range[0] != '\0')
        return listen_in_range(iface);
    /* What is free at the first address may be taken at another. */
    for (unsigned i = 0; i < PORT_TRIES && err == -EADDRINUSE; i++)
        err = listen_everywhere(iface, 0);
    return err == 0 ? 0 : sl_fail(err, "no port to listen on: %s", sluice_strerror(err));
}

void sl_tcp_listen_locally(struct sl_tcp_iface *iface)
{
    bool any = false;

    for (unsigned i = 0; i < iface->netifs.count && i < SL_TCP_ADDRS; i++)
        any |= iface->netifs.items[i].loopback && iface->listeners[i].fd >= 0;
    for (unsigned i = 0; any && i < iface->netifs.count && i < SL_TCP_ADDRS; i++)
        if (!iface->netifs.items[i].loopback)
            watch_close(iface, &iface->listeners[i]);
    iface->local_only = true;
    if (any)
        sl_info("tcp", "listens on loopback alone: all ranks are on this host");
}

static void watch_close(struct sl_tcp_iface *iface, struct sl_tcp_watch *watch)
{
    if (watch->fd < 0)
        return;
    iface->engine_ops->del(iface->engine, watch);
    close(watch->fd);
    watch->fd = -1;
    watch->readable = watch->writable = false;
}

static void pending_free(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    watch_close(iface, &pending->watch);
    sl_pending_remove(&iface->pending_set, &pending->base);
    pending->used = false;
}

void sl_tcp_unlisten(struct sl_tcp_iface *iface)
{
    for (unsigned i = 0; i < SL_TCP_PENDING; i++)
        if (iface->pending[i].used)
            pending_free(iface, &iface->pending[i]);
    close_listeners(iface);
    sl_pending_fini(&iface->pending_set);
}

void sl_tcp_conn_close(struct sl_tcp_conn *conn)
{
    watch_close(conn->ep->iface, &conn->watch);
    conn->state = SL_TCP_CLOSED;
    sl_tls_free(conn->tls);
    conn->tls = NULL;
}

/* ---- pending connections ---- */

static bool is_parked(const struct sl_tcp_pending *pending)
{
    return pending->base.standing == SL_PENDING_PROVED;
}

static void pending_refuse(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending, const char *why)
{
    sl_pending_refused(&iface->pending_set, pending->base.from, why, now(iface));
    pending_free(iface, pending);
}

/* One that has been here long enough goes, unless its hello has come meanwhile: when a thousand ranks connect
 * at once, the next ones wait in the listener's queue. False: they do. */
static bool make_room(struct sl_tcp_iface *iface, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&iface->pending_set, now(iface));
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

/* No descriptor for who waits: no event will come again, so the clock brings the next try. */
static void accept_starved(struct sl_tcp_iface *iface, int err)
{
    iface->accept_after_ns = now(iface) + SL_NS_PER_S;
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
    sl_pending_add(&iface->pending_set, &pending->base, addr, now(iface));
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (iface->engine_ops->add(iface->engine, &pending->watch) != 0) {
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
            return false; /* who waits stays where it is; progress looks again */
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
    if (iface->accept_after_ns != 0 && now(iface) < iface->accept_after_ns)
        return;
    iface->accept_after_ns = 0;
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        if (iface->listeners[i].readable && !accept_at(iface, &iface->listeners[i]))
            return;
}

static void answer(struct sl_tcp_iface *iface, int fd, enum sl_tcp_verdict verdict)
{
    struct sl_tcp_answer reply = {.version = SL_TCP_WIRE_VERSION, .verdict = (uint8_t)verdict,
                                  .rank = iface->base.worker->rank};
    uint8_t bytes[SL_TCP_ANSWER_BYTES];

    sl_tcp_answer_encode(&reply, bytes);
    /* A fresh socket has room for 24 bytes; if it failed, the dialler sees the connection end. */
    if (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(bytes))
        sl_debug("tcp", "an answer could not be sent: %s", sluice_strerror(-errno));
}

/* A connection whose both ends have one address, or a loopback one, does not leave this host: both ends see that
 * alike. */
static bool stays_here(int fd)
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

/* The request itself ends in progress: ep_connect() may be what is running. */
static void connect_end(struct sl_tcp_ep *ep, int status)
{
    ep->iface->connecting--;
    sl_tcp_pending_forget(ep); /* what else names it has proved nothing */
    ep->connect_status = status;
    ep->connect_over = true;
    sl_tcp_ep_news(ep);
}

static void connect_fail(struct sl_tcp_ep *ep, int status)
{
    ep->state = SL_TCP_EP_DOWN;
    ep->down_status = status;
    snprintf(ep->why, sizeof(ep->why), "%s", sluice_last_error());
    for (unsigned i = 0; i <= ep->data_conns; i++)
        sl_tcp_conn_close(&ep->conns[i]);
    connect_end(ep, status);
}

static void dial_data(struct sl_tcp_ep *ep);

static void conn_opened(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;

    conn->state = SL_TCP_OPEN;
    /* What came behind the hello produced no further edge: look once. */
    conn->watch.readable = conn->watch.writable = true;
    sl_tcp_conn_ready(conn);
    if (conn->idx == 0) {
        tune_control(ep->iface, conn->watch.fd);
        local_text(ep, conn->watch.fd);
    }
    if (++ep->open_conns < ep->data_conns + 1) {
        if (conn->idx == 0 && ep->dials)
            dial_data(ep);
        return;
    }
    ep->state = SL_TCP_EP_UP;
    sl_info("tcp", "connected to %s: %s to %s, %u connection%s, %s, crc %s, %s%s", sl_ep_peer_name(&ep->base),
            ep->local_text, ep->peer_text, ep->data_conns, ep->data_conns == 1 ? "" : "s",
            ep->iface->congestion, ep->crc ? "on" : "off", ep->tls ? "TLS 1.3 " : "no TLS",
            ep->tls ? sl_tls_cipher(conn->tls) : "");
    connect_end(ep, 0);
}

/* ---- TLS ---- */

/* Goes on with the handshake of a connection whose ends have proved themselves. */
static void secure(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    char text[SL_TCP_WHY];
    bool wants_write;
    int err = sl_tls_handshake(conn->tls, conn->watch.fd, &wants_write);

    if (err == 1) {
        conn_opened(conn);
    } else if (err < 0) {
        snprintf(text, sizeof(text), "%s", sluice_last_error());
        connect_fail(ep, sl_fail(err, "connection %u to %s at %s: %s", conn->idx,
                                 sl_ep_peer_name(&ep->base), ep->peer_text, text));
    } else if (wants_write) {
        conn->watch.writable = false;
    } else {
        conn->watch.readable = false;
    }
}

/* Both ends have proved themselves: hello and answer as they travelled. */
static int conn_proved(struct sl_tcp_conn *conn, const uint8_t *hello, const uint8_t *answer)
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

    err = err ?: sl_tls_new(ep->iface->tls, ep->dials, psk, identity, &conn->tls);
    explicit_bzero(psk, sizeof(psk));
    if (err != 0)
        return err;
    conn->state = SL_TCP_SECURING;
    secure(conn);
    return 0;
}

/* ---- pending connections that know one of our endpoints ---- */

/* Who dials has seen which way the connection takes. It may be more careful than we. */
static bool same_crc(const struct sl_tcp_ep *ep, const struct sl_tcp_hello *hello, int fd)
{
    if (!ep->crc_by_path)
        return hello->crc == ep->crc;
    return hello->crc || stays_here(fd);
}

static bool same_shape(const struct sl_tcp_ep *ep, const struct sl_tcp_hello *hello, int fd)
{
    return hello->conn_count == ep->data_conns && same_crc(ep, hello, fd) && hello->tls == ep->tls &&
           hello->conn_idx <= ep->data_conns;
}

/* It names an endpoint that is connecting: shows it that we are the listener it wants. Nobody can make use
 * of that who does not know both tokens. */
static void pending_answer(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending, struct sl_tcp_ep *ep)
{
    struct sl_tcp_answer reply = {.version = SL_TCP_WIRE_VERSION, .verdict = SL_TCP_WELCOME,
                                  .rank = iface->base.worker->rank};
    uint8_t *nonce = pending->welcome + SL_TCP_ANSWER_BYTES;

    if (!same_shape(ep, &pending->hello, pending->watch.fd)) {
        answer(iface, pending->watch.fd, SL_TCP_WRONG_SHAPE);
        pending_refuse(iface, pending, "it counts connections, or uses checksums or TLS, differently");
        return;
    }
    sl_tcp_answer_encode(&reply, pending->welcome);
    if (getrandom(nonce, SL_TCP_NONCE_BYTES, 0) != SL_TCP_NONCE_BYTES ||
        sl_tcp_proof_make(ep->link_key, SL_TCP_PROOF_LISTENER, pending->bytes, pending->welcome,
                          nonce + SL_TCP_NONCE_BYTES) != 0) {
        pending_refuse(iface, pending, "no proof can be made");
        return;
    }
    pending->answered = true;
    pending->got = 0;
    if (!is_parked(pending))
        pending->base.standing = SL_PENDING_HEARD;
    /* A fresh socket has room for it. */
    if (send(pending->watch.fd, pending->welcome, sizeof(pending->welcome), MSG_DONTWAIT | MSG_NOSIGNAL) !=
        (ssize_t)sizeof(pending->welcome))
        pending_refuse(iface, pending, "it does not take an answer");
}

/* It has proved that it is the peer of that endpoint. */
static void pending_adopt(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending, struct sl_tcp_ep *ep)
{
    const struct sl_tcp_pending proved = *pending;
    struct sl_tcp_conn *conn = &ep->conns[proved.hello.conn_idx];
    int fd = pending->watch.fd, err;

    /* The dialler gave up on its first attempt and starts again. Data connections alone belong to this one, whose
     * proof was late. */
    if (proved.hello.conn_idx == 0 && conn->state != SL_TCP_CLOSED) {
        for (unsigned i = 0; i <= ep->data_conns; i++)
            sl_tcp_conn_close(&ep->conns[i]);
        ep->open_conns = 0;
    }
    if (conn->state != SL_TCP_CLOSED) {
        pending_refuse(iface, pending, "it comes twice");
        return;
    }
    iface->engine_ops->del(iface->engine, &pending->watch);
    pending->watch.fd = -1;
    conn->watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_CONN};
    if (conn->idx == 0) {
        snprintf(ep->peer_text, sizeof(ep->peer_text), "%s", proved.base.from);
        sl_tcp_ep_set_crc(ep, proved.hello.crc);
    }
    pending_free(iface, pending);
    err = iface->engine_ops->add(iface->engine, &conn->watch);
    if (err != 0) {
        close(fd);
        conn->watch.fd = -1;
    }
    err = err ?: conn_proved(conn, proved.bytes, proved.welcome);
    if (err != 0)
        connect_fail(ep, err);
}

static struct sl_tcp_ep *ep_by_name(struct sl_tcp_iface *iface, const uint8_t *name)
{
    sl_list_foreach(&iface->eps, node) {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, link);

        if (memcmp(ep->name, name, SL_TCP_NAME_BYTES) == 0)
            return ep;
    }
    return NULL;
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
    if (ep == NULL || ep->state > SL_TCP_EP_CONNECTING) {
        pending_refuse(iface, pending, "it asks for an endpoint that is not waiting here");
    } else if (ep->state == SL_TCP_EP_NEW) {
        pending->base.standing = SL_PENDING_PROVED;
    } else {
        pending_answer(iface, pending, ep);
    }
}

static void pending_proof(struct sl_tcp_iface *iface, struct sl_tcp_pending *pending)
{
    struct sl_tcp_ep *ep = ep_by_name(iface, pending->hello.to);
    uint8_t want[SL_DIGEST_BYTES];

    if (ep == NULL || ep->state != SL_TCP_EP_CONNECTING)
        pending_refuse(iface, pending, "its endpoint is not waiting here any more");
    else if (sl_tcp_proof_make(ep->link_key, SL_TCP_PROOF_DIALLER, pending->bytes, pending->welcome, want) != 0 ||
             !sl_digest_equal(want, pending->proof, sizeof(want)))
        pending_refuse(iface, pending, "it names an endpoint of ours, but cannot prove that it is its peer");
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
    /* No byte more than hello or proof: what follows belongs to the connection. */
    n = recv(pending->watch.fd, into + pending->got, want - pending->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        pending_refuse(iface, pending, n != 0              ? sluice_strerror(-errno)
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

void sl_tcp_pending_forget(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;

    for (unsigned i = 0; i < SL_TCP_PENDING && iface->pending_set.count > 0; i++)
        if (iface->pending[i].used && (is_parked(&iface->pending[i]) || iface->pending[i].answered) &&
            memcmp(iface->pending[i].hello.to, ep->name, SL_TCP_NAME_BYTES) == 0)
            pending_free(iface, &iface->pending[i]);
}

/* ---- dialling ---- */

static void note_try(struct sl_tcp_ep *ep, int status, const char *text)
{
    char addr[64];
    size_t used = strlen(ep->tried);

    sl_sockaddr_text(&ep->targets[ep->target_idx].addr, addr, sizeof(addr));
    snprintf(ep->tried + used, sizeof(ep->tried) - used, "%s%s: %s", used > 0 ? "; " : "", addr,
             text);
    sl_debug("tcp", "%s at %s: %s", sl_ep_peer_name(&ep->base), addr, text);
    ep->tried_status = status;
}

/* Starts one connection to the current target. */
static int dial(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_iface *iface = ep->iface;
    const struct sl_tcp_target *target = &ep->targets[ep->target_idx];
    uint64_t left = ep->connect_deadline_ns - now(iface);
    int fd = new_socket(target->addr.ss_family), err;

    if (fd < 0)
        return fd;
    tune_early(iface, fd);
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
    if (conn->idx == 0 && ep->target_idx + 1 < ep->target_count && left > 2 * DIAL_NS_MAX)
        conn->deadline_ns = now(iface) + DIAL_NS_MAX;
    return 0;
}

/* Dials the control connection to the current target, or the next that can be dialled. */
static void dial_control(struct sl_tcp_ep *ep)
{
    while (ep->target_idx < ep->target_count) {
        int err = dial(&ep->conns[0]);

        if (err == 0)
            return;
        if (err == -EMFILE || err == -ENFILE || err == -ENOMEM) {
            connect_fail(ep, err);
            return;
        }
        note_try(ep, err, sluice_last_error());
        ep->target_idx++;
    }
    if (ep->tried_status != -ECONNREFUSED && ep->tried_status != -ETIMEDOUT &&
        ep->tried_status != -EPROTO)
        ep->tried_status = -EHOSTUNREACH;
    connect_fail(ep, sl_fail(ep->tried_status, "%s cannot be reached by tcp (%s)",
                             sl_ep_peer_name(&ep->base), ep->tried));
}

/* This attempt came to nothing. */
static void dial_failed(struct sl_tcp_conn *conn, int status, const char *text)
{
    struct sl_tcp_ep *ep = conn->ep;

    sl_tcp_conn_close(conn);
    if (conn->idx != 0 || status == -EPROTO) {
        connect_fail(ep, sl_fail(status, "connection %u to %s at %s: %s", conn->idx,
                                 sl_ep_peer_name(&ep->base), ep->peer_text, text));
        return;
    }
    note_try(ep, status, text);
    ep->target_idx++;
    dial_control(ep);
}

static void dial_hello(struct sl_tcp_conn *conn)
{
    struct sl_tcp_ep *ep = conn->ep;
    struct sl_tcp_hello hello = {.version = SL_TCP_WIRE_VERSION,
                                 .conn_idx = conn->idx,
                                 .conn_count = (uint8_t)ep->data_conns,
                                 .crc = ep->crc,
                                 .tls = ep->tls,
                                 .rank = ep->iface->base.worker->rank};
    uint8_t *bytes = conn->rx + HELLO_AT;
    socklen_t len = sizeof(int);
    int err = 0;

    getsockopt(conn->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err != 0) {
        dial_failed(conn, -err, sluice_strerror(-err));
        return;
    }
    if (conn->idx == 0 && ep->crc_by_path) {
        sl_tcp_ep_set_crc(ep, !stays_here(conn->watch.fd));
        hello.crc = ep->crc;
    }
    memcpy(hello.to, ep->peer_name, SL_TCP_NAME_BYTES);
    if (getrandom(hello.nonce, sizeof(hello.nonce), 0) != (ssize_t)sizeof(hello.nonce)) {
        dial_failed(conn, -EIO, "the kernel gave no random bytes");
        return;
    }
    sl_tcp_hello_encode(&hello, bytes);
    if (send(conn->watch.fd, bytes, SL_TCP_HELLO_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL) != SL_TCP_HELLO_BYTES) {
        if (errno != EAGAIN && errno != ENOTCONN)
            dial_failed(conn, -errno, sluice_strerror(-errno));
        conn->watch.writable = false;
        return;
    }
    conn->state = SL_TCP_GREETED;
    if (conn->idx == 0)
        sl_sockaddr_text(&ep->targets[ep->target_idx].addr, ep->peer_text,
                             sizeof(ep->peer_text));
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
        snprintf(text, cap, "it speaks wire version %u, this side %u", reply.version, SL_TCP_WIRE_VERSION);
        return -EPROTO;
    }
    if (reply.verdict != SL_TCP_WELCOME) {
        snprintf(text, cap, "it counts connections, or uses checksums or TLS, differently; use the same "
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

    if (err == 0 && !sl_digest_equal(mac, welcome + SL_TCP_ANSWER_BYTES + SL_TCP_NONCE_BYTES, sizeof(mac))) {
        snprintf(text, cap, "it cannot prove that it is the rank that was meant");
        return -ECONNREFUSED;
    }
    err = err ?: sl_tcp_proof_make(conn->ep->link_key, SL_TCP_PROOF_DIALLER, hello, welcome, mac);
    if (err == 0 && send(conn->watch.fd, mac, sizeof(mac), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(mac))
        err = -ECONNREFUSED;
    if (err != 0)
        snprintf(text, cap, "our proof could not be sent");
    return err;
}

static void dial_data(struct sl_tcp_ep *ep)
{
    for (unsigned i = 1; i <= ep->data_conns && ep->state == SL_TCP_EP_CONNECTING; i++) {
        int err = dial(&ep->conns[i]);

        if (err != 0)
            connect_fail(ep, err);
    }
}

static void dial_answer(struct sl_tcp_conn *conn)
{
    size_t want = conn->hello_len < SL_TCP_ANSWER_BYTES ? SL_TCP_ANSWER_BYTES : SL_TCP_WELCOME_BYTES;
    char text[160] = "";
    ssize_t n = recv(conn->watch.fd, conn->rx + conn->hello_len, want - conn->hello_len, MSG_DONTWAIT);
    int err = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        conn->watch.readable = errno == EINTR;
        return;
    }
    if (n <= 0) {
        dial_failed(conn, n == 0 ? -ECONNREFUSED : -errno,
                    n == 0 ? "it hung up after our hello" : sluice_strerror(-errno));
        return;
    }
    conn->hello_len += (uint16_t)n;
    if (conn->hello_len == SL_TCP_ANSWER_BYTES)
        err = check_answer(conn, text, sizeof(text));
    else if (conn->hello_len == SL_TCP_WELCOME_BYTES)
        err = prove(conn, text, sizeof(text));
    if (err != 0) {
        dial_failed(conn, err, text);
    } else if (conn->hello_len == SL_TCP_WELCOME_BYTES) {
        err = conn_proved(conn, conn->rx + HELLO_AT, conn->rx);
        if (err != 0)
            connect_fail(conn->ep, err);
    }
}

void sl_tcp_dial_event(struct sl_tcp_conn *conn)
{
    if (conn->state == SL_TCP_DIALLING && (conn->watch.writable || conn->watch.readable))
        dial_hello(conn);
    while (conn->state == SL_TCP_GREETED && conn->watch.readable)
        dial_answer(conn);
    if (conn->state == SL_TCP_SECURING)
        secure(conn);
}

int sl_tcp_connect_start(struct sl_tcp_ep *ep)
{
    struct sl_tcp_iface *iface = ep->iface;

    ep->state = SL_TCP_EP_CONNECTING;
    ep->connect_deadline_ns =
        now(iface) + (uint64_t)iface->config->connect_timeout_ms * SL_NS_PER_MS;
    iface->connecting++;
    if (ep->dials) {
        dial_control(ep);
        return 0;
    }
    for (unsigned i = 0; i < SL_TCP_PENDING && ep->state == SL_TCP_EP_CONNECTING; i++) {
        struct sl_tcp_pending *pending = &iface->pending[i];

        if (pending->used && is_parked(pending) &&
            memcmp(pending->hello.to, ep->name, SL_TCP_NAME_BYTES) == 0)
            pending_answer(iface, pending, ep);
    }
    return 0;
}

static void ep_timer(struct sl_tcp_ep *ep, uint64_t time)
{
    if (ep->state != SL_TCP_EP_CONNECTING)
        return;
    if (time >= ep->connect_deadline_ns) {
        connect_fail(ep, sl_fail(-ETIMEDOUT,
                                 "%s was not connected within %lld ms: %u of %u connections are "
                                 "open%s%s",
                                 sl_ep_peer_name(&ep->base), (long long)ep->iface->config->connect_timeout_ms,
                                 ep->open_conns, ep->data_conns + 1, ep->tried[0] ? "; " : "",
                                 ep->tried));
    } else if (ep->dials && ep->conns[0].state != SL_TCP_OPEN &&
               time >= ep->conns[0].deadline_ns) {
        dial_failed(&ep->conns[0], -ETIMEDOUT, "no answer");
    }
}

void sl_tcp_timers(struct sl_tcp_iface *iface)
{
    struct sl_pending *late;
    uint64_t time;

    if (iface->connecting == 0 && iface->pending_set.count == 0)
        return;
    time = now(iface);
    if (iface->connecting > 0) {
        sl_list_foreach(&iface->eps, node)
            ep_timer(sl_container_of(node, struct sl_tcp_ep, link), time);
    }
    while ((late = sl_pending_late(&iface->pending_set, time)) != NULL)
        pending_refuse(iface, sl_container_of(late, struct sl_tcp_pending, base),
                       "it did not finish its hello in time");
}
