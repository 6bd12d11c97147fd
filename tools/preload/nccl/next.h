/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL that the program uses, as the shim found it. */
#ifndef SL_PRELOAD_NCCL_NEXT_H
#define SL_PRELOAD_NCCL_NEXT_H

#include "tools/preload/nccl_calls.h"
#include "tools/preload/preload.h"

#define NCCL_POINTER(call, ret, params, args) ret(*call) params;

struct nccl_next {
    SL_NCCL_CALLS(NCCL_POINTER)
    enum nccl_result (*CommCount)(const struct nccl_comm *comm, int *out);
    enum nccl_result (*CommUserRank)(const struct nccl_comm *comm, int *out);
};

/* Set once, when the module is opened. What this NCCL does not have is NULL. */
extern struct nccl_next nccl;
extern const struct sl_preload_host *nccl_host;

#endif
