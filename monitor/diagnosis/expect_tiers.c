/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of hardware. The lowest eighth of what passes a port tells its own speed: whatever its
 * peers are, some of them are as fast as it is, and a port that is slow one way only is not slow in
 * it. Ports in the order of it fall into tiers where there is a gap.
 */
#include "core/err.h"
#include "monitor/diagnosis/expect.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIERS_MAX 4
#define MEMBERS_MIN 3  /* of a tier */
#define SHARE 8        /* it has an eighth of all at least */
#define APART 6        /* spreads within */
#define APART_MIN 0.1f /* logarithm */
#define SPREAD_MIN 0.01f
#define SAMPLE 64    /* cells of a port, each way */
#define GROUPS_MIN 4 /* of which one may be called slow */
#define TIER_SAMPLE 8192

struct port {
    float level;
    uint32_t rank, path;
};

struct tiers {
    const struct sl_matrix *matrix;
    const struct sl_places *places;
    float *excess;
    struct port *ports; /* by level */
    uint32_t count;
    uint32_t begin[TIERS_MAX + 1]; /* of each tier */
    uint32_t tier_count;
    uint8_t *tier_of; /* by rank and path */
    float *scratch;
};

static int by_level(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->path < y->path ? -1 : x->path > y->path;
}

/* At least `least`, and without a factor in common with the number of paths, which cells of a row
 * go through in turn. */
static uint32_t stride_of(const struct tiers *tiers, uint32_t least)
{
    for (uint32_t stride = least;; stride++) {
        uint32_t a = stride, b = tiers->places->path_count;

        while (b != 0) {
            uint32_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

/* Some of a rank's cells on a path, all if they are few. */
static uint32_t sample(const struct tiers *tiers, const uint32_t *cells, uint32_t first,
                       uint32_t last, uint32_t path, float *out)
{
    uint32_t paths = tiers->places->path_count, taken = 0;
    uint32_t stride =
        last - first > SAMPLE * paths ? stride_of(tiers, (last - first) / (SAMPLE * paths)) : 1;

    for (uint32_t i = first; i < last && taken < SAMPLE; i += stride) {
        uint32_t cell = cells != NULL ? cells[i] : i;

        if ((paths == 1 || tiers->matrix->cells[cell].path == path) && !isnan(tiers->excess[cell]))
            out[taken++] = tiers->excess[cell];
    }
    return taken;
}

static void list_ports(struct tiers *tiers)
{
    const struct sl_matrix *matrix = tiers->matrix;

    for (uint32_t rank = 0; rank < matrix->rank_count; rank++)
        for (uint32_t path = 0; path < tiers->places->path_count; path++) {
            uint32_t known = sample(tiers, NULL, matrix->first[rank], matrix->first[rank + 1], path,
                                    tiers->scratch);

            known += sample(tiers, matrix->column, matrix->column_first[rank],
                            matrix->column_first[rank + 1], path, tiers->scratch + known);
            if (known > 0)
                tiers->ports[tiers->count++] =
                    (struct port){sl_select(tiers->scratch, known, known / 8), rank, path};
        }
    qsort(tiers->ports, tiers->count, sizeof(*tiers->ports), by_level);
}

/* ---- where a tier ends ---- */

/* Ports lie by level: half of them are between the quartiles, 1.349 spreads apart. */
static float spread_within(const struct tiers *tiers, uint32_t from, uint32_t to)
{
    uint32_t count = to - from;
    float width = tiers->ports[from + count * 3 / 4].level - tiers->ports[from + count / 4].level;

    return fmaxf(width / 1.349f, SPREAD_MIN);
}

/* Are these ports all that one group of four or more has? */
static bool is_group(const struct tiers *tiers, enum sl_family family, uint32_t from, uint32_t to)
{
    const struct sl_places *places = tiers->places;
    const struct port *first = &tiers->ports[from];
    uint32_t group = sl_place_of(places, family, first->rank, first->path);

    if (group == SL_PLACE_NONE || places->counts[family] < GROUPS_MIN)
        return false;
    for (uint32_t i = 0; i < tiers->count; i++) {
        const struct port *port = &tiers->ports[i];
        bool is_in = sl_place_of(places, family, port->rank, port->path) == group;

        if (is_in != (i >= from && i < to))
            return false;
    }
    return true;
}

static bool is_any_group(const struct tiers *tiers, uint32_t from, uint32_t to)
{
    for (int family = 0; family < SL_FAMILIES; family++)
        if (tiers->places->group[family] != NULL && is_group(tiers, family, from, to))
            return true;
    return false;
}

/* The widest gap between from and to that parts two tiers; 0: there is none. */
static uint32_t part(const struct tiers *tiers, uint32_t from, uint32_t to)
{
    uint32_t least = tiers->count / SHARE > MEMBERS_MIN ? tiers->count / SHARE : MEMBERS_MIN;
    float widest = APART_MIN;
    uint32_t at = 0;

    for (uint32_t i = from + least; i + least <= to; i++) {
        float gap = tiers->ports[i].level - tiers->ports[i - 1].level;

        if (gap > widest) {
            widest = gap;
            at = i;
        }
    }
    if (at == 0 ||
        widest < APART * fmaxf(spread_within(tiers, from, at), spread_within(tiers, at, to)))
        return 0;
    return is_any_group(tiers, at, to) ? 0 : at;
}

static void find_tiers(struct tiers *tiers)
{
    tiers->begin[0] = 0;
    tiers->begin[1] = tiers->count;
    tiers->tier_count = 1;
    for (uint32_t k = 0; k < tiers->tier_count && tiers->tier_count < TIERS_MAX;) {
        uint32_t at = part(tiers, tiers->begin[k], tiers->begin[k + 1]);

        if (at == 0) {
            k++;
            continue;
        }
        memmove(&tiers->begin[k + 2], &tiers->begin[k + 1],
                (tiers->tier_count - k) * sizeof(tiers->begin[0]));
        tiers->begin[k + 1] = at;
        tiers->tier_count++;
    }
    for (uint32_t k = 0; k < tiers->tier_count; k++)
        for (uint32_t i = tiers->begin[k]; i < tiers->begin[k + 1]; i++) {
            const struct port *port = &tiers->ports[i];

            tiers->tier_of[(size_t)port->rank * tiers->places->path_count + port->path] =
                (uint8_t)k;
        }
}

/* ---- what is taken off ---- */

static uint8_t tier_of_cell(const struct tiers *tiers, const struct sl_matrix_cell *cell)
{
    uint32_t paths = tiers->places->path_count, path = paths > 1 ? cell->path : 0;
    uint8_t from = tiers->tier_of[(size_t)cell->src * paths + path];
    uint8_t to = tiers->tier_of[(size_t)cell->dst * paths + path];

    return from > to ? from : to;
}

/* The median of the tier's cells: of a sample of them. */
static float level_of(const struct tiers *tiers, uint8_t tier)
{
    const struct sl_matrix *matrix = tiers->matrix;
    uint32_t stride = stride_of(tiers, matrix->count / TIER_SAMPLE + 1), taken = 0;

    for (uint32_t i = 0; i < matrix->count && taken < TIER_SAMPLE; i += stride)
        if (tier_of_cell(tiers, &matrix->cells[i]) == tier && !isnan(tiers->excess[i]))
            tiers->scratch[taken++] = tiers->excess[i];
    return sl_median_of(tiers->scratch, taken);
}

static void take_off(struct tiers *tiers)
{
    float levels[TIERS_MAX];

    for (uint32_t k = 0; k < tiers->tier_count; k++)
        levels[k] = level_of(tiers, (uint8_t)k);
    for (uint32_t i = 0; i < tiers->matrix->count; i++)
        tiers->excess[i] -= levels[tier_of_cell(tiers, &tiers->matrix->cells[i])];
}

int sl_expect_tiers(const struct sl_matrix *matrix, const struct sl_places *places, float *excess,
                    uint32_t *tiers_found)
{
    size_t ports = (size_t)matrix->rank_count * places->path_count;
    struct tiers tiers = {.matrix = matrix, .places = places, .excess = excess};

    *tiers_found = 1;
    tiers.ports = reallocarray(NULL, ports + 1, sizeof(*tiers.ports));
    tiers.tier_of = calloc(ports + 1, sizeof(*tiers.tier_of));
    tiers.scratch = reallocarray(NULL, TIER_SAMPLE + 2 * SAMPLE, sizeof(*tiers.scratch));
    if (tiers.ports == NULL || tiers.tier_of == NULL || tiers.scratch == NULL) {
        free(tiers.ports);
        free(tiers.tier_of);
        free(tiers.scratch);
        return sl_fail(-ENOMEM, "no memory to compare the messages of a job");
    }
    list_ports(&tiers);
    find_tiers(&tiers);
    *tiers_found = tiers.tier_count;
    if (tiers.tier_count > 1)
        take_off(&tiers);
    free(tiers.ports);
    free(tiers.tier_of);
    free(tiers.scratch);
    return 0;
}
