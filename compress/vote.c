/* SPDX-License-Identifier: Apache-2.0 */
/* Majority votes over signs, 64 elements a word. */
#include "compress/vote.h"

#include "compress/elements.h"
#include "core/err.h"

void sl_vote_signs(const float *in, size_t count, uint64_t *signs)
{
    for (size_t first = 0; first < count; first += 64) {
        size_t n = count - first < 64 ? count - first : 64;
        uint64_t word = 0;

        for (size_t j = 0; j < n; j++)
            word |= (uint64_t)(in[first + j] < 0) << j;
        signs[first / 64] = word;
    }
}

void sl_vote_add(uint64_t *counters, unsigned planes, const uint64_t *signs, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t carry = signs[i];

        for (unsigned p = 0; carry != 0 && p < planes; p++) {
            uint64_t *plane = &counters[p * words + i], old = *plane;

            *plane = old ^ carry;
            carry &= old;
        }
    }
}

void sl_vote_merge(uint64_t *counters, unsigned planes, const uint64_t *more, unsigned more_planes,
                   size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t carry = 0;

        for (unsigned p = 0; p < planes; p++) {
            uint64_t *plane = &counters[p * words + i], a = *plane;
            uint64_t b = p < more_planes ? more[p * words + i] : 0;

            *plane = a ^ b ^ carry;
            carry = (a & b) | (carry & (a ^ b));
        }
    }
}

/* Compares 64 counters with a number, from the highest plane down. */
static void compare(const uint64_t *counters, unsigned planes, size_t words, size_t i,
                    uint32_t number, uint64_t *larger, uint64_t *equal)
{
    uint64_t more = 0, same = UINT64_MAX;

    for (unsigned p = planes; p-- > 0;) {
        uint64_t plane = counters[p * words + i];

        if ((number >> p & 1) != 0) {
            same &= plane;
        } else {
            more |= same & plane;
            same &= ~plane;
        }
    }
    *larger = more;
    *equal = same;
}

void sl_vote_majority(const uint64_t *counters, unsigned planes, uint32_t ranks, size_t words,
                      uint64_t *below, uint64_t *ties)
{
    sl_assert(planes >= sl_vote_planes(ranks) && planes <= SL_VOTE_PLANES_MOST);
    for (size_t i = 0; i < words; i++) {
        uint64_t equal;

        compare(counters, planes, words, i, ranks / 2, &below[i], &equal);
        if (ties != NULL)
            ties[i] = ranks % 2 == 0 ? equal : 0;
    }
}

void sl_vote_sum(const uint64_t *counters, unsigned planes, uint32_t ranks, float scale,
                 size_t count, float *out)
{
    size_t words = sl_vote_words(count);

    for (size_t i = 0; i < count; i++) {
        uint64_t below = 0;

        for (unsigned p = 0; p < planes; p++)
            below |= (counters[p * words + i / 64] >> i % 64 & 1) << p;
        out[i] = (float)((int64_t)ranks - 2 * (int64_t)below) * scale;
    }
}

void sl_vote_apply(const uint64_t *below, float scale, size_t count, float *out)
{
    uint32_t bits = sl_f32_bits(scale);

    for (size_t i = 0; i < count; i++)
        out[i] = sl_f32_of(bits ^ (uint32_t)(below[i / 64] >> i % 64 & 1) << 31);
}
