/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true of both ends of a connection, once its traffic is over. */
#ifndef SL_TESTS_SIM_MP_JUDGE_H
#define SL_TESTS_SIM_MP_JUDGE_H

#include "multipath/conn.h"
#include "tests/sim/traffic.h"

/* Of one that is up. full: the sideband may have no room for control messages yet. calm: no path
 * has failed. */
void mp_judge(struct traffic *traffic, const struct sl_mp_conn *conn, const struct sl_mp_conn *peer,
              bool full, bool calm);

struct mp_outcome {
    bool away;      /* all paths stay away */
    bool goes_down; /* and rails say so */
    bool any;       /* whatever may break broke: every end is right */
};

/* Each end is up, or was lost with the status that is right for it. */
void mp_judge_ends(struct traffic *traffic, const struct mp_outcome *outcome);

/* How often paths have come up, to compare with later. */
void mp_ups_note(struct traffic *traffic);
/* A path that does not carry both ways since then came up at neither end; once it may have, which
 * was on its way up before. */
void mp_judge_ups(struct traffic *traffic);

#endif
