/* SPDX-License-Identifier: Apache-2.0 */
/* The tree that an exchange at start goes through, and the pieces that its result travels in.
 *
 * Rank 0 is the root. The subtree of a rank is a range of ranks that begins with it, so shares that
 * go up lie side by side in the order of ranks:
 *
 *   0 .. n-1: rank 0, then its rest cut into SL_TREE_DEGREE ranges of nearly one size, each again a
 *   rank and its rest
 *
 * Pure. */
#ifndef SL_LAUNCH_TREE_H
#define SL_LAUNCH_TREE_H

#include <stddef.h>

#define SL_TREE_DEGREE 4
#define SL_PIECE_BYTES 16384 /* a piece has more only where a single share has */

struct sl_tree {
    int rank, size;
    int parent;                    /* -1: this is the root */
    int end;                       /* the subtree is rank .. end - 1 */
    int count;                     /* of children */
    int child[SL_TREE_DEGREE + 1]; /* child[count] is end: the subtree of a child ends there */
    int height;                    /* of the subtree: 0 for a leaf */
    int depth;                     /* of rank below the root */
};

/* Any rank's place in the tree of size ranks. */
void sl_tree_make(int rank, int size, struct sl_tree *out);

/* Shares of the ranks first .. end - 1 travel in one piece. */
struct sl_piece {
    int first, end;
    size_t at; /* where the piece begins in the stream of all pieces */
};

/* Cuts the result of an exchange into pieces, no subtree and its surroundings in one piece unless
 * the whole of it is small: a rank leaves out what the receiver has sent up itself. around is what
 * a piece is longer for head and seal. out has room for size + 1; the last one only tells where the
 * stream ends. Returns how many there are. */
unsigned sl_tree_pieces(int size, size_t len, size_t around, struct sl_piece *out);

/* The pieces that hold ranks first .. end - 1, a subtree, and nothing else: *from .. *to - 1; none
 * where a larger piece holds them. */
void sl_tree_pieces_of(const struct sl_piece *pieces, unsigned count, int first, int end,
                       unsigned *from, unsigned *to);

#endif
