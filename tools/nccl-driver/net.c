/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of a plugin's table behind one set of calls. */
#include "tools/nccl-driver/net.h"

#include "tools/nccl-driver/watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GUARD 64
#define GUARD_BYTE 0xc3

const int net_versions[] = {12, 11, 10, 9, 8, 6};
const unsigned net_version_count = sizeof(net_versions) / sizeof(net_versions[0]);
bool net_verbose;

#define T6(net) ((const struct table_v6 *)(net)->table)
#define T8(net) ((const struct table_v8 *)(net)->table)
#define T9(net) ((const struct table_v9 *)(net)->table)
#define T10(net) ((const struct table_v10 *)(net)->table)
#define T11(net) ((const struct table_v11 *)(net)->table)

/* A member that all versions have with the same type and maybe at another place. */
#define ANY(net, member)                                                                           \
    ((net)->version == 6    ? T6(net)->member                                                      \
     : (net)->version == 8  ? T8(net)->member                                                      \
     : (net)->version == 9  ? T9(net)->member                                                      \
     : (net)->version == 10 ? T10(net)->member                                                     \
                            : T11(net)->member)

/* NCCL holds a lock of its own around init, devices, getProperties and finalize. */
static pthread_mutex_t setup_lock = PTHREAD_MUTEX_INITIALIZER;

static void enter(const struct net *net, const char *call)
{
    if (!net->quick)
        watch_enter(call);
}

/* A result outside of the enumeration would make NCCL index a table beyond its end. */
static int leave(const struct net *net, int result, bool limited)
{
    if (net->quick)
        return result;
    if (result < 0 || result >= NET_RESULTS)
        watch_fail("the result %d is none of NCCL's", result);
    watch_leave(limited);
    return result;
}

const char *net_result_name(int result)
{
    static const char *const names[NET_RESULTS] = {
        "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
        "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};

    return result >= 0 && result < NET_RESULTS ? names[result] : "no result of NCCL";
}

/* Every member must be there: NCCL calls them without asking. */
static const char *missing(const struct net *net)
{
    if (ANY(net, name) == NULL || ANY(net, name)[0] == '\0')
        return "name";
    if (ANY(net, devices) == NULL || ANY(net, test) == NULL || ANY(net, dereg_mr) == NULL ||
        ANY(net, iflush) == NULL || ANY(net, close_send) == NULL || ANY(net, close_recv) == NULL ||
        ANY(net, close_listen) == NULL)
        return "a function";
    if (net->version >= 11 && T11(net)->finalize == NULL)
        return "finalize";
    return NULL;
}

int net_open(struct net *net, const char *path, int version, char *why, size_t cap)
{
    char symbol[32];
    const char *lacks;

    *net = (struct net){.version = version, .path = path};
    net->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (net->library == NULL) {
        snprintf(why, cap, "%s", dlerror());
        return -ENOENT;
    }
    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    net->table = dlsym(net->library, symbol);
    if (net->table == NULL) {
        snprintf(why, cap, "%s has no %s", path, symbol);
        net_close(net);
        return -ENOTSUP;
    }
    lacks = missing(net);
    if (lacks != NULL) {
        snprintf(why, cap, "%s of %s is NULL", lacks, symbol);
        net_close(net);
        return -EINVAL;
    }
    return 0;
}

void net_close(struct net *net)
{
    if (net->library != NULL)
        dlclose(net->library);
    net->library = NULL;
    net->table = NULL;
}

const char *net_name(const struct net *net)
{
    return ANY(net, name);
}

bool net_has_contexts(const struct net *net)
{
    return net->version >= 11;
}

bool net_has_profiler(const struct net *net)
{
    return net->version >= 10;
}

/* NCCL's own layer takes the marker away from older versions. */
bool net_has_marker(const struct net *net)
{
    return net->version >= 9;
}

int net_init(struct net *net, void **ctx, uint64_t id)
{
    struct net_config config = {.traffic_class = -1};
    int rc;

    *ctx = NULL;
    pthread_mutex_lock(&setup_lock);
    enter(net, "init");
    if (net->version >= 11)
        rc = T11(net)->init(ctx, id, &config, net_log_line, net_profile_event);
    else if (net->version == 10)
        rc = T10(net)->init(net_log_line, net_profile_event);
    else
        rc = net->version == 9   ? T9(net)->init(net_log_line)
             : net->version == 8 ? T8(net)->init(net_log_line)
                                 : T6(net)->init(net_log_line);
    leave(net, rc, false);
    pthread_mutex_unlock(&setup_lock);
    return rc;
}

int net_finalize(struct net *net, void *ctx)
{
    int rc;

    if (net->version < 11)
        return NET_OK;
    pthread_mutex_lock(&setup_lock);
    enter(net, "finalize");
    rc = leave(net, T11(net)->finalize(ctx), false);
    pthread_mutex_unlock(&setup_lock);
    return rc;
}

int net_devices(struct net *net, int *count)
{
    enter(net, "devices");
    *count = -1;
    return leave(net, ANY(net, devices)(count), false);
}

/* The members that all versions share. */
#define COPY_COMMON(out, p)                                                                        \
    do {                                                                                           \
        (out)->name = (p)->name;                                                                   \
        (out)->pci_path = (p)->pci_path;                                                           \
        (out)->guid = (p)->guid;                                                                   \
        (out)->ptr_support = (p)->ptr_support;                                                     \
        (out)->speed = (p)->speed;                                                                 \
        (out)->port = (p)->port;                                                                   \
        (out)->latency = (p)->latency;                                                             \
        (out)->max_comms = (p)->max_comms;                                                         \
        (out)->max_recvs = (p)->max_recvs;                                                         \
    } while (0)

#define COPY_DEVICE(out, p)                                                                        \
    do {                                                                                           \
        (out)->reg_is_global = (p)->reg_is_global;                                                 \
        (out)->device_type = (p)->device_type;                                                     \
        (out)->device_version = (p)->device_version;                                               \
    } while (0)

#define COPY_SIZES(out, p)                                                                         \
    do {                                                                                           \
        (out)->force_flush = (p)->force_flush;                                                     \
        (out)->virtual_count = (p)->virtual_device.count;                                          \
        (out)->virtual_first = (p)->virtual_device.devices[0];                                     \
        (out)->max_p2p_bytes = (p)->max_p2p_bytes;                                                 \
        (out)->max_coll_bytes = (p)->max_coll_bytes;                                               \
    } while (0)

int net_properties(struct net *net, int dev, uint8_t poison, struct net_props *out)
{
    union {
        struct props_v6 v6;
        struct props_v8 v8;
        struct props_v9 v9;
        struct props_v11 v11;
        struct props_v12 v12;
        uint8_t bytes[sizeof(struct props_v12) + GUARD];
    } p;
    static const size_t sizes[13] = {
        [6] = sizeof(struct props_v6),   [8] = sizeof(struct props_v8),
        [9] = sizeof(struct props_v9),   [10] = sizeof(struct props_v9),
        [11] = sizeof(struct props_v11), [12] = sizeof(struct props_v12)};
    int rc;

    memset(&p, poison, sizeof(p));
    *out = (struct net_props){.max_p2p_bytes = 1 << 30,
                              .max_coll_bytes = 1 << 30,
                              .virtual_count = 1,
                              .virtual_first = dev,
                              .max_multi_request = 1};
    enter(net, "getProperties");
    rc = net->version >= 11   ? T11(net)->properties(dev, &p)
         : net->version == 10 ? T10(net)->properties(dev, &p.v9)
         : net->version == 9  ? T9(net)->properties(dev, &p.v9)
         : net->version == 8  ? T8(net)->properties(dev, &p.v8)
                              : T6(net)->properties(dev, &p.v6);
    for (size_t i = sizes[net->version]; rc == NET_OK && i < sizeof(p); i++)
        if (p.bytes[i] != poison) {
            watch_fail("getProperties of v%d wrote byte %zu of a struct of %zu", net->version, i,
                       sizes[net->version]);
            break;
        }
    COPY_COMMON(out, &p.v6);
    if (net->version >= 8) {
        COPY_COMMON(out, &p.v8);
        COPY_DEVICE(out, &p.v8);
    }
    if (net->version >= 9) {
        COPY_COMMON(out, &p.v9);
        COPY_DEVICE(out, &p.v9);
        COPY_SIZES(out, &p.v9);
    }
    if (net->version == 11) {
        out->max_multi_request = p.v11.max_multi_request;
    } else if (net->version == 12) {
        COPY_SIZES(out, &p.v12);
        out->max_multi_request = p.v12.max_multi_request;
        out->rail = p.v12.rail;
        out->plane = p.v12.plane;
    }
    return leave(net, rc, false);
}

int net_set_attr(struct net *net, void *ctx, struct net_attr *attr)
{
    if (net->version < 11 || T11(net)->set_attr == NULL)
        return NET_OK;
    enter(net, "setNetAttr");
    return leave(net, T11(net)->set_attr(ctx, attr), true);
}

static int guarded(const uint8_t *guard, const char *what)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != GUARD_BYTE)
            return watch_fail("%s wrote byte %d after the %d of the handle", what, i,
                              NET_HANDLE_BYTES);
    return 0;
}

int net_listen(struct net *net, void *ctx, int dev, uint8_t handle[NET_HANDLE_BYTES], void **comm)
{
    uint8_t room[NET_HANDLE_BYTES + GUARD] __attribute__((aligned(16)));
    int rc;

    memset(room, GUARD_BYTE, sizeof(room));
    memset(room, 0, NET_HANDLE_BYTES);
    *comm = NULL;
    enter(net, "listen");
    rc = net->version >= 11   ? T11(net)->listen(ctx, dev, room, comm)
         : net->version == 10 ? T10(net)->listen(dev, room, comm)
         : net->version == 9  ? T9(net)->listen(dev, room, comm)
         : net->version == 8  ? T8(net)->listen(dev, room, comm)
                              : T6(net)->listen(dev, room, comm);
    memcpy(handle, room, NET_HANDLE_BYTES);
    guarded(room + NET_HANDLE_BYTES, "listen");
    return leave(net, rc, true);
}

/* The caller's handle is its own copy, which lasts from call to call: plugins keep their state in
 * it. */
int net_connect(struct net *net, void *ctx, int dev, uint8_t handle[NET_HANDLE_BYTES], void **comm)
{
    uint8_t room[NET_HANDLE_BYTES + GUARD] __attribute__((aligned(16)));
    struct net_config config = {.traffic_class = -1};
    void *device = NULL;
    int rc;

    memset(room, GUARD_BYTE, sizeof(room));
    memcpy(room, handle, NET_HANDLE_BYTES);
    enter(net, "connect");
    rc = net->version >= 11   ? T11(net)->connect(ctx, dev, room, comm, &device)
         : net->version == 10 ? T10(net)->connect(dev, &config, room, comm, &device)
         : net->version == 9  ? T9(net)->connect(dev, room, comm, &device)
         : net->version == 8  ? T8(net)->connect(dev, room, comm, &device)
                              : T6(net)->connect(dev, room, comm);
    memcpy(handle, room, NET_HANDLE_BYTES);
    guarded(room + NET_HANDLE_BYTES, "connect");
    return leave(net, rc, true);
}

int net_accept(struct net *net, void *listen, void **comm)
{
    void *device = NULL;

    enter(net, "accept");
    return leave(net,
                 net->version >= 11   ? T11(net)->accept(listen, comm, &device)
                 : net->version == 10 ? T10(net)->accept(listen, comm, &device)
                 : net->version == 9  ? T9(net)->accept(listen, comm, &device)
                 : net->version == 8  ? T8(net)->accept(listen, comm, &device)
                                      : T6(net)->accept(listen, comm),
                 true);
}

int net_reg(struct net *net, void *comm, void *data, size_t len, void **mr)
{
    int rc;

    *mr = NULL;
    enter(net, "regMr");
    rc = net->version >= 11   ? T11(net)->reg_mr(comm, data, len, NET_PTR_HOST, mr)
         : net->version == 10 ? T10(net)->reg_mr(comm, data, len, NET_PTR_HOST, mr)
         : net->version == 9  ? T9(net)->reg_mr(comm, data, len, NET_PTR_HOST, mr)
         : net->version == 8  ? T8(net)->reg_mr(comm, data, len, NET_PTR_HOST, mr)
                              : T6(net)->reg_mr(comm, data, (int)len, NET_PTR_HOST, mr);
    return leave(net, rc, false);
}

int net_dereg(struct net *net, void *comm, void *mr)
{
    enter(net, "deregMr");
    return leave(net, ANY(net, dereg_mr)(comm, mr), false);
}

int net_isend(struct net *net, void *comm, void *data, size_t len, int tag, void *mr,
              struct net_phandle *phandle, void **request)
{
    int rc;

    enter(net, "isend");
    rc = net->version >= 11   ? T11(net)->isend(comm, data, len, tag, mr, phandle, request)
         : net->version == 10 ? T10(net)->isend(comm, data, len, tag, mr, phandle, request)
         : net->version == 9  ? T9(net)->isend(comm, data, len, tag, mr, request)
         : net->version == 8  ? T8(net)->isend(comm, data, (int)len, tag, mr, request)
                              : T6(net)->isend(comm, data, (int)len, tag, mr, request);
    return leave(net, rc, true);
}

int net_irecv(struct net *net, void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
              struct net_phandle **phandles, void **request)
{
    void *handles[NET_GROUP];
    int narrow[NET_GROUP], rc;

    for (int i = 0; i < n; i++) {
        narrow[i] = (int)sizes[i];
        handles[i] = phandles != NULL ? phandles[i] : NULL;
    }
    enter(net, "irecv");
    rc = net->version >= 11   ? T11(net)->irecv(comm, n, data, sizes, tags, mrs, handles, request)
         : net->version == 10 ? T10(net)->irecv(comm, n, data, sizes, tags, mrs, handles, request)
         : net->version == 9  ? T9(net)->irecv(comm, n, data, sizes, tags, mrs, request)
         : net->version == 8  ? T8(net)->irecv(comm, n, data, narrow, tags, mrs, request)
                              : T6(net)->irecv(comm, n, data, narrow, tags, mrs, request);
    return leave(net, rc, true);
}

/* sizes may be NULL; else n of them are the plugin's to write, and no more. */
int net_test(struct net *net, void *request, int *done, int *sizes, int n)
{
    int room[NET_GROUP + 4], rc;

    if (net->quick)
        return ANY(net, test)(request, done, sizes);
    for (int i = 0; i < NET_GROUP + 4; i++)
        room[i] = (int)0xc3c3c3c3;
    *done = 0;
    enter(net, "test");
    rc = ANY(net, test)(request, done, sizes != NULL ? room : NULL);
    for (int i = n; sizes != NULL && i < NET_GROUP + 4; i++)
        if (room[i] != (int)0xc3c3c3c3) {
            watch_fail("test wrote %d sizes and more of a request of %d", i + 1, n);
            break;
        }
    for (int i = 0; sizes != NULL && *done && i < n; i++)
        sizes[i] = room[i];
    return leave(net, rc, true);
}

/* After a receive whose data was used, as NCCL's proxy does (its net.cc, recvProxyProgress), with
 * every plugin that has the call. */
int net_consumed(struct net *net, void *comm, int n, void *request)
{
    int (*consumed)(void *, int, void *) = net->version >= 11   ? T11(net)->irecv_consumed
                                           : net->version == 10 ? T10(net)->irecv_consumed
                                           : net->version == 9  ? T9(net)->irecv_consumed
                                           : net->version == 8  ? T8(net)->irecv_consumed
                                                                : NULL;

    if (consumed == NULL)
        return 0;
    enter(net, "irecvConsumed");
    return leave(net, consumed(comm, n, request), true);
}

int net_close_send(struct net *net, void *comm)
{
    enter(net, "closeSend");
    return leave(net, ANY(net, close_send)(comm), false);
}

int net_close_recv(struct net *net, void *comm)
{
    enter(net, "closeRecv");
    return leave(net, ANY(net, close_recv)(comm), false);
}

int net_close_listen(struct net *net, void *comm)
{
    enter(net, "closeListen");
    return leave(net, ANY(net, close_listen)(comm), false);
}
