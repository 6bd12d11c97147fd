/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and judges the bytes that ranks speak at their meeting place. */
#include "launch/wire.h"

#include "core/err.h"

#include <stdio.h>

static const uint8_t magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', '\r', '\n'};
static const uint8_t frame_magic[4] = {'S', 'L', 'F', 'R'};

#define FLAG_SECRET 1

int sl_job_hash(const char *job, uint8_t out[SL_JOB_BYTES])
{
    uint8_t mac[SL_MAC_BYTES];
    int err = sl_hmac("sluice job", 10, &(struct sl_part){job, strlen(job)}, 1, mac);

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
        return sl_fail(-EPROTO, "it has a secret, but rank %d has none (set SLUICE_SECRET there)",
                       terms->rank);
    if (!secret && terms->secret_len > 0)
        return sl_fail(-EPROTO, "it has no secret, but rank %d has one (set SLUICE_SECRET)",
                       terms->rank);
    if (size != (uint32_t)terms->size)
        return sl_fail(-EPROTO, "it counts %u ranks, rank %d counts %d", size, terms->rank,
                       terms->size);
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
        return sl_fail(-EPROTO, "it speaks version %u, rank %d speaks %d", sl_get16(bytes + 8),
                       terms->rank, SL_WIRE_VERSION);
    if (len < SL_HELLO_BYTES)
        return 0;
    return check_whole(terms, bytes, rank);
}

int sl_proof_make(const struct sl_terms *terms, bool by_host, const struct sl_hello *hello,
                  const uint8_t nonce[SL_NONCE_BYTES], uint8_t out[SL_MAC_BYTES])
{
    const char *side = by_host ? "sluice host 2" : "sluice guest 2";
    const struct sl_part parts[] = {
        {side, strlen(side) + 1}, {hello->bytes, SL_HELLO_BYTES}, {nonce, SL_NONCE_BYTES}};

    return sl_hmac(terms->secret, terms->secret_len, parts, SL_ARRAY_LEN(parts), out);
}

int sl_meeting_keys_make(const struct sl_terms *terms, const struct sl_hello *hello,
                         const uint8_t nonce[SL_NONCE_BYTES], struct sl_meeting_keys *out)
{
    uint8_t both[SL_HELLO_BYTES + SL_NONCE_BYTES];

    memset(out, 0, sizeof(*out));
    if (!terms->sealed)
        return 0;
    memcpy(both, hello->bytes, SL_HELLO_BYTES);
    memcpy(both + SL_HELLO_BYTES, nonce, SL_NONCE_BYTES);
    out->sealed = true;
    return sl_key_derive(terms->secret, terms->secret_len, both, sizeof(both), "sluice up 2",
                         out->up)
               ?: sl_key_derive(terms->secret, terms->secret_len, both, sizeof(both),
                                "sluice down 2", out->down);
}

int sl_job_keys_derive(struct sl_job_keys *keys)
{
    return sl_key_derive(keys->job, sizeof(keys->job), NULL, 0, "sluice result 2", keys->result)
               ?: sl_key_derive(keys->job, sizeof(keys->job), NULL, 0, "sluice transports 2",
                                keys->session)
               ?: sl_key_derive(keys->job, sizeof(keys->job), NULL, 0, "sluice tree 3", keys->tree);
}

int sl_welcome_make(const struct sl_meeting_keys *keys, const uint8_t mac[SL_MAC_BYTES],
                    const struct sl_job_keys *job, uint8_t out[SL_WELCOME_MAX])
{
    int err;

    memcpy(out, mac, SL_MAC_BYTES);
    memcpy(out + SL_MAC_BYTES, job->job, SL_JOB_KEY_BYTES);
    if (!keys->sealed)
        return SL_WELCOME_BYTES;
    err = sl_seal(keys->down, SL_NUMBER_WELCOME, out, SL_MAC_BYTES, job->job, SL_JOB_KEY_BYTES,
                  out + SL_MAC_BYTES);
    return err != 0 ? err : SL_WELCOME_MAX;
}

int sl_welcome_open(const struct sl_meeting_keys *keys, const uint8_t body[SL_WELCOME_MAX],
                    struct sl_job_keys *job)
{
    const uint8_t *sealed = body + SL_MAC_BYTES;

    if (!keys->sealed)
        memcpy(job->job, sealed, SL_JOB_KEY_BYTES);
    else if (sl_unseal(keys->down, SL_NUMBER_WELCOME, body, SL_MAC_BYTES, sealed, SL_JOB_KEY_BYTES,
                       sealed + SL_JOB_KEY_BYTES, job->job) != 0)
        return sl_fail(-EBADMSG, "the welcome was changed on the way");
    return sl_job_keys_derive(job);
}

int sl_control_make(const struct sl_meeting_keys *keys, bool up, enum sl_frame_kind kind,
                    uint64_t number, const void *body, size_t len, uint8_t *out)
{
    size_t all = len + sl_seal_len(keys->sealed);
    int err = 0;

    sl_frame_make(kind, all, out);
    if (keys->sealed)
        err = sl_seal(up ? keys->up : keys->down, number, out, SL_FRAME_BYTES, body, len,
                      out + SL_FRAME_BYTES);
    else if (len > 0)
        memcpy(out + SL_FRAME_BYTES, body, len);
    return err != 0 ? err : (int)(SL_FRAME_BYTES + all);
}

int sl_control_open(const struct sl_meeting_keys *keys, bool up, uint64_t number, uint8_t *frame,
                    size_t *len)
{
    size_t all = sl_get64(frame + 8), seal = sl_seal_len(keys->sealed);
    uint8_t *body = frame + SL_FRAME_BYTES;

    if (all < seal)
        return -EBADMSG;
    *len = all - seal;
    if (!keys->sealed)
        return 0;
    return sl_unseal(up ? keys->up : keys->down, number, frame, SL_FRAME_BYTES, body, *len,
                     body + *len, body);
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
        kind > SL_FRAME_MISSING)
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

int sl_sentence_parse(int from, const uint8_t *bytes, size_t len, int *code,
                      char text[SL_SENTENCE_MAX + 1])
{
    static const int known[] = {-ETIMEDOUT, -ECONNRESET, -EBUSY};

    if (len < 4 || len > 4 + SL_SENTENCE_MAX)
        return sl_fail(-EBADMSG, "rank %d sent a sentence of %zu bytes", from, len);
    *code = -EPROTO;
    for (size_t i = 0; i < SL_ARRAY_LEN(known); i++)
        if ((int)sl_get32(bytes) == known[i])
            *code = known[i];
    for (size_t i = 4; i < len; i++) /* it may end in a terminal */
        text[i - 4] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? (char)bytes[i] : '?';
    text[len - 4] = '\0';
    return 0;
}

size_t sl_missing_make(const bool *missing, int size, uint8_t out[SL_MISSING_MAX])
{
    size_t at = 0;

    for (int first = 0; first < size && at < SL_MISSING_MAX; first++) {
        int last = first;

        if (!missing[first])
            continue;
        while (last + 1 < size && missing[last + 1])
            last++;
        sl_put(out + at, (uint32_t)first, 4);
        sl_put(out + at + 4, (uint32_t)last, 4);
        at += 8;
        first = last;
    }
    return at;
}

int sl_missing_parse(const uint8_t *bytes, size_t len, int first, int end, bool *missing)
{
    if (len == 0 || len % 8 != 0 || len > SL_MISSING_MAX)
        return sl_fail(-EBADMSG, "rank %d sent a list of missing ranks of %zu bytes", first, len);
    for (size_t at = 0; at < len; at += 8) {
        uint32_t from = sl_get32(bytes + at), to = sl_get32(bytes + at + 4);

        if (from > to || from < (uint32_t)first || to >= (uint32_t)end)
            return sl_fail(-EBADMSG, "rank %d misses ranks %u to %u, which it does not speak for",
                           first, from, to);
        for (uint32_t rank = from; rank <= to; rank++)
            missing[rank] = true;
    }
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
            at +=
                (size_t)snprintf(out + at, cap - at, "%s%d", last == first + 1 ? ", " : "-", last);
        first = last;
    }
}
