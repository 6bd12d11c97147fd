/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport's interfaces, and the table of its operations. tcp.h lists the files. */
#include "tcp/tcp.h"
#include "tcp/config.h"

#include "core/host.h"
#include "core/log.h"
#include "core/sysfs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct sl_transport_ops sl_tcp_ops;

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    struct sl_netif_list chosen;
    char why[256];
    size_t n = 0;
    int err = sl_netif_find(config->interface, &chosen, why, sizeof(why));

    for (unsigned i = 0; err == 0 && i < chosen.count; i++) {
        const struct sl_netif *netif = &chosen.items[i];
        char addr[64];
        size_t at = 0;

        sl_sockaddr_host(&netif->addr, addr, sizeof(addr));
        while (at < n && at < cap && strcmp(out[at].name, netif->name) != 0)
            at++;
        if (at < n && at < cap) {
            size_t used = strlen(out[at].detail);

            snprintf(out[at].detail + used, sizeof(out[at].detail) - used, ", %s", addr);
            continue;
        }
        if (n < cap) {
            memset(&out[n], 0, sizeof(out[n]));
            snprintf(out[n].name, sizeof(out[n].name), "%s", netif->name);
            snprintf(out[n].detail, sizeof(out[n].detail), "%s", addr);
            out[n].speed = (uint64_t)netif->speed_mbit * 125000;
            out[n].reach = netif->loopback ? SL_REACH_HOST : SL_REACH_NETWORK;
            sl_sysfs_netif(netif->name, &out[n]);
        }
        n++;
    }
    if (err == 0)
        *count = n;
    return err;
}

static int choose_interfaces(struct sl_tcp_iface *iface, const struct sl_device *dev)
{
    const char *spec = dev != NULL ? dev->name : iface->config->interface;
    char why[256], names[256] = "";
    int err = sl_netif_find(spec, &iface->netifs, why, sizeof(why));

    if (err != 0)
        return err;
    for (unsigned i = 0; i < iface->netifs.count; i++) {
        char addr[64];

        sl_sockaddr_host(&iface->netifs.items[i].addr, addr, sizeof(addr));
        sl_text_add(names, sizeof(names), "%s%s (%s)", i > 0 ? ", " : "",
                    iface->netifs.items[i].name, addr);
    }
    sl_info("tcp", "publishes %s%s%s%s%s", names, spec[0] != '\0' ? ", chosen by " : "",
            dev != NULL       ? "the caller"
            : spec[0] != '\0' ? "SLUICE_INTERFACE"
                              : "",
            why[0] != '\0' ? "; left out: " : "", why);
    return 0;
}

static void close_iface(struct sl_iface *base)
{
    struct sl_tcp_iface *iface = sl_tcp_iface_of(base);

    if (base == NULL)
        return;
    sl_assert(sl_list_empty(&iface->eps));
    if (iface->engine != NULL) {
        if (iface->pending != NULL)
            sl_tcp_unlisten(iface);
        iface->engine_ops->close(iface->engine);
    }
    sl_tls_context_close(iface->tls);
    free(iface->pending);
    free(iface->staging);
    free(iface);
}

static int open_tls(struct sl_tcp_iface *iface)
{
    if (iface->config->tcp_tls != SL_ON)
        return 0;
    if (!iface->base.worker->has_session)
        return sl_fail(-EINVAL,
                       "SLUICE_TCP_TLS is on, but there is no secret to make keys of: set the same "
                       "SLUICE_SECRET on all ranks");
    return sl_tls_context_open(sl_tcp_config(iface->config)->tls_records,
                               sl_tcp_config(iface->config)->tls_cipher, &iface->tls);
}

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_tcp_iface *iface = calloc(1, sizeof(*iface));
    int err;

    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a tcp interface");
    iface->base = (struct sl_iface){
        .ops = NULL, .worker = worker, .caps = SL_CAP_WAKEUP | SL_CAP_CHANNELS, .eager_max = 16384};
    if (handler != NULL)
        iface->base.handler = *handler;
    iface->base.ops = sl_transport_complete(&sl_tcp_ops, &iface->ops);
    iface->config = worker->config;
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        iface->listeners[i].fd = -1;
    sl_list_init(&iface->eps);
    sl_list_init(&iface->active);
    sl_list_init(&iface->ready);
    sl_list_init(&iface->news);
    sl_host_id(iface->config, iface->host_id);
    sl_pending_init(&iface->pending_set, "tcp", SL_TCP_PENDING, &iface->pending_log);
    iface->pending = calloc(SL_TCP_PENDING, sizeof(*iface->pending));
    iface->staging = aligned_alloc(4096, SL_TCP_STAGING_BYTES + SL_TCP_GRANULE_MAX);
    if (iface->pending == NULL || iface->staging == NULL) {
        err = sl_fail(-ENOMEM, "no memory for a tcp interface");
        goto err_iface;
    }
    for (unsigned i = 0; i < SL_TCP_PENDING; i++)
        iface->pending[i].watch.fd = -1;
    err = choose_interfaces(iface, dev);
    err = err ?: open_tls(iface);
    if (err != 0)
        goto err_iface;
    err = sl_tcp_engine_open(sl_tcp_config(iface->config)->engine, &iface->engine_ops,
                             &iface->engine);
    if (err != 0)
        goto err_iface;
    err = sl_tcp_listen(iface);
    if (err != 0)
        goto err_iface;
    sl_info("tcp", "listens on port %u, engine %s, congestion control %s", iface->port,
            iface->engine_ops->name, iface->congestion);
    *out = &iface->base;
    return 0;

err_iface:
    close_iface(&iface->base);
    return err;
}

static void stop_listening(struct sl_iface *base)
{
    sl_tcp_unlisten(sl_tcp_iface_of(base));
}

const struct sl_transport_ops sl_tcp_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "tcp",
    .number = 3,
    .place = 30,
    .traits = SL_TRAIT_SIDEBAND,
    .config = &sl_tcp_section,
    .probe = probe,
    .open = open_iface,
    .close = close_iface,
    .ep_create = sl_tcp_ep_create,
    .ep_addr = sl_tcp_ep_addr,
    .ep_connect = sl_tcp_ep_connect,
    .ep_destroy = sl_tcp_ep_destroy,
    .ep_redial = sl_tcp_ep_redial,
    .channel_open = sl_tcp_channel_open,
    .channel_close = sl_tcp_channel_close,
    .channel_traffic = sl_tcp_channel_traffic,
    .channel_starves = sl_tcp_channel_starves,
    .stop_listening = stop_listening,
    .send = sl_tcp_send,
    .recv = sl_tcp_recv,
    .ctrl = sl_tcp_ctrl,
    .progress = sl_tcp_progress,
    .fd = sl_tcp_wake_fd,
    .arm = sl_tcp_arm,
    .ep_describe = sl_tcp_ep_describe,
    .ep_stats = sl_tcp_ep_stats,
};
