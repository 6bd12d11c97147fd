/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of ports: compared, and written for people. */
#include "dpdk/port/port.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

bool sl_dpdk_has_ip6(const struct sl_dpdk_address *address)
{
    static const uint8_t none[16];

    return memcmp(address->ip6, none, sizeof(none)) != 0;
}

bool sl_dpdk_same_subnet(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || ((a[whole] ^ b[whole]) & 0xff & (0xff00 >> rest)) == 0;
}

const char *sl_dpdk_address_text(const struct sl_dpdk_address *address,
                                 char out[SL_DPDK_ADDRESS_TEXT])
{
    bool is_ip6 = !sl_dpdk_has_ip4(address) && sl_dpdk_has_ip6(address);
    const void *ip = is_ip6 ? address->ip6 : address->ip;

    if (inet_ntop(is_ip6 ? AF_INET6 : AF_INET, ip, out, SL_DPDK_ADDRESS_TEXT) == NULL)
        snprintf(out, SL_DPDK_ADDRESS_TEXT, "?");
    return out;
}
