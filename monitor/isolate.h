/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a node is taken out of service because of what is known of it, and when it comes back.
 *
 *     verdicts that are open --> actions: out, back --> the owner stores them, and then has them
 *                                                       performed by a plug (isolation.h)
 *
 * An action is wanted until it is done, until somebody else turns out to have taken the node out,
 * or until its verdict is over; each attempt that fails is repeated, later and later. Each verdict
 * takes the node out once: who brings it back by hand is not contradicted.
 *
 *     wanted --> done            the node is out, or back
 *       |  ^ \-> left alone      another had taken it out, or has brought it back
 *       |  |  \> withdrawn       the verdict was closed, or an operator knows of it
 *       +--+ failed, no answer in time, refused by the circuit breaker: again, later
 *
 * No clock, no I/O: the owner says what time it is, and what came of an action.
 */
#ifndef SL_MONITOR_ISOLATE_H
#define SL_MONITOR_ISOLATE_H

#include "core/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_ISOLATE_ACTIONS 64 /* that are not over, or whose verdict is still open */
#define SL_ISOLATE_TIMES 32   /* remembered times at which the node went out */
#define SL_ISOLATE_MARK 48

enum sl_isolate_kind { SL_ISOLATE_OUT, SL_ISOLATE_BACK, SL_ISOLATE_KINDS };

enum sl_isolate_state {
    SL_ISOLATE_WANTED,
    SL_ISOLATE_DONE,
    SL_ISOLATE_LEFT_ALONE,
    SL_ISOLATE_WITHDRAWN,
    SL_ISOLATE_STATES
};

/* Of an attempt. */
enum sl_isolate_result {
    SL_ISOLATE_IS_DONE,
    SL_ISOLATE_IS_LEFT_ALONE,
    SL_ISOLATE_IS_REFUSED, /* by the circuit breaker: nothing has changed */
    SL_ISOLATE_FAILED,     /* something may have changed */
    SL_ISOLATE_TIMED_OUT,  /* the same */
    SL_ISOLATE_RESULTS
};

struct sl_isolate_rules {
    const char *classes; /* that take a node out though they are not fatal, between commas; "" */
    uint64_t hold_ns;    /* all verdicts closed for so long: back; UINT64_MAX: by people only */
    uint64_t window_ns;
    unsigned times; /* this node goes out so often per window, at most SL_ISOLATE_TIMES */
    unsigned share_percent, least_nodes; /* of all nodes so many may be out, and so many anyway */
};

struct sl_isolate_time {
    uint64_t mono_ns, wall_ns;
};

/* One that is open. */
struct sl_isolate_verdict {
    uint64_t id;
    bool is_fatal, is_acked;
    const char *condition; /* its class */
};

struct sl_isolate_action {
    uint64_t id; /* the owner's, once it is stored; 0: not yet, and nobody performs it */
    uint64_t verdict;
    enum sl_isolate_kind kind;
    enum sl_isolate_state state;
    bool is_stored; /* the owner has stored this state */
    bool is_open;   /* its verdict */
    bool is_running, may_have_acted;
    unsigned attempts;
    enum sl_isolate_result result; /* of the last attempt, where there was one */
    uint64_t due_ns;
};

struct sl_isolate {
    struct sl_isolate_rules rules; /* what it points to is borrowed */
    struct sl_isolate_action actions[SL_ISOLATE_ACTIONS];
    unsigned count;
    bool is_out; /* by us, as far as is known */
    uint64_t out_verdict;
    bool is_calm;
    uint64_t calm_ns;                    /* since then no verdict asks for it to be out */
    uint64_t went_out[SL_ISOLATE_TIMES]; /* wall clock; a ring */
    unsigned times;
    unsigned wanted;   /* verdicts that ask for it */
    uint64_t left_out; /* verdicts for whose action there was no room */
    struct sl_rng rng;
};

void sl_isolate_init(struct sl_isolate *isolate, const struct sl_isolate_rules *rules,
                     uint64_t seed);
bool sl_isolate_is_asked_for(const struct sl_isolate_rules *rules,
                             const struct sl_isolate_verdict *verdict);
/* An action of before a restart; all of them, in their order. */
void sl_isolate_restore(struct sl_isolate *isolate, const struct sl_isolate_action *action,
                        uint64_t ended_wall_ns);
/* The node turned out to be out by us, which nobody remembered. */
void sl_isolate_adopt(struct sl_isolate *isolate, uint64_t verdict);

/* All verdicts that are open now: what is wanted follows from them. Actions that are new, or that
 * came to an end, have is_stored false; their places may change. */
void sl_isolate_see(struct sl_isolate *isolate, const struct sl_isolate_time *now,
                    const struct sl_isolate_verdict *verdicts, unsigned count);
/* To be performed now; NULL: none. */
struct sl_isolate_action *sl_isolate_next(struct sl_isolate *isolate, uint64_t mono_ns);
/* False: this node went out too often. The owner ends the attempt as refused. */
bool sl_isolate_may(const struct sl_isolate *isolate, const struct sl_isolate_action *action,
                    uint64_t wall_ns);
void sl_isolate_begun(struct sl_isolate_action *action);
/* retry_ns: not before, where the other side said so; 0: it did not. */
void sl_isolate_ended(struct sl_isolate *isolate, struct sl_isolate_action *action,
                      enum sl_isolate_result result, uint64_t retry_ns,
                      const struct sl_isolate_time *now);
struct sl_isolate_action *sl_isolate_find(struct sl_isolate *isolate, uint64_t id);
/* Something is wanted, and the circuit breaker does not let it. */
bool sl_isolate_is_refused(const struct sl_isolate *isolate);
unsigned sl_isolate_waiting(const struct sl_isolate *isolate);

/* ---- one attempt, with a controller that can be asked ---- */

/* What the controller says. */
struct sl_isolate_view {
    enum { SL_ISOLATE_IS_IN, SL_ISOLATE_OUT_BY_US, SL_ISOLATE_OUT_BY_OTHERS } node;
    char mark[SL_ISOLATE_MARK]; /* by us: of which verdict */
    unsigned all;               /* nodes */
    unsigned before; /* nodes that are out without this one; where it is out by us, those that were
                      * out before it */
};

struct sl_isolate_ops {
    int (*look)(void *arg, struct sl_isolate_view *out);
    /* -EAGAIN: somebody else changed the node meanwhile; it is looked at again. */
    int (*out)(void *arg);
    int (*back)(void *arg);
    void (*settle)(void *arg); /* until what others have done at the same time can be seen */
};

/* How many of all nodes may be out. */
unsigned sl_isolate_allowed(const struct sl_isolate_rules *rules, unsigned all);
/* mark: of this action's verdict. why: a sentence. */
enum sl_isolate_result sl_isolate_attempt(const struct sl_isolate_ops *ops, void *arg,
                                          const struct sl_isolate_rules *rules,
                                          enum sl_isolate_kind kind, const char *mark, char *why,
                                          size_t cap);

const char *sl_isolate_kind_name(enum sl_isolate_kind kind);       /* "out" */
const char *sl_isolate_state_name(enum sl_isolate_state state);    /* "wanted" */
const char *sl_isolate_result_name(enum sl_isolate_result result); /* "done" */
/* "17.3f2a9c1d": a verdict and its boot, as a mark that a controller keeps; and whether a text is
 * one. */
void sl_isolate_mark(uint64_t verdict, const char *boot_id, char *out, size_t cap);
bool sl_isolate_is_mark(const char *text, size_t len);

#endif
