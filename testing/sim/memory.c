/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of the simulated network share, and map. */
#include "testing/sim/inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that ranks map. It goes when its owner has freed it and no map is left. */
struct sim_mem {
    struct sl_node link;
    struct sl_sim *sim;
    uint32_t id, maps;
    uint32_t host;
    bool registered, freed;
    size_t len, bytes; /* bytes: of whole pages */
    void *addr;
};

struct sim_map {
    struct sl_node link;
    struct sim_mem *mem;
};

static void mem_drop(struct sim_mem *mem)
{
    if (!mem->freed || mem->maps > 0)
        return;
    sl_list_remove(&mem->link);
    sl_sim_table_remove(&mem->sim->mem_of_id, mem->id);
    sl_sim_table_remove(&mem->sim->mem_of_addr, (uintptr_t)mem->addr);
    munmap(mem->addr, mem->bytes);
    free(mem);
}

static struct sim_mem *mem_find(struct sl_sim *sim, const void *addr)
{
    struct sim_mem *mem = sl_sim_table_get(&sim->mem_of_addr, (uintptr_t)addr);

    return mem != NULL && !mem->freed ? mem : NULL;
}

/* Everything is backed when it is touched. */
int sl_sim_mem_alloc(struct sl_iface *base, size_t len, size_t backed, struct sl_mem *out)
{
    struct sl_sim_iface *iface = sl_sim_iface_of(base);
    struct sim_mem *mem = calloc(1, sizeof(*mem));
    size_t bytes = (len + 4095) / 4096 * 4096;
    /* Pages that nobody touches cost nothing; and mappings that lie side by side count as one, also
     * when children do not get them (sl_fork_hides()), where pieces of the heap would each count: a
     * process has 65,530. */
    void *addr = mmap(NULL, bytes + 4096 * (bytes == 0), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (mem == NULL || addr == MAP_FAILED) {
        if (addr != MAP_FAILED)
            munmap(addr, bytes + 4096 * (bytes == 0));
        free(mem);
        return sl_fail(-ENOMEM, "no memory for a simulated window of %zu bytes", len);
    }
    mem->sim = iface->sim;
    mem->addr = addr;
    mem->bytes = bytes + 4096 * (bytes == 0);
    mem->id = (uint32_t)++iface->sim->seq;
    mem->host = iface->rank->host;
    mem->len = len;
    sl_list_push_back(&iface->sim->mems, &mem->link);
    sl_sim_table_put(&iface->sim->mem_of_id, mem->id, mem);
    sl_sim_table_put(&iface->sim->mem_of_addr, (uintptr_t)mem->addr, mem);
    *out = (struct sl_mem){.addr = mem->addr, .len = len, .kind = SL_MEM_HOST, .fd = -1};
    return 0;
}

int sl_sim_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    (void)iface, (void)mem, (void)off, (void)len;
    return 0;
}

void sl_sim_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    (void)iface;
    madvise((uint8_t *)mem->addr + off, len, MADV_DONTNEED);
}

void sl_sim_mem_free(struct sl_iface *base, struct sl_mem *given)
{
    struct sim_mem *mem = mem_find(sl_sim_iface_of(base)->sim, given->addr);

    sl_assert(mem != NULL);
    if (mem->registered)
        sl_sim_violate(sl_sim_iface_of(base)->sim, "rank %u frees memory that is still registered",
                       sl_sim_iface_of(base)->rank->rank);
    mem->freed = true;
    mem_drop(mem);
}

int sl_sim_mr_reg(struct sl_iface *base, const struct sl_mem *given, struct sl_mr **out,
                  struct sl_key *key)
{
    struct sim_mem *mem = mem_find(sl_sim_iface_of(base)->sim, given->addr);

    if (mem == NULL || !sl_mem_is_host(given->kind))
        return sl_fail(-ENOTSUP, "the simulated network shares only memory of its own");
    mem->registered = true;
    *out = (struct sl_mr *)mem;
    if (key != NULL) {
        *key = (struct sl_key){.len = sizeof(mem->id)};
        memcpy(key->bytes, &mem->id, sizeof(mem->id));
    }
    return 0;
}

void sl_sim_mr_dereg(struct sl_iface *base, struct sl_mr *mr)
{
    (void)base;
    ((struct sim_mem *)mr)->registered = false;
}

int sl_sim_map(struct sl_ep *base, const struct sl_key *key, size_t len, void **out)
{
    struct sl_sim_ep *ep = sl_sim_ep_of(base);
    struct sl_sim *sim = sl_sim_iface_of_ep(ep)->sim;
    struct sim_mem *mem;
    struct sim_map *map;
    uint32_t id = 0;

    if (ep->lost)
        return sl_fail(-ECONNRESET, "this simulated endpoint is lost");
    if (sl_sim_chance(sim, sim->params.eagain_in))
        return -EAGAIN;
    if (key->len == sizeof(id))
        memcpy(&id, key->bytes, sizeof(id));
    mem = id != 0 ? sl_sim_table_get(&sim->mem_of_id, id) : NULL;
    if (mem == NULL || !mem->registered)
        return sl_fail(-EINVAL, "no simulated region has this key");
    if (mem->host != sl_sim_iface_of_ep(ep)->rank->host)
        return sl_fail(-ENOTSUP, "this region is on another simulated host");
    if (mem->len < len)
        return sl_fail(-EPROTO, "this region has %zu bytes where %zu are needed", mem->len, len);
    map = calloc(1, sizeof(*map));
    sl_assert(map != NULL);
    map->mem = mem;
    mem->maps++;
    sl_list_push_back(&ep->maps, &map->link);
    *out = mem->addr;
    return 0;
}

static void map_end(struct sim_map *map)
{
    sl_list_remove(&map->link);
    map->mem->maps--;
    mem_drop(map->mem);
    free(map);
}

void sl_sim_unmap(struct sl_ep *base, void *ptr)
{
    sl_list_foreach(&sl_sim_ep_of(base)->maps, node)
    {
        struct sim_map *map = sl_container_of(node, struct sim_map, link);

        if (map->mem->addr == ptr) {
            map_end(map);
            return;
        }
    }
    sl_assert(!"unmap of something that is not mapped");
}

void sl_sim_maps_end(struct sl_sim_ep *ep)
{
    sl_list_foreach(&ep->maps, node) map_end(sl_container_of(node, struct sim_map, link));
}

void sl_sim_mems_check_empty(struct sl_sim *sim)
{
    if (!sl_list_empty(&sim->mems))
        sl_sim_violate(sim, "shared memory of %zu bytes is left",
                       sl_container_of(sim->mems.next, struct sim_mem, link)->len);
}
