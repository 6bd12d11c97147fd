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
#define SL_RECORD_PLAIN 16384                        /* most bytes of data in one */
#define SL_RECORD_AROUND (SL_RECORD_HEADER + 1 + 16) /* header, type, tag */
#define SL_RECORD_MAX (SL_RECORD_HEADER + SL_RECORD_PLAIN + 256)

enum sl_record_type { SL_RECORD_ALERT = 21, SL_RECORD_HANDSHAKE = 22, SL_RECORD_DATA = 23 };

#define SL_RECORD_KEY_MAX 32
#define SL_RECORD_IV 12
#define SL_RECORD_HASH_MAX 48 /* SHA-384 */

enum sl_record_suite { SL_RECORD_AES_128, SL_RECORD_AES_256, SL_RECORD_CHACHA20, SL_RECORD_SUITES };

struct sl_record_suite_info {
    uint32_t id; /* as OpenSSL has it */
    const char *name, *openssl_name;
    uint8_t key_bytes, hash_bytes;
};
extern const struct sl_record_suite_info sl_record_suites[SL_RECORD_SUITES];

/* One direction of a connection. */
struct sl_record_dir {
    const struct sl_openssl *openssl;
    EVP_CIPHER_CTX *cipher; /* owned; NULL: the kernel makes the records */
    bool seals;             /* or opens */
    enum sl_record_suite suite;
    uint64_t number; /* of the next record under this key */
    uint8_t iv[SL_RECORD_IV], secret[SL_RECORD_HASH_MAX];
};

/* From a traffic secret, as long as the hash of the suite. -ENOMEM. */
int sl_record_dir_init(struct sl_record_dir *dir, const struct sl_openssl *openssl,
                       enum sl_record_suite suite, bool seals, const uint8_t *secret);
void sl_record_dir_fini(struct sl_record_dir *dir);

/* The next key of that direction, as after a KeyUpdate. */
int sl_record_rekey(struct sl_record_dir *dir);

/* The same in two steps, for a caller with another cipher: the next secret, and key and iv of the
 * one that holds. */
int sl_record_next_secret(struct sl_record_dir *dir);
int sl_record_derive(const struct sl_record_dir *dir, uint8_t key[SL_RECORD_KEY_MAX],
                     uint8_t iv[SL_RECORD_IV]);

/* HKDF-Expand-Label with the suite's hash and an empty context: len bytes, at most that of the
 * hash. */
int sl_record_expand(const struct sl_openssl *openssl, enum sl_record_suite suite,
                     const uint8_t *secret, const char *label, uint8_t *out, size_t len);

/* A whole record of len bytes, 0 to SL_RECORD_PLAIN, to out[len + SL_RECORD_AROUND]. False: the
 * library failed. */
bool sl_record_seal(struct sl_record_dir *dir, enum sl_record_type type, const uint8_t *in,
                    size_t len, uint8_t *out);

/* How many bytes the record has that begins with the first have bytes, with its header: 0: not to
 * be told yet;
 * -EBADMSG: it is none. */
int sl_record_len(const uint8_t *bytes, size_t have);

/* The bytes in a whole record of that length, len - SL_RECORD_AROUND of them, to out, and what they
 * are.
 * -EBADMSG: it was changed, or is not the next one. out holds no bytes of use then. */
int sl_record_open(struct sl_record_dir *dir, const uint8_t *record, size_t len, uint8_t *out,
                   enum sl_record_type *type);

#endif
