/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages over a flow of dp_wire.h, and what must hold of them: each byte is right, each message
 * arrives once and in order, is retired after it arrived, and nobody reads or writes its memory
 * then (it is overwritten and freed).
 */
#ifndef SL_TESTS_SIM_DP_TRAFFIC_H
#define SL_TESTS_SIM_DP_TRAFFIC_H

#include "core/err.h"
#include "tests/sim/dp_wire.h"

struct dp_message {
    uint8_t *out, *in;
    uint32_t len, base;
    bool is_write;
};

/* One direction of a flow. */
struct dp_stream {
    struct dp_end *from, *to;
    struct dp_message *message;
    unsigned count, posted, arrived, retired;
    unsigned depth;                  /* posted and not retired at most */
    unsigned frames, frames_most;    /* receive buffers in use, and there are */
    unsigned laters;                 /* times that there was none */
    uint64_t arrived_bytes, done_ns; /* done_ns: when the last one arrived */
    bool is_bulk;                    /* bytes are neither copied nor looked at */
    bool is_hostile;                 /* what breaks the rules is refused, and no mistake */
    bool is_torn;                    /* and ended a message early: the rest is one more */
    int status;                      /* of its sender's end */
    uint64_t failed_ns;
    uint64_t *sent_ns, *took_ns; /* of each message: posted, and how long until it arrived */
};

struct dp_traffic {
    struct dp_wire *wire;
    struct dp_stream stream[DP_ENDS_MAX]; /* at its sender's number in wire->end[] */
    char wrong[256];                      /* the first thing that must not be; empty: none */
};

extern const struct dp_user dp_traffic_user;

void dp_traffic_init(struct dp_traffic *traffic, struct dp_wire *wire);
void dp_traffic_fini(struct dp_traffic *traffic);
/* count messages from that end to its peer; their sizes are drawn or set after, by
 * dp_message_size(). */
struct dp_stream *dp_stream_add(struct dp_traffic *traffic, struct dp_end *from, unsigned count,
                                unsigned depth);
void dp_message_size(struct dp_stream *stream, unsigned idx, uint32_t len, bool is_write);
/* Posts what may be posted. */
void dp_stream_pump(struct dp_stream *stream);
bool dp_stream_done(const struct dp_stream *stream);
/* Runs until all streams are done, something is wrong, or that time. True: all are done. */
bool dp_traffic_run(struct dp_traffic *traffic, uint64_t until_ns);
/* Closes an end, and frees what its messages lie in. */
void dp_traffic_close(struct dp_traffic *traffic, struct dp_end *end);
void dp_wrong(struct dp_traffic *traffic, const char *fmt, ...) SL_PRINTF(2, 3);

#endif
