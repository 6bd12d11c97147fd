/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/verbs/ibv_pair.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct pair_options defaults = {
    .seed = 1,
    .rnr_retry = 7,
    .timeout = 14,
    .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

struct pair_options pair_defaults(void)
{
    return defaults;
}

bool pair_readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 1;
}

static const struct pair_options *or_defaults(const struct pair_options *options)
{
    return options != NULL ? options : &defaults;
}

static void end_open(struct ibv_pair *pair, struct ibv_end *end, struct ibv_device *device,
                     const struct pair_options *options)
{
    const struct sl_ibv *ibv = pair->ibv;
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = PAIR_DEPTH, .max_sge = 2}};
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = PAIR_DEPTH,
                                            .max_recv_wr = PAIR_DEPTH,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 2,
                                            .max_inline_data = 64}};

    end->context = (ibv->ibv_open_device)(device);
    assert_non_null(end->context);
    assert_int_equal(fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK), 0);
    end->pd = (ibv->ibv_alloc_pd)(end->context);
    end->buf = calloc(1, PAIR_BUF);
    end->mr = (ibv->ibv_reg_mr)(end->pd, end->buf, PAIR_BUF, (int)options->access);
    assert_non_null(end->mr);
    end->channel = (ibv->ibv_create_comp_channel)(end->context);
    assert_int_equal(fcntl(end->channel->fd, F_SETFL, O_NONBLOCK), 0);
    end->cq = (ibv->ibv_create_cq)(end->context, options->cqe != 0 ? options->cqe : 64, end,
                                   end->channel, 0);
    assert_non_null(end->cq);
    end->srq = options->srq ? (ibv->ibv_create_srq)(end->pd, &srq) : NULL;
    init.send_cq = init.recv_cq = end->cq;
    init.srq = end->srq;
    end->qp = (ibv->ibv_create_qp)(end->pd, &init);
    assert_non_null(end->qp);
}

void pair_open(struct ibv_pair *pair, const struct pair_options *given)
{
    const struct pair_options *options = or_defaults(given);
    struct fake_ibv_device params;
    struct ibv_device **list;
    int count;

    *pair = (struct ibv_pair){.fake = fake_ibv_create(options->seed)};
    pair->ibv = fake_ibv_table(pair->fake);
    fake_ibv_device_init(&params, "fake0");
    fake_ibv_device_add(pair->fake, &params);
    fake_ibv_device_init(&params, "fake1");
    fake_ibv_device_add(pair->fake, &params);
    list = (pair->ibv->ibv_get_device_list)(&count);
    assert_int_equal(count, 2);
    for (unsigned i = 0; i < 2; i++)
        end_open(pair, &pair->end[i], list[i], options);
    (pair->ibv->ibv_free_device_list)(list);
    if (!options->apart)
        pair_connect(pair, options, 100);
}

void pair_connect(struct ibv_pair *pair, const struct pair_options *options, uint32_t psn)
{
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(end_init(pair, i, options), 0);
        assert_int_equal(end_rtr(pair, i, psn + 1 - i), 0);
        assert_int_equal(end_rts(pair, i, options, psn + i), 0);
    }
}

void pair_close(struct ibv_pair *pair)
{
    const struct sl_ibv *ibv = pair->ibv;

    for (unsigned i = 0; i < 2; i++) {
        struct ibv_end *end = &pair->end[i];

        if (end->qp != NULL)
            assert_int_equal((ibv->ibv_destroy_qp)(end->qp), 0);
        if (end->srq != NULL)
            assert_int_equal((ibv->ibv_destroy_srq)(end->srq), 0);
        if (end->cq != NULL)
            assert_int_equal((ibv->ibv_destroy_cq)(end->cq), 0);
        assert_int_equal((ibv->ibv_destroy_comp_channel)(end->channel), 0);
        if (end->mr != NULL)
            assert_int_equal((ibv->ibv_dereg_mr)(end->mr), 0);
        assert_int_equal((ibv->ibv_dealloc_pd)(end->pd), 0);
        assert_int_equal((ibv->ibv_close_device)(end->context), 0);
        free(end->buf);
    }
    if (fake_ibv_misuse(pair->fake) != NULL)
        fail_msg("%s", fake_ibv_misuse(pair->fake));
    assert_int_equal(fake_ibv_live(pair->fake), 0);
    fake_ibv_destroy(pair->fake);
}

int end_init(struct ibv_pair *pair, unsigned which, const struct pair_options *options)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = or_defaults(options)->access};

    return (pair->ibv->ibv_modify_qp)(pair->end[which].qp, &attr,
                                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                          IBV_QP_ACCESS_FLAGS);
}

int end_rtr(struct ibv_pair *pair, unsigned which, uint32_t psn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .rq_psn = psn,
        .dest_qp_num = pair->end[1 - which].qp->qp_num,
        .max_dest_rd_atomic = 2,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = 3}}};

    (pair->ibv->ibv_query_gid)(pair->end[1 - which].context, 1, 3, &attr.ah_attr.grh.dgid);
    return (pair->ibv->ibv_modify_qp)(pair->end[which].qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_MIN_RNR_TIMER);
}

int end_rts(struct ibv_pair *pair, unsigned which, const struct pair_options *options, uint32_t psn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = or_defaults(options)->timeout,
                               .retry_cnt = 3,
                               .rnr_retry = or_defaults(options)->rnr_retry,
                               .sq_psn = psn,
                               .max_rd_atomic = 2};

    return (pair->ibv->ibv_modify_qp)(pair->end[which].qp, &attr,
                                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                          IBV_QP_MAX_QP_RD_ATOMIC);
}

int end_state(struct ibv_pair *pair, unsigned which, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};

    return (pair->ibv->ibv_modify_qp)(pair->end[which].qp, &attr, IBV_QP_STATE);
}

int end_post(struct ibv_pair *pair, unsigned which, enum ibv_wr_opcode opcode, uint64_t wr_id,
             uint32_t off, uint32_t len, uint32_t remote, unsigned flags)
{
    struct ibv_end *end = &pair->end[which], *peer = &pair->end[1 - which];
    struct ibv_sge sge = {.addr = (uintptr_t)end->buf + off, .length = len, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = flags,
                             .imm_data = htobe32(0x1000u + (uint32_t)wr_id)};
    struct ibv_send_wr *bad = NULL;
    int error;

    if (peer->mr != NULL) {
        wr.wr.rdma.remote_addr = (uintptr_t)peer->buf + remote;
        wr.wr.rdma.rkey = peer->mr->rkey;
    }
    error = ibv_post_send(end->qp, &wr, &bad);
    assert_ptr_equal(bad, error != 0 ? &wr : NULL);
    return error;
}

int end_recv(struct ibv_pair *pair, unsigned which, uint64_t wr_id, uint32_t off, uint32_t len)
{
    struct ibv_end *end = &pair->end[which];
    struct ibv_sge sge = {.addr = (uintptr_t)end->buf + off, .length = len, .lkey = end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;

    return end->srq != NULL ? ibv_post_srq_recv(end->srq, &wr, &bad)
                            : ibv_post_recv(end->qp, &wr, &bad);
}

bool end_poll(struct ibv_pair *pair, unsigned which, struct ibv_wc *wc)
{
    return ibv_poll_cq(pair->end[which].cq, 1, wc) == 1;
}

struct ibv_wc end_wait(struct ibv_pair *pair, unsigned which)
{
    struct ibv_wc wc;

    for (unsigned i = 0; i < 1000; i++) {
        if (end_poll(pair, which, &wc))
            return wc;
        fake_ibv_step(pair->fake);
    }
    fail_msg("no completion came");
    abort();
}

bool end_event(struct ibv_pair *pair, unsigned which, enum ibv_event_type type)
{
    struct ibv_async_event event;

    if ((pair->ibv->ibv_get_async_event)(pair->end[which].context, &event) != 0)
        return false;
    (pair->ibv->ibv_ack_async_event)(&event);
    return event.event_type == type;
}
