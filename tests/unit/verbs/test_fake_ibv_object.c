/* SPDX-License-Identifier: Apache-2.0 */
/* The fake libibverbs checks arguments, states and lifetimes as strictly as the strictest
 * driver. */
#include "tests/unit/verbs/ibv_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

static const struct pair_options *apart(void)
{
    static struct pair_options options;

    options = pair_defaults();
    options.apart = true;
    return &options;
}

static void each_transition_asks_for_all_that_belongs_to_it(void **state)
{
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1, .sgid_index = 3}}};
    struct ibv_pair pair;

    pair_open(&pair, apart());
    attr.ah_attr.grh.dgid = fake_ibv_gid_v4(10, 0, 0, 2);
    assert_int_equal(end_rtr(&pair, 0, 1), EINVAL); /* from RESET */
    assert_int_equal(end_state(&pair, 0, IBV_QPS_ERR), EINVAL);
    assert_int_equal(end_state(&pair, 0, IBV_QPS_INIT), EINVAL);
    assert_int_equal(end_init(&pair, 0, NULL), 0);
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
        if (bit != IBV_QP_STATE && (rtr & bit) != 0)
            assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr & ~bit), EINVAL);
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr | IBV_QP_TIMEOUT),
                     EINVAL);
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), 0);
    assert_int_equal(pair.end[0].qp->state, IBV_QPS_RTR);
    assert_int_equal(end_rts(&pair, 0, NULL, 1 << 24), EINVAL); /* a packet number has 24 bits */
    assert_int_equal(end_rts(&pair, 0, NULL, 1), 0);
    pair_close(&pair);
}

static void an_address_is_looked_at(void **state)
{
    const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const struct ibv_qp_attr good = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .ah_attr = {
            .is_global = 1,
            .port_num = 1,
            .grh = {.dgid = fake_ibv_gid_v4(10, 0, 0, 2), .hop_limit = 1, .sgid_index = 3}}};
    struct ibv_pair pair;
    struct ibv_qp_attr attr;

    pair_open(&pair, apart());
    assert_int_equal(end_init(&pair, 0, NULL), 0);
    attr = good;
    attr.ah_attr.is_global = 0; /* RoCE has no other address */
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), EINVAL);
    attr = good;
    attr.ah_attr.grh.sgid_index = 9; /* no such entry */
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), EINVAL);
    attr = good;
    attr.ah_attr.grh.flow_label = 1 << 20;
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), EINVAL);
    attr = good;
    attr.ah_attr.grh.dgid.raw[15] = 77; /* nobody there */
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), ETIMEDOUT);
    attr = good;
    attr.path_mtu = IBV_MTU_2048; /* the port has 1024 */
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), EINVAL);
    attr = good;
    assert_int_equal((pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, rtr), 0);
    pair_close(&pair);
}

static void posts_need_the_right_state(void **state)
{
    struct ibv_pair pair;
    struct ibv_wc wc;

    pair_open(&pair, apart());
    assert_int_equal(end_recv(&pair, 0, 1, 0, 8), EINVAL);
    assert_int_equal(end_init(&pair, 0, NULL), 0);
    assert_int_equal(end_recv(&pair, 0, 1, 0, 8), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), EINVAL);
    assert_int_equal(end_rtr(&pair, 0, 1), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), EINVAL);
    assert_int_equal(end_state(&pair, 0, IBV_QPS_ERR), 0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 2, 0, 8, 0, 0), 0);
    assert_false(end_poll(&pair, 0, &wc)); /* flushing takes its time */
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(end_wait(&pair, 0).status, IBV_WC_WR_FLUSH_ERR);
    pair_close(&pair);
}

static void a_drained_send_queue_says_so(void **state)
{
    struct ibv_pair pair;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    struct ibv_wc wc;

    pair_open(&pair, NULL);
    assert_int_equal(
        (pair.ibv->ibv_modify_qp)(pair.end[0].qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
        0);
    assert_int_equal(end_post(&pair, 0, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
    fake_ibv_run(pair.fake, 50);
    assert_false(end_poll(&pair, 0, &wc));
    assert_true(end_event(&pair, 0, IBV_EVENT_SQ_DRAINED));
    assert_int_equal(end_state(&pair, 0, IBV_QPS_RTS), 0);
    assert_int_equal(end_wait(&pair, 0).status, IBV_WC_SUCCESS);
    pair_close(&pair);
}

static void what_is_in_use_is_busy(void **state)
{
    struct pair_options options = pair_defaults();
    struct ibv_pair pair;
    struct ibv_end *end;

    options.srq = true;
    pair_open(&pair, &options);
    end = &pair.end[0];
    assert_int_equal((pair.ibv->ibv_dealloc_pd)(end->pd), EBUSY);
    assert_int_equal((pair.ibv->ibv_destroy_cq)(end->cq), EBUSY);
    assert_int_equal((pair.ibv->ibv_destroy_srq)(end->srq), EBUSY);
    assert_int_equal((pair.ibv->ibv_destroy_comp_channel)(end->channel), EBUSY);
    assert_null(fake_ibv_misuse(pair.fake));
    assert_int_equal((pair.ibv->ibv_close_device)(end->context), -1);
    assert_int_equal(errno, EBUSY);
    assert_non_null(strstr(fake_ibv_misuse(pair.fake), "ibv_close_device of fake0"));
    fake_ibv_misuse_clear(pair.fake);
    assert_int_equal(fake_ibv_live(pair.fake), 14);
    assert_int_equal(fake_ibv_live_of(pair.fake, FAKE_IBV_QP), 2);
    pair_close(&pair);
}

static void the_use_of_a_dead_object_is_noticed(void **state)
{
    struct ibv_pair pair;
    struct ibv_qp *dead;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;

    pair_open(&pair, NULL);
    dead = pair.end[0].qp;
    pair.end[0].qp = NULL;
    assert_int_equal((pair.ibv->ibv_destroy_qp)(dead), 0);
    assert_int_equal(ibv_post_send(dead, &wr, &bad), EINVAL);
    assert_string_equal(fake_ibv_misuse(pair.fake), "ibv_post_send with a QP that was destroyed");
    fake_ibv_misuse_clear(pair.fake);
    assert_int_equal((pair.ibv->ibv_destroy_qp)(dead), EINVAL);
    assert_non_null(fake_ibv_misuse(pair.fake));
    fake_ibv_misuse_clear(pair.fake);
    pair_close(&pair);
}

static void an_event_is_acked_once(void **state)
{
    struct ibv_pair pair;
    struct ibv_async_event event;

    pair_open(&pair, NULL);
    assert_int_equal((pair.ibv->ibv_get_async_event)(pair.end[0].context, &event), -1);
    assert_int_equal(errno, EAGAIN);
    fake_ibv_qp_fatal(pair.fake, pair.end[0].qp);
    assert_int_equal((pair.ibv->ibv_get_async_event)(pair.end[0].context, &event), 0);
    assert_ptr_equal(event.element.qp, pair.end[0].qp);
    (pair.ibv->ibv_ack_async_event)(&event);
    assert_null(fake_ibv_misuse(pair.fake));
    (pair.ibv->ibv_ack_async_event)(&event);
    assert_string_equal(fake_ibv_misuse(pair.fake),
                        "ibv_ack_async_event of an event that was acked before");
    fake_ibv_misuse_clear(pair.fake);
    pair_close(&pair);
}

static void registrations_have_their_limits(void **state)
{
    const int write = IBV_ACCESS_LOCAL_WRITE;
    struct fake_ibv *fake = fake_ibv_create(1);
    const struct sl_ibv *ibv = fake_ibv_table(fake);
    struct fake_ibv_device params;
    struct ibv_device **list;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    static uint8_t buf[8192];
    void *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    fake_ibv_device_init(&params, "small");
    params.max_locked = 6000;
    params.attr.max_mr_size = 7000;
    fake_ibv_device_add(fake, &params);
    list = (ibv->ibv_get_device_list)(NULL);
    context = (ibv->ibv_open_device)(list[0]);
    (ibv->ibv_free_device_list)(list);
    pd = (ibv->ibv_alloc_pd)(context);
    assert_null((ibv->ibv_reg_mr)(pd, buf, 7001, write));
    assert_int_equal(errno, EINVAL);
    assert_null((ibv->ibv_reg_mr)(pd, buf, 6001, write));
    assert_int_equal(errno, ENOMEM);
    assert_null((ibv->ibv_reg_mr)(pd, buf, 10, IBV_ACCESS_REMOTE_WRITE));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(munmap(gone, 4096), 0);
    assert_null((ibv->ibv_reg_mr)(pd, gone, 10, write));
    assert_int_equal(errno, EFAULT);
    mr = (ibv->ibv_reg_mr)(pd, buf, 6000, write);
    assert_non_null(mr);
    assert_int_not_equal(mr->lkey, mr->rkey);
    assert_int_equal((ibv->ibv_dereg_mr)(mr), 0);
    assert_int_equal((ibv->ibv_dealloc_pd)(pd), 0);
    assert_int_equal((ibv->ibv_close_device)(context), 0);
    assert_int_equal(fake_ibv_live(fake), 0);
    assert_null(fake_ibv_misuse(fake));
    fake_ibv_destroy(fake);
}

static void calls_fail_when_asked_to(void **state)
{
    struct ibv_pair pair;
    struct ibv_pd *pd;

    pair_open(&pair, NULL);
    fake_ibv_fail(pair.fake, FAKE_IBV_ALLOC_PD, 2, ENOMEM);
    pd = (pair.ibv->ibv_alloc_pd)(pair.end[0].context);
    assert_non_null(pd);
    assert_int_equal((pair.ibv->ibv_dealloc_pd)(pd), 0);
    assert_null((pair.ibv->ibv_alloc_pd)(pair.end[0].context));
    assert_int_equal(errno, ENOMEM);
    fake_ibv_fail(pair.fake, FAKE_IBV_CALL_COUNT, 1, EPERM); /* whichever call comes */
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), EPERM);
    assert_int_equal(end_post(&pair, 0, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
    assert_int_equal(fake_ibv_calls(pair.fake, FAKE_IBV_POST_SEND), 2);
    pair_close(&pair);
}

static void queues_are_held_to_the_limits_of_the_device(void **state)
{
    struct ibv_pair pair;
    struct ibv_device_attr max;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_inline_data = 221}};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8193, .max_sge = 1}};

    pair_open(&pair, NULL);
    assert_int_equal((pair.ibv->ibv_query_device)(pair.end[0].context, &max), 0);
    init.send_cq = init.recv_cq = pair.end[0].cq;
    assert_null((pair.ibv->ibv_create_qp)(pair.end[0].pd, &init));
    assert_int_equal(errno, EINVAL);
    init.cap.max_inline_data = 0;
    init.cap.max_send_wr = (uint32_t)max.max_qp_wr + 1;
    assert_null((pair.ibv->ibv_create_qp)(pair.end[0].pd, &init));
    init.cap.max_send_wr = 1;
    init.recv_cq = pair.end[1].cq; /* of another device */
    assert_null((pair.ibv->ibv_create_qp)(pair.end[0].pd, &init));
    assert_null((pair.ibv->ibv_create_srq)(pair.end[0].pd, &srq));
    assert_null((pair.ibv->ibv_create_cq)(pair.end[0].context, max.max_cqe + 1, NULL, NULL, 0));
    assert_null((pair.ibv->ibv_create_cq)(pair.end[0].context, 1, NULL, NULL, 2));
    assert_null((pair.ibv->ibv_create_cq)(pair.end[0].context, 1, NULL, pair.end[1].channel, 0));
    pair_close(&pair);
}

static void the_gid_table_is_what_the_test_made_it(void **state)
{
    struct ibv_pair pair;
    struct ibv_gid_entry entry;
    struct fake_ibv_gid gid = {fake_ibv_gid_v4(192, 0, 2, 5), IBV_GID_TYPE_ROCE_V2, 3};
    union ibv_gid raw;

    pair_open(&pair, NULL);
    fake_ibv_gid_set(pair.fake, 0, 1, 6, &gid);
    assert_true(end_event(&pair, 0, IBV_EVENT_GID_CHANGE));
    assert_int_equal(
        (pair.ibv->_ibv_query_gid_ex)(pair.end[0].context, 1, 6, &entry, 0, sizeof(entry)), 0);
    assert_memory_equal(&entry.gid, &gid.gid, sizeof(gid.gid));
    assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    assert_int_equal(entry.ndev_ifindex, 3);
    assert_int_equal(
        (pair.ibv->_ibv_query_gid_ex)(pair.end[0].context, 1, 5, &entry, 0, sizeof(entry)),
        ENODATA);
    assert_int_equal((pair.ibv->ibv_query_gid)(pair.end[0].context, 1, 5, &raw), 0);
    assert_int_equal((pair.ibv->ibv_query_gid)(pair.end[0].context, 1, FAKE_IBV_GIDS, &raw), -1);
    pair_close(&pair);
}

static void the_old_query_of_a_port_leaves_later_fields_alone(void **state)
{
    struct ibv_pair pair;
    struct ibv_port_attr attr = {.port_cap_flags2 = 0x1234};

    pair_open(&pair, NULL);
    assert_int_equal((pair.ibv->ibv_query_port)(pair.end[0].context, 1, (void *)&attr), 0);
    assert_int_equal(attr.port_cap_flags2, 0x1234);
    assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_null(fake_ibv_misuse(pair.fake));
    assert_int_equal((pair.ibv->ibv_query_port)(pair.end[0].context, 2, (void *)&attr), EINVAL);
    assert_string_equal(fake_ibv_misuse(pair.fake), "ibv_query_port: fake0 has no port 2");
    fake_ibv_misuse_clear(pair.fake);
    pair_close(&pair);
}

static void mlx5_calls_need_such_a_device(void **state)
{
    struct ibv_pair pair;
    const struct sl_mlx5dv *mlx5;

    pair_open(&pair, NULL);
    mlx5 = fake_ibv_mlx5(pair.fake);
    assert_false((mlx5->mlx5dv_is_supported)(pair.end[0].context->device));
    assert_int_equal((mlx5->mlx5dv_modify_qp_udp_sport)(pair.end[0].qp, 0xc001), EOPNOTSUPP);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_transition_asks_for_all_that_belongs_to_it),
        cmocka_unit_test(an_address_is_looked_at),
        cmocka_unit_test(posts_need_the_right_state),
        cmocka_unit_test(a_drained_send_queue_says_so),
        cmocka_unit_test(what_is_in_use_is_busy),
        cmocka_unit_test(the_use_of_a_dead_object_is_noticed),
        cmocka_unit_test(an_event_is_acked_once),
        cmocka_unit_test(registrations_have_their_limits),
        cmocka_unit_test(calls_fail_when_asked_to),
        cmocka_unit_test(queues_are_held_to_the_limits_of_the_device),
        cmocka_unit_test(the_gid_table_is_what_the_test_made_it),
        cmocka_unit_test(the_old_query_of_a_port_leaves_later_fields_alone),
        cmocka_unit_test(mlx5_calls_need_such_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
