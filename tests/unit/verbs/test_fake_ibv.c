/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libibverbs keeps the rules that code over it is tested against: data and completions. */
#include "tests/unit/verbs/ibv_pair.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static void a_send_arrives_in_the_receive_with_length_and_immediate(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    memcpy(pair.end[0].buf, "hello", 5);
    assert_int_equal(end_recv(&pair, 1, 7, 100, 64), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND_WITH_IMM, 3, 0, 5, 0, IBV_SEND_SIGNALED), 0);
    assert_false(end_poll(&pair, 0, &wc)); /* posting moves nothing */
    assert_int_equal(pair.end[1].buf[100], 0);
    wc = end_wait(&pair, 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, 7);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 5);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(be32toh(wc.imm_data), 0x1003);
    assert_int_equal(wc.qp_num, pair.end[1].qp->qp_num);
    assert_memory_equal(pair.end[1].buf + 100, "hello", 5);
    wc = end_wait(&pair, 0);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, 3);
    assert_int_equal(wc.opcode, IBV_WC_SEND);
    pair_close(&pair);
}

static void a_write_with_immediate_takes_a_receive_and_a_plain_one_does_not(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    memset(pair.end[0].buf, 0x11, 10000);
    assert_int_equal(end_recv(&pair, 1, 9, 0, 0), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 1, 0, 10000, 20000, 0), 0);
    assert_int_equal(
        end_post(&pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 5000, 40000, IBV_SEND_SIGNALED), 0);
    wc = end_wait(&pair, 1);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.byte_len, 5000);
    assert_int_equal(wc.wr_id, 9);
    assert_memory_equal(pair.end[1].buf + 20000, pair.end[0].buf, 10000);
    assert_memory_equal(pair.end[1].buf + 40000, pair.end[0].buf, 5000);
    wc = end_wait(&pair, 0);
    assert_int_equal(wc.wr_id, 2); /* the first was not signalled */
    assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
    assert_true(fake_ibv_settle(pair.fake, 100));
    assert_false(end_poll(&pair, 0, &wc));
    pair_close(&pair);
}

static void a_read_brings_the_peers_bytes(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    memset(pair.end[1].buf + 50, 0x77, 3000);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_READ, 1, 1000, 3000, 50, IBV_SEND_SIGNALED), 0);
    wc = end_wait(&pair, 0);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
    assert_int_equal(wc.byte_len, 3000);
    assert_memory_equal(pair.end[0].buf + 1000, pair.end[1].buf + 50, 3000);
    pair_close(&pair);
}

static void several_pieces_are_gathered_and_scattered(void **state)
{
    struct ibv_pair pair;
    struct ibv_end *a, *b;
    struct ibv_sge from[2], to[2];
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = from,
                             .num_sge = 2,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 2}, *bad_recv;

    pair_open(&pair, NULL);
    a = &pair.end[0];
    b = &pair.end[1];
    memcpy(a->buf, "abc", 3);
    memcpy(a->buf + 100, "defgh", 5);
    from[0] = (struct ibv_sge){(uintptr_t)a->buf, 3, a->mr->lkey};
    from[1] = (struct ibv_sge){(uintptr_t)a->buf + 100, 5, a->mr->lkey};
    to[0] = (struct ibv_sge){(uintptr_t)b->buf, 6, b->mr->lkey};
    to[1] = (struct ibv_sge){(uintptr_t)b->buf + 50, 6, b->mr->lkey};
    assert_int_equal(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(a->qp, &wr, &bad_send), 0);
    assert_int_equal(end_wait(&pair, 1).byte_len, 8);
    assert_memory_equal(b->buf, "abcdef", 6);
    assert_memory_equal(b->buf + 50, "gh\0\0", 4);
    pair_close(&pair);
}

static void inline_bytes_may_change_at_once_and_others_may_not(void **state)
{
    struct ibv_pair pair;

    pair_open(&pair, NULL);
    memcpy(pair.end[0].buf, "old", 3);
    assert_int_equal(end_recv(&pair, 1, 1, 0, 64), 0);
    assert_int_equal(end_recv(&pair, 1, 2, 64, 64), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 3, 0, IBV_SEND_INLINE), 0);
    memcpy(pair.end[0].buf, "new", 3);
    end_wait(&pair, 1);
    assert_memory_equal(pair.end[1].buf, "old", 3);
    assert_null(fake_ibv_misuse(pair.fake));

    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 0x2a, 0, 3, 0, IBV_SEND_SIGNALED), 0);
    memcpy(pair.end[0].buf, "bad", 3);
    end_wait(&pair, 0);
    assert_string_equal(fake_ibv_misuse(pair.fake),
                        "memory of work request 0x2a was changed before it was sent");
    fake_ibv_misuse_clear(pair.fake);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 3, 0, 65, 0, IBV_SEND_INLINE), EINVAL);
    pair_close(&pair);
}

/* Requests of one queue pair are executed and completed in order, whatever the seed. */
static void one_queue_pair_keeps_its_order_under_every_seed(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct pair_options options = pair_defaults();
        struct ibv_pair pair;

        options.seed = seed;
        pair_open(&pair, &options);
        fake_ibv_delay(pair.fake, 5);
        for (unsigned i = 0; i < PAIR_DEPTH; i++) {
            assert_int_equal(end_recv(&pair, 1, 100 + i, 0, 0), 0);
            assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 3000, 3000 * i,
                                      IBV_SEND_SIGNALED),
                             0);
        }
        for (unsigned i = 0; i < PAIR_DEPTH; i++) {
            struct ibv_wc wc = end_wait(&pair, 1);

            assert_int_equal(wc.wr_id, 100 + i);
            assert_int_equal(be32toh(wc.imm_data), 0x1000 + i);
            assert_int_equal(end_wait(&pair, 0).wr_id, i);
        }
        pair_close(&pair);
    }
}

static unsigned first_to_arrive(uint64_t seed)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;
    struct ibv_wc wc;
    unsigned first = 2;

    options.seed = seed;
    pair_open(&pair, &options);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(end_recv(&pair, i, 1, 0, 64), 0);
        assert_int_equal(end_post(&pair, i, IBV_WR_SEND, 1, 64, 8, 0, 0), 0);
    }
    while (first == 2) {
        fake_ibv_step(pair.fake);
        for (unsigned i = 0; i < 2 && first == 2; i++)
            if (end_poll(&pair, i, &wc))
                first = i;
    }
    pair_close(&pair);
    return first;
}

static void queue_pairs_overtake_each_other_as_the_seed_says(void **state)
{
    unsigned sum = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        unsigned first = first_to_arrive(seed);

        assert_int_equal(first_to_arrive(seed), first);
        sum += first;
    }
    assert_in_range(sum, 1, 19);
}

static void room_comes_back_with_the_next_signalled_completion_that_is_polled(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    for (unsigned i = 0; i < PAIR_DEPTH; i++)
        assert_int_equal(
            end_post(&pair, 0, IBV_WR_RDMA_WRITE, i, 0, 8, 0, i == 3 ? IBV_SEND_SIGNALED : 0), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 8, 0, 8, 0, 0), ENOMEM);
    assert_true(fake_ibv_settle(pair.fake, 200));
    /* All is done, but nothing was polled. */
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 8, 0, 8, 0, 0), ENOMEM);
    assert_true(end_poll(&pair, 0, &wc));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, i, 0, 8, 0, 0), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 8, 0, 8, 0, 0), ENOMEM);
    pair_close(&pair);
}

static void a_receive_keeps_its_place_until_its_completion_is_polled(void **state)
{
    for (unsigned srq = 0; srq < 2; srq++) {
        struct pair_options options = pair_defaults();
        struct ibv_pair pair;

        options.srq = srq != 0;
        pair_open(&pair, &options);
        for (unsigned i = 0; i < PAIR_DEPTH; i++)
            assert_int_equal(end_recv(&pair, 1, i, 0, 64), 0);
        assert_int_equal(end_recv(&pair, 1, 99, 0, 64), ENOMEM);
        assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
        assert_true(fake_ibv_settle(pair.fake, 200));
        assert_int_equal(end_recv(&pair, 1, 99, 0, 64), ENOMEM);
        assert_int_equal(end_wait(&pair, 1).wr_id, 0);
        assert_int_equal(end_recv(&pair, 1, 99, 0, 64), 0);
        pair_close(&pair);
    }
}

static void a_list_is_posted_up_to_the_one_that_is_bad(void **state)
{
    struct ibv_pair pair;
    struct ibv_send_wr wr[3], *bad = NULL;
    struct fake_ibv_qp_info info;

    pair_open(&pair, NULL);
    memset(wr, 0, sizeof(wr));
    for (unsigned i = 0; i < 3; i++)
        wr[i] = (struct ibv_send_wr){
            .wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL, .opcode = IBV_WR_SEND};
    wr[1].num_sge = 3; /* the queue pair was made for two */
    assert_int_equal(ibv_post_send(pair.end[0].qp, wr, &bad), EINVAL);
    assert_ptr_equal(bad, &wr[1]);
    fake_ibv_qp_info(pair.fake, pair.end[0].qp, &info);
    assert_int_equal(info.posted, 1);
    assert_int_equal(info.posts, 1);
    wr[1].num_sge = 0;
    wr[1].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    assert_int_equal(ibv_post_send(pair.end[0].qp, &wr[1], &bad), EINVAL);
    pair_close(&pair);
}

static void arming_wakes_once_and_only_for_what_comes_later(void **state)
{
    struct ibv_pair pair;
    struct ibv_cq *cq;
    void *context;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(end_recv(&pair, 1, i, 0, 64), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    assert_true(fake_ibv_settle(pair.fake, 100));
    /* One is there already: no event, whoever armed has to look. */
    assert_int_equal(ibv_req_notify_cq(pair.end[1].cq, 0), 0);
    assert_int_equal((pair.ibv->ibv_get_cq_event)(pair.end[1].channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(end_poll(&pair, 1, &wc));
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    assert_true(fake_ibv_settle(pair.fake, 100));
    assert_true(pair_readable(pair.end[1].channel->fd));
    assert_int_equal((pair.ibv->ibv_get_cq_event)(pair.end[1].channel, &cq, &context), 0);
    assert_ptr_equal(cq, pair.end[1].cq);
    assert_ptr_equal(context, &pair.end[1]);
    (pair.ibv->ibv_ack_cq_events)(cq, 1);
    assert_false(pair_readable(pair.end[1].channel->fd));
    /* Solicited only: a plain one does not wake. */
    assert_int_equal(ibv_req_notify_cq(pair.end[1].cq, 1), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    assert_true(fake_ibv_settle(pair.fake, 100));
    assert_false(pair_readable(pair.end[1].channel->fd));
    while (end_poll(&pair, 1, &wc))
        ;
    assert_int_equal(end_recv(&pair, 1, 9, 0, 64), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, IBV_SEND_SOLICITED), 0);
    assert_true(fake_ibv_settle(pair.fake, 100));
    assert_true(pair_readable(pair.end[1].channel->fd));
    pair_close(&pair); /* an event that nobody fetched goes with its queue */
}

static void an_event_that_was_not_acked_would_hang_the_destroy(void **state)
{
    struct ibv_pair pair;
    struct ibv_cq *cq;
    void *context;

    pair_open(&pair, NULL);
    assert_int_equal(ibv_req_notify_cq(pair.end[1].cq, 0), 0);
    assert_int_equal(end_recv(&pair, 1, 1, 0, 64), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    end_wait(&pair, 1);
    assert_int_equal((pair.ibv->ibv_get_cq_event)(pair.end[1].channel, &cq, &context), 0);
    assert_int_equal((pair.ibv->ibv_destroy_qp)(pair.end[1].qp), 0);
    pair.end[1].qp = NULL;
    assert_int_equal((pair.ibv->ibv_destroy_cq)(pair.end[1].cq), 0);
    assert_string_equal(fake_ibv_misuse(pair.fake),
                        "ibv_destroy_cq would wait for ever: 1 events fetched, 0 acked");
    fake_ibv_misuse_clear(pair.fake);
    pair.end[1].cq = NULL;
    pair_close(&pair);
}

static void held_completions_are_seen_later_and_in_order(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    fake_ibv_cq_hold(pair.fake, pair.end[0].cq, true);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, i, 0, 8, 0, IBV_SEND_SIGNALED), 0);
    fake_ibv_run(pair.fake, 100);
    assert_false(end_poll(&pair, 0, &wc));
    fake_ibv_cq_hold(pair.fake, pair.end[0].cq, false);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(end_poll(&pair, 0, &wc));
        assert_int_equal(wc.wr_id, i);
    }
    pair_close(&pair);
}

static void an_overrun_breaks_the_completion_queue_and_its_queue_pairs(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;

    options.cqe = 2;
    pair_open(&pair, &options);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, i, 0, 8, 0, IBV_SEND_SIGNALED), 0);
    fake_ibv_run(pair.fake, 100);
    assert_string_equal(fake_ibv_misuse(pair.fake), "a completion queue of 2 entries overran");
    fake_ibv_misuse_clear(pair.fake);
    assert_true(end_event(&pair, 0, IBV_EVENT_CQ_ERR));
    assert_true(end_event(&pair, 0, IBV_EVENT_QP_FATAL));
    pair_close(&pair);
}

static void memory_of_a_dmabuf_is_reached_by_its_own_addresses(void **state)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_pair pair;
    struct ibv_mr *mr;
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    char got[6];
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);

    pair_open(&pair, NULL);
    assert_int_equal(ftruncate(fd, 16384), 0);
    /* Both in the same place of their pages, as the kernel asks. */
    assert_null((pair.ibv->ibv_reg_dmabuf_mr)(pair.end[1].pd, 5000, 8000, 0x100000, fd, access));
    assert_int_equal(errno, EINVAL);
    assert_null((pair.ibv->ibv_reg_dmabuf_mr)(pair.end[1].pd, 5000, 8000, 0x100388, -1, access));
    assert_int_equal(errno, EBADF);
    mr = (pair.ibv->ibv_reg_dmabuf_mr)(pair.end[1].pd, 5000, 8000, 0x100388, fd, access);
    assert_non_null(mr);
    memcpy(pair.end[0].buf, "device", 6);
    sge = (struct ibv_sge){(uintptr_t)pair.end[0].buf, 6, pair.end[0].mr->lkey};
    wr.wr.rdma.remote_addr = 0x100388 + 10;
    wr.wr.rdma.rkey = mr->rkey;
    assert_int_equal(ibv_post_send(pair.end[0].qp, &wr, &bad), 0);
    assert_int_equal(end_wait(&pair, 0).status, IBV_WC_SUCCESS);
    assert_int_equal(pread(fd, got, 6, 5010), 6);
    assert_memory_equal(got, "device", 6);
    assert_int_equal((pair.ibv->ibv_dereg_mr)(mr), 0);
    close(fd);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_arrives_in_the_receive_with_length_and_immediate),
        cmocka_unit_test(a_write_with_immediate_takes_a_receive_and_a_plain_one_does_not),
        cmocka_unit_test(a_read_brings_the_peers_bytes),
        cmocka_unit_test(several_pieces_are_gathered_and_scattered),
        cmocka_unit_test(inline_bytes_may_change_at_once_and_others_may_not),
        cmocka_unit_test(one_queue_pair_keeps_its_order_under_every_seed),
        cmocka_unit_test(queue_pairs_overtake_each_other_as_the_seed_says),
        cmocka_unit_test(room_comes_back_with_the_next_signalled_completion_that_is_polled),
        cmocka_unit_test(a_receive_keeps_its_place_until_its_completion_is_polled),
        cmocka_unit_test(a_list_is_posted_up_to_the_one_that_is_bad),
        cmocka_unit_test(arming_wakes_once_and_only_for_what_comes_later),
        cmocka_unit_test(an_event_that_was_not_acked_would_hang_the_destroy),
        cmocka_unit_test(held_completions_are_seen_later_and_in_order),
        cmocka_unit_test(an_overrun_breaks_the_completion_queue_and_its_queue_pairs),
        cmocka_unit_test(memory_of_a_dmabuf_is_reached_by_its_own_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
