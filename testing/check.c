/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the ranks' schedules together do what their collective promises: rules that each step
 * must keep, then a run with expressions in place of numbers (check_run.c), then the outcome.
 */
#include "testing/check.h"

#include "testing/check_run.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- rules of single steps ---- */

struct rules {
    const struct sl_shape *shapes;
    const struct sl_schedule *schedules;
    uint32_t rank;
    uint64_t len[SL_BUF_COUNT];
    uint32_t posted; /* value of the last POST */
    uint32_t post_channel, post_term;
    /* [size]: term and channel + 1 of messages with a peer */
    uint32_t *send_channel, *recv_channel;
};

static int bad(const struct rules *rules, uint32_t idx, const char *what)
{
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];

    return sl_fail(-EINVAL, "%s, rank %" PRIu32 ", step %" PRIu32 " (%s): %s", schedule->algo,
                   rules->rank, idx, sl_step_kind_name(schedule->steps[idx].kind), what);
}

static int bad_schedule(const struct rules *rules, const char *what)
{
    return sl_fail(-EINVAL, "%s, rank %" PRIu32 ": %s", rules->schedules[rules->rank].algo,
                   rules->rank, what);
}

static bool in_group(const struct sl_schedule *schedule, uint32_t rank)
{
    for (uint32_t i = 0; i < schedule->group_count; i++) {
        if (schedule->group[i] == rank)
            return true;
    }
    return false;
}

static bool is_of_terms(const struct sl_step *step)
{
    return step->kind == SL_STEP_ENCODE_TERM || step->kind == SL_STEP_DECODE_SUM;
}

static bool fits(uint64_t off, uint64_t count, uint64_t len)
{
    return off <= len && count <= len - off;
}

/* What a side takes of its buffer, in the buffer's unit. */
static uint64_t extent(const struct rules *rules, const struct sl_step *step, uint8_t buf)
{
    if (buf == SL_BUF_WIRE || sl_step_is_term_side(step, buf))
        return step->wire_len;
    return is_of_terms(step) ? step->count * rules->shapes[rules->rank].esize : step->count;
}

/* Rules of terms: their numbers lie in TMP, each whole, and each piece where its tile says. */
static int check_terms(const struct rules *rules, uint32_t idx)
{
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];
    const struct sl_shape *shape = &rules->shapes[rules->rank];
    const struct sl_step *step = &schedule->steps[idx];
    const struct sl_code *code = shape->code;

    if ((step->term != 0) != schedule->in_bytes || (is_of_terms(step) && step->term == 0))
        return bad(rules, idx, "is of a term where there are none, or of none where there are");
    if (step->term == 0)
        return 0;
    if (code == NULL || step->term > code->term_count)
        return bad(rules, idx, "is of a term that the code has not");
    uint64_t esize = sluice_dtype_size((enum sluice_dtype)code->terms[step->term - 1].dtype);

    if (!is_of_terms(step))
        return step->count % esize == 0 && step->src_off % esize == 0 && step->dst_off % esize == 0
                   ? 0
                   : bad(rules, idx, "cuts a number in two");
    bool encodes = step->kind == SL_STEP_ENCODE_TERM;
    uint64_t at = (uint64_t)step->tile * code->tile * shape->esize;

    if (step->src_buf != (encodes ? SL_BUF_IN : SL_BUF_TMP) ||
        step->dst_buf != (encodes ? SL_BUF_TMP : SL_BUF_OUT))
        return bad(rules, idx, "has elements where numbers belong, or numbers where elements do");
    if ((encodes ? step->src_off : step->dst_off) != at)
        return bad(rules, idx, "has elements that are not those of its tile");
    if (step->wire_len != esize * code->term_len(code, step->term - 1u, shape->size, step->count))
        return bad(rules, idx, "has not as many numbers as its elements have");
    if ((step->before != SL_NO_TERM) != (step->term > 1))
        return bad(rules, idx, "goes by a term before where there is none, or by none");
    return 0;
}

static bool wire_fits(uint8_t rule, uint8_t buf)
{
    return buf == SL_BUF_WIRE ? rule != SL_NO_WIRE : rule != SL_MUST_WIRE;
}

/* Rules of runners and of the wire buffer. */
static int check_wire(const struct rules *rules, uint32_t idx)
{
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];
    const struct sl_step *step = &schedule->steps[idx];
    const struct sl_step_row *row = sl_step_row(step);

    if (step->runner != 0 && row->work == SL_WORK_NONE)
        return bad(rules, idx, "is given to a runner, but is nothing that one could do");
    if (step->runner == 0 && row->needs_runner)
        return bad(rules, idx, "has no runner");
    if (step->runner != 0 && (step->src_buf == SL_BUF_WIN || step->dst_buf == SL_BUF_WIN))
        return bad(rules, idx, "gives a window to a runner");
    if (!wire_fits(row->wire_src, step->src_buf) || !wire_fits(row->wire_dst, step->dst_buf))
        return bad(rules, idx,
                   "has elements where the wire belongs, or the wire where elements do");
    if ((step->flags & SL_STEP_UP_TO) != 0 && step->dst_buf != SL_BUF_WIRE)
        return bad(rules, idx, "has a length that is open, but not in the wire buffer");
    if (sl_step_uses_wire(step) && step->wire_len == 0)
        return bad(rules, idx, "has no room in the wire buffer");
    if (step->runner == 0 && schedule->wide_tmp &&
        (step->src_buf == SL_BUF_TMP || step->dst_buf == SL_BUF_TMP))
        return bad(rules, idx, "takes f32 for elements of the call, as no runner does it");
    if (row->work != SL_WORK_ENCODE && step->stage != 0)
        return bad(rules, idx, "has a stage, but encodes nothing");
    if (!row->needs_runner && (step->stream != 0 || step->tile != 0))
        return bad(rules, idx, "has a place in a stream, but is nothing for a codec");
    if (step->src_buf != SL_BUF_WIRE || step->length_from == 0)
        return 0;
    if (step->length_from > idx ||
        (schedule->steps[step->length_from - 1].flags & SL_STEP_UP_TO) == 0)
        return bad(rules, idx, "takes its length from a step before it that tells none");
    return 0;
}

static int check_places(const struct rules *rules, uint32_t idx)
{
    const struct sl_step *step = &rules->schedules[rules->rank].steps[idx];
    const struct sl_step_row *row = sl_step_row(step);
    bool src = row->src, dst = row->dst;

    if (step->count == 0 && row->message != SL_NO_MESSAGE && !row->reduces) {
        if (step->src_buf != SL_BUF_NONE || step->dst_buf != SL_BUF_NONE)
            return bad(rules, idx, "names a buffer for a message without bytes");
        return 0;
    }
    if (src != (step->src_buf != SL_BUF_NONE) || dst != (step->dst_buf != SL_BUF_NONE))
        return bad(rules, idx, "has a buffer too many or too few");
    if (step->src_buf >= SL_BUF_COUNT || step->dst_buf >= SL_BUF_COUNT)
        return bad(rules, idx, "names a buffer that does not exist");
    if ((src || dst) && step->count == 0)
        return bad(rules, idx, "moves nothing");
    if (step->dst_buf == SL_BUF_IN)
        return bad(rules, idx, "writes to in, which is the caller's");
    if (row->message != SL_NO_MESSAGE &&
        (step->src_buf == SL_BUF_WIN || step->dst_buf == SL_BUF_WIN))
        return bad(rules, idx, "sends or receives in a window");
    if (src && !fits(step->src_off, extent(rules, step, step->src_buf), rules->len[step->src_buf]))
        return bad(rules, idx, "reads outside its buffer");
    if (dst && !fits(step->dst_off, extent(rules, step, step->dst_buf), rules->len[step->dst_buf]))
        return bad(rules, idx, "writes outside its buffer");
    return 0;
}

static int check_windows(struct rules *rules, uint32_t idx)
{
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];
    const struct sl_step *step = &schedule->steps[idx];
    const struct sl_step_row *row = sl_step_row(step);
    bool peer_read = row->reads_theirs, names_peer = row->peer_word != NULL;

    if (row->tells) {
        if (step->value <= rules->posted)
            return bad(rules, idx, "posts a value that does not rise");
        if (rules->posted > 0 && step->channel != rules->post_channel &&
            step->term == rules->post_term)
            return bad(rules, idx, "posts in another channel than the post before");
        rules->posted = step->value;
        rules->post_channel = step->channel;
        rules->post_term = step->term;
    }
    if (!peer_read && !row->waits)
        return 0;
    if (names_peer && step->peer != SL_PEER_GROUP &&
        (step->peer == rules->rank || !in_group(schedule, step->peer)))
        return bad(rules, idx, "names a peer outside the group");
    if (names_peer && !row->waits && step->peer == SL_PEER_GROUP)
        return bad(rules, idx, "gets from nobody in particular");
    for (uint32_t i = 0; peer_read && i < schedule->group_count; i++) {
        uint32_t peer = schedule->group[i];
        bool read = peer != rules->rank && (!names_peer || step->peer == peer);
        if (read && !fits(step->win_off, step->count, rules->schedules[peer].win_count))
            return bad(rules, idx, "reads outside its peer's window");
    }
    if ((step->flags & SL_STEP_TO_WIN) != 0 &&
        !fits(step->win_off, step->count, schedule->win_count))
        return bad(rules, idx, "writes outside its window");
    return 0;
}

static int check_step(struct rules *rules, uint32_t idx)
{
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];
    const struct sl_step *step = &schedule->steps[idx];
    uint32_t size = rules->shapes[0].size;
    int rc;

    if (step->kind >= SL_STEP_KIND_COUNT)
        return bad(rules, idx, "is no step that the executor knows");
    const struct sl_step_row *row = sl_step_row(step);

    if (step->channel >= schedule->channel_count)
        return bad(rules, idx, "has a channel that is not counted");
    if ((step->flags & ~row->flags) != 0)
        return bad(rules, idx, "has a flag that means nothing for it");
    if (row->reduces && !sl_coll_reduces(rules->shapes[rules->rank].coll))
        return bad(rules, idx, "reduces in a collective that only moves data");
    for (uint32_t d = 0; d < step->dep_count; d++) {
        if (schedule->deps[step->dep_first + d] >= idx)
            return bad(rules, idx, "depends on a step that does not come before it");
    }
    if (row->message != SL_NO_MESSAGE) {
        if (step->peer >= size || step->peer == rules->rank)
            return bad(rules, idx, "names a peer that is not another rank");
        uint32_t *channel = row->message == SL_SENDS ? &rules->send_channel[step->peer]
                                                     : &rules->recv_channel[step->peer];
        uint32_t here = (uint32_t)step->term << 24 | (step->channel + 1u);
        /* That those of two terms are in order is seen as they run. */
        if (*channel != 0 && *channel >> 24 == here >> 24 && *channel != here)
            return bad(rules, idx,
                       "meets its peer in two channels, so the order of the messages is not fixed");
        *channel = here;
    }
    if ((rc = check_terms(rules, idx)) != 0 || (rc = check_places(rules, idx)) != 0 ||
        (rc = check_wire(rules, idx)) != 0)
        return rc;
    return check_windows(rules, idx);
}

static int check_group(const struct rules *rules)
{
    const struct sl_schedule *mine = &rules->schedules[rules->rank];
    uint32_t size = rules->shapes[0].size;

    if (mine->win_values == 0)
        return 0;
    if (!in_group(mine, rules->rank))
        return bad_schedule(rules, "is not in its own group");
    if (mine->win_count > rules->shapes[rules->rank].win_count)
        return bad_schedule(rules, "uses more of its window than there is");
    for (uint32_t i = 0; i < mine->group_count; i++) {
        if (mine->group[i] >= size || (i > 0 && mine->group[i] <= mine->group[i - 1]))
            return bad_schedule(rules, "has a group that is not in ascending order");
        const struct sl_schedule *other = &rules->schedules[mine->group[i]];
        bool same =
            other->group_count == mine->group_count && other->win_values == mine->win_values;
        for (uint32_t j = 0; same && j < mine->group_count; j++)
            same = other->group[j] == mine->group[j];
        if (!same)
            return bad_schedule(rules, "and a rank of its group disagree on the group or on the "
                                       "last post");
    }
    return 0;
}

static int check_rank(struct rules *rules)
{
    const struct sl_shape *shape = &rules->shapes[rules->rank];
    const struct sl_schedule *schedule = &rules->schedules[rules->rank];
    int rc;

    if (shape->rank != rules->rank || shape->size != rules->shapes[0].size)
        return bad_schedule(rules, "has the shape of another rank");
    rules->len[SL_BUF_IN] = sl_shape_in_count(shape);
    rules->len[SL_BUF_OUT] = sl_shape_out_count(shape);
    rules->len[SL_BUF_TMP] = schedule->tmp_count;
    rules->len[SL_BUF_WIN] = schedule->win_count;
    rules->len[SL_BUF_WIRE] = schedule->wire_bytes;
    rules->posted = 0;
    for (uint32_t i = 0; i < shape->size; i++)
        rules->send_channel[i] = rules->recv_channel[i] = 0;
    for (uint32_t i = 0; i < schedule->step_count; i++) {
        if ((rc = check_step(rules, i)) != 0)
            return rc;
    }
    if (rules->posted != schedule->win_values)
        return bad_schedule(rules, rules->posted == 0 ? "never posts, though its group uses windows"
                                                      : "ends with another post than it announces");
    return check_group(rules);
}

static int check_rules(const struct sl_shape *shapes, const struct sl_schedule *schedules)
{
    uint32_t size = shapes[0].size;
    uint32_t *channels = malloc(2 * (size_t)size * sizeof(*channels));
    struct rules rules = {.shapes = shapes, .schedules = schedules, .send_channel = channels};
    int rc = 0;

    if (channels == NULL)
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    rules.recv_channel = channels + size;
    for (rules.rank = 0; rules.rank < size && rc == 0; rules.rank++)
        rc = check_rank(&rules);
    free(channels);
    return rc;
}

/* ---- the outcome ---- */

/* Names the rank whose operand is missing or there twice. */
static int bad_sum(const struct sl_run *run, uint32_t rank, uint64_t at, uint32_t node)
{
    uint32_t *times = calloc(run->size, sizeof(*times)), wrong = 0;
    const char *algo = run->schedules[rank].algo;

    if (times == NULL)
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    sl_sym_count(&run->nodes, node, times);
    while (wrong + 1 < run->size && times[wrong] == 1)
        wrong++;
    uint32_t found = times[wrong];
    free(times);
    return sl_fail(-EINVAL,
                   "%s, rank %" PRIu32 ": out[%" PRIu64 "] holds the operand of rank %" PRIu32
                   " %" PRIu32 " times",
                   algo, rank, at, wrong, found);
}

/* What out[at] must come from: rank *from's element *idx; and how many elements follow it alike. */
static void promised(const struct sl_run *run, uint32_t rank, uint64_t at, uint32_t *from,
                     uint64_t *idx, uint64_t *len)
{
    const struct sl_shape *shape = &run->shapes[rank];
    uint64_t count = shape->count;

    *from = shape->root;
    *idx = at;
    *len = sl_shape_out_count(shape) - at;
    switch (shape->coll) {
    case SL_REDUCE_SCATTER:
    case SL_SCATTER: *idx = rank * count + at; break;
    case SL_ALL_GATHER:
    case SL_GATHER:
    case SL_ALL_TO_ALL:
        *from = (uint32_t)(at / count);
        *idx = at % count + (shape->coll == SL_ALL_TO_ALL ? rank * count : 0);
        *len = count - at % count;
        break;
    default: break;
    }
}

/* Checks out[at, at + len), which must be rank from's elements from idx on (or everybody's sum). */
static int check_stretch(const struct sl_run *run, uint32_t rank, uint64_t at, uint64_t len,
                         uint32_t from, uint64_t idx)
{
    const struct sl_run_rank *me = &run->ranks[rank];
    const struct sl_sym_region *out = &me->regions[SL_BUF_OUT];
    const char *algo = run->schedules[rank].algo;
    bool sum = sl_coll_reduces(run->shapes[rank].coll) && run->size > 1;
    uint64_t end = me->out_base + at + len;

    for (uint32_t i = sl_sym_find(out, me->out_base + at); i < out->count; i++) {
        const struct sl_sym_seg *seg = &out->segs[i];
        uint64_t first = seg->start;
        if (first >= end)
            break;
        uint64_t skip = first < me->out_base + at ? me->out_base + at - first : 0;
        uint64_t here = first + skip - me->out_base;
        uint32_t bare = sl_sym_bare(&run->nodes, seg->node);
        const struct sl_sym_node *node = &run->nodes.nodes[seg->node];
        if (seg->node == SL_SYM_UNDEFINED)
            return sl_fail(-EINVAL, "%s, rank %" PRIu32 ": out[%" PRIu64 "] is never written", algo,
                           rank, here);
        if (sum && (node->leaves != run->size || node->sign != run->nodes.full))
            return bad_sum(run, rank, here, seg->node);
        if (sum && !node->final)
            return sl_fail(-EINVAL,
                           "%s, rank %" PRIu32 ": out[%" PRIu64 "] was never marked final, so an "
                           "average would not be divided",
                           algo, rank, here);
        uint64_t want = idx + (here - at);
        if (seg->idx + skip != want || (!sum && bare != from + 1))
            return sl_fail(
                -EINVAL,
                "%s, rank %" PRIu32 ": out[%" PRIu64 "] comes from element %" PRIu64
                " of %s %" PRIu32 ", but should come from element %" PRIu64 " of rank %" PRIu32,
                algo, rank, here, seg->idx + skip, sum ? "everybody, not rank" : "rank",
                run->nodes.nodes[bare].tag == SL_SYM_LEAF ? run->nodes.nodes[bare].a : from, want,
                from);
    }
    return 0;
}

static int check_out(const struct sl_run *run, uint32_t rank)
{
    const struct sl_shape *shape = &run->shapes[rank];
    uint64_t total = sl_shape_out_count(shape), len, idx;
    uint32_t from;
    int rc = 0;

    if (shape->coll == SL_ALL_TO_ALL_V) {
        for (uint32_t peer = 0; peer < run->size && rc == 0; peer++) {
            if (shape->out_counts[peer] > 0)
                rc = check_stretch(run, rank, shape->out_offs[peer], shape->out_counts[peer], peer,
                                   run->shapes[peer].in_offs[rank]);
        }
        return rc;
    }
    for (uint64_t at = 0; at < total && rc == 0; at += len) {
        promised(run, rank, at, &from, &idx, &len);
        rc = check_stretch(run, rank, at, len, from, idx);
    }
    return rc;
}

/* The same expressions everywhere. */
static int check_same(const struct sl_run *run, uint32_t rank)
{
    const struct sl_sym_region *a = &run->ranks[0].regions[SL_BUF_OUT];
    const struct sl_sym_region *b = &run->ranks[rank].regions[SL_BUF_OUT];

    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        uint64_t a_end = sl_sym_seg_end(a, i), b_end = sl_sym_seg_end(b, j);
        if (a->segs[i].node != b->segs[j].node)
            return sl_fail(
                -EINVAL, "%s: out[%" PRIu64 "] is %s on rank %" PRIu32 " than on rank 0, %s",
                run->schedules[0].algo,
                a->segs[i].start > b->segs[j].start ? a->segs[i].start : b->segs[j].start,
                sl_coll_reduces(run->shapes[0].coll) ? "summed in another order" : "another value",
                rank, "so their bits may differ");
        i += a_end <= b_end;
        j += b_end <= a_end;
    }
    return 0;
}

/* Collectives whose result all ranks have. */
static bool is_alike(enum sl_coll coll)
{
    return coll == SL_ALLREDUCE || coll == SL_ALL_GATHER || coll == SL_BROADCAST;
}

static int check_outcome(const struct sl_run *run)
{
    uint32_t missing;
    int rc = 0;

    for (uint32_t r = 0; r < run->size && rc == 0; r++) {
        rc = check_out(run, r);
        if (rc == 0 && is_alike(run->shapes[r].coll))
            rc = check_same(run, r);
        if (rc == 0 && run->shapes[r].coll == SL_BARRIER && !sl_run_heard_all(run, r, &missing))
            rc = sl_fail(-EINVAL,
                         "%s, rank %" PRIu32 ": may end the barrier before rank %" PRIu32
                         " has called it",
                         run->schedules[r].algo, r, missing);
    }
    return rc;
}

static int prove(const struct sl_shape *shapes, const struct sl_schedule *schedules, uint64_t seed)
{
    struct sl_run run;
    int rc = check_rules(shapes, schedules);

    if (rc != 0)
        return rc;
    rc = sl_run_init(&run, shapes, schedules, seed);
    if (rc == 0)
        rc = sl_run_all(&run);
    if (rc == 0)
        rc = check_outcome(&run);
    sl_run_fini(&run);
    return rc;
}

/* Where schedules count bytes, buffers are counted so, too; a code still counts elements. */
static int prove_in_bytes(const struct sl_shape *rank_shapes, const struct sl_schedule *schedules,
                          uint64_t seed)
{
    uint32_t size = rank_shapes[0].size;
    struct sl_shape *shapes = malloc(size * sizeof(*shapes));

    if (shapes == NULL)
        return sl_fail(-ENOMEM, "no memory to prove a schedule");
    for (uint32_t r = 0; r < size; r++) {
        shapes[r] = rank_shapes[r];
        shapes[r].count *= shapes[r].esize;
        shapes[r].win_count *= shapes[r].esize;
    }
    int rc = prove(shapes, schedules, seed);

    free(shapes);
    return rc;
}

int sl_check(const struct sl_shape *rank_shapes, const struct sl_schedule *rank_schedules,
             uint64_t seed)
{
    return rank_schedules[0].in_bytes ? prove_in_bytes(rank_shapes, rank_schedules, seed)
                                      : prove(rank_shapes, rank_schedules, seed);
}
