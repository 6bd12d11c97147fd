/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terms in the prover: numbers that stand for the elements of which they were made, by which result
 * of the term before. They may be reduced with those of other ranks that went by the same result,
 * and be decoded when each rank has its part in them.
 */
#include "testing/check_run.h"

#include <inttypes.h>

struct at {
    uint32_t step, rank;
    const struct sl_step *data;
    const uint32_t *clock;
};

static const struct sl_shape *shape_of(const struct sl_run *run, const struct at *at)
{
    return &run->shapes[at->rank];
}

/* Bytes of that term, from 1 on, that stand for so many elements. */
static uint64_t bytes_of(const struct sl_shape *shape, unsigned term, uint64_t elements)
{
    const struct sl_code *code = shape->code;
    uint32_t esize = (uint32_t)sluice_dtype_size((enum sluice_dtype)code->terms[term - 1].dtype);

    return elements == 0 ? 0 : esize * code->term_len(code, term - 1, shape->size, elements);
}

/* Where the step's elements have their numbers in all of that term. */
static uint64_t place_of(const struct sl_run *run, const struct at *at, unsigned term)
{
    const struct sl_shape *shape = shape_of(run, at);

    return bytes_of(shape, term, (uint64_t)at->data->tile * shape->code->tile);
}

static uint32_t behind(struct sl_run *run, uint32_t row, uint32_t what)
{
    return row == SL_SYM_NONE ? row : sl_sym_node(&run->nodes, SL_SYM_ROW, row, what);
}

/* The node of the numbers in the strip, a row of results that all ranks have a part in. */
static int row_of(struct sl_run *run, const struct at *at, const struct sl_sym_strip *strip,
                  uint64_t idx, uint32_t by, uint32_t *out)
{
    *out = SL_SYM_UNDEFINED;
    for (uint32_t i = 0; i < strip->count; i++) {
        const struct sl_sym_part *part = &strip->parts[i];
        struct sl_sym_node node = run->nodes.nodes[part->node];

        if (part->idx != idx)
            return sl_run_fail(run, at->step,
                               "goes by byte %" PRIu64 " of a term, where byte %" PRIu64 " belongs",
                               part->idx, idx);
        if (node.leaves != run->size || node.sign != run->nodes.full)
            return sl_run_fail(run, at->step,
                               "goes by numbers that not all ranks have their part in");
        if (node.by != by)
            return sl_run_fail(run, at->step,
                               "decodes by another result of the term before than "
                               "these numbers were encoded by");
        *out = i == 0 ? part->node
                      : behind(run, behind(run, *out, (uint32_t)part[-1].len), part->node);
        idx += part->len;
    }
    return *out == SL_SYM_NONE ? -ENOMEM : 0;
}

/* What came out of the term before. */
static int before_of(struct sl_run *run, const struct at *at, uint32_t *out)
{
    unsigned term = at->data->term;

    *out = SL_SYM_UNDEFINED;
    if (term < 2)
        return 0;
    int rc =
        sl_run_read(run, at->step, at->clock, at->rank, SL_BUF_TMP, UINT64_C(4) * at->data->before,
                    bytes_of(shape_of(run, at), term - 1, at->data->count), &run->other);

    return rc ?: row_of(run, at, &run->other, place_of(run, at, term - 1), 0, out);
}

static int write_one(struct sl_run *run, const struct at *at, uint32_t node, uint64_t len,
                     uint64_t idx)
{
    if (node == SL_SYM_NONE)
        return -ENOMEM;
    run->result.count = 0;
    int rc = sl_sym_strip_add(&run->result, len, node, idx);

    return rc
               ?: sl_run_write(run, at->step, at->clock, at->rank, at->data->dst_buf,
                               at->data->dst_off, len, &run->result);
}

int sl_run_encode_term(struct sl_run *run, uint32_t step, const struct sl_step *data,
                       const uint32_t *clock)
{
    struct at at = {step, run->lines[run->steps[step].line].rank, data, clock};
    uint64_t len = data->count * shape_of(run, &at)->esize;
    uint32_t by;
    int rc = sl_run_read(run, step, clock, at.rank, data->src_buf, data->src_off, len, &run->strip);

    if (rc != 0)
        return rc;
    const struct sl_sym_part *part = &run->strip.parts[0];

    if (run->strip.count != 1 || part->node != at.rank + 1 || part->idx != data->src_off)
        return sl_run_fail(run, step,
                           "encodes what are no elements of this rank's in, as they were");
    rc = before_of(run, &at, &by);
    return rc
               ?: write_one(run, &at, sl_sym_node(&run->nodes, SL_SYM_TERM, at.rank + 1, by),
                            data->wire_len, place_of(run, &at, data->term));
}

int sl_run_decode_sum(struct sl_run *run, uint32_t step, const struct sl_step *data,
                      const uint32_t *clock)
{
    struct at at = {step, run->lines[run->steps[step].line].rank, data, clock};
    uint64_t len = data->count * shape_of(run, &at)->esize;
    uint32_t by, row, sum;
    int rc = before_of(run, &at, &by);

    rc = rc
             ?: sl_run_read(run, step, clock, at.rank, data->src_buf, data->src_off, data->wire_len,
                            &run->strip);
    rc = rc ?: row_of(run, &at, &run->strip, place_of(run, &at, data->term), by, &row);
    if (rc != 0)
        return rc;
    sum = sl_sym_node(&run->nodes, SL_SYM_SUM, row, by);
    if (sum != SL_SYM_NONE && (data->flags & SL_STEP_FINAL) != 0)
        sum = sl_sym_node(&run->nodes, SL_SYM_FINAL, sum, 0);
    return write_one(run, &at, sum, len,
                     (uint64_t)data->tile * shape_of(run, &at)->code->tile *
                         shape_of(run, &at)->esize);
}
