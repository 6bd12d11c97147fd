/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening and accepting, a step with every call.
 *
 * Whoever connects is a guest until it has shown the handle's secret; strangers are shown out with a log line, and
 * silent ones make room. A guest whose endpoint is up on both sides becomes the connection in the very call
 * that tells it so (wire.h says why).
 */
#include "tools/nccl/link.h"

#include "core/host.h"
#include "core/log.h"
#include "core/netif.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKLOG 1024
#define HELLO_NS_MAX (5 * SL_NS_PER_S) /* a hello comes at once, or its sender is none of ours */

struct guest {
    struct sl_nccl_link link;
    bool used, known, is_up, committed;
    uint64_t deadline_ns;
    char from[64];
};

struct sl_nccl_listen {
    struct sl_node node; /* engine->listens */
    struct sl_node all;
    struct sl_nccl_engine *engine;
    int fd;
    struct sl_nccl_handle handle;
    struct guest guests[SL_NCCL_GUESTS];
};

/* Those that are open: NCCL may close one that finalize has freed already. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_node listens = {&listens, &listens};

static uint64_t now(const struct sl_nccl_engine *engine)
{
    return sl_now(engine->worker.clock);
}

static uint64_t patience_ns(const struct sl_nccl_engine *engine)
{
    return (uint64_t)engine->config.connect_timeout_ms * SL_NS_PER_MS;
}

/* ---- listening ---- */

static int bind_port(int fd, int family, uint16_t port)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

    if (family == AF_INET6)
        return bind(fd, (struct sockaddr *)&in6, sizeof(in6)) == 0 ? 0 : -errno;
    return bind(fd, (struct sockaddr *)&in, sizeof(in)) == 0 ? 0 : -errno;
}

static int bind_any(int fd, int family, const char *range)
{
    unsigned low = 0, high = 0, span;
    char end;
    int err = -EADDRINUSE;

    if (range[0] != '\0' && (sscanf(range, "%u-%u%c", &low, &high, &end) != 2 || low == 0 || low > high ||
                             high > 65535))
        return sl_fail(-EINVAL, "SLUICE_PORT_RANGE is '%s', but must be low-high, such as 5000-5100", range);
    span = high - low + 1;
    for (unsigned i = 0; i < span && err == -EADDRINUSE; i++)
        err = bind_port(fd, family, (uint16_t)(low == 0 ? 0 : low + ((unsigned)getpid() + i) % span));
    if (err != 0)
        return sl_fail(err, "no port %s%s can be listened on: %s", range[0] != '\0' ? "of SLUICE_PORT_RANGE " : "",
                       range, sluice_strerror(err));
    return 0;
}

/* IPv6 takes IPv4 along, where there is any. */
static int listen_socket(const char *range, int *out, uint16_t *port)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    int family = AF_INET6, off = 0, err;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 && errno == EAFNOSUPPORT) {
        family = AF_INET;
        fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0)
        return sl_fail(-errno, "no socket to be had: %s%s", sluice_strerror(-errno),
                       errno == EMFILE ? "; raise 'ulimit -n'" : "");
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    err = bind_any(fd, family, range);
    if (err == 0 && (listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&addr, &len) != 0))
        err = sl_fail(-errno, "listen failed: %s", sluice_strerror(-errno));
    if (err != 0) {
        close(fd);
        return err;
    }
    *port = ntohs(addr.ss_family == AF_INET ? ((struct sockaddr_in *)&addr)->sin_port
                                            : ((struct sockaddr_in6 *)&addr)->sin6_port);
    *out = fd;
    return 0;
}

/* Those of link-local scope say nothing without their link. */
static int choose_places(const struct sl_config *config, struct sl_nccl_handle *handle)
{
    struct sl_netif_list chosen;
    char why[256];
    int err = sl_netif_find(config->interface, &chosen, why, sizeof(why));

    for (unsigned i = 0; err == 0 && i < chosen.count; i++) {
        const struct sl_netif *netif = &chosen.items[i];

        if (handle->place_count < SL_NCCL_PLACES_MAX && !sl_sockaddr_link_local(&netif->addr))
            handle->places[handle->place_count++] =
                (struct sl_nccl_place){.addr = netif->addr, .loopback = netif->loopback};
    }
    if (err == 0 && handle->place_count == 0)
        err = sl_fail(-ENODEV, "no network interface has an address that a peer could connect to; see "
                      "SLUICE_INTERFACE");
    return err;
}

static int listen_new(struct sl_nccl_engine *engine, struct sl_nccl_listen **out)
{
    struct sl_nccl_listen *ls = calloc(1, sizeof(*ls));
    int err;

    if (ls == NULL)
        return sl_fail(-ENOMEM, "no memory for a listener");
    ls->engine = engine;
    ls->fd = -1;
    ls->handle.host = engine->host;
    err = choose_places(&engine->config, &ls->handle);
    if (err == 0)
        err = listen_socket(engine->config.port_range, &ls->fd, &ls->handle.port);
    if (err == 0 && getrandom(ls->handle.secret, sizeof(ls->handle.secret), 0) !=
                        (ssize_t)sizeof(ls->handle.secret))
        err = sl_fail(-EIO, "no random numbers are to be had for a listener's secret");
    if (err != 0) {
        if (ls->fd >= 0)
            close(ls->fd);
        free(ls);
        return err;
    }
    *out = ls;
    return 0;
}

int sl_nccl_listen(struct sl_nccl_ctx *ctx, int dev, void *handle, struct sl_nccl_listen **out)
{
    struct sl_nccl_engine *engine;
    struct sl_nccl_listen *ls = NULL;
    int err = sl_nccl_engine_get(ctx, dev, ctx->traffic_class, &engine);

    if (err != 0)
        return err;
    err = listen_new(engine, &ls);
    if (err != 0) {
        sl_nccl_engine_put(engine);
        return err;
    }
    memset(handle, 0, SL_NCCL_HANDLE_BYTES);
    sl_nccl_handle_encode(&ls->handle, handle);
    sl_nccl_lock(engine);
    sl_list_push_back(&engine->listens, &ls->node);
    sl_nccl_unlock(engine);
    pthread_mutex_lock(&lock);
    sl_list_push_back(&listens, &ls->all);
    pthread_mutex_unlock(&lock);
    *out = ls;
    return 0;
}

/* ---- guests ---- */

static void show_out(struct guest *guest)
{
    sl_nccl_link_fini(&guest->link);
    guest->used = false;
}

static void refuse(struct guest *guest, const char *why)
{
    sl_warn("nccl", "a connection from %s is refused: %s", guest->from, why);
    show_out(guest);
}

/* A free place, or that of the guest that has been silent for longest. */
static struct guest *place_for_guest(struct sl_nccl_listen *ls)
{
    struct guest *oldest = NULL;

    for (unsigned i = 0; i < SL_NCCL_GUESTS; i++) {
        struct guest *guest = &ls->guests[i];

        if (!guest->used)
            return guest;
        if (!guest->known && (oldest == NULL || guest->deadline_ns < oldest->deadline_ns))
            oldest = guest;
    }
    if (oldest != NULL)
        refuse(oldest, "it said nothing while others waited for its place");
    return oldest;
}

static void let_in(struct sl_nccl_listen *ls)
{
    uint64_t hello_ns = patience_ns(ls->engine) < HELLO_NS_MAX ? patience_ns(ls->engine) : HELLO_NS_MAX;

    for (unsigned i = 0; i < SL_NCCL_GUESTS; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof(addr);
        struct guest *guest;
        int one = 1, fd = accept4(ls->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        guest = place_for_guest(ls);
        if (guest == NULL) { /* all places are taken by peers: it tries again */
            close(fd);
            return;
        }
        sl_nccl_link_init(&guest->link, ls->engine, false);
        guest->link.fd = fd;
        guest->used = true;
        guest->known = guest->is_up = guest->committed = false;
        guest->deadline_ns = now(ls->engine) + hello_ns;
        sl_sockaddr_text(&addr, guest->from, sizeof(guest->from));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
}

/* ---- talking with one ---- */

/* The best way of ours that is left; none: it is told so. */
static int offer(struct guest *guest)
{
    struct sl_nccl_link *link = &guest->link;
    struct sl_nccl_word word = {.kind = SL_NCCL_OFFER};

    guest->is_up = false;
    while (link->ways_left != 0) {
        unsigned best = SL_NCCL_WAYS;

        for (unsigned i = 0; i < SL_NCCL_WAYS; i++)
            if ((link->ways_left & 1u << i) != 0 &&
                (best == SL_NCCL_WAYS || link->engine->ways[i].place < link->engine->ways[best].place))
                best = i;
        word.way = (uint8_t)best;
        if (sl_nccl_link_ep(link, word.way, &word.addr) == 0)
            return sl_nccl_link_say(link, &word);
    }
    word.kind = SL_NCCL_REFUSE;
    snprintf(word.text, sizeof(word.text), "no transport is left to try%s%.120s",
             link->why[0] != '\0' ? "; last: " : "", link->why);
    sl_nccl_link_say(link, &word);
    return sl_fail(-EHOSTUNREACH, "%s", word.text);
}

static bool same_secret(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;

    for (unsigned i = 0; i < SL_NCCL_SECRET_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

static int greet(struct sl_nccl_listen *ls, struct guest *guest, const struct sl_nccl_word *hello)
{
    if (hello->kind != SL_NCCL_HELLO)
        return sl_fail(-EBADMSG, "it does not begin with a hello");
    if (!same_secret(hello->secret, ls->handle.secret))
        return sl_fail(-EBADMSG, "it does not know the secret of this listener");
    guest->known = true;
    guest->link.ways_left = sl_nccl_ways(ls->engine, hello->host) & hello->ways;
    return offer(guest);
}

static int obey(struct sl_nccl_listen *ls, struct guest *guest, const struct sl_nccl_word *word)
{
    struct sl_nccl_link *link = &guest->link;
    bool current = link->comm != NULL && word->way == link->way;
    int err;

    if (!guest->known)
        return greet(ls, guest, word);
    guest->deadline_ns = now(ls->engine) + patience_ns(ls->engine);
    switch (word->kind) {
    case SL_NCCL_ANSWER:
        if (!current)
            return 0; /* to an offer that has failed here meanwhile */
        if (sl_nccl_link_connect(link, &word->addr) == 0)
            return 0;
        err = sl_nccl_link_failed(link, word->way);
        return err != 0 ? err : offer(guest);
    case SL_NCCL_UP:
        guest->is_up |= current;
        return 0;
    case SL_NCCL_FAILED:
        if (!current)
            return 0;
        memcpy(link->why, word->text, sizeof(word->text));
        sl_nccl_link_drop(link);
        return offer(guest);
    default:
        return sl_fail(-EBADMSG, "it says what only a listener says");
    }
}

/* 1: the endpoint is up on both sides, and its other end has been told. */
static int settle(struct guest *guest)
{
    struct sl_nccl_link *link = &guest->link;
    struct sl_nccl_word done = {.kind = SL_NCCL_DONE, .way = link->way};
    int state = link->comm != NULL ? sl_nccl_link_state(link) : 0, err;

    if (guest->committed)
        return state < 0 ? state : sl_nccl_link_flush(link);
    if (state < 0) {
        sl_nccl_link_drop(link);
        err = sl_nccl_link_failed(link, done.way);
        return err != 0 ? err : offer(guest);
    }
    if (state == 0 || !guest->is_up)
        return 0;
    guest->committed = true;
    err = sl_nccl_link_say(link, &done);
    return err != 0 ? err : sl_nccl_link_flush(link);
}

/* 1: a connection; 0: not yet; else it is none. */
static int talk(struct sl_nccl_listen *ls, struct guest *guest)
{
    struct sl_nccl_word word;
    int heard = 0, err = sl_nccl_link_flush(&guest->link);

    while (err >= 0 && !guest->committed && (heard = sl_nccl_link_hear(&guest->link, &word)) == 1) {
        err = obey(ls, guest, &word);
        if (err < 0)
            return err;
    }
    if (heard == -EBADMSG)
        return sl_fail(-EBADMSG, "it says nothing that a peer says");
    if (heard == -EPROTO)
        return sl_fail(-EPROTO, "it speaks version %u, this side %d: install the same Sluice on every host",
                       word.version, SL_NCCL_WIRE_VERSION);
    if (err < 0 || heard < 0)
        return -ECONNRESET;
    err = settle(guest);
    if (err == 0 && now(ls->engine) >= guest->deadline_ns)
        return sl_fail(-ETIMEDOUT, guest->known ? "it stopped in the middle of connecting"
                                                : "it said nothing");
    return err;
}

/* 1: *out is a connection. */
static int tend(struct sl_nccl_listen *ls, struct guest *guest, struct sl_nccl_comm **out)
{
    int err = talk(ls, guest);

    if (err == 1)
        err = sl_nccl_link_take(&guest->link, out);
    else if (err == 0)
        return 0;
    if (*out != NULL) {
        show_out(guest);
        return 1;
    }
    if (err == -ECONNRESET && guest->known) { /* it tries again, or is not needed any more */
        sl_debug("nccl", "%s left before it was connected", guest->from);
        show_out(guest);
    } else if (err == -EPROTO) {
        struct sl_nccl_word word = {.kind = SL_NCCL_REFUSE};

        snprintf(word.text, sizeof(word.text), "%s", sluice_last_error());
        sl_nccl_link_say(&guest->link, &word);
        refuse(guest, word.text);
    } else {
        refuse(guest, err == -ECONNRESET ? "it left without a hello" : sluice_last_error());
    }
    return 0;
}

int sl_nccl_accept(struct sl_nccl_listen *ls, struct sl_nccl_comm **out)
{
    struct guest *committed = NULL;

    *out = NULL;
    sl_nccl_lock(ls->engine);
    let_in(ls);
    sl_nccl_progress(ls->engine);
    for (unsigned i = 0; i < SL_NCCL_GUESTS; i++)
        if (ls->guests[i].used && ls->guests[i].committed)
            committed = &ls->guests[i];
    if (committed != NULL)
        tend(ls, committed, out);
    for (unsigned i = 0; i < SL_NCCL_GUESTS && committed == NULL && *out == NULL; i++) {
        if (ls->guests[i].used)
            tend(ls, &ls->guests[i], out);
        if (ls->guests[i].used && ls->guests[i].committed)
            break;
    }
    sl_nccl_unlock(ls->engine);
    if (*out != NULL)
        sl_nccl_engine_hold(ls->engine);
    return 0;
}

/* ---- closing ---- */

static void listen_free(struct sl_nccl_listen *ls)
{
    for (unsigned i = 0; i < SL_NCCL_GUESTS; i++)
        if (ls->guests[i].used)
            show_out(&ls->guests[i]);
    close(ls->fd);
    sl_list_remove(&ls->node);
    free(ls);
}

static bool forget(struct sl_nccl_listen *ls)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    sl_list_foreach (&listens, node)
        if (sl_container_of(node, struct sl_nccl_listen, all) == ls) {
            sl_list_remove(node);
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

void sl_nccl_listens_drop(struct sl_nccl_engine *engine)
{
    sl_list_foreach (&engine->listens, node) {
        struct sl_nccl_listen *ls = sl_container_of(node, struct sl_nccl_listen, node);

        if (forget(ls)) {
            listen_free(ls);
            engine->users--;
        }
    }
}

void sl_nccl_listen_close(struct sl_nccl_listen *ls)
{
    struct sl_nccl_engine *engine;

    if (!forget(ls))
        return;
    engine = ls->engine;
    sl_nccl_lock(engine);
    listen_free(ls);
    sl_nccl_unlock(engine);
    sl_nccl_engine_put(engine);
}
