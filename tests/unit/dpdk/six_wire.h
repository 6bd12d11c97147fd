/* SPDX-License-Identifier: Apache-2.0 */
/* Two ports with IPv6 on a wire of rings, whose frames a test takes off and puts on. */
#ifndef SL_TESTS_UNIT_DPDK_SIX_WIRE_H
#define SL_TESTS_UNIT_DPDK_SIX_WIRE_H

#include "tests/unit/dpdk/port_end.h"

#define SIX_WIRE "ring:six/0@ip=fd00:1::1/64@gw=fe80::1 ring:six/1@ip=fd00:1::2/64"
#define SIX_FRAME_ROOM 9100

struct six_frame {
    uint8_t bytes[SIX_FRAME_ROOM];
    size_t len;
};

extern struct six_wire {
    struct port_end a, b; /* of a list's first port, and of its second */
    uint8_t payload[9000];
} six;

/* Once, before all: 0; -1: there is no memory for frames. */
int six_start(void);
/* The ports of the list; the case fails if they do not open. join: they know each other, too. */
void six_open(const char *list);
void six_join(const char *list);
void six_part(void);
/* The next frame on its way to that end (0: a) is taken off the wire. False: there is none. */
bool six_take(unsigned end, struct six_frame *out);
/* Somebody puts a frame on it; flags are what the receiver's NIC says of it. */
void six_put_seen(unsigned end, const void *frame, size_t len, uint64_t flags);
void six_put(unsigned end, const void *frame, size_t len);
/* A frame of a's to b, as it is on the wire; good until the next one. */
struct six_frame *six_sent(size_t len);
struct sl_dpdk_port_stats six_stats(struct port_end *end);
/* RFC 1071 word by word, from that sum on. */
uint16_t six_sum(const uint8_t *bytes, size_t len, uint32_t sum);
/* Of a frame's upper layer: 0xffff where its checksum is right. */
uint16_t six_sum_of(const uint8_t *frame, uint8_t protocol);

#endif
