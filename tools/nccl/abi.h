/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of all versions of NCCL's plugin interfaces: result codes, logger, kinds of
 * memory, limits.
 *
 * The headers abi_*.h are frozen: what a version that NCCL has released says never changes. A newer
 * one has a struct of its own where it differs, and the older one's where it does not. They restate
 * facts of the interface (order, type and meaning of members) in our own words, so that neither
 * building nor running needs NCCL.
 */
#ifndef SL_NCCL_ABI_H
#define SL_NCCL_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum sl_nccl_result {
    SL_NCCL_SUCCESS = 0,
    SL_NCCL_UNHANDLED_CUDA_ERROR = 1,
    SL_NCCL_SYSTEM_ERROR = 2, /* this host: a device or a system call */
    SL_NCCL_INTERNAL_ERROR = 3,
    SL_NCCL_INVALID_ARGUMENT = 4,
    SL_NCCL_INVALID_USAGE = 5,
    SL_NCCL_REMOTE_ERROR = 6 /* a peer is gone */
};

enum sl_nccl_log_level {
    SL_NCCL_LOG_NONE = 0,
    SL_NCCL_LOG_VERSION = 1,
    SL_NCCL_LOG_WARN = 2,
    SL_NCCL_LOG_INFO = 3,
    SL_NCCL_LOG_ABORT = 4,
    SL_NCCL_LOG_TRACE = 5
};

/* Subsystems, as flags of a log line: NCCL_DEBUG_SUBSYS chooses among them. */
#define SL_NCCL_SUB_INIT 0x1ul
#define SL_NCCL_SUB_NET 0x10ul
#define SL_NCCL_SUB_TUNING 0x40ul
#define SL_NCCL_SUB_ENV 0x80ul
#define SL_NCCL_SUB_PROFILE 0x4000ul

typedef void sl_nccl_logger(enum sl_nccl_log_level level, unsigned long flags, const char *file,
                            int line, const char *fmt, ...);

/* Kinds of memory: a bit each in ptrSupport, one of them as the type of a registration. */
#define SL_NCCL_PTR_HOST 0x1
#define SL_NCCL_PTR_CUDA 0x2
#define SL_NCCL_PTR_DMABUF 0x4

#define SL_NCCL_HANDLE_BYTES 128                 /* of a listener, carried to the connecting rank */
#define SL_NCCL_REQUESTS 32                      /* that NCCL may have in flight on one comm */
#define SL_NCCL_NET_BYTES_MAX (INT64_C(1) << 40) /* the largest maxP2pBytes that is accepted */
#define SL_NCCL_UNDEFINED (-1)                   /* trafficClass, railId, planeId */

/* The value of *request at a call of irecv whose completion may come early. */
#define SL_NCCL_RECV_OPTIONAL ((void *)(uintptr_t)1)

/* netDeviceType: the driver of the network. Only the first is ours. */
enum sl_nccl_device_type { SL_NCCL_DEVICE_HOST = 0, SL_NCCL_DEVICE_UNPACK = 1 };
#define SL_NCCL_DEVICE_VERSION_INVALID 0x0

/* For networks driven from the GPU; the same in v7 to v12. We never fill one. */
struct sl_nccl_device_handle {
    enum sl_nccl_device_type type;
    int version;
    void *handle;
    size_t size;
    int needs_proxy_progress;
};

/* net v10 and later: for events inside a plugin. */
enum sl_nccl_event_kind {
    SL_NCCL_EVENT_START = 0,
    SL_NCCL_EVENT_STOP = 1,
    SL_NCCL_EVENT_UPDATE = 2,
    SL_NCCL_EVENT_UPDATE_AND_STOP = 3
};

/* A start writes *event only for a profiler that listens: begin with NULL and stop no NULL. */
typedef enum sl_nccl_result sl_nccl_profiler_callback(void **event, int kind, void *parent,
                                                      int64_t plugin_id, void *data);

static_assert(sizeof(void *) == 8, "sizes and offsets here are those of 64-bit Linux");
static_assert(sizeof(enum sl_nccl_result) == 4 && sizeof(enum sl_nccl_log_level) == 4 &&
                  sizeof(enum sl_nccl_device_type) == 4,
              "an enum is passed as an int");
static_assert(sizeof(struct sl_nccl_device_handle) == 32 &&
                  offsetof(struct sl_nccl_device_handle, handle) == 8 &&
                  offsetof(struct sl_nccl_device_handle, needs_proxy_progress) == 24,
              "as NCCL has it");

#endif
