/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the peer's addresses is dialled, and for how long: two endpoints in one thread, and time
 * as the test says. */
#include "wire_peer.h"

#include "core/err.h"
#include "tcp/proof.h"
#include "tcp/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#include "tests/util/dead_place.h"

static const char *engine;

/* No memory for the proof of an end that dials; so often it was asked for. */
static bool lacks_memory;
static unsigned lacked;

int __real_sl_tcp_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], enum sl_tcp_proof what,
                             const uint8_t hello[SL_TCP_HELLO_BYTES], const uint8_t *answer,
                             uint8_t out[SL_DIGEST_BYTES]);
int __wrap_sl_tcp_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], enum sl_tcp_proof what,
                             const uint8_t hello[SL_TCP_HELLO_BYTES], const uint8_t *answer,
                             uint8_t out[SL_DIGEST_BYTES]);

int __wrap_sl_tcp_proof_make(const uint8_t link_key[SL_DIGEST_BYTES], enum sl_tcp_proof what,
                             const uint8_t hello[SL_TCP_HELLO_BYTES], const uint8_t *answer,
                             uint8_t out[SL_DIGEST_BYTES])
{
    if (!lacks_memory || what != SL_TCP_PROOF_DIALLER)
        return __real_sl_tcp_proof_make(link_key, what, hello, answer, out);
    lacked++;
    return sl_fail(-ENOMEM, "no memory to compute a proof of membership");
}

/* Time stands still between pass() and pass(), however slow the machine is. */
static uint64_t start_ns;

static uint64_t still(const struct sl_clock *clock)
{
    return start_ns + sl_container_of((uintptr_t)clock, struct wire, clock)->skew_ns;
}

static void progress_both(struct wire *a, struct wire *b)
{
    wire_progress(a);
    wire_progress(b);
}

static void pass(struct wire *a, struct wire *b, uint64_t ns)
{
    a->skew_ns += ns;
    b->skew_ns += ns;
}

static bool dials(const struct wire *w, const struct wire *other)
{
    return memcmp(w->addr.bytes + 24, other->addr.bytes + 24, SL_TCP_TOKEN_BYTES) < 0;
}

/* The peer's address, had it another one on this host, which comes at place `at` of the two;
 * *nowhere is that one. */
static struct sl_addr beside_another(const struct sl_addr *addr, unsigned at,
                                     struct sockaddr_in *nowhere)
{
    struct sl_tcp_address address;
    struct sl_addr out;

    assert_int_equal(sl_tcp_address_decode(addr, "the peer", &address), 0);
    *nowhere = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons(address.port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    address.count = 2;
    memset(address.places, 0, sizeof(address.places));
    memcpy(&address.places[0].addr, nowhere, sizeof(*nowhere));
    memcpy(&address.places[1].addr, nowhere, sizeof(*nowhere));
    ((struct sockaddr_in *)&address.places[1 - at].addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.places[0].loopback = address.places[1].loopback = true;
    sl_tcp_address_encode(&address, &out);
    return out;
}

static void open_with(struct wire *a, struct wire *b, const char *const *settings)
{
    wire_open(a, engine, settings);
    wire_open(b, engine, settings);
    start_ns = sl_now(&sl_clock_monotonic);
    a->clock.now_ns = b->clock.now_ns = still;
}

static void open_both(struct wire *a, struct wire *b, const char *timeout_ms)
{
    open_with(a, b, (const char *const[]){"CONNECT_TIMEOUT_MS", timeout_ms, NULL});
}

static void both_connect(struct wire *a, struct wire *b)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;

    while ((a->connect.status == SL_PENDING || b->connect.status == SL_PENDING) &&
           sl_now(&sl_clock_monotonic) < end)
        progress_both(a, b);
    assert_int_equal(a->connect.status, 0);
    assert_int_equal(b->connect.status, 0);
    wire_close(a);
    wire_close(b);
}

/* The first of two addresses is dead: it has place_ns of timeout_ms, then the other is dialled. */
static void connect_at_the_second(const char *timeout_ms, uint64_t place_ns)
{
    struct wire a, b;
    struct dead_place dead;
    struct sockaddr_in nowhere;

    open_both(&a, &b, timeout_ms);
    struct wire *dialler = dials(&a, &b) ? &a : &b, *listener = dialler == &a ? &b : &a;
    struct sl_addr addr = beside_another(&listener->addr, 0, &nowhere);

    dead_place_open(&dead, &nowhere, sizeof(nowhere));
    assert_int_equal(dialler->ops.ep_connect(dialler->ep, &addr, &dialler->connect), 0);
    assert_int_equal(listener->ops.ep_connect(listener->ep, &dialler->addr, &listener->connect), 0);
    pass(&a, &b, place_ns * 8 / 10);
    for (unsigned i = 0; i < 20; i++)
        progress_both(&a, &b);
    assert_int_equal(dialler->connect.status, SL_PENDING);
    pass(&a, &b, place_ns * 2 / 10);
    both_connect(&a, &b);
    dead_place_close(&dead);
}

static void a_dead_first_address_has_five_seconds(void **state)
{
    (void)state;
    connect_at_the_second("30000", 5 * SL_NS_PER_S);
}

static void and_no_more_than_its_share_of_the_time(void **state)
{
    (void)state;
    connect_at_the_second("6000", 3 * SL_NS_PER_S);
}

/* The address that took the connection is tried again when the other turns out to be no place at
 * all. */
static void an_address_whose_rank_is_late_has_another_turn(void **state)
{
    struct wire a, b;
    struct sockaddr_in nowhere;

    (void)state;
    open_both(&a, &b, "6000");
    struct wire *dialler = dials(&a, &b) ? &a : &b, *listener = dialler == &a ? &b : &a;
    struct sl_addr addr = beside_another(&listener->addr, 1, &nowhere);

    assert_int_equal(dialler->ops.ep_connect(dialler->ep, &addr, &dialler->connect), 0);
    for (unsigned i = 0; i < 1000; i++)
        progress_both(&a, &b);
    pass(&a, &b, 3 * SL_NS_PER_S);
    for (unsigned i = 0; i < 1000; i++)
        progress_both(&a, &b);
    assert_int_equal(dialler->connect.status, SL_PENDING);
    assert_int_equal(listener->ops.ep_connect(listener->ep, &dialler->addr, &listener->connect), 0);
    both_connect(&a, &b);
}

static enum sl_tcp_conn_state control_state(const struct wire *w)
{
    return (enum sl_tcp_conn_state)((const struct sl_tcp_ep *)w->ep)->conns[0].state;
}

/* Until the dialling end's control connection is that far; then the other end has not moved. */
static void connect_until(struct wire *dialler, struct wire *listener, const struct sl_addr *addr,
                          enum sl_tcp_conn_state state)
{
    uint64_t end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;

    assert_int_equal(dialler->ops.ep_connect(dialler->ep, addr, &dialler->connect), 0);
    assert_int_equal(listener->ops.ep_connect(listener->ep, &dialler->addr, &listener->connect), 0);
    for (wire_progress(dialler); control_state(dialler) < state; wire_progress(dialler)) {
        assert_true(sl_now(&sl_clock_monotonic) < end);
        wire_progress(listener);
    }
    assert_int_equal(control_state(dialler), state);
}

/* The listening end cannot compare the proof, and shows the connection out. The other end, for
 * which it was good, hears of it at once: before all of them are open, or after. */
static void a_proof_that_is_not_compared_for_want_of_memory_is_not_waited_for(void **state)
{
    struct wire a, b;

    (void)state;
    open_both(&a, &b, "30000");
    struct wire *dialler = dials(&a, &b) ? &a : &b, *listener = dialler == &a ? &b : &a;

    connect_until(dialler, listener, &listener->addr, SL_TCP_OPEN);
    lacks_memory = true;
    lacked = 0;
    WIRE_UNTIL(listener, lacked > 0);
    lacks_memory = false;
    for (uint64_t end = sl_now(&sl_clock_monotonic) + 20 * SL_NS_PER_S;
         dialler->connect.status != -ECONNREFUSED && dialler->downs == 0; progress_both(&a, &b))
        assert_true(sl_now(&sl_clock_monotonic) < end);
    assert_true(listener->iface->lacked_memory);
    wire_close(&a);
    wire_close(&b);
}

/* On a busy machine a TLS handshake may take longer than the time of one address. */
static void who_has_proved_itself_has_all_of_the_time(void **state)
{
    static const char *const settings[] = {
        "CONNECT_TIMEOUT_MS", "6000", "TCP_TLS", "on", "SECRET", "of all", NULL};
    struct sl_tls_context *tls;
    struct wire a, b;
    struct sockaddr_in nowhere;

    (void)state;
    if (sl_tls_context_open(SL_TLS_RECORDS_USER, SL_TLS_CIPHER_AUTO, &tls) != 0) {
        print_message("no OpenSSL here\n");
        skip();
    }
    sl_tls_context_close(tls);
    open_with(&a, &b, settings);
    struct wire *dialler = dials(&a, &b) ? &a : &b, *listener = dialler == &a ? &b : &a;
    struct sl_addr addr = beside_another(&listener->addr, 1, &nowhere);

    connect_until(dialler, listener, &addr, SL_TCP_SECURING);
    pass(&a, &b, 3 * SL_NS_PER_S);
    for (unsigned i = 0; i < 20; i++)
        wire_progress(dialler);
    both_connect(&a, &b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_first_address_has_five_seconds),
        cmocka_unit_test(and_no_more_than_its_share_of_the_time),
        cmocka_unit_test(an_address_whose_rank_is_late_has_another_turn),
        cmocka_unit_test(a_proof_that_is_not_compared_for_want_of_memory_is_not_waited_for),
        cmocka_unit_test(who_has_proved_itself_has_all_of_the_time),
    };

    engine = argc > 1 ? argv[1] : "epoll";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
