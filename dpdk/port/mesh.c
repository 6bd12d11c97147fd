/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh:DIR, a memif port from each rank of a host to each other one:
 *
 *   rank 0  listens at DIR/0 for   1  2  3 ...
 *   rank 1  connects to DIR/0, and listens at DIR/1 for   2  3 ...
 *
 * Of two ranks the lower one is the server. A socket's connections are told apart by memif's id,
 * which is the number of the higher rank.
 */
#include "core/err.h"
#include "dpdk/port/spec.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static int mesh_port(const struct sl_dpdk_entry *entry, const char *dir, int own, int peer,
                     struct sl_dpdk_spec *out)
{
    bool serves = own < peer;
    int low = serves ? own : peer, high = serves ? peer : own;

    *out = entry->options;
    out->kind = SL_DPDK_VDEV;
    snprintf(out->name, sizeof(out->name), "net_memif_%08x_%d_%d", sl_dpdk_hash(dir), own,
             peer); /* a process may be in several meshes */
    snprintf(out->args, sizeof(out->args), "role=%s,id=%d,socket=%s/%d,socket-abstract=no",
             serves ? "server" : "client", high, dir, low);
    return sl_dpdk_memif_defaults(out, 0); /* the other end is such a port, too */
}

int sl_dpdk_mesh_expand(const struct sl_dpdk_entry *entry,
                        const struct sl_dpdk_port_settings *settings, struct sl_dpdk_spec *out,
                        size_t cap, size_t *count)
{
    int own = entry->rank >= 0 ? entry->rank : settings->local_rank;
    int ranks = entry->ranks >= 0 ? entry->ranks : settings->local_count;
    const char *dir = entry->device + 5;
    size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/16");
    bool has_gateway6 = memcmp(entry->options.gateway6, (const uint8_t[16]){0}, 16) != 0;
    size_t at = 0;

    if (*dir != '/' || strchr(dir, ',') != NULL || strlen(dir) > most)
        return sl_fail(
            -EINVAL,
            "DPDK port '%s' should name a folder by its whole path, without commas, with "
            "up to %zu bytes",
            entry->device, most);
    if (entry->options.segment[0] != '\0' || entry->options.ip[0] != 0 ||
        entry->options.gateway[0] != 0 || entry->options.prefix6 != 0 || has_gateway6)
        return sl_fail(-EINVAL, "DPDK port '%s' is many ports: it has no @ip, @gw or @segment",
                       entry->device);
    if (ranks == SL_DPDK_COUNT_ANY)
        ranks = own > 0 ? own + 1 : 2;
    if (own < 0 || ranks <= 0)
        return sl_fail(-EINVAL,
                       "DPDK port '%s' needs to know which rank of how many on this host this is: "
                       "add @rank=N@ranks=N, or start it by a launcher that tells it",
                       entry->device);
    if (ranks < 2 || own >= ranks || ranks > SL_DPDK_PORTS_MAX + 1)
        return sl_fail(-EINVAL,
                       "DPDK port '%s' is for 2 to %d ranks of a host, and this is %d of %d",
                       entry->device, SL_DPDK_PORTS_MAX + 1, own, ranks);
    *count = (size_t)ranks - 1;
    if (*count > cap)
        return 0;
    for (int peer = 0; peer < ranks; peer++) {
        int err = peer != own ? mesh_port(entry, dir, own, peer, out + at++) : 0;
        if (err != 0)
            return err;
    }
    return 0;
}
