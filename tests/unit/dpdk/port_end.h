/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a wire of packets, for tests of ports: a user, its port, one flow, and the way to the
 * other end. */
#ifndef SL_TESTS_UNIT_DPDK_PORT_END_H
#define SL_TESTS_UNIT_DPDK_PORT_END_H

#include "dpdk/port/port.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PORT_END_HEAD 32 /* as the protocol's: the flow's number at its place, then a count */

struct port_hello {
    struct sl_dpdk_address address;
    uint32_t flow;
    bool is_up;
};

struct port_end {
    struct sl_dpdk_user *user;
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX], *port; /* port: the one of the wire */
    size_t port_count;
    struct port_hello own, peer;
    struct sl_dpdk_way way;
    uint64_t sent, came, came_bytes, marked, damaged, returned; /* returned: cookies */
    uint32_t last_len;
    uint64_t last_count, out_of_order; /* out_of_order: packets whose count is not the next */
    bool echoes;
    bool skips_check; /* of the payload's bytes: for measurements */
};

/* Negative errno. */
int port_end_open(struct port_end *end, const struct sl_dpdk_port_settings *settings,
                  unsigned port);
int port_end_connect(struct port_end *end, const struct port_hello *peer, uint16_t source_port);
void port_end_close(struct port_end *end);
/* Sends one packet with len bytes of payload. As sl_dpdk_send(). */
int port_end_send(struct port_end *end, const uint8_t *payload, size_t len, bool may_keep);
/* Receives what is there, and sends what is collected. */
void port_end_poll(struct port_end *end);
/* Polls until *count is at least `least`, or some milliseconds are over. */
bool port_end_wait(struct port_end *end, const uint64_t *count, uint64_t least, int ms);
bool port_end_wait_up(struct port_end *end, int ms);

/* The bytes that payload has: every one may be checked. */
void port_end_fill(uint8_t *payload, size_t len);

#endif
