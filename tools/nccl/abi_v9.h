/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's network interface, version 9 (NCCL 2.24 to 2.30): sizes of messages are size_t; devices
 * can be joined.
 */
#ifndef SL_NCCL_ABI_V9_H
#define SL_NCCL_ABI_V9_H

#include "tools/nccl/abi.h"

#define SL_NCCL_JOINED_MAX_V9 4

/* Devices that a device consists of; itself alone, when it was not joined. */
struct sl_nccl_joined_v9 {
    int count;
    int devs[SL_NCCL_JOINED_MAX_V9];
};

/* Comes uninitialised: every member must be filled. */
struct sl_nccl_net_props_v9 {
    char *name;
    char *pci_path;    /* the directory of the PCI device in sysfs; NULL: a virtual device */
    uint64_t guid;     /* the same for all functions of one chip */
    int ptr_support;   /* SL_NCCL_PTR_* */
    int reg_is_global; /* a registration serves every comm of the device */
    int force_flush;
    int speed; /* Mbit/s */
    int port;
    float latency; /* us */
    int comms_max;
    int recvs_max; /* of one grouped receive */
    enum sl_nccl_device_type device_type;
    int device_version;
    struct sl_nccl_joined_v9 joined;
    size_t p2p_bytes_max;
    size_t coll_bytes_max;
};

struct sl_nccl_net_v9 {
    const char *name;
    enum sl_nccl_result (*init)(sl_nccl_logger *logger);
    enum sl_nccl_result (*devices)(int *count);
    enum sl_nccl_result (*get_properties)(int dev, struct sl_nccl_net_props_v9 *out);
    enum sl_nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum sl_nccl_result (*connect)(int dev, void *handle, void **send_comm,
                                   struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*accept)(void *listen_comm, void **recv_comm,
                                  struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum sl_nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                         uint64_t offset, int fd, void **mhandle);
    enum sl_nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum sl_nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                                 void **request);
    enum sl_nccl_result (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **request);
    enum sl_nccl_result (*iflush)(void *recv_comm, int count, void **data, int *sizes,
                                  void **mhandles, void **request);
    enum sl_nccl_result (*test)(void *request, int *done, int *sizes);
    enum sl_nccl_result (*close_send)(void *send_comm);
    enum sl_nccl_result (*close_recv)(void *recv_comm);
    enum sl_nccl_result (*close_listen)(void *listen_comm);
    enum sl_nccl_result (*get_device_mr)(void *comm, void *mhandle, void **out);
    enum sl_nccl_result (*irecv_consumed)(void *recv_comm, int count, void *request);
    enum sl_nccl_result (*make_joined)(int *dev, struct sl_nccl_joined_v9 *joined);
};

static_assert(sizeof(struct sl_nccl_net_props_v9) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, guid) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, speed) == 36, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, latency) == 44, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, recvs_max) == 52, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, device_version) == 60, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, joined) == 64, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v9, p2p_bytes_max) == 88, "frozen");
static_assert(sizeof(struct sl_nccl_net_v9) == 160, "frozen");
static_assert(offsetof(struct sl_nccl_net_v9, connect) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_v9, isend) == 80, "frozen");
static_assert(offsetof(struct sl_nccl_net_v9, test) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_v9, close_listen) == 128, "frozen");
static_assert(offsetof(struct sl_nccl_net_v9, make_joined) == 152, "frozen");

#endif
