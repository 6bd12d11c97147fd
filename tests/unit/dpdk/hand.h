/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a flow, with the test as its peer: what it sends is kept, what it gets is made. */
#ifndef SL_TESTS_UNIT_DPDK_HAND_H
#define SL_TESTS_UNIT_DPDK_HAND_H

#include "dpdk/cc/cc.h"
#include "dpdk/proto/inside.h"

#define HAND_SENT 4096
#define HAND_MS UINT64_C(1000000)

struct hand_packet {
    struct sl_dp_head head;
    struct sl_dp_ack ack; /* of an answer */
    uint32_t payload_len;
    uint8_t first; /* byte of the payload */
    uint16_t route;
    uint8_t message;
    bool is_high;
};

struct hand {
    struct sl_dp_engine engine;
    struct sl_dp_flow *flow;
    uint64_t now_ns;
    struct hand_packet sent[HAND_SENT];
    unsigned count; /* of them */
    unsigned room;  /* packets that the port takes; UINT_MAX: any */
    bool keeps;     /* the port reads payloads later */
    uint8_t memory[65536];
    void *refuse; /* what place() returns instead, if `refuses` */
    bool refuses;
    unsigned places, arrivals, retired, failures, ups, downs;
    uint32_t arrived_imm, arrived_len, placed_off;
    int status;
    unsigned allocations_left; /* UINT_MAX: any */
    size_t held;               /* bytes */
};

/* What the congestion control was told; hand_cc has a window that the test sets. */
extern struct hand_cc_log {
    uint32_t window; /* packets; hand_start() sets 1024 */
    uint64_t pace_ns;
    unsigned inits, acks, losses, lost, timeouts;
    struct sl_dp_cc_ack last;
} hand_cc_log;
extern const struct sl_dp_cc hand_cc;
extern const struct sl_dp_ends hand_ends; /* one route, 1000 to 1000 bytes */

void hand_start(struct hand *hand, const struct sl_dp_ends *ends);
void hand_stop(struct hand *hand);
/* Time goes on by so much, then it runs. */
void hand_run(struct hand *hand, uint64_t ns);
/* Time goes on in steps of at most step_ns. */
void hand_idle(struct hand *hand, uint64_t ns, uint64_t step_ns);
/* Posts a write of len bytes, each of them `byte`. */
void hand_post(struct hand *hand, uint32_t imm, uint32_t len);
/* DATA from the peer; the check and the secret are right. */
void hand_data(struct hand *hand, struct sl_dp_head head, uint8_t byte, uint32_t len);
/* An answer: what is not given is as after `came` packets in order by that route. */
void hand_ack(struct hand *hand, unsigned route, uint32_t seq, uint32_t stamp, uint32_t echo,
              uint32_t came, uint64_t sack);
void hand_probe_reply(struct hand *hand, unsigned route, uint16_t stamp, uint32_t len);
/* The last packet of that kind that was sent; NULL: none since `from`. */
const struct hand_packet *hand_last(const struct hand *hand, unsigned kind, unsigned from);
unsigned hand_count(const struct hand *hand, unsigned kind, unsigned from);

#endif
