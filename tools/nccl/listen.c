/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening and accepting, a step with every call.
 *
 * Whoever connects is a pending connection, by the rules of core/pending.h, until it has shown the
 * handle's secret. One whose endpoint is up on both sides becomes the connection in the very call
 * that tells it so (wire.h says why).
 */
#include "tools/nccl/link.h"

#include "core/host.h"
#include "core/log.h"
#include "core/netif.h"
#include "core/port_range.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define BACKLOG 1024
#define PORT_TRIES 64
#define STRANGER_NS                                                                                \
    (5 * SL_NS_PER_S) /* in which somebody who knows the secret must have come, too */

struct pending {
    struct sl_pending base; /* SL_PENDING_PROVED: it knows the secret */
    struct sl_nccl_link link;
    bool used, is_up, committed;
    uint64_t deadline_ns; /* once it is proved */
};

struct sl_nccl_listen {
    struct sl_node node; /* engine->listens */
    struct sl_node all;
    struct sl_nccl_engine *engine;
    int fds[SL_NCCL_PLACES_MAX]; /* one at each of the handle's places */
    unsigned fd_count, fd_next;  /* fd_next: whose turn to accept from is */
    struct sl_nccl_handle handle;
    /* when one who knows the handle had another secret; 0: not since one knew both */
    uint64_t stranger_ns;
    char stranger[64]; /* its address */
    struct sl_pending_set set;
    struct pending pending[SL_NCCL_PENDING];
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

/* A socket that listens at that address and *port; 0: any, and *port tells which. */
static int listen_at(const struct sockaddr_storage *at, uint16_t *port, int *out)
{
    int fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err;

    if (fd < 0)
        return sl_fail(-errno, "no socket to be had: %s%s", sluice_strerror(-errno),
                       errno == EMFILE ? "; raise 'ulimit -n'" : "");
    sl_fork_closes(fd);
    err = sl_sockaddr_listen(fd, at, port, BACKLOG, SL_PENDING_MS);
    if (err != 0)
        close(fd);
    else
        *out = fd;
    return err;
}

static void close_listeners(struct sl_nccl_listen *ls)
{
    while (ls->fd_count > 0)
        close(ls->fds[--ls->fd_count]);
}

/* At every place of the handle. Those whose address cannot be used are left out of it: IPv6 takes a
 * moment to find out whether an address is alone. */
static int listen_everywhere(struct sl_nccl_listen *ls, uint16_t port)
{
    struct sl_nccl_handle handle = ls->handle;
    int err = -EADDRNOTAVAIL;

    handle.place_count = 0;
    for (unsigned i = 0; i < ls->handle.place_count; i++) {
        err = listen_at(&ls->handle.places[i].addr, &port, &ls->fds[ls->fd_count]);
        if (err == -EADDRNOTAVAIL)
            continue;
        if (err != 0) {
            close_listeners(ls);
            return err;
        }
        handle.places[handle.place_count++] = ls->handle.places[i];
        ls->fd_count++;
    }
    if (ls->fd_count == 0)
        return err;
    handle.port = port;
    ls->handle = handle;
    return 0;
}

static int listen_somewhere(struct sl_nccl_listen *ls, const char *text)
{
    struct sl_port_range range;
    unsigned span;
    char why[256];
    int err = sl_port_range_parse(text, &range);

    if (err != 0)
        return err;
    err = -EADDRINUSE;
    span = range.low != 0 ? sl_port_range_count(&range) : PORT_TRIES;
    /* What is free at the first address may be taken at another. */
    for (unsigned i = 0; i < span && err == -EADDRINUSE; i++)
        err = listen_everywhere(
            ls, (uint16_t)(range.low == 0 ? 0 : range.low + ((unsigned)getpid() + i) % span));
    if (err == 0)
        return 0;
    snprintf(why, sizeof(why), "%s", sluice_last_error());
    return sl_fail(err, "no port %s%s can be listened on: %s",
                   range.low != 0 ? "of SLUICE_PORT_RANGE " : "", text, why);
}

/* As many as the handle has room for. Those of link-local scope say nothing without their link. */
static int choose_places(const struct sl_config *config, struct sl_nccl_handle *handle)
{
    struct sl_netif_list chosen;
    uint8_t told[SL_NCCL_HANDLE_OWN];
    char why[256];
    int err = sl_netif_find(config->interface, &chosen, why, sizeof(why));

    for (unsigned i = 0; err == 0 && i < chosen.count; i++) {
        const struct sl_netif *netif = &chosen.items[i];

        if (handle->place_count < SL_NCCL_PLACES_MAX && !sl_sockaddr_link_local(&netif->addr))
            handle->places[handle->place_count++] =
                (struct sl_nccl_place){.addr = netif->addr, .loopback = netif->loopback};
    }
    if (err == 0 && handle->place_count == 0)
        err = sl_fail(-ENODEV,
                      "no network interface has an address that a peer could connect to; see "
                      "SLUICE_INTERFACE");
    if (err != 0)
        return err;
    sl_nccl_handle_encode(handle, told);
    return sl_nccl_handle_decode(told, handle);
}

static int listen_new(struct sl_nccl_engine *engine, struct sl_nccl_listen **out)
{
    struct sl_nccl_listen *ls = calloc(1, sizeof(*ls));
    int err;

    if (ls == NULL)
        return sl_fail(-ENOMEM, "no memory for a listener");
    ls->engine = engine;
    sl_pending_init(&ls->set, "nccl", SL_NCCL_PENDING, &engine->pending_log);
    ls->handle.host = engine->host;
    err = choose_places(&engine->config, &ls->handle);
    if (err == 0)
        err = listen_somewhere(ls, engine->config.port_range);
    if (err == 0 && getrandom(ls->handle.secret, sizeof(ls->handle.secret), 0) !=
                        (ssize_t)sizeof(ls->handle.secret))
        err = sl_fail(-EIO, "no random numbers are to be had for a listener's secret");
    if (err != 0) {
        close_listeners(ls);
        free(ls);
        return err;
    }
    *out = ls;
    return 0;
}

/* In a child: all listeners are the parent's. */
static void forget_parents(void)
{
    pthread_mutex_init(&lock, NULL);
    sl_list_init(&listens);
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
    sl_fork_on_child(forget_parents);
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

/* ---- pending connections ---- */

static bool is_known(const struct pending *pending)
{
    return pending->base.standing == SL_PENDING_PROVED;
}

static void show_out(struct sl_nccl_listen *ls, struct pending *pending)
{
    sl_nccl_link_fini(&pending->link);
    sl_pending_remove(&ls->set, &pending->base);
    pending->used = false;
}

static void refuse(struct sl_nccl_listen *ls, struct pending *pending, const char *why)
{
    sl_pending_refused(&ls->set, pending->base.from, why, now(ls->engine));
    show_out(ls, pending);
}

static int talk(struct sl_nccl_listen *ls, struct pending *pending);

/* One of those that are here goes, where one has been here long enough. Its words may have come
 * meanwhile. */
static bool make_room(struct sl_nccl_listen *ls, const char *why)
{
    struct sl_pending *victim = sl_pending_victim(&ls->set, now(ls->engine));
    struct pending *pending = sl_container_of(victim, struct pending, base);

    if (victim == NULL)
        return false;
    if (talk(ls, pending) == 0 && is_known(pending))
        return false;
    refuse(ls, pending, why);
    return true;
}

static void take_in(struct sl_nccl_listen *ls, int fd, const struct sockaddr_storage *addr)
{
    struct pending *pending = ls->pending;
    int one = 1;

    while (pending->used)
        pending++;
    sl_nccl_link_init(&pending->link, ls->engine, false);
    pending->link.fd = fd;
    pending->used = true;
    pending->is_up = pending->committed = false;
    sl_pending_add(&ls->set, &pending->base, addr, now(ls->engine));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/* The next who waits at any of the places, in turn: a crowd at one keeps nobody out at another. A
 * descriptor or a negative errno. */
static int accept_next(struct sl_nccl_listen *ls, struct sockaddr_storage *addr)
{
    int err = -EAGAIN;

    for (unsigned i = 0; i < ls->fd_count; i++) {
        socklen_t len = sizeof(*addr);
        int fd = accept4(ls->fds[ls->fd_next], (struct sockaddr *)addr, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        ls->fd_next = (ls->fd_next + 1) % ls->fd_count;
        if (fd >= 0)
            return sl_fork_closes(fd);
        if (err == -EAGAIN)
            err = -errno;
    }
    return err;
}

static void let_in(struct sl_nccl_listen *ls)
{
    for (unsigned i = 0; i < SL_NCCL_PENDING; i++) {
        struct sockaddr_storage addr = {0};
        int fd;

        if (sl_pending_full(&ls->set) &&
            !make_room(ls, "it said nothing useful while others waited"))
            return; /* who waits stays in the listener's queue */
        fd = accept_next(ls, &addr);
        if (fd >= 0)
            take_in(ls, fd, &addr);
        else if ((fd != -EMFILE && fd != -ENFILE) || !make_room(ls, "no descriptor is left"))
            return;
    }
}

/* ---- talking with one ---- */

static uint64_t bit(uint8_t way)
{
    return UINT64_C(1) << way;
}

/* Offers the most preferred remaining transport, or refuses. */
static int offer(struct pending *pending)
{
    struct sl_nccl_link *link = &pending->link;
    const struct sl_nccl_engine *engine = link->engine;
    struct sl_nccl_word word = {.kind = SL_NCCL_OFFER};

    pending->is_up = false;
    while (link->ways_left != 0) {
        unsigned best = 0; /* the first of ours that is left */

        while (best < engine->way_count && (link->ways_left & bit(engine->ways[best].id)) == 0)
            best++;
        if (best == engine->way_count)
            break;
        word.way = engine->ways[best].id;
        if (sl_nccl_link_ep(link, word.way, &word.addr) == 0)
            return sl_nccl_link_say(link, &word);
    }
    word.kind = SL_NCCL_REFUSE;
    snprintf(word.text, sizeof(word.text), "no transport is left to try%s%.120s",
             link->why[0] != '\0' ? "; last: " : "", link->why);
    sl_nccl_link_say(link, &word);
    return sl_fail(-EHOSTUNREACH, "%s", word.text);
}

/* Shows that we made the handle, and asks for the same. Of use to nobody who has not got it. */
static int greet(struct sl_nccl_listen *ls, struct pending *pending,
                 const struct sl_nccl_word *hello)
{
    struct sl_nccl_link *link = &pending->link;
    struct sl_nccl_word word = {.kind = SL_NCCL_CHALLENGE};
    int err;

    if (hello->kind != SL_NCCL_HELLO)
        return sl_fail(-EBADMSG, "it does not begin with a hello");
    pending->base.standing = SL_PENDING_HEARD;
    link->hello = *hello;
    if (getrandom(link->nonce, sizeof(link->nonce), 0) != (ssize_t)sizeof(link->nonce))
        return sl_fail(-EIO, "no random numbers are to be had for a handshake");
    memcpy(word.nonce, link->nonce, sizeof(word.nonce));
    err = sl_nccl_link_know(link, ls->handle.secret)
              ?: sl_nccl_proof_make(link->link_key, true, hello, link->nonce, word.proof)
              ?: sl_nccl_handle_proof(link, true, ls->handle.secret, word.handle_proof);
    return err ?: sl_nccl_link_say(link, &word);
}

/* Most likely the peer that this listener is for. But who has only read the handle can say the
 * same, so that it is an error only if nobody comes who knows more: check_secret(). */
static int meet_stranger(struct sl_nccl_listen *ls, const struct pending *pending,
                         const struct sl_nccl_word *word)
{
    if (!sl_nccl_handle_known(&pending->link, false, ls->handle.secret, word->handle_proof))
        return sl_fail(-EBADMSG, "it does not know the handle");
    if (ls->stranger_ns == 0) {
        ls->stranger_ns = now(ls->engine);
        memcpy(ls->stranger, pending->base.from, sizeof(ls->stranger));
    }
    return sl_fail(
        -EBADMSG,
        "it knows the handle, but has another SLUICE_SECRET, or none, or this rank has none");
}

static int check_secret(const struct sl_nccl_listen *ls)
{
    uint64_t grace_ns =
        patience_ns(ls->engine) / 4 < STRANGER_NS ? patience_ns(ls->engine) / 4 : STRANGER_NS;

    if (ls->stranger_ns == 0 || now(ls->engine) - ls->stranger_ns < grace_ns)
        return 0;
    for (unsigned i = 0; i < SL_NCCL_PENDING; i++)
        if (ls->pending[i].used && is_known(&ls->pending[i]))
            return 0;
    return sl_fail(
        -EPROTO,
        "the peer at %s has another SLUICE_SECRET, or none, or this rank has none: set the same "
        "on all ranks",
        ls->stranger);
}

static int take_proof(struct sl_nccl_listen *ls, struct pending *pending,
                      const struct sl_nccl_word *proof)
{
    struct sl_nccl_link *link = &pending->link;
    int err;

    if (proof->kind == SL_NCCL_STRANGER)
        return meet_stranger(ls, pending, proof);
    if (proof->kind != SL_NCCL_PROOF)
        return sl_fail(-EBADMSG, "it goes on without a proof");
    err = sl_nccl_link_check(link, false, proof->proof);
    if (err == -EPROTO)
        return sl_fail(-EBADMSG, "%s", sluice_last_error());
    err = err ?: sl_nccl_link_seal(link);
    if (err != 0)
        return err;
    pending->base.standing = SL_PENDING_PROVED;
    ls->stranger_ns = 0;
    pending->deadline_ns = now(ls->engine) + patience_ns(ls->engine);
    link->ways_left = sl_nccl_ways(ls->engine, link->hello.host) & link->hello.ways;
    return offer(pending);
}

static int obey(struct sl_nccl_listen *ls, struct pending *pending, const struct sl_nccl_word *word)
{
    struct sl_nccl_link *link = &pending->link;
    bool current = link->comm != NULL && word->way == link->way;
    int err;

    if (pending->base.standing == SL_PENDING_SILENT)
        return greet(ls, pending, word);
    if (!is_known(pending))
        return take_proof(ls, pending, word);
    pending->deadline_ns = now(ls->engine) + patience_ns(ls->engine);
    switch (word->kind) {
    case SL_NCCL_ANSWER:
        if (!current)
            return 0; /* to an offer that has failed here meanwhile */
        if (sl_nccl_link_connect(link, &word->addr) == 0)
            return 0;
        err = sl_nccl_link_failed(link, word->way);
        return err != 0 ? err : offer(pending);
    case SL_NCCL_UP: pending->is_up |= current; return 0;
    case SL_NCCL_FAILED:
        if (!current)
            return 0;
        memcpy(link->why, word->text, sizeof(word->text));
        sl_nccl_link_drop(link);
        return offer(pending);
    default: return sl_fail(-EBADMSG, "it says what only a listener says");
    }
}

/* 1: the endpoint is up on both sides, and its other end has been told. */
static int settle(struct pending *pending)
{
    struct sl_nccl_link *link = &pending->link;
    struct sl_nccl_word done = {.kind = SL_NCCL_DONE, .way = link->way};
    int state = link->comm != NULL ? sl_nccl_link_state(link) : 0, err;

    if (pending->committed)
        return state < 0 ? state : sl_nccl_link_flush(link);
    if (state < 0) {
        sl_nccl_link_drop(link);
        err = sl_nccl_link_failed(link, done.way);
        return err != 0 ? err : offer(pending);
    }
    if (state == 0 || !pending->is_up)
        return 0;
    pending->committed = true;
    err = sl_nccl_link_say(link, &done);
    return err != 0 ? err : sl_nccl_link_flush(link);
}

/* 1: a connection; 0: not yet; else it is none. */
static int talk(struct sl_nccl_listen *ls, struct pending *pending)
{
    struct sl_nccl_word word;
    int heard = 0, err = sl_nccl_link_flush(&pending->link);

    while (err >= 0 && !pending->committed &&
           (heard = sl_nccl_link_hear(&pending->link, &word)) == 1) {
        err = obey(ls, pending, &word);
        if (err < 0)
            return err;
    }
    if (heard == -EBADMSG)
        return sl_fail(-EBADMSG, "it says nothing that a peer says");
    if (heard == -EPROTO)
        return sl_fail(-EPROTO,
                       "it speaks version %u, this side %d: install the same Sluice on every host",
                       word.version, SL_NCCL_WIRE_VERSION);
    if (err < 0 || heard < 0)
        return -ECONNRESET;
    err = settle(pending);
    if (err == 0 && is_known(pending) && now(ls->engine) >= pending->deadline_ns)
        return sl_fail(-ETIMEDOUT, "it stopped in the middle of connecting");
    return err;
}

/* 1: *out is a connection. */
static int tend(struct sl_nccl_listen *ls, struct pending *pending, struct sl_nccl_comm **out)
{
    int err = talk(ls, pending);

    if (err == 1)
        err = sl_nccl_link_take(&pending->link, out);
    else if (err == 0)
        return 0;
    if (*out != NULL) {
        show_out(ls, pending);
        return 1;
    }
    if (err == -ECONNRESET && is_known(pending)) { /* it tries again, or is not needed any more */
        sl_debug("nccl", "%s left before it was connected", pending->base.from);
        show_out(ls, pending);
    } else if (err == -EPROTO) {
        struct sl_nccl_word word = {.kind = SL_NCCL_REFUSE};

        snprintf(word.text, sizeof(word.text), "%s", sluice_last_error());
        sl_nccl_link_say(&pending->link, &word);
        refuse(ls, pending, word.text);
    } else {
        refuse(ls, pending, err == -ECONNRESET ? "it left without a hello" : sluice_last_error());
    }
    return 0;
}

static void show_late_out(struct sl_nccl_listen *ls)
{
    struct sl_pending *late;

    while ((late = sl_pending_late(&ls->set, now(ls->engine))) != NULL)
        refuse(ls, sl_container_of(late, struct pending, base), "it did not say who it is in time");
}

int sl_nccl_accept(struct sl_nccl_listen *ls, struct sl_nccl_comm **out)
{
    struct pending *committed = NULL;
    int err = 0;

    *out = NULL;
    if (!sl_fork_same(ls->engine->life))
        return sl_fork_refuse();
    sl_nccl_lock(ls->engine);
    let_in(ls);
    sl_nccl_progress(ls->engine);
    for (unsigned i = 0; i < SL_NCCL_PENDING; i++)
        if (ls->pending[i].used && ls->pending[i].committed)
            committed = &ls->pending[i];
    if (committed != NULL)
        tend(ls, committed, out);
    for (unsigned i = 0; i < SL_NCCL_PENDING && committed == NULL && *out == NULL; i++) {
        if (ls->pending[i].used)
            tend(ls, &ls->pending[i], out);
        if (ls->pending[i].used && ls->pending[i].committed)
            break;
    }
    if (*out == NULL) {
        show_late_out(ls); /* of those that have just been listened to */
        err = check_secret(ls);
    } else {
        ls->stranger_ns = 0;
    }
    sl_nccl_unlock(ls->engine);
    if (*out != NULL)
        sl_nccl_engine_hold(ls->engine);
    return err;
}

/* ---- closing ---- */

static void listen_free(struct sl_nccl_listen *ls)
{
    for (unsigned i = 0; i < SL_NCCL_PENDING; i++)
        if (ls->pending[i].used)
            show_out(ls, &ls->pending[i]);
    sl_pending_fini(&ls->set);
    close_listeners(ls);
    sl_list_remove(&ls->node);
    free(ls);
}

static bool forget(struct sl_nccl_listen *ls)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    sl_list_foreach(&listens, node) if (sl_container_of(node, struct sl_nccl_listen, all) == ls)
    {
        sl_list_remove(node);
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void sl_nccl_listens_drop(struct sl_nccl_engine *engine)
{
    sl_list_foreach(&engine->listens, node)
    {
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
