/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels that were built for the emulation (emulate.h). For C and C++. */
#ifndef SL_COMPRESS_CUDA_EMULATED_H
#define SL_COMPRESS_CUDA_EMULATED_H

#include "compress/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*sl_emu_kernel)(const struct sl_gpu_args *args);

/* Kernels of this program by name. NULL: there is none. */
sl_emu_kernel sl_emu_find(const char *name);
void sl_emu_run(sl_emu_kernel kernel, unsigned blocks, unsigned threads,
                const struct sl_gpu_args *args);
/* So many blocks at once from now on, of which the first comes late to its first barrier: others
 * must look back past each other to it. 1: one after another. */
void sl_emu_at_once(unsigned blocks);

#ifdef __cplusplus
}
#endif

#endif
