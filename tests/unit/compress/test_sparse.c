/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse messages against dense arrays: what is written is read, merged and added up, in the
 * fewest bytes, and nothing else is taken for a message. */
#include "compress/sparse.h"

#include "draw.h"

#include "compress/bits.h"
#include "compress/elements.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define COUNT_MAX (3 * SL_SPARSE_TILE + 1)

static const struct sl_sparse_spec specs[] = {
    {false, false}, {true, false}, {false, true}, {true, true}};
static const size_t counts[] = {
    0, 1, 7, 63, 64, 65, 4096, SL_SPARSE_TILE - 1, SL_SPARSE_TILE, SL_SPARSE_TILE + 1, COUNT_MAX};
static const double densities[] = {0, 0.0003, 0.01, 0.06, 0.07, 0.5, 1};

/* A message and what it stands for. */
struct sample {
    size_t count, kept, len;
    uint32_t index[COUNT_MAX];
    float value[COUNT_MAX], dense[COUNT_MAX];
    bool has[COUNT_MAX];
    _Alignas(4) uint8_t bytes[COUNT_MAX * 5 + 100];
};

static struct sample a, b, c;

static void sample_draw(struct sample *s, const struct sl_sparse_spec *spec, size_t count,
                        double density)
{
    s->count = count;
    s->kept = 0;
    for (size_t i = 0; i < count; i++) {
        s->has[i] = draw_unit() <= density;
        s->dense[i] = 0;
        if (!s->has[i])
            continue;
        float x = (float)((int)draw_below(2000) - 1000) * 0.37f;

        s->index[s->kept] = (uint32_t)i;
        s->value[s->kept++] = x;
        s->dense[i] = spec->bf16 ? sl_f32_of_bf16(sl_bf16_of(x)) : x;
    }
    memset(s->bytes, 0xa5, sizeof(s->bytes));
    s->len = sl_sparse_write(spec, s->index, s->value, s->kept, count, s->bytes);
    assert_true(s->len <= sl_sparse_bound(spec, count, s->kept));
    assert_int_equal(s->bytes[s->len], 0xa5);
}

/* The places and values of a message are those of dense[] where has[]. */
static void assert_reads(const struct sl_sparse_spec *spec, const struct sample *s)
{
    static uint32_t index[COUNT_MAX];
    static float value[COUNT_MAX];
    size_t kept, at = 0;

    assert_int_equal(
        sl_sparse_read(spec, s->bytes, s->len, s->count, COUNT_MAX, index, value, &kept), 0);
    for (size_t i = 0; i < s->count; i++) {
        if (!s->has[i])
            continue;
        assert_true(at < kept);
        if (index[at] != i || sl_f32_bits(value[at]) != sl_f32_bits(s->dense[i]))
            fail_msg("element %zu of %zu: place %u has %a, not %a", i, s->count, index[at],
                     value[at], s->dense[i]);
        at++;
    }
    assert_int_equal(at, kept);
}

static void what_is_written_is_read(void **state)
{
    for (size_t s = 0; s < SL_ARRAY_LEN(specs); s++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++)
            for (size_t d = 0; d < SL_ARRAY_LEN(densities); d++) {
                sample_draw(&a, &specs[s], counts[n], densities[d]);
                assert_reads(&specs[s], &a);
            }
}

static void adding_gives_the_dense_sum(void **state)
{
    static float sum[COUNT_MAX];

    for (size_t s = 0; s < SL_ARRAY_LEN(specs); s++)
        for (size_t d = 0; d < SL_ARRAY_LEN(densities); d++) {
            sample_draw(&a, &specs[s], COUNT_MAX, densities[d]);
            for (size_t i = 0; i < COUNT_MAX; i++)
                sum[i] = (float)i * 0.3f;
            assert_int_equal(sl_sparse_add(&specs[s], a.bytes, a.len, a.count, sum), 0);
            for (size_t i = 0; i < COUNT_MAX; i++)
                if (sum[i] != (a.has[i] ? (float)i * 0.3f + a.dense[i] : (float)i * 0.3f))
                    fail_msg("element %zu is %a", i, sum[i]);
        }
}

static void a_merge_is_the_message_of_the_sum(void **state)
{
    for (size_t s = 0; s < SL_ARRAY_LEN(specs); s++)
        for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++)
            for (size_t d = 0; d < SL_ARRAY_LEN(densities); d++) {
                const struct sl_sparse_spec *spec = &specs[s];
                size_t kept = 0;

                sample_draw(&a, spec, counts[n], densities[d]);
                sample_draw(&b, spec, counts[n], densities[SL_ARRAY_LEN(densities) - 1 - d]);
                c.count = counts[n];
                for (size_t i = 0; i < c.count; i++) {
                    float x = a.dense[i] + b.dense[i];

                    c.has[i] = a.has[i] || b.has[i];
                    c.dense[i] = spec->bf16 ? sl_f32_of_bf16(sl_bf16_of(x)) : x;
                    if (c.has[i]) {
                        c.index[kept] = (uint32_t)i;
                        c.value[kept++] = x;
                    }
                }
                assert_int_equal(
                    sl_sparse_merge(spec, a.bytes, a.len, b.bytes, b.len, c.count, c.bytes, &c.len),
                    0);
                assert_true(c.len <= sl_sparse_bound(spec, c.count, a.kept + b.kept));
                assert_reads(spec, &c);
                a.len = sl_sparse_write(spec, c.index, c.value, kept, c.count, a.bytes);
                assert_int_equal(a.len, c.len);
                assert_memory_equal(a.bytes, c.bytes, c.len);
            }
}

static void opposites_stay_as_zeros(void **state)
{
    const uint32_t index[] = {5, 9};
    const float up[] = {1.5f, 2}, down[] = {-1.5f, -2};
    uint32_t got_index[4];
    float got[4];
    size_t kept;

    a.len = sl_sparse_write(&specs[0], index, up, 2, 100, a.bytes);
    b.len = sl_sparse_write(&specs[0], index, down, 2, 100, b.bytes);
    assert_int_equal(
        sl_sparse_merge(&specs[0], a.bytes, a.len, b.bytes, b.len, 100, c.bytes, &c.len), 0);
    assert_int_equal(c.len, a.len);
    assert_int_equal(sl_sparse_read(&specs[0], c.bytes, c.len, 100, 4, got_index, got, &kept), 0);
    assert_int_equal(kept, 2);
    assert_true(got[0] == 0 && got[1] == 0);
}

static void a_kept_element_of_a_thousand_takes_four_bytes_or_less(void **state)
{
    size_t tiles = 3;

    sample_draw(&a, &specs[1], tiles * SL_SPARSE_TILE, 0.001);
    assert_true(a.len <= a.kept * 4 + tiles * 8);
    /* The entropy of a place is 11.4 bits; Rice's code has half a bit more at most. */
    sample_draw(&a, &specs[3], tiles * SL_SPARSE_TILE, 0.001);
    assert_true((double)a.len <= (double)a.kept * (2 + 12.1 / 8) + (double)tiles * 12);
    /* A bitmap beside all values. */
    sample_draw(&a, &specs[0], SL_SPARSE_TILE, 1);
    assert_int_equal(a.len, 4 + SL_SPARSE_TILE / 8 + SL_SPARSE_TILE * 4);
}

static void assert_refused(const struct sl_sparse_spec *spec, const void *bytes, size_t len,
                           size_t count)
{
    size_t kept = 77, out_len = 77;
    float sum[100];

    assert_true(count <= 100);
    for (size_t i = 0; i < 100; i++)
        sum[i] = 3;
    assert_int_equal(sl_sparse_check(spec, bytes, len, count, &kept), -EBADMSG);
    assert_true(strlen(sluice_last_error()) > 10);
    assert_int_equal(sl_sparse_add(spec, bytes, len, count, sum), -EBADMSG);
    assert_int_equal(sl_sparse_merge(spec, bytes, len, bytes, len, count, c.bytes, &out_len),
                     -EBADMSG);
    assert_true(kept == 77 && out_len == 77);
    for (size_t i = 0; i < 100; i++)
        assert_true(sum[i] == 3);
}

static void forged_messages_are_refused(void **state)
{
    const struct sl_sparse_spec *f32 = &specs[0], *rice = &specs[2];
    /* Of 100 elements 3: head, places, padding, values. */
    const uint32_t index[] = {5, 9, 99};
    const float value[] = {1, 2, 3};
    uint8_t good[64];
    size_t len = sl_sparse_write(f32, index, value, 3, 100, good), kept;

    assert_int_equal(len, 4 + 8 + 12);
    assert_int_equal(sl_sparse_check(f32, good, len, 100, &kept), 0);
    assert_int_equal(kept, 3);
    static const struct {
        size_t at;
        uint8_t byte;
    } wrong[] = {
        {0, 4},   /* more elements than bytes */
        {0, 101}, /* more than there are */
        {2, 2},   /* a bitmap of so few */
        {2, 4},   /* gaps, without leave */
        {2, 6},   /* no kind */
        {2, 8},   /* a list with a Rice parameter */
        {3, 1},   /* bits without meaning */
        {4, 9},   /* twice the same */
        {4, 10},  /* descending */
        {8, 100}, /* outside */
        {10, 1},  /* padding */
    };
    _Alignas(4) uint8_t forged[64];

    for (size_t i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        memcpy(forged, good, len);
        forged[wrong[i].at] = wrong[i].byte;
        assert_refused(f32, forged, len, 100);
    }
    for (size_t cut = 0; cut < len; cut++)
        assert_refused(f32, good, cut, 100);
    memcpy(forged, good, len);
    memset(forged + len, 0, 4);
    assert_refused(f32, forged, len + 4, 100);
    assert_refused(f32, good, len, 99);

    /* A bitmap whose bits are not as many, or lie outside. */
    const uint32_t many[] = {0, 1, 2, 3, 4, 5, 6, 8};
    const float values[8] = {0};

    len = sl_sparse_write(f32, many, values, 8, 99, forged);
    assert_int_equal(sl_sparse_check(f32, forged, len, 99, &kept), 0);
    forged[4] &= 0xfe;
    assert_refused(f32, forged, len, 99);
    forged[4 + 12] |= 0x08; /* bit 99, so that the number is right again */
    assert_refused(f32, forged, len, 99);

    /* Gaps that lead outside, and bits after the last. */
    const uint32_t gaps[] = {1, 3, 5, 7};

    len = sl_sparse_write(rice, gaps, values, 4, 99, forged);
    assert_int_equal(forged[2] >> 1 & 3, 2); /* gaps */
    assert_int_equal(sl_sparse_check(rice, forged, len, 99, &kept), 0);
    assert_refused(f32, forged, len, 99);
    forged[5] ^= 0x80;
    assert_refused(rice, forged, len, 99);
    forged[5] ^= 0x80;
    assert_int_equal(sl_sparse_check(rice, forged, len, 99, &kept), 0);
    memset(forged + 4, 0xff, 4);
    assert_refused(rice, forged, len, 99);

    /* The last place, and then more. */
    for (uint32_t more = 0; more < 2; more++) {
        struct sl_bits_out bits = {.at = forged + 4};
        uint32_t head = 10 | 2 << 17 | 3 << 19;

        memset(forged, 0, sizeof(forged));
        memcpy(forged, &head, 4);
        sl_bits_put_rice(&bits, 89 + more, 3);
        for (unsigned i = 0; i < 9; i++)
            sl_bits_put_rice(&bits, 0, 3);
        sl_bits_end(&bits);
        if (more == 0)
            assert_int_equal(sl_sparse_check(rice, forged, 4 + 8 + 40, 99, &kept), 0);
        else
            assert_refused(rice, forged, 4 + 8 + 40, 99);
    }
}

static void random_bytes_never_lead_outside(void **state)
{
    for (size_t round = 0; round < 20000; round++) {
        const struct sl_sparse_spec *spec = &specs[round % 4];
        size_t count = draw_below(300), kept, len;
        uint8_t *bytes;

        sample_draw(&a, spec, count, draw_unit());
        len = a.len;
        bytes = malloc(len + 1); /* as long as it is, for the sanitizer */
        assert_non_null(bytes);
        memcpy(bytes, a.bytes, len);
        for (unsigned i = 0; len > 0 && i < 1 + round % 3; i++)
            bytes[draw_below((uint32_t)len)] ^= (uint8_t)(1u << draw_below(8));
        float sum[300] = {0};

        if (sl_sparse_check(spec, bytes, len, count, &kept) == 0) {
            assert_true(kept <= count);
            assert_int_equal(sl_sparse_add(spec, bytes, len, count, sum), 0);
        }
        free(bytes);
    }
}

static void more_than_there_is_room_for_is_not_read(void **state)
{
    const uint32_t index[] = {5, 9, 99};
    const float value[] = {1, 2, 3};
    uint32_t got_index[2] = {7, 7};
    float got[2] = {7, 7};
    size_t kept = 77, len = sl_sparse_write(&specs[0], index, value, 3, 100, a.bytes);

    assert_int_equal(sl_sparse_read(&specs[0], a.bytes, len, 100, 2, got_index, got, &kept),
                     -ENOSPC);
    assert_true(kept == 77 && got_index[0] == 7 && got[1] == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(adding_gives_the_dense_sum),
        cmocka_unit_test(a_merge_is_the_message_of_the_sum),
        cmocka_unit_test(opposites_stay_as_zeros),
        cmocka_unit_test(a_kept_element_of_a_thousand_takes_four_bytes_or_less),
        cmocka_unit_test(forged_messages_are_refused),
        cmocka_unit_test(random_bytes_never_lead_outside),
        cmocka_unit_test(more_than_there_is_room_for_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
