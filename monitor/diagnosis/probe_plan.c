/* SPDX-License-Identifier: Apache-2.0 */
/* Probes as sets of bits: the fewest that part a set as far as all of them together do. */
#include "monitor/diagnosis/probe_plan.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 48  /* ends of probes that are thought of */
#define MASKS_MAX 256 /* probes that differ in what makes them slow */
#define DEEPEST 4     /* plans that are searched through; longer ones grow greedily */
#define BUDGET 300000
#define KIND 3 /* ranks that have one relation to the set */

struct plan {
    const struct sl_places *places;
    const struct sl_element *set;
    uint32_t set_count;
    const uint8_t *is_bad;
    uint32_t ranks[RANKS_MAX], rank_count;
    struct sl_probe probes[MASKS_MAX];
    uint32_t probe_count;
    uint32_t chosen[SL_PROBES_MAX];
    unsigned depth, budget;
};

/* ---- ends ---- */

static void add_rank(struct plan *plan, uint32_t rank)
{
    for (uint32_t i = 0; i < plan->rank_count; i++)
        if (plan->ranks[i] == rank)
            return;
    if (plan->rank_count < RANKS_MAX)
        plan->ranks[plan->rank_count++] = rank;
}

static bool has_cells(const struct sl_matrix *matrix, uint32_t rank)
{
    return matrix->first[rank] < matrix->first[rank + 1] ||
           matrix->column_first[rank] < matrix->column_first[rank + 1];
}

/* Which members' hosts, leaves, ... the rank is in: alike in it, ranks are as good as each
 * other. */
static uint64_t relation_of(const struct plan *plan, uint32_t rank)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < plan->set_count; k++) {
        const struct sl_element *it = &plan->set[k];
        uint32_t path = it->path, group = SL_PLACE_NONE;

        switch (it->kind) {
        case SL_ELEMENT_HOST_TX:
        case SL_ELEMENT_HOST_RX:
        case SL_ELEMENT_HOST: group = sl_place_of(plan->places, SL_FAMILY_HOST, rank, path); break;
        case SL_ELEMENT_LEAF_TX:
        case SL_ELEMENT_LEAF_RX:
        case SL_ELEMENT_LEAF_UP:
        case SL_ELEMENT_LEAF: group = sl_place_of(plan->places, SL_FAMILY_LEAF, rank, path); break;
        case SL_ELEMENT_RAIL: group = sl_place_of(plan->places, SL_FAMILY_RAIL, rank, path); break;
        case SL_ELEMENT_PLANE:
            group = sl_place_of(plan->places, SL_FAMILY_PLANE, rank, path);
            break;
        default: continue;
        }
        if (group == it->a)
            mask |= (uint64_t)1 << k;
    }
    return mask;
}

static bool is_named(const struct plan *plan, uint32_t rank)
{
    for (uint32_t k = 0; k < plan->set_count; k++) {
        const struct sl_element *it = &plan->set[k];

        if (it->kind <= SL_ELEMENT_NIC &&
            (it->a == rank || (it->kind <= SL_ELEMENT_LANE && it->b == rank)))
            return true;
    }
    return false;
}

/* The ranks that the set names, and some of each relation to it. */
static void list_ranks(struct plan *plan)
{
    uint64_t relations[RANKS_MAX];
    uint32_t counts[RANKS_MAX] = {0}, known = 0;

    for (uint32_t r = 0; r < plan->places->matrix->rank_count; r++)
        if (is_named(plan, r))
            add_rank(plan, r);
    for (uint32_t r = 0; r < plan->places->matrix->rank_count; r++) {
        uint64_t relation;
        uint32_t i = 0;

        if (plan->is_bad[r] || is_named(plan, r) || !has_cells(plan->places->matrix, r))
            continue;
        relation = relation_of(plan, r);
        while (i < known && relations[i] != relation)
            i++;
        if (i == RANKS_MAX)
            continue;
        if (i == known)
            relations[known++] = relation;
        if (counts[i]++ < KIND)
            add_rank(plan, r);
    }
}

/* ---- probes ---- */

static void add_probe(struct plan *plan, uint32_t src, uint32_t dst, uint32_t path)
{
    struct sl_element list[SL_ELEMENTS_MAX];
    struct sl_probe probe = {.src = src, .dst = dst, .path = path};
    unsigned count = sl_elements_of(plan->places, src, dst, path, list);

    for (uint32_t k = 0; k < plan->set_count; k++)
        for (unsigned i = 0; i < count; i++)
            if (sl_element_is(&list[i], &plan->set[k]))
                probe.slow |= (uint64_t)1 << k;
    if (probe.slow == 0 || plan->probe_count == MASKS_MAX)
        return;
    for (uint32_t i = 0; i < plan->probe_count; i++)
        if (plan->probes[i].slow == probe.slow)
            return;
    plan->probes[plan->probe_count++] = probe;
}

static bool is_one_host(const struct sl_places *places, uint32_t a, uint32_t b)
{
    uint32_t host = places->job->ranks[a].host;

    return host != 0 && host == places->job->ranks[b].host;
}

static void list_probes(struct plan *plan)
{
    const struct sl_matrix *matrix = plan->places->matrix;

    for (uint32_t i = 0; i < plan->rank_count; i++)
        for (uint32_t k = 0; k < plan->rank_count; k++) {
            uint32_t src = plan->ranks[i], dst = plan->ranks[k];

            if (src == dst || is_one_host(plan->places, src, dst))
                continue;
            for (uint32_t path = 0; path < plan->places->path_count; path++)
                if (sl_matrix_at(matrix, src, dst, path) == NULL)
                    add_probe(plan, src, dst, path);
        }
}

/* ---- the fewest ---- */

/* Into how many parts the set falls: members that make the same probes slow are one. */
static uint32_t count_parts(const struct plan *plan, const uint32_t *probes, uint32_t count)
{
    uint32_t parts = 0;

    for (uint32_t k = 0; k < plan->set_count; k++) {
        bool is_new = true;

        for (uint32_t j = 0; j < k && is_new; j++) {
            bool is_alike = true;

            for (uint32_t i = 0; i < count && is_alike; i++) {
                uint64_t slow = plan->probes[probes != NULL ? probes[i] : i].slow;

                is_alike = (slow >> k & 1) == (slow >> j & 1);
            }
            is_new = !is_alike;
        }
        parts += is_new;
    }
    return parts;
}

static bool search(struct plan *plan, uint32_t from, uint32_t at, uint32_t parts)
{
    if (at == plan->depth)
        return count_parts(plan, plan->chosen, at) == parts;
    for (uint32_t i = from; i < plan->probe_count; i++) {
        if (plan->budget == 0)
            return false;
        plan->budget--;
        plan->chosen[at] = i;
        if (search(plan, i + 1, at + 1, parts))
            return true;
    }
    return false;
}

static uint32_t grow_greedily(struct plan *plan, uint32_t parts)
{
    uint32_t count = 0, have = 1;

    while (count < SL_PROBES_MAX && have < parts) {
        uint32_t best = 0, most = 0;

        for (uint32_t i = 0; i < plan->probe_count; i++) {
            uint32_t now;

            plan->chosen[count] = i;
            now = count_parts(plan, plan->chosen, count + 1);
            if (now > most) {
                most = now;
                best = i;
            }
        }
        plan->chosen[count++] = best;
        if (most <= have)
            break;
        have = most;
    }
    return count;
}

int sl_probe_plan(const struct sl_places *places, const struct sl_element *set, uint32_t count,
                  const uint8_t *is_bad, struct sl_probe_plan *out)
{
    struct plan *plan;
    uint32_t parts, made = 0;

    *out = (struct sl_probe_plan){.parts = 1};
    if (count < 2 || count > SL_PROBE_SET_MAX)
        return 0;
    plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return sl_fail(-ENOMEM, "no memory to plan probes");
    *plan = (struct plan){
        .places = places, .set = set, .set_count = count, .is_bad = is_bad, .budget = BUDGET};
    list_ranks(plan);
    list_probes(plan);
    parts = count_parts(plan, NULL, plan->probe_count);
    for (plan->depth = 1; plan->depth <= DEEPEST && parts > 1 && made == 0; plan->depth++)
        if (search(plan, 0, 0, parts))
            made = plan->depth;
    if (made == 0)
        made = grow_greedily(plan, parts);
    for (uint32_t i = 0; i < made; i++)
        out->probes[out->count++] = plan->probes[plan->chosen[i]];
    out->parts = count_parts(plan, plan->chosen, made);
    free(plan);
    return 0;
}
