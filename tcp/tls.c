/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of one connection: OpenSSL's handshake over memory, then streams of records.
 *
 * OpenSSL is fed whole records, one after the other, so no byte of data is read before its key is known. Of the
 * handshake the two traffic secrets are kept; from there on nothing is left of OpenSSL but two ciphers.
 */
#include "tcp/tls.h"

#include "core/err.h"
#include "tcp/record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define GROUP_RECORDS 8                        /* sealed for one send() */
#define OUT_BYTES (GROUP_RECORDS * (SL_RECORD_PLAIN + SL_RECORD_AROUND) + 64)
#define IN_BYTES (GROUP_RECORDS * SL_RECORD_MAX)
#define FLIGHT_BYTES 8192                      /* of handshake messages that the socket has not taken */
#define KEY_UPDATE 24
#define NEW_TICKET 4
#define AES_128_GCM_ID 0x03001301
#define CHACHA20_ID 0x03001303

/* RFC 8446, section 5.5: AES-GCM loses its safety margin after some 2^24.5 full records of one key. */
uint64_t sl_tls_records_per_key = UINT64_C(1) << 24;

/* OpenSSL wants sessions, and so keys, to belong to something. */
static const unsigned char context_id[] = {'s', 'l', 'u', 'i', 'c', 'e'};

struct sl_tls_context {
    const struct sl_openssl *openssl;
    SSL_CTX *ctx;
};

/* What is needed until both ends are sure of each other. */
struct handshake {
    SSL *ssl;
    BIO *in, *out; /* ssl's */
    uint8_t psk[SL_DIGEST_BYTES], secret[2][SL_DIGEST_BYTES]; /* secrets: client's, server's */
    bool have_secret[2], ssl_done;
    char identity[SL_TLS_IDENTITY_MAX];
    size_t got, flight_pos, flight_end;
    uint8_t record[SL_RECORD_MAX], flight[FLIGHT_BYTES];
};

struct sl_tls {
    const struct sl_openssl *openssl;
    struct handshake *handshake; /* owned; NULL: done */
    bool client, aes;
    struct sl_record_dir tx, rx;
    uint32_t out_pos, out_end;     /* records that the kernel has not taken */
    uint32_t out_plain;            /* bytes of the caller's in them */
    uint32_t in_pos, in_end;       /* records that came, the last one maybe in part */
    uint32_t plain_pos, plain_end; /* of a record for which the caller had too little room */
    uint8_t *out, *in, *plain;     /* parts of one mapping, whose pages cost memory once they are used */
};

/* ---- what is the same for all connections ---- */

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
    static const unsigned char aes_128_gcm[2] = {0x13, 0x01};
    const struct handshake *shake = tls_of(openssl, ssl)->handshake;
    SSL_SESSION *session = openssl->SSL_SESSION_new();

    /* The suite says which hash the key is for; any suite of that hash may then be chosen. */
    if (session != NULL &&
        openssl->SSL_SESSION_set1_master_key(session, shake->psk, sizeof(shake->psk)) == 1 &&
        openssl->SSL_SESSION_set_cipher(session, openssl->SSL_CIPHER_find(ssl, aes_128_gcm)) == 1 &&
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
    const struct handshake *shake = tls_of(openssl, ssl)->handshake;

    (void)md; /* NULL, or of the server's choice after a retry: there is one */
    *id = (const unsigned char *)shake->identity;
    *id_len = strlen(shake->identity);
    *session = session_of(openssl, ssl);
    return *session != NULL;
}

/* The key is of this very connection, whatever the other end calls it; who has another one fails at the binder. */
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
    struct handshake *shake = tls_of(library(), ssl)->handshake;
    const char *hex = strrchr(line, ' ');

    for (unsigned i = 0; i < 2; i++) {
        if (strncmp(line, names[i], strlen(names[i])) != 0 || strlen(hex + 1) != 2 * SL_DIGEST_BYTES)
            continue;
        for (unsigned at = 0; at < SL_DIGEST_BYTES; at++) {
            char digits[3] = {hex[1 + 2 * at], hex[2 + 2 * at], '\0'};

            shake->secret[i][at] = (uint8_t)strtoul(digits, NULL, 16);
        }
        shake->have_secret[i] = true;
    }
}

/* Where the processor has no AES of its own, the other cipher is several times faster. */
static const char *suites(void)
{
#if defined(__x86_64__) || defined(__i386__)
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("pclmul"))
        return "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
#endif
    return "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
}

int sl_tls_context_open(struct sl_tls_context **out)
{
    struct sl_tls_context *context = calloc(1, sizeof(*context));
    const struct sl_openssl *openssl;
    int err = context != NULL ? sl_openssl_get(&openssl) : sl_fail(-ENOMEM, "no memory for TLS");

    if (err != 0) {
        free(context);
        return err;
    }
    context->openssl = openssl;
    context->ctx = openssl->SSL_CTX_new(openssl->TLS_method());
    if (context->ctx == NULL ||
        openssl->SSL_CTX_ctrl(context->ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_ctrl(context->ctx, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_set_ciphersuites(context->ctx, suites()) != 1 ||
        openssl->SSL_CTX_set_session_id_context(context->ctx, context_id, sizeof(context_id)) != 1 ||
        openssl->SSL_CTX_set_num_tickets(context->ctx, 0) != 1) {
        sl_tls_context_close(context);
        return sl_fail(-ENOTSUP, "this OpenSSL does not do TLS 1.3; is it restricted by a policy?");
    }
    /* Whoever comes with a certificate in place of the key is refused: no authority is trusted. */
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

/* ---- handshake ---- */

static void handshake_free(struct sl_tls *tls)
{
    struct handshake *shake = tls->handshake;

    if (shake == NULL)
        return;
    if (shake->ssl != NULL)
        tls->openssl->SSL_free(shake->ssl); /* and what was read and written */
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
        munmap(tls->out, OUT_BYTES + IN_BYTES + SL_RECORD_PLAIN);
    free(tls);
}

static int attach(struct handshake *shake, const struct sl_openssl *openssl, SSL_CTX *ctx)
{
    shake->ssl = openssl->SSL_new(ctx);
    shake->in = openssl->BIO_new(openssl->BIO_s_mem());
    shake->out = openssl->BIO_new(openssl->BIO_s_mem());
    if (shake->ssl != NULL && shake->in != NULL && shake->out != NULL) {
        openssl->SSL_set_bio(shake->ssl, shake->in, shake->out);
        return 0;
    }
    openssl->BIO_free(shake->in);
    openssl->BIO_free(shake->out);
    return sl_fail(-ENOMEM, "no memory for a TLS handshake");
}

int sl_tls_new(struct sl_tls_context *context, bool client, const uint8_t psk[SL_DIGEST_BYTES],
               const char *identity, struct sl_tls **out)
{
    const struct sl_openssl *openssl = context->openssl;
    struct sl_tls *tls = calloc(1, sizeof(*tls));
    struct handshake *shake = calloc(1, sizeof(*shake));
    int err = -ENOMEM;

    if (tls == NULL || shake == NULL) {
        free(shake);
        free(tls);
        return sl_fail(err, "no memory for a TLS connection");
    }
    tls->openssl = openssl;
    tls->handshake = shake;
    tls->client = client;
    memcpy(shake->psk, psk, sizeof(shake->psk));
    snprintf(shake->identity, sizeof(shake->identity), "%s", identity);
    tls->out = mmap(NULL, OUT_BYTES + IN_BYTES + SL_RECORD_PLAIN, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tls->out == MAP_FAILED) {
        tls->out = NULL;
        err = sl_fail(err, "no memory for a TLS connection");
        goto err_tls;
    }
    tls->in = tls->out + OUT_BYTES;
    tls->plain = tls->in + IN_BYTES;
    err = attach(shake, openssl, context->ctx);
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
    struct handshake *shake = tls->handshake;

    for (;;) {
        if (shake->flight_pos == shake->flight_end) {
            int n = tls->openssl->BIO_read(shake->out, shake->flight, sizeof(shake->flight));

            if (n <= 0)
                return 1;
            shake->flight_pos = 0;
            shake->flight_end = (size_t)n;
        }
        ssize_t n = send(fd, shake->flight + shake->flight_pos, shake->flight_end - shake->flight_pos,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return sl_fail(-ECONNRESET, "the peer hung up in the TLS handshake: %s", strerror(errno));
        shake->flight_pos += (size_t)n;
    }
}

/* 1: one more record is with OpenSSL; 0: not yet. */
static int record_take(struct sl_tls *tls, int fd)
{
    struct handshake *shake = tls->handshake;

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
            return sl_fail(-ECONNRESET, "the peer hung up in the TLS handshake%s%s", n < 0 ? ": " : "",
                           n < 0 ? strerror(errno) : "");
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

static int handshake_over(struct sl_tls *tls)
{
    struct handshake *shake = tls->handshake;
    uint32_t id = tls->openssl->SSL_CIPHER_get_id(tls->openssl->SSL_get_current_cipher(shake->ssl));

    if (tls->openssl->SSL_session_reused(shake->ssl) != 1 || !shake->have_secret[0] ||
        !shake->have_secret[1] || (id != AES_128_GCM_ID && id != CHACHA20_ID))
        return sl_fail(-EPROTO, "the TLS handshake ended without the job's key");
    tls->aes = id == AES_128_GCM_ID;
    int err = sl_record_dir_init(&tls->tx, tls->openssl, tls->aes, true, shake->secret[!tls->client]);

    return err ?: sl_record_dir_init(&tls->rx, tls->openssl, tls->aes, false, shake->secret[tls->client]);
}

int sl_tls_handshake(struct sl_tls *tls, int fd, bool *wants_write)
{
    struct handshake *shake = tls->handshake;
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
    err = handshake_over(tls);
    handshake_free(tls);
    return err != 0 ? err : 1;
}

const char *sl_tls_cipher(const struct sl_tls *tls)
{
    return tls->aes ? "AES-128-GCM" : "ChaCha20-Poly1305";
}

/* ---- data ---- */

/* A KeyUpdate that asks for none in return, and then the next key. */
static bool seal_key_update(struct sl_tls *tls)
{
    static const uint8_t message[5] = {KEY_UPDATE, 0, 0, 1, 0};

    if (!sl_record_seal(&tls->tx, SL_RECORD_HANDSHAKE, message, sizeof(message), tls->out + tls->out_end))
        return false;
    tls->out_end += sizeof(message) + SL_RECORD_AROUND;
    return sl_record_rekey(&tls->tx) == 0;
}

/* As many records as there is room for. */
static bool seal_group(struct sl_tls *tls, const struct iovec *iov, unsigned count)
{
    tls->out_pos = tls->out_end = tls->out_plain = 0;
    if (tls->tx.number >= sl_tls_records_per_key && !seal_key_update(tls))
        return false;
    for (unsigned i = 0; i < count; i++) {
        const uint8_t *bytes = iov[i].iov_base;

        for (size_t at = 0; at < iov[i].iov_len;) {
            size_t len = iov[i].iov_len - at < SL_RECORD_PLAIN ? iov[i].iov_len - at : SL_RECORD_PLAIN;

            if (tls->out_end + len + SL_RECORD_AROUND > OUT_BYTES)
                return true;
            if (!sl_record_seal(&tls->tx, SL_RECORD_DATA, bytes + at, len, tls->out + tls->out_end))
                return false;
            tls->out_end += (uint32_t)(len + SL_RECORD_AROUND);
            tls->out_plain += (uint32_t)len;
            at += len;
        }
    }
    return true;
}

ssize_t sl_tls_send(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    if (tls->out_pos == tls->out_end && !seal_group(tls, iov, count)) {
        errno = EIO;
        return -1;
    }
    while (tls->out_pos < tls->out_end) {
        ssize_t n = send(fd, tls->out + tls->out_pos, tls->out_end - tls->out_pos,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return -1;
        tls->out_pos += (uint32_t)n;
    }
    return (ssize_t)tls->out_plain;
}

/* What came is no data. 1: handled; 0: the peer says that it ends; negative: not to be understood. */
static int take_other(struct sl_tls *tls, enum sl_record_type type, const uint8_t *bytes, size_t len)
{
    if (type == SL_RECORD_ALERT)
        return len == 2 && bytes[1] == 0 ? 0 : -ECONNRESET;
    if (len == 5 && bytes[0] == KEY_UPDATE && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 1 && bytes[4] <= 1)
        return sl_record_rekey(&tls->rx) == 0 ? 1 : -EIO;
    return len > 0 && bytes[0] == NEW_TICKET ? 1 : -EBADMSG;
}

/* Opens the next record, into the room if that is enough, else to where it waits. Returns bytes in the room, or
 * -EAGAIN: none is whole (or it would need the waiting place: may_wait); 0: the end, in *end; negative. */
static ssize_t open_next(struct sl_tls *tls, uint8_t *room, size_t len, bool may_wait, bool *end)
{
    const uint8_t *record = tls->in + tls->in_pos;
    int whole = sl_record_len(record, tls->in_end - tls->in_pos);
    enum sl_record_type type = SL_RECORD_DATA;

    *end = false;
    if (whole < 0)
        return whole;
    if (whole == 0 || (uint32_t)whole > tls->in_end - tls->in_pos)
        return -EAGAIN;
    size_t plain = (size_t)whole - SL_RECORD_AROUND;
    bool fits = plain <= len;

    if (!fits && !may_wait)
        return -EAGAIN;
    int err = sl_record_open(&tls->rx, record, (size_t)whole, fits ? room : tls->plain, &type);

    if (err != 0)
        return err;
    tls->in_pos += (uint32_t)whole;
    if (type != SL_RECORD_DATA) {
        err = take_other(tls, type, fits ? room : tls->plain, plain);
        *end = err == 0;
        return err < 0 ? err : 0;
    }
    if (fits)
        return (ssize_t)plain;
    tls->plain_pos = 0;
    tls->plain_end = (uint32_t)plain;
    return 0;
}

static size_t take_waiting(struct sl_tls *tls, uint8_t *room, size_t len)
{
    size_t n = tls->plain_end - tls->plain_pos;

    if (n > len)
        n = len;
    memcpy(room, tls->plain + tls->plain_pos, n);
    tls->plain_pos += (uint32_t)n;
    return n;
}

/* Fills iov from what has come. Bytes; -EAGAIN: there are none; 0 with *end; other errors. */
static ssize_t fill(struct sl_tls *tls, const struct iovec *iov, unsigned count, bool *end)
{
    size_t total = 0;

    *end = false;
    for (unsigned i = 0; i < count; i++) {
        uint8_t *room = iov[i].iov_base;
        size_t left = iov[i].iov_len;

        while (left > 0) {
            ssize_t n;

            if (tls->plain_pos < tls->plain_end)
                n = (ssize_t)take_waiting(tls, room, left);
            else
                n = open_next(tls, room, left, total == 0, end);
            if (*end || (n < 0 && total > 0 && n == -EAGAIN))
                return (ssize_t)total;
            if (n < 0)
                return n;
            room += n;
            left -= (size_t)n;
            total += (size_t)n;
        }
    }
    return (ssize_t)total;
}

/* 1: more of it came; 0: the end; negative. */
static int read_more(struct sl_tls *tls, int fd)
{
    if (tls->in_pos > 0) {
        memmove(tls->in, tls->in + tls->in_pos, tls->in_end - tls->in_pos);
        tls->in_end -= tls->in_pos;
        tls->in_pos = 0;
    }
    ssize_t n = recv(fd, tls->in + tls->in_end, IN_BYTES - tls->in_end, MSG_DONTWAIT);

    if (n < 0)
        return -errno;
    tls->in_end += (uint32_t)n;
    return n > 0;
}

ssize_t sl_tls_recv(struct sl_tls *tls, int fd, const struct iovec *iov, unsigned count)
{
    for (;;) {
        bool end;
        ssize_t n = fill(tls, iov, count, &end);

        if (n > 0 || end)
            return n;
        if (n == -EAGAIN || n == 0)
            n = read_more(tls, fd);
        if (n == 0)
            return 0;
        if (n < 0) {
            errno = (int)-n;
            return -1;
        }
    }
}
