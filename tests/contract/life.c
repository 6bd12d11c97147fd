/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: endpoints that connect, fail to connect, are lost and are destroyed. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/stage.h"
#include "tests/fake/faulty.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

static void check_traffic(struct pair *p, uint64_t tag)
{
    for (unsigned s = 0; s < 2; s++) {
        struct msg *send = msg_send(&p->side[s], 3000, tag),
                   *recv = msg_recv(&p->side[!s], 3000, tag);

        post_recv(p, recv, NULL);
        post_send(p, send, NULL);
        PUMP_UNTIL(p, send->ended && recv->ended);
        msg_check_received(recv);
        msg_free(send);
        msg_free(recv);
    }
}

static void endpoints_connect_again_after_destroy(void **state)
{
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < 5; i++) {
        check_traffic(&p, i);
        for (unsigned s = 0; s < 2; s++) {
            contract_ops->ep_destroy(p.side[(i + s) % 2].ep);
            for (unsigned k = 0; k < i; k++)
                pair_pump(&p);
        }
        pair_join(&p, &p.side[0].ep, &p.side[1].ep);
    }
    check_traffic(&p, 99);
    pair_close(&p);
}

static void destroy_takes_null_and_unconnected_endpoints(void **state)
{
    struct sl_addr addr;
    struct sl_ep *ep;
    struct pair p;

    (void)state;
    pair_open(&p);
    contract_ops->ep_destroy(NULL);
    assert_int_equal(contract_ops->ep_create(p.side[0].iface, &ep), 0);
    contract_ops->ep_destroy(ep);
    assert_int_equal(contract_ops->ep_create(p.side[0].iface, &ep), 0);
    assert_int_equal(contract_ops->ep_addr(ep, &addr), 0);
    contract_ops->ep_destroy(ep);
    pair_close(&p);
}

static void destroy_ends_what_is_pending_once(void **state)
{
    enum { N = 6 };
    struct msg *recv[N], *send[N];
    unsigned sends = 0;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++) {
        recv[i] = i % 2 ? msg_consume(&p.side[0], 5000 * i, i, 4, false)
                        : msg_recv(&p.side[0], 5000 * i, i);
        post_recv(&p, recv[i], NULL);
    }
    for (; sends < N; sends++) {
        send[sends] = msg_send(&p.side[0], 3u << 20, sends);
        if (try_send(send[sends], NULL) < 0)
            break;
    }
    if (sends < N)
        msg_free(send[sends]);
    for (int i = 0; i < 50; i++)
        pair_pump(&p);
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    for (unsigned i = 0; i < N; i++)
        msg_check_ended(recv[i], -ECANCELED);
    for (unsigned i = 0; i < sends; i++) {
        assert_int_equal(send[i]->ended, 1);
        assert_true(send[i]->req.status == 0 || send[i]->req.status == -ECANCELED);
    }
    /* The last could not have gone: nobody received anything of 3 MiB times N. */
    if (sends == N)
        msg_check_ended(send[N - 1], -ECANCELED);
    assert_int_equal(p.side[0].downs, 0);
    for (int i = 0; i < 200; i++)
        pair_pump(&p);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(recv[i]->ended, 1);
        msg_free(recv[i]);
    }
    for (unsigned i = 0; i < sends; i++) {
        assert_int_equal(send[i]->ended, 1);
        msg_free(send[i]);
    }
    pair_close(&p);
}

/* Only where the loss can be made to come at a known moment: under faulty.c. */
static void a_broken_endpoint_is_told_before_its_requests_end(void **state)
{
    struct msg *recv[2], *late;
    struct pair p;
    char text[80];

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < 2; i++) {
        recv[i] = msg_recv(&p.side[0], 100, i);
        post_recv(&p, recv[i], NULL);
    }
    faulty_break(p.side[0].ep);
    assert_int_equal(p.side[0].downs, 0);
    PUMP_UNTIL(&p, p.side[0].downs == 1 && recv[0]->ended && recv[1]->ended);
    assert_ptr_equal(p.side[0].down_ep, p.side[0].ep);
    assert_int_equal(p.side[0].down_status, -ECONNRESET);
    assert_int_equal(p.side[0].ended_at_down, 0);
    for (unsigned i = 0; i < 2; i++)
        msg_check_ended(recv[i], -ECONNRESET);
    late = msg_recv(&p.side[0], 8, 9);
    assert_int_equal(try_recv(late, NULL), -ECONNRESET);
    contract_ops->ep_describe(p.side[0].ep, text, sizeof(text));
    assert_non_null(strstr(text, "lost"));
    PUMP_UNTIL(&p, p.side[1].downs == 1);
    assert_int_equal(p.side[0].downs, 1);
    for (unsigned i = 0; i < 2; i++)
        msg_free(recv[i]);
    msg_free(late);
    pair_close(&p);
}

static void data_flows_after_listening_has_stopped(void **state)
{
    struct msg *recv, *send;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < 2; i++)
        contract_ops->stop_listening(p.side[i].iface);
    contract_ops->stop_listening(p.side[0].iface); /* once more does no harm */
    recv = msg_recv(&p.side[0], 100000, 5);
    send = msg_send(&p.side[1], 100000, 5);
    post_recv(&p, recv, NULL);
    post_send(&p, send, NULL);
    PUMP_UNTIL(&p, recv->ended && send->ended);
    msg_check_received(recv);
    msg_free(recv);
    msg_free(send);
    assert_int_equal(p.side[0].downs + p.side[1].downs, 0);
    pair_close(&p);
}

static void destroy_cancels_a_connect_under_way(void **state)
{
    struct sl_req req = {.status = SL_PENDING};
    struct sl_addr addr;
    struct sl_ep *a, *b;
    struct pair p;
    int rc;

    (void)state;
    pair_open(&p);
    assert_int_equal(contract_ops->ep_create(p.side[0].iface, &a), 0);
    assert_int_equal(contract_ops->ep_create(p.side[1].iface, &b), 0);
    assert_int_equal(contract_ops->ep_addr(b, &addr), 0);
    rc = contract_ops->ep_connect(a, &addr, &req);
    assert_int_equal(rc, 0);
    contract_ops->ep_destroy(a);
    assert_true(req.status == -ECANCELED || req.status == 0);
    contract_ops->ep_destroy(b);
    pair_close(&p);
}

static void the_peer_of_a_lost_endpoint_hears_it_once(void **state)
{
    struct msg *recv[3], *send;
    struct pair p;
    int rc = -EAGAIN;

    (void)state;
    pair_connect(&p);
    check_traffic(&p, 1);
    for (unsigned i = 0; i < 3; i++) {
        recv[i] = msg_recv(&p.side[1], 100 + i, i);
        post_recv(&p, recv[i], NULL);
    }
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    PUMP_UNTIL(&p, p.side[1].downs > 0 && recv[0]->ended && recv[1]->ended && recv[2]->ended);
    assert_ptr_equal(p.side[1].down_ep, p.side[1].ep);
    assert_int_equal(p.side[1].down_status, -ECONNRESET);
    assert_int_equal(p.side[1].ended_at_down, 0);
    assert_int_not_equal(strlen(p.side[1].why), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(recv[i]->ended, 1);
        assert_true(recv[i]->req.status < 0);
        msg_free(recv[i]);
    }
    /* A lost endpoint says so to every call, and takes nothing. */
    send = msg_send(&p.side[1], 10, 1);
    PUMP_UNTIL(&p, (rc = try_send(send, NULL)) != -EAGAIN);
    assert_true(rc < 0);
    PUMP_UNTIL(&p, (rc = try_recv(send, NULL)) != -EAGAIN);
    assert_true(rc < 0);
    for (int i = 0; i < 200; i++)
        pair_pump(&p);
    assert_int_equal(send->ended, 0);
    assert_int_equal(p.side[1].downs, 1);
    assert_int_equal(p.side[0].downs, 0);
    msg_free(send);
    pair_close(&p);
}

/* What the peer said meanwhile and nobody read must not turn the end into a reset, which overtakes
 * what was sent. */
static void what_was_sent_arrives_though_its_sender_has_not_read_all(void **state)
{
    enum { N = 16, LEN = 65536 };
    struct msg *unread, *send[N], *recv[N];
    unsigned sent = 0, done = 0;
    struct pair p;

    (void)state;
    pair_connect(&p);
    unread = msg_send(&p.side[1], 2000, 1);
    if (try_send(unread, NULL) == -EAGAIN)
        unread->ended = 1;
    for (; sent < N; sent++) {
        send[sent] = msg_send(&p.side[0], LEN, sent);
        if (try_send(send[sent], NULL) != 1)
            break;
    }
    done = sent;
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    for (unsigned i = 0; i < done; i++) {
        recv[i] = msg_recv(&p.side[1], LEN, i);
        post_recv(&p, recv[i], NULL);
        PUMP_UNTIL(&p, recv[i]->ended);
        msg_check_received(recv[i]);
        msg_free(recv[i]);
    }
    PUMP_UNTIL(&p, unread->ended);
    for (unsigned i = 0; i < sent + (sent < N); i++)
        msg_free(send[i]);
    msg_free(unread);
    pair_close(&p);
}

/* Whoever sleeps when progress finds nothing to do would not look at the request. */
static void loss_is_progress(bool unread)
{
    struct msg *send = NULL, *recv[2];
    struct pair p;
    int moved = 0;

    pair_connect(&p);
    for (unsigned i = 0; i < 2; i++)
        recv[i] = msg_recv(&p.side[1], 100, i);
    if (unread) { /* then the loss is told later than it is known */
        send = msg_send(&p.side[0], 100, 0);
        post_send(&p, send, NULL);
        PUMP_UNTIL(&p, send->ended);
    }
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    if (unread) {
        for (int i = 0; i < 200; i++)
            pair_pump(&p);
        post_recv(&p, recv[0], NULL);
        PUMP_UNTIL(&p, recv[0]->ended);
        msg_check_received(recv[0]);
        msg_free(send);
    }
    moved = try_recv(recv[1], NULL);
    for (pair_wait_begin(&p); moved >= 0 && !recv[1]->ended;
         pair_wait_check(&p, "recv[1]->ended", __FILE__, __LINE__)) {
        contract_ops->progress(p.side[0].iface, 64);
        moved = contract_ops->progress(p.side[1].iface, 64);
        if (moved == 0 && !recv[1]->ended)
            stage_idle();
    }
    assert_int_not_equal(moved, 0);
    for (unsigned i = 0; i < 2; i++)
        msg_free(recv[i]);
    pair_close(&p);
}

static void a_request_that_a_loss_ends_is_progress(void **state)
{
    (void)state;
    loss_is_progress(false);
    loss_is_progress(true);
}

static void an_idle_endpoint_hears_of_its_loss_too(void **state)
{
    struct pair p;

    (void)state;
    pair_connect(&p);
    contract_ops->ep_destroy(p.side[1].ep);
    p.side[1].ep = NULL;
    PUMP_UNTIL(&p, p.side[0].downs > 0);
    for (int i = 0; i < 200; i++)
        pair_pump(&p);
    assert_int_equal(p.side[0].downs, 1);
    pair_close(&p);
}

/* What was sent is not lost with the endpoint, whether or not it waits for something itself. */
static void send_and_destroy(bool waits)
{
    struct msg *send[3], *recv[3], *waiting = NULL;
    struct pair p;

    pair_connect(&p);
    if (waits) {
        waiting = msg_recv(&p.side[0], 64, 7);
        post_recv(&p, waiting, NULL);
    }
    for (unsigned i = 0; i < 3; i++) {
        send[i] = msg_send(&p.side[0], 20 + i * 500, i);
        post_send(&p, send[i], NULL);
    }
    for (unsigned i = 0; i < 3; i++) {
        PUMP_UNTIL(&p, send[i]->ended);
        msg_check_ended(send[i], 0);
    }
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    if (waits) {
        msg_check_ended(waiting, -ECANCELED);
        msg_free(waiting);
    }
    for (unsigned i = 0; i < 3; i++) {
        recv[i] = msg_recv(&p.side[1], 20 + i * 500, i);
        post_recv(&p, recv[i], NULL);
    }
    for (unsigned i = 0; i < 3; i++) {
        PUMP_UNTIL(&p, recv[i]->ended);
        msg_check_received(recv[i]);
        msg_free(recv[i]);
        msg_free(send[i]);
    }
    PUMP_UNTIL(&p, p.side[1].downs == 1);
    pair_close(&p);
}

static void what_was_sent_before_a_destroy_still_arrives(void **state)
{
    (void)state;
    send_and_destroy(false);
}

static void so_it_does_when_a_receive_is_posted(void **state)
{
    (void)state;
    send_and_destroy(true);
}

/* Connecting ends in an error, not in a hang or a crash: at once, or in req within the time
 * limit. */
static void check_refused(struct pair *p, const struct sl_addr *addr)
{
    struct sl_req req = {.status = SL_PENDING};
    struct sl_ep *ep;
    int rc;

    assert_int_equal(contract_ops->ep_create(p->side[0].iface, &ep), 0);
    rc = contract_ops->ep_connect(ep, addr, &req);
    if (rc == 0) {
        PUMP_UNTIL(p, req.status != SL_PENDING);
        rc = req.status;
    }
    assert_true(rc == -EPROTO || rc == -EINVAL || rc == -ECONNREFUSED || rc == -ETIMEDOUT ||
                rc == -EHOSTUNREACH || rc == -ECONNRESET);
    contract_ops->ep_destroy(ep);
}

static void an_address_of_another_version_is_refused(void **state)
{
    struct sl_addr good, bad;
    struct sl_ep *peer;
    struct pair p;

    (void)state;
    pair_open(&p);
    assert_int_equal(contract_ops->ep_create(p.side[1].iface, &peer), 0);
    assert_int_equal(contract_ops->ep_addr(peer, &good), 0);
    /* By convention the first byte tells the version of the rest. */
    bad = good;
    bad.bytes[0] ^= 0x7f;
    check_refused(&p, &bad);
    for (unsigned len = 0; len < good.len; len += good.len / 3 + 1) {
        bad = good;
        bad.len = (uint16_t)len;
        check_refused(&p, &bad);
    }
    contract_ops->ep_destroy(peer);
    /* The interface is none the worse for it. */
    pair_join(&p, &p.side[0].ep, &p.side[1].ep);
    check_traffic(&p, 3);
    pair_close(&p);
}

static void an_address_whose_owner_is_gone_is_refused_in_time(void **state)
{
    struct sl_addr addr;
    struct sl_ep *peer;
    struct pair p;

    (void)state;
    pair_open(&p);
    assert_int_equal(contract_ops->ep_create(p.side[1].iface, &peer), 0);
    assert_int_equal(contract_ops->ep_addr(peer, &addr), 0);
    contract_ops->ep_destroy(peer);
    check_refused(&p, &addr);
    pair_close(&p);
}

int contract_life_cases(void)
{
    static const struct contract_case cases[] = {
        {0, cmocka_unit_test(endpoints_connect_again_after_destroy)},
        {0, cmocka_unit_test(destroy_takes_null_and_unconnected_endpoints)},
        {0, cmocka_unit_test(destroy_ends_what_is_pending_once)},
        {CONTRACT_FAULTY, cmocka_unit_test(a_broken_endpoint_is_told_before_its_requests_end)},
        {0, cmocka_unit_test(data_flows_after_listening_has_stopped)},
        {0, cmocka_unit_test(destroy_cancels_a_connect_under_way)},
        {0, cmocka_unit_test(the_peer_of_a_lost_endpoint_hears_it_once)},
        {0, cmocka_unit_test(what_was_sent_arrives_though_its_sender_has_not_read_all)},
        {0, cmocka_unit_test(a_request_that_a_loss_ends_is_progress)},
        {0, cmocka_unit_test(an_idle_endpoint_hears_of_its_loss_too)},
        {0, cmocka_unit_test(what_was_sent_before_a_destroy_still_arrives)},
        {0, cmocka_unit_test(so_it_does_when_a_receive_is_posted)},
        {0, cmocka_unit_test(an_address_of_another_version_is_refused)},
        {0, cmocka_unit_test(an_address_whose_owner_is_gone_is_refused_in_time)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
