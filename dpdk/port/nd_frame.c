/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of neighbour discovery: read from any frame, and written into one. */
#include "dpdk/port/nd.h"
#include "dpdk/port/sum.h"

#include <string.h>

#define ETHER_TYPE 12 /* places in a frame */
#define IP_AT 14
#define LENGTH_AT 18
#define NEXT_AT 20
#define HOPS_AT 21
#define FROM_AT 22
#define TO_AT 38
#define ICMP_AT 54
#define CHECK_AT 56
#define FLAGS_AT 58
#define TARGET_AT 62
#define OPTIONS_AT 78

#define ICMPV6 58
#define QUESTION 135 /* neighbour solicitation */
#define ANSWER 136   /* neighbour advertisement */
#define SOLICITED 0x40
#define OVERRIDE 0x20
#define OPTION_SOURCE 1
#define OPTION_TARGET 2

static const uint8_t nobody[16];

void sl_dpdk_nd_group(const uint8_t ip[16], uint8_t group[16])
{
    static const uint8_t first[13] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};

    memcpy(group, first, sizeof(first));
    memcpy(group + 13, ip + 13, 3);
}

void sl_dpdk_nd_group_mac(const uint8_t ip[16], uint8_t mac[6])
{
    memcpy(mac, (const uint8_t[]){0x33, 0x33, 0xff}, 3);
    memcpy(mac + 3, ip + 13, 3);
}

/* The sum over the pseudo header and the message: 0xffff where the check is right. */
static uint16_t sum_of(const uint8_t *frame, size_t icmp_len)
{
    const uint8_t last[8] = {0, 0, (uint8_t)(icmp_len >> 8), (uint8_t)icmp_len, 0, 0, 0, ICMPV6};

    return sl_dpdk_sum_fold(sl_dpdk_sum(frame + FROM_AT, 32) + sl_dpdk_sum(last, sizeof(last)) +
                            sl_dpdk_sum(frame + ICMP_AT, icmp_len));
}

/* An IPv6 packet that is one message of these, whole and undamaged, and from this link. */
static bool is_sound(const uint8_t *frame, size_t len, size_t *icmp_len)
{
    if (len < OPTIONS_AT || frame[ETHER_TYPE] != 0x86 || frame[ETHER_TYPE + 1] != 0xdd ||
        frame[IP_AT] >> 4 != 6 || frame[NEXT_AT] != ICMPV6 || frame[HOPS_AT] != SL_DPDK_ND_HOPS)
        return false;
    *icmp_len = (size_t)frame[LENGTH_AT] << 8 | frame[LENGTH_AT + 1];
    return *icmp_len >= OPTIONS_AT - ICMP_AT && *icmp_len <= len - ICMP_AT &&
           (frame[ICMP_AT] == QUESTION || frame[ICMP_AT] == ANSWER) && frame[ICMP_AT + 1] == 0 &&
           sum_of(frame, *icmp_len) == 0xffff;
}

/* The MAC that an option of that kind tells. False: an option has no length, or too much. */
static bool read_options(const uint8_t *at, size_t len, uint8_t kind, struct sl_dpdk_nd *out)
{
    while (len > 0) {
        size_t option = len >= 2 ? at[1] * (size_t)8 : 0;

        if (option == 0 || option > len)
            return false;
        if (at[0] == kind && option == 8 && !out->has_mac) {
            memcpy(out->mac, at + 2, 6);
            out->has_mac = true;
        }
        at += option;
        len -= option;
    }
    return true;
}

static bool is_group(const uint8_t ip[16])
{
    return ip[0] == 0xff;
}

bool sl_dpdk_nd_read(const uint8_t *frame, size_t len, struct sl_dpdk_nd *out)
{
    uint8_t group[16];
    size_t icmp_len;

    *out = (struct sl_dpdk_nd){0};
    if (!is_sound(frame, len, &icmp_len))
        return false;
    out->is_answer = frame[ICMP_AT] == ANSWER;
    out->is_solicited = out->is_answer && (frame[FLAGS_AT] & SOLICITED) != 0;
    memcpy(out->ether, frame + 6, 6);
    memcpy(out->from, frame + FROM_AT, 16);
    memcpy(out->to, frame + TO_AT, 16);
    memcpy(out->target, frame + TARGET_AT, 16);
    if (!read_options(frame + OPTIONS_AT, icmp_len - (OPTIONS_AT - ICMP_AT),
                      out->is_answer ? OPTION_TARGET : OPTION_SOURCE, out) ||
        is_group(out->target) || is_group(out->from) || (out->has_mac && (out->mac[0] & 1) != 0))
        return false;
    if (out->is_answer)
        return !(out->is_solicited && is_group(out->to));
    sl_dpdk_nd_group(out->target, group);
    return memcmp(out->from, nobody, 16) != 0 || (memcmp(out->to, group, 16) == 0 && !out->has_mac);
}

void sl_dpdk_nd_write(const struct sl_dpdk_nd *nd, const uint8_t from_mac[6],
                      uint8_t out[SL_DPDK_ND_FRAME])
{
    const uint16_t icmp_len = SL_DPDK_ND_FRAME - ICMP_AT;
    uint16_t check;

    memset(out, 0, SL_DPDK_ND_FRAME);
    memcpy(out, nd->ether, 6);
    memcpy(out + 6, from_mac, 6);
    out[ETHER_TYPE] = 0x86;
    out[ETHER_TYPE + 1] = 0xdd;
    out[IP_AT] = 6 << 4;
    out[LENGTH_AT + 1] = (uint8_t)icmp_len;
    out[NEXT_AT] = ICMPV6;
    out[HOPS_AT] = SL_DPDK_ND_HOPS;
    memcpy(out + FROM_AT, nd->from, 16);
    memcpy(out + TO_AT, nd->to, 16);
    out[ICMP_AT] = nd->is_answer ? ANSWER : QUESTION;
    if (nd->is_answer)
        out[FLAGS_AT] = (uint8_t)(OVERRIDE | (nd->is_solicited ? SOLICITED : 0));
    memcpy(out + TARGET_AT, nd->target, 16);
    out[OPTIONS_AT] = nd->is_answer ? OPTION_TARGET : OPTION_SOURCE;
    out[OPTIONS_AT + 1] = 1;
    memcpy(out + OPTIONS_AT + 2, from_mac, 6);
    check = (uint16_t)~sum_of(out, icmp_len);
    memcpy(out + CHECK_AT, &check, sizeof(check));
}
