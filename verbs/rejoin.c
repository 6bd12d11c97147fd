/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lost rail on its way back, and one in reserve that is needed.
 *
 *   asleep      never opened; a path is to be made there, and it begins as usable, while its memory
 *               is registered
 *   lost        its paths end; what waits in its receive buffers moves out
 *    |          once nothing of it is in use, and its device can be opened: all is opened anew
 *   registering what users have registered, by a thread: gigabytes take seconds, in which
 *    |          the other rails go on
 *   usable      peers hear of it, paths are offered; what was cleared to send gets the new keys
 *
 * Keys of the dead device must not be used on the new one, which may give the same numbers to other
 * memory: sl_mp_rail_renewed().
 */
#include "verbs/iface.h"
#include "verbs/queue_pair.h"
#include "verbs/rail.h"

#include "core/log.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define IN_USE_NS (20 * SL_NS_PER_MS) /* between looks at what is left of the old device */
#define RETRY_MAX_NS (30 * SL_NS_PER_S)

/* What the thread registers is found by nobody before the owner has claimed it: a user may take
 * its memory back meanwhile, and others may lie at those addresses. */
struct sl_verbs_rejoin {
    struct sl_verbs_memory *memory;
    pthread_t thread;
    bool has_thread;
    _Atomic bool done, stop;
    unsigned count;
    struct ahead {
        struct sl_mem mem;
        struct sl_verbs_mr *mr; /* the owner's */
        _Atomic bool is_gone;   /* its user has taken it back */
        struct ibv_mr *made;    /* the thread's until it is done */
    } items[];
};

/* ---- the thread ---- */

/* What fails here fails once more where it can be told. */
static void *register_ahead(void *arg)
{
    struct sl_verbs_rejoin *rejoin = arg;

    for (unsigned i = 0; i < rejoin->count && !atomic_load(&rejoin->stop); i++) {
        struct ahead *item = &rejoin->items[i];

        if (!atomic_load(&item->is_gone) && !sl_verbs_memory_has(rejoin->memory, &item->mem))
            (void)sl_verbs_memory_make(rejoin->memory, &item->mem, rejoin->memory->writers,
                                       &item->made);
    }
    atomic_store(&rejoin->done, true);
    return NULL;
}

/* In virtual time nothing happens beside the caller. Without a thread all is registered later, by
 * the caller as well. */
static void thread_start(struct sl_verbs_rejoin *rejoin, const struct sl_clock *clock)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rejoin->has_thread = clock == &sl_clock_monotonic && rejoin->count > 0 &&
                         pthread_create(&rejoin->thread, NULL, register_ahead, rejoin) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rejoin->has_thread)
        atomic_store(&rejoin->done, true);
}

/* GPU memory is not pinned by being registered, and its driver wants its user's thread. */
static struct sl_verbs_rejoin *rejoin_new(const struct sl_verbs_rail *rail)
{
    const struct sl_verbs_iface *iface = rail->iface;
    unsigned count = 0;

    sl_list_foreach(&iface->regions, node) count++;
    struct sl_verbs_rejoin *rejoin = calloc(1, sizeof(*rejoin) + count * sizeof(rejoin->items[0]));

    if (rejoin == NULL)
        return NULL;
    rejoin->memory = rail->memory;
    sl_list_foreach(&iface->regions, node)
    {
        struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);
        struct ahead *item = &rejoin->items[rejoin->count];

        if (mr->base.is_gpu || mr->is_gone || !rail->has_memory)
            continue;
        item->mr = mr;
        item->mem =
            (struct sl_mem){.addr = mr->addr, .len = mr->base.len, .kind = SL_MEM_HOST, .fd = -1};
        rejoin->count++;
    }
    thread_start(rejoin, iface->mp.base.worker->clock);
    return rejoin;
}

void sl_verbs_rejoin_end(struct sl_verbs_rail *rail)
{
    struct sl_verbs_rejoin *rejoin = rail->rejoin;

    if (rejoin == NULL)
        return;
    atomic_store(&rejoin->stop, true);
    if (rejoin->has_thread)
        pthread_join(rejoin->thread, NULL);
    for (unsigned i = 0; i < rejoin->count; i++)
        if (rejoin->items[i].made != NULL)
            sl_verbs_memory_end(rejoin->memory, rejoin->items[i].made);
    free(rejoin);
    rail->rejoin = NULL;
}

void sl_verbs_rejoin_forget(struct sl_verbs_rail *rail, const struct sl_verbs_mr *mr)
{
    struct sl_verbs_rejoin *rejoin = rail->rejoin;

    for (unsigned i = 0; rejoin != NULL && i < rejoin->count; i++)
        if (rejoin->items[i].mr == mr) {
            rejoin->items[i].mr = NULL;
            atomic_store(&rejoin->items[i].is_gone, true);
        }
}

/* What is not claimed here is registered by sl_verbs_mem_join(), which tells why it cannot be. */
static void claim_made(struct sl_verbs_rail *rail)
{
    struct sl_verbs_rejoin *rejoin = rail->rejoin;

    for (unsigned i = 0; i < rejoin->count; i++) {
        struct ahead *item = &rejoin->items[i];

        if (item->mr == NULL || item->made == NULL)
            continue;
        (void)sl_verbs_memory_adopt(rejoin->memory, &item->mem, item->made,
                                    &item->mr->claims[rail->base.idx]);
        item->made = NULL;
    }
}

/* ---- the rail ---- */

static bool in_use(const struct sl_verbs_rail *rail)
{
    const struct sl_verbs_iface *iface = rail->iface;

    for (uint32_t i = 0; i < iface->path_cap; i++)
        if (iface->paths[i] != NULL && iface->paths[i]->rail == rail && iface->paths[i]->qp != NULL)
            return true;
    return sl_verbs_slots_in_hands(rail);
}

/* Closed, as some drivers (soft-RoCE's) let a device go only when nobody has it open; and opened,
 * if it is there. */
static int reopen(struct sl_verbs_rail *rail)
{
    int err;

    if (rail->device != NULL) {
        sl_verbs_mem_leave(rail);
        sl_verbs_rail_close(rail);
    }
    err = sl_verbs_rail_open(rail);
    if (err != 0)
        return err;
    err = sl_verbs_rail_provide(rail, rail->iface->mp.conn_count);
    if (err == 0)
        rail->rejoin = rejoin_new(rail);
    if (err == 0 && rail->rejoin == NULL)
        err = sl_fail(-ENOMEM, "no memory for a list of regions");
    return err;
}

/* A device that is not there may be back at any moment; one that is there and cannot be used costs
 * more with each attempt than it is likely to bring. */
static void lose_again(struct sl_verbs_rail *rail, int err)
{
    bool is_first = rail->retry_ns == SL_VERBS_RETURN_NS;

    if (rail->device != NULL) {
        sl_verbs_mem_leave(rail);
        sl_verbs_rail_close(rail);
    }
    rail->is_lost = true;
    rail->reread_at_ns = sl_now(rail->iface->mp.base.worker->clock) + rail->retry_ns;
    if (err == -ENODEV) {
        rail->retry_ns = SL_VERBS_RETURN_NS;
        return;
    }
    rail->retry_ns = 2 * rail->retry_ns < RETRY_MAX_NS ? 2 * rail->retry_ns : RETRY_MAX_NS;
    snprintf(rail->base.why, sizeof(rail->base.why), "%s", sluice_last_error());
    if (is_first)
        sl_warn("verbs", "%s cannot be used again yet: %s", rail->port.name, rail->base.why);
    else
        sl_debug("verbs", "%s still cannot be used again: %s", rail->port.name, rail->base.why);
}

/* Its paths were made meanwhile. */
static void joined(struct sl_verbs_rail *rail, int err)
{
    char why[sizeof(rail->base.why)];

    if (rail->is_lost)
        return; /* it is on its way back from there */
    if (err < 0) {
        snprintf(why, sizeof(why), "%s", sluice_last_error());
        sl_verbs_rail_lose(rail, why);
        return;
    }
    rail->iface->mp.uneven = !sl_verbs_mem_is_even(rail->iface);
    sl_mp_rail_joined(&rail->iface->mp);
    sl_verbs_rail_refresh(rail);
}

/* What is registered comes to it, and what was cleared to send without it is said once more. */
static int join(struct sl_verbs_rail *rail)
{
    rail->has_memory = true; /* what comes is for it as well */
    rail->rejoin = rejoin_new(rail);
    if (rail->rejoin == NULL) {
        rail->has_memory = false;
        return sl_fail(-ENOMEM, "no memory for a list of regions");
    }
    rail->is_joining = rail->iface->mp.uneven = true;
    return 0;
}

int sl_verbs_rail_use(struct sl_verbs_rail *rail)
{
    if (rail->has_memory)
        return 0;
    if (!sl_list_empty(&rail->iface->regions))
        return join(rail);
    rail->has_memory = true;
    return 0;
}

static int wake(struct sl_verbs_rail *rail)
{
    int err = sl_verbs_rail_open(rail);

    if (err == 0)
        err = sl_verbs_rail_provide(rail, rail->iface->mp.conn_count);
    if (err == 0)
        err = sl_verbs_pools_join(rail);
    if (err != 0)
        return err;
    sl_verbs_rail_refresh(rail); /* what was known of its port is from when it was listed */
    if (rail->is_lost)
        return sl_fail(-ENODEV, "%s", rail->base.why);
    rail->has_memory = true;
    return rail->iface->mp.conn_count > 0 || !sl_list_empty(&rail->iface->regions) ? join(rail) : 0;
}

int sl_verbs_rail_wake(struct sl_verbs_rail *rail)
{
    char why[sizeof(rail->base.why)];

    if (!rail->is_asleep)
        return 0;
    /* Each holds up the others' traffic for some milliseconds: no second one in this turn. */
    rail->iface->mp.opens = 0;
    int err = wake(rail);

    if (err != 0) {
        snprintf(why, sizeof(why), "%s", sluice_last_error());
        rail->is_asleep = false;
        if (rail->device == NULL)
            rail->is_lost = false; /* as it slept: nobody has been told */
        sl_verbs_rail_lose(rail, why);
        return sl_fail(err, "%s", why);
    }
    sl_info("verbs", "%s was in reserve, and is opened now", rail->port.name);
    return rail->base.usable ? 0 : sl_fail(-ENETDOWN, "%s: %s", rail->port.name, rail->base.why);
}

static void complete(struct sl_verbs_rail *rail)
{
    bool was_joining = rail->is_joining;
    int err = 0;

    if (!rail->is_lost) {
        claim_made(rail);
        err = sl_verbs_mem_join(rail);
    }
    sl_verbs_rejoin_end(rail);
    rail->is_joining = false;
    if (was_joining) {
        joined(rail, err);
        return;
    }
    if (err >= 0 && rail->is_lost)
        err = sl_fail(-EIO, "it was lost again: %s", rail->base.why);
    if (err < 0) {
        lose_again(rail, err);
        return;
    }
    rail->retry_ns = SL_VERBS_RETURN_NS;
    rail->iface->mp.uneven = !sl_verbs_mem_is_even(rail->iface);
    sl_mp_rail_renewed(&rail->iface->mp, &rail->base);
    sl_verbs_rail_refresh(rail);
}

void sl_verbs_rail_rejoin(struct sl_verbs_rail *rail, uint64_t now_ns)
{
    if (rail->rejoin != NULL) {
        if (atomic_load(&rail->rejoin->done))
            complete(rail);
        return;
    }
    if (now_ns < rail->reread_at_ns)
        return;
    sl_mp_rail_vacate(&rail->iface->mp, &rail->base);
    if (in_use(rail)) {
        rail->reread_at_ns = now_ns + IN_USE_NS;
        return;
    }
    int err = reopen(rail);

    if (err != 0)
        lose_again(rail, err);
}
