/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the address of an endpoint; every byte of a decoded one is accounted for. */
#include "tcp/address.h"

#include "core/config.h"
#include "core/err.h"

#include <assert.h>
#include <netinet/in.h>
#include <string.h>

#define MAGIC UINT16_C(0x5453) /* "ST" */
#define FIXED 40
#define KIND_V4 1
#define KIND_V6 2
#define KIND_LOOPBACK 0x80
/* Byte 6: checksums, and beside them: */
#define CRC_MASK 3
#define FLAG_TLS 4
#define FLAG_KEYS_STAY 8
#define CIPHER_SHIFT 4

static_assert(FIXED + SL_TCP_ADDRS * 17 <= SL_ADDR_MAX, "the address must fit struct sl_addr");

static uint8_t tls_byte(const struct sl_tcp_address *address)
{
    if (!address->tls)
        return 0;
    return (uint8_t)(FLAG_TLS | (address->tls_terms.keys_stay ? FLAG_KEYS_STAY : 0) |
                     address->tls_terms.cipher << CIPHER_SHIFT);
}

/* False: no end of ours says that. */
static bool decode_tls(uint8_t byte, struct sl_tcp_address *out)
{
    out->crc = byte & CRC_MASK;
    out->tls = (byte & FLAG_TLS) != 0;
    out->tls_terms.keys_stay = (byte & FLAG_KEYS_STAY) != 0;
    out->tls_terms.cipher = byte >> CIPHER_SHIFT;
    return out->crc <= SL_TCP_CRC_AUTO && out->tls_terms.cipher <= SL_TLS_CIPHER_CHACHA20 &&
           tls_byte(out) == (byte & ~CRC_MASK);
}

void sl_tcp_address_encode(const struct sl_tcp_address *address, struct sl_addr *out)
{
    uint8_t *at = out->bytes + FIXED;

    sl_assert(address->count <= SL_TCP_ADDRS);
    memset(out, 0, sizeof(*out));
    out->bytes[0] = MAGIC & 0xff;
    out->bytes[1] = MAGIC >> 8;
    out->bytes[2] = SL_TCP_WIRE_VERSION;
    out->bytes[3] = (uint8_t)address->count;
    out->bytes[4] = (uint8_t)(address->port & 0xff);
    out->bytes[5] = (uint8_t)(address->port >> 8);
    out->bytes[6] = tls_byte(address) | address->crc;
    out->bytes[7] = address->conns;
    memcpy(out->bytes + 8, address->host, SL_TCP_HOST_BYTES);
    memcpy(out->bytes + 24, address->token, SL_TCP_TOKEN_BYTES);
    for (unsigned i = 0; i < address->count; i++) {
        const struct sockaddr_storage *any = &address->places[i].addr;
        bool v4 = any->ss_family == AF_INET;

        *at++ = (v4 ? KIND_V4 : KIND_V6) | (address->places[i].loopback ? KIND_LOOPBACK : 0);
        memcpy(at,
               v4 ? (const void *)&((const struct sockaddr_in *)any)->sin_addr
                  : (const void *)&((const struct sockaddr_in6 *)any)->sin6_addr,
               v4 ? 4 : 16);
        at += v4 ? 4 : 16;
    }
    out->len = (uint16_t)(at - out->bytes);
}

/* How many bytes of the `left` at `at` are the next place; 0: they are none. */
static size_t decode_place(const uint8_t *at, size_t left, uint16_t port, struct sl_tcp_target *out)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->addr;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->addr;

    memset(out, 0, sizeof(*out));
    if (left == 0)
        return 0;
    out->loopback = (*at & KIND_LOOPBACK) != 0;
    switch (*at & ~KIND_LOOPBACK) {
    case KIND_V4:
        if (left < 1 + 4)
            return 0;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, at + 1, 4);
        return 1 + 4;
    case KIND_V6:
        if (left < 1 + 16)
            return 0;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        memcpy(&v6->sin6_addr, at + 1, 16);
        return 1 + 16;
    default: return 0;
    }
}

int sl_tcp_address_decode(const struct sl_addr *in, const char *whose, struct sl_tcp_address *out)
{
    const uint8_t *bytes = in->bytes;
    size_t at = FIXED;

    if (in->len < FIXED || in->len > SL_ADDR_MAX || (bytes[0] | bytes[1] << 8) != MAGIC)
        return sl_fail(-EPROTO, "what %s gave is not a tcp address", whose);
    if (bytes[2] != SL_TCP_WIRE_VERSION)
        return sl_fail(-EPROTO,
                       "%s speaks wire version %u of tcp, this end %u; install the same "
                       "Sluice everywhere",
                       whose, bytes[2], SL_TCP_WIRE_VERSION);
    memset(out, 0, sizeof(*out));
    if (bytes[3] > SL_TCP_ADDRS || !decode_tls(bytes[6], out) ||
        (bytes[7] > SL_TCP_DATA_CONNS_MAX && bytes[7] != SL_TCP_CONNS_NONE))
        return sl_fail(-EPROTO,
                       "the tcp address of %s is damaged: it has %u addresses, %u "
                       "connections, checksums %u",
                       whose, bytes[3], bytes[7], bytes[6]);
    out->port = (uint16_t)(bytes[4] | bytes[5] << 8);
    out->conns = bytes[7];
    memcpy(out->host, bytes + 8, SL_TCP_HOST_BYTES);
    memcpy(out->token, bytes + 24, SL_TCP_TOKEN_BYTES);
    for (; out->count < bytes[3]; out->count++) {
        size_t used = decode_place(bytes + at, in->len - at, out->port, &out->places[out->count]);

        if (used == 0)
            return sl_fail(-EPROTO,
                           "the tcp address of %s is damaged: its address %u of %u is cut "
                           "off or of no known kind",
                           whose, out->count + 1, bytes[3]);
        at += used;
    }
    if (at != in->len)
        return sl_fail(-EPROTO, "the tcp address of %s is damaged: %zu bytes follow its end", whose,
                       in->len - at);
    return 0;
}
