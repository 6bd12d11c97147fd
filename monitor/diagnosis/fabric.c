/* SPDX-License-Identifier: Apache-2.0 */
/* A fabric of switches and adapters. */
#include "monitor/diagnosis/fabric.h"
#include "core/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sl_fabric_fini(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->node_count; i++)
        free(fabric->nodes[i].name);
    free(fabric->nodes);
    free(fabric->ports);
    *fabric = (struct sl_fabric){0};
}

/* list: the address of a pointer to the first. */
static int grow(void *list, uint32_t *cap, uint32_t count, size_t size)
{
    void *old, *more;

    if (count < *cap)
        return 0;
    if (count >= UINT32_MAX / 4)
        return sl_fail(-EBADMSG, "a fabric has more than %u ports", UINT32_MAX / 4);
    memcpy(&old, list, sizeof(old));
    more = reallocarray(old, (size_t)count * 2 + 64, size);
    if (more == NULL)
        return sl_fail(-ENOMEM, "no memory for a fabric");
    memcpy(list, &more, sizeof(more));
    *cap = count * 2 + 64;
    return 0;
}

int sl_fabric_add_node(struct sl_fabric *fabric, enum sl_fabric_kind kind, uint64_t guid,
                       const char *name, uint32_t port_count)
{
    struct sl_fabric_node node = {.kind = (uint8_t)kind,
                                  .guid = guid,
                                  .port_count = port_count,
                                  .first_port = fabric->port_count,
                                  .level = SL_FABRIC_NONE};
    int err;

    if (port_count == 0 || port_count > SL_FABRIC_PORTS_MAX)
        return sl_fail(-EBADMSG, "%s has %u ports, not 1 to %d", name, port_count,
                       SL_FABRIC_PORTS_MAX);
    err = grow(&fabric->nodes, &fabric->node_cap, fabric->node_count, sizeof(*fabric->nodes));
    if (err != 0)
        return err;
    node.is_inside = kind == SL_FABRIC_ADAPTER && strstr(name, "Aggregation Node") != NULL;
    node.name = strdup(name);
    if (node.name == NULL)
        return sl_fail(-ENOMEM, "no memory for a fabric");
    fabric->nodes[fabric->node_count++] = node;
    return 0;
}

int sl_fabric_add_port(struct sl_fabric *fabric, const struct sl_fabric_port *port)
{
    struct sl_fabric_node *node;
    int err;

    if (fabric->node_count == 0)
        return sl_fail(-EBADMSG, "port %u is of no node", port->number);
    node = &fabric->nodes[fabric->node_count - 1];
    if (port->number == 0 || port->number > node->port_count)
        return sl_fail(-EBADMSG, "%s has %u ports, and none %u", node->name, node->port_count,
                       port->number);
    err = grow(&fabric->ports, &fabric->port_cap, fabric->port_count, sizeof(*fabric->ports));
    if (err != 0)
        return err;
    fabric->ports[fabric->port_count] = *port;
    fabric->ports[fabric->port_count].node = fabric->node_count - 1;
    fabric->ports[fabric->port_count].peer = SL_FABRIC_NONE;
    fabric->port_count++;
    node->ports++;
    return 0;
}

/* ---- both ends of a link ---- */

/* A port as each of its ends names it. */
struct end {
    uint64_t guid;
    uint32_t number, port;
    uint8_t kind;
};

static int by_end(const void *a, const void *b)
{
    const struct end *x = a, *y = b;

    if (x->guid != y->guid)
        return x->guid < y->guid ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static struct end end_of(const struct sl_fabric *fabric, uint32_t port)
{
    const struct sl_fabric_port *it = &fabric->ports[port];
    const struct sl_fabric_node *node = &fabric->nodes[it->node];

    return (struct end){node->guid, it->number, port, node->kind};
}

static int join(struct sl_fabric *fabric, const struct end *ends, uint32_t index)
{
    struct sl_fabric_port *port = &fabric->ports[index], *other;
    struct end wanted = {port->peer_guid, port->peer_number, 0, port->peer_kind};
    const struct end *found = bsearch(&wanted, ends, fabric->port_count, sizeof(*ends), by_end);
    const char *name = fabric->nodes[port->node].name;

    if (found == NULL)
        return sl_fail(-EBADMSG,
                       "port %u of %s leads to port %u of guid 0x%llx, which is not in the fabric: "
                       "it was not read to its end",
                       port->number, name, port->peer_number, (unsigned long long)port->peer_guid);
    other = &fabric->ports[found->port];
    if (other->peer_guid != fabric->nodes[port->node].guid || other->peer_number != port->number ||
        other->peer_kind != fabric->nodes[port->node].kind)
        return sl_fail(-EBADMSG, "port %u of %s leads to port %u of %s, but that leads elsewhere",
                       port->number, name, other->number, fabric->nodes[other->node].name);
    if (other->lanes != port->lanes || other->mbps != port->mbps)
        return sl_fail(-EBADMSG, "the two ends of the link at port %u of %s have not one speed",
                       port->number, name);
    port->peer = found->port;
    return 0;
}

static int join_all(struct sl_fabric *fabric)
{
    struct end *ends = reallocarray(NULL, (size_t)fabric->port_count + 1, sizeof(*ends));
    int err = 0;

    if (ends == NULL)
        return sl_fail(-ENOMEM, "no memory for a fabric");
    for (uint32_t i = 0; i < fabric->port_count; i++)
        ends[i] = end_of(fabric, i);
    qsort(ends, fabric->port_count, sizeof(*ends), by_end);
    for (uint32_t i = 1; err == 0 && i < fabric->port_count; i++)
        if (by_end(&ends[i - 1], &ends[i]) == 0)
            err = sl_fail(-EBADMSG, "port %u of %s is there twice", ends[i].number,
                          fabric->nodes[fabric->ports[ends[i].port].node].name);
    for (uint32_t i = 0; err == 0 && i < fabric->port_count; i++)
        err = join(fabric, ends, i);
    free(ends);
    return err;
}

/* ---- levels ---- */

static const struct sl_fabric_node *peer_of(const struct sl_fabric *fabric, uint32_t port)
{
    return &fabric->nodes[fabric->ports[fabric->ports[port].peer].node];
}

static bool is_leaf(const struct sl_fabric *fabric, const struct sl_fabric_node *node)
{
    for (uint32_t i = 0; i < node->ports; i++) {
        const struct sl_fabric_node *peer = peer_of(fabric, node->first_port + i);

        if (peer->kind == SL_FABRIC_ADAPTER && !peer->is_inside)
            return true;
    }
    return false;
}

/* Level after level, from the leaves on. */
static int find_levels(struct sl_fabric *fabric)
{
    uint32_t *queue = reallocarray(NULL, (size_t)fabric->node_count + 1, sizeof(*queue));
    uint32_t count = 0;

    if (queue == NULL)
        return sl_fail(-ENOMEM, "no memory for a fabric");
    for (uint32_t i = 0; i < fabric->node_count; i++) {
        struct sl_fabric_node *node = &fabric->nodes[i];

        if (node->kind != SL_FABRIC_SWITCH || !is_leaf(fabric, node))
            continue;
        node->level = SL_FABRIC_LEAF;
        queue[count++] = i;
    }
    for (uint32_t at = 0; at < count; at++) {
        const struct sl_fabric_node *node = &fabric->nodes[queue[at]];

        for (uint32_t i = 0; i < node->ports; i++) {
            uint32_t next = fabric->ports[fabric->ports[node->first_port + i].peer].node;

            if (fabric->nodes[next].kind != SL_FABRIC_SWITCH ||
                fabric->nodes[next].level != SL_FABRIC_NONE)
                continue;
            fabric->nodes[next].level = node->level + 1;
            queue[count++] = next;
        }
    }
    free(queue);
    return 0;
}

int sl_fabric_seal(struct sl_fabric *fabric)
{
    uint32_t switches = 0;
    int err = join_all(fabric);

    if (err != 0)
        return err;
    for (uint32_t i = 0; i < fabric->node_count; i++)
        switches += fabric->nodes[i].kind == SL_FABRIC_SWITCH;
    if (switches == 0 || fabric->port_count == 0)
        return sl_fail(-EBADMSG, "there is no switch in the fabric, and no link: it was looked at "
                                 "from a port that leads nowhere");
    return find_levels(fabric);
}

uint32_t sl_fabric_count(const struct sl_fabric *fabric, uint32_t level)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < fabric->node_count; i++)
        count += fabric->nodes[i].kind == SL_FABRIC_SWITCH && fabric->nodes[i].level == level;
    return count;
}

uint32_t sl_fabric_leaf_ports(const struct sl_fabric *fabric)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < fabric->port_count; i++)
        count += fabric->nodes[fabric->ports[i].node].level == SL_FABRIC_LEAF &&
                 peer_of(fabric, i)->kind == SL_FABRIC_ADAPTER;
    return count;
}

uint32_t sl_fabric_uplinks(const struct sl_fabric *fabric, uint32_t node)
{
    const struct sl_fabric_node *it = &fabric->nodes[node];
    uint32_t count = 0;

    for (uint32_t i = 0; i < it->ports; i++) {
        const struct sl_fabric_node *peer = peer_of(fabric, it->first_port + i);

        count += peer->kind == SL_FABRIC_SWITCH && peer->level != SL_FABRIC_NONE &&
                 it->level != SL_FABRIC_NONE && peer->level > it->level;
    }
    return count;
}
