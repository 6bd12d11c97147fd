/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channels of an endpoint beside a plain model of them: two bytes a step open, receive, close,
 * let messages come and be whole, in any order.
 *
 * However it goes: the n-th message of a channel is told to its n-th receive, with its bytes or the
 * right error, once; a message waits only while it may; nothing is left behind.
 */
#include "core/channel.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define IDS 6
#define STEPS_MAX 400
#define LEN_MAX 40

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A receive of the owner's. */
struct receive {
    struct sl_req req;
    struct sl_sink sink;
    unsigned id, nth;
    unsigned ended;
    bool due; /* at the loss: its message was whole */
    uint8_t dst[LEN_MAX + 1];
};

/* What the model knows of a channel. */
struct channel {
    bool open, closed, known;
    unsigned came, met;               /* messages here; how many of them have a receive */
    unsigned received, posted;        /* receives; how many of these no message has met */
    struct receive *posts[STEPS_MAX]; /* by number */
    bool whole[STEPS_MAX];            /* messages that were kept, by number */
    bool peer_closed;
    unsigned peer_sent;
};

static struct sl_channels channels;
static struct channel model[IDS];
static struct sl_kept *filling[STEPS_MAX]; /* the transport's, in no order */
static unsigned fills[STEPS_MAX];          /* which message each is */
static unsigned filling_count;
static struct receive *receives;
static unsigned receive_count, claims; /* claims: claimed and not ended */
static int waiting_id;                 /* of the message that stands in the stream; -1: none */
static bool lost, over;

/* What the n-th message of a channel is like. */
static size_t len_of(unsigned id, unsigned nth)
{
    return (id * 7 + nth * 5) % LEN_MAX;
}

static uint64_t tag_of(unsigned id, unsigned nth)
{
    return id * 1000 + nth;
}

static uint8_t byte_of(unsigned id, unsigned nth, size_t at)
{
    return (uint8_t)(id * 31 + nth * 17 + at);
}

static void on_done(struct sl_req *req)
{
    struct receive *r = sl_container_of(req, struct receive, req);

    r->ended++;
    sl_assert(r->ended == 1 && claims > 0);
    claims--;
    if (lost && req->status == -ECONNRESET) {
        sl_assert(!r->due);
        return;
    }
    if (req->status == -ECANCELED)
        return;
    sl_assert(!over && model[r->id].open);
    sl_assert(req->len == len_of(r->id, r->nth) && req->tag == tag_of(r->id, r->nth));
    if (r->sink.tag != req->tag) {
        sl_assert(req->status == -EPROTO);
        return;
    }
    if (!sl_sink_takes(&r->sink, req->len)) {
        sl_assert(req->status == -EMSGSIZE);
        return;
    }
    sl_assert(req->status == 0);
    for (size_t i = 0; i < req->len; i++)
        sl_assert(r->dst[i] == byte_of(r->id, r->nth, i));
}

/* ---- what owners do ---- */

static void open_one(unsigned id)
{
    struct channel *c = &model[id];
    struct sl_channel *channel;
    int err = sl_channels_open(&channels, id, &channel);

    sl_assert(err == (c->open || c->closed ? -EINVAL : 0));
    if (err == 0)
        c->known = c->open = true;
}

static void receive_one(unsigned id, uint8_t how)
{
    struct channel *c = &model[id];
    struct sl_channel *channel = sl_channels_find(&channels, id);
    struct receive *r;

    if (!c->open)
        return;
    r = &receives[receive_count++];
    *r = (struct receive){.req = {.done = on_done}, .id = id, .nth = c->received};
    r->sink = (struct sl_sink){.dst = r->dst,
                               .len = len_of(id, r->nth) + how % 2,
                               .tag = tag_of(id, r->nth) + (how % 8 == 7),
                               .shorter = how & 16,
                               .channel = id};
    if (sl_channel_claim(&channels, channel, &r->sink, &r->req)) {
        sl_assert(c->came > c->met && r->nth == c->met && r->req.status == SL_PENDING);
        c->met++;
        claims++;
    } else {
        sl_assert(c->came == c->met);
        c->posts[r->nth] = r;
        c->posted++;
        sl_channel_wants(&channels, channel, 1);
    }
    c->received++;
}

/* ---- what a transport does ---- */

static void forget_if_over(unsigned id)
{
    struct channel *c = &model[id];
    struct sl_channel *channel = sl_channels_find(&channels, id);
    bool ends = c->closed && c->peer_closed && c->came >= c->peer_sent;

    sl_assert(sl_channel_over(channel) == ends);
    if (!ends)
        return;
    sl_channels_remove(&channels, channel);
    sl_assert(sl_channels_find(&channels, id) == NULL);
    *c = (struct channel){0};
}

static void fill_one(unsigned which, int status)
{
    struct sl_kept *kept;

    if (filling_count == 0)
        return;
    which %= filling_count;
    kept = filling[which];
    for (size_t i = 0; i < kept->sink.len; i++)
        ((uint8_t *)kept->sink.dst)[i] = byte_of(kept->sink.channel, fills[which], i);
    if (!lost && kept->channels != NULL)
        model[kept->sink.channel].whole[fills[which]] = true;
    filling[which] = filling[--filling_count];
    fills[which] = fills[filling_count];
    sl_req_end(&kept->req, status);
}

static bool others_want(unsigned id)
{
    for (unsigned i = 0; i < IDS; i++)
        if (i != id && model[i].posted > 0)
            return true;
    return false;
}

/* The message that stands first in the stream, if it can go on. */
static void take_message(void)
{
    unsigned id = (unsigned)waiting_id;
    struct channel *c;
    struct sl_channel *channel;
    struct sl_kept *kept;

    if (waiting_id < 0)
        return;
    c = &model[id];
    channel = sl_channels_get(&channels, id);
    sl_assert(channel != NULL && channel->posted == c->posted);
    c->known = true;
    sl_assert(sl_channels_wanting(&channels, channel) == others_want(id));
    if (c->posted > 0) {
        sl_channel_wants(&channels, channel, -1);
        c->posted--;
        c->met++;
    } else if (!c->closed) {
        if (!others_want(id))
            return;
        kept = sl_channel_keep(&channels, channel, tag_of(id, c->came), len_of(id, c->came));
        sl_assert(kept != NULL && kept->sink.len == len_of(id, c->came));
        fills[filling_count] = c->came;
        filling[filling_count++] = kept;
    }
    channel->came++;
    c->came++;
    waiting_id = -1;
    if (c->closed)
        forget_if_over(id);
}

static void close_one(unsigned id)
{
    struct channel *c = &model[id];
    struct sl_channel *channel = sl_channels_find(&channels, id);
    unsigned here = 0;

    if (!c->open || id == 0)
        return;
    for (; c->posted > 0; c->posted--)
        sl_channel_wants(&channels, channel, -1);
    sl_channel_close(&channels, channel, -ECANCELED);
    c->open = false;
    c->closed = true;
    for (unsigned i = 0; i < receive_count; i++)
        here += receives[i].id == id && receives[i].req.status == SL_PENDING;
    sl_assert(here == 0);
    forget_if_over(id);
}

static void peer_close(unsigned id, unsigned more)
{
    struct channel *c = &model[id];
    struct sl_channel *channel;

    if (id == 0 || c->peer_closed || !c->known)
        return;
    channel = sl_channels_get(&channels, id);
    c->peer_closed = true;
    c->peer_sent = c->came + more + ((unsigned)waiting_id == id);
    sl_channel_peer_closed(channel, c->peer_sent);
    forget_if_over(id);
}

static void check_table(void)
{
    unsigned known = 0, visited = 0, unopened = 0;

    for (unsigned id = 0; id < IDS; id++) {
        struct sl_channel *channel = sl_channels_find(&channels, id);

        sl_assert((channel != NULL) == model[id].known);
        known += model[id].known;
        unopened += model[id].known && !model[id].open && !model[id].closed;
    }
    for (struct sl_channel *c = NULL; (c = sl_channels_next(&channels, c)) != NULL;)
        visited++;
    sl_assert(visited == known && channels.count == known && channels.unopened == unopened);
}

static bool may_come(unsigned id)
{
    const struct channel *c = &model[id];

    return waiting_id < 0 && !(c->peer_closed && c->came >= c->peer_sent);
}

static void step(uint8_t what, uint8_t how)
{
    unsigned id = how % IDS;

    switch (what % 10) {
    case 0: open_one(id); break;
    case 1:
    case 2: receive_one(id, what / 10); break;
    case 3:
    case 4:
    case 5:
        if (may_come(id))
            waiting_id = (int)id;
        break;
    case 6: fill_one(how, what < 200 ? 0 : -ECANCELED); break;
    case 7: sl_channels_settle(&channels, how % 4); break;
    case 8:
        if (what < 130)
            peer_close(id, what / 50);
        else
            close_one(id);
        break;
    default: check_table();
    }
    take_message();
}

/* What came whole before the loss, up to the first message of a channel that is not and has no
 * receive. */
static void receive_left(unsigned id)
{
    struct channel *c = &model[id];
    struct sl_req req = {0};
    struct sl_sink sink = {.channel = id};
    unsigned whole = c->met;

    while (whole < c->came && c->whole[whole])
        whole++;
    c->came = whole;
    while (c->met < c->came)
        receive_one(id, 0);
    sl_assert(!sl_channel_claim(&channels, sl_channels_find(&channels, id), &sink, &req));
}

/* The endpoint is lost; what the transport was filling ends after it. */
static void lose(void)
{
    for (unsigned i = 0; i < receive_count; i++) {
        struct receive *r = &receives[i];

        r->due = r->req.status == SL_PENDING && model[r->id].whole[r->nth];
    }
    for (unsigned id = 0; id < IDS; id++)
        for (; model[id].posted > 0; model[id].posted--)
            sl_channel_wants(&channels, sl_channels_find(&channels, id), -1);
    lost = true;
    sl_channels_lost(&channels, -ECONNRESET);
    while (filling_count > 0)
        fill_one(0, -ECONNRESET);
    for (unsigned id = 0; id < IDS; id++)
        if (model[id].open)
            receive_left(id);
    sl_channels_settle(&channels, STEPS_MAX);
    sl_assert(claims == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(model, 0, sizeof(model));
    receives = calloc(STEPS_MAX, sizeof(*receives));
    sl_assert(receives != NULL && sl_channels_init(&channels, sizeof(struct sl_channel)) == 0);
    model[0].known = model[0].open = true;
    filling_count = receive_count = claims = 0;
    waiting_id = -1;
    lost = over = false;
    for (size_t i = 0; i + 1 < size && i / 2 < STEPS_MAX; i += 2)
        step(data[i], data[i + 1]);
    while (size % 2 == 0 && filling_count > 0) /* or after the endpoint's end */
        fill_one(0, 0);
    if (size % 4 == 0) {
        sl_channels_settle(&channels, STEPS_MAX);
        sl_assert(!sl_channels_due(&channels) && claims == 0);
    }
    if (size % 3 == 0)
        lose();
    over = true;
    sl_channels_cancel(&channels, -ECANCELED);
    sl_assert(claims == 0 && !sl_channels_due(&channels));
    sl_channels_fini(&channels);
    while (filling_count > 0)
        fill_one(0, -ECANCELED);
    free(receives);
    return 0;
}
