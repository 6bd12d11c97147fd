/* SPDX-License-Identifier: Apache-2.0 */
#include "testing/dpdk/forge.h"

#include "core/err.h"
#include "dpdk/proto/wire.h"

#include <string.h>

#define LONG_LEAST 9015 /* one byte more than a jumbo frame */

static const char *const words[SL_FORGE_KINDS] = {
    [SL_FORGE_FIELDS] = "fields",     [SL_FORGE_RANDOM] = "random",
    [SL_FORGE_OLD] = "old",           [SL_FORGE_CUT] = "cut",
    [SL_FORGE_LONG] = "long",         [SL_FORGE_CHECKSUM] = "checksum",
    [SL_FORGE_FRAGMENT] = "fragment", [SL_FORGE_VLAN] = "vlan",
    [SL_FORGE_ARP_LIE] = "arp",       [SL_FORGE_DOUBLE] = "double",
};

const char *sl_forge_word(enum sl_forge_kind kind)
{
    return words[kind];
}

int sl_forge_kind(const char *word)
{
    for (int kind = 0; kind < SL_FORGE_KINDS; kind++)
        if (strcmp(word, words[kind]) == 0)
            return kind;
    return -1;
}

/* ---- fields ---- */

static uint32_t below(struct sl_forge *forge, uint32_t most)
{
    return (uint32_t)sl_rng_below(&forge->rng, most);
}

void sl_forge_put_16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

void sl_forge_checksum(uint8_t *frame)
{
    uint8_t *ip = frame + SL_FORGE_IP;
    uint32_t sum = 0;

    sl_forge_put_16(ip + 10, 0);
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    sl_forge_put_16(ip + 10, ~sum);
}

static void put_lengths(struct sl_forge_frame *frame)
{
    sl_forge_put_16(frame->bytes + SL_FORGE_IP + 2, frame->len - SL_FORGE_IP);
    sl_forge_put_16(frame->bytes + SL_FORGE_UDP + 4, frame->len - SL_FORGE_UDP);
    sl_forge_checksum(frame->bytes);
}

/* The header's check and, where the flag promises it, the payload's are right again. */
static void seal(struct sl_forge_frame *frame, struct sl_dp_head *head)
{
    size_t len = frame->len - SL_FORGE_HEAD - sizeof(*head);
    uint8_t *payload = frame->bytes + SL_FORGE_HEAD + sizeof(*head);
    uint32_t crc;

    sl_dp_head_seal(head);
    memcpy(frame->bytes + SL_FORGE_HEAD, head, sizeof(*head));
    if ((head->flags & SL_DP_FLAG_CRC) == 0 || len < SL_DP_CRC_BYTES)
        return;
    crc = sl_dp_payload_crc(head, payload, len - SL_DP_CRC_BYTES);
    memcpy(payload + len - SL_DP_CRC_BYTES, &crc, sizeof(crc));
}

static void scribble(struct sl_forge *forge, void *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)at)[i] = (uint8_t)sl_rng_u64(&forge->rng);
}

void sl_forge_arp(uint8_t arp[SL_FORGE_ARP], uint8_t opcode, const uint8_t mac[6],
                  const uint8_t ip[4], const uint8_t to_mac[6], const uint8_t to_ip[4])
{
    uint8_t *data = arp + 14;

    memset(arp, 0, SL_FORGE_ARP);
    memcpy(arp, to_mac, 6);
    memcpy(arp + 6, mac, 6);
    sl_forge_put_16(arp + 12, 0x0806);
    sl_forge_put_16(data, 1);
    sl_forge_put_16(data + 2, 0x0800);
    sl_forge_put_16(data + 4, 6 << 8 | 4);
    sl_forge_put_16(data + 6, opcode);
    memcpy(data + 8, mac, 6);
    memcpy(data + 14, ip, 4);
    memcpy(data + 18, to_mac, 6);
    memcpy(data + 24, to_ip, 4);
}

/* ---- kinds ---- */

/* Up to four fields of the header say something else, the secret always. */
static void change_fields(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    static const struct {
        uint8_t at, len;
    } fields[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 4}, {16, 4}, {20, 4}, {24, 4}, {28, 2}};
    struct sl_dp_head head;

    memcpy(&head, frame->bytes + SL_FORGE_HEAD, sizeof(head));
    head.secret ^= UINT64_C(1) << below(forge, 64);
    if (below(forge, 2) == 0)
        scribble(forge, &head.secret, sizeof(head.secret));
    if (below(forge, 2) == 0)
        head.kind_version = (uint8_t)((1 + below(forge, 4)) << 4 | SL_DP_VERSION);
    for (uint32_t left = below(forge, 5); left > 0; left--) {
        uint32_t field = below(forge, sizeof(fields) / sizeof(fields[0]));

        scribble(forge, (uint8_t *)&head + fields[field].at, fields[field].len);
    }
    seal(frame, &head);
}

static void change_length(struct sl_forge *forge, struct sl_forge_frame *frame, size_t len)
{
    struct sl_dp_head head;

    memcpy(&head, frame->bytes + SL_FORGE_HEAD, sizeof(head));
    head.secret++;
    scribble(forge, frame->bytes + frame->len, len > frame->len ? len - frame->len : 0);
    frame->len = len;
    put_lengths(frame);
    seal(frame, &head);
}

static void damage(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    static const uint8_t places[] = {SL_FORGE_IP + 10, SL_FORGE_IP + 11, SL_FORGE_HEAD + 17,
                                     SL_FORGE_HEAD + 25, SL_FORGE_HEAD + 30};

    frame->bytes[places[below(forge, sizeof(places))]] ^= (uint8_t)(1 + below(forge, 255));
}

static void fragment(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    sl_forge_put_16(frame->bytes + SL_FORGE_IP + 6,
                    below(forge, 2) == 0 ? 0x2000 : 1 + below(forge, 0x1fff));
    sl_forge_checksum(frame->bytes);
}

static void tag(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    memmove(frame->bytes + 16, frame->bytes + 12, frame->len - 12);
    sl_forge_put_16(frame->bytes + 12, below(forge, 2) == 0 ? 0x8100 : 0x88a8);
    sl_forge_put_16(frame->bytes + 14, below(forge, 65536));
    frame->len += 4;
}

/* To whom the frame goes: the address from which it comes has another MAC; asked or not. */
static void lie(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    static const uint8_t evil[6] = {2, 0xee, 0xee, 0xee, 0xee, 0xee};
    uint8_t arp[SL_FORGE_ARP];

    sl_forge_arp(arp, (uint8_t)(1 + below(forge, 2)), evil, frame->bytes + SL_FORGE_IP + 12,
                 frame->bytes, frame->bytes + SL_FORGE_IP + 16);
    memcpy(frame->bytes, arp, sizeof(arp));
    frame->len = sizeof(arp);
}

/* The number of a flow of now, to the same end if one was heard on its way there. */
static uint32_t number_of_now(struct sl_forge *forge, unsigned to)
{
    uint32_t first = below(forge, forge->kept_count);
    struct sl_dp_head head;

    for (uint32_t i = 0; i < forge->kept_count; i++) {
        const struct sl_forge_frame *kept = &forge->kept[(first + i) % forge->kept_count];

        memcpy(&head, kept->bytes + SL_FORGE_HEAD, sizeof(head));
        if (kept->to == to)
            break;
    }
    return head.flow;
}

static void grow_old(struct sl_forge *forge, struct sl_forge_frame *frame)
{
    struct sl_dp_head head;

    *frame = forge->old[below(forge, forge->old_count)];
    memcpy(&head, frame->bytes + SL_FORGE_HEAD, sizeof(head));
    if (below(forge, 2) != 0)
        return;
    head.flow = number_of_now(forge, frame->to);
    seal(frame, &head);
}

void sl_forge_make(struct sl_forge *forge, enum sl_forge_kind kind, struct sl_forge_frame *frame)
{
    sl_assert(forge->kept_count > 0 && (kind != SL_FORGE_OLD || forge->old_count > 0));
    *frame = forge->kept[below(forge, forge->kept_count)];
    switch (kind) {
    case SL_FORGE_FIELDS: change_fields(forge, frame); break;
    case SL_FORGE_RANDOM:
        scribble(forge, frame->bytes + SL_FORGE_HEAD, frame->len - SL_FORGE_HEAD);
        break;
    case SL_FORGE_OLD: grow_old(forge, frame); break;
    case SL_FORGE_CUT: frame->len = below(forge, (uint32_t)frame->len); break;
    case SL_FORGE_LONG: change_length(forge, frame, LONG_LEAST + below(forge, 1000)); break;
    case SL_FORGE_CHECKSUM: damage(forge, frame); break;
    case SL_FORGE_FRAGMENT: fragment(forge, frame); break;
    case SL_FORGE_VLAN: tag(forge, frame); break;
    case SL_FORGE_ARP_LIE: lie(forge, frame); break;
    default: break;
    }
}

/* ---- what was heard ---- */

bool sl_forge_is_good(const uint8_t *bytes, size_t len)
{
    return len > SL_FORGE_HEAD + SL_DP_HEAD_BYTES && len <= SL_FORGE_FRAME && bytes[12] == 8 &&
           bytes[13] == 0 && bytes[SL_FORGE_IP + 9] == 17;
}

void sl_forge_keep(struct sl_forge *forge, unsigned to, const uint8_t *bytes, size_t len)
{
    bool is_full = forge->kept_count == SL_FORGE_KEPT;
    struct sl_forge_frame *frame =
        &forge->kept[is_full ? below(forge, SL_FORGE_KEPT) : forge->kept_count];

    memcpy(frame->bytes, bytes, len);
    frame->len = len;
    frame->to = to;
    forge->kept_count += !is_full;
}

void sl_forge_forget(struct sl_forge *forge)
{
    memcpy(forge->old, forge->kept, sizeof(forge->old));
    forge->old_count = forge->kept_count;
    forge->kept_count = 0;
}
