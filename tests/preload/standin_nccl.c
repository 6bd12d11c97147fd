/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for NCCL (libnccl.so.2) on machines without a GPU: real communicators between
 * processes, over a shared file, whose operations run in the order of the stand-in driver's
 * streams. It counts the calls that reach it. Every function is there twice, as ncclX (weak) and
 * pncclX, as in NCCL.
 */
#include "tests/preload/standin_cuda.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS,
    CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS
};
enum { RANKS_MAX = 8, SLOT = 64 << 10 };

typedef struct {
    char internal[128];
} unique_id;
typedef struct CUstream_st *stream_t;

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct segment {
    atomic_int arrived, generation, aborted, attached;
    atomic_int mail[RANKS_MAX][RANKS_MAX]; /* [from][to]: bytes + 1 that lie in the letter box */
    char letters[RANKS_MAX][RANKS_MAX][4096];
    char slots[RANKS_MAX][SLOT];
};

struct comm {
    struct segment *segment;
    char name[64];
    int rank, ranks, children;
    atomic_int state; /* IN_PROGRESS while a nonblocking one is made */
    uint64_t issued;
    _Atomic uint64_t finished;
    double scalar; /* of PreMulSum */
};

#define BOTH(name, params)                                                                         \
    int pnccl##name params;                                                                        \
    int nccl##name params;                                                                         \
    int nccl##name params __attribute__((weak, alias("pnccl" #name)));                             \
    int pnccl##name params

/* What reached NCCL, for the tests. */
static struct {
    const char *name;
    unsigned count;
} calls[40];

static void count(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (calls[i].name == NULL)
            calls[i].name = name;
        if (strcmp(calls[i].name, name) == 0) {
            calls[i].count++;
            return;
        }
    }
}

unsigned standin_nccl_calls(const char *name);
unsigned standin_nccl_calls(const char *name)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].name != NULL && strcmp(calls[i].name, name) == 0)
            return calls[i].count;
    return 0;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* false: aborted. */
static bool barrier(struct comm *comm)
{
    struct segment *s = comm->segment;
    int generation = atomic_load(&s->generation);

    if (atomic_fetch_add(&s->arrived, 1) == comm->ranks - 1) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->generation, 1);
    }
    while (atomic_load(&s->generation) == generation) {
        if (atomic_load(&s->aborted))
            return false;
        nap();
    }
    return true;
}

enum what {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    BROADCAST,
    ALLTOALL,
    GATHER,
    SCATTER,
    SEND,
    RECV
};

struct op {
    struct op *next;
    enum what what;
    struct comm *comm;
    const char *in;
    char *out;
    size_t count;
    int type, op, peer;
    stream_t stream;
    uint64_t ticket;
};

static size_t type_size(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return type >= 0 && type < 10 ? sizes[type] : 0;
}

#define FOLD(T)                                                                                    \
    do {                                                                                           \
        T *a = into;                                                                               \
        const T *b = from;                                                                         \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = op == 1   ? a[i] * b[i]                                                         \
                   : op == 2 ? (a[i] > b[i] ? a[i] : b[i])                                         \
                   : op == 3 ? (a[i] < b[i] ? a[i] : b[i])                                         \
                             : (T)(a[i] + b[i]);                                                   \
    } while (0)

static void fold(void *into, const void *from, size_t n, int type, int op)
{
    switch (type) {
    case 0: FOLD(int8_t); return;
    case 1: FOLD(uint8_t); return;
    case 2: FOLD(int32_t); return;
    case 3: FOLD(uint32_t); return;
    case 4: FOLD(int64_t); return;
    case 5: FOLD(uint64_t); return;
    case 7: FOLD(float); return;
    case 8: FOLD(double); return;
    default: abort(); /* no test passes a half on */
    }
}

static void scale(struct op *op, char *data, size_t n)
{
    if (op->op >= 5 && op->type == 7)
        for (size_t i = 0; i < n; i++)
            ((float *)data)[i] *= (float)op->comm->scalar;
}

/* Every rank shows up to SLOT bytes to all others. */
static bool show(struct comm *comm, const char *bytes, size_t len)
{
    if (len > 0)
        memcpy(comm->segment->slots[comm->rank], bytes, len);
    return barrier(comm);
}

static void reduce_piece(struct op *op, size_t first, size_t n, const char *in, char *out)
{
    struct comm *comm = op->comm;
    size_t size = type_size(op->type);
    char sum[SLOT], own[SLOT];

    memcpy(own, in + first * size, n * size);
    scale(op, own, n);
    if (!show(comm, own, n * size))
        return;
    memcpy(sum, comm->segment->slots[0], n * size);
    for (int r = 1; r < comm->ranks; r++)
        fold(sum, comm->segment->slots[r], n, op->type, op->op);
    if (out != NULL)
        memcpy(out + first * size, sum, n * size);
    barrier(comm);
}

static void move_piece(struct op *op, size_t first, size_t n, char *out)
{
    struct comm *comm = op->comm;
    size_t size = type_size(op->type), block = op->count * size, at = first * size, len = n * size;
    char(*slots)[SLOT] = comm->segment->slots;

    for (int r = 0; r < comm->ranks; r++) {
        bool several = op->what == ALLTOALL || op->what == SCATTER;
        const char *mine = op->in + (several ? (size_t)r * block : 0) + at;

        /* Round r: what goes to rank r, or, of the others, everything in round 0. */
        if (!several && r > 0)
            break;
        if (!show(comm, op->what == SCATTER && comm->rank != op->peer ? op->out : mine,
                  op->what == BROADCAST && comm->rank != op->peer ? 0 : len))
            return;
        if (op->what == ALLTOALL && r == comm->rank)
            for (int from = 0; from < comm->ranks; from++)
                memcpy(out + (size_t)from * block + at, slots[from], len);
        if (op->what == SCATTER && r == comm->rank)
            memcpy(out + at, slots[op->peer], len);
        if (op->what == ALLGATHER || (op->what == GATHER && comm->rank == op->peer))
            for (int from = 0; from < comm->ranks; from++)
                memcpy(out + (size_t)from * block + at, slots[from], len);
        if (op->what == BROADCAST)
            memcpy(out + at, slots[op->peer], len);
        if (!barrier(comm))
            return;
    }
}

static void letter(struct op *op)
{
    struct comm *comm = op->comm;
    bool sends = op->what == SEND;
    int from = sends ? comm->rank : op->peer, to = sends ? op->peer : comm->rank;
    atomic_int *mail = &comm->segment->mail[from][to];
    size_t len = op->count * type_size(op->type);

    if (len > 4096)
        abort();
    while ((atomic_load(mail) == 0) != sends && !atomic_load(&comm->segment->aborted))
        nap();
    if (sends)
        memcpy(comm->segment->letters[from][to], op->in, len);
    else
        memcpy(op->out, comm->segment->letters[from][to], len);
    atomic_store(mail, sends ? (int)len + 1 : 0);
}

/* A kernel: in stream order, and one after the other on a communicator. */
static void run(void *arg)
{
    struct op *op = arg;
    struct comm *comm = op->comm;
    size_t size = type_size(op->type), step = SLOT / size;
    char *out = op->out == NULL ? NULL : standin_cuda_view((uintptr_t)op->out);
    bool scatters = op->what == REDUCE_SCATTER,
         keeps = op->what != REDUCE || comm->rank == op->peer;
    char *whole = NULL;

    op->in = op->in == NULL ? NULL : standin_cuda_view((uintptr_t)op->in);
    op->out = out;
    while (atomic_load(&comm->finished) != op->ticket && !atomic_load(&comm->segment->aborted))
        nap();
    if (op->what == SEND || op->what == RECV) {
        letter(op);
    } else if (op->what == ALLREDUCE || op->what == REDUCE || scatters) {
        size_t total = op->count * (scatters ? (size_t)comm->ranks : 1);

        if (scatters)
            whole = malloc(total * size + 1);
        for (size_t first = 0; first < total; first += step)
            reduce_piece(op, first, total - first < step ? total - first : step, op->in,
                         scatters ? whole
                         : keeps  ? out
                                  : NULL);
        if (scatters)
            memcpy(out, whole + (size_t)comm->rank * op->count * size, op->count * size);
        free(whole);
    } else {
        for (size_t first = 0; first < op->count; first += step)
            move_piece(op, first, op->count - first < step ? op->count - first : step, out);
    }
    atomic_fetch_add(&comm->finished, 1);
    free(op);
}

static _Thread_local int depth;
static _Thread_local struct op *waiting, **last;

static void launch(struct op *op)
{
    int capturing = 0;

    op->ticket = op->comm->issued++;
    cuStreamIsCapturing(op->stream, &capturing);
    if (capturing) {
        op->comm->issued--;
        free(op);
        return;
    }
    cuLaunchHostFunc(op->stream, run, op);
}

static int issue(struct op given)
{
    struct op *op;

    if (given.comm == NULL || type_size(given.type) == 0 ||
        (given.count > 0 && given.in == NULL && given.out == NULL))
        return INVALID_ARGUMENT;
    if (atomic_load(&given.comm->state) == IN_PROGRESS)
        return INVALID_ARGUMENT;
    op = malloc(sizeof(*op));
    *op = given;
    op->next = NULL;
    if (depth == 0) {
        launch(op);
        return SUCCESS;
    }
    *(waiting == NULL ? &waiting : last) = op;
    last = &op->next;
    return SUCCESS;
}

BOTH(GroupStart, (void))
{
    count("GroupStart");
    depth++;
    return SUCCESS;
}

BOTH(GroupEnd, (void))
{
    struct op *op;

    count("GroupEnd");
    if (depth == 0)
        return INVALID_USAGE;
    if (--depth > 0)
        return SUCCESS;
    while ((op = waiting) != NULL) {
        waiting = op->next;
        launch(op);
    }
    return SUCCESS;
}

static int attach(struct comm *comm)
{
    int fd = shm_open(comm->name, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(struct segment)) != 0)
        return SYSTEM_ERROR;
    comm->segment = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->segment == MAP_FAILED)
        return SYSTEM_ERROR;
    if (atomic_fetch_add(&comm->segment->attached, 1) == comm->ranks - 1)
        shm_unlink(comm->name);
    if (!barrier(comm))
        return REMOTE_ERROR;
    atomic_store(&comm->state, SUCCESS);
    return SUCCESS;
}

static void *attach_later(void *arg)
{
    attach(arg);
    return NULL;
}

static int make(struct comm **out, int ranks, const char *name, int rank,
                const struct config *config)
{
    struct comm *comm;
    pthread_t thread;

    if (out == NULL || ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks)
        return INVALID_ARGUMENT;
    comm = calloc(1, sizeof(*comm));
    comm->rank = rank;
    comm->ranks = ranks;
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    atomic_store(&comm->state, IN_PROGRESS);
    *out = comm;
    if (config == NULL || config->blocking != 0)
        return attach(comm);
    if (pthread_create(&thread, NULL, attach_later, comm) != 0)
        return SYSTEM_ERROR;
    pthread_detach(thread);
    return IN_PROGRESS;
}

BOTH(GetVersion, (int *version))
{
    *version = 22809;
    return SUCCESS;
}

BOTH(GetUniqueId, (unique_id * id))
{
    static atomic_int number;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/standin-nccl-%d-%d-%ld", getpid(),
             atomic_fetch_add(&number, 1), now.tv_nsec);
    return SUCCESS;
}

BOTH(CommInitRankConfig,
     (struct comm * *out, int ranks, unique_id id, int rank, struct config *config))
{
    count("CommInitRankConfig");
    return make(out, ranks, id.internal, rank, config);
}

BOTH(CommInitRank, (struct comm * *out, int ranks, unique_id id, int rank))
{
    count("CommInitRank");
    return make(out, ranks, id.internal, rank, NULL);
}

BOTH(CommInitAll, (struct comm * *out, int devices, const int *list))
{
    count("CommInitAll");
    (void)list;
    (void)out;
    return devices == 1 ? INVALID_USAGE : SYSTEM_ERROR; /* the tests have one rank per process */
}

BOTH(CommSplit, (struct comm * comm, int color, int key, struct comm **out, struct config *config))
{
    int(*slots)[SLOT / sizeof(int)] = (void *)comm->segment->slots;
    int rank = 0, ranks = 0, mine[2] = {color, key};
    char name[64];

    count("CommSplit");
    memcpy(slots[comm->rank], mine, sizeof(mine));
    if (!barrier(comm))
        return REMOTE_ERROR;
    for (int r = 0; r < comm->ranks; r++) {
        if (slots[r][0] != color)
            continue;
        ranks++;
        rank += slots[r][1] < key || (slots[r][1] == key && r < comm->rank);
    }
    if (!barrier(comm))
        return REMOTE_ERROR;
    snprintf(name, sizeof(name), "%.40s-%d-%d", comm->name, comm->children++, color);
    *out = NULL;
    return color < 0 ? SUCCESS : make(out, ranks, name, rank, config);
}

BOTH(CommDestroy, (struct comm * comm))
{
    count("CommDestroy");
    while (!atomic_load(&comm->segment->aborted) && atomic_load(&comm->finished) != comm->issued)
        nap();
    free(comm);
    return SUCCESS;
}

BOTH(CommFinalize, (struct comm * comm))
{
    count("CommFinalize");
    while (!atomic_load(&comm->segment->aborted) && atomic_load(&comm->finished) != comm->issued)
        nap();
    return SUCCESS;
}

BOTH(CommAbort, (struct comm * comm))
{
    count("CommAbort");
    atomic_store(&comm->segment->aborted, 1);
    while (atomic_load(&comm->finished) != comm->issued)
        nap();
    free(comm);
    return SUCCESS;
}

BOTH(CommGetAsyncError, (struct comm * comm, int *error))
{
    *error = atomic_load(&comm->state);
    if (*error == SUCCESS && atomic_load(&comm->segment->aborted))
        *error = REMOTE_ERROR;
    return SUCCESS;
}

BOTH(CommCount, (const struct comm *comm, int *out))
{
    *out = comm->ranks;
    return SUCCESS;
}

BOTH(CommUserRank, (const struct comm *comm, int *out))
{
    *out = comm->rank;
    return SUCCESS;
}

BOTH(RedOpCreatePreMulSum, (int *op, void *scalar, int type, int residence, struct comm *comm))
{
    (void)residence;
    comm->scalar = type == 7 ? *(float *)scalar : 1;
    *op = 5;
    return SUCCESS;
}

#define OP(...)                                                                                    \
    issue((struct op){                                                                             \
        .comm = comm, .in = in, .count = n, .type = type, .stream = stream, __VA_ARGS__})

BOTH(AllReduce,
     (const void *in, void *out, size_t n, int type, int op, struct comm *comm, stream_t stream))
{
    count("AllReduce");
    return OP(.what = ALLREDUCE, .out = out, .op = op);
}

BOTH(Reduce, (const void *in, void *out, size_t n, int type, int op, int root, struct comm *comm,
              stream_t stream))
{
    count("Reduce");
    return OP(.what = REDUCE, .out = out, .op = op, .peer = root);
}

BOTH(ReduceScatter,
     (const void *in, void *out, size_t n, int type, int op, struct comm *comm, stream_t stream))
{
    count("ReduceScatter");
    return OP(.what = REDUCE_SCATTER, .out = out, .op = op);
}

BOTH(AllGather, (const void *in, void *out, size_t n, int type, struct comm *comm, stream_t stream))
{
    count("AllGather");
    return OP(.what = ALLGATHER, .out = out);
}

BOTH(Broadcast,
     (const void *in, void *out, size_t n, int type, int root, struct comm *comm, stream_t stream))
{
    count("Broadcast");
    return OP(.what = BROADCAST, .out = out, .peer = root);
}

BOTH(Bcast, (void *in, size_t n, int type, int root, struct comm *comm, stream_t stream))
{
    count("Bcast");
    return OP(.what = BROADCAST, .out = in, .peer = root);
}

BOTH(AlltoAll, (const void *in, void *out, size_t n, int type, struct comm *comm, stream_t stream))
{
    count("AlltoAll");
    return OP(.what = ALLTOALL, .out = out);
}

BOTH(Gather,
     (const void *in, void *out, size_t n, int type, int root, struct comm *comm, stream_t stream))
{
    count("Gather");
    return OP(.what = GATHER, .out = out, .peer = root);
}

BOTH(Scatter,
     (const void *in, void *out, size_t n, int type, int root, struct comm *comm, stream_t stream))
{
    count("Scatter");
    return OP(.what = SCATTER, .out = out, .peer = root);
}

BOTH(Send, (const void *in, size_t n, int type, int peer, struct comm *comm, stream_t stream))
{
    count("Send");
    return OP(.what = SEND, .peer = peer);
}

BOTH(Recv, (void *out, size_t n, int type, int peer, struct comm *comm, stream_t stream))
{
    const void *in = NULL;

    count("Recv");
    return OP(.what = RECV, .out = out, .peer = peer);
}

const char *pncclGetErrorString(int result);
const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result) __attribute__((weak, alias("pncclGetErrorString")));
const char *pncclGetErrorString(int result)
{
    return result == SUCCESS ? "no error" : "an error of the stand-in";
}

const char *pncclGetLastError(struct comm *comm);
const char *ncclGetLastError(struct comm *comm);
const char *ncclGetLastError(struct comm *comm) __attribute__((weak, alias("pncclGetLastError")));
const char *pncclGetLastError(struct comm *comm)
{
    (void)comm;
    return "";
}
