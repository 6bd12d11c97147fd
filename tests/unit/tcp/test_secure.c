/* SPDX-License-Identifier: Apache-2.0 */
/* Two endpoints in one thread and, between them, somebody who listens, or changes a byte on the
 * way. */
#include "core/config.h"
#include "core/err.h"
#include "core/rng.h"
#include "tcp/config.h"
#include "tcp/tcp.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LEN 40000
#define PIPES 4
#define HEARD (1 << 20)
#define AT_ONCE 8192

extern const struct sl_transport_ops sl_tcp_ops;

/* Carries a connection to the dialled end, byte for byte but for one. */
struct pipe {
    int fd[2];
    size_t passed[2];
};

struct stage {
    struct sl_transport_ops ops;
    struct sl_config config[2];
    struct sl_worker worker[2];
    struct sl_iface *iface[2];
    struct sl_ep *ep[2];
    struct sl_req connect[2], send[2], recv[2];
    int connect_error[2], down[2];
    char why[2][256];
    int listener, dialler; /* of the one between; which end dials */
    uint16_t behind;       /* the port of the end that listens */
    struct pipe pipes[PIPES];
    unsigned pipe_count, at_pipe;
    int at_direction; /* 0: towards the listening end */
    size_t at;        /* byte to change; SIZE_MAX: none */
    size_t at_once;   /* bytes that it carries in a turn, each way of each connection */
    uint8_t with;
    bool changed;
    uint8_t *heard;
    size_t heard_len;
};

static const char *engine, *asked[2], *records[2],
    *cipher[2];                /* asked: records, by the command line */
static unsigned changes = 120; /* so many runs with a byte that is changed on the way */
static struct stage stage;
static uint8_t heard[HEARD], in[2][LEN], out[2][LEN];

/* The keys of the handshakes. */
static uint8_t keys[2 * PIPES][SL_DIGEST_BYTES];
static unsigned key_count;

int __real_sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed,
                      bool client, const uint8_t psk[SL_DIGEST_BYTES], const char *identity,
                      struct sl_tls **made);
int __wrap_sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed,
                      bool client, const uint8_t psk[SL_DIGEST_BYTES], const char *identity,
                      struct sl_tls **made);

int __wrap_sl_tls_new(struct sl_tls_context *context, const struct sl_tls_terms *agreed,
                      bool client, const uint8_t psk[SL_DIGEST_BYTES], const char *identity,
                      struct sl_tls **made)
{
    memcpy(keys[key_count++ % (2 * PIPES)], psk, SL_DIGEST_BYTES);
    return __real_sl_tls_new(context, agreed, client, psk, identity, made);
}

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    int i = ep == stage.ep[1];

    (void)arg;
    stage.down[i] = status;
    snprintf(stage.why[i], sizeof(stage.why[i]), "%s", why);
}

static void connect_over(struct sl_req *req)
{
    int i = req == &stage.connect[1];

    if (req->status != 0)
        snprintf(stage.why[i], sizeof(stage.why[i]), "%s", sluice_last_error());
}

/* tls: per end, on or off; secret: per end, 0 none. */
static int open_end(int i, bool tls, uint8_t secret)
{
    struct sl_handler handler = {.down = on_down};

    sl_config_defaults(&stage.config[i]);
    assert_int_equal(sl_config_set(&stage.config[i], "TCP_ENGINE", engine), 0);
    assert_int_equal(sl_config_set(&stage.config[i], "TCP_TLS", tls ? "on" : "off"), 0);
    assert_int_equal(sl_config_set(&stage.config[i], "INTERFACE", "lo"),
                     0); /* where the one between listens */
    assert_int_equal(sl_config_set(&stage.config[i], "TCP_TLS_RECORDS", records[i]), 0);
    assert_int_equal(sl_config_set(&stage.config[i], "TCP_TLS_CIPHER", cipher[i]), 0);
    stage.config[i].connect_timeout_ms = 3000;
    stage.worker[i] = (struct sl_worker){.clock = &sl_clock_monotonic,
                                         .config = &stage.config[i],
                                         .rank = i,
                                         .has_session = secret != 0};
    memset(stage.worker[i].session, secret, sizeof(stage.worker[i].session));
    sl_rng_init(&stage.worker[i].rng, (uint64_t)i + 1);
    int err = stage.ops.open(&stage.worker[i], NULL, &handler, &stage.iface[i]);

    if (err != 0)
        return err;
    assert_int_equal(stage.ops.ep_create(stage.iface[i], &stage.ep[i]), 0);
    stage.ep[i]->peer = !i;
    return 0;
}

static void open_between(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);

    stage.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(stage.listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(stage.listener, 8), 0);
}

/* The port in an address of tcp (docs/wire.md). */
static void redirect(struct sl_addr *addr)
{
    struct sockaddr_in own;
    socklen_t len = sizeof(own);

    stage.behind = (uint16_t)(addr->bytes[4] | addr->bytes[5] << 8);
    assert_int_equal(getsockname(stage.listener, (struct sockaddr *)&own, &len), 0);
    addr->bytes[4] = (uint8_t)ntohs(own.sin_port);
    addr->bytes[5] = (uint8_t)(ntohs(own.sin_port) >> 8);
}

static void begin(const bool tls[2], const uint8_t secret[2])
{
    struct sl_addr addr[2];

    memset(&stage, 0, sizeof(stage));
    sl_transport_complete(&sl_tcp_ops, &stage.ops);
    stage.at = SIZE_MAX;
    stage.at_once = AT_ONCE;
    stage.heard = heard;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_end(i, tls[i], secret[i]), 0);
        assert_int_equal(stage.ops.ep_addr(stage.ep[i], &addr[i]), 0);
    }
    open_between();
    stage.dialler = memcmp(addr[0].bytes + 24, addr[1].bytes + 24, SL_TCP_TOKEN_BYTES) < 0 ? 0 : 1;
    redirect(&addr[!stage.dialler]);
    for (int i = 0; i < 2; i++) {
        stage.connect[i] = (struct sl_req){.status = SL_PENDING, .done = connect_over};
        stage.connect_error[i] = stage.ops.ep_connect(stage.ep[i], &addr[!i], &stage.connect[i]);
        if (stage.connect_error[i] != 0)
            snprintf(stage.why[i], sizeof(stage.why[i]), "%s", sluice_last_error());
    }
}

static void end(void)
{
    for (int i = 0; i < 2; i++) {
        stage.ops.ep_destroy(stage.ep[i]);
        stage.ops.close(stage.iface[i]);
    }
    for (unsigned i = 0; i < stage.pipe_count; i++)
        for (int k = 0; k < 2; k++)
            close(stage.pipes[i].fd[k]);
    close(stage.listener);
}

static void new_pipe(int fd)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(stage.behind),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pipe *pipe = &stage.pipes[stage.pipe_count++];
    int one = 1;

    assert_true(stage.pipe_count <= PIPES);
    *pipe = (struct pipe){.fd = {fd, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}};
    assert_int_equal(connect(pipe->fd[1], (struct sockaddr *)&to, sizeof(to)), 0);
    for (int k = 0; k < 2; k++)
        setsockopt(pipe->fd[k], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void pump(unsigned idx, int direction)
{
    struct pipe *pipe = &stage.pipes[idx];
    uint8_t bytes[AT_ONCE];
    ssize_t n = recv(pipe->fd[direction], bytes, stage.at_once, MSG_DONTWAIT);

    if (n == 0)
        shutdown(pipe->fd[!direction], SHUT_WR);
    for (ssize_t i = 0; i < n; i++, pipe->passed[direction]++) {
        if (stage.heard_len < HEARD)
            stage.heard[stage.heard_len++] = bytes[i];
        if (idx == stage.at_pipe && direction == stage.at_direction &&
            pipe->passed[direction] == stage.at) {
            bytes[i] ^= stage.with;
            stage.changed = true;
        }
    }
    if (n > 0)
        (void)!send(pipe->fd[!direction], bytes, (size_t)n, MSG_NOSIGNAL);
}

static void turn(void)
{
    int fd = accept4(stage.listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0)
        new_pipe(fd);
    for (unsigned i = 0; i < stage.pipe_count; i++)
        for (int k = 0; k < 2; k++)
            pump(i, k);
    for (int i = 0; i < 2; i++)
        assert_true(stage.ops.progress(stage.iface[i], 16) >= 0);
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t until_end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;                       \
        while (!(cond)) {                                                                          \
            turn();                                                                                \
            if (sl_now(&sl_clock_monotonic) > until_end)                                           \
                fail_msg("timed out waiting for %s (%s / %s)", #cond, stage.why[0], stage.why[1]); \
        }                                                                                          \
    } while (0)

static bool is_over(const struct sl_req *req)
{
    return req->status != SL_PENDING;
}

static bool has_failed(int i)
{
    return stage.connect_error[i] != 0 ||
           (is_over(&stage.connect[i]) && stage.connect[i].status != 0);
}

/* Both ends are; or one has been told why not, and the other waits for its deadline. */
static bool connected(void)
{
    UNTIL(has_failed(0) || has_failed(1) ||
          (is_over(&stage.connect[0]) && is_over(&stage.connect[1])));
    return !has_failed(0) && !has_failed(1);
}

/* A message each way. True: both arrived as they were; false: somebody was told of an error. What
 * is told to have arrived is always right. */
static bool swap(void)
{
    static struct sl_sink sinks[2];
    bool well = true;

    for (int i = 0; i < 2; i++) {
        memset(in[i], 0xa0 + i, LEN);
        memset(out[i], 0, LEN);
        sinks[i] = (struct sl_sink){.dst = out[i], .len = LEN, .tag = 1};
        stage.recv[i] = stage.send[i] = (struct sl_req){.status = SL_PENDING};
        if (stage.ops.recv(stage.ep[i], &sinks[i], &stage.recv[i]) < 0)
            stage.recv[i].status = -ECONNRESET;
    }
    for (int i = 0; i < 2; i++) {
        int done =
            stage.ops.send(stage.ep[i], &(struct sl_buf){in[i], LEN, NULL}, 1, &stage.send[i]);

        if (done != 0)
            stage.send[i].status = done == 1 ? 0 : -ECONNRESET;
    }
    UNTIL((is_over(&stage.recv[0]) && is_over(&stage.recv[1])) || stage.down[0] != 0 ||
          stage.down[1] != 0);
    for (int i = 0; i < 2; i++) {
        if (stage.recv[i].status == 0)
            assert_memory_equal(out[i], in[!i], LEN);
        well &= stage.recv[i].status == 0;
    }
    return well;
}

static bool heard_run(uint8_t byte, size_t count)
{
    size_t run = 0;

    for (size_t i = 0; i < stage.heard_len && run < count; i++)
        run = stage.heard[i] == byte ? run + 1 : 0;
    return run >= count;
}

static const bool both[2] = {true, true}, none[2] = {false, false};
static const uint8_t same[2] = {7, 7};

static void who_listens_reads_messages_only_without_tls(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        begin(tls ? both : none, same);
        assert_true(connected());
        assert_true(swap());
        assert_int_equal(heard_run(0xa0, 100), !tls);
        assert_int_equal(heard_run(0xa1, 100), !tls);
        end();
    }
}

static void who_listens_reads_no_token(void **state)
{
    (void)state;
    begin(none, (const uint8_t[2]){0, 0}); /* not even without a secret */
    assert_true(connected());
    assert_true(swap());
    for (int i = 0; i < 2; i++)
        assert_null(memmem(stage.heard, stage.heard_len, ((struct sl_tcp_ep *)stage.ep[i])->token,
                           SL_TCP_TOKEN_BYTES));
    end();
}

/* The key of TLS is made as the proofs are, which travel. */
static void who_listens_reads_no_key(void **state)
{
    (void)state;
    key_count = 0;
    begin(both, same);
    assert_true(connected());
    assert_true(swap());
    assert_int_equal(key_count, 4);
    for (unsigned i = 0; i < key_count; i++)
        assert_null(memmem(stage.heard, stage.heard_len, keys[i], SL_DIGEST_BYTES));
    end();
}

/* No word of the handshakes need be there whole, nor may anything be there when somebody looks. */
static void hellos_may_come_one_byte_at_a_time(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        begin(tls ? both : none, same);
        stage.at_once = 1;
        if (!connected())
            fail_msg("%s / %s", stage.why[0], stage.why[1]);
        stage.at_once = AT_ONCE;
        assert_true(swap());
        end();
    }
}

/* How many bytes each connection carries, each way, when nothing is changed. */
static void measure(const bool tls[2], size_t passed[2][2])
{
    begin(tls, same);
    assert_true(connected());
    assert_true(swap());
    for (int idx = 0; idx < 2; idx++)
        for (int k = 0; k < 2; k++)
            passed[idx][k] = stage.pipes[idx].passed[k];
    end();
}

static void a_changed_byte_is_never_taken_for_data(void **state)
{
    size_t passed[2][2];
    unsigned noticed = 0, tries = 0;
    struct sl_rng rng;

    (void)state;
    sl_rng_init(&rng, 5);
    measure(both, passed);
    for (unsigned i = 0; i < changes; i++) {
        int idx = i % 2, direction = i / 2 % 2;
        size_t range =
            idx == 0 || i % 8 < 4 ? passed[idx][direction] : 600; /* and the handshake, densely */
        uint64_t drawn = sl_rng_u64(&rng);

        begin(both, same);
        stage.at_pipe = (unsigned)idx;
        stage.at_direction = direction;
        stage.at = drawn % range;
        stage.with = (uint8_t)(1u << (drawn >> 32) % 8);
        bool well = connected() && swap();

        tries += stage.changed;
        noticed += stage.changed && !well;
        if (stage.changed && well && stage.at_pipe == 1)
            fail_msg("byte %zu of connection %d, direction %d, bit 0x%x: nobody noticed", stage.at,
                     idx, direction, stage.with);
        end();
    }
    print_message("# %u of %u changes ended the connection\n", noticed, tries);
    assert_true(tries > changes * 2 / 3 && noticed > tries / 2);
}

/* Not as a peer that went: who reads it looks for the network, or for somebody in it. */
static void a_changed_record_is_named(void **state)
{
    size_t passed[2][2];

    (void)state;
    measure(both, passed);
    begin(both, same);
    assert_true(connected());
    stage.at_pipe = 1;
    stage.at_direction = 0;
    stage.at = passed[1][0] - 100;
    stage.with = 1;
    assert_false(swap());
    assert_true(stage.changed);
    assert_int_equal(stage.down[!stage.dialler], -EBADMSG);
    assert_non_null(strstr(stage.why[!stage.dialler], "damaged or changed on the way (TLS)"));
    end();
}

static void an_end_without_tls_is_named_on_both(void **state)
{
    (void)state;
    begin((const bool[2]){true, false}, same);
    assert_int_equal(stage.connect_error[0], -EPROTO);
    assert_int_equal(stage.connect_error[1], -EPROTO);
    assert_non_null(strstr(stage.why[0], "rank 1 at "));
    assert_non_null(strstr(stage.why[0], "speaks no TLS: set SLUICE_TCP_TLS=on on every rank"));
    assert_non_null(strstr(stage.why[1], "rank 0 at "));
    assert_non_null(strstr(stage.why[1], "speaks TLS alone"));
    end();
}

static void tls_without_a_secret_is_refused(void **state)
{
    (void)state;
    memset(&stage, 0, sizeof(stage));
    sl_transport_complete(&sl_tcp_ops, &stage.ops);
    assert_int_equal(open_end(0, true, 0), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "SLUICE_TCP_TLS is on, but there is no secret"));
}

static void another_secret_connects_nobody(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        begin(tls ? both : none, (const uint8_t[2]){7, 8});
        assert_false(connected());
        assert_non_null(
            strstr(stage.why[stage.dialler], "it cannot prove that it is the rank that was meant"));
        end();
    }
}

/* Whatever the kernel can. */
static void name_ciphers(const char *first, const char *second)
{
    cipher[0] = first;
    cipher[1] = second;
    records[0] = records[1] = "user";
}

static int name_none(void **state)
{
    (void)state;
    cipher[0] = cipher[1] = "auto";
    for (int i = 0; i < 2; i++)
        records[i] = asked[i];
    return 0;
}

static void begin_with_ciphers(const char *first, const char *second)
{
    name_ciphers(first, second);
    begin(both, same);
}

static void a_cipher_that_one_end_names_is_that_of_both(void **state)
{
    static const char *const cases[][3] = {{"aes256", "auto", "AES-256-GCM"},
                                           {"auto", "aes256", "AES-256-GCM"},
                                           {"aes256", "aes256", "AES-256-GCM"},
                                           {"chacha20", "auto", "ChaCha20-Poly1305"},
                                           {"auto", "aes128", "AES-128-GCM"}};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(cases); i++) {
        char text[400];

        begin_with_ciphers(cases[i][0], cases[i][1]);
        assert_true(connected());
        assert_true(swap());
        stage.ops.ep_describe(stage.ep[1], text, sizeof(text));
        assert_non_null(strstr(text, cases[i][2]));
        end();
    }
}

static void ends_that_name_different_ciphers_name_each_other(void **state)
{
    (void)state;
    begin_with_ciphers("aes256", "chacha20");
    assert_int_equal(stage.connect_error[0], -EPROTO);
    assert_int_equal(stage.connect_error[1], -EPROTO);
    assert_non_null(strstr(stage.why[0], "rank 1 at "));
    assert_non_null(
        strstr(stage.why[0], "has SLUICE_TCP_TLS_CIPHER=chacha20, and here it is aes256"));
    assert_non_null(
        strstr(stage.why[1], "has SLUICE_TCP_TLS_CIPHER=aes256, and here it is chacha20"));
    end();
}

/* Bit 3 of byte 6 of an address: its kernel takes no new keys. Both then speak the cipher that
 * needs none; AES is refused by the name of that end. */
static void a_kernel_whose_keys_stay_is_reckoned_with(void **state)
{
    (void)state;
    for (int aes = 0; aes < 2; aes++) {
        struct sl_tcp_ep *ep;
        struct sl_tcp_address theirs;
        struct sl_addr addr;

        name_ciphers(aes ? "aes256" : "auto", "auto");
        memset(&stage, 0, sizeof(stage));
        sl_transport_complete(&sl_tcp_ops, &stage.ops);
        for (int i = 0; i < 2; i++)
            assert_int_equal(open_end(i, true, 7), 0);
        ep = (struct sl_tcp_ep *)stage.ep[0];
        assert_int_equal(stage.ops.ep_addr(stage.ep[1], &addr), 0);
        addr.bytes[6] |= 8;
        assert_int_equal(sl_tcp_address_decode(&addr, "rank 1", &theirs), 0);
        assert_int_equal(sl_tcp_agree(ep, &theirs), aes ? -EPROTO : 0);
        if (aes) {
            assert_non_null(
                strstr(sluice_last_error(), "SLUICE_TCP_TLS_CIPHER=aes256 needs keys that change"));
            assert_non_null(strstr(sluice_last_error(), "the kernel of rank 1 at "));
        } else {
            assert_true(ep->tls_terms.keys_stay);
        }
        for (int i = 0; i < 2; i++) {
            stage.ops.ep_destroy(stage.ep[i]);
            stage.ops.close(stage.iface[i]);
        }
    }
}

/* Bit 1 of byte 10 of the hello says TLS; its sum is put right. */
static void nobody_on_the_way_can_turn_tls_off(void **state)
{
    struct sl_tcp_hello hello = {.version = SL_TCP_WIRE_VERSION, .conn_count = 1, .tls = true};
    uint8_t bytes[2][SL_TCP_HELLO_BYTES];

    (void)state;
    sl_tcp_hello_encode(&hello, bytes[0]);
    hello.tls = false;
    sl_tcp_hello_encode(&hello, bytes[1]);
    assert_int_equal(bytes[0][10] ^ bytes[1][10], 2);
    begin(both, same);
    stage.at_direction = 0;
    stage.at = 10;
    stage.with = 2;
    assert_false(connected());
    end();
}

/* [ENGINE [RECORDS of one end [RECORDS of the other [CHANGES]]]] */
int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_reads_no_token),
        cmocka_unit_test(who_listens_reads_no_key),
        cmocka_unit_test(hellos_may_come_one_byte_at_a_time),
        cmocka_unit_test(another_secret_connects_nobody),
        cmocka_unit_test(who_listens_reads_messages_only_without_tls),
        cmocka_unit_test(a_changed_byte_is_never_taken_for_data),
        cmocka_unit_test(a_changed_record_is_named),
        cmocka_unit_test(an_end_without_tls_is_named_on_both),
        cmocka_unit_test_teardown(a_cipher_that_one_end_names_is_that_of_both, name_none),
        cmocka_unit_test_teardown(ends_that_name_different_ciphers_name_each_other, name_none),
        cmocka_unit_test_teardown(a_kernel_whose_keys_stay_is_reckoned_with, name_none),
        cmocka_unit_test(tls_without_a_secret_is_refused),
        cmocka_unit_test(nobody_on_the_way_can_turn_tls_off),
    };
    struct sl_tls_context *context;
    struct sl_config config;

    sl_config_defaults(&config);
    engine = argc > 1 ? argv[1] : "epoll";
    for (int i = 0; i < 2; i++)
        asked[i] = argc > 2 + i ? argv[2 + i] : "user";
    name_none(NULL);
    if (argc > 4)
        changes = (unsigned)atoi(argv[4]);
    assert_int_equal(sl_config_set(&config, "TCP_TLS_RECORDS", records[0]), 0);
    if (sl_tls_context_open(sl_tcp_config(&config)->tls_records, SL_TLS_CIPHER_AUTO, &context) !=
        0) {
        print_message("1..0 # SKIP %s\n", sluice_last_error());
        return 0;
    }
    sl_tls_context_close(context);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
