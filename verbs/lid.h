/* SPDX-License-Identifier: Apache-2.0 */
/* Which of an InfiniBand port's LIDs a path has. Pure. */
#ifndef SL_VERBS_LID_H
#define SL_VERBS_LID_H

#include "multipath/plan.h"

#include <stddef.h>
#include <stdint.h>

#define SL_VERBS_LMC_MAX 7

/*
 * The lower bits of the LID that specs[at] is to have at this end, of a port with 2^lmc LIDs
 * (InfiniBand: a subnet manager lays a route to each). Those that the fewest other paths between
 * these rails have, but not the path's own of before; of several, seed chooses.
 */
uint8_t sl_verbs_lid_bits(unsigned lmc, uint64_t seed, const struct sl_mp_path_spec *specs,
                          size_t count, size_t at);

#endif
