/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the emulated GPU, and what the driver says of it. */
#include "tests/unit/compress/emulated_gpu_inside.h"

#include "core/err.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096

struct emulated_memory *emulated_memory_of(const void *ptr)
{
    sl_list_foreach(&emulated_gpu.memory, node)
    {
        struct emulated_memory *m = sl_container_of(node, struct emulated_memory, link);

        if ((uintptr_t)ptr - (uintptr_t)m->at < m->len)
            return m;
    }
    return NULL;
}

void *emulated_take(int which, size_t len)
{
    struct emulated_memory *m = calloc(1, sizeof(*m));

    sl_assert(m != NULL);
    m->gpu = which;
    m->len = len;
    m->mapped = (len + PAGE - 1) / PAGE * PAGE;
    m->at = mmap(NULL, m->mapped, which < 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sl_assert(m->at != MAP_FAILED);
    sl_list_push_back(&emulated_gpu.memory, &m->link);
    emulated_gpu.live++;
    return m->at;
}

int emulated_release(void *ptr, bool pinned)
{
    struct emulated_memory *m = emulated_memory_of(ptr);

    if (m == NULL || m->at != ptr || (m->gpu < 0) != pinned) {
        emulated_misused("memory is freed that is none");
        return EMULATED_INVALID_VALUE;
    }
    munmap(m->at, m->mapped);
    sl_list_remove(&m->link);
    free(m);
    emulated_gpu.live--;
    return 0;
}

void emulated_let(bool in)
{
    sl_list_foreach(&emulated_gpu.memory, node)
    {
        struct emulated_memory *m = sl_container_of(node, struct emulated_memory, link);

        if (m->gpu >= 0)
            sl_assert(mprotect(m->at, m->mapped, in ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
    }
}

static int mem_alloc(sl_cu_ptr *out, size_t len)
{
    int result = emulated_asked_inside("cuMemAlloc");

    if (result == 0)
        *out = (uintptr_t)emulated_take(0, len);
    return result;
}

static int mem_free(sl_cu_ptr ptr)
{
    (void)emulated_asked_inside("cuMemFree");
    return emulated_release((void *)(uintptr_t)ptr, false);
}

static int host_alloc(void **out, size_t len, unsigned flags)
{
    int result = emulated_asked_inside("cuMemHostAlloc");

    (void)flags;
    if (result == 0)
        *out = emulated_take(-1, len);
    return result;
}

static int host_free(void *ptr)
{
    (void)emulated_asked_inside("cuMemFreeHost");
    return emulated_release(ptr, true);
}

static int attribute_of(void *out, int which, sl_cu_ptr ptr)
{
    struct emulated_memory *m = emulated_memory_of((void *)(uintptr_t)ptr);

    if (m == NULL || m->gpu < 0)
        return EMULATED_INVALID_VALUE;
    switch (which) {
    case SL_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(int *)out = SL_CU_MEMORYTYPE_DEVICE; return 0;
    case SL_CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)out = 0; return 0;
    case SL_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = m->gpu; return 0;
    case SL_CU_POINTER_ATTRIBUTE_CONTEXT: *(void **)out = &emulated_contexts[m->gpu]; return 0;
    default: return EMULATED_INVALID_VALUE;
    }
}

static int range_of(sl_cu_ptr *base, size_t *len, sl_cu_ptr ptr)
{
    struct emulated_memory *m = emulated_memory_of((void *)(uintptr_t)ptr);

    if (m == NULL)
        return EMULATED_INVALID_VALUE;
    *base = (uintptr_t)m->at;
    *len = m->len;
    return 0;
}

void emulated_memory_calls(struct sl_cuda *table)
{
    table->cuPointerGetAttribute = attribute_of;
    table->cuMemGetAddressRange_v2 = range_of;
    table->cuMemAlloc_v2 = mem_alloc;
    table->cuMemFree_v2 = mem_free;
    table->cuMemHostAlloc = host_alloc;
    table->cuMemFreeHost = host_free;
}
