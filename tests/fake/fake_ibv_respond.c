/* SPDX-License-Identifier: Apache-2.0 */
/* What the NIC at the other end of the fake's wire does with a message. */
#include "tests/fake/fake_ibv_inside.h"

static struct fake_cqe recv_cqe(struct fake_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
    struct fake_cqe cqe = {.qp = qp, .is_recv = true};

    if (qp->ibv.srq != NULL)
        cqe.srq = FAKE_OF(fake_srq, qp->ibv.srq);
    memset(&cqe.wc, 0xa5, sizeof(cqe.wc)); /* what verbs leaves undefined */
    cqe.wc.wr_id = wr_id;
    cqe.wc.status = status;
    cqe.wc.qp_num = qp->ibv.qp_num;
    cqe.wakes_solicited = status != IBV_WC_SUCCESS;
    return cqe;
}

void fake_respond_flush(struct fake_qp *qp)
{
    struct fake_recv *recv = fake_rq_pop(&qp->rq);
    struct fake_cqe cqe = recv_cqe(qp, recv->wr_id, IBV_WC_WR_FLUSH_ERR);

    fake_cq_push(FAKE_OF(fake_cq, qp->ibv.recv_cq), &cqe);
}

static struct fake_recv *receive(struct fake_qp *qp)
{
    struct fake_srq *srq;
    struct fake_recv *recv;

    if (qp->ibv.srq == NULL)
        return fake_rq_pop(&qp->rq);
    srq = FAKE_OF(fake_srq, qp->ibv.srq);
    recv = fake_rq_pop(&srq->rq);
    if (recv != NULL && srq->rq.count < srq->limit) {
        srq->limit = 0;
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_SRQ_LIMIT_REACHED,
                         &srq->obj, 0);
    }
    return recv;
}

void fake_respond_take(struct fake_qp *qp)
{
    struct fake_recv *recv = qp->ibv.srq != NULL ? receive(qp) : NULL;

    qp->has_ahead = recv != NULL;
    qp->ahead_wr_id = recv != NULL ? recv->wr_id : 0;
    qp->ahead_at = qp->obj.dev->fake->now +
                   sl_rng_below(&qp->obj.dev->fake->rng, qp->obj.dev->params.ahead_steps + 1);
}

void fake_respond_flush_taken(struct fake_qp *qp)
{
    struct fake_cqe cqe = recv_cqe(qp, qp->ahead_wr_id, IBV_WC_WR_FLUSH_ERR);

    qp->has_ahead = false;
    fake_cq_push(FAKE_OF(fake_cq, qp->ibv.recv_cq), &cqe);
}

bool fake_has_receive(struct fake_qp *qp)
{
    return (qp->ibv.srq != NULL ? FAKE_OF(fake_srq, qp->ibv.srq)->rq.count : qp->rq.count) != 0;
}

static bool is_write(const struct fake_msg *msg)
{
    return msg->opcode == IBV_WR_RDMA_WRITE || msg->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool fake_respond_place(struct fake_qp *qp, const struct fake_msg *msg, uint64_t from, uint64_t to)
{
    uint8_t *at;

    if (msg->len == 0)
        return true;
    at = fake_key_at(qp->obj.dev, qp->ibv.pd, true, msg->rkey, msg->remote_addr, msg->len,
                     IBV_ACCESS_REMOTE_WRITE);
    if (at == NULL)
        return false;
    memcpy(at + from, msg->data + from, to - from);
    return true;
}

static enum fake_answer nak(struct fake_qp *qp, enum ibv_wc_status theirs, bool access,
                            enum ibv_wc_status *status)
{
    if (access)
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_QP_ACCESS_ERR, &qp->obj,
                         0);
    fake_qp_error(qp);
    *status = theirs;
    return FAKE_NAK;
}

/* The bytes of a SEND go where its receive says. SUCCESS, LOC_LEN_ERR or LOC_PROT_ERR. */
static enum ibv_wc_status scatter(struct fake_qp *qp, const struct fake_recv *recv,
                                  const struct fake_msg *msg)
{
    struct ibv_pd *pd = qp->ibv.srq != NULL ? qp->ibv.srq->pd : qp->ibv.pd;
    uint64_t room = 0, done = 0;

    for (int i = 0; i < recv->sge_count; i++)
        room += recv->sge[i].length;
    if (room < msg->len)
        return IBV_WC_LOC_LEN_ERR;
    for (int i = 0; i < recv->sge_count && done < msg->len; i++) {
        const struct ibv_sge *sge = &recv->sge[i];
        uint64_t part = msg->len - done < sge->length ? msg->len - done : sge->length;
        uint8_t *at = fake_key_at(qp->obj.dev, pd, false, sge->lkey, sge->addr, sge->length,
                                  IBV_ACCESS_LOCAL_WRITE);

        if (part == 0)
            continue;
        if (at == NULL)
            return IBV_WC_LOC_PROT_ERR;
        memcpy(at, msg->data + done, part);
        done += part;
    }
    return IBV_WC_SUCCESS;
}

static enum fake_answer respond_recv(struct fake_qp *qp, const struct fake_msg *msg,
                                     enum ibv_wc_status *theirs)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    struct fake_recv *recv = receive(qp);
    struct fake_cqe cqe;

    if (recv == NULL)
        return FAKE_RNR;
    if (!is_write(msg))
        status = scatter(qp, recv, msg);
    cqe = recv_cqe(qp, recv->wr_id, status);
    if (status == IBV_WC_SUCCESS) {
        cqe.wakes_solicited = msg->solicited;
        cqe.wc.opcode = is_write(msg) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        cqe.wc.byte_len = (uint32_t)msg->len;
        cqe.wc.wc_flags = 0;
        cqe.wc.src_qp = msg->src_qpn;
        if (msg->opcode == IBV_WR_SEND_WITH_IMM || is_write(msg)) {
            cqe.wc.wc_flags = IBV_WC_WITH_IMM;
            cqe.wc.imm_data = msg->imm;
        }
        qp->arrived++;
    }
    fake_cq_push(FAKE_OF(fake_cq, qp->ibv.recv_cq), &cqe);
    if (status == IBV_WC_SUCCESS)
        return FAKE_ACK;
    return nak(qp, status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR, false,
               theirs);
}

enum fake_answer fake_respond(struct fake_qp *qp, const struct fake_msg *msg,
                              enum ibv_wc_status *status)
{
    unsigned may = qp->attr.qp_access_flags, mtu_bytes = 128u << qp->attr.path_mtu;
    enum fake_answer answer = FAKE_ACK;
    bool all = msg->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;

    if (qp->state == IBV_QPS_RTR && !qp->comm_est) {
        qp->comm_est = true;
        fake_event_raise(FAKE_OF(fake_context, qp->ibv.context), IBV_EVENT_COMM_EST, &qp->obj, 0);
    }
    if (msg->opcode == IBV_WR_RDMA_READ) {
        if ((may & IBV_ACCESS_REMOTE_READ) == 0 || qp->attr.max_dest_rd_atomic == 0)
            return nak(qp, IBV_WC_REM_INV_REQ_ERR, false, status);
        if (msg->len != 0 && fake_key_at(qp->obj.dev, qp->ibv.pd, true, msg->rkey, msg->remote_addr,
                                         msg->len, IBV_ACCESS_REMOTE_READ) == NULL)
            return nak(qp, IBV_WC_REM_ACCESS_ERR, true, status);
    } else if (is_write(msg)) {
        uint64_t end = msg->len;

        if (!all && end != 0)
            end = (end - 1) / mtu_bytes * mtu_bytes;
        if ((may & IBV_ACCESS_REMOTE_WRITE) == 0)
            return nak(qp, IBV_WC_REM_INV_REQ_ERR, false, status);
        /* The last packet, which brings the immediate, waits for the receive; the others do not. */
        if (!fake_respond_place(qp, msg, msg->placed < end ? msg->placed : end, end))
            return nak(qp, IBV_WC_REM_ACCESS_ERR, true, status);
    }
    if (msg->opcode != IBV_WR_RDMA_READ && msg->opcode != IBV_WR_RDMA_WRITE) {
        if (!all && fake_has_receive(qp))
            fake_respond_place(qp, msg, msg->placed < msg->len ? msg->placed : msg->len, msg->len);
        answer = respond_recv(qp, msg, status);
    }
    if (answer == FAKE_ACK)
        qp->rq_psn = (qp->rq_psn + fake_packets(qp, msg->len)) & 0xffffff;
    return answer;
}
