/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people about what operations are doing. */
#ifndef SL_COLLECTIVES_REPORT_H
#define SL_COLLECTIVES_REPORT_H

#include "collectives/plan.h"

/* "allreduce number 12 (1000 f32 sum, ring) at step 7 of 42, waits for rank 3 by shm …, 4096 bytes
 * so far". Cuts at cap. */
void sl_report_op(const struct sluice_req *op, char *out, size_t cap);

/* "call allreduce of 1000 f32 sum", or "have not called it yet" for NULL. */
void sl_report_call(const struct sluice_comm *comm, const struct sl_signature *call, char *out,
                    size_t cap);

/* All of a record but whose it is and since when. */
void sl_report_fill(const struct sluice_req *op, struct sl_state_op *out);

/* What was called: all from count on, but the steps. */
void sl_report_fill_call(const struct sl_call *call, const char *algo, struct sl_state_shape *out);

#endif
