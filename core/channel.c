/* SPDX-License-Identifier: Apache-2.0 */
/* The table of channels, and messages that are kept for their receives. */
#include "core/channel.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 4

/* ---- the table ---- */

static struct sl_channel **bucket_of(const struct sl_channels *channels, uint32_t id)
{
    return &channels->buckets[(id * UINT32_C(0x9e3779b1) >> 7) & (channels->bucket_count - 1)];
}

static struct sl_channel *search(const struct sl_channels *channels, uint32_t id)
{
    struct sl_channel *channel = *bucket_of(channels, id);

    while (channel != NULL && channel->id != id)
        channel = channel->next;
    return channel;
}

struct sl_channel *sl_channels_search(struct sl_channels *channels, uint32_t id)
{
    struct sl_channel *channel = search(channels, id);

    if (channel != NULL)
        channels->last = channel;
    return channel;
}

uint64_t sl_channels_traffic(const struct sl_channels *channels, uint32_t id)
{
    const struct sl_channel *channel = search(channels, id);

    return channel != NULL ? channel->traffic : 0;
}

bool sl_channels_starve(const struct sl_channels *channels, uint32_t id)
{
    const struct sl_channel *channel = search(channels, id);

    return channel != NULL && channel->posted != 0 && channel->peer_closed &&
           channel->came >= channel->peer_sent;
}

struct sl_channel *sl_channels_next(const struct sl_channels *channels,
                                    const struct sl_channel *after)
{
    struct sl_channel **bucket = channels->buckets, **end = bucket + channels->bucket_count;

    if (after != NULL && after->next != NULL)
        return after->next;
    if (after != NULL)
        bucket = bucket_of(channels, after->id) + 1;
    while (bucket < end && *bucket == NULL)
        bucket++;
    return bucket < end ? *bucket : NULL;
}

static void list(struct sl_channels *channels, struct sl_channel *channel)
{
    struct sl_channel **bucket = bucket_of(channels, channel->id);

    channel->next = *bucket;
    *bucket = channel;
}

/* Twice the buckets. Without memory for them the chains grow longer. */
static void spread(struct sl_channels *channels)
{
    uint32_t before = channels->bucket_count;
    struct sl_channel **old = channels->buckets;
    struct sl_channel **more = calloc(2 * (size_t)before, sizeof(*more));

    if (more == NULL)
        return;
    channels->buckets = more;
    channels->bucket_count = 2 * before;
    for (uint32_t b = 0; b < before; b++)
        for (struct sl_channel *c = old[b], *next; c != NULL; c = next) {
            next = c->next;
            list(channels, c);
        }
    free(old);
}

static struct sl_channel *add(struct sl_channels *channels, uint32_t id)
{
    struct sl_channel *channel = calloc(1, channels->bytes);

    if (channel == NULL)
        return NULL;
    if (channels->count >= channels->bucket_count)
        spread(channels);
    channel->id = id;
    sl_list_init(&channel->kept);
    list(channels, channel);
    channels->count++;
    return channel;
}

int sl_channels_init(struct sl_channels *channels, size_t bytes)
{
    sl_assert(bytes >= sizeof(struct sl_channel));
    *channels = (struct sl_channels){.bucket_count = BUCKETS_MIN, .bytes = bytes};
    sl_list_init(&channels->due);
    channels->buckets = calloc(BUCKETS_MIN, sizeof(struct sl_channel *));
    channels->last = channels->buckets != NULL ? add(channels, 0) : NULL;
    if (channels->last == NULL) {
        free(channels->buckets);
        channels->buckets = NULL;
        return sl_fail(-ENOMEM, "no memory for the channels of an endpoint");
    }
    channels->last->open = true;
    return 0;
}

static void free_kept(struct sl_channel *channel)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&channel->kept)) != NULL)
        free(sl_container_of(node, struct sl_kept, link));
}

void sl_channels_fini(struct sl_channels *channels)
{
    if (channels->buckets == NULL)
        return;
    sl_assert(sl_list_empty(&channels->due));
    for (uint32_t b = 0; b < channels->bucket_count; b++)
        for (struct sl_channel *c = channels->buckets[b], *next; c != NULL; c = next) {
            next = c->next;
            free_kept(c);
            free(c);
        }
    free(channels->buckets);
    channels->buckets = NULL;
}

struct sl_channel *sl_channels_get(struct sl_channels *channels, uint32_t id)
{
    struct sl_channel *channel = sl_channels_find(channels, id);

    if (channel != NULL)
        return channel;
    if (channels->unopened == SL_CHANNELS_UNOPENED_MAX) {
        sl_fail(-EBADMSG, "the peer names more than %d channels that are not open here",
                SL_CHANNELS_UNOPENED_MAX);
        return NULL;
    }
    channel = add(channels, id);
    if (channel == NULL)
        sl_fail(-ENOMEM, "no memory for channel %u of an endpoint", id);
    else
        channels->unopened++;
    return channel;
}

int sl_channels_open(struct sl_channels *channels, uint32_t id, struct sl_channel **out)
{
    struct sl_channel *channel = sl_channels_find(channels, id);

    if (channel != NULL && (channel->open || channel->closed))
        return sl_fail(-EINVAL, "channel %u of this endpoint is open, or was", id);
    if (channel != NULL)
        channels->unopened--;
    else
        channel = add(channels, id);
    if (channel == NULL)
        return sl_fail(-ENOMEM, "no memory for channel %u of an endpoint", id);
    channel->open = true;
    *out = channel;
    return 0;
}

void sl_channels_remove(struct sl_channels *channels, struct sl_channel *channel)
{
    struct sl_channel **place = bucket_of(channels, channel->id);

    sl_assert(channel->id != 0 && channel->posted == 0 && sl_list_empty(&channel->kept));
    while (*place != channel)
        place = &(*place)->next;
    *place = channel->next;
    channels->count--;
    channels->last = sl_channels_search(channels, 0);
    free(channel);
}

int sl_channel_not_open(const struct sl_ep *ep, uint32_t id)
{
    return sl_fail(-EINVAL, "channel %u to %s is not open", id, sl_ep_peer_name(ep));
}

void sl_reqs_end(struct sl_node *reqs, int status)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(reqs)) != NULL)
        sl_req_end(sl_container_of(node, struct sl_req, link), status);
}

/* ---- kept messages ---- */

static bool is_due(const struct sl_kept *kept)
{
    return kept->whole && kept->claimer != NULL;
}

static void move_to_due(struct sl_kept *kept)
{
    sl_list_remove(&kept->link);
    sl_list_push_back(&kept->channels->due, &kept->link);
}

/* The transport has filled it, or cannot. */
static void kept_done(struct sl_req *req)
{
    struct sl_kept *kept = sl_container_of(req, struct sl_kept, req);

    kept->whole = true;
    if (kept->channels == NULL) /* its channel was closed meanwhile */
        free(kept);
    else if (is_due(kept))
        move_to_due(kept);
}

struct sl_kept *sl_channel_keep(struct sl_channels *channels, struct sl_channel *channel,
                                uint64_t tag, uint64_t len)
{
    struct sl_kept *kept = len <= SL_KEPT_MAX ? malloc(sizeof(*kept) + (size_t)len) : NULL;

    if (kept == NULL)
        return NULL;
    *kept = (struct sl_kept){
        .channels = channels,
        .sink = {.dst = kept->bytes,
                 .len = (size_t)len,
                 .tag = tag,
                 .channel = channel->id,
                 .granule = 1},
        .req = {.status = SL_PENDING, .len = len, .tag = tag, .done = kept_done},
    };
    sl_list_push_back(&channel->kept, &kept->link);
    return kept;
}

bool sl_channel_claim_kept(struct sl_channels *channels, struct sl_channel *channel,
                           const struct sl_sink *sink, struct sl_req *req)
{
    (void)channels;
    sl_list_foreach(&channel->kept, node)
    {
        struct sl_kept *kept = sl_container_of(node, struct sl_kept, link);

        if (kept->claimer != NULL)
            continue;
        kept->claimed = sink;
        kept->claimer = req;
        req->status = SL_PENDING;
        if (is_due(kept))
            move_to_due(kept);
        return true;
    }
    return false;
}

/* Its bytes go where its receive wants them. */
static int deliver(const struct sl_kept *kept)
{
    const struct sl_sink *sink = kept->claimed;

    if (kept->req.status != 0)
        return kept->req.status;
    if (kept->sink.tag != sink->tag)
        return sl_fail(-EPROTO, "a message has tag 0x%llx where 0x%llx was due",
                       (unsigned long long)kept->sink.tag, (unsigned long long)sink->tag);
    if (!sl_sink_takes(sink, kept->sink.len))
        return sl_fail(-EMSGSIZE, "a message has %zu bytes where %zu were due", kept->sink.len,
                       sink->len);
    if (kept->sink.len == 0)
        return 0;
    if (sink->consume != NULL)
        sink->consume(sink, kept->bytes, 0, kept->sink.len);
    else
        memcpy(sink->dst, kept->bytes, kept->sink.len);
    return 0;
}

/* free: the transport does not fill it any more. */
static void end_claim(struct sl_kept *kept, int status)
{
    struct sl_req *req = kept->claimer;

    req->len = kept->sink.len;
    req->tag = kept->sink.tag;
    free(kept);
    sl_req_end(req, status);
}

unsigned sl_channels_settle(struct sl_channels *channels, unsigned budget)
{
    unsigned ended = 0;
    struct sl_node *node;

    while (ended < budget && (node = sl_list_pop_front(&channels->due)) != NULL) {
        struct sl_kept *kept = sl_container_of(node, struct sl_kept, link);

        end_claim(kept, deliver(kept));
        ended++;
    }
    return ended;
}

/* Takes a kept message of a closed channel, or of an endpoint that ends, out of the way. */
static void give_up(struct sl_kept *kept, int status)
{
    struct sl_req *claimer = kept->claimer;

    if (kept->whole && claimer != NULL) {
        end_claim(kept, status);
        return;
    }
    kept->claimer = NULL;
    if (kept->whole)
        free(kept);
    else
        kept->channels = NULL; /* kept_done() frees it */
    if (claimer != NULL)
        sl_req_end(claimer, status);
}

static void give_up_all(struct sl_node *kept, int status)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(kept)) != NULL)
        give_up(sl_container_of(node, struct sl_kept, link), status);
}

void sl_channel_close(struct sl_channels *channels, struct sl_channel *channel, int status)
{
    sl_assert(channel->posted == 0);
    sl_list_foreach(&channels->due, node)
    {
        struct sl_kept *kept = sl_container_of(node, struct sl_kept, link);

        if (kept->sink.channel == channel->id) {
            sl_list_remove(node);
            sl_list_push_back(&channel->kept, node);
        }
    }
    channels->unopened -= !channel->open && !channel->closed;
    channel->open = false;
    channel->closed = true;
    give_up_all(&channel->kept, status);
}

/* What a lost endpoint cannot give to its receives any more. */
static void take_cut(struct sl_channel *channel, struct sl_node *cut)
{
    bool gap = false;

    sl_list_foreach(&channel->kept, node)
    {
        struct sl_kept *kept = sl_container_of(node, struct sl_kept, link);

        gap |= !kept->whole && kept->claimer == NULL;
        if (kept->whole && !gap)
            continue;
        sl_list_remove(node);
        sl_list_push_back(cut, node);
    }
}

void sl_channels_lost(struct sl_channels *channels, int status)
{
    struct sl_node cut;

    sl_list_init(&cut);
    for (uint32_t b = 0; b < channels->bucket_count; b++)
        for (struct sl_channel *c = channels->buckets[b]; c != NULL; c = c->next)
            take_cut(c, &cut);
    give_up_all(&cut, status); /* last, as done() may receive what is left */
}

void sl_channels_cancel(struct sl_channels *channels, int status)
{
    for (uint32_t b = 0; b < channels->bucket_count; b++)
        for (struct sl_channel *c = channels->buckets[b]; c != NULL; c = c->next)
            give_up_all(&c->kept, status);
    give_up_all(&channels->due, status);
}
