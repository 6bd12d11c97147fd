/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TLS handshake of one connection, by OpenSSL over memory.
 *
 * OpenSSL is fed whole records, one after the other, so no byte of data is read before its key is
 * known. Of the handshake the two traffic secrets are kept; from there on nothing is left of
 * OpenSSL but two ciphers.
 */
#include "tcp/tls_inside.h"

#include "core/err.h"
#include "core/log.h"
#include "tcp/tls_kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define FLIGHT_BYTES 8192 /* of handshake messages that the socket has not taken */

/* RFC 8446, section 5.5: AES-GCM loses its safety margin after some 2^24.5 full records of one
 * key. */
uint64_t sl_tls_records_per_key = UINT64_C(1) << 24;

/* OpenSSL wants sessions, and so keys, to belong to something. */
static const unsigned char context_id[] = {'s', 'l', 'u', 'i', 'c', 'e'};

struct sl_tls_context {
    const struct sl_openssl *openssl;
    SSL_CTX *ctx;
    bool in_kernel; /* the kernel makes the records */
    struct sl_tls_terms offer;
};

/* Memory until both ends are sure of each other. */
struct sl_tls_handshake {
    SSL *ssl;
    BIO *in, *out;                                               /* ssl's */
    uint8_t psk[SL_DIGEST_BYTES], secret[2][SL_RECORD_HASH_MAX]; /* secrets: client's, server's */
    size_t secret_len[2];
    bool ssl_done;
    char identity[SL_TLS_IDENTITY_MAX];
    size_t got, flight_pos, flight_end;
    uint8_t record[SL_RECORD_MAX], flight[FLIGHT_BYTES];
};

/* ---- the part of all connections ---- */

static struct sl_tls *tls_of(const struct sl_openssl *openssl, const SSL *ssl)
{
    return openssl->SSL_get_ex_data(ssl, 0);
}

/* OpenSSL's callbacks bring no argument that leads to the table. */
static const struct sl_openssl *library(void)
{
    const struct sl_openssl *openssl = NULL;

    sl_assert(sl_openssl_get(&openssl) == 0);
    return openssl;
}

static SSL_SESSION *session_of(const struct sl_openssl *openssl, SSL *ssl)
{
    static const unsigned char with_sha256[2] = {0x13, 0x01}, with_sha384[2] = {0x13, 0x02};
    const struct sl_tls *tls = tls_of(openssl, ssl);
    const struct sl_tls_handshake *shake = tls->handshake;
    SSL_SESSION *session = openssl->SSL_SESSION_new();
    const unsigned char *suite =
        tls->agreed.cipher == SL_TLS_CIPHER_AES_256 ? with_sha384 : with_sha256;

    /* The suite says which hash the key is for; any suite of that hash may then be chosen. */
    if (session != NULL &&
        openssl->SSL_SESSION_set1_master_key(session, shake->psk, sizeof(shake->psk)) == 1 &&
        openssl->SSL_SESSION_set_cipher(session, openssl->SSL_CIPHER_find(ssl, suite)) == 1 &&
        openssl->SSL_SESSION_set1_id_context(session, context_id, sizeof(context_id)) == 1 &&
        openssl->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    openssl->SSL_SESSION_free(session);
    return NULL;
}

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                       SSL_SESSION **session)
{
    const struct sl_openssl *openssl = library();
    const struct sl_tls_handshake *shake = tls_of(openssl, ssl)->handshake;

    (void)md; /* NULL, or of the server's choice after a retry: there is one */
    *id = (const unsigned char *)shake->identity;
    *id_len = strlen(shake->identity);
    *session = session_of(openssl, ssl);
    return *session != NULL;
}

/* The key is of this very connection, whatever the other end calls it; an end with another one
 * fails at the binder. */
static int find_session(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    (void)id, (void)id_len;
    *session = session_of(library(), ssl);
    return *session != NULL;
}

/* "NAME random secret", in hex: OpenSSL's only way to tell the traffic secrets. */
static void keep_secret(const SSL *ssl, const char *line)
{
    static const char *const names[2] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
    struct sl_tls_handshake *shake = tls_of(library(), ssl)->handshake;
    const char *hex = strrchr(line, ' ');

    for (unsigned i = 0; i < 2; i++) {
        size_t len = strlen(hex + 1) / 2;

        if (strncmp(line, names[i], strlen(names[i])) != 0 || len > SL_RECORD_HASH_MAX)
            continue;
        for (size_t at = 0; at < len; at++) {
            char digits[3] = {hex[1 + 2 * at], hex[2 + 2 * at], '\0'};

            shake->secret[i][at] = (uint8_t)strtoul(digits, NULL, 16);
        }
        shake->secret_len[i] = len;
    }
}

/* Where the processor has no AES of its own, the other cipher is several times faster. */
static const char *suites(const struct sl_tls_terms *agreed)
{
    if (agreed->cipher == SL_TLS_CIPHER_AES_128)
        return "TLS_AES_128_GCM_SHA256";
    if (agreed->cipher == SL_TLS_CIPHER_AES_256)
        return "TLS_AES_256_GCM_SHA384";
    if (agreed->cipher == SL_TLS_CIPHER_CHACHA20 || agreed->keys_stay)
        return "TLS_CHACHA20_POLY1305_SHA256";
#if defined(__x86_64__) || defined(__i386__)
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("pclmul"))
        return "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
#endif
    return "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
}

/* Chooses the maker of the records; the offer to the other end depends on it. */
static int choose_records(struct sl_tls_context *context, enum sl_tls_records records)
{
    bool aes = context->offer.cipher == SL_TLS_CIPHER_AES_128 ||
               context->offer.cipher == SL_TLS_CIPHER_AES_256;
    bool takes_new_keys;

    if (records == SL_TLS_RECORDS_USER)
        return 0;
    int err = sl_tls_kernel_look(&takes_new_keys);

    if (err == 0 && aes && !takes_new_keys)
        err = sl_fail(-ENOTSUP, "SLUICE_TCP_TLS_CIPHER names AES, whose keys must change, and this "
                                "kernel takes no new ones (Linux 6.14 and later do)");
    if (err == 0) {
        context->in_kernel = true;
        context->offer.keys_stay = !takes_new_keys;
        return 0;
    }
    if (records == SL_TLS_RECORDS_KERNEL)
        return err;
    sl_info("tcp", "TLS records are made in user space: %s", sluice_last_error());
    return 0;
}

int sl_tls_context_open(enum sl_tls_records records, enum sl_tls_cipher cipher,
                        struct sl_tls_context **out)
{
    struct sl_tls_context *context = calloc(1, sizeof(*context));
    const struct sl_openssl *openssl;
    int err = context != NULL ? sl_openssl_get(&openssl) : sl_fail(-ENOMEM, "no memory for TLS");

    if (err == 0) {
        context->offer.cipher = (uint8_t)cipher;
        err = choose_records(context, records);
    }
    if (err != 0) {
        free(context);
        return err;
    }
    context->openssl = openssl;
    context->ctx = openssl->SSL_CTX_new(openssl->TLS_method());
    if (context->ctx == NULL ||
        openssl->SSL_CTX_ctrl(context->ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) !=
            1 ||
        openssl->SSL_CTX_ctrl(context->ctx, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) !=
            1 ||
        openssl->SSL_CTX_set_ciphersuites(context->ctx, suites(&context->offer)) != 1 ||
        openssl->SSL_CTX_set_session_id_context(context->ctx, context_id, sizeof(context_id)) !=
            1 ||
        openssl->SSL_CTX_set_num_tickets(context->ctx, 0) != 1) {
        sl_tls_context_close(context);
        return sl_fail(-ENOTSUP, "this OpenSSL does not do TLS 1.3; is it restricted by a policy?");
    }
    /* A certificate in place of the key is refused: no authority is trusted. */
    openssl->SSL_CTX_set_verify(context->ctx, SSL_VERIFY_PEER, NULL);
    openssl->SSL_CTX_set_keylog_callback(context->ctx, keep_secret);
    openssl->SSL_CTX_set_psk_use_session_callback(context->ctx, use_session);
    openssl->SSL_CTX_set_psk_find_session_callback(context->ctx, find_session);
    *out = context;
    return 0;
}

void sl_tls_context_close(struct sl_tls_context *context)
{
    if (context == NULL)
        return;
    context->openssl->SSL_CTX_free(context->ctx);
    free(context);
}

const struct sl_tls_terms *sl_tls_offer(const struct sl_tls_context *context)
{
    return &context->offer;
}

/* ---- handshake ---- */

static void handshake_free(struct sl_tls *tls)
{
    struct sl_tls_handshake *shake = tls->handshake;

    if (shake == NULL)
        return;
    if (shake->ssl != NULL)
        tls->openssl->SSL_free(shake->ssl); /* and its buffers */
    explicit_bzero(shake, sizeof(*shake));
    free(shake);
    tls->handshake = NULL;
}

void sl_tls_free(struct sl_tls *tls)
{
    if (tls == NULL)
        return;
    handshake_free(tls);
    sl_record_dir_fini(&tls->tx);
    sl_record_dir_fini(&tls->rx);
    if (tls->out != NULL)
        munmap(tls->out, SL_TLS_BUFFER_BYTES);
    free(tls);
}

static int attach(struct sl_tls_handshake *shake, const struct sl_openssl *openssl, SSL_CTX *ctx,
                  const char *suites)
{
    shake->ssl = openssl->SSL_new(ctx);
    shake->in = openssl->BIO_new(openssl->BIO_s_mem());
    shake->out = openssl->BIO_new(openssl->BIO_s_mem());
    if (shake->ssl != NULL && shake->in != NULL && shake->out != NULL &&
        openssl->SSL_set_ciphersuites(shake->ssl, suites) == 1) {
        openssl->SSL_set_bio(shake->ssl, shake->in, shake->out);
        return 0;
    }
    openssl->BIO_free(shake->in);
    openssl->BIO_free(shake->out);
    return sl_fail(-ENOMEM, "no memory for a TLS handshake");
}

int sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed, bool client,
               const uint8_t psk[SL_DIGEST_BYTES], const char *identity, struct sl_tls **out)
{
    const struct sl_openssl *openssl = context->openssl;
    struct sl_tls *tls = calloc(1, sizeof(*tls));
    struct sl_tls_handshake *shake = calloc(1, sizeof(*shake));
    int err = -ENOMEM;

    if (tls == NULL || shake == NULL) {
        free(shake);
        free(tls);
        return sl_fail(err, "no memory for a TLS connection");
    }
    tls->openssl = openssl;
    tls->handshake = shake;
    tls->client = client;
    tls->in_kernel = context->in_kernel;
    tls->agreed = *agreed;
    memcpy(shake->psk, psk, sizeof(shake->psk));
    snprintf(shake->identity, sizeof(shake->identity), "%s", identity);
    tls->out =
        mmap(NULL, SL_TLS_BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tls->out == MAP_FAILED) {
        tls->out = NULL;
        err = sl_fail(err, "no memory for a TLS connection");
        goto err_tls;
    }
    tls->in = tls->out + SL_TLS_OUT_BYTES;
    tls->plain = tls->in + SL_TLS_IN_BYTES;
    err = attach(shake, openssl, context->ctx, suites(agreed));
    if (err != 0)
        goto err_tls;
    openssl->SSL_set_ex_data(shake->ssl, 0, tls);
    if (client)
        openssl->SSL_set_connect_state(shake->ssl);
    else
        openssl->SSL_set_accept_state(shake->ssl);
    *out = tls;
    return 0;

err_tls:
    sl_tls_free(tls);
    return err;
}

/* 1: all that OpenSSL has said is with the kernel; 0: not yet. */
static int flight_send(struct sl_tls *tls, int fd)
{
    struct sl_tls_handshake *shake = tls->handshake;

    for (;;) {
        if (shake->flight_pos == shake->flight_end) {
            int n = tls->openssl->BIO_read(shake->out, shake->flight, sizeof(shake->flight));

            if (n <= 0)
                return 1;
            shake->flight_pos = 0;
            shake->flight_end = (size_t)n;
        }
        ssize_t n = send(fd, shake->flight + shake->flight_pos,
                         shake->flight_end - shake->flight_pos, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return sl_fail(-ECONNRESET, "the peer hung up in the TLS handshake: %s",
                           strerror(errno));
        shake->flight_pos += (size_t)n;
    }
}

/* 1: one more record is with OpenSSL; 0: not yet. */
static int record_take(struct sl_tls *tls, int fd)
{
    struct sl_tls_handshake *shake = tls->handshake;

    for (;;) {
        size_t want = SL_RECORD_HEADER;

        if (shake->got >= SL_RECORD_HEADER)
            want += (size_t)(shake->record[3] << 8 | shake->record[4]);
        if (want > sizeof(shake->record))
            return sl_fail(-EPROTO, "what the peer answers is not TLS");
        if (shake->got >= SL_RECORD_HEADER && shake->got == want) {
            shake->got = 0;
            if (tls->openssl->BIO_write(shake->in, shake->record, (int)want) != (int)want)
                return sl_fail(-ENOMEM, "no memory for a TLS handshake");
            return 1;
        }
        ssize_t n = recv(fd, shake->record + shake->got, want - shake->got, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return sl_fail(-ECONNRESET, "the peer hung up in the TLS handshake%s%s",
                           n < 0 ? ": " : "", n < 0 ? strerror(errno) : "");
        shake->got += (size_t)n;
    }
}

static int fail_handshake(struct sl_tls *tls, int fd)
{
    const char *reason = tls->openssl->ERR_reason_error_string(tls->openssl->ERR_get_error());

    flight_send(tls, fd); /* an alert, so that the peer knows as well */
    return sl_fail(-EPROTO, "the TLS handshake failed (%s); compare SLUICE_SECRET on both sides",
                   reason != NULL ? reason : "no reason is known");
}

/* Whether that is one of those we offered. */
static bool find_suite(const struct sl_tls *tls, uint32_t id, enum sl_record_suite *out)
{
    for (unsigned i = 0; i < SL_RECORD_SUITES; i++)
        if (sl_record_suites[i].id == id &&
            strstr(suites(&tls->agreed), sl_record_suites[i].openssl_name) != NULL) {
            *out = (enum sl_record_suite)i;
            return true;
        }
    return false;
}

static int handshake_over(struct sl_tls *tls, int fd)
{
    struct sl_tls_handshake *shake = tls->handshake;
    uint32_t id = tls->openssl->SSL_CIPHER_get_id(tls->openssl->SSL_get_current_cipher(shake->ssl));
    const uint8_t *mine = shake->secret[!tls->client], *theirs = shake->secret[tls->client];

    if (tls->openssl->SSL_session_reused(shake->ssl) != 1 || !find_suite(tls, id, &tls->suite) ||
        shake->secret_len[0] != sl_record_suites[tls->suite].hash_bytes ||
        shake->secret_len[1] != shake->secret_len[0])
        return sl_fail(-EPROTO, "the TLS handshake ended without the job's key");
    if (tls->in_kernel)
        return sl_tls_kernel_take(tls, fd, mine, theirs);
    int err = sl_record_dir_init(&tls->tx, tls->openssl, tls->suite, true, mine);

    return err ?: sl_record_dir_init(&tls->rx, tls->openssl, tls->suite, false, theirs);
}

int sl_tls_handshake(struct sl_tls *tls, int fd, bool *wants_write)
{
    struct sl_tls_handshake *shake = tls->handshake;
    int err = 1;

    *wants_write = false;
    while (err == 1 && !shake->ssl_done) {
        tls->openssl->ERR_clear_error();
        int done = tls->openssl->SSL_do_handshake(shake->ssl);

        if (done != 1 && tls->openssl->SSL_get_error(shake->ssl, done) != SSL_ERROR_WANT_READ)
            return fail_handshake(tls, fd);
        shake->ssl_done = done == 1;
        err = flight_send(tls, fd);
        *wants_write = err == 0;
        if (err == 1 && !shake->ssl_done)
            err = record_take(tls, fd);
    }
    if (err == 1 || (err == 0 && shake->ssl_done)) {
        err = flight_send(tls, fd);
        *wants_write = err == 0;
    }
    if (err != 1)
        return err;
    err = handshake_over(tls, fd);
    handshake_free(tls);
    return err != 0 ? err : 1;
}

const char *sl_tls_cipher(const struct sl_tls *tls)
{
    static const char *const in_kernel[] = {[SL_RECORD_AES_128] = "AES-128-GCM in the kernel",
                                            [SL_RECORD_AES_256] = "AES-256-GCM in the kernel",
                                            [SL_RECORD_CHACHA20] =
                                                "ChaCha20-Poly1305 in the kernel"};

    return tls->in_kernel ? in_kernel[tls->suite] : sl_record_suites[tls->suite].name;
}
