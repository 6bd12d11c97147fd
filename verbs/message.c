/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives, and the frames between them, in their order. */
#include "verbs/endpoint.h"
#include "verbs/fallback.h"
#include "verbs/gpu.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

#include <string.h>

#define CREDITS_DUE (SL_VERBS_CREDITS / 2)

/* ---- frames ---- */

bool sl_verbs_can_post_frame(const struct sl_verbs_ep *ep)
{
    return ep->frame_path != NULL && !ep->frame_path->failing && sl_list_empty(&ep->repeat) &&
           ep->iface->free_frame_count != 0 && sl_verbs_path_has_room(ep->frame_path);
}

void sl_verbs_frame_free(struct sl_verbs_iface *iface, struct sl_verbs_tx_frame *frame)
{
    /* The one that was used last is still in the cache: it goes first. */
    frame->link.next = iface->free_frames.next;
    frame->link.prev = &iface->free_frames;
    iface->free_frames.next->prev = &frame->link;
    iface->free_frames.next = &frame->link;
    iface->free_frame_count++;
}

static struct sl_verbs_frame *header_of(const struct sl_verbs_tx_frame *frame)
{
    return (struct sl_verbs_frame *)(void *)frame->bytes;
}

struct sl_verbs_tx_frame *sl_verbs_frame_new(struct sl_verbs_ep *ep, uint8_t kind, uint32_t number)
{
    struct sl_verbs_iface *iface = ep->iface;
    struct sl_verbs_tx_frame *frame;

    if (!sl_verbs_can_post_frame(ep))
        return NULL;
    frame = sl_container_of(sl_list_pop_front(&iface->free_frames), struct sl_verbs_tx_frame, link);
    iface->free_frame_count--;
    *header_of(frame) = (struct sl_verbs_frame){.kind = kind,
                                                .credits = (uint16_t)ep->credits_owed,
                                                .fseq = ep->fseq_out++,
                                                .number = number};
    ep->credits_owed = 0;
    return frame;
}

void sl_verbs_frame_post(struct sl_verbs_ep *ep, struct sl_verbs_tx_frame *frame)
{
    frame->len = SL_VERBS_FRAME_BYTES + header_of(frame)->len;
    sl_verbs_path_post_frame(ep->frame_path, frame);
}

static void owe_credit(struct sl_verbs_ep *ep)
{
    if (++ep->credits_owed >= CREDITS_DUE)
        sl_verbs_ep_activate(ep);
}

/* ---- sending ---- */

static void tx_advance(struct sl_verbs_ep *ep)
{
    while (ep->tx_oldest != ep->tx_next && sl_verbs_tx_at(ep, ep->tx_oldest)->req == NULL)
        ep->tx_oldest++;
}

/* Grants for a message that turns out not to be what the receiver expected: it will hear so and
 * take them back. */
static void forget_grants(struct sl_verbs_ep *ep, uint32_t number)
{
    for (unsigned i = 0; i < SL_VERBS_TX_GRANTS && ep->early_count > 0; i++) {
        struct sl_verbs_tx_grant *grant = &ep->tx_grants[i];

        if (grant->used && grant->msg == NULL && grant->number == number) {
            grant->used = false;
            ep->early_count--;
            ep->early_gpu_count -= grant->is_gpu;
        }
    }
}

static int send_eager(struct sl_verbs_ep *ep, const struct sl_buf *buf, uint64_t tag,
                      struct sl_req *req)
{
    uint32_t number = ep->tx_next;
    struct sl_verbs_tx_frame *frame;

    if (ep->credits == 0)
        return -EAGAIN;
    frame = sl_verbs_frame_new(ep, SL_VERBS_EAGER, number);
    if (frame == NULL)
        return -EAGAIN;
    header_of(frame)->tag = tag;
    header_of(frame)->len = (uint32_t)buf->len;
    if (buf->len != 0)
        memcpy(frame->bytes + SL_VERBS_FRAME_BYTES, buf->addr, buf->len);
    ep->credits--;
    ep->tx_next++;
    if (ep->early_count != 0)
        forget_grants(ep, number);
    tx_advance(ep);
    ep->iface->base.traffic += buf->len;
    sl_verbs_frame_post(ep, frame);
    req->len = buf->len;
    req->status = 0;
    return 1;
}

/* A grant that came before this message and is for it, or NULL. */
static const struct sl_verbs_tx_grant *early_grant(const struct sl_verbs_ep *ep, uint32_t number,
                                                   uint64_t tag, uint64_t len)
{
    for (unsigned i = 0; i < SL_VERBS_TX_GRANTS && ep->early_count > 0; i++) {
        const struct sl_verbs_tx_grant *grant = &ep->tx_grants[i];

        if (grant->used && grant->msg == NULL && grant->number == number)
            return sl_verbs_grant_fits(grant, tag, len) ? grant : NULL;
    }
    return NULL;
}

static int send_long(struct sl_verbs_ep *ep, const struct sl_buf *buf, uint64_t tag,
                     struct sl_req *req)
{
    uint32_t number = ep->tx_next;
    struct sl_verbs_tx_msg *msg = sl_verbs_tx_at(ep, number);
    const struct sl_verbs_tx_grant *early = early_grant(ep, number, tag, buf->len);

    /* Whoever granted more than the message has learns its length beside the bytes: nobody waits
     * for it. */
    if (early == NULL || early->total != buf->len) {
        struct sl_verbs_tx_frame *frame =
            ep->credits == 0 ? NULL : sl_verbs_frame_new(ep, SL_VERBS_RTS, number);

        if (frame == NULL)
            return -EAGAIN;
        if (early == NULL)
            forget_grants(ep, number);
        header_of(frame)->tag = tag;
        header_of(frame)->value = buf->len;
        ep->credits--;
        sl_verbs_frame_post(ep, frame);
    }
    *msg = (struct sl_verbs_tx_msg){
        .addr = buf->addr, .len = buf->len, .tag = tag, .req = req, .number = number};
    msg->mr = sl_verbs_mr_find(ep->iface, buf->mr, buf->addr, buf->len);
    ep->tx_next++;
    if (ep->early_count != 0)
        sl_verbs_tx_bind_grants(ep, msg);
    return 0;
}

/* A short message that the NIC is to write all the same: out of GPU memory, or into it. */
static bool is_written(struct sl_verbs_ep *ep, const struct sl_buf *buf,
                       const struct sl_mem_region *gpu, uint64_t tag)
{
    if (SL_LIKELY(gpu == NULL && ep->early_gpu_count == 0) || buf->len == 0)
        return false;
    const struct sl_verbs_tx_grant *early = early_grant(ep, ep->tx_next, tag, buf->len);

    return gpu != NULL || (early != NULL && early->is_gpu);
}

int sl_verbs_send(struct sl_ep *base, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    const struct sl_mem_region *gpu = sl_verbs_gpu_region(ep->iface, buf->mr, buf->addr, buf->len);

    if (SL_UNLIKELY(ep->state != SL_VERBS_EP_UP))
        return sl_verbs_not_up(ep);
    if (ep->tx_next - ep->tx_oldest >= SL_VERBS_TX_QUEUE)
        return -EAGAIN;
    if (SL_UNLIKELY(gpu != NULL && sl_verbs_gpu_check(gpu) != 0))
        return -EINVAL;
    req->status = SL_PENDING;
    return buf->len <= ep->eager_bytes && !is_written(ep, buf, gpu, tag)
               ? send_eager(ep, buf, tag, req)
               : send_long(ep, buf, tag, req);
}

static void on_drop(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_tx_msg *msg = sl_verbs_tx_at(ep, number);
    struct sl_req *req = msg->req;

    if (req == NULL || msg->number != number)
        return;
    /* Who granted memory for it takes it; its bytes may be on their way out of the caller's
     * memory. */
    if (msg->granted != 0) {
        sl_verbs_ep_fail(ep, -EPROTO, "%s drops message %u, for which it granted memory",
                         sl_ep_peer_name(&ep->base), number);
        return;
    }
    msg->req = NULL;
    tx_advance(ep);
    req->len = msg->len;
    sl_req_end(req, 0);
}

/* ---- receiving ---- */

static bool is_posted(const struct sl_verbs_ep *ep, uint32_t number)
{
    return number - ep->rx_oldest < ep->rx_next - ep->rx_oldest;
}

/* Memory that was granted is no longer the peer's. It has not written: the tags or lengths differ,
 * or the message came in a frame. */
static void take_grants_back(struct sl_verbs_ep *ep, uint32_t number)
{
    for (unsigned i = 0; i < SL_VERBS_GRANTS; i++)
        if (ep->rx_grants[i].used && ep->rx_grants[i].number == number) {
            ep->unannounced -= !ep->rx_grants[i].announced;
            ep->rx_grants[i].used = false;
        }
}

/* A message whose bytes were written into a grant that left before the sender asked may be over
 * when the sender's RTS comes: that travels by another path. */
static bool is_over(struct sl_verbs_ep *ep, uint32_t number)
{
    return ep->rx_oldest - number - 1 < SL_VERBS_RX_QUEUE ||
           (is_posted(ep, number) && sl_verbs_rx_at(ep, number)->over);
}

void sl_verbs_rx_end(struct sl_verbs_ep *ep, uint32_t number, int status)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);
    struct sl_req *req = msg->req;
    uint64_t len = msg->len, tag = msg->tag;

    if (msg->granted_count != 0)
        take_grants_back(ep, number);
    *msg = (struct sl_verbs_rx_msg){.over = true};
    while (ep->rx_oldest != ep->rx_next && sl_verbs_rx_at(ep, ep->rx_oldest)->over)
        sl_verbs_rx_at(ep, ep->rx_oldest++)->over = false;
    req->len = len;
    req->tag = tag;
    sl_req_end(req, status);
}

static void end_later(struct sl_verbs_ep *ep, uint32_t number, int status)
{
    sl_verbs_rx_at(ep, number)->status = status;
    ep->late[ep->late_count++] = number;
    sl_verbs_ep_activate(ep);
}

static int match(const struct sl_verbs_ep *ep, uint32_t number, const struct sl_sink *sink,
                 uint64_t tag, uint64_t len)
{
    if (tag != sink->tag)
        return sl_fail(-EPROTO, "message %u of %s has tag 0x%llx, expected 0x%llx", number,
                       sl_ep_peer_name(&ep->base), (unsigned long long)tag,
                       (unsigned long long)sink->tag);
    if (!sl_sink_takes(sink, len))
        return sl_fail(-EMSGSIZE, "message %u of %s has %llu bytes, expected %zu", number,
                       sl_ep_peer_name(&ep->base), (unsigned long long)len, sink->len);
    return 0;
}

static void hand_over(struct sl_verbs_ep *ep, const struct sl_sink *sink, const uint8_t *bytes,
                      uint64_t len)
{
    if (len == 0)
        return;
    ep->iface->base.traffic += len;
    if (sink->consume != NULL)
        sink->consume(sink, bytes, 0, len);
    else
        memcpy(sink->dst, bytes, len);
}

/* The bytes of a frame that waited are not needed any more. */
static void release(struct sl_verbs_ep *ep, struct sl_verbs_rx_msg *msg)
{
    if (msg->copy == NULL)
        sl_verbs_slot_put(&ep->iface->rails[msg->rail], msg->slot);
    else
        ep->copies_used &= ~(1u << ((size_t)(msg->copy - ep->copies) / ep->iface->slot_bytes));
    msg->copy = NULL;
    msg->has_frame = false;
    ep->held--;
}

static const uint8_t *waiting_bytes(const struct sl_verbs_ep *ep, const struct sl_verbs_rx_msg *msg)
{
    return msg->copy != NULL ? msg->copy
                             : sl_verbs_slot_bytes(&ep->iface->rails[msg->rail], msg->slot) +
                                   SL_VERBS_FRAME_BYTES;
}

/* A frame's bytes go into GPU memory by other means than ours; the frame waits while these are
 * busy. */
static bool needs_copy(const struct sl_verbs_rx_msg *msg)
{
    return SL_UNLIKELY(msg->mr != NULL && msg->mr->is_gpu) && msg->len != 0;
}

static bool copy_waiting(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);
    int err = sl_verbs_gpu_copy(ep, number, waiting_bytes(ep, msg), msg->len);

    if (err == -EAGAIN) {
        ep->gpu_waits++;
        sl_verbs_ep_activate(ep);
        return false;
    }
    ep->iface->base.traffic += msg->len;
    release(ep, msg);
    owe_credit(ep);
    if (err != 0)
        end_later(ep, number, err);
    return true;
}

/* The frame of a message that came before its receive. Its end, when it is one for done(). */
static int take_waiting(struct sl_verbs_ep *ep, uint32_t number)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);
    int err = match(ep, number, msg->sink, msg->tag, msg->len);

    if (err == 0 && needs_copy(msg)) {
        copy_waiting(ep, number);
        return 0;
    }
    if (err == 0)
        hand_over(ep, msg->sink, waiting_bytes(ep, msg), msg->len);
    release(ep, msg);
    owe_credit(ep);
    if (err != 0) {
        end_later(ep, number, err);
        return 0;
    }
    msg->req->len = msg->len;
    msg->req->tag = msg->tag;
    msg->req->status = 0;
    *msg = (struct sl_verbs_rx_msg){.over = true};
    while (ep->rx_oldest != ep->rx_next && sl_verbs_rx_at(ep, ep->rx_oldest)->over)
        sl_verbs_rx_at(ep, ep->rx_oldest++)->over = false;
    return 1;
}

static void drop(struct sl_verbs_ep *ep, uint32_t number)
{
    ep->drops[ep->drop_count++] = number;
    sl_verbs_ep_activate(ep);
}

int sl_verbs_recv(struct sl_ep *base, const struct sl_sink *sink, struct sl_req *req)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    uint32_t number = ep->rx_next;
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    if (SL_UNLIKELY(ep->state != SL_VERBS_EP_UP))
        return sl_verbs_not_up(ep);
    if (number - ep->rx_oldest >= SL_VERBS_TX_QUEUE)
        return -EAGAIN;
    const struct sl_mem_region *gpu =
        sl_verbs_gpu_region(ep->iface, sink->mr, sink->dst, sink->len);

    if (SL_UNLIKELY(gpu != NULL && sl_verbs_gpu_check(gpu) != 0))
        return -EINVAL;
    if (SL_UNLIKELY(gpu != NULL && sink->consume != NULL))
        return sl_fail(-EINVAL, "nothing here can read the GPU memory at %p to hand it over",
                       sink->dst);
    ep->rx_next++;
    req->status = SL_PENDING;
    msg->sink = sink;
    msg->req = req;
    if (SL_UNLIKELY(gpu != NULL && sink->len != 0))
        msg->mr = gpu->handle;
    if (msg->has_frame)
        return take_waiting(ep, number);
    if (sink->len > ep->eager_bytes && sink->dst != NULL && gpu == NULL)
        msg->mr = sl_verbs_mr_find(ep->iface, sink->mr, sink->dst, sink->len);
    if (msg->has_rts) {
        int err = match(ep, number, sink, msg->tag, msg->len);

        if (err != 0) {
            drop(ep, number);
            end_later(ep, number, err);
            return 0;
        }
    }
    if (msg->has_rts || msg->mr != NULL)
        sl_verbs_grant_more(ep, number);
    return 0;
}

/* ---- frames that arrive ---- */

static const uint8_t *frame_bytes(const struct sl_verbs_path *path, uint32_t slot)
{
    return path->rail == NULL ? sl_verbs_tcp_frame(path->ep)
                              : sl_verbs_slot_bytes(path->rail, slot);
}

/* A place for the bytes of a frame. NULL: all credits of the peer are used up, and it sent one
 * more. */
static uint8_t *copy_take(struct sl_verbs_ep *ep)
{
    unsigned i = (unsigned)__builtin_ctz(~ep->copies_used | 1u << 31);

    if (i >= SL_VERBS_CREDITS)
        return NULL;
    ep->copies_used |= 1u << i;
    return ep->copies + (size_t)i * ep->iface->slot_bytes;
}

/* Keeps a frame until its receive is posted: in its buffer, which its sender has a credit less for.
 * But not the last ones, which many connections share: the frame that all others wait for may need
 * one. */
static void hold(struct sl_verbs_path *path, struct sl_verbs_rx_msg *msg, uint32_t slot)
{
    struct sl_verbs_ep *ep = path->ep;

    if (path->rail == NULL || sl_verbs_few_receives(path)) {
        msg->copy = copy_take(ep);
        if (msg->copy == NULL) {
            sl_verbs_ep_fail(ep, -EPROTO, "%s sends more than the %d frames that there is room for",
                             sl_ep_peer_name(&ep->base), SL_VERBS_CREDITS);
            sl_verbs_slot_put(path->rail, slot);
            return;
        }
        memcpy(msg->copy, frame_bytes(path, slot) + SL_VERBS_FRAME_BYTES, msg->len);
        sl_verbs_slot_put(path->rail, slot);
    } else {
        msg->slot = slot;
        msg->rail = (uint8_t)path->rail->idx;
    }
    msg->has_frame = true;
    ep->held++;
}

static void on_eager(struct sl_verbs_path *path, const struct sl_verbs_frame *frame, uint32_t slot)
{
    struct sl_verbs_ep *ep = path->ep;
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, frame->number);
    int err;

    msg->came = true;
    msg->tag = frame->tag;
    msg->len = frame->len;
    if (!is_posted(ep, frame->number)) {
        hold(path, msg, slot);
        return;
    }
    err = match(ep, frame->number, msg->sink, frame->tag, frame->len);
    if (err == 0 && needs_copy(msg)) {
        hold(path, msg, slot);
        if (msg->has_frame)
            copy_waiting(ep, frame->number);
        return;
    }
    if (err == 0)
        hand_over(ep, msg->sink, frame_bytes(path, slot) + SL_VERBS_FRAME_BYTES, frame->len);
    sl_verbs_slot_put(path->rail, slot);
    owe_credit(ep);
    sl_verbs_rx_end(ep, frame->number, err);
}

static void on_rts(struct sl_verbs_ep *ep, const struct sl_verbs_frame *frame)
{
    struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, frame->number);
    int err;

    owe_credit(ep);
    if (is_over(ep, frame->number))
        return;
    msg->has_rts = true;
    msg->tag = frame->tag;
    msg->len = frame->value;
    if (!is_posted(ep, frame->number))
        return;
    err = match(ep, frame->number, msg->sink, frame->tag, frame->value);
    if (err == 0) {
        if (msg->granted > msg->len)
            sl_verbs_grants_trim(ep, frame->number);
        else
            sl_verbs_grant_more(ep, frame->number);
        return;
    }
    drop(ep, frame->number);
    sl_verbs_rx_end(ep, frame->number, err);
}

/* Is there a message of that number that may come now, in a frame or by an RTS? */
static bool may_come(struct sl_verbs_ep *ep, uint32_t number)
{
    const struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

    return number - ep->rx_oldest < SL_VERBS_RX_QUEUE && !is_over(ep, number) && !msg->came &&
           !msg->has_rts;
}

/* What the peer may say at this point; anything else is a defect of it, or of us. */
static int check_order(struct sl_verbs_ep *ep, const struct sl_verbs_frame *frame)
{
    if (frame->fseq != ep->fseq_in)
        return sl_fail(-EPROTO, "frame %u of %s came when %u was due", frame->fseq,
                       sl_ep_peer_name(&ep->base), ep->fseq_in);
    if (ep->credits + frame->credits > SL_VERBS_CREDITS)
        return sl_fail(-EPROTO, "%s gives back %u credits of %u", sl_ep_peer_name(&ep->base),
                       frame->credits, SL_VERBS_CREDITS - ep->credits);
    if (frame->kind == SL_VERBS_RTS && is_over(ep, frame->number))
        return 0;
    if ((frame->kind == SL_VERBS_EAGER || frame->kind == SL_VERBS_RTS) &&
        !may_come(ep, frame->number))
        return sl_fail(-EPROTO, "message %u of %s comes twice, or too far ahead of %u",
                       frame->number, sl_ep_peer_name(&ep->base), ep->rx_oldest);
    return 0;
}

void sl_verbs_on_frame(struct sl_verbs_path *path, uint32_t slot, uint32_t got)
{
    struct sl_verbs_ep *ep = path->ep;
    const uint8_t *bytes = frame_bytes(path, slot);
    struct sl_verbs_grant grant;
    struct sl_verbs_frame frame;
    int err = sl_verbs_frame_read(bytes, got, &frame);

    if (err == 0 && frame.kind == SL_VERBS_PING) {
        sl_verbs_slot_put(path->rail, slot);
        sl_verbs_path_pinged(path);
        return;
    }
    if (err == 0 && frame.kind == SL_VERBS_RECORD) {
        sl_verbs_record_take(ep, bytes + SL_VERBS_FRAME_BYTES, frame.len);
        sl_verbs_slot_put(path->rail, slot);
        return;
    }
    if (err == 0)
        err = check_order(ep, &frame);
    if (err == 0 && frame.kind == SL_VERBS_GRANT)
        err = sl_verbs_grant_read(&frame, bytes + SL_VERBS_FRAME_BYTES, &grant);
    if (SL_UNLIKELY(err != 0 || ep->state == SL_VERBS_EP_DOWN)) {
        sl_verbs_slot_put(path->rail, slot);
        if (err != 0)
            sl_verbs_ep_fail(ep, err, "%s", sluice_last_error());
        return;
    }
    ep->fseq_in++;
    ep->credits += frame.credits;
    if (frame.kind == SL_VERBS_EAGER) {
        on_eager(path, &frame, slot);
        return;
    }
    sl_verbs_slot_put(path->rail, slot);
    switch ((enum sl_verbs_frame_kind)frame.kind) {
    case SL_VERBS_RTS: on_rts(ep, &frame); break;
    case SL_VERBS_GRANT: sl_verbs_on_grant(ep, &frame, &grant); break;
    case SL_VERBS_DROP: on_drop(ep, frame.number); break;
    case SL_VERBS_CREDIT:
    case SL_VERBS_EAGER:
    case SL_VERBS_PING:
    case SL_VERBS_RECORD: break;
    }
}

/* ---- what had to wait ---- */

static int push_repeated(struct sl_verbs_ep *ep)
{
    int count = 0;

    while (!sl_list_empty(&ep->repeat) && ep->frame_path != NULL && !ep->frame_path->failing &&
           sl_verbs_path_has_room(ep->frame_path)) {
        struct sl_node *node = sl_list_pop_front(&ep->repeat);

        sl_verbs_path_post_frame(ep->frame_path,
                                 sl_container_of(node, struct sl_verbs_tx_frame, link));
        count++;
    }
    return count;
}

static int push_drops(struct sl_verbs_ep *ep)
{
    int count = 0;

    while (ep->drop_count > 0) {
        struct sl_verbs_tx_frame *frame =
            sl_verbs_frame_new(ep, SL_VERBS_DROP, ep->drops[ep->drop_count - 1]);

        if (frame == NULL)
            break;
        ep->drop_count--;
        sl_verbs_frame_post(ep, frame);
        count++;
    }
    return count;
}

/* Frames that found the way into their GPU's memory busy. */
static int push_gpu(struct sl_verbs_ep *ep)
{
    unsigned waits = ep->gpu_waits;
    int count = 0;

    ep->gpu_waits = 0;
    for (uint32_t number = ep->rx_oldest; number != ep->rx_next && waits > 0; number++) {
        const struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, number);

        if (msg->req == NULL || !msg->has_frame)
            continue;
        waits--;
        count += copy_waiting(ep, number);
    }
    return count;
}

static int push_late(struct sl_verbs_ep *ep)
{
    int count = 0;

    while (ep->late_count > 0) {
        uint32_t number = ep->late[--ep->late_count];

        sl_verbs_rx_end(ep, number, sl_verbs_rx_at(ep, number)->status);
        count++;
    }
    return count;
}

int sl_verbs_ep_push(struct sl_verbs_ep *ep)
{
    int count = push_repeated(ep) + push_late(ep);

    if (SL_UNLIKELY(ep->gpu_waits != 0))
        count += push_gpu(ep);
    sl_verbs_grants_announce(ep);
    count += push_drops(ep);
    if (ep->wants_staging) {
        ep->wants_staging = false;
        for (uint32_t number = ep->rx_oldest; number != ep->rx_next; number++)
            if (sl_verbs_rx_at(ep, number)->has_rts || sl_verbs_rx_at(ep, number)->mr != NULL)
                sl_verbs_grant_more(ep, number);
    }
    if (ep->credits_owed >= CREDITS_DUE) {
        struct sl_verbs_tx_frame *frame = sl_verbs_frame_new(ep, SL_VERBS_CREDIT, 0);

        if (frame != NULL)
            sl_verbs_frame_post(ep, frame);
    }
    return count + sl_verbs_deal(ep);
}

void sl_verbs_cancel(struct sl_verbs_ep *ep, int status)
{
    struct sl_node *node;

    while ((node = sl_list_pop_front(&ep->repeat)) != NULL)
        sl_verbs_frame_free(ep->iface, sl_container_of(node, struct sl_verbs_tx_frame, link));
    ep->late_count = ep->drop_count = 0;
    sl_verbs_gpu_forget(ep); /* memory that is the user's again is written to by nobody */
    sl_verbs_write_cancel(ep);
    for (; ep->tx_oldest != ep->tx_next; ep->tx_oldest++) {
        struct sl_verbs_tx_msg *msg = sl_verbs_tx_at(ep, ep->tx_oldest);
        struct sl_req *req = msg->req;

        msg->req = NULL;
        if (req != NULL)
            sl_req_end(req, status);
    }
    /* Frames that came for receives that never will be: their buffers go back. */
    for (uint32_t i = 0; i < SL_VERBS_RX_QUEUE; i++)
        if (ep->rx[i].has_frame)
            release(ep, &ep->rx[i]);
    for (; ep->rx_oldest != ep->rx_next; ep->rx_oldest++) {
        struct sl_verbs_rx_msg *msg = sl_verbs_rx_at(ep, ep->rx_oldest);
        struct sl_req *req = msg->req;

        *msg = (struct sl_verbs_rx_msg){0};
        if (req != NULL)
            sl_req_end(req, status);
    }
}
