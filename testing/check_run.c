/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs all ranks' schedules with expressions in place of numbers, in a random order that the rules
 * allow, and watches every place for accesses that nothing puts in order.
 *
 * Messages are taken at the last moment: a send's bytes leave when the receive is there, as a large
 * message would. Every order of the steps then ends in the same state unless two accesses
 * race, and races are looked for with vector clocks, so one run speaks for all orders.
 */
#include "testing/check_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIR_BIT (UINT64_C(1) << 63)
#define JOB_BIT (UINT64_C(1) << 62)

static uint32_t step_rank(const struct sl_run *run, uint32_t step)
{
    return run->lines[run->steps[step].line].rank;
}

int sl_run_fail(const struct sl_run *run, uint32_t step, const char *fmt, ...)
{
    uint32_t rank = step_rank(run, step);
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return sl_fail(-EINVAL, "%s, rank %" PRIu32 ", step %" PRIu32 " (%s): %s",
                   run->schedules[rank].algo, rank, step - run->ranks[rank].base,
                   sl_step_kind_name(sl_run_data(run, step)->kind), text);
}

/* ---- clocks ---- */

static uint32_t *line_clock(const struct sl_run *run, uint32_t line)
{
    return run->line_clocks + (size_t)line * run->clock_words;
}

static uint32_t *step_clock(const struct sl_run *run, uint32_t step)
{
    return run->clocks + (size_t)run->steps[step].clock * run->clock_words;
}

static void join(const struct sl_run *run, uint32_t *restrict clock, const uint32_t *restrict other)
{
    for (uint32_t i = 0; i < run->clock_words; i++)
        clock[i] = clock[i] > other[i] ? clock[i] : other[i];
}

/* The word of a step that a runner has. */
static uint32_t job_word(const struct sl_run *run, uint32_t step)
{
    return 2 * run->line_count + run->steps[step].async_place;
}

/* Whether the step has completed before what clock belongs to, in every order of events. */
static bool before(const struct sl_run *run, uint32_t step, const uint32_t *clock)
{
    const struct sl_run_step *s = &run->steps[step];

    if (!s->done)
        return false;
    if (run->clock_words == 0 || clock == NULL)
        return true;
    if (sl_run_data(run, step)->runner != 0)
        return clock[job_word(run, step)] != 0;
    if (sl_step_is_async(sl_run_data(run, step)))
        return clock[2 * s->line + 1] > s->async_place;
    return clock[2 * s->line] > s->place;
}

/* ---- memory ---- */

static struct sl_sym_region *place(const struct sl_run *run, uint32_t rank, uint8_t buf,
                                   uint64_t *off)
{
    struct sl_run_rank *r = &run->ranks[rank];

    if (buf == SL_BUF_IN)
        *off += r->in_base;
    if (buf == SL_BUF_OUT)
        *off += r->out_base;
    return &r->regions[buf == SL_BUF_IN && r->alias ? SL_BUF_OUT : buf];
}

static const char *buf_name(const struct sl_run *run, const struct sl_sym_region *region)
{
    for (uint32_t r = 0; r < run->size; r++) {
        const struct sl_sym_region *regions = run->ranks[r].regions;
        if (region >= regions && region < &regions[SL_BUF_COUNT])
            return sl_buf_name((unsigned)(region - regions));
    }
    return "?";
}

static int race(const struct sl_run *run, uint32_t step, const struct sl_sym_region *region,
                uint32_t seg, const char *does, uint32_t other, const char *did)
{
    uint32_t rank = step_rank(run, other);

    return sl_run_fail(run, step,
                       "%s %s[%" PRIu64 "..%" PRIu64 ") while step %" PRIu32
                       " (%s) of rank %" PRIu32 " may still %s it: nothing puts the two in order",
                       does, buf_name(run, region), region->segs[seg].start,
                       sl_sym_seg_end(region, seg), other - run->ranks[rank].base,
                       sl_step_kind_name(sl_run_data(run, other)->kind), rank, did);
}

static int add_reader(struct sl_run *run, struct sl_sym_seg *seg, uint32_t step)
{
    uint32_t next = seg->readers;

    /* A later step of the same line stands for the earlier one. */
    if (next != SL_SYM_NONE && run->steps[run->readers[next].step].line == run->steps[step].line)
        next = run->readers[next].next;
    if (run->reader_count == run->reader_cap) {
        uint32_t cap = run->reader_cap == 0 ? 1024 : run->reader_cap * 2;
        struct sl_sym_reader *readers = realloc(run->readers, cap * sizeof(*readers));
        if (readers == NULL)
            return sl_fail(-ENOMEM, "no memory to prove a schedule");
        run->readers = readers;
        run->reader_cap = cap;
    }
    run->readers[run->reader_count] = (struct sl_sym_reader){.step = step, .next = next};
    seg->readers = run->reader_count++;
    return 0;
}

int sl_run_read(struct sl_run *run, uint32_t step, const uint32_t *clock, uint32_t rank,
                uint8_t buf, uint64_t off, uint64_t count, struct sl_sym_strip *strip)
{
    struct sl_sym_region *region = place(run, rank, buf, &off);
    uint32_t first = sl_sym_split(region, off), last = sl_sym_split(region, off + count);
    int rc;

    strip->count = 0;
    if (first == SL_SYM_NONE || last == SL_SYM_NONE)
        return -ENOMEM;
    for (uint32_t i = first; i < last; i++) {
        struct sl_sym_seg *seg = &region->segs[i];
        if (seg->node == SL_SYM_UNDEFINED)
            return sl_run_fail(run, step,
                               "reads %s[%" PRIu64 "..%" PRIu64 ") of rank %" PRIu32
                               ", where nothing has been written",
                               buf_name(run, region), seg->start, sl_sym_seg_end(region, i), rank);
        if (seg->writer != SL_SYM_NONE && seg->writer != step && !before(run, seg->writer, clock))
            return race(run, step, region, i, "reads", seg->writer, "write");
        /* Nobody may write IN, so its readers need not be known. */
        if (region != &run->ranks[rank].regions[SL_BUF_IN] && (rc = add_reader(run, seg, step)))
            return rc;
        rc = sl_sym_strip_add(strip, sl_sym_seg_end(region, i) - seg->start, seg->node, seg->idx);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int sl_run_write(struct sl_run *run, uint32_t step, const uint32_t *clock, uint32_t rank,
                 uint8_t buf, uint64_t off, uint64_t count, const struct sl_sym_strip *strip)
{
    struct sl_sym_region *region = place(run, rank, buf, &off);
    uint32_t first = sl_sym_split(region, off), last = sl_sym_split(region, off + count);

    if (first == SL_SYM_NONE || last == SL_SYM_NONE)
        return -ENOMEM;
    for (uint32_t i = first; i < last; i++) {
        const struct sl_sym_seg *seg = &region->segs[i];
        if (seg->writer != SL_SYM_NONE && seg->writer != step && !before(run, seg->writer, clock))
            return race(run, step, region, i, "overwrites", seg->writer, "write");
        for (uint32_t r = seg->readers; r != SL_SYM_NONE; r = run->readers[r].next) {
            uint32_t reader = run->readers[r].step;
            if (reader != step && !before(run, reader, clock))
                return race(run, step, region, i, "overwrites", reader, "read");
        }
    }
    return first < last ? sl_sym_replace(region, first, last, strip, step) : 0;
}

/* ---- the wire ---- */

/* Finds the encoding that the step reads. *out is valid until the next one is made. */
static int read_code(struct sl_run *run, uint32_t step, const struct sl_step *data,
                     const uint32_t *clock, const struct sl_sym_code **out)
{
    uint32_t rank = step_rank(run, step), base = run->ranks[rank].base;
    const struct sl_sym_region *wire = &run->ranks[rank].regions[SL_BUF_WIRE];
    int rc = sl_run_read(run, step, clock, rank, SL_BUF_WIRE, data->src_off, data->wire_len,
                         &run->strip);

    if (rc != 0)
        return rc;
    const struct sl_sym_part *part = &run->strip.parts[0];
    const struct sl_sym_code *code = &run->codes.codes[part->node - 1];
    uint32_t writer = wire->segs[sl_sym_find(wire, data->src_off)].writer;
    bool up_to = (sl_run_data(run, writer)->flags & SL_STEP_UP_TO) != 0;

    if (run->strip.count != 1 || part->idx != 0 || part->len != code->room)
        return sl_run_fail(run, step,
                           "reads %" PRIu64 " bytes at wire[%" PRIu64
                           "] that are not one encoding, as it was left there",
                           data->wire_len, data->src_off);
    if (data->length_from != (up_to ? writer - base + 1 : 0))
        return sl_run_fail(run, step,
                           "takes the length from elsewhere than from step %" PRIu32
                           " (%s), which left the bytes",
                           writer - base, sl_step_kind_name(sl_run_data(run, writer)->kind));
    *out = code;
    return 0;
}

static int write_code(struct sl_run *run, uint32_t step, const struct sl_step *data,
                      const uint32_t *clock, const struct sl_sym_strip *values,
                      struct sl_sym_code like)
{
    like.room = data->wire_len;
    uint32_t code = sl_sym_code(&run->codes, values, &like);

    run->result.count = 0;
    if (code == SL_SYM_NONE || sl_sym_strip_add(&run->result, data->wire_len, code, 0) != 0)
        return -ENOMEM;
    return sl_run_write(run, step, clock, step_rank(run, step), SL_BUF_WIRE, data->dst_off,
                        data->wire_len, &run->result);
}

/* What the codec gives back differs from what it got: it is another value. */
static int do_encode(struct sl_run *run, uint32_t step, const struct sl_step *data,
                     const uint32_t *clock)
{
    int rc = sl_run_read(run, step, clock, step_rank(run, step), data->src_buf, data->src_off,
                         data->count, &run->strip);

    for (uint32_t i = 0; i < run->strip.count && rc == 0; i++) {
        struct sl_sym_part *part = &run->strip.parts[i];
        part->node = sl_sym_node(&run->nodes, SL_SYM_CODED, part->node, data->runner);
        rc = part->node == SL_SYM_NONE ? -ENOMEM : 0;
    }
    if (rc != 0)
        return rc;
    return write_code(
        run, step, data, clock, &run->strip,
        (struct sl_sym_code){.runner = data->runner, .stream = data->stream, .tile = data->tile});
}

/* The values of the encoding that the step reads, to run->other. */
static int decode(struct sl_run *run, uint32_t step, const struct sl_step *data,
                  const uint32_t *clock)
{
    const struct sl_sym_code *code;
    uint64_t values = 0;
    int rc = read_code(run, step, data, clock, &code);

    if (rc != 0)
        return rc;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): read_code() set it */
    for (uint32_t i = 0; i < code->values.count; i++)
        values += code->values.parts[i].len;
    if (values != data->count)
        return sl_run_fail(run, step, "makes %" PRIu64 " elements of bytes that stand for %" PRIu64,
                           data->count, values);
    if (code->runner != data->runner)
        return sl_run_fail(run, step, "decodes by runner %u what runner %u encoded", data->runner,
                           code->runner);
    if (code->stream != data->stream || code->tile != data->tile)
        return sl_run_fail(run, step,
                           "decodes as tile %" PRIu32 " of stream %" PRIu32
                           " what was encoded as tile %" PRIu32 " of stream %" PRIu32,
                           data->tile, data->stream, code->tile, code->stream);
    return sl_sym_strip_copy(&run->other, &code->values);
}

/* ---- reductions ---- */

/* result = a ⊕ b, element by element. */
static int combine(struct sl_run *run, uint32_t step, enum sl_sym_tag tag,
                   const struct sl_sym_strip *a, const struct sl_sym_strip *b)
{
    uint64_t a_used = 0, b_used = 0;
    int rc;

    run->result.count = 0;
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        const struct sl_sym_part *x = &a->parts[i], *y = &b->parts[j];
        uint64_t len = x->len - a_used < y->len - b_used ? x->len - a_used : y->len - b_used;
        const struct sl_sym_node *nodes = run->nodes.nodes;

        if (x->idx + a_used != y->idx + b_used)
            return sl_run_fail(run, step,
                               "reduces operands of different elements, %" PRIu64 " and %" PRIu64,
                               x->idx + a_used, y->idx + b_used);
        if (nodes[x->node].by != nodes[y->node].by)
            return sl_run_fail(run, step,
                               "reduces what ranks encoded by different results of the "
                               "term before");
        if (nodes[x->node].final || nodes[y->node].final)
            return sl_run_fail(run, step, "reduces a value that was already marked final");
        if (nodes[x->node].leaves + nodes[y->node].leaves > run->size)
            return sl_run_fail(run, step, "reduces more operands than there are ranks");
        uint32_t node = sl_sym_node(&run->nodes, tag, x->node, y->node);
        if (node == SL_SYM_NONE)
            return -ENOMEM;
        if ((rc = sl_sym_strip_add(&run->result, len, node, x->idx + a_used)) != 0)
            return rc;
        a_used += len;
        b_used += len;
        if (a_used == x->len) {
            i++;
            a_used = 0;
        }
        if (b_used == y->len) {
            j++;
            b_used = 0;
        }
    }
    return 0;
}

/* Wraps every part of the result. */
static int wrap(struct sl_run *run, enum sl_sym_tag tag)
{
    for (uint32_t i = 0; i < run->result.count; i++) {
        uint32_t node = sl_sym_node(&run->nodes, tag, run->result.parts[i].node, 0);
        if (node == SL_SYM_NONE)
            return -ENOMEM;
        run->result.parts[i].node = node;
    }
    return 0;
}

static void swap_strips(struct sl_sym_strip *a, struct sl_sym_strip *b)
{
    struct sl_sym_strip keep = *a;

    *a = *b;
    *b = keep;
}

/* The incoming (or src) operand is in `other`, this rank's in `strip`. */
static int reduce_two(struct sl_run *run, uint32_t step, const struct sl_step *data)
{
    bool remote_first = (data->flags & SL_STEP_REMOTE_FIRST) != 0;
    int rc = combine(run, step, SL_SYM_PAIR, remote_first ? &run->other : &run->strip,
                     remote_first ? &run->strip : &run->other);

    if (rc == 0 && (data->flags & SL_STEP_FINAL) != 0)
        rc = wrap(run, SL_SYM_FINAL);
    return rc;
}

static int do_reduce_win(struct sl_run *run, uint32_t step, const struct sl_step *data,
                         const uint32_t *clock)
{
    uint32_t rank = step_rank(run, step);
    const struct sl_schedule *schedule = &run->schedules[rank];
    int rc = 0;

    for (uint32_t i = 0; i < schedule->group_count && rc == 0; i++) {
        uint32_t peer = schedule->group[i];
        struct sl_sym_strip *into = i == 0 ? &run->strip : &run->other;
        if (peer == rank)
            rc = sl_run_read(run, step, clock, rank, data->src_buf, data->src_off, data->count,
                             into);
        else
            rc = sl_run_read(run, step, clock, peer, SL_BUF_WIN, data->win_off, data->count, into);
        if (rc == 0 && i > 0) {
            rc = combine(run, step, SL_SYM_OPEN, &run->strip, &run->other);
            swap_strips(&run->strip, &run->result);
        }
    }
    if (rc != 0)
        return rc;
    swap_strips(&run->strip, &run->result);
    if (schedule->group_count > 1 && (rc = wrap(run, SL_SYM_CLOSE)) != 0)
        return rc;
    if ((data->flags & SL_STEP_FINAL) != 0 && (rc = wrap(run, SL_SYM_FINAL)) != 0)
        return rc;
    rc = sl_run_write(run, step, clock, rank, data->dst_buf, data->dst_off, data->count,
                      &run->result);
    if (rc == 0 && (data->flags & SL_STEP_TO_WIN) != 0)
        rc = sl_run_write(run, step, clock, rank, SL_BUF_WIN, data->win_off, data->count,
                          &run->result);
    return rc;
}

/* ---- steps ---- */

static void make_ready(struct sl_run *run, uint32_t line)
{
    struct sl_run_line *l = &run->lines[line];

    if (l->queued || l->waiting || l->next == l->count ||
        run->steps[run->line_steps[l->first + l->next]].left > 0)
        return;
    l->queued = true;
    run->ready[run->ready_count++] = line;
}

static void complete(struct sl_run *run, uint32_t step)
{
    struct sl_run_step *s = &run->steps[step];

    s->done = 1;
    run->done_count++;
    for (uint32_t i = 0; i < s->out_count; i++) {
        struct sl_run_step *out = &run->steps[run->outs[s->out_first + i]];
        out->left--;
        make_ready(run, out->line);
    }
}

/* What a step does to memory, all at once: in this run, when it completes. */
static int do_local(struct sl_run *run, uint32_t step, const struct sl_step *data,
                    const uint32_t *clock)
{
    uint32_t rank = step_rank(run, step);
    int rc;

    switch (data->kind) {
    case SL_STEP_COPY:
        rc = sl_run_read(run, step, clock, rank, data->src_buf, data->src_off, data->count,
                         &run->strip);
        break;
    case SL_STEP_GET:
        rc = sl_run_read(run, step, clock, data->peer, SL_BUF_WIN, data->win_off, data->count,
                         &run->strip);
        break;
    case SL_STEP_REDUCE:
        if ((rc = sl_run_read(run, step, clock, rank, data->dst_buf, data->dst_off, data->count,
                              &run->strip)) == 0 &&
            (rc = sl_run_read(run, step, clock, rank, data->src_buf, data->src_off, data->count,
                              &run->other)) == 0)
            rc = reduce_two(run, step, data);
        swap_strips(&run->strip, &run->result);
        break;
    case SL_STEP_DECODE:
        rc = decode(run, step, data, clock);
        swap_strips(&run->strip, &run->other);
        break;
    case SL_STEP_DECODE_REDUCE:
        if ((rc = decode(run, step, data, clock)) == 0 &&
            (rc = sl_run_read(run, step, clock, rank, data->dst_buf, data->dst_off, data->count,
                              &run->strip)) == 0)
            rc = reduce_two(run, step, data);
        swap_strips(&run->strip, &run->result);
        break;
    case SL_STEP_ENCODE: return do_encode(run, step, data, clock);
    case SL_STEP_ENCODE_TERM: return sl_run_encode_term(run, step, data, clock);
    case SL_STEP_DECODE_SUM: return sl_run_decode_sum(run, step, data, clock);
    case SL_STEP_REDUCE_WIN: return do_reduce_win(run, step, data, clock);
    default: return 0;
    }
    if (rc != 0)
        return rc;
    return sl_run_write(run, step, clock, rank, data->dst_buf, data->dst_off, data->count,
                        &run->strip);
}

/* The post that lets an await go on: the first with such a value; SL_SYM_NONE: there is none. */
static uint32_t post_of(const struct sl_run *run, uint32_t peer, uint32_t value)
{
    const struct sl_run_rank *rank = &run->ranks[peer];
    uint32_t low = 0, high = rank->post_count;

    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (sl_run_data(run, run->posts[rank->post_first + mid])->value >= value)
            high = mid;
        else
            low = mid + 1;
    }
    return low == rank->post_count ? SL_SYM_NONE : run->posts[rank->post_first + low];
}

/* Joins what the posts tell; false: one is still to come, and the line waits for it. */
static bool do_await(struct sl_run *run, uint32_t line, const struct sl_step *data)
{
    uint32_t rank = run->lines[line].rank;
    const struct sl_schedule *schedule = &run->schedules[rank];
    uint32_t peers = data->peer == SL_PEER_GROUP ? schedule->group_count : 1;

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < peers; i++) {
            uint32_t peer = data->peer == SL_PEER_GROUP ? schedule->group[i] : data->peer;
            if (peer == rank)
                continue;
            uint32_t post = post_of(run, peer, data->value);
            if (post == SL_SYM_NONE || !run->steps[post].done) {
                run->lines[line].waiter_next = run->ranks[peer].waiters;
                run->ranks[peer].waiters = line;
                run->lines[line].waiting = true;
                return false;
            }
            if (pass == 1 && run->clock_words > 0)
                join(run, line_clock(run, line), step_clock(run, post));
        }
    }
    return true;
}

static void wake_waiters(struct sl_run *run, uint32_t rank)
{
    uint32_t line = run->ranks[rank].waiters;

    run->ranks[rank].waiters = SL_SYM_NONE;
    while (line != SL_SYM_NONE) {
        uint32_t next = run->lines[line].waiter_next;
        run->lines[line].waiting = false;
        make_ready(run, line);
        line = next;
    }
}

/* Messages with one rank, and posts, are in order by their channel. Those of another term come when
 * the last of this one is known to be over. */
static int check_order(const struct sl_run *run, uint32_t step, uint32_t last,
                       const uint32_t *clock)
{
    if (last == SL_SYM_NONE || sl_run_data(run, last)->term == sl_run_data(run, step)->term ||
        before(run, last, clock))
        return 0;
    return sl_run_fail(run, step, "may overtake step %" PRIu32 ", which is of another term",
                       last - run->ranks[step_rank(run, step)].base);
}

static int post_in_order(struct sl_run *run, uint32_t step, const uint32_t *clock)
{
    uint32_t *last = &run->ranks[step_rank(run, step)].last_post, before_this = *last;

    *last = step;
    return check_order(run, step, before_this, clock);
}

static int enqueue(struct sl_run *run, uint32_t step, const struct sl_step *data,
                   const uint32_t *clock)
{
    uint32_t rank = step_rank(run, step);
    bool send = sl_step_row(data)->message == SL_SENDS;
    uint64_t idx =
        send ? (uint64_t)rank * run->size + data->peer : (uint64_t)data->peer * run->size + rank;
    struct sl_run_pair *pair = &run->pairs[idx];
    uint32_t *first = send ? &pair->send_first : &pair->recv_first;
    uint32_t *last = send ? &pair->send_last : &pair->recv_last;
    int rc = check_order(run, step, *last, clock);

    run->steps[step].next = SL_SYM_NONE;
    if (*first == SL_SYM_NONE)
        *first = step;
    else
        run->steps[*last].next = step;
    *last = step;
    if (!pair->queued && pair->send_first != SL_SYM_NONE && pair->recv_first != SL_SYM_NONE) {
        pair->queued = true;
        run->ready[run->ready_count++] = idx | PAIR_BIT;
    }
    return rc;
}

/* Starts the next step of a line. */
static int start(struct sl_run *run, uint32_t line)
{
    struct sl_run_line *l = &run->lines[line];
    uint32_t step = run->line_steps[l->first + l->next];
    const struct sl_step *data = sl_run_data(run, step);
    const struct sl_schedule *schedule = &run->schedules[l->rank];
    uint32_t *clock = run->clock_words > 0 ? line_clock(run, line) : NULL;
    int rc = 0;

    l->queued = false;
    if (sl_step_row(data)->waits && !do_await(run, line, data))
        return 0;
    if (clock != NULL) {
        for (uint32_t d = 0; d < data->dep_count; d++)
            join(run, clock,
                 step_clock(run, run->ranks[l->rank].base + schedule->deps[data->dep_first + d]));
        if (sl_step_row(data)->tells && (rc = post_in_order(run, step, clock)) != 0)
            return rc;
        clock[2 * line] = run->steps[step].place + 1;
        if (run->steps[step].clock != SL_SYM_NONE)
            memcpy(step_clock(run, step), clock, run->clock_words * sizeof(*clock));
    }
    l->next++;
    if (data->runner != 0) {
        run->ready[run->ready_count++] = step | JOB_BIT;
    } else if (sl_step_is_async(data)) {
        if ((rc = enqueue(run, step, data, clock)) != 0)
            return rc;
    } else {
        if ((rc = do_local(run, step, data, clock)) != 0)
            return rc;
        complete(run, step);
        if (sl_step_row(data)->tells)
            wake_waiters(run, l->rank);
    }
    make_ready(run, line);
    return rc;
}

/* A runner is through with a step. Like a message it reads and writes at the last moment. */
static int end_job(struct sl_run *run, uint32_t step)
{
    uint32_t *clock = run->clock_words > 0 ? step_clock(run, step) : NULL;
    int rc = do_local(run, step, sl_run_data(run, step), clock);

    if (rc != 0)
        return rc;
    if (clock != NULL)
        clock[job_word(run, step)] = 1;
    complete(run, step);
    return 0;
}

/* A message of the wire: what its receiver has then. */
static int transfer_code(struct sl_run *run, uint32_t send, uint32_t recv,
                         const uint32_t *send_clock, const uint32_t *recv_clock)
{
    const struct sl_step *out = sl_run_data(run, send), *in = sl_run_data(run, recv);
    bool open = (in->flags & SL_STEP_UP_TO) != 0;
    const struct sl_sym_code *code;

    if (out->src_buf != SL_BUF_WIRE || in->dst_buf != SL_BUF_WIRE)
        return sl_run_fail(run, recv, "and the send that it meets are not both of the wire");
    if (!open && (out->length_from != 0 || out->wire_len != in->wire_len))
        return sl_run_fail(run, recv, "expects %" PRIu64 " bytes, but is sent %s%" PRIu64,
                           in->wire_len, out->length_from != 0 ? "up to " : "", out->wire_len);
    if (out->wire_len > in->wire_len)
        return sl_run_fail(run, recv, "has room for %" PRIu64 " bytes, but is sent up to %" PRIu64,
                           in->wire_len, out->wire_len);
    int rc = read_code(run, send, out, send_clock, &code);

    if (rc == 0) /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): read_code() set it */
        rc = sl_sym_strip_copy(&run->other, &code->values);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): as above */
    return rc != 0 ? rc : write_code(run, recv, in, recv_clock, &run->other, *code);
}

/* A message of elements. */
static int transfer_elements(struct sl_run *run, uint32_t send, uint32_t recv,
                             const uint32_t *send_clock, const uint32_t *recv_clock)
{
    const struct sl_step *out = sl_run_data(run, send), *in = sl_run_data(run, recv);
    uint32_t from = step_rank(run, send), to = step_rank(run, recv);
    int rc = sl_run_read(run, send, send_clock, from, out->src_buf, out->src_off, out->count,
                         &run->other);

    if (rc != 0)
        return rc;
    if (sl_step_row(in)->reduces) {
        if ((rc = sl_run_read(run, recv, recv_clock, to, in->src_buf, in->src_off, in->count,
                              &run->strip)) != 0 ||
            (rc = reduce_two(run, recv, in)) != 0)
            return rc;
        swap_strips(&run->other, &run->result);
    }
    return sl_run_write(run, recv, recv_clock, to, in->dst_buf, in->dst_off, in->count,
                        &run->other);
}

/* Moves the oldest message of a pair. */
static int transfer(struct sl_run *run, uint64_t idx)
{
    struct sl_run_pair *pair = &run->pairs[idx];
    uint32_t send = pair->send_first, recv = pair->recv_first;
    const struct sl_step *out = sl_run_data(run, send), *in = sl_run_data(run, recv);
    uint32_t from = step_rank(run, send);
    uint32_t *send_clock = NULL, *recv_clock = NULL;
    int rc;

    pair->queued = false;
    pair->send_first = run->steps[send].next;
    pair->recv_first = run->steps[recv].next;
    if (out->count != in->count)
        return sl_run_fail(run, recv,
                           "expects %" PRIu64
                           " elements, but the message that it meets, step %" PRIu32
                           " of rank %" PRIu32 ", has %" PRIu64,
                           in->count, send - run->ranks[from].base, from, out->count);
    if (run->clock_words > 0) {
        send_clock = step_clock(run, send);
        recv_clock = step_clock(run, recv);
        join(run, recv_clock, send_clock);
    }
    if (in->count > 0) {
        bool wire = sl_step_uses_wire(out) || sl_step_uses_wire(in);

        rc = wire ? transfer_code(run, send, recv, send_clock, recv_clock)
                  : transfer_elements(run, send, recv, send_clock, recv_clock);
        if (rc != 0)
            return rc;
    }
    if (send_clock != NULL && recv_clock != NULL) {
        const struct sl_run_step *s = &run->steps[send], *r = &run->steps[recv];
        send_clock[2 * s->line + 1] = s->async_place + 1;
        recv_clock[2 * s->line + 1] = s->async_place + 1;
        recv_clock[2 * r->line + 1] = r->async_place + 1;
    }
    complete(run, send);
    complete(run, recv);
    if (pair->send_first != SL_SYM_NONE && pair->recv_first != SL_SYM_NONE) {
        pair->queued = true;
        run->ready[run->ready_count++] = idx | PAIR_BIT;
    }
    return 0;
}

/* Says what the first rank that cannot go on waits for: rather an end that nobody brings than one
 * link of a circle. */
static int stuck(const struct sl_run *run)
{
    uint32_t any = SL_SYM_NONE;

    for (uint32_t i = 0; i < run->step_count; i++) {
        const struct sl_step *data = sl_run_data(run, i);
        const struct sl_run_step *s = &run->steps[i];
        const struct sl_run_line *line = &run->lines[s->line];
        bool head = s->place == line->next;
        if (s->done || s->place > line->next || (head && s->left > 0))
            continue;
        if (any == SL_SYM_NONE)
            any = i;
        if (sl_step_row(data)->waits) {
            uint32_t peer = data->peer == SL_PEER_GROUP ? SL_SYM_NONE : data->peer;
            const struct sl_schedule *schedule = &run->schedules[line->rank];
            for (uint32_t g = 0; peer == SL_SYM_NONE && g < schedule->group_count; g++) {
                uint32_t p = schedule->group[g];
                if (p != line->rank && post_of(run, p, data->value) == SL_SYM_NONE)
                    peer = p;
            }
            if (peer != SL_SYM_NONE && post_of(run, peer, data->value) == SL_SYM_NONE)
                return sl_run_fail(run, i, "rank %" PRIu32 " never posts %" PRIu32, peer,
                                   data->value);
            continue;
        }
        bool send = sl_step_row(data)->message == SL_SENDS, met = false;
        const struct sl_schedule *peer = &run->schedules[data->peer];
        for (uint32_t p = 0; p < peer->step_count; p++) {
            const struct sl_step *other = &peer->steps[p];
            bool fits = sl_step_row(other)->message == (send ? SL_RECEIVES : SL_SENDS);
            met |= fits && other->peer == line->rank &&
                   !run->steps[run->ranks[data->peer].base + p].done;
        }
        if (!met)
            return sl_run_fail(run, i, "no %s of rank %" PRIu32 " meets it",
                               send ? "receive" : "send", data->peer);
    }
    return sl_run_fail(run, any, "waits in a circle: no rank can go on");
}

int sl_run_all(struct sl_run *run)
{
    int rc = 0;

    for (uint32_t l = 0; l < run->line_count; l++)
        make_ready(run, l);
    while (run->ready_count > 0 && rc == 0) {
        uint32_t pick = (uint32_t)sl_rng_below(&run->rng, run->ready_count);
        uint64_t item = run->ready[pick];
        run->ready[pick] = run->ready[--run->ready_count];
        if ((item & PAIR_BIT) != 0)
            rc = transfer(run, item & ~PAIR_BIT);
        else if ((item & JOB_BIT) != 0)
            rc = end_job(run, (uint32_t)item);
        else
            rc = start(run, (uint32_t)item);
    }
    if (rc == 0 && run->done_count < run->step_count)
        return stuck(run);
    return rc;
}

bool sl_run_heard_all(const struct sl_run *run, uint32_t to, uint32_t *missing)
{
    const struct sl_schedule *schedule = &run->schedules[to];

    for (uint32_t r = 0; r < run->size && run->clock_words > 0; r++) {
        bool heard = r == to;
        for (uint32_t c = 0; !heard && c < run->schedules[r].channel_count; c++) {
            uint32_t word = 2 * (run->ranks[r].line_base + c);
            for (uint32_t l = 0; !heard && l < schedule->channel_count; l++)
                heard = line_clock(run, run->ranks[to].line_base + l)[word] > 0;
            for (uint32_t i = 0; !heard && i < schedule->step_count; i++) {
                uint32_t step = run->ranks[to].base + i;
                heard = run->steps[step].clock != SL_SYM_NONE && step_clock(run, step)[word] > 0;
            }
        }
        if (!heard) {
            *missing = r;
            return false;
        }
    }
    return true;
}
