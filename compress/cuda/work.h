/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that need what those before them found: in how many elements, or bytes, the output of a
 * block begins. One pass: a block tells its own number, looks back over its predecessors' until one
 * knows all that came before it, and tells the sum.
 *
 * Blocks take their tiles by a ticket, so that whoever is waited for has begun. The memory is zeros
 * before the first kernel, and each kernel leaves it so: launches need no clearing in between, and
 * a captured graph can be replayed.
 *
 * Source: D. Merrill, M. Garland, "Single-pass parallel prefix scan with decoupled look-back",
 * NVIDIA technical report NVR-2016-002.
 */
#ifndef SL_COMPRESS_CUDA_WORK_H
#define SL_COMPRESS_CUDA_WORK_H

#include "compress/cuda/device.h"

struct sl_work {
    uint32_t ticket, done, zero[2];
    /* One a tile: nothing yet, KNOWN and its own sum, or ALL and the sum up to its end. */
    unsigned long long status[];
};

#define SL_WORK_KNOWN (1ull << 62)
#define SL_WORK_ALL (2ull << 62)
#define SL_WORK_SUM (SL_WORK_KNOWN - 1)

/* The next tile that nobody works on; none is left if there are no so many. By one thread. */
SL_DEVICE unsigned work_ticket(sl_work *work)
{
    return atomicAdd(&work->ticket, 1u);
}

/* The first tile of this block, for all threads. */
SL_DEVICE unsigned work_begin(sl_work *work)
{
    __shared__ unsigned tile;

    if (threadIdx.x == 0)
        tile = work_ticket(work);
    __syncthreads();
    return tile;
}

SL_DEVICE unsigned long long shuffled(unsigned long long value, unsigned mask)
{
    uint32_t low = __shfl_xor_sync(SL_ALL, (uint32_t)value, mask);
    uint32_t high = __shfl_xor_sync(SL_ALL, (uint32_t)(value >> 32), mask);

    return (unsigned long long)high << 32 | low;
}

/* Lane 0's status is that of the nearest tile; those before the first have no elements. */
SL_DEVICE unsigned long long work_status(const sl_work *work, int64_t nearest)
{
    int64_t mine = nearest - (int64_t)(threadIdx.x % 32);
    const volatile unsigned long long *at = &work->status[mine < 0 ? 0 : mine];

    return mine < 0 ? SL_WORK_ALL : *at;
}

/* By a warp: the sum over all tiles before this one. Some statuses are asked for ahead: on a large
 * GPU, a thousand tiles may be between this one and the nearest that knows all. */
SL_DEVICE unsigned long long look_back(const sl_work *work, unsigned tile)
{
    constexpr unsigned AHEAD = 4;
    unsigned long long before = 0;

    for (int64_t nearest = (int64_t)tile - 1;; nearest -= 32 * AHEAD) {
        unsigned long long statuses[AHEAD];

#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++)
            statuses[i] = work_status(work, nearest - i * 32);
#pragma unroll
        for (unsigned i = 0; i < AHEAD; i++) {
            unsigned long long status = statuses[i];
            uint32_t all;

            while (__ballot_sync(SL_ALL, status < SL_WORK_KNOWN) != 0)
                status = work_status(work, nearest - i * 32);
            /* Of those up to the nearest that knows all. */
            all = __ballot_sync(SL_ALL, status >= SL_WORK_ALL);
            status = all != 0 && threadIdx.x % 32 >= (unsigned)__ffs((int)all)
                         ? 0
                         : status & SL_WORK_SUM;
#pragma unroll
            for (unsigned by = 16; by > 0; by /= 2)
                status += shuffled(status, by);
            before += status;
            if (all != 0)
                return before;
        }
    }
}

/* The sum over all tiles before this one, for all threads; the same sum is in all of them. */
SL_DEVICE unsigned long long work_before(sl_work *work, unsigned tile, unsigned long long sum)
{
    __shared__ unsigned long long shared;

    if (threadIdx.x < 32) {
        volatile unsigned long long *mine = &work->status[tile];
        unsigned long long before;

        if (threadIdx.x == 0)
            *mine = (tile == 0 ? SL_WORK_ALL : SL_WORK_KNOWN) | sum;
        before = tile == 0 ? 0 : look_back(work, tile);
        if (threadIdx.x == 0) {
            *mine = SL_WORK_ALL | (before + sum);
            shared = before;
        }
    }
    __syncthreads();
    return shared;
}

/* Is this the last block to come here? What the others wrote before is seen then. For all. */
SL_DEVICE bool work_is_last(sl_work *work)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&work->done, 1u) == gridDim.x - 1;
        if (last)
            work->done = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* Leaves zeros behind, once nobody looks at them any more. Returns work_is_last(). */
SL_DEVICE bool work_end(sl_work *work, uint64_t tiles)
{
    bool last = work_is_last(work);

    if (last) {
        for (uint64_t i = threadIdx.x; i < tiles; i += SL_GPU_THREADS)
            work->status[i] = 0;
        if (threadIdx.x == 0)
            work->ticket = 0;
    }
    return last;
}

#endif
