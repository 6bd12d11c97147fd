/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver in one process. GPU memory is a range of addresses that the processor cannot touch
 * (it would be killed), with the bytes elsewhere: devices reach them through the dma-buf that is
 * exported, tests through fake_cuda_bytes(). Exported ranges are memfds whose file position says
 * where in the memfd the range starts; fake_ibv.c reads it.
 *
 *     struct fake_cuda *fake = fake_cuda_create(1);
 *     sl_cuda_replace(fake_cuda_table(fake));
 *     …
 *     assert_null(fake_cuda_misuse(fake));
 *     assert_int_equal(fake_cuda_live(fake), 0);
 *     fake_cuda_destroy(fake);
 *
 * One at a time, and one thread at a time. Copies happen when their event is found reached, not
 * before: what overwrites the source too early is seen in the copy.
 */
#ifndef SL_TESTS_FAKE_CUDA_H
#define SL_TESTS_FAKE_CUDA_H

#include "gdr/cuda_dl.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_CUDA_DEVICES 8

struct fake_cuda;

struct fake_cuda_device {
    bool dma_buf; /* exports */
    int ordering; /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING */
    int flush_options;
    const char *address; /* on the PCI bus, as CUDA writes it; NULL: it cannot be asked for */
};

enum fake_cuda_kind {
    FAKE_CUDA_DEVICE,
    FAKE_CUDA_MANAGED,
    FAKE_CUDA_POOLED /* no context of its own */
};

struct fake_cuda *fake_cuda_create(unsigned devices);
void fake_cuda_destroy(struct fake_cuda *fake);

/* May be changed before it is used (an old driver: set what is optional to NULL). */
struct sl_cuda *fake_cuda_table(struct fake_cuda *fake);
/* Exports, orders writes; may be changed before it is used. */
struct fake_cuda_device *fake_cuda_device(struct fake_cuda *fake, unsigned device);

void *fake_cuda_alloc(struct fake_cuda *fake, unsigned device, size_t len,
                      enum fake_cuda_kind kind);
void fake_cuda_free(struct fake_cuda *fake, void *ptr);
/* The bytes behind a pointer into GPU memory, as they are. */
uint8_t *fake_cuda_bytes(struct fake_cuda *fake, const void *ptr);
/* The same, as the GPU sees them: where writes are not ordered, as they were at the last flush or
 * copy. */
const uint8_t *fake_cuda_seen(struct fake_cuda *fake, const void *ptr);

/* The nth call of that name from now (1: the next) returns result, and does nothing. */
void fake_cuda_fail(struct fake_cuda *fake, const char *call, unsigned nth, int result);
/* Copies are found done by the nth look at them (default 3). */
void fake_cuda_delay(struct fake_cuda *fake, unsigned looks);

unsigned fake_cuda_copies(const struct fake_cuda *fake);
unsigned fake_cuda_flushes(const struct fake_cuda *fake);
unsigned fake_cuda_exports(const struct fake_cuda *fake);
/* The first thing that was done wrong, or NULL. */
const char *fake_cuda_misuse(const struct fake_cuda *fake);
/* Allocations, streams, events, pinned memory, contexts entered and not left. */
unsigned fake_cuda_live(const struct fake_cuda *fake);

#endif
