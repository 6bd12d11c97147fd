/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs for the operations that a transport leaves out, and for all of a transport of another
 * Sluice. */
#include "core/transport.h"

#include "core/err.h"

#include <stdio.h>

const char *sl_ep_peer_name(const struct sl_ep *ep)
{
    static _Thread_local char name[24];

    if (ep->peer_name != NULL)
        return ep->peer_name;
    if (ep->peer < 0)
        return "the peer";
    snprintf(name, sizeof(name), "rank %d", ep->peer);
    return name;
}

static int absent(const char *op)
{
    return sl_fail(-ENOTSUP, "this transport has no %s", op);
}

static int foreign(void)
{
    return sl_fail(
        -ENOTSUP,
        "this transport was built for another Sluice, whose transports are not of version %u",
        SL_TRANSPORT_ABI);
}

static int foreign_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                         size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return foreign();
}

static int foreign_open(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out)
{
    (void)worker, (void)dev, (void)handler, (void)out;
    return foreign();
}

static int no_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                    size_t *count)
{
    (void)config, (void)out, (void)cap, (void)count;
    return absent("list of devices");
}

static int no_mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out)
{
    (void)iface, (void)len, (void)backed, (void)out;
    return absent("shareable memory");
}

static int no_mem_back(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    (void)iface, (void)mem, (void)off, (void)len;
    return absent("shareable memory");
}

static void no_mem_unback(struct sl_iface *iface, const struct sl_mem *mem, size_t off, size_t len)
{
    (void)iface, (void)mem, (void)off, (void)len;
}

static void no_mem_free(struct sl_iface *iface, struct sl_mem *mem)
{
    (void)iface, (void)mem;
}

static int no_mr_reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                     struct sl_key *key)
{
    (void)iface, (void)mem, (void)out, (void)key;
    return absent("memory registration");
}

static void no_mr_dereg(struct sl_iface *iface, struct sl_mr *mr)
{
    (void)iface, (void)mr;
}

static int no_channel_open(struct sl_ep *ep, uint32_t channel)
{
    (void)channel;
    return sl_fail(-ENOTSUP, "transport %s has no channels", ep->iface->ops->name);
}

static void no_channel_close(struct sl_ep *ep, uint32_t channel)
{
    (void)ep;
    (void)channel;
}

static uint64_t no_channel_traffic(const struct sl_ep *ep, uint32_t channel)
{
    (void)ep;
    (void)channel;
    return 0;
}

static bool no_channel_starves(const struct sl_ep *ep, uint32_t channel)
{
    (void)ep;
    (void)channel;
    return false;
}

static unsigned no_mem_gone(struct sl_iface *iface, void *addr, size_t len)
{
    (void)iface, (void)addr, (void)len;
    return 0;
}

static int no_map(struct sl_ep *ep, const struct sl_key *key, size_t len, void **out)
{
    (void)ep, (void)key, (void)out;
    return absent("mapping of peer memory");
}

static void no_unmap(struct sl_ep *ep, void *ptr)
{
    (void)ep, (void)ptr;
}

static int no_read(struct sl_ep *ep, uint64_t addr, void *dst, size_t len, struct sl_req *req)
{
    (void)ep, (void)addr, (void)dst, (void)len, (void)req;
    return absent("reads of peer memory");
}

static int no_ctrl(struct sl_ep *ep, const void *msg, size_t len)
{
    (void)ep, (void)msg, (void)len;
    return absent("control messages");
}

static int no_redial(struct sl_ep *ep, struct sl_req *req, struct sl_ep **out)
{
    (void)ep, (void)req, (void)out;
    return absent("way to connect again");
}

static int no_fd(struct sl_iface *iface)
{
    (void)iface;
    return absent("wake-up descriptor");
}

static int no_arm(struct sl_iface *iface)
{
    (void)iface;
    return absent("wake-up");
}

/* stop_listening, disarm */
static void ignore(struct sl_iface *iface)
{
    (void)iface;
}

static void no_wake(struct sl_ep *ep)
{
    (void)ep;
}

static void plain_describe(const struct sl_ep *ep, char *out, size_t cap)
{
    snprintf(out, cap, "%s", ep->iface->ops->name);
}

static size_t no_stats(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)
{
    (void)ep, (void)out, (void)cap;
    return 0;
}

const struct sl_transport_ops *sl_transport_complete(const struct sl_transport_ops *ops,
                                                     struct sl_transport_ops *out)
{
    if (ops->abi == SL_TRANSPORT_ABI)
        *out = *ops;
    else /* where its operations lie is not known */
        *out = (struct sl_transport_ops){
            .abi = ops->abi, .name = ops->name, .probe = foreign_probe, .open = foreign_open};
#define FILL(op, otherwise)                                                                        \
    if (out->op == NULL)                                                                           \
    out->op = otherwise
    FILL(probe, no_probe);
    FILL(mem_alloc, no_mem_alloc);
    FILL(mem_back, no_mem_back);
    FILL(mem_unback, no_mem_unback);
    FILL(mem_free, no_mem_free);
    FILL(mr_reg, no_mr_reg);
    FILL(mr_dereg, no_mr_dereg);
    FILL(mem_gone, no_mem_gone);
    FILL(map, no_map);
    FILL(unmap, no_unmap);
    FILL(channel_open, no_channel_open);
    FILL(channel_close, no_channel_close);
    FILL(channel_traffic, no_channel_traffic);
    FILL(channel_starves, no_channel_starves);
    FILL(ep_redial, no_redial);
    FILL(stop_listening, ignore);
    FILL(read, no_read);
    FILL(ctrl, no_ctrl);
    FILL(fd, no_fd);
    FILL(arm, no_arm);
    FILL(disarm, ignore);
    FILL(wake, no_wake);
    FILL(ep_describe, plain_describe);
    FILL(ep_stats, no_stats);
#undef FILL
    return out;
}
