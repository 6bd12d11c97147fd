/* SPDX-License-Identifier: Apache-2.0 */
/* Link costs for the selector. */
#include "collectives/select.h"

#include <stdio.h>

/* Costs of a common server, in ns and ns per byte: for SLUICE_TUNE=off and as a start. */
static const struct sl_costs built_in = {
    .shm = {.alpha = 250, .beta = 0.08},
    .net = {.alpha = 5000, .beta = 0.12},
    .sync = 150,
    .copy = 0.035,
    .reduce = 0.035,
    .step = 15,
};

int sl_costs_find(struct sluice_comm *comm, struct sl_exchange *exchange)
{
    uint32_t ranks_per_core = comm->costs.ranks_per_core;

    (void)exchange;
    comm->costs = built_in;
    comm->costs.ranks_per_core = ranks_per_core;
    snprintf(comm->costs_source, sizeof(comm->costs_source), "built in");
    return 0;
}
