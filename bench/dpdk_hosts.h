/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of one process and the flows between them: bench_dpdk_hosts.c. */
#ifndef SL_BENCH_DPDK_HOSTS_H
#define SL_BENCH_DPDK_HOSTS_H

#include "core/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTS_MOST 4
#define WINDOW_MOST 32
#define MESSAGES_MOST 400000

/* One way, on a channel of a connection: messages in flight, and what became of them. */
struct flow {
    struct sl_ep *from, *to;
    uint32_t channel;
    size_t len;
    unsigned window, sent, came; /* messages in flight at most; posted; received */
    bool is_over;                /* nothing more is posted */
    uint8_t *out, *in;
    struct sl_req sends[WINDOW_MOST], recvs[WINDOW_MOST];
    struct sl_sink sinks[WINDOW_MOST];
    uint64_t posted_ns[WINDOW_MOST];
    struct message {
        uint64_t came_ns, took_ns;
    } * log; /* of each that came, up to MESSAGES_MOST; or NULL */
};

uint64_t hosts_now(void);
/* Prints what, with the last error, and ends the process. */
void hosts_die(const char *what);
/* SLUICE_DPDK_PORTS names a memif port for each. */
void hosts_open(const char *ports, unsigned count);
void hosts_close(void);
/* ends[0] of host a, ends[1] of host b. */
void hosts_connect(unsigned a, unsigned b, struct sl_ep *ends[2]);
void hosts_part(struct sl_ep *ends[2]);
/* Each host once. */
void hosts_progress(void);
/* The longest time between two polls since this was called last: long ones are those for which the
 * process was off its core. */
uint64_t hosts_away_ns(void);

struct flow *flow_make(struct sl_ep *from, struct sl_ep *to, uint32_t channel, size_t len,
                       unsigned window);
void flow_free(struct flow *flow);
/* Posts a message. False: the queue is full. */
bool flow_post(struct flow *flow);
/* Notes what came; posts what there is room for. NULL: nothing. */
void flow_step(struct flow *flow);
void flow_end(struct flow *flow);

/* Sorts them. */
double percentile_us(uint64_t *ns, size_t count, double percent);

#endif
