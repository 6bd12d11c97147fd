/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated world under the transport: virtual clock, event queue, ranks as fibers, links. */
#ifndef SL_TESTING_SIM_NET_H
#define SL_TESTING_SIM_NET_H

#include "core/err.h"
#include "core/list.h"
#include "testing/sim/sim.h"
#include "testing/sim/table.h"

/* Something that happens at a time. Owned by the queue until it happens. */
struct sl_sim_event {
    uint64_t at_ns, seq;
    void (*happen)(struct sl_sim *sim, struct sl_sim_event *event);
    uint64_t a, b; /* numbers of ranks or endpoints, never pointers: they may be gone by then */
    void *ptr;     /* counted or owned by the event */
};

struct sl_sim_fiber;

struct sl_sim_rank {
    struct sl_sim *sim;
    uint32_t rank, host;
    struct sl_sim_fiber *fiber;
    void (*program)(void *arg);
    void *arg;
    bool running, ended, crashed, released;
    bool kicked;         /* something came since it last looked */
    uint64_t generation; /* of its pending resume; older ones are stale */
    uint64_t resume_ns;  /* of the pending resume */
    uint64_t pause_ns;   /* how long it sleeps when nothing comes; doubles */
    uint64_t frozen_until;
    uint32_t slow;  /* factor, at least 1 */
    uint32_t lost;  /* of its links, in thousandths */
    uint64_t turns; /* calls of progress since it last idled: a spin shows */
};

struct sl_sim_link {
    uint64_t busy_until, cut_until;
};

struct sl_sim {
    struct sl_clock clock; /* first: the clock's owner is found by cast */
    struct sl_sim_params params;
    uint64_t now_ns, seq;
    struct sl_rng rng;
    struct sl_sim_rank *ranks;
    struct sl_sim_table links; /* struct sl_sim_link by the pair; those that were used */
    struct sl_sim_event **heap;
    size_t heap_len, heap_cap;
    struct sl_sim_rank *current; /* whose fiber runs; NULL: none */
    uint32_t live;               /* programs that have not returned ... */
    uint32_t held;               /* ... and those of them that have crashed and do not run */
    bool deadline_passed;
    struct sl_sim_stats stats;
    char violation[256];

    /* of the transport */
    struct sl_sim_ep **eps; /* by number; NULL: destroyed */
    size_t ep_len, ep_cap;
    uint32_t ep_live;
    struct sl_node mems, ifaces;
    struct sl_sim_table mem_of_id, mem_of_addr; /* of mems: registered or not, freed or not */
    struct sl_sim_table wires;                  /* by number */
    uint64_t wire_number;
};

/* Schedules; aborts when memory is out (the simulator is for tests). */
struct sl_sim_event *sl_sim_at(struct sl_sim *sim, uint64_t at_ns,
                               void (*happen)(struct sl_sim *, struct sl_sim_event *));

/* The next event happens. False: there is none. */
bool sl_sim_step(struct sl_sim *sim);

/* Something came for rank: it looks soon. */
void sl_sim_kick(struct sl_sim_rank *rank);

/* When len bytes that leave from now on are at the other side. SL_NEVER is never. */
uint64_t sl_sim_transit(struct sl_sim *sim, uint32_t from, uint32_t to, size_t len);

/* True once in `in` chances, while faults of chance last. */
bool sl_sim_chance(struct sl_sim *sim, uint32_t in);

void sl_sim_violate(struct sl_sim *sim, const char *fmt, ...) SL_PRINTF(2, 3);
void sl_sim_trace(struct sl_sim *sim, const char *fmt, ...) SL_PRINTF(2, 3);

/* sim.c: what a crash or a reset does to endpoints. peer UINT32_MAX: all of that rank's. */
void sl_sim_eps_lose(struct sl_sim *sim, uint32_t rank, uint32_t peer, uint64_t notice_ns);

/* fiber.c: a stack of its own to run on. */
struct sl_sim_fiber *sl_sim_fiber_create(void (*main)(void *arg), void *arg);
void sl_sim_fiber_destroy(struct sl_sim_fiber *fiber); /* takes NULL */
void sl_sim_fiber_enter(struct sl_sim_fiber *fiber);   /* until it leaves or ends */
void sl_sim_fiber_leave(struct sl_sim_fiber *fiber);   /* back to whoever entered */

#endif
