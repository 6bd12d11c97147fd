/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one condition: is this check of that subject good, since when, and is it believed?
 *
 *              bad sample                N of the last M are bad
 *          OK -----------> SUSPECT ---------------------------------> BAD
 *           ^                 |                                        |
 *           |  the last M     |                         a good sample, | and it was
 *           |<--- are good ---+                                        | BAD for hold_ns
 *           |                                                          v
 *           +---------------------------------------------------- RECOVERING
 *              a good sample, none bad for clear_ns   (a bad sample: BAD again)
 *
 * Where samples come only when something is wrong (a line in the kernel's log), silence is the good
 * sample: a tick, which the owner gives only while it knows that its source is alive.
 *
 * A machine without clock, memory or I/O: samples and times come in, transitions go out. What comes
 * in too early (a link trains after each boot), or of a subject that nobody uses, where the policy
 * asks for use, is no evidence. A new boot starts over, and history stays.
 */
#ifndef SL_MONITOR_CONDITION_H
#define SL_MONITOR_CONDITION_H

#include <stdbool.h>
#include <stdint.h>

#define SL_MON_NEVER UINT64_MAX
#define SL_MON_WINDOW_MAX 32 /* samples that are remembered for N of M */

enum sl_mon_state { SL_MON_OK, SL_MON_SUSPECT, SL_MON_BAD, SL_MON_RECOVERING, SL_MON_STATES };

/* What may happen to a condition; the table of what follows is in condition.c. */
enum sl_mon_input {
    SL_MON_IN_BAD,     /* a bad sample that does not confirm yet */
    SL_MON_IN_CONFIRM, /* a bad sample with which N of M are bad */
    SL_MON_IN_GOOD,    /* a good one, too early to say more */
    SL_MON_IN_CALM,    /* good for long enough to leave the state */
    SL_MON_IN_BOOT,    /* another boot of the host */
    SL_MON_IN_CLEAR,   /* an operator says so */
    SL_MON_IN_GONE,    /* the subject is over: a process that ended */
    SL_MON_INPUTS
};

/* Of a check; the same for all its subjects. */
struct sl_mon_policy {
    uint8_t bad, of;   /* BAD when so many of the last `of` samples are bad; 1 of 1: at once */
    bool in_use;       /* counts only where the subject is in use */
    bool quiet;        /* good samples do not come: silence is good */
    uint64_t grace_ns; /* after boot: no evidence */
    uint64_t hold_ns;  /* BAD for so long at least */
    uint64_t clear_ns; /* RECOVERING for so long without a bad sample: OK */
};

struct sl_mon_condition {
    uint8_t state; /* enum sl_mon_state */
    uint8_t samples;
    uint32_t recent;                 /* the last samples, newest in bit 0; 1: bad */
    uint64_t since_ns;               /* in this state */
    uint64_t bad_ns;                 /* of the latest bad sample; 0: none */
    uint64_t bads, good;             /* samples that counted, in all boots */
    uint32_t entered[SL_MON_STATES]; /* how often, in all boots */
    double history; /* times BAD, halved every SL_MON_HALF_LIFE_NS; as of history_ns */
    uint64_t history_ns;
};

#define SL_MON_HALF_LIFE_NS (UINT64_C(14) * 86400 * 1000000000)
#define SL_MON_LEMON 2.0 /* with so much history half of the evidence will do */

struct sl_mon_sample {
    uint64_t now_ns;  /* of a clock that does not go back */
    uint64_t boot_ns; /* since the host booted */
    bool is_bad, in_use;
};

struct sl_mon_step {
    uint8_t from, to; /* equal: nothing changed */
    uint8_t input;    /* enum sl_mon_input, why */
};

void sl_mon_condition_init(struct sl_mon_condition *condition, uint64_t now_ns);

/* True and *out: the state changed. What is no evidence changes nothing. */
bool sl_mon_condition_sample(struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                             const struct sl_mon_sample *sample, struct sl_mon_step *out);
/* It is quiet, and the source of samples is alive. Changes only what a policy calls quiet. */
bool sl_mon_condition_tick(struct sl_mon_condition *condition, const struct sl_mon_policy *policy,
                           uint64_t now_ns, struct sl_mon_step *out);
/* SL_MON_IN_BOOT, SL_MON_IN_CLEAR or SL_MON_IN_GONE. */
bool sl_mon_condition_reset(struct sl_mon_condition *condition, enum sl_mon_input input,
                            uint64_t now_ns, struct sl_mon_step *out);

/* How often it was BAD, older times counting less. */
double sl_mon_condition_history(const struct sl_mon_condition *condition, uint64_t now_ns);

const char *sl_mon_state_name(enum sl_mon_state state); /* "ok" */
const char *sl_mon_input_name(enum sl_mon_input input); /* "confirmed" */

#endif
