/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, ports and GIDs of the fake libibverbs, and their faults. */
#include "tests/fake/fake_ibv_inside.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define COMPAT_PORT_LEN offsetof(struct ibv_port_attr, port_cap_flags2)

union ibv_gid fake_ibv_gid_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    return (union ibv_gid){
        .raw = {[10] = 0xff, [11] = 0xff, [12] = a, [13] = b, [14] = c, [15] = d}};
}

void fake_ibv_device_init(struct fake_ibv_device *params, const char *name)
{
    *params = (struct fake_ibv_device){.node_type = IBV_NODE_CA,
                                       .max_inline = 220,
                                       .comp_vectors = 2,
                                       .dmabuf = true,
                                       .resize_cq = true,
                                       .attr = {.fw_ver = "1.0",
                                                .max_mr_size = UINT64_C(1) << 40,
                                                .page_size_cap = 4096,
                                                .vendor_id = 0x02c9,
                                                .max_qp = 4096,
                                                .max_qp_wr = 8192,
                                                .max_sge = 16,
                                                .max_sge_rd = 16,
                                                .max_cq = 4096,
                                                .max_cqe = 1 << 20,
                                                .max_mr = 1 << 16,
                                                .max_mw = 1 << 16,
                                                .device_cap_flags = IBV_DEVICE_MEM_WINDOW,
                                                .max_pd = 1024,
                                                .max_qp_rd_atom = 16,
                                                .max_qp_init_rd_atom = 16,
                                                .max_res_rd_atom = 65536,
                                                .max_srq = 256,
                                                .max_srq_wr = 8192,
                                                .max_srq_sge = 16,
                                                .max_pkeys = 1,
                                                .local_ca_ack_delay = 16,
                                                .phys_port_cnt = 1}};
    snprintf(params->name, sizeof(params->name), "%s", name);
    for (unsigned port = 0; port < FAKE_IBV_PORTS; port++)
        params->ports[port].attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                                          .max_mtu = IBV_MTU_4096,
                                                          .active_mtu = IBV_MTU_1024,
                                                          .gid_tbl_len = FAKE_IBV_GIDS,
                                                          .max_msg_sz = 1u << 30,
                                                          .pkey_tbl_len = 1,
                                                          .active_width = 2,
                                                          .active_speed = 32,
                                                          .phys_state = 5,
                                                          .max_vl_num = 1,
                                                          .link_layer = IBV_LINK_LAYER_ETHERNET};
}

static const union ibv_gid no_gid;

static bool gid_is_none(const union ibv_gid *gid)
{
    return memcmp(gid, &no_gid, sizeof(no_gid)) == 0;
}

static void fill_gids(struct fake_ibv_gid *gids, uint8_t link_layer, unsigned number, unsigned port)
{
    union ibv_gid local = {
        .raw = {
            0xfe,
            0x80, [11] = 0xff, [12] = 0xfe, [13] = (uint8_t)port, [15] = (uint8_t)(number + 1)}};

    if (link_layer == IBV_LINK_LAYER_INFINIBAND) {
        gids[0] = (struct fake_ibv_gid){local, IBV_GID_TYPE_IB, 0};
        return;
    }
    for (unsigned i = 0; i < 4; i++)
        gids[i] = (struct fake_ibv_gid){
            i < 2 ? local : fake_ibv_gid_v4(10, 0, (uint8_t)port, (uint8_t)(number + 1)),
            i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2, 0};
}

static void fill_pkeys(struct ibv_port_attr *attr, uint16_t *pkeys)
{
    bool any = false;

    for (unsigned i = 0; i < FAKE_IBV_PKEYS; i++)
        any |= pkeys[i] != 0;
    if (any)
        attr->pkey_tbl_len = FAKE_IBV_PKEYS;
    else
        pkeys[0] = 0xffff;
}

unsigned fake_ibv_device_add(struct fake_ibv *fake, const struct fake_ibv_device *params)
{
    FAKE_ALONE;
    struct fake_device *dev = calloc(1, sizeof(*dev));
    unsigned number = fake->device_count;

    if (dev == NULL || number == FAKE_DEVICES || params->attr.phys_port_cnt > FAKE_IBV_PORTS)
        abort();
    dev->fake = fake;
    dev->number = number;
    dev->params = *params;
    dev->ibv.node_type = params->node_type;
    dev->ibv.transport_type =
        params->node_type == IBV_NODE_RNIC ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    snprintf(dev->ibv.name, sizeof(dev->ibv.name), "%s", params->name);
    snprintf(dev->ibv.dev_name, sizeof(dev->ibv.dev_name), "uverbs%u", number);
    snprintf(dev->ibv.ibdev_path, sizeof(dev->ibv.ibdev_path), "/sys/class/infiniband/%s",
             params->name);
    snprintf(dev->ibv.dev_path, sizeof(dev->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
             number);
    for (unsigned port = 0; port < params->attr.phys_port_cnt; port++) {
        struct fake_ibv_gid *gids = dev->params.ports[port].gids;
        bool any = false;

        for (unsigned i = 0; i < FAKE_IBV_GIDS; i++)
            any |= !gid_is_none(&gids[i].gid);
        if (!any)
            fill_gids(gids, params->ports[port].attr.link_layer, number, port);
        fill_pkeys(&dev->params.ports[port].attr, dev->params.ports[port].pkeys);
        if (dev->params.ports[port].attr.lid == 0 &&
            params->ports[port].attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
            dev->params.ports[port].attr.lid = (uint16_t)((number * FAKE_IBV_PORTS + port + 1)
                                                          << dev->params.ports[port].attr.lmc);
    }
    fake->devices[fake->device_count++] = dev;
    return number;
}

static struct ibv_device **get_device_list(int *count)
{
    FAKE_ALONE;
    struct fake_ibv *fake = fake_ibv_the;
    struct ibv_device **list;
    int error = fake_fault(fake, FAKE_IBV_GET_DEVICE_LIST), n = 0;

    if (error != 0) {
        errno = error;
        return NULL;
    }
    list = calloc(fake->device_count + 1, sizeof(struct ibv_device *));
    if (list == NULL)
        abort();
    for (unsigned i = 0; i < fake->device_count; i++)
        if (!fake->devices[i]->removed)
            list[n++] = &fake->devices[i]->ibv;
    if (count != NULL)
        *count = n;
    fake->live[FAKE_IBV_LIST]++;
    return list;
}

static void free_device_list(struct ibv_device **list)
{
    FAKE_ALONE;
    if (fake_ibv_the->live[FAKE_IBV_LIST] == 0)
        fake_misuse(fake_ibv_the, "ibv_free_device_list without a list");
    else
        fake_ibv_the->live[FAKE_IBV_LIST]--;
    free(list);
}

static const char *get_device_name(struct ibv_device *device)
{
    return device->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
    FAKE_ALONE;
    struct fake_device *dev = FAKE_OF(fake_device, device);
    struct fake_context *context;
    int error = dev->removed ? ENODEV : fake_fault(dev->fake, FAKE_IBV_OPEN_DEVICE);

    if (dev->fake->live[FAKE_IBV_LIST] == 0)
        fake_misuse(dev->fake, "ibv_open_device after the list was freed");
    if (error != 0) {
        errno = error;
        return NULL;
    }
    context = fake_obj_new_behind(dev, FAKE_IBV_CONTEXT, offsetof(struct verbs_context, context),
                                  sizeof(*context), offsetof(struct fake_context, obj));
    if (dev->params.thread_domains) {
        context->ibv.abi_compat = __VERBS_ABI_IS_EXTENDED;
        fake_table_domain(verbs_get_ctx(&context->ibv));
    }
    context->ibv.device = device;
    context->ibv.cmd_fd = -1;
    context->ibv.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (context->ibv.async_fd < 0)
        abort();
    context->ibv.num_comp_vectors = dev->params.comp_vectors;
    pthread_mutex_init(&context->ibv.mutex, NULL);
    context->ibv.ops.poll_cq = fake_poll_cq;
    context->ibv.ops.req_notify_cq = fake_req_notify_cq;
    context->ibv.ops.post_send = fake_post_send;
    context->ibv.ops.post_recv = fake_post_recv;
    context->ibv.ops.post_srq_recv = fake_post_srq_recv;
    fake_table_window(&context->ibv);
    return &context->ibv;
}

static int close_device(struct ibv_context *ibv)
{
    FAKE_ALONE;
    struct fake_context *context = FAKE_OF(fake_context, ibv);
    int error = fake_enter_plain(&context->obj, "ibv_close_device");

    if (error == EINVAL) {
        errno = error;
        return -1;
    }
    if (context->obj.users != 0 && error == 0) {
        fake_misuse(context->obj.dev->fake, "ibv_close_device of %s with %u objects on it",
                    ibv->device->name, context->obj.users);
        errno = EBUSY;
        return -1;
    }
    fake_event_close(context);
    fake_obj_end(&context->obj);
    return 0;
}

static int query_device(struct ibv_context *ibv, struct ibv_device_attr *attr)
{
    FAKE_ALONE;
    struct fake_obj *obj = &FAKE_OF(fake_context, ibv)->obj;
    int error = fake_enter(obj, FAKE_IBV_QUERY_DEVICE);

    if (error != 0)
        return error == EIO ? ENODEV : error;
    *attr = obj->dev->params.attr;
    return 0;
}

static bool port_is_bad(struct fake_obj *obj, unsigned port, const char *call)
{
    if (port >= 1 && port <= obj->dev->params.attr.phys_port_cnt)
        return false;
    fake_misuse(obj->dev->fake, "%s: %s has no port %u", call, obj->dev->params.name, port);
    return true;
}

static int query_port(struct ibv_context *ibv, uint8_t port, struct _compat_ibv_port_attr *out)
{
    FAKE_ALONE;
    struct fake_obj *obj = &FAKE_OF(fake_context, ibv)->obj;
    int error = fake_enter(obj, FAKE_IBV_QUERY_PORT);

    if (error != 0)
        return error == EIO ? ENODEV : error;
    if (port_is_bad(obj, port, "ibv_query_port"))
        return EINVAL;
    /* The function, unlike the macro, knows nothing of the fields that came later. */
    memcpy(out, &obj->dev->params.ports[port - 1].attr, COMPAT_PORT_LEN);
    return 0;
}

static int query_pkey(struct ibv_context *ibv, uint8_t port, int index, __be16 *out)
{
    FAKE_ALONE;
    struct fake_obj *obj = &FAKE_OF(fake_context, ibv)->obj;

    if (fake_enter(obj, FAKE_IBV_QUERY_PKEY) != 0 || port_is_bad(obj, port, "ibv_query_pkey") ||
        index < 0 || index >= obj->dev->params.ports[port - 1].attr.pkey_tbl_len)
        return -1;
    *out = htobe16(obj->dev->params.ports[port - 1].pkeys[index]);
    return 0;
}

static int query_gid(struct ibv_context *ibv, uint8_t port, int index, union ibv_gid *out)
{
    FAKE_ALONE;
    struct fake_obj *obj = &FAKE_OF(fake_context, ibv)->obj;
    int error = fake_enter(obj, FAKE_IBV_QUERY_GID);

    if (error == 0 && (port_is_bad(obj, port, "ibv_query_gid") || index < 0 ||
                       index >= obj->dev->params.ports[port - 1].attr.gid_tbl_len))
        error = EINVAL;
    if (error != 0) {
        errno = error == EIO ? ENODEV : error;
        return -1;
    }
    *out = obj->dev->params.ports[port - 1].gids[index].gid;
    return 0;
}

static int query_gid_ex(struct ibv_context *ibv, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *out, uint32_t flags, size_t size)
{
    FAKE_ALONE;
    struct fake_obj *obj = &FAKE_OF(fake_context, ibv)->obj;
    int error = fake_enter(obj, FAKE_IBV_QUERY_GID);
    const struct fake_ibv_gid *entry;

    if (error != 0)
        return error == EIO ? ENODEV : error;
    if (port_is_bad(obj, port, "ibv_query_gid_ex") || flags != 0 || size < sizeof(*out) ||
        index >= (unsigned)obj->dev->params.ports[port - 1].attr.gid_tbl_len)
        return EINVAL;
    entry = &obj->dev->params.ports[port - 1].gids[index];
    if (gid_is_none(&entry->gid))
        return ENODATA;
    *out = (struct ibv_gid_entry){.gid = entry->gid,
                                  .gid_index = index,
                                  .port_num = port,
                                  .gid_type = entry->type,
                                  .ndev_ifindex = entry->ifindex};
    return 0;
}

void fake_table_device(struct sl_ibv *t)
{
    t->ibv_get_device_list = get_device_list;
    t->ibv_free_device_list = free_device_list;
    t->ibv_get_device_name = get_device_name;
    t->ibv_open_device = open_device;
    t->ibv_close_device = close_device;
    t->ibv_query_device = query_device;
    t->ibv_query_port = query_port;
    t->ibv_query_gid = query_gid;
    t->ibv_query_pkey = query_pkey;
    t->_ibv_query_gid_ex = query_gid_ex;
}

const struct fake_ibv_gid *fake_gid_at(const struct fake_device *dev, unsigned port, unsigned index)
{
    const struct fake_ibv_gid *entry;

    if (port == 0 || port > dev->params.attr.phys_port_cnt || index >= FAKE_IBV_GIDS)
        return NULL;
    entry = &dev->params.ports[port - 1].gids[index];
    return gid_is_none(&entry->gid) ? NULL : entry;
}

uint16_t fake_slid(const struct fake_qp *qp)
{
    const struct ibv_port_attr *attr = &qp->obj.dev->params.ports[qp->attr.port_num - 1].attr;

    return (uint16_t)(attr->lid + qp->attr.ah_attr.src_path_bits);
}

uint16_t fake_pkey_at(const struct fake_device *dev, unsigned port, unsigned index)
{
    return index < FAKE_IBV_PKEYS ? dev->params.ports[port - 1].pkeys[index] : 0;
}

struct fake_device *fake_gid_find(struct fake_ibv *fake, const union ibv_gid *gid, uint32_t type,
                                  unsigned *port)
{
    for (unsigned d = 0; d < fake->device_count; d++)
        for (unsigned p = 1; p <= fake->devices[d]->params.attr.phys_port_cnt; p++)
            for (unsigned i = 0; i < FAKE_IBV_GIDS; i++) {
                const struct fake_ibv_gid *entry = fake_gid_at(fake->devices[d], p, i);

                if (entry != NULL && entry->type == type &&
                    memcmp(&entry->gid, gid, sizeof(*gid)) == 0) {
                    *port = p;
                    return fake->devices[d];
                }
            }
    return NULL;
}

void fake_ibv_lose(struct fake_ibv *fake, unsigned from_device, unsigned from_port,
                   unsigned to_device, unsigned to_port, unsigned what)
{
    FAKE_ALONE;
    fake->lost[from_device][from_port - 1][to_device][to_port - 1] = (uint8_t)what;
}

void fake_ibv_lose_lid(struct fake_ibv *fake, uint16_t lid, bool lost)
{
    FAKE_ALONE;
    if (lost)
        fake->lids_lost[lid / 8] |= (uint8_t)(1u << lid % 8);
    else
        fake->lids_lost[lid / 8] &= (uint8_t) ~(1u << lid % 8);
}

void fake_ibv_routes(struct fake_ibv *fake, unsigned routes, uint32_t lost)
{
    FAKE_ALONE;
    fake->routes = routes;
    fake->routes_lost = lost;
}

void fake_ibv_block(struct fake_ibv *fake, unsigned device_a, unsigned port_a, unsigned device_b,
                    unsigned port_b, bool blocked)
{
    FAKE_ALONE;
    unsigned what = blocked ? FAKE_IBV_LOSE_ALL : 0;

    fake_ibv_lose(fake, device_a, port_a, device_b, port_b, what);
    fake_ibv_lose(fake, device_b, port_b, device_a, port_a, what);
}

void fake_ibv_port_set(struct fake_ibv *fake, unsigned device, unsigned port,
                       enum ibv_port_state state)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];
    struct ibv_port_attr *attr = &dev->params.ports[port - 1].attr;
    bool was = attr->state == IBV_PORT_ACTIVE, is = state == IBV_PORT_ACTIVE;

    attr->state = state;
    attr->phys_state = is ? 5 : 3;
    if (was != is)
        fake_event_device(dev, is ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, (int)port);
}

void fake_ibv_gid_set(struct fake_ibv *fake, unsigned device, unsigned port, unsigned index,
                      const struct fake_ibv_gid *gid)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    dev->params.ports[port - 1].gids[index] = gid != NULL ? *gid : (struct fake_ibv_gid){0};
    fake_event_device(dev, IBV_EVENT_GID_CHANGE, (int)port);
}

void fake_ibv_gid_move(struct fake_ibv *fake, unsigned device, unsigned port, unsigned from,
                       unsigned to)
{
    FAKE_ALONE;
    struct fake_ibv_gid gid = fake->devices[device]->params.ports[port - 1].gids[from];

    fake_ibv_gid_set(fake, device, port, from, NULL);
    fake_ibv_gid_set(fake, device, port, to, &gid);
}

void fake_ibv_lid_set(struct fake_ibv *fake, unsigned device, unsigned port, uint16_t lid,
                      uint8_t lmc)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    dev->params.ports[port - 1].attr.lid = lid;
    dev->params.ports[port - 1].attr.lmc = lmc;
    fake_event_device(dev, IBV_EVENT_LID_CHANGE, (int)port);
}

void fake_ibv_pkey_set(struct fake_ibv *fake, unsigned device, unsigned port, unsigned index,
                       uint16_t key)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    dev->params.ports[port - 1].pkeys[index] = key;
    fake_event_device(dev, IBV_EVENT_PKEY_CHANGE, (int)port);
}

static void acks_die(struct fake_device *dev)
{
    for (unsigned i = 0; i < dev->qp_count; i++)
        if (dev->qps[i]->obj.alive && !fake_obj_gone(&dev->qps[i]->obj))
            fake_qp_acks_die(dev->qps[i]);
}

void fake_ibv_device_fatal(struct fake_ibv *fake, unsigned device)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    acks_die(dev);
    dev->fatal = true;
    fake_event_device(dev, IBV_EVENT_DEVICE_FATAL, 0);
}

void fake_ibv_device_remove(struct fake_ibv *fake, unsigned device)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    if (!dev->fatal)
        fake_ibv_device_fatal(fake, device);
    dev->removed = true;
}

void fake_ibv_device_return(struct fake_ibv *fake, unsigned device)
{
    FAKE_ALONE;
    struct fake_device *dev = fake->devices[device];

    dev->fatal = false;
    dev->removed = false;
    dev->generation++;
}

unsigned fake_ibv_device_of(struct ibv_context *context)
{
    FAKE_ALONE;
    return FAKE_OF(fake_context, context)->obj.dev->number;
}
