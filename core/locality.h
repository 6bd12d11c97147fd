/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far devices are from a rank: from its GPU, or, where it has none, from the cores that it may
 * use. What sysfs told is kept in struct sl_locality; the distance is computed from that alone.
 */
#ifndef SL_CORE_LOCALITY_H
#define SL_CORE_LOCALITY_H

#include "core/host.h"

#include <stdint.h>

struct sl_device;

#define SL_NODES_MAX 64 /* NUMA nodes; what is on others is at an unknown distance */

/* The nearest first. */
enum sl_distance_kind {
    SL_DISTANCE_SWITCH,   /* below the PCI switch of the GPU */
    SL_DISTANCE_SWITCHES, /* ... or below another one of the same root port */
    SL_DISTANCE_NODE,     /* the same root complex or NUMA node */
    SL_DISTANCE_OTHER,    /* another NUMA node */
    SL_DISTANCE_UNKNOWN,
};

struct sl_distance {
    enum sl_distance_kind kind;
    /* Of another node: what reaching its memory costs, by the firmware's table (a local access:
     * 10). 0: not known, or not asked. */
    unsigned cost;
};

/* Where a rank is. */
struct sl_locality {
    uint64_t nodes;             /* of the cores that it may use, a bit each; 0: not known */
    char gpu_path[256];         /* of its GPU in sysfs; "": it has none, or none that is there */
    int gpu_node;               /* that its GPU is on; -1: not known */
    uint8_t cost[SL_NODES_MAX]; /* of each node, seen from where the rank is */
};

/* Reads where a rank is that may use these cores, and computes on the GPU with that PCI address
 * ("0000:1b:00.0"), or NULL. */
void sl_locality_read(const uint64_t cores[SL_CPU_WORDS], const char *gpu, struct sl_locality *out);

/* Of a device, by its pci_path and numa_node. */
struct sl_distance sl_locality_distance(const struct sl_locality *rank,
                                        const struct sl_device *device);

/* Less than, equal to or greater than 0. */
static inline int sl_distance_compare(const struct sl_distance *a, const struct sl_distance *b)
{
    return a->kind != b->kind ? (int)a->kind - (int)b->kind : (int)a->cost - (int)b->cost;
}

#endif
