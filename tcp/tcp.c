/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport's operations: interfaces, endpoints, progress. tcp.h says what lies where. */
#include "tcp/tcp.h"

#include "core/log.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* With so few endpoints awaited, asking their sockets beats asking the engine. */
#define DIRECT_MAX 4
/* Rounds of progress between looks at the engine: while few endpoints are awaited, all on one
 * connection; the same with several connections each; while nothing is awaited at all. */
#define ENGINE_EVERY_DIRECT 256
#define ENGINE_EVERY_STRIPED 8
#define ENGINE_EVERY_IDLE 16
#define TIMER_NS (10 * SL_NS_PER_MS)
#define LOCAL_CONNS 1     /* data connections inside a host and between hosts, measured: */
#define REMOTE_CONNS 4    /* docs/perf/tcp.md */
#define PIECE_BYTES (512u << 10)
#define PIECE_BYTES_CRC (256u << 10) /* still in L2 when it is copied after its sum was taken */

extern const struct sl_transport_ops sl_tcp_ops;

static struct sl_tcp_iface *iface_of(struct sl_iface *iface)
{
    return (struct sl_tcp_iface *)iface;
}

/* ---- what files share ---- */

void sl_tcp_ep_news(struct sl_tcp_ep *ep)
{
    if (ep->has_news)
        return;
    ep->has_news = true;
    sl_list_push_back(&ep->iface->news, &ep->news);
}

int sl_tcp_ep_fail(struct sl_tcp_ep *ep, int status, const char *fmt, ...)
{
    va_list args;

    if (ep->is_failing || ep->state != SL_TCP_EP_UP)
        return status;
    va_start(args, fmt);
    vsnprintf(ep->why, sizeof(ep->why), fmt, args);
    va_end(args);
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
        sl_tcp_ep_fail(ep, -EBADMSG, "what came on connection %u of %u is not what was sent: it was damaged or "
                       "changed on the way (TLS)", conn->idx, ep->data_conns);
        return;
    }
    if (err == 0 || err == EPIPE || err == ECONNRESET)
        sl_tcp_ep_fail(ep, status, "%s", ep->bye ? "the peer closed its endpoint"
                                                 : "connection closed by peer");
    else
        sl_tcp_ep_fail(ep, status, "connection %u of %u: %s", conn->idx, ep->data_conns,
                       sluice_strerror(-err));
}

int sl_tcp_not_up(const struct sl_tcp_ep *ep)
{
    if (ep->state < SL_TCP_EP_UP)
        return sl_fail(-EINVAL, "the endpoint to %s is not connected yet", sl_ep_peer_name(&ep->base));
    return sl_fail(ep->down_status, "%s is gone: %s", sl_ep_peer_name(&ep->base), ep->why);
}

void sl_tcp_conn_ready(struct sl_tcp_conn *conn)
{
    if (conn->is_ready || conn->watch.fd < 0)
        return;
    conn->is_ready = true;
    sl_list_push_back(&conn->ep->iface->ready, &conn->ready);
}

static void conn_unready(struct sl_tcp_conn *conn)
{
    if (!conn->is_ready)
        return;
    conn->is_ready = false;
    sl_list_remove(&conn->ready);
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
    if (!ep->is_active || ep->rx_head < ep->rx_tail || ep->tx_head < ep->tx_tail)
        return;
    ep->is_active = false;
    ep->iface->active_count--;
    sl_list_remove(&ep->active);
}

/* ---- interfaces ---- */

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    struct sl_netif_list chosen;
    char why[256];
    size_t n = 0;
    int err = sl_netif_find(config->interface, &chosen, why, sizeof(why));

    for (unsigned i = 0; err == 0 && i < chosen.count; i++) {
        const struct sl_netif *netif = &chosen.items[i];
        char addr[64];
        size_t at = 0;

        sl_sockaddr_host(&netif->addr, addr, sizeof(addr));
        while (at < n && at < cap && strcmp(out[at].name, netif->name) != 0)
            at++;
        if (at < n && at < cap) {
            size_t used = strlen(out[at].detail);

            snprintf(out[at].detail + used, sizeof(out[at].detail) - used, ", %s", addr);
            continue;
        }
        if (n < cap) {
            memset(&out[n], 0, sizeof(out[n]));
            snprintf(out[n].name, sizeof(out[n].name), "%s", netif->name);
            snprintf(out[n].detail, sizeof(out[n].detail), "%s", addr);
            out[n].speed = (uint64_t)netif->speed_mbit * 125000;
        }
        n++;
    }
    if (err == 0)
        *count = n;
    return err;
}

static uint64_t fnv(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* Equal exactly where loopback addresses mean the same host. */
static void host_identity(const struct sl_config *config, uint8_t out[16])
{
    char text[SL_TEXT_MAX + 64] = "";
    uint64_t halves[2];

    if (config->host_id[0] != '\0') {
        snprintf(text, sizeof(text), "given:%s", config->host_id);
    } else {
        struct stat ns = {0};
        ssize_t n = 0;
        int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            n = read(fd, text, 36);
            close(fd);
        }
        if (n <= 0)
            n = gethostname(text, 64) == 0 ? (ssize_t)strlen(text) : 0;
        if (stat("/proc/self/ns/net", &ns) == 0)
            snprintf(text + n, sizeof(text) - (size_t)n, "/%llu", (unsigned long long)ns.st_ino);
    }
    halves[0] = fnv(UINT64_C(0xcbf29ce484222325), text);
    halves[1] = fnv(UINT64_C(0x84222325cbf29ce4), text);
    memcpy(out, halves, sizeof(halves));
}

static int choose_interfaces(struct sl_tcp_iface *iface, const struct sl_device *dev)
{
    const char *spec = dev != NULL ? dev->name : iface->config->interface;
    char why[256], names[256] = "";
    size_t used = 0;
    int err = sl_netif_find(spec, &iface->netifs, why, sizeof(why));

    if (err != 0)
        return err;
    for (unsigned i = 0; i < iface->netifs.count && used < sizeof(names); i++) {
        char addr[64];

        sl_sockaddr_host(&iface->netifs.items[i].addr, addr, sizeof(addr));
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 iface->netifs.items[i].name, addr);
    }
    sl_info("tcp", "publishes %s%s%s%s%s", names,
            spec[0] != '\0' ? ", chosen by " : "",
            dev != NULL         ? "the caller"
            : spec[0] != '\0' ? "SLUICE_INTERFACE"
                                : "",
            why[0] != '\0' ? "; left out: " : "", why);
    return 0;
}

static void close_iface(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = iface_of(base);

    if (base == NULL)
        return;
    sl_assert(sl_list_empty(&iface->eps));
    if (iface->engine != NULL) {
        if (iface->pending != NULL)
            sl_tcp_unlisten(iface);
        iface->engine_ops->close(iface->engine);
    }
    sl_tls_context_close(iface->tls);
    free(iface->pending);
    free(iface->staging);
    free(iface);
}

static int open_tls(struct sl_tcp_iface *iface)
{
    if (iface->config->tcp_tls != SL_ON)
        return 0;
    if (!iface->base.worker->has_session)
        return sl_fail(-EINVAL, "SLUICE_TCP_TLS is on, but there is no secret to make keys of: set the same "
                       "SLUICE_SECRET on all ranks");
    return sl_tls_context_open(&iface->tls);
}

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_tcp_iface *iface = calloc(1, sizeof(*iface));
    int err;

    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a tcp interface");
    iface->base = (struct sl_iface){.ops = NULL, .worker = worker, .caps = SL_CAP_WAKEUP,
                                    .eager_max = 16384};
    if (handler != NULL)
        iface->base.handler = *handler;
    iface->base.ops = sl_transport_complete(&sl_tcp_ops, &iface->ops);
    iface->config = worker->config;
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        iface->listeners[i].fd = -1;
    sl_list_init(&iface->eps);
    sl_list_init(&iface->active);
    sl_list_init(&iface->ready);
    sl_list_init(&iface->news);
    host_identity(iface->config, iface->host_id);
    sl_pending_init(&iface->pending_set, "tcp", SL_TCP_PENDING, &iface->pending_log);
    iface->pending = calloc(SL_TCP_PENDING, sizeof(*iface->pending));
    iface->staging = aligned_alloc(4096, SL_TCP_STAGING_BYTES + SL_TCP_GRANULE_MAX);
    if (iface->pending == NULL || iface->staging == NULL) {
        err = sl_fail(-ENOMEM, "no memory for a tcp interface");
        goto err_iface;
    }
    for (unsigned i = 0; i < SL_TCP_PENDING; i++)
        iface->pending[i].watch.fd = -1;
    err = choose_interfaces(iface, dev);
    err = err ?: open_tls(iface);
    if (err != 0)
        goto err_iface;
    err = sl_tcp_engine_open(iface->config->tcp_engine, &iface->engine_ops, &iface->engine);
    if (err != 0)
        goto err_iface;
    err = sl_tcp_listen(iface);
    if (err != 0)
        goto err_iface;
    sl_info("tcp", "listens on port %u, engine %s, congestion control %s", iface->port,
            iface->engine_ops->name, iface->congestion);
    *out = &iface->base;
    return 0;

err_iface:
    close_iface(&iface->base);
    return err;
}

/* ---- endpoints ---- */

static int ep_create(struct sl_iface *base, struct sl_ep **out)
{
    struct sl_tcp_iface *iface = iface_of(base);
    struct sl_tcp_ep *ep = calloc(1, sizeof(*ep));
    int err = 0;

    if (ep == NULL)
        return sl_fail(-ENOMEM, "no memory for a tcp endpoint");
    ep->base = (struct sl_ep){.iface = base, .peer = -1};
    ep->iface = iface;
    /* Not of the heap, which would clear it: what little traffic never reaches costs no memory. */
    ep->queues = mmap(NULL, sizeof(*ep->queues), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (ep->queues == MAP_FAILED) {
        free(ep);
        return sl_fail(-ENOMEM, "no memory for a tcp endpoint");
    }
    ep->tx = ep->queues->tx;
    ep->rx = ep->queues->rx;
    ep->ctrl = ep->queues->ctrl;
    ep->carry = ep->queues->carry;
    /* Who knows the token may attach: it must not be guessed. */
    if (getrandom(ep->token, sizeof(ep->token), 0) != (ssize_t)sizeof(ep->token))
        err = sl_fail(-EIO, "the kernel gave no random bytes for a token: %s", sluice_strerror(-errno));
    err = err ?: sl_tcp_name_make(ep->token, ep->name);
    if (err != 0) {
        munmap(ep->queues, sizeof(*ep->queues));
        free(ep);
        return err;
    }
    sl_list_push_back(&iface->eps, &ep->link);
    *out = &ep->base;
    return 0;
}

static uint8_t wanted_crc(const struct sl_config *config)
{
    return config->tcp_crc == SL_AUTO ? SL_TCP_CRC_AUTO : (uint8_t)config->tcp_crc;
}

static int ep_addr(struct sl_ep *base, struct sl_addr *out)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);
    struct sl_tcp_iface *iface = ep->iface;
    struct sl_tcp_address mine = {
        .port = iface->port,
        .crc = wanted_crc(iface->config),
        .tls = iface->tls != NULL,
        .conns = (uint8_t)iface->config->tcp_connections,
    };

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

/* A link-local address means something only on a link: with the scope of each of ours in turn. */
static void add_link_local(struct sl_tcp_ep *ep, const struct sockaddr_storage *addr)
{
    const struct sl_netif_list *mine = &ep->iface->netifs;

    for (unsigned i = 0; i < mine->count && ep->target_count < SL_TCP_ADDRS; i++) {
        const struct sl_netif *netif = &mine->items[i];
        struct sl_tcp_target *target = &ep->targets[ep->target_count];

        if (netif->addr.ss_family != AF_INET6 || !sl_sockaddr_link_local(&netif->addr))
            continue;
        target->addr = *addr;
        ((struct sockaddr_in6 *)&target->addr)->sin6_scope_id =
            ((const struct sockaddr_in6 *)&netif->addr)->sin6_scope_id;
        ep->target_count++;
    }
}

static void add_target(struct sl_tcp_ep *ep, const struct sockaddr_storage *addr, bool loopback)
{
    const struct sl_netif *via = NULL;
    char text[64];

    sl_sockaddr_text(addr, text, sizeof(text));
    if (addr->ss_family == AF_INET6 && sl_sockaddr_link_local(addr)) {
        add_link_local(ep, addr);
        return;
    }
    /* Between hosts, an address that our own routes send out by no interface in use (or that is one
     * of our own: both hosts have a docker0) does not lead to the peer. */
    if (!ep->same_host && sl_netif_route(addr, &ep->iface->netifs, &via) != 0) {
        sl_debug("tcp", "%s at %s is left out: %s", sl_ep_peer_name(&ep->base), text, sluice_last_error());
        return;
    }
    if (!ep->same_host && via->loopback)
        return;
    ep->targets[ep->target_count].addr = *addr;
    ep->targets[ep->target_count].loopback = loopback;
    ep->target_count++;
}

/* The peer's addresses in the order to try: loopback first on the same host, never otherwise. */
static int choose_targets(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < peer->count && ep->target_count < SL_TCP_ADDRS; i++) {
            const struct sl_tcp_target *place = &peer->places[i];

            if (place->loopback == (pass == 0) && (!place->loopback || ep->same_host))
                add_target(ep, &place->addr, place->loopback);
        }
    }
    if (ep->target_count == 0)
        return sl_fail(-EHOSTUNREACH,
                       "%s has no address that this host has a route to; see SLUICE_INTERFACE "
                       "on both", sl_ep_peer_name(&ep->base));
    return 0;
}

void sl_tcp_ep_set_crc(struct sl_tcp_ep *ep, bool crc)
{
    int64_t stripe = ep->iface->config->tcp_stripe_bytes;

    ep->crc = crc;
    ep->piece_bytes = (uint32_t)(stripe > 0           ? stripe
                                 : ep->crc            ? PIECE_BYTES_CRC
                                 : ep->data_conns > 1 ? PIECE_BYTES
                                                      : SL_TCP_PIECE_MAX);
    if (ep->piece_bytes < 4096)
        ep->piece_bytes = 4096;
}

/* What both ends conclude from both addresses. */
static void agree(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    const struct sl_config *config = ep->iface->config;
    uint8_t mine = wanted_crc(config), theirs = peer->crc;
    unsigned conns = (unsigned)config->tcp_connections;

    ep->same_host = memcmp(peer->host, ep->iface->host_id, sizeof(peer->host)) == 0;
    /* SLUICE_HOST_ID, or machines cloned with their boot id, may call two hosts one: only a connection that does
     * not leave this host goes without checksums. */
    ep->crc_by_path = mine == SL_TCP_CRC_AUTO && theirs == SL_TCP_CRC_AUTO && ep->same_host && !ep->tls;
    if (peer->conns > conns)
        conns = peer->conns;
    if (conns == 0)
        conns = ep->same_host ? LOCAL_CONNS : REMOTE_CONNS;
    ep->data_conns = conns > SL_TCP_DATA_CONNS_MAX ? SL_TCP_DATA_CONNS_MAX : conns;
    if (mine == SL_ON || theirs == SL_ON)
        sl_tcp_ep_set_crc(ep, true);
    else
        sl_tcp_ep_set_crc(ep, mine != SL_OFF && theirs != SL_OFF && !ep->tls);
    ep->iface->striped |= ep->data_conns > 1;
    ep->dials = memcmp(ep->token, peer->token, sizeof(peer->token)) < 0;
}

/* "rank 3 at 10.0.0.3:41234" */
static void peer_at(const struct sl_tcp_ep *ep, const struct sl_tcp_address *peer, char *out, size_t cap)
{
    char addr[64] = "an unknown address";

    if (peer->count > 0)
        sl_sockaddr_text(&peer->places[0].addr, addr, sizeof(addr));
    snprintf(out, cap, "%s at %s", sl_ep_peer_name(&ep->base), addr);
}

/* Both ends see from both addresses whether they agree on TLS; neither then says a word. */
static int agree_on_tls(struct sl_tcp_ep *ep, const struct sl_tcp_address *peer)
{
    char who[160];

    ep->tls = ep->iface->tls != NULL;
    if (peer->tls == ep->tls)
        return 0;
    peer_at(ep, peer, who, sizeof(who));
    if (ep->tls)
        return sl_fail(-EPROTO, "%s speaks no TLS: set SLUICE_TCP_TLS=on on every rank", who);
    return sl_fail(-EPROTO, "%s speaks TLS alone, and here it is off: set SLUICE_TCP_TLS=on on every rank",
                   who);
}

/* Names and keys of this pair. */
static int know_peer(struct sl_tcp_ep *ep, const uint8_t token[SL_TCP_TOKEN_BYTES])
{
    int err = sl_tcp_name_make(token, ep->peer_name);

    return err ?: sl_tcp_link_key(ep->iface->base.worker, ep->dials ? ep->token : token,
                                  ep->dials ? token : ep->token, ep->link_key);
}

static int ep_connect(struct sl_ep *base, const struct sl_addr *peer, struct sl_req *req)
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
    err = agree_on_tls(ep, &theirs);
    if (err != 0)
        return err;
    agree(ep, &theirs);
    err = know_peer(ep, theirs.token);
    ep->target_count = 0;
    if (err == 0 && ep->dials)
        err = choose_targets(ep, &theirs);
    if (err != 0)
        return err;
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
    ep->connect_req = req;
    req->status = SL_PENDING;
    return sl_tcp_connect_start(ep);
}

static void ep_destroy(struct sl_ep *base)
{
    struct sl_tcp_ep *ep = sl_tcp_ep_of(base);

    if (base == NULL)
        return;
    if (ep->state == SL_TCP_EP_CONNECTING)
        ep->iface->connecting--;
    if (!ep->is_failing)
        sl_tcp_say_bye(ep);
    ep->state = SL_TCP_EP_DOWN;
    ep->down_status = -ECANCELED;
    if (ep->has_news)
        sl_list_remove(&ep->news);
    if (ep->connect_req != NULL) {
        struct sl_req *req = ep->connect_req;

        ep->connect_req = NULL;
        sl_req_end(req, ep->connect_over ? ep->connect_status : -ECANCELED);
    }
    sl_tcp_cancel(ep, -ECANCELED);
    sl_tcp_pending_forget(ep);
    for (unsigned i = 0; ep->conns != NULL && i <= ep->data_conns; i++) {
        struct sl_tcp_conn *conn = &ep->conns[i];

        conn_unready(conn);
        /* Unread bytes would turn the close into a reset, which may overtake what we sent. */
        if (conn->watch.fd >= 0)
            for (int n = 0; n < 16; n++)
                if (recv(conn->watch.fd, conn->rx, SL_TCP_RX_BYTES, MSG_DONTWAIT) <= 0)
                    break;
        sl_tcp_conn_close(conn);
        free(conn->rx);
    }
    sl_list_remove(&ep->link);
    free(ep->conns);
    munmap(ep->queues, sizeof(*ep->queues));
    free(ep);
}

static void stop_listening(struct sl_iface *base)
{
    sl_tcp_unlisten(iface_of(base));
}

static void ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct sl_tcp_ep *ep = (const struct sl_tcp_ep *)base;

    if (ep->state == SL_TCP_EP_UP)
        snprintf(out, cap,
                 "tcp %s → %s, %u connection%s, %s, crc %s, %s%s, %s, sent %llu, received %llu bytes",
                 ep->local_text, ep->peer_text, ep->data_conns, ep->data_conns == 1 ? "" : "s",
                 ep->iface->congestion, ep->crc ? "on" : "off", ep->tls ? "TLS 1.3 " : "no TLS",
                 ep->tls ? sl_tls_cipher(ep->conns[0].tls) : "", ep->iface->engine_ops->name,
                 (unsigned long long)ep->sent_bytes, (unsigned long long)ep->received_bytes);
    else if (ep->state == SL_TCP_EP_DOWN)
        snprintf(out, cap, "tcp, lost: %s, sent %llu, received %llu bytes", ep->why,
                 (unsigned long long)ep->sent_bytes, (unsigned long long)ep->received_bytes);
    else
        snprintf(out, cap, "tcp, not connected: %u of %u connections open%s%s", ep->open_conns,
                 ep->conns != NULL ? ep->data_conns + 1 : 0, ep->tried[0] ? "; " : "", ep->tried);
}

/* ---- progress ---- */

/* What the peer sent before it went is still in the sockets: receives that it completes end well. */
static void drain(struct sl_tcp_ep *ep)
{
    ep->is_failing = false;
    for (unsigned i = 1; i <= ep->data_conns; i++)
        while (!ep->is_failing && ep->rx_head < ep->rx_tail && !ep->conns[i].eof &&
               sl_tcp_conn_rx(&ep->conns[i]) > 0)
            ;
    ep->is_failing = true;
    while (!ep->conns[0].eof && sl_tcp_ctrl_rx(&ep->conns[0]) > 0)
        ; /* among it may be why the peer goes */
}

static int tell_news(struct sl_tcp_iface *iface)
{
    struct sl_node *node;
    int told = 0;

    while ((node = sl_list_pop_front(&iface->news)) != NULL) {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, news);

        ep->has_news = false;
        told++;
        if (ep->connect_over && ep->connect_req != NULL) {
            struct sl_req *req = ep->connect_req;

            ep->connect_req = NULL;
            if (ep->connect_status != 0)
                sl_fail_text(ep->connect_status, ep->why);
            sl_req_end(req, ep->connect_status);
        }
        if (!ep->is_failing || ep->state != SL_TCP_EP_UP)
            continue;
        if (ep->down_status != -EBADMSG) {
            int budget = iface->budget;

            iface->budget = INT32_MAX;
            drain(ep);
            iface->budget = budget;
        }
        ep->state = SL_TCP_EP_DOWN;
        for (unsigned i = 0; i <= ep->data_conns; i++) {
            conn_unready(&ep->conns[i]);
            sl_tcp_conn_close(&ep->conns[i]);
        }
        if (iface->base.handler.down != NULL)
            iface->base.handler.down(iface->base.handler.arg, &ep->base, ep->down_status, ep->why);
        sl_fail(ep->down_status, "%s is gone: %s", sl_ep_peer_name(&ep->base), ep->why);
        sl_tcp_cancel(ep, ep->down_status);
    }
    return told;
}

static void on_event(void *arg, struct sl_tcp_watch *watch)
{
    struct sl_tcp_iface *iface = arg;

    switch (watch->kind) {
    case SL_TCP_WATCH_LISTENER: sl_tcp_accept(iface); break;
    case SL_TCP_WATCH_PENDING: sl_tcp_pending_event(iface, (struct sl_tcp_pending *)watch); break;
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

    if (conn->ep->is_failing)
        return 0;
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

    sl_list_foreach(&iface->active, node) {
        struct sl_tcp_ep *ep = sl_container_of(node, struct sl_tcp_ep, active);
        struct sl_tcp_conn *conn = &ep->conns[1];

        if (iface->budget <= 0)
            break;
        if (ep->rx_head < ep->rx_tail && !conn->is_ready && !conn->stalled && !conn->eof &&
            !ep->is_failing)
            moved += sl_tcp_conn_rx(conn);
        if (ep->tx_head < ep->tx_tail && !conn->watch.writable && !ep->is_failing)
            moved += sl_tcp_conn_tx(conn);
    }
    return moved;
}

static unsigned engine_every(const struct sl_tcp_iface *iface)
{
    if (iface->connecting > 0 || iface->pending_set.count > 0 || iface->active_count > DIRECT_MAX)
        return 1;
    if (iface->active_count == 0)
        return ENGINE_EVERY_IDLE;
    return iface->striped ? ENGINE_EVERY_STRIPED : ENGINE_EVERY_DIRECT;
}

static int progress(struct sl_iface *base, unsigned budget)
{
    struct sl_tcp_iface *iface = iface_of(base);
    int moved = 0;

    iface->budget = budget > INT32_MAX ? INT32_MAX : (int)budget;
    iface->round++;
    if (!sl_list_empty(&iface->news))
        moved += tell_news(iface);
    if (iface->active_count <= DIRECT_MAX)
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

static int wake_fd(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = iface_of(base);

    return iface->engine_ops->fd(iface->engine);
}

static int arm(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = iface_of(base);

    if (!sl_list_empty(&iface->news) || !sl_list_empty(&iface->ready))
        return -EAGAIN;
    return poll_engine(iface) != 0 || !sl_list_empty(&iface->news) ? -EAGAIN : 0;
}

const struct sl_transport_ops sl_tcp_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "tcp",
    .probe = probe,
    .open = open_iface,
    .close = close_iface,
    .ep_create = ep_create,
    .ep_addr = ep_addr,
    .ep_connect = ep_connect,
    .ep_destroy = ep_destroy,
    .stop_listening = stop_listening,
    .send = sl_tcp_send,
    .recv = sl_tcp_recv,
    .ctrl = sl_tcp_ctrl,
    .progress = progress,
    .fd = wake_fd,
    .arm = arm,
    .ep_describe = ep_describe,
};
