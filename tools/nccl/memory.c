/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations, and putting them away while requests are under way. */
#include "tools/nccl/adapt.h"

#include "core/log.h"

#include <stdlib.h>

int sl_nccl_reg(struct sl_nccl_comm *comm, const struct sl_mem *mem, struct sl_nccl_mr **out)
{
    struct sl_nccl_mr *mr = calloc(1, sizeof(*mr));
    struct sl_iface *iface;
    int err = 0;

    if (!sl_fork_same(comm->engine->life)) {
        free(mr);
        return sl_fork_refuse();
    }
    if (mr == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a registration");
    mr->comm = comm;
    mr->addr = (uintptr_t)mem->addr;
    mr->len = mem->len;
    mr->is_gpu = !sl_mem_is_host(mem->kind);
    sl_nccl_lock(comm->engine);
    iface = mr->iface = comm->ep != NULL ? comm->ep->iface : NULL;
    if (mr->is_gpu && (iface == NULL || (iface->caps & SL_CAP_GPU) == 0))
        err = sl_fail(-ENOTSUP, "this connection's transport does not take GPU memory");
    else if (iface != NULL && mem->len > 0)
        err = iface->ops->mr_reg(iface, mem, &mr->mr, NULL);
    /* Host memory that a transport has no use for registering works as it is. */
    if (err == -ENOTSUP && !mr->is_gpu) {
        mr->mr = NULL;
        err = 0;
    }
    if (err == 0)
        sl_list_push_back(&comm->mrs, &mr->link);
    sl_nccl_unlock(comm->engine);
    if (err != 0) {
        free(mr);
        return err;
    }
    *out = mr;
    return 0;
}

/*
 * After an abort NCCL stops its progress with requests in flight, puts memory away, frees it, and
 * closes connections only then. So memory that is still lent takes its connection along: nothing
 * touches it afterwards.
 */
void sl_nccl_mr_end(struct sl_nccl_mr *mr)
{
    struct sl_nccl_comm *comm = mr->comm;

    if (mr->uses > 0 && comm->ep != NULL) {
        sl_info("nccl", "memory is deregistered while requests use it: their connection ends");
        sl_nccl_comm_cut(comm);
    }
    if (mr->mr != NULL)
        mr->iface->ops->mr_dereg(mr->iface, mr->mr);
    sl_list_remove(&mr->link);
    free(mr);
}

int sl_nccl_dereg(struct sl_nccl_comm *comm, struct sl_nccl_mr *mr)
{
    if (mr->comm != comm)
        return sl_fail(-EINVAL, "deregMr has memory that is registered for another connection");
    if (!sl_fork_same(comm->engine->life))
        return 0;
    sl_nccl_lock(comm->engine);
    sl_nccl_mr_end(mr);
    sl_nccl_unlock(comm->engine);
    return 0;
}
