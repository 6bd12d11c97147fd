/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allreduce by encodings that add (core/code.h): the schedule of an ordinary allreduce, whichever
 * was chosen for each of the code's terms, between steps that encode and decode.
 *
 *   IN ─encode_term─ TMP ─ the steps of an allreduce ─ TMP ─decode_sum─ OUT
 *
 * What these steps have in IN and OUT lies in TMP, in place. A step waits for the pieces that lie
 * where it reads or writes, and a piece is decoded once the steps that write there are over: so
 * encoding, wire and decoding overlap as the allreduce cuts the vector. Pieces are encoded in the
 * order in which its steps ask for them.
 *
 * Of two terms the second goes by what came out of the first: it begins when all steps of that are
 * over, and so messages of both keep their order though they are in channels of their own.
 *
 * Each value is encoded once, by the rank that has it, and decoded once, as a part of the sum.
 */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

#include <stdlib.h>

enum { ENCODES, DECODES, REDUCES }; /* channels; those of the terms follow */

#define PARTS 16 /* of the vector, so that the first is on the wire while others are encoded */

/* One term, and what reduces it. Places are bytes. */
struct term {
    uint8_t number; /* as steps have it, from 1 on */
    uint32_t esize;
    uint64_t piece; /* its numbers of a piece */
    struct sl_schedule inner;
    uint64_t vector, tmp, win; /* where its numbers, TMP and window begin */
    unsigned channel;
    uint32_t value;    /* that windows were posted to before */
    uint32_t *encoded; /* [pieces]: steps; SL_NO_DEP: not yet */
    uint32_t *index;   /* [inner steps]: in the schedule */
    uint32_t gate;     /* its first step */
};

struct sum {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    const struct sl_code *code;
    uint64_t piece, pieces; /* elements of one; how many */
    uint32_t *last;         /* [pieces]: inner step of the last term that writes there last */
    struct term terms[SL_CODE_TERMS_MAX];
};

/* ---- pieces ---- */

static uint64_t piece_len(const struct sum *sum, uint64_t piece)
{
    return sl_part_len(sum->shape->count, sum->piece, piece);
}

static uint64_t term_len(const struct sum *sum, const struct term *t, uint64_t piece)
{
    return sum->code->term_len(sum->code, t->number - 1u, sum->shape->size, piece_len(sum, piece));
}

/* The part of a step that encodes or decodes a piece which lies on its term's side at TMP[*at]. */
static struct sl_step step_of(const struct sum *sum, const struct term *t, uint64_t piece,
                              uint64_t *at)
{
    struct sl_step step = {.runner = SL_CODE_RUNNER,
                           .term = t->number,
                           .before = SL_NO_TERM,
                           .count = piece_len(sum, piece),
                           .wire_len = term_len(sum, t, piece) * t->esize,
                           .tile = (uint32_t)(piece * (sum->piece / sum->code->tile))};

    *at = t->vector + piece * t->piece * t->esize;
    if (t->number > 1)
        step.before = (uint32_t)((t[-1].vector + piece * t[-1].piece * t[-1].esize) / 4);
    return step;
}

/* All steps of the term before are over. */
static void wait_for_term(const struct sum *sum, const struct term *before)
{
    for (uint32_t i = 0; i < before->inner.step_count; i++)
        sl_schedule_depend(sum->s, before->index[i]);
}

static void encode(const struct sum *sum, struct term *t, uint64_t piece)
{
    uint64_t at;
    struct sl_step step = step_of(sum, t, piece, &at);

    step.kind = SL_STEP_ENCODE_TERM;
    step.channel = ENCODES;
    step.src_buf = SL_BUF_IN;
    step.src_off = piece * sum->piece * sum->shape->esize;
    step.dst_buf = SL_BUF_TMP;
    step.dst_off = at;
    step.stream = sum->shape->rank;
    t->encoded[piece] = sl_schedule_add(sum->s, &step);
    if (t->gate != SL_NO_DEP)
        return;
    t->gate = t->encoded[piece];
    if (t->number > 1)
        wait_for_term(sum, t - 1);
}

/* ---- the steps of an allreduce ---- */

static bool is_vector(uint8_t buf)
{
    return buf == SL_BUF_IN || buf == SL_BUF_OUT;
}

/* The pieces [first, end) of which an inner step has numbers at that side. */
static void pieces_at(const struct sum *sum, const struct term *t, uint64_t off, uint64_t count,
                      uint64_t *first, uint64_t *end)
{
    *first = off / t->piece; /* NOLINT(clang-analyzer-core.DivideZero): a tile has a number */
    *end = sl_min((off + count - 1) / t->piece + 1, sum->pieces);
}

static bool writes(const struct sum *sum, const struct term *t, uint32_t inner, uint64_t *first,
                   uint64_t *end)
{
    const struct sl_step *step = &t->inner.steps[inner];

    if (!is_vector(step->dst_buf) || step->count == 0)
        return false;
    pieces_at(sum, t, step->dst_off, step->count, first, end);
    return true;
}

static void encode_range(const struct sum *sum, struct term *t, uint8_t buf, uint64_t off,
                         uint64_t count)
{
    uint64_t first, end;

    if (!is_vector(buf) || count == 0)
        return;
    pieces_at(sum, t, off, count, &first, &end);
    for (uint64_t p = first; p < end; p++)
        if (t->encoded[p] == SL_NO_DEP)
            encode(sum, t, p);
}

static void encode_for(const struct sum *sum, struct term *t, const struct sl_step *step)
{
    encode_range(sum, t, step->src_buf, step->src_off, step->count);
    encode_range(sum, t, step->dst_buf, step->dst_off, step->count);
}

static void wait_for_range(const struct sum *sum, const struct term *t, uint8_t buf, uint64_t off,
                           uint64_t count)
{
    uint64_t first, end;

    if (!is_vector(buf) || count == 0)
        return;
    pieces_at(sum, t, off, count, &first, &end);
    for (uint64_t p = first; p < end; p++)
        sl_schedule_depend(sum->s, t->encoded[p]);
}

/* Where a place of the inner schedule is. */
static void rebase(const struct term *t, uint8_t *buf, uint64_t *off)
{
    uint64_t base = *buf == SL_BUF_WIN ? t->win : *buf == SL_BUF_TMP ? t->tmp : t->vector;

    if (*buf == SL_BUF_NONE)
        return;
    *off = base + *off * t->esize;
    if (is_vector(*buf))
        *buf = SL_BUF_TMP;
}

static void add_inner(const struct sum *sum, struct term *t, uint32_t inner)
{
    const struct sl_step *from = &t->inner.steps[inner];
    const struct sl_step_row *row = sl_step_row(from);
    struct sl_step step = *from;

    step.term = t->number;
    step.channel = (uint16_t)(t->channel + from->channel);
    rebase(t, &step.src_buf, &step.src_off);
    rebase(t, &step.dst_buf, &step.dst_off);
    step.count *= t->esize;
    if (row->reads_theirs)
        step.win_off = t->win + step.win_off * t->esize;
    if (row->tells || row->waits)
        step.value += t->value;
    t->index[inner] = sl_schedule_add(sum->s, &step);
    wait_for_range(sum, t, from->src_buf, from->src_off, from->count);
    wait_for_range(sum, t, from->dst_buf, from->dst_off, from->count);
    for (uint32_t d = 0; d < from->dep_count; d++)
        sl_schedule_depend(sum->s, t->index[t->inner.deps[from->dep_first + d]]);
    if (t->number > 1 && (sum->s->error == 0 && sum->s->steps[t->index[inner]].dep_count == 0))
        sl_schedule_depend(sum->s, t->gate);
}

/* ---- the sum ---- */

static void decode(const struct sum *sum, const struct term *t, uint64_t piece)
{
    uint64_t at, first, end;
    struct sl_step step = step_of(sum, t, piece, &at);

    step.kind = SL_STEP_DECODE_SUM;
    step.flags = SL_STEP_FINAL;
    step.channel = DECODES;
    step.src_buf = SL_BUF_TMP;
    step.src_off = at;
    step.dst_buf = SL_BUF_OUT;
    step.dst_off = piece * sum->piece * sum->shape->esize;
    sl_schedule_add(sum->s, &step);
    for (uint32_t i = 0; i <= sum->last[piece]; i++)
        if (writes(sum, t, i, &first, &end) && piece >= first && piece < end)
            sl_schedule_depend(sum->s, t->index[i]);
}

/* Decodes what the step was the last to write. */
static void decode_after(const struct sum *sum, const struct term *t, uint32_t inner)
{
    uint64_t first, end;

    if (!writes(sum, t, inner, &first, &end))
        return;
    for (uint64_t p = first; p < end; p++)
        if (sum->last[p] == inner)
            decode(sum, t, p);
}

static void find_last(struct sum *sum, const struct term *t)
{
    uint64_t first, end;

    for (uint32_t i = 0; i < t->inner.step_count; i++)
        if (writes(sum, t, i, &first, &end))
            for (uint64_t p = first; p < end; p++)
                sum->last[p] = i;
}

/* The term's first step puts it behind the term before. */
static void begin_term(const struct sum *sum, struct term *t)
{
    for (uint32_t i = 0; i < t->inner.step_count && t->gate == SL_NO_DEP; i++)
        encode_for(sum, t, &t->inner.steps[i]);
}

static void build_term(struct sum *sum, struct term *t)
{
    bool last = t->number == sum->code->term_count;

    if (last)
        find_last(sum, t);
    begin_term(sum, t);
    for (uint32_t i = 0; i < t->inner.step_count; i++) {
        encode_for(sum, t, &t->inner.steps[i]);
        add_inner(sum, t, i);
        if (last)
            decode_after(sum, t, i);
    }
}

/* ---- memory ---- */

static uint64_t take(struct sl_schedule *s, uint64_t bytes)
{
    uint64_t at = s->tmp_count;

    s->tmp_count = sl_ceil_div(at + bytes, 64) * 64;
    return at;
}

/* Windows of all terms are those of one group. */
static int take_windows(struct sl_schedule *s, struct term *t)
{
    struct sl_schedule *inner = &t->inner;

    if (inner->win_values == 0)
        return 0;
    if (s->win_values != 0 && s->group_count != inner->group_count)
        return sl_fail(-ENOTSUP, "%s and another reduce terms over windows of other ranks",
                       inner->algo);
    if (s->win_values == 0) {
        s->group = inner->group;
        s->group_count = inner->group_count;
        s->win_alike = true;
        inner->group = NULL;
    }
    t->value = s->win_values;
    s->win_values += inner->win_values;
    s->win_count = t->win + inner->win_count * t->esize;
    s->win_alike = s->win_alike && inner->win_alike;
    return 0;
}

static int begin(struct sum *sum, unsigned term)
{
    struct term *t = &sum->terms[term];
    struct sl_shape inner;

    sl_term_shape(sum->shape, term, &inner);
    t->number = (uint8_t)(term + 1);
    t->esize = inner.esize;
    t->win = sl_term_window(sum->shape, term);
    t->gate = SL_NO_DEP;
    t->piece =
        sum->code->term_len(sum->code, term, inner.size, sl_min(sum->piece, sum->shape->count));
    t->vector = take(sum->s, inner.count * inner.esize);
    int err = sum->shape->within[term]->build(&inner, &t->inner);

    if (err != 0)
        return err;
    t->tmp = take(sum->s, t->inner.tmp_count * inner.esize);
    t->channel = REDUCES + (term > 0 ? sum->terms[term - 1].inner.channel_count : 0);
    t->encoded = malloc(sum->pieces * sizeof(*t->encoded));
    t->index = malloc((t->inner.step_count + 1) * sizeof(*t->index));
    if (t->encoded == NULL || t->index == NULL)
        return sl_fail(-ENOMEM, "no memory to plan for %u ranks", inner.size);
    for (uint64_t p = 0; p < sum->pieces; p++)
        t->encoded[p] = SL_NO_DEP;
    return take_windows(sum->s, t);
}

static int build_sum(struct sum *sum)
{
    int err = 0;

    sum->piece = sl_code_piece(sum->shape, sum->shape->count, PARTS);
    sum->pieces = sl_ceil_div(sum->shape->count, sum->piece);
    sum->s->in_bytes = true;
    sum->last = calloc(sum->pieces, sizeof(*sum->last));
    if (sum->last == NULL)
        return sl_fail(-ENOMEM, "no memory to plan for %u ranks", sum->shape->size);
    for (unsigned i = 0; i < sum->code->term_count && err == 0; i++)
        err = begin(sum, i);
    if (err == 0 && sum->terms[sum->code->term_count - 1].vector / 4 >= SL_NO_TERM)
        err = sl_fail(-ENOTSUP, "%llu elements are too many for encodings that add",
                      (unsigned long long)sum->shape->count);
    for (unsigned i = 0; i < sum->code->term_count && err == 0; i++)
        build_term(sum, &sum->terms[i]);
    return err;
}

/* The code has terms for so many ranks, and there is somebody to reduce each. */
static bool is_for(const struct sl_shape *shape)
{
    bool all = shape->size > 1 && shape->code != NULL && shape->code->term_count != 0;

    for (unsigned i = 0; all && i < shape->code->term_count; i++)
        all = shape->within[i] != NULL;
    return all && (shape->count == 0 || sl_has_terms(shape));
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct sum sum = {.s = out, .shape = shape, .code = shape->code};
    int err;

    sl_schedule_init(out, "code_sum");
    if (!is_for(shape))
        return sl_fail(-ENOTSUP, "code_sum needs 2 ranks and a codec whose encodings of so many "
                                 "ranks add");
    if (shape->count == 0)
        return 0;
    err = build_sum(&sum);
    for (unsigned i = 0; i < SL_CODE_TERMS_MAX; i++) {
        sl_schedule_fini(&sum.terms[i].inner);
        free(sum.terms[i].encoded);
        free(sum.terms[i].index);
    }
    free(sum.last);
    return err ?: sl_schedule_finish(out);
}

/* Where a link is between them, work overlaps with what reduces the last term. */
static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    double parts[SL_CODE_TERMS_MAX] = {0}, work;

    if (!is_for(shape) || shape->count == 0)
        return -1;
    for (unsigned i = 0; i < shape->code->term_count; i++) {
        struct sl_shape inner;

        sl_term_shape(shape, i, &inner);
        parts[i] = shape->within[i]->cost(&inner, costs);
        if (parts[i] < 0)
            return -1;
    }
    work = sl_code_work_ns(costs, (double)shape->count,
                           shape->code->work.encode + shape->code->work.decode);
    if (sl_one_host(shape))
        return parts[0] + parts[1] + work;
    uint64_t pieces = sl_ceil_div(shape->count, sl_code_piece(shape, shape->count, PARTS));
    bool two = shape->code->term_count > 1;
    struct sl_code_time time = {
        .work = work, .wire = parts[two], .latency = two ? parts[0] : 0, .rounds = (double)pieces};

    return sl_code_time_total(&time);
}

const struct sl_algo sl_algo_code_sum = {
    .name = "code_sum",
    .colls = SL_BIT(SL_ALLREDUCE),
    .needs_terms = true,
    .source = "",
    .recipe = "sum",
    .unasked = sl_has_terms,
    .build = build,
    .cost = cost,
};
