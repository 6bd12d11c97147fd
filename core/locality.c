/* SPDX-License-Identifier: Apache-2.0 */
/* How far devices are from a rank. */
#include "core/locality.h"

#include "core/sysfs.h"
#include "core/transport.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 4096 /* of a file that lists cores or nodes */

/* ---- what sysfs tells ---- */

/* Calls visit with each number of a list such as "0-3,8,10-11", up to max. */
static void list_read(const char *text, long max, void (*visit)(void *arg, long number), void *arg)
{
    while (*text >= '0' && *text <= '9') {
        char *end;
        long first = strtol(text, &end, 10), last = first;

        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long i = first; i <= last && i <= max; i++)
            visit(arg, i);
        text = *end == ',' ? end + 1 : end;
    }
}

struct cores {
    const uint64_t *mine;
    bool has_one;
};

static void look_at_core(void *arg, long core)
{
    struct cores *cores = arg;

    cores->has_one |= (cores->mine[core / 64] >> core % 64 & 1) != 0;
}

struct reading {
    const uint64_t *cores;
    struct sl_locality *out;
    long nodes[SL_NODES_MAX]; /* that are there, in the order of their numbers */
    unsigned count;
};

static void look_at_node(void *arg, long node)
{
    struct reading *reading = arg;
    struct cores cores = {.mine = reading->cores};
    char path[PATH_MAX], list[LIST_MAX];

    if (reading->count < SL_NODES_MAX)
        reading->nodes[reading->count++] = node;
    sl_sysfs_path(path, sizeof(path), "devices/system/node/node%ld/cpulist", node);
    if (sl_host_line(path, list, sizeof(list)))
        list_read(list, SL_CPU_WORDS * 64 - 1, look_at_core, &cores);
    if (cores.has_one)
        reading->out->nodes |= UINT64_C(1) << node;
}

/* The costs stand in the order of the nodes that are there; the least one counts for a rank on
 * several. */
static void read_costs(struct reading *reading, int from)
{
    char path[PATH_MAX], line[LIST_MAX], *at = line, *end;

    sl_sysfs_path(path, sizeof(path), "devices/system/node/node%d/distance", from);
    if (!sl_host_line(path, line, sizeof(line)))
        return;
    for (unsigned i = 0; i < reading->count; i++, at = end) {
        unsigned long cost = strtoul(at, &end, 10);
        uint8_t *least = &reading->out->cost[reading->nodes[i]];

        if (end == at)
            return;
        if (cost <= UINT8_MAX && (*least == 0 || cost < *least))
            *least = (uint8_t)cost;
    }
}

static void read_gpu(const char *address, struct sl_locality *out)
{
    char path[PATH_MAX];
    struct sl_device gpu;

    sl_sysfs_path(path, sizeof(path), "bus/pci/devices/%s", address);
    sl_sysfs_pci(path, &gpu);
    memcpy(out->gpu_path, gpu.pci_path, sizeof(out->gpu_path));
    out->gpu_node = gpu.numa_node;
}

void sl_locality_read(const uint64_t cores[SL_CPU_WORDS], const char *gpu, struct sl_locality *out)
{
    struct reading reading = {.cores = cores, .out = out};
    char path[PATH_MAX], list[LIST_MAX];

    _Static_assert(sizeof(out->gpu_path) == sizeof(((struct sl_device *)0)->pci_path), "copied");
    memset(out, 0, sizeof(*out));
    out->gpu_node = -1;
    if (gpu != NULL)
        read_gpu(gpu, out);
    sl_sysfs_path(path, sizeof(path), "devices/system/node/online");
    if (sl_host_line(path, list, sizeof(list)))
        list_read(list, SL_NODES_MAX - 1, look_at_node, &reading);
    for (int node = 0; node < SL_NODES_MAX; node++)
        if (out->gpu_path[0] != '\0' ? node == out->gpu_node : (out->nodes >> node & 1) != 0)
            read_costs(&reading, node);
}

/* ---- distance ---- */

/* Components of a path, and how many of them two paths have in common from the start. */
static unsigned depth_of(const char *path)
{
    unsigned depth = 0;

    for (; *path != '\0'; path++)
        depth += *path == '/';
    return depth;
}

static unsigned common_depth(const char *a, const char *b)
{
    unsigned depth = 0;

    for (; *a == *b && *a != '\0'; a++, b++)
        depth += *a == '/';
    return depth - ((*a == '\0' || *a == '/') && (*b == '\0' || *b == '/') ? 0 : 1);
}

/* The depth of a path's root complex: .../pci0000:15. */
static unsigned root_depth(const char *path)
{
    const char *root = strstr(path, "/pci");
    unsigned depth = 1;

    for (const char *at = path; at < root; at++)
        depth += *at == '/';
    return root != NULL ? depth : 0;
}

static struct sl_distance between_nodes(const struct sl_locality *rank, bool same, int node)
{
    if (same)
        return (struct sl_distance){.kind = SL_DISTANCE_NODE};
    return (struct sl_distance){.kind = SL_DISTANCE_OTHER, .cost = rank->cost[node]};
}

/* A switch is two levels: its port up, and a port down for each device below it. A port of the root
 * complex leads to one device or switch, so what has one in common is below it. */
static struct sl_distance from_gpu(const struct sl_locality *rank, const struct sl_device *device)
{
    const char *gpu = rank->gpu_path, *path = device->pci_path;
    unsigned root = root_depth(gpu), common = common_depth(gpu, path);
    bool is_known = device->numa_node >= 0 && device->numa_node < SL_NODES_MAX;

    if (path[0] != '\0' && root != 0 && common > root)
        return (struct sl_distance){.kind =
                                        common + 2 >= depth_of(gpu) && common + 2 >= depth_of(path)
                                            ? SL_DISTANCE_SWITCH
                                            : SL_DISTANCE_SWITCHES};
    if (path[0] != '\0' && root != 0 && common == root)
        return (struct sl_distance){.kind = SL_DISTANCE_NODE};
    if (rank->gpu_node < 0 || !is_known)
        return (struct sl_distance){.kind = SL_DISTANCE_UNKNOWN};
    return between_nodes(rank, device->numa_node == rank->gpu_node, device->numa_node);
}

struct sl_distance sl_locality_distance(const struct sl_locality *rank,
                                        const struct sl_device *device)
{
    int node = device->numa_node;

    if (rank->gpu_path[0] != '\0')
        return from_gpu(rank, device);
    if (rank->nodes == 0 || node < 0 || node >= SL_NODES_MAX)
        return (struct sl_distance){.kind = SL_DISTANCE_UNKNOWN};
    return between_nodes(rank, (rank->nodes >> node & 1) != 0, node);
}
