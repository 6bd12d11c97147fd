/* SPDX-License-Identifier: Apache-2.0 */
/* Work requests of the fake libibverbs: checked and queued, nothing else happens here. */
#include "tests/fake/fake_ibv_inside.h"

#include <stdlib.h>

#define SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

int fake_rq_init(struct fake_rq *rq, unsigned cap, unsigned sge_cap)
{
    rq->cap = cap;
    rq->sge_cap = sge_cap;
    rq->ring = calloc(cap + 1, sizeof(*rq->ring));
    rq->sges = calloc((size_t)cap * sge_cap + 1, sizeof(*rq->sges));
    if (rq->ring == NULL || rq->sges == NULL)
        abort();
    for (unsigned i = 0; i < cap; i++)
        rq->ring[i].sge = rq->sges + (size_t)i * sge_cap;
    return 0;
}

void fake_rq_fini(struct fake_rq *rq)
{
    free(rq->ring);
    free(rq->sges);
}

struct fake_recv *fake_rq_pop(struct fake_rq *rq)
{
    struct fake_recv *recv;

    if (rq->count == 0)
        return NULL;
    recv = &rq->ring[rq->first];
    rq->first = (rq->first + 1) % rq->cap;
    rq->count--;
    return recv;
}

static int rq_push(struct fake_rq *rq, const struct ibv_recv_wr *wr)
{
    struct fake_recv *recv;

    if (wr->num_sge < 0 || wr->num_sge > (int)rq->sge_cap)
        return EINVAL;
    if (rq->held == rq->cap)
        return ENOMEM;
    recv = &rq->ring[(rq->first + rq->count) % rq->cap];
    recv->wr_id = wr->wr_id;
    recv->sge_count = wr->num_sge;
    if (wr->num_sge != 0)
        memcpy(recv->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
    rq->count++;
    rq->held++;
    return 0;
}

static int recv_list(struct fake_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int error = 0;

    for (; wr != NULL && error == 0; wr = wr->next) {
        error = rq_push(rq, wr);
        if (error != 0)
            *bad = wr;
    }
    return error;
}

int fake_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = fake_enter(&qp->obj, FAKE_IBV_POST_RECV);

    if (error == 0 && (qp->state == IBV_QPS_RESET || ibv->srq != NULL))
        error = EINVAL;
    if (error != 0) {
        *bad = wr;
        return error;
    }
    return recv_list(&qp->rq, wr, bad);
}

int fake_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    FAKE_ALONE;
    struct fake_srq *srq = FAKE_OF(fake_srq, ibv);
    int error = fake_enter(&srq->obj, FAKE_IBV_POST_SRQ_RECV);

    if (error != 0) {
        *bad = wr;
        return error;
    }
    return recv_list(&srq->rq, wr, bad);
}

uint64_t fake_hash(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    uint64_t word;

    for (; len >= 8; len -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; len != 0; len--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* Verbs does not check keys here, the NIC does later. But what is posted is lent from now on,
 * so remember it. */
static void remember(struct fake_qp *qp, struct fake_wqe *wqe)
{
    uint64_t hash = 1;

    wqe->hashed = false;
    if ((wqe->flags & IBV_SEND_INLINE) != 0 || wqe->opcode == IBV_WR_RDMA_READ)
        return;
    for (int i = 0; i < wqe->sge_count; i++) {
        const struct ibv_sge *sge = &wqe->sge[i];
        const uint8_t *at =
            fake_key_at(qp->obj.dev, qp->ibv.pd, false, sge->lkey, sge->addr, sge->length, 0);

        if (at == NULL)
            return;
        hash = fake_hash(hash, at, sge->length);
    }
    wqe->hash = hash;
    wqe->hashed = true;
}

bool fake_wqe_gather(struct fake_qp *qp, const struct fake_wqe *wqe, uint8_t *out)
{
    if ((wqe->flags & IBV_SEND_INLINE) != 0) {
        memcpy(out, wqe->inlined, wqe->len);
        return true;
    }
    for (int i = 0; i < wqe->sge_count; i++) {
        const struct ibv_sge *sge = &wqe->sge[i];
        const uint8_t *at;

        if (sge->length == 0)
            continue;
        at = fake_key_at(qp->obj.dev, qp->ibv.pd, false, sge->lkey, sge->addr, sge->length, 0);
        if (at == NULL)
            return false;
        memcpy(out, at, sge->length);
        out += sge->length;
    }
    return true;
}

static int send_check(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
    const struct ibv_qp_cap *cap = &qp->init.cap;
    uint64_t len = 0;

    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ: break;
    default: return EINVAL;
    }
    if (wr->num_sge < 0 || wr->num_sge > (int)cap->max_send_sge ||
        (wr->send_flags & ~(unsigned)SEND_FLAGS) != 0)
        return EINVAL;
    for (int i = 0; i < wr->num_sge; i++)
        len += wr->sg_list[i].length;
    if ((wr->send_flags & IBV_SEND_INLINE) != 0 &&
        (wr->opcode == IBV_WR_RDMA_READ || len > cap->max_inline_data))
        return EINVAL;
    return qp->tail - qp->head == cap->max_send_wr ? ENOMEM : 0;
}

static void send_queue(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
    struct fake_wqe *wqe = fake_wqe_at(qp, qp->tail);
    struct ibv_sge *sge = wqe->sge;
    uint8_t *inlined = wqe->inlined;

    free(wqe->read_data);
    *wqe = (struct fake_wqe){.wr_id = wr->wr_id,
                             .opcode = wr->opcode,
                             .flags = wr->send_flags,
                             .imm = wr->imm_data,
                             .remote_addr = wr->wr.rdma.remote_addr,
                             .rkey = wr->wr.rdma.rkey,
                             .sge_count = wr->num_sge,
                             .sge = sge,
                             .inlined = inlined};
    if (qp->init.sq_sig_all != 0)
        wqe->flags |= IBV_SEND_SIGNALED;
    for (int i = 0; i < wr->num_sge; i++) {
        if ((wr->send_flags & IBV_SEND_INLINE) != 0)
            memcpy(inlined + wqe->len, (const void *)(uintptr_t)wr->sg_list[i].addr,
                   wr->sg_list[i].length);
        else
            sge[i] = wr->sg_list[i];
        wqe->len += wr->sg_list[i].length;
    }
    remember(qp, wqe);
    qp->tail++;
}

int fake_bind_mw(struct ibv_qp *ibv, struct ibv_mw *window, struct ibv_mw_bind *bind)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    struct fake_mw *mw = FAKE_OF(fake_mw, window);
    const struct ibv_mw_bind_info *info = &bind->bind_info;
    int error = fake_enter(&qp->obj, FAKE_IBV_BIND_MW);

    if (error == 0)
        error = fake_enter_plain(&mw->obj, "ibv_bind_mw");
    if (error == 0 && (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT ||
                       qp->state == IBV_QPS_RTR || (bind->send_flags & IBV_SEND_INLINE) != 0))
        error = EINVAL;
    /* Verbs allows it, and soft-RoCE's library looks at the region's key all the same. */
    if (error == 0 && info->mr == NULL)
        fake_misuse(qp->obj.dev->fake, "ibv_bind_mw without a region");
    if (error == 0 && info->mr == NULL)
        error = EINVAL;
    if (error == 0)
        error = fake_enter_plain(&FAKE_OF(fake_mr, info->mr)->obj, "ibv_bind_mw");
    if (error == 0 && qp->tail - qp->head == qp->init.cap.max_send_wr)
        error = ENOMEM;
    if (error != 0)
        return error;
    struct fake_wqe *wqe = fake_wqe_at(qp, qp->tail);
    struct ibv_sge *sge = wqe->sge;
    uint8_t *inlined = wqe->inlined;

    free(wqe->read_data);
    *wqe = (struct fake_wqe){.wr_id = bind->wr_id,
                             .opcode = IBV_WR_BIND_MW,
                             .flags = bind->send_flags,
                             .sge = sge,
                             .inlined = inlined,
                             .bind = {.mw = mw,
                                      .mr = FAKE_OF(fake_mr, info->mr),
                                      .old_key = window->rkey,
                                      .new_key = ibv_inc_rkey(window->rkey),
                                      .addr = info->addr,
                                      .len = info->length,
                                      .access = info->mw_access_flags}};
    window->rkey = wqe->bind.new_key;
    qp->tail++;
    qp->posts++;
    return 0;
}

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = fake_enter(&qp->obj, FAKE_IBV_POST_SEND);

    if (error == 0 &&
        (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR))
        error = EINVAL;
    if (error == 0)
        qp->posts++;
    for (; wr != NULL && error == 0; wr = wr->next) {
        error = send_check(qp, wr);
        if (error != 0)
            break;
        send_queue(qp, wr);
    }
    if (error != 0)
        *bad = wr;
    return error;
}
