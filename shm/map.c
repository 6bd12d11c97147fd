/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that peers map: made here, announced to every peer, mapped as soon as a peer announces
 * it. */
#include "shm/shm.h"

#include "core/log.h"
#include "shm/room.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A peer may not make this process map without end. */
#define PEER_REGIONS_MAX 4096

#define PAGE 4096u

#define WHAT "a shared region"
#define ADVICE "allocate less (SLUICE_SHM_WINDOW_BYTES for windows)"

/* A region of a peer, mapped here. */
struct peer_region {
    struct sl_node node;
    uint64_t id, len;
    void *base;
    unsigned users;
    bool dropped; /* the peer took it back; it goes with its last user */
};

static size_t whole_pages(size_t len)
{
    return (len + PAGE - 1) & ~(size_t)(PAGE - 1);
}

int shm_mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out)
{
    size_t whole = whole_pages(len);
    void *base;
    int fd, err;

    (void)iface;
    if (len == 0 || whole < len || backed == 0 || backed > len)
        return sl_fail(-EINVAL, "a shared region cannot have %zu bytes, %zu of them backed", len,
                       backed);
    backed = whole_pages(backed);
    err = shm_file_create(WHAT, ADVICE, whole, backed, &fd);
    if (err != 0)
        return err;
    base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        err = sl_fail(-ENOMEM, "%zu bytes of shared memory could not be mapped: %s; see ulimit -v",
                      whole, strerror(errno));
        close(fd);
        return err;
    }
    madvise(base, backed, MADV_POPULATE_WRITE); /* older kernels: page by page, when touched */
    *out = (struct sl_mem){.addr = base, .len = len, .kind = SL_MEM_HOST, .fd = fd, .fd_off = 0};
    return 0;
}

int shm_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    int err = shm_room_check(WHAT, ADVICE, len, len);

    (void)iface;
    return err != 0 ? err : shm_file_reserve(mem->fd, WHAT, ADVICE, mem->fd_off + off, len);
}

void shm_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    (void)iface;
    if (fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(mem->fd_off + off),
                  (off_t)len) != 0)
        memset((uint8_t *)mem->addr + off, 0, len); /* it is zero all the same */
}

void shm_mem_free(struct sl_iface *iface, struct sl_mem *mem)
{
    (void)iface;
    if (mem->addr == NULL)
        return;
    munmap(mem->addr, (mem->len + PAGE - 1) & ~(size_t)(PAGE - 1));
    close(mem->fd);
    mem->addr = NULL;
    mem->fd = -1;
}

int shm_mr_reg(struct sl_iface *base, const struct sl_mem *mem, struct sl_mr **out,
               struct sl_key *key)
{
    struct shm_iface *iface = shm_iface_of(base);
    struct shm_region *region;
    struct stat st;
    int seals;

    if (!sl_mem_is_host(mem->kind))
        return sl_fail(
            -ENOTSUP,
            "GPU memory is not shared between processes of a host: their processors could "
            "not read it");
    if (mem->fd < 0)
        return sl_fail(-ENOTSUP, "only memory with a file behind it can be shared with peers");
    seals = fcntl(mem->fd, F_GET_SEALS);
    if (mem->len == 0 || mem->fd_off % PAGE != 0 || fstat(mem->fd, &st) != 0 ||
        mem->fd_off + mem->len > (uint64_t)st.st_size)
        return sl_fail(-EINVAL, "the region does not lie in its file");
    if (seals < 0 ||
        ((seals & F_SEAL_SHRINK) == 0 && fcntl(mem->fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0))
        return sl_fail(-ENOTSUP,
                       "the region's file cannot be sealed against shrinking; peers would "
                       "have to trust it");
    region = calloc(1, sizeof(*region));
    if (region == NULL)
        return sl_fail(-ENOMEM, "no memory to register a region");
    region->id = ++iface->region_id;
    region->len = mem->len;
    region->fd = mem->fd;
    region->fd_off = mem->fd_off;
    sl_list_push_back(&iface->regions, &region->node);
    sl_list_foreach(&iface->eps, node)
    {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        if (ep->state == SHM_UP && shm_announce(ep)) {
            ep->backlog = true;
            iface->chores++;
        }
    }
    if (key != NULL) {
        struct shm_key own = {region->id, region->len};

        shm_key_pack(&own, key);
    }
    *out = (struct sl_mr *)region;
    return 0;
}

void shm_mr_dereg(struct sl_iface *base, struct sl_mr *mr)
{
    struct shm_region *region = (struct shm_region *)mr;
    struct shm_iface *iface = shm_iface_of(base);

    if (mr == NULL)
        return;
    sl_list_foreach(&iface->eps, node)
    {
        struct shm_ep *ep = sl_container_of(node, struct shm_ep, node);

        /* A peer that the word does not reach keeps its mapping until the endpoint ends: memory, no
         * harm. */
        if (ep->state == SHM_UP && ep->source.fd >= 0 && ep->told_region >= region->id &&
            shm_post(ep->source.fd, SHM_DROP, &region->id, sizeof(region->id), NULL, 0) != 0)
            sl_debug("shm", "shm: %s could not be told that a region is gone",
                     sl_ep_peer_name(&ep->base));
    }
    sl_list_remove(&region->node);
    free(region);
}

bool shm_announce(struct shm_ep *ep)
{
    struct shm_iface *iface = shm_ep_iface(ep);

    if (ep->source.fd < 0)
        return false;
    sl_list_foreach(&iface->regions, node)
    {
        struct shm_region *region = sl_container_of(node, struct shm_region, node);
        struct shm_region_msg msg = {region->id, region->len, region->fd_off};
        int err;

        if (region->id <= ep->told_region)
            continue;
        err = shm_post(ep->source.fd, SHM_REGION, &msg, sizeof(msg), &region->fd, 1);
        if (err == -EAGAIN)
            return true;
        if (err != 0)
            return false; /* the socket is failing: progress will see it */
        ep->told_region = region->id;
    }
    return false;
}

int shm_heard_region(struct shm_ep *ep, const struct shm_region_msg *msg, int fd)
{
    struct peer_region *region;
    void *base;

    if (msg->id <= ep->heard_region)
        return sl_fail(-EBADMSG, "a shm peer announced a region twice");
    ep->heard_region = msg->id;
    if (fd < 0)
        return 0; /* it got lost here for want of a descriptor: map() says so */
    if (ep->peer_region_count >= PEER_REGIONS_MAX) {
        sl_warn("shm", "shm: %s announced more than %d regions", sl_ep_peer_name(&ep->base),
                PEER_REGIONS_MAX);
        return 0;
    }
    if (shm_file_map(fd, msg->fd_off, msg->len, 1, &base) != 0) {
        sl_warn("shm", "shm: a region of %s is not used: %s", sl_ep_peer_name(&ep->base),
                sluice_last_error());
        return 0;
    }
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        munmap(base, msg->len);
        return 0;
    }
    region->id = msg->id;
    region->len = msg->len;
    region->base = base;
    madvise(base, msg->len, MADV_DONTDUMP); /* mostly addresses, and its owner's */
    sl_list_push_back(&ep->peer_regions, &region->node);
    ep->peer_region_count++;
    return 0;
}

static void region_free(struct shm_ep *ep, struct peer_region *region)
{
    sl_list_remove(&region->node);
    ep->peer_region_count--;
    munmap(region->base, region->len);
    free(region);
}

void shm_heard_drop(struct shm_ep *ep, uint64_t id)
{
    sl_list_foreach(&ep->peer_regions, node)
    {
        struct peer_region *region = sl_container_of(node, struct peer_region, node);

        if (region->id != id)
            continue;
        region->dropped = true;
        if (region->users == 0)
            region_free(ep, region);
        return;
    }
}

void shm_forget_regions(struct shm_ep *ep)
{
    sl_list_foreach(&ep->peer_regions, node)
    {
        region_free(ep, sl_container_of(node, struct peer_region, node));
    }
}

int shm_map(struct sl_ep *base, const struct sl_key *key, size_t len, void **out)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_key want;
    int err = shm_key_parse(key, &want);

    if (err != 0)
        return err;
    if (ep->state != SHM_UP)
        return ep->state == SHM_LOST ? shm_refused(ep, 0) : -EAGAIN;
    sl_list_foreach(&ep->peer_regions, node)
    {
        struct peer_region *region = sl_container_of(node, struct peer_region, node);

        if (region->id != want.id || region->dropped)
            continue;
        if (region->len != want.len)
            return sl_fail(-EPROTO, "%s announced a region of %llu bytes, its key says %llu",
                           sl_ep_peer_name(base), (unsigned long long)region->len,
                           (unsigned long long)want.len);
        if (region->len < len)
            return sl_fail(-EPROTO, "%s announced a region of %llu bytes where %zu are needed",
                           sl_ep_peer_name(base), (unsigned long long)region->len, len);
        region->users++;
        *out = region->base;
        return 0;
    }
    if (want.id > ep->heard_region) {
        shm_ep_iface(ep)->events_due = true; /* the next progress reads the socket */
        return -EAGAIN;
    }
    return sl_fail(-ENOTSUP, "that region of %s is gone or could not be mapped here",
                   sl_ep_peer_name(base));
}

void shm_unmap(struct sl_ep *base, void *ptr)
{
    struct shm_ep *ep = shm_ep_of(base);

    sl_list_foreach(&ep->peer_regions, node)
    {
        struct peer_region *region = sl_container_of(node, struct peer_region, node);

        if (region->base != ptr)
            continue;
        sl_assert(region->users > 0);
        if (--region->users == 0 && region->dropped)
            region_free(ep, region);
        return;
    }
}
