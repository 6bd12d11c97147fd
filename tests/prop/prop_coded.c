/* SPDX-License-Identifier: Apache-2.0 */
/* Law: every algorithm that sends encodings is right for every collective it knows, any number of
 * ranks, odd counts, any root, in place or not, for codecs of fixed and of open length. Proved with
 * testing/check.c: all ranks decode the same bytes, summed in one order. */
#include "tests/util/shapes.h"

#include "core/err.h"
#include "testing/check.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define TILE 8

static struct test_coll coll;
static uint64_t proved;

/* A head of each tile, and three bits an element: no multiple of anything. */
static uint64_t bytes(const struct sl_code *code, uint64_t count)
{
    return (count + code->tile - 1) / code->tile * 3 + (3 * count + 7) / 8;
}

/* So many that only the fewest rounds are under way, and places are used again soon. */
static uint64_t many_bytes(const struct sl_code *code, uint64_t count)
{
    return bytes(code, count) << 17;
}

/* As those that are sent within a host, as they are. */
static uint64_t raw_bytes(const struct sl_code *code, uint64_t count)
{
    return 4 * count;
}

static struct sl_code code = {.bytes = bytes, .tile = TILE, .mark = 77};
static const struct sl_code inner = {.bytes = raw_bytes, .tile = TILE, .mark = 78};

static const struct sl_algo *test_coded(const char *name)
{
    for (size_t i = 0; sl_coded_algos[i] != NULL; i++)
        if (strcmp(sl_coded_algos[i]->name, name) == 0)
            return sl_coded_algos[i];
    return NULL;
}

/* One host: those that are for it. Encodings that add: prop_code_sum.c. */
static bool for_one_host(size_t algo)
{
    return sl_coded_algos[algo] != test_coded("oneshot_hosts") &&
           !sl_coded_algos[algo]->needs_terms;
}

static int prove(const struct sl_algo *algo, const struct sl_shape *base, uint64_t seed)
{
    int rc = test_coll_build(&coll, algo, base, seed);

    rc = rc ?: sl_check(coll.shapes, coll.schedules, seed);
    if (rc != 0 && rc != -ENOTSUP)
        fail_msg("%s %s, %u ranks, root %u, count %" PRIu64 ", chunk %" PRIu64
                 ", %u bytes%s%s, seed %" PRIu64 ": %s",
                 algo->name, sl_coll_name(base->coll), base->size, base->root, base->count,
                 base->chunk, base->esize, base->in_place ? ", in place" : "",
                 code.up_to ? ", open" : "", seed, sluice_last_error());
    proved += rc == 0;
    test_coll_fini(&coll);
    return rc;
}

/* One collective of n ranks: less than a tile, some tiles, and many rounds. */
static void prove_size(const struct sl_algo *algo, enum sl_coll c, uint32_t n)
{
    const uint64_t counts[] = {1, TILE * n / 2 + 3, 5 * TILE * n + 1, 11 * TILE * n - 5};
    uint64_t seed = n;

    for (size_t i = 0; i < 2 * SL_ARRAY_LEN(counts); i++, seed++) {
        struct sl_shape base = {.coll = c,
                                .size = n,
                                .count = counts[i / 2],
                                .esize = i % 2 == 0 ? 4 : 2,
                                .root = (uint32_t)(seed % n),
                                .chunk = seed % 3 == 0 ? 2 * TILE : 1,
                                .in_place = seed / 2 % 2 == 0,
                                .code = &code};
        bool blocks = c != SL_ALLREDUCE && c != SL_BROADCAST;

        if (blocks)
            base.count = (base.count + n - 1) / n;
        if (n > 10 && i > 5) /* the time grows with the third power */
            base.chunk = 4 * TILE;
        if (algo == test_coded("code_gather") && n > 4) /* of the whole vector, not of shards */
            base.chunk = n * TILE / 2;
        code.up_to = seed % 4 < 2;
        code.bytes = (i + n) % 2 == 0 ? many_bytes : bytes;
        assert_int_equal(prove(algo, &base, seed), n < 2 ? -ENOTSUP : 0);
    }
}

static void every_schedule_of_encodings_for_1_to_16_ranks_is_right(void **state)
{
    (void)state;
    for (size_t a = 0; sl_coded_algos[a] != NULL; a++)
        for (unsigned c = 0; c < SL_SEND; c++)
            for (uint32_t n = 1;
                 n <= 16 && (sl_coded_algos[a]->colls & 1u << c) != 0 && for_one_host(a); n++)
                prove_size(sl_coded_algos[a], (enum sl_coll)c, n);
    printf("# %" PRIu64 " proved\n", proved);
    assert_true(proved >= 5 * 15 * 8);
}

static void many_rounds_use_the_places_of_the_wire_again(void **state)
{
    struct sl_shape base = {.size = 3, .esize = 4, .count = 97 * TILE, .chunk = 1, .code = &code};

    (void)state;
    code.up_to = false;
    code.bytes = many_bytes;
    for (size_t a = 0; sl_coded_algos[a] != NULL; a++) {
        for (unsigned c = 0; c < SL_SEND; c++) {
            if ((sl_coded_algos[a]->colls & 1u << c) == 0 || !for_one_host(a))
                continue;
            base.coll = (enum sl_coll)c;
            assert_int_equal(test_coll_build(&coll, sl_coded_algos[a], &base, 1), 0);
            assert_true(coll.schedules[0].wire_bytes <= 3 * 3 * 4 * many_bytes(&code, TILE));
            assert_true(coll.schedules[0].tmp_count <= 2 * TILE);
            test_coll_fini(&coll);
            for (uint64_t seed = 0; seed < 10; seed++)
                assert_int_equal(prove(sl_coded_algos[a], &base, seed), 0);
        }
    }
}

/* Hosts with as many ranks each: in blocks, dealt out in turn, and mixed. */
static void host_of(uint32_t *host, uint32_t hosts, uint32_t locals, uint32_t kind)
{
    uint32_t size = hosts * locals, left[16];
    struct sl_rng rng;

    sl_rng_init(&rng, size * 10 + kind);
    for (uint32_t i = 0; i < hosts; i++)
        left[i] = locals;
    for (uint32_t r = 0, next = 0; r < size; r++) {
        uint32_t at = kind == 0 ? r / locals : r % hosts;

        while (kind == 2 && (at = (uint32_t)sl_rng_below(&rng, hosts), left[at] == 0 || at > next))
            at = next < hosts && left[next] == locals && sl_rng_chance(&rng, 3) ? next : at;
        left[at]--;
        next += at == next;
        host[r] = at;
    }
}

static void prove_hosts(uint32_t hosts, uint32_t locals, uint32_t kind)
{
    uint32_t n = hosts * locals, host[16 * 4];
    const uint64_t counts[] = {1, TILE * n / 2 + 3, 3 * TILE * n + 1, 11 * TILE * n - 5};

    host_of(host, hosts, locals, kind);
    for (uint32_t i = 0; i < SL_ARRAY_LEN(counts); i++) {
        struct sl_shape base = {.coll = SL_ALLREDUCE,
                                .size = n,
                                .count = counts[i],
                                .esize = (i + kind) % 2 == 0 ? 4 : 2,
                                .chunk = n > 10 ? 3 * TILE : 1,
                                .in_place = (i + hosts) % 2 == 0,
                                .host = host,
                                .code = &code,
                                .inner = &inner};

        code.up_to = (i + locals) % 2 == 0;
        assert_int_equal(prove(test_coded("oneshot_hosts"), &base, i), 0);
    }
}

static void every_map_of_as_many_ranks_to_each_host_is_right(void **state)
{
    uint64_t before = proved;

    (void)state;
    for (uint32_t hosts = 2; hosts <= 8; hosts++)
        for (uint32_t locals = 2; hosts * locals <= 16; locals++)
            for (uint32_t kind = 0; kind < 3; kind++)
                prove_hosts(hosts, locals, kind);
    printf("# %" PRIu64 " proved over several hosts\n", proved - before);
    assert_true(proved - before >= 200);
}

static void hosts_with_more_ranks_than_others_are_for_another(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1, 1}, alone[] = {0, 1, 2, 3}, one[] = {0, 0, 0, 0};
    struct sl_shape base = {.coll = SL_ALLREDUCE,
                            .size = 5,
                            .count = 100,
                            .esize = 4,
                            .host = host,
                            .code = &code,
                            .inner = &inner};

    (void)state;
    assert_int_equal(prove(test_coded("oneshot_hosts"), &base, 1), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "hosts with the same number of ranks"));
    base.size = 4;
    base.host = alone;
    assert_int_equal(prove(test_coded("oneshot_hosts"), &base, 1), -ENOTSUP);
    base.host = one;
    assert_int_equal(prove(test_coded("oneshot_hosts"), &base, 1), -ENOTSUP);
    base.host = NULL;
    assert_int_equal(prove(test_coded("oneshot_hosts"), &base, 1), -ENOTSUP);
}

static void without_a_codec_there_is_no_such_schedule(void **state)
{
    struct sl_shape base = {.coll = SL_ALLREDUCE, .size = 3, .esize = 4, .count = 10};

    (void)state;
    assert_int_equal(prove(test_coded("oneshot"), &base, 1), -ENOTSUP);
    assert_non_null(strstr(sluice_last_error(), "needs 2 ranks and a codec"));
    base.code = &code;
    base.count = 0;
    assert_int_equal(prove(test_coded("oneshot"), &base, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_of_encodings_for_1_to_16_ranks_is_right),
        cmocka_unit_test(many_rounds_use_the_places_of_the_wire_again),
        cmocka_unit_test(every_map_of_as_many_ranks_to_each_host_is_right),
        cmocka_unit_test(hosts_with_more_ranks_than_others_are_for_another),
        cmocka_unit_test(without_a_codec_there_is_no_such_schedule),
    };

    return cmocka_run_group_tests_name("coded", tests, NULL, NULL);
}
