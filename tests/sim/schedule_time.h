/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long schedules take over links of given speeds, in virtual time. The schedules are walked as
 * exec.c walks them; local work takes no time.
 *
 * A rank sends and receives at once. A message leaves when its send is posted and the news of its
 * receive has come, in slices of ST_SLICE_BYTES. A slice occupies the sender's link for its length,
 * arrives one latency later, and occupies the receiver's link for its length there: as over a
 * fabric that is never full. A sender takes slices of the message that was posted first of those
 * that may leave, or (fair) from its peers in turn.
 */
#ifndef SL_TESTS_SIM_SCHEDULE_TIME_H
#define SL_TESTS_SIM_SCHEDULE_TIME_H

#include "schedules/schedule.h"

#define ST_SLICE_BYTES 16384

struct st_links {
    const double *out, *in; /* [size]: bytes per ns */
    double latency_ns;
    double message_ns; /* that each message occupies both links for, besides its bytes */
    bool fair;
};

/* Time of the last step of all ranks, in ns; < 0: a step never ended. Windows and runners are not
 * known here. */
double st_run(const struct sl_schedule *schedules, uint32_t size, uint32_t esize,
              const struct st_links *links);

#endif
