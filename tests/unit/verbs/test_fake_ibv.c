/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libibverbs keeps the rules that code over it is tested against: data and completions. */
#include "tests/unit/verbs/ibv_pair.h"

#include "core/err.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
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
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 5000, 40000,
                                  IBV_SEND_SIGNALED), 0);
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
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_READ, 1, 1000, 3000, 50,
                                  IBV_SEND_SIGNALED), 0);
    wc = end_wait(&pair, 0);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
    assert_int_equal(wc.byte_len, 3000);
    assert_memory_equal(pair.end[0].buf + 1000, pair.end[1].buf + 50, 3000);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_arrives_in_the_receive_with_length_and_immediate),
        cmocka_unit_test(a_write_with_immediate_takes_a_receive_and_a_plain_one_does_not),
        cmocka_unit_test(a_read_brings_the_peers_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
