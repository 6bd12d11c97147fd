/* SPDX-License-Identifier: Apache-2.0 */
/* Seals and opens records of TLS 1.3. */
#include "tcp/record.h"

#include "core/err.h"

#include <string.h>

#define TAG_BYTES 16

const struct sl_record_suite_info sl_record_suites[SL_RECORD_SUITES] = {
    [SL_RECORD_AES_128] = {0x03001301, "AES-128-GCM", "TLS_AES_128_GCM_SHA256", 16, 32},
    [SL_RECORD_AES_256] = {0x03001302, "AES-256-GCM", "TLS_AES_256_GCM_SHA384", 32, 48},
    [SL_RECORD_CHACHA20] = {0x03001303, "ChaCha20-Poly1305", "TLS_CHACHA20_POLY1305_SHA256", 32,
                            32},
};

/* struct { uint16 length; opaque label<..> = "tls13 " + label; opaque context<..> = ""; }, and
 * HKDF's count. */
int sl_record_expand(const struct sl_openssl *openssl, enum sl_record_suite suite,
                     const uint8_t *secret, const char *label, uint8_t *out, size_t len)
{
    size_t name = strlen(label), used = 0, hash = sl_record_suites[suite].hash_bytes;
    uint8_t info[64], block[SL_RECORD_HASH_MAX];
    unsigned made = 0;
    int err = 0;

    sl_assert(len <= hash && name < 32);
    info[used++] = 0;
    info[used++] = (uint8_t)len;
    info[used++] = (uint8_t)(6 + name);
    memcpy(info + used, "tls13 ", 6);
    memcpy(info + used + 6, label, name);
    used += 6 + name;
    info[used++] = 0;
    info[used++] = 1;
    if (openssl->HMAC(hash == 48 ? openssl->EVP_sha384() : openssl->EVP_sha256(), secret, (int)hash,
                      info, used, block, &made) != NULL &&
        made == hash)
        memcpy(out, block, len);
    else
        err = sl_fail(-ENOMEM, "OpenSSL cannot make a TLS key");
    explicit_bzero(block, sizeof(block));
    return err;
}

int sl_record_derive(const struct sl_record_dir *dir, uint8_t key[SL_RECORD_KEY_MAX],
                     uint8_t iv[SL_RECORD_IV])
{
    return sl_record_expand(dir->openssl, dir->suite, dir->secret, "key", key,
                            sl_record_suites[dir->suite].key_bytes)
               ?: sl_record_expand(dir->openssl, dir->suite, dir->secret, "iv", iv, SL_RECORD_IV);
}

static const EVP_CIPHER *cipher_of(const struct sl_record_dir *dir)
{
    switch (dir->suite) {
    case SL_RECORD_AES_128: return dir->openssl->EVP_aes_128_gcm();
    case SL_RECORD_AES_256: return dir->openssl->EVP_aes_256_gcm();
    default: return dir->openssl->EVP_chacha20_poly1305();
    }
}

static int use_secret(struct sl_record_dir *dir)
{
    uint8_t key[SL_RECORD_KEY_MAX];
    int err = sl_record_derive(dir, key, dir->iv);

    if (err == 0 && dir->openssl->EVP_CipherInit_ex(dir->cipher, cipher_of(dir), NULL, key, NULL,
                                                    dir->seals) != 1)
        err = sl_fail(-ENOMEM, "OpenSSL cannot set up a cipher");
    explicit_bzero(key, sizeof(key));
    dir->number = 0;
    return err;
}

int sl_record_dir_init(struct sl_record_dir *dir, const struct sl_openssl *openssl,
                       enum sl_record_suite suite, bool seals, const uint8_t *secret)
{
    *dir = (struct sl_record_dir){.openssl = openssl,
                                  .cipher = openssl->EVP_CIPHER_CTX_new(),
                                  .suite = suite,
                                  .seals = seals};
    memcpy(dir->secret, secret, sl_record_suites[suite].hash_bytes);
    if (dir->cipher == NULL)
        return sl_fail(-ENOMEM, "no memory for a cipher");
    return use_secret(dir);
}

void sl_record_dir_fini(struct sl_record_dir *dir)
{
    if (dir->cipher != NULL)
        dir->openssl->EVP_CIPHER_CTX_free(dir->cipher);
    explicit_bzero(dir, sizeof(*dir));
}

int sl_record_next_secret(struct sl_record_dir *dir)
{
    uint8_t next[SL_RECORD_HASH_MAX];
    size_t len = sl_record_suites[dir->suite].hash_bytes;
    int err = sl_record_expand(dir->openssl, dir->suite, dir->secret, "traffic upd", next, len);

    if (err == 0)
        memcpy(dir->secret, next, len);
    explicit_bzero(next, sizeof(next));
    return err;
}

int sl_record_rekey(struct sl_record_dir *dir)
{
    return sl_record_next_secret(dir) ?: use_secret(dir);
}

static void next_nonce(struct sl_record_dir *dir, uint8_t out[12])
{
    memcpy(out, dir->iv, 12);
    for (unsigned i = 0; i < 8; i++)
        out[4 + i] ^= (uint8_t)(dir->number >> (56 - 8 * i));
    dir->number++;
}

bool sl_record_seal(struct sl_record_dir *dir, enum sl_record_type type, const uint8_t *in,
                    size_t len, uint8_t *out)
{
    const struct sl_openssl *ssl = dir->openssl;
    size_t body = len + 1 + TAG_BYTES;
    uint8_t nonce[12], kind = (uint8_t)type;
    int n;

    out[0] = SL_RECORD_DATA;
    out[1] = out[2] = 3;
    out[3] = (uint8_t)(body >> 8);
    out[4] = (uint8_t)body;
    next_nonce(dir, nonce);
    return ssl->EVP_CipherInit_ex(dir->cipher, NULL, NULL, NULL, nonce, 1) == 1 &&
           ssl->EVP_CipherUpdate(dir->cipher, NULL, &n, out, SL_RECORD_HEADER) == 1 &&
           (len == 0 ||
            ssl->EVP_CipherUpdate(dir->cipher, out + SL_RECORD_HEADER, &n, in, (int)len) == 1) &&
           ssl->EVP_CipherUpdate(dir->cipher, out + SL_RECORD_HEADER + len, &n, &kind, 1) == 1 &&
           ssl->EVP_CipherFinal_ex(dir->cipher, out + SL_RECORD_HEADER + len + 1, &n) == 1 &&
           ssl->EVP_CIPHER_CTX_ctrl(dir->cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES,
                                    out + SL_RECORD_HEADER + len + 1) == 1;
}

int sl_record_len(const uint8_t *bytes, size_t have)
{
    size_t body;

    if (have < SL_RECORD_HEADER)
        return 0;
    body = (size_t)(bytes[3] << 8 | bytes[4]);
    if (bytes[0] != SL_RECORD_DATA || bytes[1] != 3 || bytes[2] != 3 || body < 1 + TAG_BYTES ||
        body > SL_RECORD_PLAIN + 1 + TAG_BYTES)
        return -EBADMSG;
    return (int)(SL_RECORD_HEADER + body);
}

int sl_record_open(struct sl_record_dir *dir, const uint8_t *record, size_t len, uint8_t *out,
                   enum sl_record_type *type)
{
    const struct sl_openssl *ssl = dir->openssl;
    const uint8_t *body = record + SL_RECORD_HEADER;
    size_t plain = len - SL_RECORD_AROUND;
    uint8_t nonce[12], kind, tag[TAG_BYTES];
    int n;

    next_nonce(dir, nonce);
    memcpy(tag, record + len - TAG_BYTES, TAG_BYTES);
    if (ssl->EVP_CipherInit_ex(dir->cipher, NULL, NULL, NULL, nonce, 0) != 1 ||
        ssl->EVP_CIPHER_CTX_ctrl(dir->cipher, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) != 1 ||
        ssl->EVP_CipherUpdate(dir->cipher, NULL, &n, record, SL_RECORD_HEADER) != 1 ||
        (plain > 0 && ssl->EVP_CipherUpdate(dir->cipher, out, &n, body, (int)plain) != 1) ||
        ssl->EVP_CipherUpdate(dir->cipher, &kind, &n, body + plain, 1) != 1 ||
        ssl->EVP_CipherFinal_ex(dir->cipher, tag, &n) != 1)
        return -EBADMSG;
    /* Padding would hide the type behind zeros: no end of ours sends any. */
    if (kind != SL_RECORD_DATA && kind != SL_RECORD_HANDSHAKE && kind != SL_RECORD_ALERT)
        return -EBADMSG;
    *type = (enum sl_record_type)kind;
    return 0;
}
