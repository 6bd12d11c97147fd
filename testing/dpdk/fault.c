/* SPDX-License-Identifier: Apache-2.0 */
/* Losses, duplicates, damage, delay and congestion marks of the software switch. */
#include "testing/dpdk/fault.h"

#include <string.h>

#define ETHER_HEAD 14
#define IPV4_HEAD 20
#define IPV6_HEAD 40
#define UDP_HEAD 8
#define ROUTE_AT 2 /* in the header of dpdk/proto/wire.h */

static unsigned be16(const uint8_t *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static bool is_ipv4(const struct sl_fabric_frame *frame)
{
    return frame->len >= ETHER_HEAD + IPV4_HEAD && be16(frame->bytes + 12) == 0x0800 &&
           frame->bytes[ETHER_HEAD] >> 4 == 4;
}

static bool is_ipv6(const struct sl_fabric_frame *frame)
{
    return frame->len >= ETHER_HEAD + IPV6_HEAD && be16(frame->bytes + 12) == 0x86dd &&
           frame->bytes[ETHER_HEAD] >> 4 == 6;
}

/* The UDP header of a frame; NULL: none. */
static const uint8_t *udp_of(const struct sl_fabric_frame *frame)
{
    if (is_ipv6(frame) && frame->bytes[ETHER_HEAD + 6] == 17 &&
        frame->len >= ETHER_HEAD + IPV6_HEAD + UDP_HEAD)
        return frame->bytes + ETHER_HEAD + IPV6_HEAD;
    if (!is_ipv4(frame) || frame->bytes[ETHER_HEAD + 9] != 17)
        return NULL;
    uint32_t at = ETHER_HEAD + 4u * (frame->bytes[ETHER_HEAD] & 15);
    return at + UDP_HEAD <= frame->len ? frame->bytes + at : NULL;
}

static bool names(const struct sl_fabric_rule *rule, const struct sl_fabric_frame *frame)
{
    if ((rule->in != SL_FABRIC_ANY && rule->in != frame->in) ||
        (rule->out != SL_FABRIC_ANY && rule->out != frame->out) ||
        (rule->port != SL_FABRIC_ANY && rule->port != frame->in && rule->port != frame->out))
        return false;
    if (rule->source == SL_FABRIC_ANY && rule->route == SL_FABRIC_ANY)
        return true;
    const uint8_t *udp = udp_of(frame);
    if (!udp)
        return false;
    int source = (int)be16(udp);
    if (rule->source != SL_FABRIC_ANY && (source < rule->source || source > rule->source_end))
        return false;
    if (rule->route == SL_FABRIC_ANY)
        return true;
    const uint8_t *route = udp + UDP_HEAD + ROUTE_AT;
    return route < frame->bytes + frame->len && *route == rule->route;
}

static bool happens(struct sl_fabric *fabric, uint64_t chance)
{
    return chance && (sl_rng_u64(&fabric->rng) >> 32) < chance;
}

struct sl_fault sl_fault_draw(struct sl_fabric *fabric, const struct sl_fabric_frame *frame)
{
    struct sl_fault fault = {0};
    for (unsigned i = 0; i < fabric->rule_count; i++) {
        const struct sl_fabric_rule *rule = &fabric->rules[i];
        if (!names(rule, frame))
            continue;
        fault.lost |= happens(fabric, rule->loss);
        fault.twice |= happens(fabric, rule->twice);
        fault.damaged |= happens(fabric, rule->damage);
        fault.delay_ns += rule->delay_ns;
        if (happens(fabric, rule->late) && rule->late_ns) {
            fault.late = true;
            fault.delay_ns += sl_rng_range(&fabric->rng, 1, rule->late_ns);
        }
    }
    return fault;
}

void sl_fault_damage(struct sl_fabric *fabric, struct sl_fabric_frame *frame)
{
    if (frame->len <= ETHER_HEAD)
        return;
    uint64_t bit = sl_rng_below(&fabric->rng, (frame->len - ETHER_HEAD) * UINT64_C(8));
    frame->bytes[ETHER_HEAD + bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* RFC 1624: the header's checksum goes along. */
static void set_traffic_class(uint8_t *ip, uint8_t value)
{
    uint32_t old = be16(ip), sum = be16(ip + 10);
    ip[1] = value;
    sum = (~sum & 0xffff) + (~old & 0xffff) + be16(ip);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

/* The class lies across two bytes, and no checksum is over it. */
static bool mark_ipv6(uint8_t *ip)
{
    unsigned ecn = ip[1] >> 4 & 3;

    if (ecn == 0 || ecn == 3)
        return false;
    ip[1] |= 3 << 4;
    return true;
}

bool sl_fault_mark(struct sl_fabric_frame *frame)
{
    uint8_t *ip = frame->bytes + ETHER_HEAD;

    if (is_ipv6(frame))
        return mark_ipv6(ip);
    if (!is_ipv4(frame))
        return false;
    unsigned ecn = ip[1] & 3;
    if (ecn == 0 || ecn == 3)
        return false;
    set_traffic_class(ip, ip[1] | 3);
    return true;
}

int sl_fault_dscp(const struct sl_fabric_frame *frame)
{
    const uint8_t *ip = frame->bytes + ETHER_HEAD;

    if (is_ipv6(frame))
        return (int)(be16(ip) >> 6 & 63);
    return is_ipv4(frame) ? ip[1] >> 2 : -1;
}
