/* SPDX-License-Identifier: Apache-2.0 */
/* The Internet's checksum (RFC 1071), which UDP over IPv6 and ICMPv6 cannot do without. Pure. */
#ifndef SL_DPDK_PORT_SUM_H
#define SL_DPDK_PORT_SUM_H

#include <stddef.h>
#include <stdint.h>

/* One's complement sum of the bytes as words of 16 bits in memory's own order, folded to 16 bits.
 * Sums of parts may be added, if all of them but the last have an even length. */
uint32_t sl_dpdk_sum(const void *bytes, size_t len);

/* Of a sum of up to 65,536 such parts. */
static inline uint16_t sl_dpdk_sum_fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)(sum + (sum >> 16));
}

#endif
