/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_list.h"

#include "monitor/probe_bytes.h"

#include "core/err.h"

#include <errno.h>
#include <string.h>

#define HEAD 8
#define PORT 64

static void put_port(uint8_t *out, const struct sl_probe_port *port)
{
    memcpy(out, port->gid, 16);
    sl_probe_put(out + 16, port->qpn, 4);
    sl_probe_put(out + 20, port->qkey, 4);
    sl_probe_put(out + 24, port->lid, 2);
    sl_probe_put(out + 26, port->mtu, 2);
    out[28] = port->kind;
    memcpy(out + 32, port->name, strnlen(port->name, SL_PROBE_PORT_NAME - 1));
}

int sl_probe_page_write(const struct sl_probe_packet *packet, const struct sl_probe_page *page,
                        const uint8_t key[SL_DIGEST_BYTES], uint8_t *out)
{
    uint8_t body[SL_PROBE_LIST_BYTES - SL_PROBE_LEAST] = {0};

    sl_assert(packet->kind == SL_PROBE_FOUND && packet->len == SL_PROBE_LIST_BYTES);
    sl_assert(page->count <= SL_PROBE_PAGE);
    body[0] = (uint8_t)page->state;
    body[1] = (uint8_t)page->count;
    sl_probe_put(body + 2, page->total, 2);
    if (page->state == SL_PROBE_NONE)
        memcpy(body + HEAD, page->why, strnlen(page->why, SL_PROBE_WHY - 1));
    for (unsigned i = 0; page->state == SL_PROBE_READY && i < page->count; i++)
        put_port(body + HEAD + (size_t)PORT * i, &page->ports[i]);
    return sl_probe_write_body(packet, body, sizeof(body), key, out);
}

static bool take_port(const uint8_t *in, struct sl_probe_port *out)
{
    *out = (struct sl_probe_port){.qpn = (uint32_t)sl_probe_take(in + 16, 4),
                                  .qkey = (uint32_t)sl_probe_take(in + 20, 4),
                                  .lid = (uint16_t)sl_probe_take(in + 24, 2),
                                  .mtu = (uint16_t)sl_probe_take(in + 26, 2),
                                  .kind = in[28]};
    memcpy(out->gid, in, 16);
    memcpy(out->name, in + 32, SL_PROBE_PORT_NAME);
    return sl_probe_is_text(in + 32, SL_PROBE_PORT_NAME, 1, '!') && out->qpn != 0 &&
           out->qpn < 1u << 24 && out->kind >= 1 && out->kind <= SL_PROBE_GID_KINDS &&
           out->mtu >= 256;
}

int sl_probe_page_read(const uint8_t *bytes, const struct sl_probe_packet *packet,
                       struct sl_probe_page *out)
{
    const uint8_t *body = bytes + SL_PROBE_LEAST;

    if (packet->kind != SL_PROBE_FOUND || packet->len != SL_PROBE_LIST_BYTES ||
        body[0] > SL_PROBE_NONE || body[1] > SL_PROBE_PAGE)
        return -EBADMSG;
    memset(out, 0, sizeof(*out));
    out->state = (enum sl_probe_state)body[0];
    if (out->state == SL_PROBE_NONE) {
        if (!sl_probe_is_text(body + HEAD, SL_PROBE_WHY, 1, ' '))
            return -EBADMSG;
        memcpy(out->why, body + HEAD, SL_PROBE_WHY);
    }
    if (out->state != SL_PROBE_READY)
        return 0;
    out->total = (uint16_t)sl_probe_take(body + 2, 2);
    out->count = body[1];
    for (unsigned i = 0; i < out->count; i++)
        if (!take_port(body + HEAD + (size_t)PORT * i, &out->ports[i]))
            return -EBADMSG;
    return out->total <= SL_PROBE_PORTS && out->count <= out->total ? 0 : -EBADMSG;
}
