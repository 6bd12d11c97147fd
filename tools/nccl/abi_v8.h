/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's network interface, version 8 (NCCL 2.20 to 2.30): since 7, networks driven from the GPU;
 * memory is registered by size_t.
 */
#ifndef SL_NCCL_ABI_V8_H
#define SL_NCCL_ABI_V8_H

#include "tools/nccl/abi.h"

/* Comes uninitialised: every member must be filled. */
struct sl_nccl_net_props_v8 {
    char *name;
    char *pci_path;    /* the directory of the PCI device in sysfs; NULL: a virtual device */
    uint64_t guid;     /* the same for all functions of one chip */
    int ptr_support;   /* SL_NCCL_PTR_* */
    int reg_is_global; /* a registration serves every comm of the device */
    int speed;         /* Mbit/s */
    int port;
    float latency; /* us */
    int comms_max;
    int recvs_max; /* of one grouped receive */
    enum sl_nccl_device_type device_type;
    int device_version;
};

struct sl_nccl_net_v8 {
    const char *name;
    enum sl_nccl_result (*init)(sl_nccl_logger *logger);
    enum sl_nccl_result (*devices)(int *count);
    enum sl_nccl_result (*get_properties)(int dev, struct sl_nccl_net_props_v8 *out);
    enum sl_nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum sl_nccl_result (*connect)(int dev, void *handle, void **send_comm,
                                   struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*accept)(void *listen_comm, void **recv_comm,
                                  struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum sl_nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                         uint64_t offset, int fd, void **mhandle);
    enum sl_nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum sl_nccl_result (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle,
                                 void **request);
    enum sl_nccl_result (*irecv)(void *recv_comm, int count, void **data, int *sizes, int *tags,
                                 void **mhandles, void **request);
    enum sl_nccl_result (*iflush)(void *recv_comm, int count, void **data, int *sizes,
                                  void **mhandles, void **request);
    enum sl_nccl_result (*test)(void *request, int *done, int *sizes);
    enum sl_nccl_result (*close_send)(void *send_comm);
    enum sl_nccl_result (*close_recv)(void *recv_comm);
    enum sl_nccl_result (*close_listen)(void *listen_comm);
    enum sl_nccl_result (*get_device_mr)(void *comm, void *mhandle, void **out);
    enum sl_nccl_result (*irecv_consumed)(void *recv_comm, int count, void *request);
};

static_assert(sizeof(struct sl_nccl_net_props_v8) == 64, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v8, guid) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v8, speed) == 32, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v8, latency) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v8, recvs_max) == 48, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v8, device_version) == 56, "frozen");
static_assert(sizeof(struct sl_nccl_net_v8) == 152, "frozen");
static_assert(offsetof(struct sl_nccl_net_v8, connect) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_v8, isend) == 80, "frozen");
static_assert(offsetof(struct sl_nccl_net_v8, test) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_v8, close_listen) == 128, "frozen");

#endif
