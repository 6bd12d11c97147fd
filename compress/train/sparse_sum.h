/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of all ranks' sparse vectors, whole and on all ranks: of each element what the ranks have
 * of it, added in their order, so that all have the same bits. Two ways lead there:
 *
 *   gathered   every rank's message goes to all others, which add it up: with k entries of each
 *              rank, a rank sends (ranks - 1) k
 *   regions    the vector is cut into as many regions as there are ranks, with about as many
 *              entries in each; what a rank has of a region goes to its owner, which adds it up,
 *              and the sums are gathered: k, and its part of the union for each other rank
 *
 * They give the same bits, so which one is taken is a question of bytes alone, predicted from all
 * ranks' counts and from how much the ranks' places overlapped the last time. All ranks go by what
 * rank 0 knows of that, and so take the same, though some have begun anew since.
 *
 * Regions are agreed upon by a gather of 2 * ranks indices of each rank, which cut its entries into
 * equal parts: each region gets as many of all ranks' indices, and so at most half as many entries
 * again as a rank has.
 *
 * Source: S. Li, T. Hoefler, "Near-optimal sparse allreduce for distributed deep learning", PPoPP
 * 2022 (Ok-Topk), for regions of equal numbers of entries, which are the mean of the ranks' own
 * there. It keeps the k largest of the sum; here the sum is whole.
 */
#ifndef SL_TRAIN_SPARSE_SUM_H
#define SL_TRAIN_SPARSE_SUM_H

#include "compress/sparse.h"
#include "compress/train/messages.h"

struct sl_sparse_sum {
    const struct sl_net *net;
    struct sl_sparse_spec spec; /* of what ranks give; sums go as f32 */
    size_t count, most;         /* elements; entries of a rank */
    float overlap;   /* entries of the last sum, over those of all ranks; 0: none was taken */
    bool by_regions; /* the last sum was */
    size_t sent;     /* bytes of this rank's messages for it */
    struct sl_messages messages;
    size_t block;     /* room for what goes to an owner */
    char *blocks;     /* ranks of them */
    uint32_t *cuts;   /* of all ranks: 2 * ranks each, and room for as many overlaps */
    uint32_t *starts; /* of the regions, and the end: ranks + 1 */
    uint32_t *counts; /* entries of each rank in each region, by ranks */
    uint32_t *places; /* of a region's entries, within it: 2 * most */
    float *value;     /* theirs */
};

/* most: entries of any rank. count: up to SL_SPARSE_COUNT_MOST. */
void sl_sparse_sum_lay(struct sl_sparse_sum *s, const struct sl_net *net,
                       const struct sl_sparse_spec *spec, size_t count, size_t most,
                       struct sl_room *room);

/*
 * out[count] = the sum of what all ranks give: kept entries, `most` at most, of ascending indices.
 * -EBADMSG: a rank has given what cannot be.
 */
int sl_sparse_sum(struct sl_sparse_sum *s, const uint32_t *index, const float *value, size_t kept,
                  float *out);

#endif
