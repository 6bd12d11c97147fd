/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that looks after something at intervals, for what must go on while its owner does not
 * call: mending an RDMA path takes both ends (docs/design/0007-rdma.md).
 */
#ifndef SL_CORE_KEEPER_H
#define SL_CORE_KEEPER_H

#include <pthread.h>
#include <stdbool.h>

/* Passes of progress that make a look at transports: they look at some things only in some of their
 * passes. */
#define SL_KEEPER_PASSES 64

struct sl_keeper { /* all zero: it does not run */
    bool runs, ends;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    void (*look)(void *arg); /* on its thread, every 50 ms, until sl_keeper_stop() */
    void *arg;
};

/* Takes no signals: they are the program's. 0, or the error of pthread_create() with its
 * sentence. */
int sl_keeper_start(struct sl_keeper *keeper, void (*look)(void *arg), void *arg);
/* Waits for a look that is under way, so whoever calls holds nothing that look() takes. Does
 * nothing if it does not run. */
void sl_keeper_stop(struct sl_keeper *keeper);

#endif
