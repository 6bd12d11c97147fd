/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of the protocol over real ports, in one process: one streams messages to the other, and
 * every byte is checked. What passes on the wire can be seen, and added to. */
#ifndef SL_TESTS_UNIT_DPDK_LIVE_PAIR_H
#define SL_TESTS_UNIT_DPDK_LIVE_PAIR_H

#include "dpdk/port/port.h"
#include "dpdk/proto/flow.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_MESSAGE 65536u
#define LIVE_POSTED 8u /* messages under way */

struct live_end {
    struct sl_dp_engine engine;
    struct sl_dp_flow *flow;
    struct sl_dpdk_user *user;
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX], *port;
    size_t port_count;
    struct sl_dpdk_way way;
    uint32_t number;
    uint64_t secret;
    uint32_t posted, retired, arrived; /* messages */
    uint64_t wrong;                    /* that were not what was sent */
    char failed[200];                  /* "": not */
    uint8_t *places;                   /* LIVE_POSTED messages */
};

struct live_pair {
    struct live_end end[2];
    uint64_t busy_ns; /* of the processor, in both ends' rounds */
};

/* Over the ports that the list names first and second. Negative errno. */
int live_open(struct live_pair *pair, const char *list);
void live_close(struct live_pair *pair);
/* The same ports, and another flow: as after a path that failed. */
int live_renew(struct live_pair *pair);
/* One end, or both, sends so many messages more; each round both ends run once, and between() is
 * called, if it is given. False: not within ms, or one failed, or something was wrong. */
bool live_run(struct live_pair *pair, bool both, uint32_t messages, unsigned ms,
              void (*between)(void *arg), void *arg);

#endif
