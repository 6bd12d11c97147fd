/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a connection's paths. */
#include "verbs/verbs.h"
#include "multipath/conn.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char *state_of(const struct sl_mp_path *path)
{
    switch ((enum sl_mp_path_state)path->state) {
    case SL_MP_PATH_IDLE: return path->rail == NULL ? "resting" : "down";
    case SL_MP_PATH_OFFERED:
    case SL_MP_PATH_PINGING:
    case SL_MP_PATH_ACCEPTED: return "connecting";
    case SL_MP_PATH_UP: return path->failing ? "failing" : "up";
    case SL_MP_PATH_FENCING: return "fencing";
    }
    return "unknown";
}

/* "rxe0:1 > 198.51.100.2", "mlx5_bond_0:1@2 > 198.51.100.2": the peer's rail as it said last. */
static void name_of(const struct sl_mp_path *path, char *out, size_t cap)
{
    const struct sl_verbs_rail_info *info = &path->conn->peer.rails[path->remote_rail];
    union ibv_gid gid;
    char remote[INET6_ADDRSTRLEN] = "?";

    if (path->rail == NULL) {
        snprintf(out, cap, "tcp (fallback)");
        return;
    }
    memcpy(&gid, info->gid, sizeof(info->gid));
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)gid.raw))
        inet_ntop(AF_INET, gid.raw + 12, remote, sizeof(remote));
    else
        inet_ntop(AF_INET6, gid.raw, remote, sizeof(remote));
    if (path->lag_active != 0)
        snprintf(out, cap, "%.70s@%u > %s", path->rail->port.name, path->lag_active, remote);
    else
        snprintf(out, cap, "%.70s > %s", path->rail->port.name, remote);
}

static void tell(const struct sl_mp_path *path, struct sl_path_stat *out)
{
    const struct sl_mp_path_stats *stats = &path->stats;

    *out = (struct sl_path_stat){
        .peer = path->conn->base.peer,
        .number = path->rail == NULL ? -1 : path->idx,
        .sent_bytes = stats->sent_bytes,
        .sent_messages = stats->sent_messages,
        .received_bytes = stats->received_bytes,
        .received_messages = stats->received_messages,
        .resent = stats->resent,
        .failures = stats->failures,
        .ups = stats->ups,
    };
    memcpy(out->histogram, stats->histogram, sizeof(out->histogram));
    name_of(path, out->name, sizeof(out->name));
    snprintf(out->state, sizeof(out->state), "%s", state_of(path));
    snprintf(out->why, sizeof(out->why), "%s", path->why);
}

size_t sl_mp_stats(const struct sl_ep *base, struct sl_path_stat *out, size_t cap)
{
    const struct sl_mp_conn *conn = (const struct sl_mp_conn *)base;
    const struct sl_mp_path *fallback = sl_mp_fallback_past(conn);
    size_t count = 0;

    for (unsigned i = 0; i < conn->path_count; i++) {
        const struct sl_mp_path *path = conn->paths[i];

        if (path == NULL)
            continue;
        if (count < cap)
            tell(path, &out[count]);
        count++;
    }
    if (fallback != NULL && count++ < cap)
        tell(fallback, &out[count - 1]);
    return count;
}
