/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of probes: as they come, of anybody; and signed by ourselves with whatever is in them,
 * which are read again or refused, never otherwise. */
#include "core/err.h"
#include "monitor/probe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign_and_read(const uint8_t *data, size_t size, const uint8_t *key)
{
    struct sl_probe_packet packet, got;
    uint8_t *bytes;

    if (size < sizeof(packet))
        return;
    memcpy(&packet, data, sizeof(packet));
    packet.kind = data[0] % 2 == 0 ? SL_PROBE_ASK : SL_PROBE_ANSWER;
    packet.len = SL_PROBE_LEAST + packet.len % (SL_PROBE_MOST - SL_PROBE_LEAST + 1);
    bytes = malloc(packet.len); /* to the byte */
    sl_assert(bytes != NULL && sl_probe_write(&packet, key, bytes) == 0);
    if (sl_probe_read(bytes, packet.len, key, &got) == 0) {
        sl_assert(got.kind == packet.kind && got.len == packet.len &&
                  got.session == packet.session && got.number == packet.number &&
                  got.seen == packet.seen && got.sent_ns == packet.sent_ns);
        sl_assert(strnlen(got.host, sizeof(got.host)) < sizeof(got.host));
        for (const char *at = got.host; *at != '\0'; at++)
            sl_assert(*at > ' ' && *at <= '~');
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t key[SL_DIGEST_BYTES] = {1, 2, 3};
    struct sl_probe_packet got;
    uint8_t *copy = malloc(size > 0 ? size : 1);

    sl_assert(copy != NULL);
    memcpy(copy, data, size);
    /* Nobody makes a proof by chance. */
    sl_assert(sl_probe_read(copy, size, key, &got) != 0);
    free(copy);
    sign_and_read(data, size, key);
    return 0;
}
