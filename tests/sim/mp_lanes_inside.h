/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the simulated lanes share. */
#ifndef SL_TESTS_SIM_MP_LANES_INSIDE_H
#define SL_TESTS_SIM_MP_LANES_INSIDE_H

#include "core/err.h"
#include "core/list.h"
#include "tests/sim/mp_lanes.h"

#define LANES_MAX 512
#define LANES_BUFFERS 256

struct lane_packet {
    struct sl_node link; /* of a lane's out, of its peer's arrivals, or of the wire */
    uint32_t number, imm, len, rkey;
    uint64_t addr;
    bool is_write;
    int buffer; /* of a frame that has arrived, or -1 */
    uint8_t *bytes;
    const uint8_t *lent; /* the sender's memory: the same until it is retired */
    unsigned to_side;    /* on the wire: for which lane */
    uint32_t to;
};

struct lane {
    struct sl_mp_path base;
    struct lanes *lanes;
    unsigned side;
    bool open, connected, stopped;
    bool failed, told; /* at its end; and has said so */
    enum lanes_lost lost;
    uint32_t number, peer;   /* never used twice */
    unsigned peer_place;     /* in lanes->lane, where the peer was last */
    struct sl_node out;      /* posted and not delivered */
    struct sl_node arrivals; /* delivered here and not shown */
    uint32_t delivered;      /* of those posted here, at the peer */
    uint32_t acked;          /* of them, acknowledged */
    uint32_t shown;          /* of them, retired */
    uint64_t signalled;      /* by number % 64 */
    uint64_t stuck_ns;       /* since when nothing is acknowledged; SL_NEVER: it is */
    /* on a route: when the first of out arrives or is sent again, and the last one did; when the
     * acknowledge of a delivered one comes back, by number % 64; how often all was silent */
    uint64_t due_ns, free_ns, ack_ns[64];
    bool is_lost;
    unsigned tries;
};

struct lanes_region {
    struct sl_mp_region base;
    struct sl_node link; /* of iface->regions */
    uint8_t *addr;
};

struct lanes_rail {
    struct sl_mp_rail base;
    struct lanes_iface *iface;
    char name[8];
    bool held, dead;
    uint8_t *bytes;
    unsigned buffer_count, free_count;
    uint32_t free[LANES_BUFFERS];
    bool taken[LANES_BUFFERS];
};

struct lanes_iface {
    struct sl_mp_iface mp;
    struct sl_transport_ops ops;
    struct lanes *lanes;
    unsigned side, refuse;
    struct lanes_side with;
    struct lanes_rail rails[LANES_RAILS];
    struct sl_node regions;
    struct lanes_region *staging;
    struct lanes_region *everywhere; /* NULL: lanes reach what is registered alone */
};

struct lanes {
    struct sl_rng rng;
    struct loop *loop;
    uint64_t retry_ns, repeat_ns;
    unsigned repeat_times;
    uint32_t last_number;
    unsigned open_count;
    struct lane *lane[LANES_MAX];
    unsigned lanes_end; /* all places from there on are NULL */
    struct lanes_iface iface[2];
    struct sl_node wire;                                  /* left by senders that have stopped */
    enum lanes_lost blocked[LANES_RAILS][LANES_RAILS][2]; /* [a][b]: what goes there, and back */
    struct lanes_route routes[LANES_RAILS][LANES_RAILS][LANES_TURNS];
    char misuse[200];
};

extern const struct sl_mp_lanes lanes_table;

void lanes_wrong(struct lanes *lanes, const char *fmt, ...) SL_PRINTF(2, 3);
/* Has the lane's end, and does it take packets? */
bool lanes_takes(const struct lane *lane);
/* The first of what is posted arrives at its peer. False: that has no buffer for it. */
bool lanes_deliver(struct lane *lane, struct lane *to);
void lanes_fail(struct lane *lane);
/* What a sender that has stopped had put on the wire moves or is lost. False: there is nothing. */
bool lanes_wire_step(struct lanes *lanes);
struct lane *lanes_find(struct lanes *lanes, unsigned side, uint32_t number);
/* The other end of a lane, or NULL: it is not open any more. */
struct lane *lanes_peer(struct lane *lane);
void lanes_packets_free(struct sl_node *list);
/* The lane sends no more: a part of what was posted is on the wire already, the rest is gone. */
void lanes_flush(struct lane *lane);
int lanes_buffer_take(struct lanes_rail *rail);
/* Shows one completion of the lane. all: also what does not need one by itself yet. False: there is
 * none. */
bool lanes_show(struct lane *lane, bool all);
/* Shows up to budget completions of a rail's lanes, in any order between them; how many. */
unsigned lanes_rail_show(struct lanes_rail *rail, unsigned budget);

#endif
