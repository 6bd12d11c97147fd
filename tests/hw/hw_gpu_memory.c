/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory with a real GPU: found, exported, copied into; and, where an RDMA port takes it, sent
 * and received between two ends in this process. Status 77 and the reason where there is no GPU.
 *
 *   usage: hw_gpu_memory [host]      host: ordinary memory in the GPU's place, to try the RDMA part
 *   alone
 */
#include "core/clock.h"
#include "core/config.h"
#include "core/err.h"
#include "core/registry.h"
#include "core/transport.h"
#include "gdr/cuda_dl.h"
#include "gdr/dmabuf.h"
#include "gdr/staging.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN ((size_t)4 << 20)
#define HALF (LEN / 2)
#define WAIT_NS (20 * SL_NS_PER_S)

static const struct sl_cuda *cuda;
static bool on_host;
static uint8_t *memory; /* LEN bytes, of the GPU unless on_host */
static int (*mem_alloc)(sl_cu_ptr *, size_t);
static int (*to_host)(void *, sl_cu_ptr, size_t);
static int (*to_gpu)(sl_cu_ptr, const void *, size_t);

static void die(const char *what)
{
    printf("%s: %s\n", what, sluice_last_error());
    exit(1);
}

static void skip(const char *why)
{
    printf("%s\n", why);
    exit(77);
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        printf("does not hold: %s\n", what);
        exit(1);
    }
}

static void put(size_t at, const void *bytes, size_t len)
{
    if (on_host)
        memcpy(memory + at, bytes, len);
    else
        check(to_gpu((uintptr_t)memory + at, bytes, len) == SL_CUDA_SUCCESS,
              "bytes are put into GPU memory");
}

static bool holds(size_t at, const void *bytes, size_t len)
{
    static uint8_t got[LEN];

    if (on_host)
        return memcmp(memory + at, bytes, len) == 0;
    check(to_host(got, (uintptr_t)memory + at, len) == SL_CUDA_SUCCESS,
          "bytes are read from GPU memory");
    return memcmp(got, bytes, len) == 0;
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
}

/* ---- the GPU alone ---- */

static void find(const char *name, void *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW),
         *function = library == NULL ? NULL : dlsym(library, name);

    if (function == NULL)
        skip(dlerror());
    memcpy(out, &function, sizeof(function));
}

static void gpu_open(void)
{
    int device = 0, result;
    void *context = NULL;
    sl_cu_ptr at = 0;

    if (sl_cuda_get(&cuda) != 0)
        skip(sluice_last_error());
    result = cuda->cuInit(0);
    if (result != SL_CUDA_SUCCESS || cuda->cuDeviceGet(&device, 0) != SL_CUDA_SUCCESS) {
        sl_cuda_fail(cuda, -ENODEV, "cuInit", result);
        skip(sluice_last_error());
    }
    find("cuMemAlloc_v2", &mem_alloc);
    find("cuMemcpyDtoH_v2", &to_host);
    find("cuMemcpyHtoD_v2", &to_gpu);
    if (cuda->cuDevicePrimaryCtxRetain(&context, device) != SL_CUDA_SUCCESS ||
        cuda->cuCtxPushCurrent_v2(context) != SL_CUDA_SUCCESS ||
        mem_alloc(&at, LEN) != SL_CUDA_SUCCESS)
        skip("the GPU gives no context or no memory");
    memory = (uint8_t *)(uintptr_t)at;
}

static void on_copied(void *owner, uint32_t number, int status)
{
    (void)number;
    *(int *)owner = status;
}

static void gpu_alone(void)
{
    static const char *const orders[] = {"ordered", "needs a flush", "unordered"};
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + WAIT_NS;
    struct sl_gpu_memory found;
    struct sl_gpu_stage *stage;
    struct sl_mem exported;
    uint8_t bytes[4000];
    char name[160];
    int status = SL_PENDING;

    check(!sl_gpu_look(bytes, NULL), "a variable is no GPU memory");
    check(sl_gpu_look(memory + 5, &found), "GPU memory is told");
    check(found.base == (uintptr_t)memory && found.len >= LEN && !found.is_managed,
          "its allocation is told");
    sl_gpu_name(&found, name, sizeof(name));
    printf("%s: writes of NICs are %s\n", name, orders[found.order]);
    if (sl_gpu_export(&found, memory + 12345, 70000, &exported) != 0) {
        printf("no dma-buf: %s\n", sluice_last_error());
    } else {
        printf("70000 bytes lie at offset %llu of a dma-buf\n",
               (unsigned long long)exported.fd_off);
        close(exported.fd);
    }
    if (found.order == SL_GPU_FLUSH && sl_gpu_flush(&found) != 0)
        die("a flush");
    if (sl_gpu_stage_create(&found, &sl_clock_monotonic, sizeof(bytes), 4, &stage) != 0)
        die("staging");
    fill(bytes, sizeof(bytes), 1);
    if (sl_gpu_stage_copy(stage, memory + 777, bytes, sizeof(bytes), on_copied, &status, 0) != 0)
        die("a copy");
    while (status == SL_PENDING && sl_now(&sl_clock_monotonic) < deadline_ns)
        sl_gpu_stage_progress(stage);
    check(status == 0 && holds(777, bytes, sizeof(bytes)), "the copy engine has copied");
    sl_gpu_stage_destroy(stage);
}

/* ---- between two ends ---- */

static struct end {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep *ep;
    struct sl_mr *mr;
} ends[2];

static void wait_for(const struct sl_req *a, const struct sl_req *b, const char *what)
{
    uint64_t deadline_ns = sl_now(&sl_clock_monotonic) + WAIT_NS;

    while (a->status == SL_PENDING || b->status == SL_PENDING) {
        for (unsigned i = 0; i < 2; i++)
            if (ends[i].iface->ops->progress(ends[i].iface, 64) < 0)
                die("progress");
        check(sl_now(&sl_clock_monotonic) < deadline_ns, what);
    }
    check(a->status == 0 && b->status == 0, what);
}

/* False: no port, or none that takes this memory; the reason is printed. */
static bool ends_open(const struct sl_transport_ops *ops)
{
    struct sl_mem mem = {
        .addr = memory, .len = LEN, .kind = on_host ? SL_MEM_HOST : SL_MEM_CUDA, .fd = -1};

    for (unsigned i = 0; i < 2; i++) {
        struct end *e = &ends[i];

        sl_config_defaults(&e->config);
        e->worker =
            (struct sl_worker){.clock = &sl_clock_monotonic, .config = &e->config, .rank = (int)i};
        sl_rng_init(&e->worker.rng, i + 1);
        if (ops->open(&e->worker, NULL, NULL, &e->iface) != 0) {
            printf("not sent: %s\n", sluice_last_error());
            return false;
        }
        if (ops->mr_reg(e->iface, &mem, &e->mr, NULL) != 0) {
            printf("not sent: %s\n", sluice_last_error());
            return false;
        }
        if (ops->ep_create(e->iface, &e->ep) != 0)
            die("an endpoint");
        e->ep->peer = (int)!i;
    }
    return true;
}

static void message(const struct sl_transport_ops *ops, size_t len)
{
    static uint8_t bytes[HALF], zeros[HALF];
    struct sl_buf buf = {.addr = memory, .len = len, .mr = ends[0].mr};
    struct sl_sink sink = {.dst = memory + HALF, .len = len, .tag = 7, .mr = ends[1].mr};
    struct sl_req sent = {.status = SL_PENDING}, got = {.status = SL_PENDING};

    fill(bytes, len, (unsigned)len);
    put(0, bytes, len);
    put(HALF, zeros, len);
    if (ops->recv(ends[1].ep, &sink, &got) < 0 || ops->send(ends[0].ep, &buf, 7, &sent) < 0)
        die("a message");
    wait_for(&sent, &got, "a message ends well, in time");
    check(holds(HALF, bytes, len), "a message arrives as it was");
}

static void between_ends(const struct sl_transport_ops *ops)
{
    static const size_t lens[] = {1, 100, 4096, 5000, 65536, HALF};
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    struct sl_addr addr[2];

    for (unsigned i = 0; i < 2; i++)
        if (ops->ep_addr(ends[i].ep, &addr[i]) != 0)
            die("an address");
    for (unsigned i = 0; i < 2; i++)
        if (ops->ep_connect(ends[i].ep, &addr[!i], &req[i]) < 0)
            die("connecting");
    wait_for(&req[0], &req[1], "two ends connect");
    for (unsigned i = 0; i < SL_ARRAY_LEN(lens); i++)
        message(ops, lens[i]);
    printf("messages of 1 to %zu bytes were sent from and to %s memory\n", HALF,
           on_host ? "host" : "GPU");
}

int main(int argc, char **argv)
{
    const struct sl_transport_ops *ops = sl_transport_find("verbs", 5);

    on_host = argc > 1 && strcmp(argv[1], "host") == 0;
    if (on_host) {
        memory = aligned_alloc(4096, LEN);
        check(memory != NULL, "there is memory");
    } else {
        gpu_open();
        gpu_alone();
    }
    if (ops == NULL)
        printf("not sent: this build has no verbs transport\n");
    else if (ends_open(ops))
        between_ends(ops);
    for (unsigned i = 0; i < 2; i++) {
        if (ends[i].ep != NULL)
            ops->ep_destroy(ends[i].ep);
        if (ends[i].mr != NULL)
            ops->mr_dereg(ends[i].iface, ends[i].mr);
        if (ends[i].iface != NULL)
            ops->close(ends[i].iface);
    }
    return 0;
}
