/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the verbs transport over the fake libibverbs: what its seed draws, what moves, what is
 * judged. */
#ifndef SL_TESTS_SIM_VERBS_SWARM_H
#define SL_TESTS_SIM_VERBS_SWARM_H

#include "core/config.h"
#include "core/transport.h"
#include "tests/fake/fake_ibv.h"
#include "tests/fake/loop.h"
#include "tests/sim/traffic.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "verbs/queue_pair.h"
#include "verbs/verbs.h"

#include <stdbool.h>

#define VS_FAULTS 12

/* How a run must end. */
enum vs_mode {
    VS_CALM,    /* nothing fails: well, and no path is lost */
    VS_PASSING, /* faults that pass: well */
    VS_TCP,     /* paths go, some for good, and data may go over the sideband: well */
    VS_AWAY,    /* all paths stay away: -EHOSTUNREACH at both ends, in time */
    VS_LEAVE,   /* one end destroys its endpoints in the middle: -ECONNRESET at the other */
    VS_BROKEN,  /* whatever may break breaks: well or not, but it ends */
};

enum vs_fault_kind {
    VS_KILL,
    VS_CUT,
    VS_CUT_ONE_WAY,
    VS_QP_FATAL,
    VS_BLOCK,
    VS_ONE_WAY,
    VS_FLAP,
    VS_GID_MOVE,
    VS_CALL,
    VS_STALL, /* of the sideband */
    VS_PAUSE, /* a side makes no progress */
    VS_LOSE,  /* the sideband breaks, and is dialled again */
    VS_HOLD,  /* completions are not shown for longer than any device takes */
    VS_DEVICE_FATAL,
    VS_DEVICE_REMOVE,
    VS_LEAVES,
    VS_FAULT_KINDS
};

struct vs_fault {
    enum vs_fault_kind kind;
    unsigned at_round;
    uint64_t for_ns;
    uint32_t pick, pick2; /* which queue pair, port, call … */
    int error;
    bool on, over;
    uint64_t until_ns;
};

struct vs_run {
    struct traffic traffic;
    uint64_t seed;
    enum vs_mode mode;
    struct fake_ibv *fake;
    struct loop *loop;
    unsigned rails[2];
    struct sl_config config[2];
    struct sl_worker worker[2];
    struct vs_fault faults[VS_FAULTS];
    unsigned fault_count;
    struct fake_ibv_chaos chaos;
    bool early_faults; /* while connecting too */
    bool goes_down;    /* AWAY: not only is nothing carried, a side's ports say so */
    unsigned away;     /* what is lost where paths stay away, as of VS_ONE_WAY; 0: everything */
    bool sleeps;       /* sides arm, and sleep until their descriptor tells */
    bool keeps_wcs;    /* completions outlive their queue pair */
    unsigned delay, timeout_steps, rnr_steps, steps_max, post_in;
    uint64_t latency_ns, jitter_ns;
    uint32_t eagain_in;
    unsigned repeats;                  /* the NICs deliver one in so many messages twice; 0: none */
    unsigned event_delay, ahead_steps; /* as of the fake: late events, receives of stopped ones */
    unsigned mixes;                    /* NICs are soft-RoCE, which mixes packets up; 0: neither */
    unsigned calm_round;               /* faults are over */
    /* under way */
    unsigned round, still;
    uint64_t calm_ns, paused_until[2], asleep_until[2];
    bool asleep[2], calm;
    bool held; /* some completions were */
    uint64_t rounds, steps;
};

/* verbs_draw.c */
void vs_draw(struct vs_run *run, uint64_t seed);
void vs_print(const struct vs_run *run);
/* For stories: a connection without faults and messages, and what to put into it. */
void vs_plain(struct vs_run *run, uint64_t seed, enum vs_mode mode, unsigned rails);
void vs_plain_messages(struct vs_run *run, unsigned side, unsigned count, size_t len);
struct vs_fault *vs_plain_fault(struct vs_run *run, enum vs_fault_kind kind, unsigned at_round,
                                uint64_t for_ns);

/* verbs_run.c: false: run->traffic.wrong tells what went wrong. */
bool vs_run_it(struct vs_run *run);

/* verbs_faults.c */
void vs_faults_round(struct vs_run *run);
void vs_faults_end(struct vs_run *run);
/* From the calm on nothing is carried; in half of the runs over the sideband it is so. */
bool vs_paths_stay_away(const struct vs_run *run);

#endif
