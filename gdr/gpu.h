/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: whose memory a pointer names, their contexts, and when what a NIC wrote is visible to
 * them. */
#ifndef SL_GDR_GPU_H
#define SL_GDR_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_cuda;

/* What is to be done before a GPU sees what a NIC wrote into its memory, and the NIC said that it
 * did. */
enum sl_gpu_order {
    SL_GPU_ORDERED,   /* nothing: later reads of the GPU see it */
    SL_GPU_FLUSH,     /* sl_gpu_flush() */
    SL_GPU_UNORDERED, /* nothing that the driver knows of would help */
};

/* Memory of a GPU, as the driver knows it. */
struct sl_gpu_memory {
    const struct sl_cuda *cuda;
    uintptr_t base; /* the allocation that the address lies in */
    size_t len;
    int device;    /* CUDA's ordinal */
    void *context; /* through which it is used: its own, else the device's primary one */
    enum sl_gpu_order order;
    bool is_managed; /* may move between GPU and host: no device can be let at it */
};

/*
 * Is addr memory of a GPU? *out, which may be NULL, is filled if it is. Costs tens of nanoseconds
 * where this process has loaded no CUDA driver; no pointer can be one of CUDA's then. Host memory
 * that CUDA pinned is host memory.
 */
bool sl_gpu_look(const void *addr, struct sl_gpu_memory *out);

/* Makes what NICs wrote into that memory visible to its GPU. For SL_GPU_FLUSH. -EIO. */
int sl_gpu_flush(const struct sl_gpu_memory *memory);

/* The PCI address of the GPU that this thread computes on, in lower case as sysfs has it: that of
 * its current context, or the only one that the program sees. False: there is none, or the driver
 * is not in use here, or does not say. */
#define SL_GPU_ADDRESS_MAX 32
bool sl_gpu_address(char out[SL_GPU_ADDRESS_MAX]);

/* Between them this thread's calls use the context, and another thread that is capturing a graph is
 * not disturbed by them. What was before comes back. -EIO: then no leave. */
struct sl_gpu_visit {
    const struct sl_cuda *cuda;
    int capture_mode;
};
int sl_gpu_enter(const struct sl_cuda *cuda, void *context, struct sl_gpu_visit *out);
void sl_gpu_leave(struct sl_gpu_visit *visit);

/* "GPU 0 (NVIDIA H100 80GB HBM3)". */
void sl_gpu_name(const struct sl_gpu_memory *memory, char *out, size_t cap);

#endif
