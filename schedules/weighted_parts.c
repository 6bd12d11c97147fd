/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts what weighted.c exchanges: which rank works on what, in which pieces. */
#include "schedules/weighted.h"

#include "core/err.h"
#include "schedules/shares.h"

#include <stdlib.h>

#define PIECE_BYTES (128 * 1024)
#define PIECE_BYTES_MIN (8 * 1024) /* the rounds below are not made of smaller ones */
/* The hops share the links but for the first and the last round. That costs most where a rank has
 * little or no share: its links are busy one way only until results come. */
#define ROUNDS 16
#define ROUNDS_WITH_IDLE 72
#define ROUNDS_MAX 512                  /* keeps schedules short */
#define MESSAGES_AHEAD SL_PARTS_LAG_MAX /* from all peers together: latency must not show */

static uint64_t rounded(const struct sl_shape *shape, uint64_t count, uint64_t at)
{
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1;

    /* As in sl_part_width(). */
    return at == count || count < 4 * line * shape->size ? at : at - at % line;
}

static void add_part(struct sl_parts *all, uint32_t *count, uint32_t by, uint32_t owner,
                     uint64_t at, uint64_t end)
{
    if (end > at)
        all->parts[(*count)++] =
            (struct sl_part){.by = by, .owner = owner, .at = at, .len = end - at};
}

static void cut_vector(struct sl_parts *all, const struct sl_shape *shape, const uint64_t *ends)
{
    uint64_t at = 0;
    uint32_t count = 0;

    for (uint32_t r = 0; r < shape->size; r++) {
        uint64_t end = rounded(shape, shape->count, sl_shares_cut(shape->count, ends[r]));

        all->first[r] = count;
        add_part(all, &count, r, r, at, end);
        at = end;
    }
    all->first[shape->size] = count;
}

/* Elements of its own block that a rank with this share works on itself. Equal shares are not quite
 * equal after rounding: that leaves no parts of a few elements. */
static uint64_t own_len(const struct sl_shape *shape, uint64_t share)
{
    uint64_t blocks = share * shape->size;

    if (blocks + SL_SHARES_ONE / 256 >= SL_SHARES_ONE)
        return shape->count;
    return rounded(shape, shape->count, sl_shares_cut(shape->count, blocks));
}

/* Parts of blocks whose owners do not work on them, one behind the other. */
struct rest {
    const uint64_t *shares;
    uint32_t owner; /* of the first that is not given away */
    uint64_t at;    /* in that block; 0: not begun */
    uint64_t given;
};

/* Gives rank by what is left up to `until`. */
static void give_rest(struct sl_parts *all, const struct sl_shape *shape, uint32_t *count,
                      struct rest *rest, uint32_t by, uint64_t until)
{
    while (rest->given < until) {
        uint64_t from = sl_max(rest->at, own_len(shape, rest->shares[rest->owner]));
        uint64_t len = sl_min(shape->count - from, until - rest->given);

        add_part(all, count, by, rest->owner, from, from + len);
        rest->given += len;
        rest->at = from + len;
        if (rest->at == shape->count) {
            rest->owner++;
            rest->at = 0;
        }
    }
}

/* What a share is more than the rank's own block. */
static uint64_t excess(const struct sl_shape *shape, uint64_t share)
{
    return share * shape->size > SL_SHARES_ONE ? share * shape->size - SL_SHARES_ONE : 0;
}

/* Ranks with more than a block's share work on what is left of the blocks of the others, each on as
 * much as it has more. */
static void cut_blocks(struct sl_parts *all, const struct sl_shape *shape, const uint64_t *shares)
{
    struct rest rest = {.shares = shares};
    uint64_t left = 0, more = 0, before = 0;
    uint32_t count = 0;

    for (uint32_t r = 0; r < shape->size; r++) {
        left += shape->count - own_len(shape, shares[r]);
        more += excess(shape, shares[r]);
    }
    sl_assert(left == 0 || more != 0); /* shares are a vector together */
    for (uint32_t r = 0; r < shape->size; r++) {
        all->first[r] = count;
        add_part(all, &count, r, r, 0, own_len(shape, shares[r]));
        before += excess(shape, shares[r]);
        if (left > 0)
            give_rest(all, shape, &count, &rest, r,
                      sl_shares_cut(left, before * SL_SHARES_ONE / more));
    }
    all->first[shape->size] = count;
}

/* A rank that hardly does more than to send operands and fetch results. */
static bool has_idle(const struct sl_parts *all, const struct sl_shape *shape, uint64_t longest)
{
    for (uint32_t r = 0; r < shape->size; r++) {
        bool whole = shape->coll == SL_ALLREDUCE; /* a rank's part is all that it works on */

        if (!sl_parts_has(all, r) || (whole && all->parts[all->first[r]].len < longest / 2))
            return true;
    }
    return false;
}

static void cut_pieces(struct sl_parts *all, const struct sl_shape *shape)
{
    uint64_t longest = 0, least = sl_max(1, PIECE_BYTES_MIN / shape->esize);

    for (uint32_t i = 0; i < all->first[shape->size]; i++)
        longest = sl_max(longest, all->parts[i].len);
    uint64_t rounds = sl_ceil_div(longest, sl_piece(shape, PIECE_BYTES));
    uint64_t wanted = has_idle(all, shape, longest) ? ROUNDS_WITH_IDLE : ROUNDS;

    if (shape->chunk == 0)
        rounds = sl_max(rounds, sl_min(wanted, sl_ceil_div(longest, least)));
    all->rounds = (uint32_t)sl_min(rounds, ROUNDS_MAX);
    all->lag = (uint32_t)sl_ceil_div(MESSAGES_AHEAD, shape->size - 1);
    for (uint32_t i = 0; i < all->first[shape->size]; i++)
        all->parts[i].piece = sl_part_width(all->parts[i].len, all->rounds, shape->esize);
}

int sl_parts_cut(struct sl_parts *all, const struct sl_shape *shape)
{
    uint32_t n = shape->size;
    uint64_t *ends = calloc(n, sizeof(*ends));

    *all = (struct sl_parts){.parts = calloc(3 * (size_t)n, sizeof(*all->parts)),
                             .first = calloc(n + 1, sizeof(*all->first))};
    if (ends == NULL || all->parts == NULL || all->first == NULL) {
        free(ends);
        sl_parts_fini(all);
        return sl_fail(-ENOMEM, "no memory for the shares of %u ranks", n);
    }
    sl_shares_level(shape->speed, n, shape->coll == SL_ALLREDUCE ? 1 : n, ends);
    if (shape->coll == SL_ALLREDUCE) {
        cut_vector(all, shape, ends);
    } else {
        for (uint32_t r = n - 1; r > 0; r--)
            ends[r] -= ends[r - 1];
        cut_blocks(all, shape, ends);
    }
    free(ends);
    cut_pieces(all, shape);
    return 0;
}

void sl_parts_fini(struct sl_parts *all)
{
    free(all->parts);
    free(all->first);
    all->parts = NULL;
    all->first = NULL;
}
