/* SPDX-License-Identifier: Apache-2.0 */
#include "channel_wire.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

const char *cw_engine;
uint8_t message[BIG];
static uint32_t ctrl_seq;

int cw_setup(void **state)
{
    static struct wire w;

    for (size_t i = 0; i < BIG; i++)
        message[i] = (uint8_t)(i * 7 + (i >> 9));
    ctrl_seq = 0;
    wire_open(&w, cw_engine, NULL);
    *state = &w;
    return 0;
}

int cw_teardown(void **state)
{
    wire_close(*state);
    return 0;
}

void cw_again(struct wire *w, const char *const *settings)
{
    wire_close(w);
    ctrl_seq = 0;
    wire_open(w, cw_engine, settings);
}

void cw_up(struct wire *w, unsigned conns, const uint32_t *ids)
{
    wire_connect(w, conns, false);
    for (; *ids != 0; ids++)
        assert_int_equal(w->ops.channel_open(w->ep, *ids), 0);
}

struct sl_tcp_ep *cw_ep(const struct wire *w)
{
    return sl_tcp_ep_of(w->ep);
}

struct sl_tcp_channel *cw_channel(const struct wire *w, uint32_t id)
{
    return sl_tcp_channel_find(cw_ep(w), id);
}

void cw_recv(struct wire *w, struct in *in, uint32_t channel, void *dst, size_t len)
{
    *in = (struct in){.sink = {.dst = dst, .len = len, .tag = channel, .channel = channel}};
    assert_int_equal(w->ops.recv(w->ep, &in->sink, &in->req), 0);
}

int cw_send(struct wire *w, struct out *out, uint32_t channel, const void *bytes, size_t len)
{
    *out = (struct out){.buf = {.addr = bytes, .len = len, .channel = channel}};
    return w->ops.send(w->ep, &out->buf, channel, &out->req);
}

void cw_rounds(struct wire *w)
{
    for (int i = 0; i < 200; i++)
        wire_progress(w);
}

/* len bytes of message, from off on: those at off of the piece's message. */
void cw_say(struct wire *w, unsigned conn, uint32_t channel, uint32_t seq, size_t total, size_t off,
            size_t len)
{
    struct sl_tcp_frame frame = {.type = SL_TCP_DATA,
                                 .len = (uint32_t)len,
                                 .seq = seq,
                                 .channel = channel,
                                 .tag = channel,
                                 .total = total,
                                 .off = off};

    wire_frame(w, conn, &frame, false, message + off);
}

void cw_say_whole(struct wire *w, unsigned conn, uint32_t channel, uint32_t seq, size_t len)
{
    cw_say(w, conn, channel, seq, len, 0, len);
}

void cw_say_close(struct wire *w, uint32_t channel, uint64_t count, uint64_t cut)
{
    struct sl_tcp_frame frame = {
        .type = SL_TCP_CLOSE, .seq = ctrl_seq++, .channel = channel, .tag = count, .total = cut};

    wire_frame(w, 0, &frame, false, NULL);
}

void cw_hear(struct wire *w, unsigned conn, struct sl_tcp_frame *frame, void *payload)
{
    uint8_t header[SL_TCP_FRAME_BYTES];

    wire_read(w, w->fds[conn], header, sizeof(header));
    assert_int_equal(sl_tcp_frame_decode(header, false, frame), 0);
    wire_read(w, w->fds[conn], payload, frame->len);
}

void cw_hear_close(struct wire *w, uint32_t channel, uint64_t count, uint64_t cut)
{
    struct sl_tcp_frame frame;

    cw_hear(w, 0, &frame, NULL);
    assert_int_equal(frame.type, SL_TCP_CLOSE);
    assert_int_equal(frame.channel, channel);
    assert_int_equal(frame.tag, count);
    assert_int_equal(frame.total, cut);
}

void cw_check(struct wire *w, struct in *in, size_t len)
{
    WIRE_UNTIL(w, in->req.status != SL_PENDING);
    assert_int_equal(in->req.status, 0);
    assert_int_equal(in->req.len, len);
    assert_memory_equal(in->sink.dst, message, len);
}

void cw_lost(struct wire *w, const char *why)
{
    WIRE_UNTIL(w, w->downs == 1);
    assert_int_equal(w->down_status, -EBADMSG);
    if (strstr(w->down_why, why) == NULL)
        fail_msg("'%s' does not say '%s'", w->down_why, why);
}
