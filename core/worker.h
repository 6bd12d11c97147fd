/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: one progress context. It has the clock, chance and settings that everything made on it
 * uses, the interfaces that it opened, and the communicators that use them (its members). A split
 * of a communicator lives on its parent's worker.
 *
 * This file alone decides which thread may move a worker:
 *
 * - A call on a member moves it: the caller claims the worker (sl_worker_enter), as long as more
 *   than one thread could want to be inside. A worker with a single member, in a process without
 *   another worker and without another thread, needs no claim.
 * - A thread that waits in a call lets others in from time to time, and while it sleeps. It moves
 *   the other members, too, and the other workers of which its own call was the last
 *   (sl_worker_move_others), or two ranks could wait for each other in different communicators.
 * - The progress thread of the process (core/runtime.h) moves it while no thread is inside, if the
 *   user asked for that or a transport needs it.
 *
 * Transports see the first part of the struct alone.
 */
#ifndef SL_CORE_WORKER_H
#define SL_CORE_WORKER_H

#include "core/clock.h"
#include "core/req.h"
#include "core/rng.h"
#include "core/runtime.h"
#include "core/secret.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#else
#define __libc_single_threaded 0 /* nobody says that there is one thread only */
#endif

struct sl_config;
struct sl_wire_ops;
struct sl_event_ring;
struct sl_iface;
struct sl_transport_ops;

#define SL_IFACES_MAX 16 /* transports of a worker; more are refused */

/* A transport of the list, and its interface. */
struct sl_iface_slot {
    const struct sl_transport_ops *ops;
    struct sl_iface *iface; /* NULL: could not be opened; why says more */
    bool lacked_memory;     /* to be opened, or for an endpoint */
    char *why;              /* sl_text_set(); NULL: it is open, or was not tried */
};

/* A member that a worker moves beside its interfaces: a communicator. All calls come while the
 * worker is claimed. */
struct sl_member {
    struct sl_node link; /* worker->members; next NULL: it has not joined */
    /* Moves all that can move. Returns how much. */
    unsigned (*move)(struct sl_member *member);
    /* After a pass by another one than its owner: deadlines and statuses. */
    void (*look)(struct sl_member *member, unsigned moved);
    bool (*busy)(const struct sl_member *member); /* it has operations under way */
    /* The worker's interface is lost: the reason is the last error. */
    void (*lost)(struct sl_member *member, const struct sl_iface_slot *slot, int status);
};

struct sl_worker {
    const struct sl_clock *clock;   /* borrowed for the worker's life */
    const struct sl_config *config; /* borrowed for the worker's life */
    struct sl_rng rng;
    struct sl_event_ring *events; /* borrowed; NULL: what happens is not noted (core/event.h) */
    uint8_t state_place;          /* on the state page, from 1, for events; 0: it has none there */
    int rank;                     /* for log lines; -1 before it is known */

    /* All peers of this worker surely run on this host: no address but loopback is of use. */
    bool one_host;

    /* Its place among the ranks of this host, from 0; so before it is known. */
    unsigned local_idx;

    /* Peers of this host that it is going to be connected to at start; 0: nobody knows. */
    unsigned near;

    /* A key that only the ranks of the job have. Without a secret there is none. */
    bool has_session;
    uint8_t session[SL_DIGEST_BYTES];

    /* The pause of a waiting thread when nothing moved. NULL: the ladder of collectives/wait.c
     * (spin, yield, sleep). The simulator runs each rank as a coroutine and gives the others and
     * its clock their turn here, so that the blocking code above runs in it unchanged. */
    void (*idle)(struct sl_worker *worker);
    void *idle_arg;

    /* The pipes that wire-up uses (core/wireup.h). NULL: sockets. */
    const struct sl_wire_ops *wire;

    /* ---- of a worker with members; all zero where a program opens interfaces itself ---- */

    struct sl_iface_slot *slots; /* [SL_IFACES_MAX], by place in the list of transports */
    unsigned slot_count;
    struct sl_node members;
    unsigned member_count;
    _Atomic unsigned refs; /* of its memory: a member that left may still have requests */
    bool threaded;         /* the progress thread moves it all the time, not only to repair paths */
    /* of the progress thread, where it has some here; the second for SL_CAP_TIMELY */
    struct sl_errand errand, timely;
    uint64_t passes;                        /* over the interfaces */
    uint64_t timely_passes, timely_traffic; /* when the second one had its turn */

    struct sl_node link;       /* of the process's workers; next NULL: it is alone */
    const void *_Atomic home;  /* the thread whose call was the last */
    _Atomic int claimed;       /* somebody is inside */
    _Atomic bool shared;       /* calls claim it; never taken back */
    _Atomic unsigned knocking; /* threads that want in */
    int wake_fd;               /* ends the sleep of a thread that waits; -1: not made yet */
    _Atomic bool asleep;       /* a thread sleeps until a transport has work */
};

extern _Atomic unsigned sl_worker_count;    /* workers of this process that have members */
extern _Thread_local char sl_worker_thread; /* its address is the thread's name */

/* Memory for a worker, with one reference, copies of config, and no interface. NULL: no memory. */
struct sl_worker *sl_worker_new(const struct sl_config *config);
/* One more holder of its memory, or one less; the last frees it. Takes NULL. */
void sl_worker_get(struct sl_worker *worker);
void sl_worker_put(struct sl_worker *worker);

/* Its first member joins once all it needs is open; those that follow while the worker is claimed,
 * or not shared yet. Each has a reference. The first one starts the progress thread, where the
 * worker needs it, and is inside until its sl_worker_exit(). */
int sl_worker_join(struct sl_worker *worker, struct sl_member *member);
/* While claimed. The last member closes the interfaces. Does nothing for one that has not
 * joined. */
void sl_worker_leave(struct sl_worker *worker, struct sl_member *member);
/* Before the first member has joined: its maker waits for something that moves no interface, as an
 * exchange of all ranks. What has to answer peers in time (SL_CAP_TIMELY) is the progress thread's
 * until sl_worker_take_back(): else a message that is lost on its way there is not sent again, and
 * who waits for it loses its path. */
void sl_worker_lend(struct sl_worker *worker);
void sl_worker_take_back(struct sl_worker *worker);
/* Closes the interfaces of a worker without members. */
void sl_worker_close(struct sl_worker *worker);

/* Waits until no thread is inside, and claims it. */
void sl_worker_await(struct sl_worker *worker);
/* Claims it if no thread is inside. */
bool sl_worker_try(struct sl_worker *worker);

/* The simulator's ranks are fibers of one thread; each counts as a thread. */
static inline const void *sl_worker_home(const struct sl_worker *worker)
{
    return worker->idle != NULL ? worker->idle_arg : &sl_worker_thread;
}

/* A call begins. */
static inline void sl_worker_enter(struct sl_worker *worker)
{
    /* Once claimed, claimed always: else a thread that used it last, and that makes a second
     * worker just now, could borrow it while a call of another thread, begun when it was the only
     * one, is inside. With a second thread, too: it may be making a communicator that joins. */
    bool shared = atomic_load_explicit(&worker->shared, memory_order_relaxed) ||
                  atomic_load_explicit(&sl_worker_count, memory_order_relaxed) > 1 ||
                  __libc_single_threaded == 0;

    atomic_store_explicit(&worker->home, sl_worker_home(worker), memory_order_relaxed);
    if (__builtin_expect(
            shared && atomic_exchange_explicit(&worker->claimed, 1, memory_order_acquire) != 0, 0))
        sl_worker_await(worker);
    atomic_store_explicit(&worker->shared, shared, memory_order_relaxed);
}

/* It ends. */
static inline void sl_worker_exit(struct sl_worker *worker)
{
    if (__builtin_expect(atomic_load_explicit(&worker->shared, memory_order_relaxed), 0))
        atomic_store_explicit(&worker->claimed, 0, memory_order_release);
}

/* A thread that waits, inside: lets those in that knock. */
static inline bool sl_worker_crowded(const struct sl_worker *worker)
{
    return atomic_load_explicit(&worker->knocking, memory_order_relaxed) != 0;
}
void sl_worker_step_aside(struct sl_worker *worker);

/* One pass over the interfaces that have all these capabilities. Returns how much moved. */
unsigned sl_worker_move_ifaces(struct sl_worker *worker, uint32_t caps);

/* Moves the other members, and other workers of this thread. Returns how much moved. */
unsigned sl_worker_move_others(struct sl_worker *worker, const struct sl_member *but);
/* Other members have operations under way; or other workers of this thread, too. */
bool sl_worker_siblings_busy(const struct sl_worker *worker, const struct sl_member *but);
bool sl_worker_others_busy(struct sl_worker *worker, const struct sl_member *but);

/* The progress thread's pass, if no thread is inside. Returns how much moved. */
unsigned sl_worker_pass(struct sl_worker *worker);
/* The same for those that have to answer in time. As struct sl_errand.pass. */
unsigned sl_worker_pass_timely(struct sl_worker *worker);
/* After sl_worker_try(): the claim ends. */
void sl_worker_give_back(struct sl_worker *worker);

struct pollfd;

/* Sleeps until an interface has work, one of more[0..count) is ready, or timeout_ms have gone by;
 * others are let in meanwhile. ready() is asked once more before; true: no sleep. */
void sl_worker_sleep(struct sl_worker *worker, const struct pollfd *more, unsigned count,
                     int timeout_ms, bool (*ready)(void *arg), void *arg);

#endif
