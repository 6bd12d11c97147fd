/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of encodings in tests: a codec to plan for, steps to look at and to break. */
#ifndef SL_TESTS_UNIT_SCHEDULES_CODED_H
#define SL_TESTS_UNIT_SCHEDULES_CODED_H

#include "tests/util/mistakes.h"

#include "core/err.h"
#include "schedules/build.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define TILE 8

static struct test_coll coll;

static inline uint64_t bytes(const struct sl_code *code, uint64_t count)
{
    return (count + code->tile - 1) / code->tile * 2 + count;
}

static const struct sl_code code = {.bytes = bytes, .tile = TILE, .mark = 5};

static inline struct sl_shape shape_of(enum sl_coll c, uint32_t size, uint64_t count)
{
    return (struct sl_shape){
        .coll = c, .size = size, .count = count, .esize = 4, .chunk = 1, .code = &code};
}

/* By that algorithm, and proved. */
static inline void build_by(const struct sl_algo *algo, const struct sl_shape *base)
{
    test_coll_fini(&coll);
    assert_int_equal(test_coll_build(&coll, algo, base, 1), 0);
    assert_int_equal(sl_check(coll.shapes, coll.schedules, 1), 0);
}

static inline struct sl_step *step_of(uint32_t rank, unsigned kind, uint32_t idx)
{
    return mistake_step(&coll, rank, kind, idx);
}

static inline uint32_t count_of(uint32_t rank, unsigned kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < coll.schedules[rank].step_count; i++)
        count += coll.schedules[rank].steps[i].kind == kind;
    return count;
}

static inline void caught(const char *sentence, const char *other)
{
    mistake_caught(&coll, sentence, other);
}

#endif
