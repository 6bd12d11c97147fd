/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records between the two ends of a connection: sent over the sideband and, as a frame, over a
 * path that is up; handled once, in the order of their numbers, by whichever way each came first.
 */
#include "verbs/endpoint.h"
#include "verbs/iface.h"
#include "verbs/repair.h"

#include <string.h>

#define SPARE (SL_VERBS_RECORDS / 2) /* that callers' messages leave for paths */
#define TELL_EVERY 8                 /* handled records between words of it */

/* ---- out ---- */

static struct sl_verbs_path *any_path(const struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->path_count; i++) {
        struct sl_verbs_path *path = ep->paths[i];

        if (path != NULL && path->state == SL_VERBS_PATH_UP && !path->failing &&
            sl_verbs_path_has_room(path))
            return path;
    }
    return NULL;
}

/* Sends the record in that place of the queue by a path, unless there is none with room. */
static void send_by_path(struct sl_verbs_ep *ep, unsigned place)
{
    const struct sl_verbs_record *record = &ep->records[place];
    struct sl_verbs_iface *iface = ep->iface;
    struct sl_verbs_path *path = any_path(ep);
    uint32_t len = (uint32_t)sl_verbs_record_size(record);
    struct sl_verbs_frame header = {.kind = SL_VERBS_RECORD, .number = record->seq, .len = len};
    struct sl_verbs_tx_frame *frame;

    if (path == NULL || iface->free_frame_count == 0)
        return;
    frame = sl_container_of(sl_list_pop_front(&iface->free_frames), struct sl_verbs_tx_frame, link);
    iface->free_frame_count--;
    memcpy(frame->bytes, &header, sizeof(header));
    memcpy(frame->bytes + sizeof(header), record, len);
    frame->len = SL_VERBS_FRAME_BYTES + len;
    ep->by_path[place] = true;
    sl_verbs_path_post_record(path, frame);
}

static unsigned place_of(const struct sl_verbs_ep *ep, unsigned i)
{
    return (ep->record_head + i) % SL_VERBS_RECORDS;
}

/* Only a path can carry what is left: those that none had room for, or that were on one that is
 * gone. */
static void flush_by_path(struct sl_verbs_ep *ep)
{
    for (unsigned i = 0; i < ep->record_count; i++)
        if (!ep->arrived[place_of(ep, i)] && !ep->by_path[place_of(ep, i)])
            send_by_path(ep, place_of(ep, i));
}

void sl_verbs_record_flush(struct sl_verbs_ep *ep)
{
    if (SL_UNLIKELY(!ep->sideband_up && ep->state == SL_VERBS_EP_UP))
        flush_by_path(ep);
    while (ep->record_count > 0) {
        const struct sl_verbs_record *record = &ep->records[ep->record_head];
        bool needed = record->kind != SL_VERBS_REC_ACK; /* the next record says more */

        if (!ep->arrived[ep->record_head] && (needed || ep->sideband_up)) {
            if (!ep->sideband_up)
                return;
            int err =
                ep->sideband->iface->ops->ctrl(ep->sideband, record, sl_verbs_record_size(record));

            if (err == -EAGAIN)
                return;
            if (err < 0) {
                ep->sideband_up = false; /* its end will be told by itself */
                return;
            }
        }
        ep->record_head = place_of(ep, 1);
        ep->record_count--;
    }
}

static void push(struct sl_verbs_ep *ep, struct sl_verbs_record *record)
{
    unsigned place = place_of(ep, ep->record_count);

    record->handled = ep->record_told = ep->record_in;
    ep->records[place] = *record;
    ep->arrived[place] = ep->by_path[place] = false;
    ep->record_count++;
    send_by_path(ep, place);
    sl_verbs_record_flush(ep);
    if (ep->record_count > 0)
        sl_verbs_ep_activate(ep);
}

void sl_verbs_record_send(struct sl_verbs_ep *ep, struct sl_verbs_record *record)
{
    if (ep->record_out - ep->record_handled >= SL_VERBS_RECORDS ||
        ep->record_count >= SL_VERBS_RECORDS - 1) {
        sl_verbs_ep_fail(ep, -EHOSTUNREACH,
                         "neither a path nor the TCP connection beside them reaches %s",
                         sl_ep_peer_name(&ep->base));
        return;
    }
    record->seq = ep->record_out++;
    ep->unhandled[record->seq % SL_VERBS_RECORDS] = *record;
    push(ep, record);
}

/* The place of a frame's record in the queue, or -1: the sideband has taken it. */
static int place_by_frame(const struct sl_verbs_ep *ep, const struct sl_verbs_tx_frame *frame)
{
    struct sl_verbs_frame header;

    memcpy(&header, frame->bytes, sizeof(header));
    for (unsigned i = 0; i < ep->record_count; i++)
        if (ep->records[place_of(ep, i)].seq == header.number &&
            ep->records[place_of(ep, i)].kind != SL_VERBS_REC_ACK)
            return (int)place_of(ep, i);
    return -1;
}

void sl_verbs_record_arrived(struct sl_verbs_ep *ep, const struct sl_verbs_tx_frame *frame)
{
    int place = place_by_frame(ep, frame);

    if (place >= 0)
        ep->arrived[place] = true;
}

void sl_verbs_record_lost(struct sl_verbs_ep *ep, struct sl_verbs_tx_frame *frame)
{
    struct sl_verbs_path *path = any_path(ep);
    int place = place_by_frame(ep, frame);

    if (path != NULL) {
        sl_verbs_path_post_record(path, frame);
        return;
    }
    if (place >= 0)
        ep->by_path[place] = false;
    sl_verbs_frame_free(ep->iface,
                        frame); /* the sideband has it too, or flush_by_path() will see to it */
}

void sl_verbs_records_requeue(struct sl_verbs_ep *ep)
{
    ep->record_head = ep->record_count = 0;
    for (uint32_t seq = ep->record_handled; seq != ep->record_out; seq++) {
        ep->records[ep->record_count] = ep->unhandled[seq % SL_VERBS_RECORDS];
        ep->arrived[ep->record_count] = ep->by_path[ep->record_count] = false;
        ep->record_count++;
    }
    sl_verbs_ep_activate(ep);
}

void sl_verbs_records_stranded(struct sl_verbs_path *path)
{
    for (uint32_t i = path->retired; i != path->posted; i++) {
        const struct sl_verbs_wr *wr = &path->wrs[i % SL_VERBS_SQ_DEPTH];
        int place = wr->kind == SL_VERBS_WR_RECORD ? place_by_frame(path->ep, wr->frame) : -1;

        if (place >= 0)
            path->ep->by_path[place] = false;
    }
}

int sl_verbs_ctrl(struct sl_ep *base, const void *msg, size_t len)
{
    struct sl_verbs_ep *ep = sl_verbs_ep_of(base);
    struct sl_verbs_record record = {.kind = SL_VERBS_REC_CALLER, .epoch = (uint16_t)len};

    if (len > SL_CTRL_MAX)
        return sl_fail(-EINVAL, "a control message of %zu bytes; %d is the most", len, SL_CTRL_MAX);
    if (ep->state != SL_VERBS_EP_UP || ep->left)
        return sl_verbs_not_up(ep);
    if (ep->record_out - ep->record_handled >= SL_VERBS_RECORDS - SPARE ||
        ep->record_count >= SL_VERBS_RECORDS - SPARE)
        return -EAGAIN;
    memcpy(record.caller, msg, len);
    sl_verbs_record_send(ep, &record);
    return 0;
}

/* ---- in ---- */

void sl_verbs_record_take(struct sl_verbs_ep *ep, const void *bytes, size_t len)
{
    struct sl_verbs_record record;
    int err = sl_verbs_record_read(bytes, len, &record);

    if (err == 0 && (int32_t)(record.handled - ep->record_handled) > 0) {
        ep->record_handled = record.handled;
        if (ep->hello_due)
            sl_verbs_hello_send(ep);
    }
    if (err == 0 && (record.kind == SL_VERBS_REC_ACK || (int32_t)(record.seq - ep->record_in) < 0))
        return; /* or it came by the other way before */
    if (err == 0 && record.seq - ep->record_in >= SL_VERBS_RECORDS)
        err = sl_fail(-EPROTO, "record %u of %s came when %u was due", record.seq,
                      sl_ep_peer_name(&ep->base), ep->record_in);
    if (err != 0) {
        sl_verbs_ep_fail(ep, err, "%s", sluice_last_error());
        return;
    }
    ep->inbox[record.seq % SL_VERBS_RECORDS] = record;
    ep->in_inbox[record.seq % SL_VERBS_RECORDS] = true;
    sl_verbs_ep_activate(ep);
}

int sl_verbs_inbox_run(struct sl_verbs_ep *ep)
{
    const struct sl_handler *handler = &ep->iface->base.handler;
    bool tell = false;
    int count = 0;

    /* The peer may be connected a moment before this end. Its words wait until our hello, always
     * the first of ours, is said: offers that they call for would overtake it. */
    if (ep->record_out == 0)
        return 0;
    while (ep->in_inbox[ep->record_in % SL_VERBS_RECORDS] && ep->state != SL_VERBS_EP_DOWN) {
        unsigned place = ep->record_in++ % SL_VERBS_RECORDS;
        struct sl_verbs_record record = ep->inbox[place];

        if (record.kind == SL_VERBS_REC_OFFER && ep->iface->makes == 0) {
            ep->record_in--; /* in the next round */
            break;
        }
        ep->in_inbox[place] = false;
        tell |= record.kind == SL_VERBS_REC_HELLO; /* the peer's next one waits for the word */
        if (record.kind != SL_VERBS_REC_CALLER)
            sl_verbs_on_record(ep, &record);
        else if (handler->ctrl != NULL)
            handler->ctrl(handler->arg, &ep->base, record.caller, record.epoch);
        count++;
    }
    tell &= ep->record_in != ep->record_told;
    if ((tell || ep->record_in - ep->record_told >= TELL_EVERY) && ep->state != SL_VERBS_EP_DOWN) {
        struct sl_verbs_record record = {.kind = SL_VERBS_REC_ACK};

        if (ep->record_count < SL_VERBS_RECORDS - 1)
            push(ep, &record);
    }
    return count;
}
