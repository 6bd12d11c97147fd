/* SPDX-License-Identifier: Apache-2.0 */
/* What those see who reduce a term of a code (core/code.h). */
#include "schedules/build.h"

uint64_t sl_term_window(const struct sl_shape *shape, unsigned term)
{
    uint64_t bytes = shape->win_count * shape->esize;

    /* A first term has few numbers. */
    return term == 0 ? 0 : term == shape->code->term_count ? bytes : bytes / 4 / 64 * 64;
}

uint64_t sl_term_count(const struct sl_shape *shape, unsigned term)
{
    return shape->code == NULL || term >= shape->code->term_count || shape->count == 0
               ? 0
               : shape->code->term_len(shape->code, term, shape->size, shape->count);
}

bool sl_has_terms(const struct sl_shape *shape)
{
    bool all = shape->code != NULL && shape->code->term_count != 0;

    for (unsigned i = 0; all && i < shape->code->term_count; i++)
        all = sl_term_count(shape, i) != 0;
    return all;
}

void sl_term_shape(const struct sl_shape *shape, unsigned term, struct sl_shape *out)
{
    uint32_t esize = (uint32_t)sluice_dtype_size((enum sluice_dtype)shape->code->terms[term].dtype);

    *out = (struct sl_shape){
        .coll = SL_ALLREDUCE,
        .rank = shape->rank,
        .size = shape->size,
        .count = sl_term_count(shape, term),
        .esize = esize,
        .in_place = true,
        .chunk = shape->chunk == 0 ? 0 : sl_max(shape->chunk * shape->esize / esize, 1),
        .win_count = (sl_term_window(shape, term + 1) - sl_term_window(shape, term)) / esize,
        .host = shape->host,
        .speed = shape->speed,
    };
}
