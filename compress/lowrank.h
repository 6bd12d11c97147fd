/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low rank: a matrix M of rows x columns is sent as P Q^T with rank columns each. With the
 * all-reduces between the steps, which are the caller's:
 *
 *   sl_lowrank_refill(Q)               columns of Q that are of no use are drawn anew
 *   P = sl_lowrank_left(M, Q)          all-reduce P (its average, or its sum)
 *   sl_lowrank_orthogonalise(P)        the same bits on all ranks
 *   Q = sl_lowrank_right(M, P)         all-reduce Q as an average
 *   sl_lowrank_decode(P, Q)            what all ranks apply
 *   sl_lowrank_residual(M, P, Q)       M - P Q^T, which joins the next step's M
 *
 * Q is kept for the next step (warm start): it is state, see compress/state.h. P and Q may travel
 * encoded (bq4, say): each rank then decodes them before it goes on.
 *
 * M is stored by rows; P and Q by columns, rank of rows and of columns floats. Sums: P's in f32, 16
 * lanes strided over a row of M, lanes added from 0 to 15; Q's in f32 in the order of rows;
 * products of columns as in compress/tree.h.
 *
 * Source: T. Vogels et al., "PowerSGD: practical low-rank gradient compression for distributed
 * optimization", NeurIPS 2019.
 */
#ifndef SL_COMPRESS_LOWRANK_H
#define SL_COMPRESS_LOWRANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_lowrank {
    size_t rows, columns;
    uint32_t rank; /* at most rows and columns */
};

/* Floats of P and of Q. */
static inline size_t sl_lowrank_p_count(const struct sl_lowrank *l)
{
    return l->rows * l->rank;
}

static inline size_t sl_lowrank_q_count(const struct sl_lowrank *l)
{
    return l->columns * l->rank;
}

/* Whether P and Q are at least times smaller than M. */
bool sl_lowrank_pays(const struct sl_lowrank *l, double times);

/* Draws columns of Q that are all zeros, or have NaN or infinities, in (-1, 1) by philox. So a Q
 * of zeros becomes the first one, and one whose matrix was of lower rank, or broken, recovers.
 * Returns how many. Equal Q stay equal on all ranks. */
uint32_t sl_lowrank_refill(const struct sl_lowrank *l, uint64_t seed, uint32_t stream,
                           uint32_t step, float *q);

/* p = m q. */
void sl_lowrank_left(const struct sl_lowrank *l, const float *m, const float *q, float *p);

/* Makes P's columns orthonormal, by modified Gram-Schmidt. Columns that depend on those before
 * them become zeros. */
void sl_lowrank_orthogonalise(const struct sl_lowrank *l, float *p);

/* q = m^T p. */
void sl_lowrank_right(const struct sl_lowrank *l, const float *m, const float *p, float *q);

/* out = p q^T: a sum in the order of columns. out = m - p q^T; it may be m. */
void sl_lowrank_decode(const struct sl_lowrank *l, const float *p, const float *q, float *out);
void sl_lowrank_residual(const struct sl_lowrank *l, const float *m, const float *p, const float *q,
                         float *out);

#endif
