/* SPDX-License-Identifier: Apache-2.0 */
/* The address that a rank gives for its tcp endpoint. What is accepted is encoded to the same
 * bytes. */
#include "core/err.h"
#include "tcp/address.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sl_addr *in)
{
    struct sl_tcp_address address;
    struct sl_addr again;

    if (sl_tcp_address_decode(in, "rank 1", &address) != 0)
        return;
    sl_assert(address.count <= SL_TCP_ADDRS && address.crc <= SL_TCP_CRC_AUTO);
    sl_assert(address.tls ||
              (!address.tls_terms.keys_stay && address.tls_terms.cipher == SL_TLS_CIPHER_AUTO));
    sl_assert(address.conns <= SL_TCP_DATA_CONNS_MAX || address.conns == SL_TCP_CONNS_NONE);
    for (unsigned i = 0; i < address.count; i++) {
        int family = address.places[i].addr.ss_family;

        sl_assert(family == AF_INET || family == AF_INET6);
    }
    sl_tcp_address_encode(&address, &again);
    sl_assert(again.len == in->len && memcmp(again.bytes, in->bytes, in->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_addr in = {.len = size > UINT16_MAX ? UINT16_MAX : (uint16_t)size}, shaped;

    memcpy(in.bytes, data, size < SL_ADDR_MAX ? size : SL_ADDR_MAX);
    check(&in);
    /* What lies behind the first checks, too: the shape put right, and every shorter length. */
    if (size >= 4) {
        shaped = in;
        memcpy(shaped.bytes, "ST", 2);
        shaped.bytes[2] = SL_TCP_WIRE_VERSION;
        shaped.bytes[3] %= SL_TCP_ADDRS + 2;
        for (shaped.len = 0; shaped.len <= SL_ADDR_MAX; shaped.len++)
            check(&shaped);
    }
    return 0;
}
