/* SPDX-License-Identifier: Apache-2.0 */
/* TLS over a socket pair: what two ends with the key say to each other, and all who have not got
 * it. */
#include "tcp/record.h"
#include "tcp/tls.h"

#include "core/err.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/x509.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define LEN_MAX 200000

static struct sl_tls_context *context;
static struct sl_tls_terms terms; /* that both ends agreed on */
static const uint8_t key[SL_DIGEST_BYTES] = {1, 2, 3}, other_key[SL_DIGEST_BYTES] = {1, 2, 4};

struct ends {
    int fd[2];
    struct sl_tls *tls[2];
    int result[2]; /* of the handshake */
    char why[2][256];
};

static void ends_open(struct ends *ends)
{
    memset(ends, 0, sizeof(*ends));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->fd), 0);
}

static void ends_close(struct ends *ends)
{
    for (int i = 0; i < 2; i++) {
        sl_tls_free(ends->tls[i]);
        close(ends->fd[i]);
    }
}

/* Until both ends have a result; one that has failed hangs up, as its owner would. */
static void shake(struct ends *ends)
{
    for (int round = 0; round < 100 && (ends->result[0] == 0 || ends->result[1] == 0); round++) {
        for (int i = 0; i < 2; i++) {
            bool wants_write;

            if (ends->result[i] != 0)
                continue;
            ends->result[i] = sl_tls_handshake(ends->tls[i], ends->fd[i], &wants_write);
            if (ends->result[i] < 0) {
                strncpy(ends->why[i], sluice_last_error(), sizeof(ends->why[i]) - 1);
                shutdown(ends->fd[i], SHUT_WR);
            }
        }
    }
}

static void make(struct ends *ends, const uint8_t *client, const uint8_t *server,
                 const char *identity)
{
    ends_open(ends);
    assert_int_equal(sl_tls_new(context, &terms, true, client, "rank 0", &ends->tls[0]), 0);
    assert_int_equal(sl_tls_new(context, &terms, false, server, identity, &ends->tls[1]), 0);
    shake(ends);
}

static void make_good(struct ends *ends)
{
    make(ends, key, key, "rank 0");
    if (ends->result[0] != 1 || ends->result[1] != 1)
        fail_msg("%s / %s", ends->why[0], ends->why[1]);
}

/* All of it, from one end to the other, in pieces of whatever size. */
static void carry(struct ends *ends, int from, const uint8_t *in, uint8_t *out, size_t len,
                  size_t piece)
{
    size_t sent = 0, got = 0;

    while (got < len) {
        size_t n = len - sent < piece ? len - sent : piece;
        struct iovec give[2] = {{(void *)(uintptr_t)(in + sent), n / 3},
                                {(void *)(uintptr_t)(in + sent + n / 3), n - n / 3}};
        size_t half = (len - got) / 2;
        struct iovec take[2] = {{out + got, half}, {out + got + half, len - got - half}};
        ssize_t did = sent < len ? sl_tls_send(ends->tls[from], ends->fd[from], give, 2) : 0;

        assert_true(did >= 0 || errno == EAGAIN);
        sent += did > 0 ? (size_t)did : 0;
        did = sl_tls_recv(ends->tls[!from], ends->fd[!from], take, 2);
        assert_true(did > 0 || (did < 0 && errno == EAGAIN));
        got += did > 0 ? (size_t)did : 0;
    }
}

static void bytes_arrive_as_they_were_in_pieces_of_any_size(void **state)
{
    static const size_t pieces[] = {1, 100, 16384, 16385, 70000, LEN_MAX};
    static uint8_t in[LEN_MAX], out[LEN_MAX];
    struct ends ends;

    (void)state;
    make_good(&ends);
    for (size_t p = 0; p < SL_ARRAY_LEN(pieces); p++) {
        size_t len = pieces[p] == 1 ? 3000 : LEN_MAX;

        for (size_t i = 0; i < len; i++)
            in[i] = (uint8_t)(i * 7 + p);
        for (int from = 0; from < 2; from++) {
            memset(out, 0, sizeof(out));
            carry(&ends, from, in, out, len, pieces[p]);
            assert_memory_equal(in, out, len);
        }
    }
    ends_close(&ends);
}

static void keys_change_after_their_number_of_records(void **state)
{
    static uint8_t in[LEN_MAX], out[LEN_MAX];
    uint64_t before = sl_tls_records_per_key;
    struct ends ends;

    (void)state;
    make_good(&ends);
    sl_tls_records_per_key = 3;
    memset(in, 0x5a, sizeof(in));
    carry(&ends, 0, in, out, sizeof(in), 10000);
    assert_memory_equal(in, out, sizeof(in));
    carry(&ends, 1, in, out, sizeof(in), 40000);
    sl_tls_records_per_key = before;
    assert_memory_equal(in, out, sizeof(in));
    ends_close(&ends);
}

/* The other's socket closes in the middle of a record: no bytes come of it. */
static void a_record_that_was_cut_gives_nothing(void **state)
{
    uint8_t out[64], wire[256];
    struct ends ends, mute;

    (void)state;
    make_good(&ends);
    ends_open(&mute);
    assert_int_equal(sl_tls_send(ends.tls[0], mute.fd[0], &(struct iovec){"gradients", 9}, 1), 9);
    ssize_t n = recv(mute.fd[1], wire, sizeof(wire), 0);
    assert_int_equal(n, 9 + SL_RECORD_AROUND);
    assert_int_equal(send(ends.fd[0], wire, (size_t)n - 1, 0), n - 1);
    assert_int_equal(sl_tls_recv(ends.tls[1], ends.fd[1], &(struct iovec){out, sizeof(out)}, 1),
                     -1);
    assert_int_equal(errno, EAGAIN);
    shutdown(ends.fd[0], SHUT_WR);
    assert_int_equal(sl_tls_recv(ends.tls[1], ends.fd[1], &(struct iovec){out, sizeof(out)}, 1), 0);
    ends_close(&ends);
    ends_close(&mute);
}

/* What passes between the ends, changed by change(), gives EBADMSG. */
static void check_changed(void (*change)(uint8_t *wire, size_t *len, size_t at), size_t at)
{
    uint8_t out[64], wire[1024];
    struct ends ends, mute;
    size_t len;

    make_good(&ends);
    ends_open(&mute);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            sl_tls_send(ends.tls[0], mute.fd[0], &(struct iovec){i ? "second" : "first!", 6}, 1),
            6);
    len = (size_t)recv(mute.fd[1], wire, sizeof(wire), 0);
    assert_int_equal(len, 2 * (6 + SL_RECORD_AROUND));
    change(wire, &len, at);
    assert_int_equal(send(ends.fd[0], wire, len, 0), len);
    shutdown(ends.fd[0], SHUT_WR);
    ssize_t n = sl_tls_recv(ends.tls[1], ends.fd[1], &(struct iovec){out, 6}, 1);

    /* A length that grew waits for bytes that do not come. */
    if (n > 0)
        assert_memory_equal(out, "first!", 6);
    if (n > 0)
        n = sl_tls_recv(ends.tls[1], ends.fd[1], &(struct iovec){out, 6}, 1);
    assert_true(n == 0 || (n < 0 && errno == EBADMSG));
    ends_close(&ends);
    ends_close(&mute);
}

static void flip(uint8_t *wire, size_t *len, size_t at)
{
    (void)len;
    wire[at] ^= 0x04;
}

static void swap(uint8_t *wire, size_t *len, size_t at)
{
    uint8_t copy[6 + SL_RECORD_AROUND];

    (void)at;
    memcpy(copy, wire, sizeof(copy));
    memmove(wire, wire + sizeof(copy), sizeof(copy));
    memcpy(wire + *len - sizeof(copy), copy, sizeof(copy));
}

static void twice(uint8_t *wire, size_t *len, size_t at)
{
    (void)at;
    memcpy(wire + *len / 2, wire, *len / 2);
}

static void what_was_changed_swapped_or_repeated_is_noticed(void **state)
{
    (void)state;
    for (size_t at = 0; at < 2 * (6 + SL_RECORD_AROUND); at++)
        check_changed(flip, at);
    check_changed(swap, 0);
    check_changed(twice, 0);
}

static void another_key_ends_the_handshake_on_both_ends(void **state)
{
    struct ends ends;

    (void)state;
    make(&ends, key, other_key, "rank 0");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ends.result[i], -EPROTO);
        assert_non_null(strstr(ends.why[i], "compare SLUICE_SECRET"));
    }
    ends_close(&ends);
}

/* Ends may know different names for a rank: the key decides. */
static void an_identity_is_only_for_people(void **state)
{
    struct ends ends;

    (void)state;
    make(&ends, key, key, "rank 7");
    assert_int_equal(ends.result[0], 1);
    assert_int_equal(ends.result[1], 1);
    ends_close(&ends);
}

static void what_is_no_tls_is_refused(void **state)
{
    static const char *const words[] = {"GET / HTTP/1.1\r\n\r\n",
                                        "SLTA 2 and more bytes than a header has",
                                        "\x16\x03\x01\x00\x05hello", "\x17\x03\x03\xff\xff"};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(words); i++) {
        for (int client = 0; client < 2; client++) {
            struct ends ends;

            ends_open(&ends);
            assert_int_equal(sl_tls_new(context, &terms, client, key, "rank 0", &ends.tls[0]), 0);
            assert_true(send(ends.fd[1], words[i],
                             i == 2   ? 10
                             : i == 3 ? 5
                                      : strlen(words[i]),
                             0) > 0);
            shutdown(ends.fd[1], SHUT_WR);
            ends.result[1] = 1;
            shake(&ends);
            assert_true(ends.result[0] == -EPROTO || ends.result[0] == -ECONNRESET);
            ends_close(&ends);
        }
    }
}

/* ---- servers by OpenSSL itself ---- */

struct stranger {
    int fd, version;
};

static unsigned old_psk(SSL *ssl, const char *identity, unsigned char *psk, unsigned max)
{
    (void)ssl, (void)identity, (void)max;
    memcpy(psk, key, sizeof(key));
    return sizeof(key);
}

/* Has a certificate of its own making, and not the key; or speaks TLS 1.2 alone, with the key. */
static void *serve(void *arg)
{
    struct stranger *stranger = arg;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *pkey = EVP_EC_gen("P-256");
    X509 *x509 = X509_new();

    X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pkey);
    X509_sign(x509, pkey, EVP_sha256());
    SSL_CTX_use_certificate(ctx, x509);
    SSL_CTX_use_PrivateKey(ctx, pkey);
    SSL_CTX_set_max_proto_version(ctx, stranger->version);
    SSL_CTX_set_psk_server_callback(ctx, old_psk);
    if (stranger->version == TLS1_3_VERSION)
        SSL_CTX_set_psk_server_callback(ctx, NULL);
    SSL *ssl = SSL_new(ctx);

    SSL_set_fd(ssl, stranger->fd);
    SSL_accept(ssl);
    shutdown(stranger->fd, SHUT_WR);
    SSL_free(ssl);
    X509_free(x509);
    EVP_PKEY_free(pkey);
    SSL_CTX_free(ctx);
    return NULL;
}

static void a_certificate_is_no_key_and_an_older_version_no_tls(void **state)
{
    static const int versions[] = {TLS1_3_VERSION, TLS1_2_VERSION};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(versions); i++) {
        struct ends ends;
        struct stranger stranger;
        pthread_t thread;
        bool wants_write;

        ends_open(&ends);
        stranger = (struct stranger){ends.fd[1], versions[i]};
        assert_int_equal(sl_tls_new(context, &terms, true, key, "rank 0", &ends.tls[0]), 0);
        assert_int_equal(pthread_create(&thread, NULL, serve, &stranger), 0);
        for (int round = 0; ends.result[0] == 0 && round < 1000; round++) {
            struct pollfd wait = {ends.fd[0], POLLIN, 0};

            ends.result[0] = sl_tls_handshake(ends.tls[0], ends.fd[0], &wants_write);
            poll(&wait, 1, ends.result[0] == 0 ? 100 : 0);
        }
        assert_int_equal(ends.result[0], -EPROTO);
        shutdown(ends.fd[0], SHUT_RDWR);
        assert_int_equal(pthread_join(thread, NULL), 0);
        ends_close(&ends);
    }
}

/* ---- a server with the key, all of it by OpenSSL: its records, too ---- */

static const char *named_suite;

static int find_key(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    STACK_OF(SSL_CIPHER) *ciphers = SSL_get1_supported_ciphers(ssl);

    (void)id, (void)id_len;
    *session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(*session, key, sizeof(key));
    for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); i++)
        if (strcmp(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(ciphers, i)), named_suite) == 0)
            SSL_SESSION_set_cipher(*session, sk_SSL_CIPHER_value(ciphers, i));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    sk_SSL_CIPHER_free(ciphers);
    return 1;
}

#define ECHO_BYTES 20000

/* Returns to its client what comes from it, and ends in order. */
static void *echo(void *arg)
{
    struct stranger *stranger = arg;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    uint8_t bytes[ECHO_BYTES];
    size_t got, all = 0;

    SSL_CTX_set_ciphersuites(ctx, named_suite);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_psk_find_session_callback(ctx, find_key);
    SSL *ssl = SSL_new(ctx);

    SSL_set_fd(ssl, stranger->fd);
    while (all < ECHO_BYTES && SSL_accept(ssl) == 1 &&
           SSL_read_ex(ssl, bytes, sizeof(bytes), &got) == 1) {
        SSL_write_ex(ssl, bytes, got, &got);
        all += got;
    }
    SSL_shutdown(ssl);
    shutdown(stranger->fd, SHUT_WR);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return NULL;
}

static ssize_t wait_recv(struct ends *ends, void *out, size_t len)
{
    for (int round = 0; round < 1000; round++) {
        struct pollfd wait = {ends->fd[0], POLLIN, 0};
        ssize_t n = sl_tls_recv(ends->tls[0], ends->fd[0], &(struct iovec){out, len}, 1);

        if (n >= 0 || errno != EAGAIN)
            return n;
        poll(&wait, 1, 100);
    }
    return -1;
}

static void the_cipher_that_is_named_is_spoken_with_any_tls(void **state)
{
    static const struct {
        uint8_t cipher;
        bool keys_stay;
        const char *suite, *name;
    } cases[] = {
        {SL_TLS_CIPHER_AES_128, false, "TLS_AES_128_GCM_SHA256", "AES-128-GCM"},
        {SL_TLS_CIPHER_AES_256, false, "TLS_AES_256_GCM_SHA384", "AES-256-GCM"},
        {SL_TLS_CIPHER_CHACHA20, false, "TLS_CHACHA20_POLY1305_SHA256", "ChaCha20-Poly1305"},
        {SL_TLS_CIPHER_AUTO, true, "TLS_CHACHA20_POLY1305_SHA256", "ChaCha20-Poly1305"}};
    static uint8_t in[ECHO_BYTES], out[ECHO_BYTES];

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        struct sl_tls_terms agreed = {.cipher = cases[i].cipher, .keys_stay = cases[i].keys_stay};
        struct ends ends;
        struct stranger stranger;
        pthread_t thread;
        bool wants_write;

        named_suite = cases[i].suite;
        memset(in, (int)i + 1, sizeof(in));
        ends_open(&ends);
        stranger = (struct stranger){ends.fd[1], TLS1_3_VERSION};
        assert_int_equal(sl_tls_new(context, &agreed, true, key, "rank 0", &ends.tls[0]), 0);
        assert_int_equal(pthread_create(&thread, NULL, echo, &stranger), 0);
        for (int round = 0; ends.result[0] == 0 && round < 1000; round++) {
            struct pollfd wait = {ends.fd[0], POLLIN, 0};

            ends.result[0] = sl_tls_handshake(ends.tls[0], ends.fd[0], &wants_write);
            poll(&wait, 1, ends.result[0] == 0 ? 100 : 0);
        }
        if (ends.result[0] != 1)
            fail_msg("%s: %s", named_suite, sluice_last_error());
        assert_string_equal(sl_tls_cipher(ends.tls[0]), cases[i].name);
        assert_int_equal(sl_tls_send(ends.tls[0], ends.fd[0], &(struct iovec){in, sizeof(in)}, 1),
                         sizeof(in));
        for (size_t got = 0; got < sizeof(out);) {
            ssize_t n = wait_recv(&ends, out + got, sizeof(out) - got);

            assert_true(n > 0);
            got += (size_t)n;
        }
        assert_memory_equal(in, out, sizeof(in));
        assert_int_equal(wait_recv(&ends, out, sizeof(out)), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        ends_close(&ends);
    }
}

/* The one that is named by one end alone. */
static void ends_of_different_ciphers_do_not_meet(void **state)
{
    struct sl_tls_terms mine = {.cipher = SL_TLS_CIPHER_AES_256},
                        theirs = {.cipher = SL_TLS_CIPHER_AES_128};
    struct ends ends;

    (void)state;
    ends_open(&ends);
    assert_int_equal(sl_tls_new(context, &mine, true, key, "rank 0", &ends.tls[0]), 0);
    assert_int_equal(sl_tls_new(context, &theirs, false, key, "rank 0", &ends.tls[1]), 0);
    shake(&ends);
    assert_int_equal(ends.result[0], -EPROTO);
    assert_int_equal(ends.result[1], -EPROTO);
    ends_close(&ends);
}

/* RFC 8448, section 3: the server's secret and keys of its example. */
static void keys_are_those_of_the_rfc(void **state)
{
    static const uint8_t secret[SL_DIGEST_BYTES] = {0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56,
                                                    0xad, 0x47, 0x11, 0x6b, 0x45, 0xa9, 0x50, 0x32,
                                                    0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb, 0x6b, 0x3a,
                                                    0x4b, 0x4f, 0x1f, 0x3f, 0xcb, 0x63, 0x16, 0x43};
    static const uint8_t want_key[16] = {0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c, 0x07, 0xef,
                                         0xc2, 0x6b, 0xb9, 0xf2, 0xac, 0x92, 0xe3, 0x56};
    static const uint8_t want_iv[12] = {0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83,
                                        0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84};
    const struct sl_openssl *openssl;
    uint8_t got[16];

    (void)state;
    assert_int_equal(sl_openssl_get(&openssl), 0);
    assert_int_equal(sl_record_expand(openssl, SL_RECORD_AES_128, secret, "key", got, sizeof(got)),
                     0);
    assert_memory_equal(got, want_key, sizeof(want_key));
    assert_int_equal(
        sl_record_expand(openssl, SL_RECORD_AES_128, secret, "iv", got, sizeof(want_iv)), 0);
    assert_memory_equal(got, want_iv, sizeof(want_iv));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_the_rfc),
        cmocka_unit_test(bytes_arrive_as_they_were_in_pieces_of_any_size),
        cmocka_unit_test(keys_change_after_their_number_of_records),
        cmocka_unit_test(a_record_that_was_cut_gives_nothing),
        cmocka_unit_test(what_was_changed_swapped_or_repeated_is_noticed),
        cmocka_unit_test(another_key_ends_the_handshake_on_both_ends),
        cmocka_unit_test(an_identity_is_only_for_people),
        cmocka_unit_test(what_is_no_tls_is_refused),
        cmocka_unit_test(the_cipher_that_is_named_is_spoken_with_any_tls),
        cmocka_unit_test(ends_of_different_ciphers_do_not_meet),
        cmocka_unit_test(a_certificate_is_no_key_and_an_older_version_no_tls),
    };

    if (sl_tls_context_open(SL_TLS_RECORDS_USER, SL_TLS_CIPHER_AUTO, &context) != 0) {
        print_message("1..0 # SKIP %s\n", sluice_last_error());
        return 0;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    sl_tls_context_close(context);
    return failed;
}
