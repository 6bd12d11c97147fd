/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Healthy ranks for thousands of node-days: how often the test for slow ranks accuses one. Times of
 * own work alone are drawn, without the calls around them: a million a second, where a played job
 * has some thousands.
 *
 * Drawn anew for each window of 500 steps: 16 to 1,024 ranks, one or more stages, one or two kinds
 * of hosts, longer sequences, noise of 0.1 to 10 % from step to step, of which a part is inherited
 * from the step before, pauses of up to 20 times a step, ranks that differ by up to 2 % for ever.
 */
#ifndef SL_MONITOR_SIMULATE_QUIET_H
#define SL_MONITOR_SIMULATE_QUIET_H

#include <stdint.h>

struct sl_quiet {
    double node_days; /* that were seen */
    uint64_t windows, alarms;
    double bound; /* false alarms in 10,000 node-days, at most, with 95 % confidence (Poisson) */
};

/* At least so many node-days. node_days_of_alarm: the budget, as in slow.h. 0 or -ENOMEM. */
int sl_quiet_run(uint64_t seed, double node_days, double node_days_of_alarm, struct sl_quiet *out);

#endif
