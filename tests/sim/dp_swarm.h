/* SPDX-License-Identifier: Apache-2.0 */
/* One run of sim_dpdk.c: what is drawn from a seed, and what is done to the wire on the way. */
#ifndef SL_TESTS_SIM_DP_SWARM_H
#define SL_TESTS_SIM_DP_SWARM_H

#include "tests/sim/dp_traffic.h"

#define DS_FLOWS_MAX 3
#define DS_OLD 64 /* packets that are kept, to be sent again by somebody */

struct ds_old {
    uint8_t bytes[SL_DP_HEAD_BYTES + SL_DP_PAYLOAD_MOST + SL_DP_CRC_BYTES];
    size_t len;
    unsigned end; /* to which it went */
};

struct ds_run {
    struct dp_wire wire;
    struct dp_traffic traffic;
    struct sl_rng rng; /* of what is drawn and done; the wire has its own */
    struct sl_dp_settings settings[2];
    struct sl_dp_ends ends;
    unsigned flows;
    struct dp_path worst; /* while there are faults */
    struct dp_queue queue;
    uint64_t faults_ns; /* until then */
    bool sleeps, routes_die, mtu_shrinks, forges, is_hostile, has_queue;
    uint64_t death_ns; /* of node 1; 0: none */
    uint64_t close_ns; /* of end 0 */
    struct ds_old old[DS_OLD];
    unsigned olds;
    unsigned forged;
    uint64_t replayed_ns; /* when an old packet came once more */
};

void ds_draw(struct ds_run *run, uint64_t seed);
void ds_print(const struct ds_run *run);
/* Some time has passed, faults are on. */
void ds_faults(struct ds_run *run);
void ds_faults_end(struct ds_run *run);
/* Keeps some of what passes. */
void ds_watch(struct dp_wire *wire, struct dp_end *from, const void *bytes, size_t len);

#endif
