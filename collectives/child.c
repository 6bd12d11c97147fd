/* SPDX-License-Identifier: Apache-2.0 */
/* Makes communicators that join a family. */
#include "collectives/child.h"

#include "collectives/connect.h"
#include "collectives/family.h"
#include "collectives/speeds.h"
#include "collectives/status.h"
#include "core/log.h"
#include "core/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_place_offer(struct sl_family *family, struct sl_place *place)
{
    place->family_rank = family->rank;
    place->channel = family->next_channel++;
    place->area = sl_windows_offer(family);
}

void sl_place_withdraw(struct sl_family *family, struct sl_place *place)
{
    if (place->area != SL_NO_AREA && family->segment.mem.addr != NULL)
        sl_segment_give(&family->segment, place->area);
    place->area = SL_NO_AREA;
}

/* ---- its parts ---- */

/* The highest that a member offers is free for all of them, unless another one took it since. */
static int take_channel(struct sluice_comm *child, struct sl_family *family,
                        const struct sl_place *places)
{
    for (uint32_t r = 0; r < child->size; r++)
        if (places[r].channel > child->channel)
            child->channel = places[r].channel;
    if (child->channel >= family->next_channel)
        family->next_channel = child->channel + 1;
    return child->channel <= SL_CHANNEL_FIRST
               ? sl_fail(-EPROTO, "no rank of a new communicator has a channel")
           : sl_family_find(family, child->channel) != NULL
               ? sl_fail(-EAGAIN, "channel %u is taken", child->channel)
               : 0;
}

static int take_ranks(struct sluice_comm *child, const struct sl_place *places)
{
    uint32_t *ranks = calloc(child->size, sizeof(*ranks));
    int err;

    if (ranks == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of %u ranks", child->size);
    for (uint32_t r = 0; r < child->size; r++)
        ranks[r] = places[r].family_rank;
    err = sl_shared_keep(ranks, child->size * sizeof(*ranks), &child->held_family_of);
    if (err == 0)
        child->family_of = sl_shared_bytes(child->held_family_of);
    return err;
}

static int take_areas(struct sluice_comm *child, const struct sl_place *places)
{
    uint32_t *areas = calloc(child->size, sizeof(*areas));
    int err;

    if (areas == NULL)
        return sl_fail(-ENOMEM, "no memory for a communicator of %u ranks", child->size);
    for (uint32_t r = 0; r < child->size; r++)
        areas[r] = places[r].area;
    err = sl_windows_share(child, areas);
    free(areas);
    return err;
}

/* What another one measured holds for its ranks, too. How many share a core may differ. */
static void inherit(struct sluice_comm *child, const struct sluice_comm *like)
{
    uint32_t ranks_per_core = child->costs.ranks_per_core;

    child->costs = like->costs;
    child->costs.ranks_per_core = ranks_per_core;
    child->correction = like->correction;
    memcpy(child->costs_source, like->costs_source, sizeof(child->costs_source));
    child->codec_name = like->codec_name;
    child->stream_min = like->stream_min; /* asking the machine takes longer than all else here */
    child->wait.poke = like->wait.poke;
    child->wait.poke_arg = like->wait.poke_arg;
}

/* Those that one split makes have one channel: their first members tell them apart. */
static uint64_t mix_id(uint64_t id, uint32_t channel, uint32_t first)
{
    id += channel + ((uint64_t)first << 32);
    return (uint32_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static int fill(struct sluice_comm *child, const struct sl_child_params *params)
{
    struct sl_family *family = params->like->family;
    int err = take_channel(child, family, params->places);

    if (err == 0 && sl_status_begin(child) != 0)
        err = sl_fail(-ENOMEM, "no memory for the events of a communicator");
    err = err ?: take_ranks(child, params->places);
    if (err != 0)
        return err;
    sl_family_join(family, child);
    child->id = mix_id(params->id, child->channel, params->places[0].family_rank);
    err = sl_seats_take(child);
    if (err != 0)
        return err;
    sl_comm_set_spin(child);
    inherit(child, params->like);
    err = take_areas(child, params->places);
    return err ?: sl_comm_join(child);
}

int sl_child_make(const struct sl_child_params *params, struct sluice_comm **out)
{
    struct sluice_comm *child;
    int err = sl_comm_alloc(params->config, params->rank, params->size, &child);

    if (err != 0)
        return err;
    child->worker = params->like->worker;
    sl_worker_get(child->worker);
    err = fill(child, params);
    if (err != 0) {
        struct sl_error first;

        sl_error_take(err, &first);
        sl_comm_free(child);
        return sl_fail_error(&first);
    }
    if (child->win.slots != NULL)
        params->mine->area = SL_NO_AREA;
    *out = child;
    return 0;
}

void sl_child_start(struct sluice_comm *child)
{
    child->created = true;
    sl_speeds_begin(child);
    if (child->health.error.code == 0)
        sl_reach_tree(child, false);
    sl_status_refresh(child);
    sl_debug("comm", "rank %u of %u shares connections, %u on this host, %s windows", child->rank,
             child->size, child->local_size, child->win.slots != NULL ? "with" : "without");
}

void sl_child_drop(struct sluice_comm *child)
{
    struct sl_worker *worker;

    if (child == NULL)
        return;
    worker = child->worker;
    if (child->win.slots != NULL)
        sl_segment_give(&child->family->segment, child->win.area);
    sl_worker_get(worker);
    sl_family_leave(child);
    sl_worker_leave(worker, &child->member);
    sl_comm_free(child);
    sl_worker_put(worker);
}
