/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets that an interface listens on: one for each published address, all by one port. */
#include "tcp/conn.h"
#include "tcp/config.h"

#include "core/log.h"
#include "core/port_range.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 1024
#define PORT_TRIES 64

static void choose_congestion(struct sl_tcp_iface *iface, int fd)
{
    const char *want = sl_tcp_config(iface->config)->congestion;
    socklen_t len = sizeof(iface->congestion) - 1;

    if (strcmp(want, "system") != 0) {
        const char *name = strcmp(want, "auto") == 0 ? "cubic" : want;

        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0 &&
            strcmp(want, "auto") != 0)
            sl_warn(
                "tcp",
                "congestion control '%s' is not to be had (%s); net.ipv4.tcp_available_congestion_"
                "control lists what is",
                name, sluice_strerror(-errno));
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, iface->congestion, &len) != 0)
        iface->congestion[0] = '\0';
}

/* A socket that listens at that address and *port; 0: any, and *port tells which. */
static int listen_at(struct sl_tcp_iface *iface, const struct sockaddr_storage *at, uint16_t *port,
                     int *out)
{
    int fd = sl_tcp_socket_new(at->ss_family), err;

    if (fd < 0)
        return fd;
    if (iface->congestion[0] == '\0')
        choose_congestion(iface, fd);
    sl_tcp_tune_early(iface, fd);
    err = sl_sockaddr_listen(fd, at, port, BACKLOG, SL_PENDING_MS);
    if (err != 0)
        close(fd);
    else
        *out = fd;
    return err;
}

static void close_listeners(struct sl_tcp_iface *iface)
{
    for (unsigned i = 0; i < SL_TCP_ADDRS; i++)
        sl_tcp_watch_close(iface, &iface->listeners[i]);
}

/* At all published addresses, but those that are not usable yet: IPv6 takes a moment to find out
 * whether an address is alone. */
static int listen_everywhere(struct sl_tcp_iface *iface, uint16_t port)
{
    unsigned count = 0;
    int err = -EADDRNOTAVAIL;

    for (unsigned i = 0; i < iface->netifs.count && i < SL_TCP_ADDRS; i++) {
        struct sl_tcp_watch *watch = &iface->listeners[i];
        int fd = -1;

        err = listen_at(iface, &iface->netifs.items[i].addr, &port, &fd);
        if (err == -EADDRNOTAVAIL)
            continue;
        if (err == 0) {
            *watch = (struct sl_tcp_watch){.fd = fd, .kind = SL_TCP_WATCH_LISTENER};
            err = iface->engine_ops->add(iface->engine, watch);
            if (err != 0) {
                close(fd);
                watch->fd = -1;
            }
        }
        if (err != 0) {
            close_listeners(iface);
            return err;
        }
        count++;
    }
    iface->port = port;
    return count > 0 ? 0 : err;
}

static int listen_in_range(struct sl_tcp_iface *iface, const struct sl_port_range *range)
{
    /* Ranks of one host start at different places, so that they do not all fight for the first. */
    unsigned span = sl_port_range_count(range), start = (unsigned)getpid() % span;
    int err = 0;

    for (unsigned i = 0; i < span; i++) {
        err = listen_everywhere(iface, (uint16_t)(range->low + (start + i) % span));
        if (err != -EADDRINUSE)
            break;
    }
    if (err == 0)
        return 0;
    return sl_fail(err, "no port of SLUICE_PORT_RANGE %s can be listened on: %s",
                   iface->config->port_range, sluice_strerror(err));
}

int sl_tcp_listen(struct sl_tcp_iface *iface)
{
    struct sl_port_range range;
    int err = sl_port_range_parse(iface->config->port_range, &range);

    if (err != 0)
        return err;
    if (range.low != 0)
        return listen_in_range(iface, &range);
    err = -EADDRINUSE;
    /* A port that is free at the first address may be taken at another. */
    for (unsigned i = 0; i < PORT_TRIES && err == -EADDRINUSE; i++)
        err = listen_everywhere(iface, 0);
    return err == 0 ? 0 : sl_fail(err, "no port to listen on: %s", sluice_strerror(err));
}

void sl_tcp_listen_locally(struct sl_tcp_iface *iface)
{
    bool any = false;

    for (unsigned i = 0; i < iface->netifs.count && i < SL_TCP_ADDRS; i++)
        any |= iface->netifs.items[i].loopback && iface->listeners[i].fd >= 0;
    for (unsigned i = 0; any && i < iface->netifs.count && i < SL_TCP_ADDRS; i++)
        if (!iface->netifs.items[i].loopback)
            sl_tcp_watch_close(iface, &iface->listeners[i]);
    iface->local_only = true;
    if (any)
        sl_info("tcp", "listens on loopback alone: all ranks are on this host");
}

void sl_tcp_unlisten(struct sl_tcp_iface *iface)
{
    sl_tcp_pending_close(iface);
    close_listeners(iface);
    sl_pending_fini(&iface->pending_set);
}
