/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of kernels need of a GPU: memory, copies, times. Ends the program where it refuses. */
#ifndef SL_TESTS_HW_GPU_H
#define SL_TESTS_HW_GPU_H

#include "gdr/cuda_dl.h"

#include <stddef.h>
#include <stdint.h>

struct hw_gpu {
    const struct sl_cuda *cuda;
    void *stream;
    char name[128];
};

/* Status 77 and the reason where there is none. */
void hw_gpu_open(struct hw_gpu *gpu);

/* Aligned to 256 bytes. Never freed. NULL: there is not so much. */
void *hw_gpu_alloc(size_t len);
/* On the stream, and waited for. */
void hw_gpu_put(const struct hw_gpu *gpu, void *to, const void *from, size_t len);
void hw_gpu_get(const struct hw_gpu *gpu, void *to, const void *from, size_t len);
/* On the stream alone. */
void hw_gpu_copy(const struct hw_gpu *gpu, void *to, const void *from, size_t len);
void hw_gpu_fill(const struct hw_gpu *gpu, void *at, uint8_t byte, size_t len);
void hw_gpu_wait(const struct hw_gpu *gpu);

/* Microseconds that the stream took from start to stop, which waits for it. */
void hw_gpu_start(const struct hw_gpu *gpu);
double hw_gpu_stop_us(const struct hw_gpu *gpu);

#endif
