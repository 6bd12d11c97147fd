/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dpdk/port/port.h without DPDK: ports of one process and one thread, on wires that are named in
 * the list, with a seeded wire between them. Time plays no part: a packet that was flushed can be
 * taken at once, unless the wire holds it back for another one.
 *
 * A list has NAME@WIRE for each port, or NAME@* for one whose way to others goes by its address.
 */
#ifndef SL_TESTS_FAKE_PORT_H
#define SL_TESTS_FAKE_PORT_H

#include "dpdk/port/port.h"

/* Of all wires; chances are one in so many packets, 0: never. */
struct fake_port_weather {
    uint64_t lost, doubled, held, damaged, marked;
    unsigned queue;      /* packets that wait for a user; 0: 1024 */
    unsigned frame_most; /* of the ports that are opened from now on; 0: 9014 */
    bool keeps;          /* ports read payload out of the sender's memory, at the flush or later */
    unsigned slow;       /* ... and have read it only after so many more polls */
};

/* Forgets all that was set before. No port is open. */
void fake_port_reset(uint64_t seed);
void fake_port_weather(const struct fake_port_weather *weather);

/* The link of a port. While it is down it takes packets, and loses them. */
void fake_port_link(const char *name, bool is_up);
/* The port takes no packet: its queue is full for ever, or until it is told otherwise. */
void fake_port_stuck(const char *name, bool is_stuck);
/* What leaves by that UDP source port is lost; 0: all of that port. */
void fake_port_cut(const char *name, uint16_t source_port, bool is_cut);
/* So many calls of sl_dpdk_way_make() find no neighbour. */
void fake_port_neighbours(unsigned count);
/* Puts bytes on the way to whoever has that flow number, as a stranger could. */
void fake_port_inject(uint32_t flow, const void *bytes, size_t len);
/* Sees each packet as it leaves; false: it is lost. NULL: nobody looks. */
void fake_port_watch(bool (*look)(void *arg, const uint8_t *bytes, size_t len), void *arg);

/* Packets so far that were taken by a port. */
uint64_t fake_port_sent(void);
/* Of them, those of that traffic class. */
uint64_t fake_port_sent_in(uint8_t traffic_class);
/* Ports, users and flow numbers that were not given back. */
unsigned fake_port_live(void);

#endif
