/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory as a dma-buf: a file through which other devices reach it. */
#ifndef SL_GDR_DMABUF_H
#define SL_GDR_DMABUF_H

#include "core/mem.h"

struct sl_gpu_memory;

/*
 * Exports [addr, addr+len), which lies in memory (of sl_gpu_look). *out gets SL_MEM_DMABUF with a
 * descriptor that the caller owns; what a device registered through it outlives it. The export
 * covers whole pages, as CUDA demands: fd_off tells where in it addr is.
 *
 * -ENOTSUP: this memory, GPU or driver cannot; the text says why. -EINVAL: not within one
 * allocation. -EIO: the driver failed.
 */
int sl_gpu_export(const struct sl_gpu_memory *memory, const void *addr, size_t len,
                  struct sl_mem *out);

#endif
