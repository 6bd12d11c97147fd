/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults on what ports receive: a test aid, off unless it is asked for, and then free of cost.
 *
 *   loss=P dup=P reorder=P corrupt=P delay=P   of all packets, 0 to 1
 *   delay_us=N     how long a delayed packet is held back; 200
 *   seed=N         of chance; 1
 *   port=N         only packets with that UDP source port
 *
 * with commas between them: "loss=0.01,reorder=0.001,seed=7". A packet that is reordered comes
 * after up to 16 that follow it.
 */
#ifndef SL_DPDK_PORT_INJECT_H
#define SL_DPDK_PORT_INJECT_H

#include <stdint.h>

struct sl_dpdk_port;

struct sl_dpdk_faults {
    uint32_t loss, dup, reorder, corrupt, delay; /* of 2^32 packets */
    uint64_t delay_ns, seed;
    uint16_t source_port; /* 0: all */
};

/* -EINVAL with a sentence. Pure. */
int sl_dpdk_faults_parse(const char *text, struct sl_dpdk_faults *out);

/* text NULL or "": none. Before the port is started. */
int sl_dpdk_inject_start(struct sl_dpdk_port *port, const char *text);
void sl_dpdk_inject_stop(struct sl_dpdk_port *port);
uint64_t sl_dpdk_inject_count(const struct sl_dpdk_port *port);

#endif
