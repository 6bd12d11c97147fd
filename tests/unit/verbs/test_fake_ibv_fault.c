/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libibverbs fails as NICs do: statuses, prefixes, late packets, events, devices that
 * go. */
#include "tests/unit/verbs/ibv_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static enum ibv_qp_state nic_state(struct ibv_pair *pair, unsigned which)
{
    struct fake_ibv_qp_info info;

    fake_ibv_qp_info(pair->fake, pair->end[which].qp, &info);
    return info.state;
}

static void writes(struct ibv_pair *pair, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pair->end[0].buf[i] = (uint8_t)(i + 1);
        assert_int_equal(
            end_post(pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, i, 1, 1000 + i, IBV_SEND_SIGNALED), 0);
    }
}

static void receives(struct ibv_pair *pair, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(end_recv(pair, 1, 100 + i, 0, 0), 0);
}

/* The next completion has this request and status. */
static void expect(struct ibv_pair *pair, unsigned which, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc = end_wait(pair, which);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
}

static void a_message_too_long_for_its_receive_ends_both(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    assert_int_equal(end_recv(&pair, 1, 1, 0, 10), 0);
    assert_int_equal(end_recv(&pair, 1, 2, 0, 100), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 11, 0, 0), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 2, 0, 1, 0, 0), 0);
    expect(&pair, 1, 1, IBV_WC_LOC_LEN_ERR);
    expect(&pair, 1, 2, IBV_WC_WR_FLUSH_ERR);
    expect(&pair, 0, 1, IBV_WC_REM_INV_REQ_ERR);
    expect(&pair, 0, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(nic_state(&pair, 0), IBV_QPS_ERR);
    assert_int_equal(nic_state(&pair, 1), IBV_QPS_ERR);
    assert_int_equal(pair.end[0].qp->state, IBV_QPS_RTS); /* libibverbs was not told */
    pair_close(&pair);
}

static void a_wrong_remote_key_is_a_remote_access_error(void **state)
{
    for (unsigned kind = 0; kind < 5; kind++) {
        struct ibv_pair pair;
        struct ibv_mr *mr, *other = NULL;
        struct ibv_pd *pd = NULL;
        uint32_t remote = 0, len = 8;

        pair_open(&pair, NULL);
        mr = pair.end[1].mr;
        switch (kind) {
        case 0: remote = PAIR_BUF - 7; break; /* one byte beyond the region */
        case 1: mr->rkey = mr->lkey; break;   /* the other kind of key */
        case 2: mr->rkey = pair.end[0].mr->rkey; break;
        case 3: /* gone */ assert_int_equal((pair.ibv->ibv_dereg_mr)(mr), 0); break;
        case 4: /* of another protection domain */
            pd = (pair.ibv->ibv_alloc_pd)(pair.end[1].context);
            other =
                (pair.ibv->ibv_reg_mr)(pd, pair.end[1].buf, PAIR_BUF, (int)pair_defaults().access);
            mr->rkey = other->rkey;
            break;
        }
        assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 5, 0, len, remote, 0), 0);
        expect(&pair, 0, 5, IBV_WC_REM_ACCESS_ERR);
        assert_true(end_event(&pair, 1, IBV_EVENT_QP_ACCESS_ERR));
        assert_int_equal(nic_state(&pair, 1), IBV_QPS_ERR);
        if (kind == 3)
            pair.end[1].mr = NULL;
        if (other != NULL) {
            assert_int_equal((pair.ibv->ibv_dereg_mr)(other), 0);
            assert_int_equal((pair.ibv->ibv_dealloc_pd)(pd), 0);
        }
        pair_close(&pair);
    }
}

static void a_wrong_local_key_is_a_local_protection_error(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 2, PAIR_BUF - 7, 8, 0, 0), 0);
    expect(&pair, 0, 1, IBV_WC_SUCCESS);
    expect(&pair, 0, 2, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(nic_state(&pair, 1), IBV_QPS_RTS); /* the peer knows nothing */
    pair_close(&pair);

    pair_open(&pair, NULL);
    assert_int_equal(end_recv(&pair, 1, 1, PAIR_BUF - 7, 8), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 2, 0, 8, 0, 0), 0);
    expect(&pair, 1, 1, IBV_WC_LOC_PROT_ERR);
    expect(&pair, 0, 2, IBV_WC_REM_OP_ERR);
    pair_close(&pair);
}

static void a_queue_pair_without_the_right_refuses_writes_and_reads(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;

    options.access = IBV_ACCESS_LOCAL_WRITE;
    for (unsigned i = 0; i < 2; i++) {
        pair_open(&pair, &options);
        assert_int_equal(
            end_post(&pair, 0, i == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 1, 0, 8, 0, 0), 0);
        expect(&pair, 0, 1, IBV_WC_REM_INV_REQ_ERR);
        pair_close(&pair);
    }
}

static void without_a_receive_the_sender_waits_as_long_as_it_was_told(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL); /* for ever */
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
    fake_ibv_run(pair.fake, 500);
    assert_false(end_poll(&pair, 0, &wc));
    assert_int_equal(end_recv(&pair, 1, 1, 0, 8), 0);
    expect(&pair, 0, 1, IBV_WC_SUCCESS);
    pair_close(&pair);

    options.rnr_retry = 2;
    pair_open(&pair, &options);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    expect(&pair, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_int_equal(nic_state(&pair, 0), IBV_QPS_ERR);
    pair_close(&pair);
}

static void of_a_dead_path_a_prefix_was_executed_and_less_was_acknowledged(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    receives(&pair, 6);
    writes(&pair, 6);
    fake_ibv_kill(pair.fake, pair.end[0].qp, 4, 2, 0);
    expect(&pair, 0, 0, IBV_WC_SUCCESS);
    expect(&pair, 0, 1, IBV_WC_SUCCESS);
    expect(&pair, 0, 2, IBV_WC_RETRY_EXC_ERR); /* although it was executed */
    for (unsigned i = 3; i < 6; i++)
        expect(&pair, 0, i, IBV_WC_WR_FLUSH_ERR);
    for (unsigned i = 0; i < 4; i++)
        expect(&pair, 1, 100 + i, IBV_WC_SUCCESS);
    fake_ibv_run(pair.fake, 200);
    assert_memory_equal(pair.end[1].buf + 1000, "\1\2\3\4\0\0", 6);
    assert_int_equal(nic_state(&pair, 1), IBV_QPS_RTS); /* nobody told the other end */
    assert_int_equal(end_state(&pair, 1, IBV_QPS_ERR), 0);
    expect(&pair, 1, 104, IBV_WC_WR_FLUSH_ERR);
    expect(&pair, 1, 105, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);
}

static void a_late_packet_executes_unless_the_receiver_was_fenced(void **state)
{
    for (unsigned fenced = 0; fenced < 2; fenced++) {
        struct ibv_pair pair;

        pair_open(&pair, NULL);
        for (unsigned i = 0; i < 3; i++) {
            pair.end[0].buf[i] = (uint8_t)(i + 1);
            assert_int_equal(
                end_post(&pair, 0, IBV_WR_RDMA_WRITE, i, i, 1, 1000 + i, IBV_SEND_SIGNALED), 0);
        }
        fake_ibv_kill(pair.fake, pair.end[0].qp, 1, 1, 2);
        expect(&pair, 0, 0, IBV_WC_SUCCESS);
        expect(&pair, 0, 1, IBV_WC_RETRY_EXC_ERR);
        expect(&pair, 0, 2, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(end_state(&pair, 0, IBV_QPS_RESET), 0); /* does not call them back */
        if (fenced)
            assert_int_equal(end_state(&pair, 1, IBV_QPS_ERR), 0);
        while (fake_ibv_late_count(pair.fake) != 0)
            fake_ibv_step(pair.fake);
        assert_memory_equal(pair.end[1].buf + 1000, fenced ? "\1\0\0" : "\1\2\3", 3);
        pair_close(&pair);
    }
}

static void a_cut_that_is_mended_in_time_loses_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct pair_options options = pair_defaults();
        struct ibv_pair pair;
        struct fake_ibv_qp_info info;

        options.seed = seed;
        pair_open(&pair, &options);
        receives(&pair, 6);
        writes(&pair, 6);
        fake_ibv_run(pair.fake, (unsigned)seed % 7);
        fake_ibv_cut(pair.fake, pair.end[0].qp, true);
        fake_ibv_run(pair.fake, 10);
        fake_ibv_cut(pair.fake, pair.end[0].qp, false);
        for (unsigned i = 0; i < 6; i++)
            expect(&pair, 0, i, IBV_WC_SUCCESS);
        fake_ibv_qp_info(pair.fake, pair.end[1].qp, &info);
        assert_int_equal(info.arrived, 6); /* once each */
        pair_close(&pair);
    }
}

static void acks_that_are_lost_end_the_sender_after_its_retries(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    receives(&pair, 2);
    writes(&pair, 2);
    fake_ibv_cut_outgoing(pair.fake, pair.end[1].qp, true);
    fake_ibv_run(pair.fake, 8);
    expect(&pair, 1, 100, IBV_WC_SUCCESS);
    assert_false(end_poll(&pair, 0, &wc)); /* retry_cnt 3, four steps each */
    fake_ibv_run(pair.fake, 16);
    assert_int_equal(nic_state(&pair, 0), IBV_QPS_ERR);
    expect(&pair, 0, 0, IBV_WC_RETRY_EXC_ERR);
    expect(&pair, 0, 1, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);
}

static void a_packet_number_that_differs_is_never_heard(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;

    options.apart = true;
    pair_open(&pair, &options);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(end_init(&pair, i, NULL), 0);
        assert_int_equal(end_rtr(&pair, i, 500), 0);
        assert_int_equal(end_rts(&pair, i, NULL, 500 + i), 0);
    }
    receives(&pair, 1);
    assert_int_equal(end_recv(&pair, 0, 7, 0, 64), 0);
    assert_int_equal(end_post(&pair, 1, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 0, 0, IBV_SEND_SIGNALED), 0);
    expect(&pair, 0, 1, IBV_WC_SUCCESS); /* this way it fits */
    expect(&pair, 1, 100, IBV_WC_SUCCESS);
    expect(&pair, 1, 1, IBV_WC_RETRY_EXC_ERR);
    pair_close(&pair);
}

static void a_queue_pair_serves_again_after_a_reset(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    receives(&pair, 2);
    writes(&pair, 2);
    fake_ibv_kill(pair.fake, pair.end[0].qp, 0, 0, 0);
    expect(&pair, 0, 0, IBV_WC_RETRY_EXC_ERR);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(end_state(&pair, i, IBV_QPS_RESET), 0);
    pair_connect(&pair, NULL, 7000);
    receives(&pair, 1);
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_SUCCESS);
    expect(&pair, 1, 100, IBV_WC_SUCCESS); /* nothing of its first life is left in the queues */
    pair_close(&pair);
}

static void a_port_that_goes_down_stops_packets_and_says_so(void **state)
{
    struct ibv_pair pair;
    struct ibv_port_attr attr = {.state = IBV_PORT_NOP};

    pair_open(&pair, NULL);
    receives(&pair, 2);
    fake_ibv_port_set(pair.fake, 1, 1, IBV_PORT_DOWN);
    assert_true(pair_readable(pair.end[1].context->async_fd));
    assert_true(end_event(&pair, 1, IBV_EVENT_PORT_ERR));
    assert_false(pair_readable(pair.end[0].context->async_fd));
    assert_int_equal((pair.ibv->ibv_query_port)(pair.end[1].context, 1, (void *)&attr), 0);
    assert_int_equal(attr.state, IBV_PORT_DOWN);
    writes(&pair, 1);
    fake_ibv_run(pair.fake, 6);
    assert_int_equal(pair.end[1].buf[1000], 0);
    fake_ibv_port_set(pair.fake, 1, 1, IBV_PORT_ACTIVE);
    assert_true(end_event(&pair, 1, IBV_EVENT_PORT_ACTIVE));
    expect(&pair, 0, 0, IBV_WC_SUCCESS);
    fake_ibv_block(pair.fake, 0, 1, 1, 1, true);
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_RETRY_EXC_ERR);
    pair_close(&pair);
}

/* The peer has it, and its sender does not learn so. */
static void acknowledges_can_be_lost_alone(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    receives(&pair, 2);
    fake_ibv_lose(pair.fake, 0, 1, 1, 1, FAKE_IBV_LOSE_ANSWERS);
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_SUCCESS); /* its answers go the other way */
    fake_ibv_lose(pair.fake, 1, 1, 0, 1, FAKE_IBV_LOSE_ANSWERS);
    pair.end[1].buf[1000] = 0;
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_RETRY_EXC_ERR);
    assert_int_not_equal(pair.end[1].buf[1000], 0);
    pair_close(&pair);
}

static void a_gid_that_moved_ends_paths_that_use_its_old_index(void **state)
{
    struct ibv_pair pair;
    union ibv_gid gid, zero = {0};

    pair_open(&pair, NULL);
    receives(&pair, 1);
    fake_ibv_gid_move(pair.fake, 0, 1, 3, 7);
    assert_true(end_event(&pair, 0, IBV_EVENT_GID_CHANGE));
    assert_true(end_event(&pair, 0, IBV_EVENT_GID_CHANGE));
    assert_int_equal((pair.ibv->ibv_query_gid)(pair.end[0].context, 1, 3, &gid), 0);
    assert_memory_equal(&gid, &zero, sizeof(gid));
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_RETRY_EXC_ERR);
    pair_close(&pair);
}

static void with_a_shared_queue_the_last_receive_is_announced_and_the_rest_stays(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;
    struct ibv_wc wc;

    options.srq = true;
    pair_open(&pair, &options);
    receives(&pair, 3);
    fake_ibv_srq_arm(pair.fake, pair.end[1].srq, 3);
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_SUCCESS);
    assert_true(end_event(&pair, 1, IBV_EVENT_SRQ_LIMIT_REACHED));
    assert_int_equal(end_state(&pair, 1, IBV_QPS_ERR), 0);
    fake_ibv_run(pair.fake, 20);
    assert_true(end_event(&pair, 1, IBV_EVENT_QP_LAST_WQE_REACHED));
    expect(&pair, 1, 100, IBV_WC_SUCCESS);
    assert_false(end_poll(&pair, 1, &wc)); /* nothing of a shared queue is flushed */
    pair_close(&pair);
}

static void in_rtr_the_first_packet_establishes(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;

    options.apart = true;
    pair_open(&pair, &options);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(end_init(&pair, i, NULL), 0);
        assert_int_equal(end_rtr(&pair, i, 10), 0);
    }
    assert_int_equal(end_rts(&pair, 0, NULL, 10), 0);
    receives(&pair, 1);
    writes(&pair, 1);
    expect(&pair, 0, 0, IBV_WC_SUCCESS);
    assert_true(end_event(&pair, 1, IBV_EVENT_COMM_EST));
    pair_close(&pair);
}

static void a_queue_pair_can_fail_by_itself(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    writes(&pair, 1);
    fake_ibv_qp_fatal(pair.fake, pair.end[0].qp);
    assert_true(end_event(&pair, 0, IBV_EVENT_QP_FATAL));
    expect(&pair, 0, 0, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);

    pair_open(&pair, NULL);
    fake_ibv_cq_error(pair.fake, pair.end[0].cq);
    assert_true(end_event(&pair, 0, IBV_EVENT_CQ_ERR));
    assert_true(end_event(&pair, 0, IBV_EVENT_QP_FATAL));
    assert_int_equal(nic_state(&pair, 0), IBV_QPS_ERR);
    pair_close(&pair);
}

static void a_device_that_is_removed_fails_every_call_and_keeps_nothing(void **state)
{
    struct ibv_pair pair;
    struct ibv_end *end;
    struct ibv_device_attr attr;
    struct ibv_device **list;
    struct ibv_wc wc;
    int count;

    pair_open(&pair, NULL);
    end = &pair.end[0];
    receives(&pair, 1);
    writes(&pair, 1);
    fake_ibv_device_remove(pair.fake, 0);
    fake_ibv_run(pair.fake, 50);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 1, 0, 1, 0, 0), EIO);
    assert_false(end_poll(&pair, 0, &wc));
    assert_int_equal((pair.ibv->ibv_query_device)(end->context, &attr), ENODEV);
    assert_int_equal(end_state(&pair, 0, IBV_QPS_ERR), EIO);
    assert_null((pair.ibv->ibv_alloc_pd)(end->context));
    assert_int_equal(errno, EIO);
    assert_true(end_event(&pair, 0, IBV_EVENT_DEVICE_FATAL));
    list = (pair.ibv->ibv_get_device_list)(&count);
    assert_int_equal(count, 1);
    assert_string_equal((pair.ibv->ibv_get_device_name)(list[0]), "fake1");
    (pair.ibv->ibv_free_device_list)(list);
    assert_int_equal((pair.ibv->ibv_destroy_qp)(end->qp), EIO);
    assert_int_equal((pair.ibv->ibv_destroy_cq)(end->cq), EIO);
    assert_int_equal((pair.ibv->ibv_destroy_comp_channel)(end->channel), 0);
    assert_int_equal((pair.ibv->ibv_dereg_mr)(end->mr), EIO);
    assert_int_equal((pair.ibv->ibv_dealloc_pd)(end->pd), EIO);
    assert_int_equal((pair.ibv->ibv_close_device)(end->context), 0);
    free(end->buf);
    fake_ibv_device_return(pair.fake, 0);
    list = (pair.ibv->ibv_get_device_list)(&count);
    assert_int_equal(count, 2);
    (pair.ibv->ibv_free_device_list)(list);
    (pair.ibv->ibv_destroy_qp)(pair.end[1].qp);
    assert_int_equal(fake_ibv_live(pair.fake), 5);
    fake_ibv_destroy(pair.fake); /* frees those of the other end */
    free(pair.end[1].buf);
}

/* The prefix rule, under faults from the seed: what completed was executed, in order, and
 * nothing twice. */
static void under_chaos_every_request_ends_once_and_what_succeeded_arrived(void **state)
{
    const struct fake_ibv_chaos chaos = {.kill_in = 60,
                                         .cut_in = 20,
                                         .cut_steps = 30,
                                         .flap_in = 50,
                                         .flap_steps = 30,
                                         .gid_in = 200};
    unsigned errors = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct pair_options options = pair_defaults();
        struct ibv_pair pair;
        unsigned ok = 0, ended = 0;
        struct ibv_wc wc;

        options.seed = seed;
        pair_open(&pair, &options);
        fake_ibv_chaos(pair.fake, &chaos);
        fake_ibv_delay(pair.fake, (unsigned)seed % 4);
        receives(&pair, PAIR_DEPTH);
        writes(&pair, PAIR_DEPTH);
        while (ended < PAIR_DEPTH) {
            wc = end_wait(&pair, 0);
            assert_int_equal(wc.wr_id, ended++);
            if (wc.status == IBV_WC_SUCCESS) {
                assert_int_equal(++ok, ended); /* never after an error */
                assert_int_equal(pair.end[1].buf[1000 + wc.wr_id], wc.wr_id + 1);
            }
        }
        errors += ok < PAIR_DEPTH;
        fake_ibv_chaos(pair.fake, &(struct fake_ibv_chaos){0});
        assert_true(fake_ibv_settle(pair.fake, 1000));
        assert_false(end_poll(&pair, 0, &wc));
        for (unsigned i = 0; end_poll(&pair, 1, &wc) && wc.status == IBV_WC_SUCCESS; i++)
            assert_int_equal(wc.wr_id, 100 + i);
        pair_close(&pair);
    }
    assert_in_range(errors, 10, 190); /* both happen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_too_long_for_its_receive_ends_both),
        cmocka_unit_test(a_wrong_remote_key_is_a_remote_access_error),
        cmocka_unit_test(a_wrong_local_key_is_a_local_protection_error),
        cmocka_unit_test(a_queue_pair_without_the_right_refuses_writes_and_reads),
        cmocka_unit_test(without_a_receive_the_sender_waits_as_long_as_it_was_told),
        cmocka_unit_test(of_a_dead_path_a_prefix_was_executed_and_less_was_acknowledged),
        cmocka_unit_test(a_late_packet_executes_unless_the_receiver_was_fenced),
        cmocka_unit_test(a_cut_that_is_mended_in_time_loses_nothing),
        cmocka_unit_test(acks_that_are_lost_end_the_sender_after_its_retries),
        cmocka_unit_test(a_packet_number_that_differs_is_never_heard),
        cmocka_unit_test(a_queue_pair_serves_again_after_a_reset),
        cmocka_unit_test(a_port_that_goes_down_stops_packets_and_says_so),
        cmocka_unit_test(acknowledges_can_be_lost_alone),
        cmocka_unit_test(a_gid_that_moved_ends_paths_that_use_its_old_index),
        cmocka_unit_test(with_a_shared_queue_the_last_receive_is_announced_and_the_rest_stays),
        cmocka_unit_test(in_rtr_the_first_packet_establishes),
        cmocka_unit_test(a_queue_pair_can_fail_by_itself),
        cmocka_unit_test(a_device_that_is_removed_fails_every_call_and_keeps_nothing),
        cmocka_unit_test(under_chaos_every_request_ends_once_and_what_succeeded_arrived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
