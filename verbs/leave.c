/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs on their way out.
 *
 * One that shares a receive queue may have taken a buffer of it for a message that never came
 * whole. Its device gives that buffer back by a flushed completion, some time after the queue pair
 * went to ERR, and says by LAST_WQE_REACHED that no more will come. mlx5 drops what is not polled
 * yet when a queue pair is destroyed: then the buffer is neither at the NIC nor free, for ever.
 *
 *   path closes -> the queue pair, in ERR, waits here -> LAST_WQE_REACHED, or LEAVE_NS are over
 *               -> the completion queue was seen empty -> ibv_destroy_qp()
 *
 * Meanwhile its path may have another one. Nothing waits for any of this.
 */
#include "verbs/iface.h"
#include "verbs/rail.h"

#include "core/log.h"

#include <stdlib.h>

#define LEAVE_NS (100 * SL_NS_PER_MS) /* for an event that not all devices raise */
#define LEAVE_LOOKS 16                /* by then: the thread itself may have been away */
#define POLL_MAX 256                  /* completions of one attempt to see the queue empty */

struct sl_verbs_leaving {
    struct sl_verbs_leaving *next;
    struct ibv_qp *qp;
    unsigned places; /* in the completion queue */
    uint64_t until_ns;
    unsigned looks;
    bool is_due;
};

static void destroy(struct sl_verbs_rail *rail, struct ibv_qp *qp, unsigned places)
{
    (rail->iface->ibv->ibv_destroy_qp)(qp);
    sl_verbs_cq_give(rail, places);
}

void sl_verbs_leave(struct sl_verbs_rail *rail, struct ibv_qp *qp, unsigned places)
{
    struct sl_verbs_leaving *leaving = rail->is_lost ? NULL : malloc(sizeof(*leaving));

    if (leaving == NULL) {
        destroy(rail, qp, places);
        return;
    }
    *leaving = (struct sl_verbs_leaving){.next = rail->leaving,
                                         .qp = qp,
                                         .places = places,
                                         .until_ns =
                                             sl_now(rail->iface->mp.base.worker->clock) + LEAVE_NS};
    rail->leaving = leaving;
}

void sl_verbs_leave_reached(struct sl_verbs_rail *rail, uint32_t qpn)
{
    for (struct sl_verbs_leaving *leaving = rail->leaving; leaving != NULL; leaving = leaving->next)
        leaving->is_due |= leaving->qp->qp_num == qpn;
}

static bool any_due(struct sl_verbs_rail *rail, uint64_t now_ns)
{
    bool any = false;

    for (struct sl_verbs_leaving *leaving = rail->leaving; leaving != NULL;
         leaving = leaving->next) {
        leaving->is_due |= ++leaving->looks > LEAVE_LOOKS && now_ns >= leaving->until_ns;
        any |= leaving->is_due;
    }
    return any;
}

static void end(struct sl_verbs_rail *rail, bool all)
{
    struct sl_verbs_leaving **at = &rail->leaving;

    while (*at != NULL) {
        struct sl_verbs_leaving *leaving = *at;

        if (!all && !leaving->is_due) {
            at = &leaving->next;
            continue;
        }
        *at = leaving->next;
        destroy(rail, leaving->qp, leaving->places);
        free(leaving);
    }
}

void sl_verbs_leave_timers(struct sl_verbs_rail *rail, uint64_t now_ns)
{
    if (SL_LIKELY(rail->leaving == NULL))
        return;
    if (!rail->is_lost &&
        (!any_due(rail, now_ns) || sl_verbs_rail_poll(rail, POLL_MAX) >= POLL_MAX))
        return;
    end(rail, rail->is_lost);
}

void sl_verbs_leave_now(struct sl_verbs_rail *rail)
{
    end(rail, true);
}
