/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and checks what the two ends of a connection exchange. */
#include "tools/nccl/wire.h"

#include "core/err.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define HANDLE_MAGIC UINT32_C(0x484e4c53) /* "SLNH" */
#define WORD_MAGIC UINT32_C(0x574e4c53)   /* "SLNW" */
#define HELLO_BYTES 40
#define CHALLENGE_BYTES (SL_NCCL_NONCE_BYTES + 2 * SL_DIGEST_BYTES)
#define LOOPBACK_FLAG 0x80

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

/* 0: magic, 4: version, 6: port, 8: host, 16: secret, 32: bytes of places, 36: places. */

/* A byte of family and flags, then the address. Returns its length, 0 when there is no room. */
static size_t place_encode(const struct sl_nccl_place *place, uint8_t *out, size_t room)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)&place->addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&place->addr;
    bool v4 = place->addr.ss_family == AF_INET;
    size_t len = v4 ? 4 : 16;

    if (len + 1 > room)
        return 0;
    out[0] = (uint8_t)(len | (place->loopback ? LOOPBACK_FLAG : 0));
    memcpy(out + 1, v4 ? (const void *)&in->sin_addr : (const void *)&in6->sin6_addr, len);
    return len + 1;
}

void sl_nccl_handle_encode(const struct sl_nccl_handle *handle, uint8_t out[SL_NCCL_HANDLE_OWN])
{
    size_t used = 0;

    memset(out, 0, SL_NCCL_HANDLE_OWN);
    put(out, HANDLE_MAGIC, 4);
    put(out + 4, SL_NCCL_WIRE_VERSION, 2);
    put(out + 6, handle->port, 2);
    put(out + 8, handle->host, 8);
    memcpy(out + 16, handle->secret, SL_NCCL_SECRET_BYTES);
    for (unsigned i = 0; i < handle->place_count; i++)
        used += place_encode(&handle->places[i], out + 36 + used, SL_NCCL_PLACE_BYTES - used);
    put(out + 32, used, 4);
}

static int place_decode(const uint8_t *bytes, size_t room, uint16_t port, struct sl_nccl_place *out)
{
    size_t len = room > 0 ? bytes[0] & ~LOOPBACK_FLAG : 0;

    if ((len != 4 && len != 16) || len + 1 > room)
        return -EBADMSG;
    *out = (struct sl_nccl_place){.loopback = (bytes[0] & LOOPBACK_FLAG) != 0};
    if (len == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)&out->addr;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, bytes + 1, len);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->addr;

        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        memcpy(&in6->sin6_addr, bytes + 1, len);
    }
    return (int)len + 1;
}

int sl_nccl_handle_decode(const uint8_t bytes[SL_NCCL_HANDLE_OWN], struct sl_nccl_handle *out)
{
    size_t at = 0, len = get(bytes + 32, 4);

    if (get(bytes, 4) != HANDLE_MAGIC)
        return sl_fail(-EPROTO,
                       "the peer's handle is not one of Sluice: load the same network plugin on "
                       "every rank");
    if (get(bytes + 4, 2) != SL_NCCL_WIRE_VERSION)
        return sl_fail(-EPROTO,
                       "the peer's plugin speaks version %u, this one %d: install the same Sluice "
                       "on every host",
                       (unsigned)get(bytes + 4, 2), SL_NCCL_WIRE_VERSION);
    *out = (struct sl_nccl_handle){.host = get(bytes + 8, 8), .port = (uint16_t)get(bytes + 6, 2)};
    memcpy(out->secret, bytes + 16, SL_NCCL_SECRET_BYTES);
    while (at < len && len <= SL_NCCL_PLACE_BYTES && out->place_count < SL_NCCL_PLACES_MAX) {
        int n = place_decode(bytes + 36 + at, len - at, out->port, &out->places[out->place_count]);

        if (n < 0)
            break;
        at += (size_t)n;
        out->place_count++;
    }
    if (at != len || out->place_count == 0)
        return sl_fail(-EPROTO, "the peer's handle holds no addresses that can be read");
    return 0;
}

/* ---- words ---- */

/* 0: magic, 4: kind, 5: way, 6: length of the body, 8: body. */

static size_t hello_encode(const struct sl_nccl_word *word, uint8_t out[HELLO_BYTES])
{
    memset(out, 0, HELLO_BYTES);
    put(out, word->version, 2);
    put(out + 8, word->host, 8);
    put(out + 16, word->ways, 8);
    memcpy(out + 24, word->nonce, SL_NCCL_NONCE_BYTES);
    return HELLO_BYTES;
}

static size_t body_encode(const struct sl_nccl_word *word, uint8_t *out)
{
    size_t len = 0;

    switch (word->kind) {
    case SL_NCCL_HELLO: return hello_encode(word, out);
    case SL_NCCL_CHALLENGE:
        memcpy(out, word->nonce, SL_NCCL_NONCE_BYTES);
        memcpy(out + SL_NCCL_NONCE_BYTES, word->proof, SL_DIGEST_BYTES);
        memcpy(out + SL_NCCL_NONCE_BYTES + SL_DIGEST_BYTES, word->handle_proof, SL_DIGEST_BYTES);
        return CHALLENGE_BYTES;
    case SL_NCCL_PROOF: memcpy(out, word->proof, SL_DIGEST_BYTES); return SL_DIGEST_BYTES;
    case SL_NCCL_STRANGER: memcpy(out, word->handle_proof, SL_DIGEST_BYTES); return SL_DIGEST_BYTES;
    case SL_NCCL_OFFER:
    case SL_NCCL_ANSWER: memcpy(out, word->addr.bytes, word->addr.len); return word->addr.len;
    case SL_NCCL_FAILED:
    case SL_NCCL_REFUSE:
        len = strnlen(word->text, SL_NCCL_TEXT_MAX - 1);
        memcpy(out, word->text, len);
        return len;
    default: return 0;
    }
}

size_t sl_nccl_word_encode(const struct sl_nccl_word *word, uint8_t out[SL_NCCL_WORD_MAX])
{
    size_t len = body_encode(word, out + SL_NCCL_WORD_HEADER);

    put(out, WORD_MAGIC, 4);
    out[4] = (uint8_t)word->kind;
    out[5] = word->way;
    put(out + 6, len, 2);
    return SL_NCCL_WORD_HEADER + len;
}

/* Printable, with an end: it is going to be logged. */
static void text_decode(const uint8_t *bytes, size_t len, char out[SL_NCCL_TEXT_MAX])
{
    if (len > SL_NCCL_TEXT_MAX - 1)
        len = SL_NCCL_TEXT_MAX - 1;
    for (size_t i = 0; i < len; i++)
        out[i] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : '?';
    out[len] = '\0';
}

static int body_decode(const uint8_t *body, size_t len, struct sl_nccl_word *out)
{
    switch (out->kind) {
    case SL_NCCL_HELLO:
        if (len < 2)
            return -EBADMSG;
        out->version = (uint16_t)get(body, 2);
        if (out->version != SL_NCCL_WIRE_VERSION)
            return -EPROTO;
        if (len != HELLO_BYTES)
            return -EBADMSG;
        out->host = get(body + 8, 8);
        out->ways = get(body + 16, 8);
        memcpy(out->nonce, body + 24, SL_NCCL_NONCE_BYTES);
        return 0;
    case SL_NCCL_CHALLENGE:
        if (len != CHALLENGE_BYTES)
            return -EBADMSG;
        memcpy(out->nonce, body, SL_NCCL_NONCE_BYTES);
        memcpy(out->proof, body + SL_NCCL_NONCE_BYTES, SL_DIGEST_BYTES);
        memcpy(out->handle_proof, body + SL_NCCL_NONCE_BYTES + SL_DIGEST_BYTES, SL_DIGEST_BYTES);
        return 0;
    case SL_NCCL_PROOF:
        if (len != SL_DIGEST_BYTES)
            return -EBADMSG;
        memcpy(out->proof, body, SL_DIGEST_BYTES);
        return 0;
    case SL_NCCL_STRANGER:
        if (len != SL_DIGEST_BYTES)
            return -EBADMSG;
        memcpy(out->handle_proof, body, SL_DIGEST_BYTES);
        return 0;
    case SL_NCCL_OFFER:
    case SL_NCCL_ANSWER:
        if (len > SL_ADDR_MAX || out->way >= SL_NCCL_WAYS)
            return -EBADMSG;
        out->addr.len = (uint16_t)len;
        memcpy(out->addr.bytes, body, len);
        return 0;
    case SL_NCCL_FAILED:
        text_decode(body, len, out->text);
        return out->way < SL_NCCL_WAYS ? 0 : -EBADMSG;
    case SL_NCCL_REFUSE: text_decode(body, len, out->text); return 0;
    default: return len == 0 && out->way < SL_NCCL_WAYS ? 0 : -EBADMSG;
    }
}

int sl_nccl_word_decode(const uint8_t *bytes, size_t len, struct sl_nccl_word *out)
{
    static const uint8_t magic[4] = {'S', 'L', 'N', 'W'};
    size_t body;
    int err;

    if (memcmp(bytes, magic, len < 4 ? len : 4) != 0)
        return -EBADMSG;
    if (len < SL_NCCL_WORD_HEADER)
        return 0;
    body = get(bytes + 6, 2);
    if (bytes[4] < SL_NCCL_HELLO || bytes[4] > SL_NCCL_STRANGER ||
        body > SL_NCCL_WORD_MAX - SL_NCCL_WORD_HEADER)
        return -EBADMSG;
    if (len < SL_NCCL_WORD_HEADER + body)
        return 0;
    *out = (struct sl_nccl_word){.kind = (enum sl_nccl_word_kind)bytes[4], .way = bytes[5]};
    err = body_decode(bytes + SL_NCCL_WORD_HEADER, body, out);
    return err != 0 ? err : (int)(SL_NCCL_WORD_HEADER + body);
}

/* ---- proofs and sealed words ---- */

int sl_nccl_link_key(const uint8_t *session, const uint8_t secret[SL_NCCL_SECRET_BYTES],
                     uint8_t out[SL_DIGEST_BYTES])
{
    const struct sl_part parts[] = {{"sluice nccl link 4", 18}, {secret, SL_NCCL_SECRET_BYTES}};

    return sl_hmac(session, session != NULL ? SL_DIGEST_BYTES : 0, parts, 2, out);
}

/* What both have said before there is any key. */
static void transcript(const struct sl_nccl_word *hello, const uint8_t nonce[SL_NCCL_NONCE_BYTES],
                       uint8_t out[HELLO_BYTES + SL_NCCL_NONCE_BYTES])
{
    hello_encode(hello, out);
    memcpy(out + HELLO_BYTES, nonce, SL_NCCL_NONCE_BYTES);
}

int sl_nccl_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], bool by_listener,
                       const struct sl_nccl_word *hello, const uint8_t nonce[SL_NCCL_NONCE_BYTES],
                       uint8_t out[SL_DIGEST_BYTES])
{
    const char *label = by_listener ? "sluice nccl listener 4" : "sluice nccl dialler 4";
    uint8_t said[HELLO_BYTES + SL_NCCL_NONCE_BYTES];
    const struct sl_part parts[] = {{label, strlen(label) + 1}, {said, sizeof(said)}};

    transcript(hello, nonce, said);
    return sl_hmac(link_key, SL_DIGEST_BYTES, parts, 2, out);
}

int sl_nccl_word_keys(const uint8_t link_key[SL_DIGEST_BYTES], const struct sl_nccl_word *hello,
                      const uint8_t nonce[SL_NCCL_NONCE_BYTES],
                      uint8_t to_listener[SL_DIGEST_BYTES], uint8_t to_dialler[SL_DIGEST_BYTES])
{
    uint8_t said[HELLO_BYTES + SL_NCCL_NONCE_BYTES];

    transcript(hello, nonce, said);
    return sl_key_derive(link_key, SL_DIGEST_BYTES, said, sizeof(said), "sluice nccl up 4",
                         to_listener)
               ?: sl_key_derive(link_key, SL_DIGEST_BYTES, said, sizeof(said), "sluice nccl down 4",
                                to_dialler);
}

int sl_nccl_word_seal(uint8_t word[SL_NCCL_WORD_MAX + SL_SEAL_BYTES], size_t len,
                      const uint8_t key[SL_DIGEST_BYTES], uint64_t number)
{
    uint8_t *body = word + SL_NCCL_WORD_HEADER;
    size_t plain = len - SL_NCCL_WORD_HEADER;

    put(word + 6, plain + SL_SEAL_BYTES, 2);
    int err = sl_seal(key, number, word, SL_NCCL_WORD_HEADER, body, plain, body);

    return err != 0 ? err : (int)(len + SL_SEAL_BYTES);
}

int sl_nccl_word_unseal(uint8_t *bytes, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number)
{
    uint8_t *body = bytes + SL_NCCL_WORD_HEADER;
    size_t sealed;

    if (len < SL_NCCL_WORD_HEADER)
        return 0;
    sealed = get(bytes + 6, 2);
    if (get(bytes, 4) != WORD_MAGIC || sealed < SL_SEAL_BYTES ||
        sealed > SL_NCCL_WORD_MAX + SL_SEAL_BYTES - SL_NCCL_WORD_HEADER)
        return -EBADMSG;
    if (len < SL_NCCL_WORD_HEADER + sealed)
        return 0;
    if (sl_unseal(key, number, bytes, SL_NCCL_WORD_HEADER, body, sealed - SL_SEAL_BYTES,
                  body + sealed - SL_SEAL_BYTES, body) != 0)
        return -EBADMSG;
    put(bytes + 6, sealed - SL_SEAL_BYTES, 2);
    return (int)(SL_NCCL_WORD_HEADER + sealed);
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
