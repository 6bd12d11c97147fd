/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the network plugin, through its newest table, both ends in this process and
 * thread: how they are made, and with whom not. Over the transports of SLUICE_TRANSPORT; the
 * conformance driver does the same between processes.
 */
#include "tests/unit/nccl/ends.h"
#include "tests/unit/nccl/over.h"
#include "core/pending.h"
#include "core/runtime.h"
#include "core/wireup_addr.h"
#include "core/wireup_word.h"
#include "tools/nccl/wire.h"

#include <errno.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <cmocka.h>
#include <unistd.h>

static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

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

static struct sl_nccl_handle handle_of(const struct ends *e)
{
    struct sl_nccl_handle handle;

    assert_int_equal(sl_nccl_handle_decode(e->handle, &handle), 0);
    return handle;
}

static int stray(const struct ends *e)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(handle_of(e).addr.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

#ifdef OVER_FAKE_RAILS
/* Two engines share the fake devices, which are for one thread. */
int __wrap_sl_runtime_attach(struct sl_errand *errand);
int __wrap_sl_runtime_attach(struct sl_errand *errand)
{
    (void)errand;
    return 0;
}
#endif

/* ---- time ---- */

/* The clock is the machine's, and so far ahead of it. */
static uint64_t skew_ns;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    uint64_t ns = (uint64_t)out->tv_nsec + skew_ns;

    out->tv_sec += (time_t)(ns / SL_NS_PER_S);
    out->tv_nsec = (long)(ns % SL_NS_PER_S);
    return rc;
}

/* Of a loop that waits and sees: the machine's clock would take seconds. */
static void pass_ms(void)
{
    skew_ns += SL_NS_PER_MS;
}

static uint64_t connect_timeout_ns(void)
{
    return strtoull(getenv("SLUICE_CONNECT_TIMEOUT_MS"), NULL, 10) * SL_NS_PER_MS;
}

static bool is_listener(int fd)
{
    socklen_t len = sizeof(int);
    int listens = 0;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens != 0;
}

/* A listener, and another context that dials it until the kernel has the connection for it. */
static void *greet_without_answer(struct ends *e)
{
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    void *listening = ends_open_ctx();
    bool greeted = false;

    e->ctx = listening;
    ends_listen(e);
    setenv("SLUICE_SPIN_US", "7", 1); /* other settings: an engine that does not answer itself */
    e->ctx = ends_open_ctx();
    unsetenv("SLUICE_SPIN_US");
    while (!greeted && ends_now() < end) {
        assert_int_equal(net->connect(e->ctx, 0, e->handle, &e->send, NULL), SL_NCCL_SUCCESS);
        for (int fd = 0; fd < 1024 && !greeted; fd++) {
            struct pollfd waits = {.fd = fd, .events = POLLIN};

            greeted = is_listener(fd) && poll(&waits, 1, 0) > 0;
        }
    }
    assert_true(greeted);
    return listening;
}

/* NCCL may listen long before it accepts: from the greeting on, ten times the time to connect. */
static void a_listener_that_is_there_may_accept_late(void **state)
{
    struct ends e = {NULL};
    void *listening = greet_without_answer(&e);

    (void)state;
    for (unsigned i = 0; i < 9; i++) {
        skew_ns += connect_timeout_ns();
        assert_int_equal(net->connect(e.ctx, 0, e.handle, &e.send, NULL), SL_NCCL_SUCCESS);
    }
    assert_null(e.send);
    ends_meet(&e);
    ends_part(&e);
    assert_int_equal(net->finalize(listening), SL_NCCL_SUCCESS);
}

static void but_not_for_ever(void **state)
{
    struct ends e = {NULL};
    void *listening = greet_without_answer(&e);

    (void)state;
    skew_ns += 11 * connect_timeout_ns();
    assert_int_equal(net->connect(e.ctx, 0, e.handle, &e.send, NULL), SL_NCCL_REMOTE_ERROR);
    assert_non_null(strstr(ends_warning, "does not accept"));
    ends_part(&e);
    assert_int_equal(net->finalize(listening), SL_NCCL_SUCCESS);
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
    assert_int_equal(
        strstr(ends_warning, "ncclSetEncryption(), that covers NCCL's own sockets") != NULL, !tls);
    dlclose(ssl);
    dlclose(self);
}

/* How many sockets of this process listen at that port, and that each of them has an address that
 * the handle tells. */
static unsigned listeners_of(const struct sl_wireup_addr *addr)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_storage place, at = {0};
        socklen_t len = sizeof(at);
        bool told = false;

        if (!is_listener(fd) || getsockname(fd, (struct sockaddr *)&at, &len) != 0 ||
            at.ss_family == AF_UNIX)
            continue;
        for (unsigned i = 0; sl_wireup_place_at(addr, i, &place); i++)
            told |= memcmp(&place, &at, sizeof(at)) == 0;
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
        handle = handle_of(&e);
        assert_int_equal(listeners_of(&handle.addr), handle.addr.place_count);
        assert_true(round == 0 || handle.addr.place_count == 1);
        ends_meet(&e);
        ends_part(&e);
    }
    assert_int_equal(
        before != NULL ? setenv("SLUICE_INTERFACE", kept, 1) : unsetenv("SLUICE_INTERFACE"), 0);
}

static struct sl_wireup_word hello_to(const struct sl_nccl_handle *handle)
{
    struct sl_wireup_word word = {.kind = SL_WIREUP_HELLO};

    word.hello = (struct sl_wireup_hello){
        .version = SL_WIREUP_VERSION, .transports = UINT32_MAX, .group = handle->token};
    memcpy(word.hello.to_id, handle->addr.id, sizeof(word.hello.to_id));
    return word;
}

static void say(int fd, const struct sl_wireup_word *word)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX];
    size_t len = sl_wireup_word_encode(word, bytes);

    assert_int_equal(write(fd, bytes, len), (ssize_t)len);
}

/* Accepts until the listener says something; its kind, 0 when it has hung up. */
static int hear(struct ends *e, int fd, struct sl_wireup_word *out)
{
    uint8_t bytes[SL_WIREUP_WORD_MAX];
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) < 0 && errno == EAGAIN &&
           ends_now() < end)
        assert_int_equal(net->accept(e->listen, &e->recv, NULL), SL_NCCL_SUCCESS);
    if (n <= 0)
        return 0;
    assert_true(n >= SL_WIREUP_HEAD_BYTES);
    sl_wireup_word_decode(bytes, (size_t)n, out); /* in vain, where it is sealed */
    return bytes[2];
}

/* Says hello, and proves what that session key is worth. */
static void prove(struct ends *e, int fd, const uint8_t *session)
{
    const struct sl_nccl_handle handle = handle_of(e);
    struct sl_wireup_word hello = hello_to(&handle), challenge, proof = {.kind = SL_WIREUP_PROOF};
    uint8_t key[SL_DIGEST_BYTES];

    say(fd, &hello);
    assert_int_equal(hear(e, fd, &challenge), SL_WIREUP_CHALLENGE);
    assert_int_equal(sl_wireup_key(session, &hello.hello, key), 0);
    assert_int_equal(sl_wireup_proof(key, false, &hello.hello, challenge.nonce, proof.proof), 0);
    say(fd, &proof);
}

/* What the listener does to who has read the handle, which NCCL's bootstrap carries in clear. */
static void a_handle_alone_lets_in_only_where_there_is_no_secret(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    struct sl_wireup_word word;

    (void)state;
    ends_listen(&e);
    int reader = stray(&e);

    prove(&e, reader, NULL);
    assert_int_equal(hear(&e, reader, &word),
                     getenv("SLUICE_SECRET") != NULL ? SL_WIREUP_REFUSE : SL_WIREUP_OFFER);
    close(reader);
    ends_meet(&e);
    ends_part(&e);
}

/* ---- secrets that differ ---- */

static void set_secret(const char *secret)
{
    assert_int_equal(
        secret != NULL ? setenv("SLUICE_SECRET", secret, 1) : unsetenv("SLUICE_SECRET"), 0);
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
    for (; accepted == SL_NCCL_SUCCESS && ends_now() < end; pass_ms())
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

/* Says that its secret is another one, as who has read the handle can. */
static void say_stranger(struct ends *e, int fd, const struct sl_nccl_handle *handle)
{
    struct sl_wireup_word word = hello_to(handle);

    say(fd, &word);
    assert_int_equal(hear(e, fd, &word), SL_WIREUP_CHALLENGE);
    word = (struct sl_wireup_word){.kind = SL_WIREUP_REFUSE, .code = -EACCES};
    say(fd, &word);
}

/* For longer than a listener waits for somebody better (a quarter of the time to connect). */
static void keep_accepting(struct ends *e)
{
    uint64_t end = ends_now() + SL_NS_PER_S;

    for (; ends_now() < end; pass_ms())
        assert_int_equal(net->accept(e->listen, &e->recv, NULL), SL_NCCL_SUCCESS);
}

static void who_says_that_secrets_differ_must_know_the_handle_and_come_alone(void **state)
{
    struct ends e = {.ctx = ends_open_ctx()};
    struct sl_nccl_handle handle;

    (void)state;
    ends_listen(&e);
    handle = handle_of(&e);
    int guesser = stray(&e), reader = stray(&e);

    handle.token ^= 1;
    say_stranger(&e, guesser, &handle);
    keep_accepting(&e);
    assert_null(e.recv);
    handle.token ^= 1;
    say_stranger(&e, reader, &handle);
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
    struct sl_wireup_word word;
    int scanner, guesser, silent;

    (void)state;
    ends_listen(&e);
    scanner = stray(&e);
    silent = stray(&e);
    guesser = stray(&e);
    assert_int_equal(write(scanner, "GET / HTTP/1.0\r\n\r\n", 18), 18);
    ends_warning[0] = '\0';
    prove(&e, guesser, (const uint8_t[SL_DIGEST_BYTES]){7});
    assert_int_equal(hear(&e, guesser, &word), SL_WIREUP_REFUSE);
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
    assert_int_equal(open_descriptors(),
                     before + 100); /* the test's own: the kernel keeps the silent ones */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_connects_to_itself),
        cmocka_unit_test(neither_end_ever_blocks_alone),
        cmocka_unit_test(what_is_half_connected_is_freed_with_its_context),
        cmocka_unit_test(of_two_connections_under_way_both_ends_take_the_same),
        cmocka_unit_test(a_listener_that_closed_is_a_remote_error_after_the_deadline),
        cmocka_unit_test(a_listener_that_is_there_may_accept_late),
        cmocka_unit_test(but_not_for_ever),
        cmocka_unit_test(it_is_said_that_nccls_encryption_covers_no_plugin),
        cmocka_unit_test(who_listens_does_so_where_the_handle_tells_and_nowhere_else),
        cmocka_unit_test(a_handle_alone_lets_in_only_where_there_is_no_secret),
        cmocka_unit_test(another_secret_is_told_soon_at_both_ends),
        cmocka_unit_test(who_says_that_secrets_differ_must_know_the_handle_and_come_alone),
        cmocka_unit_test(strangers_are_shown_out_and_change_nothing),
        cmocka_unit_test(strangers_without_end_fill_neither_log_nor_descriptors),
        cmocka_unit_test(a_foreign_handle_is_refused),
    };

    return cmocka_run_group_tests_name("connect", tests, before_all, after_all);
}
