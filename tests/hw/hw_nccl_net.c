/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real NCCL through a network plugin, on one GPU: two ranks are forked before CUDA starts, and
 * each says that it is on another host (NCCL_HOSTID), so that no byte goes but through the network.
 * Every collective is checked on the CPU; NCCL's own log must name the plugin. The same runs again
 * with NCCL's Socket transport.
 *
 *   usage: hw_nccl_net PLUGIN.so [NAME]     NAME: as NCCL knows it; default Sluice
 */
#include <cuda.h>
#include <nccl.h>

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS 2
#define LIMIT_S 100 /* of one run of all collectives */
#define COUNT_MOST ((size_t)1 << 20)

/* Every symbol is looked up: neither library need be there to build or to start this. */
#define CUDA_CALLS(X)                                                                              \
    X(cuInit, cuInit)                                                                              \
    X(cuDeviceGetCount, cuDeviceGetCount)                                                          \
    X(cuDeviceGet, cuDeviceGet)                                                                    \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                          \
    X(cuCtxSetCurrent, cuCtxSetCurrent)                                                            \
    X(cuStreamCreate, cuStreamCreate)                                                              \
    X(cuStreamQuery, cuStreamQuery)                                                                \
    X(mem_alloc, cuMemAlloc_v2)                                                                    \
    X(to_device, cuMemcpyHtoD_v2)                                                                  \
    X(to_host, cuMemcpyDtoH_v2)

#define NCCL_CALLS(X)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAlltoAll)                                                                                \
    X(ncclGather)                                                                                  \
    X(ncclScatter)                                                                                 \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)

static struct {
#define CUDA_MEMBER(name, symbol) typeof(&symbol) name;
    CUDA_CALLS(CUDA_MEMBER)
} cuda;

static struct {
#define NCCL_MEMBER(name) typeof(&name) name;
    NCCL_CALLS(NCCL_MEMBER)
} nccl;

struct rank {
    int idx;
    const char *what; /* which collective, for messages */
    ncclComm_t comm;
    CUstream stream;
    CUdeviceptr in, out;
    uint32_t *host;
    bool is_float;
    size_t count;
};

/* Opens and looks up; the sentence why not, or NULL. */
static const char *find_calls(void)
{
    static char why[300];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *library;

    if (driver == NULL)
        return "libcuda.so.1 is not here: no GPU driver";
#define CUDA_FIND(name, symbol)                                                                    \
    if ((cuda.name = (typeof(cuda.name))dlsym(driver, #symbol)) == NULL)                           \
        return "libcuda.so.1 lacks " #symbol;
    CUDA_CALLS(CUDA_FIND)
    library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == NULL)
        library = dlopen("/usr/local/cuda/lib/libnccl.so.2", RTLD_NOW);
    if (library == NULL) {
        snprintf(why, sizeof(why), "libnccl.so.2: %s", dlerror());
        return why;
    }
#define NCCL_FIND(name)                                                                            \
    if ((nccl.name = (typeof(nccl.name))dlsym(library, #name)) == NULL)                            \
        return "libnccl.so.2 lacks " #name;
    NCCL_CALLS(NCCL_FIND)
    return NULL;
}

/* In a process of its own: CUDA does not outlive a fork. */
static const char *no_gpu(void)
{
    static char why[300];
    int status, ends[2];
    ssize_t n;
    pid_t pid;

    if (pipe(ends) != 0)
        return "no pipe";
    pid = fork();
    if (pid == 0) {
        const char *reason = find_calls();
        int count = 0;

        if (reason == NULL && (cuda.cuInit(0) != CUDA_SUCCESS ||
                               cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0))
            reason = "there is no GPU";
        if (reason != NULL)
            dprintf(ends[1], "%s", reason);
        _exit(reason != NULL);
    }
    close(ends[1]);
    n = read(ends[0], why, sizeof(why) - 1);
    why[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : why;
}

static _Noreturn void die(const struct rank *r, const char *call, const char *text)
{
    printf("# rank %d, %s of %zu: %s: %s\n", r->idx, r->what, r->count, call, text);
    fflush(stdout);
    _exit(1);
}

static void nccl_ok(const struct rank *r, ncclResult_t rc, const char *call)
{
    if (rc != ncclSuccess)
        die(r, call, nccl.ncclGetLastError(r->comm));
}

static void cuda_ok(const struct rank *r, CUresult rc, const char *call)
{
    char text[40];

    snprintf(text, sizeof(text), "CUDA error %d", (int)rc);
    if (rc != CUDA_SUCCESS)
        die(r, call, text);
}

/* Small whole numbers: their sums are exact in every type. */
static uint32_t number(int rank, size_t i)
{
    return (uint32_t)(rank + 1) * 3 + (uint32_t)(i % 101);
}

static uint32_t encode(const struct rank *r, uint32_t value)
{
    float f = (float)value;
    uint32_t bits;

    if (!r->is_float)
        return value;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static ncclDataType_t type_of(const struct rank *r)
{
    return r->is_float ? ncclFloat32 : ncclInt32;
}

static const void *in(const struct rank *r)
{
    return (const void *)(uintptr_t)r->in;
}

static void *out(const struct rank *r)
{
    return (void *)(uintptr_t)r->out;
}

/* Until the stream is idle; NCCL's own errors come by another way. */
static void wait_for(const struct rank *r)
{
    ncclResult_t error = ncclSuccess;
    CUresult rc;

    while ((rc = cuda.cuStreamQuery(r->stream)) == CUDA_ERROR_NOT_READY) {
        nccl_ok(r, nccl.ncclCommGetAsyncError(r->comm, &error), "ncclCommGetAsyncError");
        if (error != ncclSuccess)
            die(r, "the communicator", nccl.ncclGetErrorString(error));
    }
    cuda_ok(r, rc, "cuStreamQuery");
}

static void run_allreduce(struct rank *r)
{
    nccl_ok(r, nccl.ncclAllReduce(in(r), out(r), r->count, type_of(r), ncclSum, r->comm, r->stream),
            r->what);
}

static void run_max(struct rank *r)
{
    nccl_ok(r, nccl.ncclAllReduce(in(r), out(r), r->count, type_of(r), ncclMax, r->comm, r->stream),
            r->what);
}

static void run_reduce(struct rank *r)
{
    nccl_ok(r, nccl.ncclReduce(in(r), out(r), r->count, type_of(r), ncclSum, 1, r->comm, r->stream),
            r->what);
}

static void run_broadcast(struct rank *r)
{
    nccl_ok(r, nccl.ncclBroadcast(in(r), out(r), r->count, type_of(r), 0, r->comm, r->stream),
            r->what);
}

static void run_all_gather(struct rank *r)
{
    nccl_ok(r, nccl.ncclAllGather(in(r), out(r), r->count, type_of(r), r->comm, r->stream),
            r->what);
}

static void run_reduce_scatter(struct rank *r)
{
    nccl_ok(
        r, nccl.ncclReduceScatter(in(r), out(r), r->count, type_of(r), ncclSum, r->comm, r->stream),
        r->what);
}

static void run_all_to_all(struct rank *r)
{
    nccl_ok(r, nccl.ncclAlltoAll(in(r), out(r), r->count, type_of(r), r->comm, r->stream), r->what);
}

static void run_gather(struct rank *r)
{
    nccl_ok(r, nccl.ncclGather(in(r), out(r), r->count, type_of(r), 0, r->comm, r->stream),
            r->what);
}

static void run_scatter(struct rank *r)
{
    nccl_ok(r, nccl.ncclScatter(in(r), out(r), r->count, type_of(r), 1, r->comm, r->stream),
            r->what);
}

static void run_send_recv(struct rank *r)
{
    int peer = 1 - r->idx;

    nccl_ok(r, nccl.ncclGroupStart(), "ncclGroupStart");
    nccl_ok(r, nccl.ncclSend(in(r), r->count, type_of(r), peer, r->comm, r->stream), r->what);
    nccl_ok(r, nccl.ncclRecv(out(r), r->count, type_of(r), peer, r->comm, r->stream), r->what);
    nccl_ok(r, nccl.ncclGroupEnd(), "ncclGroupEnd");
}

/* What element i of the result on this rank is. */
static uint32_t want_sum(const struct rank *r, size_t i)
{
    return number(0, i) + number(1, i);
}

static uint32_t want_max(const struct rank *r, size_t i)
{
    return number(1, i);
}

static uint32_t want_first(const struct rank *r, size_t i)
{
    return number(0, i);
}

static uint32_t want_all(const struct rank *r, size_t i)
{
    return number((int)(i / r->count), i % r->count);
}

static uint32_t want_my_sum(const struct rank *r, size_t i)
{
    return want_sum(r, (size_t)r->idx * r->count + i);
}

static uint32_t want_mine_of_all(const struct rank *r, size_t i)
{
    return number((int)(i / r->count), (size_t)r->idx * r->count + i % r->count);
}

static uint32_t want_mine_of_second(const struct rank *r, size_t i)
{
    return number(1, (size_t)r->idx * r->count + i);
}

static uint32_t want_peers(const struct rank *r, size_t i)
{
    return number(1 - r->idx, i);
}

static const struct {
    const char *name;
    void (*run)(struct rank *r);
    uint32_t (*want)(const struct rank *r, size_t i);
    int in_parts, out_parts; /* of count elements each */
    int only;                /* the rank that has a result; -1: all */
    bool tree;               /* NCCL has a tree for it */
} collectives[] = {
    {"all_reduce", run_allreduce, want_sum, 1, 1, -1, true},
    {"all_reduce_max", run_max, want_max, 1, 1, -1, true},
    {"reduce", run_reduce, want_sum, 1, 1, 1, false},
    {"broadcast", run_broadcast, want_first, 1, 1, -1, false},
    {"all_gather", run_all_gather, want_all, 1, RANKS, -1, false},
    {"reduce_scatter", run_reduce_scatter, want_my_sum, RANKS, 1, -1, false},
    {"all_to_all", run_all_to_all, want_mine_of_all, RANKS, RANKS, -1, false},
    {"gather", run_gather, want_all, 1, RANKS, 0, false},
    {"scatter", run_scatter, want_mine_of_second, RANKS, 1, -1, false},
    {"send_recv", run_send_recv, want_peers, 1, 1, -1, false},
};

static void check_one(struct rank *r, size_t at)
{
    size_t in_count = r->count * (size_t)collectives[at].in_parts;
    size_t out_count = r->count * (size_t)collectives[at].out_parts;

    r->what = collectives[at].name;
    for (size_t i = 0; i < in_count; i++)
        r->host[i] = encode(r, number(r->idx, i));
    cuda_ok(r, cuda.to_device(r->in, r->host, in_count * 4), "copy to the GPU");
    memset(r->host, 0xee, out_count * 4);
    cuda_ok(r, cuda.to_device(r->out, r->host, out_count * 4), "copy to the GPU");
    collectives[at].run(r);
    wait_for(r);
    cuda_ok(r, cuda.to_host(r->host, r->out, out_count * 4), "copy from the GPU");
    if (collectives[at].only >= 0 && collectives[at].only != r->idx)
        return;
    for (size_t i = 0; i < out_count; i++)
        if (r->host[i] != encode(r, collectives[at].want(r, i))) {
            char text[80];

            snprintf(text, sizeof(text), "element %zu is 0x%x, not 0x%x", i, r->host[i],
                     encode(r, collectives[at].want(r, i)));
            die(r, r->is_float ? "float" : "int", text);
        }
}

static _Noreturn void rank_main(int idx, const int pipe_ends[2], bool tree)
{
    static const size_t counts[] = {1, 1000, 65536 + 3, COUNT_MOST};
    struct rank r = {.idx = idx, .what = "start"};
    const char *why = find_calls();
    ncclUniqueId id;
    CUcontext context;
    CUdevice device;

    alarm(LIMIT_S);
    if (why != NULL)
        die(&r, "start", why);
    if (idx == 0) {
        nccl_ok(&r, nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
        if (write(pipe_ends[1], &id, sizeof(id)) != (ssize_t)sizeof(id))
            die(&r, "pipe", strerror(errno));
    } else if (read(pipe_ends[0], &id, sizeof(id)) != (ssize_t)sizeof(id)) {
        die(&r, "pipe", "the other rank is gone");
    }
    cuda_ok(&r, cuda.cuInit(0), "cuInit");
    cuda_ok(&r, cuda.cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda_ok(&r, cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda_ok(&r, cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cuda_ok(&r, cuda.cuStreamCreate(&r.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    cuda_ok(&r, cuda.mem_alloc(&r.in, RANKS * COUNT_MOST * 4), "cuMemAlloc");
    cuda_ok(&r, cuda.mem_alloc(&r.out, RANKS * COUNT_MOST * 4), "cuMemAlloc");
    r.host = malloc(RANKS * COUNT_MOST * 4);
    nccl_ok(&r, nccl.ncclCommInitRank(&r.comm, RANKS, id, idx), "ncclCommInitRank");
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (size_t at = 0; at < sizeof(collectives) / sizeof(collectives[0]); at++) {
            if (tree && !collectives[at].tree)
                continue;
            r.count = counts[c];
            r.is_float = (c + at) % 2 == 0;
            check_one(&r, at);
        }
    nccl_ok(&r, nccl.ncclCommDestroy(r.comm), "ncclCommDestroy");
    fflush(stdout);
    _exit(0);
}

struct setting {
    const char *net, *plugin, *proto, *algo;
};

static void set_environment(const struct setting *s, int rank, const char *log)
{
    char host[8];

    snprintf(host, sizeof(host), "h%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_NET_PLUGIN", s->plugin, 1);
    setenv("NCCL_NET", s->net, 1);
    setenv("NCCL_PROTO", s->proto, 1);
    setenv("NCCL_ALGO", s->algo, 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_MNNVL_ENABLE", "0", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_RAS_ENABLE", "0", 1);
    setenv("NCCL_MAX_CTAS", "2", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV", 1);
    setenv("NCCL_DEBUG_FILE", log, 1);
}

/* Whether NCCL says itself that the channels go through this network; else its last lines are
 * shown. */
static bool log_proves(const char *log, const char *net)
{
    FILE *file = fopen(log, "r");
    char line[600], proof[80], last[20][600];
    unsigned count = 0;
    bool found = false;

    snprintf(proof, sizeof(proof), "via NET/%s", net);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        found |= strstr(line, proof) != NULL;
        memcpy(last[count++ % 20], line, sizeof(line));
    }
    if (file != NULL)
        fclose(file);
    for (unsigned i = count > 20 ? count - 20 : 0; !found && i < count; i++)
        printf("# %s", last[i % 20]);
    if (!found)
        printf("# NCCL's log has no line with '%s'\n", proof);
    return found;
}

static bool run(const struct setting *s, const char *dir)
{
    char logs[RANKS][200];
    int ends[2], status;
    pid_t pids[RANKS];
    bool good = true;

    if (pipe(ends) != 0)
        return false;
    fflush(stdout);
    for (int i = 0; i < RANKS; i++) {
        snprintf(logs[i], sizeof(logs[i]), "%s/%s-%s-%s-%d", dir, s->net, s->proto,
                 strchr(s->algo, ':') != NULL ? "Tree" : s->algo, i);
        pids[i] = fork();
        if (pids[i] == 0) {
            set_environment(s, i, logs[i]);
            rank_main(i, ends, strchr(s->algo, ':') != NULL);
        }
    }
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < RANKS; i++) {
        bool ended = waitpid(pids[i], &status, 0) == pids[i];

        pids[i] = 0;
        if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        good = false;
        printf("# rank %d ended with status 0x%x%s\n", i, status,
               WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
        if (pids[1 - i] != 0)
            kill(pids[1 - i], SIGKILL); /* it waits for one that is gone */
    }
    for (int i = 0; i < RANKS; i++)
        good = log_proves(logs[i], s->net) && good;
    return good;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static const char *const protos[] = {"Simple", "LL", "LL128"};
    static const char *const algos[] = {"Ring", "allreduce:tree"};
    char dir[] = "/tmp/hw_nccl_net_XXXXXX", command[80];
    const char *why;
    int count = 0, failures = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: hw_nccl_net PLUGIN.so [NAME]\n");
        return 2;
    }
    why = no_gpu();
    if (why != NULL) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    if (mkdtemp(dir) == NULL)
        return 1;
    for (int net = 0; net < 2; net++)
        for (int algo = 0; algo < 2; algo++)
            for (int proto = 0; proto < 3; proto++) {
                struct setting s = {.net = net == 1   ? "Socket"
                                           : argc > 2 ? argv[2]
                                                      : "Sluice",
                                    .plugin = net == 1 ? "none" : argv[1],
                                    .proto = protos[proto],
                                    .algo = algos[algo]};
                double start = seconds();
                bool good = run(&s, dir);

                printf("%sok %d - every_collective_is_right_over_%s_with_%s_by_%s\n",
                       good ? "" : "not ", ++count, s.net, s.proto, algo == 0 ? "ring" : "tree");
                /* Both ranks share a GPU by turns: no figure for NCCL, only one run beside the
                 * other. */
                printf("# %.1f s\n", seconds() - start);
                failures += !good;
            }
    printf("1..%d\n", count);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    return failures > 0 || (failures == 0 && system(command) != 0);
}
