/* SPDX-License-Identifier: Apache-2.0 */
/* The toy as each version of NCCL sees it. */
#include "tests/nccl/toy.h"

#include <poll.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static char toy_device[] = "toy0";

/* What all versions say of the device. */
#define FILL_COMMON(p)                                                                             \
    do {                                                                                           \
        (p)->name = toy_device;                                                                    \
        (p)->pci_path = NULL;                                                                      \
        (p)->guid = 0x70f;                                                                         \
        (p)->ptr_support = NET_PTR_HOST;                                                           \
        (p)->speed = 10000;                                                                        \
        if (toy_fault != TOY_property_left_alone)                                                  \
            (p)->port = 0;                                                                         \
        (p)->latency = 20;                                                                         \
        (p)->max_comms = 65536;                                                                    \
        (p)->max_recvs = NET_GROUP;                                                                \
    } while (0)

#define FILL_DEVICE(p)                                                                             \
    do {                                                                                           \
        FILL_COMMON(p);                                                                            \
        (p)->reg_is_global = 0;                                                                    \
        (p)->device_type = 0;                                                                      \
        (p)->device_version = 0;                                                                   \
    } while (0)

#define FILL_SIZES(p, dev)                                                                         \
    do {                                                                                           \
        FILL_DEVICE(p);                                                                            \
        (p)->force_flush = 0;                                                                      \
        memset(&(p)->virtual_device, 0, sizeof((p)->virtual_device));                              \
        (p)->virtual_device.count = 1;                                                             \
        (p)->virtual_device.devices[0] = dev;                                                      \
        (p)->max_p2p_bytes = (p)->max_coll_bytes = 1u << 30;                                       \
    } while (0)

static int properties_v6(int dev, struct props_v6 *p)
{
    FILL_COMMON(p);
    return NET_OK;
}

static int properties_v8(int dev, struct props_v8 *p)
{
    FILL_DEVICE(p);
    return NET_OK;
}

static int properties_v9(int dev, struct props_v9 *p)
{
    FILL_SIZES(p, dev);
    return NET_OK;
}

static int properties_v11(int dev, void *props)
{
    struct props_v11 *p = props;

    FILL_SIZES(p, dev);
    p->max_multi_request = 1;
    return NET_OK;
}

static int properties_v12(int dev, void *props)
{
    struct props_v12 *p = props;

    FILL_SIZES(p, dev);
    p->max_multi_request = 1;
    p->rail = p->plane = -1;
    return NET_OK;
}

static int init_old(net_logger logger)
{
    return toy_init(NULL, 0, NULL, logger, NULL);
}

static int init_v10(net_logger logger, net_profiler profiler)
{
    return toy_init(NULL, 0, NULL, logger, profiler);
}

static int listen_old(int dev, void *handle, void **comm)
{
    return toy_listen(NULL, dev, handle, comm);
}

static int connect_v6(int dev, void *handle, void **comm)
{
    return toy_connect(NULL, dev, handle, comm, NULL);
}

static int connect_v8(int dev, void *handle, void **comm, void **device)
{
    return toy_connect(NULL, dev, handle, comm, device);
}

static int connect_v10(int dev, struct net_config *config, void *handle, void **comm, void **device)
{
    return toy_connect(NULL, dev, handle, comm, device);
}

static int accept_v6(void *listen, void **comm)
{
    return toy_accept(listen, comm, NULL);
}

static int reg_mr_v6(void *comm, void *data, int len, int type, void **mr)
{
    return toy_reg_mr(comm, data, (size_t)len, type, mr);
}

static int isend_v6(void *comm, void *data, int len, int tag, void *mr, void **request)
{
    return toy_isend(comm, data, (size_t)len, tag, mr, NULL, request);
}

static int isend_v9(void *comm, void *data, size_t len, int tag, void *mr, void **request)
{
    return toy_isend(comm, data, len, tag, mr, NULL, request);
}

static int irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mrs,
                    void **request)
{
    size_t wide[NET_GROUP] = {0};

    for (int i = 0; i < n && i < NET_GROUP; i++)
        wide[i] = (size_t)sizes[i];
    return toy_irecv(comm, n, data, wide, tags, mrs, NULL, request);
}

static int irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
                    void **request)
{
    return toy_irecv(comm, n, data, sizes, tags, mrs, NULL, request);
}

/* Only where a GPU's memory was registered. */
static int flush(void *comm, int n, void **data, int *sizes, void **mrs, void **request)
{
    return NET_INTERNAL;
}

static int set_attr(void *ctx, struct net_attr *attr)
{
    if (toy_fault == TOY_attribute_blocks)
        poll(NULL, 0, 1000);
    return NET_OK;
}

/* From isend on, the tables differ only in these. */
#define REST(irecv_fn)                                                                             \
    .irecv = irecv_fn, .iflush = flush, .test = toy_test, .close_send = toy_close_send,            \
    .close_recv = toy_close_recv, .close_listen = toy_close_listen

extern const struct table_v6 ncclNetPlugin_v6;
extern const struct table_v8 ncclNetPlugin_v8;
extern const struct table_v9 ncclNetPlugin_v9;
extern const struct table_v10 ncclNetPlugin_v10;
extern const struct table_v11 ncclNetPlugin_v11, ncclNetPlugin_v12;

EXPORT const struct table_v6 ncclNetPlugin_v6 = {.name = "Toy",
                                                 .init = init_old,
                                                 .devices = toy_devices,
                                                 .properties = properties_v6,
                                                 .listen = listen_old,
                                                 .connect = connect_v6,
                                                 .accept = accept_v6,
                                                 .reg_mr = reg_mr_v6,
                                                 .dereg_mr = toy_dereg_mr,
                                                 .isend = isend_v6,
                                                 REST(irecv_v6)};

EXPORT const struct table_v8 ncclNetPlugin_v8 = {.name = "Toy",
                                                 .init = init_old,
                                                 .devices = toy_devices,
                                                 .properties = properties_v8,
                                                 .listen = listen_old,
                                                 .connect = connect_v8,
                                                 .accept = toy_accept,
                                                 .reg_mr = toy_reg_mr,
                                                 .dereg_mr = toy_dereg_mr,
                                                 .isend = isend_v6,
                                                 REST(irecv_v6)};

EXPORT const struct table_v9 ncclNetPlugin_v9 = {.name = "Toy",
                                                 .init = init_old,
                                                 .devices = toy_devices,
                                                 .properties = properties_v9,
                                                 .listen = listen_old,
                                                 .connect = connect_v8,
                                                 .accept = toy_accept,
                                                 .reg_mr = toy_reg_mr,
                                                 .dereg_mr = toy_dereg_mr,
                                                 .isend = isend_v9,
                                                 REST(irecv_v9)};

EXPORT const struct table_v10 ncclNetPlugin_v10 = {.name = "Toy",
                                                   .init = init_v10,
                                                   .devices = toy_devices,
                                                   .properties = properties_v9,
                                                   .listen = listen_old,
                                                   .connect = connect_v10,
                                                   .accept = toy_accept,
                                                   .reg_mr = toy_reg_mr,
                                                   .dereg_mr = toy_dereg_mr,
                                                   .isend = toy_isend,
                                                   REST(toy_irecv)};

#define TABLE_V11(properties_fn)                                                                   \
    {                                                                                              \
        .name = "Toy", .init = toy_init, .devices = toy_devices, .properties = properties_fn,      \
        .listen = toy_listen, .connect = toy_connect, .accept = toy_accept, .reg_mr = toy_reg_mr,  \
        .dereg_mr = toy_dereg_mr, .isend = toy_isend, REST(toy_irecv), .finalize = toy_finalize,   \
        .set_attr = set_attr                                                                       \
    }

EXPORT const struct table_v11 ncclNetPlugin_v11 = TABLE_V11(properties_v11);
EXPORT const struct table_v11 ncclNetPlugin_v12 = TABLE_V11(properties_v12);
