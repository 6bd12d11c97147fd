/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Palette-3 (compress/palette.h): exponents in three bits, and what does not fit beside them.
 *
 * A block of threads takes a tile apart: what repeats not goes to its place in the raw plane at
 * once; exponents stay in shared memory, where bits become planes by ballots. Where a tile's body
 * begins is known when the blocks before have told how long theirs are (work.h). It has any
 * alignment, so bodies are put together in shared memory, at the same distance from 16 bytes.
 */
#ifndef SL_COMPRESS_CUDA_PALETTE_H
#define SL_COMPRESS_CUDA_PALETTE_H

#include "compress/cuda/tile.h"
#include "compress/cuda/work.h"

#define SL_PALETTE_GROUP 64
#define SL_PALETTE_BLOCK 512
#define SL_PALETTE_CODES 7
#define SL_PALETTE_TRIED 16  /* more escapes than one of so many, and a palette is tried */
#define SL_PALETTE_SAMPLE 16 /* every 16th exponent is counted for it */

enum { SL_PALETTE_WINDOW, SL_PALETTE_TABLE, SL_PALETTE_STORED };

struct sl_palette_shared {
    uint8_t exponents[SL_GPU_TILE];
    uint4 body[SL_GPU_TILE / 16 + 1];
    uint32_t counts[256];
    uint32_t of_warp[SL_GPU_THREADS / 32];
    uint8_t table[16]; /* bases of 8 windows, or a palette of 7 */
};

/* Where the parts of a message of count elements lie. */
struct sl_palette_place {
    uint64_t first; /* of the tile's elements */
    unsigned there; /* elements that the message has */
    unsigned n;     /* and with the repeated last one, whole groups */
    uint64_t raw, head, bodies;
};

SL_DEVICE uint64_t raw_bytes(sl_bf16, uint64_t n)
{
    return n;
}
SL_DEVICE uint64_t raw_bytes(sl_f16, uint64_t n)
{
    return n + 3 * (n / 8);
}
SL_DEVICE uint64_t raw_bytes(sl_f32, uint64_t n)
{
    return 3 * n;
}

template <class T>
SL_DEVICE sl_palette_place palette_place(uint64_t count, unsigned tile)
{
    const uint64_t tiles = (count + SL_GPU_TILE - 1) / SL_GPU_TILE;
    const uint64_t all = (count + SL_PALETTE_GROUP - 1) / SL_PALETTE_GROUP * SL_PALETTE_GROUP;
    sl_palette_place p;

    p.first = (uint64_t)tile * SL_GPU_TILE;
    p.there = count - p.first < SL_GPU_TILE ? (unsigned)(count - p.first) : SL_GPU_TILE;
    p.n = all - p.first < SL_GPU_TILE ? (unsigned)(all - p.first) : SL_GPU_TILE;
    p.raw = raw_bytes(T(), p.first);
    p.head = raw_bytes(T(), all) + tile * 16ull;
    p.bodies = raw_bytes(T(), all) + tiles * 16;
    return p;
}

/* The bits of E elements from i on; behind the end those of the last one. */
template <class T>
SL_DEVICE void load_bits(const void *in, uint64_t i, uint64_t end, uint32_t *out)
{
    constexpr unsigned E = sl_vector<T>::N, SIZE = sizeof(typename T::stored);
    uint32_t words[4];

    if (i + E <= end && aligned((const char *)in + i * SIZE, 16)) {
        uint4 v = *(const uint4 *)((const char *)in + i * SIZE);

        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            out[j] = SIZE == 4 ? words[j % 4] : words[j / 2] >> j % 2 * 16 & 0xffff;
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < E; j++) {
        uint64_t at = i + j < end ? i + j : end - 1;

        out[j] = SIZE == 4 ? ((const uint32_t *)in)[at] : ((const uint16_t *)in)[at];
    }
}

template <class T>
SL_DEVICE void store_bits(void *out, uint64_t i, uint64_t end, const uint32_t *bits)
{
    constexpr unsigned E = sl_vector<T>::N, SIZE = sizeof(typename T::stored);

    if (i + E <= end && aligned((const char *)out + i * SIZE, 16)) {
        uint32_t words[4] = {};

#pragma unroll
        for (unsigned j = 0; j < E; j++)
            words[SIZE == 4 ? j % 4 : j / 2] |= SIZE == 4 ? bits[j] : bits[j] << j % 2 * 16;
        *(uint4 *)((char *)out + i * SIZE) = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < E; j++)
        if (i + j < end) {
            if (SIZE == 4)
                ((uint32_t *)out)[i + j] = bits[j];
            else
                ((uint16_t *)out)[i + j] = (uint16_t)bits[j];
        }
}

/* ---- elements apart, and together ---- */

/* E elements, e the first's place in the tile, rotated left by one: the raw part to *raw, the
 * exponents as bytes of *words. */
SL_DEVICE void split(sl_bf16, const uint32_t *bits, unsigned e, unsigned, uint8_t *raw,
                     uint32_t *words)
{
    uint32_t low[2] = {};

    words[0] = words[1] = 0;
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = (bits[j] << 1 | bits[j] >> 15) & 0xffff;

        low[j / 4] |= (x & 0xff) << j % 4 * 8;
        words[j / 4] |= x >> 8 << j % 4 * 8;
    }
    *(uint2 *)(raw + e) = make_uint2(low[0], low[1]);
}
SL_DEVICE void split(sl_f16, const uint32_t *bits, unsigned e, unsigned n, uint8_t *raw,
                     uint32_t *words)
{
    uint32_t low[2] = {}, planes[3] = {};

    words[0] = words[1] = 0;
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = (bits[j] << 1 | bits[j] >> 15) & 0xffff;

        low[j / 4] |= (x & 0xff) << j % 4 * 8;
        words[j / 4] |= x >> 11 << j % 4 * 8;
#pragma unroll
        for (unsigned b = 0; b < 3; b++)
            planes[b] |= (x >> (8 + b) & 1) << j;
    }
    *(uint2 *)(raw + e) = make_uint2(low[0], low[1]);
#pragma unroll
    for (unsigned b = 0; b < 3; b++)
        raw[n + b * (n / 8) + e / 8] = (uint8_t)planes[b];
}
SL_DEVICE void split(sl_f32, const uint32_t *bits, unsigned e, unsigned n, uint8_t *raw,
                     uint32_t *words)
{
    uint32_t low[2] = {}, high = 0;

    words[0] = 0;
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        uint32_t x = bits[j] << 1 | bits[j] >> 31;

        low[j / 2] |= (x & 0xffff) << j % 2 * 16;
        high |= (x >> 16 & 0xff) << j * 8;
        words[0] |= x >> 24 << j * 8;
    }
    *(uint2 *)(raw + 2 * e) = make_uint2(low[0], low[1]);
    *(uint32_t *)(raw + 2 * n + e) = high;
}

SL_DEVICE void join(sl_bf16, const uint8_t *raw, unsigned e, unsigned, const uint32_t *exponents,
                    uint32_t *bits)
{
    const uint2 low = *(const uint2 *)(raw + e);

#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = ((j < 4 ? low.x : low.y) >> j % 4 * 8 & 0xff) | exponents[j] << 8;

        bits[j] = (x >> 1 | x << 15) & 0xffff;
    }
}
SL_DEVICE void join(sl_f16, const uint8_t *raw, unsigned e, unsigned n, const uint32_t *exponents,
                    uint32_t *bits)
{
    const uint2 low = *(const uint2 *)(raw + e);
    uint32_t planes[3];

#pragma unroll
    for (unsigned b = 0; b < 3; b++)
        planes[b] = raw[n + b * (n / 8) + e / 8];
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = ((j < 4 ? low.x : low.y) >> j % 4 * 8 & 0xff) | exponents[j] << 11;

#pragma unroll
        for (unsigned b = 0; b < 3; b++)
            x |= (planes[b] >> j & 1) << (8 + b);
        x &= 0xffff;
        bits[j] = (x >> 1 | x << 15) & 0xffff;
    }
}
SL_DEVICE void join(sl_f32, const uint8_t *raw, unsigned e, unsigned n, const uint32_t *exponents,
                    uint32_t *bits)
{
    const uint2 low = *(const uint2 *)(raw + 2 * e);
    const uint32_t high = *(const uint32_t *)(raw + 2 * n + e);

#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        uint32_t x = ((j < 2 ? low.x : low.y) >> j % 2 * 16 & 0xffff) |
                     (high >> j * 8 & 0xff) << 16 | exponents[j] << 24;

        bits[j] = x >> 1 | x << 31;
    }
}

/* ---- codes ---- */

SL_DEVICE uint32_t code_of_exponent(const sl_palette_shared &s, unsigned mode, unsigned i)
{
    uint32_t exponent = s.exponents[i], code = SL_PALETTE_CODES, below;

    if (mode == SL_PALETTE_WINDOW) {
        below = (uint32_t)s.table[i / SL_PALETTE_BLOCK] - exponent;
        return below < SL_PALETTE_CODES ? below : SL_PALETTE_CODES;
    }
#pragma unroll
    for (int c = SL_PALETTE_CODES - 1; c >= 0; c--)
        code = s.table[c] == exponent ? (uint32_t)c : code;
    return code;
}

/* Escapes of the block's tile; those of each warp stay in of_warp. */
SL_DEVICE uint32_t count_escapes(sl_palette_shared &s, unsigned mode, unsigned n)
{
    unsigned first = threadIdx.x / 32 * 1024, lane = threadIdx.x % 32;
    uint32_t count = 0, sum = 0;

    for (unsigned k = 0; k < 32; k++) {
        unsigned i = first + k * 32 + lane;

        count += i < n && code_of_exponent(s, mode, i) == SL_PALETTE_CODES;
    }
    count = __reduce_add_sync(SL_ALL, count);
    __syncthreads(); /* the last count was read */
    if (lane == 0)
        s.of_warp[threadIdx.x / 32] = count;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++)
        sum += s.of_warp[w];
    return sum;
}

/* The largest exponent of each 512; the exponents are in shared memory. */
SL_DEVICE void find_bases(sl_palette_shared &s, unsigned n)
{
    unsigned block = threadIdx.x / 16, lane = threadIdx.x % 16;
    uint32_t most = 0;

    for (unsigned k = 0; k < SL_PALETTE_BLOCK / 16; k++) {
        unsigned i = block * SL_PALETTE_BLOCK + k * 16 + lane;

        if (i < n && s.exponents[i] > most)
            most = s.exponents[i];
    }
    most = max_of_lanes<16>(most);
    __syncthreads();
    if (lane == 0)
        s.table[block] = (uint8_t)most;
    __syncthreads();
}

/* The seven most frequent of a sample, the smaller of equals first. */
SL_DEVICE void find_palette(sl_palette_shared &s, unsigned n)
{
    for (unsigned i = threadIdx.x; i < 256; i += SL_GPU_THREADS)
        s.counts[i] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x * SL_PALETTE_SAMPLE; i < n;
         i += SL_GPU_THREADS * SL_PALETTE_SAMPLE)
        atomicAdd(&s.counts[s.exponents[i]], 1u);
    for (unsigned k = 0; k < SL_PALETTE_CODES; k++) {
        uint32_t best = 0;

        __syncthreads();
        for (unsigned i = threadIdx.x; i < 256; i += SL_GPU_THREADS) {
            uint32_t rank = s.counts[i] != 0 ? s.counts[i] << 8 | (255 - i) : 0;

            best = rank > best ? rank : best;
        }
        best = max_of_block(best);
        __syncthreads();
        if (threadIdx.x == 0) {
            s.table[k] = best != 0 ? (uint8_t)(255 - (best & 255)) : s.table[0];
            s.counts[s.table[k]] = 0;
        }
    }
    if (threadIdx.x == 0)
        s.table[7] = 0;
    __syncthreads();
}

/* Bytes between the body in shared memory and out, both at the same distance from 16. */
SL_DEVICE void move_out(const sl_palette_shared &s, uint8_t *out, unsigned len)
{
    unsigned shift = (unsigned)((uintptr_t)out & 15);
    const uint8_t *from = (const uint8_t *)s.body;

    out -= shift;
    for (unsigned v = threadIdx.x; v * 16 < shift + len; v += SL_GPU_THREADS) {
        if (v * 16 >= shift && v * 16 + 16 <= shift + len) {
            ((uint4 *)out)[v] = s.body[v];
            continue;
        }
        for (unsigned i = v * 16; i < v * 16 + 16; i++)
            if (i >= shift && i < shift + len)
                out[i] = from[i];
    }
}

SL_DEVICE void move_in(sl_palette_shared &s, const uint8_t *in, unsigned len)
{
    unsigned shift = (unsigned)((uintptr_t)in & 15);
    uint8_t *to = (uint8_t *)s.body;

    in -= shift;
    for (unsigned v = threadIdx.x; v * 16 < shift + len; v += SL_GPU_THREADS) {
        if (v * 16 >= shift && v * 16 + 16 <= shift + len) {
            s.body[v] = ((const uint4 *)in)[v];
            continue;
        }
        for (unsigned i = v * 16; i < v * 16 + 16; i++)
            if (i >= shift && i < shift + len)
                to[i] = in[i];
    }
}

/* Planes and escapes of the tile to body. */
SL_DEVICE void put_body(sl_palette_shared &s, unsigned mode, unsigned n, uint8_t *body)
{
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = warp * 1024,
             at = 3 * (n / 8);

    for (unsigned w = 0; w < warp; w++)
        at += s.of_warp[w];
    for (unsigned k = 0; k < 32; k++) {
        unsigned i = first + k * 32 + lane;
        uint32_t code = i < n ? code_of_exponent(s, mode, i) : 0, plane, escapes;

        escapes = __ballot_sync(SL_ALL, code == SL_PALETTE_CODES);
#pragma unroll
        for (unsigned b = 0; b < 3; b++) {
            plane = __ballot_sync(SL_ALL, (code >> b & 1) != 0);
            if (lane / 4 == b && i - lane < n) /* four lanes a plane, a byte each */
                body[b * (n / 8) + (first + k * 32) / 8 + lane % 4] =
                    (uint8_t)(plane >> lane % 4 * 8);
        }
        if (code == SL_PALETTE_CODES)
            body[at + (unsigned)__popc(escapes & ((1u << lane) - 1))] = s.exponents[i];
        at += (unsigned)__popc(escapes);
    }
}

template <class T>
SL_DEVICE void palette_encode(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N;
    __shared__ sl_palette_shared s;
    struct sl_work *work = (struct sl_work *)args.work;
    const unsigned tile = work_begin(work);
    const sl_palette_place p = palette_place<T>(args.count, tile);
    uint8_t *out = (uint8_t *)args.out, *body;
    unsigned mode = SL_PALETTE_WINDOW, len;
    unsigned long long before;
    uint32_t escapes, head[4] = {};

#pragma unroll
    for (unsigned step = 0; step < SL_TILE_ELEMENTS_EACH / E; step++) {
        unsigned e = element_of<E>(step);
        uint32_t bits[E], words[2];

        if (e >= p.n)
            continue;
        load_bits<T>(args.in, p.first + e, args.count, bits);
        split(T(), bits, e, p.n, out + p.raw, words);
        *(uint32_t *)(s.exponents + e) = words[0];
        if (E == 8)
            *(uint32_t *)(s.exponents + e + 4) = words[1];
    }
    __syncthreads();
    find_bases(s, p.n);
    escapes = count_escapes(s, mode, p.n);
    if (escapes > p.n / SL_PALETTE_TRIED) {
        uint32_t others;

        find_palette(s, p.n);
        others = count_escapes(s, SL_PALETTE_TABLE, p.n);
        if (others < escapes) {
            escapes = others;
            mode = SL_PALETTE_TABLE;
        } else {
            find_bases(s, p.n);
            count_escapes(s, mode, p.n);
        }
    }
    len = 3 * (p.n / 8) + escapes;
    if (len >= p.n) {
        mode = SL_PALETTE_STORED;
        len = p.n;
    } else {
#pragma unroll
        for (unsigned i = 0; i < 8; i++)
            head[i / 4] |= (uint32_t)s.table[i] << i % 4 * 8;
        head[2] = escapes;
    }
    head[2] |= mode << 16;
    if (threadIdx.x == 0 && p.n != 0)
        *(uint4 *)(out + p.head) = make_uint4(head[0], head[1], head[2], head[3]);
    before = work_before(work, tile, len);
    out += p.bodies + before;
    body = (uint8_t *)s.body + ((uintptr_t)out & 15);
    if (mode == SL_PALETTE_STORED)
        for (unsigned i = threadIdx.x; i < p.n; i += SL_GPU_THREADS)
            body[i] = s.exponents[i];
    else
        put_body(s, mode, p.n, body);
    __syncthreads();
    move_out(s, out, len);
    if (tile == gridDim.x - 1 && threadIdx.x == 0)
        *args.palette.len = p.bodies + before + len;
    work_end(work);
}

/* Exponents of a thread's elements from the body in shared memory. Returns the escapes that the
 * tile's codes ask for; none beyond have is read. */
template <unsigned E>
SL_DEVICE uint32_t exponents_of(sl_palette_shared &s, const uint8_t *body, unsigned mode,
                                unsigned n, unsigned have, uint32_t *exponents)
{
    constexpr unsigned STEPS = SL_TILE_ELEMENTS_EACH / E;
    unsigned warp = threadIdx.x / 32, at = 0;
    uint32_t escapes = 0, sum = 0, mine;

#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned e = element_of<E>(step);
        uint32_t planes[3] = {};

        for (unsigned b = 0; b < 3 && e < n && mode != SL_PALETTE_STORED; b++)
            planes[b] = (uint32_t)body[b * (n / 8) + e / 8] >> e % 8;
#pragma unroll
        for (unsigned j = 0; j < E; j++) {
            uint32_t code =
                (planes[0] >> j & 1) | (planes[1] >> j & 1) << 1 | (planes[2] >> j & 1) << 2;

            if (mode == SL_PALETTE_STORED)
                exponents[step * E + j] = e < n ? body[e + j] : 0;
            else if (mode == SL_PALETTE_WINDOW)
                exponents[step * E + j] = (uint8_t)(s.table[e / SL_PALETTE_BLOCK] - code);
            else
                exponents[step * E + j] = s.table[code];
            escapes |= (uint32_t)(code == SL_PALETTE_CODES) << (step * E + j);
        }
    }
    mine = __reduce_add_sync(SL_ALL, (uint32_t)__popc(escapes));
    if (threadIdx.x % 32 == 0)
        s.of_warp[warp] = mine;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++) {
        at += w < warp ? s.of_warp[w] : 0;
        sum += s.of_warp[w];
    }
    body += 3 * (n / 8);
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t here = escapes >> step * E & ((1u << E) - 1);
        unsigned i;

        if (__ballot_sync(SL_ALL, here != 0) == 0)
            continue;
        i = at + lanes_before((uint32_t)__popc(here));
#pragma unroll
        for (unsigned j = 0; j < E; j++)
            if ((here >> j & 1) != 0) {
                if (i < have)
                    exponents[step * E + j] = body[i];
                i++;
            }
        at += __reduce_add_sync(SL_ALL, (uint32_t)__popc(here));
    }
    return sum;
}

template <class T>
SL_DEVICE void palette_decode(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N;
    __shared__ sl_palette_shared s;
    struct sl_work *work = (struct sl_work *)args.work;
    const unsigned tile = work_begin(work);
    const sl_palette_place p = palette_place<T>(args.count, tile);
    const uint8_t *in = (const uint8_t *)args.in;
    const uint4 head = *(const uint4 *)(in + p.head);
    const unsigned escapes = head.z & 0xffff, mode = head.z >> 16 & 0xff;
    const unsigned len = mode == SL_PALETTE_STORED ? p.n : 3 * (p.n / 8) + escapes;
    const unsigned long long before = work_before(work, tile, len);
    /* The body's bytes are looked at only where they lie in the message, and in shared memory. */
    bool good =
        mode <= SL_PALETTE_STORED && len <= p.n && p.bodies + before + len <= args.palette.in_len;
    uint32_t exponents[SL_TILE_ELEMENTS_EACH];

    if (tile == gridDim.x - 1)
        good = good && p.bodies + before + len == args.palette.in_len;
    if (threadIdx.x < 16)
        s.table[threadIdx.x] =
            (uint8_t)((threadIdx.x < 4 ? head.x : head.y) >> threadIdx.x % 4 * 8);
    if (good)
        move_in(s, in + p.bodies + before, len);
    __syncthreads();
    if (good) {
        const uint8_t *body = (const uint8_t *)s.body + ((uintptr_t)(in + p.bodies + before) & 15);
        uint32_t asked = exponents_of<E>(s, body, mode, p.n, escapes, exponents);

        good = mode == SL_PALETTE_STORED || asked == escapes;
#pragma unroll
        for (unsigned step = 0; step < SL_TILE_ELEMENTS_EACH / E; step++) {
            unsigned e = element_of<E>(step);
            uint32_t bits[E];

            if (e >= p.n)
                continue;
            join(T(), in + p.raw, e, p.n, exponents + step * E, bits);
            store_bits<T>(args.out, p.first + e, args.count, bits);
        }
    }
    if (!good && threadIdx.x == 0)
        *args.palette.error = 1;
    work_end(work);
}

#endif
