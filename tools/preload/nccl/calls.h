/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in the place of NCCL's functions. */
#ifndef SL_PRELOAD_NCCL_CALLS_TAKEN_H
#define SL_PRELOAD_NCCL_CALLS_TAKEN_H

#include "tools/preload/nccl_calls.h"

#define SHIM_TAKE(call, ret, params, args) ret shim_##call params;
SL_NCCL_CALLS(SHIM_TAKE)
#undef SHIM_TAKE

#endif
