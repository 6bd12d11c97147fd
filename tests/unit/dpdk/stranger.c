/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/stranger.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define IP_AT 14
#define UDP_AT 34
#define HEAD_AT 42
#define ROOM 128 /* places of a ring that he leaves free */

static const char *const words[STRANGER_KINDS] = {
    [STRANGER_FIELDS] = "fields, another secret",
    [STRANGER_RANDOM] = "random bytes",
    [STRANGER_OLD] = "of an old flow",
    [STRANGER_CUT] = "cut off",
    [STRANGER_LONG] = "too long",
    [STRANGER_CHECKSUM] = "damaged",
    [STRANGER_FRAGMENT] = "fragments of IP",
    [STRANGER_VLAN] = "VLAN tags",
    [STRANGER_ARP] = "lies of ARP",
    [STRANGER_DOUBLE] = "doubled",
};

const char *stranger_word(enum stranger_kind kind)
{
    return words[kind];
}

/* ---- frames ---- */

static uint32_t below(struct stranger *s, uint32_t most)
{
    return (uint32_t)sl_rng_below(&s->rng, most);
}

static void put_16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put_checksum(uint8_t *frame)
{
    struct rte_ipv4_hdr ip;

    memcpy(&ip, frame + IP_AT, sizeof(ip));
    ip.hdr_checksum = 0;
    ip.hdr_checksum = (uint16_t)~rte_raw_cksum(&ip, sizeof(ip));
    memcpy(frame + IP_AT, &ip, sizeof(ip));
}

static void put_lengths(struct stranger_frame *frame)
{
    put_16(frame->bytes + IP_AT + 2, frame->len - IP_AT);
    put_16(frame->bytes + UDP_AT + 4, frame->len - UDP_AT);
    put_checksum(frame->bytes);
}

/* The header's check and, where the flag promises it, the payload's are right again. */
static void seal(struct stranger_frame *frame, struct sl_dp_head *head)
{
    size_t len = frame->len - HEAD_AT - sizeof(*head);
    uint8_t *payload = frame->bytes + HEAD_AT + sizeof(*head);
    uint32_t crc;

    sl_dp_head_seal(head);
    memcpy(frame->bytes + HEAD_AT, head, sizeof(*head));
    if ((head->flags & SL_DP_FLAG_CRC) == 0 || len < SL_DP_CRC_BYTES)
        return;
    crc = sl_dp_payload_crc(head, payload, len - SL_DP_CRC_BYTES);
    memcpy(payload + len - SL_DP_CRC_BYTES, &crc, sizeof(crc));
}

static void scribble(struct stranger *s, void *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)at)[i] = (uint8_t)sl_rng_u64(&s->rng);
}

/* Up to four fields of the header say something else, the secret always. */
static void change_fields(struct stranger *s, struct stranger_frame *frame)
{
    static const struct {
        uint8_t at, len;
    } fields[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 4}, {16, 4}, {20, 4}, {24, 4}, {28, 2}};
    struct sl_dp_head head;

    memcpy(&head, frame->bytes + HEAD_AT, sizeof(head));
    head.secret ^= UINT64_C(1) << below(s, 64);
    if (below(s, 2) == 0)
        scribble(s, &head.secret, sizeof(head.secret));
    if (below(s, 2) == 0)
        head.kind_version = (uint8_t)((1 + below(s, 4)) << 4 | SL_DP_VERSION);
    for (uint32_t left = below(s, 5); left > 0; left--) {
        uint32_t field = below(s, sizeof(fields) / sizeof(fields[0]));

        scribble(s, (uint8_t *)&head + fields[field].at, fields[field].len);
    }
    seal(frame, &head);
}

static void change_length(struct stranger *s, struct stranger_frame *frame, size_t len)
{
    struct sl_dp_head head;

    memcpy(&head, frame->bytes + HEAD_AT, sizeof(head));
    head.secret++;
    scribble(s, frame->bytes + frame->len, len > frame->len ? len - frame->len : 0);
    frame->len = len;
    put_lengths(frame);
    seal(frame, &head);
}

static void damage(struct stranger *s, struct stranger_frame *frame)
{
    static const uint8_t places[] = {IP_AT + 10, IP_AT + 11, HEAD_AT + 17, HEAD_AT + 25,
                                     HEAD_AT + 30};

    frame->bytes[places[below(s, sizeof(places))]] ^= (uint8_t)(1 + below(s, 255));
}

static void fragment(struct stranger *s, struct stranger_frame *frame)
{
    put_16(frame->bytes + IP_AT + 6, below(s, 2) == 0 ? 0x2000 : 1 + below(s, 0x1fff));
    put_checksum(frame->bytes);
}

static void tag(struct stranger *s, struct stranger_frame *frame)
{
    memmove(frame->bytes + 16, frame->bytes + 12, frame->len - 12);
    put_16(frame->bytes + 12, below(s, 2) == 0 ? 0x8100 : 0x88a8);
    put_16(frame->bytes + 14, below(s, 65536));
    frame->len += 4;
}

static const uint8_t evil[6] = {2, 0xee, 0xee, 0xee, 0xee, 0xee};

/* An answer, or a question, from which a host may learn that ip has that MAC. */
static void put_arp(uint8_t arp[60], uint8_t opcode, const uint8_t mac[6], const uint8_t ip[4],
                    const uint8_t to_mac[6], const uint8_t to_ip[4])
{
    uint8_t *data = arp + 14;

    memset(arp, 0, 60);
    memcpy(arp, to_mac, 6);
    memcpy(arp + 6, mac, 6);
    put_16(arp + 12, 0x0806);
    put_16(data, 1);
    put_16(data + 2, 0x0800);
    put_16(data + 4, 6 << 8 | 4);
    put_16(data + 6, opcode);
    memcpy(data + 8, mac, 6);
    memcpy(data + 14, ip, 4);
    memcpy(data + 18, to_mac, 6);
    memcpy(data + 24, to_ip, 4);
}

/* To whom the frame goes: the address from which it comes has the stranger's MAC; asked or not. */
static void lie(struct stranger *s, struct stranger_frame *frame)
{
    uint8_t arp[60];

    put_arp(arp, (uint8_t)(1 + below(s, 2)), evil, frame->bytes + IP_AT + 12, frame->bytes,
            frame->bytes + IP_AT + 16);
    memcpy(frame->bytes, arp, sizeof(arp));
    frame->len = sizeof(arp);
}

static void grow_old(struct stranger *s, struct stranger_frame *frame)
{
    struct sl_dp_head head;

    *frame = s->old[below(s, s->old_count)];
    memcpy(&head, frame->bytes + HEAD_AT, sizeof(head));
    if (below(s, 2) != 0)
        return;
    head.flow = s->pair->end[frame->to].number;
    seal(frame, &head);
}

static void make(struct stranger *s, struct stranger_frame *frame)
{
    *frame = s->kept[below(s, s->kept_count)];
    switch (s->kind) {
    case STRANGER_FIELDS: change_fields(s, frame); break;
    case STRANGER_RANDOM: scribble(s, frame->bytes + HEAD_AT, frame->len - HEAD_AT); break;
    case STRANGER_OLD: grow_old(s, frame); break;
    case STRANGER_CUT: frame->len = below(s, (uint32_t)frame->len); break;
    case STRANGER_LONG: change_length(s, frame, 9015 + below(s, 1000)); break;
    case STRANGER_CHECKSUM: damage(s, frame); break;
    case STRANGER_FRAGMENT: fragment(s, frame); break;
    case STRANGER_VLAN: tag(s, frame); break;
    case STRANGER_ARP: lie(s, frame); break;
    default: break;
    }
}

/* ---- the wire ---- */

/* What is on its way to that end. */
static struct rte_ring *ring_to(const struct stranger *s, unsigned end)
{
    char name[32];

    snprintf(name, sizeof(name), "sl_%s_%u", s->wire, end);
    return rte_ring_lookup(name);
}

static void keep(struct stranger *s, unsigned to, const struct rte_mbuf *packet)
{
    struct stranger_frame *frame =
        &s->kept[s->kept_count < STRANGER_KEPT ? s->kept_count : below(s, STRANGER_KEPT)];
    const void *bytes = rte_pktmbuf_read(packet, 0, packet->pkt_len, frame->bytes);

    if (bytes != frame->bytes)
        memcpy(frame->bytes, bytes, packet->pkt_len);
    frame->len = packet->pkt_len;
    frame->to = to;
    s->kept_count += s->kept_count < STRANGER_KEPT;
}

/* Not his own, and none of ARP. */
static bool is_good(const struct stranger *s, const struct rte_mbuf *packet)
{
    const uint8_t *bytes = rte_pktmbuf_mtod(packet, const uint8_t *);

    return packet->pool != s->pool && packet->pkt_len > HEAD_AT + SL_DP_HEAD_BYTES &&
           bytes[12] == 8 && bytes[13] == 0;
}

/* Every packet goes through his hands, in its order. */
static void listen_to(struct stranger *s, unsigned to)
{
    struct rte_ring *ring = ring_to(s, to);
    unsigned count = rte_ring_count(ring);
    void *packet;

    s->owed += count * s->percent;
    s->seen += count;
    while (count-- > 0 && rte_ring_dequeue(ring, &packet) == 0) {
        if (is_good(s, packet) && (s->kept_count < STRANGER_KEPT || below(s, 16) == 0))
            keep(s, to, packet);
        (void)rte_ring_enqueue(ring, packet);
    }
}

static bool put(struct stranger *s, const struct stranger_frame *frame)
{
    struct rte_mbuf *packet = rte_pktmbuf_alloc(s->pool);

    if (packet == NULL)
        return false;
    memcpy(rte_pktmbuf_append(packet, (uint16_t)frame->len), frame->bytes, frame->len);
    if (rte_ring_enqueue(ring_to(s, frame->to), packet) == 0)
        return true;
    rte_pktmbuf_free(packet);
    return false;
}

static bool add(struct stranger *s)
{
    static struct stranger_frame frame;

    make(s, &frame);
    if (rte_ring_free_count(ring_to(s, frame.to)) < ROOM || !put(s, &frame))
        return false;
    s->sent++;
    return true;
}

void stranger_says(struct stranger *s, unsigned to, const uint8_t mac[6], const uint8_t ip[4])
{
    static struct stranger_frame frame;
    struct sl_dpdk_port_info info;

    sl_dpdk_port_info(s->pair->end[to].port, &info);
    put_arp(frame.bytes, 2, mac, ip, info.address.mac, info.address.ip);
    frame.len = 60;
    frame.to = to;
    (void)put(s, &frame);
}

void stranger_act(void *arg)
{
    struct stranger *s = arg;

    listen_to(s, 0);
    listen_to(s, 1);
    while (s->owed >= 100 && s->kept_count == STRANGER_KEPT && add(s))
        s->owed -= 100;
    s->owed %= 100;
}

void stranger_forget(struct stranger *stranger)
{
    memcpy(stranger->old, stranger->kept, sizeof(stranger->old));
    stranger->old_count = stranger->kept_count;
    stranger->kept_count = 0;
}

int stranger_open(struct stranger *stranger, struct live_pair *pair, const char *wire)
{
    memset(stranger, 0, sizeof(*stranger));
    stranger->pair = pair;
    stranger->wire = wire;
    stranger->pool =
        rte_pktmbuf_pool_create("stranger", 1023, 0, 0, STRANGER_FRAME + 128, SOCKET_ID_ANY);
    return stranger->pool == NULL ? -ENOMEM : 0;
}

void stranger_close(struct stranger *stranger)
{
    rte_mempool_free(stranger->pool);
}
