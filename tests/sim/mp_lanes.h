/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated lanes: what lies under multipath/ in a swarm, packet by packet, with a wire that obeys
 * the rules of multipath/lane.h and no others. Between two sides of some rails each.
 *
 * A lane keeps the order of its packets; everything else may come in any order: packets of
 * different lanes, completions of what was sent and of what arrived, and, for a while, none at all.
 * What the peer had when its end stopped may be more than the sender knows (a lost acknowledge) or
 * less than was on the wire, of which part of a write may have reached memory.
 */
#ifndef SL_TESTS_SIM_MP_LANES_H
#define SL_TESTS_SIM_MP_LANES_H

#include "core/rng.h"
#include "multipath/iface.h"
#include "multipath/path.h"
#include "tests/fake/loop.h"

#include <stdbool.h>

#define LANES_RAILS 16
#define LANES_TURNS 4 /* paths between two rails that have routes of their own */

struct lanes;

enum lanes_lost { LANES_NOTHING, LANES_DATA, LANES_ACKS, LANES_BOTH };

struct lanes *lanes_create(uint64_t seed, struct loop *loop);
void lanes_destroy(struct lanes *lanes);

/* Settings of a side, before it is opened. */
struct lanes_side {
    struct sl_mp_settings settings;
    uint32_t eager_bytes;
    unsigned rails, paths; /* of a rail */
    unsigned shift;        /* its i-th rail to the peer's i + shift */
    uint16_t far;          /* rails that it would rather not use, a bit each */
    unsigned buffers;      /* receive buffers of a rail */
    bool everywhere;       /* its lanes reach memory that nobody registered */
};

/* The operations of a transport; open() opens the side of the worker's rank. */
extern const struct sl_transport_ops lanes_ops;
void lanes_side(struct lanes *lanes, unsigned side, const struct lanes_side *with);

/* After so long without an acknowledge a lane fails at the sender. */
void lanes_retry_ns(struct lanes *lanes, uint64_t ns);
/* Moves one packet, acknowledge or nothing. True: something moved. */
bool lanes_step(struct lanes *lanes);

/* ---- routes: packets that take their time, instead of lanes_step() and its faults ---- */

#define LANES_PACKET 1024 /* bytes of the largest one */

struct lanes_route {
    uint64_t ps_per_byte, latency_ns; /* one way */
    uint32_t loss_ppm;                /* of packets, and of acknowledges */
    uint32_t largest;                 /* longer packets are lost; 0: none is */
};

/* How it is from now on between a rail of side 0 and one of side 1, both ways, for the path that is
 * the turn-th of those between them. */
void lanes_route(struct lanes *lanes, unsigned rail_a, unsigned rail_b, unsigned turn,
                 const struct lanes_route *route);
/* What is lost is sent again when a later packet shows the gap, or else after so long; so many
 * times, then the lane fails. */
void lanes_repeat(struct lanes *lanes, uint64_t ns, unsigned times);
/* Moves all that is due. When the next thing is, or SL_NEVER. */
uint64_t lanes_move(struct lanes *lanes);

/* ---- faults ---- */

unsigned lanes_count(const struct lanes *lanes); /* open at the moment */
/* The pick-th lane fails at its end: now, or because of what it loses on its way from here on. */
void lanes_kill(struct lanes *lanes, uint32_t pick);
void lanes_cut(struct lanes *lanes, uint32_t pick, enum lanes_lost what);
/* What all lanes from a rail of side 0 to one of side 1 lose, and back: present and later. */
void lanes_block(struct lanes *lanes, unsigned rail_a, unsigned rail_b, enum lanes_lost there,
                 enum lanes_lost back);
/* A rail is down, or back. */
void lanes_rail(struct lanes *lanes, unsigned side, unsigned rail, bool usable);
/* What is registered on a rail that is down gets new keys, as after a new device has come in its
 * place. Not where lanes or buffers of it are in use still. */
void lanes_rail_anew(struct lanes *lanes, unsigned side, unsigned rail);
/* Completions of a rail are not shown, unless its lanes are stopped. */
void lanes_hold(struct lanes *lanes, unsigned side, unsigned rail, bool held);
/* The rail's device dies: what it has acknowledged and not shown, nobody ever sees. */
void lanes_device_dies(struct lanes *lanes, unsigned side, unsigned rail);
/* So many of the next opens and connects of that side fail. */
void lanes_refuse(struct lanes *lanes, unsigned side, unsigned count);
/* What a side's path table says from now on, without a file; no rules: there is none. */
void lanes_path_table(struct lanes *lanes, unsigned side, const struct sl_path_rule *rules,
                      size_t count);
/* Cuts end, rails are up. */
void lanes_heal(struct lanes *lanes);

/* Receive buffers that are not back; lanes that are not closed. */
unsigned lanes_live(const struct lanes *lanes);
/* The first rule that was broken, or NULL. */
const char *lanes_misuse(const struct lanes *lanes);

struct sl_mp_iface *lanes_iface(struct lanes *lanes, unsigned side);

#endif
