/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting to a listener's handle, a step with every call.
 *
 * NCCL calls again until there is a connection, each time with the same copy of the handle: in its
 * unused end lies where this attempt is kept. It never says that it has given up, so the attempt
 * belongs to the engine, which frees it with its context.
 *
 * Whatever goes wrong before the deadline is tried again from the start: a listener may be closed
 * because another connection to the same rank came about first, and whether ours is needed at all
 * is NCCL's to know.
 */
#include "tools/nccl/link.h"

#include "core/log.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PLACE_NS (3 * SL_NS_PER_S) /* for one address, at most */
#define RETRY_NS (50 * SL_NS_PER_MS)
#define PATIENCE 10 /* deadlines that a listener has which is there but does not accept */

enum dial_state { DIAL_REST, DIAL_GOING, DIAL_TALK };

struct dial {
    struct sl_node node; /* engine->dials */
    struct sl_nccl_link link;
    struct sl_nccl_handle handle;
    enum dial_state state;
    unsigned place;
    bool offered; /* the listening end has said something */
    bool said_up;
    uint64_t deadline_ns, next_ns; /* of the whole; of the next try, or the end of this one */
};

static uint64_t now(const struct dial *dial)
{
    return sl_now(dial->link.engine->worker.clock);
}

static uint64_t patience_ns(const struct dial *dial)
{
    return (uint64_t)dial->link.engine->config.connect_timeout_ms * SL_NS_PER_MS;
}

/* For one address to answer: the others have a turn before the whole time is over. */
static uint64_t place_ns(const struct dial *dial)
{
    uint64_t share_ns = patience_ns(dial) / dial->handle.place_count;

    return share_ns < PLACE_NS ? share_ns : PLACE_NS;
}

static void dial_free(struct dial *dial)
{
    sl_nccl_link_fini(&dial->link);
    sl_list_remove(&dial->node);
    free(dial);
}

void sl_nccl_dials_drop(struct sl_nccl_engine *engine)
{
    sl_list_foreach(&engine->dials, node)
    {
        dial_free(sl_container_of(node, struct dial, node));
        engine->users--;
    }
}

/* ---- reaching the listener ---- */

/* Only on the same host do loopback addresses mean the peer. */
static bool place_fits(const struct dial *dial, unsigned place)
{
    bool same_host = dial->handle.host == dial->link.engine->host;

    return same_host || !dial->handle.places[place].loopback;
}

static void rest(struct dial *dial)
{
    char why[SL_NCCL_WHY];

    snprintf(why, sizeof(why), "%s",
             dial->link.why[0] != '\0' ? dial->link.why : sluice_last_error());
    sl_nccl_link_fini(&dial->link);
    memcpy(dial->link.why, why, sizeof(why));
    dial->state = DIAL_REST;
    dial->offered = dial->said_up = false;
    dial->next_ns = now(dial) + RETRY_NS;
    if (dial->deadline_ns > now(dial) + patience_ns(dial))
        dial->deadline_ns = now(dial) + patience_ns(dial);
    for (unsigned i = 0; i < dial->handle.place_count; i++) {
        dial->place = (dial->place + 1) % dial->handle.place_count;
        if (place_fits(dial, dial->place))
            break;
    }
}

static int begin(struct dial *dial)
{
    const struct sockaddr_storage *addr = &dial->handle.places[dial->place].addr;
    socklen_t len =
        addr->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int one = 1, fd;

    if (!place_fits(dial, dial->place))
        return sl_fail(-EHOSTUNREACH, "the listener has no address that leads to another host");
    fd = socket(addr->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sl_fail(-errno, "no socket to be had: %s%s", sluice_strerror(-errno),
                       errno == EMFILE ? "; raise 'ulimit -n'" : "");
    dial->link.fd = sl_fork_closes(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    dial->link.why[0] = '\0';
    if (connect(fd, (const struct sockaddr *)addr, len) != 0 && errno != EINPROGRESS)
        return sl_fail(-errno, "the listener cannot be reached: %s", sluice_strerror(-errno));
    dial->state = DIAL_GOING;
    dial->next_ns = now(dial) + place_ns(dial);
    return 0;
}

/* 0: not yet; 1: connected, and greeted. */
static int reach(struct dial *dial)
{
    struct pollfd ready = {.fd = dial->link.fd, .events = POLLOUT};
    struct sl_nccl_word *hello = &dial->link.hello;
    int err = 0;
    socklen_t len = sizeof(err);

    if (poll(&ready, 1, 0) <= 0)
        return now(dial) < dial->next_ns
                   ? 0
                   : sl_fail(-ETIMEDOUT, "the listener's host does not answer");
    getsockopt(dial->link.fd, SOL_SOCKET, SO_ERROR, &err, &len);
    if (err != 0)
        return sl_fail(-err, "the listener cannot be reached: %s", sluice_strerror(-err));
    dial->link.ways_left = sl_nccl_ways(dial->link.engine, dial->handle.host);
    *hello = (struct sl_nccl_word){.kind = SL_NCCL_HELLO,
                                   .version = SL_NCCL_WIRE_VERSION,
                                   .ways = dial->link.ways_left,
                                   .host = dial->link.engine->host};
    if (getrandom(hello->nonce, sizeof(hello->nonce), 0) != (ssize_t)sizeof(hello->nonce))
        return sl_fail(-EIO, "no random numbers are to be had for a handshake");
    err =
        sl_nccl_link_know(&dial->link, dial->handle.secret) ?: sl_nccl_link_say(&dial->link, hello);
    if (err != 0)
        return err;
    dial->state = DIAL_TALK;
    dial->deadline_ns = now(dial) + PATIENCE * patience_ns(dial);
    return 1;
}

/* ---- talking with it ---- */

/* It is the listener, but has another secret: trying again would not change that. It is told,
 * without a proof of ours, at which a false listener that has read the handle could try guesses. */
static int meet_stranger(struct dial *dial)
{
    struct sl_nccl_link *link = &dial->link;
    struct sl_nccl_word word = {.kind = SL_NCCL_STRANGER};

    if (sl_nccl_handle_proof(link, false, dial->handle.secret, word.handle_proof) == 0)
        sl_nccl_link_say(link, &word);
    return sl_fail(
        -EPROTO,
        "the listener has another SLUICE_SECRET, or none, or this rank has none: set the same on "
        "all ranks");
}

/* The listener has shown that it made our handle; now we show that we have it. */
static int take_challenge(struct dial *dial, const struct sl_nccl_word *challenge)
{
    struct sl_nccl_link *link = &dial->link;
    struct sl_nccl_word proof = {.kind = SL_NCCL_PROOF};
    int err;

    if (link->sealed)
        return sl_fail(-EPROTO, "the listener asks for a proof twice");
    memcpy(link->nonce, challenge->nonce, sizeof(link->nonce));
    err = sl_nccl_link_check(link, true, challenge->proof);
    if (err == -EPROTO &&
        sl_nccl_handle_known(link, true, dial->handle.secret, challenge->handle_proof))
        return meet_stranger(dial);
    if (err ==
        -EPROTO) /* maybe another listener, which got the port of one that is not needed any more */
        return sl_fail(-ECONNREFUSED, "who answers there is not the listener");
    err = err ?: sl_nccl_proof_make(link->link_key, false, &link->hello, link->nonce, proof.proof);
    err = err ?: sl_nccl_link_say(link, &proof);
    return err ?: sl_nccl_link_seal(link);
}

/* A way is offered. What fails here is told, and another is offered. */
static int take_offer(struct dial *dial, const struct sl_nccl_word *offer)
{
    struct sl_nccl_link *link = &dial->link;
    struct sl_nccl_word answer = {.kind = SL_NCCL_ANSWER, .way = offer->way};
    int err;

    sl_nccl_link_drop(link);
    dial->said_up = false;
    link->why[0] = '\0';
    if ((link->ways_left & UINT64_C(1) << offer->way) == 0)
        return sl_fail(-EPROTO, "the listener offers a way twice, or one that we do not have");
    if (sl_nccl_link_ep(link, offer->way, &answer.addr) != 0)
        return sl_nccl_link_failed(link, offer->way);
    err = sl_nccl_link_say(link, &answer);
    if (err == 0 && sl_nccl_link_connect(link, &offer->addr) != 0)
        err = sl_nccl_link_failed(link, offer->way);
    return err;
}

/* 1: it is a connection. */
static int obey(struct dial *dial, const struct sl_nccl_word *word)
{
    struct sl_nccl_link *link = &dial->link;
    bool current = link->comm != NULL && word->way == link->way;

    if (!link->sealed && word->kind != SL_NCCL_CHALLENGE && word->kind != SL_NCCL_REFUSE)
        return sl_fail(-EPROTO, "the listener goes on without a proof");
    dial->offered = true;
    dial->deadline_ns = now(dial) + patience_ns(dial);
    switch (word->kind) {
    case SL_NCCL_CHALLENGE: return take_challenge(dial, word);
    case SL_NCCL_OFFER: return take_offer(dial, word);
    case SL_NCCL_FAILED:
        if (current) {
            memcpy(link->why, word->text, sizeof(word->text));
            sl_nccl_link_drop(link);
        }
        return 0;
    case SL_NCCL_DONE:
        return current && dial->said_up ? 1
                                        : sl_fail(-EPROTO, "the listener is done before we are");
    case SL_NCCL_REFUSE: return sl_fail(-EPROTO, "the listener refuses: %s", word->text);
    default: return sl_fail(-EPROTO, "the listener said what only we say");
    }
}

/* Tells what became of our endpoint. */
static int look_at_endpoint(struct dial *dial)
{
    struct sl_nccl_link *link = &dial->link;
    struct sl_nccl_word up = {.kind = SL_NCCL_UP, .way = link->way};
    int state = link->comm != NULL ? sl_nccl_link_state(link) : 0;

    if (state < 0) {
        uint8_t way = link->way;

        sl_nccl_link_drop(link);
        return sl_nccl_link_failed(link, way);
    }
    if (state == 0 || dial->said_up)
        return 0;
    dial->said_up = true;
    return sl_nccl_link_say(link, &up);
}

/* 1: it is a connection. */
static int talk(struct dial *dial)
{
    struct sl_nccl_word word;
    int err = sl_nccl_link_flush(&dial->link), heard;

    if (err < 0)
        return err;
    while ((heard = sl_nccl_link_hear(&dial->link, &word)) == 1) {
        err = obey(dial, &word);
        if (err != 0)
            return err;
    }
    if (heard < 0)
        return heard == -EBADMSG ? sl_fail(-EPROTO, "what answers there is no listener of Sluice")
                                 : heard;
    return look_at_endpoint(dial);
}

/* 1: it is a connection; 0: not yet; else it will not be one. */
static int step(struct dial *dial)
{
    int err = 0;

    if (dial->state == DIAL_REST && now(dial) >= dial->next_ns)
        err = begin(dial);
    if (err == 0 && dial->state == DIAL_GOING)
        err = reach(dial);
    if (err >= 0 && dial->state == DIAL_TALK)
        err = talk(dial);
    if (err == 1)
        return 1;
    if (err == -EPROTO) /* trying again would not change it */
        return err;
    if (err < 0)
        rest(dial);
    if (now(dial) < dial->deadline_ns)
        return 0;
    return sl_fail(dial->offered ? -ETIMEDOUT : -ECONNREFUSED,
                   "a connection did not come about within %lld ms%s%s",
                   (long long)dial->link.engine->config.connect_timeout_ms,
                   dial->link.why[0] != '\0' ? "; last: " : "", dial->link.why);
}

/* ---- NCCL's call ---- */

static struct dial *find(struct sl_nccl_engine *engine, const void *handle)
{
    struct dial *kept;

    memcpy(&kept, (const uint8_t *)handle + SL_NCCL_HANDLE_OWN, sizeof(kept));
    sl_list_foreach(&engine->dials,
                    node) if (sl_container_of(node, struct dial, node) == kept) return kept;
    return NULL;
}

static void keep(void *handle, const struct dial *dial)
{
    memcpy((uint8_t *)handle + SL_NCCL_HANDLE_OWN, &dial, sizeof(dial));
}

static int start(struct sl_nccl_engine *engine, const void *handle, struct dial **out)
{
    struct dial *dial = calloc(1, sizeof(*dial));
    int err;

    if (dial == NULL)
        return sl_fail(-ENOMEM, "no memory to connect");
    err = sl_nccl_handle_decode(handle, &dial->handle);
    if (err != 0) {
        free(dial);
        return err;
    }
    sl_nccl_link_init(&dial->link, engine, true);
    while (dial->place + 1 < dial->handle.place_count && !place_fits(dial, dial->place))
        dial->place++;
    dial->deadline_ns = now(dial) + patience_ns(dial);
    sl_list_push_back(&engine->dials, &dial->node);
    *out = dial;
    return 0;
}

int sl_nccl_connect(struct sl_nccl_ctx *ctx, int dev, int traffic_class, void *handle,
                    struct sl_nccl_comm **out)
{
    struct sl_nccl_engine *engine;
    struct dial *dial = NULL;
    unsigned users;
    int err = sl_nccl_engine_get(ctx, dev, traffic_class, &engine);

    *out = NULL;
    if (err != 0)
        return err;
    sl_nccl_lock(engine);
    dial = find(engine, handle);
    users = dial != NULL ? 2 : 1; /* this call, and the attempt */
    if (dial == NULL)
        err = start(engine, handle, &dial);
    if (err == 0) {
        sl_nccl_progress(engine);
        err = step(dial);
    }
    if (err == 1)
        err = sl_nccl_link_take(&dial->link, out);
    if (dial != NULL && (err != 0 || *out != NULL)) {
        dial_free(dial);
        dial = NULL;
    }
    keep(handle, dial);
    sl_nccl_unlock(engine);
    /* One user stays: the attempt, or the connection that it became. */
    users -= dial != NULL || *out != NULL;
    while (users-- > 0)
        sl_nccl_engine_put(engine);
    return err;
}
