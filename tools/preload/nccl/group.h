/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's groups of one thread: what waits for the outermost end. */
#ifndef SL_PRELOAD_NCCL_GROUP_H
#define SL_PRELOAD_NCCL_GROUP_H

#include "tools/preload/nccl/comm.h"

/* Puts a call on its stream, now or at the end of the group. */
enum nccl_result shim_group_post(struct shim_comm *comm, const struct shim_op *op);

/*
 * A communicator of NCCL's was made, with result: now, or at the end of the group, where *out is
 * filled. out is the program's and must last until then, as NCCL demands as well. Returns what the
 * program sees.
 */
enum nccl_result shim_group_made(struct nccl_comm **out, enum nccl_result result);

#endif
