/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK's runtime (EAL): once per process. */
#ifndef SL_DPDK_PORT_EAL_H
#define SL_DPDK_PORT_EAL_H

#include "dpdk/port/ports.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts it with no more than these ports need, or finds it started. Under control. */
int sl_dpdk_eal_start(const struct sl_dpdk_port_settings *settings,
                      const struct sl_dpdk_spec *specs, size_t count);

/* This thread uses DPDK from now on: its pools have a cache for it until it ends. */
void sl_dpdk_thread_enter_slow(void);
extern _Thread_local bool sl_dpdk_thread_entered;
static inline void sl_dpdk_thread_enter(void)
{
    if (__builtin_expect(!sl_dpdk_thread_entered, 0))
        sl_dpdk_thread_enter_slow();
}

/* DPDK's lines go to core/log. -ENOMEM. */
int sl_dpdk_log_start(void);
/* The first line that DPDK wrote as an error since sl_dpdk_log_clear(); "": none. */
void sl_dpdk_log_clear(void);
void sl_dpdk_log_first(char *out, size_t cap);

#endif
