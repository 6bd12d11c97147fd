/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's network interface, version 6 (NCCL 2.13 to 2.30): without contexts, sizes are ints. */
#ifndef SL_NCCL_ABI_V6_H
#define SL_NCCL_ABI_V6_H

#include "tools/nccl/abi.h"

/* Comes uninitialised: every member must be filled. */
struct sl_nccl_net_props_v6 {
    char *name;
    char *pci_path;  /* the directory of the PCI device in sysfs; NULL: a virtual device */
    uint64_t guid;   /* the same for all functions of one chip */
    int ptr_support; /* SL_NCCL_PTR_* */
    int speed;       /* Mbit/s */
    int port;
    float latency; /* us */
    int comms_max;
    int recvs_max; /* of one grouped receive */
};

struct sl_nccl_net_v6 {
    const char *name;
    enum sl_nccl_result (*init)(sl_nccl_logger *logger);
    enum sl_nccl_result (*devices)(int *count);
    enum sl_nccl_result (*get_properties)(int dev, struct sl_nccl_net_props_v6 *out);
    enum sl_nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum sl_nccl_result (*connect)(int dev, void *handle, void **send_comm);
    enum sl_nccl_result (*accept)(void *listen_comm, void **recv_comm);
    enum sl_nccl_result (*reg_mr)(void *comm, void *data, int size, int type, void **mhandle);
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
};

static_assert(sizeof(struct sl_nccl_net_props_v6) == 48, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v6, guid) == 16, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v6, speed) == 28, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v6, latency) == 36, "frozen");
static_assert(offsetof(struct sl_nccl_net_props_v6, recvs_max) == 44, "frozen");
static_assert(sizeof(struct sl_nccl_net_v6) == 136, "frozen");
static_assert(offsetof(struct sl_nccl_net_v6, connect) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_v6, isend) == 80, "frozen");
static_assert(offsetof(struct sl_nccl_net_v6, test) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_v6, close_listen) == 128, "frozen");

#endif
