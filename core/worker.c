/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: the thread that is inside, their members, the sleep of a thread that waits. */
#include "core/worker.h"

#include "core/config.h"
#include "core/err.h"
#include "core/list.h"
#include "core/log.h"
#include "core/relax.h"
#include "core/transport.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Atomic unsigned sl_worker_count;
_Thread_local char sl_worker_thread;

#define BORROWED_MAX 64     /* workers moved in one pass */
#define TRIES_PER_YIELD 200 /* some 10 microseconds */
#define BUDGET 64           /* requests that a transport may finish per pass */
#define FDS_MAX 128
#define TIMELY_ROUNDS 16    /* over the interfaces, in one pass that has to be timely */
#define SECOND_SLEEPER_MS 1 /* no bell rings for it */

/* ---- the thread inside ---- */

/* Reads before it writes: a waiting thread must not take the line from the one inside. */
bool sl_worker_try(struct sl_worker *worker)
{
    return atomic_load_explicit(&worker->claimed, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&worker->claimed, 1, memory_order_acquire) == 0;
}

void sl_worker_give_back(struct sl_worker *worker)
{
    atomic_store_explicit(&worker->claimed, 0, memory_order_release);
}

void sl_worker_await(struct sl_worker *worker)
{
    atomic_fetch_add_explicit(&worker->knocking, 1, memory_order_relaxed);
    for (unsigned tries = 1; !sl_worker_try(worker); tries++)
        if (tries % TRIES_PER_YIELD == 0)
            sched_yield(); /* it may have lost its processor to us */
        else
            sl_cpu_relax();
    atomic_fetch_sub_explicit(&worker->knocking, 1, memory_order_relaxed);
}

void sl_worker_step_aside(struct sl_worker *worker)
{
    sl_worker_give_back(worker);
    for (unsigned i = 0;
         i < TRIES_PER_YIELD && atomic_load_explicit(&worker->claimed, memory_order_relaxed) == 0;
         i++)
        sl_cpu_relax();
    sched_yield();
    sl_worker_await(worker);
}

/* ---- its life ---- */

/* Its settings are its own: the communicator that it was made for may be the first to go. */
struct worker_with_config {
    struct sl_worker worker;
    struct sl_config config;
    struct sl_iface_slot slots[SL_IFACES_MAX];
};

struct sl_worker *sl_worker_new(const struct sl_config *config)
{
    struct worker_with_config *all = calloc(1, sizeof(*all));

    if (all == NULL)
        return NULL;
    all->config = *config;
    all->worker.config = &all->config;
    all->worker.slots = all->slots;
    all->worker.refs = 1;
    all->worker.wake_fd = -1;
    sl_list_init(&all->worker.members);
    return &all->worker;
}

void sl_worker_get(struct sl_worker *worker)
{
    atomic_fetch_add(&worker->refs, 1);
}

void sl_worker_put(struct sl_worker *worker)
{
    if (worker == NULL || atomic_fetch_sub(&worker->refs, 1) != 1)
        return;
    if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    for (unsigned i = 0; i < SL_IFACES_MAX; i++)
        free(worker->slots[i].why);
    free(sl_container_of(worker, struct worker_with_config, worker));
}

static unsigned pass_for_thread(struct sl_errand *errand)
{
    return sl_worker_pass(sl_container_of(errand, struct sl_worker, errand));
}

static unsigned timely_for_thread(struct sl_errand *errand)
{
    return sl_worker_pass_timely(sl_container_of(errand, struct sl_worker, timely));
}

/* What any of its interfaces can. Nothing in the simulator, where nothing happens between calls. */
static uint32_t caps_of(const struct sl_worker *worker)
{
    uint32_t caps = 0;

    for (unsigned i = 0; i < worker->slot_count && worker->idle == NULL; i++)
        caps |= worker->slots[i].iface != NULL ? worker->slots[i].iface->caps : 0;
    return caps;
}

static int attach(struct sl_worker *worker, struct sl_errand *errand, enum sl_pace pace,
                  unsigned (*pass)(struct sl_errand *errand))
{
    *errand = (struct sl_errand){.pace = pace, .pass = pass};
    /* The caller is inside until its sl_worker_exit(). */
    atomic_store(&worker->claimed, 1);
    atomic_store(&worker->shared, true);
    return sl_runtime_attach(errand);
}

static int attach_timely(struct sl_worker *worker)
{
    return worker->timely.attached
               ? 0
               : attach(worker, &worker->timely, SL_PACE_TIMELY, timely_for_thread);
}

void sl_worker_lend(struct sl_worker *worker)
{
    if ((caps_of(worker) & SL_CAP_TIMELY) == 0)
        return;
    if (attach_timely(worker) != 0) /* peers wait for what is lost until it joins */
        sl_info("worker", "nobody answers peers while ranks meet: %s", sluice_last_error());
    sl_worker_exit(worker);
}

void sl_worker_take_back(struct sl_worker *worker)
{
    if ((caps_of(worker) & SL_CAP_TIMELY) != 0)
        sl_worker_enter(worker);
}

static int first_joins(struct sl_worker *worker)
{
    uint32_t caps = caps_of(worker);
    int err = 0;

    worker->threaded = worker->config->progress == SL_PROGRESS_THREAD && worker->idle == NULL;
    if (worker->threaded) {
        sl_runtime_detach(&worker->timely); /* which it had while it was lent */
        err = attach(worker, &worker->errand, SL_PACE_STEADY, pass_for_thread);
    } else if ((caps & SL_CAP_REPAIRS) != 0) {
        err = attach(worker, &worker->errand, SL_PACE_LOOK, pass_for_thread);
    }
    if (err == 0 && !worker->threaded && (caps & SL_CAP_TIMELY) != 0)
        err = attach_timely(worker);
    if (err == 0)
        sl_runtime_add_worker(worker);
    else
        sl_runtime_detach(&worker->errand);
    return err;
}

/* Several threads may want to be inside from now on. The caller is. */
static void share(struct sl_worker *worker)
{
    if (!atomic_load(&worker->shared)) {
        atomic_store(&worker->claimed, 1);
        atomic_store(&worker->shared, true);
    }
    if (worker->wake_fd < 0)
        worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int sl_worker_join(struct sl_worker *worker, struct sl_member *member)
{
    int err = 0;

    if (worker->member_count != 0)
        share(worker);
    sl_list_push_back(&worker->members, &member->link);
    if (++worker->member_count == 1)
        err = first_joins(worker);
    if (err == 0)
        return 0;
    sl_list_remove(&member->link);
    member->link.next = NULL;
    worker->member_count = 0;
    return err;
}

void sl_worker_close(struct sl_worker *worker)
{
    sl_runtime_detach(&worker->timely);
    for (unsigned i = 0; i < worker->slot_count; i++) {
        struct sl_iface_slot *slot = &worker->slots[i];

        if (slot->iface != NULL)
            slot->ops->close(slot->iface);
        slot->iface = NULL;
    }
}

void sl_worker_leave(struct sl_worker *worker, struct sl_member *member)
{
    if (member->link.next == NULL)
        return;
    sl_list_remove(&member->link);
    member->link.next = NULL;
    if (--worker->member_count != 0)
        return;
    sl_runtime_detach(&worker->errand);
    sl_runtime_remove_worker(worker);
    sl_worker_close(worker);
}

/* ---- moving ---- */

/* Its owner may sleep until something happens here. */
static void wake_sleeper(struct sl_worker *worker)
{
    if (atomic_load_explicit(&worker->asleep, memory_order_relaxed) && worker->wake_fd >= 0)
        eventfd_write(worker->wake_fd, 1);
}

static void iface_lost(struct sl_worker *worker, struct sl_iface_slot *slot, int status)
{
    sl_list_foreach(&worker->members, node)
    {
        struct sl_member *member = sl_container_of(node, struct sl_member, link);

        member->lost(member, slot, status);
    }
}

unsigned sl_worker_move_ifaces(struct sl_worker *worker, uint32_t caps)
{
    unsigned moved = 0;

    worker->passes++;
    for (unsigned i = 0; i < worker->slot_count; i++) {
        struct sl_iface_slot *slot = &worker->slots[i];

        if (slot->iface == NULL || (slot->iface->caps & caps) != caps)
            continue;
        int n = slot->ops->progress(slot->iface, BUDGET);

        if (SL_UNLIKELY(n < 0))
            iface_lost(worker, slot, n);
        else
            moved += (unsigned)n;
    }
    return moved;
}

static unsigned move_members(struct sl_worker *worker, const struct sl_member *but)
{
    unsigned moved = 0;

    sl_list_foreach(&worker->members, node)
    {
        struct sl_member *member = sl_container_of(node, struct sl_member, link);

        if (member == but)
            continue;
        unsigned its = member->move(member);

        member->look(member, its);
        moved += its;
    }
    if (moved != 0)
        wake_sleeper(worker);
    return moved;
}

static unsigned move_all(struct sl_worker *worker)
{
    unsigned moved = sl_worker_move_ifaces(worker, 0) + move_members(worker, NULL);

    if (moved != 0)
        wake_sleeper(worker);
    return moved;
}

unsigned sl_worker_move_others(struct sl_worker *worker, const struct sl_member *but)
{
    struct sl_worker *others[BORROWED_MAX];
    unsigned moved = worker->member_count > 1 ? move_members(worker, but) : 0;
    unsigned count = sl_runtime_borrow(worker, others, BORROWED_MAX);

    for (unsigned i = 0; i < count; i++) {
        moved += move_all(others[i]);
        sl_worker_give_back(others[i]);
    }
    return moved;
}

bool sl_worker_siblings_busy(const struct sl_worker *worker, const struct sl_member *but)
{
    for (const struct sl_node *node = worker->members.next; node != &worker->members;
         node = node->next) {
        const struct sl_member *member = sl_container_of(node, const struct sl_member, link);

        if (member != but && member->busy(member))
            return true;
    }
    return false;
}

bool sl_worker_others_busy(struct sl_worker *worker, const struct sl_member *but)
{
    struct sl_worker *others[BORROWED_MAX];
    unsigned count = sl_runtime_borrow(worker, others, BORROWED_MAX);
    bool busy = worker->member_count > 1 && sl_worker_siblings_busy(worker, but);

    for (unsigned i = 0; i < count; i++) {
        busy |= sl_worker_siblings_busy(others[i], NULL);
        sl_worker_give_back(others[i]);
    }
    return busy;
}

unsigned sl_worker_pass(struct sl_worker *worker)
{
    unsigned moved = 0;

    if (!sl_worker_try(worker))
        return 0;
    sl_log_set_rank(worker->rank);
    if (worker->threaded)
        moved = move_all(worker);
    for (unsigned i = 0; i < SL_LOOK_PASSES && !worker->threaded; i++)
        moved += sl_worker_move_ifaces(worker, SL_CAP_REPAIRS);
    worker->timely_passes = worker->passes;
    if (moved != 0)
        wake_sleeper(worker);
    sl_worker_give_back(worker);
    return moved;
}

/* As much as there is, but neither for ever nor while another thread wants in. */
static unsigned move_timely(struct sl_worker *worker)
{
    unsigned moved = 0, now = 1;

    for (unsigned i = 0; i < TIMELY_ROUNDS && now != 0 && !sl_worker_crowded(worker); i++) {
        now = sl_worker_move_ifaces(worker, SL_CAP_TIMELY);
        moved += now;
    }
    return moved;
}

/* Of the interfaces that have to answer in time. */
static uint64_t timely_traffic(const struct sl_worker *worker)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < worker->slot_count; i++)
        if (worker->slots[i].iface != NULL && (worker->slots[i].iface->caps & SL_CAP_TIMELY) != 0)
            bytes += worker->slots[i].iface->traffic;
    return bytes;
}

/* An owner that sleeps in a call makes passes too, now and then: what counts is what they move. */
unsigned sl_worker_pass_timely(struct sl_worker *worker)
{
    unsigned moved;

    if (!sl_worker_try(worker))
        return SL_PASS_ELSEWHERE;
    if (worker->passes == worker->timely_passes) {
        sl_log_set_rank(worker->rank);
        moved = move_timely(worker);
        if (moved != 0)
            wake_sleeper(worker);
    } else {
        moved = timely_traffic(worker) != worker->timely_traffic ? SL_PASS_ELSEWHERE : 0;
    }
    worker->timely_passes = worker->passes;
    worker->timely_traffic = timely_traffic(worker);
    sl_worker_give_back(worker);
    return moved;
}

/* ---- sleeping ---- */

static void disarm(struct sl_worker *worker, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (worker->slots[i].iface != NULL && (worker->slots[i].iface->caps & SL_CAP_WAKEUP) != 0)
            worker->slots[i].ops->disarm(worker->slots[i].iface);
}

/* Has the interfaces ring. False: work slipped in, and none is armed. */
static bool arm(struct sl_worker *worker, struct pollfd *fds, unsigned *count, int *timeout_ms)
{
    for (unsigned i = 0; i < worker->slot_count; i++) {
        struct sl_iface_slot *slot = &worker->slots[i];

        if (slot->iface == NULL)
            continue;
        if ((slot->iface->caps & SL_CAP_WAKEUP) == 0) {
            *timeout_ms = 1; /* it cannot wake us */
            continue;
        }
        if (slot->ops->arm(slot->iface) != 0) {
            disarm(worker, i + 1);
            return false;
        }
        fds[(*count)++] = (struct pollfd){.fd = slot->ops->fd(slot->iface), .events = POLLIN};
    }
    return true;
}

/* Others may be inside meanwhile. */
static void poll_outside(struct sl_worker *worker, struct pollfd *fds, unsigned count,
                         int timeout_ms)
{
    bool shared = atomic_load_explicit(&worker->shared, memory_order_relaxed);

    if (shared)
        sl_worker_give_back(worker);
    poll(fds, count, timeout_ms);
    if (shared)
        sl_worker_await(worker);
}

void sl_worker_sleep(struct sl_worker *worker, const struct pollfd *more, unsigned count,
                     int timeout_ms, bool (*ready)(void *arg), void *arg)
{
    struct pollfd fds[SL_IFACES_MAX + FDS_MAX + 1];
    unsigned armed = 0;
    eventfd_t rings;

    if (atomic_load_explicit(&worker->asleep, memory_order_relaxed)) {
        poll_outside(worker, fds, 0, SECOND_SLEEPER_MS);
        return;
    }
    if (!arm(worker, fds, &armed, &timeout_ms))
        return;
    for (unsigned i = 0; i < count && i < FDS_MAX; i++)
        fds[armed++] = more[i];
    if (count > FDS_MAX)
        timeout_ms = 1;
    if (worker->wake_fd >= 0)
        fds[armed++] = (struct pollfd){.fd = worker->wake_fd, .events = POLLIN};
    if (!ready(arg)) {
        atomic_store_explicit(&worker->asleep, true, memory_order_relaxed);
        poll_outside(worker, fds, armed, timeout_ms);
        atomic_store_explicit(&worker->asleep, false, memory_order_relaxed);
        if (worker->wake_fd >= 0)
            (void)eventfd_read(worker->wake_fd, &rings);
    }
    disarm(worker, worker->slot_count);
}
