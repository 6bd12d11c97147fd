/* SPDX-License-Identifier: Apache-2.0 */
/* The families of calls that the shim knows. */
#include "tools/preload/frame.h"

struct sl_preload_family *const sl_preload_families[] = {&sl_preload_mpi, &sl_preload_gloo,
                                                         &sl_preload_nccl, NULL};
