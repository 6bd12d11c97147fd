/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of one host through windows: every rank reads its peers' mapped memory directly.
 *
 * flat: one stage, one sync. Everything is copied in, everyone reads all that it needs.
 *
 * direct: the vector passes through a few window slots in chunks that stay in the caches. For
 * allreduce each chunk has one slice per rank; rank r copies the foreign slices in, reduces slice r
 * of all ranks straight from their windows to its OUT and to slice r of its own window, from
 * where the others get it. Each byte of IN is read once, each byte of OUT written once.
 *
 *   round   0        1             2                      3                 …
 *           stage 0  stage 1       stage 2                stage 3
 *                    await 1       await 2                await 3
 *                    reduce 0      reduce 1, get 0        reduce 2, get 1
 *           post 1   post 2        post 3                 post 4
 *
 * One sync per chunk, and between a rank's post and its next await lies a whole stage of work. A
 * slot is staged again before that round's await, when the others are known to have ended the round
 * before the last: so a chunk that is read for the last time `lag` rounds after its stage needs lag
 * + 2 slots.
 */
#include "schedules/build.h"

#include "core/err.h"

#define DIRECT_PIECE_BYTES (256 * 1024)

struct direct {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    uint64_t base;  /* where the slots begin, in elements */
    uint64_t width; /* elements of a chunk: of the vector, or of each block */
    uint64_t slot;  /* elements from slot to slot */
    uint64_t chunks;
    uint32_t slots;
};

static uint64_t inline_count(const struct sl_shape *shape)
{
    return SL_WIN_INLINE_BYTES / shape->esize;
}

/* The next rank to talk to: everybody starts at another one, so that no window is read by all at
 * once. */
static uint32_t peer_at(const struct sl_shape *shape, uint32_t i)
{
    return (shape->rank + i) % shape->size;
}

/* Elements that a rank's window holds at once: the whole of a vector, or a slot of `width`. */
static uint64_t window_need(const struct sl_shape *shape, uint64_t width)
{
    switch (shape->coll) {
    case SL_REDUCE_SCATTER:
    case SL_SCATTER:
    case SL_ALL_TO_ALL: return width * shape->size;
    case SL_BARRIER: return 0;
    default: return width;
    }
}

/* ---- flat ---- */

/* Copies all blocks but this rank's own into the window, in their places. */
static void put_foreign_blocks(struct sl_schedule *s, const struct sl_shape *shape, uint64_t base)
{
    uint64_t before = shape->rank * shape->count, after = before + shape->count;
    uint64_t total = shape->size * shape->count;

    if (before > 0)
        sl_add_copy(s, 0, sl_in(0), sl_win(base), before, SL_NO_DEP);
    if (total > after)
        sl_add_copy(s, 0, sl_in(after), sl_win(base + after), total - after, SL_NO_DEP);
}

/* What this rank shows to the others. */
static void flat_put(struct sl_schedule *s, const struct sl_shape *shape, uint64_t base)
{
    bool root = shape->rank == shape->root;

    switch (shape->coll) {
    case SL_REDUCE_SCATTER:
    case SL_ALL_TO_ALL: put_foreign_blocks(s, shape, base); break;
    case SL_SCATTER:
        if (root)
            put_foreign_blocks(s, shape, base);
        break;
    case SL_BROADCAST:
        if (root)
            sl_add_copy(s, 0, sl_in(0), sl_win(base), shape->count, SL_NO_DEP);
        break;
    case SL_REDUCE:
    case SL_GATHER:
        if (!root)
            sl_add_copy(s, 0, sl_in(0), sl_win(base), shape->count, SL_NO_DEP);
        break;
    case SL_BARRIER: break;
    default: sl_add_copy(s, 0, sl_in(0), sl_win(base), shape->count, SL_NO_DEP);
    }
}

/* This rank's own share, which needs nobody: done between post and await. */
static void own_copy(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint64_t block = shape->rank * shape->count, from = 0, to = 0;

    if (shape->in_place)
        return;
    switch (shape->coll) {
    case SL_ALL_GATHER: to = block; break;
    case SL_ALL_TO_ALL: from = to = block; break;
    case SL_BROADCAST:
        if (shape->rank != shape->root)
            return;
        break;
    case SL_GATHER:
        if (shape->rank != shape->root)
            return;
        to = block;
        break;
    case SL_SCATTER:
        if (shape->rank != shape->root)
            return;
        from = block;
        break;
    default: return;
    }
    sl_add_copy(s, 0, sl_in(from), sl_out(to), shape->count, SL_NO_DEP);
}

static void flat_take(struct sl_schedule *s, const struct sl_shape *shape, uint64_t base)
{
    bool root = shape->rank == shape->root;
    uint64_t count = shape->count, block = shape->rank * count;

    switch (shape->coll) {
    case SL_ALLREDUCE:
    case SL_REDUCE:
        if (shape->coll == SL_ALLREDUCE || root)
            sl_add_reduce_win(s, 0, sl_in(0), base, sl_out(0), count, SL_STEP_FINAL, SL_NO_DEP);
        break;
    case SL_REDUCE_SCATTER:
        sl_add_reduce_win(s, 0, sl_in(block), base + block, sl_out(0), count, SL_STEP_FINAL,
                          SL_NO_DEP);
        break;
    case SL_BROADCAST:
        if (!root)
            sl_add_get(s, 0, shape->root, base, sl_out(0), count, SL_NO_DEP);
        break;
    case SL_SCATTER:
        if (!root)
            sl_add_get(s, 0, shape->root, base + block, sl_out(0), count, SL_NO_DEP);
        break;
    default:
        for (uint32_t i = 1; i < shape->size; i++) {
            uint32_t peer = peer_at(shape, i);
            if (shape->coll == SL_ALL_TO_ALL)
                sl_add_get(s, 0, peer, base + block, sl_out(peer * count), count, SL_NO_DEP);
            else if (shape->coll == SL_ALL_GATHER || (shape->coll == SL_GATHER && root))
                sl_add_get(s, 0, peer, base, sl_out(peer * count), count, SL_NO_DEP);
        }
    }
}

static int flat_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    bool root = shape->rank == shape->root;
    uint64_t need = window_need(shape, shape->count);
    uint64_t base = need * shape->esize <= SL_WIN_INLINE_BYTES ? 0 : inline_count(shape);

    sl_schedule_init(out, "flat");
    if (shape->size < 2 || !sl_one_host(shape))
        return sl_fail(-ENOTSUP, "flat needs 2 ranks, all of one host");
    if (shape->win_count == 0 || base + need > shape->win_count)
        return sl_fail(-ENOTSUP, "flat needs a window of %llu elements, but there are %llu",
                       (unsigned long long)(base + need), (unsigned long long)shape->win_count);
    if (shape->count == 0 && shape->coll != SL_BARRIER)
        return 0;
    sl_group_all(out, shape);
    flat_put(out, shape, base);
    sl_add_post(out, 0, 1, SL_NO_DEP);
    own_copy(out, shape);

    bool fan_out = shape->coll == SL_BROADCAST || shape->coll == SL_SCATTER;
    bool fan_in = shape->coll == SL_REDUCE || shape->coll == SL_GATHER;
    if (fan_out && !root)
        sl_add_await(out, 0, shape->root, 1, SL_NO_DEP);
    else if ((fan_in && root) || (!fan_in && !fan_out))
        sl_add_await(out, 0, SL_PEER_GROUP, 1, SL_NO_DEP);
    flat_take(out, shape, base);
    out->win_count = base + need;
    out->win_alike = true;
    return sl_schedule_finish(out);
}

/* Nobody answers: those who give are calls ahead, and a call costs what it takes to look at the
 * others' lines. Seen with 2 ranks on 2 cores, 8 B: 40 ns near and far. Where ranks share cores,
 * messages let them run ahead for longer. */
#define LOOK_NS 40

static double flat_sync(const struct sl_shape *shape, const struct sl_costs *costs, uint64_t need)
{
    double looks = (shape->size - 1.0) * LOOK_NS;

    if (!sl_coll_has_root(shape->coll) || costs->ranks_per_core > 1 ||
        need * shape->esize > SL_WIN_SHORT_BYTES || looks > costs->sync)
        return costs->sync;
    return looks;
}

static double flat_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    double bytes = (double)shape->count * shape->esize, n = shape->size, work = 0;
    double crowd = sl_cost_crowd(costs);
    uint64_t need = window_need(shape, shape->count);

    if (shape->size < 2 || !sl_one_host(shape) || shape->win_count == 0 ||
        inline_count(shape) + need > shape->win_count)
        return -1;
    double foreign = (n - 1) * bytes; /* read from peers' windows */

    switch (shape->coll) {
    case SL_ALLREDUCE: work = bytes * costs->copy + n * bytes * costs->reduce; break;
    case SL_REDUCE:
        /* Only the root works after the sync. */
        work = bytes * costs->copy + n * bytes * costs->reduce / crowd;
        foreign /= crowd;
        break;
    case SL_REDUCE_SCATTER: work = (n - 1) * bytes * costs->copy + n * bytes * costs->reduce; break;
    case SL_ALL_GATHER: work = (n + 1) * bytes * costs->copy; break;
    case SL_ALL_TO_ALL: work = 2 * n * bytes * costs->copy; break;
    case SL_BROADCAST:
        work = bytes * costs->copy * (1 / crowd + 1);
        foreign = bytes;
        break;
    case SL_GATHER:
    case SL_SCATTER:
        work = n * bytes * costs->copy * (1 / crowd + 1 / n);
        foreign = shape->coll == SL_GATHER ? foreign / crowd : bytes;
        break;
    default: break;
    }
    work += foreign * costs->cross;
    return flat_sync(shape, costs, need) + crowd * work + 4 * costs->step * crowd;
}

/* ---- direct ---- */

/* How many slots the collective's rounds need; see the drawing. */
static uint32_t slots_wanted(enum sl_coll coll)
{
    switch (coll) {
    case SL_ALLREDUCE:
    case SL_REDUCE:
    case SL_BROADCAST:
    case SL_GATHER:
    case SL_SCATTER: return 4;
    default: return 3;
    }
}

/* Cuts count into chunks of one size, as few as the wished piece and the window allow. -ENOTSUP
 * (false): the window is too small. */
static bool direct_cut(const struct sl_shape *shape, struct direct *d)
{
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1;
    uint64_t piece = sl_piece(shape, DIRECT_PIECE_BYTES), base = inline_count(shape);
    bool blocks = shape->coll == SL_REDUCE_SCATTER || shape->coll == SL_SCATTER ||
                  shape->coll == SL_ALL_TO_ALL || shape->coll == SL_ALL_GATHER ||
                  shape->coll == SL_GATHER;
    uint32_t slots = slots_wanted(shape->coll);

    if (shape->win_count <= base)
        return false;
    uint64_t width = sl_max(blocks ? piece / shape->size : piece, 1);
    /* NOLINTBEGIN(clang-analyzer-core.DivideZero): width and window_need() are at least 1 */
    uint64_t fit = (shape->win_count - base) / slots / window_need(shape, 1);
    if (fit == 0)
        return false;
    width = sl_min(sl_min(width, fit), shape->count);
    if (width > line)
        width -= width % line;
    uint64_t chunks = sl_ceil_div(shape->count, width);
    /* Chunks of equal size: a short last one would cost a round as any other. */
    uint64_t even = sl_ceil_div(sl_ceil_div(shape->count, chunks), line) * line;
    if (even < width)
        width = even;
    d->base = base;
    d->width = width;
    d->slot = window_need(shape, width);
    d->chunks = sl_ceil_div(shape->count, width);
    /* NOLINTEND(clang-analyzer-core.DivideZero) */
    d->slots = (uint32_t)sl_min(slots, d->chunks);
    return true;
}

static uint64_t slot_at(const struct direct *d, uint64_t chunk)
{
    return d->base + chunk % d->slots * d->slot;
}

static uint64_t chunk_len(const struct direct *d, uint64_t chunk)
{
    return sl_part_len(d->shape->count, d->width, chunk);
}

static void copy_some(const struct direct *d, uint64_t from, uint64_t to_win, uint64_t count)
{
    if (count > 0)
        sl_add_copy(d->s, 0, sl_in(from), sl_win(to_win), count, SL_NO_DEP);
}

/* Puts what others need of this chunk into its slot. */
static void stage(const struct direct *d, uint64_t chunk)
{
    const struct sl_shape *shape = d->shape;
    uint64_t at = chunk * d->width, len = chunk_len(d, chunk), slot = slot_at(d, chunk);

    switch (shape->coll) {
    case SL_ALLREDUCE:
    case SL_REDUCE: {
        uint64_t slice = sl_part_width(len, shape->size, shape->esize);
        uint64_t own = sl_min(shape->rank * slice, len), end = sl_min(own + slice, len);
        copy_some(d, at, slot, own);
        copy_some(d, at + end, slot + end, len - end);
        break;
    }
    case SL_REDUCE_SCATTER:
    case SL_SCATTER:
    case SL_ALL_TO_ALL:
        for (uint32_t i = 1; i < shape->size; i++) {
            uint32_t peer = peer_at(shape, i);
            copy_some(d, peer * shape->count + at, slot + peer * d->width, len);
        }
        break;
    default: copy_some(d, at, slot, len);
    }
}

/* This rank's own elements of the chunk, read while they are still in the cache. */
static void keep(const struct direct *d, uint64_t chunk)
{
    const struct sl_shape *shape = d->shape;
    uint64_t at = chunk * d->width, block = shape->rank * shape->count;
    uint64_t from = at, to = at;

    if (shape->in_place)
        return;
    if (shape->coll == SL_ALL_GATHER || shape->coll == SL_GATHER || shape->coll == SL_ALL_TO_ALL)
        to += block;
    if (shape->coll == SL_SCATTER || shape->coll == SL_ALL_TO_ALL)
        from += block;
    sl_add_copy(d->s, 0, sl_in(from), sl_out(to), chunk_len(d, chunk), SL_NO_DEP);
}

/* Reduces this rank's slice or block of the chunk over all ranks. */
static void reduce(const struct direct *d, uint64_t chunk)
{
    const struct sl_shape *shape = d->shape;
    uint64_t at = chunk * d->width, len = chunk_len(d, chunk), slot = slot_at(d, chunk);

    if (shape->coll == SL_REDUCE_SCATTER) {
        sl_add_reduce_win(d->s, 0, sl_in(shape->rank * shape->count + at),
                          slot + shape->rank * d->width, sl_out(at), len, SL_STEP_FINAL, SL_NO_DEP);
        return;
    }
    uint64_t slice = sl_part_width(len, shape->size, shape->esize);
    uint64_t off = shape->rank * slice, mine = sl_part_len(len, slice, shape->rank);
    if (mine == 0)
        return;
    if (shape->coll == SL_ALLREDUCE)
        sl_add_reduce_win(d->s, 0, sl_in(at + off), slot + off, sl_out(at + off), mine,
                          SL_STEP_FINAL | SL_STEP_TO_WIN, SL_NO_DEP);
    else
        sl_add_reduce_win(d->s, 0, sl_in(at + off), slot + off,
                          shape->rank == shape->root ? sl_out(at + off) : sl_win(slot + off), mine,
                          SL_STEP_FINAL, SL_NO_DEP);
}

/* Takes what the others have for this rank in the chunk. */
static void take(const struct direct *d, uint64_t chunk)
{
    const struct sl_shape *shape = d->shape;
    uint64_t at = chunk * d->width, len = chunk_len(d, chunk), slot = slot_at(d, chunk);
    uint64_t slice = sl_part_width(len, shape->size, shape->esize);

    for (uint32_t i = 1; i < shape->size; i++) {
        uint32_t peer = peer_at(shape, i);
        uint64_t win = slot, dst = peer * shape->count + at, count = len;
        if (shape->coll == SL_ALLREDUCE || shape->coll == SL_REDUCE) {
            win = slot + peer * slice;
            dst = at + peer * slice;
            count = sl_part_len(len, slice, peer);
        } else if (shape->coll == SL_ALL_TO_ALL) {
            win = slot + shape->rank * d->width;
        }
        if (count > 0)
            sl_add_get(d->s, 0, peer, win, sl_out(dst), count, SL_NO_DEP);
    }
}

/* allreduce, reduce, reduce_scatter, all_gather, all_to_all: all ranks go through the same
 * rounds. */
static void rounds(const struct direct *d)
{
    const struct sl_shape *shape = d->shape;
    bool reduces = sl_coll_reduces(shape->coll);
    bool takes = shape->coll != SL_REDUCE_SCATTER &&
                 (shape->coll != SL_REDUCE || shape->rank == shape->root);
    uint64_t lag = reduces && shape->coll != SL_REDUCE_SCATTER ? 2 : 1;
    uint64_t last = d->chunks + lag - 1;

    for (uint64_t k = 0; k <= last; k++) {
        if (k < d->chunks) {
            stage(d, k);
            if (!reduces)
                keep(d, k);
        }
        if (k == last && !takes && shape->coll != SL_REDUCE_SCATTER)
            break;
        if (k > 0)
            sl_add_await(d->s, 0, SL_PEER_GROUP, (uint32_t)k, SL_NO_DEP);
        if (reduces && k >= 1 && k <= d->chunks)
            reduce(d, k - 1);
        if (takes && k >= lag)
            take(d, k - lag);
        if (k < last)
            sl_add_post(d->s, 0, (uint32_t)k + 1, SL_NO_DEP);
    }
}

/* broadcast, scatter: the root stages, the others take; a post of theirs frees the slot. */
static void fan_out(const struct direct *d)
{
    const struct sl_shape *shape = d->shape;
    uint64_t win = shape->coll == SL_SCATTER ? shape->rank * d->width : 0;

    for (uint64_t k = 0; k < d->chunks; k++) {
        if (shape->rank == shape->root) {
            if (k >= d->slots)
                sl_add_await(d->s, 0, SL_PEER_GROUP, (uint32_t)(k - d->slots + 1), SL_NO_DEP);
            stage(d, k);
            sl_add_post(d->s, 0, (uint32_t)k + 1, SL_NO_DEP);
            keep(d, k);
        } else {
            sl_add_await(d->s, 0, shape->root, (uint32_t)k + 1, SL_NO_DEP);
            sl_add_get(d->s, 0, shape->root, slot_at(d, k) + win, sl_out(k * d->width),
                       chunk_len(d, k), SL_NO_DEP);
            sl_add_post(d->s, 0, (uint32_t)k + 1, SL_NO_DEP);
        }
    }
}

/* gather: the others stage, the root takes; its posts free the slots of all. */
static void fan_in(const struct direct *d)
{
    const struct sl_shape *shape = d->shape;

    for (uint64_t k = 0; k < d->chunks; k++) {
        if (shape->rank == shape->root) {
            keep(d, k);
            sl_add_await(d->s, 0, SL_PEER_GROUP, (uint32_t)k + 1, SL_NO_DEP);
            take(d, k);
        } else {
            if (k >= d->slots)
                sl_add_await(d->s, 0, shape->root, (uint32_t)(k - d->slots + 1), SL_NO_DEP);
            stage(d, k);
        }
        sl_add_post(d->s, 0, (uint32_t)k + 1, SL_NO_DEP);
    }
}

static int direct_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct direct d = {.s = out, .shape = shape};

    sl_schedule_init(out, "direct");
    if (shape->size < 2 || !sl_one_host(shape))
        return sl_fail(-ENOTSUP, "direct needs 2 ranks, all of one host");
    if (shape->count == 0)
        return 0;
    if (!direct_cut(shape, &d))
        return sl_fail(-ENOTSUP, "direct needs larger windows than %llu elements",
                       (unsigned long long)shape->win_count);
    if (d.chunks > UINT32_MAX / 4)
        return sl_fail(-ENOTSUP, "direct would need %llu chunks; raise the chunk size",
                       (unsigned long long)d.chunks);
    sl_group_all(out, shape);
    if (shape->coll == SL_BROADCAST || shape->coll == SL_SCATTER)
        fan_out(&d);
    else if (shape->coll == SL_GATHER)
        fan_in(&d);
    else
        rounds(&d);
    out->win_count = d.base + d.slots * d.slot;
    return sl_schedule_finish(out);
}

/* What the second stage of a chunk loses while it waits for the slowest of the first, in syncs;
 * measured: 0.4 to 0.8 us of 64 ns syncs, 3.6 us of 350 ns. On shared cores a sync is a scheduler's
 * turn already. */
static double handoffs(const struct sl_costs *costs)
{
    return costs->ranks_per_core > 1 ? 0 : 11;
}

static double direct_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    double bytes = (double)shape->count * shape->esize, n = shape->size, work = 0, per_round = 4;
    double crowd = sl_cost_crowd(costs);
    struct direct d = {.shape = shape};

    if (shape->size < 2 || !sl_one_host(shape) || shape->count == 0 || !direct_cut(shape, &d))
        return -1;
    double syncs = (double)d.chunks, foreign = (n - 1) * bytes;

    switch (shape->coll) {
    case SL_ALLREDUCE:
        work = 2 * (n - 1) / n * bytes * costs->copy + bytes * costs->reduce;
        foreign = 2 * (n - 1) / n * bytes;
        per_round += n;
        syncs += 1 + handoffs(costs);
        break;
    case SL_REDUCE:
        work = (n - 1) / n * bytes * costs->copy * (1 + 1 / crowd) + bytes * costs->reduce;
        foreign = (n - 1) / n * bytes * (1 + 1 / crowd);
        per_round += n / crowd;
        syncs += 1 + handoffs(costs);
        break;
    case SL_REDUCE_SCATTER:
        work = (n - 1) * bytes * costs->copy + n * bytes * costs->reduce;
        per_round += n;
        break;
    case SL_ALL_GATHER:
        work = (n + 1) * bytes * costs->copy;
        per_round += n;
        break;
    case SL_ALL_TO_ALL:
        work = 2 * n * bytes * costs->copy;
        per_round += 2 * n;
        break;
    case SL_BROADCAST:
        /* Root and readers overlap, but for the first chunk. */
        work = (bytes + (double)(d.width * shape->esize)) * costs->copy * (1 + 1 / crowd) / 2 +
               bytes * costs->copy / 2;
        foreign = bytes;
        break;
    default:
        work = n * bytes * costs->copy * (1 / crowd + 1 / n);
        foreign = shape->coll == SL_GATHER ? foreign / crowd : bytes;
        per_round += n / crowd;
    }
    work += foreign * costs->cross;
    return syncs * costs->sync + crowd * (work + (double)d.chunks * per_round * costs->step);
}

#define DIRECT_COLLS                                                                               \
    (SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_REDUCE_SCATTER) | SL_BIT(SL_ALL_GATHER) |                    \
     SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE) | SL_BIT(SL_GATHER) | SL_BIT(SL_SCATTER) |           \
     SL_BIT(SL_ALL_TO_ALL))

const struct sl_algo sl_algo_flat = {
    .name = "flat",
    .colls = DIRECT_COLLS | SL_BIT(SL_BARRIER),
    .needs_windows = true,
    .source = "",
    .build = flat_build,
    .cost = flat_cost,
};

const struct sl_algo sl_algo_direct = {
    .name = "direct",
    .colls = DIRECT_COLLS,
    .needs_windows = true,
    .source = "",
    .build = direct_build,
    .cost = direct_cost,
};
