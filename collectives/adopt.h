/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator that is made over an exchange joins a family of its process, where all its ranks
 * are members of one: it opens, connects, registers and maps nothing then, as a split.
 *
 * What ranks say first (connect.c) names the family, with the rank and the place there. Where all
 * name the same one, they make a child each (child.h), and say over the same exchange whether they
 * could. Else, and where one lost a race for its place, all go on as if nobody had offered.
 *
 * A family takes in what the thread makes that used it last: threads that use communicators of
 * their own do not wait for each other (docs/design/0022-runtime.md).
 */
#ifndef SL_COLLECTIVES_ADOPT_H
#define SL_COLLECTIVES_ADOPT_H

#include "collectives/comm.h"

/* A family whose first communicator has been made by these may take in others from now on, until it
 * has no connections any more. */
void sl_adopt_list(struct sl_family *family, const struct sl_comm_params *params);
void sl_adopt_unlist(struct sl_family *family); /* does nothing for one that is not listed */

/* 0 and *out NULL: there is no family for all ranks; sl_connect_meet() is next, on all of them.
 * Other errors as sl_comm_create(). */
int sl_adopt(struct sl_exchange *exchange, const struct sl_comm_params *params,
             struct sluice_comm **out);

#endif
