/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interfaces that af_xdp takes are one process's at a time. When a port closes, or does not open
 * since another process has the queue, the driver removes the XDP program of the interface, and
 * with it what all others of its queues receive.
 *
 * A name tells who has it: it is the network namespace's, as the interface is, and goes with the
 * process.
 */
#include "core/err.h"
#include "core/fork.h"
#include "dpdk/port/inside.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* That of another port of this process, for another queue; -1: there is none. */
static int share(const char *interface)
{
    for (unsigned i = 0; i < SL_DPDK_PORTS_MAX; i++) {
        const struct sl_dpdk_port *port = sl_dpdk_open_ports[i];
        char other[IFNAMSIZ];

        if (port != NULL && port->xdp_fd >= 0 &&
            sl_dpdk_arg(port->spec.args, "iface", other, sizeof(other)) &&
            strcmp(other, interface) == 0)
            return fcntl(port->xdp_fd, F_DUPFD_CLOEXEC, 0);
    }
    return -1;
}

/* A descriptor, or a negative errno. */
static int reserve(const char *interface)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}; /* abstract: no file */
    int len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "sluice-xdp-%s", interface);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);

    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&name, size) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

int sl_dpdk_xdp_reserve(const struct sl_dpdk_spec *spec, int *out)
{
    char interface[IFNAMSIZ];

    if (strncmp(spec->name, "net_af_xdp", 10) != 0 ||
        !sl_dpdk_arg(spec->args, "iface", interface, sizeof(interface)))
        return 0;
    int fd = share(interface);
    if (fd < 0)
        fd = reserve(interface);
    if (fd == -EADDRINUSE)
        return sl_fail(-EBUSY,
                       "DPDK port '%s' needs the interface '%s', which another process drives by "
                       "XDP: all queues of one are one process's",
                       spec->name, interface);
    if (fd < 0)
        return sl_fail(fd, "DPDK port '%s' cannot reserve the interface '%s': %s", spec->name,
                       interface, strerror(-fd));
    *out = sl_fork_closes(fd);
    return 0;
}
