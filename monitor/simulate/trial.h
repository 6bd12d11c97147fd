/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rules make of a made-up job whose truth is known: one trial, and many.
 *
 * A trial's fault is `identifiable` where what the job tells decides it, whatever the rules say:
 *
 *     host_stalled, dead, mismatch, deadlock   always
 *     gpu_stuck      the others ended the call (is_in_kernel), or the source tells who has started
 *     comm_stuck     the edge is between hosts, and the source tells what edges waited for
 *     slow_rank      three ranks at least do the same, or it begins in mid-job (20 steps or more);
 *                    and it is slower by more than 10 % (5 % in mid-job) and four spreads of a
 *                    step's noise (and of longer sequences, where stages or replicas are too few to
 *                    tell these, or hosts of two kinds look like them)
 *     slow_sender, slow_receiver, slow_link, slow_group
 *                    some message between hosts passes it, and nothing else (a rank, a NIC, a
 *                    link, a host, a leaf, a rail, a plane, a spine) is passed by just the same
 *                    pairs of ranks; of rails and planes four at least have messages, as else one
 *                    that is slower may be an older kind of hardware
 */
#ifndef SL_MONITOR_SIMULATE_TRIAL_H
#define SL_MONITOR_SIMULATE_TRIAL_H

#include "monitor/simulate/plan.h"

struct sl_trial {
    bool is_identifiable;
    bool is_found;  /* the first verdict accuses the culprit, and nobody else is in its set */
    bool is_class;  /* of the right class */
    bool is_in_set; /* the culprit is accused, or in the set of who is */
    bool is_silent; /* nobody is accused */
    uint32_t wrong; /* verdicts without the culprit */
    uint32_t set;   /* how many could be it, in the verdict with the culprit; 0: there is none */
    uint32_t steps; /* from the fault's beginning to the alarm; 0: not looked for */
    double judge_s; /* processor time of the rules */
};

/* Rules that judge a sealed job; they add verdicts. 0 or a negative errno. */
typedef int sl_trial_judge(const struct sl_job *job, struct sl_verdicts *verdicts);

/* Plays and judges. 0, -ENOMEM, -EINVAL. */
int sl_trial_run(const struct sl_play_plan *plan, sl_trial_judge *judge, struct sl_trial *out);
/* The same, and after how many steps of a slow fault the culprit is accused first (bisection). */
int sl_trial_time(const struct sl_play_plan *plan, sl_trial_judge *judge, struct sl_trial *out);
/* The job is the plan's, sealed. */
bool sl_trial_identifiable(const struct sl_play_plan *plan, const struct sl_job *job);

/* Many: jobs of about `ranks` ranks, faults of one class and strength, seeds from `seed` on. */
struct sl_trials {
    enum sl_verdict_class cls;
    double strength;
    uint32_t ranks, count; /* jobs that can have the fault */
    uint32_t identifiable; /* of them */
    uint32_t found;        /* of the identifiable */
    uint32_t in_set;       /* of all */
    uint32_t wrong;        /* jobs in which somebody innocent was accused alone */
    uint32_t silent;
    double set;        /* mean size of the set, where it holds the culprit */
    uint32_t steps[3]; /* to the alarm: quartiles of the identifiable that were found */
    double judge_s_most;
};

int sl_trials_run(uint32_t ranks, enum sl_verdict_class cls, double strength, uint64_t seed,
                  uint32_t count, bool is_timed, sl_trial_judge *judge, struct sl_trials *out);

#endif
