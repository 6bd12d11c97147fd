/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ports of this host its ranks are to avoid, by what is known of them, and when each is tried
 * again.
 *
 *               its verdict is open, by fresh evidence
 *     IN_USE ------------------------------------------> AVOIDED
 *       ^  (AVOIDED again soon after: the rest is         |   ^
 *       |   twice as long)                                |   | evidence again, in the try:
 *       |                          a rest without any     |   | the next rest is twice as long
 *       |                          evidence               v   |
 *       +---------------------------------------------- TRIED
 *              it carried for long enough, without evidence
 *
 * A port that is avoided carries nothing, so nothing is heard of it, and its verdict closes by
 * silence: that proves nothing. Only what it carries in a try, with a low weight, gives it back. A
 * port whose link is merely slower (weight > 0) is LOWERED for as long as its verdict is open.
 *
 * No clock, no I/O: the owner says what time it is and what it sees of the ports.
 */
#ifndef SL_MONITOR_STEER_H
#define SL_MONITOR_STEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_STEER_PORTS 64
#define SL_STEER_NAME 64
#define SL_STEER_AGAIN 2     /* bad samples that end a try */
#define SL_STEER_DOUBLINGS 6 /* of the rest */
#define SL_STEER_FORGET 10   /* rests in use, after which it has never been avoided */

enum sl_steer_state {
    SL_STEER_IN_USE,
    SL_STEER_AVOIDED,
    SL_STEER_TRIED,
    SL_STEER_LOWERED,
    SL_STEER_STATES
};

struct sl_steer_rules {
    unsigned ports; /* that are avoided or tried at once, at most */
    uint64_t rest_ns, trial_ns;
    uint8_t trial_weight; /* 1 to 100, against the other ports */
};

/* What the owner sees of a port, by all checks that count. */
struct sl_steer_view {
    const char *name;
    bool is_up;       /* it could carry */
    bool is_open;     /* a verdict is open, or was until a moment ago */
    bool is_bad;      /* ... and is believed by what was seen lately */
    uint8_t weight;   /* what is left of it, while is_open: 1 to 100; 0: nothing to rely on */
    uint64_t bads;    /* bad samples so far, of all checks */
    uint64_t carried; /* so far; in any unit */
    uint32_t clears;  /* how often an operator said that it is good */
};

struct sl_steer_port {
    char name[SL_STEER_NAME];
    enum sl_steer_state state;
    uint8_t weight;       /* LOWERED */
    uint8_t relapses;     /* doublings of its rest */
    uint64_t since_ns;    /* in this state */
    uint64_t quiet_ns;    /* AVOIDED: no evidence since then */
    uint64_t bads;        /* those that are known already */
    uint64_t carried;     /* as seen last */
    uint64_t carrying_ns; /* TRIED: for how long it carried */
    uint64_t seen_ns;
    uint64_t back_ns; /* when it was given back after a try; 0: never */
    uint32_t clears;
    bool is_refused; /* it would be avoided, and too many are */
    bool is_there;
};

struct sl_steer {
    struct sl_steer_rules rules;
    struct sl_steer_port ports[SL_STEER_PORTS];
    unsigned count;
    uint64_t changes[SL_STEER_STATES]; /* into each state */
    uint64_t refused, left_out;        /* wishes that were refused; ports beyond SL_STEER_PORTS */
    /* After each change; NULL: nobody cares. */
    void (*changed)(void *arg, const struct sl_steer_port *port, enum sl_steer_state from,
                    const char *why);
    /* Of a port that is seen for the first time: what sl_steer_pack() gave. NULL: 0. */
    uint64_t (*recall)(void *arg, const char *name);
    void *arg;
};

void sl_steer_init(struct sl_steer *steer, const struct sl_steer_rules *rules);
/* All ports that there are now. */
void sl_steer_see(struct sl_steer *steer, uint64_t now_ns, const struct sl_steer_view *views,
                  unsigned count);
/* What its ranks are to do: the weight, 0: avoid it; 100: as ever. */
uint8_t sl_steer_weight(const struct sl_steer *steer, const struct sl_steer_port *port);
uint64_t sl_steer_rest_ns(const struct sl_steer *steer, const struct sl_steer_port *port);
unsigned sl_steer_count(const struct sl_steer *steer, enum sl_steer_state state);
/* A port's state as a number, for a restart of its owner; 0: in use, and never otherwise. */
uint64_t sl_steer_pack(const struct sl_steer_port *port);

const char *sl_steer_state_name(enum sl_steer_state state); /* "avoided" */

#endif
