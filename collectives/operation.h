/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistent operations: a call with its plan, kept by the user and started again and again.
 *
 * A plan of the table serves every call of its shape. What two tensors of one shape must not share
 * (a codec's residuals) needs an owner for each: this one.
 */
#ifndef SL_COLLECTIVES_OPERATION_H
#define SL_COLLECTIVES_OPERATION_H

#include "collectives/exec.h"

struct sluice_operation {
    struct sluice_comm *comm; /* lives on as long as its operations, though destroyed */
    struct sl_plan *plan;     /* owned, with the one request */
    const void *in;
    void *out;
    bool dropped;  /* freed by the user while under way: goes when it has ended */
    uint32_t turn; /* starts so far */
    /* What its elements are in a checkpoint: those of state_id from number state_first on. */
    uint64_t state_id, state_first;
    /* of whoever runs its steps: owned; forget may be NULL */
    void *state;
    void (*forget)(void *state);
};

/* recipe may be NULL: by comm's coding, if that is for this call. -EINVAL (forced algorithm),
 * -ENOTSUP, -ENOMEM. */
int sl_operation_create(struct sluice_comm *comm, const struct sl_call *call,
                        const struct sl_recipe *recipe, const void *in, void *out,
                        struct sluice_operation **made);

/* Has it go by coding from now on, with nothing kept of before; NULL: as it is. -EINVAL: it has not
 * ended; -ENOMEM. It is as before when it fails. */
int sl_operation_set_coding(struct sluice_operation *operation, struct sl_coding *coding);

/* Gives it its state, in place of one that it has. */
void sl_operation_keep(struct sluice_operation *operation, void *state,
                       void (*forget)(void *state));

/* Frees it now, or when what is under way has ended. The communicator may go with it:
 * sl_comm_release(). */
void sl_operation_drop(struct sluice_operation *operation);

/* As sl_op_start(). -EINVAL: not ended since the last start. */
int sl_operation_start(struct sluice_operation *operation, struct sluice_req **out_op);

#endif
