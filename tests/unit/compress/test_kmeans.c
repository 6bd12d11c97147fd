/* SPDX-License-Identifier: Apache-2.0 */
/* Centroids and their entropy code: how near, how short, and what is not taken for a message. */
#include "codec_paths.h"
#include "codec_util.h"

#include "compress/huffman.h"

static const struct sl_codec_at at;
static float input[UTIL_COUNT], got[UTIL_COUNT], sum[UTIL_COUNT];
static _Alignas(16) uint8_t bytes[UTIL_COUNT * 8 + 1024], again[UTIL_COUNT * 8 + 1024];
static struct sl_codec_spec spec;
static const struct sl_codec *codec;

static size_t encode(const char *text, size_t count)
{
    size_t len;

    spec_of(text, &spec);
    codec = sl_codec_by_id(spec.id);
    memset(bytes, 0xa5, sizeof(bytes));
    len = codec->encode(&spec, &at, input, count, bytes);
    assert_true(len <= codec->size(&spec, count));
    assert_int_equal(len % 16, 0);
    assert_int_equal(bytes[len], 0xa5);
    return len;
}

static int order(const void *x, const void *y)
{
    float a, b;

    memcpy(&a, x, sizeof(a));
    memcpy(&b, y, sizeof(b));
    return (a > b) - (a < b);
}

static void each_element_is_zero_or_one_of_the_centroids(void **state)
{
    static const char *const texts[] = {"kmeans:k=1,bits=2", "kmeans:k=41,bits=2",
                                        "kmeans:k=400,bits=3", "kmeans:k=4096,bits=4"};
    static const size_t counts[] = {0, 1, 40, 41, 42, SL_TILE, SL_TILE + 3, UTIL_COUNT};

    for (size_t t = 0; t < SL_ARRAY_LEN(texts); t++)
        for (int kind = 0; kind < DRAW_KINDS; kind++)
            for (size_t n = 0; n < SL_ARRAY_LEN(counts); n++) {
                size_t count = counts[n], len, distinct = 0;

                draw_fill((enum draw_kind)kind, input, count);
                len = encode(texts[t], count);
                assert_int_equal(codec->encode(&spec, &at, input, count, again), len);
                assert_memory_equal(bytes, again, len);
                assert_int_equal(codec->decode(&spec, &at, bytes, len, count, got), 0);
                for (size_t i = 0; i < count; i++)
                    sum[i] = 1;
                assert_int_equal(codec->decode_add(&spec, &at, bytes, len, count, sum), 0);
                for (size_t i = 0; i < count; i++) {
                    assert_true(sum[i] == 1 + got[i] || isnan(sum[i]));
                    if (isnan(got[i]))
                        assert_false(isfinite(input[i]));
                    else if (kind < DRAW_FINITE)
                        assert_true(fabsf(got[i]) <= 1e12f);
                    if (isnan(got[i]))
                        got[i] = 0;
                }
                qsort(got, count, sizeof(*got), order);
                for (size_t i = 0; i < count; i++)
                    distinct += got[i] != 0 && (i == 0 || got[i] != got[i - 1]);
                assert_true(distinct <= (1u << spec.bits) - 1);
            }
}

/* k-means as it is written in books, from the survivors sorted. */
static double error_of(const float *x, size_t count, unsigned centroids)
{
    double mean[15], error = 0;

    for (unsigned c = 0; c < centroids; c++)
        mean[c] = (double)x[(2 * c + 1) * count / (2 * centroids)];
    for (unsigned step = 0; step < 100; step++) {
        double part[15] = {0};
        unsigned n[15] = {0};

        error = 0;
        for (size_t i = 0; i < count; i++) {
            unsigned best = 0;

            for (unsigned c = 1; c < centroids; c++)
                if (fabs((double)x[i] - mean[c]) < fabs((double)x[i] - mean[best]))
                    best = c;
            part[best] += (double)x[i];
            n[best]++;
            error += pow((double)x[i] - mean[best], 2);
        }
        for (unsigned c = 0; c < centroids; c++)
            if (n[c] > 0)
                mean[c] = part[c] / n[c];
    }
    return error;
}

static void centroids_are_nearly_as_good_as_those_of_plain_k_means(void **state)
{
    for (unsigned bits = 2; bits <= 4; bits++) {
        static float survivors[UTIL_COUNT];
        char text[32];
        double error = 0;
        size_t len, kept = 0;

        draw_fill(DRAW_GAUSSIAN, input, UTIL_COUNT);
        snprintf(text, sizeof(text), "kmeans:k=200,bits=%u", bits);
        len = encode(text, UTIL_COUNT);
        assert_int_equal(codec->decode(&spec, &at, bytes, len, UTIL_COUNT, got), 0);
        for (size_t i = 0; i < UTIL_COUNT; i++)
            if (got[i] != 0) {
                survivors[kept++] = input[i];
                error += pow((double)got[i] - (double)input[i], 2);
            }
        assert_int_equal(kept, 601); /* of the last tile, its only element */
        qsort(survivors, kept, sizeof(*survivors), order);
        double plain = error_of(survivors, kept, (1u << bits) - 1);

        if (error > 1.1 * plain)
            fail_msg("bits=%u: %g, and plainly %g", bits, error, plain);
    }
}

static void what_is_no_number_stays_none(void **state)
{
    size_t len;

    draw_fill(DRAW_GAUSSIAN, input, SL_TILE);
    input[5] = NAN;
    input[7] = -INFINITY;
    len = encode("kmeans:k=41,bits=2", SL_TILE);
    assert_int_equal(codec->decode(&spec, &at, bytes, len, SL_TILE, got), 0);
    for (size_t i = 0; i < SL_TILE; i++)
        assert_true(isnan(got[i]) == (i == 5 || i == 7));
}

static void an_element_in_a_hundred_takes_about_ten_bits(void **state)
{
    size_t kept = 3 * 41 + 1, len;

    draw_fill(DRAW_GAUSSIAN, input, UTIL_COUNT);
    len = encode("kmeans:k=41,bits=2", UTIL_COUNT);
    /* Gaps of one in a hundred: 8.1 bits of entropy; symbols: 1.6 bits at most. */
    assert_true((double)(len - 96) * 8 <= (double)kept * (8.1 + 1.6 + 0.6) + 128);
}

static void bytes_with_a_bit_wrong_are_refused_or_lead_nowhere_else(void **state)
{
    for (size_t round = 0; round < 3000; round++) {
        size_t count = 1 + draw_below(500), len, cut;
        uint8_t *copy;

        draw_fill(DRAW_GAUSSIAN, input, count);
        len = encode(round % 2 ? "kmeans:k=41,bits=2" : "kmeans:k=100,bits=4", count);
        cut = round % 5 == 0 ? draw_below((uint32_t)len) : len;
        copy = aligned_alloc(16, (cut + 16) / 16 * 16);
        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        if (cut > 0)
            copy[draw_below((uint32_t)cut)] ^= (uint8_t)(1u << draw_below(8));
        int err = codec->decode(&spec, &at, copy, cut, count, got);

        assert_true(err == -EBADMSG || (err == 0 && cut == len));
        free(copy);
    }
}

static void forged_messages_are_refused(void **state)
{
    size_t len;

    draw_fill(DRAW_GAUSSIAN, input, 1000);
    len = encode("kmeans:k=100,bits=2", 1000);
    assert_int_equal(codec->decode(&spec, &at, bytes, len + 16, 1000, got), -EBADMSG);
    assert_int_equal(codec->decode(&spec, &at, bytes, len - 16, 1000, got), -EBADMSG);
    assert_int_equal(codec->decode(&spec, &at, bytes, 16, 1000, got), -EBADMSG);
    assert_int_equal(codec->decode(&spec, &at, bytes, 16, 0, got), -EBADMSG);
    /* A symbol that is neither centroid nor NaN, beside codes that are right. */
    draw_fill(DRAW_EQUAL, input, 1000);
    len = encode("kmeans:k=100,bits=2", 1000);
    for (unsigned symbol = 0; symbol < 16; symbol++) {
        memset(bytes, 0, 16);
        bytes[symbol] = 1;
        got[0] = 5;
        assert_int_equal(codec->decode(&spec, &at, bytes, len, 1000, got),
                         symbol <= 3 ? 0 : -EBADMSG);
        assert_true(symbol <= 3 || got[0] == 5);
    }
}

static void gaps_do_not_lead_past_the_end(void **state)
{
    size_t len;

    draw_fill(DRAW_ZEROS, input, SL_TILE + 1);
    input[SL_TILE - 1] = input[SL_TILE] = 2;
    len = encode("kmeans:k=1,bits=2", SL_TILE + 1);
    for (uint32_t more = 0; more < 2; more++) {
        struct sl_bits_out out = {.at = again + 96};

        memcpy(again, bytes, 96);
        memset(again + 96, 0, len - 96);
        sl_bits_put_rice(&out, SL_TILE - 1 + more, 10);
        sl_bits_put(&out, 0, 1); /* the only symbol */
        sl_bits_put_rice(&out, 0, 10);
        sl_bits_put(&out, 0, 1);
        sl_bits_end(&out);
        if (more == 0)
            assert_memory_equal(again, bytes, len);
        assert_int_equal(codec->decode(&spec, &at, again, len, SL_TILE + 1, got),
                         more == 0 ? 0 : -EBADMSG);
    }
}

static void parameters_that_cannot_be_are_refused(void **state)
{
    assert_int_equal(sl_codec_parse("kmeans:k=4", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("kmeans:bits=2", &spec), -EINVAL);
    assert_int_equal(sl_codec_parse("kmeans:k=4,bits=5", &spec), -EINVAL);
}

static void codes_are_as_short_as_entropy_allows(void **state)
{
    for (unsigned round = 0; round < 300; round++) {
        uint32_t counts[SL_HUFFMAN_SYMBOLS];
        uint8_t stream[64 * 1024];
        double entropy = 0, bits = 0, all = 0;
        struct sl_huffman made, read;

        for (unsigned s = 0; s < SL_HUFFMAN_SYMBOLS; s++) {
            counts[s] = round % 3 ? draw_below(1u << draw_below(12)) : 1u << s;
            all += counts[s];
        }
        counts[round % 16] += all == 0;
        all += all == 0;
        sl_huffman_make(&made, counts);
        for (unsigned s = 0; s < SL_HUFFMAN_SYMBOLS; s++) {
            assert_int_equal(made.length[s] != 0, counts[s] != 0);
            bits += (double)counts[s] * made.length[s];
            if (counts[s] != 0)
                entropy -= counts[s] * log2(counts[s] / all);
        }
        assert_true(bits >= entropy - 1e-6 && bits <= entropy + all);
        assert_true(sl_huffman_read(&read, made.length));
        struct sl_bits_out out = {.at = stream};

        for (unsigned s = 0; s < 1600; s++)
            if (counts[s % 16] != 0)
                sl_huffman_put(&made, &out, s % 16);
        struct sl_bits_in in = {.at = stream, .end = sl_bits_end(&out)};

        for (unsigned s = 0, symbol = 99; s < 1600; s++)
            if (counts[s % 16] != 0) {
                assert_true(sl_huffman_get(&read, &in, &symbol));
                assert_int_equal(symbol, s % 16);
            }
        assert_true(sl_bits_close(&in) && in.at == in.end);
    }
}

static void lengths_that_are_no_code_are_refused(void **state)
{
    struct sl_huffman h;
    uint8_t none[16] = {0}, lone[16] = {2}, over[16] = {1, 1, 1}, under[16] = {1, 2};
    uint8_t far[16] = {16}, good[16] = {1, 2, 2};

    assert_false(sl_huffman_read(&h, none));
    assert_false(sl_huffman_read(&h, lone));
    assert_false(sl_huffman_read(&h, over));
    assert_false(sl_huffman_read(&h, under));
    assert_false(sl_huffman_read(&h, far));
    assert_true(sl_huffman_read(&h, good));
}

static void all_paths_give_the_same_bytes(void **state)
{
    test_paths_agree("kmeans:k=41,bits=3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_zero_or_one_of_the_centroids),
        cmocka_unit_test(centroids_are_nearly_as_good_as_those_of_plain_k_means),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(an_element_in_a_hundred_takes_about_ten_bits),
        cmocka_unit_test(bytes_with_a_bit_wrong_are_refused_or_lead_nowhere_else),
        cmocka_unit_test(forged_messages_are_refused),
        cmocka_unit_test(gaps_do_not_lead_past_the_end),
        cmocka_unit_test(parameters_that_cannot_be_are_refused),
        cmocka_unit_test(codes_are_as_short_as_entropy_allows),
        cmocka_unit_test(lengths_that_are_no_code_are_refused),
        cmocka_unit_test(all_paths_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
