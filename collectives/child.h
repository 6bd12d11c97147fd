/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that join a family. They live on its worker, and open, register, map and connect
 * nothing: their ranks agree on a channel of the links that they have, and on areas of the segments
 * that they have mapped.
 *
 * Two all_gathers make one, of a split on the parent (lib/split.c): in the first each rank says
 * what it offers, in the second whether it could.
 */
#ifndef SL_COLLECTIVES_CHILD_H
#define SL_COLLECTIVES_CHILD_H

#include "collectives/comm.h"

/* What a rank has for a new communicator of its family. */
struct sl_place {
    uint32_t family_rank;
    uint32_t channel; /* the least that it has free: the highest of all members' is taken */
    uint32_t area;    /* for its window; SL_NO_AREA: there is none */
};

/* Channel and area are the new communicator's until sl_child_make() takes them or
 * sl_place_withdraw() gives them back. */
void sl_place_offer(struct sl_family *family, struct sl_place *place);
void sl_place_withdraw(struct sl_family *family, struct sl_place *place);

struct sl_child_params {
    const struct sluice_comm *like; /* of the family: its ranks measured what holds for all */
    const struct sl_config *config; /* copied */
    uint64_t id;                    /* the same on all members; the channel makes it another one */
    uint32_t rank, size;
    const struct sl_place *places; /* [size], by rank of the new one */
    struct sl_place *mine;         /* not to be withdrawn any more where the child took it */
};

/*
 * The caller is inside. sl_child_start() follows, or sl_child_drop() when another rank could not.
 * -EAGAIN: another new communicator has that channel; all ranks make new offers. -ENOMEM, -EPROTO.
 */
int sl_child_make(const struct sl_child_params *params, struct sluice_comm **out);
void sl_child_start(struct sluice_comm *child);
void sl_child_drop(struct sluice_comm *child); /* takes NULL */

#endif
