/* SPDX-License-Identifier: Apache-2.0 */
/* Drivers write to sockets whose other end may be gone, and leave the signal of that to the
 * program, which mostly has no handler and ends. */
#include "dpdk/port/quiet.h"

#include <time.h>

static bool is_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void sl_dpdk_quiet_begin(struct sl_dpdk_quiet *quiet)
{
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    quiet->was_pending = is_pending();
    pthread_sigmask(SIG_BLOCK, &pipe, &quiet->before);
}

void sl_dpdk_quiet_end(const struct sl_dpdk_quiet *quiet)
{
    const struct timespec at_once = {0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!quiet->was_pending && is_pending())
        (void)sigtimedwait(&pipe, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}
