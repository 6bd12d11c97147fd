/* SPDX-License-Identifier: Apache-2.0 */
/* Law: an allreduce by encodings that add is right by whichever algorithms its terms are reduced,
 * for any number of ranks, odd counts, in place or not, on one host and on several. Proved with
 * testing/check.c: each rank's elements are encoded once, by results that all ranks share, and all
 * decode the same numbers. */
#include "tests/util/adding_codes.h"
#include "tests/util/shapes.h"

#include "core/err.h"
#include "schedules/build.h"
#include "testing/check.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define WINDOW 4096

static struct test_coll coll;
static uint64_t proved, skipped;

static void prove(const struct sl_shape *base, uint64_t seed)
{
    int rc = test_coll_build(&coll, &sl_algo_code_sum, base, seed);

    rc = rc ?: sl_check(coll.shapes, coll.schedules, seed);
    if (rc != 0 && rc != -ENOTSUP)
        fail_msg("%s and %s, %u ranks, count %" PRIu64 ", chunk %" PRIu64
                 ", %u bytes%s, seed %" PRIu64 ": %s",
                 base->within[0]->name, base->within[1]->name, base->size, base->count, base->chunk,
                 base->esize, base->in_place ? ", in place" : "", seed, sluice_last_error());
    proved += rc == 0;
    skipped += rc == -ENOTSUP;
    test_coll_fini(&coll);
}

/* Both terms by one algorithm, or the first by another one. */
static void prove_size(const struct sl_algo *first, const struct sl_algo *second, uint32_t n,
                       const uint32_t *host)
{
    const uint64_t counts[] = {1, 2 * n + 1, 13 * ADDING_TILE * n - 5};
    uint64_t seed = n;

    for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++, seed++) {
        struct sl_shape base = {.coll = SL_ALLREDUCE,
                                .size = n,
                                .count = counts[i],
                                .esize = seed % 3 == 0 ? 2 : 4,
                                .chunk = n > 8           ? counts[i] / 5 + 1
                                         : seed % 2 == 0 ? 5
                                                         : 48,
                                .in_place = seed % 2 == 0,
                                .win_count = WINDOW,
                                .host = host,
                                .code = &adding_scaled_code,
                                .within = {first, second}};

        prove(&base, seed);
        if (first != second)
            continue;
        base.code = &adding_float_code;
        base.in_place = !base.in_place;
        prove(&base, seed);
    }
}

static bool reduces(size_t a)
{
    return (sl_algos[a]->colls & 1u << SL_ALLREDUCE) != 0 && sl_algos[a] != &sl_algo_self;
}

static void by_every_allreduce_with_1_to_16_ranks(void **state)
{
    (void)state;
    for (size_t a = 0; sl_algos[a] != NULL; a++) {
        uint64_t before = proved;

        for (uint32_t n = 1; n <= 16 && reduces(a); n++)
            prove_size(sl_algos[a], sl_algos[a], n, NULL);
        if (reduces(a))
            printf("# %-10s %4" PRIu64 " proved\n", sl_algos[a]->name, proved - before);
    }
    printf("# not for that shape %" PRIu64 "\n", skipped);
    assert_true(proved >= 600);
}

/* Their messages are in other channels, and their windows in other places. */
static void by_one_allreduce_for_each_term(void **state)
{
    uint64_t before = proved;

    (void)state;
    for (size_t a = 0; sl_algos[a] != NULL; a++)
        for (size_t b = 0; sl_algos[b] != NULL; b++)
            for (uint32_t n = 2; n <= 5 && reduces(a) && reduces(b) && a != b; n += n - 1)
                prove_size(sl_algos[a], sl_algos[b], n, NULL);
    printf("# %" PRIu64 " proved\n", proved - before);
    assert_true(proved - before >= 400);
}

static void over_several_hosts(void **state)
{
    static const uint32_t maps[][8] = {
        {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 1}};
    static const uint32_t sizes[] = {4, 4, 5, 6, 8};
    uint64_t before = proved;

    (void)state;
    for (size_t m = 0; m < SL_ARRAY_LEN(sizes); m++)
        for (size_t a = 0; sl_algos[a] != NULL; a++)
            for (size_t b = 0; sl_algos[b] != NULL && reduces(a); b++)
                if (reduces(b) && (a == b || sl_algos[b] == &sl_algo_hier))
                    prove_size(sl_algos[a], sl_algos[b], sizes[m], maps[m]);
    printf("# %" PRIu64 " proved\n", proved - before);
    assert_true(proved - before >= 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_every_allreduce_with_1_to_16_ranks),
        cmocka_unit_test(by_one_allreduce_for_each_term),
        cmocka_unit_test(over_several_hosts),
    };

    return cmocka_run_group_tests_name("code_sum", tests, NULL, NULL);
}
