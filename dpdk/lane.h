/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow of dpdk/proto as the lane of a path.
 *
 *   multipath/                        post, write             arrived, written, retired, failed
 *      |                                  v                         ^
 *   lane.c   its life: open, connect, stop, close             told.c: what the flow has told,
 *   offer.c  what the peer must know                                  passed on between packets
 *      |                                  v                         ^
 *   dpdk/proto                        sl_dp_flow_post()       sl_dp_flow_receive(), engine's run
 *      v                                  v                         ^
 *   dpdk/port                         sl_dpdk_send()          sl_dpdk_user_poll()
 *
 * Nothing is called up while a flow is at work: multipath/ may stop a lane, or poll it, in any of
 * these calls. The flow's callbacks note what happened in the lane, and sl_dpdk_tell() passes it on
 * once the port's burst is through.
 */
#ifndef SL_DPDK_LANE_H
#define SL_DPDK_LANE_H

#include "core/list.h"
#include "dpdk/port/port.h"
#include "dpdk/proto/flow.h"
#include "dpdk/rail.h"
#include "multipath/path.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_dpdk_iface;

#define SL_DPDK_PROBE_BYTES 1024 /* of the frames that show that a path carries */
/* Not sent yet, from which on no piece is posted: what is posted behind it waits for all of it, and
 * a flow needs no more than its next burst. */
#define SL_DPDK_AHEAD_BYTES (16u << 10)

_Static_assert(SL_DP_MESSAGES_MAX == SL_MP_WINDOW, "a path's window fills its flow's");

/* A message that is whole, and not told yet. */
struct sl_dpdk_told {
    uint32_t imm, len;
    bool is_write;
};

/* By which packets of one route go. */
struct sl_dpdk_route {
    struct sl_dpdk_way way, high; /* high: of packets that go first */
    uint16_t source_port;
    bool is_made; /* they are: the neighbour's MAC is known */
};

struct sl_dpdk_lane {
    struct sl_mp_path base;
    struct sl_dpdk_rail *rail; /* base.rail, of the present flow */
    struct sl_dp_flow *flow;   /* NULL: not connected */
    struct sl_node telling;    /* in iface->telling while something is to be told */
    uint32_t place;            /* in iface->lanes: part of a payload's cookie */
    uint32_t lent;       /* payloads that the port still reads, of this flow or earlier ones */
    uint16_t generation; /* of the flow */
    bool pieces_wait;    /* until the flow has sent some more */
    /* what the flow told: sl_dpdk_tell() passes it on */
    bool is_telling, has_retired, has_failed;
    uint32_t retired; /* up to that number */
    unsigned told_first, told_count;
    struct sl_dpdk_told told[SL_DP_MESSAGES_MAX];
    /* Of frames whose first packet has come, by number: the receive buffer. */
    uint32_t buffers[SL_DP_MESSAGES_MAX];
    /* of setup */
    uint32_t number; /* of the flow, at this end; 0: not open */
    uint64_t secret;
    bool is_direct; /* on one wire with the peer's port */
    struct sl_dpdk_address remote;
    uint32_t label;        /* from which the source ports follow */
    bool has_label;        /* it is chosen, for this end */
    uint16_t label_misses; /* base.misses then */
    int32_t label_wanted;  /* and base.label */
    unsigned route_count;
    struct sl_dpdk_route routes[SL_DP_ROUTES_MAX];
    char why[SL_MP_PATH_WHY]; /* the flow failed */
};

static inline struct sl_dpdk_lane *sl_dpdk_lane_of(struct sl_mp_path *path)
{
    return (struct sl_dpdk_lane *)path;
}

/* lane.c */
extern const struct sl_mp_lanes sl_dpdk_lanes;
struct sl_dpdk_iface *sl_dpdk_lane_iface(const struct sl_dpdk_lane *lane);
/* The first of its source ports. */
static inline uint16_t sl_dpdk_lane_port(const struct sl_dpdk_lane *lane)
{
    return lane->routes[0].source_port;
}

/* route.c */
/* Chooses the label, and with it the source ports, by the path table, the user's list or a draw. */
void sl_dpdk_route_choose(struct sl_dpdk_lane *lane);
/* How many a lane is to have between its ports. */
unsigned sl_dpdk_routes_wanted(const struct sl_dpdk_lane *lane);
/* Routes, as multipath/lane.h has them. */
unsigned sl_dpdk_route_count(const struct sl_mp_path *path);
void sl_dpdk_route_tell(const struct sl_mp_path *path, unsigned route, struct sl_state_path *out);
bool sl_dpdk_route_weigh(struct sl_mp_path *path, unsigned route, unsigned weight, bool is_avoided);
/* Headers of a route, made when the neighbour is known. -EAGAIN: not yet. */
int sl_dpdk_route_make(struct sl_dpdk_lane *lane, unsigned route);

/* told.c */
extern const struct sl_dp_ops sl_dpdk_flow_ops;
/* Passes on what flows have told. How many things. */
unsigned sl_dpdk_tell(struct sl_dpdk_iface *iface);
/* The same of one lane. */
void sl_dpdk_tell_lane(struct sl_dpdk_lane *lane);
/* Its flow is closed: what it told is forgotten, and buffers of frames that are not whole go
 * back. */
void sl_dpdk_told_forget(struct sl_dpdk_lane *lane);
/* struct sl_dpdk_user's functions; arg is the interface. */
void sl_dpdk_on_packet(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes,
                       size_t len, bool is_marked);
void sl_dpdk_on_sent(void *arg, uint64_t cookie);

/* offer.c */
int sl_dpdk_control_check(const struct sl_mp_control *control);
int sl_dpdk_plan(struct sl_mp_conn *conn, struct sl_mp_paths *out);
void sl_dpdk_offer(const struct sl_mp_path *path, struct sl_mp_offer *out);
/* What both ends agree on, by the peer's OFFER or ACCEPT. -EPROTO: they cannot. */
int sl_dpdk_agree(const struct sl_dpdk_lane *lane, const struct sl_mp_offer *theirs,
                  struct sl_dp_ends *out);

#endif
