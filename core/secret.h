/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of a shared secret: keys for one purpose each, proofs, and sealed messages. Pure,
 * but for the memory that a digest takes while it is computed. */
#ifndef SL_CORE_SECRET_H
#define SL_CORE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_DIGEST_BYTES 32 /* of SHA-256, and of every key made here */
#define SL_SEAL_BYTES 16   /* by which a sealed message is longer */

/* A part of the input of a hash. */
struct sl_part {
    const void *bytes;
    size_t len;
};

/* HMAC-SHA256 of the parts one after the other. -ENOMEM. */
int sl_hmac(const void *key, size_t key_len, const struct sl_part *parts, unsigned count,
            uint8_t out[SL_DIGEST_BYTES]);

/*
 * A key of its own for each label: HKDF-SHA256 with context as salt. A key tells nothing of the
 * secret, and nothing of the keys with another label or context. -ENOMEM.
 *
 * Source  H. Krawczyk, P. Eronen, "HMAC-based Extract-and-Expand Key Derivation Function (HKDF)",
 * RFC 5869.
 */
int sl_key_derive(const void *secret, size_t secret_len, const void *context, size_t context_len,
                  const char *label, uint8_t out[SL_DIGEST_BYTES]);

/* The key that processes share which know of each other nothing but the secret, a text. -ENOMEM. */
int sl_session_derive(const char *secret, uint8_t out[SL_DIGEST_BYTES]);

/* Compares in constant time. */
bool sl_digest_equal(const uint8_t *a, const uint8_t *b, size_t len);

/*
 * Encrypts len bytes of in to out[len + SL_SEAL_BYTES], and makes them and the head beside them
 * impossible to change or to move to another number unnoticed: ChaCha20-Poly1305 (RFC 8439). A key
 * seals each number once. out may be in. -EIO: the library failed.
 */
int sl_seal(const uint8_t key[SL_DIGEST_BYTES], uint64_t number, const void *head, size_t head_len,
            const void *in, size_t len, uint8_t *out);

/* The reverse: len bytes and, elsewhere, the seal behind them. out may be in. -EBADMSG, with no
 * sentence, as only the caller knows the sender: not sealed by this key with this number
 * and head. */
int sl_unseal(const uint8_t key[SL_DIGEST_BYTES], uint64_t number, const void *head,
              size_t head_len, const void *in, size_t len, const uint8_t seal[SL_SEAL_BYTES],
              void *out);

#endif
