/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C by the instruction of SSE4.2 or of ARMv8's CRC extension, or by tables.
 *
 * The instruction has a latency of 3 cycles (2 on Arm's Neoverse cores) and a throughput of one a
 * cycle, so one stream would use a third of the unit. Long inputs are cut into three lanes of equal
 * length that run side by side:
 *
 *     |---- lane A ----|---- lane B ----|---- lane C ----|
 *     crc = shift(shift(A) ^ B) ^ C        shift: append LANE zero bytes
 *
 * Appending zeros is linear, so it is four table look-ups.
 */
#include "core/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLY UINT32_C(0x82f63b78) /* reflected */
#define LONG_LANE ((size_t)4096)
#define SHORT_LANE ((size_t)256)

static uint32_t slice[8][256]; /* slice[k][b]: byte b followed by k zero bytes */
static uint32_t (*chosen)(uint32_t crc, const void *bytes, size_t len);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t table_update(uint32_t crc, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;

    for (; len >= 8; p += 8, len -= 8)
        crc = slice[7][(crc ^ p[0]) & 0xff] ^ slice[6][(crc >> 8 ^ p[1]) & 0xff] ^
              slice[5][(crc >> 16 ^ p[2]) & 0xff] ^ slice[4][(crc >> 24 ^ p[3]) & 0xff] ^
              slice[3][p[4]] ^ slice[2][p[5]] ^ slice[1][p[6]] ^ slice[0][p[7]];
    for (; len > 0; p++, len--)
        crc = (crc >> 8) ^ slice[0][(crc ^ *p) & 0xff];
    return crc;
}

/* The instruction: a machine word of the sum, its steps, and whether this CPU has it. */
#if defined(__x86_64__)
#define HAS_INSTRUCTION 1
#define INSTRUCTION __attribute__((target("sse4.2")))
#include <nmmintrin.h>

typedef uint64_t sum_word;

INSTRUCTION static inline sum_word sum_u64(sum_word sum, uint64_t value)
{
    return _mm_crc32_u64(sum, value);
}

INSTRUCTION static inline sum_word sum_u8(sum_word sum, uint8_t value)
{
    return _mm_crc32_u8((uint32_t)sum, value);
}

static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
/* Spelt out, since compilers differ in how a function gets the extension and its intrinsics. */
#define HAS_INSTRUCTION 1
#define INSTRUCTION
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

typedef uint32_t sum_word;

static inline sum_word sum_u64(sum_word sum, uint64_t value)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(value));
    return sum;
}

static inline sum_word sum_u8(sum_word sum, uint8_t value)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"(value));
    return sum;
}

static bool has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
#define HAS_INSTRUCTION 0
#endif

#if HAS_INSTRUCTION
static uint32_t shift_long[4][256], shift_short[4][256];

static uint32_t append_zeros(uint32_t crc, size_t len)
{
    while (len-- > 0)
        crc = (crc >> 8) ^ slice[0][crc & 0xff];
    return crc;
}

static void make_shift(uint32_t table[4][256], size_t len)
{
    for (int lane = 0; lane < 4; lane++) {
        uint32_t bit[8];

        for (int i = 0; i < 8; i++)
            bit[i] = append_zeros(UINT32_C(1) << (8 * lane + i), len);
        for (unsigned value = 0; value < 256; value++) {
            table[lane][value] = 0;
            for (int i = 0; i < 8; i++)
                if ((value >> i & 1) != 0)
                    table[lane][value] ^= bit[i];
        }
    }
}

static uint64_t word(const uint8_t *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof(value));
    return value;
}

static uint32_t shift(const uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
           table[3][crc >> 24];
}

INSTRUCTION static uint32_t three_lanes(uint32_t crc, const uint8_t *p, size_t lane,
                                        const uint32_t table[4][256])
{
    sum_word a = crc, b = 0, c = 0;

    for (const uint8_t *end = p + lane; p < end; p += 8) {
        a = sum_u64(a, word(p));
        b = sum_u64(b, word(p + lane));
        c = sum_u64(c, word(p + 2 * lane));
    }
    return shift(table, shift(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

INSTRUCTION static uint32_t instruction_update(uint32_t crc, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    sum_word sum;

    for (; len >= 3 * LONG_LANE; p += 3 * LONG_LANE, len -= 3 * LONG_LANE)
        crc = three_lanes(crc, p, LONG_LANE, shift_long);
    for (; len >= 3 * SHORT_LANE; p += 3 * SHORT_LANE, len -= 3 * SHORT_LANE)
        crc = three_lanes(crc, p, SHORT_LANE, shift_short);
    sum = crc;
    for (; len >= 8; p += 8, len -= 8)
        sum = sum_u64(sum, word(p));
    for (; len > 0; p++, len--)
        sum = sum_u8(sum, *p);
    return (uint32_t)sum;
}

static void choose_instruction(void)
{
    if (!has_instruction())
        return;
    make_shift(shift_long, LONG_LANE);
    make_shift(shift_short, SHORT_LANE);
    chosen = instruction_update;
}
#else
static void choose_instruction(void)
{
}
#endif

static void choose(void)
{
    for (unsigned value = 0; value < 256; value++) {
        uint32_t crc = value;

        for (int i = 0; i < 8; i++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLY : 0);
        slice[0][value] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (unsigned value = 0; value < 256; value++)
            slice[k][value] = (slice[k - 1][value] >> 8) ^ slice[0][slice[k - 1][value] & 0xff];
    chosen = table_update;
    choose_instruction();
}

uint32_t sl_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    pthread_once(&once, choose);
    return ~chosen(~crc, bytes, len);
}

uint32_t sl_crc32c_table(uint32_t crc, const void *bytes, size_t len)
{
    pthread_once(&once, choose);
    return ~table_update(~crc, bytes, len);
}
