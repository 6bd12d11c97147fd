/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts ranges of ranks into subtrees, and results into pieces. */
#include "launch/tree.h"

/* The children of the rank that a range begins with: child[i] .. child[i + 1] - 1 is the subtree of
 * the i-th. */
static int cut(int first, int end, int child[SL_TREE_DEGREE + 1])
{
    int rest = end - first - 1, at = first + 1, count = 0;

    for (int i = 0; i < SL_TREE_DEGREE && at < end; i++) {
        child[count++] = at;
        at += rest / SL_TREE_DEGREE + (i < rest % SL_TREE_DEGREE);
    }
    child[count] = end;
    return count;
}

static int height_of(int first, int end)
{
    int child[SL_TREE_DEGREE + 1], height = 0;

    /* The first child's range is the largest. */
    for (; end - first > 1; height++) {
        cut(first, end, child);
        first = child[0];
        end = child[1];
    }
    return height;
}

void sl_tree_make(int rank, int size, struct sl_tree *out)
{
    struct sl_tree tree = {.rank = rank, .size = size, .parent = -1, .end = size};
    int at = 0;

    if (rank >= size) { /* nobody, whom rank 0 will refuse */
        tree.end = rank + 1;
        tree.child[0] = tree.end;
        *out = tree;
        return;
    }
    tree.count = cut(0, size, tree.child);
    while (at != rank) {
        int i = 0;

        while (tree.child[i + 1] <= rank)
            i++;
        tree.parent = at;
        at = tree.child[i];
        tree.end = tree.child[i + 1];
        tree.depth++;
        tree.count = cut(at, tree.end, tree.child);
    }
    tree.height = height_of(rank, tree.end);
    *out = tree;
}

struct cutting {
    size_t len, around, at;
    struct sl_piece *out;
    unsigned count;
};

static void add_piece(struct cutting *cutting, int first, int end)
{
    cutting->out[cutting->count++] = (struct sl_piece){first, end, cutting->at};
    cutting->at += (size_t)(end - first) * cutting->len + cutting->around;
}

/* As deep as the tree is. */
static void cut_range(struct cutting *cutting, int first, int end)
{
    int child[SL_TREE_DEGREE + 1];

    if (end - first == 1 || (size_t)(end - first) * cutting->len <= SL_PIECE_BYTES) {
        add_piece(cutting, first, end);
        return;
    }
    add_piece(cutting, first, first + 1);
    for (int i = 0, count = cut(first, end, child); i < count; i++)
        cut_range(cutting, child[i], child[i + 1]);
}

unsigned sl_tree_pieces(int size, size_t len, size_t around, struct sl_piece *out)
{
    struct cutting cutting = {len, around, 0, out, 0};

    cut_range(&cutting, 0, size);
    out[cutting.count] = (struct sl_piece){size, size, cutting.at};
    return cutting.count;
}

void sl_tree_pieces_of(const struct sl_piece *pieces, unsigned count, int first, int end,
                       unsigned *from, unsigned *to)
{
    unsigned at = 0;

    while (at < count && pieces[at].first < first)
        at++;
    *from = *to = at;
    while (at < count && pieces[at].end <= end)
        at++;
    if (at > *from && pieces[*from].first == first)
        *to = at;
}
