/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages: used where there are free ones, and never needed. */
#ifndef SL_DPDK_PORT_HUGE_H
#define SL_DPDK_PORT_HUGE_H

#include <stdbool.h>
#include <stdint.h>

/* May this process have so many bytes of them now? */
bool sl_dpdk_huge_pages_free(uint64_t bytes);
/* EAL says on which NUMA node each huge page is to be, and does not start where that is forbidden,
 * as Docker's and Podman's filters of system calls do without CAP_SYS_NICE. */
bool sl_dpdk_memory_policy_allowed(void);

#endif
