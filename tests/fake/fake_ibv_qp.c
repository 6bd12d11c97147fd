/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of the fake libibverbs: made, taken from state to state, destroyed. */
#include "tests/fake/fake_ibv_inside.h"

#include "core/err.h"

#include <stdlib.h>

#define STATE_BIT(state) (1u << (state))

/* What a transition asks for and allows, for RC: the tables of ibv_modify_qp(3). */
static const struct transition {
    enum ibv_qp_state from, to;
    int required, optional;
} transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

struct fake_wqe *fake_wqe_at(struct fake_qp *qp, uint64_t position)
{
    return &qp->wqes[position % qp->init.cap.max_send_wr];
}

struct fake_qp *fake_qp_find(struct fake_device *dev, uint32_t qpn)
{
    struct fake_qp *qp;

    if (qpn < FAKE_QPN_FIRST || qpn - FAKE_QPN_FIRST >= dev->qp_count)
        return NULL;
    qp = dev->qps[qpn - FAKE_QPN_FIRST];
    return qp->obj.alive && !fake_obj_gone(&qp->obj) ? qp : NULL;
}

static bool has_lid(const struct ibv_port_attr *attr, unsigned lid)
{
    return lid >= attr->lid && lid < attr->lid + (1u << attr->lmc);
}

static struct fake_device *by_lid(struct fake_ibv *fake, uint16_t lid, unsigned *port)
{
    for (unsigned d = 0; d < fake->device_count; d++)
        for (unsigned p = 1; p <= fake->devices[d]->params.attr.phys_port_cnt; p++)
            if (has_lid(&fake->devices[d]->params.ports[p - 1].attr, lid)) {
                *port = p;
                return fake->devices[d];
            }
    return NULL;
}

static struct fake_device *av_target(struct fake_device *dev, const struct ibv_ah_attr *av,
                                     uint32_t gid_type, unsigned *port)
{
    if (av->is_global)
        return fake_gid_find(dev->fake, &av->grh.dgid, gid_type, port);
    return by_lid(dev->fake, av->dlid, port);
}

struct fake_qp *fake_qp_partner(struct fake_qp *qp)
{
    struct fake_device *dev;
    struct fake_qp *partner;
    unsigned port;

    if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || !qp->has_av)
        return NULL;
    dev = av_target(qp->obj.dev, &qp->attr.ah_attr, qp->sgid_type, &port);
    partner = dev != NULL ? fake_qp_find(dev, qp->attr.dest_qp_num) : NULL;
    return partner != NULL && partner->attr.port_num == port ? partner : NULL;
}

void fake_qp_acks_die(struct fake_qp *qp)
{
    struct fake_qp *partner = fake_qp_partner(qp);

    if (partner == NULL || partner->peer != qp || partner->exec == partner->ack ||
        fake_wire_loses(qp, partner, FAKE_IBV_LOSE_ANSWERS))
        return;
    partner->ack_sent =
        partner->ack + sl_rng_below(&qp->obj.dev->fake->rng, partner->exec - partner->ack + 1);
}

void fake_qp_error(struct fake_qp *qp)
{
    bool hears_any = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS;

    if (qp->state == IBV_QPS_ERR)
        return;
    fake_qp_acks_die(qp);
    qp->state = IBV_QPS_ERR;
    qp->last_wqe_due = qp->ibv.srq != NULL;
    qp->drain_due = false;
    if (qp->obj.dev->params.ahead_steps != 0 && hears_any)
        fake_respond_take(qp);
}

static void read_data_free(struct fake_qp *qp)
{
    for (unsigned i = 0; i < qp->init.cap.max_send_wr; i++) {
        free(qp->wqes[i].read_data);
        qp->wqes[i].read_data = NULL;
    }
}

void fake_qp_free(struct fake_qp *qp)
{
    if (qp->obj.alive)
        read_data_free(qp);
    free(qp->wqes);
    free(qp->sges);
    free(qp->inlines);
    fake_rq_fini(&qp->rq);
}

static int create_check(struct fake_pd *pd, const struct ibv_qp_init_attr *init)
{
    const struct fake_ibv_device *params = &pd->obj.dev->params;
    const struct ibv_device_attr *max = &params->attr;
    const struct ibv_qp_cap *cap = &init->cap;
    int error = fake_enter(&pd->obj, FAKE_IBV_CREATE_QP);

    if (error != 0)
        return error;
    if (init->qp_type != IBV_QPT_RC || init->send_cq == NULL || init->recv_cq == NULL)
        return EINVAL;
    if (init->send_cq->context != pd->ibv.context || init->recv_cq->context != pd->ibv.context ||
        (init->srq != NULL && init->srq->context != pd->ibv.context))
        return EINVAL;
    if (fake_enter_plain(&FAKE_OF(fake_cq, init->send_cq)->obj, "ibv_create_qp") != 0 ||
        fake_enter_plain(&FAKE_OF(fake_cq, init->recv_cq)->obj, "ibv_create_qp") != 0 ||
        (init->srq != NULL &&
         fake_enter_plain(&FAKE_OF(fake_srq, init->srq)->obj, "ibv_create_qp") != 0))
        return EINVAL;
    if (cap->max_send_wr > (unsigned)max->max_qp_wr || cap->max_send_sge > (unsigned)max->max_sge ||
        cap->max_inline_data > params->max_inline)
        return EINVAL;
    if (init->srq == NULL &&
        (cap->max_recv_wr > (unsigned)max->max_qp_wr || cap->max_recv_sge > (unsigned)max->max_sge))
        return EINVAL;
    return pd->obj.dev->live[FAKE_IBV_QP] >= (unsigned)max->max_qp ? ENOMEM : 0;
}

static void number(struct fake_device *dev, struct fake_qp *qp)
{
    if (dev->qp_count == dev->qp_cap) {
        dev->qp_cap = dev->qp_cap * 2 + 64;
        dev->qps = realloc(dev->qps, dev->qp_cap * sizeof(struct fake_qp *));
        if (dev->qps == NULL)
            abort();
    }
    qp->ibv.qp_num = FAKE_QPN_FIRST + dev->qp_count;
    dev->qps[dev->qp_count++] = qp;
    dev->live[FAKE_IBV_QP]++;
}

static void queues_init(struct fake_qp *qp)
{
    const struct ibv_qp_cap *cap = &qp->init.cap;
    unsigned wrs = cap->max_send_wr;

    qp->wqes = calloc(wrs + 1, sizeof(*qp->wqes));
    qp->sges = calloc((size_t)wrs * cap->max_send_sge + 1, sizeof(*qp->sges));
    qp->inlines = calloc((size_t)wrs * cap->max_inline_data + 1, 1);
    if (qp->wqes == NULL || qp->sges == NULL || qp->inlines == NULL)
        abort();
    for (unsigned i = 0; i < wrs; i++) {
        qp->wqes[i].sge = qp->sges + (size_t)i * cap->max_send_sge;
        qp->wqes[i].inlined = qp->inlines + (size_t)i * cap->max_inline_data;
    }
    if (qp->ibv.srq == NULL)
        fake_rq_init(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
}

static struct ibv_qp *create_qp(struct ibv_pd *ibv, struct ibv_qp_init_attr *init)
{
    FAKE_ALONE;
    struct fake_pd *pd = FAKE_OF(fake_pd, ibv);
    struct fake_qp *qp;
    int error = create_check(pd, init);

    if (error != 0) {
        errno = error;
        return NULL;
    }
    qp = fake_obj_new(pd->obj.dev, FAKE_IBV_QP, sizeof(*qp), offsetof(struct fake_qp, obj));
    qp->ibv.context = ibv->context;
    qp->ibv.qp_context = init->qp_context;
    qp->ibv.pd = ibv;
    qp->ibv.send_cq = init->send_cq;
    qp->ibv.recv_cq = init->recv_cq;
    qp->ibv.srq = init->srq;
    qp->ibv.qp_type = init->qp_type;
    if (init->srq != NULL)
        init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
    qp->init = *init;
    queues_init(qp);
    number(pd->obj.dev, qp);
    pd->obj.users++;
    FAKE_OF(fake_cq, init->send_cq)->obj.users++;
    FAKE_OF(fake_cq, init->recv_cq)->obj.users++;
    if (init->srq != NULL)
        FAKE_OF(fake_srq, init->srq)->obj.users++;
    return &qp->ibv;
}

/* As most drivers do: what its completion queues still hold of this one goes away unseen. */
static void reset(struct fake_qp *qp, bool keeps_wcs)
{
    fake_qp_acks_die(qp);
    if (!keeps_wcs) {
        fake_cq_forget(FAKE_OF(fake_cq, qp->ibv.send_cq), qp);
        fake_cq_forget(FAKE_OF(fake_cq, qp->ibv.recv_cq), qp);
    }
    read_data_free(qp);
    qp->state = IBV_QPS_RESET;
    if (qp->has_ahead) /* its place is free again, and nobody hears of it */
        FAKE_OF(fake_srq, qp->ibv.srq)->rq.held--;
    qp->has_ahead = false;
    qp->head = qp->ack = qp->exec = qp->tail = qp->ack_sent = 0;
    qp->rq.first = qp->rq.count = qp->rq.held = 0;
    qp->retry_at = qp->rnr_until = 0;
    qp->tries = qp->rnr_tries = qp->reads_out = 0;
    qp->stopped = qp->cut = qp->comm_est = qp->last_wqe_due = qp->drain_due = qp->has_av = false;
    qp->waits_for_receive = false;
    qp->arrived = qp->posts = 0;
    qp->peer = NULL;
    qp->epoch++;
    qp->udp_sport = 0;
    qp->lag_port = 0;
    qp->ece_set = qp->ece = 0;
    memset(&qp->attr, 0, sizeof(qp->attr));
}

static int av_check(struct fake_qp *qp, const struct ibv_ah_attr *av, unsigned port_num,
                    const struct fake_ibv_gid **sgid)
{
    struct fake_device *dev = qp->obj.dev;
    bool ethernet;
    unsigned port;

    if (av->static_rate != IBV_RATE_MAX &&
        (dev->params.one_rate || av->static_rate > IBV_RATE_1200_GBPS))
        return EINVAL;
    if (av->port_num != port_num || av->sl > 15 ||
        av->src_path_bits >> dev->params.ports[port_num - 1].attr.lmc != 0)
        return EINVAL;
    ethernet = dev->params.ports[port_num - 1].attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    *sgid = NULL;
    if (!av->is_global)
        return ethernet ? EINVAL : 0;
    *sgid = fake_gid_at(dev, port_num, av->grh.sgid_index);
    if (*sgid == NULL || av->grh.flow_label > 0xfffff || av->grh.hop_limit == 0)
        return EINVAL;
    /* RoCE: the kernel resolves the address while the call waits. */
    if (ethernet && av_target(dev, av, (*sgid)->type, &port) == NULL)
        return ETIMEDOUT;
    return 0;
}

static int values_check(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask,
                        const struct fake_ibv_gid **sgid)
{
    const struct fake_ibv_device *params = &qp->obj.dev->params;
    unsigned port = (mask & IBV_QP_PORT) != 0 ? attr->port_num : qp->attr.port_num;
    bool bad = false;

    if ((mask & IBV_QP_CUR_STATE) != 0)
        bad |= attr->cur_qp_state != qp->state;
    if ((mask & IBV_QP_PORT) != 0)
        bad |= port == 0 || port > params->attr.phys_port_cnt;
    if ((mask & IBV_QP_PKEY_INDEX) != 0)
        bad |= port == 0 || port > params->attr.phys_port_cnt ||
               attr->pkey_index >= params->ports[port - 1].attr.pkey_tbl_len ||
               fake_pkey_at(qp->obj.dev, port, attr->pkey_index) == 0;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0)
        bad |= (attr->qp_access_flags &
                ~(unsigned)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if (bad)
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) != 0)
        bad |= attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 ||
               attr->path_mtu > params->ports[port - 1].attr.active_mtu;
    if ((mask & IBV_QP_RQ_PSN) != 0)
        bad |= attr->rq_psn > 0xffffff;
    if ((mask & IBV_QP_SQ_PSN) != 0)
        bad |= attr->sq_psn > 0xffffff;
    if ((mask & IBV_QP_DEST_QPN) != 0)
        bad |= attr->dest_qp_num > 0xffffff;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0)
        bad |= attr->min_rnr_timer > 31;
    if ((mask & IBV_QP_TIMEOUT) != 0)
        bad |= attr->timeout > 31;
    if ((mask & IBV_QP_RETRY_CNT) != 0)
        bad |= attr->retry_cnt > 7;
    if ((mask & IBV_QP_RNR_RETRY) != 0)
        bad |= attr->rnr_retry > 7;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        bad |= attr->max_rd_atomic > params->attr.max_qp_init_rd_atom;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0)
        bad |= attr->max_dest_rd_atomic > params->attr.max_qp_rd_atom;
    if (bad)
        return EINVAL;
    return (mask & IBV_QP_AV) != 0 ? av_check(qp, &attr->ah_attr, port, sgid) : 0;
}

#define TAKE(bit, field)                                                                           \
    if ((mask & (bit)) != 0)                                                                       \
    qp->attr.field = attr->field

static void values_take(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask,
                        const struct fake_ibv_gid *sgid)
{
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_AV, ah_attr);
    if ((mask & IBV_QP_AV) != 0) {
        qp->has_av = true;
        qp->sgid_type = sgid != NULL ? sgid->type : (uint32_t)IBV_GID_TYPE_IB;
    }
    if ((mask & IBV_QP_RQ_PSN) != 0)
        qp->rq_psn = attr->rq_psn;
    if ((mask & IBV_QP_SQ_PSN) != 0)
        qp->sq_psn = attr->sq_psn;
}

static const struct transition *transition_find(enum ibv_qp_state from, enum ibv_qp_state to)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(transitions); i++)
        if (transitions[i].from == from && transitions[i].to == to)
            return &transitions[i];
    return NULL;
}

static int modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = fake_enter(&qp->obj, FAKE_IBV_MODIFY_QP), given = mask & ~IBV_QP_STATE;
    enum ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : qp->state;
    const struct transition *step = transition_find(qp->state, to);
    const struct fake_ibv_gid *sgid = NULL;

    if (error != 0)
        return error;
    if (step == NULL || (given & step->required) != step->required ||
        (given & ~(step->required | step->optional)) != 0)
        return EINVAL;
    error = values_check(qp, attr, given, &sgid);
    if (error != 0)
        return error;
    if (to == IBV_QPS_RESET)
        reset(qp, false);
    else if (to == IBV_QPS_ERR)
        fake_qp_error(qp);
    else
        values_take(qp, attr, given, sgid);
    if (to == IBV_QPS_RTR)
        qp->ece = qp->ece_set & qp->obj.dev->params.ece.options;
    if (to == IBV_QPS_SQD && qp->state == IBV_QPS_RTS)
        qp->drain_due = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr->en_sqd_async_notify != 0;
    qp->state = to;
    ibv->state = to;
    return 0;
}

static int query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = fake_enter(&qp->obj, FAKE_IBV_QUERY_QP);

    if (error != 0)
        return error;
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->rq_psn = qp->rq_psn;
    attr->sq_psn = qp->sq_psn;
    attr->cap = qp->init.cap;
    attr->sq_draining = qp->state == IBV_QPS_SQD && qp->ack < qp->exec;
    *init = qp->init;
    ibv->state = qp->state;
    return 0;
}

/* As mlx5's: before RTR what it could do or was asked for, from there on what it does. */
static int query_ece(struct ibv_qp *ibv, struct ibv_ece *out)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    const struct ibv_ece *can = &qp->obj.dev->params.ece;
    int error = fake_enter(&qp->obj, FAKE_IBV_QUERY_ECE);

    if (error != 0)
        return error;
    if (can->options == 0)
        return EOPNOTSUPP;
    *out = (struct ibv_ece){.vendor_id = can->vendor_id, .options = can->options};
    if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
        out->options = qp->ece;
    else if (qp->ece_set != 0)
        out->options = qp->ece_set;
    return 0;
}

static int set_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    const struct ibv_ece *can = &qp->obj.dev->params.ece;
    int error = fake_enter(&qp->obj, FAKE_IBV_SET_ECE);

    if (error != 0)
        return error;
    if (can->options == 0)
        return EOPNOTSUPP;
    if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT)
        fake_misuse(qp->obj.dev->fake, "ibv_set_ece too late: it counts in RTR");
    if (ece->comp_mask != 0 || ece->vendor_id != can->vendor_id)
        return EINVAL;
    qp->ece_set = ece->options;
    return 0;
}

static int destroy_qp(struct ibv_qp *ibv)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    struct fake_device *dev = qp->obj.dev;
    int error = fake_enter_plain(&qp->obj, "ibv_destroy_qp");

    if (error == EINVAL)
        return error;
    reset(qp, dev->params.keeps_wcs);
    fake_event_forget(FAKE_OF(fake_context, ibv->context), &qp->obj, ibv->events_completed);
    for (unsigned i = 0; i < FAKE_CHAOS_WAITS; i++)
        if (dev->fake->waits[i].qp == qp)
            dev->fake->waits[i] = (struct fake_wait){0};
    FAKE_OF(fake_pd, ibv->pd)->obj.users--;
    FAKE_OF(fake_cq, ibv->send_cq)->obj.users--;
    FAKE_OF(fake_cq, ibv->recv_cq)->obj.users--;
    if (ibv->srq != NULL)
        FAKE_OF(fake_srq, ibv->srq)->obj.users--;
    dev->live[FAKE_IBV_QP]--;
    fake_obj_end(&qp->obj);
    return error;
}

void fake_table_qp(struct sl_ibv *t)
{
    t->ibv_create_qp = create_qp;
    t->ibv_modify_qp = modify_qp;
    t->ibv_query_qp = query_qp;
    t->ibv_destroy_qp = destroy_qp;
    t->ibv_query_ece = query_ece;
    t->ibv_set_ece = set_ece;
}

static bool mlx5_is_supported(struct ibv_device *device)
{
    return FAKE_OF(fake_device, device)->params.mlx5;
}

static int mlx5_check(struct fake_qp *qp, const char *call)
{
    int error = fake_enter_plain(&qp->obj, call);

    if (error != 0)
        return error;
    if (!qp->obj.dev->params.mlx5)
        return EOPNOTSUPP;
    return qp->state == IBV_QPS_RTS ? 0 : EINVAL;
}

static int mlx5_udp_sport(struct ibv_qp *ibv, uint16_t sport)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = mlx5_check(qp, "mlx5dv_modify_qp_udp_sport");

    if (error == 0)
        qp->udp_sport = sport;
    return error;
}

static int mlx5_lag_port(struct ibv_qp *ibv, uint8_t port)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = mlx5_check(qp, "mlx5dv_modify_qp_lag_port");

    if (error == 0 && qp->obj.dev->params.lag_ports == 0)
        error = EOPNOTSUPP;
    if (error == 0 && (port == 0 || port > qp->obj.dev->params.lag_ports))
        error = EINVAL;
    if (error == 0)
        qp->lag_port = port;
    return error;
}

uint8_t fake_lag_active(const struct fake_device *dev, uint8_t wanted)
{
    for (unsigned i = 0; i < dev->params.lag_ports; i++) {
        unsigned port = 1 + (wanted - 1u + i) % dev->params.lag_ports;

        if ((dev->lag_down & 1u << port) == 0)
            return (uint8_t)port;
    }
    return 0;
}

void fake_ibv_lag_port_set(struct fake_ibv *fake, unsigned device, unsigned port, bool up)
{
    FAKE_ALONE;
    uint32_t bit = 1u << port;

    fake->devices[device]->lag_down = (fake->devices[device]->lag_down & ~bit) | (up ? 0 : bit);
}

/* The first port of the bond stands for any that was not chosen. */
static int mlx5_query_lag_port(struct ibv_qp *ibv, uint8_t *port, uint8_t *active)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv);
    int error = mlx5_check(qp, "mlx5dv_query_qp_lag_port");

    if (error == 0 && qp->obj.dev->params.lag_ports == 0)
        error = EOPNOTSUPP;
    if (error == 0) {
        *port = qp->lag_port != 0 ? qp->lag_port : 1;
        *active = fake_lag_active(qp->obj.dev, *port);
    }
    return error;
}

static int mlx5_query_device(struct ibv_context *ibv, struct sl_mlx5dv_context *out)
{
    FAKE_ALONE;
    const struct fake_device *dev = FAKE_OF(fake_context, ibv)->obj.dev;
    uint64_t asked = out->comp_mask;

    if (!dev->params.mlx5)
        return EOPNOTSUPP;
    out->version = 0;
    out->flags = 0;
    out->comp_mask = asked & SL_MLX5DV_MASK_NUM_LAG_PORTS;
    if (out->comp_mask != 0)
        out->num_lag_ports = dev->params.lag_ports;
    return 0;
}

void fake_table_mlx5(struct sl_mlx5dv *t)
{
    t->mlx5dv_is_supported = mlx5_is_supported;
    t->mlx5dv_modify_qp_udp_sport = mlx5_udp_sport;
    t->mlx5dv_modify_qp_lag_port = mlx5_lag_port;
    t->mlx5dv_query_qp_lag_port = mlx5_query_lag_port;
    t->mlx5dv_query_device = mlx5_query_device;
}

void fake_ibv_qp_info(struct fake_ibv *fake, struct ibv_qp *ibv, struct fake_ibv_qp_info *out)
{
    FAKE_ALONE;
    struct fake_qp *qp = FAKE_OF(fake_qp, ibv), *partner = fake_qp_partner(qp);

    if (partner != NULL && fake_qp_partner(partner) != qp)
        partner = NULL;
    *out = (struct fake_ibv_qp_info){.state = qp->state,
                                     .posted = qp->tail,
                                     .executed = qp->exec,
                                     .acked = qp->ack,
                                     .arrived = qp->arrived,
                                     .posts = qp->posts,
                                     .udp_sport = qp->udp_sport,
                                     .flow_label = qp->attr.ah_attr.grh.flow_label,
                                     .lag_port = qp->lag_port,
                                     .pkey_index = qp->attr.pkey_index,
                                     .static_rate = qp->attr.ah_attr.static_rate,
                                     .ece = qp->ece,
                                     .slid = qp->attr.port_num != 0 ? fake_slid(qp) : 0,
                                     .dlid = qp->attr.ah_attr.dlid,
                                     .peer = partner != NULL ? &partner->ibv : NULL};
}

unsigned fake_ibv_qps(struct fake_ibv *fake, struct ibv_qp **out, unsigned cap)
{
    FAKE_ALONE;
    unsigned total = fake->live[FAKE_IBV_QP], n = total;

    /* The list of objects has the latest first. */
    for (struct fake_obj *obj = fake->all; obj != NULL; obj = obj->next)
        if (obj->kind == FAKE_IBV_QP && obj->alive && --n < cap)
            out[n] = obj->base;
    return total;
}
