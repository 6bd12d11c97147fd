/* SPDX-License-Identifier: Apache-2.0 */
/* Families: who is in them, and what they hold. */
#include "collectives/family.h"

#include "collectives/adopt.h"
#include "core/fork.h"
#include "core/shared.h"
#include "core/wireup.h"

#include <stdlib.h>

int sl_family_make(struct sluice_comm *comm)
{
    struct sl_family *family = calloc(1, sizeof(*family));

    if (family == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of %u ranks", comm->size);
    family->life = sl_fork_life();
    family->holders = 1;
    family->worker = comm->worker;
    family->rank = comm->rank;
    family->size = comm->size;
    family->next_channel = SL_CHANNEL_FIRST + 1;
    sl_list_init(&family->comms);
    sl_list_init(&family->links);
    comm->channel = SL_CHANNEL_FIRST;
    sl_family_join(family, comm);
    return 0;
}

void sl_family_join(struct sl_family *family, struct sluice_comm *comm)
{
    comm->family = family;
    sl_list_push_back(&family->comms, &comm->of_family);
}

void sl_family_get(struct sl_family *family)
{
    atomic_fetch_add(&family->holders, 1);
}

void sl_family_put(struct sl_family *family)
{
    if (atomic_fetch_sub(&family->holders, 1) == 1)
        free(family);
}

static void close_connections(struct sl_family *family)
{
    sl_adopt_unlist(family);
    sl_wireup_close(family->wireup);
    family->wireup = NULL;
    sl_links_close(family);
}

void sl_family_leave(struct sluice_comm *comm)
{
    struct sl_family *family = comm->family;

    if (family == NULL)
        return;
    sl_links_detach(comm);
    sl_list_remove(&comm->of_family);
    comm->family = NULL;
    if (!sl_list_empty(&family->comms))
        return;
    close_connections(family);
    sl_segment_close(&family->segment);
    sl_shared_drop(family->held_seats);
    sl_shared_drop(family->held_addrs);
    free(family->buckets);
    free(family->answers);
    family->buckets = NULL;
    family->bucket_count = 0;
    sl_family_put(family);
}

void sl_family_broke(struct sl_family *family)
{
    sl_list_foreach(&family->comms, node)
    {
        if (!sl_container_of(node, struct sluice_comm, of_family)->health.torn_down)
            return;
    }
    close_connections(family);
}

int sl_family_keep_seats(struct sl_family *family, struct sl_seat *seats)
{
    int err = sl_shared_keep(seats, family->size * sizeof(*seats), &family->held_seats);

    if (err == 0)
        family->seats = sl_shared_bytes(family->held_seats);
    return err;
}

int sl_family_keep_addrs(struct sl_family *family, struct sl_wireup_addr *addrs)
{
    int err = sl_shared_keep(addrs, family->size * sizeof(*addrs), &family->held_addrs);

    if (err == 0)
        family->addrs = sl_shared_bytes(family->held_addrs);
    return err;
}

struct sluice_comm *sl_family_find(const struct sl_family *family, uint32_t channel)
{
    for (struct sl_node *node = family->comms.next; node != &family->comms; node = node->next) {
        struct sluice_comm *comm = sl_container_of(node, struct sluice_comm, of_family);

        if (comm->channel == channel)
            return comm;
    }
    return NULL;
}

uint32_t sl_family_member(const struct sluice_comm *comm, uint32_t family_rank)
{
    uint32_t rank = 0;

    if (comm->family_of == NULL)
        return family_rank;
    while (rank < comm->size && comm->family_of[rank] != family_rank)
        rank++;
    return rank;
}
