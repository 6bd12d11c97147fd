/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses NCCL as trainers do, for libsluice-preload.so: ranks are processes, results
 * are compared on the processor's side. usage: nccl_app STORY RANKS
 * It ends with "ok", or with a sentence per mistake and status 1.
 */
#include "tests/preload/standin_cuda.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    char internal[128];
} unique_id;
typedef struct comm *comm_t;
typedef struct CUstream_st *stream_t;
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16 };
enum { SUM, PROD, MAX, MIN, AVG };
enum { IN_PROGRESS = 7 };

int ncclGetUniqueId(unique_id *id);
int ncclCommInitRank(comm_t *out, int ranks, unique_id id, int rank);
int ncclCommInitRankConfig(comm_t *out, int ranks, unique_id id, int rank, struct config *config);
int ncclCommSplit(comm_t comm, int color, int key, comm_t *out, struct config *config);
int ncclCommFinalize(comm_t comm);
int ncclCommDestroy(comm_t comm);
int ncclCommAbort(comm_t comm);
int ncclCommGetAsyncError(comm_t comm, int *error);
int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, comm_t comm,
                  stream_t stream);
int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, comm_t comm,
               stream_t s);
int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, comm_t comm,
                      stream_t s);
int ncclAllGather(const void *in, void *out, size_t n, int type, comm_t comm, stream_t stream);
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, comm_t comm,
                  stream_t stream);
int ncclBcast(void *buffer, size_t n, int type, int root, comm_t comm, stream_t stream);
int ncclAlltoAll(const void *in, void *out, size_t n, int type, comm_t comm, stream_t stream);
int ncclGather(const void *in, void *out, size_t n, int type, int root, comm_t comm,
               stream_t stream);
int ncclScatter(const void *in, void *out, size_t n, int type, int root, comm_t comm,
                stream_t stream);
int ncclSend(const void *in, size_t n, int type, int peer, comm_t comm, stream_t stream);
int ncclRecv(void *out, size_t n, int type, int peer, comm_t comm, stream_t stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm_t comm);
const char *ncclGetLastError(comm_t comm);
unsigned standin_nccl_calls(const char *name);

static int rank, ranks, mistakes;
static stream_t stream;
static unique_id ids[2];

#define CHECK(x, ...)                                                                              \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            mistakes++;                                                                            \
            printf("rank %d, line %d: ", rank, __LINE__);                                          \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            fflush(stdout);                                                                        \
        }                                                                                          \
    } while (0)
#define OK(x) CHECK((x) == 0, "%s failed", #x)

static void *device(size_t len)
{
    CUdeviceptr ptr;

    cuMemAlloc_v2(&ptr, len > 0 ? len : 1);
    return (void *)(uintptr_t)ptr;
}

static void release(void *ptr)
{
    cuMemFree_v2((uintptr_t)ptr);
}

#define VIEW(ptr) standin_cuda_view((uintptr_t)(ptr))

static comm_t join(void)
{
    comm_t comm = NULL;

    OK(ncclCommInitRank(&comm, ranks, ids[0], rank));
    return comm;
}

/* ---- every collective; small integers, so that every order of sums is exact ---- */

static double value_at(int type, const void *data, size_t i)
{
    switch (type) {
    case I8: return ((const int8_t *)data)[i];
    case U8: return ((const uint8_t *)data)[i];
    case I32: return ((const int32_t *)data)[i];
    case U32: return ((const uint32_t *)data)[i];
    case I64: return (double)((const int64_t *)data)[i];
    case U64: return (double)((const uint64_t *)data)[i];
    case F16: return (double)((const _Float16 *)data)[i];
    case F32: return ((const float *)data)[i];
    case F64: return ((const double *)data)[i];
    default: {
        uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float f;

        memcpy(&f, &bits, 4);
        return f;
    }
    }
}

static void set(int type, void *data, size_t i, double v)
{
    switch (type) {
    case I8: ((int8_t *)data)[i] = (int8_t)v; return;
    case U8: ((uint8_t *)data)[i] = (uint8_t)v; return;
    case I32: ((int32_t *)data)[i] = (int32_t)v; return;
    case U32: ((uint32_t *)data)[i] = (uint32_t)v; return;
    case I64: ((int64_t *)data)[i] = (int64_t)v; return;
    case U64: ((uint64_t *)data)[i] = (uint64_t)v; return;
    case F16: ((_Float16 *)data)[i] = (_Float16)v; return;
    case F32: ((float *)data)[i] = (float)v; return;
    case F64: ((double *)data)[i] = v; return;
    default: {
        float f = (float)v;
        uint32_t bits;

        memcpy(&bits, &f, 4);
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        return;
    }
    }
}

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static double given(int r, size_t i)
{
    return (double)((i * 7 + (size_t)r * 3) % 5 + 1);
}

static double reduced(int op, size_t i)
{
    double v = given(0, i);

    for (int r = 1; r < ranks; r++) {
        double w = given(r, i);

        v = op == PROD ? v * w : op == MAX ? (v > w ? v : w) : op == MIN ? (v < w ? v : w) : v + w;
    }
    return v;
}

static void fill(int type, void *dev, size_t first, size_t n, int r)
{
    for (size_t i = 0; i < n; i++)
        set(type, VIEW(dev), first + i, given(r, i));
}

static void expect(const char *what, int type, const void *dev, size_t first, size_t n, int r,
                   int op)
{
    for (size_t i = 0; i < n; i++) {
        double want = op >= 0 ? reduced(op, i) : given(r, i),
               got = value_at(type, VIEW(dev), first + i);

        if (got != want) {
            CHECK(false, "%s of type %d, operator %d: element %zu of %zu is %g, not %g", what, type,
                  op, i, n, got, want);
            return;
        }
    }
}

static void one_size(comm_t comm, int type, size_t n, bool in_place)
{
    size_t len = n * sizes[type] * (size_t)ranks, block = n * sizes[type];
    char *in = device(len), *out = in_place ? in : device(len);
    int root = ranks - 1;

    for (int op = SUM; op <= (n > 1000 ? SUM : MIN); op++) {
        fill(type, in, 0, n, rank);
        OK(ncclAllReduce(in, out, n, type, op, comm, stream));
        cuStreamSynchronize(stream);
        expect("allreduce", type, out, 0, n, 0, op);
        fill(type, in, 0, n, rank);
        OK(ncclReduce(in, out, n, type, op, root, comm, stream));
        cuStreamSynchronize(stream);
        if (rank == root)
            expect("reduce", type, out, 0, n, 0, op);
    }
    for (int r = 0; r < ranks; r++)
        fill(type, in, (size_t)r * n, n, rank);
    OK(ncclReduceScatter(in, in_place ? in + (size_t)rank * block : out, n, type, SUM, comm,
                         stream));
    cuStreamSynchronize(stream);
    expect("reduce_scatter", type, in_place ? in + (size_t)rank * block : out, 0, n, 0, SUM);
    fill(type, in_place ? in + (size_t)rank * block : in, 0, n, rank);
    OK(ncclAllGather(in_place ? in + (size_t)rank * block : in, out, n, type, comm, stream));
    cuStreamSynchronize(stream);
    for (int r = 0; r < ranks; r++)
        expect("all_gather", type, out, (size_t)r * n, n, r, -1);
    fill(type, in, 0, n, rank);
    OK(ncclBroadcast(in, out, n, type, root, comm, stream));
    cuStreamSynchronize(stream);
    expect("broadcast", type, out, 0, n, root, -1);
    fill(type, in, 0, n, rank);
    OK(ncclBcast(in, n, type, root, comm, stream));
    cuStreamSynchronize(stream);
    expect("bcast", type, in, 0, n, root, -1);
    for (int r = 0; r < ranks; r++)
        fill(type, in, (size_t)r * n, n, rank);
    OK(ncclAlltoAll(in, out, n, type, comm, stream));
    cuStreamSynchronize(stream);
    for (int r = 0; r < ranks; r++)
        expect("all_to_all", type, out, (size_t)r * n, n, r, -1);
    fill(type, in_place ? in + (size_t)rank * block : in, 0, n, rank);
    OK(ncclGather(in_place ? in + (size_t)rank * block : in, out, n, type, root, comm, stream));
    cuStreamSynchronize(stream);
    for (int r = 0; r < ranks && rank == root; r++)
        expect("gather", type, out, (size_t)r * n, n, r, -1);
    for (int r = 0; r < ranks; r++)
        fill(type, in, (size_t)r * n, n, r);
    OK(ncclScatter(in, in_place && rank == root ? in + (size_t)rank * block : out, n, type, root,
                   comm, stream));
    cuStreamSynchronize(stream);
    expect("scatter", type, in_place && rank == root ? in + (size_t)rank * block : out, 0, n, rank,
           -1);
    release(in);
    if (!in_place)
        release(out);
}

static void collectives(int only_type, const size_t *counts, size_t n)
{
    comm_t comm = join();

    for (int type = I8; type <= BF16; type++)
        for (size_t c = 0; c < n && (only_type < 0 || type == only_type); c++) {
            one_size(comm, type, counts[c], false);
            one_size(comm, type, counts[c], true);
        }
    OK(ncclCommDestroy(comm));
}

static void small(void)
{
    collectives(-1, (const size_t[]){1, 3, 1000}, 3);
}

/* More than fits the pinned memory of a communicator, with an odd rest. */
static void large(void)
{
    collectives(F32, (const size_t[]){1100003}, 1);
}

static void average(void)
{
    comm_t comm = join();
    float *data = device(4);

    *(float *)VIEW(data) = (float)rank;
    OK(ncclAllReduce(data, data, 1, F32, AVG, comm, stream));
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == (float)(ranks - 1) / 2, "the average is %g",
          *(float *)VIEW(data));
    release(data);
    OK(ncclCommDestroy(comm));
}

/* ---- the order of streams ---- */

static void add_one_slowly(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    ++*(float *)VIEW(arg);
}

/* What a kernel writes before a call is in it, and a kernel after it sees its result; the calls
 * return at once, and another stream goes on meanwhile. */
static void streams(void)
{
    comm_t comm = join();
    float *data = device(4), *other = device(4), want = 0;
    stream_t second;

    cuStreamCreate(&second, 0);
    *(float *)VIEW(data) = 0;
    *(float *)VIEW(other) = 0;
    for (int i = 0; i < 20; i++) {
        cuLaunchHostFunc(stream, add_one_slowly, data);
        OK(ncclAllReduce(data, data, 1, F32, MAX, comm, stream));
        want += 1;
    }
    cuLaunchHostFunc(second, add_one_slowly, other);
    cuStreamSynchronize(second);
    CHECK(cuStreamQuery(stream) == 600, "the calls waited");
    CHECK(*(float *)VIEW(other) == 1, "the second stream did not go on");
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == want, "%g kernels were seen, not %g", *(float *)VIEW(data), want);
    /* More than are held at a time. */
    for (int i = 0; i < 300; i++)
        OK(ncclAllReduce(data, data, 1, F32, MAX, comm, i % 2 == 0 ? stream : second));
    cuStreamSynchronize(stream);
    cuStreamSynchronize(second);
    CHECK(*(float *)VIEW(data) == want, "%g after many calls, not %g", *(float *)VIEW(data), want);
    cuStreamDestroy_v2(second);
    release(data);
    release(other);
    OK(ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
}

/* ---- groups ---- */

static void groups(void)
{
    comm_t comm[2] = {NULL, NULL};
    float *a = device(64), *b = device(64), *c = device(64);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

    OK(ncclGroupStart());
    OK(ncclCommInitRank(&comm[0], ranks, ids[0], rank));
    OK(ncclGroupEnd());
    OK(ncclCommInitRank(&comm[1], ranks, ids[1], rank));
    for (int i = 0; i < 20; i++) {
        float *va = VIEW(a), *vb = VIEW(b), *vc = VIEW(c);

        va[0] = (float)rank;
        vb[0] = (float)(rank * rank);
        vc[0] = (float)(100 + rank);
        OK(ncclGroupStart());
        OK(ncclAllReduce(a, a + 1, 1, F32, SUM, comm[i % 2], stream));
        OK(ncclGroupStart());
        OK(ncclSend(c, 1, F32, next, comm[0], stream));
        OK(ncclRecv(c + 1, 1, F32, before, comm[0], stream));
        OK(ncclGroupEnd());
        CHECK(cuStreamQuery(stream) == 0, "something started before the group's end");
        OK(ncclAllReduce(b, b + 1, 1, F32, MAX, comm[1 - i % 2], stream));
        OK(ncclGroupEnd());
        cuStreamSynchronize(stream);
        CHECK(va[1] == (float)(ranks * (ranks - 1) / 2), "the sum is %g", va[1]);
        CHECK(vb[1] == (float)((ranks - 1) * (ranks - 1)), "the maximum is %g", vb[1]);
        CHECK(vc[1] == (float)(100 + before), "the letter is %g", vc[1]);
    }
    CHECK(ncclGroupEnd() != 0, "a group ended that had not begun");
    for (int i = 0; i < 2; i++)
        OK(ncclCommDestroy(comm[i]));
}

/* ---- what passes on ---- */

static void passes(void)
{
    comm_t comm = join();
    float *data = device(4096), scalar = 2;
    unsigned before = standin_nccl_calls("AllReduce");
    void *graph;
    int op;

    *(float *)VIEW(data) = 1;
    OK(ncclRedOpCreatePreMulSum(&op, &scalar, F32, 1, comm));
    OK(ncclAllReduce(data, data, 1, F32, op, comm, stream));
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == 2 * (float)ranks, "PreMulSum gives %g", *(float *)VIEW(data));
    CHECK(standin_nccl_calls("AllReduce") == before + 1, "PreMulSum was taken");
    cuStreamBeginCapture_v2(stream, 0);
    OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    cuStreamEndCapture(stream, &graph);
    CHECK(standin_nccl_calls("AllReduce") == before + 2, "a captured call was taken");
    CHECK(ncclAllReduce(NULL, NULL, 1, F32, SUM, comm, stream) == 4, "no buffers, no error");
    CHECK(ncclAllReduce(data, data, 1, 77, SUM, comm, stream) == 4, "no type, no error");
    CHECK(ncclAllReduce(data, data, 1, F32, SUM, NULL, stream) == 4, "no communicator, no error");
    cuStreamSynchronize(stream);
    release(data);
    OK(ncclCommDestroy(comm));
}

/* Which of two sizes NCCL itself saw: the rules say (SLUICE_PRELOAD_NCCL=allreduce:1K-). */
static void by_size(void)
{
    comm_t comm = join();
    float *data = device(4096);
    unsigned before = standin_nccl_calls("AllReduce");

    OK(ncclAllReduce(data, data, 255, F32, SUM, comm, stream));
    CHECK(standin_nccl_calls("AllReduce") == before + 1, "1020 bytes were taken");
    OK(ncclAllReduce(data, data, 256, F32, SUM, comm, stream));
    CHECK(standin_nccl_calls("AllReduce") == before + 1, "1024 bytes were passed on");
    before = standin_nccl_calls("Broadcast");
    OK(ncclBroadcast(data, data, 256, F32, 0, comm, stream));
    CHECK(standin_nccl_calls("Broadcast") == before + 1, "a broadcast was taken");
    cuStreamSynchronize(stream);
    release(data);
    OK(ncclCommDestroy(comm));
}

/* Nothing but what the shim meets over reached NCCL. */
static void none_reaches(void)
{
    comm_t comm = join();
    float *data = device(4096);

    for (int i = 0; i < 10; i++)
        OK(ncclAllReduce(data, data, 1024, F32, SUM, comm, stream));
    cuStreamSynchronize(stream);
    CHECK(standin_nccl_calls("AllReduce") == 0, "%u reached NCCL", standin_nccl_calls("AllReduce"));
    release(data);
    OK(ncclCommDestroy(comm));
}

/* All of them reached NCCL, and nothing else did. */
static void all_reach(void)
{
    comm_t comm = join();
    float *data = device(4096);

    for (int i = 0; i < 10; i++)
        OK(ncclAllReduce(data, data, 1024, F32, SUM, comm, stream));
    cuStreamSynchronize(stream);
    CHECK(standin_nccl_calls("AllReduce") == 10, "%u reached NCCL",
          standin_nccl_calls("AllReduce"));
    release(data);
    OK(ncclCommDestroy(comm));
}

/* ---- lives ---- */

static void settle(comm_t comm)
{
    int state = IN_PROGRESS;

    for (int i = 0; i < 100000 && state == IN_PROGRESS; i++) {
        OK(ncclCommGetAsyncError(comm, &state));
        poll(NULL, 0, 1);
    }
    CHECK(state == 0, "the state is %d: %s", state, ncclGetLastError(comm));
}

static void nonblocking(void)
{
    struct config config = {sizeof(config), 0xcafebeef, 22809, 0};
    float *data = device(4);
    comm_t comm = NULL;
    int result;

    result = ncclCommInitRankConfig(&comm, ranks, ids[0], rank, &config);
    CHECK(result == 0 || result == IN_PROGRESS, "init gives %d", result);
    settle(comm);
    *(float *)VIEW(data) = 1;
    OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    CHECK(standin_nccl_calls("AllReduce") == 0, "the call was passed on");
    result = ncclCommFinalize(comm);
    CHECK(result == 0 || result == IN_PROGRESS, "finalize gives %d", result);
    settle(comm);
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == (float)ranks, "the sum is %g", *(float *)VIEW(data));
    OK(ncclCommDestroy(comm));
    release(data);
}

static void splits(void)
{
    comm_t comm = join(), half = NULL, none = NULL;
    float *data = device(4);
    int count = ranks / 2 + (rank % 2 == 0 && ranks % 2 == 1);

    OK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
    *(float *)VIEW(data) = 1;
    OK(ncclAllReduce(data, data, 1, F32, SUM, half, stream));
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == (float)count, "the sum of a half is %g", *(float *)VIEW(data));
    OK(ncclCommSplit(comm, rank == 0 ? -1 : 0, rank, &none, NULL));
    CHECK((none == NULL) == (rank == 0),
          "a rank without a color has a communicator, or one with has none");
    if (none != NULL)
        OK(ncclCommDestroy(none));
    OK(ncclCommDestroy(half));
    OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    cuStreamSynchronize(stream);
    OK(ncclCommDestroy(comm));
    release(data);
}

static void *abort_what_is_held(void *arg)
{
    for (int i = 0; i < 20000 && rank != ranks - 1 && standin_cuda_held() == 0; i++)
        poll(NULL, 0, 1);
    CHECK(rank == ranks - 1 || standin_cuda_held() != 0, "the stream does not wait for the call");
    CHECK(ncclCommAbort(arg) == 0, "abort failed");
    return NULL;
}

/* The last rank never makes the call; the others' streams wait in it, and are let go by an abort
 * from another thread. */
static void aborts(void)
{
    comm_t comm = join();
    float *data = device(4);
    pthread_t thread;

    if (rank != ranks - 1)
        OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    pthread_create(&thread, NULL, abort_what_is_held, comm);
    cuStreamSynchronize(stream);
    pthread_join(thread, NULL);
    release(data);
}

/* The last rank dies; the others hear of it from the communicator's state, and their streams are
 * held until they abort. */
static void a_rank_dies(void)
{
    comm_t comm = join();
    float *data = device(4);
    int state = 0;

    OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    cuStreamSynchronize(stream);
    if (rank == ranks - 1)
        _exit(0);
    OK(ncclAllReduce(data, data, 1, F32, SUM, comm, stream));
    for (int i = 0; i < 20000 && state == 0; i++) {
        OK(ncclCommGetAsyncError(comm, &state));
        poll(NULL, 0, 1);
    }
    CHECK(state == 6, "the state is %d", state);
    /* The state may be NCCL's own, when another rank has aborted by now: ours follows. */
    for (int i = 0; i < 20000 && ncclGetLastError(comm)[0] == '\0'; i++)
        poll(NULL, 0, 1);
    CHECK(strlen(ncclGetLastError(comm)) > 10, "no sentence");
    CHECK(cuStreamQuery(stream) == 600, "the stream went on with wrong numbers");
    OK(ncclCommAbort(comm));
    cuStreamSynchronize(stream);
    release(data);
}

/* A program that finds NCCL by dlopen and dlsym, as vLLM does. */
static void by_dlsym_with(unsigned passed)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    int (*allreduce)(const void *, void *, size_t, int, int, comm_t, stream_t) =
        (int (*)(const void *, void *, size_t, int, int, comm_t, stream_t))dlsym(nccl,
                                                                                 "ncclAllReduce");
    int (*init)(comm_t *, int, unique_id, int) =
        (int (*)(comm_t *, int, unique_id, int))dlsym(nccl, "ncclCommInitRank");
    int (*destroy)(comm_t) = (int (*)(comm_t))dlsym(nccl, "ncclCommDestroy");
    float *data = device(4);
    comm_t comm;

    OK(init(&comm, ranks, ids[0], rank));
    *(float *)VIEW(data) = 1;
    OK(allreduce(data, data, 1, F32, SUM, comm, stream));
    cuStreamSynchronize(stream);
    CHECK(*(float *)VIEW(data) == (float)ranks, "the sum is %g", *(float *)VIEW(data));
    CHECK(standin_nccl_calls("AllReduce") == passed, "%u reached NCCL",
          standin_nccl_calls("AllReduce"));
    OK(destroy(comm));
    release(data);
}

static void by_dlsym(void)
{
    by_dlsym_with(0);
}

static void by_dlsym_passing(void)
{
    by_dlsym_with(1);
}

/* ---- under a codec with feedback, which must be each tensor's own ---- */

#define REPEATS 20
#define TENSOR 50000

static float drawn(int r, int tensor, size_t i)
{
    uint32_t h = (uint32_t)(i + TENSOR * (size_t)(r * 2 + tensor)) * 2654435761u;

    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    return (float)(int32_t)h * 0x1p-30f;
}

/* What the mean of all results lacks of the exact sum, in mean squares. */
static double error_of(int tensor, const double *mean)
{
    double power = 0, error = 0;

    for (size_t i = 0; i < TENSOR; i++) {
        double want = 0;

        for (int r = 0; r < ranks; r++)
            want += (double)drawn(r, tensor, i);
        power += want * want;
        error += (mean[i] - want) * (mean[i] - want);
    }
    return error / power;
}

/* The mean of many results is exact, of each of two tensors that take turns. */
static void repeats(void)
{
    static double means[2][TENSOR];
    float *in[2], *out = device(TENSOR * 4);
    comm_t comm = join();

    for (int t = 0; t < 2; t++) {
        in[t] = device(TENSOR * 4);
        for (size_t i = 0; i < TENSOR; i++)
            set(F32, VIEW(in[t]), i, (double)drawn(rank, t, i));
    }
    for (int round = 0; round < 2 * REPEATS; round++) {
        OK(ncclAllReduce(in[round % 2], out, TENSOR, F32, SUM, comm, stream));
        cuStreamSynchronize(stream);
        for (size_t i = 0; i < TENSOR; i++)
            means[round % 2][i] += value_at(F32, VIEW(out), i) / REPEATS;
    }
    for (int t = 0; t < 2; t++)
        CHECK(error_of(t, means[t]) < 0.02, "the mean of tensor %d has an error of %.3g", t,
              error_of(t, means[t]));
    release(in[0]);
    release(in[1]);
    release(out);
    OK(ncclCommDestroy(comm));
}

static const struct {
    const char *name;
    void (*run)(void);
} stories[] = {
    {"small", small},
    {"large", large},
    {"average", average},
    {"streams", streams},
    {"groups", groups},
    {"passes", passes},
    {"by_size", by_size},
    {"none_reaches", none_reaches},
    {"all_reach", all_reach},
    {"nonblocking", nonblocking},
    {"splits", splits},
    {"aborts", aborts},
    {"a_rank_dies", a_rank_dies},
    {"repeats", repeats},
    {"by_dlsym", by_dlsym},
    {"by_dlsym_passing", by_dlsym_passing},
};

static int run(void (*story)(void))
{
    struct CUctx_st *context;

    alarm(60); /* a story that hangs ends */
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 0);
    story();
    cuStreamDestroy_v2(stream);
    fflush(stdout);
    return mistakes > 0;
}

int main(int argc, char **argv)
{
    void (*story)(void) = NULL;
    int status, bad = 0;

    for (size_t i = 0; argc == 3 && i < sizeof(stories) / sizeof(stories[0]); i++)
        if (strcmp(argv[1], stories[i].name) == 0)
            story = stories[i].run;
    ranks = argc == 3 ? atoi(argv[2]) : 0;
    if (story == NULL || ranks < 1) {
        fprintf(stderr, "usage: nccl_app STORY RANKS\n");
        return 2;
    }
    ncclGetUniqueId(&ids[0]);
    ncclGetUniqueId(&ids[1]);
    for (rank = 0; rank < ranks; rank++)
        if (fork() == 0)
            exit(run(story));
    while (wait(&status) > 0)
        if (status != 0) {
            printf("a rank ended with status 0x%x\n", (unsigned)status);
            bad = 1;
        }
    if (!bad)
        printf("ok\n");
    return bad;
}
