/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL's functions, found when the program runs: libsluice is not linked with it. */
#ifndef SL_TCP_TLS_DL_H
#define SL_TCP_TLS_DL_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

/* Type of the result, name, parameters. */
#define SL_TLS_SSL_FUNCTIONS(X)                                                                    \
    X(const SSL_METHOD *, TLS_method, (void))                                                      \
    X(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *))                                                \
    X(void, SSL_CTX_free, (SSL_CTX *))                                                             \
    X(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *))                                          \
    X(int, SSL_CTX_set_ciphersuites, (SSL_CTX *, const char *))                                    \
    X(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t))                                           \
    X(int, SSL_SESSION_set1_id_context, (SSL_SESSION *, const unsigned char *, unsigned))          \
    X(int, SSL_CTX_set_session_id_context, (SSL_CTX *, const unsigned char *, unsigned))           \
    X(void, SSL_CTX_set_verify, (SSL_CTX *, int, SSL_verify_cb))                                   \
    X(void, SSL_CTX_set_keylog_callback, (SSL_CTX *, SSL_CTX_keylog_cb_func))                      \
    X(void, SSL_CTX_set_psk_use_session_callback, (SSL_CTX *, SSL_psk_use_session_cb_func))        \
    X(void, SSL_CTX_set_psk_find_session_callback, (SSL_CTX *, SSL_psk_find_session_cb_func))      \
    X(SSL *, SSL_new, (SSL_CTX *))                                                                 \
    X(void, SSL_free, (SSL *))                                                                     \
    X(void, SSL_set_bio, (SSL *, BIO *, BIO *))                                                    \
    X(int, SSL_set_ciphersuites, (SSL *, const char *))                                            \
    X(int, SSL_set_ex_data, (SSL *, int, void *))                                                  \
    X(void *, SSL_get_ex_data, (const SSL *, int))                                                 \
    X(void, SSL_set_connect_state, (SSL *))                                                        \
    X(void, SSL_set_accept_state, (SSL *))                                                         \
    X(int, SSL_do_handshake, (SSL *))                                                              \
    X(int, SSL_get_error, (const SSL *, int))                                                      \
    X(int, SSL_session_reused, (const SSL *))                                                      \
    X(const SSL_CIPHER *, SSL_get_current_cipher, (const SSL *))                                   \
    X(uint32_t, SSL_CIPHER_get_id, (const SSL_CIPHER *))                                           \
    X(const SSL_CIPHER *, SSL_CIPHER_find, (SSL *, const unsigned char *))                         \
    X(SSL_SESSION *, SSL_SESSION_new, (void))                                                      \
    X(void, SSL_SESSION_free, (SSL_SESSION *))                                                     \
    X(int, SSL_SESSION_set1_master_key, (SSL_SESSION *, const unsigned char *, size_t))            \
    X(int, SSL_SESSION_set_cipher, (SSL_SESSION *, const SSL_CIPHER *))                            \
    X(int, SSL_SESSION_set_protocol_version, (SSL_SESSION *, int))

#define SL_TLS_CRYPTO_FUNCTIONS(X)                                                                 \
    X(BIO *, BIO_new, (const BIO_METHOD *))                                                        \
    X(const BIO_METHOD *, BIO_s_mem, (void))                                                       \
    X(int, BIO_read, (BIO *, void *, int))                                                         \
    X(int, BIO_write, (BIO *, const void *, int))                                                  \
    X(int, BIO_free, (BIO *))                                                                      \
    X(unsigned long, ERR_get_error, (void))                                                        \
    X(void, ERR_clear_error, (void))                                                               \
    X(const char *, ERR_reason_error_string, (unsigned long))                                      \
    X(EVP_CIPHER_CTX *, EVP_CIPHER_CTX_new, (void))                                                \
    X(void, EVP_CIPHER_CTX_free, (EVP_CIPHER_CTX *))                                               \
    X(int, EVP_CIPHER_CTX_ctrl, (EVP_CIPHER_CTX *, int, int, void *))                              \
    X(const EVP_CIPHER *, EVP_aes_128_gcm, (void))                                                 \
    X(const EVP_CIPHER *, EVP_aes_256_gcm, (void))                                                 \
    X(const EVP_CIPHER *, EVP_chacha20_poly1305, (void))                                           \
    X(const EVP_MD *, EVP_sha256, (void))                                                          \
    X(const EVP_MD *, EVP_sha384, (void))                                                          \
    X(unsigned char *, HMAC,                                                                       \
      (const EVP_MD *, const void *, int, const unsigned char *, size_t, unsigned char *,          \
       unsigned *))                                                                                \
    X(int, EVP_CipherInit_ex,                                                                      \
      (EVP_CIPHER_CTX *, const EVP_CIPHER *, ENGINE *, const unsigned char *,                      \
       const unsigned char *, int))                                                                \
    X(int, EVP_CipherUpdate,                                                                       \
      (EVP_CIPHER_CTX *, unsigned char *, int *, const unsigned char *, int))                      \
    X(int, EVP_CipherFinal_ex, (EVP_CIPHER_CTX *, unsigned char *, int *))

struct sl_openssl {
#define SL_TLS_FIELD(type, name, args) type(*name) args;
    SL_TLS_SSL_FUNCTIONS(SL_TLS_FIELD)
    SL_TLS_CRYPTO_FUNCTIONS(SL_TLS_FIELD)
#undef SL_TLS_FIELD
};

/* Opened once for the process. -ENOTSUP names the missing part and its package. */
int sl_openssl_get(const struct sl_openssl **out);

#endif
