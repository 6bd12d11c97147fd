/* SPDX-License-Identifier: Apache-2.0 */
/* Asks another agent over UDP how the way there is; for a process of its own, as it waits. */
#ifndef SL_MONITOR_PROBE_UDP_H
#define SL_MONITOR_PROBE_UDP_H

#include "monitor/probe.h"

#include <sys/socket.h>

#define SL_PROBE_TIME_MAX_S 60

/* What is asked for. */
struct sl_probe_order {
    struct sockaddr_storage to, from; /* from: of family 0: the kernel's choice */
    socklen_t to_len, from_len;
    char device[16]; /* interface; "": the kernel's choice */
    uint32_t count, bytes;
    uint64_t gap_ns; /* between two packets */
    uint8_t key[SL_DIGEST_BYTES];
    uint64_t session; /* by chance */
};

/* What came of it, as it goes from one process to the other. */
struct sl_probe_report {
    struct sl_probe_result result;
    uint64_t wall_ns;         /* when it began */
    char host[SL_PROBE_HOST]; /* who answered; "": nobody */
    char why[160];            /* it could not be done, or nobody answered; "" */
};

/* Up to eight packets of LEAST bytes go out before somebody has answered, so nobody is flooded who
 * has not the secret. Takes count times gap and a second, or two. */
void sl_probe_udp(const struct sl_probe_order *order, struct sl_probe_report *out);
/* When a datagram came, by the kernel; else now. CLOCK_REALTIME. */
uint64_t sl_probe_came(struct msghdr *message);
uint64_t sl_probe_wall(void);

#endif
