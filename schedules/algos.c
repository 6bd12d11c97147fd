/* SPDX-License-Identifier: Apache-2.0 */
/* The list of algorithms that the selector chooses from. */
#include "schedules/build.h"

#include <stddef.h>

const struct sl_algo *const sl_algos[] = {
    &sl_algo_self,     &sl_algo_p2p,      &sl_algo_flat,
    &sl_algo_direct,   &sl_algo_ring,     &sl_algo_biring,
    &sl_algo_pairwise, &sl_algo_linear,   &sl_algo_dissemination,
    &sl_algo_doubling, &sl_algo_halving,  &sl_algo_binomial,
    &sl_algo_dtree,    &sl_algo_bruck,    &sl_algo_hier,
    &sl_algo_hiertree, &sl_algo_weighted, NULL,
};

const struct sl_algo *const sl_coded_algos[] = {&sl_algo_code_sum,
                                                &sl_algo_code_gather,
                                                &sl_algo_oneshot_hosts,
                                                &sl_algo_oneshot,
                                                &sl_algo_code_chain,
                                                &sl_algo_code_ring,
                                                NULL};
