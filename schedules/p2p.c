/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules that need no plan: one message, and a communicator of one rank. */
#include "schedules/build.h"

#include "core/err.h"

static int p2p_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "p2p");
    if (shape->root == shape->rank || shape->root >= shape->size)
        return sl_fail(-ENOTSUP, "a message goes to another rank, but rank %u names rank %u of %u",
                       shape->rank, shape->root, shape->size);
    if (shape->coll == SL_SEND)
        sl_add_send(out, 0, shape->root,
                    shape->count > 0 ? sl_in(0) : (struct sl_place){SL_BUF_NONE, 0}, shape->count,
                    SL_NO_DEP);
    else
        sl_add_recv(out, 0, shape->root,
                    shape->count > 0 ? sl_out(0) : (struct sl_place){SL_BUF_NONE, 0}, shape->count,
                    SL_NO_DEP);
    return sl_schedule_finish(out);
}

static double p2p_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = &costs->shm;

    if (shape->root == shape->rank || shape->root >= shape->size)
        return -1;
    if (shape->host != NULL && shape->host[shape->rank] != shape->host[shape->root])
        link = &costs->net;
    return link->alpha + (double)shape->count * shape->esize * link->beta;
}

static int self_build(const struct sl_shape *shape, struct sl_schedule *out)
{
    uint64_t from = 0, to = 0, count = shape->count;

    sl_schedule_init(out, "self");
    if (shape->size != 1)
        return sl_fail(-ENOTSUP, "self is for communicators of one rank");
    if (shape->coll == SL_ALL_TO_ALL_V) {
        from = shape->in_offs[0];
        to = shape->out_offs[0];
        count = shape->in_counts[0];
    }
    if (!shape->in_place && count > 0 && shape->coll != SL_BARRIER)
        sl_add_copy(out, 0, sl_in(from), sl_out(to), count, SL_NO_DEP);
    return sl_schedule_finish(out);
}

static double self_cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    if (shape->size != 1)
        return -1;
    return costs->step + (double)shape->count * shape->esize * costs->copy;
}

const struct sl_algo sl_algo_p2p = {
    .name = "p2p",
    .colls = SL_BIT(SL_SEND) | SL_BIT(SL_RECV),
    .source = "",
    .build = p2p_build,
    .cost = p2p_cost,
};

const struct sl_algo sl_algo_self = {
    .name = "self",
    .colls = SL_BIT(SL_SEND) - 1,
    .source = "",
    .build = self_build,
    .cost = self_cost,
};
