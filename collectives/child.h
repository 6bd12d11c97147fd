/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that are split from another one. They live on its worker and in its family, so that
 * a split opens, registers, maps and connects nothing: its ranks agree on a channel of the links
 * that they have, and on areas of the segments that they have mapped.
 *
 * Two all_gathers on the parent make it (lib/split.c): in the first each rank says which color it
 * wants and what it offers, in the second whether it could.
 */
#ifndef SL_COLLECTIVES_CHILD_H
#define SL_COLLECTIVES_CHILD_H

#include "collectives/comm.h"

/* What a rank says first, as it lies in memory. */
struct sl_split_word {
    int32_t color, key;
    uint32_t channel; /* the least that it has free: the highest of a color's is taken */
    uint32_t area;    /* for its window; SL_NO_AREA: there is none */
};

/* Fills in channel and area, which are this split's until sl_child_make() takes them or
 * sl_child_withdraw() gives them back. Nothing is offered with color < 0. */
void sl_child_offer(struct sluice_comm *parent, struct sl_split_word *word);
void sl_child_withdraw(struct sluice_comm *parent, struct sl_split_word *word);

/*
 * A communicator of members[0..count), which are ranks of the parent by their rank in the new one,
 * this one among them. words[] is of all ranks of the parent; mine, the own one's, is not to be
 * withdrawn any more where the child took it. The caller is inside. sl_child_start() follows, or
 * sl_child_drop() when another rank could not. -EAGAIN: a split by another thread has that channel;
 * all ranks make new offers. -ENOMEM, -EPROTO.
 */
int sl_child_make(struct sluice_comm *parent, const struct sl_split_word *words, const int *members,
                  int count, struct sl_split_word *mine, struct sluice_comm **out);
int sl_child_start(struct sluice_comm *child);
void sl_child_drop(struct sluice_comm *child); /* takes NULL */

#endif
