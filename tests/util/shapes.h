/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' shapes and schedules of one collective, for tests that prove them. */
#ifndef SL_TESTS_UTIL_SHAPES_H
#define SL_TESTS_UTIL_SHAPES_H

#include "schedules/schedule.h"

#include "core/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEST_RANKS_MAX 1024

struct test_coll {
    struct sl_shape shapes[TEST_RANKS_MAX];
    struct sl_schedule schedules[TEST_RANKS_MAX];
    uint32_t built;
    uint64_t *v; /* [rank][4][size] of all_to_all_v */
    uint32_t host[TEST_RANKS_MAX];
};

static inline const struct sl_algo *test_algo(const char *name)
{
    for (size_t i = 0; sl_algos[i] != NULL; i++) {
        if (strcmp(sl_algos[i]->name, name) == 0)
            return sl_algos[i];
    }
    return NULL;
}

static inline void test_coll_fini(struct test_coll *coll)
{
    for (uint32_t r = 0; r < coll->built; r++)
        sl_schedule_fini(&coll->schedules[r]);
    coll->built = 0;
    free(coll->v);
    coll->v = NULL;
}

/* Random counts for each pair, some 0, and places with gaps between. */
static inline void test_coll_v(struct test_coll *coll, const struct sl_shape *base, uint64_t seed)
{
    uint32_t n = base->size;
    struct sl_rng rng;

    sl_rng_init(&rng, seed);
    coll->v = calloc((size_t)n * n * 4, sizeof(*coll->v));
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t p = 0; p < n; p++) {
            uint64_t count = sl_rng_chance(&rng, 3) ? 0 : sl_rng_below(&rng, base->count + 1);
            coll->v[(r * 4ull + 0) * n + p] = count;
            coll->v[(p * 4ull + 2) * n + r] = count;
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t k = 0; k < 4; k += 2) {
            uint64_t at = 0;
            for (uint32_t p = 0; p < n; p++) {
                coll->v[(r * 4ull + k + 1) * n + p] = at;
                at += coll->v[(r * 4ull + k) * n + p] + sl_rng_below(&rng, 3);
            }
        }
        coll->shapes[r].in_counts = &coll->v[(r * 4ull + 0) * n];
        coll->shapes[r].in_offs = &coll->v[(r * 4ull + 1) * n];
        coll->shapes[r].out_counts = &coll->v[(r * 4ull + 2) * n];
        coll->shapes[r].out_offs = &coll->v[(r * 4ull + 3) * n];
    }
}

/* base without rank → every rank's schedule. 0, or what build returned (the same on all ranks, or
 * -EPROTO). */
static inline int test_coll_build(struct test_coll *coll, const struct sl_algo *algo,
                                  const struct sl_shape *base, uint64_t seed)
{
    int first = 0;

    coll->built = 0;
    coll->v = NULL;
    for (uint32_t r = 0; r < base->size; r++) {
        coll->shapes[r] = *base;
        coll->shapes[r].rank = r;
    }
    if (base->coll == SL_ALL_TO_ALL_V)
        test_coll_v(coll, base, seed);
    for (uint32_t r = 0; r < base->size; r++) {
        int rc = algo->build(&coll->shapes[r], &coll->schedules[r]);
        coll->built++;
        if (r == 0)
            first = rc;
        if (rc != first)
            return -EPROTO;
    }
    return first;
}

#endif
