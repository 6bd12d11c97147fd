/* SPDX-License-Identifier: Apache-2.0 */
/* Lent payload of one packet: lies in the private part of the buffer that points to it. Includes
 * DPDK's headers, so only files of dpdk/port include it. */
#ifndef SL_DPDK_PORT_KEPT_H
#define SL_DPDK_PORT_KEPT_H

#include "dpdk/port/inside.h"

#include <rte_config.h>
#include <rte_mbuf.h>

struct sl_dpdk_kept {
    struct rte_mbuf_ext_shared_info shared;
    struct sl_dpdk_user *user;
    uint64_t cookie;
};

#endif
