/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress, and what a thread does while nothing moves: it polls, yields or sleeps, by how many
 * ranks share the cores of this host, and looks at the clock from time to time for deadlines.
 */
#include "collectives/connect.h"
#include "collectives/exec.h"
#include "collectives/family.h"
#include "collectives/health.h"
#include "collectives/status.h"

#include "core/wireup.h"

#include <poll.h>
#include <sched.h>

#define PASSES_PER_LOOK 64 /* passes without a move between looks at the clock */
#define PASSES_TO_POLL 256 /* passes before the core is offered to others: some microseconds */
#define WIREUP_FDS_MAX 64
#define SLEEP_MAX_MS 50 /* so that statuses and deadlines are looked after */
#define PAGE_NS (20 * SL_NS_PER_MS)

/* All but the interfaces. */
static unsigned move(struct sluice_comm *comm)
{
    unsigned steps = 0;

    if (SL_UNLIKELY(atomic_load_explicit(&comm->health.abort_asked, memory_order_relaxed) != 0))
        sl_comm_fail(comm, -ECANCELED, -1, "rank %u aborted the communicator", comm->rank);
    sl_list_foreach(&comm->calls.active, node) steps +=
        sl_op_run(sl_container_of(node, struct sluice_req, link));
    comm->wait.steps_run += steps;
    if (SL_UNLIKELY(comm->health.error.code != 0))
        sl_health_tear_down(comm);
    return steps;
}

unsigned sl_comm_progress(struct sluice_comm *comm)
{
    unsigned moved = sl_worker_move_ifaces(comm->worker, 0);

    /* What moved may have been for others: they go on before it counts as idle. */
    if (SL_UNLIKELY(comm->worker->member_count > 1) && moved != 0)
        sl_worker_move_others(comm->worker, &comm->member);
    return moved + move(comm);
}

/* ---- as a member of its worker ---- */

static struct sluice_comm *comm_of(struct sl_member *member)
{
    return sl_container_of(member, struct sluice_comm, member);
}

static unsigned member_move(struct sl_member *member)
{
    return move(comm_of(member));
}

static void member_look(struct sl_member *member, unsigned moved)
{
    sl_comm_idle(comm_of(member), moved, false);
}

static bool member_busy(const struct sl_member *member)
{
    return !sl_list_empty(&sl_container_of(member, const struct sluice_comm, member)->calls.active);
}

static void member_lost(struct sl_member *member, const struct sl_iface_slot *slot, int status)
{
    sl_comm_fail(comm_of(member), status, -1, "transport %s is lost: %s", slot->ops->name,
                 sluice_last_error());
}

int sl_comm_join(struct sluice_comm *comm)
{
    comm->member.move = member_move;
    comm->member.look = member_look;
    comm->member.busy = member_busy;
    comm->member.lost = member_lost;
    return sl_worker_join(comm->worker, &comm->member);
}

/* ---- waiting ---- */

static uint64_t count_traffic(const struct sl_worker *worker)
{
    uint64_t traffic = 0;

    for (unsigned i = 0; i < worker->slot_count; i++)
        if (worker->slots[i].iface != NULL)
            traffic += worker->slots[i].iface->traffic;
    return traffic;
}

static uint64_t count_bytes(const struct sluice_comm *comm)
{
    uint64_t bytes = 0;

    sl_peers_foreach(&comm->peers, r)
    {
        const struct sl_ep *ep = sl_comm_peer(comm, r)->ep;

        if (ep != NULL)
            bytes += ep->iface->ops->channel_traffic(ep, comm->channel);
    }
    return bytes;
}

/* Something moved for this communicator since the last look. Traffic may be that of others on the
 * worker: while they are busy, messages that end count, and, when that has long been none, bytes of
 * its own channels. */
static bool has_moved(struct sluice_comm *comm)
{
    struct sl_waits *wait = &comm->wait;
    uint64_t moves = wait->steps_run + wait->messages, traffic = count_traffic(comm->worker);
    bool others = sl_worker_siblings_busy(comm->worker, &comm->member);
    bool moved = moves != wait->moves || (!others && traffic != wait->traffic);

    wait->moves = moves;
    wait->traffic = traffic;
    if (others && !moved && wait->idle_ns > (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 4) {
        uint64_t bytes = count_bytes(comm);

        moved = bytes != wait->bytes;
        wait->bytes = bytes;
    }
    return moved;
}

/* Counts the time in which no data moved. A gap between two looks counts little: the caller may
 * have been away computing, and peers had no reason to move then. */
static void look_at_clock(struct sluice_comm *comm)
{
    uint64_t now = sl_now(comm->worker->clock);
    uint64_t gap_max = (uint64_t)comm->config.timeout_ms * SL_NS_PER_MS / 8;
    uint64_t gap = comm->wait.checked_ns != 0 ? now - comm->wait.checked_ns : 0;

    comm->wait.idle_ns = has_moved(comm) ? 0 : comm->wait.idle_ns + (gap < gap_max ? gap : gap_max);
    comm->wait.checked_ns = now;
    if (comm->wait.idle_since_ns == 0)
        comm->wait.idle_since_ns = now;
    if (comm->family->wireup != NULL)
        sl_wireup_progress(comm->family->wireup, now);
    if (SL_UNLIKELY(!comm->has_tree) && !sl_list_empty(&comm->calls.active))
        sl_reach_tree(comm, true);
    sl_links_answer(comm->family);
    sl_health_tick(comm, now);
    if (now - comm->page_written_ns >= PAGE_NS) {
        comm->page_written_ns = now;
        sl_status_refresh(comm);
    }
}

/* A store into our window that came before the interfaces were armed rings no bell. */
static bool moves_now(void *arg)
{
    struct sluice_comm *comm = arg;
    unsigned ran = 0;

    sl_list_foreach(&comm->calls.active, node) ran +=
        sl_op_run(sl_container_of(node, struct sluice_req, link));
    comm->wait.steps_run += ran;
    return ran != 0 || sl_list_empty(&comm->calls.active);
}

/* Sleeps until a transport has work, or SLEEP_MAX_MS. */
static void park(struct sluice_comm *comm)
{
    struct pollfd fds[WIREUP_FDS_MAX];
    /* Bells of other workers, and of another library, do not ring here. */
    int timeout_ms = comm->wait.poke != NULL || comm->calls.at_work != 0 ||
                             sl_worker_others_busy(comm->worker, &comm->member)
                         ? 1
                         : SLEEP_MAX_MS;
    unsigned wireup =
        comm->family->wireup != NULL ? sl_wireup_fds(comm->family->wireup, fds, WIREUP_FDS_MAX) : 0;

    if (wireup > WIREUP_FDS_MAX) {
        wireup = WIREUP_FDS_MAX;
        timeout_ms = 1;
    }
    sl_worker_sleep(comm->worker, fds, wireup, timeout_ms, moves_now, comm);
}

void sl_comm_idle(struct sluice_comm *comm, unsigned moved, bool may_sleep)
{
    if (SL_UNLIKELY(comm->family->wireup != NULL && sl_wireup_busy(comm->family->wireup) != 0))
        sl_wireup_progress(comm->family->wireup, sl_now(comm->worker->clock));
    if (moved != 0) {
        comm->wait.idle_passes = 0;
        comm->wait.idle_since_ns = 0;
        return;
    }
    comm->wait.idle_passes++;
    if (may_sleep && sl_worker_crowded(comm->worker))
        sl_worker_step_aside(comm->worker);
    if (may_sleep &&
        (comm->worker->idle != NULL || comm->wait.idle_passes % PASSES_PER_LOOK == 0) &&
        sl_worker_move_others(comm->worker, &comm->member) != 0)
        comm->wait.idle_since_ns = 0; /* the thread is of use: it does not sleep */
    if (may_sleep && comm->wait.poke != NULL && comm->wait.idle_passes % PASSES_PER_LOOK == 0)
        comm->wait.poke(comm->wait.poke_arg);
    if (comm->worker->idle != NULL) {
        look_at_clock(comm);
        if (may_sleep)
            comm->worker->idle(comm->worker);
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
        if (comm->wait.poke != NULL)
            comm->wait.poke(comm->wait.poke_arg);
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
