/* SPDX-License-Identifier: Apache-2.0 */
/* Makes communicators that are split from another one. */
#include "collectives/child.h"

#include "collectives/connect.h"
#include "collectives/family.h"
#include "collectives/status.h"
#include "core/log.h"
#include "core/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_child_offer(struct sluice_comm *parent, struct sl_split_word *word)
{
    struct sl_family *family = parent->family;

    word->channel = 0;
    word->area = SL_NO_AREA;
    if (word->color < 0)
        return;
    word->channel = family->next_channel++;
    word->area = sl_windows_offer(family);
}

void sl_child_withdraw(struct sluice_comm *parent, struct sl_split_word *word)
{
    if (word->area != SL_NO_AREA)
        sl_segment_give(&parent->family->segment, word->area);
    word->area = SL_NO_AREA;
}

/* ---- its parts ---- */

/* The highest that a member offers is free for all of them, unless another split took it since. */
static int take_channel(struct sluice_comm *child, struct sl_family *family,
                        const struct sl_split_word *words, const int *members)
{
    for (uint32_t r = 0; r < child->size; r++)
        if (words[members[r]].channel > child->channel)
            child->channel = words[members[r]].channel;
    if (child->channel >= family->next_channel)
        family->next_channel = child->channel + 1;
    return child->channel <= SL_CHANNEL_FIRST ? sl_fail(-EPROTO, "no rank of a split has a channel")
           : sl_family_find(family, child->channel) != NULL
               ? sl_fail(-EAGAIN, "channel %u is taken", child->channel)
               : 0;
}

static int take_ranks(struct sluice_comm *child, const struct sluice_comm *parent,
                      const int *members)
{
    uint32_t *ranks = calloc(child->size, sizeof(*ranks));
    int err;

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory to split %u ranks", parent->size);
    for (uint32_t r = 0; r < child->size; r++)
        ranks[r] = sl_family_rank(parent, (uint32_t)members[r]);
    err = sl_shared_keep(ranks, child->size * sizeof(*ranks), &child->held_family_of);
    if (err == 0)
        child->family_of = sl_shared_bytes(child->held_family_of);
    return err;
}

static int take_areas(struct sluice_comm *child, const struct sl_split_word *words,
                      const int *members)
{
    uint32_t *areas = calloc(child->size, sizeof(*areas));
    int err;

    if (areas == NULL)
        return sl_fail(-ENOMEM, "no memory to split %u ranks", child->size);
    for (uint32_t r = 0; r < child->size; r++)
        areas[r] = words[members[r]].area;
    err = sl_windows_share(child, areas);
    free(areas);
    return err;
}

/* What the parent measured holds for its ranks. How many share a core may differ. */
static void inherit_costs(struct sluice_comm *child, const struct sluice_comm *parent)
{
    uint32_t ranks_per_core = child->costs.ranks_per_core;

    child->costs = parent->costs;
    child->costs.ranks_per_core = ranks_per_core;
    child->correction = parent->correction;
    memcpy(child->costs_source, parent->costs_source, sizeof(child->costs_source));
}

static uint64_t mix_id(uint64_t parent, uint32_t channel)
{
    return (uint32_t)((parent + channel) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static int fill(struct sluice_comm *child, const struct sluice_comm *parent,
                const struct sl_split_word *words, const int *members)
{
    int err = take_channel(child, parent->family, words, members);

    if (err == 0 && sl_status_begin(child) != 0)
        err = sl_fail(-ENOMEM, "no memory for the events of a communicator");
    err = err ?: take_ranks(child, parent, members);
    if (err != 0)
        return err;
    sl_family_join(parent->family, child);
    child->id = mix_id(parent->id, child->channel);
    err = sl_seats_take(child);
    if (err != 0)
        return err;
    sl_comm_set_spin(child);
    inherit_costs(child, parent);
    return take_areas(child, words, members);
}

int sl_child_make(struct sluice_comm *parent, const struct sl_split_word *words, const int *members,
                  int count, struct sl_split_word *mine, struct sluice_comm **out)
{
    struct sluice_comm *child;
    uint32_t rank = 0;

    while (members[rank] != (int)parent->rank)
        rank++;
    int err = sl_comm_alloc(&parent->config, rank, (uint32_t)count, &child);

    if (err != 0)
        return err;
    sl_worker_get(parent->worker);
    child->worker = parent->worker;
    child->wait.poke = parent->wait.poke;
    child->wait.poke_arg = parent->wait.poke_arg;
    child->stream_min = parent->stream_min; /* asking the machine takes longer than all else here */
    err = fill(child, parent, words, members);
    if (err != 0) {
        struct sl_error first;

        sl_error_take(err, &first);
        sl_comm_free(child);
        return sl_fail_error(&first);
    }
    if (child->win.slots != NULL)
        mine->area = SL_NO_AREA;
    *out = child;
    return 0;
}

int sl_child_start(struct sluice_comm *child)
{
    int err;

    child->created = true;
    sl_reach_tree(child, false);
    err = sl_comm_join(child);
    if (err != 0)
        return err;
    sl_status_refresh(child);
    sl_debug("comm", "rank %u of %u of a split, %u on this host, %s windows", child->rank,
             child->size, child->local_size, child->win.slots != NULL ? "with" : "without");
    return 0;
}

void sl_child_drop(struct sluice_comm *child)
{
    if (child == NULL)
        return;
    if (child->win.slots != NULL)
        sl_segment_give(&child->family->segment, child->win.area);
    sl_comm_free(child);
}
