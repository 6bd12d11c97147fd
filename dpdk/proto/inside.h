/* SPDX-License-Identifier: Apache-2.0 */
/* A flow from the inside: what the files of dpdk/proto share. */
#ifndef SL_DPDK_PROTO_INSIDE_H
#define SL_DPDK_PROTO_INSIDE_H

#include "core/err.h"
#include "core/list.h"
#include "dpdk/cc/cc.h"
#include "dpdk/cc/wheel.h"
#include "dpdk/proto/flow.h"
#include "dpdk/proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DP_PLACES_LEAST 64u /* of packets, at the start; a word of bits */
#define SL_DP_WINDOW_MOST 1024u
#define SL_DP_REORDER_LEAST 3u /* packets that pass another one before it counts as lost */
#define SL_DP_REORDER_MOST 64u
#define SL_DP_NEVER UINT64_MAX
#define SL_DP_TURN_NS UINT64_C(50000) /* to a reply; a quarter of what a sender probes after */
/* That an answer waits for more packets: half of what a sender probes after. */
#define SL_DP_HELD_NS UINT64_C(100000)
#define SL_DP_HELD_MOST 32u /* packets of a route that it waits for */
/* Of a message that may go first: less than frames have that try a path, as these go as data. */
#define SL_DP_HIGH_BYTES 1000u
#define SL_DP_HIGH_PACKETS 4u /* under way, of a flow whose packets go first */

/* Sequence numbers and stamps wrap. */
static inline int32_t sl_dp_after(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b);
}

/* ---- sending ---- */

enum sl_dp_tx_state { SL_DP_TX_OVER, SL_DP_TX_FLYING, SL_DP_TX_LOST };

/* A packet between `una` and `next`, at its number's place. */
struct sl_dp_tx {
    uint64_t sent_ns; /* the last time; 0: never */
    uint32_t offset;  /* in its message */
    uint32_t stamp;   /* of that transmission, on its route */
    uint32_t next,
        prev; /* numbers: in its route's list of those under way, or the flow's of lost */
    uint16_t len;
    uint8_t state, route, message;
    uint8_t flags;   /* SL_DP_FLAG_LAST, SL_DP_FLAG_WRITE */
    uint8_t repeats; /* up to 255 */
    uint8_t parts;   /* that went, while the port was too full for all of it */
};
_Static_assert(sizeof(struct sl_dp_tx) == 32, "two to a cache line");

/* Packets in order of transmission, linked by number. */
struct sl_dp_seqs {
    uint32_t head, tail, count;
};

struct sl_dp_message {
    const uint8_t *bytes;
    uint32_t len, imm, base;
    uint32_t end_seq; /* one past its last packet, once that was cut */
    uint32_t held;    /* payloads that the port still reads */
    bool is_write;
};

struct sl_dp_probe {
    uint64_t sent_ns;
    uint16_t stamp, len; /* of the payload */
    bool is_out;         /* not answered yet */
};

/* A route as its sender sees it. */
struct sl_dp_route {
    struct sl_dp_cc_state cc;
    struct sl_dp_seqs flying;
    uint32_t sent;           /* transmissions: the next one's stamp */
    uint32_t high;           /* one past the greatest stamp that is known to have arrived */
    uint32_t echoed;         /* stamp of the last RTT sample, plus one */
    uint32_t newly;          /* acknowledged since cc heard of it */
    uint32_t came, ce;       /* as the peer counts */
    uint32_t blamed, excess; /* declared lost; of them more than were missing */
    uint32_t reorder;        /* packets that may pass another one */
    uint32_t unasked;        /* packets since one whose answer may not wait */
    uint32_t calm;           /* acknowledged since reorder changed */
    uint32_t loss_ppm;       /* smoothed over 512 packets */
    uint32_t judged;         /* packets since it is up, for loss_ppm to mean something */
    uint32_t large_lost;     /* packets above payload_least lost again since one arrived */
    uint64_t srtt_ns, var_ns, least_ns, latest_ns;
    uint64_t progress_ns;   /* what was sent by it arrived, as was learnt then */
    uint64_t last_ns;       /* when a packet went by it last */
    uint64_t retry_ns;      /* evicted: the next probe */
    uint64_t patience_ns;   /* between probes; doubles */
    uint64_t up_ns;         /* since when it is up */
    uint64_t backed_off_ns; /* the last eviction's patience */
    struct sl_dp_probe probe;
    uint8_t timeouts;                  /* in a row */
    uint8_t answers;                   /* of probes in a row, while evicted */
    uint8_t weight;                    /* 1 to 100 */
    bool is_up, is_avoided, is_probed; /* is_probed: the tail-loss probe is out */
    uint64_t sent_bytes, sent_packets, lost_packets, marked_packets, failures;
};

/* ---- receiving ---- */

/* A packet that came before its turn, at its number's place. */
struct sl_dp_rx {
    uint32_t imm, offset, end;
    uint8_t flags, parts; /* parts: bits of those that came, while some are missing */
};

/* A route as its receiver sees it. */
struct sl_dp_rx_route {
    uint64_t came_ns; /* when echo did */
    uint32_t came, ce, echo;
    uint32_t pending; /* packets since the last answer */
    uint32_t away_ns;
    uint16_t stamp;
    uint8_t wary; /* packets whose answers do not wait, as one before them is missing */
    bool is_known;
    bool is_again; /* since the last answer a packet came that had been sent before */
};

struct sl_dp_mtu {
    uint64_t at_ns;   /* the next try */
    uint64_t wait_ns; /* after all sizes were tried; doubles */
    uint16_t payload; /* of a DATA packet now */
    uint16_t size;    /* that is tried; 0: none */
    uint16_t passed;  /* routes on which it did */
    uint8_t tries;
};

struct sl_dp_flow {
    struct sl_node ready; /* in engine->ready or ->waiting */
    struct sl_dp_engine *engine;
    void *owner;
    struct sl_dp_timer timer;
    struct sl_dp_ends ends;
    bool has_failed, is_stuck; /* is_stuck: the port's queue was full */
    size_t len;                /* of this allocation */

    /* what it sends */
    struct sl_dp_tx *tx;
    uint64_t *acked; /* a bit for a place: acknowledged though not una yet */
    uint32_t tx_mask;
    uint32_t una, next, limit; /* limit: the first that the peer has no room for */
    uint32_t plain_end;        /* one past the last packet that did not go first */
    struct sl_dp_seqs lost;
    uint32_t posted, cut, arrived, retired; /* messages, as ordinals: next to be ... */
    uint32_t cut_offset;                    /* of message `cut` */
    uint64_t unsent;                        /* bytes that were posted and not cut */
    bool follows;                           /* more than that is to be posted: send.c */
    uint8_t route_count, last_route;
    uint8_t same_route;  /* packets that may go by last_route without another choice */
    uint8_t weight_most; /* of its routes */
    uint16_t usable;     /* routes that are up, and if there are such, not avoided */
    bool is_excused;     /* its timer was put off, as this process had not run */
    uint64_t heard_ns;   /* when the peer said something new */
    uint64_t silent_ns;  /* since when it owes that, but for time in which this end was stopped */
    struct sl_dp_head head; /* of DATA, what does not change */
    struct sl_dp_mtu mtu;

    /* what it receives */
    struct sl_dp_rx *rx;
    uint64_t *came; /* a bit for a place: came before its turn */
    uint32_t rx_mask;
    uint32_t due;           /* the first packet that did not come */
    uint32_t seen;          /* one past the last that did */
    uint32_t rx_imm, rx_at; /* message that is being received: its immediate, where it goes on */
    uint32_t rx_len;        /* and what came of it in order */
    uint8_t rx_flags;
    bool rx_within;    /* it has begun */
    bool rx_waits;     /* its answer waits for one more run, or has (receive.c) */
    bool takes_turns;  /* the owner has replied to a frame that came alone, within SL_DP_TURN_NS */
    uint16_t rx_dirty; /* routes of the peer that are owed an answer */
    uint16_t rx_asked; /* of them those whose answer does not wait for more packets */
    uint64_t rx_since_ns; /* when the first packet came that is owed one */
    uint64_t alone_ns;    /* when a frame came alone last */
    struct sl_dp_rx_route rx_route[SL_DP_ROUTES_MAX];

    struct sl_dp_flow_stats stats;
    struct sl_dp_message message[SL_DP_MESSAGES_MAX];
    struct sl_dp_route route[]; /* route_count */
};

static inline struct sl_dp_tx *sl_dp_tx_at(const struct sl_dp_flow *flow, uint32_t seq)
{
    return &flow->tx[seq & flow->tx_mask];
}

static inline struct sl_dp_message *sl_dp_message_at(struct sl_dp_flow *flow, uint32_t ordinal)
{
    return &flow->message[ordinal % SL_DP_MESSAGES_MAX];
}

/* 64 bits from seq on, of a ring of bits with mask + 1 places. */
static inline uint64_t sl_dp_bits(const uint64_t *ring, uint32_t mask, uint32_t seq)
{
    uint32_t word = (seq & mask) / 64, shift = seq % 64;
    uint64_t low = ring[word] >> shift;

    return shift == 0 ? low : low | ring[(word + 1) & (mask / 64)] << (64 - shift);
}

static inline bool sl_dp_bit(const uint64_t *ring, uint32_t mask, uint32_t seq)
{
    return (ring[(seq & mask) / 64] >> (seq % 64) & 1) != 0;
}

static inline void sl_dp_bit_set(uint64_t *ring, uint32_t mask, uint32_t seq)
{
    ring[(seq & mask) / 64] |= UINT64_C(1) << (seq % 64);
}

static inline void sl_dp_bit_clear(uint64_t *ring, uint32_t mask, uint32_t seq)
{
    ring[(seq & mask) / 64] &= ~(UINT64_C(1) << (seq % 64));
}

static inline void sl_dp_seqs_push(struct sl_dp_flow *flow, struct sl_dp_seqs *list, uint32_t seq)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);

    tx->prev = list->tail;
    if (list->count++ == 0)
        list->head = seq;
    else
        sl_dp_tx_at(flow, list->tail)->next = seq;
    list->tail = seq;
}

static inline void sl_dp_seqs_remove(struct sl_dp_flow *flow, struct sl_dp_seqs *list, uint32_t seq)
{
    struct sl_dp_tx *tx = sl_dp_tx_at(flow, seq);

    list->count--;
    if (seq == list->head)
        list->head = tx->next;
    else
        sl_dp_tx_at(flow, tx->prev)->next = tx->next;
    if (seq == list->tail)
        list->tail = tx->prev;
    else
        sl_dp_tx_at(flow, tx->next)->prev = tx->prev;
}

/* The peer said something new. */
static inline void sl_dp_heard(struct sl_dp_flow *flow)
{
    flow->heard_ns = flow->silent_ns = flow->engine->now_ns;
}

/* The next run sees to it. */
static inline void sl_dp_ready(struct sl_dp_flow *flow)
{
    if (flow->rx_waits) {
        flow->rx_waits = false;
        sl_list_remove(&flow->ready);
    }
    if (sl_list_empty(&flow->ready))
        sl_list_push_back(&flow->engine->ready, &flow->ready);
}

/* The run after the next one sees to its answer, where no run sees to it before. */
static inline void sl_dp_wait(struct sl_dp_flow *flow)
{
    if (!sl_list_empty(&flow->ready))
        return;
    flow->rx_waits = true;
    sl_list_push_back(&flow->engine->waiting, &flow->ready);
}

/* The flow's timer fires by then. */
static inline void sl_dp_wake(struct sl_dp_flow *flow, uint64_t at_ns)
{
    if (!sl_dp_timer_armed(&flow->timer) || at_ns < flow->timer.at_ns)
        sl_dp_wheel_arm(flow->engine->wheel, &flow->timer, at_ns);
}

/* It waits for the peer: something is posted that has not arrived. */
static inline bool sl_dp_busy(const struct sl_dp_flow *flow)
{
    return flow->arrived != flow->posted;
}

/* flow.c */
void sl_dp_engine_look(struct sl_dp_engine *engine, uint64_t now_ns);
void sl_dp_fail(struct sl_dp_flow *flow, int status, const char *fmt, ...) SL_PRINTF(3, 4);
void *sl_dp_alloc(struct sl_dp_engine *engine, size_t len);
void sl_dp_free(struct sl_dp_engine *engine, void *memory, size_t len);

/* send.c */
/* Sends what the windows allow, up to budget packets; how many. */
unsigned sl_dp_send(struct sl_dp_flow *flow, unsigned budget);
/* One packet by that route, whatever its window says. -EAGAIN: the port is full. */
int sl_dp_transmit(struct sl_dp_flow *flow, unsigned route, uint32_t seq, uint8_t flags);
/* Tells retired() what may be told. */
void sl_dp_retire(struct sl_dp_flow *flow);

/* receive.c */
/* Answers the routes that are owed it, but for those whose answer may still wait. -EAGAIN: the port
 * is full. */
int sl_dp_answer(struct sl_dp_flow *flow);

/* recover.c */
void sl_dp_acknowledged(struct sl_dp_flow *flow, const struct sl_dp_head *head, const void *payload,
                        size_t len);
/* The flow's timer: timeouts, probes, paced packets. */
void sl_dp_expire(struct sl_dp_timer *timer, uint64_t now_ns);
uint64_t sl_dp_probe_timeout(const struct sl_dp_flow *flow, const struct sl_dp_route *route);
/* Everything under way on the route is lost. */
void sl_dp_lose_all(struct sl_dp_flow *flow, struct sl_dp_route *route);

/* route.c */
void sl_dp_route_init(struct sl_dp_flow *flow, struct sl_dp_route *route);
/* The best route with room for a packet, or NULL. */
struct sl_dp_route *sl_dp_route_choose(struct sl_dp_flow *flow, uint64_t now_ns);
/* Packets that may go by it now. */
uint32_t sl_dp_route_room(const struct sl_dp_flow *flow, const struct sl_dp_route *route);
/* By which the answer to a packet of the peer's route goes. */
unsigned sl_dp_route_back(const struct sl_dp_flow *flow, unsigned peer_route);
/* Gives it up if another one works. True: it did. */
bool sl_dp_route_evict(struct sl_dp_flow *flow, struct sl_dp_route *route);
/* It lost a packet: is it much worse than the others? */
void sl_dp_route_judge(struct sl_dp_flow *flow, struct sl_dp_route *route);
/* The probe that is out was answered. */
void sl_dp_route_answered(struct sl_dp_flow *flow, struct sl_dp_route *route);
/* Sends what is due of probes of evicted routes; when the next one is. */
uint64_t sl_dp_route_probes(struct sl_dp_flow *flow, uint64_t now_ns);
/* All that are up are in trouble: those that were given up may be better by now. */
void sl_dp_routes_retry(struct sl_dp_flow *flow);

/* mtu.c */
void sl_dp_mtu_init(struct sl_dp_flow *flow);
/* A probe of so many bytes of payload. */
void sl_dp_probe(struct sl_dp_flow *flow, struct sl_dp_route *route, uint16_t len);
void sl_dp_probe_received(struct sl_dp_flow *flow, const struct sl_dp_head *head, size_t len);
void sl_dp_probe_answered(struct sl_dp_flow *flow, const struct sl_dp_head *head);
/* Sends what is due of probes for a larger MTU; when the next one is. */
uint64_t sl_dp_mtu_probes(struct sl_dp_flow *flow, uint64_t now_ns);
/* Something small passed by the route; where large packets do not, packets become small. */
void sl_dp_mtu_check(struct sl_dp_flow *flow, struct sl_dp_route *route);

#endif
