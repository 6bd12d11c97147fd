/* SPDX-License-Identifier: Apache-2.0 */
/* Law: every algorithm's schedules are right for every collective it knows, any number of ranks,
 * odd counts, any root, in place or not. Proved with testing/check.c.
 * usage: prop_schedules [--quick]    not all of the larger sizes, for which the time grows with the
 * third power */
#include "tests/util/shapes.h"

#include "core/err.h"
#include "schedules/shares.h"
#include "testing/check.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#define WINDOW 4096

static struct test_coll coll;
static uint64_t proved, skipped;

static void prove(const struct sl_algo *algo, const struct sl_shape *base, uint64_t seed)
{
    int rc = test_coll_build(&coll, algo, base, seed);

    if (rc == 0)
        rc = sl_check(coll.shapes, coll.schedules, seed);
    if (rc == -ENOTSUP) {
        skipped++;
    } else if (rc != 0) {
        fail_msg("%s %s, %u ranks, root %u, count %" PRIu64 ", chunk %" PRIu64 "%s, seed %" PRIu64
                 ": %s",
                 algo->name, sl_coll_name(base->coll), base->size, base->root, base->count,
                 base->chunk, base->in_place ? ", in place" : "", seed, sluice_last_error());
    } else {
        proved++;
    }
    test_coll_fini(&coll);
}

static bool has_root(enum sl_coll c)
{
    return c == SL_BROADCAST || c == SL_REDUCE || c == SL_GATHER || c == SL_SCATTER;
}

/* Small pieces make many steps: with windows each rank then reads all others in every piece, so
 * there the pieces grow with the ranks. */
static uint64_t piece_for(const struct sl_algo *algo, uint32_t n, uint64_t count, size_t i)
{
    const uint64_t pieces[] = {16, 5, 48};

    if (algo->needs_windows && n > 8)
        return n * count / 5;
    if (n > 16)
        return count / 3 + 1;
    return pieces[i];
}

/* One algorithm and collective for n ranks: all roots with one odd count, and some counts, pieces
 * and aliasing with one root. */
static void prove_size(const struct sl_algo *algo, enum sl_coll c, uint32_t n, const uint32_t *host)
{
    const uint64_t counts[] = {1, 2 * n + 1, 333};
    struct sl_shape base = {.coll = c, .size = n, .esize = 4, .win_count = WINDOW, .host = host};
    uint64_t seed = n;

    for (size_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
        base.count = counts[i];
        base.chunk = piece_for(algo, n, counts[i], i);
        if (has_root(c) && i == 1) {
            for (base.root = 0; base.root < n; base.root++) {
                base.in_place = base.root % 2 == 1;
                prove(algo, &base, seed++);
            }
        }
        base.root = (uint32_t)(seed % n);
        base.in_place = (i + n) % 2 == 0 && c != SL_ALL_TO_ALL_V;
        if (n > 16 && i != n % 3 && i != 1)
            continue;
        prove(algo, &base, seed++);
    }
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static bool quick;

/* The small ones, and of the others those beside a power of two and one between. */
static bool is_quick(uint32_t n)
{
    return n <= 24 || (n >= 31 && n <= 33) || n == 48 || n >= 63;
}

static void every_schedule_for_1_to_64_ranks_is_right(void **state)
{
    (void)state;
    for (size_t a = 0; sl_algos[a] != NULL; a++) {
        double start = cpu_seconds();
        uint64_t before = proved;
        for (uint32_t n = 1; n <= 64; n++) {
            for (unsigned c = 0; c < SL_SEND; c++) {
                if ((sl_algos[a]->colls & 1u << c) != 0 && (!quick || is_quick(n)))
                    prove_size(sl_algos[a], c, n, NULL);
            }
        }
        printf("# %-8s %6" PRIu64 " proved in %.2f s\n", sl_algos[a]->name, proved - before,
               cpu_seconds() - start);
    }
    printf("# proved %" PRIu64 ", not for that shape %" PRIu64 "\n", proved, skipped);
    assert_true(proved > (quick ? 8000 : 20000));
}

/* Even hosts, uneven hosts, hosts of one rank, ranks dealt out in turn. */
static void every_map_of_ranks_to_hosts_is_right(void **state)
{
    uint32_t host[64];
    uint64_t before = proved;
    struct sl_rng rng;

    (void)state;
    for (uint32_t n = 2; n <= 24; n++) {
        for (uint32_t kind = 0; kind < 4; kind++) {
            uint32_t next = 0;
            sl_rng_init(&rng, n);
            for (uint32_t r = 0; r < n; r++) {
                if (kind == 0)
                    host[r] = r / 2;
                else if (kind == 1)
                    host[r] = r % 3;
                else if (kind == 2)
                    host[r] = r < n / 2 ? 0 : 1;
                else
                    host[r] = (uint32_t)sl_rng_below(&rng, next + 1);
                next = host[r] == next ? next + 1 : next;
            }
            for (size_t a = 0; sl_algos[a] != NULL; a++) {
                if ((sl_algos[a]->colls & 1u << SL_ALLREDUCE) != 0)
                    prove_size(sl_algos[a], SL_ALLREDUCE, n, host);
            }
            for (unsigned c = SL_ALLREDUCE + 1; c < SL_SEND; c++) {
                if ((test_algo("hier")->colls & 1u << c) != 0)
                    prove_size(test_algo("hier"), c, n, host);
                if ((test_algo("hiertree")->colls & 1u << c) != 0)
                    prove_size(test_algo("hiertree"), c, n, host);
            }
        }
    }
    printf("# %" PRIu64 " proved over several hosts\n", proved - before);
    assert_true(proved - before > 800);
}

/* Links of rank r, drawn: one slow, two of half, two kinds, anything, one that is hardly there. */
static uint16_t draw_speed(struct sl_rng *rng, uint32_t kind, uint32_t r, uint32_t n)
{
    switch (kind) {
    case 0: return r == n / 3 ? 875 : 1000;
    case 1: return r == 0 || r == n - 1 ? 500 : 1000;
    case 2: return r % 2 == 0 ? 1000 : 700;
    case 3: return (uint16_t)sl_rng_range(rng, 1, SL_SPEED_MAX);
    default: return r == n / 2 ? 1 : SL_SPEED_MAX;
    }
}

static void shares_of_unequal_links_are_right(void **state)
{
    const uint64_t counts[] = {1, 7, 100, 1999}, chunks[] = {0, 5, 16, 48};
    const enum sl_coll colls[] = {SL_ALLREDUCE, SL_REDUCE_SCATTER, SL_ALL_GATHER};
    uint64_t before = proved;
    uint16_t speed[64];
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    for (uint32_t n = 2; n <= 64; n += n < 24 ? 1 : 13) {
        for (uint32_t i = 0; i < 20; i++) {
            for (uint32_t r = 0; r < n; r++)
                speed[r] = draw_speed(&rng, i % 5, r, n);
            struct sl_shape base = {.coll = colls[sl_rng_below(&rng, 3)],
                                    .size = n,
                                    .esize = 4,
                                    .count = counts[i / 5] * (n > 24 && i >= 15 ? 2 : 1),
                                    .in_place = sl_rng_chance(&rng, 2),
                                    .chunk = n > 24 ? 0 : chunks[sl_rng_below(&rng, 4)],
                                    .speed = speed};
            prove(test_algo("weighted"), &base, i);
        }
    }
    printf("# %" PRIu64 " with unequal links proved\n", proved - before);
    assert_true(proved - before == 26 * 20);
}

/* Large communicators, with schedules of few steps per rank. */
static void sampled_sizes_to_1024_ranks_are_right(void **state)
{
    const char *const names[] = {"ring",     "halving", "doubling", "dtree",
                                 "binomial", "bruck",   "linear",   "dissemination"};
    struct sl_rng rng;
    uint64_t before = proved;

    (void)state;
    sl_rng_init(&rng, 3);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t limit = i % 8 == 0 ? 300 : 1024;
        uint32_t n = i < 4 ? 1024 - i : (uint32_t)sl_rng_range(&rng, 65, limit);
        const struct sl_algo *algo = test_algo(names[i % 8]);
        unsigned c = 0, skip = i / 8 % 4;
        /* The skip-th collective that the algorithm knows, counted round. */
        for (c = 0; skip > 0 || (algo->colls & 1u << c) == 0; c = (c + 1) % SL_SEND)
            skip -= skip > 0 && (algo->colls & 1u << c) != 0;
        if (i % 8 == 0 || c == SL_ALL_TO_ALL)
            n = n % 200 + 65;
        struct sl_shape base = {.coll = (enum sl_coll)c,
                                .size = n,
                                .esize = 4,
                                .count = 2 * n + 1,
                                .root = (uint32_t)sl_rng_below(&rng, n),
                                .chunk = 4096};
        if (c != SL_ALLREDUCE && c != SL_BROADCAST && c != SL_REDUCE)
            base.count = 3;
        prove(algo, &base, i);
    }
    printf("# %" PRIu64 " sizes proved up to 1024 ranks\n", proved - before);
    assert_int_equal(proved - before, 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_map_of_ranks_to_hosts_is_right),
        cmocka_unit_test(shares_of_unequal_links_are_right),
        cmocka_unit_test(sampled_sizes_to_1024_ranks_are_right),
        cmocka_unit_test(every_schedule_for_1_to_64_ranks_is_right),
    };
    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
