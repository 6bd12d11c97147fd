/* SPDX-License-Identifier: Apache-2.0 */
/* Codes whose encodings add, for tests of schedules: numbers of sizes that divide nothing. */
#ifndef SL_TESTS_UTIL_ADDING_CODES_H
#define SL_TESTS_UTIL_ADDING_CODES_H

#include "core/code.h"

#include <sluice/types.h>

#define ADDING_TILE 8

/* Three floats a tile, and fewer of less than three elements. */
static uint64_t adding_floats(const struct sl_code *code, unsigned term, uint32_t ranks,
                              uint64_t count)
{
    uint64_t rest = count % ADDING_TILE;

    return ranks > 64 ? 0 : count / ADDING_TILE * 3 + (rest < 3 ? rest : 3);
}

/* A scale of each four elements, then a byte of each. */
static uint64_t adding_scaled(const struct sl_code *code, unsigned term, uint32_t ranks,
                              uint64_t count)
{
    return ranks > 64 ? 0 : term == 0 ? (count + 3) / 4 : count;
}

static const struct sl_code adding_float_code = {.tile = ADDING_TILE,
                                                 .mark = 91,
                                                 .term_count = 1,
                                                 .terms = {{SLUICE_F32, SLUICE_SUM}},
                                                 .term_len = adding_floats};
static const struct sl_code adding_scaled_code = {
    .tile = ADDING_TILE,
    .mark = 92,
    .term_count = 2,
    .terms = {{SLUICE_U32, SLUICE_MAX}, {SLUICE_I8, SLUICE_SUM}},
    .term_len = adding_scaled};

#endif
