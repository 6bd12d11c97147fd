/* SPDX-License-Identifier: Apache-2.0 */
/* The prover of schedules. */
#ifndef SL_TESTING_CHECK_H
#define SL_TESTING_CHECK_H

#include "schedules/schedule.h"

/* Proves a collective. rank_shapes[size] and rank_schedules[size] are what every rank calls with
 * and built. Runs them with expressions in place of numbers, under a seeded random interleaving,
 * and checks: every output place holds exactly what the collective promises, each rank's operand
 * once and in the same order on all ranks that share a result; every send is met by a recv of the
 * same length; channel rules hold; nothing waits in a circle; no window or lent place is written
 * while it may still be read; aliasing when in_place. -EINVAL with a sentence naming rank, step and
 * what is wrong. */
int sl_check(const struct sl_shape *rank_shapes, const struct sl_schedule *rank_schedules,
             uint64_t seed);

#endif
