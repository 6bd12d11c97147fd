/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL expects of a network plugin, as the driver sees it: written from NCCL's published
 * interface and apart from the plugin's own headers, so that a mistake in either shows as a
 * difference (abi_agrees.c).
 *
 * v8 added offload, v9 sizes of 64 bits and virtual devices, v10 traffic class and profiler, v11
 * contexts, v12 wider virtual devices and the places of rails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NET_HANDLE_BYTES 128
#define NET_STEPS 8              /* of one operation in flight */
#define NET_REQUESTS 32          /* what NCCL may have in flight on a comm */
#define NET_GROUP 8              /* most receives of a group */
#define NET_MARKER ((void *)0x1) /* "this receive may be done early" */
#define NET_PTR_HOST 1
#define NET_LARGEST ((size_t)1 << 40) /* what NCCL lets maxP2pBytes be */

enum net_result {
    NET_OK = 0,
    NET_CUDA = 1,
    NET_SYSTEM = 2,
    NET_INTERNAL = 3,
    NET_ARGUMENT = 4,
    NET_USAGE = 5,
    NET_REMOTE = 6,
    NET_IN_PROGRESS = 7,
    NET_RESULTS = 8
};

enum net_log {
    NET_LOG_NONE,
    NET_LOG_VERSION,
    NET_LOG_WARN,
    NET_LOG_INFO,
    NET_LOG_ABORT,
    NET_LOG_TRACE
};

enum net_event { NET_START = 0, NET_STOP = 1, NET_UPDATE = 2, NET_UPDATE_STOP = 3 };

typedef void (*net_logger)(int level, unsigned long flags, const char *file, int line,
                           const char *fmt, ...);
typedef int (*net_profiler)(void **event, int type, void *phandle, int64_t plugin, void *data);

struct net_config { /* v10 on */
    int traffic_class;
};

struct net_attr { /* v11 on */
    struct {
        int32_t max_peers, min_peers, max_flows, min_flows;
    } send, recv;
    uint32_t op, algo, proto;
};

struct props_v6 {
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, speed, port;
    float latency;
    int max_comms, max_recvs;
};

struct props_v8 {
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
};

struct vdevice_v9 {
    int count, devices[4];
};

struct props_v9 { /* v10, too */
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
    struct vdevice_v9 virtual_device;
    size_t max_p2p_bytes, max_coll_bytes;
};

struct props_v11 {
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
    struct vdevice_v9 virtual_device;
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request;
};

struct vdevice_v12 {
    int count, devices[8];
};

struct props_v12 {
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
    struct vdevice_v12 virtual_device;
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request;
    int16_t rail, plane;
};

struct table_v6 {
    const char *name;
    int (*init)(net_logger);
    int (*devices)(int *);
    int (*properties)(int, struct props_v6 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **);
    int (*accept)(void *, void **);
    int (*reg_mr)(void *, void *, int, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void **, int *, int *, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
};

struct table_v8 {
    const char *name;
    int (*init)(net_logger);
    int (*devices)(int *);
    int (*properties)(int, struct props_v8 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg_mr)(void *, void *, size_t, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void **, int *, int *, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*device_mr)(void *, void *, void **);
    int (*irecv_consumed)(void *, int, void *);
};

struct table_v9 {
    const char *name;
    int (*init)(net_logger);
    int (*devices)(int *);
    int (*properties)(int, struct props_v9 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg_mr)(void *, void *, size_t, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, size_t, int, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*device_mr)(void *, void *, void **);
    int (*irecv_consumed)(void *, int, void *);
    int (*make_vdevice)(int *, struct vdevice_v9 *);
};

struct table_v10 {
    const char *name;
    int (*init)(net_logger, net_profiler);
    int (*devices)(int *);
    int (*properties)(int, struct props_v9 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, struct net_config *, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg_mr)(void *, void *, size_t, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, size_t, int, void *, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*device_mr)(void *, void *, void **);
    int (*irecv_consumed)(void *, int, void *);
    int (*make_vdevice)(int *, struct vdevice_v9 *);
};

/* v11 and v12 differ in what properties() and make_vdevice() point to, and in nothing else. */
struct table_v11 {
    const char *name;
    int (*init)(void **, uint64_t, struct net_config *, net_logger, net_profiler);
    int (*devices)(int *);
    int (*properties)(int, void *);
    int (*listen)(void *, int, void *, void **);
    int (*connect)(void *, int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg_mr)(void *, void *, size_t, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, size_t, int, void *, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*device_mr)(void *, void *, void **);
    int (*irecv_consumed)(void *, int, void *);
    int (*make_vdevice)(int *, void *);
    int (*finalize)(void *);
    int (*set_attr)(void *, struct net_attr *);
};
