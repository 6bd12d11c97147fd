/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread asks of CUDA's driver: how often, and for how long. */
#ifndef SL_TESTS_HW_GPU_CALLS_H
#define SL_TESTS_HW_GPU_CALLS_H

#include "gdr/cuda_dl.h"

/* From now on. Once a process is enough. */
void hw_gpu_calls_count(const struct sl_cuda *cuda);

/* Of the calling thread. */
void hw_gpu_calls_reset(void);
/* What an operation of so many took, on one line each. */
void hw_gpu_calls_print(unsigned operations);

#endif
