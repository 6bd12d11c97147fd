/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Palette-3 (compress/palette.h): exponents in three bits, and what does not fit beside them.
 *
 * A block of threads takes a tile apart: what repeats not goes to its place in the raw plane at
 * once; exponents stay in registers, four a word, where codes are made of four at a time. Where a
 * tile's body begins is known when the blocks before have told how long theirs are (work.h);
 * decoders add up what heads say before they begin. A body has any alignment, so it is put together
 * in shared memory, at the same distance from 16 bytes.
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

/* What of E elements does not repeat, asked for before it is needed. */
struct sl_palette_raw {
    uint32_t low[2], high;
};

SL_DEVICE sl_palette_raw raw_of(sl_bf16, const uint8_t *raw, unsigned e, unsigned)
{
    const uint2 low = *(const uint2 *)(raw + e);

    return {{low.x, low.y}, 0};
}
SL_DEVICE sl_palette_raw raw_of(sl_f16, const uint8_t *raw, unsigned e, unsigned n)
{
    const uint2 low = *(const uint2 *)(raw + e);
    uint32_t planes = 0;

#pragma unroll
    for (unsigned b = 0; b < 3; b++)
        planes |= (uint32_t)raw[n + b * (n / 8) + e / 8] << b * 8;
    return {{low.x, low.y}, planes};
}
SL_DEVICE sl_palette_raw raw_of(sl_f32, const uint8_t *raw, unsigned e, unsigned n)
{
    const uint2 low = *(const uint2 *)(raw + 2 * e);

    return {{low.x, low.y}, *(const uint32_t *)(raw + 2 * n + e)};
}

/* exponents: bytes of words. */
SL_DEVICE void join(sl_bf16, const sl_palette_raw &raw, const uint32_t *exponents, uint32_t *bits)
{
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = (raw.low[j / 4] >> j % 4 * 8 & 0xff) | (exponents[j / 4] >> j % 4 * 8 & 0xff)
                                                                << 8;

        bits[j] = (x >> 1 | x << 15) & 0xffff;
    }
}
SL_DEVICE void join(sl_f16, const sl_palette_raw &raw, const uint32_t *exponents, uint32_t *bits)
{
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
        uint32_t x = (raw.low[j / 4] >> j % 4 * 8 & 0xff) | (exponents[j / 4] >> j % 4 * 8 & 0xff)
                                                                << 11;

#pragma unroll
        for (unsigned b = 0; b < 3; b++)
            x |= (raw.high >> (b * 8 + j) & 1) << (8 + b);
        x &= 0xffff;
        bits[j] = (x >> 1 | x << 15) & 0xffff;
    }
}
SL_DEVICE void join(sl_f32, const sl_palette_raw &raw, const uint32_t *exponents, uint32_t *bits)
{
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        uint32_t x = (raw.low[j / 2] >> j % 2 * 16 & 0xffff) | (raw.high >> j * 8 & 0xff) << 16 |
                     (exponents[0] >> j * 8 & 0xff) << 24;

        bits[j] = x >> 1 | x << 31;
    }
}

/* ---- codes ---- */

#define SL_PALETTE_WORDS (SL_TILE_ELEMENTS_EACH / 4) /* of a thread: four exponents or codes each */
#define SL_ONES 0x01010101u

/* Element of a thread that word k begins with. */
template <unsigned E>
SL_DEVICE unsigned element_of_word(unsigned k)
{
    return element_of<E>(k / (E / 4)) + k % (E / 4) * 4;
}

/* Bit 0 of each byte as four bits, and back. */
SL_DEVICE uint32_t bits_of_bytes(uint32_t bytes)
{
    return (bytes & SL_ONES) * 0x01020408u >> 24 & 0xf;
}
SL_DEVICE uint32_t bytes_of_bits(uint32_t bits)
{
    return (bits & 0xf) * 0x00204081u & SL_ONES;
}

/* Where a code is an escape, 1. */
SL_DEVICE uint32_t escapes_of(uint32_t codes)
{
    return codes & codes >> 1 & codes >> 2 & SL_ONES;
}

/* Each byte below base, or as much, by what; more than 6 is 7. */
SL_DEVICE uint32_t window_codes(uint32_t exponents, uint32_t base)
{
    uint32_t below = base * SL_ONES - exponents;
    uint32_t more = (((below & 0x78787878u) + 0x78787878u) | below) >> 7 & SL_ONES;

    return (below | more * 7) & 0x07070707u;
}

SL_DEVICE uint32_t table_codes(uint32_t exponents, const uint8_t *table)
{
    uint32_t codes = SL_PALETTE_CODES * SL_ONES;

#pragma unroll
    for (int c = SL_PALETTE_CODES - 1; c >= 0; c--) {
        uint32_t x = exponents ^ table[c] * SL_ONES;
        uint32_t same = ~(((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & SL_ONES;

        codes = (codes & ~(same * 255)) | same * (uint32_t)c;
    }
    return codes;
}

/* Codes of the block's tile from its exponents. Returns its escapes; those of each warp stay in
 * of_warp. */
template <unsigned E>
SL_DEVICE uint32_t make_codes(sl_palette_shared &s, unsigned mode, unsigned n,
                              const uint32_t *exponents, uint32_t *codes)
{
    unsigned warp = threadIdx.x / 32;
    uint32_t count = 0, sum = 0;

#pragma unroll
    for (unsigned k = 0; k < SL_PALETTE_WORDS; k++) {
        unsigned e = element_of_word<E>(k);

        codes[k] = e >= n ? 0
                   : mode == SL_PALETTE_WINDOW
                       ? window_codes(exponents[k], s.table[e / SL_PALETTE_BLOCK])
                       : table_codes(exponents[k], s.table);
        count += (uint32_t)__popc(escapes_of(codes[k]));
    }
    count = __reduce_add_sync(SL_ALL, count);
    __syncthreads(); /* the last count was read */
    if (threadIdx.x % 32 == 0)
        s.of_warp[warp] = count;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++)
        sum += s.of_warp[w];
    return sum;
}

/* The largest exponent of each 512, of which a warp has two. */
SL_DEVICE void find_bases(sl_palette_shared &s, const uint32_t *exponents)
{
    static_assert(SL_PALETTE_BLOCK * 8 == SL_GPU_TILE, "half of a thread's words are of a block");
    __syncthreads();
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        uint32_t most = 0;

#pragma unroll
        for (unsigned i = 0; i < SL_PALETTE_WORDS * 2; i++) {
            uint32_t one = exponents[half * SL_PALETTE_WORDS / 2 + i / 4] >> i % 4 * 8 & 0xff;

            most = one > most ? one : most;
        }
        most = __reduce_max_sync(SL_ALL, most);
        if (threadIdx.x % 32 == 0)
            s.table[threadIdx.x / 32 * 2 + half] = (uint8_t)most;
    }
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

/* Planes of the tile to body: eight elements a byte, of one thread or of two neighbours. */
template <unsigned E>
SL_DEVICE void put_planes(const uint32_t *codes, unsigned n, uint8_t *body)
{
#pragma unroll
    for (unsigned k = 0; k < SL_PALETTE_WORDS; k += E / 4) {
        unsigned e = element_of_word<E>(k);
        uint32_t planes = 0, other;

#pragma unroll
        for (unsigned b = 0; b < 3; b++) {
            planes |= bits_of_bytes(codes[k] >> b) << b * 8;
            if (E == 8)
                planes |= bits_of_bytes(codes[k + E / 8] >> b) << (b * 8 + 4);
        }
        if (E == 4) {
            other = __shfl_xor_sync(SL_ALL, planes, 1);
            planes |= other << 4;
        }
        if (e % 8 == 0 && e < n) {
#pragma unroll
            for (unsigned b = 0; b < 3; b++)
                body[b * (n / 8) + e / 8] = (uint8_t)(planes >> b * 8);
        }
    }
}

/* Escapes of the tile behind its planes. */
template <unsigned E>
SL_DEVICE void put_escapes(const sl_palette_shared &s, const uint32_t *codes,
                           const uint32_t *exponents, unsigned n, uint8_t *body)
{
    unsigned at = 3 * (n / 8);

    for (unsigned w = 0; w < threadIdx.x / 32; w++)
        at += s.of_warp[w];
#pragma unroll
    for (unsigned k = 0; k < SL_PALETTE_WORDS; k += E / 4) {
        uint32_t here[2] = {escapes_of(codes[k]), E == 8 ? escapes_of(codes[k + E / 8]) : 0};
        uint32_t count = (uint32_t)__popc(here[0] | here[1] << 1);
        unsigned i;

        if (__ballot_sync(SL_ALL, count != 0) == 0)
            continue;
        i = at + lanes_before(count);
#pragma unroll
        for (unsigned half = 0; half < E / 4; half++)
            for (uint32_t left = here[half]; left != 0; left &= left - 1)
                body[i++] = (uint8_t)(exponents[k + half] >> (__ffs((int)left) - 1));
        at += __reduce_add_sync(SL_ALL, count);
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
    uint32_t escapes, head[4] = {}, exponents[SL_PALETTE_WORDS] = {}, codes[SL_PALETTE_WORDS];

#pragma unroll
    for (unsigned step = 0; step < SL_TILE_ELEMENTS_EACH / E; step++) {
        unsigned e = element_of<E>(step);
        uint32_t bits[E], words[2];

        if (e >= p.n)
            continue;
        load_bits<T>(args.in, p.first + e, args.count, bits);
        split(T(), bits, e, p.n, out + p.raw, words);
#pragma unroll
        for (unsigned k = 0; k < E / 4; k++) {
            exponents[step * (E / 4) + k] = words[k];
            *(uint32_t *)(s.exponents + e + k * 4) = words[k];
        }
    }
    find_bases(s, exponents);
    escapes = make_codes<E>(s, mode, p.n, exponents, codes);
    if (escapes > p.n / SL_PALETTE_TRIED) {
        uint32_t others;

        find_palette(s, p.n);
        others = make_codes<E>(s, SL_PALETTE_TABLE, p.n, exponents, codes);
        if (others < escapes) {
            escapes = others;
            mode = SL_PALETTE_TABLE;
        } else {
            find_bases(s, exponents);
            make_codes<E>(s, mode, p.n, exponents, codes);
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
    if (threadIdx.x < 2 && p.n != 0)
        *(uint2 *)(out + p.head + threadIdx.x * 8) =
            threadIdx.x == 0 ? make_uint2(head[0], head[1]) : make_uint2(head[2], head[3]);
    before = work_before(work, tile, len);
    out += p.bodies + before;
    body = (uint8_t *)s.body + ((uintptr_t)out & 15);
    if (mode == SL_PALETTE_STORED) {
        for (unsigned i = threadIdx.x; i < p.n; i += SL_GPU_THREADS)
            body[i] = s.exponents[i];
    } else {
        put_planes<E>(codes, p.n, body);
        put_escapes<E>(s, codes, exponents, p.n, body);
    }
    __syncthreads();
    move_out(s, out, len);
    if (tile == gridDim.x - 1 && threadIdx.x == 0)
        *args.palette.len = p.bodies + before + len;
    work_end(work, gridDim.x);
}

/* Heads of f16 lie at 8 bytes where the message has an odd number of 64 elements. */
SL_DEVICE uint4 read_palette_head(const uint8_t *at)
{
    const uint2 low = *(const uint2 *)at, high = *(const uint2 *)(at + 8);

    return make_uint4(low.x, low.y, high.x, high.y);
}

/* Bytes of a tile's body by its head. */
SL_DEVICE unsigned body_len(const uint4 &head, unsigned n)
{
    return (head.z >> 16 & 0xff) == SL_PALETTE_STORED ? n : 3 * (n / 8) + (head.z & 0xffff);
}

/* Where decoders find how much is before their bodies. */
SL_DEVICE unsigned long long *palette_offsets(const struct sl_gpu_args &args)
{
    struct sl_work *work = (struct sl_work *)args.work;

    return work->status + (args.count + SL_GPU_TILE - 1) / SL_GPU_TILE;
}

/* A head a thread. */
template <class T>
SL_DEVICE void palette_add(const struct sl_gpu_args &args)
{
    struct sl_work *work = (struct sl_work *)args.work;
    const unsigned tiles = (unsigned)((args.count + SL_GPU_TILE - 1) / SL_GPU_TILE);
    const unsigned block = work_begin(work), tile = block * SL_GPU_THREADS + threadIdx.x;
    __shared__ uint32_t of_warp[SL_GPU_THREADS / 32];
    uint32_t len = 0, before, sum = 0, total = 0;
    unsigned long long all;

    if (tile < tiles) {
        const sl_palette_place p = palette_place<T>(args.count, tile);

        len = body_len(read_palette_head((const uint8_t *)args.in + p.head), p.n);
    }
    before = lanes_before(len);
    if (threadIdx.x % 32 == 31)
        of_warp[threadIdx.x / 32] = before + len;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++) {
        sum += w < threadIdx.x / 32 ? of_warp[w] : 0;
        total += of_warp[w];
    }
    all = work_before(work, block, total);
    if (tile < tiles)
        palette_offsets(args)[tile] = all + sum + before;
    work_end(work, gridDim.x);
}

/* Exponents that four codes mean, escapes any. */
SL_DEVICE uint32_t window_exponents(uint32_t codes, uint32_t base)
{
    uint32_t x = base * SL_ONES, high = SL_ONES << 7;

    return ((x | high) - codes) ^ (~x & high); /* each byte by itself */
}
SL_DEVICE uint32_t table_exponents(uint32_t codes, const uint4 &head)
{
    uint32_t pairs = (codes | codes >> 4) & 0x00ff00ff;

    return __byte_perm(head.x, head.y, (pairs | pairs >> 8) & 0xffff);
}

/* Exponents of a thread's elements, four a word, from the body in shared memory. Returns the
 * escapes that the tile's codes ask for; none beyond have is read. */
template <unsigned E>
SL_DEVICE uint32_t exponents_of(sl_palette_shared &s, const uint8_t *body, const uint4 &head,
                                unsigned n, uint32_t *exponents)
{
    const unsigned mode = head.z >> 16 & 0xff, have = head.z & 0xffff;
    unsigned warp = threadIdx.x / 32, at = 0;
    uint32_t escapes[SL_PALETTE_WORDS], count = 0, sum = 0;

#pragma unroll
    for (unsigned k = 0; k < SL_PALETTE_WORDS; k++) {
        unsigned e = element_of_word<E>(k);
        uint32_t codes = 0;

        exponents[k] = escapes[k] = 0;
        if (e >= n)
            continue;
        if (mode == SL_PALETTE_STORED) {
#pragma unroll
            for (unsigned j = 0; j < 4; j++)
                exponents[k] |= (uint32_t)body[e + j] << j * 8;
            continue;
        }
#pragma unroll
        for (unsigned b = 0; b < 3; b++)
            codes |= bytes_of_bits((uint32_t)body[b * (n / 8) + e / 8] >> e % 8) << b;
        exponents[k] = mode == SL_PALETTE_WINDOW
                           ? window_exponents(codes, s.table[e / SL_PALETTE_BLOCK])
                           : table_exponents(codes, head);
        escapes[k] = escapes_of(codes);
        count += (uint32_t)__popc(escapes[k]);
    }
    count = __reduce_add_sync(SL_ALL, count);
    if (threadIdx.x % 32 == 0)
        s.of_warp[warp] = count;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SL_GPU_THREADS / 32; w++) {
        at += w < warp ? s.of_warp[w] : 0;
        sum += s.of_warp[w];
    }
    body += 3 * (n / 8);
#pragma unroll
    for (unsigned k = 0; k < SL_PALETTE_WORDS; k += E / 4) {
        unsigned i;

        count = (uint32_t)__popc(escapes[k] | (E == 8 ? escapes[k + E / 8] << 1 : 0));
        if (__ballot_sync(SL_ALL, count != 0) == 0)
            continue;
        i = at + lanes_before(count);
#pragma unroll
        for (unsigned half = 0; half < E / 4; half++)
            for (uint32_t left = escapes[k + half]; left != 0; left &= left - 1, i++) {
                unsigned shift = (unsigned)__ffs((int)left) - 1;

                if (i < have)
                    exponents[k + half] =
                        (exponents[k + half] & ~(0xffu << shift)) | (uint32_t)body[i] << shift;
            }
        at += __reduce_add_sync(SL_ALL, count);
    }
    return sum;
}

template <class T>
SL_DEVICE void palette_decode(const struct sl_gpu_args &args)
{
    constexpr unsigned E = sl_vector<T>::N, STEPS = SL_TILE_ELEMENTS_EACH / E;
    __shared__ sl_palette_shared s;
    const sl_palette_place p = palette_place<T>(args.count, blockIdx.x);
    const uint8_t *in = (const uint8_t *)args.in;
    unsigned long long *offset = palette_offsets(args) + blockIdx.x;
    const unsigned long long before = *offset;
    const uint4 head = read_palette_head(in + p.head);
    const unsigned mode = head.z >> 16 & 0xff, len = body_len(head, p.n);
    /* The body's bytes are looked at only where they lie in the message, and in shared memory. */
    bool good =
        mode <= SL_PALETTE_STORED && len <= p.n && p.bodies + before + len <= args.palette.in_len;
    sl_palette_raw raw[STEPS] = {};
    uint32_t exponents[SL_PALETTE_WORDS];

#pragma unroll
    for (unsigned step = 0; step < STEPS; step++)
        if (element_of<E>(step) < p.n)
            raw[step] = raw_of(T(), in + p.raw, element_of<E>(step), p.n);
    if (blockIdx.x == gridDim.x - 1)
        good = good && p.bodies + before + len == args.palette.in_len;
    if (threadIdx.x < 16)
        s.table[threadIdx.x] =
            (uint8_t)((threadIdx.x < 4 ? head.x : head.y) >> threadIdx.x % 4 * 8);
    if (good)
        move_in(s, in + p.bodies + before, len);
    __syncthreads();
    if (good) {
        const uint8_t *body = (const uint8_t *)s.body + ((uintptr_t)(in + p.bodies + before) & 15);
        uint32_t asked = exponents_of<E>(s, body, head, p.n, exponents);

        good = mode == SL_PALETTE_STORED || asked == (head.z & 0xffff);
#pragma unroll
        for (unsigned step = 0; step < STEPS; step++) {
            unsigned e = element_of<E>(step);
            uint32_t bits[E];

            if (e >= p.n)
                continue;
            join(T(), raw[step], exponents + step * (E / 4), bits);
            store_bits<T>(args.out, p.first + e, args.count, bits);
        }
    }
    if (threadIdx.x == 0) { /* all threads have read it */
        *offset = 0;
        if (!good)
            *args.palette.error = 1;
    }
}

#endif
