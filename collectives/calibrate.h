/* SPDX-License-Identifier: Apache-2.0 */
/* Link costs: found when a communicator starts, compared with what operations take, handed on to
 * later jobs. */
#ifndef SL_COLLECTIVES_CALIBRATE_H
#define SL_COLLECTIVES_CALIBRATE_H

#include "collectives/comm.h"
#include "collectives/plan.h"

/* Measures link costs, or takes those that earlier jobs agreed on: the same on all ranks. Sets
 * comm->costs, correction and costs_source. */
int sl_costs_find(struct sluice_comm *comm, struct sl_exchange *exchange);

/* For a plan just built: what it should take, and which of its calls are timed. */
void sl_costs_predict(const struct sluice_comm *comm, struct sl_plan *plan);

/* At the end of an operation whose begin was noted. */
void sl_costs_sample(struct sluice_req *op);

/* When the communicator ends, before its plans and endpoints go: rank 0 notes for later jobs by how
 * much predictions were wrong. */
void sl_costs_learn(const struct sluice_comm *comm);

#endif
