/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the multi-path protocol over simulated lanes: what its seed draws, what is judged. */
#ifndef SL_TESTS_SIM_MP_SWARM_H
#define SL_TESTS_SIM_MP_SWARM_H

#include "core/config.h"
#include "multipath/conn.h"
#include "tests/fake/loop.h"
#include "tests/sim/mp_lanes.h"
#include "tests/sim/traffic.h"

#define MS_FAULTS 12

/* How a run must end. */
enum ms_mode {
    MS_CALM,    /* nothing fails: well, and no path is lost */
    MS_PASSING, /* faults that pass: well */
    MS_TCP,     /* paths go, some for good, and data may go over the sideband: well */
    MS_AWAY,    /* all paths stay away: -EHOSTUNREACH at both ends, in time */
    MS_ALONE,   /* the sideband breaks, some paths fail, but never all: well */
    MS_LEAVE,   /* one end destroys its endpoints in the middle: -ECONNRESET at the other */
    MS_BROKEN,  /* whatever may break breaks: well or not, but it ends */
};

enum ms_fault_kind {
    MS_KILL,
    MS_CUT,
    MS_LOSE_DATA,
    MS_LOSE_ACKS,
    MS_BLOCK,
    MS_BLOCK_ACKS,
    MS_RAIL,
    MS_HOLD,   /* completions are not shown for longer than any device takes */
    MS_REFUSE, /* opens and connects fail */
    MS_STALL,  /* of the sideband */
    MS_PAUSE,  /* a side makes no progress */
    MS_TABLE,  /* a side's path table says something, and then nothing */
    MS_ALL,    /* nothing is carried between any rails */
    MS_LOSE,   /* the sideband breaks, and is dialled again */
    MS_DEVICE, /* dies with what it acknowledged */
    MS_LEAVES,
};

struct ms_fault {
    enum ms_fault_kind kind;
    unsigned at_round;
    uint64_t for_ns, until_ns;
    uint32_t pick, pick2;
    bool on, over;
};

struct ms_run {
    struct traffic traffic;
    uint64_t seed;
    enum ms_mode mode;
    struct lanes *lanes;
    struct loop *loop;
    struct sl_config config;
    struct sl_worker worker[2];
    struct lanes_side side[2];
    struct ms_fault faults[MS_FAULTS];
    unsigned fault_count, calm_round, steps_max, post_in;
    uint64_t retry_ns, latency_ns, jitter_ns;
    uint32_t eagain_in;
    bool large;         /* has many rails and paths, perhaps */
    bool goes_down;     /* AWAY: rails say so */
    bool stays;         /* TCP: paths stay away in the end */
    bool lost_for_good; /* the sideband, once it breaks */
    bool one_way;       /* AWAY: only acknowledges of one side are lost */
    /* under way */
    unsigned round, still;
    uint64_t rounds, steps, calm_ns, paused_until[2];
    unsigned here[TRAFFIC_CONNS][2][TRAFFIC_CHANNELS]; /* frames without a receive at the loss */
    bool calm, lost;
};

/* mp_draw.c */
void ms_draw(struct ms_run *run, uint64_t seed);
void ms_print(const struct ms_run *run);

/* mp_faults.c */
void ms_faults_round(struct ms_run *run);
void ms_faults_end(struct ms_run *run);

/* mp_run.c: false: run->traffic.wrong tells what went wrong. */
bool ms_run_it(struct ms_run *run);

#endif
