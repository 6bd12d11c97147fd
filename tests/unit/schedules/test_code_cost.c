/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of algorithms that send encodings: bytes and work that are predicted are those that the
 * schedules have, over any number of ranks and hosts. */
#include "tests/util/shapes.h"

#include "schedules/code_cost.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define TILE 4096

static struct test_coll coll;

static uint64_t bytes(const struct sl_code *code, uint64_t count)
{
    return count + (count + TILE - 1) / TILE * 64;
}

static uint64_t raw_bytes(const struct sl_code *code, uint64_t count)
{
    return 4 * count;
}

static struct sl_code code = {.bytes = bytes, .tile = TILE, .mark = 5, .work = {3, 2, 1}};
static const struct sl_code inner = {
    .bytes = raw_bytes, .tile = TILE, .mark = 6, .work = {1, 1, 1}};

/* Nothing costs anything, but what a case puts there. */
static const struct sl_costs nothing = {{1e-9, 1e-12}, {1e-9, 1e-12}, 1e-9,  1e-12, 1e-12,
                                        1e-12,         1e-9,          1e-12, 1};

static double work_of(const struct sl_step *step)
{
    const struct sl_code_work *work = step->runner == SL_INNER_RUNNER ? &inner.work : &code.work;

    switch (sl_step_row(step)->work) {
    case SL_WORK_ENCODE: return (double)step->count * (double)work->encode;
    case SL_WORK_DECODE: return (double)step->count * (double)work->decode;
    case SL_WORK_DECODE_REDUCE: return (double)step->count * (double)work->add;
    default: return 0;
    }
}

/* Bytes that step sends to another host, in a message of its own. */
static double bytes_of(const struct sl_shape *shape, const struct sl_step *step)
{
    if (sl_step_row(step)->message != SL_SENDS ||
        (shape->host != NULL && shape->host[step->peer] == shape->host[shape->rank]))
        return 0;
    return (double)bytes(&code, step->count);
}

struct most {
    double work, bytes; /* of a rank; of a host */
};

static struct most most_of(const struct sl_shape *base)
{
    double by_host[TEST_RANKS_MAX] = {0};
    struct most most = {0, 0};

    for (uint32_t r = 0; r < base->size; r++) {
        double work = 0, *sent = &by_host[base->host != NULL ? base->host[r] : r];

        for (uint32_t i = 0; i < coll.schedules[r].step_count; i++) {
            work += work_of(&coll.schedules[r].steps[i]);
            *sent += bytes_of(&coll.shapes[r], &coll.schedules[r].steps[i]);
        }
        most.work = work > most.work ? work : most.work;
        most.bytes = *sent > most.bytes ? *sent : most.bytes;
    }
    return most;
}

static void near(const char *what, const struct sl_algo *algo, const struct sl_shape *base,
                 double predicted, double real)
{
    if (predicted < 0.9 * real || predicted > 1.25 * real)
        fail_msg("%s of %s %s, %u ranks, count %llu: %g is predicted, %g in the schedule", what,
                 algo->name, sl_coll_name(base->coll), base->size, (unsigned long long)base->count,
                 predicted, real);
}

static bool compare(const struct sl_algo *algo, const struct sl_shape *base)
{
    struct sl_costs link = nothing, work = nothing;

    if (algo->cost == NULL || test_coll_build(&coll, algo, base, 1) != 0)
        return false;
    struct most most = most_of(base);

    *(base->host != NULL ? &link.net.beta : &link.shm.beta) = 1;
    near("bytes", algo, base, algo->cost(base, &link), most.bytes);
    work.code = 0.25; /* of a byte of f32 */
    near("work", algo, base, algo->cost(base, &work), most.work);
    test_coll_fini(&coll);
    return true;
}

static struct sl_shape shape_of(enum sl_coll c, uint32_t size, uint64_t bytes_most)
{
    bool blocks = c != SL_ALLREDUCE && c != SL_BROADCAST;

    return (struct sl_shape){.coll = c,
                             .size = size,
                             .count = bytes_most / 4 / (blocks ? size : 1) + 3,
                             .esize = 4,
                             .code = &code,
                             .inner = &inner};
}

static void bytes_and_work_are_those_of_the_schedule(void **state)
{
    unsigned compared = 0;

    (void)state;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++)
        for (unsigned c = 0; c < SL_SEND; c++)
            for (uint32_t n = 2; n <= 8 && ((*a)->colls & SL_BIT(c)) != 0; n++) {
                struct sl_shape base = shape_of((enum sl_coll)c, n, (uint64_t)16 << 20);

                compared += compare(*a, &base);
            }
    assert_true(compared >= 5 * 7);
}

static void a_link_is_shared_by_the_ranks_of_its_host(void **state)
{
    static const uint32_t host[] = {0, 0, 1, 1, 2, 2, 3, 3};
    unsigned compared = 0;

    (void)state;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++)
        for (unsigned c = 0; c < SL_SEND; c++) {
            struct sl_shape base = shape_of((enum sl_coll)c, 8, (uint64_t)16 << 20);

            base.host = host;
            if (((*a)->colls & SL_BIT(c)) != 0 && c != SL_BROADCAST) /* a chain crosses once */
                compared += compare(*a, &base);
        }
    assert_true(compared >= 5);
}

static void every_rank_predicts_the_same(void **state)
{
    static const uint32_t host[] = {0, 1, 1, 0, 2, 2};
    struct sl_costs costs = {{250, 0.08}, {8000, 0.8}, 150, 0.03, 0.03, 0.05, 10, 0.04, 1};

    (void)state;
    for (const struct sl_algo *const *a = sl_coded_algos; *a != NULL; a++)
        for (unsigned c = 0; c < SL_SEND; c++)
            for (uint32_t count = 1; count < 1 << 20 && (*a)->cost != NULL; count = 3 * count + 1) {
                struct sl_shape base = shape_of((enum sl_coll)c, 6, count);
                double first;

                if (((*a)->colls & SL_BIT(c)) == 0)
                    continue;
                base.host = host;
                first = (*a)->cost(&base, &costs);
                for (base.rank = 1; base.rank < base.size; base.rank++)
                    assert_true((*a)->cost(&base, &costs) == first);
            }
}

/* Work and wire overlap where the wire is somebody else's; the rest of a link's cost is copying. */
static void what_the_processor_moves_itself_does_not_overlap(void **state)
{
    static const uint32_t host[] = {0, 1};
    const struct sl_algo *oneshot = &sl_algo_oneshot;
    struct sl_shape base = shape_of(SL_ALLREDUCE, 2, (uint64_t)64 << 20);
    struct sl_costs costs = nothing;
    double count = (double)base.count;

    (void)state;
    costs.code = 0.25;
    costs.shm.beta = costs.net.beta = 10;
    assert_true(oneshot->cost(&base, &costs) > 1.0 * count * (10 + 3 + 1.5));
    base.host = host;
    assert_true(oneshot->cost(&base, &costs) < 1.1 * count * 10);
    costs.copy = 10; /* the kernel's copies are all that it costs */
    assert_true(oneshot->cost(&base, &costs) > 1.0 * count * (10 + 3 + 1.5));
}

/* What must arrive before the next can go: a sum before it is given to all, a piece of a chain at
 * each rank of it. */
static void what_waits_for_an_arrival_takes_longer(void **state)
{
    struct sl_shape sum = shape_of(SL_ALLREDUCE, 8, 4096), half = shape_of(SL_ALL_GATHER, 8, 4096);
    struct sl_shape chain = shape_of(SL_BROADCAST, 8, (uint64_t)16 << 20);
    struct sl_costs late = nothing, wire = nothing;

    (void)state;
    late.shm.alpha = 1e9; /* of which a little is work, for each message */
    assert_true(sl_algo_oneshot.cost(&sum, &late) > 2e9);
    assert_true(sl_algo_oneshot.cost(&half, &late) > 1e9);
    assert_true(sl_algo_oneshot.cost(&half, &late) < 1.1e9);
    assert_true(sl_algo_code_chain.cost(&chain, &late) > 7e9);
    wire.shm.beta = 1;
    double bytes_all = (double)bytes(&code, chain.count), piece = (double)bytes(&code, 65536);

    assert_true(sl_algo_code_chain.cost(&chain, &wire) > bytes_all + 5.9 * piece);
    assert_true(sl_algo_code_chain.cost(&chain, &wire) < bytes_all + 8 * piece);
}

static void lengths_that_are_known_late_count_as_they_usually_are(void **state)
{
    struct sl_code open = code;

    (void)state;
    assert_true(sl_code_bytes_of(&open, TILE) == TILE + 64);
    open.usual = 0.5f;
    assert_true(sl_code_bytes_of(&open, TILE) == TILE / 2);
    assert_true(sl_code_bytes_of(&code, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_work_are_those_of_the_schedule),
        cmocka_unit_test(a_link_is_shared_by_the_ranks_of_its_host),
        cmocka_unit_test(every_rank_predicts_the_same),
        cmocka_unit_test(what_the_processor_moves_itself_does_not_overlap),
        cmocka_unit_test(what_waits_for_an_arrival_takes_longer),
        cmocka_unit_test(lengths_that_are_known_late_count_as_they_usually_are),
    };

    return cmocka_run_group_tests_name("code_cost", tests, NULL, NULL);
}
