/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of drivers that raise no SIGPIPE in this thread: other threads' signals are their own. */
#ifndef SL_DPDK_PORT_QUIET_H
#define SL_DPDK_PORT_QUIET_H

#include <signal.h>
#include <stdbool.h>

struct sl_dpdk_quiet {
    sigset_t before;
    bool was_pending;
};

void sl_dpdk_quiet_begin(struct sl_dpdk_quiet *quiet);
/* What was raised since is taken away. */
void sl_dpdk_quiet_end(const struct sl_dpdk_quiet *quiet);

#endif
