/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on memory of a GPU. */
#ifndef SL_LIB_DEVICE_H
#define SL_LIB_DEVICE_H

#include "lib/api.h"

#include "collectives/code.h"

/* Sets call->on_device where in and out are memory of a GPU, and has coding, which may be NULL,
 * ready for it. -EINVAL: they are on two sides, or on two GPUs. -ENOTSUP, -ENOMEM, -EIO: coding
 * cannot. */
int sl_device_look(const struct sluice_comm *comm, struct sl_coding *coding, struct sl_call *call,
                   const void *in, void *out);

/* The steps of a call on such memory begin when that is ready: after comm's stream. -EIO. */
static inline int sl_device_follow(const struct sluice_comm *comm, struct sl_coding *coding,
                                   const struct sl_call *call)
{
    return SL_UNLIKELY(call->on_device) && coding != NULL && coding->device_runner != NULL
               ? coding->follow(coding, comm->device_stream)
               : 0;
}

/* What such a call could begin with is on its way when it returns, though nobody asks for its
 * progress yet. */
static inline void sl_device_flush(struct sl_coding *coding, const struct sl_call *call)
{
    if (SL_UNLIKELY(call->on_device) && coding != NULL && coding->device_runner != NULL)
        coding->device_runner->ops->progress(coding->device_runner, 0);
}

#endif
