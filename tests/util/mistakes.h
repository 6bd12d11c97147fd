/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes put into schedules, which the prover must find. Brings cmocka along. */
#ifndef SL_TESTS_UTIL_MISTAKES_H
#define SL_TESTS_UTIL_MISTAKES_H

#include "tests/util/shapes.h"

#include "core/err.h"
#include "testing/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* The idx-th step of that kind (0: the first) of a rank. */
static inline struct sl_step *mistake_step(struct test_coll *coll, uint32_t rank, unsigned kind,
                                           uint32_t idx)
{
    struct sl_schedule *s = &coll->schedules[rank];

    for (uint32_t i = 0; i < s->step_count; i++)
        if (s->steps[i].kind == kind && idx-- == 0)
            return &s->steps[i];
    fail_msg("no such step");
    return NULL;
}

/* Ends it: the prover must refuse it with every seed, by either sentence. other may be NULL. */
static inline void mistake_caught(struct test_coll *coll, const char *sentence, const char *other)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(sl_check(coll->shapes, coll->schedules, seed), -EINVAL);
        if (strstr(sluice_last_error(), sentence) == NULL &&
            (other == NULL || strstr(sluice_last_error(), other) == NULL))
            fail_msg("seed %d: wanted \"%s\", got \"%s\"", (int)seed, sentence,
                     sluice_last_error());
    }
    test_coll_fini(coll);
}

#endif
