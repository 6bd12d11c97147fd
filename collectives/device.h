/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on memory that the processor must not touch, a GPU's: only runners read and write IN, OUT
 * and TMP there, and only what is in the wire buffer is sent. So they are calls by a codec, whose
 * runner for such memory whoever knows it hands in (code.h).
 */
#ifndef SL_COLLECTIVES_DEVICE_H
#define SL_COLLECTIVES_DEVICE_H

#include "collectives/code.h"

/* The recipe of a call on such memory, by a code that is for it, or NULL. False: there is none. */
bool sl_device_recipe(struct sl_coding *coding, const struct sl_call *call,
                      const struct sl_code *code, struct sl_runner *runners[2],
                      struct sl_recipe *out);

/* Gives the runner all steps of the plan that are local. -ENOTSUP, with what would help: the call
 * has none, or others than it would touch that memory. */
int sl_device_adopt(struct sl_plan *plan);

/* TMP and the wire buffer: of the plan's first runner, if it gives them, otherwise ordinary
 * memory. -ENOMEM, -EIO. */
int sl_op_buffers_take(struct sluice_req *op);
void sl_op_buffers_give(struct sluice_req *op);

#endif
