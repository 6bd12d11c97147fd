/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of parts that explain slow cells, and probes that part them, beside all there are. */
#include "net_maker.h"
#include "monitor/diagnosis/ambiguity.h"
#include "monitor/diagnosis/probe_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define RANKS 6
#define PARTS_MAX 200

struct world {
    struct net net;
    struct sl_matrix matrix;
    struct sl_places places;
    struct sl_element parts[PARTS_MAX]; /* all that cover a cell and can be seen */
    uint64_t sets[PARTS_MAX];           /* cells that each covers */
    uint32_t part_count;
};

/* ---- all parts ---- */

static uint64_t cells_of(const struct world *world, uint8_t kind, uint32_t a)
{
    struct sl_element element = {.kind = kind, .a = a};
    uint64_t set = 0;

    for (uint32_t i = 0; i < world->matrix.count; i++) {
        const struct sl_matrix_cell *cell = &world->matrix.cells[i];

        if (sl_element_covers(&world->places, &element, cell->src, cell->dst, cell->path))
            set |= (uint64_t)1 << i;
    }
    return set;
}

/* Parts of which each larger one covers what no smaller one of its own does. */
static bool is_seen(const struct world *world, const struct sl_element *it)
{
    switch (it->kind) {
    case SL_ELEMENT_NODE:
        return cells_of(world, SL_ELEMENT_TX, it->a) != 0 &&
               cells_of(world, SL_ELEMENT_RX, it->a) != 0;
    case SL_ELEMENT_LEAF_UP:
        return cells_of(world, SL_ELEMENT_LEAF_TX, it->a) != 0 &&
               cells_of(world, SL_ELEMENT_LEAF_RX, it->a) != 0;
    case SL_ELEMENT_LEAF:
        return cells_of(world, SL_ELEMENT_LEAF, it->a) !=
               cells_of(world, SL_ELEMENT_LEAF_UP, it->a);
    case SL_ELEMENT_HOST_TX:
    case SL_ELEMENT_HOST_RX:
    case SL_ELEMENT_HOST: return false; /* of one rank each */
    default: return true;
    }
}

static void add_part(struct world *world, const struct sl_element *it)
{
    for (uint32_t i = 0; i < world->part_count; i++)
        if (sl_element_is(&world->parts[i], it))
            return;
    if (!is_seen(world, it))
        return;
    assert_true(world->part_count < PARTS_MAX);
    world->parts[world->part_count] = *it;
    for (uint32_t i = 0; i < world->matrix.count; i++) {
        const struct sl_matrix_cell *cell = &world->matrix.cells[i];

        if (sl_element_covers(&world->places, it, cell->src, cell->dst, cell->path))
            world->sets[world->part_count] |= (uint64_t)1 << i;
    }
    world->part_count++;
}

static void make_world(struct world *world, uint64_t seed)
{
    struct net *net = &world->net;

    memset(world, 0, sizeof(*world));
    net_begin(net, RANKS, seed);
    for (uint32_t r = 0; r < RANKS && seed % 2 == 0; r++) {
        char host[8], leaf[8];

        snprintf(host, sizeof(host), "h%u", r);
        snprintf(leaf, sizeof(leaf), "l%u", r / 2);
        net_host(net, r, host);
        net_port(net, host, "", leaf);
    }
    for (uint32_t src = 0; src < RANKS; src++)
        for (uint32_t dst = 0; dst < RANKS; dst++)
            if (src != dst && ((seed % 3 != 0 && dst == (src + 1) % RANKS) ||
                               (src == 0 && dst == 1) || sl_rng_chance(&net->rng, 3 + seed % 5)))
                net_edge(net, src, dst);
    assert_int_equal(sl_job_seal(net->job), 0);
    assert_int_equal(sl_matrix_build(net->job, SL_JOB_WAIT_WIRE, SL_MATRIX_REMOTE, &world->matrix),
                     0);
    assert_int_equal(sl_places_find(net->job, &world->matrix, &world->places), 0);
    assert_true(world->matrix.count <= 64);
    for (uint32_t i = 0; i < world->matrix.count; i++) {
        const struct sl_matrix_cell *cell = &world->matrix.cells[i];
        struct sl_element list[SL_ELEMENTS_MAX];
        unsigned count = sl_elements_of(&world->places, cell->src, cell->dst, cell->path, list);

        for (unsigned k = 0; k < count; k++)
            add_part(world, &list[k]);
    }
}

static void free_world(struct world *world)
{
    sl_places_fini(&world->places);
    sl_matrix_fini(&world->matrix);
    net_end(&world->net);
}

/* ---- brute force ---- */

/* All ways to cover hot by `left` parts of which all cells are hot: those used are marked. */
static bool cover(const struct world *world, uint64_t hot, uint64_t covered, uint32_t from,
                  unsigned left, uint8_t *used)
{
    bool is_any = false;

    if (left == 0)
        return covered == hot;
    for (uint32_t i = from; i < world->part_count; i++)
        if ((world->sets[i] & ~hot) == 0 &&
            cover(world, hot, covered | world->sets[i], i + 1, left - 1, used)) {
            used[i] = 1;
            is_any = true;
        }
    return is_any;
}

static bool is_in(const struct sl_ambiguity *ambiguity, const struct sl_element *element)
{
    for (uint32_t i = 0; i < ambiguity->fault_count; i++)
        for (uint32_t k = 0; k < ambiguity->faults[i].set_count; k++)
            if (sl_element_is(&ambiguity->candidates[ambiguity->faults[i].set[k]].element, element))
                return true;
    return false;
}

static bool is_part(const struct world *world, const struct sl_element *element)
{
    for (uint32_t i = 0; i < world->part_count; i++)
        if (sl_element_is(&world->parts[i], element))
            return true;
    return false;
}

static void compare(struct world *world, uint64_t hot)
{
    uint8_t used[PARTS_MAX] = {0}, bits[64];
    struct sl_ambiguity ambiguity;
    unsigned fewest = 1;
    uint32_t told = 0, all = 0;

    for (uint32_t i = 0; i < world->matrix.count; i++)
        bits[i] = hot >> i & 1;
    while (!cover(world, hot, 0, 0, fewest, used))
        fewest++;
    assert_int_equal(sl_ambiguity_find(&world->places, bits, &ambiguity), 0);
    for (uint32_t i = 0; i < ambiguity.candidate_count; i++)
        ambiguity.candidates[i].is_strong = true;
    assert_int_equal(sl_ambiguity_cover(&ambiguity), 0);
    assert_int_equal(ambiguity.fault_count, fewest);
    assert_false(ambiguity.has_more);
    for (uint32_t i = 0; i < ambiguity.fault_count; i++) {
        told += ambiguity.faults[i].set_count;
        for (uint32_t k = 0; k < ambiguity.faults[i].set_count; k++)
            assert_true(is_part(world, &ambiguity.candidates[ambiguity.faults[i].set[k]].element));
    }
    for (uint32_t i = 0; i < world->part_count; i++) {
        all += used[i];
        assert_int_equal(is_in(&ambiguity, &world->parts[i]), used[i]);
    }
    /* Nobody is in no smallest cover; who is in two sets is told twice. */
    assert_true(told >= all);
    sl_ambiguity_fini(&ambiguity);
}

static void sets_are_those_of_brute_force(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct world world;
        uint64_t hot = 0;

        make_world(&world, seed);
        for (uint32_t faults = 1 + seed / 2 % 3; faults > 0; faults--)
            hot |= world.sets[sl_rng_below(&world.net.rng, world.part_count)];
        compare(&world, hot);
        free_world(&world);
    }
}

/* ---- probes ---- */

struct question {
    const struct world *world;
    const struct sl_element *set;
    uint32_t count;
    uint64_t masks[RANKS * RANKS];
    uint32_t mask_count;
};

static uint32_t parts_by(const struct question *question, const uint32_t *chosen, uint32_t count)
{
    uint64_t codes[64];
    uint32_t parts = 0;

    for (uint32_t k = 0; k < question->count; k++) {
        bool is_new = true;

        codes[k] = 0;
        for (uint32_t i = 0; i < count; i++)
            codes[k] |= (question->masks[chosen[i]] >> k & 1) << i;
        for (uint32_t j = 0; j < k; j++)
            is_new = is_new && codes[j] != codes[k];
        parts += is_new;
    }
    return parts;
}

static bool some_do(const struct question *question, uint32_t *chosen, uint32_t at, uint32_t from,
                    uint32_t count, uint32_t parts)
{
    if (at == count)
        return parts_by(question, chosen, count) >= parts;
    for (uint32_t i = from; i < question->mask_count; i++) {
        chosen[at] = i;
        if (some_do(question, chosen, at + 1, i + 1, count, parts))
            return true;
    }
    return false;
}

static void ask(const struct world *world, const struct sl_element *set, uint32_t count)
{
    struct question question = {.world = world, .set = set, .count = count};
    uint8_t is_bad[RANKS] = {0};
    struct sl_probe_plan plan;
    uint32_t chosen[8];

    for (uint32_t src = 0; src < RANKS; src++)
        for (uint32_t dst = 0; dst < RANKS; dst++) {
            if (src == dst || sl_matrix_at(&world->matrix, src, dst, 0) != NULL)
                continue;
            for (uint32_t k = 0; k < count; k++)
                if (sl_element_covers(&world->places, &set[k], src, dst, 0))
                    question.masks[question.mask_count] |= (uint64_t)1 << k;
            question.mask_count++;
        }
    assert_int_equal(sl_probe_plan(&world->places, set, count, is_bad, &plan), 0);
    if (plan.count > 0 && plan.count <= 4)
        assert_false(some_do(&question, chosen, 0, 0, plan.count - 1, plan.parts));
    /* No three tell more apart. */
    for (uint32_t more = 1; more <= 3; more++)
        assert_false(some_do(&question, chosen, 0, 0, more, plan.parts + 1));
    for (uint32_t i = 0; i < plan.count; i++)
        assert_null(sl_matrix_at(&world->matrix, plan.probes[i].src, plan.probes[i].dst, 0));
}

static void plans_have_the_fewest_probes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct world world;
        uint32_t count = 0;
        struct sl_element set[8];

        make_world(&world, seed);
        for (uint32_t i = 0; i < world.part_count && count < 5; i++)
            if (sl_rng_chance(&world.net.rng, 6))
                set[count++] = world.parts[i];
        if (count >= 2)
            ask(&world, set, count);
        free_world(&world);
    }
}

/* ---- large ones ---- */

/* Beyond 64 cells a cover grows greedily; the sender stays the only one. */
static void a_large_component_has_its_sender(void **state)
{
    struct sl_ambiguity ambiguity;
    struct sl_places places;
    struct sl_matrix matrix;
    struct net net;
    uint8_t *hot;

    (void)state;
    net_begin(&net, 100, 1);
    net_all_to_all(&net);
    assert_int_equal(sl_job_seal(net.job), 0);
    assert_int_equal(sl_matrix_build(net.job, SL_JOB_WAIT_WIRE, SL_MATRIX_ALL, &matrix), 0);
    assert_int_equal(sl_places_find(net.job, &matrix, &places), 0);
    hot = calloc(matrix.count, 1);
    assert_non_null(hot);
    for (uint32_t i = 0; i < matrix.count; i++)
        hot[i] = matrix.cells[i].src == 42 || matrix.cells[i].dst == 17 ||
                 (matrix.cells[i].src == 3 && matrix.cells[i].dst == 5);
    assert_int_equal(sl_ambiguity_find(&places, hot, &ambiguity), 0);
    for (uint32_t i = 0; i < ambiguity.candidate_count; i++)
        ambiguity.candidates[i].is_strong = true;
    assert_int_equal(sl_ambiguity_cover(&ambiguity), 0);
    assert_int_equal(ambiguity.fault_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(ambiguity.faults[i].set_count, 1);
    sl_ambiguity_fini(&ambiguity);
    free(hot);
    sl_places_fini(&places);
    sl_matrix_fini(&matrix);
    net_end(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_those_of_brute_force),
        cmocka_unit_test(plans_have_the_fewest_probes),
        cmocka_unit_test(a_large_component_has_its_sender),
    };

    return cmocka_run_group_tests_name("diagnosis_ambiguity", tests, NULL, NULL);
}
