/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA ports of this host as probes see them, in sysfs: what they are, and by which GIDs they can
 * be reached. */
#ifndef SL_MONITOR_PROBE_RAIL_H
#define SL_MONITOR_PROBE_RAIL_H

#include "monitor/probe_list.h"

#define SL_PROBE_DEVICE 64
#define SL_PROBE_UD_MOST 4096u /* the largest MTU */

struct sl_probe_rail_gid {
    uint8_t gid[16];
    unsigned index;
    uint8_t kind; /* enum sl_probe_gid */
};

struct sl_probe_rail {
    char device[SL_PROBE_DEVICE]; /* "mlx5_0" */
    unsigned port;
    char name[SL_PROBE_PORT_NAME]; /* "mlx5_0:1" */
    bool is_ib;
    char state[16]; /* "ACTIVE", "DOWN", ... */
    uint16_t lid;
    struct sl_probe_rail_gid gids[SL_PROBE_GID_KINDS]; /* the first of each kind */
    unsigned gid_count;
};

/* root: "/sys/class/infiniband". wanted, which may be NULL: only this GID counts. -ENODEV: there is
 * no such port, with a sentence. */
int sl_probe_rail_read(const char *root, const char *name, const uint8_t *wanted,
                       struct sl_probe_rail *out);
/* Ports that are ACTIVE, at most so many; those with longer names than a packet holds are left out.
 * How many. */
unsigned sl_probe_rails(const char *root, struct sl_probe_rail *out, unsigned most);
/* An address as a GID: ::ffff:192.0.2.1 for IPv4. */
void sl_probe_gid_text(const uint8_t gid[16], char *out, size_t cap); /* 48 bytes suffice */
/* Are both in one network of an interface of this host that has mine, or, on InfiniBand, of one
 * prefix? */
bool sl_probe_gid_is_near(uint8_t kind, const uint8_t mine[16], const uint8_t other[16]);

#endif
