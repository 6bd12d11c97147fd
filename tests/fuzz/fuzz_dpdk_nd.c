/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of IPv6's neighbour discovery, of anybody on the wire. */
#include "core/err.h"
#include "dpdk/port/nd.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* With a right checksum: no mutation hits it. */
static void seal(uint8_t *frame, size_t size)
{
    size_t len = (size_t)frame[18] << 8 | frame[19];
    uint32_t sum = (uint32_t)len + 58;

    if (len > size - 54)
        return;
    memset(frame + 56, 0, 2);
    for (size_t i = 22; i < 54 + len; i++)
        sum += i % 2 == 0 ? (uint32_t)frame[i] << 8 : frame[i];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    frame[56] = (uint8_t)(sum >> 8);
    frame[57] = (uint8_t)sum;
}

static void check(const uint8_t *frame, size_t size)
{
    uint8_t out[SL_DPDK_ND_FRAME];
    struct sl_dpdk_nd nd, again;

    if (!sl_dpdk_nd_read(frame, size, &nd))
        return;
    sl_assert(size >= 78 && frame[21] == SL_DPDK_ND_HOPS && nd.target[0] != 0xff);
    sl_assert(!nd.has_mac || (nd.mac[0] & 1) == 0);
    sl_assert(nd.is_answer || !nd.is_solicited);
    if (!nd.has_mac)
        return;
    sl_dpdk_nd_write(&nd, nd.mac, out);
    sl_assert(sl_dpdk_nd_read(out, sizeof(out), &again));
    sl_assert(again.is_answer == nd.is_answer && again.is_solicited == nd.is_solicited &&
              memcmp(again.mac, nd.mac, 6) == 0 && memcmp(again.target, nd.target, 16) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *frame = calloc(1, size > 0 ? size : 1);

    if (frame == NULL)
        return 0;
    if (size > 0)
        memcpy(frame, data, size);
    check(frame, size);
    if (size >= 58) {
        seal(frame, size);
        check(frame, size);
    }
    free(frame);
    return 0;
}
