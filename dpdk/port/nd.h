/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of neighbour discovery (RFC 4861): who has that IPv6 address, and what is its MAC. Read
 * from any frame and written into one. Pure.
 */
#ifndef SL_DPDK_PORT_ND_H
#define SL_DPDK_PORT_ND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DPDK_ND_FRAME 86 /* bytes of a frame that is written: with the option of a MAC */
#define SL_DPDK_ND_HOPS 255 /* what came through a router has fewer, and counts for nothing */

struct sl_dpdk_nd {
    bool is_answer;    /* an advertisement; otherwise a solicitation */
    bool is_solicited; /* of an answer: somebody asked for it */
    bool has_mac;      /* the option of its sender's, or of the target's, MAC is there */
    uint8_t mac[6];    /* that MAC */
    uint8_t ether[6];  /* the MAC that the frame itself comes from, or goes to when it is written */
    uint8_t from[16];  /* all 0: of one that looks whether anybody has the address yet */
    uint8_t to[16];    /* a host, or a group */
    uint8_t target[16]; /* the address that this is about */
};

/* The group in which questions after an address are asked, and its MAC. */
void sl_dpdk_nd_group(const uint8_t ip[16], uint8_t group[16]);
void sl_dpdk_nd_group_mac(const uint8_t ip[16], uint8_t mac[6]);

/* Reads a frame from its Ethernet header on. False: it is none of these messages, or one that RFC
 * 4861, 7.1, has everybody throw away: not from this link, damaged, cut, or at odds with itself. */
bool sl_dpdk_nd_read(const uint8_t *frame, size_t len, struct sl_dpdk_nd *out);

/* Writes a frame from that MAC, which the option tells as well. Other MACs than those of `ether`
 * and `from` do not count. */
void sl_dpdk_nd_write(const struct sl_dpdk_nd *nd, const uint8_t from_mac[6],
                      uint8_t out[SL_DPDK_ND_FRAME]);

#endif
