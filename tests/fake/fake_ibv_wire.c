/* SPDX-License-Identifier: Apache-2.0 */
/* The requester of the fake's wire: what it sends, whether that gets through, and what it
 * completes. */
#include "tests/fake/fake_ibv_inside.h"

#include <stdlib.h>

uint32_t fake_packets(const struct fake_qp *qp, uint64_t len)
{
    uint64_t mtu = UINT64_C(128) << qp->attr.path_mtu;

    return len == 0 ? 1 : (uint32_t)((len + mtu - 1) / mtu);
}

static bool hears(const struct fake_qp *qp)
{
    return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

static bool port_works(const struct fake_qp *qp)
{
    const struct fake_device *dev = qp->obj.dev;

    return !dev->fatal && dev->params.ports[qp->attr.port_num - 1].attr.state == IBV_PORT_ACTIVE &&
           (dev->params.lag_ports == 0 || fake_lag_active(dev, 1) != 0);
}

/* As switches choose among equal routes: by a hash over the packet's addresses and ports. */
static bool route_loses(const struct fake_qp *from)
{
    const struct fake_ibv *fake = from->obj.dev->fake;
    uint32_t label = from->attr.ah_attr.grh.flow_label;
    uint32_t sport = (from->udp_sport != 0 ? from->udp_sport : label ^ label >> 14) & 0x3fff;

    return fake->routes_lost != 0 &&
           (fake->routes_lost & 1u << (sport * UINT32_C(0x9e3779b1) >> 8) % fake->routes) != 0;
}

bool fake_wire_loses(const struct fake_qp *from, const struct fake_qp *to, unsigned what)
{
    if (route_loses(from))
        return true;
    return (from->obj.dev->fake->lost[from->obj.dev->number][from->attr.port_num - 1]
                                     [to->obj.dev->number][to->attr.port_num - 1] &
            what) != 0;
}

void fake_ibv_lose_longer(struct fake_ibv *fake, unsigned device_a, unsigned port_a,
                          unsigned device_b, unsigned port_b, uint32_t bytes)
{
    FAKE_ALONE;
    fake->longest[device_a][port_a - 1][device_b][port_b - 1] = bytes;
    fake->longest[device_b][port_b - 1][device_a][port_a - 1] = bytes;
}

/* Is one of its packets longer than what passes there? */
static bool is_too_long(const struct fake_qp *from, const struct fake_qp *to,
                        const struct fake_wqe *wqe)
{
    uint32_t most = from->obj.dev->fake->longest[from->obj.dev->number][from->attr.port_num - 1]
                                                [to->obj.dev->number][to->attr.port_num - 1];
    uint64_t mtu = UINT64_C(128) << from->attr.path_mtu;

    return most != 0 && (wqe->len < mtu ? wqe->len : mtu) > most;
}

/* InfiniBand: the LIDs of the packet are those that both ends are set to, and its route lives. */
static bool lids_match(const struct fake_qp *from, const struct fake_qp *to)
{
    const struct fake_device *dev = from->obj.dev;
    uint16_t dlid = from->attr.ah_attr.dlid;

    if (dev->params.ports[from->attr.port_num - 1].attr.link_layer != IBV_LINK_LAYER_INFINIBAND)
        return true;
    return dlid == fake_slid(to) && fake_slid(from) == to->attr.ah_attr.dlid &&
           (dev->fake->lids_lost[dlid / 8] & 1u << dlid % 8) == 0;
}

/* As the tables are now: each end looks at the key of what arrives. */
static bool partitions_match(const struct fake_qp *from, const struct fake_qp *to)
{
    uint16_t a = fake_pkey_at(from->obj.dev, from->attr.port_num, from->attr.pkey_index);
    uint16_t b = fake_pkey_at(to->obj.dev, to->attr.port_num, to->attr.pkey_index);

    return (a & 0x7fff) == (b & 0x7fff) && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

/* Does a packet of one, a request or an answer, arrive at the other, and is it taken for one of its
 * peer? */
static bool passes(struct fake_qp *from, struct fake_qp *to, unsigned what)
{
    const struct ibv_global_route *grh = &from->attr.ah_attr.grh;

    if (from->cut || !port_works(from) || !port_works(to) || fake_qp_partner(to) != from ||
        fake_qp_partner(from) != to)
        return false;
    /* What goes beyond the standard only the like understand. */
    if (from->ece != to->ece)
        return false;
    if (fake_wire_loses(from, to, what) || !partitions_match(from, to) || !lids_match(from, to))
        return false;
    if (from->attr.ah_attr.is_global) {
        const struct fake_ibv_gid *mine =
            fake_gid_at(from->obj.dev, from->attr.port_num, grh->sgid_index);

        /* The source address of a packet is what the table says now, and the peer looks at it. */
        if (mine == NULL || mine->type != from->sgid_type ||
            memcmp(&mine->gid, &to->attr.ah_attr.grh.dgid, sizeof(mine->gid)) != 0)
            return false;
    }
    return true;
}

bool fake_wire_open(struct fake_qp *qp, struct fake_qp **peer)
{
    *peer = fake_qp_partner(qp);
    return *peer != NULL && hears(*peer) && passes(qp, *peer, FAKE_IBV_LOSE_REQUESTS) &&
           (*peer)->rq_psn == qp->sq_psn;
}

bool fake_wire_answers(struct fake_qp *qp)
{
    struct fake_qp *peer;

    return fake_wire_open(qp, &peer) && passes(peer, qp, FAKE_IBV_LOSE_ANSWERS);
}

static struct fake_cqe send_cqe(struct fake_qp *qp, const struct fake_wqe *wqe, uint64_t position)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_SEND] = IBV_WC_SEND,
                                                 [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
                                                 [IBV_WR_BIND_MW] = IBV_WC_BIND_MW};
    struct fake_cqe cqe = {.qp = qp, .releases = position + 1};

    memset(&cqe.wc, 0xa5, sizeof(cqe.wc)); /* what verbs leaves undefined */
    cqe.wc.wr_id = wqe->wr_id;
    cqe.wc.status = wqe->status;
    cqe.wc.qp_num = qp->ibv.qp_num;
    cqe.wakes_solicited = wqe->status != IBV_WC_SUCCESS;
    if (wqe->status == IBV_WC_SUCCESS) {
        cqe.wc.opcode = opcodes[wqe->opcode];
        cqe.wc.wc_flags = 0;
        if (wqe->opcode == IBV_WR_RDMA_READ)
            cqe.wc.byte_len = (uint32_t)wqe->len;
    }
    return cqe;
}

/* Lent memory has to stay as it was until the completion: the NIC may have to send it again. */
static void check_lent(struct fake_qp *qp, struct fake_wqe *wqe, const char *when)
{
    uint64_t hash = 1;

    if (!wqe->hashed)
        return;
    for (int i = 0; i < wqe->sge_count; i++) {
        const struct ibv_sge *sge = &wqe->sge[i];
        const uint8_t *at =
            fake_key_at(qp->obj.dev, qp->ibv.pd, false, sge->lkey, sge->addr, sge->length, 0);

        if (at == NULL) {
            fake_misuse(qp->obj.dev->fake,
                        "memory of work request 0x%llx was deregistered before it was done",
                        (unsigned long long)wqe->wr_id);
            return;
        }
        hash = fake_hash(hash, at, sge->length);
    }
    if (hash != wqe->hash)
        fake_misuse(qp->obj.dev->fake, "memory of work request 0x%llx was changed %s",
                    (unsigned long long)wqe->wr_id, when);
}

static enum ibv_wc_status local_check(struct fake_qp *qp, const struct fake_wqe *wqe)
{
    unsigned access = wqe->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

    if (wqe->len > qp->obj.dev->params.ports[qp->attr.port_num - 1].attr.max_msg_sz)
        return IBV_WC_LOC_LEN_ERR;
    if (wqe->opcode == IBV_WR_RDMA_READ && qp->attr.max_rd_atomic == 0)
        return IBV_WC_LOC_QP_OP_ERR;
    if ((wqe->flags & IBV_SEND_INLINE) != 0)
        return IBV_WC_SUCCESS;
    for (int i = 0; i < wqe->sge_count; i++) {
        const struct ibv_sge *sge = &wqe->sge[i];

        if (sge->length != 0 && fake_key_at(qp->obj.dev, qp->ibv.pd, false, sge->lkey, sge->addr,
                                            sge->length, access) == NULL)
            return IBV_WC_LOC_PROT_ERR;
    }
    return IBV_WC_SUCCESS;
}

static struct fake_msg message(struct fake_qp *qp, const struct fake_wqe *wqe, uint32_t psn,
                               const uint8_t *data)
{
    return (struct fake_msg){.opcode = wqe->opcode,
                             .solicited = (wqe->flags & IBV_SEND_SOLICITED) != 0,
                             .imm = wqe->imm,
                             .remote_addr = wqe->remote_addr,
                             .rkey = wqe->rkey,
                             .len = wqe->len,
                             .data = data,
                             .placed = wqe->placed,
                             .psn = psn,
                             .src_qpn = qp->ibv.qp_num};
}

static void executed(struct fake_qp *qp, struct fake_qp *peer, struct fake_wqe *wqe)
{
    qp->sq_psn = (qp->sq_psn + fake_packets(qp, wqe->len)) & 0xffffff;
    if (wqe->opcode != IBV_WR_RDMA_READ)
        return;
    qp->reads_out++;
    wqe->read_data = malloc(wqe->len + 1);
    if (wqe->read_data == NULL)
        abort();
    if (wqe->len != 0)
        memcpy(wqe->read_data,
               fake_key_at(peer->obj.dev, peer->ibv.pd, true, wqe->rkey, wqe->remote_addr, wqe->len,
                           IBV_ACCESS_REMOTE_READ),
               wqe->len);
}

/* Some packets of a long write arrive before the rest. True: that is all for now. */
static bool place_some(struct fake_qp *qp, struct fake_qp *peer, struct fake_wqe *wqe,
                       const struct fake_msg *msg)
{
    struct sl_rng *rng = &qp->obj.dev->fake->rng;
    uint64_t mtu = UINT64_C(128) << qp->attr.path_mtu;
    uint64_t left = fake_packets(qp, wqe->len - wqe->placed), to;

    if ((wqe->opcode != IBV_WR_RDMA_WRITE && wqe->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) ||
        left < 2 || (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 ||
        !sl_rng_chance(rng, 2))
        return false;
    to = wqe->placed + sl_rng_range(rng, 1, left - 1) * mtu;
    if (!fake_respond_place(peer, msg, wqe->placed, to))
        return false;
    wqe->placed = to;
    return true;
}

void fake_ibv_repeats(struct fake_ibv *fake, unsigned one_in)
{
    FAKE_ALONE;
    fake->repeats = one_in;
}

/* As soft-RoCE does now and then: what its peer had is sent to it once more under the next number,
 * whole or empty. */
static void repeat(struct fake_ibv *fake, struct fake_qp *peer, struct fake_msg *msg)
{
    enum ibv_wc_status status;
    uint32_t psn = peer->rq_psn;

    if (fake->repeats == 0 || msg->opcode == IBV_WR_RDMA_READ ||
        !sl_rng_chance(&fake->rng, fake->repeats) || peer->state != IBV_QPS_RTS ||
        !fake_has_receive(peer))
        return;
    if (sl_rng_chance(&fake->rng, 2))
        msg->len = 0;
    fake_respond(peer, msg, &status);
    peer->rq_psn = psn;
}

void fake_ibv_mixes(struct fake_ibv *fake, unsigned one_in)
{
    FAKE_ALONE;
    fake->mixes = one_in;
}

/* As soft-RoCE does now and then, which loses count when it repeats packets: one of the midst,
 * which the peer does not have yet, brings the bytes of the one before. */
static void mix(struct fake_qp *qp, const struct fake_wqe *wqe, uint8_t *data)
{
    struct fake_ibv *fake = qp->obj.dev->fake;
    uint64_t mtu = UINT64_C(128) << qp->attr.path_mtu;
    uint64_t first = wqe->placed / mtu, count = fake_packets(qp, wqe->len);

    first = first > 2 ? first : 2;
    if (fake->mixes == 0 || wqe->opcode == IBV_WR_RDMA_READ || first + 2 > count ||
        !sl_rng_chance(&fake->rng, fake->mixes))
        return;
    uint8_t *at = data + sl_rng_range(&fake->rng, first, count - 2) * mtu;

    memcpy(at, at - mtu, mtu);
}

static bool transmit(struct fake_qp *qp, struct fake_qp *peer, struct fake_wqe *wqe)
{
    struct fake_ibv *fake = qp->obj.dev->fake;
    uint8_t *data = malloc(wqe->len + 1);
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    enum fake_answer answer;
    struct fake_msg msg;
    bool moved = true;

    if (data == NULL)
        abort();
    if (wqe->opcode != IBV_WR_RDMA_READ) {
        check_lent(qp, wqe, "before it was sent");
        fake_wqe_gather(qp, wqe, data);
        mix(qp, wqe, data);
    }
    msg = message(qp, wqe, qp->sq_psn, data);
    if (place_some(qp, peer, wqe, &msg)) {
        free(data);
        return true;
    }
    qp->waits_for_receive = false;
    answer = fake_respond(peer, &msg, &status);
    switch (answer) {
    case FAKE_RNR:
        qp->rnr_until = fake->now + fake->rnr_steps;
        qp->waits_for_receive = true;
        moved = qp->attr.rnr_retry != 7;
        if (moved && ++qp->rnr_tries > qp->attr.rnr_retry) {
            wqe->status = IBV_WC_RNR_RETRY_EXC_ERR;
            wqe->is_local = true;
        }
        break;
    case FAKE_NAK: wqe->status = status; break;
    case FAKE_ACK:
        qp->rnr_tries = 0;
        executed(qp, peer, wqe);
        repeat(fake, peer, &msg);
        break;
    }
    if (answer == FAKE_ACK || wqe->status != IBV_WC_SUCCESS) {
        qp->stopped = wqe->status != IBV_WC_SUCCESS;
        qp->exec++;
        qp->peer = peer;
        qp->peer_epoch = peer->epoch;
        /* A NAK acknowledges what came before it, and both are on their way already. */
        if (answer == FAKE_NAK)
            qp->ack_sent = qp->exec;
    }
    free(data);
    return moved;
}

void fake_ibv_disorder(struct fake_ibv *fake, unsigned one_in)
{
    FAKE_ALONE;
    fake->disorder = one_in;
}

/* A packet of one of the writes that are posted overtakes those before it. Its bytes come once more
 * in their turn, which nobody can tell: they are the same. */
static void overtake(struct fake_qp *qp, struct fake_qp *peer)
{
    struct fake_ibv *fake = qp->obj.dev->fake;
    uint64_t position = sl_rng_range(&fake->rng, qp->exec, qp->tail - 1), packet, from, to;
    uint64_t mtu = UINT64_C(128) << qp->attr.path_mtu;
    struct fake_wqe *wqe = fake_wqe_at(qp, position);
    struct fake_msg msg;
    uint8_t *data;

    if ((wqe->opcode != IBV_WR_RDMA_WRITE && wqe->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) ||
        wqe->len == 0 || local_check(qp, wqe) != IBV_WC_SUCCESS ||
        (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0)
        return;
    data = malloc(wqe->len);
    if (data == NULL)
        abort();
    fake_wqe_gather(qp, wqe, data);
    msg = message(qp, wqe, qp->sq_psn, data);
    packet = sl_rng_below(&fake->rng, fake_packets(qp, wqe->len));
    from = packet * mtu;
    to = from + mtu < wqe->len ? from + mtu : wqe->len;
    if (fake_respond_place(peer, &msg, from, to))
        fake->overtook++;
    free(data);
}

bool fake_wire_execute(struct fake_qp *qp)
{
    struct fake_wqe *wqe = fake_wqe_at(qp, qp->exec);
    struct fake_qp *peer;
    enum ibv_wc_status status;

    if (qp->state != IBV_QPS_RTS || qp->stopped || qp->exec == qp->tail ||
        qp->rnr_until > qp->obj.dev->fake->now || qp->obj.dev->fatal)
        return false;
    if (qp->reads_out != 0 &&
        ((wqe->flags & IBV_SEND_FENCE) != 0 ||
         (wqe->opcode == IBV_WR_RDMA_READ && qp->reads_out >= qp->attr.max_rd_atomic)))
        return false;
    status = wqe->opcode == IBV_WR_BIND_MW ? fake_window_bind(qp->obj.dev->fake, &wqe->bind)
                                           : local_check(qp, wqe);
    if (status != IBV_WC_SUCCESS || wqe->opcode == IBV_WR_BIND_MW) {
        wqe->status = status;
        wqe->is_local = true;
        qp->stopped = status != IBV_WC_SUCCESS;
        qp->exec++;
        return true;
    }
    if (!fake_wire_open(qp, &peer) || is_too_long(qp, peer, wqe))
        return false;
    if (sl_rng_chance(&qp->obj.dev->fake->rng, qp->obj.dev->fake->disorder))
        overtake(qp, peer);
    return transmit(qp, peer, wqe);
}

static enum ibv_wc_status read_scatter(struct fake_qp *qp, const struct fake_wqe *wqe)
{
    const uint8_t *from = wqe->read_data;

    for (int i = 0; i < wqe->sge_count; i++) {
        const struct ibv_sge *sge = &wqe->sge[i];
        uint8_t *at = fake_key_at(qp->obj.dev, qp->ibv.pd, false, sge->lkey, sge->addr, sge->length,
                                  IBV_ACCESS_LOCAL_WRITE);

        if (sge->length == 0)
            continue;
        if (at == NULL)
            return IBV_WC_LOC_PROT_ERR;
        memcpy(at, from, sge->length);
        from += sge->length;
    }
    return IBV_WC_SUCCESS;
}

static bool ack_arrives(struct fake_qp *qp)
{
    struct fake_qp *peer = qp->peer;

    if (fake_wqe_at(qp, qp->ack)->is_local)
        return true;
    if (!port_works(qp) || peer == NULL || peer->epoch != qp->peer_epoch)
        return qp->ack < qp->ack_sent && port_works(qp);
    return qp->ack < qp->ack_sent ||
           (peer->obj.alive && hears(peer) && passes(peer, qp, FAKE_IBV_LOSE_ANSWERS));
}

static void complete(struct fake_qp *qp)
{
    struct fake_wqe *wqe = fake_wqe_at(qp, qp->ack);
    struct fake_cqe cqe = send_cqe(qp, wqe, qp->ack);

    free(wqe->read_data);
    wqe->read_data = NULL;
    qp->ack++;
    if (qp->exec < qp->ack)
        qp->exec = qp->ack;
    if (wqe->status != IBV_WC_SUCCESS || (wqe->flags & IBV_SEND_SIGNALED) != 0)
        fake_cq_push(FAKE_OF(fake_cq, qp->ibv.send_cq), &cqe);
    if (wqe->status != IBV_WC_SUCCESS)
        fake_qp_error(qp);
}

bool fake_wire_ack(struct fake_qp *qp)
{
    struct fake_wqe *wqe = fake_wqe_at(qp, qp->ack);

    if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) || qp->ack == qp->exec ||
        qp->obj.dev->fatal || !ack_arrives(qp))
        return false;
    if (wqe->status == IBV_WC_SUCCESS) {
        check_lent(qp, wqe, "before it was done");
        if (wqe->opcode == IBV_WR_RDMA_READ) {
            qp->reads_out--;
            wqe->status = read_scatter(qp, wqe);
        }
    }
    complete(qp);
    return true;
}

void fake_wire_fail(struct fake_qp *qp, enum ibv_wc_status status)
{
    if (qp->ack == qp->tail)
        return;
    fake_wqe_at(qp, qp->ack)->status = status;
    complete(qp);
}

void fake_wire_flush(struct fake_qp *qp)
{
    fake_wqe_at(qp, qp->ack)->status = IBV_WC_WR_FLUSH_ERR;
    complete(qp);
}

struct fake_late *fake_wire_snapshot(struct fake_qp *qp, struct fake_qp *peer, uint64_t position,
                                     uint32_t psn)
{
    struct fake_wqe *wqe = fake_wqe_at(qp, position);
    const struct fake_ibv_gid *mine =
        fake_gid_at(qp->obj.dev, qp->attr.port_num, qp->attr.ah_attr.grh.sgid_index);
    struct fake_late *late;

    if (wqe->opcode == IBV_WR_BIND_MW || local_check(qp, wqe) != IBV_WC_SUCCESS ||
        wqe->opcode == IBV_WR_RDMA_READ)
        return NULL;
    late = calloc(1, sizeof(*late));
    if (late == NULL || (late->data = malloc(wqe->len + 1)) == NULL)
        abort();
    fake_wqe_gather(qp, wqe, late->data);
    late->msg = message(qp, wqe, psn, late->data);
    late->to = peer->obj.dev;
    late->to_qpn = peer->ibv.qp_num;
    late->from_gid = mine != NULL ? mine->gid : (union ibv_gid){0};
    return late;
}

void fake_late_drop(struct fake_late *late)
{
    free(late->data);
    free(late);
}

bool fake_late_arrive(struct fake_ibv *fake)
{
    struct fake_late *late = fake->late;
    enum ibv_wc_status status;
    struct fake_qp *qp;

    if (late == NULL)
        return false;
    fake->late = late->next;
    qp = fake_qp_find(late->to, late->to_qpn);
    /* No more than this keeps a late packet out: a queue pair that takes it. */
    if (qp != NULL && hears(qp) && port_works(qp) && qp->attr.dest_qp_num == late->msg.src_qpn &&
        qp->rq_psn == late->msg.psn &&
        (!qp->attr.ah_attr.is_global ||
         memcmp(&qp->attr.ah_attr.grh.dgid, &late->from_gid, sizeof(late->from_gid)) == 0))
        fake_respond(qp, &late->msg, &status);
    fake_late_drop(late);
    return true;
}
