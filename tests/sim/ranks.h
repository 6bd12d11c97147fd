/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one simulated network, each with a communicator over it: they live, they end, they are
 * judged, and nothing is left. */
#ifndef SL_TESTS_SIM_RANKS_H
#define SL_TESTS_SIM_RANKS_H

#include "collectives/comm.h"
#include "testing/sim/sim.h"

/* One of them, while it lives. */
struct sim_rank {
    const struct sim_ranks *all;
    struct sl_sim *sim;
    struct sl_exchange *exchange; /* of its communicator */
    uint32_t number;
};

struct sim_ranks {
    const struct sl_sim_params *params;
    uint32_t count;
    uint64_t limit_ns; /* of the network's time */
    void (*live)(const struct sim_rank *rank);
    /* Whether that rank has ended as it must; why says how, if not. */
    bool (*judge)(void *arg, uint32_t number, char *why, size_t cap);
    void *arg;
};

/* False, and why: ranks are stuck, which cannot be taken down, or one was judged so, or a law of
 * the network was broken. */
bool sim_ranks_run(const struct sim_ranks *ranks, char *why, size_t cap);

/* For its communicator. config is borrowed until that is made. */
struct sl_comm_params sim_comm_params(const struct sim_rank *rank, uint64_t seed,
                                      const struct sl_config *config);

#endif
