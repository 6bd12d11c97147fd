/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the places of an address of wire-up. */
#include "core/wireup_addr.h"

#include <netinet/in.h>
#include <string.h>

bool sl_wireup_place_at(const struct sl_wireup_addr *addr, unsigned n, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
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
        if (len == 4) {
            v4->sin_family = AF_INET;
            v4->sin_port = htons(addr->port);
            memcpy(&v4->sin_addr, addr->places + at + 1, 4);
        } else {
            v6->sin6_family = AF_INET6;
            v6->sin6_port = htons(addr->port);
            memcpy(&v6->sin6_addr, addr->places + at + 1, 16);
        }
        return true;
    }
    return false;
}

bool sl_wireup_place_add(struct sl_wireup_addr *addr, const struct sockaddr_storage *from)
{
    bool v4 = from->ss_family == AF_INET;
    unsigned at = 0, len = v4 ? 4 : 16;
    const void *bytes = v4 ? (const void *)&((const struct sockaddr_in *)from)->sin_addr
                           : (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr;

    for (unsigned i = 0; i < addr->place_count; i++)
        at += addr->places[at] == 6 ? 17 : 5;
    if (at + 1 + len > sizeof(addr->places) || addr->place_count == SL_WIREUP_PLACES_MAX)
        return false;
    addr->places[at] = v4 ? 4 : 6;
    memcpy(addr->places + at + 1, bytes, len);
    addr->place_count++;
    return true;
}
