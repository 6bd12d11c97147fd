/* SPDX-License-Identifier: Apache-2.0 */
/* Registered memory: the user's regions and our own pools, each on every rail. */
#include "verbs/verbs.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define PAGE 4096

static int reg_failed(const struct sl_verbs_rail *rail, size_t len, int err)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if ((err == ENOMEM || err == EPERM || err == EAGAIN) && limit.rlim_cur != RLIM_INFINITY)
        return sl_fail(-ENOMEM,
                       "%s cannot register %zu KiB: this process may lock %llu KiB (ulimit -l); set "
                       "'ulimit -l unlimited', LimitMEMLOCK=infinity or --ulimit memlock=-1",
                       rail->port.name, len >> 10, (unsigned long long)limit.rlim_cur >> 10);
    return sl_fail(-err, "%s cannot register %zu KiB: %s", rail->port.name, len >> 10,
                   sluice_strerror(-err));
}

int sl_verbs_reg(const struct sl_verbs_rail *rail, void *addr, size_t len, struct ibv_mr **out)
{
    const struct sl_ibv *ibv = rail->iface->ibv;
    struct ibv_mr *mr = NULL;

    errno = 0;
    if (rail->iface->config->verbs_relaxed_ordering != SL_OFF && ibv->ibv_reg_mr_iova2 != NULL)
        mr = ibv->ibv_reg_mr_iova2(rail->pd, addr, len, (uintptr_t)addr,
                                   ACCESS | IBV_ACCESS_RELAXED_ORDERING);
    if (mr == NULL)
        mr = (ibv->ibv_reg_mr)(rail->pd, addr, len, ACCESS);
    if (mr == NULL)
        return reg_failed(rail, len, errno != 0 ? errno : ENOMEM);
    *out = mr;
    return 0;
}

static void dereg_all(struct sl_verbs_iface *iface, struct ibv_mr **mr)
{
    for (unsigned i = 0; i < iface->rail_count; i++) {
        if (mr[i] != NULL && (iface->ibv->ibv_dereg_mr)(mr[i]) != 0)
            sl_warn("verbs", "%s did not give a region back", iface->rails[i].port.name);
        mr[i] = NULL;
    }
}

static int reg_all(struct sl_verbs_iface *iface, void *addr, size_t len, struct ibv_mr **mr)
{
    for (unsigned i = 0; i < iface->rail_count; i++) {
        int err = sl_verbs_reg(&iface->rails[i], addr, len, &mr[i]);

        if (err != 0) {
            dereg_all(iface, mr);
            return err;
        }
    }
    return 0;
}

int sl_verbs_pool_init(struct sl_verbs_iface *iface, size_t len, struct sl_verbs_pool *out)
{
    void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err;

    if (bytes == MAP_FAILED)
        return sl_fail(-ENOMEM, "no memory for %zu KiB of buffers", len >> 10);
    err = reg_all(iface, bytes, len, out->mr);
    if (err != 0) {
        munmap(bytes, len);
        return err;
    }
    out->bytes = bytes;
    out->len = len;
    return 0;
}

void sl_verbs_pool_fini(struct sl_verbs_iface *iface, struct sl_verbs_pool *pool)
{
    if (pool->bytes == NULL)
        return;
    dereg_all(iface, pool->mr);
    munmap(pool->bytes, pool->len);
    pool->bytes = NULL;
}

int sl_verbs_mr_reg(struct sl_iface *base, const struct sl_mem *mem, struct sl_mr **out,
                    struct sl_key *key)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    struct sl_verbs_mr *mr;
    int err;

    if (mem->kind != SL_MEM_HOST)
        return sl_fail(-ENOTSUP, "this kind of memory is not registered with RDMA devices");
    mr = calloc(1, sizeof(*mr));
    if (mr == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a region");
    mr->addr = mem->addr;
    mr->len = mem->len;
    err = reg_all(iface, mem->addr, mem->len, mr->mr);
    if (err != 0) {
        free(mr);
        return err;
    }
    sl_list_push_back(&iface->mrs, &mr->link);
    if (key != NULL)
        key->len = 0; /* peers write where a grant says; nobody needs a key */
    *out = (struct sl_mr *)mr;
    return 0;
}

void sl_verbs_mr_dereg(struct sl_iface *base, struct sl_mr *handle)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);
    struct sl_verbs_mr *mr = (struct sl_verbs_mr *)handle;

    if (iface->last_mr == mr)
        iface->last_mr = NULL;
    sl_list_remove(&mr->link);
    dereg_all(iface, mr->mr);
    free(mr);
}

static bool covers(const struct sl_verbs_mr *mr, const uint8_t *addr, size_t len)
{
    return addr >= mr->addr && len <= mr->len && (size_t)(addr - mr->addr) <= mr->len - len;
}

struct sl_verbs_mr *sl_verbs_mr_find(struct sl_verbs_iface *iface, const void *addr, size_t len)
{
    if (iface->last_mr != NULL && covers(iface->last_mr, addr, len))
        return iface->last_mr;
    sl_list_foreach (&iface->mrs, node) {
        struct sl_verbs_mr *mr = sl_container_of(node, struct sl_verbs_mr, link);

        if (covers(mr, addr, len)) {
            iface->last_mr = mr;
            return mr;
        }
    }
    return NULL;
}
