/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and checks handles, words and announcements. */
#include "tools/nccl/wire.h"

#include "core/err.h"
#include "core/wireup_addr.h"

#include <string.h>

#define HANDLE_MAGIC UINT32_C(0x484e4c53) /* "SLNH" */

_Static_assert(16 + sizeof(struct sl_wireup_addr) == SL_NCCL_HANDLE_OWN, "a handle's bytes");

static void put(uint8_t *p, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

/* ---- handle ---- */

/* 0: magic, 4: version, 6: 0, 8: token, 16: address of wire-up. */

void sl_nccl_handle_encode(const struct sl_nccl_handle *handle, uint8_t out[SL_NCCL_HANDLE_OWN])
{
    memset(out, 0, SL_NCCL_HANDLE_OWN);
    put(out, HANDLE_MAGIC, 4);
    put(out + 4, SL_NCCL_WIRE_VERSION, 2);
    put(out + 8, handle->token, 8);
    memcpy(out + 16, &handle->addr, sizeof(handle->addr));
}

int sl_nccl_handle_decode(const uint8_t bytes[SL_NCCL_HANDLE_OWN], struct sl_nccl_handle *out)
{
    struct sockaddr_storage last;

    if (get(bytes, 4) != HANDLE_MAGIC)
        return sl_fail(-EPROTO,
                       "the peer's handle is not one of Sluice: load the same network plugin on "
                       "every rank");
    if (get(bytes + 4, 2) != SL_NCCL_WIRE_VERSION)
        return sl_fail(-EPROTO,
                       "the peer's plugin speaks version %u, this one %d: install the same Sluice "
                       "on every host",
                       (unsigned)get(bytes + 4, 2), SL_NCCL_WIRE_VERSION);
    out->token = get(bytes + 8, 8);
    memcpy(&out->addr, bytes + 16, sizeof(out->addr));
    if (out->addr.place_count == 0 ||
        !sl_wireup_place_at(&out->addr, out->addr.place_count - 1u, &last))
        return sl_fail(-EPROTO, "the peer's handle holds no addresses that can be read");
    return 0;
}

/* ---- words ---- */

/* 0: kind, 4: channel, 8: token. */

void sl_nccl_word_encode(const struct sl_nccl_word *word, uint8_t out[SL_NCCL_WORD_BYTES])
{
    put(out, word->kind, 4);
    put(out + 4, word->channel, 4);
    put(out + 8, word->token, 8);
}

int sl_nccl_word_decode(const uint8_t *bytes, size_t len, struct sl_nccl_word *out)
{
    uint64_t kind = len == SL_NCCL_WORD_BYTES ? get(bytes, 4) : 0;

    if (kind < SL_NCCL_OPEN || kind > SL_NCCL_GIVEN_UP)
        return -EBADMSG;
    *out = (struct sl_nccl_word){.kind = (enum sl_nccl_word_kind)kind,
                                 .channel = (uint32_t)get(bytes + 4, 4),
                                 .token = get(bytes + 8, 8)};
    return kind == SL_NCCL_OPEN || out->token == 0 ? 0 : -EBADMSG;
}

/* ---- announcements ---- */

/* 0: number, 4: count, 5: 0, 8: count times tag and size. */

size_t sl_nccl_call_encode(const struct sl_nccl_call *call, uint8_t out[SL_NCCL_CALL_BYTES])
{
    put(out, call->number, 4);
    put(out + 4, call->count, 4);
    for (unsigned i = 0; i < call->count; i++) {
        put(out + SL_NCCL_CALL_HEADER + 12 * i, call->tags[i], 4);
        put(out + SL_NCCL_CALL_HEADER + 12 * i + 4, call->sizes[i], 8);
    }
    return SL_NCCL_CALL_HEADER + 12 * (size_t)call->count;
}

int sl_nccl_call_decode(const uint8_t *bytes, size_t len, struct sl_nccl_call *out)
{
    if (len < SL_NCCL_CALL_HEADER)
        return -EBADMSG;
    out->number = (uint32_t)get(bytes, 4);
    out->count = (unsigned)get(bytes + 4, 4);
    if (out->count == 0 || out->count > SL_NCCL_GROUP_MAX ||
        len != SL_NCCL_CALL_HEADER + 12 * (size_t)out->count)
        return -EBADMSG;
    for (unsigned i = 0; i < out->count; i++) {
        out->tags[i] = (uint32_t)get(bytes + SL_NCCL_CALL_HEADER + 12 * i, 4);
        out->sizes[i] = get(bytes + SL_NCCL_CALL_HEADER + 12 * i + 4, 8);
    }
    return 0;
}
