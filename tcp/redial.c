/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint in the place of one that lost its connections: the same names and keys, fresh
 * sockets.
 *
 * The end that dialled dials again, where the peer was. A refusal there, or the word that such an
 * endpoint is not known, means that the peer is gone; anything else may pass. The other end waits
 * to be dialled, and would wait in vain for a process that has died: so it knocks where that one
 * listens, again and again. A knock says hello to the endpoint and nothing else.
 */
#include "tcp/conn.h"

#include "core/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define KNOCK_NS_MIN (10 * SL_NS_PER_MS)
#define KNOCK_NS_MAX (2 * SL_NS_PER_S)

struct sl_tcp_knock {
    struct sl_tcp_watch watch; /* first: the engine hands it back */
    struct sl_tcp_ep *ep;
    bool greeted;
    uint16_t got;
    uint8_t answer[SL_TCP_ANSWER_BYTES];
    uint64_t next_ns, wait_ns; /* the next one's time; for the one after that */
};

/* ---- where the peer is ---- */

void sl_tcp_found_at(struct sl_tcp_ep *ep, unsigned target_idx)
{
    struct sl_tcp_target first = ep->targets[0];

    if (target_idx >= ep->target_count)
        return;
    ep->targets[0] = ep->targets[target_idx];
    ep->targets[target_idx] = first;
    ep->target_idx = 0;
    ep->late = NULL;
    ep->at_first = true;
}

void sl_tcp_found_from(struct sl_tcp_ep *ep, int fd)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    char host[64], text[64];

    if (getpeername(fd, (struct sockaddr *)&from, &len) != 0)
        return;
    sl_sockaddr_host(&from, host, sizeof(host));
    for (unsigned i = 0; i < ep->target_count; i++) {
        sl_sockaddr_host(&ep->targets[i].addr, text, sizeof(text));
        if (strcmp(host, text) == 0) {
            sl_tcp_found_at(ep, i);
            return;
        }
    }
}

/* ---- knocking ---- */

static uint64_t now(const struct sl_tcp_knock *knock)
{
    return sl_tcp_now(knock->ep->iface);
}

/* Somebody is there, or nothing is known: once more, later. */
static void knock_later(struct sl_tcp_knock *knock)
{
    sl_tcp_watch_close(knock->ep->iface, &knock->watch);
    knock->next_ns = now(knock) + knock->wait_ns;
    knock->wait_ns = knock->wait_ns * 2 < KNOCK_NS_MAX ? knock->wait_ns * 2 : KNOCK_NS_MAX;
}

static void nobody(const struct sl_tcp_knock *knock, const char *why)
{
    struct sl_tcp_ep *ep = knock->ep;

    ep->peer_gone = true;
    sl_tcp_connect_fail(ep, sl_fail(-ECONNREFUSED, "%s is not there any more: %s",
                                    sl_ep_peer_name(&ep->base), why));
}

/* False: the knock is over, and with it the whole attempt perhaps. */
static bool greet(struct sl_tcp_knock *knock)
{
    const struct sl_tcp_ep *ep = knock->ep;
    struct sl_tcp_hello hello = {.version = SL_TCP_WIRE_VERSION,
                                 .conn_count = (uint8_t)ep->data_conns,
                                 .crc = ep->crc,
                                 .tls = ep->tls,
                                 .knocks = true,
                                 .rank = ep->iface->base.worker->rank};
    uint8_t bytes[SL_TCP_HELLO_BYTES];
    socklen_t len = sizeof(int);
    int err = 0;

    getsockopt(knock->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err == ECONNREFUSED) {
        nobody(knock, sluice_strerror(-err));
        return false;
    }
    memcpy(hello.to, ep->peer_name, SL_TCP_NAME_BYTES);
    sl_tcp_hello_encode(&hello, bytes);
    /* A fresh socket has room for it. */
    if (err != 0 || send(knock->watch.fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) !=
                        (ssize_t)sizeof(bytes)) {
        knock_later(knock);
        return false;
    }
    knock->greeted = true;
    return true;
}

static void listen_for(struct sl_tcp_knock *knock)
{
    struct sl_tcp_answer reply;
    ssize_t n = recv(knock->watch.fd, knock->answer + knock->got,
                     sizeof(knock->answer) - knock->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        knock->watch.readable = false;
        return;
    }
    if (n > 0)
        knock->got += (uint16_t)n;
    if (n > 0 && knock->got < sizeof(knock->answer))
        return;
    if (n > 0 && sl_tcp_answer_decode(knock->answer, &reply) == 0 &&
        reply.verdict == SL_TCP_NOBODY) {
        nobody(knock, "it has no such endpoint");
        return;
    }
    knock_later(knock);
}

void sl_tcp_knock_event(struct sl_tcp_knock *knock)
{
    if (!knock->greeted && !greet(knock))
        return;
    if (knock->watch.readable)
        listen_for(knock);
}

static void knock_now(struct sl_tcp_knock *knock)
{
    struct sl_tcp_ep *ep = knock->ep;
    const struct sockaddr_storage *addr = &ep->targets[0].addr;
    int fd = sl_tcp_socket_new(addr->ss_family);

    knock->next_ns = SL_NEVER;
    knock->greeted = false;
    knock->got = 0;
    if (fd < 0) {
        knock_later(knock);
        return;
    }
    knock->watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_KNOCK};
    if (connect(fd, (const struct sockaddr *)addr, sl_sockaddr_len(addr)) != 0 &&
        errno != EINPROGRESS) {
        int err = errno;

        close(fd);
        knock->watch.fd = -1;
        if (err == ECONNREFUSED)
            nobody(knock, sluice_strerror(-err));
        else
            knock_later(knock);
    } else if (ep->iface->engine_ops->add(ep->iface->engine, &knock->watch) != 0) {
        close(fd);
        knock->watch.fd = -1;
        knock_later(knock);
    }
}

void sl_tcp_knock_start(struct sl_tcp_ep *ep)
{
    if (!ep->at_first)
        return; /* nobody knows where: the rest is for the deadline */
    ep->knock = calloc(1, sizeof(*ep->knock));
    if (ep->knock == NULL)
        return;
    ep->knock->watch.fd = -1;
    ep->knock->ep = ep;
    ep->knock->wait_ns = KNOCK_NS_MIN;
    knock_now(ep->knock);
}

void sl_tcp_knock_timer(struct sl_tcp_ep *ep, uint64_t time)
{
    if (time >= ep->knock->next_ns)
        knock_now(ep->knock);
}

void sl_tcp_knock_end(struct sl_tcp_ep *ep)
{
    if (ep->knock != NULL)
        sl_tcp_watch_close(ep->iface, &ep->knock->watch);
}

/* ---- redialling ---- */

/* What both ends concluded when they connected first holds. */
static void succeed(struct sl_tcp_ep *ep, const struct sl_tcp_ep *before)
{
    ep->base.peer = before->base.peer;
    ep->base.peer_name = before->base.peer_name;
    ep->base.owner = before->base.owner;
    ep->base.connection = before->base.connection;
    memcpy(ep->token, before->token, sizeof(ep->token));
    memcpy(ep->name, before->name, sizeof(ep->name));
    memcpy(ep->peer_name, before->peer_name, sizeof(ep->peer_name));
    memcpy(ep->link_key, before->link_key, sizeof(ep->link_key));
    memcpy(ep->targets, before->targets, sizeof(ep->targets));
    ep->target_count = before->target_count;
    ep->at_first = before->at_first;
    ep->attempt = before->dials ? before->attempt : before->base.connection + 1;
    ep->dials = before->dials;
    ep->tls = before->tls;
    ep->tls_terms = before->tls_terms;
    ep->same_host = before->same_host;
    ep->crc_by_path = before->crc_by_path;
    ep->data_conns = before->data_conns;
    sl_tcp_ep_set_crc(ep, before->crc);
    ep->redials = true;
}

int sl_tcp_ep_redial(struct sl_ep *base, struct sl_req *req, struct sl_ep **out)
{
    struct sl_tcp_ep *before = sl_tcp_ep_of(base), *ep;
    struct sl_ep *fresh;
    int err;

    if (before->state < SL_TCP_EP_UP || before->connect_req != NULL)
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet", sl_ep_peer_name(base));
    before->is_failing = true; /* it says no farewell */
    before->state = SL_TCP_EP_DOWN;
    for (unsigned i = 0; i <= before->data_conns; i++) {
        sl_tcp_conn_unready(&before->conns[i]);
        sl_tcp_conn_close(&before->conns[i]);
    }
    sl_tcp_cancel(before, -ECANCELED);
    err = sl_tcp_ep_create(base->iface, &fresh);
    if (err != 0)
        return err;
    ep = sl_tcp_ep_of(fresh);
    succeed(ep, before);
    err = sl_tcp_conns_make(ep);
    if (err != 0) {
        sl_tcp_ep_destroy(fresh);
        return err;
    }
    sl_tcp_ep_destroy(base);
    ep->connect_req = req;
    req->status = SL_PENDING;
    *out = fresh;
    return sl_tcp_connect_start(ep);
}
