/* SPDX-License-Identifier: Apache-2.0 */
/* Records of TLS 1.3 once the handshake is done. Source: RFC 8446, sections 5 and 7. */
#ifndef SL_TCP_RECORD_H
#define SL_TCP_RECORD_H

#include "core/secret.h"
#include "tcp/tls_dl.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SL_RECORD_HEADER 5
#define SL_RECORD_PLAIN 16384                 /* most bytes of data in one */
#define SL_RECORD_AROUND (SL_RECORD_HEADER + 1 + 16)  /* header, type, tag */
#define SL_RECORD_MAX (SL_RECORD_HEADER + SL_RECORD_PLAIN + 256)

enum sl_record_type { SL_RECORD_ALERT = 21, SL_RECORD_HANDSHAKE = 22, SL_RECORD_DATA = 23 };

/* One direction of a connection. */
struct sl_record_dir {
    const struct sl_openssl *openssl;
    EVP_CIPHER_CTX *cipher; /* owned */
    bool seals;             /* or opens */
    bool aes;               /* AES-128-GCM, or ChaCha20-Poly1305 */
    uint64_t number;        /* of the next record under this key */
    uint8_t iv[12], secret[SL_DIGEST_BYTES];
};

/* From a traffic secret of a suite with SHA-256. -ENOMEM. */
int sl_record_dir_init(struct sl_record_dir *dir, const struct sl_openssl *openssl, bool aes, bool seals,
                       const uint8_t secret[SL_DIGEST_BYTES]);
void sl_record_dir_fini(struct sl_record_dir *dir);

/* The next key of that direction, as after a KeyUpdate. */
int sl_record_rekey(struct sl_record_dir *dir);

/* HKDF-Expand-Label of SHA-256 with an empty context: len bytes, at most 32. */
int sl_record_expand(const uint8_t secret[SL_DIGEST_BYTES], const char *label, uint8_t *out, size_t len);

/* A whole record of len bytes, 0 to SL_RECORD_PLAIN, to out[len + SL_RECORD_AROUND]. False: the library failed. */
bool sl_record_seal(struct sl_record_dir *dir, enum sl_record_type type, const uint8_t *in, size_t len,
                    uint8_t *out);

/* How many bytes the record has that begins with the first have bytes, with its header: 0: not to be told yet;
 * -EBADMSG: it is none. */
int sl_record_len(const uint8_t *bytes, size_t have);

/* The bytes in a whole record of that length, len - SL_RECORD_AROUND of them, to out, and what they are.
 * -EBADMSG: it was changed, or is not the next one. out holds no bytes of use then. */
int sl_record_open(struct sl_record_dir *dir, const uint8_t *record, size_t len, uint8_t *out,
                   enum sl_record_type *type);

#endif
