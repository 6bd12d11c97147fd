/* SPDX-License-Identifier: Apache-2.0 */
/* Asks another agent over UDP how the way there is; for a process of its own, as it waits. */
#ifndef SL_MONITOR_PROBE_UDP_H
#define SL_MONITOR_PROBE_UDP_H

#include "monitor/probe_ask.h"

/* Takes count times gap and a second; on a busy host up to five. */
void sl_probe_udp(const struct sl_probe_order *order, struct sl_probe_report *out);
/* When a datagram came, by the kernel; else now. CLOCK_REALTIME. */
uint64_t sl_probe_came(struct msghdr *message);

/* Room for what comes while nobody reads: the agent does other things for a second now and then, on
 * a busy host, and what finds no room would be counted as lost on the way. */
void sl_probe_udp_room(int fd);
/* A socket to order->to, from its address and interface, without waiting. What the system says,
 * with a sentence. */
int sl_probe_udp_open(const struct sl_probe_order *order);
/* For an asker whose fd is that socket. */
void sl_probe_udp_use(struct sl_probe_asker *asker, int fd);
#define SL_PROBE_NOBODY                                                                            \
    "nobody answers: is [probe] echo on there, with the same secret, and does the way let UDP "    \
    "pass?"

#endif
