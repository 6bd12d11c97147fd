/* SPDX-License-Identifier: Apache-2.0 */
/* What is registered with a device, for all interfaces that have it open. */
#include "verbs/open_device.h"
#include "verbs/region.h"

#include "core/err.h"
#include "core/log.h"

/* ---- what it can ---- */

/* Says a device that knows no dma-buf; one that does finds no file 0xffffffff. */
static bool is_unknown(int err)
{
    return err == EOPNOTSUPP || err == EPROTONOSUPPORT || err == ENOSYS;
}

/* With memory_lock. */
static int pd_need(struct sl_verbs_device *device)
{
    if (device->pd != NULL)
        return 0;
    errno = 0;
    device->pd = (device->ibv->ibv_alloc_pd)(device->context);
    if (device->pd != NULL)
        return 0;
    int err = errno != 0 ? -errno : -ENOMEM;

    return sl_fail(err, "%s gives no protection domain: %s", device->name, sluice_strerror(err));
}

int sl_verbs_device_pd(struct sl_verbs_device *device, struct ibv_pd **out)
{
    pthread_mutex_lock(&device->memory_lock);
    int err = pd_need(device);

    *out = device->pd;
    pthread_mutex_unlock(&device->memory_lock);
    return err;
}

static bool is_accepted(const struct sl_ibv *ibv, struct ibv_pd *pd)
{
    struct ibv_mr *mr;
    bool accepted;

    errno = 0;
    mr = ibv->ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
    accepted = mr == NULL && !is_unknown(errno);
    if (mr != NULL)
        (ibv->ibv_dereg_mr)(mr);
    return accepted;
}

bool sl_verbs_device_takes_dmabuf(struct sl_verbs_device *device)
{
    pthread_mutex_lock(&device->memory_lock);
    if (!device->asked_dmabuf && device->ibv->ibv_reg_dmabuf_mr != NULL && pd_need(device) == 0) {
        device->asked_dmabuf = true;
        device->takes_dmabuf = is_accepted(device->ibv, device->pd);
    }
    bool takes = device->takes_dmabuf;

    pthread_mutex_unlock(&device->memory_lock);
    return takes;
}

/* ---- the device's side ---- */

static int access_of(enum sl_verbs_writers writers)
{
    return IBV_ACCESS_LOCAL_WRITE | (writers == SL_VERBS_PEERS         ? IBV_ACCESS_REMOTE_WRITE
                                     : writers == SL_VERBS_WINDOW_KEYS ? IBV_ACCESS_MW_BIND
                                                                       : 0);
}

static struct ibv_mr *host_mr(const struct sl_verbs_memory *memory, const struct sl_mem *mem,
                              int access)
{
    const struct sl_ibv *ibv = memory->device->ibv;
    struct ibv_pd *pd = memory->device->pd;
    struct ibv_mr *mr = NULL;

    if (memory->relaxed && ibv->ibv_reg_mr_iova2 != NULL)
        mr = ibv->ibv_reg_mr_iova2(pd, mem->addr, mem->len, (uintptr_t)mem->addr,
                                   access | IBV_ACCESS_RELAXED_ORDERING);
    return mr != NULL ? mr : (ibv->ibv_reg_mr)(pd, mem->addr, mem->len, access);
}

static struct ibv_mr *dmabuf_mr(const struct sl_verbs_memory *memory, const struct sl_mem *mem,
                                int access)
{
    const struct sl_ibv *ibv = memory->device->ibv;
    struct ibv_pd *pd = memory->device->pd;
    uint64_t iova = (uintptr_t)mem->addr;
    struct ibv_mr *mr = NULL;

    if (memory->relaxed)
        mr = ibv->ibv_reg_dmabuf_mr(pd, mem->fd_off, mem->len, iova, mem->fd,
                                    access | IBV_ACCESS_RELAXED_ORDERING);
    errno = 0;
    return mr != NULL ? mr
                      : ibv->ibv_reg_dmabuf_mr(pd, mem->fd_off, mem->len, iova, mem->fd, access);
}

static int make(const struct sl_verbs_memory *memory, const struct sl_mem *mem, int access,
                struct ibv_mr **out)
{
    const char *name = memory->device->name;
    bool is_dmabuf = mem->kind == SL_MEM_DMABUF;

    errno = 0;
    struct ibv_mr *mr = is_dmabuf ? dmabuf_mr(memory, mem, access) : host_mr(memory, mem, access);
    int err = errno != 0 ? -errno : is_dmabuf ? -EIO : -ENOMEM;

    if (mr != NULL) {
        *out = mr;
        return 0;
    }
    if (!is_dmabuf) {
        sl_mem_lock_failed(err, mem->len);
        return sl_fail(err, "%s: %s", name, sluice_last_error());
    }
    if (is_unknown(-err))
        return sl_fail(-ENOTSUP,
                       "%s takes no GPU memory: its driver or this kernel knows no dma-buf", name);
    return sl_fail(err, "%s could not register %zu bytes of GPU memory: %s", name, mem->len,
                   sluice_strerror(err));
}

/* The users' memory: where a CTS says, peers write to it. */
static int reg(void *arg, const struct sl_mem *mem, void **out)
{
    struct sl_verbs_memory *memory = arg;
    struct ibv_mr *mr = memory->ready;
    int err = mr != NULL ? 0 : make(memory, mem, access_of(memory->writers), &mr);

    memory->ready = NULL;
    if (err == 0)
        *out = mr;
    return err;
}

static void dereg(void *arg, void *handle)
{
    const struct sl_verbs_memory *memory = arg;

    if ((memory->device->ibv->ibv_dereg_mr)(handle) != 0 && !atomic_load(&memory->device->is_dead))
        sl_warn("verbs", "%s did not give a region back", memory->device->name);
}

/* ---- claims ---- */

void sl_verbs_memory_init(struct sl_verbs_device *device)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(device->memory); i++) {
        struct sl_verbs_memory *memory = &device->memory[i];
        const struct sl_mem_device side = {.reg = reg, .dereg = dereg, .arg = memory};

        memory->device = device;
        memory->relaxed = i % 2 != 0;
        memory->writers = i < 2 ? SL_VERBS_PEERS : SL_VERBS_WINDOW_KEYS;
        /* Nothing is kept: whether memory is still there, only its user knows. */
        sl_mem_cache_init(&memory->cache, &side, 0, 0);
    }
}

void sl_verbs_memory_fini(struct sl_verbs_device *device)
{
    for (unsigned i = 0; i < SL_ARRAY_LEN(device->memory); i++)
        sl_mem_cache_fini(&device->memory[i].cache);
}

/* With memory_lock. */
static int claim(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                 struct sl_verbs_claim *out)
{
    struct sl_mem_region *region;
    uint64_t before = memory->cache.made;
    int err = sl_mem_cache_get_as(&memory->cache, mem, &region);

    if (err != 0)
        return err;
    *out = (struct sl_verbs_claim){.mr = region->handle, .region = region};
    return memory->cache.made != before;
}

int sl_verbs_memory_get(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                        struct sl_verbs_claim *out)
{
    pthread_mutex_lock(&memory->device->memory_lock);
    int err = claim(memory, mem, out);

    pthread_mutex_unlock(&memory->device->memory_lock);
    return err;
}

int sl_verbs_memory_adopt(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                          struct ibv_mr *made, struct sl_verbs_claim *out)
{
    pthread_mutex_lock(&memory->device->memory_lock);
    memory->ready = made;
    int err = claim(memory, mem, out);
    struct ibv_mr *left = memory->ready;

    memory->ready = NULL;
    pthread_mutex_unlock(&memory->device->memory_lock);
    if (left != NULL)
        dereg(memory, left);
    return err;
}

bool sl_verbs_memory_has(struct sl_verbs_memory *memory, const struct sl_mem *mem)
{
    pthread_mutex_lock(&memory->device->memory_lock);
    bool has = sl_mem_cache_search(&memory->cache, (uintptr_t)mem->addr, mem->len) != NULL;

    pthread_mutex_unlock(&memory->device->memory_lock);
    return has;
}

bool sl_verbs_memory_put(struct sl_verbs_memory *memory, struct sl_verbs_claim *claim)
{
    if (claim->region == NULL)
        return false;
    pthread_mutex_t *lock = &memory->device->memory_lock;

    pthread_mutex_lock(lock);
    uint32_t before = memory->cache.count;

    sl_mem_cache_put(&memory->cache, claim->region);
    bool ended = memory->cache.count != before;

    pthread_mutex_unlock(lock);
    *claim = (struct sl_verbs_claim){0};
    return ended;
}

int sl_verbs_memory_make(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                         enum sl_verbs_writers writers, struct ibv_mr **out)
{
    return make(memory, mem, access_of(writers), out);
}

void sl_verbs_memory_end(struct sl_verbs_memory *memory, struct ibv_mr *mr)
{
    dereg(memory, mr);
}

/* ---- memory that goes away ---- */

/* With event_lock. What finds no room makes the last one larger: whoever loses a claim for it sends
 * from staging. */
static void leave(struct sl_verbs_listener *listener, uintptr_t addr, uintptr_t end)
{
    struct sl_verbs_range *last = &listener->gone[SL_VERBS_GONE_MAX - 1];

    if (listener->gone_count < SL_VERBS_GONE_MAX) {
        listener->gone[listener->gone_count++] = (struct sl_verbs_range){addr, end};
        return;
    }
    last->addr = addr < last->addr ? addr : last->addr;
    last->end = end > last->end ? end : last->end;
}

void sl_verbs_device_mem_gone(struct sl_verbs_device *device, const void *ptr, size_t len)
{
    uintptr_t addr = (uintptr_t)ptr, end = addr + len < addr ? UINTPTR_MAX : addr + len;
    unsigned in_use = 0;

    pthread_mutex_lock(&device->memory_lock);
    for (unsigned i = 0; i < SL_ARRAY_LEN(device->memory); i++)
        in_use += sl_mem_cache_invalidate(&device->memory[i].cache, ptr, len);
    pthread_mutex_unlock(&device->memory_lock);
    if (in_use == 0)
        return; /* nobody has a claim there */
    pthread_mutex_lock(&device->event_lock);
    sl_list_foreach(&device->listeners, node)
        leave(sl_container_of(node, struct sl_verbs_listener, link), addr, end);
    pthread_mutex_unlock(&device->event_lock);
}

unsigned sl_verbs_device_gone(struct sl_verbs_device *device, struct sl_verbs_listener *listener,
                              struct sl_verbs_range out[SL_VERBS_GONE_MAX])
{
    pthread_mutex_lock(&device->event_lock);
    unsigned count = listener->gone_count;

    for (unsigned i = 0; i < count; i++)
        out[i] = listener->gone[i];
    listener->gone_count = 0;
    pthread_mutex_unlock(&device->event_lock);
    return count;
}
