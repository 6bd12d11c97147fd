/* SPDX-License-Identifier: Apache-2.0 */
/* Deals a port's LIDs to paths. */
#include "verbs/lid.h"

#include "core/rng.h"

uint8_t sl_verbs_lid_bits(unsigned lmc, uint64_t seed, const struct sl_mp_path_spec *specs,
                          size_t count, size_t at)
{
    const struct sl_mp_path_spec *own = &specs[at];
    unsigned lids = 1u << lmc, users[1u << SL_VERBS_LMC_MAX] = {0}, best = 0;
    struct sl_rng rng;

    for (size_t i = 0; i < count; i++)
        if (specs[i].flow_label != SL_PATH_LABEL_OPEN && specs[i].local_rail == own->local_rail &&
            specs[i].remote_rail == own->remote_rail)
            users[specs[i].lid_bits % lids] += i == at ? SL_MP_PATHS_MAX : 1;
    sl_rng_init(&rng, ~seed); /* labels are drawn from seed itself */
    unsigned first = (unsigned)sl_rng_below(&rng, lids);

    for (unsigned i = 0; i < lids; i++)
        if (i == 0 || users[(first + i) % lids] < users[best])
            best = (first + i) % lids;
    return (uint8_t)best;
}
