/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in pinned memory that streams wait for. */
#include "tools/preload/nccl/flags.h"

#include "tools/preload/nccl/gpu.h"

#include "core/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define SLOTS 512 /* communicators of a process at a time */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *page; /* SLOTS cache lines */
static uint64_t page_address;
static bool used[SLOTS];

static int make_page(void)
{
    void *memory = NULL;
    int status;

    if (page != NULL)
        return 0;
    status = gpu_check(gpu.alloc_host(&memory, (size_t)SLOTS * SL_CACHE_LINE, GPU_HOST_MAPPED),
                       "pin memory for numbers");
    if (status == 0) {
        memset(memory, 0, (size_t)SLOTS * SL_CACHE_LINE);
        status = gpu_check(gpu.address_of_host(&page_address, memory, 0), "map pinned memory");
    }
    if (status == 0)
        page = memory;
    return status;
}

int shim_flag_get(struct shim_flag *out)
{
    int status, slot = 0;

    pthread_mutex_lock(&lock);
    status = make_page();
    while (slot < SLOTS && used[slot])
        slot++;
    if (status == 0 && slot == SLOTS)
        status = sl_fail(-ENOMEM, "more than %d communicators of NCCL at a time", SLOTS);
    if (status == 0) {
        used[slot] = true;
        out->slot = slot;
        out->number = (_Atomic uint32_t *)(void *)(page + (size_t)slot * SL_CACHE_LINE);
        out->address = page_address + (uint64_t)slot * SL_CACHE_LINE;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void shim_flag_put(const struct shim_flag *flag)
{
    pthread_mutex_lock(&lock);
    used[flag->slot] = false;
    pthread_mutex_unlock(&lock);
}
