/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU as collectives use it, without one: kernels are those of the emulation, memory is a part of
 * the process's that the processor is killed for touching, except in kernels, and streams go on by
 * one piece of work of some stream whenever somebody asks for an event. So what does not wait for
 * an event finds its bytes missing.
 *
 *     emulated_gpu_use(seed);
 *     void *in = emulated_gpu_alloc(0, 4096);
 *     …
 *     assert_null(emulated_gpu_misuse());
 *     assert_int_equal(emulated_gpu_live(), 0);
 *
 * One per process, and one thread at a time.
 */
#ifndef SL_TESTS_EMULATED_GPU_H
#define SL_TESTS_EMULATED_GPU_H

#include "gdr/cuda_dl.h"

#include <stdbool.h>
#include <stdint.h>

#define EMULATED_GPUS 2

/* From now on it is this process's driver. What chance decides, it decides by seed. */
void emulated_gpu_use(uint64_t seed);

/* Memory of GPU 0 or 1. */
void *emulated_gpu_alloc(unsigned gpu, size_t len);
void emulated_gpu_free(void *ptr);

/* Bytes in and out, at once. */
void emulated_gpu_put(void *to, const void *from, size_t len);
void emulated_gpu_get(void *to, const void *from, size_t len);

/* A stream of the user's on GPU 0, and a copy that it makes when its turn comes; NULL: the default
 * one. from stays as it is until then. */
void *emulated_gpu_stream(void);
void emulated_gpu_stream_end(void *stream); /* takes NULL */
void emulated_gpu_copy_later(void *stream, void *to, const void *from, size_t len);

/* The nth call of that name from now (1: the next one) gives result, and does nothing: "cuMemAlloc"
 * and so on, or "kernel", which fails when it runs. With 0, none does any more. */
void emulated_gpu_fail(const char *call, unsigned nth, int result);

/* No stream goes on any more; or they do again. */
void emulated_gpu_hang(bool hangs);

unsigned emulated_gpu_launched(void); /* kernels that were put on streams */
unsigned emulated_gpu_kernels(void);  /* that have run */
/* The first thing that was done wrong, or NULL. */
const char *emulated_gpu_misuse(void);
/* Allocations, streams, events, modules, contexts entered and not left. */
unsigned emulated_gpu_live(void);

#endif
