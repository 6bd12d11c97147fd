/* SPDX-License-Identifier: Apache-2.0 */
/* TLS whose records a kernel makes: this machine's, or a fake: one without TLS, one whose keys
 * stay, one that takes new keys. What a program's first look finds holds for it, so each kernel has
 * a run of its own. usage: test_tls_kernel machine|none|no_chacha|old|new */
#include "core/err.h"
#include "tests/fake/fake_kernel_tls.h"
#include "tcp/tls_inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define LEN 100000

struct ends {
    int fd[2];
    struct sl_tls *tls[2];
    int result[2];
    char why[2][256];
};

static const uint8_t key[SL_DIGEST_BYTES] = {1, 2, 3};
static enum fake_kernel_tls kernel;
static struct sl_tls_context *user, *by_kernel; /* the latter NULL where the kernel has none */

/* The kernel of this machine wants TCP; the fake, descriptors. */
static void pair_open(int fd[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);

    if (kernel != FAKE_OFF) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        return;
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd[0], (struct sockaddr *)&addr, len), 0);
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd[1] >= 0);
    close(listener);
}

/* Bytes are on their way through a kernel. */
static ssize_t recv_soon(struct ends *ends, int i, void *out, size_t len)
{
    for (int round = 0; round < 40; round++) {
        struct pollfd wait = {.fd = ends->fd[i], .events = POLLIN};
        ssize_t n = sl_tls_recv(ends->tls[i], ends->fd[i], &(struct iovec){out, len}, 1);

        if (n >= 0 || errno != EAGAIN)
            return n;
        poll(&wait, 1, 100);
    }
    return -1;
}

/* Client and server over records of whoever makes them; who names by_kernel or user for each. */
static void make(struct ends *ends, struct sl_tls_context *const who[2],
                 const struct sl_tls_terms *terms)
{
    memset(ends, 0, sizeof(*ends));
    fake_kernel_reset(kernel);
    pair_open(ends->fd);
    for (int i = 0; i < 2; i++) {
        /* The fake waits where a kernel would not: one message has room. */
        setsockopt(ends->fd[i], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
        assert_int_equal(sl_tls_new(who[i], terms, i == 0, key, "rank 0", &ends->tls[i]), 0);
    }
}

static void shake(struct ends *ends)
{
    for (int round = 0; round < 100000 && (ends->result[0] == 0 || ends->result[1] == 0); round++)
        for (int i = 0; i < 2; i++) {
            bool wants_write;

            if (ends->result[i] != 0)
                continue;
            ends->result[i] = sl_tls_handshake(ends->tls[i], ends->fd[i], &wants_write);
            if (ends->result[i] < 0)
                strncpy(ends->why[i], sluice_last_error(), sizeof(ends->why[i]) - 1);
        }
}

static void make_good(struct ends *ends, struct sl_tls_context *const who[2],
                      const struct sl_tls_terms *terms)
{
    make(ends, who, terms);
    shake(ends);
    if (ends->result[0] != 1 || ends->result[1] != 1)
        fail_msg("%s / %s", ends->why[0], ends->why[1]);
}

static void ends_close(struct ends *ends)
{
    for (int i = 0; i < 2; i++) {
        sl_tls_free(ends->tls[i]);
        close(ends->fd[i]);
    }
}

/* In pieces; the receiver has room for so many bytes at a time. */
static void carry(struct ends *ends, int from, size_t piece, size_t room)
{
    static uint8_t in[LEN], out[LEN];
    size_t sent = 0, got = 0;

    for (size_t i = 0; i < LEN; i++)
        in[i] = (uint8_t)(i * 7 + piece);
    memset(out, 0, sizeof(out));
    while (got < LEN) {
        size_t n = LEN - sent < piece ? LEN - sent : piece,
               space = LEN - got < room ? LEN - got : room;
        struct iovec give[2] = {{in + sent, n / 3}, {in + sent + n / 3, n - n / 3}};
        struct iovec take[2] = {{out + got, space / 2}, {out + got + space / 2, space - space / 2}};
        ssize_t did = sent < LEN ? sl_tls_send(ends->tls[from], ends->fd[from], give, 2) : 0;

        assert_true(did >= 0 || errno == EAGAIN);
        sent += did > 0 ? (size_t)did : 0;
        did = sl_tls_recv(ends->tls[!from], ends->fd[!from], take, 2);
        if (did < 0 && errno != EAGAIN)
            fail_msg("receiving: %s, after %zu bytes", strerror(errno), got);
        got += did > 0 ? (size_t)did : 0;
    }
    assert_memory_equal(in, out, LEN);
}

static struct sl_tls_context *const *pair_of(int i)
{
    static struct sl_tls_context *who[2];

    who[0] = i & 1 ? by_kernel : user;
    who[1] = i & 2 ? by_kernel : user;
    return who;
}

static const struct sl_tls_terms staying = {.keys_stay = true}, changing = {.keys_stay = false};

static bool takes_new_keys(void)
{
    return kernel == FAKE_NEW_KEYS || (kernel == FAKE_OFF && !sl_tls_offer(by_kernel)->keys_stay);
}

static const struct sl_tls_terms *terms_here(void)
{
    return takes_new_keys() ? &changing : &staying;
}

/* Another cipher for each, where there is a choice. */
static const struct sl_tls_terms *terms_for(int who)
{
    static const struct sl_tls_terms each[] = {[1] = {.cipher = SL_TLS_CIPHER_AES_128},
                                               [2] = {.cipher = SL_TLS_CIPHER_AES_256},
                                               [3] = {.cipher = SL_TLS_CIPHER_CHACHA20}};

    return takes_new_keys() ? &each[who] : &staying;
}

/* ---- any kernel ---- */

static void what_the_kernel_lacks_is_said_or_done_without(void **state)
{
    struct sl_tls_context *context = NULL;

    (void)state;
    fake_kernel_reset(kernel);
    int err = sl_tls_context_open(SL_TLS_RECORDS_KERNEL, SL_TLS_CIPHER_AUTO, &context);

    if (kernel == FAKE_NO_TLS || kernel == FAKE_NO_CHACHA) {
        assert_int_equal(err, -ENOTSUP);
        assert_non_null(
            strstr(sluice_last_error(), kernel == FAKE_NO_TLS ? "modprobe tls" : "Linux 5.11"));
    } else {
        assert_int_equal(err, 0);
        assert_int_equal(sl_tls_offer(context)->keys_stay, kernel == FAKE_KEYS_STAY);
        sl_tls_context_close(context);
    }
    assert_int_equal(sl_tls_context_open(SL_TLS_RECORDS_AUTO, SL_TLS_CIPHER_AUTO, &context), 0);
    assert_int_equal(sl_tls_offer(context)->keys_stay, kernel == FAKE_KEYS_STAY);
    sl_tls_context_close(context);
}

static void aes_wants_a_kernel_that_takes_new_keys(void **state)
{
    static const enum sl_tls_cipher ciphers[] = {SL_TLS_CIPHER_AES_128, SL_TLS_CIPHER_AES_256};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_tls_context *context = NULL;

        assert_int_equal(sl_tls_context_open(SL_TLS_RECORDS_KERNEL, ciphers[i], &context),
                         kernel == FAKE_NEW_KEYS ? 0 : -ENOTSUP);
        if (kernel == FAKE_NEW_KEYS)
            sl_tls_context_close(context);
        else if (kernel == FAKE_KEYS_STAY)
            assert_non_null(strstr(sluice_last_error(), "Linux 6.14"));
        assert_int_equal(sl_tls_context_open(SL_TLS_RECORDS_AUTO, ciphers[i], &context), 0);
        assert_false(sl_tls_offer(context)->keys_stay);
        sl_tls_context_close(context);
    }
}

/* ---- those that have TLS ---- */

static void bytes_arrive_whoever_makes_the_records(void **state)
{
    static const size_t pieces[] = {100, 16384, 16385, LEN};

    (void)state;
    for (int who = 1; who < 4; who++) {
        struct ends ends;

        make_good(&ends, pair_of(who), terms_for(who));
        assert_true(fake_kernel.keys >= (who == 3 ? 4 : 2) || kernel == FAKE_OFF);
        assert_string_equal(sl_tls_cipher(ends.tls[who == 2]),
                            !takes_new_keys() || who == 3 ? "ChaCha20-Poly1305 in the kernel"
                            : who == 2                    ? "AES-256-GCM in the kernel"
                                                          : "AES-128-GCM in the kernel");
        for (size_t p = 0; p < SL_ARRAY_LEN(pieces); p++)
            for (int from = 0; from < 2; from++) {
                carry(&ends, from, pieces[p], LEN);
                carry(&ends, from, pieces[p], 3000);
            }
        ends_close(&ends);
    }
}

/* Where a kernel keeps its first keys, neither end sends new ones; elsewhere both do. */
static void keys_change_where_both_ends_can(void **state)
{
    uint64_t before = sl_tls_records_per_key;

    (void)state;
    for (int who = 1; who < 4; who++) {
        struct ends ends;

        make_good(&ends, pair_of(who), terms_for(who));
        unsigned keys = fake_kernel.keys;

        sl_tls_records_per_key = 3;
        carry(&ends, 0, 10000, LEN);
        carry(&ends, 1, 40000, 1); /* a KeyUpdate meets room for one byte */
        sl_tls_records_per_key = before;
        if (!takes_new_keys())
            assert_int_equal(fake_kernel.keys, keys);
        else if (kernel == FAKE_NEW_KEYS)
            assert_true(fake_kernel.keys > keys + 3);
        ends_close(&ends);
    }
}

static void a_new_key_that_was_not_agreed_ends_the_connection(void **state)
{
    uint64_t before = sl_tls_records_per_key;
    uint8_t out[64];
    struct ends ends;

    (void)state;
    make_good(&ends, pair_of(2), terms_here());
    ends.tls[0]->agreed.keys_stay = false;
    ends.tls[1]->agreed.keys_stay = true;
    sl_tls_records_per_key = 0;
    assert_int_equal(sl_tls_send(ends.tls[0], ends.fd[0], &(struct iovec){"gradients", 9}, 1), 9);
    sl_tls_records_per_key = before;
    assert_int_equal(recv_soon(&ends, 1, out, sizeof(out)), -1);
    assert_int_equal(errno, EBADMSG);
    ends_close(&ends);
}

/* What the kernel has taken but not put out would be lost by a close: it does not count. */
static void bytes_count_once_there_is_room_behind_them(void **state)
{
    uint8_t out[64];
    struct ends ends;

    (void)state;
    make_good(&ends, pair_of(3), terms_here());
    fake_kernel.busy = 2;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_tls_send(ends.tls[0], ends.fd[0], &(struct iovec){"gradients", 9}, 1),
                         -1);
        assert_int_equal(errno, EAGAIN);
    }
    assert_int_equal(sl_tls_send(ends.tls[0], ends.fd[0], &(struct iovec){"gradients", 9}, 1), 9);
    assert_int_equal(recv_soon(&ends, 1, out, sizeof(out)), 9);
    assert_int_equal(sl_tls_recv(ends.tls[1], ends.fd[1], &(struct iovec){out, sizeof(out)}, 1),
                     -1);
    assert_int_equal(errno, EAGAIN);
    ends_close(&ends);
}

static void a_changed_bit_changes_no_data(void **state)
{
    (void)state;
    for (size_t at = 0; at < 9 + SL_RECORD_AROUND; at += kernel == FAKE_OFF ? 4 : 1) {
        uint8_t out[64], wire[256];
        struct ends ends;
        int mute[2];

        make_good(&ends, pair_of(2), terms_here());
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mute), 0);
        assert_int_equal(sl_tls_send(ends.tls[0], mute[0], &(struct iovec){"gradients", 9}, 1), 9);
        assert_int_equal(recv(mute[1], wire, sizeof(wire), 0), 9 + SL_RECORD_AROUND);
        wire[at] ^= 0x10;
        assert_int_equal(send(ends.fd[0], wire, 9 + SL_RECORD_AROUND, 0), 9 + SL_RECORD_AROUND);
        shutdown(ends.fd[0], SHUT_WR);
        ssize_t n = recv_soon(&ends, 1, out, sizeof(out));

        /* A length that grew waits for bytes; some kernels do so after the end of the stream, too.
         * And they do not look at the type in front, which is the same for all. */
        if (at == 0 && n == 9)
            assert_memory_equal(out, "gradients", 9);
        else if (at == 3 || at == 4)
            assert_true(n == 0 || (n < 0 && (errno == EBADMSG || errno == EAGAIN)));
        else
            assert_true(n < 0 && errno == EBADMSG);
        ends_close(&ends);
        close(mute[0]);
        close(mute[1]);
    }
}

/* By a peer that makes its records in user space. */
static void say(struct ends *ends, enum sl_record_type type, const void *bytes, size_t len)
{
    uint8_t record[64];

    assert_true(sl_record_seal(&ends->tls[0]->tx, type, bytes, len, record));
    assert_int_equal(send(ends->fd[0], record, len + SL_RECORD_AROUND, 0), len + SL_RECORD_AROUND);
}

static void what_is_no_data_is_told_from_it(void **state)
{
    static const struct {
        enum sl_record_type type;
        uint8_t bytes[8], len;
        int error; /* 0: the end */
    } records[] = {{SL_RECORD_ALERT, {1, 0}, 2, 0},
                   {SL_RECORD_ALERT, {2, 20}, 2, ECONNRESET},
                   {SL_RECORD_ALERT, {2}, 1, ECONNRESET},
                   {SL_RECORD_HANDSHAKE, {24, 0, 0, 1, 2}, 5, EBADMSG},
                   {SL_RECORD_HANDSHAKE, {24, 0, 0}, 3, EBADMSG},
                   {SL_RECORD_HANDSHAKE, {1, 0, 0, 4, 1, 2, 3, 4}, 8, EBADMSG},
                   {(enum sl_record_type)20, {1}, 1, EBADMSG}};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(records); i++)
        for (size_t room = 1; room < 20; room += kernel == FAKE_OFF ? 19 : 9) {
            uint8_t out[64];
            struct ends ends;

            make_good(&ends, pair_of(2), terms_here());
            say(&ends, records[i].type, records[i].bytes, records[i].len);
            shutdown(ends.fd[0], SHUT_WR);
            ssize_t n = recv_soon(&ends, 1, out, room);

            assert_int_equal(n, records[i].error != 0 ? -1 : 0);
            if (n < 0)
                assert_int_equal(errno, records[i].error);
            ends_close(&ends);
        }
}

static void a_nic_that_keeps_its_key_is_named(void **state)
{
    struct ends ends;

    (void)state;
    make(&ends, pair_of(3), &changing);
    fake_kernel.nic = true;
    shake(&ends);
    int second =
        ends.result[0] == 1; /* the first socket that was given keys is none of the NIC's */

    assert_int_equal(ends.result[!second], 1);
    assert_int_equal(ends.result[second], -ENOTSUP);
    assert_non_null(strstr(ends.why[second], "tls-hw-tx-offload off"));
    ends_close(&ends);
}

int main(int argc, char **argv)
{
    static const char *const kernels[] = {[FAKE_OFF] = "machine",
                                          [FAKE_NO_TLS] = "none",
                                          [FAKE_NO_CHACHA] = "no_chacha",
                                          [FAKE_KEYS_STAY] = "old",
                                          [FAKE_NEW_KEYS] = "new"};
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_kernel_lacks_is_said_or_done_without),
        cmocka_unit_test(aes_wants_a_kernel_that_takes_new_keys),
        cmocka_unit_test(bytes_arrive_whoever_makes_the_records),
        cmocka_unit_test(keys_change_where_both_ends_can),
        cmocka_unit_test(a_new_key_that_was_not_agreed_ends_the_connection),
        cmocka_unit_test(bytes_count_once_there_is_room_behind_them),
        cmocka_unit_test(a_changed_bit_changes_no_data),
        cmocka_unit_test(what_is_no_data_is_told_from_it),
        cmocka_unit_test(a_nic_that_keeps_its_key_is_named),
    };
    static const struct CMUnitTest without[] = {
        cmocka_unit_test(what_the_kernel_lacks_is_said_or_done_without),
        cmocka_unit_test(aes_wants_a_kernel_that_takes_new_keys)};
    static const struct CMUnitTest anywhere[] = {
        cmocka_unit_test(bytes_arrive_whoever_makes_the_records),
        cmocka_unit_test(keys_change_where_both_ends_can),
        cmocka_unit_test(a_new_key_that_was_not_agreed_ends_the_connection),
        cmocka_unit_test(bytes_count_once_there_is_room_behind_them),
        cmocka_unit_test(a_changed_bit_changes_no_data),
        cmocka_unit_test(what_is_no_data_is_told_from_it),
    };
    int failed = 0;

    while (kernel < FAKE_NEW_KEYS && (argc < 2 || strcmp(argv[1], kernels[kernel]) != 0))
        kernel++;
    fake_kernel_reset(kernel);
    if (sl_tls_context_open(SL_TLS_RECORDS_USER, SL_TLS_CIPHER_AUTO, &user) != 0) {
        print_message("1..0 # SKIP %s\n", sluice_last_error());
        return 0;
    }
    if (sl_tls_context_open(SL_TLS_RECORDS_KERNEL, SL_TLS_CIPHER_AUTO, &by_kernel) == 0)
        failed = kernel == FAKE_OFF ? cmocka_run_group_tests(anywhere, NULL, NULL)
                 : kernel == FAKE_NEW_KEYS
                     ? cmocka_run_group_tests(tests, NULL, NULL)
                     : _cmocka_run_group_tests("old", tests, SL_ARRAY_LEN(tests) - 1, NULL, NULL);
    else if (kernel != FAKE_OFF)
        failed = cmocka_run_group_tests(without, NULL, NULL);
    else
        print_message("1..0 # SKIP %s\n", sluice_last_error());
    sl_tls_context_close(by_kernel);
    sl_tls_context_close(user);
    return failed;
}
