/* SPDX-License-Identifier: Apache-2.0 */
/* The one executor that walks schedules. */
#ifndef SL_COLLECTIVES_EXEC_H
#define SL_COLLECTIVES_EXEC_H

#include "collectives/plan.h"

/* Starts an operation of plan on in and out and runs it as far as it goes. *out_op is its request;
 * its status may be final already. -EAGAIN: too many in flight. */
int sl_op_start(struct sluice_comm *comm, struct sl_plan *plan, const void *in, void *out,
                struct sluice_req **out_op);

/* The same, however many are in flight. */
int sl_op_begin(struct sluice_comm *comm, struct sl_plan *plan, const void *in, void *out,
                struct sluice_req **out_op);

/* Runs every step that can run now. Returns how many did. Ends the operation after its last. */
unsigned sl_op_run(struct sluice_req *op);

/* Every step is complete, though the operation may not have been ended yet. */
bool sl_op_is_over(const struct sluice_req *op);

/* Ends an operation: for the failure of its communicator, when nothing can touch its memory any
 * more. */
void sl_op_end(struct sluice_req *op, int status);

/* What an operation waits for, for reports. */
struct sl_waiting {
    int32_t rank;               /* -1: nobody; this rank: its own step, which a runner has */
    uint32_t step;              /* index in the schedule */
    const struct sl_step *what; /* NULL: nothing */
    const char *runner;         /* that has the step; or NULL */
};
void sl_op_waiting(const struct sluice_req *op, struct sl_waiting *out);

/* Whether the window of that rank says less, at this moment, than the next step needs. A rank that
 * is gone will never say more. */
bool sl_op_lacks(const struct sluice_req *op, uint32_t rank);

/* A receive of a message of that rank is posted. */
bool sl_op_receives(const struct sluice_req *op, uint32_t rank);

#endif
