/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the places of an address of wire-up, and names its unix socket. */
#include "core/wireup_addr.h"

#include "core/err.h"
#include "core/netif.h"
#include "core/secret.h"

#include <stddef.h>
#include <string.h>

bool sl_wireup_place_at(const struct sl_wireup_addr *addr, unsigned n, struct sockaddr_storage *out)
{
    unsigned at = 0;

    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < addr->place_count && at < sizeof(addr->places); i++) {
        unsigned len = addr->places[at] == 6 ? 16 : 4;

        if (at + 1 + len > sizeof(addr->places))
            return false;
        if (i < n) {
            at += 1 + len;
            continue;
        }
        *out = sl_sockaddr_make(addr->places + at + 1, len, addr->port);
        return true;
    }
    return false;
}

bool sl_wireup_place_add(struct sl_wireup_addr *addr, const struct sockaddr_storage *from)
{
    unsigned at = 0, len;
    const uint8_t *bytes = sl_sockaddr_bytes(from, &len);

    for (unsigned i = 0; i < addr->place_count; i++)
        at += addr->places[at] == 6 ? 17 : 5;
    if (at + 1 + len > sizeof(addr->places) || addr->place_count == SL_WIREUP_PLACES_MAX)
        return false;
    addr->places[at] = len == 4 ? 4 : 6;
    memcpy(addr->places + at + 1, bytes, len);
    addr->place_count++;
    return true;
}

int sl_wireup_local_name(const uint8_t id[SL_WIREUP_ID_BYTES], struct sockaddr_un *out,
                         socklen_t *len)
{
    static const char label[] = "sluice wireup name 1", prefix[] = "sluice-wireup-";
    static const char digits[] = "0123456789abcdef";
    const struct sl_part parts[] = {{label, sizeof(label)}};
    uint8_t digest[SL_DIGEST_BYTES];
    char *at = out->sun_path + 1; /* behind the zero byte of names that are no files */
    size_t used = sizeof(prefix) - 1;
    int err = sl_hmac(id, SL_WIREUP_ID_BYTES, parts, 1, digest);

    if (err != 0)
        return sl_fail(err, "no memory to name a socket");
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    memcpy(at, prefix, sizeof(prefix));
    for (unsigned i = 0; i < SL_WIREUP_ID_BYTES; i++) {
        at[used++] = digits[digest[i] >> 4];
        at[used++] = digits[digest[i] & 15];
    }
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used);
    return 0;
}
