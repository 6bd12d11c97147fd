/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases: memory that peers map or read, and waiters that sleep and are woken. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/stage.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

static void a_mapped_region_is_shared_both_ways(void **state)
{
    enum { LEN = 300000 };
    struct sl_mem mem[2];
    struct sl_mr *mr[2];
    struct sl_key key[2];
    unsigned char *seen[2];
    struct pair p;
    int rc = 0;

    (void)state;
    pair_connect(&p);
    for (unsigned s = 0; s < 2; s++) {
        assert_int_equal(contract_ops->mem_alloc(p.side[s].iface, LEN, LEN, &mem[s]), 0);
        assert_int_equal((uintptr_t)mem[s].addr % 4096, 0);
        assert_true(mem[s].len >= LEN);
        for (size_t i = 0; i < LEN; i++)
            assert_int_equal(((unsigned char *)mem[s].addr)[i], 0);
        assert_int_equal(contract_ops->mr_reg(p.side[s].iface, &mem[s], &mr[s], &key[s]), 0);
        assert_in_range(key[s].len, 1, SL_KEY_MAX);
    }
    for (unsigned s = 0; s < 2; s++) {
        void *ptr;

        PUMP_UNTIL(&p, (rc = contract_ops->map(p.side[s].ep, &key[!s], LEN, &ptr)) != -EAGAIN);
        assert_int_equal(rc, 0);
        seen[s] = ptr;
    }
    for (unsigned s = 0; s < 2; s++) {
        volatile unsigned char *own = mem[s].addr, *other = seen[!s];

        own[0] = 10;
        own[LEN - 1] = 20;
        other[5] = 30;
        assert_int_equal(other[0], 10);
        assert_int_equal(other[LEN - 1], 20);
        assert_int_equal(own[5], 30);
    }
    for (unsigned s = 0; s < 2; s++)
        contract_ops->unmap(p.side[s].ep, seen[s]);
    for (unsigned s = 0; s < 2; s++) {
        contract_ops->mr_dereg(p.side[s].iface, mr[s]);
        contract_ops->mem_free(p.side[s].iface, &mem[s]);
    }
    pair_close(&p);
}

static void a_map_lasts_until_its_endpoint_is_destroyed(void **state)
{
    struct sl_mem mem;
    struct sl_mr *mr;
    struct sl_key key, bad;
    struct pair p;
    void *ptr;
    int rc = 0;

    (void)state;
    pair_connect(&p);
    assert_int_equal(contract_ops->mem_alloc(p.side[0].iface, 4096, 4096, &mem), 0);
    assert_int_equal(contract_ops->mr_reg(p.side[0].iface, &mem, &mr, &key), 0);
    bad = key;
    memset(bad.bytes, 0xee, sizeof(bad.bytes));
    for (int i = 0; i < 50; i++) {
        rc = contract_ops->map(p.side[1].ep, &bad, 4096, &ptr);
        assert_true(rc < 0);
        pair_pump(&p);
    }
    PUMP_UNTIL(&p, (rc = contract_ops->map(p.side[1].ep, &key, 4097, &ptr)) != -EAGAIN);
    assert_int_equal(rc, -EPROTO); /* a region that has less than its user will touch */
    PUMP_UNTIL(&p, (rc = contract_ops->map(p.side[1].ep, &key, 4096, &ptr)) != -EAGAIN);
    assert_int_equal(rc, 0);
    *(volatile int *)mem.addr = 42;
    assert_int_equal(*(volatile int *)ptr, 42);
    contract_ops->ep_destroy(p.side[1].ep);
    p.side[1].ep = NULL;
    contract_ops->mr_dereg(p.side[0].iface, mr);
    contract_ops->mem_free(p.side[0].iface, &mem);
    pair_close(&p);
}

static void reads_copy_the_peers_memory(void **state)
{
    static const size_t sizes[] = {1, 100, 4096, 70000, 3u << 20};
    unsigned char *from = malloc(3u << 20), *to = malloc(3u << 20);
    struct pair p;
    int rc = 0;

    (void)state;
    for (size_t i = 0; i < 3u << 20; i++)
        from[i] = (unsigned char)(i * 31 + (i >> 9));
    pair_connect(&p);
    for (unsigned i = 0; i < SL_ARRAY_LEN(sizes); i++) {
        struct sl_req req = {.status = SL_PENDING};

        memset(to, 0, sizes[i]);
        PUMP_UNTIL(&p, (rc = contract_ops->read(p.side[1].ep, (uintptr_t)from, to, sizes[i],
                                                &req)) != -EAGAIN);
        assert_true(rc >= 0);
        PUMP_UNTIL(&p, req.status != SL_PENDING);
        assert_int_equal(req.status, 0);
        assert_memory_equal(to, from, sizes[i]);
    }
    free(from);
    free(to);
    pair_close(&p);
}

static bool readable(struct sl_iface *iface, int timeout_ms)
{
    struct pollfd fd = {.fd = contract_ops->fd(iface), .events = POLLIN};

    assert_true(fd.fd >= 0);
    return poll(&fd, 1, timeout_ms) == 1;
}

/* Progress until arm() says that it is safe to sleep. */
static void fall_asleep(struct pair *p, struct side *s)
{
    int rc = -EAGAIN;

    PUMP_UNTIL(p, (rc = contract_ops->arm(s->iface)) != -EAGAIN);
    assert_int_equal(rc, 0);
}

static void a_sleeper_is_woken_by_a_message(void **state)
{
    struct msg *send, *recv;
    struct pair p;

    (void)state;
    pair_connect(&p);
    for (unsigned i = 0; i < 20; i++) {
        size_t len = i % 2 ? 30 : 200000;

        recv = msg_recv(&p.side[1], len, i);
        send = msg_send(&p.side[0], len, i);
        post_recv(&p, recv, NULL);
        fall_asleep(&p, &p.side[1]);
        /* Only the sender makes progress while the receiver sleeps. */
        pair_wait_begin(&p);
        while (try_send(send, NULL) == -EAGAIN) {
            contract_ops->progress(p.side[0].iface, 64);
            pair_wait_check(&p, "the send is taken", __FILE__, __LINE__);
        }
        while (!readable(p.side[1].iface, 1)) {
            contract_ops->progress(p.side[0].iface, 64);
            pair_wait_check(&p, "the sleeper's descriptor is readable", __FILE__, __LINE__);
        }
        contract_ops->disarm(p.side[1].iface);
        PUMP_UNTIL(&p, recv->ended && send->ended);
        msg_check_received(recv);
        msg_free(recv);
        msg_free(send);
    }
    pair_close(&p);
}

static void work_that_slipped_in_keeps_a_waiter_awake(void **state)
{
    struct msg *send = NULL, *recv = NULL;
    struct pair p;
    int rc;

    (void)state;
    pair_connect(&p);
    recv = msg_recv(&p.side[1], 30, 1);
    send = msg_send(&p.side[0], 30, 1);
    post_recv(&p, recv, NULL);
    post_send(&p, send, NULL);
    for (int i = 0; i < 50; i++)
        contract_ops->progress(p.side[0].iface, 64);
    /* The message is there, or on its way: arm() refuses, or the descriptor tells. */
    rc = contract_ops->arm(p.side[1].iface);
    assert_true(rc == -EAGAIN || (rc == 0 && readable(p.side[1].iface, 5000)));
    if (rc == 0)
        contract_ops->disarm(p.side[1].iface);
    PUMP_UNTIL(&p, recv->ended && send->ended);
    msg_check_received(recv);
    msg_free(recv);
    msg_free(send);
    pair_close(&p);
}

static void a_sleeper_is_woken_by_control_and_by_loss(void **state)
{
    struct pair p;
    int rc = 0;

    (void)state;
    pair_connect(&p);
    fall_asleep(&p, &p.side[1]);
    pair_wait_begin(&p);
    while ((rc = contract_ops->ctrl(p.side[0].ep, "hello", 5)) == -EAGAIN) {
        contract_ops->progress(p.side[0].iface, 64);
        pair_wait_check(&p, "control is taken", __FILE__, __LINE__);
    }
    assert_int_equal(rc, 0);
    pair_wait_begin(&p);
    while (!readable(p.side[1].iface, 1)) {
        contract_ops->progress(p.side[0].iface, 64);
        pair_wait_check(&p, "control makes the descriptor readable", __FILE__, __LINE__);
    }
    contract_ops->disarm(p.side[1].iface);
    PUMP_UNTIL(&p, p.side[1].ctrls == 1);
    fall_asleep(&p, &p.side[1]);
    contract_ops->ep_destroy(p.side[0].ep);
    p.side[0].ep = NULL;
    pair_wait_begin(&p);
    while (!readable(p.side[1].iface, 1)) {
        contract_ops->progress(p.side[0].iface, 64);
        pair_wait_check(&p, "loss makes the descriptor readable", __FILE__, __LINE__);
    }
    contract_ops->disarm(p.side[1].iface);
    PUMP_UNTIL(&p, p.side[1].downs == 1);
    pair_close(&p);
}

static void a_sleeper_is_woken_after_a_store_into_its_memory(void **state)
{
    struct pair p;

    (void)state;
    pair_connect(&p);
    /* Who shares memory and sleeps must be able to tell that it sleeps. */
    assert_non_null(p.side[0].ep->peer_asleep);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(atomic_load(p.side[0].ep->peer_asleep), 0);
        fall_asleep(&p, &p.side[1]);
        assert_int_not_equal(atomic_load(p.side[0].ep->peer_asleep), 0);
        sl_ep_wake(p.side[0].ep);
        assert_true(readable(p.side[1].iface, 5000));
        contract_ops->disarm(p.side[1].iface);
        while (pair_progress(&p) != 0)
            ;
    }
    pair_close(&p);
}

static void memory_that_is_said_to_be_a_gpus_and_is_not_is_refused(void **state)
{
    static char bytes[4096];
    struct sl_mem mem = {.addr = bytes, .len = sizeof(bytes), .kind = SL_MEM_CUDA, .fd = -1};
    struct sl_mr *mr = NULL;
    struct pair p;

    (void)state;
    pair_connect(&p);
    assert_int_equal(contract_ops->mr_reg(p.side[0].iface, &mem, &mr, NULL), -ENOTSUP);
    mem.kind = SL_MEM_DMABUF;
    assert_int_equal(contract_ops->mr_reg(p.side[0].iface, &mem, &mr, NULL), -ENOTSUP);
    assert_null(mr);
    pair_close(&p);
}

int contract_memory_cases(void)
{
    static const struct contract_case cases[] = {
        {0, cmocka_unit_test(memory_that_is_said_to_be_a_gpus_and_is_not_is_refused)},
        {SL_CAP_MAP, cmocka_unit_test(a_mapped_region_is_shared_both_ways)},
        {SL_CAP_MAP, cmocka_unit_test(a_map_lasts_until_its_endpoint_is_destroyed)},
        {SL_CAP_READ, cmocka_unit_test(reads_copy_the_peers_memory)},
        {SL_CAP_WAKEUP, cmocka_unit_test(a_sleeper_is_woken_by_a_message)},
        {SL_CAP_WAKEUP, cmocka_unit_test(work_that_slipped_in_keeps_a_waiter_awake)},
        {SL_CAP_WAKEUP, cmocka_unit_test(a_sleeper_is_woken_by_control_and_by_loss)},
        {SL_CAP_WAKEUP | SL_CAP_MAP,
         cmocka_unit_test(a_sleeper_is_woken_after_a_store_into_its_memory)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
