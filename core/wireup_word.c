/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and judges the words of wire-up. */
#include "core/wireup_word.h"

#include "core/err.h"

#include <stdio.h>
#include <string.h>

#define MAGIC UINT16_C(0x5753) /* "SW" */

struct head {
    uint16_t magic;
    uint8_t kind, transport;
    uint16_t len; /* of the body, without a seal */
    uint16_t reserved;
};

_Static_assert(sizeof(struct head) == SL_WIREUP_HEAD_BYTES, "the head is 8 bytes");
_Static_assert(sizeof(struct sl_wireup_hello) == 72, "the same on all machines");
_Static_assert(sizeof(struct sl_wireup_addr) == 64, "the same on all machines");

#define BODY_MAX (SL_WIREUP_WORD_MAX - SL_WIREUP_HEAD_BYTES)

_Static_assert(SL_ADDR_MAX <= BODY_MAX && BODY_MAX <= UINT16_MAX, "all bodies fit");

static size_t put(uint8_t *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return len;
}

static size_t encode_body(const struct sl_wireup_word *word, uint8_t *at)
{
    size_t len = 0;

    switch (word->kind) {
    case SL_WIREUP_HELLO: return put(at, &word->hello, sizeof(word->hello));
    case SL_WIREUP_CHALLENGE:
        len = put(at, word->nonce, sizeof(word->nonce));
        return len + put(at + len, word->proof, sizeof(word->proof));
    case SL_WIREUP_PROOF: return put(at, word->proof, sizeof(word->proof));
    case SL_WIREUP_OFFER:
    case SL_WIREUP_ANSWER: return put(at, word->addr.bytes, word->addr.len);
    case SL_WIREUP_UP:
    case SL_WIREUP_DONE: return 0;
    case SL_WIREUP_FAILED: return put(at, word->text, strnlen(word->text, SL_WIREUP_TEXT_MAX - 1));
    case SL_WIREUP_REFUSE:
        len = put(at, &word->code, sizeof(word->code));
        return len + put(at + len, word->text, strnlen(word->text, SL_WIREUP_TEXT_MAX - 1));
    }
    return 0;
}

size_t sl_wireup_word_encode(const struct sl_wireup_word *word, uint8_t out[SL_WIREUP_WORD_MAX])
{
    struct head head = {.magic = MAGIC, .kind = (uint8_t)word->kind, .transport = word->transport};

    head.len = (uint16_t)encode_body(word, out + sizeof(head));
    memcpy(out, &head, sizeof(head));
    return sizeof(head) + head.len;
}

int sl_wireup_word_length(const uint8_t *bytes, size_t len, bool sealed)
{
    struct head head;

    if (len < sizeof(head))
        return len >= 2 && memcmp(bytes, &(uint16_t){MAGIC}, 2) != 0 ? -EBADMSG : 0;
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != MAGIC || head.len > BODY_MAX ||
        (!sealed && sizeof(head) + head.len > SL_WIREUP_PLAIN_MAX))
        return -EBADMSG;
    return (int)(sizeof(head) + head.len + (sealed ? SL_SEAL_BYTES : 0));
}

static void take_text(const uint8_t *bytes, size_t len, char out[SL_WIREUP_TEXT_MAX])
{
    size_t text = len < SL_WIREUP_TEXT_MAX ? len : SL_WIREUP_TEXT_MAX - 1;

    memcpy(out, bytes, text);
    out[text] = '\0';
    sl_tame_text(out);
}

int sl_wireup_word_decode(const uint8_t *bytes, size_t len, struct sl_wireup_word *out)
{
    const uint8_t *body = bytes + SL_WIREUP_HEAD_BYTES;
    struct head head;

    if (len < sizeof(head) || sl_wireup_word_length(bytes, len, true) != (int)len + SL_SEAL_BYTES)
        return -EBADMSG;
    memcpy(&head, bytes, sizeof(head));
    memset(out, 0, sizeof(*out));
    out->kind = (enum sl_wireup_kind)head.kind;
    out->transport = head.transport;
    switch (out->kind) {
    case SL_WIREUP_HELLO:
        if (head.len != sizeof(out->hello))
            return -EBADMSG;
        memcpy(&out->hello, body, sizeof(out->hello));
        return 0;
    case SL_WIREUP_CHALLENGE:
        if (head.len != sizeof(out->nonce) + sizeof(out->proof))
            return -EBADMSG;
        memcpy(out->nonce, body, sizeof(out->nonce));
        memcpy(out->proof, body + sizeof(out->nonce), sizeof(out->proof));
        return 0;
    case SL_WIREUP_PROOF:
        if (head.len != sizeof(out->proof))
            return -EBADMSG;
        memcpy(out->proof, body, sizeof(out->proof));
        return 0;
    case SL_WIREUP_OFFER:
    case SL_WIREUP_ANSWER:
        if (head.len > SL_ADDR_MAX)
            return -EBADMSG;
        out->addr.len = head.len;
        memcpy(out->addr.bytes, body, head.len);
        return 0;
    case SL_WIREUP_UP:
    case SL_WIREUP_DONE: return head.len == 0 ? 0 : -EBADMSG;
    case SL_WIREUP_FAILED: take_text(body, head.len, out->text); return 0;
    case SL_WIREUP_REFUSE:
        if (head.len < sizeof(out->code))
            return -EBADMSG;
        memcpy(&out->code, body, sizeof(out->code));
        take_text(body + sizeof(out->code), head.len - sizeof(out->code), out->text);
        return 0;
    }
    return -EBADMSG;
}

int sl_wireup_key(const uint8_t *session, const struct sl_wireup_hello *hello,
                  uint8_t out[SL_DIGEST_BYTES])
{
    static const uint8_t none[SL_DIGEST_BYTES];
    const struct sl_part parts[] = {{hello->from_id, sizeof(hello->from_id)},
                                    {hello->to_id, sizeof(hello->to_id)}};

    return sl_hmac(session != NULL ? session : none, SL_DIGEST_BYTES, parts, 2, out);
}

int sl_wireup_proof(const uint8_t key[SL_DIGEST_BYTES], bool by_acceptor,
                    const struct sl_wireup_hello *hello, const uint8_t nonce[SL_WIREUP_NONCE_BYTES],
                    uint8_t out[SL_DIGEST_BYTES])
{
    const struct sl_part parts[] = {{by_acceptor ? "acceptor" : "dialer", 6},
                                    {hello, sizeof(*hello)},
                                    {nonce, SL_WIREUP_NONCE_BYTES}};

    return sl_hmac(key, SL_DIGEST_BYTES, parts, 3, out);
}

int sl_wireup_seal_keys(const uint8_t key[SL_DIGEST_BYTES], const struct sl_wireup_hello *hello,
                        const uint8_t nonce[SL_WIREUP_NONCE_BYTES],
                        uint8_t to_acceptor[SL_DIGEST_BYTES], uint8_t to_dialer[SL_DIGEST_BYTES])
{
    uint8_t nonces[2 * SL_WIREUP_NONCE_BYTES];

    memcpy(nonces, hello->nonce, SL_WIREUP_NONCE_BYTES);
    memcpy(nonces + SL_WIREUP_NONCE_BYTES, nonce, SL_WIREUP_NONCE_BYTES);
    return sl_key_derive(key, SL_DIGEST_BYTES, nonces, sizeof(nonces), "wireup to acceptor",
                         to_acceptor)
               ?: sl_key_derive(key, SL_DIGEST_BYTES, nonces, sizeof(nonces), "wireup to dialer",
                                to_dialer);
}

int sl_wireup_word_seal(uint8_t *word, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number)
{
    uint8_t *body = word + SL_WIREUP_HEAD_BYTES;
    int err =
        sl_seal(key, number, word, SL_WIREUP_HEAD_BYTES, body, len - SL_WIREUP_HEAD_BYTES, body);

    return err != 0 ? err : (int)len + SL_SEAL_BYTES;
}

int sl_wireup_word_open(uint8_t *word, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number)
{
    uint8_t *body = word + SL_WIREUP_HEAD_BYTES;
    size_t plain = len - SL_WIREUP_HEAD_BYTES - SL_SEAL_BYTES;

    if (sl_unseal(key, number, word, SL_WIREUP_HEAD_BYTES, body, plain, body + plain, body) != 0)
        return sl_fail(-EBADMSG, "words of a wire-up were changed on the way");
    return (int)(len - SL_SEAL_BYTES);
}
