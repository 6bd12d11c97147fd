/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's network interface, version 10 (NCCL 2.26 to 2.30): a traffic class per connection, events
 * for the profiler. Devices are described as in version 9.
 */
#ifndef SL_NCCL_ABI_V10_H
#define SL_NCCL_ABI_V10_H

#include "tools/nccl/abi_v9.h"

struct sl_nccl_net_config_v10 {
    int traffic_class; /* SL_NCCL_UNDEFINED: none was asked for */
};

struct sl_nccl_net_v10 {
    const char *name;
    enum sl_nccl_result (*init)(sl_nccl_logger *logger, sl_nccl_profiler_callback *profiler);
    enum sl_nccl_result (*devices)(int *count);
    enum sl_nccl_result (*get_properties)(int dev, struct sl_nccl_net_props_v9 *out);
    enum sl_nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum sl_nccl_result (*connect)(int dev, struct sl_nccl_net_config_v10 *config, void *handle,
                                   void **send_comm, struct sl_nccl_device_handle **device);
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
};

static_assert(sizeof(struct sl_nccl_net_v10) == 160, "frozen");
static_assert(offsetof(struct sl_nccl_net_v10, connect) == 40, "frozen");
static_assert(offsetof(struct sl_nccl_net_v10, isend) == 80, "frozen");
static_assert(offsetof(struct sl_nccl_net_v10, test) == 104, "frozen");
static_assert(offsetof(struct sl_nccl_net_v10, close_listen) == 128, "frozen");
static_assert(offsetof(struct sl_nccl_net_v10, make_joined) == 152, "frozen");

#endif
