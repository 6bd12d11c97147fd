/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reliable protocol of the DPDK transport, without I/O, clock, chance, environment or memory of
 * its own: all of these are handed to it, so that it runs in the simulator as it runs on a port.
 *
 * A flow is one lane (multipath/lane.h) between a port of this host and one of the peer: messages
 * of at most 2^32 - 1 bytes, in order, each exactly once, cut into packets that are numbered in one
 * sequence space. It goes by one or more routes, which differ in their UDP source port, so that a
 * fabric with equal-cost paths carries them over different links; each route has its own RTT, loss
 * and window (dpdk/cc).
 *
 *   sl_dp_flow_post()              sl_dp_flow_receive()
 *        v                                v
 *   send.c: cut, window, pacing      receive.c: window, place, order, answer
 *        v                                v
 *   ops->packet()                    ops->place(), arrived()
 *        ^                                v
 *   recover.c: what is lost   <---   ack: retired(), RTT, marks (cc/)
 *
 * Three words for lifetimes, as in core/transport.h: borrowed, lent, owned.
 */
#ifndef SL_DPDK_PROTO_FLOW_H
#define SL_DPDK_PROTO_FLOW_H

#include "core/list.h"
#include "dpdk/proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DP_ROUTES_MAX 16
#define SL_DP_PAYLOAD_MOST 9600
#define SL_DP_MESSAGES_MAX 64 /* posted and not retired: SL_MP_WINDOW */

struct sl_dp_engine;
struct sl_dp_flow;

/* A packet to send. head and payload are borrowed; but where payload memory is lent (see
 * sl_dp_ops.packet) its bytes stay as they are until the message is retired. */
struct sl_dp_packet {
    const void *head; /* head_len bytes; the check and a CRC that follows are the protocol's */
    const void *payload;
    uint32_t head_len, payload_len;
    uint32_t tail; /* CRC32C of both, to follow the payload */
    bool has_tail;
    bool is_lent; /* payload is part of the message that `message` counts */
    bool is_high; /* for the class that goes first in the network's queues, where there is one */
    uint16_t route;
    uint8_t message; /* place of the message in its flow: for sl_dp_flow_sent() */
};

struct sl_dp_ops {
    /* Sends one packet of the flow. 0: taken. 1: taken, and the payload is still read (a NIC's
     * queue): sl_dp_flow_sent() says when no more; until then its message is not retired.
     * -EAGAIN: the port's queue is full; the protocol stops and goes on in the next run. */
    int (*packet)(struct sl_dp_flow *flow, const struct sl_dp_packet *packet);
    /* Where len bytes at offset off (post()'s base and more) of a message with that immediate
     * belong. NULL: nowhere, the peer broke the rules; the flow fails. SL_DP_LATER: no memory now;
     * the packet counts as lost. (The message that arrives next must get some in the end, whatever
     * later ones hold: else each waits for the other.) Called in any order of the packets; never
     * for a packet that came before, but again for bytes that did where a packet came in parts and
     * as a whole. */
    void *(*place)(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off,
                   uint32_t len);
    /* The next message, in order, is whole: len bytes, from its first packet's offset on. */
    void (*arrived)(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len);
    /* Messages up to number `ordinal` (posts of this flow count from 0) have arrived at the peer,
     * and nothing reads their memory any more. */
    void (*retired)(struct sl_dp_flow *flow, uint32_t ordinal);
    /* Once: it cannot go on. why is borrowed; the owner closes it later, not in this call. */
    void (*failed)(struct sl_dp_flow *flow, int status, const char *why);
    /* For events: a route was given up (up false) or is back. May be NULL. */
    void (*route_changed)(struct sl_dp_flow *flow, unsigned route, bool up);
};
#define SL_DP_LATER ((void *)1)

struct sl_dp_settings {
    uint32_t window;       /* packets of a flow under way, a power of two, 64 to 1024 */
    uint32_t ack_packets;  /* answered at the latest after so many; 0: once per run */
    uint64_t rto_least_ns; /* floor of the retransmission timeout */
    uint64_t dead_ns;      /* without any answer for so long the flow fails */
    uint64_t target_ns;    /* of queueing delay, beyond the least RTT: dpdk/cc/cc.h */
    const struct sl_dp_cc *cc;
    bool crc; /* payload is checked: either end may ask for it */
};

/* One per worker and process: what its flows share. Its owner embeds it. */
struct sl_dp_engine {
    const struct sl_dp_ops *ops;
    struct sl_dp_settings settings;
    void *(*alloc)(void *arg, size_t len); /* zeroed; at setup and when a window grows */
    void (*free)(void *arg, void *memory, size_t len);
    void *arg;
    uint64_t now_ns;           /* as last told */
    uint64_t looked_ns;        /* when it last looked at the network: in receive() or run() */
    uint64_t away_ns;          /* between that time and the one before: it did not look */
    struct sl_node ready;      /* flows that have something to send or to answer */
    struct sl_node waiting;    /* and those whose answer is for the run after the next one */
    struct sl_dp_wheel *wheel; /* timers and paced flows: dpdk/cc/wheel.h */
    uint64_t dropped_bad, dropped_secret, dropped_crc; /* packets that were none */
    uint64_t dropped_later;                            /* and that there was no memory for */
};

/* It is now_ns: packets are stamped with it. receive() and run() do it themselves; call it before a
 * post() that comes long after. Time never goes back. */
static inline void sl_dp_engine_tick(struct sl_dp_engine *engine, uint64_t now_ns)
{
    if (now_ns > engine->now_ns)
        engine->now_ns = now_ns;
}

/* The owner has set ops, settings, alloc, free and arg. -ENOMEM, -EINVAL. */
int sl_dp_engine_init(struct sl_dp_engine *engine, uint64_t now_ns);
/* All flows are closed. */
void sl_dp_engine_fini(struct sl_dp_engine *engine);
/* Sends what may go, answers, fires timers. budget: packets. How many things moved. Call after the
 * packets of a burst were received, with the same now_ns. */
unsigned sl_dp_engine_run(struct sl_dp_engine *engine, uint64_t now_ns, unsigned budget);
/* The next run answers all that is owed an answer: none follows it for a while. */
void sl_dp_engine_hurry(struct sl_dp_engine *engine);
/* When it has to run next if nothing comes: now_ns for at once, UINT64_MAX: never. */
uint64_t sl_dp_engine_next(const struct sl_dp_engine *engine);

/* What the two ends of a flow agreed on, over the sideband. */
struct sl_dp_ends {
    uint32_t own_number, peer_number; /* of the flow, as its receiver knows it */
    uint64_t own_secret, peer_secret;
    uint8_t version; /* the greatest that both have */
    uint8_t routes;  /* by which this end sends, from 1 */
    bool crc;
    uint32_t payload_least; /* bytes of a DATA packet that surely pass */
    uint32_t payload_most;  /* that both ports could; found by probes beyond payload_least */
};

/* owner is handed back by sl_dp_flow_owner(). -ENOMEM. */
int sl_dp_flow_open(struct sl_dp_engine *engine, const struct sl_dp_ends *ends, void *owner,
                    struct sl_dp_flow **out);
/* Nothing more is sent, placed or told. Takes NULL. */
void sl_dp_flow_close(struct sl_dp_flow *flow);
void *sl_dp_flow_owner(const struct sl_dp_flow *flow);
struct sl_dp_engine *sl_dp_flow_engine(const struct sl_dp_flow *flow);

/* Takes a message, of which fewer than SL_DP_MESSAGES_MAX are posted and not retired. Its bytes are
 * lent until retired() says so; base is what place() at the peer gets for its first byte, and
 * base + len at most 2^32 - 1. Sends it in this call as far as the window allows, as of
 * engine->now_ns. Calls nothing but packet(). */
void sl_dp_flow_post(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t base,
                     const void *bytes, uint32_t len);
/* Of each message that is posted from now on: does another one follow as soon as there is room? The
 * answer to its last packet may wait then: for 100 us where none follows after all. */
void sl_dp_flow_expect(struct sl_dp_flow *flow, bool more);
/* The same of a message of one packet with nothing before it, where nothing depends on what time
 * it is: the clock need not be read before the packet is with the port. sl_dp_flow_left() follows,
 * with that time, before anything else is done with the engine. False: not taken, as it does. */
bool sl_dp_flow_post_early(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t base,
                           const void *bytes, uint32_t len);
void sl_dp_flow_left(struct sl_dp_flow *flow, uint64_t now_ns);
/* Bytes that were posted and have not been sent once. */
uint64_t sl_dp_flow_unsent(const struct sl_dp_flow *flow);
/* The port has read a payload for which packet() returned 1. retired() comes from the next run. */
void sl_dp_flow_sent(struct sl_dp_flow *flow, uint8_t message);

/* A packet that carries the flow's number, from the UDP payload on, borrowed. is_marked: congestion
 * experienced (ECN CE). Anything may be in it. True: it was the flow's. */
bool sl_dp_flow_receive(struct sl_dp_flow *flow, const void *bytes, size_t len, bool is_marked,
                        uint64_t now_ns);

struct sl_dp_route_stats {
    bool is_up;
    uint32_t rtt_ns, rtt_least_ns, loss_ppm; /* smoothed; of the last thousands of packets */
    uint8_t weight;                          /* as sl_dp_route_weight() set it */
    bool is_avoided;
    uint64_t window_bytes; /* that cc allows */
    uint64_t sent_bytes;
    uint64_t sent_packets, lost_packets, marked_packets, failures;
};
struct sl_dp_flow_stats {
    uint64_t sent_bytes, sent_packets, resent_packets, spurious_packets;
    uint64_t received_packets, repeated_packets, acks_sent, acks_received, timeouts, probes;
    uint32_t payload_bytes; /* of the largest DATA packet now */
};
void sl_dp_flow_stats(const struct sl_dp_flow *flow, struct sl_dp_flow_stats *out);
void sl_dp_route_stats(const struct sl_dp_flow *flow, unsigned route,
                       struct sl_dp_route_stats *out);
/* Weight of a route against the others, 1 to 100, and whether it is avoided while another is up
 * (docs/paths.md). */
void sl_dp_route_weight(struct sl_dp_flow *flow, unsigned route, unsigned weight, bool is_avoided);

#endif
