/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's view of NCCL's interface and the plugin's were written apart; they must be the same.
 * This file has nothing to run: it compiles or it does not.
 */
#include "tools/nccl-driver/abi.h"

#include "tools/nccl/abi_v12.h" /* and 9 to 11 */
#include "tools/nccl/abi_v6.h"
#include "tools/nccl/abi_v8.h"

#include <assert.h>

#define AT(ours, mine, theirs, yours)                                                              \
    static_assert(offsetof(ours, mine) == offsetof(theirs, yours) &&                               \
                      sizeof(((ours *)0)->mine) == sizeof(((theirs *)0)->yours),                   \
                  #ours "." #mine)
#define SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #ours)

/* Members that every version's properties have. */
#define PROPS(ours, theirs)                                                                        \
    SIZE(ours, theirs);                                                                            \
    AT(ours, name, theirs, name);                                                                  \
    AT(ours, pci_path, theirs, pci_path);                                                          \
    AT(ours, guid, theirs, guid);                                                                  \
    AT(ours, ptr_support, theirs, ptr_support);                                                    \
    AT(ours, speed, theirs, speed);                                                                \
    AT(ours, port, theirs, port);                                                                  \
    AT(ours, latency, theirs, latency);                                                            \
    AT(ours, max_comms, theirs, comms_max);                                                        \
    AT(ours, max_recvs, theirs, recvs_max)

#define PROPS_V8(ours, theirs)                                                                     \
    PROPS(ours, theirs);                                                                           \
    AT(ours, reg_is_global, theirs, reg_is_global);                                                \
    AT(ours, device_type, theirs, device_type);                                                    \
    AT(ours, device_version, theirs, device_version)

#define PROPS_V9(ours, theirs)                                                                     \
    PROPS_V8(ours, theirs);                                                                        \
    AT(ours, force_flush, theirs, force_flush);                                                    \
    AT(ours, virtual_device, theirs, joined);                                                      \
    AT(ours, max_p2p_bytes, theirs, p2p_bytes_max);                                                \
    AT(ours, max_coll_bytes, theirs, coll_bytes_max)

PROPS(struct props_v6, struct sl_nccl_net_props_v6);
PROPS_V8(struct props_v8, struct sl_nccl_net_props_v8);
PROPS_V9(struct props_v9, struct sl_nccl_net_props_v9);
PROPS_V9(struct props_v11, struct sl_nccl_net_props_v11);
AT(struct props_v11, max_multi_request, struct sl_nccl_net_props_v11, multi_request_max);
PROPS_V9(struct props_v12, struct sl_nccl_net_props_v12);
AT(struct props_v12, max_multi_request, struct sl_nccl_net_props_v12, multi_request_max);
AT(struct props_v12, rail, struct sl_nccl_net_props_v12, rail_id);
AT(struct props_v12, plane, struct sl_nccl_net_props_v12, plane_id);
SIZE(struct net_attr, struct sl_nccl_net_attr_v11);
SIZE(struct net_config, struct sl_nccl_net_config_v10);

/* Functions that every version's table has. */
#define TABLE(ours, theirs)                                                                        \
    SIZE(ours, theirs);                                                                            \
    AT(ours, name, theirs, name);                                                                  \
    AT(ours, init, theirs, init);                                                                  \
    AT(ours, devices, theirs, devices);                                                            \
    AT(ours, properties, theirs, get_properties);                                                  \
    AT(ours, listen, theirs, listen);                                                              \
    AT(ours, connect, theirs, connect);                                                            \
    AT(ours, accept, theirs, accept);                                                              \
    AT(ours, reg_mr, theirs, reg_mr);                                                              \
    AT(ours, reg_mr_dmabuf, theirs, reg_mr_dmabuf);                                                \
    AT(ours, dereg_mr, theirs, dereg_mr);                                                          \
    AT(ours, isend, theirs, isend);                                                                \
    AT(ours, irecv, theirs, irecv);                                                                \
    AT(ours, iflush, theirs, iflush);                                                              \
    AT(ours, test, theirs, test);                                                                  \
    AT(ours, close_send, theirs, close_send);                                                      \
    AT(ours, close_recv, theirs, close_recv);                                                      \
    AT(ours, close_listen, theirs, close_listen)

TABLE(struct table_v6, struct sl_nccl_net_v6);
TABLE(struct table_v8, struct sl_nccl_net_v8);
TABLE(struct table_v9, struct sl_nccl_net_v9);
TABLE(struct table_v10, struct sl_nccl_net_v10);
TABLE(struct table_v11, struct sl_nccl_net_v11);
TABLE(struct table_v11, struct sl_nccl_net_v12);
AT(struct table_v9, make_vdevice, struct sl_nccl_net_v9, make_joined);
AT(struct table_v10, make_vdevice, struct sl_nccl_net_v10, make_joined);
AT(struct table_v11, finalize, struct sl_nccl_net_v11, finalize);
AT(struct table_v11, set_attr, struct sl_nccl_net_v12, set_attr);

static_assert(NET_HANDLE_BYTES == SL_NCCL_HANDLE_BYTES && NET_REQUESTS == SL_NCCL_REQUESTS &&
                  NET_REMOTE == (int)SL_NCCL_REMOTE_ERROR &&
                  NET_SYSTEM == (int)SL_NCCL_SYSTEM_ERROR,
              "constants");
