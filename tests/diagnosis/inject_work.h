/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks do beside their collectives, for runs into which faults are injected (inject.py).
 *
 * Each step computes INJECT_SPIN_US of processor time and sleeps INJECT_SLEEP_US, as one that waits
 * for its GPU. Signals are the faults that a rank has to play itself: SIGUSR2, it calls another
 * collective in its next step; SIGRTMIN, it comes to no further step; SIGRTMIN + 1, it sleeps
 * INJECT_FACTOR_PERCENT of the time from then on, as one whose GPU's clock is low.
 */
#ifndef INJECT_WORK_H
#define INJECT_WORK_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t inject_is_other, inject_is_asleep, inject_is_slow;

static inline void inject_on_signal(int number)
{
    if (number == SIGUSR2)
        inject_is_other = 1;
    else if (number == SIGRTMIN)
        inject_is_asleep = 1;
    else
        inject_is_slow = 1;
}

static inline long inject_number(const char *name, long usual)
{
    const char *text = getenv(name);

    return text != NULL ? atol(text) : usual;
}

static inline void inject_begin(void)
{
    struct sigaction action = {.sa_flags = SA_RESTART};

    action.sa_handler = inject_on_signal;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    sigaction(SIGRTMIN + 1, &action, NULL);
}

static inline void inject_compute(void)
{
    static long spin_us = -1, sleep_us;
    struct timespec from, now, pause;
    long us;

    if (spin_us < 0) {
        spin_us = inject_number("INJECT_SPIN_US", 1000);
        sleep_us = inject_number("INJECT_SLEEP_US", 5000);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < spin_us);
    us = inject_is_slow ? sleep_us * inject_number("INJECT_FACTOR_PERCENT", 200) / 100 : sleep_us;
    pause.tv_sec = us / 1000000;
    pause.tv_nsec = us % 1000000 * 1000;
    nanosleep(&pause, NULL);
    while (inject_is_asleep)
        sleep(1);
}

/* Once true: the step is another one. */
static inline bool inject_takes_other(void)
{
    bool is = inject_is_other != 0;

    inject_is_other = 0;
    return is;
}

/* After some steps: so who injects knows that the job runs, and which process is which rank. */
static inline void inject_say_step(int step, int rank)
{
    if (step != 20)
        return;
    printf("rank %d pid %d\n", rank, (int)getpid());
    fflush(stdout);
}

#endif
