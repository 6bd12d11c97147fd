/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that NCCL looks up: one set of functions, and a thin layer for the differences between
 * versions.
 *
 * v11 and v12 have contexts; the older ones share one that is never closed. Before v9 sizes are
 * ints, before v10 requests have no parent for the profiler.
 */
#include "tools/nccl/abi_v12.h" /* and 9 to 11 */
#include "tools/nccl/abi_v6.h"
#include "tools/nccl/abi_v8.h"
#include "tools/nccl/adapt.h"
#include "tools/nccl/net_event.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

#define NAME "Sluice"
#define EXPORT __attribute__((visibility("default")))
#define COMMS_MAX 65536

typedef enum sl_nccl_result result;

/* Whose fault it was. */
static result code_of(int err)
{
    switch (err) {
    case -EINVAL: return SL_NCCL_INVALID_ARGUMENT;
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -EPROTO:
    case -EBADMSG: return SL_NCCL_REMOTE_ERROR;
    default: return SL_NCCL_SYSTEM_ERROR;
    }
}

/* Logs an error, once: NCCL shows the line. */
static result end(int err)
{
    if (SL_LIKELY(err >= 0))
        return SL_NCCL_SUCCESS;
    sl_warn("nccl", "%s (%s)", sluice_last_error(), sluice_strerror(err));
    return code_of(err);
}

/* The same of a connection, which is asked again and again once it is lost. */
static result end_of(struct sl_nccl_comm *comm, int err)
{
    if (SL_UNLIKELY(err < 0 && !sl_nccl_comm_tells(comm)))
        return code_of(err);
    return end(err);
}

/* ---- all versions ---- */

static result devices(int *count)
{
    unsigned n = 0;
    int err = sl_nccl_devices(&n);

    *count = (int)n;
    return end(err);
}

static int context(void *given, struct sl_nccl_ctx **out)
{
    *out = given;
    return given != NULL ? 0 : sl_nccl_ctx_default(NULL, out);
}

static result listen_on(void *given, int dev, void *handle, void **out)
{
    struct sl_nccl_listen *listen = NULL;
    struct sl_nccl_ctx *ctx;
    int err = context(given, &ctx);

    if (err == 0)
        err = sl_nccl_listen(ctx, dev, handle, &listen);
    *out = listen;
    return end(err);
}

static result connect_to(void *given, int dev, int traffic_class, void *handle, void **out)
{
    struct sl_nccl_comm *comm = NULL;
    struct sl_nccl_ctx *ctx;
    int err = context(given, &ctx);

    if (err == 0)
        err = sl_nccl_connect(
            ctx, dev, traffic_class != SL_NCCL_UNDEFINED ? traffic_class : ctx->traffic_class,
            handle, &comm);
    *out = comm;
    return end(err);
}

static result accept_from(void *listen, void **out)
{
    struct sl_nccl_comm *comm = NULL;
    int err = sl_nccl_accept(listen, &comm);

    *out = comm;
    return end(err);
}

static result reg(void *comm, const struct sl_mem *mem, void **out)
{
    struct sl_nccl_mr *mr = NULL;
    int err = sl_nccl_reg(comm, mem, &mr);

    *out = mr;
    return end(err);
}

/* NCCL registers the memory kinds of the device; other kinds are refused by the transport. */
static result reg_mr(void *comm, void *data, size_t size, int type, void **out)
{
    struct sl_mem mem = {.addr = data,
                         .len = size,
                         .fd = -1,
                         .kind = type == SL_NCCL_PTR_HOST ? SL_MEM_HOST : SL_MEM_CUDA};

    *out = NULL;
    if (type != SL_NCCL_PTR_HOST && type != SL_NCCL_PTR_CUDA)
        return end(sl_fail(-EINVAL, "memory of type %d is unknown", type));
    return reg(comm, &mem, out);
}

/* fd is NCCL's, who closes it after this. */
static result reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                            void **out)
{
    struct sl_mem mem = {
        .addr = data, .len = size, .fd = fd, .fd_off = offset, .kind = SL_MEM_DMABUF};

    *out = NULL;
    if (type != SL_NCCL_PTR_CUDA)
        return end(sl_fail(-EINVAL, "memory of type %d does not come by dmabuf", type));
    return reg(comm, &mem, out);
}

static result dereg_mr(void *comm, void *mr)
{
    return end(mr != NULL ? sl_nccl_dereg(comm, mr) : 0);
}

/* NULL where it would have to wait: NCCL then asks again. */
static result send_to(void *comm, void *data, size_t size, int tag, void *mr, void **request)
{
    struct sl_nccl_req *req = NULL;
    int err = sl_nccl_isend(comm, data, size, tag, mr, &req);

    *request = req;
    return end_of(comm, err);
}

static result receive_from(void *comm, int count, void **data, const size_t *sizes, const int *tags,
                           void **mrs, void **request)
{
    struct sl_nccl_req *req = NULL;
    int err = sl_nccl_irecv(comm, count > 0 ? (unsigned)count : 0, data, sizes, tags,
                            (struct sl_nccl_mr **)mrs, &req);

    *request = req; /* also over the mark of an optional receive */
    return end_of(comm, err);
}

/* ---- events for the profiler ---- */

/* Of one request's part. A profiler that does not want it leaves *event NULL. parent is NCCL's as
 * long as the request lives. */
static void event_start(struct sl_nccl_comm *comm, void **event, void *parent, int tag, size_t len)
{
    struct sl_nccl_net_event what = {.is_send = comm->is_send, .tag = tag, .len = len};

    if (SL_LIKELY(comm->profiler == NULL || parent == NULL))
        return;
    snprintf(what.transport, sizeof(what.transport), "%s", comm->transport);
    snprintf(what.peer, sizeof(what.peer), "%s", comm->peer_name);
    comm->profiler(event, SL_NCCL_EVENT_START, parent, SL_NCCL_NET_EVENT_ID, &what);
}

static void event_stop(const struct sl_nccl_comm *comm, void **event)
{
    if (SL_UNLIKELY(*event != NULL))
        comm->profiler(event, SL_NCCL_EVENT_STOP, NULL, SL_NCCL_NET_EVENT_ID, NULL);
    *event = NULL;
}

/* The request is over, well or not; its memory is the connection's, and stays. */
static void events_stop(struct sl_nccl_req *req)
{
    struct sl_nccl_recv *recv = sl_container_of(req, struct sl_nccl_recv, base);

    if (req->comm->profiler == NULL)
        return;
    if (req->kind == SL_NCCL_REQ_SEND)
        event_stop(req->comm, &sl_container_of(req, struct sl_nccl_send, base)->event);
    else
        for (unsigned k = 0; k < recv->count; k++)
            event_stop(req->comm, &recv->events[k]);
}

static result test(void *request, int *done, int *sizes)
{
    struct sl_nccl_req *req = request;
    int over = sl_nccl_test(req, sizes);

    if (over != 0)
        events_stop(req);
    *done = over == 1;
    return end_of(req->comm, over);
}

/* Nothing to do: a receive that is done is visible to its memory's owner, a GPU included
 * (core/transport.h). */
static result iflush(void *comm, int count, void **data, int *sizes, void **mrs, void **request)
{
    (void)comm, (void)count, (void)data, (void)sizes, (void)mrs;
    *request = NULL;
    return SL_NCCL_SUCCESS;
}

static result close_comm(void *comm)
{
    if (comm != NULL)
        sl_nccl_close(comm);
    return SL_NCCL_SUCCESS;
}

static result close_listen(void *listen)
{
    if (listen != NULL)
        sl_nccl_listen_close(listen);
    return SL_NCCL_SUCCESS;
}

/* ---- properties: each version fills all that it has ---- */

/* Casts away const: the interface has no use for writing to them. */
static char *text(const char *given)
{
    return (char *)(uintptr_t)given;
}

#define FILL(out, dev)                                                                             \
    do {                                                                                           \
        memset(out, 0, sizeof(*(out)));                                                            \
        (out)->name = text((dev)->found.name);                                                     \
        (out)->pci_path = (dev)->found.pci_path[0] != '\0' ? text((dev)->found.pci_path) : NULL;   \
        (out)->guid = (dev)->guid;                                                                 \
        (out)->ptr_support =                                                                       \
            SL_NCCL_PTR_HOST | ((dev)->takes_gpu ? SL_NCCL_PTR_CUDA | SL_NCCL_PTR_DMABUF : 0);     \
        (out)->speed = (dev)->speed_mbit;                                                          \
        (out)->port = (dev)->port;                                                                 \
        (out)->latency = 0; /* NCCL's own estimate */                                              \
        (out)->comms_max = COMMS_MAX;                                                              \
        (out)->recvs_max = SL_NCCL_GROUP_MAX;                                                      \
    } while (0)

#define FILL_V8(out)                                                                               \
    do {                                                                                           \
        (out)->reg_is_global = 0;                                                                  \
        (out)->device_type = SL_NCCL_DEVICE_HOST;                                                  \
        (out)->device_version = SL_NCCL_DEVICE_VERSION_INVALID;                                    \
    } while (0)

#define FILL_V9(out, idx)                                                                          \
    do {                                                                                           \
        FILL_V8(out);                                                                              \
        (out)->force_flush = 0;                                                                    \
        (out)->joined.count = 1;                                                                   \
        (out)->joined.devs[0] = idx;                                                               \
        (out)->p2p_bytes_max = (out)->coll_bytes_max = SL_NCCL_BYTES_MAX;                          \
    } while (0)

#define PROPERTIES(version, more)                                                                  \
    static result properties_##version(int idx, struct sl_nccl_net_props_##version *out)           \
    {                                                                                              \
        const struct sl_nccl_device *dev;                                                          \
        int err = sl_nccl_device(idx, &dev);                                                       \
                                                                                                   \
        if (err != 0)                                                                              \
            return end(err);                                                                       \
        FILL(out, dev);                                                                            \
        more;                                                                                      \
        return SL_NCCL_SUCCESS;                                                                    \
    }

PROPERTIES(v6, )
PROPERTIES(v8, FILL_V8(out))
PROPERTIES(v9, FILL_V9(out, idx))
PROPERTIES(v11, FILL_V9(out, idx); out->multi_request_max = 1)
PROPERTIES(v12, FILL_V9(out, idx); out->multi_request_max = 1;
           out->rail_id = out->plane_id = SL_NCCL_UNDEFINED)

/* ---- v6, v8: sizes are ints ---- */

static result init_v6(sl_nccl_logger *logger)
{
    struct sl_nccl_ctx *ctx;

    return end(sl_nccl_ctx_default(logger, &ctx));
}

static result listen_v6(int dev, void *handle, void **out)
{
    return listen_on(NULL, dev, handle, out);
}

static result connect_v6(int dev, void *handle, void **out)
{
    return connect_to(NULL, dev, SL_NCCL_UNDEFINED, handle, out);
}

static result reg_mr_v6(void *comm, void *data, int size, int type, void **out)
{
    return reg_mr(comm, data, size > 0 ? (size_t)size : 0, type, out);
}

static result isend_v6(void *comm, void *data, int size, int tag, void *mr, void **request)
{
    return send_to(comm, data, size > 0 ? (size_t)size : 0, tag, mr, request);
}

static result irecv_v6(void *comm, int count, void **data, int *sizes, int *tags, void **mrs,
                       void **request)
{
    size_t wide[SL_NCCL_GROUP_MAX] = {0};

    for (int i = 0; i < count && i < SL_NCCL_GROUP_MAX; i++)
        wide[i] = sizes[i] > 0 ? (size_t)sizes[i] : 0;
    return receive_from(comm, count, data, wide, tags, mrs, request);
}

static result connect_v8(int dev, void *handle, void **out, struct sl_nccl_device_handle **device)
{
    (void)device; /* NCCL drives the network from the GPU only where a plugin offers it */
    return connect_to(NULL, dev, SL_NCCL_UNDEFINED, handle, out);
}

static result accept_v8(void *listen, void **out, struct sl_nccl_device_handle **device)
{
    (void)device;
    return accept_from(listen, out);
}

/* ---- v9: sizes are size_t ---- */

static result irecv_v9(void *comm, int count, void **data, size_t *sizes, int *tags, void **mrs,
                       void **request)
{
    return receive_from(comm, count, data, sizes, tags, mrs, request);
}

/* ---- v10: a traffic class, parents for the profiler ---- */

static result init_v10(sl_nccl_logger *logger, sl_nccl_profiler_callback *profiler)
{
    struct sl_nccl_ctx *ctx;
    int err = sl_nccl_ctx_default(logger, &ctx);

    if (err == 0)
        ctx->profiler = profiler;
    return end(err);
}

static result connect_v10(int dev, struct sl_nccl_net_config_v10 *config, void *handle, void **out,
                          struct sl_nccl_device_handle **device)
{
    (void)device;
    return connect_to(NULL, dev, config != NULL ? config->traffic_class : SL_NCCL_UNDEFINED, handle,
                      out);
}

static result isend_v10(void *comm, void *data, size_t size, int tag, void *mr, void *parent,
                        void **request)
{
    result rc = send_to(comm, data, size, tag, mr, request);

    if (*request != NULL) {
        struct sl_nccl_send *send =
            sl_container_of((struct sl_nccl_req *)*request, struct sl_nccl_send, base);

        event_start(comm, &send->event, parent, tag, send->buf.len);
    }
    return rc;
}

static result irecv_v10(void *comm, int count, void **data, size_t *sizes, int *tags, void **mrs,
                        void **parents, void **request)
{
    result rc = receive_from(comm, count, data, sizes, tags, mrs, request);

    if (*request != NULL && parents != NULL) {
        struct sl_nccl_recv *recv =
            sl_container_of((struct sl_nccl_req *)*request, struct sl_nccl_recv, base);

        for (int k = 0; k < count; k++)
            event_start(comm, &recv->events[k], parents[k], tags[k], sizes[k]);
    }
    return rc;
}

/* ---- v11, v12: contexts ---- */

static result init_v11(void **out, uint64_t comm_id, struct sl_nccl_net_config_v10 *config,
                       sl_nccl_logger *logger, sl_nccl_profiler_callback *profiler)
{
    struct sl_nccl_ctx *ctx = NULL;
    int err =
        sl_nccl_ctx_open(logger, config != NULL ? config->traffic_class : SL_NCCL_UNDEFINED, &ctx);

    (void)comm_id;
    if (err == 0)
        ctx->profiler = profiler;
    *out = ctx; /* NULL after an error: NCCL may finalize it all the same */
    return end(err);
}

static result connect_v11(void *ctx, int dev, void *handle, void **out,
                          struct sl_nccl_device_handle **device)
{
    (void)device;
    return connect_to(ctx, dev, SL_NCCL_UNDEFINED, handle, out);
}

static result finalize(void *ctx)
{
    sl_nccl_ctx_close(ctx);
    return SL_NCCL_SUCCESS;
}

/* A hint of how many peers there will be: nothing here depends on it. */
static result set_attr_v11(void *ctx, struct sl_nccl_net_attr_v11 *attr)
{
    (void)ctx, (void)attr;
    return SL_NCCL_SUCCESS;
}

/* ---- tables ---- */

/* What stays NULL: make_joined, as a connection uses all rails by itself (docs/nccl.md), which one
 * device made of several would hide; get_device_mr and irecv_consumed, which are of networks that
 * are driven from the GPU: NCCL calls the latter after every receive where there is one. */

/* The same in all versions, and since v8. */
#define COMMON                                                                                     \
    .devices = devices, .reg_mr_dmabuf = reg_mr_dmabuf, .dereg_mr = dereg_mr, .iflush = iflush,    \
    .test = test, .close_send = close_comm, .close_recv = close_comm, .close_listen = close_listen
#define COMMON_V8 COMMON, .accept = accept_v8, .reg_mr = reg_mr

extern const struct sl_nccl_net_v6 ncclNetPlugin_v6;
EXPORT const struct sl_nccl_net_v6 ncclNetPlugin_v6 = {
    .name = NAME,
    .init = init_v6,
    .get_properties = properties_v6,
    .listen = listen_v6,
    .connect = connect_v6,
    .accept = accept_from,
    .reg_mr = reg_mr_v6,
    .isend = isend_v6,
    .irecv = irecv_v6,
    COMMON,
};

extern const struct sl_nccl_net_v8 ncclNetPlugin_v8;
EXPORT const struct sl_nccl_net_v8 ncclNetPlugin_v8 = {
    .name = NAME,
    .init = init_v6,
    .get_properties = properties_v8,
    .listen = listen_v6,
    .connect = connect_v8,
    .isend = isend_v6,
    .irecv = irecv_v6,
    COMMON_V8,
};

extern const struct sl_nccl_net_v9 ncclNetPlugin_v9;
EXPORT const struct sl_nccl_net_v9 ncclNetPlugin_v9 = {
    .name = NAME,
    .init = init_v6,
    .get_properties = properties_v9,
    .listen = listen_v6,
    .connect = connect_v8,
    .isend = send_to,
    .irecv = irecv_v9,
    COMMON_V8,
};

extern const struct sl_nccl_net_v10 ncclNetPlugin_v10;
EXPORT const struct sl_nccl_net_v10 ncclNetPlugin_v10 = {
    .name = NAME,
    .init = init_v10,
    .get_properties = properties_v9,
    .listen = listen_v6,
    .connect = connect_v10,
    .isend = isend_v10,
    .irecv = irecv_v10,
    COMMON_V8,
};

extern const struct sl_nccl_net_v11 ncclNetPlugin_v11;
EXPORT const struct sl_nccl_net_v11 ncclNetPlugin_v11 = {
    .name = NAME,
    .init = init_v11,
    .get_properties = properties_v11,
    .listen = listen_on,
    .connect = connect_v11,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .finalize = finalize,
    .set_attr = set_attr_v11,
    COMMON_V8,
};

extern const struct sl_nccl_net_v12 ncclNetPlugin_v12;
EXPORT const struct sl_nccl_net_v12 ncclNetPlugin_v12 = {
    .name = NAME,
    .init = init_v11,
    .get_properties = properties_v12,
    .listen = listen_on,
    .connect = connect_v11,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .finalize = finalize,
    .set_attr = set_attr_v11,
    COMMON_V8,
};
