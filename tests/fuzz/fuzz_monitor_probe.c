/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of probes: as they come, of anybody; and signed by ourselves with whatever is in them,
 * which are read again or refused, never otherwise. So are pages of ports (FOUND). */
#include "core/err.h"
#include "monitor/probe_list.h"

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

static void sign_and_read_page(const uint8_t *data, size_t size, const uint8_t *key)
{
    static uint8_t bytes[SL_PROBE_LIST_BYTES], again[SL_PROBE_LIST_BYTES];
    struct sl_probe_packet packet = {.kind = SL_PROBE_FOUND, .len = SL_PROBE_LIST_BYTES}, got;
    struct sl_probe_page page;

    size =
        size < SL_PROBE_LIST_BYTES - SL_PROBE_LEAST ? size : SL_PROBE_LIST_BYTES - SL_PROBE_LEAST;
    sl_assert(sl_probe_write_body(&packet, data, size, key, bytes) == 0);
    sl_assert(sl_probe_read(bytes, sizeof(bytes), key, &got) == 0);
    if (sl_probe_page_read(bytes, &got, &page) != 0)
        return;
    sl_assert(page.count <= SL_PROBE_PAGE && page.total <= SL_PROBE_PORTS);
    sl_assert(page.state != SL_PROBE_NONE || page.why[0] != '\0');
    sl_assert(strnlen(page.why, sizeof(page.why)) < sizeof(page.why));
    for (unsigned i = 0; i < page.count; i++)
        sl_assert(page.ports[i].qpn != 0 && page.ports[i].name[0] != '\0' &&
                  strnlen(page.ports[i].name, SL_PROBE_PORT_NAME) < SL_PROBE_PORT_NAME);
    /* What was read is written so that it is read again. */
    sl_assert(sl_probe_page_write(&packet, &page, key, again) == 0 &&
              sl_probe_page_read(again, &packet, &page) == 0);
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
    sign_and_read_page(data, size, key);
    return 0;
}
