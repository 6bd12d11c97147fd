/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets of the DPDK transport, behind Ethernet, IP and UDP. docs/wire.md draws them; numbers are
 * little-endian. A header is 32 bytes, whatever it heads:
 *
 *    0  kind (upper 4 bits), version (lower 4)
 *    1  flags
 *    2  route      by which it went: the sender's number of the UDP source port. ACK and
 *                  PROBE_REPLY: the route they answer
 *    3  part       DATA: parts - 1 (upper 4 bits), which of them (lower 4); 0: the whole packet
 *    4  flow       the receiver's number of the flow
 *    8  secret     the receiver's, of that flow; 64 random bits, told over the sideband
 *   16  seq        DATA: of this packet. ACK: the first that did not come yet
 *   20  imm        DATA: the message's. ACK: the first that there is no room for
 *   24  offset     DATA: of the payload, as its receiver's place() knows it. ACK: ns the receiver
 *                  kept the answer back
 *   28  stamp      transmissions by this route before, modulo 2^16. ACK, PROBE_REPLY: echoed
 *   30  check      CRC32C of the header with 0 here, its lower half
 *
 * Where a packet belongs is told by what its receiver granted (the CTS in imm), never by an
 * address: a peer cannot name other memory.
 */
#ifndef SL_DPDK_PROTO_WIRE_H
#define SL_DPDK_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DP_VERSION 1
#define SL_DP_HEAD_BYTES 32
#define SL_DP_SACK_WORDS 16 /* of 64 packets each: as far as an ACK sees behind its seq */
#define SL_DP_CRC_BYTES                                                                            \
    4 /* with SL_DP_FLAG_CRC, behind the payload: CRC32C of header and payload */
#define SL_DP_PARTS_MAX 8 /* of a packet that is too large for a route's MTU since it was cut */

enum sl_dp_kind {
    SL_DP_DATA = 1,
    SL_DP_ACK,         /* payload: struct sl_dp_ack and its words; always with a CRC */
    SL_DP_PROBE,       /* payload: zeros, as long as the frame to be tried; may be padded */
    SL_DP_PROBE_REPLY, /* echoes stamp; offset is the length that came */
};

#define SL_DP_FLAG_LAST 1u   /* DATA: the last packet of its message */
#define SL_DP_FLAG_WRITE 2u  /* DATA: of a write; else of a frame */
#define SL_DP_FLAG_NOW 4u    /* to be answered at once */
#define SL_DP_FLAG_CRC 8u    /* SL_DP_CRC_BYTES follow the payload */
#define SL_DP_FLAG_AGAIN 16u /* DATA: sent before; for people who read captures */
#define SL_DP_FLAG_MORE 32u  /* DATA: more follows, and the answer may wait for it */

struct sl_dp_head {
    uint8_t kind_version, flags;
    uint8_t route, part;
    uint32_t flow;
    uint64_t secret;
    uint32_t seq, imm, offset;
    uint16_t stamp, check;
};
_Static_assert(sizeof(struct sl_dp_head) == SL_DP_HEAD_BYTES, "travels as it is");

/* Payload of an ACK: words[i] bit j stands for seq + 1 + 64 i + j. */
struct sl_dp_ack {
    uint32_t echo;    /* seq of the packet that stamp is of: the latest of that route */
    uint32_t came;    /* packets of that route so far, repeated ones too */
    uint32_t ce;      /* of them with a congestion mark */
    uint16_t words;   /* up to SL_DP_SACK_WORDS */
    uint16_t away_us; /* for so long the receiver had not looked when echo came; 65535: or longer */
    uint64_t sack[SL_DP_SACK_WORDS];
};
#define SL_DP_ACK_HEAD offsetof(struct sl_dp_ack, sack)

/* Puts the check in; nothing is changed after. */
void sl_dp_head_seal(struct sl_dp_head *head);
/* What follows a payload with SL_DP_FLAG_CRC. */
uint32_t sl_dp_payload_crc(const struct sl_dp_head *head, const void *payload, size_t len);
/* False: no header, or a damaged one. bytes may lie anyhow. */
bool sl_dp_head_read(const void *bytes, size_t len, struct sl_dp_head *out);
/* Of a packet whose header was read, from the UDP payload on: where the payload is and how long.
 * False: shorter than it says, or damaged. */
bool sl_dp_payload_read(const struct sl_dp_head *head, const void *bytes, size_t len,
                        const void **payload, size_t *payload_len);
bool sl_dp_payload_good(const struct sl_dp_head *head, const void *payload, size_t payload_len);
/* False: its length is not what its words ask for. */
bool sl_dp_ack_read(const void *payload, size_t len, struct sl_dp_ack *out);
/* The least that a packet needs to be looked up by: its flow number. False: no packet of ours. */
bool sl_dp_peek(const void *bytes, size_t len, uint32_t *flow);

#endif
