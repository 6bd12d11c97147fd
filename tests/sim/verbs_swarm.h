/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the verbs transport over the fake libibverbs: what its seed draws, what moves, what is
 * judged. */
#ifndef SL_TESTS_SIM_VERBS_SWARM_H
#define SL_TESTS_SIM_VERBS_SWARM_H

#include "core/config.h"
#include "core/transport.h"
#include "tests/fake/fake_ibv.h"
#include "tests/fake/loop.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "verbs/queue_pair.h"
#include "verbs/verbs.h"

#include <stdbool.h>

#define VS_CONNS 3
#define VS_MESSAGES 48 /* of a connection, each way */
#define VS_CTRLS 40
#define VS_FAULTS 12
#define VS_GUARD 64

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
    VS_LOSE,  /* the sideband breaks */
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

struct vs_message {
    /* drawn */
    size_t len, wanted_len; /* sender's; receiver's */
    uint64_t tag, wanted_tag;
    bool send_reg, recv_reg, given, consume, dst, shorter;
    uint32_t granule;
    /* each side: [0] send, [1] recv */
    struct vs_half {
        struct vs_run *run;
        struct vs_message *message;
        struct vs_queue *queue;
        struct sl_req req;
        bool is_recv, posted, ended;
        int status;
        uint8_t *block; /* guard, bytes, guard */
        size_t block_len;
        uint8_t *got; /* of consume */
        size_t taken;
        struct sl_mr *mr;
    } half[2];
    struct sl_buf buf;
    struct sl_sink sink;
    uint64_t key;
};

/* One direction of a connection. */
struct vs_queue {
    struct vs_run *run;
    struct vs_conn *conn;
    unsigned from; /* side */
    struct vs_message messages[VS_MESSAGES];
    unsigned count, next[2], ended[2]; /* of sends, of recvs */
    unsigned window[2];
    unsigned ctrl_count, ctrl_sent, ctrl_got;
};

struct vs_conn {
    struct vs_run *run;
    struct sl_ep *ep[2];
    struct sl_req connect[2];
    struct vs_queue queue[2]; /* by the side that sends */
    uint64_t ups_at_calm[2];
    unsigned downs[2];
    char
        refused[2]
               [256]; /* why a call on an endpoint was, whose end the handler then has to hear of */
    int down_status[2];
    char why[2][256];
    uint64_t down_ns[2];
    bool left[2]; /* destroyed by its owner */
    bool lost;    /* the sideband was */
};

struct vs_run {
    uint64_t seed;
    enum vs_mode mode;
    struct sl_rng rng;
    struct fake_ibv *fake;
    struct loop *loop;
    struct sl_transport_ops ops;
    unsigned rails[2], conn_count;
    struct sl_config config[2];
    struct sl_worker worker[2];
    struct sl_iface *iface[2];
    struct vs_conn conns[VS_CONNS];
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
    unsigned repeats;    /* the NICs deliver one in so many messages twice; 0: none */
    unsigned calm_round; /* faults are over */
    /* under way */
    unsigned round, still;
    uint64_t calm_ns, paused_until[2], asleep_until[2];
    bool asleep[2], calm;
    bool held;       /* some completions were */
    bool crowded;    /* the sideband stood still for a while */
    char wrong[512]; /* the first thing that was wrong, or "" */
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

/* verbs_run.c: false: run->wrong tells what went wrong. */
bool vs_run_it(struct vs_run *run);
void vs_wrong(struct vs_run *run, const char *fmt, ...) SL_PRINTF(2, 3);

/* verbs_traffic.c */
void vs_traffic_open(struct vs_run *run); /* memory, once the interfaces are open */
bool vs_post(struct vs_queue *queue,
             unsigned which); /* the next send (0) or recv (1); true: taken */
void vs_ctrl(struct vs_queue *queue);
void vs_on_ctrl(void *arg, struct sl_ep *ep, const void *bytes, size_t len);
bool vs_traffic_over(const struct vs_run *run); /* every request has ended or cannot be posted */
void vs_traffic_judge(struct vs_run *run);
void vs_traffic_close(struct vs_run *run); /* regions, while the interfaces are open */
void vs_traffic_free(struct vs_run *run);  /* looks at the memory for the last time */

/* verbs_faults.c */
void vs_faults_round(struct vs_run *run);
void vs_faults_end(struct vs_run *run);
/* From the calm on nothing is carried; in half of the runs over the sideband it is so. */
bool vs_paths_stay_away(const struct vs_run *run);
/* How often paths of a connection have come up. */
uint64_t vs_ups(const struct sl_mp_conn *ep);

#endif
