/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine itself takes for what an allreduce of two ranks cannot do without, as two
 * processes on a core each: the limits in docs/perf.md.
 *
 *   line    each writes a cache line and waits for the other's
 *   cross   each reads S bytes that the other has just written, after an exchange of lines
 *   dram    each copies S bytes: reads its input once, writes its output once
 */
#include "kernels/reduce.h"
#include "core/clock.h"
#include "core/host.h"
#include "core/relax.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 41
#define LINE_ROUNDS 200000
#define SIZE_MAX_BYTES ((size_t)64 << 20)

struct shared {
    _Alignas(128) _Atomic uint64_t flag[2][16];
    _Alignas(4096) uint8_t bytes[2][SIZE_MAX_BYTES];
};

static struct shared *shared;
static int me;
static uint64_t turn;

static void meet(void)
{
    atomic_store_explicit(&shared->flag[me][0], ++turn, memory_order_release);
    while (atomic_load_explicit(&shared->flag[1 - me][0], memory_order_acquire) < turn)
        sl_cpu_relax();
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print(const char *what, size_t size, double *us, int count)
{
    qsort(us, (size_t)count, sizeof(*us), by_value);
    if (me == 0)
        printf("%-6s %10zu B %10.3f us (%.3f-%.3f)\n", what, size, us[count / 2], us[0],
               us[count - 1]);
}

static void lines(void)
{
    double us[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = sl_now(&sl_clock_monotonic);

        for (int i = 0; i < LINE_ROUNDS / ROUNDS; i++)
            meet();
        us[r] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3 / (LINE_ROUNDS / ROUNDS);
    }
    print("line", 8, us, ROUNDS);
}

static uint64_t read_all(const uint8_t *bytes, size_t size)
{
    uint64_t sum[8] = {0}, word[8];

    for (size_t at = 0; at < size; at += sizeof(word)) {
        memcpy(word, bytes + at, sizeof(word));
        for (int i = 0; i < 8; i++)
            sum[i] ^= word[i];
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void cross(size_t size)
{
    static volatile uint64_t sink;
    double us[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        memset(shared->bytes[me], r, size);
        meet();
        uint64_t start = sl_now(&sl_clock_monotonic);

        sink = read_all(shared->bytes[1 - me], size);
        us[r] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3;
        meet();
    }
    (void)sink;
    print("cross", size, us, ROUNDS);
}

static void dram(const struct sl_kernels *kernels, uint8_t *in, uint8_t *out, size_t size)
{
    double us[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        meet();
        uint64_t start = sl_now(&sl_clock_monotonic);

        kernels->copy_stream(out, in, size);
        meet();
        us[r] = (double)(sl_now(&sl_clock_monotonic) - start) / 1e3;
    }
    print("dram", size, us, ROUNDS);
}

int main(void)
{
    static const size_t cached[] = {64 << 10, 1 << 20}, large[] = {16 << 20, 64 << 20};
    const struct sl_kernels *kernels;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || sl_kernels_select(SL_KERNEL_AUTO, &kernels) != 0)
        return 1;
    pid_t child = fork();

    me = child == 0;
    sl_host_bind((unsigned)me, 2);
    uint8_t *in = malloc(SIZE_MAX_BYTES), *out = malloc(SIZE_MAX_BYTES);

    if (in == NULL || out == NULL)
        return 1;
    memset(in, 1, SIZE_MAX_BYTES);
    memset(out, 1, SIZE_MAX_BYTES);
    lines();
    for (size_t i = 0; i < 2; i++)
        cross(cached[i]);
    for (size_t i = 0; i < 2; i++)
        dram(kernels, in, out, large[i]);
    free(in);
    free(out);
    return child != 0 && (waitpid(child, NULL, 0) != child);
}
