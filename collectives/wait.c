/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress, and what a thread does while nothing moves: it polls, yields or sleeps, by how many
 * ranks share the cores of this host, and looks at the clock from time to time for deadlines.
 */
#include "collectives/exec.h"
#include "collectives/health.h"
#include "collectives/kin.h"
#include "collectives/status.h"

#include "core/wireup.h"

#include <poll.h>
#include <sched.h>

#define PASSES_PER_LOOK 64 /* passes without a move between looks at the clock */
#define PASSES_TO_POLL 256 /* passes before the core is offered to others: some microseconds */
#define BUDGET 64          /* requests that a transport may finish per pass */
#define WIREUP_FDS_MAX 64
#define SLEEP_MAX_MS 50 /* so that statuses and deadlines are looked after */
#define PAGE_NS (20 * SL_NS_PER_MS)

/* All of them, or those that have this capability. */
static inline unsigned progress_transports(struct sluice_comm *comm, uint32_t cap)
{
    unsigned moved = 0;

    for (unsigned i = 0; i < comm->iface_count && comm->health.error.code == 0; i++) {
        struct sl_iface_slot *slot = &comm->ifaces[i];

        if (slot->iface == NULL || (slot->iface->caps & cap) != cap)
            continue;
        int n = slot->ops->progress(slot->iface, BUDGET);

        if (SL_UNLIKELY(n < 0))
            sl_comm_fail(comm, n, -1, "transport %s is lost: %s", slot->ops->name,
                         sluice_last_error());
        else
            moved += (unsigned)n;
    }
    return moved;
}

void sl_comm_mend(struct sluice_comm *comm)
{
    for (unsigned pass = 0; pass < SL_KEEPER_PASSES && comm->health.error.code == 0; pass++)
        progress_transports(comm, SL_CAP_REPAIRS);
    if (comm->health.error.code != 0)
        sl_health_tear_down(comm);
}

unsigned sl_comm_progress(struct sluice_comm *comm)
{
    unsigned moved, steps = 0;

    if (SL_UNLIKELY(atomic_load_explicit(&comm->health.abort_asked, memory_order_relaxed) != 0))
        sl_comm_fail(comm, -ECANCELED, -1, "rank %u aborted the communicator", comm->rank);
    moved = progress_transports(comm, 0);
    sl_list_foreach(&comm->calls.active, node) steps +=
        sl_op_run(sl_container_of(node, struct sluice_req, link));
    comm->wait.steps_run += steps;
    if (SL_UNLIKELY(comm->health.error.code != 0))
        sl_health_tear_down(comm);
    return moved + steps;
}

static uint64_t count_moves(const struct sluice_comm *comm)
{
    uint64_t moves = comm->wait.steps_run;

    for (unsigned i = 0; i < comm->iface_count; i++)
        if (comm->ifaces[i].iface != NULL)
            moves += comm->ifaces[i].iface->traffic;
    return moves;
}

/* Counts the time in which no data moved. A gap between two looks counts little: the caller may
 * have been away computing, and peers had no reason to move then. */
static void look_at_clock(struct sluice_comm *comm)
{
    uint64_t now = sl_now(comm->worker.clock), moves = count_moves(comm);
    uint64_t gap_max = (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 8;
    uint64_t gap = comm->wait.checked_ns != 0 ? now - comm->wait.checked_ns : 0;

    comm->wait.idle_ns =
        moves != comm->wait.moves ? 0 : comm->wait.idle_ns + (gap < gap_max ? gap : gap_max);
    comm->wait.moves = moves;
    comm->wait.checked_ns = now;
    if (comm->wait.idle_since_ns == 0)
        comm->wait.idle_since_ns = now;
    if (comm->wireup != NULL)
        sl_wireup_progress(comm->wireup, now);
    sl_health_tick(comm, now);
    if (now - comm->page_written_ns >= PAGE_NS) {
        comm->page_written_ns = now;
        sl_status_refresh(comm);
    }
}

static void disarm(struct sluice_comm *comm, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (comm->ifaces[i].iface != NULL && (comm->ifaces[i].iface->caps & SL_CAP_WAKEUP) != 0)
            comm->ifaces[i].ops->disarm(comm->ifaces[i].iface);
}

/* Sleeps until a transport has work, or SLEEP_MAX_MS. */
static void park(struct sluice_comm *comm)
{
    struct pollfd fds[SL_IFACES_MAX + WIREUP_FDS_MAX];
    nfds_t count = 0;
    /* Bells of other communicators, and of another library, do not ring here. */
    int timeout_ms = comm->worker.poke != NULL || comm->calls.at_work != 0 || sl_kin_busy(comm)
                         ? 1
                         : SLEEP_MAX_MS;

    for (unsigned i = 0; i < comm->iface_count; i++) {
        struct sl_iface_slot *slot = &comm->ifaces[i];

        if (slot->iface == NULL)
            continue;
        if ((slot->iface->caps & SL_CAP_WAKEUP) == 0) {
            timeout_ms = 1; /* it cannot wake us */
            continue;
        }
        if (slot->ops->arm(slot->iface) != 0) {
            disarm(comm, i + 1);
            return; /* work slipped in */
        }
        fds[count++] = (struct pollfd){.fd = slot->ops->fd(slot->iface), .events = POLLIN};
    }
    unsigned wireup =
        comm->wireup != NULL ? sl_wireup_fds(comm->wireup, fds + count, WIREUP_FDS_MAX) : 0;

    if (wireup > WIREUP_FDS_MAX) {
        wireup = WIREUP_FDS_MAX;
        timeout_ms = 1;
    }
    count += wireup;
    /* A store into our window that came before arm() rings no bell: look once more. */
    unsigned ran = 0;

    sl_list_foreach(&comm->calls.active, node) ran +=
        sl_op_run(sl_container_of(node, struct sluice_req, link));
    comm->wait.steps_run += ran;
    if (ran == 0 && !sl_list_empty(&comm->calls.active))
        poll(fds, count, timeout_ms);
    disarm(comm, comm->iface_count);
}

void sl_comm_idle(struct sluice_comm *comm, unsigned moved, bool may_sleep)
{
    if (SL_UNLIKELY(comm->wireup != NULL && sl_wireup_busy(comm->wireup) != 0))
        sl_wireup_progress(comm->wireup, sl_now(comm->worker.clock));
    if (moved != 0) {
        comm->wait.idle_passes = 0;
        comm->wait.idle_since_ns = 0;
        return;
    }
    comm->wait.idle_passes++;
    if (may_sleep && (comm->worker.idle != NULL || comm->wait.idle_passes % PASSES_PER_LOOK == 0) &&
        sl_kin_progress(comm) != 0)
        comm->wait.idle_since_ns = 0; /* the thread is of use: it does not sleep */
    if (may_sleep && comm->worker.poke != NULL && comm->wait.idle_passes % PASSES_PER_LOOK == 0)
        comm->worker.poke(comm->worker.poke_arg);
    if (comm->worker.idle != NULL) {
        look_at_clock(comm);
        if (may_sleep)
            comm->worker.idle(&comm->worker);
        return;
    }
    if (comm->wait.idle_passes % PASSES_PER_LOOK == 0 || !may_sleep || sl_health_urgent(comm))
        look_at_clock(comm);
    if (!may_sleep)
        return;
    if (comm->wait.idle_since_ns != 0 &&
        comm->wait.checked_ns - comm->wait.idle_since_ns >= comm->wait.spin_ns &&
        !sl_health_urgent(comm)) {
        park(comm);
        if (comm->worker.poke != NULL)
            comm->worker.poke(comm->worker.poke_arg);
        look_at_clock(comm);
    } else if (comm->wait.oversubscribed || comm->wait.idle_passes > PASSES_TO_POLL) {
        sched_yield();
    }
}

void sl_comm_wait(struct sluice_comm *comm, const int *status)
{
    comm->wait.idle_passes = 0; /* each wait climbs the ladder from its foot */
    comm->wait.idle_since_ns = 0;
    for (;;) {
        unsigned moved = sl_comm_progress(comm);

        if (*(volatile const int *)status != SL_PENDING)
            return;
        sl_comm_idle(comm, moved, true);
    }
}
