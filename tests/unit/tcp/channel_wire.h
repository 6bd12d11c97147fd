/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of several channels between a real endpoint and a hand-made peer. */
#ifndef TESTS_TCP_CHANNEL_WIRE_H
#define TESTS_TCP_CHANNEL_WIRE_H

#include "tcp/tcp.h"
#include "wire_peer.h"

#define BIG ((size_t)300000)

extern const char *cw_engine;
extern uint8_t message[BIG]; /* what both ends send: a part of it, from its start */

struct in {
    struct sl_sink sink;
    struct sl_req req;
};

struct out {
    struct sl_buf buf;
    struct sl_req req;
};

int cw_setup(void **state);
int cw_teardown(void **state);
/* In place of what cw_setup() made: NAME=VALUE pairs, NULL-terminated. */
void cw_again(struct wire *w, const char *const *settings);
/* Connects, and opens the channels of ids, which end with a 0. */
void cw_up(struct wire *w, unsigned conns, const uint32_t *ids);

struct sl_tcp_ep *cw_ep(const struct wire *w);
struct sl_tcp_channel *cw_channel(const struct wire *w, uint32_t id); /* NULL: not known */

/* The real endpoint's. A message's tag is the number of its channel. */
void cw_recv(struct wire *w, struct in *in, uint32_t channel, void *dst, size_t len);
int cw_send(struct wire *w, struct out *out, uint32_t channel, const void *bytes, size_t len);
/* in ends well, with len bytes of message. */
void cw_check(struct wire *w, struct in *in, size_t len);
/* The endpoint is lost with -EBADMSG and that word. */
void cw_lost(struct wire *w, const char *why);
void cw_rounds(struct wire *w);

/* The hand-made peer's: len bytes of a message of total, from off on; a whole one; a CLOSE. */
void cw_say(struct wire *w, unsigned conn, uint32_t channel, uint32_t seq, size_t total, size_t off,
            size_t len);
void cw_say_whole(struct wire *w, unsigned conn, uint32_t channel, uint32_t seq, size_t len);
void cw_say_close(struct wire *w, uint32_t channel, uint64_t count, uint64_t cut);
/* The next frame of a connection. */
void cw_hear(struct wire *w, unsigned conn, struct sl_tcp_frame *frame, void *payload);
void cw_hear_close(struct wire *w, uint32_t channel, uint64_t count, uint64_t cut);

#endif
