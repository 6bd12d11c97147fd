/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator's part of the state page (core/state.h).
 *
 * Each call costs a store when it begins and one when it ends: a count, with the place of what it
 * was. All else is written when a rank waits, every 20 ms: the communicator, its oldest operations,
 * what they wait for, and some of its paths in turn. So what lasts is there in full, and what is
 * over in a microsecond has been counted.
 *
 * While calls come no faster than one in SL_STATUS_PACE_NS, each is timed as well, and the page has
 * the last ones: who comes late to what all wait in is seen by these times. A training job makes
 * some thousand calls in a second; the two readings of a clock are paid by calls that are rare.
 */
#ifndef SL_COLLECTIVES_STATUS_H
#define SL_COLLECTIVES_STATUS_H

#include "collectives/plan.h"

/* First of all, as its worker needs the page's ring for events. -ENOMEM. */
int sl_status_begin(struct sluice_comm *comm);

/* After sl_status_begin(), however far it came. */
void sl_status_close(struct sluice_comm *comm);

/* Writes all anew that is due; the first time, when it is connected, others may see it. */
void sl_status_refresh(struct sluice_comm *comm);

/* Writes all of it anew, with all paths: takes a microsecond for each of them. */
void sl_status_publish(struct sluice_comm *comm);

/* Shapes of calls, as plans come and go. */
void sl_status_plan(struct sluice_comm *comm, struct sl_plan *plan);
void sl_status_plan_gone(struct sl_plan *plan);

/* Takes an operation that is over from the page, where it is. */
void sl_status_op_over(struct sluice_req *op);

/* See sl_comm_show_next() (lib/api.h). */
int sl_status_show_next(const struct sluice_comm *comm, const char *coll, const char *doing);
void sl_status_hide_next(int place);

#define SL_STATUS_PACE 64u       /* calls between two looks at the pace */
#define SL_STATUS_PACE_NS 10000u /* of a call, on average */

/* Looks whether calls are to be timed from now on. */
void sl_status_pace(struct sluice_comm *comm);

/* A timed call is over. */
void sl_status_call_over(const struct sluice_req *op);

/* On the data path: whether this call is timed. It has its number already. */
static inline void sl_status_call_begins(struct sluice_req *op)
{
    struct sl_calls *calls = &op->comm->calls;

    if (SL_UNLIKELY(++calls->paced == SL_STATUS_PACE))
        sl_status_pace(op->comm);
    if (calls->is_timed)
        op->called_ns = sl_now(op->comm->worker->clock);
}

/* On the data path: a count, with the shape of the last. The collective has its number already. */
static inline void sl_status_coll_begins(const struct sluice_comm *comm, const struct sl_plan *plan)
{
    atomic_store_explicit(&comm->shown->begun[0], plan->shown_shape | comm->calls.seq,
                          memory_order_relaxed);
}

static inline void sl_status_p2p_begins(const struct sluice_comm *comm, const struct sl_plan *plan)
{
    uint64_t count = atomic_load_explicit(&comm->shown->begun[1], memory_order_relaxed) + 1;

    atomic_store_explicit(&comm->shown->begun[1],
                          (count & ((UINT64_C(1) << SL_STATE_SHAPE_SHIFT) - 1)) | plan->shown_shape,
                          memory_order_relaxed);
}

static inline void sl_status_op_ends(struct sluice_req *op)
{
    _Atomic uint64_t *ended = &op->comm->shown->ended[op->plan->p2p];

    atomic_store_explicit(ended, atomic_load_explicit(ended, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (SL_UNLIKELY(op->shown != 0))
        sl_status_op_over(op);
}

/* Prints the communicators of this process to stderr when SIGUSR1 arrives. The handler that was
 * there is called after. */
int sl_status_install_signal(void);

#endif
