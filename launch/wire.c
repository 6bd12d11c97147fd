/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and judges the bytes that ranks speak at their meeting place. */
#include "launch/wire.h"

#include "core/err.h"

#include <mbedtls/md.h>
#include <stdio.h>

static const uint8_t magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', '\r', '\n'};
static const uint8_t frame_magic[4] = {'S', 'L', 'F', 'R'};

#define FLAG_SECRET 1

/* HMAC-SHA256 of the parts one after the other. */
static int hmac(const void *key, size_t key_len, const void *const part[], const size_t len[],
                unsigned count, uint8_t out[SL_MAC_BYTES])
{
    mbedtls_md_context_t md;

    mbedtls_md_init(&md);
    int err = mbedtls_md_setup(&md, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);

    err = err ?: mbedtls_md_hmac_starts(&md, key, key_len);
    for (unsigned i = 0; i < count && err == 0; i++)
        err = mbedtls_md_hmac_update(&md, part[i], len[i]);
    err = err ?: mbedtls_md_hmac_finish(&md, out);
    mbedtls_md_free(&md);
    if (err != 0)
        return sl_fail(-ENOMEM, "no memory to compute a proof of membership");
    return 0;
}

int sl_job_hash(const char *job, uint8_t out[SL_JOB_BYTES])
{
    uint8_t mac[SL_MAC_BYTES];
    int err = hmac("sluice job", 10, (const void *[]){job}, (const size_t[]){strlen(job)}, 1, mac);

    if (err == 0)
        memcpy(out, mac, SL_JOB_BYTES);
    return err;
}

void sl_hello_make(const struct sl_terms *terms, const uint8_t nonce[SL_NONCE_BYTES],
                   struct sl_hello *out)
{
    uint8_t *p = out->bytes;

    memcpy(p, magic, sizeof(magic));
    sl_put(p + 8, SL_WIRE_VERSION, 2);
    sl_put(p + 10, terms->secret_len > 0 ? FLAG_SECRET : 0, 2);
    sl_put(p + 12, (uint32_t)terms->rank, 4);
    sl_put(p + 16, (uint32_t)terms->size, 4);
    sl_put(p + 20, 0, 4);
    memcpy(p + 24, terms->job, SL_JOB_BYTES);
    memcpy(p + 40, nonce, SL_NONCE_BYTES);
}

static int check_whole(const struct sl_terms *terms, const uint8_t *p, int *out)
{
    uint32_t rank = sl_get32(p + 12), size = sl_get32(p + 16);
    bool secret = sl_get16(p + 10) & FLAG_SECRET;

    if (memcmp(p + 24, terms->job, SL_JOB_BYTES) != 0)
        return sl_fail(-EBUSY, "it belongs to another job (compare SLUICE_JOB on both sides)");
    if (secret && terms->secret_len == 0)
        return sl_fail(-EPROTO, "it has a secret, but rank 0 has none (set SLUICE_SECRET there)");
    if (!secret && terms->secret_len > 0)
        return sl_fail(-EPROTO, "it has no secret, but rank 0 has one (set SLUICE_SECRET)");
    if (size != (uint32_t)terms->size)
        return sl_fail(-EPROTO, "it counts %u ranks, rank 0 counts %d", size, terms->size);
    if (rank == 0 || rank >= size)
        return sl_fail(-EPROTO, "it calls itself rank %u, but ranks 1 to %u are expected", rank,
                       size - 1);
    *out = (int)rank;
    return 1;
}

int sl_hello_check(const struct sl_terms *terms, const uint8_t *bytes, size_t len, int *rank)
{
    size_t prefix = len < sizeof(magic) ? len : sizeof(magic);

    if (memcmp(bytes, magic, prefix) != 0)
        return sl_fail(-EBADMSG, "it does not speak Sluice's protocol");
    if (len < 10)
        return 0;
    if (sl_get16(bytes + 8) != SL_WIRE_VERSION)
        return sl_fail(-EPROTO, "it speaks version %u, rank 0 speaks %d", sl_get16(bytes + 8),
                       SL_WIRE_VERSION);
    if (len < SL_HELLO_BYTES)
        return 0;
    return check_whole(terms, bytes, rank);
}

int sl_proof_make(const struct sl_terms *terms, bool by_host, const struct sl_hello *hello,
                  const uint8_t nonce[SL_NONCE_BYTES], uint8_t out[SL_MAC_BYTES])
{
    const char *side = by_host ? "sluice host 1" : "sluice guest 1";
    const void *const part[] = {side, hello->bytes, nonce};
    const size_t len[] = {strlen(side) + 1, SL_HELLO_BYTES, SL_NONCE_BYTES};

    return hmac(terms->secret, terms->secret_len, part, len, 3, out);
}

bool sl_mac_equal(const uint8_t a[SL_MAC_BYTES], const uint8_t b[SL_MAC_BYTES])
{
    volatile uint8_t differ = 0;

    for (unsigned i = 0; i < SL_MAC_BYTES; i++)
        differ = (uint8_t)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

void sl_frame_make(enum sl_frame_kind kind, uint64_t len, uint8_t out[SL_FRAME_BYTES])
{
    memcpy(out, frame_magic, sizeof(frame_magic));
    sl_put(out + 4, kind, 4);
    sl_put(out + 8, len, 8);
}

int sl_frame_parse(const uint8_t bytes[SL_FRAME_BYTES], struct sl_frame *out)
{
    uint32_t kind = sl_get32(bytes + 4);

    if (memcmp(bytes, frame_magic, sizeof(frame_magic)) != 0 || kind < SL_FRAME_CHALLENGE ||
        kind > SL_FRAME_FAILED)
        return sl_fail(-EBADMSG, "what arrived is not a frame of Sluice's meeting protocol");
    out->kind = (enum sl_frame_kind)kind;
    out->len = sl_get64(bytes + 8);
    return 0;
}

size_t sl_sentence_make(int code, const char *text, uint8_t out[4 + SL_SENTENCE_MAX])
{
    size_t len = strnlen(text, SL_SENTENCE_MAX);

    sl_put(out, (uint32_t)code, 4);
    memcpy(out + 4, text, len);
    return 4 + len;
}

int sl_sentence_parse(const uint8_t *bytes, size_t len, int *code, char text[SL_SENTENCE_MAX + 1])
{
    static const int known[] = {-ETIMEDOUT, -ECONNRESET, -EBUSY};

    if (len < 4 || len > 4 + SL_SENTENCE_MAX)
        return sl_fail(-EBADMSG, "rank 0 sent a sentence of %zu bytes", len);
    *code = -EPROTO;
    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++)
        if ((int)sl_get32(bytes) == known[i])
            *code = known[i];
    for (size_t i = 4; i < len; i++) /* it may end in a terminal */
        text[i - 4] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '?';
    text[len - 4] = '\0';
    return 0;
}

void sl_rank_list(const bool *missing, int size, char *out, size_t cap)
{
    size_t at = 0;

    out[0] = '\0';
    for (int first = 0; first < size; first++) {
        int last = first;

        if (!missing[first])
            continue;
        while (last + 1 < size && missing[last + 1])
            last++;
        if (at + 40 > cap) {
            snprintf(out + at, cap - at, ", ...");
            return;
        }
        at += (size_t)snprintf(out + at, cap - at, "%s%d", at > 0 ? ", " : "", first);
        if (last > first)
            at += (size_t)snprintf(out + at, cap - at, "%s%d", last == first + 1 ? ", " : "-", last);
        first = last;
    }
}
