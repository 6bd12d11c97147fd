/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's network interface, version 11 (NCCL 2.28 to 2.30): a context per communicator. */
#ifndef SL_NCCL_ABI_V11_H
#define SL_NCCL_ABI_V11_H

#include "tools/nccl/abi_v10.h"

/* Comes uninitialised: every member must be filled. */
struct sl_nccl_net_props_v11 {
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
    int multi_request_max; /* not used by NCCL itself; 1 */
};

/* How a communicator is about to use the network: a hint. */
struct sl_nccl_net_peers_v11 {
    int32_t peers_max, peers_min;                   /* at a time */
    int32_t flows_per_peer_max, flows_per_peer_min; /* connections to each */
};

struct sl_nccl_net_attr_v11 {
    struct sl_nccl_net_peers_v11 send, recv;
    uint32_t op, algo, proto; /* a bit per kind, all set: any */
};

struct sl_nccl_net_v11 {
    const char *name;
    enum sl_nccl_result (*init)(void **ctx, uint64_t comm_id, struct sl_nccl_net_config_v10 *config,
                                sl_nccl_logger *logger, sl_nccl_profiler_callback *profiler);
    enum sl_nccl_result (*devices)(int *count);
    enum sl_nccl_result (*get_properties)(int dev, struct sl_nccl_net_props_v11 *out);
    enum sl_nccl_result (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
    enum sl_nccl_result (*connect)(void *ctx, int dev, void *handle, void **send_comm,
                                   struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*accept)(void *listen_comm, void **recv_comm,
                                  struct sl_nccl_device_handle **device);
    enum sl_nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum sl_nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                         uint64_t offset, int fd, void **mhandle);
    enum sl_nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum sl_nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                                 void *parent, void **request);
    enum sl_nccl_result (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **parents, void **request);
    enum sl_nccl_result (*iflush)(void *recv_comm, int count, void **data, int *sizes,
                                  void **mhandles, void **request);
    enum sl_nccl_result (*test)(void *request, int *done, int *sizes);
    enum sl_nccl_result (*close_send)(void *send_comm);
    enum sl_nccl_result (*close_recv)(void *recv_comm);
    enum sl_nccl_result (*close_listen)(void *listen_comm);
    enum sl_nccl_result (*get_device_mr)(void *comm, void *mhandle, void **out);
    enum sl_nccl_result (*irecv_consumed)(void *recv_comm, int count, void *request);
    enum sl_nccl_result (*make_joined)(int *dev, struct sl_nccl_joined_v9 *joined);
    enum sl_nccl_result (*finalize)(void *ctx);
    enum sl_nccl_result (*set_attr)(void *ctx, struct sl_nccl_net_attr_v11 *attr);
};

static_assert(sizeof(struct sl_nccl_net_props_v11) == 112, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, guid) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, speed) == 36, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, latency) == 44, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, recvs_max) == 52, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, device_version) == 60, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, joined) == 64, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, p2p_bytes_max) == 88, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v11, multi_request_max) == 104, "frozen");
static_assert(sizeof(struct sl_nccl_net_attr_v11) == 44, "frozen");
static_assert(sizeof(struct sl_nccl_net_v11) == 176, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, connect) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, isend) == 80, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, test) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, close_listen) == 128, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, make_joined) == 152, "frozen");
static_assert(offsetof(struct sl_nccl_net_v11, set_attr) == 168, "frozen");

#endif
