/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The completion queue of a rail: how long it is, which interrupt it has, and that its owner is
 * alone with it.
 *
 * Whatever is posted may complete at once, when a queue pair fails all of it does, and a queue that
 * overflows is lost. So each receive buffer that waits in the shared queue has a place, and each
 * work request that a queue pair can have under way. Where they become few the queue is made
 * longer; where it cannot be, further paths have shorter send queues, and in the end none. The last
 * places are kept for connections that have no path at all.
 */
#include "verbs/config.h"
#include "verbs/iface.h"
#include "verbs/queue_pair.h"
#include "verbs/rail.h"

#include "core/log.h"

#include <stdatomic.h>
#include <unistd.h>

/* ---- its places ---- */

/* Up to wanted entries more than it is. Devices may give more than they were asked for. */
static bool lengthen(struct sl_verbs_rail *rail, uint64_t wanted)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    uint64_t entries = 2 * (uint64_t)rail->cq->cqe;
    int err = EOPNOTSUPP;

    entries = entries < wanted ? wanted : entries;
    entries = entries < rail->cq_most ? entries : rail->cq_most;
    if (entries < wanted || rail->is_lost)
        return false;
    if (ibv->ibv_resize_cq != NULL)
        err = ibv->ibv_resize_cq(rail->cq, (int)entries);
    if (err != 0) {
        sl_debug("verbs", "the completion queue of %s stays at %d entries: %s", rail->port.name,
                 rail->cq->cqe, sluice_strerror(err > 0 ? -err : -EIO));
        rail->cq_most = (unsigned)rail->cq->cqe;
        return false;
    }
    return wanted <= (uint64_t)rail->cq->cqe;
}

bool sl_verbs_cq_take(struct sl_verbs_rail *rail, unsigned places)
{
    uint64_t wanted = (uint64_t)rail->cq_taken + places;

    if (wanted > (uint64_t)rail->cq->cqe && !lengthen(rail, wanted))
        return false;
    rail->cq_taken += places;
    return true;
}

/* For the first paths of connections: each as small as can be. */
static unsigned kept(const struct sl_verbs_rail *rail)
{
    unsigned receives = rail->srq_room != 0 ? 0 : SL_VERBS_OWN_SLOTS_MIN;

    return SL_VERBS_FIRST_PATHS * (SL_VERBS_SQ_WRS_MIN + receives);
}

bool sl_verbs_cq_take_further(struct sl_verbs_rail *rail, unsigned places)
{
    if (!sl_verbs_cq_take(rail, places + kept(rail)))
        return false;
    sl_verbs_cq_give(rail, kept(rail));
    return true;
}

unsigned sl_verbs_cq_take_sends(struct sl_verbs_rail *rail, unsigned receives, bool is_first)
{
    unsigned all = SL_VERBS_SQ_WRS + receives, few = SL_VERBS_SQ_WRS_MIN + receives;
    /* Half of it is for those that come later. */
    bool ample = 2 * ((uint64_t)rail->cq_taken + all) <= rail->cq_most;

    if (ample && sl_verbs_cq_take(rail, all))
        return SL_VERBS_SQ_WRS;
    return (is_first ? sl_verbs_cq_take(rail, few) : sl_verbs_cq_take_further(rail, few))
               ? SL_VERBS_SQ_WRS_MIN
               : 0;
}

void sl_verbs_cq_give(struct sl_verbs_rail *rail, unsigned places)
{
    rail->cq_taken -= places;
}

/* ---- its owner ---- */

/* All queues of a rail belong to whoever is inside the worker, so the driver needs no locks of its
 * own for them. Memory is registered with the plain domain: other threads do that, too. */
static int domain_open(struct sl_verbs_rail *rail)
{
    int64_t wanted = sl_verbs_config(rail->iface->config)->thread_domain;
    struct ibv_td_init_attr td = {0};
    struct ibv_parent_domain_init_attr attr = {0};
    int err = sl_verbs_device_pd(rail->device, &attr.pd);

    if (err != 0)
        return err;
    rail->domain = attr.pd;
    if (wanted == SL_OFF)
        return 0;
    errno = 0;
    attr.td = ibv_alloc_td(rail->device->context, &td);
    if (attr.td != NULL)
        rail->domain = ibv_alloc_parent_domain(rail->device->context, &attr);
    rail->td = attr.td;
    if (attr.td != NULL && rail->domain != NULL)
        return 0;
    err = errno != 0 ? -errno : -EOPNOTSUPP;
    rail->domain = attr.pd;
    if (rail->td != NULL)
        (void)ibv_dealloc_td(rail->td);
    rail->td = NULL;
    if (wanted == SL_ON)
        return sl_fail(
            err,
            "%s has no thread domains, which SLUICE_VERBS_THREAD_DOMAIN=on asks for: %s; "
            "set it to auto",
            rail->port.name, sluice_strerror(err));
    sl_debug("verbs", "%s has no thread domain: %s", rail->port.name, sluice_strerror(err));
    return 0;
}

/* ---- its interrupt ---- */

/* Interrupts go to different processors by their vector. Ranks of a host take the next ones: by
 * their number there or, where nobody tells, their process's, which is mostly as good. */
static int vector_choose(const struct sl_verbs_rail *rail, int *out)
{
    static _Atomic unsigned opened;
    const struct sl_config *config = rail->iface->config;
    int64_t wanted = sl_verbs_config(config)->comp_vector;
    int count = rail->device->context->num_comp_vectors;
    unsigned first = config->local_rank >= 0 ? (unsigned)config->local_rank : (unsigned)getpid();

    count = count < 1 ? 1 : count;
    if (wanted >= count)
        return sl_fail(-EINVAL,
                       "%s has %d completion vectors, from 0 on: SLUICE_VERBS_COMP_VECTOR=%lld is "
                       "none of them",
                       rail->port.name, count, (long long)wanted);
    *out = wanted >= 0
               ? (int)wanted
               : (int)((first + atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed)) %
                       (unsigned)count);
    return 0;
}

/* ---- its life ---- */

/* With a thread domain as one that a single thread uses; drivers that know no such thing refuse. */
static struct ibv_cq *create(struct sl_verbs_rail *rail, int entries, int vector)
{
    struct ibv_cq_init_attr_ex attr = {
        .cqe = (uint32_t)entries,
        .cq_context = &rail->listener,
        .channel = rail->channel,
        .comp_vector = (uint32_t)vector,
        .wc_flags = IBV_WC_STANDARD_FLAGS,
        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
        .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        .parent_domain = rail->domain,
    };
    struct ibv_cq_ex *cq = NULL;

    if (rail->td != NULL)
        cq = ibv_create_cq_ex(rail->device->context, &attr);
    if (cq != NULL)
        return ibv_cq_ex_to_cq(cq);
    return (rail->iface->ibv->ibv_create_cq)(rail->device->context, entries, &rail->listener,
                                             rail->channel, vector);
}

int sl_verbs_cq_open(struct sl_verbs_rail *rail, unsigned entries, unsigned most)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    int vector = 0, err = domain_open(rail);

    if (err == 0)
        err = vector_choose(rail, &vector);
    if (err != 0)
        return err;
    rail->cq_most = most;
    rail->cq_taken = 0;
    rail->channel = ibv->ibv_create_comp_channel(rail->device->context);
    rail->cq = rail->channel == NULL ? NULL : create(rail, (int)entries, vector);
    if (rail->cq == NULL) {
        err = errno != 0 ? errno : ENOMEM;
        return sl_fail(-err, "%s gives no completion %s: %s", rail->port.name,
                       rail->channel == NULL ? "channel" : "queue", sluice_strerror(-err));
    }
    sl_debug("verbs", "%s has a completion queue of %d entries at vector %d%s", rail->port.name,
             rail->cq->cqe, vector, rail->td != NULL ? ", of a thread domain" : "");
    return 0;
}

void sl_verbs_cq_close(struct sl_verbs_rail *rail)
{
    const struct sl_ibv *ibv = rail->iface->ibv;

    if (rail->cq != NULL) {
        if (rail->cq_events != 0)
            ibv->ibv_ack_cq_events(rail->cq, rail->cq_events);
        ibv->ibv_destroy_cq(rail->cq);
    }
    if (rail->channel != NULL)
        ibv->ibv_destroy_comp_channel(rail->channel);
    if (rail->td != NULL) {
        (ibv->ibv_dealloc_pd)(rail->domain);
        (void)ibv_dealloc_td(rail->td);
    }
}
