/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of all instances, who does what is to be done for a verdict: a command, once for its opening and
 * once for its closing.
 *
 * The key of an action is made of the verdict's id, so all instances have the same. Each instance
 * that finds it to be done claims it; a broker gives all claims to all instances in one order, and
 * the first one has it. It says that it begins, runs the command, and says that it is done, which
 * the broker keeps. Where the one that has it dies before that (its last will says so), the others
 * claim anew: the command is then called with the same key once more, which is how it can tell.
 *
 * A state machine without I/O and without a clock of its own: what it wants published and run goes
 * through ops.
 */
#ifndef SL_MONITOR_CLUSTER_ACT_H
#define SL_MONITOR_CLUSTER_ACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_ACT_KEY 32 /* bytes, with the end: "0123456789abcdef-opened" */
#define SL_ACT_NAME 96
#define SL_ACT_MAX 65536 /* actions that are remembered; the oldest that are done give way */
#define SL_ACT_SETTLE_NS UINT64_C(2000000000) /* after a connection, until what was kept is here */

enum sl_act_state {
    SL_ACT_KNOWN,   /* of others; this instance does not want it (yet) */
    SL_ACT_WANTED,  /* to be claimed */
    SL_ACT_CLAIMED, /* this instance said so; whose it is will be heard */
    SL_ACT_MINE,    /* to be run, or it runs */
    SL_ACT_OTHERS,  /* another one has it */
    SL_ACT_DONE
};

struct sl_act_ops {
    /* 0, or negative: not now. */
    int (*claim)(void *arg, const char *key);
    int (*begun)(void *arg, const char *key);
    int (*done)(void *arg, const char *key);
    void (*run)(void *arg, const char *key); /* sl_act_ended() follows */
};

struct sl_act;

int sl_act_new(const char *instance, const struct sl_act_ops *ops, void *arg, struct sl_act **out);
void sl_act_free(struct sl_act *act);

/* This is to be done, by somebody. -ENOSPC: too much is. */
int sl_act_want(struct sl_act *act, const char *key);
/* What the broker gave: a claim (of one's own that is the first, begun() is called at once); that
 * an instance began it; that it is done. */
void sl_act_heard_claim(struct sl_act *act, const char *key, const char *instance);
void sl_act_heard_begun(struct sl_act *act, const char *key, const char *instance);
void sl_act_heard_done(struct sl_act *act, const char *key);
/* An instance died, or lives. */
void sl_act_heard_instance(struct sl_act *act, const char *instance, bool is_alive);
/* The command of that key has ended. */
void sl_act_ended(struct sl_act *act, const char *key);
/* Another connection: what was said over the old one may be lost. */
void sl_act_connected(struct sl_act *act, uint64_t now_ns);
/* Now and then: claims, says, runs. connected: is there a broker? */
void sl_act_tick(struct sl_act *act, uint64_t now_ns, bool connected);

enum sl_act_state sl_act_state_of(const struct sl_act *act, const char *key);

#endif
