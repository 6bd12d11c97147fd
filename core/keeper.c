/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that looks at intervals. */
#include "core/keeper.h"

#include "core/clock.h"
#include "core/err.h"

#include <signal.h>
#include <time.h>

/* Far below what it takes to notice that a path is dead (half a second), and nothing to a processor
 * that computes. */
#define INTERVAL_NS (50 * (long)SL_NS_PER_MS)

static struct timespec next_look(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += INTERVAL_NS;
    at.tv_sec += at.tv_nsec / (long)SL_NS_PER_S;
    at.tv_nsec %= (long)SL_NS_PER_S;
    return at;
}

static void *keep(void *arg)
{
    struct sl_keeper *keeper = arg;

    pthread_mutex_lock(&keeper->lock);
    while (!keeper->ends) {
        struct timespec at = next_look();

        while (!keeper->ends && pthread_cond_timedwait(&keeper->wake, &keeper->lock, &at) == 0)
            ;
        if (keeper->ends)
            break;
        pthread_mutex_unlock(&keeper->lock);
        keeper->look(keeper->arg);
        pthread_mutex_lock(&keeper->lock);
    }
    pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

static void release(struct sl_keeper *keeper)
{
    pthread_cond_destroy(&keeper->wake);
    pthread_mutex_destroy(&keeper->lock);
    *keeper = (struct sl_keeper){.runs = false};
}

int sl_keeper_start(struct sl_keeper *keeper, void (*look)(void *arg), void *arg)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int err;

    *keeper = (struct sl_keeper){.look = look, .arg = arg};
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&keeper->wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&keeper->thread, NULL, keep, keeper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0) {
        release(keeper);
        return sl_fail(-err, "a thread that looks after idle connections could not be started: %s",
                       sluice_strerror(-err));
    }
    keeper->runs = true;
    return 0;
}

void sl_keeper_stop(struct sl_keeper *keeper)
{
    if (!keeper->runs)
        return;
    pthread_mutex_lock(&keeper->lock);
    keeper->ends = true;
    pthread_cond_signal(&keeper->wake);
    pthread_mutex_unlock(&keeper->lock);
    pthread_join(keeper->thread, NULL);
    release(keeper);
}
