/* SPDX-License-Identifier: Apache-2.0 */
/* "ring:NAME/0" and "ring:NAME/1": two ports of this process with two queues between them. */
#ifndef SL_DPDK_PORT_RING_H
#define SL_DPDK_PORT_RING_H

#include "dpdk/port/ports.h"

#include <stdint.h>

/* Under control, all of them. */
int sl_dpdk_ring_attach(const struct sl_dpdk_spec *spec, uint16_t *id);
/* After its port was closed. */
void sl_dpdk_ring_detach(const struct sl_dpdk_spec *spec);
/* No wire of another process has it. */
uint32_t sl_dpdk_ring_segment(const struct sl_dpdk_spec *spec);

#endif
