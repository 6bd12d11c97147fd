/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network plugin of any version behind one set of calls, which watch what they pass: results in
 * range, time, guard bytes around handles and sizes, the profiler's callbacks.
 */
#pragma once

#include "tools/nccl-driver/abi.h"

#include <stdbool.h>

struct net {
    int version; /* 6, 8, 9, 10, 11, 12 */
    void *library;
    const void *table;
    const char *path;
    bool quick; /* a measurement: nothing is watched */
};

/* The newest set of properties; what a version lacks holds NCCL's own default. */
struct net_props {
    const char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, force_flush, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version, virtual_count, virtual_first;
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request, rail, plane;
};

struct net_phandle {   /* what a request's profiler calls come with */
    uint64_t magic;    /* NET_PHANDLE */
    _Atomic(int) live; /* the request is not done yet */
};
#define NET_PHANDLE 0x70726f66696c6572ull

extern const int net_versions[];
extern const unsigned net_version_count;

/* 0, or -errno with dlerror()'s or our sentence in why. */
int net_open(struct net *net, const char *path, int version, char *why, size_t cap);
void net_close(struct net *net);
const char *net_name(const struct net *net);
const char *net_result_name(int result);

int net_init(struct net *net, void **ctx, uint64_t id);
int net_finalize(struct net *net, void *ctx);
bool net_has_contexts(const struct net *net);
bool net_has_profiler(const struct net *net);
bool net_has_marker(const struct net *net);
int net_devices(struct net *net, int *count);
/* The struct is filled with poison first: what the plugin leaves alone, stays poison. */
int net_properties(struct net *net, int dev, uint8_t poison, struct net_props *out);
int net_set_attr(struct net *net, void *ctx, struct net_attr *attr);
int net_listen(struct net *net, void *ctx, int dev, uint8_t handle[NET_HANDLE_BYTES], void **comm);
int net_connect(struct net *net, void *ctx, int dev, uint8_t handle[NET_HANDLE_BYTES], void **comm);
int net_accept(struct net *net, void *listen, void **comm);
int net_reg(struct net *net, void *comm, void *data, size_t len, void **mr);
int net_dereg(struct net *net, void *comm, void *mr);
int net_isend(struct net *net, void *comm, void *data, size_t len, int tag, void *mr,
              struct net_phandle *phandle, void **request);
int net_irecv(struct net *net, void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
              struct net_phandle **phandles, void **request);
int net_test(struct net *net, void *request, int *done, int *sizes, int n);
int net_consumed(struct net *net, void *comm, int n, void *request);
int net_close_send(struct net *net, void *comm);
int net_close_recv(struct net *net, void *comm);
int net_close_listen(struct net *net, void *comm);

/* What the plugin's logger said last at level WARN; "" if nothing. */
void net_last_warning(char *text, size_t cap);
extern bool net_verbose;

/* What is handed to init. */
void net_log_line(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
int net_profile_event(void **event, int type, void *phandle, int64_t plugin, void *data);

/* The profiler beneath v10 and later: silent does not take the events, as NCCL without net events.
 */
enum net_profiling { PROFILING_OFF, PROFILING_SILENT, PROFILING_ON };
void net_profile(enum net_profiling how);
/* Events started and not stopped; *seen is how many there were. */
unsigned net_profile_open(unsigned *seen);
