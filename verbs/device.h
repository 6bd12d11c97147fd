/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, ports and GIDs: what there is, what is usable, and why the rest is not. */
#ifndef SL_VERBS_DEVICE_H
#define SL_VERBS_DEVICE_H

#include "core/locality.h"
#include "multipath/frame.h"
#include "verbs/ibv_dl.h"
#include "multipath/pairs.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_config;

#define SL_VERBS_PORTS_MAX 32
#define SL_VERBS_GIDS_MAX 64
#define SL_VERBS_PKEYS_MAX 128
#define SL_VERBS_NAME_MAX 80 /* "mlx5_0:1" */
#define SL_VERBS_WHY_MAX 256

enum sl_verbs_gid_type { SL_VERBS_GID_IB, SL_VERBS_GID_ROCE_V1, SL_VERBS_GID_ROCE_V2 };

struct sl_verbs_gid {
    union ibv_gid gid;
    uint8_t index;
    uint8_t type;       /* enum sl_verbs_gid_type */
    bool is_v4;         /* an IPv4 address inside (::ffff:a.b.c.d) */
    bool is_link_local; /* fe80::/10, or 169.254/16 */
    /* RoCE v2, and its interface does not have that address: nobody answers for it */
    bool is_orphan;
    uint32_t netdev;    /* interface index, 0: unknown */
    uint8_t prefix_len; /* of that address on its interface; 0: unknown */
};

/* An entry of a port's table of P_Keys (pkey.h). */
struct sl_verbs_pkey {
    uint16_t key, index;
};

/* One port as it was last looked at. */
struct sl_verbs_port {
    char name[SL_VERBS_NAME_MAX]; /* "rxe0:1"; only the device's where it could not be opened */
    char device[IBV_SYSFS_NAME_MAX];
    uint8_t num;
    uint8_t state;      /* enum ibv_port_state */
    uint8_t link_layer; /* IBV_LINK_LAYER_* */
    uint8_t mtu;        /* enum ibv_mtu, active */
    uint8_t node_type;  /* enum ibv_node_type: iWARP has IBV_NODE_RNIC */
    uint16_t lid;
    uint8_t lmc;    /* InfiniBand: it has 2^lmc LIDs, from lid on */
    uint64_t speed; /* bytes per second, 0: unknown */
    unsigned gid_count;
    struct sl_verbs_gid gids[SL_VERBS_GIDS_MAX];
    unsigned pkey_count;
    struct sl_verbs_pkey pkeys[SL_VERBS_PKEYS_MAX];
    char why[SL_VERBS_WHY_MAX]; /* not empty: not usable, and why, as a sentence part */
    bool takes_dmabuf; /* GPU memory can be registered with its device, as far as that goes */
    /* of a device that can be used: it lacks but a link, a GID, a subnet manager */
    bool may_return;
    struct sl_distance distance; /* from this rank */
    int node;                    /* NUMA node, -1: not known */
    /* others are nearer, so this one carries nothing while any of them can */
    bool is_far;
    uint16_t place; /* among those that are or may become usable: the order of rails */
};

/* "ACTIVE", "DOWN" (enum ibv_port_state). */
const char *sl_verbs_state_name(uint8_t state);

/* Reads everything about a port anew. 0, or -ENODEV: its device is gone; -EIO: it cannot be read.
 */
int sl_verbs_port_read(const struct sl_ibv *ibv, struct ibv_context *context, uint8_t num,
                       struct sl_verbs_port *out);

/*
 * Chooses the GID of a port: by SLUICE_VERBS_GID_INDEX when set, otherwise orphans last, then by
 * type (RoCE v2 before v1), routable addresses before link-local ones, IPv4 before IPv6 unless
 * SLUICE_VERBS_GID_FAMILY says otherwise, then the lowest index. -ENODEV: none; the text says what
 * there is and what was asked for.
 */
int sl_verbs_gid_choose(const struct sl_config *config, const struct sl_verbs_port *port,
                        struct sl_verbs_gid *out);

/* As above, but only GIDs that reach the peer's: same type and family, and same subnet where both
 * prefixes are known (another subnet only if the list holds nothing better). */
int sl_verbs_gid_choose_for(const struct sl_config *config, const struct sl_verbs_port *port,
                            const struct sl_verbs_gid *peer, struct sl_verbs_gid *out);

/* Do a and b reach each other directly? */
bool sl_verbs_gid_same_subnet(const struct sl_verbs_gid *a, const struct sl_verbs_gid *b);

/* What a and b, of the same type and family, say of the way between them. A link-local address of
 * Ethernet says nothing: every link has the same subnet. */
enum sl_mp_reach sl_verbs_gid_reach(const struct sl_verbs_gid *a, const struct sl_verbs_gid *b);

/* "192.0.2.1 (RoCE v2)", "fe80::1 (RoCE v1)". */
void sl_verbs_gid_text(const struct sl_verbs_gid *gid, char *out, size_t cap);

/*
 * All ports of all devices, in the order in which they should be used: up to cap, *count how many
 * there are. Those with an empty why are usable, and come first: as SLUICE_VERBS_DEVICES lists
 * them, then by name, but those with less than a quarter of the fastest one's speed after the
 * others. Opens and closes devices. -ENOTSUP: no libibverbs. -ENODEV: no device at all; the text
 * says what to load.
 */
int sl_verbs_ports_list(const struct sl_config *config, struct sl_verbs_port *out, size_t cap,
                        size_t *count);

/*
 * Leaves of such a list at most cap ports that should be rails, and returns how many: usable ones,
 * and if there is room those that may become usable. They stand in the order of their place, so
 * that rails of equal hosts have equal numbers, whichever cable is out. Without any usable one
 * there are none.
 */
size_t sl_verbs_ports_pick(struct sl_verbs_port *ports, size_t count, size_t cap);

/* Does name ("mlx5_0:1", "mlx5_0") match SLUICE_VERBS_DEVICES: "mlx5_0:1,mlx5_2", "^mlx5_3",
 * "mlx5_*", ""? A device alone matches too where a port of it may. */
bool sl_verbs_name_allowed(const char *list, const char *name);

#endif
