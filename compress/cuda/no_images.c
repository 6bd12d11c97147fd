/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kernels in a build without nvcc: none, as calls on GPU memory say then. */
#include "compress/cuda/gpu.h"

const struct sl_gpu_image sl_gpu_images[] = {{0}};
