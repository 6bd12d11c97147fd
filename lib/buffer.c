/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that peers can map, and registration of the user's own. */
#include "gdr/gpu.h"
#include "lib/api.h"

#include <stdlib.h>
#include <string.h>

/* One allocation or registration: a region per interface that had a use for it. */
struct sluice_buffer {
    struct sl_node link;
    struct sl_mem mem;
    struct sl_iface *owner; /* of allocated memory; NULL: plain memory, or the user's */
    struct sl_mr *mr[SL_IFACES_MAX];
};

static void deregister_all(struct sluice_comm *comm, struct sluice_buffer *buffer)
{
    for (unsigned i = 0; i < comm->worker->slot_count; i++)
        if (buffer->mr[i] != NULL && comm->worker->slots[i].iface != NULL)
            comm->worker->slots[i].ops->mr_dereg(comm->worker->slots[i].iface, buffer->mr[i]);
}

/* With every interface that has a use for it: how many, or the error of one that has but failed. */
static int register_all(struct sluice_comm *comm, struct sluice_buffer *buffer)
{
    int count = 0;

    for (unsigned i = 0; i < comm->worker->slot_count; i++) {
        struct sl_iface_slot *slot = &comm->worker->slots[i];

        if (slot->iface == NULL)
            continue;
        int err = slot->ops->mr_reg(slot->iface, &buffer->mem, &buffer->mr[i], NULL);

        if (err == 0) {
            count++;
        } else if (err != -ENOTSUP) {
            deregister_all(comm, buffer);
            return err;
        }
    }
    return count;
}

/* Regions of ours that lay in memory that goes away, over all interfaces. */
static unsigned tell_gone(struct sluice_comm *comm, void *addr, size_t len)
{
    unsigned in_use = 0;

    for (unsigned i = 0; i < comm->worker->slot_count; i++)
        if (comm->worker->slots[i].iface != NULL)
            in_use += comm->worker->slots[i].ops->mem_gone(comm->worker->slots[i].iface, addr, len);
    return in_use;
}

static int alloc_memory(struct sluice_comm *comm, size_t len, struct sluice_buffer *buffer)
{
    for (unsigned i = 0; i < comm->worker->slot_count; i++) {
        struct sl_iface *iface = comm->worker->slots[i].iface;

        if (iface == NULL || (iface->caps & SL_CAP_MAP) == 0)
            continue;
        buffer->owner = iface;
        return iface->ops->mem_alloc(iface, len, len, &buffer->mem);
    }
    buffer->mem = (struct sl_mem){.len = len, .fd = -1};
    if (posix_memalign(&buffer->mem.addr, 4096, len) != 0)
        return sl_fail(-ENOMEM, "no memory for a buffer of %zu bytes", len);
    memset(buffer->mem.addr, 0, len);
    return 0;
}

static void free_memory(struct sluice_comm *comm, struct sluice_buffer *buffer)
{
    tell_gone(comm, buffer->mem.addr, buffer->mem.len);
    if (buffer->owner != NULL)
        buffer->owner->ops->mem_free(buffer->owner, &buffer->mem);
    else
        free(buffer->mem.addr);
}

int sluice_alloc(struct sluice_comm *comm, size_t len, void **out)
{
    if (out != NULL)
        *out = NULL;
    if (comm == NULL || out == NULL || len == 0)
        return sl_fail(-EINVAL,
                       "sluice_alloc: communicator, length or place for the result is missing");
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    struct sluice_buffer *buffer = calloc(1, sizeof(*buffer));

    if (buffer == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a buffer");
    sl_enter(comm);
    int err = alloc_memory(comm, len, buffer);

    if (err != 0)
        goto err_buffer;
    err = register_all(comm, buffer);
    if (err < 0)
        goto err_memory;
    sl_list_push_back(&comm->buffers, &buffer->link);
    *out = buffer->mem.addr;
    sl_leave(comm);
    return 0;

err_memory:
    free_memory(comm, buffer);
err_buffer:
    sl_leave(comm);
    free(buffer);
    return err;
}

void sluice_free(struct sluice_comm *comm, void *ptr)
{
    if (comm == NULL || ptr == NULL || !sl_fork_same(comm->life))
        return;
    sl_enter(comm);
    sl_list_foreach(&comm->buffers, node)
    {
        struct sluice_buffer *buffer = sl_container_of(node, struct sluice_buffer, link);

        if (buffer->mem.addr != ptr)
            continue;
        sl_list_remove(&buffer->link);
        deregister_all(comm, buffer);
        free_memory(comm, buffer);
        free(buffer);
        break;
    }
    sl_leave(comm);
}

int sluice_register(struct sluice_comm *comm, void *ptr, size_t len, struct sluice_buffer **out)
{
    if (out != NULL)
        *out = NULL;
    if (comm == NULL || ptr == NULL || len == 0 || out == NULL)
        return sl_fail(-EINVAL,
                       "sluice_register: communicator, memory or place for the result is missing");
    if (sl_gpu_look(ptr, NULL))
        return sl_fail(-EINVAL,
                       "sluice_register: %p is GPU memory, which is sent by codecs alone and from "
                       "host memory: calls that are compressed take it as it is, others do not",
                       ptr);
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    struct sluice_buffer *buffer = calloc(1, sizeof(*buffer));

    if (buffer == NULL)
        return sl_fail(-ENOMEM, "no memory for the record of a buffer");
    buffer->mem = (struct sl_mem){.addr = ptr, .len = len, .fd = -1};
    sl_enter(comm);
    int count = register_all(comm, buffer);

    sl_leave(comm);
    if (count > 0) {
        *out = buffer;
        return 0;
    }
    free(buffer);
    return count < 0
               ? count
               : sl_fail(-ENOTSUP, "no transport of this communicator registers memory; plain "
                                   "memory works as well");
}

void sluice_deregister(struct sluice_comm *comm, struct sluice_buffer *buffer)
{
    if (comm == NULL || buffer == NULL || !sl_fork_same(comm->life))
        return;
    sl_enter(comm);
    deregister_all(comm, buffer);
    sl_leave(comm);
    free(buffer);
}

int sluice_memory_gone(struct sluice_comm *comm, void *ptr, size_t len)
{
    if (comm == NULL || (ptr == NULL && len != 0))
        return sl_fail(-EINVAL, "sluice_memory_gone: communicator or memory is missing");
    if (len == 0)
        return 0;
    if (sl_check_process(comm) != 0)
        return -EINVAL;
    sl_enter(comm);
    unsigned in_use = tell_gone(comm, ptr, len);

    sl_leave(comm);
    return in_use == 0 ? 0
                       : sl_fail(-EBUSY,
                                 "sluice_memory_gone: %u registrations of the %zu bytes at %p were "
                                 "not given back by sluice_deregister() before the memory went",
                                 in_use, len, ptr);
}
