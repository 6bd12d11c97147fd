/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees: binomial ones for small messages, and two binary trees at once, pipelined, for large.
 *
 * P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
 * and scan", Parallel Computing 35(12), 2009: a rank that forwards in one tree is a leaf in the
 * other, so with half of the vector on each tree every rank sends and receives about as much as it
 * must.
 */
#include "schedules/build.h"

#include "core/err.h"

#include <stdlib.h>

#define DTREE_PIECE_BYTES (64 * 1024)
#define DTREE_SLOTS 4 /* pieces of a reduction that may be in TMP at once, per tree */

/* ---- binomial ---- */

/* Place v in the tree whose root has place 0: the parent lacks v's lowest bit. */
static uint32_t low_bit(uint32_t v, uint32_t size)
{
    uint32_t bit = 1;

    if (v != 0)
        return v & -v;
    while (bit < size)
        bit *= 2;
    return bit;
}

static uint32_t rank_at(const struct sl_shape *shape, uint32_t v)
{
    return (v + shape->root) % shape->size;
}

static uint32_t place_of(const struct sl_shape *shape)
{
    return (shape->rank + shape->size - shape->root) % shape->size;
}

/* Largest subtree first: it has the longest way. */
static void binomial_broadcast(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t v = place_of(shape), low = low_bit(v, shape->size), got = SL_NO_DEP;

    if (v != 0)
        got = sl_add_recv(s, 1, rank_at(shape, v - low), sl_out(0), shape->count, SL_NO_DEP);
    for (uint32_t d = low / 2; d > 0; d /= 2) {
        if (v + d < shape->size)
            sl_add_send(s, 0, rank_at(shape, v + d), v == 0 ? sl_in(0) : sl_out(0), shape->count,
                        got);
    }
    if (v == 0 && !shape->in_place)
        sl_add_copy(s, 2, sl_in(0), sl_out(0), shape->count, SL_NO_DEP);
}

static void binomial_reduce(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t v = place_of(shape), low = low_bit(v, shape->size), got = SL_NO_DEP;
    struct sl_place acc = v == 0 ? sl_out(0) : sl_tmp(0);

    for (uint32_t d = 1; d < low && v + d < shape->size; d *= 2) {
        bool last = v == 0 && d * 2 >= shape->size;
        got = sl_add_recv_reduce(s, 1, rank_at(shape, v + d), got == SL_NO_DEP ? sl_in(0) : acc,
                                 acc, shape->count, last ? SL_STEP_FINAL : 0, got);
    }
    if (v != 0) {
        sl_add_send(s, 0, rank_at(shape, v - low), got == SL_NO_DEP ? sl_in(0) : acc, shape->count,
                    got);
        s->tmp_count = got == SL_NO_DEP ? 0 : shape->count;
    }
}

/* Blocks of places [v, v + n) between a parent at place 0 and its child lie in rank order at the
 * root: in one run, or in two where the ranks wrap round. Calls for each run: first place,
 * blocks. */
static uint32_t runs_of(const struct sl_shape *shape, uint32_t v, uint32_t n, uint32_t *first,
                        uint32_t *blocks)
{
    uint32_t wrap = shape->size - shape->root;

    first[0] = v;
    blocks[0] = n;
    if (v >= wrap || v + n <= wrap)
        return 1;
    blocks[0] = wrap - v;
    first[1] = wrap;
    blocks[1] = v + n - wrap;
    return 2;
}

static uint32_t subtree(uint32_t v, uint32_t low, uint32_t size)
{
    return (uint32_t)sl_min(low, size - v);
}

static void binomial_gather(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t v = place_of(shape), low = low_bit(v, shape->size), size = shape->size;
    uint32_t mine = subtree(v, low, size), first[2], blocks[2], deps[64], dep_count = 0;
    uint64_t count = shape->count;

    if (v == 0) {
        if (!shape->in_place)
            sl_add_copy(s, 2, sl_in(0), sl_out(shape->rank * count), count, SL_NO_DEP);
    } else if (mine > 1) {
        deps[dep_count++] = sl_add_copy(s, 2, sl_in(0), sl_tmp(0), count, SL_NO_DEP);
    }
    for (uint32_t d = 1; d < low && v + d < size; d *= 2) {
        uint32_t n = subtree(v + d, d, size), from = rank_at(shape, v + d);
        uint32_t runs = v == 0 ? runs_of(shape, v + d, n, first, blocks) : 1;
        if (v != 0) {
            deps[dep_count++] = sl_add_recv(s, 1, from, sl_tmp(d * count), n * count, SL_NO_DEP);
            continue;
        }
        for (uint32_t i = 0; i < runs; i++)
            sl_add_recv(s, 1, from, sl_out(rank_at(shape, first[i]) * count), blocks[i] * count,
                        SL_NO_DEP);
    }
    if (v == 0)
        return;
    s->tmp_count = mine > 1 ? mine * count : 0;
    uint32_t runs = v == low ? runs_of(shape, v, mine, first, blocks) : 1;
    if (runs == 1)
        blocks[0] = mine;
    for (uint32_t i = 0, at = 0; i < runs; at += blocks[i++]) {
        sl_add_send(s, 0, rank_at(shape, v - low), mine > 1 ? sl_tmp(at * count) : sl_in(0),
                    blocks[i] * count, SL_NO_DEP);
        for (uint32_t k = 0; k < dep_count; k++)
            sl_add_dep(s, deps[k]);
    }
}

static void binomial_scatter(struct sl_schedule *s, const struct sl_shape *shape)
{
    uint32_t v = place_of(shape), low = low_bit(v, shape->size), size = shape->size;
    uint32_t mine = subtree(v, low, size), first[2], blocks[2], deps[2], dep_count = 0;
    uint64_t count = shape->count;

    if (v != 0) {
        uint32_t runs = v == low ? runs_of(shape, v, mine, first, blocks) : 1;
        if (runs == 1)
            blocks[0] = mine;
        for (uint32_t i = 0, at = 0; i < runs; at += blocks[i++])
            deps[dep_count++] = sl_add_recv(s, 1, rank_at(shape, v - low),
                                            mine > 1 ? sl_tmp(at * count) : sl_out(0),
                                            blocks[i] * count, SL_NO_DEP);
        s->tmp_count = mine > 1 ? mine * count : 0;
    }
    for (uint32_t d = low / 2; d > 0; d /= 2) {
        if (v + d >= size)
            continue;
        uint32_t n = subtree(v + d, d, size), to = rank_at(shape, v + d);
        uint32_t runs = v == 0 ? runs_of(shape, v + d, n, first, blocks) : 1;
        for (uint32_t i = 0; i < runs; i++) {
            if (v == 0) {
                sl_add_send(s, 0, to, sl_in(rank_at(shape, first[i]) * count), blocks[i] * count,
                            SL_NO_DEP);
                continue;
            }
            sl_add_send(s, 0, to, sl_tmp(d * count), n * count, deps[0]);
            if (dep_count == 2)
                sl_add_dep(s, deps[1]);
        }
    }
    if (v == 0 && !shape->in_place) {
        sl_add_copy(s, 2, sl_in(shape->rank * count), sl_out(0), count, SL_NO_DEP);
    } else if (v != 0 && mine > 1) {
        sl_add_copy(s, 2, sl_tmp(0), sl_out(0), count, deps[0]);
    }
}

static int binomial_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "binomial");
    if (shape->size < 2)
        return sl_fail(-ENOTSUP, "binomial needs 2 ranks");
    if (shape->count == 0)
        return 0;
    if (shape->coll == SL_BROADCAST)
        binomial_broadcast(out, shape);
    else if (shape->coll == SL_REDUCE)
        binomial_reduce(out, shape);
    else if (shape->coll == SL_GATHER)
        binomial_gather(out, shape);
    else
        binomial_scatter(out, shape);
    return sl_schedule_finish(out);
}

/* A message through shared memory when nobody waits for an answer: in a rooted collective those who
 * send go on, so ranks that share a core do not cost a scheduler's turn each, as alpha measured it.
 * Seen at 4 ranks on 2 cores: 0.14 us for a gather of 64 B, 2.2 us with a sync. */
#define ONE_WAY_NS 100

static double one_way_alpha(const struct sl_shape *shape, const struct sl_link_cost *link)
{
    return shape->win_count != 0 && sl_one_host(shape) && link->alpha > ONE_WAY_NS ? ONE_WAY_NS
                                                                                   : link->alpha;
}

static double binomial_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize, levels = sl_log2_ceil(shape->size);
    double level = one_way_alpha(shape, link) + 2 * costs->step;

    if (shape->size < 2)
        return -1;
    if (shape->coll == SL_BROADCAST)
        level += bytes * link->beta;
    else if (shape->coll == SL_REDUCE)
        level += bytes * (link->beta + costs->reduce);
    else
        return sl_cost_crowd(costs) *
               (levels * level + (shape->size - 1) * bytes * (link->beta + costs->copy / 2));
    return sl_cost_crowd(costs) * levels * level;
}

/* ---- two binary trees ---- */

/* One rank's neighbours in a tree over `nodes` places; SL_NO_DEP: none. */
struct node {
    uint32_t up, down[2];
};

/* In-order tree: odd places are leaves, a place whose lowest bit is b has children at ± b / 2;
 * place 0 is the root with one child. */
static struct node in_order(uint32_t place, uint32_t nodes)
{
    struct node node = {SL_NO_DEP, {SL_NO_DEP, SL_NO_DEP}};
    uint32_t bit = low_bit(place, nodes), d = bit / 2;

    if (place != 0) {
        uint32_t up = (place ^ bit) | (bit * 2);
        node.up = up < nodes ? up : place ^ bit;
        if (d > 0)
            node.down[0] = place - d;
    }
    while (d > 0 && place + d >= nodes)
        d /= 2;
    if (d > 0)
        node.down[1] = place + d;
    return node;
}

struct dtree {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    uint32_t nodes;      /* places in the trees: all ranks, or all but the root */
    struct node node[2]; /* neighbours of this rank, as ranks */
    bool above;          /* this rank is the root above both trees */
    uint32_t peers[8], peer_count;
    uint64_t base[2], len[2], piece;
    uint32_t done[2][DTREE_SLOTS]; /* the send that frees a slot of TMP */
    uint32_t *result;              /* per tree and piece: the step after which it may go down */
    uint32_t pieces;
};

/* Channels of one peer: sends in the even one, receives in the odd one. Peers are kept apart, so
 * that one that is late holds up no other. */
static unsigned channel(struct dtree *t, uint32_t peer, bool recv)
{
    uint32_t i = 0;

    while (i < t->peer_count && t->peers[i] != peer)
        i++;
    if (i == t->peer_count)
        t->peers[t->peer_count++] = peer;
    return 2 * i + recv;
}

/* The rank at a place of a tree: the second tree is the first mirrored, or shifted when that would
 * put the same ranks inside. */
static uint32_t dtree_rank(const struct dtree *t, unsigned tree, uint32_t place)
{
    uint32_t n = t->nodes;

    if (tree == 1)
        place = n % 2 == 0 ? n - 1 - place : (place + 1) % n;
    return n == t->shape->size ? place : (place + 1 + t->shape->root) % t->shape->size;
}

static uint32_t dtree_place(const struct dtree *t, unsigned tree)
{
    uint32_t n = t->nodes, place = t->shape->rank;

    if (n != t->shape->size)
        place = (place + t->shape->size - 1 - t->shape->root) % t->shape->size;
    if (tree == 1)
        place = n % 2 == 0 ? n - 1 - place : (place + n - 1) % n;
    return place;
}

static void dtree_link(struct dtree *t, unsigned tree)
{
    struct node *node = &t->node[tree];

    *node = (struct node){SL_NO_DEP, {SL_NO_DEP, SL_NO_DEP}};
    if (t->above) {
        node->down[0] = dtree_rank(t, tree, 0);
        return;
    }
    uint32_t place = dtree_place(t, tree);
    *node = in_order(place, t->nodes);
    for (int i = 0; i < 2; i++) {
        if (node->down[i] != SL_NO_DEP)
            node->down[i] = dtree_rank(t, tree, node->down[i]);
    }
    if (node->up != SL_NO_DEP)
        node->up = dtree_rank(t, tree, node->up);
    else if (t->nodes != t->shape->size)
        node->up = t->shape->root;
}

static uint64_t piece_len(const struct dtree *t, unsigned tree, uint32_t i)
{
    return sl_part_len(t->len[tree], t->piece, i);
}

/* Sums a piece over this rank's subtree and hands it up; at the top it is complete. */
static void go_up(struct dtree *t, unsigned tree, uint32_t i)
{
    const struct node *node = &t->node[tree];
    uint64_t len = piece_len(t, tree, i), at = t->base[tree] + i * t->piece;
    bool all = t->shape->coll == SL_ALLREDUCE, top = node->up == SL_NO_DEP;
    uint32_t slot = i % DTREE_SLOTS, got = SL_NO_DEP, free_after = SL_NO_DEP;
    struct sl_place acc = sl_out(at), src = sl_in(at);

    if (len == 0)
        return;
    if (!all && !top) {
        acc = sl_tmp((tree * DTREE_SLOTS + slot) * t->piece);
        free_after = i < DTREE_SLOTS ? SL_NO_DEP : t->done[tree][slot];
    }
    int last = node->down[1] != SL_NO_DEP ? 1 : 0;
    for (int c = 0; c < 2; c++) {
        if (node->down[c] == SL_NO_DEP)
            continue;
        got = sl_add_recv_reduce(t->s, channel(t, node->down[c], true), node->down[c], src, acc,
                                 len, top && c == last ? SL_STEP_FINAL : 0,
                                 got == SL_NO_DEP ? free_after : got);
        src = acc;
    }
    if (!top)
        t->done[tree][slot] =
            sl_add_send(t->s, channel(t, node->up, false), node->up, src, len, got);
    t->result[tree * t->pieces + i] = top ? got : SL_NO_DEP;
}

static void go_down(struct dtree *t, unsigned tree, uint32_t i)
{
    const struct node *node = &t->node[tree];
    uint64_t len = piece_len(t, tree, i), at = t->base[tree] + i * t->piece;
    bool top = node->up == SL_NO_DEP, broadcast = t->shape->coll == SL_BROADCAST;
    uint32_t got = broadcast ? SL_NO_DEP : t->result[tree * t->pieces + i];

    if (len == 0)
        return;
    if (!top)
        got = sl_add_recv(t->s, channel(t, node->up, true), node->up, sl_out(at), len, SL_NO_DEP);
    for (int c = 0; c < 2; c++) {
        if (node->down[c] != SL_NO_DEP)
            sl_add_send(t->s, channel(t, node->down[c], false), node->down[c],
                        top && broadcast ? sl_in(at) : sl_out(at), len, got);
    }
}

/* Two ranks may be neighbours in both trees, and their messages share one order: so all ranks list
 * them in one order. Pieces go down a few behind those that go up, so that both keep flowing. */
static void dtree_pieces(struct dtree *t)
{
    uint32_t lag = t->shape->coll == SL_ALLREDUCE ? 2 * sl_log2_ceil(t->nodes) : 0;

    for (uint32_t i = 0; i < t->pieces + lag; i++) {
        for (unsigned tree = 0; tree < 2; tree++) {
            if (t->shape->coll != SL_BROADCAST && i < t->pieces)
                go_up(t, tree, i);
        }
        for (unsigned tree = 0; tree < 2; tree++) {
            if (t->shape->coll != SL_REDUCE && i >= lag)
                go_down(t, tree, i - lag);
        }
    }
}

static int dtree_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    struct dtree t = {.s = out, .shape = shape, .nodes = shape->size};
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1, half = shape->count / 2;

    sl_schedule_init(out, "dtree");
    if (shape->size < 3)
        return sl_fail(-ENOTSUP, "two trees need 3 ranks");
    if (shape->count == 0)
        return 0;
    if (shape->coll != SL_ALLREDUCE) {
        t.nodes--;
        t.above = shape->rank == shape->root;
    }
    if (half > line)
        half -= half % line;
    t.len[0] = t.base[1] = shape->count - half;
    t.len[1] = half;
    t.piece = sl_min(sl_piece(shape, DTREE_PIECE_BYTES), t.len[0]);
    t.pieces = (uint32_t)sl_ceil_div(t.len[0], t.piece);
    t.result = malloc(2 * (size_t)t.pieces * sizeof(*t.result));
    if (t.result == NULL)
        return sl_fail(-ENOMEM, "no memory for %u pieces of a tree", t.pieces);
    dtree_link(&t, 0);
    dtree_link(&t, 1);
    dtree_pieces(&t);
    free(t.result);
    if (shape->coll == SL_REDUCE && !t.above)
        out->tmp_count = 2 * DTREE_SLOTS * t.piece;
    if (shape->coll == SL_BROADCAST && t.above && !shape->in_place)
        sl_add_copy(out, out->channel_count, sl_in(0), sl_out(0), shape->count, SL_NO_DEP);
    return sl_schedule_finish(out);
}

/* Each rank sends and receives the vector once per way; a piece needs about two hops per level. */
static double dtree_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    double bytes = (double)shape->count * shape->esize, crowd = sl_cost_crowd(costs);
    double piece = (double)(sl_piece(shape, DTREE_PIECE_BYTES) * shape->esize);
    double ways = shape->coll == SL_ALLREDUCE ? 2 : 1;
    double math = shape->coll == SL_BROADCAST ? 0 : costs->reduce;

    if (shape->size < 3)
        return -1;
    if (piece > bytes / 2)
        piece = bytes / 2;
    double pieces = piece > 0 ? bytes / 2 / piece : 1;
    double levels = sl_log2_ceil(shape->size);
    return crowd * (2 * ways * levels * (link->alpha + piece * (link->beta + math)) +
                    ways * bytes * link->beta + bytes * math + pieces * ways * 6 * costs->step);
}

const struct sl_algo sl_algo_binomial = {
    .name = "binomial",
    .colls = SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE) | SL_BIT(SL_GATHER) | SL_BIT(SL_SCATTER),
    .source = "",
    .build = binomial_build,
    .cost = binomial_cost,
};

const struct sl_algo sl_algo_dtree = {
    .name = "dtree",
    .colls = SL_BIT(SL_ALLREDUCE) | SL_BIT(SL_BROADCAST) | SL_BIT(SL_REDUCE),
    .source = "Sanders, Speck, Träff, Parallel Computing 35(12), 2009",
    .build = dtree_build,
    .cost = dtree_cost,
};
