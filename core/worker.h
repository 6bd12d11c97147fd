/* SPDX-License-Identifier: Apache-2.0 */
/* One thread's progress context: the clock, chance and settings that everything made on it uses. */
#ifndef SL_CORE_WORKER_H
#define SL_CORE_WORKER_H

#include "core/clock.h"
#include "core/rng.h"
#include "core/secret.h"

#include <stdbool.h>

struct sl_config;
struct sl_wire_ops;
struct sl_event_ring;

struct sl_worker {
    const struct sl_clock *clock;   /* borrowed for the worker's life */
    const struct sl_config *config; /* borrowed for the worker's life */
    struct sl_rng rng;
    struct sl_event_ring *events; /* borrowed; NULL: what happens is not noted (core/event.h) */
    uint8_t state_place;          /* on the state page, from 1, for events; 0: it has none there */
    int rank;                     /* for log lines; -1 before it is known */

    /* All peers of what is made on this worker surely run on this host: no address but loopback is
     * of use. */
    bool one_host;

    /* A key that the ranks of the job share and nobody else has. Without a secret there is none. */
    bool has_session;
    uint8_t session[SL_DIGEST_BYTES];

    /* What a waiting thread does when nothing moved. NULL: the ladder of collectives/wait.c (spin,
     * yield, sleep). The simulator runs each rank as a coroutine and gives the others and its
     * clock their turn here, so that the blocking code above runs in it unchanged. */
    void (*idle)(struct sl_worker *worker);
    void *idle_arg;

    /* The pipes that wire-up uses (core/wireup.h). NULL: sockets. */
    const struct sl_wire_ops *wire;

    /* Another library's progress, which a waiting thread makes beside ours from time to time (the
     * preload shim: MPI's, whose peers may wait for this rank there). NULL: there is none. */
    void (*poke)(void *arg);
    void *poke_arg;
};

#endif
