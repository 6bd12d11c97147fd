/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true of both ends of a connection that is up, once its traffic is over. */
#ifndef SL_TESTS_SIM_MP_JUDGE_H
#define SL_TESTS_SIM_MP_JUDGE_H

#include "multipath/conn.h"
#include "tests/sim/traffic.h"

/* full: the sideband may have no room for control messages yet. calm: no path has failed. */
void mp_judge(struct traffic *traffic, const struct sl_mp_conn *conn, const struct sl_mp_conn *peer,
              bool full, bool calm);

#endif
