/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an endpoint: made, connected, lost, destroyed. */
#include "tcp/conn.h"
#include "tcp/config.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>

/* To let the last words out of endpoints that are destroyed in a row: peers that are stopped take
 * none, and those of the others leave meanwhile. */
#define UNSENT_MS_MAX 100

/* ---- its failure ---- */

void sl_tcp_ep_news(struct sl_tcp_ep *ep)
{
    if (ep->has_news)
        return;
    ep->has_news = true;
    sl_list_push_back(&ep->iface->news, &ep->news);
}

/* Of two ends that connect the one that dials fails. The other waits until its deadline: the first
 * may dial again. */
static bool can_fail(const struct sl_tcp_ep *ep)
{
    return ep->state == SL_TCP_EP_UP || (ep->state == SL_TCP_EP_CONNECTING && ep->dials);
}

int sl_tcp_ep_fail(struct sl_tcp_ep *ep, int status, const char *fmt, ...)
{
    char text[SL_ERROR_TEXT_MAX];
    va_list args;

    if (ep->is_failing || !can_fail(ep))
        return status;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    sl_text_set(&ep->why, "%s", text);
    ep->is_failing = true;
    ep->down_status = status;
    sl_tcp_ep_news(ep);
    return status;
}

void sl_tcp_conn_lost(struct sl_tcp_conn *conn, int err)
{
    struct sl_tcp_ep *ep = conn->ep;
    int status = err == ETIMEDOUT || err == EHOSTUNREACH ? -err : -ECONNRESET;

    conn->watch.readable = conn->watch.writable = false;
    if (err == EBADMSG) {
        sl_tcp_ep_fail(ep, -EBADMSG,
                       "what came on connection %u of %u is not what was sent: it was damaged or "
                       "changed on the way (TLS)",
                       conn->idx, ep->data_conns);
        return;
    }
    if (err == 0 || err == EPIPE || err == ECONNRESET)
        sl_tcp_ep_fail(ep, status, "%s",
                       ep->bye ? "the peer closed its endpoint" : "connection closed by peer");
    else
        sl_tcp_ep_fail(ep, status, "connection %u of %u: %s", conn->idx, ep->data_conns,
                       sluice_strerror(-err));
}

int sl_tcp_not_up(const struct sl_tcp_ep *ep)
{
    if (ep->state < SL_TCP_EP_UP)
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet",
                       sl_ep_peer_name(&ep->base));
    return sl_fail(ep->down_status, "%s is gone: %s", sl_ep_peer_name(&ep->base),
                   sl_text_of(ep->why));
}

void sl_tcp_ep_activate(struct sl_tcp_ep *ep)
{
    if (ep->is_active)
        return;
    ep->is_active = true;
    ep->iface->active_count++;
    sl_list_push_back(&ep->iface->active, &ep->active);
}

void sl_tcp_ep_deactivate(struct sl_tcp_ep *ep)
{
    if (!ep->is_active || ep->rx_open > 0 || ep->tx_head < ep->tx_tail)
        return;
    ep->is_active = false;
    ep->iface->active_count--;
    sl_list_remove(&ep->active);
}

/* ---- the contract's operations ---- */

int sl_tcp_ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_tcp_iface *iface = sl_tcp_iface_of(base);
    struct sl_tcp_ep *ep = calloc(1, sizeof(*ep));
    int err = 0;

    if (ep == NULL)
        return sl_fail(-ENOMEM, "no memory for a tcp endpoint");
    ep->base = (struct sl_ep){.iface = base, .peer = -1};
    ep->iface = iface;
    /* Not of the heap, which would clear it: pages that little traffic never reaches cost no
     * memory. */
    ep->queues =
        mmap(NULL, sizeof(*ep->queues), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ep->queues == MAP_FAILED) {
        free(ep);
        return sl_fail(-ENOMEM, "no memory for a tcp endpoint");
    }
    ep->tx = ep->queues->tx;
    ep->tx_mask = SL_TCP_QUEUE - 1;
    ep->ctrl = ep->queues->ctrl;
    /* The holder of the token may attach: it must not be guessed. */
    if (getrandom(ep->token, sizeof(ep->token), 0) != (ssize_t)sizeof(ep->token))
        err = sl_fail(-EIO, "the kernel gave no random bytes for a token: %s",
                      sluice_strerror(-errno));
    err = err ?: sl_tcp_name_make(ep->token, ep->name);
    err = err ?: sl_tcp_channels_init(ep);
    if (err != 0) {
        munmap(ep->queues, sizeof(*ep->queues));
        free(ep);
        return err;
    }
    sl_list_push_back(&iface->eps, &ep->link);
    *out = &ep->base;
    return 0;
}

int sl_tcp_ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    struct sl_tcp_iface *iface = ep->iface;
    struct sl_tcp_address mine = {
        .port = iface->port,
        .crc = sl_tcp_wanted_crc(iface->config),
        .tls = iface->tls != NULL,
        .conns = base->iface->handler.ctrl_only
                     ? SL_TCP_CONNS_NONE
                     : (uint8_t)sl_tcp_config(iface->config)->connections,
    };

    if (mine.tls)
        mine.tls_terms = *sl_tls_offer(iface->tls);
    memcpy(mine.host, iface->host_id, sizeof(mine.host));
    memcpy(mine.token, ep->token, sizeof(mine.token));
    if (base->iface->worker->one_host && !iface->local_only)
        sl_tcp_listen_locally(iface);
    for (unsigned i = 0; i < iface->netifs.count && i < SL_TCP_ADDRS; i++) {
        const struct sl_netif *netif = &iface->netifs.items[i];

        if (iface->listeners[i].fd < 0)
            continue;
        mine.places[mine.count++] =
            (struct sl_tcp_target){.addr = netif->addr, .loopback = netif->loopback};
    }
    sl_tcp_address_encode(&mine, out);
    return 0;
}

int sl_tcp_conns_make(struct sl_tcp_ep *ep)
{
    ep->conns = calloc(ep->data_conns + 1, sizeof(*ep->conns));
    if (ep->conns == NULL)
        return sl_fail(-ENOMEM, "no memory for connections");
    for (unsigned i = 0; i <= ep->data_conns; i++) {
        ep->conns[i].watch.fd = -1;
        ep->conns[i].ep = ep;
        ep->conns[i].idx = (uint8_t)i;
        ep->conns[i].rx = malloc(SL_TCP_RX_BYTES);
        if (ep->conns[i].rx == NULL) {
            while (i-- > 0)
                free(ep->conns[i].rx);
            free(ep->conns);
            ep->conns = NULL;
            return sl_fail(-ENOMEM, "no memory for connections");
        }
    }
    return 0;
}

int sl_tcp_ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    struct sl_tcp_address theirs;
    int err;

    if (ep->state != SL_TCP_EP_NEW)
        return sl_fail(-EINVAL, "the endpoint to %s is connected already", sl_ep_peer_name(base));
    err = sl_tcp_address_decode(peer, sl_ep_peer_name(base), &theirs);
    if (err != 0)
        return err;
    if (memcmp(ep->token, theirs.token, sizeof(ep->token)) == 0)
        return sl_fail(-EINVAL, "an endpoint cannot connect to itself");
    err = sl_tcp_agree(ep, &theirs);
    err = err ?: sl_tcp_conns_make(ep);
    if (err != 0)
        return err;
    ep->connect_req = req;
    req->status = SL_PENDING;
    return sl_tcp_connect_start(ep);
}

/* Bytes that the kernel has not sent yet. Emulators of system calls know only the question for
 * those that are not acknowledged, which are more. */
static int unsent_bytes(int fd)
{
    int bytes = 0;

    if (ioctl(fd, SIOCOUTQNSD, &bytes) != 0 && ioctl(fd, SIOCOUTQ, &bytes) != 0)
        return 0;
    return bytes;
}

/* Bytes that the peer sends to a closed socket reset it, and what it has not sent by then is lost.
 * After some ten small messages the kernel waits for word of the peer's, 40 ms at most. */
static void let_out(struct sl_tcp_iface *iface, int fd)
{
    if (iface->closing_round != iface->round)
        iface->unsent_ms = 0;
    iface->closing_round = iface->round;
    for (; iface->unsent_ms < UNSENT_MS_MAX; iface->unsent_ms++) {
        if (unsent_bytes(fd) == 0)
            return;
        poll(NULL, 0, 1);
    }
}

void sl_tcp_ep_destroy(struct sl_ep *base)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);

    if (base == NULL)
        return;
    if (ep->state == SL_TCP_EP_CONNECTING)
        ep->iface->connecting--;
    if (!ep->is_failing) {
        bool up = ep->state == SL_TCP_EP_UP;

        sl_tcp_say_bye(ep);
        if (up)
            let_out(ep->iface, ep->conns[0].watch.fd);
    }
    ep->state = SL_TCP_EP_DOWN;
    ep->down_status = -ECANCELED;
    if (ep->connect_req != NULL) {
        struct sl_req *req = ep->connect_req;

        ep->connect_req = NULL;
        sl_req_end(req, ep->connect_over ? ep->connect_status : -ECANCELED);
    }
    sl_tcp_cancel(ep, -ECANCELED);
    if (ep->has_news)
        sl_list_remove(&ep->news);
    sl_tcp_pending_forget(ep);
    for (unsigned i = 0; ep->conns != NULL && i <= ep->data_conns; i++) {
        struct sl_tcp_conn *conn = &ep->conns[i];

        sl_tcp_conn_unready(conn);
        /* Unread bytes would turn the close into a reset, which may overtake our last bytes. */
        if (conn->watch.fd >= 0)
            for (int n = 0; n < 16; n++)
                if (recv(conn->watch.fd, conn->rx, SL_TCP_RX_BYTES, MSG_DONTWAIT) <= 0)
                    break;
        sl_tcp_conn_close(conn);
        free(conn->rx);
    }
    sl_tcp_knock_end(ep);
    free(ep->knock);
    sl_list_remove(&ep->link);
    free(ep->conns);
    sl_tcp_channels_fini(ep);
    if (ep->tx != ep->queues->tx)
        free(ep->tx);
    munmap(ep->queues, sizeof(*ep->queues));
    free(ep->tried);
    free(ep->why);
    free(ep);
}

void sl_tcp_conns_describe(const struct sl_tcp_ep *ep, char *out, size_t cap)
{
    if (ep->data_conns == 0)
        snprintf(out, cap, "control messages alone");
    else
        snprintf(out, cap, "%u connection%s", ep->data_conns, ep->data_conns == 1 ? "" : "s");
}

void sl_tcp_ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_tcp_ep *ep = (const struct sl_tcp_ep *)base;
    char conns[32];

    sl_tcp_conns_describe(ep, conns, sizeof(conns));

    if (ep->state == SL_TCP_EP_UP)
        snprintf(out, cap, "tcp %s → %s, %s, %s, crc %s, %s%s, %s, sent %llu, received %llu bytes",
                 ep->local_text, ep->peer_text, conns, ep->iface->congestion,
                 ep->crc ? "on" : "off", ep->tls ? "TLS 1.3 " : "no TLS",
                 ep->tls ? sl_tls_cipher(ep->conns[0].tls) : "", ep->iface->engine_ops->name,
                 (unsigned long long)ep->sent_bytes, (unsigned long long)ep->received_bytes);
    else if (ep->state == SL_TCP_EP_DOWN)
        snprintf(out, cap, "tcp, lost: %s, sent %llu, received %llu bytes", sl_text_of(ep->why),
                 (unsigned long long)ep->sent_bytes, (unsigned long long)ep->received_bytes);
    else
        snprintf(out, cap, "tcp, not connected: %u of %u connections open%s%s", ep->open_conns,
                 ep->conns != NULL ? ep->data_conns + 1 : 0, ep->tried != NULL ? "; " : "",
                 sl_text_of(ep->tried));
}
