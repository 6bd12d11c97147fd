/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the emulated GPU share. */
#ifndef SL_TESTS_EMULATED_GPU_INSIDE_H
#define SL_TESTS_EMULATED_GPU_INSIDE_H

#include "core/list.h"
#include "core/rng.h"
#include "tests/unit/compress/emulated_gpu.h"

#include <stdbool.h>

#define EMULATED_INVALID_VALUE 1
#define EMULATED_OUT_OF_MEMORY 2
#define EMULATED_ILLEGAL_ADDRESS 700

struct emulated_stream {
    struct sl_node link, work;
};

struct emulated_memory {
    struct sl_node link;
    uint8_t *at;
    size_t len, mapped;
    int gpu; /* -1: pinned memory of the host */
};

struct emulated_gpu {
    struct sl_cuda table;
    struct sl_rng rng;
    struct sl_node streams, memory;
    struct emulated_stream default_stream;
    unsigned live, kernels, launched, entered;
    bool hangs;
    int sticky; /* all fail with it since a kernel has */
    char misuse[256];
    const char *fail_call;
    unsigned fail_nth;
    int fail_result;
};

extern struct emulated_gpu emulated_gpu;
extern char emulated_contexts[EMULATED_GPUS];

void emulated_misused(const char *what);

/* What the call fails with, or 0. In a context: it is misused outside of one. */
int emulated_asked(const char *call);
int emulated_asked_inside(const char *call);

/* emulated_gpu_memory.c */
struct emulated_memory *emulated_memory_of(const void *ptr);
void *emulated_take(int gpu, size_t len);
int emulated_release(void *ptr, bool pinned);
/* Lets the processor at the GPU's memory, or no more. */
void emulated_let(bool in);
void emulated_memory_calls(struct sl_cuda *table);

/* emulated_gpu_streams.c */
void emulated_streams_init(void);
int emulated_stream_create(void **out, unsigned flags);
int emulated_stream_destroy(void *stream);
void emulated_stream_calls(struct sl_cuda *table);

#endif
