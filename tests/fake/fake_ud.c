/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libibverbs.so.1 for tests, as far as unreliable datagrams need it: a device for each folder of
 * FAKE_UD_ROOT (as /sys/class/infiniband), whose queue pairs are sockets of UDP. A GID is an IPv4
 * address, the number of a queue pair is a port there. So processes reach each other through
 * namespaces, and netem between them is felt.
 *
 * FAKE_UD_LOSE=DEVICE:N loses each Nth packet that it sends, FAKE_UD_LATE=DEVICE:N sends each N
 * microseconds late, FAKE_UD_REFUSE=CALL has that call fail.
 *
 * As of hardware: what has another Q_Key, comes to a full receive queue, or is longer than a
 * receive, is dropped without a word, the payload stands 40 bytes behind the receive's begin, with
 * an IPv4 header in the end of these.
 */
#pragma GCC visibility push(default)

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#undef ibv_query_port

#define DEVICES 8
#define RING 512
#define FRAME 8 /* before each payload: Q_Key, number of who sent it */

struct fake_qp {
    struct ibv_qp ibv;
    int fd;
    uint32_t qkey;
    unsigned port;
    enum ibv_qp_state state;
    unsigned sent;
};

struct fake_cq {
    struct ibv_cq ibv;
    struct fake_qp *qp;
    struct ibv_wc done[RING]; /* of sends */
    unsigned done_count;
    struct {
        uint64_t id, addr;
        uint32_t len;
    } receives[RING];
    unsigned first, count;
    int is_armed;
};

struct fake_channel {
    struct ibv_comp_channel ibv;
    struct fake_cq *cq;
};

struct fake_ah {
    struct ibv_ah ibv;
    struct in_addr to;
    uint8_t traffic_class;
};

static struct ibv_device devices[DEVICES];
static unsigned live; /* objects */

static int refuses(const char *call)
{
    const char *name = getenv("FAKE_UD_REFUSE");

    if (name == NULL || strcmp(name, call) != 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

static void *make(size_t size, const char *call)
{
    void *made = refuses(call) ? NULL : calloc(1, size);

    live += made != NULL;
    return made;
}

static int end(void *object)
{
    free(object);
    live--;
    return 0;
}

/* What is alive. */
unsigned fake_ud_live(void);
unsigned fake_ud_live(void)
{
    return live;
}

/* Of NAME=DEVICE:NUMBER, the number for that device; else 0. */
static unsigned said(const char *name, const struct ibv_context *context)
{
    const char *text = getenv(name);
    size_t len = strlen(context->device->name);

    return text != NULL && strncmp(text, context->device->name, len) == 0 && text[len] == ':'
               ? (unsigned)atoi(text + len + 1)
               : 0;
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *count)
{
    const char *root = getenv("FAKE_UD_ROOT");
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
    DIR *dir = root != NULL ? opendir(root) : NULL;

    *count = 0;
    for (const struct dirent *at = dir != NULL ? readdir(dir) : NULL;
         at != NULL && *count < DEVICES; at = readdir(dir)) {
        if (at->d_name[0] == '.')
            continue;
        snprintf(devices[*count].name, sizeof(devices[0].name), "%.63s", at->d_name);
        list[*count] = &devices[*count];
        *count += 1;
    }
    if (dir != NULL)
        closedir(dir);
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc);
static int req_notify_cq(struct ibv_cq *ibv, int solicited_only);

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *context = make(sizeof(*context), "ibv_open_device");

    if (context == NULL)
        return NULL;
    context->device = device;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    return end(context);
}

static int read_port(struct ibv_context *context, unsigned port, const char *file, char *out,
                     size_t cap)
{
    char path[512];
    FILE *in;

    snprintf(path, sizeof(path), "%s/%s/ports/%u/%s", getenv("FAKE_UD_ROOT"), context->device->name,
             port, file);
    in = fopen(path, "re");
    if (in == NULL)
        return -1;
    out[0] = '\0';
    if (fgets(out, (int)cap, in) != NULL)
        out[strcspn(out, "\n")] = '\0';
    fclose(in);
    return 0;
}

/* The file mtu is the fake's own: 1 to 5. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *out)
{
    struct ibv_port_attr attr = {.state = IBV_PORT_ACTIVE, .active_mtu = IBV_MTU_1024};
    char text[64];

    if (refuses("ibv_query_port"))
        return ENOMEM;
    if (read_port(context, port, "state", text, sizeof(text)) != 0)
        return ENODEV;
    if (strstr(text, "ACTIVE") == NULL)
        attr.state = IBV_PORT_DOWN;
    if (read_port(context, port, "mtu", text, sizeof(text)) == 0)
        attr.active_mtu = (enum ibv_mtu)atoi(text);
    memcpy(out, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
    return 0;
}

/* ---- objects ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = make(sizeof(*pd), "ibv_alloc_pd");

    if (pd != NULL)
        pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    return end(pd);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    struct ibv_mr *mr = make(sizeof(*mr), "ibv_reg_mr");

    (void)access;
    if (mr != NULL) {
        mr->pd = pd;
        mr->addr = addr;
        mr->length = length;
        mr->lkey = 7;
    }
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    return end(mr);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct fake_channel *channel = make(sizeof(*channel), "ibv_create_comp_channel");

    if (channel == NULL)
        return NULL;
    channel->ibv.context = context;
    channel->ibv.fd = epoll_create1(EPOLL_CLOEXEC);
    return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    return end(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct fake_cq *cq = make(sizeof(*cq), "ibv_create_cq");

    (void)vector;
    if (cq == NULL)
        return NULL;
    cq->ibv.context = context;
    cq->ibv.cqe = cqe;
    cq->ibv.cq_context = cq_context;
    cq->ibv.channel = channel;
    ((struct fake_channel *)channel)->cq = cq;
    return &cq->ibv;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    return end(cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct fake_qp *qp = make(sizeof(*qp), "ibv_create_qp");

    if (qp == NULL)
        return NULL;
    qp->ibv.context = pd->context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = init->send_cq;
    qp->ibv.recv_cq = init->recv_cq;
    qp->ibv.qp_type = init->qp_type;
    qp->fd = -1;
    ((struct fake_cq *)init->recv_cq)->qp = qp;
    if (init->qp_type == IBV_QPT_UD)
        return &qp->ibv;
    (void)end(qp);
    errno = EOPNOTSUPP;
    return NULL;
}

/* The first GID that is an IPv4 address. */
static int address_of(struct ibv_context *context, unsigned port, struct in_addr *out)
{
    for (unsigned i = 0; i < 8; i++) {
        char file[32], text[64];
        struct in6_addr gid;

        snprintf(file, sizeof(file), "gids/%u", i);
        if (read_port(context, port, file, text, sizeof(text)) == 0 &&
            inet_pton(AF_INET6, text, &gid) == 1 && IN6_IS_ADDR_V4MAPPED(&gid)) {
            memcpy(out, &gid.s6_addr[12], 4);
            return 0;
        }
    }
    return EINVAL;
}

/* Opens its socket: where a queue pair is ready to receive. */
static int open_socket(struct fake_qp *qp)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct epoll_event event = {.events = EPOLLIN};
    socklen_t len = sizeof(at);

    if (address_of(qp->ibv.context, qp->port, &at.sin_addr) != 0)
        return EINVAL;
    qp->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (qp->fd < 0 || bind(qp->fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        getsockname(qp->fd, (struct sockaddr *)&at, &len) != 0)
        return errno;
    qp->ibv.qp_num = ntohs(at.sin_port);
    return epoll_ctl(qp->ibv.recv_cq->channel->fd, EPOLL_CTL_ADD, qp->fd, &event) == 0 ? 0 : errno;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    int needs = attr->qp_state == IBV_QPS_INIT  ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
                : attr->qp_state == IBV_QPS_RTS ? IBV_QP_SQ_PSN
                                                : 0;

    if (refuses("ibv_modify_qp"))
        return ENOMEM;
    if (mask != (needs | IBV_QP_STATE))
        return EINVAL;
    if (attr->qp_state == IBV_QPS_INIT) {
        qp->qkey = attr->qkey;
        qp->port = attr->port_num;
    }
    qp->state = attr->qp_state;
    return attr->qp_state == IBV_QPS_RTR ? open_socket(qp) : 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;

    if (qp->fd >= 0)
        close(qp->fd);
    return end(qp);
}

/* ---- address handles ---- */

static struct ibv_ah *make_ah(struct ibv_pd *pd, const void *address, uint8_t traffic_class)
{
    struct fake_ah *ah = make(sizeof(*ah), "ibv_create_ah");

    if (ah == NULL)
        return NULL;
    ah->ibv.context = pd->context;
    ah->ibv.pd = pd;
    memcpy(&ah->to, address, 4);
    ah->traffic_class = traffic_class;
    return &ah->ibv;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    if (!attr->is_global || !IN6_IS_ADDR_V4MAPPED((struct in6_addr *)attr->grh.dgid.raw)) {
        errno = EHOSTUNREACH;
        return NULL;
    }
    return make_ah(pd, attr->grh.dgid.raw + 12, attr->grh.traffic_class);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                     uint8_t port)
{
    const uint8_t *ip = (const uint8_t *)grh + 20;

    (void)port;
    if ((wc->wc_flags & IBV_WC_GRH) == 0 || ip[0] != 0x45) {
        errno = EINVAL;
        return NULL;
    }
    return make_ah(pd, ip + 12, ip[1]);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    return end(ah);
}

/* ---- packets ---- */

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_qp *qp = (struct fake_qp *)ibv;
    struct fake_cq *cq = (struct fake_cq *)ibv->send_cq;
    const struct fake_ah *ah = (const struct fake_ah *)wr->wr.ud.ah;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)wr->wr.ud.remote_qpn),
                             .sin_addr = ah->to};
    int traffic_class = ah->traffic_class;
    uint32_t head[2] = {htonl(wr->wr.ud.remote_qkey), htonl(ibv->qp_num)};
    struct iovec parts[2] = {{head, FRAME},
                             {(void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length}};
    const struct msghdr message = {
        .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = parts, .msg_iovlen = 2};

    *bad = wr;
    if (qp->state != IBV_QPS_RTS || wr->opcode != IBV_WR_SEND || wr->sg_list->lkey != 7 ||
        cq->done_count == RING)
        return EINVAL;
    (void)setsockopt(qp->fd, IPPROTO_IP, IP_TOS, &traffic_class, sizeof(traffic_class));
    if (said("FAKE_UD_LATE", ibv->context) > 0)
        usleep(said("FAKE_UD_LATE", ibv->context));
    if (said("FAKE_UD_LOSE", ibv->context) == 0 ||
        ++qp->sent % said("FAKE_UD_LOSE", ibv->context) != 0)
        (void)!sendmsg(qp->fd, &message, 0);
    cq->done[cq->done_count++] = (struct ibv_wc){
        .wr_id = wr->wr_id, .status = IBV_WC_SUCCESS, .opcode = IBV_WC_SEND, .qp_num = ibv->qp_num};
    return 0;
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fake_cq *cq = (struct fake_cq *)ibv->recv_cq;
    unsigned slot = (cq->first + cq->count) % RING;

    *bad = wr;
    if (cq->count == RING || wr->sg_list->lkey != 7)
        return ENOMEM;
    cq->receives[slot].id = wr->wr_id;
    cq->receives[slot].addr = wr->sg_list->addr;
    cq->receives[slot].len = wr->sg_list->length;
    cq->count++;
    return 0;
}

/* 0: nothing is there; -1: it was dropped. */
static int receive(struct fake_cq *cq, struct ibv_wc *out)
{
    static uint8_t bytes[65536];
    struct sockaddr_in from;
    socklen_t from_len = sizeof(from);
    ssize_t len = cq->qp == NULL || cq->qp->fd < 0 ? -1
                                                   : recvfrom(cq->qp->fd, bytes, sizeof(bytes), 0,
                                                              (struct sockaddr *)&from, &from_len);
    uint32_t head[2];
    uint8_t *to;

    if (len < 0)
        return errno == ECONNREFUSED ? -1 : 0;
    if (len < FRAME)
        return -1;
    memcpy(head, bytes, FRAME);
    if (ntohl(head[0]) != cq->qp->qkey || cq->count == 0 ||
        (size_t)len - FRAME + 40 > cq->receives[cq->first].len)
        return -1;
    to = (uint8_t *)(uintptr_t)cq->receives[cq->first].addr;
    memset(to, 0xee, 40);
    to[20] = 0x45;
    to[21] = 0;
    memcpy(to + 32, &from.sin_addr, 4);
    memcpy(to + 40, bytes + FRAME, (size_t)len - FRAME);
    *out = (struct ibv_wc){.wr_id = cq->receives[cq->first].id,
                           .status = IBV_WC_SUCCESS,
                           .opcode = IBV_WC_RECV,
                           .byte_len = (uint32_t)len - FRAME + 40,
                           .qp_num = cq->qp->ibv.qp_num,
                           .src_qp = ntohl(head[1]),
                           .wc_flags = IBV_WC_GRH};
    cq->first = (cq->first + 1) % RING;
    cq->count--;
    return 1;
}

static int poll_cq(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
    struct fake_cq *cq = (struct fake_cq *)ibv;
    int got = 0, result = 1;

    while (got < count && cq->done_count > 0)
        wc[got++] = cq->done[--cq->done_count];
    while (got < count && result != 0) {
        errno = 0;
        result = receive(cq, &wc[got]);
        got += result > 0;
    }
    return got;
}

static int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    (void)solicited_only;
    ((struct fake_cq *)ibv)->is_armed = 1;
    return 0;
}

/* Where it is armed and something lies there. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    struct fake_cq *own = ((struct fake_channel *)channel)->cq;
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

    errno = EAGAIN;
    if (!own->is_armed || poll(&fd, 1, 0) != 1)
        return -1;
    own->is_armed = 0;
    *cq = &own->ibv;
    *context = own->ibv.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    (void)cq, (void)count;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "transport retry counter exceeded";
}
