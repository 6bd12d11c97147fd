/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed collectives on GPU memory with a real GPU, which all ranks share: processes of one
 * host, over shared memory and then over TCP. Results are compared, bit for bit, with those of the
 * same call on host memory; then both are timed. Status 77 and the reason where there is no GPU, 1
 * where bits differ.
 *
 *   usage: hw_gpu_collective [--ranks N] [--mib N] [--codec NAME] [--transport NAME] [--threads]
 *                            [--speed] [--explain] [--host]
 *
 * --threads: ranks are threads of one process, and share its context, where those of several take
 * turns. --speed: f32 alone, and no short calls. --explain: what the timed calls asked of the
 * driver. --host: ordinary memory in the GPU's place, to try all but the GPU.
 */
#include "tests/hw/hw_gpu.h"
#include "tests/hw/hw_gpu_calls.h"

#include "compress/elements.h"
#include "core/clock.h"
#include "core/err.h"

#include <sluice/compress.h>
#include <sluice/sluice.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MOST 16
#define ROUNDS 7
#define ALWAYS "min=0,when=always" /* calls on the host, too, however short they are */

enum coll { ALLREDUCE, AVERAGE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, COLLS };

static const char *const coll_names[COLLS] = {"allreduce",  "allreduce (average)", "reduce_scatter",
                                              "all_gather", "broadcast",           "all_to_all"};

static struct {
    bool on_host, threads, speed, explain;
    int ranks;
    size_t mib;
    const char *codec, *transport; /* NULL: all */
} asked = {.ranks = 4, .mib = 64};

static _Thread_local struct {
    struct hw_gpu gpu;
    int rank;
    struct sluice_comm *comm;
    size_t cap;              /* bytes of each of the buffers */
    void *gpu_in, *gpu_out;  /* of the GPU */
    void *in, *out, *result; /* of the host */
    unsigned failed;
} me;

static void need(int err, const char *what)
{
    if (err >= 0)
        return;
    printf("rank %d: %s: %s\n", me.rank, what, sluice_last_error());
    exit(1);
}

static void *host_memory(size_t len)
{
    void *at = NULL;

    if (posix_memalign(&at, 4096, len) != 0) {
        printf("there is no memory for %zu bytes\n", len);
        exit(1);
    }
    memset(at, 0, len); /* its pages are there before a clock runs */
    return at;
}

static void put(void *to, const void *from, size_t len)
{
    if (asked.on_host)
        memcpy(to, from, len);
    else
        hw_gpu_put(&me.gpu, to, from, len);
}

static void get(void *to, const void *from, size_t len)
{
    if (asked.on_host)
        memcpy(to, from, len);
    else
        hw_gpu_get(&me.gpu, to, from, len);
}

/* ---- calls ---- */

static size_t esize(enum sluice_dtype dtype)
{
    return dtype == SLUICE_F32 ? 4 : 2;
}

static bool has_blocks_in(enum coll coll)
{
    return coll == REDUCE_SCATTER || coll == ALL_TO_ALL;
}

static bool has_blocks_out(enum coll coll)
{
    return coll == ALL_GATHER || coll == ALL_TO_ALL;
}

static void call(enum coll coll, const void *in, void *out, size_t count, enum sluice_dtype dtype)
{
    int err = 0;

    switch (coll) {
    case ALLREDUCE:
    case AVERAGE:
        err = sluice_allreduce(me.comm, in, out, count, dtype,
                               coll == AVERAGE ? SLUICE_AVG : SLUICE_SUM, NULL);
        break;
    case REDUCE_SCATTER:
        err = sluice_reduce_scatter(me.comm, in, out, count, dtype, SLUICE_SUM, NULL);
        break;
    case ALL_GATHER: err = sluice_all_gather(me.comm, in, out, count, dtype, NULL); break;
    case BROADCAST: err = sluice_broadcast(me.comm, in, out, count, dtype, 0, NULL); break;
    default: err = sluice_all_to_all(me.comm, in, out, count, dtype, NULL);
    }
    need(err, coll_names[coll]);
}

/* Like a gradient: of sizes that differ from place to place. */
static void fill(size_t count, enum sluice_dtype dtype)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (unsigned)(me.rank + 1);
    float *floats = me.in;
    uint16_t *halves = me.in;

    for (size_t i = 0; i < count; i++) {
        float v;

        x = x * 6364136223846793005u + 1442695040888963407u;
        v = (float)((int)(x >> 40 & 0xffff) + (int)(x >> 24 & 0xffff) - 65535) *
            (float)(1 << (i / 512 % 8)) * 0x1p-20f;
        if (dtype == SLUICE_F32)
            floats[i] = v;
        else
            halves[i] = dtype == SLUICE_BF16 ? sl_bf16_of(v) : sl_f16_of(v);
    }
}

static void compare(const char *codec, enum coll coll, size_t count, enum sluice_dtype dtype)
{
    size_t in_count = count * (has_blocks_in(coll) ? (size_t)asked.ranks : 1);
    size_t len = count * (has_blocks_out(coll) ? (size_t)asked.ranks : 1) * esize(dtype);
    const unsigned char *want = me.out, *got = me.result;
    size_t i = 0;

    fill(in_count, dtype);
    memset(me.out, 0, len);
    put(me.gpu_in, me.in, in_count * esize(dtype));
    call(coll, me.in, me.out, count, dtype);
    call(coll, me.gpu_in, me.gpu_out, count, dtype);
    get(me.result, me.gpu_out, len);
    while (i < len && got[i] == want[i])
        i++;
    if (i == len)
        return;
    printf("rank %d: %s of %zu %s by %s: byte %zu of %zu is %02x, not %02x\n", me.rank,
           coll_names[coll], count, sluice_dtype_name(dtype), codec, i, len, got[i], want[i]);
    me.failed++;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The median of some allreduces, in GB of elements a second. */
static double speed_of(const void *in, void *out, size_t count, enum sluice_dtype dtype)
{
    double seconds[ROUNDS];

    call(ALLREDUCE, in, out, count, dtype);
    hw_gpu_calls_reset();
    for (unsigned i = 0; i < ROUNDS; i++) {
        need(sluice_barrier(me.comm, NULL), "barrier");
        uint64_t began = sl_now(&sl_clock_monotonic);

        call(ALLREDUCE, in, out, count, dtype);
        seconds[i] = (double)(sl_now(&sl_clock_monotonic) - began) * 1e-9;
    }
    qsort(seconds, ROUNDS, sizeof(seconds[0]), by_size);
    return (double)(count * esize(dtype)) / seconds[ROUNDS / 2] * 1e-9;
}

static void try_codec(const char *codec, enum sluice_dtype dtype, size_t count)
{
    char text[64];

    snprintf(text, sizeof(text), "%s:" ALWAYS, codec);
    need(sluice_comm_set_compression(me.comm, text), text);
    for (enum coll coll = 0; !asked.speed && coll < COLLS; coll++) {
        size_t whole = has_blocks_in(coll) || has_blocks_out(coll) ? 1003 : 300007;

        compare(codec, coll, whole, dtype);
        compare(codec, coll, 4096 * 3, dtype);
    }
    compare(codec, ALLREDUCE, count, dtype);
    fill(count, dtype);
    put(me.gpu_in, me.in, count * esize(dtype));
    double gpu = speed_of(me.gpu_in, me.gpu_out, count, dtype);

    if (asked.explain && me.rank == 0)
        hw_gpu_calls_print(ROUNDS);
    double host = speed_of(me.in, me.out, count, dtype);

    if (me.rank == 0)
        printf("  %-5s %-5s allreduce of %zu MiB: %7.2f GB/s on the GPU, %7.2f GB/s on the host\n",
               codec, sluice_dtype_name(dtype), count * esize(dtype) >> 20, gpu, host);
}

/* ---- ranks ---- */

static int rank_main(int rank)
{
    static const char *const codecs[] = {"bq8", "bq4", "e4m3", "sign", "bf16"};
    static const enum sluice_dtype dtypes[] = {SLUICE_F32, SLUICE_BF16};

    struct sluice_config config;

    me.rank = rank;
    if (!asked.on_host) {
        hw_gpu_open(&me.gpu);
        if (asked.explain)
            hw_gpu_calls_count(me.gpu.cuda);
    }
    me.cap = asked.mib << 20;
    me.in = host_memory(me.cap);
    me.out = host_memory(me.cap);
    me.result = host_memory(me.cap);
    me.gpu_in = asked.on_host ? host_memory(me.cap) : hw_gpu_alloc(me.cap);
    me.gpu_out = asked.on_host ? host_memory(me.cap) : hw_gpu_alloc(me.cap);
    if (me.gpu_in == NULL || me.gpu_out == NULL) {
        printf("rank %d: the GPU has no %zu bytes\n", me.rank, 2 * me.cap);
        return 1;
    }
    sluice_config_init(&config);
    config.rank = rank;
    config.size = asked.ranks;
    need(sluice_comm_create(&config, &me.comm), "communicator");
    if (rank == 0)
        printf("%d %s on %s, over %s\n", asked.ranks, asked.threads ? "threads" : "processes",
               asked.on_host ? "no GPU" : me.gpu.name, getenv("SLUICE_TRANSPORT"));
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]) - asked.speed; d++)
        for (size_t c = 0; c < sizeof(codecs) / sizeof(codecs[0]); c++)
            if (asked.codec == NULL || strcmp(asked.codec, codecs[c]) == 0)
                try_codec(codecs[c], dtypes[d], me.cap / esize(dtypes[d]));
    need(sluice_barrier(me.comm, NULL), "barrier");
    sluice_comm_destroy(me.comm);
    fflush(stdout);
    return me.failed == 0 ? 0 : 1;
}

/* A port that nobody has: the ranks' meeting. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0), port = 0;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        port = ntohs(at.sin_port);
    close(fd);
    return port;
}

static void set(const char *name, const char *format, int value)
{
    char text[64];

    snprintf(text, sizeof(text), format, value);
    setenv(name, text, 1);
}

static int run_processes(void)
{
    pid_t pids[RANKS_MOST];
    int worst = 0;

    for (int i = 0; i < asked.ranks; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            exit(rank_main(i));
    }
    for (int i = 0; i < asked.ranks; i++) {
        int status = 1;

        waitpid(pids[i], &status, 0);
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        worst = status == 1 || worst == 0 ? status : worst;
    }
    return worst;
}

static void *thread_main(void *arg)
{
    int *rank = arg;

    *rank = rank_main(*rank);
    return NULL;
}

static int run_threads(void)
{
    pthread_t threads[RANKS_MOST];
    int ranks[RANKS_MOST], worst = 0;

    for (int i = 0; i < asked.ranks; i++) {
        ranks[i] = i;
        if (pthread_create(&threads[i], NULL, thread_main, &ranks[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < asked.ranks; i++) {
        pthread_join(threads[i], NULL);
        worst |= ranks[i];
    }
    return worst;
}

static int run_ranks(const char *transport)
{
    if (asked.transport != NULL && strcmp(asked.transport, transport) != 0)
        return 0;
    setenv("SLUICE_TRANSPORT", transport, 1);
    setenv("SLUICE_JOB", "hw-gpu-collective", 1);
    setenv("SLUICE_SECRET", "only-for-this-test", 1);
    set("SLUICE_ROOT", "127.0.0.1:%d", free_port());
    return asked.threads ? run_threads() : run_processes();
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        asked.on_host |= strcmp(arg, "--host") == 0;
        asked.threads |= strcmp(arg, "--threads") == 0;
        asked.speed |= strcmp(arg, "--speed") == 0;
        asked.explain |= strcmp(arg, "--explain") == 0;
        if (strcmp(arg, "--ranks") == 0 && value != NULL)
            asked.ranks = atoi(argv[++i]);
        else if (strcmp(arg, "--mib") == 0 && value != NULL)
            asked.mib = strtoul(argv[++i], NULL, 10);
        else if (strcmp(arg, "--codec") == 0 && value != NULL)
            asked.codec = argv[++i];
        else if (strcmp(arg, "--transport") == 0 && value != NULL)
            asked.transport = argv[++i];
    }
}

int main(int argc, char **argv)
{
    int result;

    parse(argc, argv);
    if (asked.ranks < 2 || asked.ranks > RANKS_MOST || asked.mib < 2) {
        printf("2 to %d ranks, and 2 MiB or more\n", RANKS_MOST);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    result = run_ranks("shm");
    return result != 0 ? result : run_ranks("tcp");
}
