/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a memif client's port. Its driver connects to the server's socket, and waits there without
 * a limit when the server's process is stopped and others wait already (its socket takes two). So a
 * thread does it, and who starts the port waits for a short while; what takes longer goes on, and
 * nobody touches that port of DPDK's until it is over.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"
#include "dpdk/port/inside.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>

enum state { IDLE, RUNS, IS_OVER };

/* By DPDK's number of the port: ours may be closed meanwhile. */
static struct {
    enum state state;
    int err;
} starts[RTE_MAX_ETHPORTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_over; /* on the monotonic clock */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_cond(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&is_over, &attr);
    pthread_condattr_destroy(&attr);
}

static void *run(void *arg)
{
    uint16_t id = (uint16_t)(uintptr_t)arg;
    int err = rte_eth_dev_start(id);

    pthread_mutex_lock(&lock);
    starts[id].err = err;
    starts[id].state = IS_OVER;
    pthread_cond_broadcast(&is_over);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The program's signals are for its own threads. */
static int spawn(uint16_t id)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int err;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, &attr, run, (void *)(uintptr_t)id);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

/* With the lock. */
static int result_of(uint16_t id, unsigned ms)
{
    uint64_t until_ns = sl_now(&sl_clock_monotonic) + ms * SL_NS_PER_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ns / SL_NS_PER_S),
                             .tv_nsec = (long)(until_ns % SL_NS_PER_S)};

    while (starts[id].state == RUNS && pthread_cond_timedwait(&is_over, &lock, &until) != ETIMEDOUT)
        ;
    if (starts[id].state == RUNS)
        return -EINPROGRESS;
    starts[id].state = IDLE;
    return starts[id].err;
}

int sl_dpdk_client_start(uint16_t id, unsigned ms)
{
    int err;

    (void)pthread_once(&once, make_cond);
    pthread_mutex_lock(&lock);
    sl_assert(starts[id].state == IDLE);
    err = spawn(id);
    if (err == 0) {
        starts[id].state = RUNS;
        err = result_of(id, ms);
    } else {
        err = -err;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

bool sl_dpdk_client_is_left(uint16_t id)
{
    bool is_left;

    pthread_mutex_lock(&lock);
    is_left = starts[id].state != IDLE;
    pthread_mutex_unlock(&lock);
    return is_left;
}

int sl_dpdk_client_started(uint16_t id, unsigned ms)
{
    int err;

    pthread_mutex_lock(&lock);
    err = result_of(id, ms);
    pthread_mutex_unlock(&lock);
    return err;
}
