/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives/speeds.h"

#include "collectives/exec.h"
#include "collectives/family.h"
#include "collectives/operation.h"
#include "core/log.h"
#include "schedules/shares.h"

#include <stdlib.h>
#include <string.h>

/* Some rank has an interface that can tell: all know what each has open. */
static bool somebody_tells(const struct sluice_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        for (unsigned i = 0; i < comm->worker->slot_count; i++)
            if ((sl_seat_of(comm, r)->all & 1u << i) != 0 &&
                comm->worker->slots[i].ops->delivers != NULL)
                return true;
    return false;
}

void sl_speeds_begin(struct sluice_comm *comm)
{
    comm->speeds.now = comm->speed;
    comm->speeds.exchanges = comm->host_count > 1 && comm->size > 2 &&
                             comm->size <= SL_SHARES_RANKS_MAX && somebody_tells(comm);
    comm->speeds.next_at = comm->calls.seq;
    comm->calls.last_plan = NULL;
}

/* This rank's, by its setting and by what its worst interface says. */
static uint32_t own_speed(const struct sluice_comm *comm)
{
    uint32_t speed = (uint32_t)comm->config.link_weight, part = SL_SPEED_MAX;

    for (unsigned i = 0; i < comm->worker->slot_count; i++) {
        const struct sl_iface *iface = comm->worker->slots[i].iface;

        if (iface != NULL && iface->ops->delivers != NULL) {
            uint32_t its = iface->ops->delivers(iface);

            part = its < part ? its : part;
        }
    }
    speed = speed * part / SL_SPEED_MAX;
    return speed != 0 ? speed : 1;
}

bool sl_speeds_in_flight(const struct sluice_comm *comm)
{
    return comm->speeds.under_way != NULL && comm->speeds.under_way->status == SL_PENDING;
}

static int make_exchange(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;
    const struct sl_call call = {
        .coll = SL_ALL_GATHER, .dtype = SLUICE_U32, .op = SLUICE_SUM, .count = 1};

    speeds->said = calloc(comm->size, sizeof(*speeds->said));
    speeds->table = calloc(comm->size, sizeof(*speeds->table));
    if (speeds->said == NULL || speeds->table == NULL)
        return sl_fail(-ENOMEM, "no memory for what %u ranks' links deliver", comm->size);
    return sl_operation_create(comm, &call, NULL, &speeds->own, speeds->said, &speeds->exchange);
}

static int begin_exchange(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;
    struct sluice_req *op;
    int err = speeds->exchange == NULL ? make_exchange(comm) : 0;

    if (err != 0)
        return err;
    speeds->own = own_speed(comm);
    err = sl_op_begin(comm, speeds->exchange->plan, &speeds->own, speeds->said, &op);
    if (err != 0)
        return err;
    speeds->under_way = op;
    speeds->next_at = comm->calls.seq + SL_SPEEDS_PERIOD;
    return 0;
}

static uint16_t in_range(uint32_t speed)
{
    return speed == 0 || speed > SL_SPEED_MAX ? SL_SPEED_MAX : (uint16_t)speed;
}

static bool is_alike(const struct sl_agreed_speeds *speeds, uint32_t size)
{
    for (uint32_t r = 1; r < size; r++)
        if (in_range(speeds->said[r]) != in_range(speeds->said[0]))
            return false;
    return true;
}

/* Whether ranks said something else than what counts now. */
static bool is_new(const struct sl_agreed_speeds *speeds, uint32_t size)
{
    bool alike = is_alike(speeds, size);

    if (alike || speeds->now == NULL)
        return alike != (speeds->now == NULL);
    for (uint32_t r = 0; r < size; r++)
        if (in_range(speeds->said[r]) != speeds->now[r])
            return true;
    return false;
}

static void take(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;

    if (!is_new(speeds, comm->size))
        return;
    for (uint32_t r = 0; r < comm->size; r++)
        speeds->table[r] = in_range(speeds->said[r]);
    speeds->now = is_alike(speeds, comm->size) ? NULL : speeds->table;
    struct sl_speeds sum = sl_speeds_of(speeds->now, comm->size);

    sl_info("comm",
            "from operation %u on, ranks' links deliver %.3f of the best ones' together, "
            "the slowest rank's %.3f",
            comm->calls.seq + 1, sum.sum / comm->size, sum.slowest);
    sl_plans_forget(comm);
}

/* The operation that the exchange was begun before. While it is in flight, a rank may not have come
 * to it, nor to the exchange, and may be waiting for what this rank's user does next. Once it is
 * over, all have begun both. */
static bool is_over_the_next(const struct sluice_comm *comm)
{
    uint32_t next = comm->speeds.under_way->seq + 1;

    sl_list_foreach(&comm->calls.active,
                    node) if (sl_container_of(node, struct sluice_req, link)->seq ==
                              next) return false;
    return true;
}

static int end_exchange(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;

    if (sl_speeds_in_flight(comm) && !is_over_the_next(comm))
        return sl_fail(-EAGAIN,
                       "an operation of %u calls ago is still in flight: test it, and then more "
                       "can begin",
                       comm->calls.seq - speeds->under_way->seq);
    sl_comm_wait(comm, &speeds->under_way->status);
    if (speeds->under_way->status != 0)
        return sl_fail_error(&comm->health.error);
    speeds->under_way = NULL;
    take(comm);
    return 0;
}

int sl_speeds_turn(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;
    int err = 0;

    if ((int32_t)(comm->calls.seq - speeds->next_at) < 0)
        return 0;
    if (speeds->under_way != NULL)
        err = end_exchange(comm);
    return err ?: begin_exchange(comm);
}

void sl_speeds_settle(struct sluice_comm *comm)
{
    const struct sl_node *active = &comm->calls.active;

    /* The user's own operations in flight are the user's mistake, which health.c tells. */
    if (sl_speeds_in_flight(comm) && comm->health.error.code == 0 && active->next->next == active)
        sl_comm_wait(comm, &comm->speeds.under_way->status);
}

void sl_speeds_end(struct sluice_comm *comm)
{
    struct sl_agreed_speeds *speeds = &comm->speeds;

    speeds->under_way = NULL;
    if (speeds->exchange != NULL)
        sl_operation_drop(speeds->exchange);
    speeds->exchange = NULL;
}
