/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements of a message (compress/topk.h): by a threshold in one pass, or exactly.
 *
 * Exactly, without the host looking on: kernels follow each other on the stream, and find in the
 * work's memory what is left to do.
 *
 *     sample                       of long messages: a bound that some more than k are likely to
 *                                  reach; only these need be counted
 *     histogram of level 0         twice, as the bound may have been too high: then the first one
 *                                  knows
 *     histogram of level 0, 1, 2   11, 11 and 9 bits of the magnitude: each narrows the k-th down.
 *                                  1 and 2 end at once if no more than cap are left
 *     select                       those left to the list; or, if they were too many, the result
 *     histogram of the list        the levels that were passed over
 *     select of the list           the result
 *
 * So two passes over the message where level 0 leaves few enough, and four where all is equal.
 */
#ifndef SL_COMPRESS_CUDA_TOPK_H
#define SL_COMPRESS_CUDA_TOPK_H

#include "compress/cuda/tile.h"
#include "compress/cuda/work.h"

#define SL_TOPK_BUCKETS 2048
#define SL_TOPK_COPIES 2 /* of the histogram: equal neighbours wait for each other less */

struct sl_topk_work {
    uint32_t prefix; /* of the k-th magnitude, bits that are not known yet 0 */
    uint32_t levels; /* that are known */
    uint32_t listed; /* elements in the list; they follow the statuses */
    uint32_t is_done;
    unsigned long long above, reach; /* elements that are larger than prefix's; or in its reach */
    uint32_t bound;                  /* smaller ones are not counted */
    uint32_t zero[3];
    uint32_t histogram[SL_TOPK_BUCKETS];
    sl_work work;
};

static_assert(sizeof(struct sl_topk_work) == SL_GPU_TOPK_HEAD, "gpu_topk.c makes room for it");

SL_DEVICE uint32_t magnitude(float x)
{
    return __float_as_uint(x) & SL_MAGNITUDE;
}

SL_DEVICE unsigned topk_shift(unsigned level)
{
    return level == 0 ? 20 : level == 1 ? 9 : 0;
}

/* Tiles of the message, at most one that is empty. */
SL_DEVICE uint64_t tiles_of(uint64_t count)
{
    return count == 0 ? 1 : (count + SL_GPU_TILE - 1) / SL_GPU_TILE;
}

SL_DEVICE uint32_t *list_index(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;

    return (uint32_t *)(w->work.status +
                        tiles_of(args.count > args.topk.cap ? args.count : args.topk.cap));
}

SL_DEVICE float *list_value(const struct sl_gpu_args &args)
{
    return (float *)(list_index(args) + args.topk.cap);
}

/* 16 bytes of elements for each step, as they are: what widens them waits for them. */
template <class T>
struct sl_topk_tile {
    static const unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
    sl_vector<T> steps[STEPS];
};

template <class T>
SL_DEVICE void load_tile(const void *in, uint64_t first, uint64_t end, sl_topk_tile<T> *out)
{
    typedef typename T::stored stored;
    constexpr unsigned E = sl_topk_tile<T>::E;

#pragma unroll
    for (unsigned s = 0; s < out->STEPS; s++) {
        uint64_t i = first + element_of<E>(s);
        const stored *from = (const stored *)in + i;

        if (i + E <= end && aligned(from, 16)) {
            out->steps[s].words = *(const uint4 *)from;
            continue;
        }
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            out->steps[s].at[j] = i + j < end ? from[j] : 0;
    }
}

/* Which of a thread's elements exist, bit by bit. */
template <unsigned E>
SL_DEVICE uint32_t there(uint64_t first, uint64_t end)
{
    uint32_t bits = 0;

    if (first + SL_GPU_TILE <= end)
        return SL_ALL;
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        bits |= (uint32_t)(first + element_of<E>(j / E) + j % E < end) << j;
    return bits;
}

/* ---- histograms ---- */

/* By the last block: the bucket, counted from the largest down, 16 a thread, in which the k-th lies
 * if before are larger than all. True for the thread that has found it. Leaves zeros. */
SL_DEVICE bool find_bucket(sl_topk_work *w, unsigned long long k, unsigned long long *before,
                           uint32_t *inside, uint32_t *bucket)
{
    constexpr unsigned EACH = SL_TOPK_BUCKETS / SL_GPU_THREADS;
    __shared__ uint32_t sums[SL_GPU_THREADS];
    uint32_t mine[EACH], sum = 0;

#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
        volatile uint32_t *at = &w->histogram[SL_TOPK_BUCKETS - 1 - (threadIdx.x * EACH + i)];

        mine[i] = *at;
        *at = 0;
        sum += mine[i];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned i = 0; i < threadIdx.x; i++)
        *before += sums[i];
    if (*before >= k || *before + sum < k)
        return false;
#pragma unroll
    for (unsigned i = 0; i < EACH; i++) {
        *inside = mine[i];
        *bucket = SL_TOPK_BUCKETS - 1 - (threadIdx.x * EACH + i);
        if (*before + mine[i] >= k)
            break;
        *before += mine[i];
    }
    return true;
}

SL_DEVICE void pick(const struct sl_gpu_args &args, unsigned long long k)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    unsigned long long before = w->above;
    uint32_t inside, bucket;

    __syncthreads(); /* all have read what one will write */
    if (find_bucket(w, k, &before, &inside, &bucket)) {
        w->prefix |= bucket << topk_shift(w->levels);
        w->above = before;
        w->reach = before + inside;
        w->levels++;
    }
    if (threadIdx.x == 0)
        w->bound = 0; /* had it been too high, all are counted now */
}

struct sl_topk_counts {
    uint32_t of[SL_TOPK_COPIES][SL_TOPK_BUCKETS];
};

SL_DEVICE void counts_clear(sl_topk_counts &counts)
{
#pragma unroll
    for (unsigned c = 0; c < SL_TOPK_COPIES; c++)
        for (unsigned i = threadIdx.x; i < SL_TOPK_BUCKETS; i += SL_GPU_THREADS)
            counts.of[c][i] = 0;
    __syncthreads();
}

SL_DEVICE void counts_add(sl_topk_counts &counts, uint32_t bucket)
{
    atomicAdd(&counts.of[threadIdx.x % SL_TOPK_COPIES][bucket], 1u);
}

SL_DEVICE void counts_tell(const sl_topk_counts &counts, sl_topk_work *w)
{
    __syncthreads();
    for (unsigned i = threadIdx.x; i < SL_TOPK_BUCKETS; i += SL_GPU_THREADS) {
        uint32_t sum = 0;

#pragma unroll
        for (unsigned c = 0; c < SL_TOPK_COPIES; c++)
            sum += counts.of[c][i];
        if (sum != 0)
            atomicAdd(&w->histogram[i], sum);
    }
}

/* Of so many tiles as there are blocks, at equal distances. Of a bound that is too low more are
 * counted than need be; one that is too high costs a pass: twice as many as k reach this one. */
template <class T>
SL_DEVICE void sample(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const uint64_t whole = args.count / SL_GPU_TILE;
    unsigned long long wanted, before = 0;
    __shared__ sl_topk_counts counts;
    sl_topk_tile<T> v;
    uint32_t inside, bucket;

    load_tile<T>(args.in, blockIdx.x * whole / gridDim.x * SL_GPU_TILE, args.count, &v);
    counts_clear(counts);
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        counts_add(counts, magnitude(widen(T(), v.steps[j / v.E].at[j % v.E])) >> topk_shift(0));
    counts_tell(counts, w);
    if (!work_is_last(&w->work))
        return;
    wanted = (unsigned long long)gridDim.x * SL_GPU_TILE;
    wanted = (unsigned long long)((float)args.topk.k / (float)args.count * (float)wanted) * 2 + 64;
    if (find_bucket(w, wanted, &before, &inside, &bucket))
        w->bound = bucket << topk_shift(0);
}

template <class T, bool LIST>
SL_DEVICE void histogram(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const unsigned level = args.topk.level, shift = topk_shift(level);
    const unsigned top = level == 0 ? 31 : topk_shift(level - 1);
    /* What counts is from least to most. */
    const uint32_t least = level == 0 ? w->bound : w->prefix, mask = (1u << (top - shift)) - 1;
    const uint32_t range = level == 0 ? SL_MAGNITUDE - least : (1u << top) - 1;
    const uint64_t count = LIST ? w->listed : args.count;
    const void *in = LIST ? list_value(args) : args.in;
    __shared__ sl_topk_counts counts;

    if (w->levels != level || w->is_done || (!LIST && level > 0 && w->reach <= args.topk.cap))
        return; /* no block of this kernel has work */
    counts_clear(counts);
    for (uint64_t tile = blockIdx.x; tile * SL_GPU_TILE < count; tile += gridDim.x) {
        const uint64_t first = tile * SL_GPU_TILE;
        sl_topk_tile<T> v;
        uint32_t is_there;

        load_tile<T>(in, first, count, &v);
        is_there = there<v.E>(first, count);
#pragma unroll
        for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++) {
            uint32_t mag = magnitude(widen(T(), v.steps[j / v.E].at[j % v.E]));

            if (mag - least <= range && (is_there >> j & 1) != 0)
                counts_add(counts, mag >> shift & mask);
        }
    }
    counts_tell(counts, w);
    if (work_is_last(&w->work))
        pick(args, args.topk.k < args.count ? args.topk.k : args.count);
}

/* ---- selection ---- */

/* What is taken, of which elements, and where to. */
struct sl_selection {
    uint32_t least;
    bool splits;               /* of those that are least itself, only the first ones */
    unsigned long long equals; /* that many */
    const void *in;
    const uint32_t *from; /* the elements' indices, NULL: counted from 0 */
    float *residual;
    uint64_t count;
    uint32_t *index;
    float *value;
    uint32_t cap;
};

/* Two counts in one word: above in the upper half, equal in the lower. Those of a tile have 16 bits
 * each, those of a message 31. */
SL_DEVICE unsigned long long wide(uint32_t counts)
{
    return (unsigned long long)(counts >> 16) << 31 | (counts & 0xffff);
}

SL_DEVICE uint32_t found_of(const sl_selection &want, unsigned long long counts)
{
    unsigned long long equals = counts & 0x7fffffff;

    return (uint32_t)((counts >> 31) + (equals < want.equals ? equals : want.equals));
}

/* Residuals as if nothing were taken; what may be stays, even if it is no number. */
template <class T>
SL_DEVICE void add_residuals(const sl_selection &want, uint64_t first, const sl_topk_tile<T> &v,
                             float *sum)
{
    constexpr unsigned E = sl_topk_tile<T>::E;

#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j += 4)
        load<sl_f32, 4>(want.residual, first + element_of<E>(j / E) + j % E, want.count, sum + j);
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++)
        sum[j] = __fadd_rn(sum[j], widen(T(), v.steps[j / E].at[j % E]));
#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j += 4) {
        float left[4];

#pragma unroll
        for (unsigned l = 0; l < 4; l++) {
            uint32_t mag = magnitude(sum[j + l]);

            left[l] = mag >= SL_INFINITE && mag < want.least ? 0 : sum[j + l];
        }
        store<sl_f32, 4>(want.residual, first + element_of<E>(j / E) + j % E, want.count, left);
    }
}

/* One element, which few are, is read once more: registers hold the next tile by now. */
template <class T, bool FEEDBACK>
SL_DEVICE void take(const sl_selection &want, uint64_t i, bool is_taken, unsigned long long place)
{
    float x = FEEDBACK ? want.residual[i] : widen(T(), ((const typename T::stored *)want.in)[i]);

    is_taken = is_taken && place < want.cap;
    if (is_taken) {
        want.index[place] = want.from != nullptr ? want.from[i] : (uint32_t)i;
        want.value[place] = x;
    }
    if (FEEDBACK && (is_taken || magnitude(x) >= SL_INFINITE))
        want.residual[i] = 0;
}

/* Of a tile: bits of those above and those equal; before: counts of all warps before this one. */
template <class T, bool FEEDBACK>
SL_DEVICE void take_tile(const sl_selection &want, uint64_t first, uint32_t above, uint32_t equal,
                         unsigned long long before)
{
    constexpr unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;

    if (__ballot_sync(SL_ALL, (above | equal) != 0) == 0)
        return;
#pragma unroll 1
    for (unsigned s = 0; s < STEPS; s++) {
        uint32_t mask = (1u << E) - 1, a = above >> s * E & mask, e = equal >> s * E & mask, here;
        unsigned long long to;

        if (__ballot_sync(SL_ALL, (a | e) != 0) == 0)
            continue;
        here = (uint32_t)__popc(a) << 16 | (uint32_t)__popc(e);
        to = before + wide(lanes_before(here));
        for (uint32_t left = a | e; left != 0; left &= left - 1) {
            unsigned j = (unsigned)__ffs((int)left) - 1;
            bool is_above = (a >> j & 1) != 0;
            unsigned long long equals = to & 0x7fffffff;

            take<T, FEEDBACK>(want, first + element_of<E>(s) + j, is_above || equals < want.equals,
                              found_of(want, to));
            to += is_above ? 1ull << 31 : 1;
        }
        before += wide(__reduce_add_sync(SL_ALL, here));
    }
}

/* Tile after tile: the next one is on its way while this one waits for those before it. Returns, to
 * the block that has the last tile, what was found; to others 0. */
template <class T, bool FEEDBACK>
SL_DEVICE bool select_tiles(const sl_selection &want, sl_work *work, unsigned long long *counts)
{
    const uint64_t tiles = tiles_of(want.count);
    __shared__ uint32_t of_warp[SL_GPU_THREADS / 32];
    __shared__ unsigned ticket;
    sl_topk_tile<T> v;
    unsigned tile = work_begin(work), next;
    bool has_last = false;

    if (tile < tiles)
        load_tile<T>(want.in, (uint64_t)tile * SL_GPU_TILE, want.count, &v);
    for (; tile < tiles; tile = next) {
        const uint64_t first = (uint64_t)tile * SL_GPU_TILE;
        uint32_t above = 0, equal = 0, mine, before = 0, total = 0, is_there;
        unsigned long long all_before;
        float sum[SL_TILE_ELEMENTS_EACH];

        if (threadIdx.x == 0)
            ticket = work_ticket(work);
        if constexpr (FEEDBACK)
            add_residuals<T>(want, first, v, sum);
#pragma unroll
        for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++) {
            uint32_t mag = magnitude(FEEDBACK ? sum[j] : widen(T(), v.steps[j / v.E].at[j % v.E]));

            above |= mag >= want.least ? 1u << j : 0;
            equal |= mag == want.least ? 1u << j : 0;
        }
        is_there = there<v.E>(first, want.count);
        equal = want.splits ? equal & is_there : 0;
        above = (above & is_there) ^ equal;
        mine = (uint32_t)__popc(above) << 16 | (uint32_t)__popc(equal);
        mine = __reduce_add_sync(SL_ALL, mine);
        if (threadIdx.x % 32 == 0)
            of_warp[threadIdx.x / 32] = mine;
        __syncthreads();
#pragma unroll
        for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++) {
            before += w < threadIdx.x / 32 ? of_warp[w] : 0;
            total += of_warp[w];
        }
        next = ticket;
        if (next < tiles)
            load_tile<T>(want.in, (uint64_t)next * SL_GPU_TILE, want.count, &v);
        all_before = work_before(work, tile, wide(total));
        take_tile<T, FEEDBACK>(want, first, above, equal, all_before + wide(before));
        if (tile == tiles - 1) {
            has_last = true;
            *counts = all_before + wide(total);
        }
    }
    return has_last;
}

/* All that reach a threshold. FEEDBACK: of residual + in, which stays where it was not taken. */
template <class T, bool FEEDBACK>
SL_DEVICE void above(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const sl_selection want = {args.topk.threshold,
                               false,
                               0,
                               args.in,
                               nullptr,
                               args.residual,
                               args.count,
                               args.topk.index,
                               args.topk.value,
                               args.topk.cap};
    unsigned long long counts;

    if (select_tiles<T, FEEDBACK>(want, &w->work, &counts) && threadIdx.x == 0)
        args.topk.found[0] = found_of(want, counts);
    work_end(&w->work, tiles_of(args.count));
}

template <class T, bool LIST>
SL_DEVICE void select(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const bool is_done = w->is_done, to_list = !LIST && w->reach <= args.topk.cap;
    const unsigned long long k = args.topk.k < args.count ? args.topk.k : args.count;
    const sl_selection want = {w->prefix,
                               !to_list,
                               to_list ? 0 : k - w->above,
                               LIST ? list_value(args) : args.in,
                               LIST ? list_index(args) : nullptr,
                               nullptr,
                               LIST ? w->listed : args.count,
                               to_list ? list_index(args) : args.topk.index,
                               to_list ? list_value(args) : args.topk.value,
                               args.topk.cap};
    unsigned long long counts;
    bool is_last;

    if (LIST && is_done) {
        if (work_is_last(&w->work) && threadIdx.x == 0)
            w->is_done = w->prefix = w->levels = 0, w->above = w->reach = 0;
        return;
    }
    if (select_tiles<T, false>(want, &w->work, &counts) && threadIdx.x == 0) {
        if (to_list)
            w->listed = found_of(want, counts);
        else
            args.topk.found[0] = found_of(want, counts), args.topk.found[1] = w->prefix;
    }
    is_last = work_end(&w->work, tiles_of(want.count));
    if (is_last && threadIdx.x == 0) {
        w->is_done = !LIST && !to_list;
        if (LIST)
            w->prefix = w->levels = w->listed = 0, w->above = w->reach = 0;
    }
}

#endif
