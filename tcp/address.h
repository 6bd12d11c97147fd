/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of an endpoint's address in the tcp transport. docs/wire.md draws them. Pure: nothing
 * here opens a socket, and the decoder takes any bytes. */
#ifndef SL_TCP_ADDRESS_H
#define SL_TCP_ADDRESS_H

#include "core/transport.h"
#include "tcp/frame.h"
#include "tcp/netif.h"
#include "tcp/tls.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_TCP_ADDRS 12 /* addresses in one endpoint's address */
#define SL_TCP_HOST_BYTES 16
#define SL_TCP_CRC_AUTO 2

struct sl_tcp_address {
    uint16_t port;
    uint8_t crc;                     /* SL_OFF, SL_ON, SL_TCP_CRC_AUTO */
    bool tls;                        /* it speaks TLS, and nothing else */
    struct sl_tls_terms tls_terms;   /* how; without TLS all 0 */
    uint8_t conns;                   /* data connections wanted; 0 auto */
    uint8_t host[SL_TCP_HOST_BYTES]; /* equal exactly where loopback reaches */
    uint8_t token[SL_TCP_TOKEN_BYTES];
    unsigned count;
    struct sl_tcp_target places[SL_TCP_ADDRS]; /* best first; decoded ones carry the port */
};

void sl_tcp_address_encode(const struct sl_tcp_address *address, struct sl_addr *out);
/* whose: its giver, for the sentences. -EPROTO: not an address of tcp, of another version, or
 * damaged. */
int sl_tcp_address_decode(const struct sl_addr *in, const char *whose, struct sl_tcp_address *out);

#endif
