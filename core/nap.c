/* SPDX-License-Identifier: Apache-2.0 */
/* Naps by a timer. */
#include "core/nap.h"

#include "core/err.h"

#include <sys/timerfd.h>
#include <unistd.h>

int sl_nap_open(struct sl_nap *nap, uint64_t now_ns)
{
    nap->moved_ns = now_ns;
    nap->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return nap->fd >= 0 ? 0 : sl_fail(-errno, "timerfd_create failed: %s", sluice_strerror(-errno));
}

void sl_nap_close(struct sl_nap *nap)
{
    if (nap->fd >= 0)
        close(nap->fd);
    nap->fd = -1;
}

static void set(const struct sl_nap *nap, uint64_t ns)
{
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(ns / SL_NS_PER_S), .tv_nsec = (long)(ns % SL_NS_PER_S)}};

    timerfd_settime(nap->fd, 0, &when, NULL);
}

uint64_t sl_nap_begin(struct sl_nap *nap, uint64_t now_ns)
{
    uint64_t silence_ns = now_ns > nap->moved_ns ? now_ns - nap->moved_ns : 0;
    uint64_t ns = sl_nap_ns(silence_ns, SL_NAP_LEAST_NS);

    set(nap, ns);
    return ns;
}

void sl_nap_end(struct sl_nap *nap)
{
    set(nap, 0);
}
