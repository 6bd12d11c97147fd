/* SPDX-License-Identifier: Apache-2.0 */
/* An output port of the software switch: its queues, its rate and its marks. */
#ifndef SL_TESTING_DPDK_FABRIC_PORT_H
#define SL_TESTING_DPDK_FABRIC_PORT_H

#include "testing/dpdk/fabric.h"

/* Zeroed before. False: no memory; fini() all the same. */
bool sl_fabric_port_init(struct sl_fabric_port *port);
/* Drops what is left. */
void sl_fabric_port_fini(struct sl_fabric *fabric, struct sl_fabric_port *port);
/* The frame goes to the queue of its class at frame->out; or it is dropped, as that is full. */
void sl_fabric_port_put(struct sl_fabric *fabric, struct sl_fabric_frame *frame, uint64_t now_ns);
/* Sends what has left the wire by now. How many frames. */
unsigned sl_fabric_port_run(struct sl_fabric *fabric, unsigned number, uint64_t now_ns);
/* When something is due next; UINT64_MAX: nothing waits. */
uint64_t sl_fabric_port_next(const struct sl_fabric_port *port);

#endif
