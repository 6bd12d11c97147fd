/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/probe_ud.h"

#include "core/dl.h"
#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECEIVES 128
#define SENDS 64
#define GRH 40 /* bytes before what came */
#define HOPS 64
#define SEND_ID UINT64_C(0x100000000)
#define BATCH 16

#define CALLS(X)                                                                                   \
    X(struct ibv_device **, ibv_get_device_list, (int *))                                          \
    X(void, ibv_free_device_list, (struct ibv_device **))                                          \
    X(const char *, ibv_get_device_name, (struct ibv_device *))                                    \
    X(struct ibv_context *, ibv_open_device, (struct ibv_device *))                                \
    X(int, ibv_close_device, (struct ibv_context *))                                               \
    X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))        \
    X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *))                                       \
    X(int, ibv_dealloc_pd, (struct ibv_pd *))                                                      \
    X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int))                         \
    X(int, ibv_dereg_mr, (struct ibv_mr *))                                                        \
    X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *))                  \
    X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *))                                  \
    X(struct ibv_cq *, ibv_create_cq,                                                              \
      (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                         \
    X(int, ibv_destroy_cq, (struct ibv_cq *))                                                      \
    X(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **))               \
    X(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned))                                        \
    X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))                \
    X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))                            \
    X(int, ibv_destroy_qp, (struct ibv_qp *))                                                      \
    X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *, struct ibv_ah_attr *))                     \
    X(struct ibv_ah *, ibv_create_ah_from_wc,                                                      \
      (struct ibv_pd *, struct ibv_wc *, struct ibv_grh *, uint8_t))                               \
    X(int, ibv_destroy_ah, (struct ibv_ah *))                                                      \
    X(const char *, ibv_wc_status_str, (enum ibv_wc_status))

#define POINTER(type, name, arguments) type(*name) arguments;
#define SYMBOL(type, name, arguments) {#name, offsetof(struct calls, name), false},

struct calls {
    CALLS(POINTER)
};

struct sl_probe_ud {
    struct calls calls;
    struct sl_probe_rail rail;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* receives of room bytes, then sends of an MTU */
    size_t room, mtu;
    bool is_armed;
    unsigned free_count;
    uint8_t free_sends[SENDS];
};

/* ---- its life ---- */

static int load(const char *library, struct calls *out)
{
    static const struct sl_dl_symbol symbols[] = {CALLS(SYMBOL)};
    const char *const names[] = {library, NULL};

    return sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), out);
}

/* For what gives NULL with errno. */
static int refused(const struct sl_probe_ud *ud, const char *what)
{
    int err = errno != 0 ? -errno : -EIO;

    if (err == -ENOMEM)
        return sl_fail(err,
                       "%s: no %s: the limit on locked memory is too low (LimitMEMLOCK of the "
                       "agent's unit), or the device is full",
                       ud->rail.name, what);
    return sl_fail(err, "%s: no %s: %s", ud->rail.name, what, sluice_strerror(err));
}

static int open_device(struct sl_probe_ud *ud)
{
    int count = 0;
    struct ibv_device **list = (ud->calls.ibv_get_device_list)(&count);
    bool is_found = false;

    errno = 0;
    for (int i = 0; list != NULL && i < count && !is_found; i++)
        if (strcmp((ud->calls.ibv_get_device_name)(list[i]), ud->rail.device) == 0) {
            is_found = true;
            ud->context = (ud->calls.ibv_open_device)(list[i]);
        }
    if (list != NULL)
        (ud->calls.ibv_free_device_list)(list);
    if (ud->context != NULL)
        return 0;
    if (!is_found)
        return sl_fail(-ENODEV,
                       "libibverbs has no device %s: is its provider installed "
                       "(ibverbs-providers), and /dev/infiniband there?",
                       ud->rail.device);
    return sl_fail(errno == EACCES || errno == EPERM ? -EACCES : -EIO,
                   "%s cannot be opened: %s (may this agent use /dev/infiniband/uverbs*?)",
                   ud->rail.device, sluice_strerror(errno != 0 ? -errno : -EIO));
}

static int query(struct sl_probe_ud *ud)
{
    /* By its plain name the library fills an older, shorter form of it. */
    struct ibv_port_attr attr = {0};
    struct _compat_ibv_port_attr *compat = (struct _compat_ibv_port_attr *)&attr;

    errno = 0;
    if ((ud->calls.ibv_query_port)(ud->context, (uint8_t)ud->rail.port, compat) != 0)
        return refused(ud, "answer about the port");
    if (attr.state != IBV_PORT_ACTIVE)
        return sl_fail(-ENETDOWN, "%s is not ACTIVE: its link is down", ud->rail.name);
    ud->mtu = (size_t)128 << attr.active_mtu;
    ud->room = (GRH + ud->mtu + 63) / 64 * 64;
    return 0;
}

static int make_objects(struct sl_probe_ud *ud)
{
    size_t len = RECEIVES * ud->room + SENDS * ud->mtu;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_UD,
        .cap = {
            .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};

    errno = 0;
    if ((ud->pd = (ud->calls.ibv_alloc_pd)(ud->context)) == NULL)
        return refused(ud, "protection domain");
    if ((ud->channel = (ud->calls.ibv_create_comp_channel)(ud->context)) == NULL)
        return refused(ud, "completion channel");
    (void)fcntl(ud->channel->fd, F_SETFL, fcntl(ud->channel->fd, F_GETFL) | O_NONBLOCK);
    ud->cq = (ud->calls.ibv_create_cq)(ud->context, RECEIVES + SENDS, NULL, ud->channel, 0);
    if (ud->cq == NULL)
        return refused(ud, "completion queue");
    if (posix_memalign((void **)&ud->memory, (size_t)sysconf(_SC_PAGESIZE), len) != 0)
        return sl_fail(-ENOMEM, "no memory for probes at %s", ud->rail.name);
    memset(ud->memory, 0, len);
    ud->mr = (ud->calls.ibv_reg_mr)(ud->pd, ud->memory, len, IBV_ACCESS_LOCAL_WRITE);
    if (ud->mr == NULL)
        return refused(ud, "registration of its buffers");
    init.send_cq = init.recv_cq = ud->cq;
    if ((ud->qp = (ud->calls.ibv_create_qp)(ud->pd, &init)) == NULL)
        return refused(ud, "datagram queue pair");
    return 0;
}

static int modify(struct sl_probe_ud *ud, struct ibv_qp_attr *attr, int mask)
{
    int err;

    errno = 0;
    err = (ud->calls.ibv_modify_qp)(ud->qp, attr, mask | IBV_QP_STATE);
    if (err == 0)
        return 0;
    errno = err > 0 ? err : errno;
    return refused(ud, "queue pair that can be used");
}

static int post_receive(struct sl_probe_ud *ud, unsigned slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)(ud->memory + slot * ud->room),
                          .length = (uint32_t)(GRH + ud->mtu),
                          .lkey = ud->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

    return ibv_post_recv(ud->qp, &wr, &bad) == 0
               ? 0
               : sl_fail(-EIO, "%s takes no receives", ud->rail.name);
}

static int start(struct sl_probe_ud *ud, uint32_t qkey)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)ud->rail.port, .qkey = qkey};
    int err = modify(ud, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);

    for (unsigned i = 0; err == 0 && i < RECEIVES; i++)
        err = post_receive(ud, i);
    attr.qp_state = IBV_QPS_RTR;
    err = err ?: modify(ud, &attr, 0);
    attr.qp_state = IBV_QPS_RTS;
    err = err ?: modify(ud, &attr, IBV_QP_SQ_PSN);
    while (ud->free_count < SENDS) {
        ud->free_sends[ud->free_count] = (uint8_t)ud->free_count;
        ud->free_count++;
    }
    return err;
}

int sl_probe_ud_open(const char *library, const struct sl_probe_rail *rail, uint32_t qkey,
                     struct sl_probe_ud **out)
{
    struct sl_probe_ud *ud = calloc(1, sizeof(*ud));
    int err;

    if (ud == NULL)
        return sl_fail(-ENOMEM, "no memory for probes over RDMA");
    ud->rail = *rail;
    err = load(library, &ud->calls);
    err = err ?: open_device(ud);
    err = err ?: query(ud);
    err = err ?: make_objects(ud);
    err = err ?: start(ud, qkey);
    if (err != 0) {
        sl_probe_ud_close(ud);
        return err;
    }
    *out = ud;
    return 0;
}

void sl_probe_ud_close(struct sl_probe_ud *ud)
{
    if (ud == NULL)
        return;
    if (ud->qp != NULL)
        (void)(ud->calls.ibv_destroy_qp)(ud->qp);
    if (ud->mr != NULL)
        (void)(ud->calls.ibv_dereg_mr)(ud->mr);
    if (ud->cq != NULL)
        (void)(ud->calls.ibv_destroy_cq)(ud->cq);
    if (ud->channel != NULL)
        (void)(ud->calls.ibv_destroy_comp_channel)(ud->channel);
    if (ud->pd != NULL)
        (void)(ud->calls.ibv_dealloc_pd)(ud->pd);
    if (ud->context != NULL)
        (void)(ud->calls.ibv_close_device)(ud->context);
    free(ud->memory);
    free(ud);
}

uint32_t sl_probe_ud_qpn(const struct sl_probe_ud *ud)
{
    return ud->qp->qp_num;
}

unsigned sl_probe_ud_mtu(const struct sl_probe_ud *ud)
{
    return (unsigned)ud->mtu;
}

int sl_probe_ud_fd(const struct sl_probe_ud *ud)
{
    return ud->channel->fd;
}

/* ---- ways ---- */

static int way_of(struct ibv_ah *ah, struct sl_probe_ud_way **out)
{
    *out = (struct sl_probe_ud_way *)(void *)ah;
    return 0;
}

int sl_probe_ud_way(struct sl_probe_ud *ud, const struct sl_probe_rail_gid *gid,
                    const struct sl_probe_port *to, uint8_t traffic_class,
                    struct sl_probe_ud_way **out)
{
    struct ibv_ah_attr attr = {
        .dlid = to->lid,
        .port_num = (uint8_t)ud->rail.port,
        /* Within a subnet of InfiniBand LIDs suffice. */
        .is_global = !ud->rail.is_ib || memcmp(gid->gid, to->gid, 8) != 0 ? 1 : 0,
        .grh = {
            .sgid_index = (uint8_t)gid->index, .hop_limit = HOPS, .traffic_class = traffic_class}};
    char from_text[48], to_text[48];
    struct ibv_ah *ah;

    memcpy(attr.grh.dgid.raw, to->gid, 16);
    errno = 0;
    ah = (ud->calls.ibv_create_ah)(ud->pd, &attr);
    if (ah != NULL)
        return way_of(ah, out);
    sl_probe_gid_text(gid->gid, from_text, sizeof(from_text));
    sl_probe_gid_text(to->gid, to_text, sizeof(to_text));
    return sl_fail(-EHOSTUNREACH, "%s finds no way from GID %s to %s: %s: is there a route?",
                   ud->rail.name, from_text, to_text, sluice_strerror(errno != 0 ? -errno : -EIO));
}

int sl_probe_ud_way_back(struct sl_probe_ud *ud, const struct sl_probe_ud_packet *packet,
                         struct sl_probe_ud_way **out)
{
    struct ibv_ah *ah =
        (ud->calls.ibv_create_ah_from_wc)(ud->pd, packet->wc, packet->grh, (uint8_t)ud->rail.port);

    return ah != NULL ? way_of(ah, out)
                      : sl_fail(-EHOSTUNREACH, "%s finds no way back", ud->rail.name);
}

void sl_probe_ud_way_close(struct sl_probe_ud *ud, struct sl_probe_ud_way *way)
{
    if (way != NULL)
        (void)(ud->calls.ibv_destroy_ah)((struct ibv_ah *)(void *)way);
}

/* ---- packets ---- */

int sl_probe_ud_send(struct sl_probe_ud *ud, struct sl_probe_ud_way *way, uint32_t qpn,
                     uint32_t qkey, const uint8_t *bytes, uint32_t len)
{
    struct ibv_sge sge = {.length = len, .lkey = ud->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    uint8_t *to;
    unsigned slot;

    sl_assert(len <= ud->mtu);
    if (ud->free_count == 0)
        return -EAGAIN;
    slot = ud->free_sends[ud->free_count - 1];
    to = ud->memory + RECEIVES * ud->room + slot * ud->mtu;
    memcpy(to, bytes, len);
    sge.addr = (uintptr_t)to;
    wr.wr_id = SEND_ID | slot;
    wr.wr.ud.ah = (struct ibv_ah *)(void *)way;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    if (ibv_post_send(ud->qp, &wr, &bad) != 0)
        return -EAGAIN;
    ud->free_count--;
    return 0;
}

static int broken(const struct sl_probe_ud *ud, enum ibv_wc_status status)
{
    return sl_fail(-EIO, "the queue pair at %s failed (%s): did the port go down?", ud->rail.name,
                   (ud->calls.ibv_wc_status_str)(status));
}

static int take_one(struct sl_probe_ud *ud, struct ibv_wc *wc,
                    void (*take)(void *arg, const struct sl_probe_ud_packet *packet), void *arg)
{
    uint8_t *slot;

    if ((wc->wr_id & SEND_ID) != 0)
        ud->free_sends[ud->free_count++] = (uint8_t)wc->wr_id;
    if (wc->status != IBV_WC_SUCCESS)
        return broken(ud, wc->status);
    if ((wc->wr_id & SEND_ID) != 0)
        return 0;
    slot = ud->memory + (unsigned)wc->wr_id * ud->room;
    if (wc->byte_len > GRH)
        take(arg, &(struct sl_probe_ud_packet){.bytes = slot + GRH,
                                               .len = wc->byte_len - GRH,
                                               .qpn = wc->src_qp,
                                               .wc = wc,
                                               .grh = (struct ibv_grh *)(void *)slot});
    return post_receive(ud, (unsigned)wc->wr_id);
}

static int drain(struct sl_probe_ud *ud, unsigned most,
                 void (*take)(void *arg, const struct sl_probe_ud_packet *packet), void *arg)
{
    struct ibv_wc wcs[BATCH];
    unsigned count = 0;

    while (count < most) {
        int got = ibv_poll_cq(ud->cq, BATCH, wcs);

        if (got < 0)
            return sl_fail(-EIO, "the completion queue at %s cannot be read", ud->rail.name);
        for (int i = 0; i < got; i++) {
            int err = take_one(ud, &wcs[i], take, arg);

            if (err != 0)
                return err;
        }
        count += (unsigned)got;
        if (got < BATCH)
            break;
    }
    return (int)count;
}

int sl_probe_ud_poll(struct sl_probe_ud *ud, unsigned most,
                     void (*take)(void *arg, const struct sl_probe_ud_packet *packet), void *arg)
{
    struct ibv_cq *cq;
    void *context;
    int count = drain(ud, most, take, arg), more;

    while ((ud->calls.ibv_get_cq_event)(ud->channel, &cq, &context) == 0) {
        (ud->calls.ibv_ack_cq_events)(cq, 1);
        ud->is_armed = false;
    }
    if (count < 0 || ud->is_armed)
        return count;
    if (ibv_req_notify_cq(ud->cq, 0) != 0)
        return sl_fail(-EIO, "%s gives no completion events", ud->rail.name);
    ud->is_armed = true;
    more = drain(ud, most, take, arg); /* between the last and the notification */
    return more < 0 ? more : count + more;
}
