/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest elements of a message (compress/topk.h): by a threshold in one pass, or exactly.
 *
 * Exactly, without the host looking on: kernels follow each other on the stream, and find in the
 * work's memory what is left to do.
 *
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
    uint32_t histogram[SL_TOPK_BUCKETS];
    sl_work work;
};

static_assert(sizeof(struct sl_topk_work) == SL_GPU_TOPK_HEAD, "gpu_topk.c makes room for it");

struct sl_no_tile { /* where tiles lie that are not encoded */
    static const unsigned HEAD = 0, BLOCK = 0, SCALE = 0, BITS = 0;
};

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

/* ---- histograms ---- */

/* By the last block: which bucket the k-th lies in. Buckets go from the largest down, 16 a thread.
 * Leaves zeros. */
SL_DEVICE void pick(const struct sl_gpu_args &args)
{
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    constexpr unsigned EACH = SL_TOPK_BUCKETS / SL_GPU_THREADS;
    __shared__ uint32_t sums[SL_GPU_THREADS];
    uint32_t mine[EACH], sum = 0;
    unsigned long long k = args.topk.k < args.count ? args.topk.k : args.count, before;

    before = w->above;
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
        before += sums[i];
    __syncthreads(); /* all have read what one will write */
    if (before < k && before + sum >= k) {
        unsigned i = 0;

        while (before + mine[i] < k)
            before += mine[i++];
        w->prefix |= (SL_TOPK_BUCKETS - 1 - (threadIdx.x * EACH + i)) << topk_shift(w->levels);
        w->above = before;
        w->reach = before + mine[i];
        w->levels++;
    }
}

template <class T, bool LIST>
SL_DEVICE void histogram(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const unsigned level = args.topk.level, shift = topk_shift(level);
    const unsigned top = level == 0 ? 31 : topk_shift(level - 1);
    const uint32_t prefix = w->prefix >> top, mask = (1u << (top - shift)) - 1;
    const uint64_t count = LIST ? w->listed : args.count;
    const void *in = LIST ? list_value(args) : args.in;
    __shared__ uint32_t counts[SL_TOPK_COPIES][SL_TOPK_BUCKETS];

    if (w->levels != level || w->is_done || (!LIST && level > 0 && w->reach <= args.topk.cap))
        return; /* no block of this kernel has work */
    for (unsigned i = threadIdx.x; i < SL_TOPK_COPIES * SL_TOPK_BUCKETS; i += SL_GPU_THREADS)
        counts[0][i] = 0;
    __syncthreads();
    for (uint64_t tile = blockIdx.x; tile * SL_GPU_TILE < count; tile += gridDim.x) {
        float v[SL_TILE_ELEMENTS_EACH];

#pragma unroll
        for (unsigned s = 0; s < STEPS; s++)
            load<T, E>(in, tile * SL_GPU_TILE + element_of<E>(s), count, v + s * E);
#pragma unroll
        for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++) {
            uint32_t mag = magnitude(v[j]);

            if (tile * SL_GPU_TILE + element_of<E>(j / E) + j % E < count &&
                (level == 0 || mag >> top == prefix))
                atomicAdd(&counts[threadIdx.x % SL_TOPK_COPIES][mag >> shift & mask], 1u);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < SL_TOPK_BUCKETS; i += SL_GPU_THREADS) {
        uint32_t sum = 0;

#pragma unroll
        for (unsigned c = 0; c < SL_TOPK_COPIES; c++)
            sum += counts[c][i];
        if (sum != 0)
            atomicAdd(&w->histogram[i], sum);
    }
    if (work_is_last(&w->work))
        pick(args);
}

/* ---- selection ---- */

/* What is taken: above the threshold, and of its equals the first ones. */
struct sl_wanted {
    uint32_t threshold;
    unsigned long long equals; /* 0 with is_least: the threshold itself is above */
    bool is_least;
};

/* Two counts in one word: above in the upper half, equal in the lower. Those of a tile have 16 bits
 * each, those of a message 31. */
SL_DEVICE unsigned long long wide(uint32_t counts)
{
    return (unsigned long long)(counts >> 16) << 31 | (counts & 0xffff);
}

/*
 * Writes what is wanted of a tile. v: its elements, from[]: their indices, NULL: counted from
 * first.
 * taken: bit j, v[j] was taken. Returns how many the message has up to here, in two counts.
 */
template <unsigned E>
SL_DEVICE unsigned long long select_tile(const struct sl_wanted &want, sl_work *work, unsigned tile,
                                         const float *v, unsigned n, uint64_t first,
                                         const uint32_t *from, uint32_t *index, float *value,
                                         uint32_t cap, uint32_t *taken)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;
    __shared__ uint32_t of_warp[SL_GPU_THREADS / 32];
    uint32_t above = 0, equal = 0, mine, before = 0, total = 0;
    unsigned long long all_before, at;

#pragma unroll
    for (unsigned j = 0; j < SL_TILE_ELEMENTS_EACH; j++) {
        uint32_t mag = magnitude(v[j]);
        bool there = element_of<E>(j / E) + j % E < n;

        above |=
            (uint32_t)(there && (mag > want.threshold || (want.is_least && mag == want.threshold)))
            << j;
        equal |= (uint32_t)(there && !want.is_least && mag == want.threshold) << j;
    }
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
    all_before = work_before(work, tile, wide(total));
    *taken = 0;
    at = all_before + wide(before);
#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        uint32_t mask = (1u << E) - 1, a = above >> s * E & mask, e = equal >> s * E & mask, here;
        unsigned long long to;

        if (__ballot_sync(SL_ALL, (a | e) != 0) == 0)
            continue;
        here = (uint32_t)__popc(a) << 16 | (uint32_t)__popc(e);
        to = at + wide(lanes_before(here));
#pragma unroll
        for (unsigned j = 0; j < E; j++) {
            unsigned long long equals = to & 0x7fffffff;
            unsigned long long place = (to >> 31) + (equals < want.equals ? equals : want.equals);
            bool is_above = (a >> j & 1) != 0, is_equal = (e >> j & 1) != 0;

            if ((is_above || (is_equal && equals < want.equals)) && place < cap) {
                unsigned i = element_of<E>(s) + j;

                index[place] = from != nullptr ? from[first + i] : (uint32_t)(first + i);
                value[place] = v[s * E + j];
                *taken |= 1u << (s * E + j);
            }
            to += is_above ? 1ull << 31 : is_equal ? 1 : 0;
        }
        at += wide(__reduce_add_sync(SL_ALL, here));
    }
    return all_before + wide(total);
}

SL_DEVICE uint32_t found_of(const struct sl_wanted &want, unsigned long long counts)
{
    unsigned long long equals = counts & 0x7fffffff;

    return (uint32_t)((counts >> 31) + (equals < want.equals ? equals : want.equals));
}

/* All that reach a threshold. FEEDBACK: of residual + in, which stays where it was not taken. */
template <class T, bool FEEDBACK>
SL_DEVICE void above(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const unsigned tile = work_begin(&w->work);
    const sl_place<sl_no_tile> place(args, tile);
    const struct sl_wanted want = {args.topk.threshold, 0, true};
    float v[SL_TILE_ELEMENTS_EACH];
    unsigned long long counts;
    uint32_t taken;

#pragma unroll
    for (unsigned s = 0; s < STEPS; s++) {
        uint64_t i = place.first + element_of<E>(s);

        load<T, E>(args.in, i, args.count, v + s * E);
#pragma unroll
        for (unsigned j = 0; FEEDBACK && j < E; j += 4) {
            float r[4];

            load<sl_f32, 4>(args.residual, i + j, args.count, r);
#pragma unroll
            for (unsigned l = 0; l < 4; l++)
                v[s * E + j + l] = __fadd_rn(r[l], v[s * E + j + l]);
        }
    }
    counts = select_tile<E>(want, &w->work, tile, v, place.n, place.first, nullptr, args.topk.index,
                            args.topk.value, args.topk.cap, &taken);
    if (tile == gridDim.x - 1 && threadIdx.x == 0)
        args.topk.found[0] = found_of(want, counts);
    if constexpr (FEEDBACK) {
#pragma unroll
        for (unsigned s = 0; s < STEPS; s++)
#pragma unroll
            for (unsigned j = 0; j < E; j += 4) {
                float r[4];

#pragma unroll
                for (unsigned l = 0; l < 4; l++) {
                    unsigned i = s * E + j + l;

                    r[l] = (taken >> i & 1) != 0 || magnitude(v[i]) >= SL_INFINITE ? 0 : v[i];
                }
                store<sl_f32, 4>(args.residual, place.first + element_of<E>(s) + j, args.count, r);
            }
    }
    work_end(&w->work);
}

template <class T, bool LIST>
SL_DEVICE void select(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
    struct sl_topk_work *w = (struct sl_topk_work *)args.work;
    const bool is_done = w->is_done, to_list = !LIST && w->reach <= args.topk.cap;
    const uint64_t count = LIST ? w->listed : args.count;
    const unsigned long long k = args.topk.k < args.count ? args.topk.k : args.count;
    const struct sl_wanted want = {w->prefix, to_list ? 0 : k - w->above, to_list};
    unsigned tile, n = 0;
    uint64_t first;
    float v[SL_TILE_ELEMENTS_EACH] = {};
    unsigned long long counts;
    uint32_t taken;

    if (LIST && is_done) {
        if (work_is_last(&w->work) && threadIdx.x == 0)
            w->is_done = w->prefix = w->levels = 0, w->above = w->reach = 0;
        return;
    }
    tile = work_begin(&w->work);
    first = (uint64_t)tile * SL_GPU_TILE;
    if (first < count) {
        n = count - first < SL_GPU_TILE ? (unsigned)(count - first) : SL_GPU_TILE;
#pragma unroll
        for (unsigned s = 0; s < STEPS; s++)
            load<T, E>(LIST ? list_value(args) : args.in, first + element_of<E>(s), count,
                       v + s * E);
    }
    counts = select_tile<E>(want, &w->work, tile, v, n, first, LIST ? list_index(args) : nullptr,
                            to_list ? list_index(args) : args.topk.index,
                            to_list ? list_value(args) : args.topk.value, args.topk.cap, &taken);
    if (tile == gridDim.x - 1 && threadIdx.x == 0) {
        if (to_list)
            w->listed = found_of(want, counts);
        else
            args.topk.found[0] = found_of(want, counts), args.topk.found[1] = w->prefix;
    }
    if (work_end(&w->work) && threadIdx.x == 0) {
        w->is_done = !LIST && !to_list;
        if (LIST)
            w->prefix = w->levels = w->listed = 0, w->above = w->reach = 0;
    }
}

#endif
