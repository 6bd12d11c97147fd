/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered against a path, and what it has to show before it carries again: docs/design/
 * 0030-paths-judged.md.
 */
#ifndef SL_MULTIPATH_TRIAL_H
#define SL_MULTIPATH_TRIAL_H

#include "multipath/path.h"

#define SL_MP_TRY_NS (2 * SL_NS_PER_S) /* between tries that fail, in the end */

/* An epoch of it is over, before or after it was up. */
void sl_mp_trial_over(struct sl_mp_path *path, uint64_t now_ns);
/* How long it rests then. */
uint64_t sl_mp_trial_rest_ns(const struct sl_mp_path *path);
/* It failed before and others carry, so nothing is gained by it if it carries badly: it has to
 * carry more pings than a new one, and none of them may have to be sent again. */
bool sl_mp_is_on_trial(const struct sl_mp_path *path);
/* How many pings of this end it has to carry. */
unsigned sl_mp_trial_pings(const struct sl_mp_path *path);
/* On trial, a ping or its acknowledge was lost. */
bool sl_mp_trial_is_lost(const struct sl_mp_path *path);
/* How many writes may be under way by it when it comes up; watch.c grants more later. */
uint8_t sl_mp_trial_writes(const struct sl_mp_path *path);

#endif
