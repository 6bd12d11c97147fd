/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that a process has once, for all communicators and NCCL contexts: the list of its
 * workers, and the progress thread.
 *
 * The progress thread runs only while there is an errand for it: a worker whose user asked for
 * SLUICE_PROGRESS=thread, or one with a transport whose paths both ends must repair while
 * their owner computes (docs/design/0007-rdma.md), or which has to answer its peers in time
 * (SL_CAP_TIMELY). It takes no signals: they are the program's. A forked child has none of this.
 *
 * Timely errands have a bound: all of them together get a quarter of one core at most. While their
 * transports move something, each is passed over every 200 us; after that at intervals of an eighth
 * of the silence, up to 2 ms, and 5 ms when it has been long (core/nap.h).
 */
#ifndef SL_CORE_RUNTIME_H
#define SL_CORE_RUNTIME_H

#include "core/req.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Passes of progress that make a look at a transport: it looks at some things only in some of its
 * passes. */
#define SL_LOOK_PASSES 64

/* How often an errand is passed over. */
enum sl_pace {
    SL_PACE_LOOK,   /* every 50 ms */
    SL_PACE_TIMELY, /* see above */
    SL_PACE_STEADY, /* all the time */
};

#define SL_PASS_ELSEWHERE UINT_MAX /* of a timely pass: its owner moves it by itself just now */

/* Something for the progress thread. */
struct sl_errand {
    struct sl_node link;
    bool attached; /* as its owner knows */
    enum sl_pace pace;
    _Atomic bool leaves; /* it is being detached */
    /* On the progress thread. Waits for nobody. Returns how much moved. */
    unsigned (*pass)(struct sl_errand *errand);
    /* of a timely one, the thread's: when something moved last, and when its turn comes */
    uint64_t moved_ns, due_ns;
};

/* The first errand starts the thread. 0, or the error of pthread_create() with its sentence. */
int sl_runtime_attach(struct sl_errand *errand);
/* Waits for a pass under way, so its caller holds nothing that pass() waits for. The last one ends
 * the thread. Does nothing if it is not attached. */
void sl_runtime_detach(struct sl_errand *errand);

struct sl_worker;

/* The process's workers, for those that move other ones of their thread. */
void sl_runtime_add_worker(struct sl_worker *worker);
void sl_runtime_remove_worker(struct sl_worker *worker);

/* Claims up to cap other workers of the thread that called this one last. The caller gives each
 * back with sl_worker_give_back(). Returns how many. */
unsigned sl_runtime_borrow(struct sl_worker *worker, struct sl_worker **out, unsigned cap);

#endif
