/* SPDX-License-Identifier: Apache-2.0 */
/* The words that two ends of a wire-up pipe say. No input or output here: fuzzing reaches all. */
#ifndef SL_CORE_WIREUP_WORD_H
#define SL_CORE_WIREUP_WORD_H

#include "core/err.h"
#include "core/wireup.h"

#define SL_WIREUP_NONCE_BYTES 16
#define SL_WIREUP_HEAD_BYTES 8
#define SL_WIREUP_TEXT_MAX SL_ERROR_TEXT_MAX
#define SL_WIREUP_WORD_MAX (SL_WIREUP_HEAD_BYTES + 4 + SL_WIREUP_TEXT_MAX) /* without its seal */
#define SL_WIREUP_PLAIN_MAX 400 /* of words without a seal, which anybody may say */

enum sl_wireup_kind {
    SL_WIREUP_HELLO = 1,
    SL_WIREUP_CHALLENGE,
    SL_WIREUP_PROOF,
    SL_WIREUP_OFFER,
    SL_WIREUP_ANSWER,
    SL_WIREUP_UP,
    SL_WIREUP_DONE,
    SL_WIREUP_FAILED,
    SL_WIREUP_REFUSE,
};

struct sl_wireup_hello {
    uint16_t version, reserved;
    uint32_t from, to;   /* ranks */
    uint32_t transports; /* candidates, as the dialer sees it */
    uint64_t group;
    uint8_t from_id[SL_WIREUP_ID_BYTES], to_id[SL_WIREUP_ID_BYTES];
    uint8_t nonce[SL_WIREUP_NONCE_BYTES];
};

struct sl_wireup_word {
    enum sl_wireup_kind kind;
    uint8_t transport;                    /* OFFER, ANSWER, UP, DONE, FAILED */
    struct sl_wireup_hello hello;         /* HELLO */
    uint8_t nonce[SL_WIREUP_NONCE_BYTES]; /* CHALLENGE */
    uint8_t proof[SL_DIGEST_BYTES];       /* CHALLENGE, PROOF */
    struct sl_addr addr;                  /* OFFER, ANSWER */
    int32_t code;                         /* REFUSE */
    char text[SL_WIREUP_TEXT_MAX];        /* FAILED, REFUSE */
};

/* Returns its length. */
size_t sl_wireup_word_encode(const struct sl_wireup_word *word, uint8_t out[SL_WIREUP_WORD_MAX]);

/* The length of the first word with its head and, where sealed, its seal, as soon as its head is
 * there; 0: not yet; -EBADMSG: these are no words of ours. */
int sl_wireup_word_length(const uint8_t *bytes, size_t len, bool sealed);

/* A whole word of that length. -EBADMSG. */
int sl_wireup_word_decode(const uint8_t *bytes, size_t len, struct sl_wireup_word *out);

/* The link's key, of the job's key, where there is one, and of both ids. -ENOMEM. */
int sl_wireup_key(const uint8_t *session, const struct sl_wireup_hello *hello,
                  uint8_t out[SL_DIGEST_BYTES]);

/* That a side knows it. -ENOMEM. */
int sl_wireup_proof(const uint8_t key[SL_DIGEST_BYTES], bool by_acceptor,
                    const struct sl_wireup_hello *hello, const uint8_t nonce[SL_WIREUP_NONCE_BYTES],
                    uint8_t out[SL_DIGEST_BYTES]);

/* The keys of all further words. -ENOMEM. */
int sl_wireup_seal_keys(const uint8_t key[SL_DIGEST_BYTES], const struct sl_wireup_hello *hello,
                        const uint8_t nonce[SL_WIREUP_NONCE_BYTES],
                        uint8_t to_acceptor[SL_DIGEST_BYTES], uint8_t to_dialer[SL_DIGEST_BYTES]);

/* Seals an encoded word of len bytes in place, and opens one of len bytes with its seal. Returns
 * the new length or a negative errno. */
int sl_wireup_word_seal(uint8_t *word, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number);
int sl_wireup_word_open(uint8_t *word, size_t len, const uint8_t key[SL_DIGEST_BYTES],
                        uint64_t number);

#endif
