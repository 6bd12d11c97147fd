/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric of switches and adapters: nodes, ports, links with their speeds, and on which level each
 * switch is. Readers add nodes with their ports; sealing joins the two ends of each link.
 *
 * A leaf is a switch with an adapter of a host (an aggregation node inside of a switch is none); a
 * spine is next to leaves, and so on upwards.
 */
#ifndef SL_MONITOR_DIAGNOSIS_FABRIC_H
#define SL_MONITOR_DIAGNOSIS_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_FABRIC_NONE UINT32_MAX
#define SL_FABRIC_PORTS_MAX 65535 /* of a node */

enum sl_fabric_kind { SL_FABRIC_SWITCH, SL_FABRIC_ADAPTER, SL_FABRIC_ROUTER };
enum { SL_FABRIC_LEAF, SL_FABRIC_SPINE }; /* levels; above them 2, 3, ... */

struct sl_fabric_node {
    uint64_t guid;
    char *name;
    uint32_t port_count;        /* that it could have */
    uint32_t first_port, ports; /* that lead somewhere: in the fabric's */
    uint32_t level;             /* of a switch; else, or where no adapter is near, NONE */
    uint8_t kind;
    bool is_inside; /* an adapter inside of a switch: it is no host's */
};

struct sl_fabric_port {
    uint32_t node, number;
    uint64_t peer_guid;
    uint32_t peer_number;
    uint32_t peer;        /* index of the other end's port, after sealing */
    uint32_t lanes, mbps; /* mbps: of all lanes */
    uint8_t peer_kind;
};

struct sl_fabric {
    struct sl_fabric_node *nodes;
    struct sl_fabric_port *ports;
    uint32_t node_count, port_count;
    uint32_t node_cap, port_cap;
};

void sl_fabric_fini(struct sl_fabric *fabric);
/* The ports that are added next are of it. -ENOMEM, or -EBADMSG with a sentence. */
int sl_fabric_add_node(struct sl_fabric *fabric, enum sl_fabric_kind kind, uint64_t guid,
                       const char *name, uint32_t port_count);
int sl_fabric_add_port(struct sl_fabric *fabric, const struct sl_fabric_port *port);
/* Both ends of each link must be there, and be of one speed. */
int sl_fabric_seal(struct sl_fabric *fabric);

/* Switches of a level. */
uint32_t sl_fabric_count(const struct sl_fabric *fabric, uint32_t level);
/* Adapters' ports that are on leaves. */
uint32_t sl_fabric_leaf_ports(const struct sl_fabric *fabric);
/* Links of a switch that lead to a higher level. */
uint32_t sl_fabric_uplinks(const struct sl_fabric *fabric, uint32_t node);

#endif
