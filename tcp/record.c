/* SPDX-License-Identifier: Apache-2.0 */
/* Seals and opens records of TLS 1.3. */
#include "tcp/record.h"

#include "core/err.h"

#include <string.h>

#define TAG_BYTES 16

/* struct { uint16 length; opaque label<..> = "tls13 " + label; opaque context<..> = ""; }, and HKDF's count. */
int sl_record_expand(const uint8_t secret[SL_DIGEST_BYTES], const char *label, uint8_t *out, size_t len)
{
    uint8_t info[64], block[SL_DIGEST_BYTES];
    size_t name = strlen(label), used = 0;

    sl_assert(len <= sizeof(block) && name < 32);
    info[used++] = 0;
    info[used++] = (uint8_t)len;
    info[used++] = (uint8_t)(6 + name);
    memcpy(info + used, "tls13 ", 6);
    memcpy(info + used + 6, label, name);
    used += 6 + name;
    info[used++] = 0;
    info[used++] = 1;
    int err = sl_hmac(secret, SL_DIGEST_BYTES, &(struct sl_part){info, used}, 1, block);

    if (err == 0)
        memcpy(out, block, len);
    explicit_bzero(block, sizeof(block));
    return err;
}

static int use_secret(struct sl_record_dir *dir)
{
    const struct sl_openssl *ssl = dir->openssl;
    uint8_t key[32];
    int err = sl_record_expand(dir->secret, "key", key, dir->aes ? 16 : 32)
                  ?: sl_record_expand(dir->secret, "iv", dir->iv, sizeof(dir->iv));

    if (err == 0 && ssl->EVP_CipherInit_ex(dir->cipher,
                                           dir->aes ? ssl->EVP_aes_128_gcm() : ssl->EVP_chacha20_poly1305(),
                                           NULL, key, NULL, dir->seals) != 1)
        err = sl_fail(-ENOMEM, "OpenSSL cannot set up a cipher");
    explicit_bzero(key, sizeof(key));
    dir->number = 0;
    return err;
}

int sl_record_dir_init(struct sl_record_dir *dir, const struct sl_openssl *openssl, bool aes, bool seals,
                       const uint8_t secret[SL_DIGEST_BYTES])
{
    *dir = (struct sl_record_dir){
        .openssl = openssl, .cipher = openssl->EVP_CIPHER_CTX_new(), .aes = aes, .seals = seals};
    memcpy(dir->secret, secret, sizeof(dir->secret));
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

int sl_record_rekey(struct sl_record_dir *dir)
{
    uint8_t next[SL_DIGEST_BYTES];
    int err = sl_record_expand(dir->secret, "traffic upd", next, sizeof(next));

    if (err == 0) {
        memcpy(dir->secret, next, sizeof(next));
        err = use_secret(dir);
    }
    explicit_bzero(next, sizeof(next));
    return err;
}

static void next_nonce(struct sl_record_dir *dir, uint8_t out[12])
{
    memcpy(out, dir->iv, 12);
    for (unsigned i = 0; i < 8; i++)
        out[4 + i] ^= (uint8_t)(dir->number >> (56 - 8 * i));
    dir->number++;
}

bool sl_record_seal(struct sl_record_dir *dir, enum sl_record_type type, const uint8_t *in, size_t len,
                    uint8_t *out)
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
