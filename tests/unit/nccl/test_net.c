/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network plugin through its newest table, both ends in this process and thread: what NCCL may do and what must
 * come of it. Over the transports of SLUICE_TRANSPORT; the conformance driver does the same between processes.
 */
#include "tests/unit/nccl/ends.h"
#include "tools/nccl/abi_v12.h"
#include "tools/nccl/abi_v6.h"
#include "core/pending.h"
#include "tools/nccl/net_event.h"
#include "tools/nccl/wire.h"
#ifdef OVER_FAKE_RAILS
#include "tests/unit/nccl/rails.h"
#endif

#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define BIG (3u << 20)

extern const struct sl_nccl_net_v6 ncclNetPlugin_v6;
extern const struct sl_nccl_net_v12 ncclNetPlugin_v12;
static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

/* ---- connecting ---- */

static void one_thread_connects_to_itself(void **state)
{
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_part(&e);
}

static void neither_end_ever_blocks_alone(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    uint64_t start = ends_now();

    (void)state;
    ends_listen(&e);
    for (int i = 0; i < 100; i++)
        assert_int_equal(net->accept(e.listen, &e.recv, NULL), SL_NCCL_SUCCESS);
    assert_null(e.recv);
    for (int i = 0; i < 100; i++)
        assert_int_equal(net->connect(e.ctx, 0, e.handle, &e.send, NULL), SL_NCCL_SUCCESS);
    assert_null(e.send);
    assert_true(ends_now() - start < 2 * SL_NS_PER_S);
    ends_meet(&e);
    ends_part(&e);
}

static void what_is_half_connected_is_freed_with_its_context(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()}, other = {.ctx = ends_open_ctx()};

    (void)state;
    ends_listen(&e);
    ends_listen(&other);
    for (int i = 0; i < 20; i++) {
        net->connect(e.ctx, 0, e.handle, &e.send, NULL);
        net->accept(e.listen, &e.recv, NULL);
        if (e.send != NULL || e.recv != NULL)
            break;
        net->connect(other.ctx, 0, other.handle, &other.send, NULL);
    }
    other.send = NULL;
    assert_int_equal(net->finalize(other.ctx), SL_NCCL_SUCCESS);
    /* NCCL may still close what its context took along. */
    assert_int_equal(net->close_listen(other.listen), SL_NCCL_SUCCESS);
    ends_meet(&e);
    ends_part(&e);
}

/* Local ranks that share connections listen each, and only one of them accepts. */
static void of_two_connections_under_way_both_ends_take_the_same(void **state)
{
    static uint8_t in[64], out[64];

    (void)state;
    for (unsigned first = 0; first < 4; first++) {
        struct ends a = {.ctx = ends_open_ctx()}, b = {.ctx = a.ctx};
        void *send = NULL, *recv = NULL, *request;
        unsigned accepted = 0;
        uint64_t end = ends_now() + ENDS_PATIENCE_NS;

        ends_listen(&a);
        ends_listen(&b);
        while ((send == NULL || recv == NULL) && ends_now() < end) {
            for (unsigned k = 0; k < 2; k++) {
                if (send == NULL)
                    net->connect(a.ctx, 0, (k ^ first) & 1 ? a.handle : b.handle, &send, NULL);
                if (recv == NULL) {
                    accepted = (k ^ first / 2) & 1;
                    net->accept(accepted ? a.listen : b.listen, &recv, NULL);
                }
            }
        }
        assert_true(send != NULL && recv != NULL);
        net->close_listen(a.listen);
        net->close_listen(b.listen);
        a.listen = NULL;
        a.send = send;
        a.recv = recv;
        ends_fill(in, sizeof(in), first);
        request = ends_irecv(&a, out, sizeof(out), 5);
        ends_finish_both(ends_isend(&a, in, sizeof(in), 5), NULL, request, NULL);
        assert_memory_equal(in, out, sizeof(in));
        ends_part(&a);
    }
}

static void a_listener_that_closed_is_a_remote_error_after_the_deadline(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    enum sl_nccl_result result = SL_NCCL_SUCCESS;
    uint64_t start = ends_now(), end = start + ENDS_PATIENCE_NS;

    (void)state;
    ends_listen(&e);
    net->connect(e.ctx, 0, e.handle, &e.send, NULL);
    net->close_listen(e.listen);
    e.listen = NULL;
    while (result == SL_NCCL_SUCCESS && e.send == NULL && ends_now() < end)
        result = net->connect(e.ctx, 0, e.handle, &e.send, NULL);
    assert_int_equal(result, SL_NCCL_REMOTE_ERROR);
    assert_true(ends_now() - start >= SL_NS_PER_S); /* SLUICE_CONNECT_TIMEOUT_MS is 2000 */
    ends_part(&e);
}

static int stray(const struct ends *e)
{
    struct sl_nccl_handle handle;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(sl_nccl_handle_decode(e->handle, &handle), 0);
    to.sin_port = htons(handle.port);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* What a plugin can see of NCCL 2.32's own encryption. */
__attribute__((visibility("default"))) int ncclSetEncryption(const void *config);
int ncclSetEncryption(const void *config)
{
    return config != NULL;
}

static void it_is_said_that_nccls_encryption_covers_no_plugin(void **state)
{
    bool tls = getenv("SLUICE_TCP_TLS") != NULL;
    void *ssl = dlopen("libssl.so.3", RTLD_LAZY | RTLD_LOCAL), *self = dlopen(NULL, RTLD_LAZY);

    (void)state;
    if (ssl == NULL || dlsym(self, "ncclSetEncryption") == NULL) {
        print_message("# OpenSSL is not installed\n");
        skip();
    }
    ends_warning[0] = '\0';
    assert_int_equal(net->finalize(ends_open_ctx()), SL_NCCL_SUCCESS);
    assert_int_equal(strstr(ends_warning, "ncclSetEncryption(), that covers NCCL's own sockets") != NULL, !tls);
    dlclose(ssl);
    dlclose(self);
}

/* How many sockets of this process listen at that port, and that each of them has an address that the handle tells. */
static unsigned listeners_of(const struct sl_nccl_handle *handle)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in6 addr; /* an IPv4 one fits, too */
        socklen_t len = sizeof(addr), int_len = sizeof(int);
        int listens = 0;
        bool told = false;

        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) != 0 || !listens ||
            getsockname(fd, (struct sockaddr *)&addr, &len) != 0 || addr.sin6_port != htons(handle->port) ||
            (addr.sin6_family != AF_INET && addr.sin6_family != AF_INET6))
            continue;
        for (unsigned i = 0; i < handle->place_count; i++)
            told |= memcmp(&handle->places[i].addr, &addr,
                           addr.sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(addr)) == 0;
        assert_true(told);
        count++;
    }
    return count;
}

static void who_listens_does_so_where_the_handle_tells_and_nowhere_else(void **state)
{
    const char *before = getenv("SLUICE_INTERFACE");
    char kept[256];

    (void)state;
    snprintf(kept, sizeof(kept), "%s", before != NULL ? before : "");
    for (unsigned round = 0; round < 2; round++) {
        struct sl_nccl_handle handle;
        struct ends e = {0};

        if (round == 1)
            assert_int_equal(setenv("SLUICE_INTERFACE", "127.0.0.0/8", 1), 0);
        e.ctx = ends_open_ctx();
        ends_listen(&e);
        assert_int_equal(sl_nccl_handle_decode(e.handle, &handle), 0);
        assert_int_equal(listeners_of(&handle), handle.place_count);
        assert_true(round == 0 || handle.place_count == 1);
        ends_meet(&e);
        ends_part(&e);
    }
    assert_int_equal(before != NULL ? setenv("SLUICE_INTERFACE", kept, 1) : unsetenv("SLUICE_INTERFACE"), 0);
}

/* Says hello and hears the challenge. */
static void be_challenged(struct ends *e, int fd, const struct sl_nccl_word *hello, struct sl_nccl_word *challenge)
{
    uint8_t bytes[SL_NCCL_WORD_MAX];
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    size_t len = 0;
    int took = 0;

    assert_true(write(fd, bytes, sl_nccl_word_encode(hello, bytes)) > 0);
    while (took == 0 && ends_now() < end) {
        ssize_t n = recv(fd, bytes + len, sizeof(bytes) - len, MSG_DONTWAIT);

        len += n > 0 ? (size_t)n : 0;
        assert_int_equal(net->accept(e->listen, &e->recv, NULL), SL_NCCL_SUCCESS);
        took = sl_nccl_word_decode(bytes, len, challenge);
    }
    assert_true(took > 0);
    assert_int_equal(challenge->kind, SL_NCCL_CHALLENGE);
}

static const struct sl_nccl_word any_hello = {.kind = SL_NCCL_HELLO, .version = SL_NCCL_WIRE_VERSION, .ways = 0xf};

/* Says hello, and proves what that session key and handle are worth. */
static void prove(struct ends *e, int fd, const uint8_t *session, const uint8_t *secret)
{
    struct sl_nccl_word challenge, proof = {.kind = SL_NCCL_PROOF};
    uint8_t bytes[SL_NCCL_WORD_MAX], key[SL_DIGEST_BYTES];

    be_challenged(e, fd, &any_hello, &challenge);
    assert_int_equal(sl_nccl_link_key(session, secret, key), 0);
    assert_int_equal(sl_nccl_proof_make(key, false, &any_hello, challenge.nonce, proof.proof), 0);
    assert_true(write(fd, bytes, sl_nccl_word_encode(&proof, bytes)) > 0);
}

/* What the listener does to who has read the handle, which NCCL's bootstrap carries in clear. */
static void a_handle_alone_lets_in_only_where_there_is_no_secret(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    struct sl_nccl_handle handle;
    ssize_t n;
    char byte;

    (void)state;
    ends_listen(&e);
    assert_int_equal(sl_nccl_handle_decode(e.handle, &handle), 0);
    int reader = stray(&e);

    prove(&e, reader, NULL, handle.secret);
    while ((n = recv(reader, &byte, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN && ends_now() < end)
        assert_int_equal(net->accept(e.listen, &e.recv, NULL), SL_NCCL_SUCCESS);
    if (getenv("SLUICE_SECRET") != NULL)
        assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    else
        assert_int_equal(n, 1); /* an offer */
    close(reader);
    ends_meet(&e);
    ends_part(&e);
}

/* ---- secrets that differ ---- */

static void set_secret(const char *secret)
{
    assert_int_equal(secret != NULL ? setenv("SLUICE_SECRET", secret, 1) : unsetenv("SLUICE_SECRET"), 0);
}

/* Both ends give up, for this reason, long before their deadline. */
static void disagree(const char *listens, const char *dials)
{
    uint64_t start = ends_now(), end = start + ENDS_PATIENCE_NS;
    enum sl_nccl_result dialled = SL_NCCL_SUCCESS, accepted = SL_NCCL_SUCCESS;
    struct ends e = {.ctx = NULL};
    char why[2][sizeof(ends_warning)];

    set_secret(listens);
    e.ctx = ends_open_ctx();
    ends_listen(&e);
    set_secret(dials);
    void *other = ends_open_ctx();

    while (dialled == SL_NCCL_SUCCESS && ends_now() < end) {
        assert_int_equal(net->accept(e.listen, &e.recv, NULL), SL_NCCL_SUCCESS);
        dialled = net->connect(other, 0, e.handle, &e.send, NULL);
    }
    memcpy(why[0], ends_warning, sizeof(why[0]));
    while (accepted == SL_NCCL_SUCCESS && ends_now() < end)
        accepted = net->accept(e.listen, &e.recv, NULL);
    memcpy(why[1], ends_warning, sizeof(why[1]));
    assert_true(ends_now() - start < 3 * SL_NS_PER_S);
    assert_null(e.send);
    assert_null(e.recv);
    assert_int_equal(dialled, SL_NCCL_REMOTE_ERROR);
    assert_int_equal(accepted, SL_NCCL_REMOTE_ERROR);
    assert_non_null(strstr(why[0], "the listener has another SLUICE_SECRET"));
    assert_non_null(strstr(why[1], "the peer at "));
    assert_non_null(strstr(why[1], "has another SLUICE_SECRET"));
    assert_int_equal(net->finalize(other), SL_NCCL_SUCCESS);
    ends_part(&e);
}

static void another_secret_is_told_soon_at_both_ends(void **state)
{
    const char *before = getenv("SLUICE_SECRET"), *patience = getenv("SLUICE_CONNECT_TIMEOUT_MS");
    char kept[2][64];

    (void)state;
    snprintf(kept[0], sizeof(kept[0]), "%s", before != NULL ? before : "");
    snprintf(kept[1], sizeof(kept[1]), "%s", patience);
    setenv("SLUICE_CONNECT_TIMEOUT_MS", "4000", 1);
    disagree("one secret of the tests", "another secret of the tests");
    if (getenv("SLUICE_TCP_TLS") == NULL) {
        disagree("a secret of one end", NULL);
        disagree(NULL, "a secret of one end");
    }
    set_secret(before != NULL ? kept[0] : NULL);
    setenv("SLUICE_CONNECT_TIMEOUT_MS", kept[1], 1);
}

/* Says that its secret is another one, as who has read the handle can; proves the handle, or does not. */
static void say_stranger(struct ends *e, int fd, const uint8_t *handle_secret)
{
    struct sl_nccl_word challenge, word = {.kind = SL_NCCL_STRANGER};
    uint8_t bytes[SL_NCCL_WORD_MAX], key[SL_DIGEST_BYTES];

    be_challenged(e, fd, &any_hello, &challenge);
    assert_int_equal(sl_nccl_link_key(NULL, handle_secret, key), 0);
    assert_int_equal(sl_nccl_proof_make(key, false, &any_hello, challenge.nonce, word.handle_proof), 0);
    assert_true(write(fd, bytes, sl_nccl_word_encode(&word, bytes)) > 0);
}

/* For longer than a listener waits for somebody better (a quarter of the time to connect). */
static void keep_accepting(struct ends *e)
{
    uint64_t end = ends_now() + SL_NS_PER_S;

    while (ends_now() < end)
        assert_int_equal(net->accept(e->listen, &e->recv, NULL), SL_NCCL_SUCCESS);
}

static void who_says_that_secrets_differ_must_know_the_handle_and_come_alone(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    struct sl_nccl_handle handle;

    (void)state;
    ends_listen(&e);
    assert_int_equal(sl_nccl_handle_decode(e.handle, &handle), 0);
    int guesser = stray(&e), reader = stray(&e);

    say_stranger(&e, guesser, (const uint8_t[SL_NCCL_SECRET_BYTES]){0});
    keep_accepting(&e);
    assert_null(e.recv);
    say_stranger(&e, reader, handle.secret);
    ends_meet(&e); /* the peer comes after it, in time */
    void *connection = e.recv;

    keep_accepting(&e);
    e.recv = connection;
    close(guesser);
    close(reader);
    ends_part(&e);
}

static void strangers_are_shown_out_and_change_nothing(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int scanner, guesser, silent;
    ssize_t n = -1;
    char byte;

    (void)state;
    ends_listen(&e);
    scanner = stray(&e);
    silent = stray(&e);
    guesser = stray(&e);
    assert_int_equal(write(scanner, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    ends_warning[0] = '\0';
    prove(&e, guesser, NULL, (const uint8_t[SL_NCCL_SECRET_BYTES]){0});
    while ((n = recv(guesser, &byte, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN && ends_now() < end)
        assert_int_equal(net->accept(e.listen, &e.recv, NULL), SL_NCCL_SUCCESS);
    assert_true(n == 0 || errno == ECONNRESET);
    assert_non_null(strstr(ends_warning, "refused"));
    assert_null(e.recv);
    ends_meet(&e);
    close(scanner);
    close(guesser);
    close(silent);
    ends_part(&e);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void strangers_without_end_fill_neither_log_nor_descriptors(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    unsigned before;
    uint64_t start;
    int silent[100];

    (void)state;
    ends_listen(&e);
    ends_warnings = 0;
    before = open_descriptors();
    for (unsigned i = 0; i < 100; i++) {
        int noisy = stray(&e);

        silent[i] = stray(&e);
        assert_int_equal(write(noisy, "GET / HTTP/1.0\r\n\r\n", 18), 18);
        for (unsigned k = 0; k < 5; k++)
            assert_int_equal(net->accept(e.listen, &e.recv, NULL), SL_NCCL_SUCCESS);
        assert_null(e.recv);
        close(noisy);
    }
    assert_true(ends_warnings > 0 && ends_warnings <= SL_PENDING_LOG_LINES);
    assert_int_equal(open_descriptors(), before + 100); /* the test's own: the kernel keeps the silent ones */
    start = ends_now();
    ends_meet(&e);
    assert_true(ends_now() - start < SL_NS_PER_S); /* the silent ones were no hindrance */
    for (unsigned i = 0; i < 100; i++)
        close(silent[i]);
    ends_part(&e);
}

static void a_foreign_handle_is_refused(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};

    (void)state;
    memset(e.handle, 7, sizeof(e.handle));
    assert_int_equal(net->connect(e.ctx, 0, e.handle, &e.send, NULL), SL_NCCL_REMOTE_ERROR);
    assert_non_null(strstr(ends_warning, "same network plugin"));
    assert_int_equal(net->listen(e.ctx, 4711, e.handle, &e.listen), SL_NCCL_INVALID_ARGUMENT);
    ends_part(&e);
}

/* ---- data ---- */

static void messages_of_every_size_arrive_whole(void **state)
{
    static const size_t lens[] = {0, 1, 63, 64, 4095, 4096, 65537, 1 << 20, BIG};
    uint8_t *in = malloc(BIG), *out = malloc(BIG);
    struct ends e;

    (void)state;
    ends_make(&e);
    for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        int sent = -1, got = -1;
        void *recv = ends_irecv(&e, out, lens[i], 3), *send;

        ends_fill(in, lens[i], i);
        memset(out, 0, BIG);
        send = ends_isend(&e, in, lens[i], 3);
        ends_finish_both(send, &sent, recv, &got);
        assert_int_equal(sent, lens[i]);
        assert_int_equal(got, lens[i]);
        assert_memory_equal(in, out, lens[i]);
    }
    ends_part(&e);
    free(in);
    free(out);
}

static void a_short_message_leaves_the_rest_alone_and_a_long_one_is_cut(void **state)
{
    static uint8_t in[300000], out[300000];
    static const size_t sends[] = {10, 300000, 0, 200000}, recvs[] = {100, 200000, 300000, 299999};
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(in, sizeof(in), 1);
    for (unsigned i = 0; i < 4; i++) {
        size_t len = sends[i] < recvs[i] ? sends[i] : recvs[i];
        int sent = -1, got = -1;
        void *recv = ends_irecv(&e, out, recvs[i], 3), *send;

        memset(out, 0xee, sizeof(out));
        send = ends_isend(&e, in, sends[i], 3);
        ends_finish_both(send, &sent, recv, &got);
        assert_int_equal(sent, len);
        assert_int_equal(got, len);
        assert_memory_equal(in, out, len);
        for (size_t k = len; k < sizeof(out); k++)
            assert_int_equal(out[k], 0xee);
    }
    ends_part(&e);
}

static void nothing_is_sent_that_was_not_announced(void **state)
{
    static uint8_t in[8] = "message", out[8];
    void *request = (void *)(uintptr_t)77, *recv;
    struct ends e;

    (void)state;
    ends_make(&e);
    for (int i = 0; i < 50; i++)
        assert_int_equal(net->isend(e.send, in, 8, 1, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request);
    recv = ends_irecv(&e, out, 8, 2);
    for (int i = 0; i < 50; i++)
        assert_int_equal(net->isend(e.send, in, 8, 1, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request); /* another tag */
    ends_finish_both(ends_isend(&e, in, 8, 2), NULL, recv, NULL);
    assert_string_equal((char *)out, "message");
    ends_part(&e);
}

static void a_group_takes_its_sends_in_any_order(void **state)
{
    static uint8_t in[8][5000], out[8][5000];
    static const unsigned order[8] = {3, 7, 0, 1, 6, 2, 5, 4};
    struct ends e;

    (void)state;
    ends_make(&e);
    for (unsigned round = 0; round < 40; round++) {
        void *data[8], *mrs[8] = {NULL}, *parents[8] = {NULL}, *recv = NULL, *sends[8];
        int tags[8], sizes[8], size, count = 1 + (int)(round % 8);
        size_t lens[8];

        for (int i = 0; i < count; i++) {
            data[i] = out[i];
            lens[i] = 5000;
            tags[i] = 100 + i / 2; /* pairs of equal ones: in their order */
            ends_fill(in[i], 5000, round * 8 + (unsigned)i);
            memset(out[i], 0, 5000);
        }
        assert_int_equal(net->irecv(e.recv, count, data, lens, tags, mrs, parents, &recv),
                         SL_NCCL_SUCCESS);
        assert_non_null(recv);
        for (int k = 0, n = 0; k < 8; k++) {
            int i = (int)order[k];

            if (i >= count)
                continue;
            sends[n++] = ends_isend(&e, in[i], (size_t)(round + 100 * i), tags[i]);
        }
        for (int i = 0; i < count; i++)
            ends_finish(sends[i], &size);
        ends_finish(recv, sizes);
        for (int i = 0; i < count; i++) {
            /* Which of a pair came first is known from order[]: 3 before 2, 7 before 6, 5 before 4. */
            static const int from[8] = {0, 1, 3, 2, 5, 4, 7, 6};
            int source = from[i] < count && (from[i] ^ 1) < count ? from[i] : i;

            assert_int_equal(sizes[i], round + 100 * source);
            assert_memory_equal(out[i], in[source], (size_t)sizes[i]);
        }
    }
    ends_part(&e);
}

static void as_many_requests_as_nccl_has_are_in_flight(void **state)
{
    static uint8_t in[256][1000], out[256][1000];
    void *recvs[33], *sends[256];
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(&in[0][0], sizeof(in), 5);
    for (int r = 0; r < 32; r++) {
        void *data[8], *mrs[8] = {NULL}, *parents[8] = {NULL};
        size_t lens[8];
        int tags[8];

        for (int i = 0; i < 8; i++) {
            data[i] = out[8 * r + i];
            lens[i] = 1000;
            tags[i] = i;
        }
        recvs[r] = NULL;
        assert_int_equal(net->irecv(e.recv, 8, data, lens, tags, mrs, parents, &recvs[r]),
                         SL_NCCL_SUCCESS);
        assert_non_null(recvs[r]);
    }
    assert_null(ends_irecv(&e, out[0], 1000, 1)); /* one too many: to be asked again, not an error */
    for (int s = 0; s < 256; s++)
        sends[s] = ends_isend(&e, in[s], 1000, s % 8);
    for (int s = 255; s >= 0; s--)
        ends_finish(sends[s], NULL);
    for (int r = 31; r >= 0; r--)
        ends_finish(recvs[r], NULL);
    assert_memory_equal(in, out, sizeof(in));
    ends_part(&e);
}

static void registered_memory_is_used_and_put_away(void **state)
{
    uint8_t *in = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *out = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *mr_in = NULL, *mr_out = NULL, *send = NULL, *recv = NULL, *parent = NULL, *data = out;
    size_t len = BIG;
    int tag = 9;
    struct ends e;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.send, in, BIG, SL_NCCL_PTR_HOST, &mr_in), SL_NCCL_SUCCESS);
    assert_int_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_HOST, &mr_out), SL_NCCL_SUCCESS);
    assert_non_null(mr_in);
    assert_int_not_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_CUDA, &parent), SL_NCCL_SUCCESS);
    assert_null(parent); /* this device did not say that it takes it, and this is none */
    assert_int_equal(net->reg_mr(e.recv, out, BIG, 7, &parent), SL_NCCL_INVALID_ARGUMENT);
    assert_null(parent);
    ends_fill(in, BIG, 3);
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr_out, &parent, &recv), SL_NCCL_SUCCESS);
    while (send == NULL && ends_now() < end)
        assert_int_equal(net->isend(e.send, in, BIG, tag, mr_in, NULL, &send), SL_NCCL_SUCCESS);
    ends_finish_both(send, NULL, recv, NULL);
    assert_memory_equal(in, out, BIG);
    assert_int_equal(net->dereg_mr(e.send, mr_in), SL_NCCL_SUCCESS);
    assert_int_equal(net->dereg_mr(e.recv, mr_out), SL_NCCL_SUCCESS);
    ends_part(&e);
    munmap(in, BIG);
    munmap(out, BIG);
}

/* ---- what must not be left behind ---- */

/* NULL, also over the mark that NCCL leaves where a receive may be told as done early. */
static void what_cannot_be_taken_now_is_no_request(void **state)
{
    static uint8_t out[SL_NCCL_REQUESTS + 1][8];
    void *mr = NULL, *parent = NULL, *request, *data, *requests[SL_NCCL_REQUESTS];
    size_t len = 8;
    int tag = 1;
    struct ends e;

    (void)state;
    ends_make(&e);
    request = SL_NCCL_RECV_OPTIONAL;
    assert_int_equal(net->isend(e.send, out[0], len, tag, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request); /* nothing is announced */
    for (int i = 0; i < SL_NCCL_REQUESTS; i++)
        assert_non_null(requests[i] = ends_irecv(&e, out[i], len, tag));
    data = out[SL_NCCL_REQUESTS];
    request = SL_NCCL_RECV_OPTIONAL;
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr, &parent, &request), SL_NCCL_SUCCESS);
    assert_null(request); /* there are as many as may be */
    for (int i = 0; i < SL_NCCL_REQUESTS; i++)
        ends_finish_both(ends_isend(&e, out[i], len, tag), NULL, requests[i], NULL);
    ends_part(&e);
}

/* ---- the profiler ---- */

static struct {
    unsigned starts, stops;
    bool takes;
    struct sl_nccl_net_event last;
    void *parent;
} told;

static enum sl_nccl_result profile(void **event, int kind, void *parent, int64_t id, void *data)
{
    assert_int_equal(id, SL_NCCL_NET_EVENT_ID);
    if (kind == SL_NCCL_EVENT_START) {
        assert_null(*event);
        told.starts++;
        told.last = *(const struct sl_nccl_net_event *)data;
        told.parent = parent;
        if (told.takes)
            *event = &told;
    } else {
        assert_int_equal(kind, SL_NCCL_EVENT_STOP);
        assert_ptr_equal(*event, &told);
        told.stops++;
    }
    return SL_NCCL_SUCCESS;
}

static void event_of_a_lost_request_ends(struct ends *e, unsigned stops)
{
    static uint8_t out[8];
    void *data = out, *mr = NULL, *parent = out, *recv = NULL;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    size_t len = sizeof(out);
    int tag = 1, done = 0;

    assert_int_equal(net->irecv(e->recv, 1, &data, &len, &tag, &mr, &parent, &recv), SL_NCCL_SUCCESS);
    assert_int_equal(net->close_send(e->send), SL_NCCL_SUCCESS);
    e->send = NULL;
    while (net->test(recv, &done, NULL) == SL_NCCL_SUCCESS && ends_now() < end)
        ;
    assert_int_equal(told.stops, stops);
}

static void requests_are_events_of_the_profiler(void **state)
{
    struct sl_nccl_net_config_v11 config = {.traffic_class = SL_NCCL_UNDEFINED};
    uint8_t in[64] = "", out[2][64];
    struct ends e;

    (void)state;
    for (int takes = 0; takes < 2; takes++) {
        void *data[2] = {out[0], out[1]}, *mrs[2] = {NULL}, *parents[2] = {&in[0], &in[1]}, *recv = NULL, *send = NULL;
        size_t lens[2] = {64, 63};
        int tags[2] = {4, 5};

        memset(&told, 0, sizeof(told));
        told.takes = takes != 0;
        memset(&e, 0, sizeof(e));
        assert_int_equal(net->init(&e.ctx, 1, &config, ends_logger, profile), SL_NCCL_SUCCESS);
        ends_listen(&e);
        ends_meet(&e);
        assert_int_equal(net->irecv(e.recv, 2, data, lens, tags, mrs, parents, &recv), SL_NCCL_SUCCESS);
        assert_int_equal(told.starts, 2);
        assert_ptr_equal(told.parent, &in[1]);
        assert_int_equal(told.last.is_send, 0);
        assert_int_equal(told.last.tag, 5);
        assert_int_equal(told.last.len, 63);
        assert_true(told.last.transport[0] != '\0' && told.last.peer[0] != '\0');
        while (send == NULL)
            assert_int_equal(net->isend(e.send, in, 60, 5, NULL, &in[5], &send), SL_NCCL_SUCCESS);
        assert_int_equal(told.starts, 3); /* not of those that were not taken */
        assert_ptr_equal(told.parent, &in[5]);
        assert_true(told.last.is_send == 1 && told.last.len == 60);
        ends_finish_both(ends_isend(&e, in, 64, 4), NULL, send, NULL); /* without a parent: no event */
        assert_int_equal(told.starts, 3);
        ends_finish(recv, NULL);
        assert_int_equal(told.stops, takes ? 3 : 0);
        event_of_a_lost_request_ends(&e, takes ? 4 : 0);
        ends_part(&e);
    }
}

/* ---- ends ---- */

static void memory_that_is_put_away_under_a_request_is_not_touched_again(void **state)
{
    uint8_t *in = malloc(BIG), *out = mmap(NULL, BIG, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *mr = NULL, *recv = NULL, *parent = NULL, *data = out, *send;
    size_t len = BIG;
    int tag = 1, done = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    memset(in, 1, BIG);
    assert_int_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_HOST, &mr), SL_NCCL_SUCCESS);
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr, &parent, &recv), SL_NCCL_SUCCESS);
    send = ends_isend(&e, in, BIG, 1);
    assert_int_equal(net->dereg_mr(e.recv, mr), SL_NCCL_SUCCESS);
    munmap(out, BIG); /* a touch is a crash */
    for (int i = 0; i < 1000 && !done; i++)
        if (net->test(send, &done, NULL) != SL_NCCL_SUCCESS)
            break;
    assert_int_not_equal(net->test(recv, &done, NULL), SL_NCCL_SUCCESS);
    assert_false(done);
    ends_part(&e);
    free(in);
}

/* The same at the other end, whose bytes the transport may still be reading. */
static void memory_that_is_put_away_under_a_send_is_not_read_again(void **state)
{
    uint8_t *in = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *out = malloc(BIG);
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    void *mr = NULL, *send = NULL;
    int done = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.send, in, BIG, SL_NCCL_PTR_HOST, &mr), SL_NCCL_SUCCESS);
    ends_irecv(&e, out, BIG, 1);
    while (send == NULL && ends_now() < end)
        assert_int_equal(net->isend(e.send, in, BIG, 1, mr, NULL, &send), SL_NCCL_SUCCESS);
    assert_int_equal(net->dereg_mr(e.send, mr), SL_NCCL_SUCCESS);
    munmap(in, BIG); /* a touch is a crash */
    assert_int_not_equal(net->test(send, &done, NULL), SL_NCCL_SUCCESS);
    assert_false(done);
    ends_part(&e);
    free(out);
}

static void memory_of_another_connection_is_refused(void **state)
{
    static uint8_t bytes[4096];
    void *mr = NULL, *request = bytes;
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_HOST, &mr), SL_NCCL_SUCCESS);
    assert_int_equal(net->isend(e.send, bytes, 8, 1, mr, NULL, &request), SL_NCCL_INVALID_ARGUMENT);
    assert_null(request);
    assert_int_equal(net->dereg_mr(e.recv, mr), SL_NCCL_SUCCESS);
    ends_part(&e);
}

static void what_was_sent_arrives_though_the_sender_closes(void **state)
{
    uint8_t *in = malloc(BIG), *out = malloc(BIG);
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(in, BIG, 8);
    for (int i = 0; i < 8; i++) {
        void *recv = ends_irecv(&e, out, 60000, i), *send = ends_isend(&e, in, 60000, i);

        if (i < 7) {
            ends_finish_both(send, NULL, recv, NULL);
            continue;
        }
        ends_finish(send, NULL);
        assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
        e.send = NULL;
        ends_finish(recv, NULL);
        assert_memory_equal(in, out, 60000);
    }
    ends_part(&e);
    free(in);
    free(out);
}

/* A few bytes are the sender's again when a transport has a copy of them, which may not have left yet. */
static void what_was_copied_arrives_though_the_sender_closes_at_once(void **state)
{
    uint8_t in[512], out[512];
    struct ends e;

    (void)state;
    for (size_t len = 1; len <= sizeof(in); len *= 8) {
        void *recv, *send;

        ends_make(&e);
        ends_fill(in, len, len);
        recv = ends_irecv(&e, out, len, 1);
        send = ends_isend(&e, in, len, 1);
        ends_finish(send, NULL);
        assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
        e.send = NULL;
        ends_finish(recv, NULL);
        assert_memory_equal(in, out, len);
        ends_part(&e);
    }
}

/* These transports have no use for GPU memory and say so: NCCL asks for none then. Who registers some all the same is
 * told, and what a flush would wait for has happened. */
static void gpu_memory_is_refused_where_no_transport_takes_it(void **state)
{
    struct sl_nccl_net_props_v11 props;
    uint8_t bytes[64];
    void *mr = bytes, *data = bytes, *request = bytes;
    int len = sizeof(bytes);
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->get_properties(0, &props), SL_NCCL_SUCCESS);
    assert_int_equal(props.ptr_support, SL_NCCL_PTR_HOST);
    assert_int_equal(net->reg_mr_dmabuf(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_HOST, 0, 0, &mr),
                     SL_NCCL_INVALID_ARGUMENT);
    assert_null(mr);
    mr = bytes;
    assert_int_not_equal(net->reg_mr_dmabuf(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_CUDA, 0, 0, &mr), SL_NCCL_SUCCESS);
    assert_null(mr);
    mr = bytes;
    assert_int_not_equal(net->reg_mr(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_CUDA, &mr), SL_NCCL_SUCCESS);
    assert_null(mr);
    assert_int_equal(net->iflush(e.recv, 1, &data, &len, &mr, &request), SL_NCCL_SUCCESS);
    assert_null(request);
    ends_part(&e);
}

static void a_peer_that_is_gone_is_a_remote_error(void **state)
{
    static uint8_t out[100];
    enum sl_nccl_result result = SL_NCCL_SUCCESS;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    struct ends e;
    void *recv, *request = (void *)(uintptr_t)1;
    int done = 0;

    (void)state;
    ends_make(&e);
    ends_warnings = 0;
    recv = ends_irecv(&e, out, sizeof(out), 1);
    assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
    e.send = NULL;
    while (result == SL_NCCL_SUCCESS && !done && ends_now() < end)
        result = net->test(recv, &done, NULL);
    assert_int_equal(result, SL_NCCL_REMOTE_ERROR);
    assert_false(done);
    if (strstr(ends_warning, "the peer at ") == NULL || strstr(ends_warning, "rank -1") != NULL)
        fail_msg("who is gone is not said: %s", ends_warning);
    assert_int_equal(net->irecv(e.recv, 1, (void *[]){out}, (size_t[]){1}, (int[]){1}, (void *[]){NULL},
                                (void *[]){NULL}, &request), SL_NCCL_REMOTE_ERROR);
    assert_null(request);
    for (int i = 0; i < 100; i++)
        assert_int_equal(net->test(recv, &done, NULL), SL_NCCL_REMOTE_ERROR);
    assert_int_equal(ends_warnings, 1); /* NCCL asks on; its log has the line */
    ends_part(&e);
}

#ifndef OVER_FAKE_RAILS
/* In the child: 0, or the line that was not as it should be. */
#define CHILD_EXPECT(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 255 + 1);                                                             \
    } while (0)

static void in_a_child(struct ends *e, void *request)
{
    uint8_t bytes[100] = {0}, handle[SL_NCCL_HANDLE_BYTES];
    void *memory = bytes, *mr = NULL, *other = NULL;
    size_t size = sizeof(bytes);
    int tag = 1, done = 0;

    CHILD_EXPECT(net->isend(e->send, bytes, sizeof(bytes), 1, NULL, NULL, &other) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->irecv(e->recv, 1, &memory, &size, &tag, &mr, NULL, &other) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->test(request, &done, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->reg_mr(e->send, bytes, sizeof(bytes), 1, &mr) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->listen(e->ctx, 0, handle, &other) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->connect(e->ctx, 0, e->handle, &other, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->accept(e->listen, &other, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(strstr(ends_warning, "before it forked this one") != NULL);
    CHILD_EXPECT(net->close_send(e->send) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->close_recv(e->recv) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->close_listen(e->listen) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->finalize(e->ctx) == SL_NCCL_SUCCESS);
    _exit(0);
}

static void a_forked_child_is_refused_and_harms_nothing(void **state)
{
    uint8_t sent[100], got[100] = {0};
    int status = -1, size = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(sent, sizeof(sent), 3);
    void *recv = ends_irecv(&e, got, sizeof(got), 1);
    pid_t pid = fork();

    if (pid == 0)
        in_a_child(&e, recv);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ends_finish_both(ends_isend(&e, sent, sizeof(sent), 1), NULL, recv, &size);
    assert_int_equal(size, sizeof(sent));
    assert_memory_equal(sent, got, sizeof(sent));
    ends_part(&e);
}

static void contexts_come_and_go_apart(void **state)
{
    struct ends a, b;

    (void)state;
    ends_make(&a);
    ends_make(&b);
    ends_part(&a);
    ends_make(&a);
    ends_part(&b);
    ends_part(&a);
    assert_int_equal(net->finalize(NULL), SL_NCCL_SUCCESS);
}
#endif

static void a_connection_outlives_its_context(void **state)
{
    static uint8_t in[100] = "late", out[100];
    struct ends e;
    void *recv;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->finalize(e.ctx), SL_NCCL_SUCCESS);
    e.ctx = e.listen = NULL;
    recv = ends_irecv(&e, out, sizeof(out), 1);
    ends_finish_both(ends_isend(&e, in, sizeof(in), 1), NULL, recv, NULL);
    assert_string_equal((char *)out, "late");
    ends_part(&e);
}

/* ---- properties ---- */

static void every_property_is_filled(void **state)
{
    struct sl_nccl_net_props_v12 a, b;
    void *ctx = ends_open_ctx();
    int count = 0;

    (void)state;
    assert_int_equal(net->devices(&count), SL_NCCL_SUCCESS);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        memset(&a, 0x11, sizeof(a));
        memset(&b, 0xee, sizeof(b));
        assert_int_equal(ncclNetPlugin_v12.get_properties(i, &a), SL_NCCL_SUCCESS);
        assert_int_equal(ncclNetPlugin_v12.get_properties(i, &b), SL_NCCL_SUCCESS);
        assert_memory_equal(&a, &b, sizeof(a));
        assert_true(strlen(a.name) > 0);
        assert_int_equal(a.ptr_support, SL_NCCL_PTR_HOST);
        assert_int_equal(a.recvs_max, SL_NCCL_GROUP_MAX);
        assert_true(a.speed > 0);
        assert_int_equal(a.joined.count, 1);
        assert_int_equal(a.joined.devs[0], i);
        assert_int_equal(a.rail_id, -1);
        assert_true(a.pci_path == NULL || access(a.pci_path, F_OK) == 0);
    }
    assert_int_equal(net->get_properties(count, (void *)&a), SL_NCCL_INVALID_ARGUMENT);
    assert_int_equal(net->get_properties(-1, (void *)&a), SL_NCCL_INVALID_ARGUMENT);
    net->finalize(ctx);
}

#ifndef OVER_FAKE_RAILS
/* The table without contexts, and NULL in the one with them, share the same one. */
static void callers_without_a_context_are_served(void **state)
{
    const struct sl_nccl_net_v6 *old = &ncclNetPlugin_v6;
    uint8_t handle[SL_NCCL_HANDLE_BYTES], out[16] = "";
    void *listen = NULL, *send = NULL, *recv = NULL, *request = NULL, *sent = NULL, *data = out, *mr = NULL;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int len = 16, tag = 0, count;

    (void)state;
    assert_int_equal(old->init(ends_logger), SL_NCCL_SUCCESS);
    assert_int_equal(old->devices(&count), SL_NCCL_SUCCESS);
    assert_int_equal(old->listen(0, handle, &listen), SL_NCCL_SUCCESS);
    while ((send == NULL || recv == NULL) && ends_now() < end) {
        if (send == NULL)
            assert_int_equal(net->connect(NULL, 0, handle, &send, NULL), SL_NCCL_SUCCESS);
        if (recv == NULL)
            assert_int_equal(old->accept(listen, &recv), SL_NCCL_SUCCESS);
    }
    assert_true(send != NULL && recv != NULL);
    assert_int_equal(old->irecv(recv, 1, &data, &len, &tag, &mr, &request), SL_NCCL_SUCCESS);
    while (sent == NULL && ends_now() < end)
        assert_int_equal(old->isend(send, (void *)(uintptr_t)"fifteen letters", 16, 0, NULL, &sent),
                         SL_NCCL_SUCCESS);
    ends_finish_both(sent, NULL, request, NULL);
    assert_string_equal((char *)out, "fifteen letters");
    old->close_send(send);
    old->close_recv(recv);
    old->close_listen(listen);
    assert_int_equal(net->finalize(NULL), SL_NCCL_SUCCESS);
}
#endif

#ifdef OVER_FAKE_RAILS
static int before_all(void **state)
{
    (void)state;
    rails_up(0);
    return 0;
}

static int after_all(void **state)
{
    (void)state;
    rails_down();
    return 0;
}
#else
#define before_all NULL
#define after_all NULL
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_connects_to_itself),
        cmocka_unit_test(neither_end_ever_blocks_alone),
        cmocka_unit_test(what_is_half_connected_is_freed_with_its_context),
        cmocka_unit_test(of_two_connections_under_way_both_ends_take_the_same),
        cmocka_unit_test(a_listener_that_closed_is_a_remote_error_after_the_deadline),
        cmocka_unit_test(it_is_said_that_nccls_encryption_covers_no_plugin),
        cmocka_unit_test(who_listens_does_so_where_the_handle_tells_and_nowhere_else),
        cmocka_unit_test(a_handle_alone_lets_in_only_where_there_is_no_secret),
        cmocka_unit_test(another_secret_is_told_soon_at_both_ends),
        cmocka_unit_test(who_says_that_secrets_differ_must_know_the_handle_and_come_alone),
        cmocka_unit_test(strangers_are_shown_out_and_change_nothing),
        cmocka_unit_test(strangers_without_end_fill_neither_log_nor_descriptors),
        cmocka_unit_test(a_foreign_handle_is_refused),
        cmocka_unit_test(messages_of_every_size_arrive_whole),
        cmocka_unit_test(a_short_message_leaves_the_rest_alone_and_a_long_one_is_cut),
        cmocka_unit_test(nothing_is_sent_that_was_not_announced),
        cmocka_unit_test(a_group_takes_its_sends_in_any_order),
        cmocka_unit_test(as_many_requests_as_nccl_has_are_in_flight),
        cmocka_unit_test(registered_memory_is_used_and_put_away),
        cmocka_unit_test(what_cannot_be_taken_now_is_no_request),
        cmocka_unit_test(requests_are_events_of_the_profiler),
        cmocka_unit_test(memory_that_is_put_away_under_a_request_is_not_touched_again),
        cmocka_unit_test(memory_that_is_put_away_under_a_send_is_not_read_again),
        cmocka_unit_test(memory_of_another_connection_is_refused),
        cmocka_unit_test(what_was_sent_arrives_though_the_sender_closes),
        cmocka_unit_test(what_was_copied_arrives_though_the_sender_closes_at_once),
        cmocka_unit_test(gpu_memory_is_refused_where_no_transport_takes_it),
        cmocka_unit_test(a_peer_that_is_gone_is_a_remote_error),
        cmocka_unit_test(a_connection_outlives_its_context),
        cmocka_unit_test(every_property_is_filled),
#ifndef OVER_FAKE_RAILS /* which is for one engine, and none that stays */
        cmocka_unit_test(a_forked_child_is_refused_and_harms_nothing),
        cmocka_unit_test(contexts_come_and_go_apart),
        cmocka_unit_test(callers_without_a_context_are_served),
#endif
    };

    return cmocka_run_group_tests(tests, before_all, after_all);
}
