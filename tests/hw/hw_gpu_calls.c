/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's calls in the table of the library are replaced by some that count. */
#include "tests/hw/hw_gpu_calls.h"

#include "core/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LAUNCH, RECORD, QUERY, NOT_READY, ENTER, KINDS };

static const char *const names[KINDS] = {"launches", "events recorded", "events reached",
                                         "events not reached yet", "contexts entered"};

static struct sl_cuda real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct {
    uint64_t count, ns;
} calls[KINDS];

static int add(unsigned kind, uint64_t began_ns, int result)
{
    calls[kind].count++;
    calls[kind].ns += sl_now(&sl_clock_monotonic) - began_ns;
    return result;
}

static int launch(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **params,
                  void **extra)
{
    uint64_t began_ns = sl_now(&sl_clock_monotonic);

    return add(LAUNCH, began_ns,
               real.cuLaunchKernel(function, x, y, z, block_x, block_y, block_z, shared, stream,
                                   params, extra));
}

static int record(void *event, void *stream)
{
    uint64_t began_ns = sl_now(&sl_clock_monotonic);

    return add(RECORD, began_ns, real.cuEventRecord(event, stream));
}

static int query(void *event)
{
    uint64_t began_ns = sl_now(&sl_clock_monotonic);
    int result = real.cuEventQuery(event);

    return add(result == SL_CUDA_ERROR_NOT_READY ? NOT_READY : QUERY, began_ns, result);
}

static int enter(void *context)
{
    uint64_t began_ns = sl_now(&sl_clock_monotonic);

    return add(ENTER, began_ns, real.cuCtxPushCurrent_v2(context));
}

void hw_gpu_calls_count(const struct sl_cuda *cuda)
{
    struct sl_cuda *table = (struct sl_cuda *)(uintptr_t)cuda; /* it is one of this program's */

    pthread_mutex_lock(&lock);
    if (real.cuLaunchKernel == NULL) {
        real = *cuda;
        table->cuLaunchKernel = launch;
        table->cuEventRecord = record;
        table->cuEventQuery = query;
        table->cuCtxPushCurrent_v2 = enter;
    }
    pthread_mutex_unlock(&lock);
}

void hw_gpu_calls_reset(void)
{
    memset(calls, 0, sizeof(calls));
}

void hw_gpu_calls_print(unsigned operations)
{
    for (unsigned kind = 0; kind < KINDS; kind++)
        printf("    %8.1f %-22s %8.1f us, %6.2f us each\n", (double)calls[kind].count / operations,
               names[kind], (double)calls[kind].ns * 1e-3 / operations,
               calls[kind].count != 0 ? (double)calls[kind].ns * 1e-3 / (double)calls[kind].count
                                      : 0.0);
}
