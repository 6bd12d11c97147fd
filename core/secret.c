/* SPDX-License-Identifier: Apache-2.0 */
/* Digests, keys and sealed messages, by mbed TLS. */
#include "core/secret.h"

#include "core/err.h"

#include <mbedtls/chachapoly.h>
#include <mbedtls/md.h>
#include <string.h>

#define NONCE_BYTES 12

int sl_hmac(const void *key, size_t key_len, const struct sl_part *parts, unsigned count,
            uint8_t out[SL_DIGEST_BYTES])
{
    mbedtls_md_context_t md;

    mbedtls_md_init(&md);
    int err = mbedtls_md_setup(&md, mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), 1);

    err = err ?: mbedtls_md_hmac_starts(&md, key, key_len);
    for (unsigned i = 0; i < count && err == 0; i++)
        err = mbedtls_md_hmac_update(&md, parts[i].bytes, parts[i].len);
    err = err ?: mbedtls_md_hmac_finish(&md, out);
    mbedtls_md_free(&md);
    if (err != 0)
        return sl_fail(-ENOMEM, "no memory to compute a proof of membership");
    return 0;
}

int sl_key_derive(const void *secret, size_t secret_len, const void *context, size_t context_len,
                  const char *label, uint8_t out[SL_DIGEST_BYTES])
{
    static const uint8_t first = 1; /* block of the output: there is one */
    uint8_t extracted[SL_DIGEST_BYTES];
    int err = sl_hmac(context, context_len, &(struct sl_part){secret, secret_len}, 1, extracted);

    err = err
              ?: sl_hmac(extracted, sizeof(extracted),
                         (struct sl_part[]){{label, strlen(label)}, {&first, 1}}, 2, out);
    explicit_bzero(extracted, sizeof(extracted));
    return err;
}

int sl_session_derive(const char *secret, uint8_t out[SL_DIGEST_BYTES])
{
    return sl_key_derive(secret, strlen(secret), NULL, 0, "sluice session 2", out);
}

bool sl_digest_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
    volatile uint8_t differ = 0;

    for (size_t i = 0; i < len; i++)
        differ = (uint8_t)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

static void make_nonce(uint64_t number, uint8_t out[NONCE_BYTES])
{
    memset(out, 0, NONCE_BYTES);
    for (unsigned i = 0; i < 8; i++)
        out[4 + i] = (uint8_t)(number >> (8 * i));
}

int sl_seal(const uint8_t key[SL_DIGEST_BYTES], uint64_t number, const void *head, size_t head_len,
            const void *in, size_t len, uint8_t *out)
{
    mbedtls_chachapoly_context context;
    uint8_t nonce[NONCE_BYTES];

    make_nonce(number, nonce);
    mbedtls_chachapoly_init(&context);
    int err = mbedtls_chachapoly_setkey(&context, key);

    err = err
              ?: mbedtls_chachapoly_encrypt_and_tag(&context, len, nonce, head, head_len, in, out,
                                                    out + len);
    mbedtls_chachapoly_free(&context);
    return err == 0 ? 0 : sl_fail(-EIO, "mbed TLS cannot seal a message (-0x%x)", (unsigned)-err);
}

int sl_unseal(const uint8_t key[SL_DIGEST_BYTES], uint64_t number, const void *head,
              size_t head_len, const void *in, size_t len, const uint8_t seal[SL_SEAL_BYTES],
              void *out)
{
    mbedtls_chachapoly_context context;
    uint8_t nonce[NONCE_BYTES];

    make_nonce(number, nonce);
    mbedtls_chachapoly_init(&context);
    int err = mbedtls_chachapoly_setkey(&context, key);

    err =
        err ?: mbedtls_chachapoly_auth_decrypt(&context, len, nonce, head, head_len, seal, in, out);
    mbedtls_chachapoly_free(&context);
    return err == 0 ? 0 : -EBADMSG;
}
