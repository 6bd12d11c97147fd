/* SPDX-License-Identifier: Apache-2.0 */
/* A sysfs of directories, files and links that the cases make, as some machines have it. */
#ifndef SL_TESTS_UTIL_SYSFS_TREE_H
#define SL_TESTS_UTIL_SYSFS_TREE_H

#include "core/host.h"
#include "core/sysfs.h"

#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char sysfs_tree[] = "/tmp/sluice-sysfs-XXXXXX";

/* All directories of a path below the tree. */
__attribute__((unused)) static void tree_dirs(const char *path)
{
    char full[PATH_MAX];

    snprintf(full, sizeof(full), "%s/%s", sysfs_tree, path);
    for (char *at = full + strlen(sysfs_tree) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    mkdir(full, 0700);
}

__attribute__((unused, format(printf, 2, 3))) static void tree_file(const char *path,
                                                                    const char *fmt, ...)
{
    char full[PATH_MAX], folder[PATH_MAX];
    va_list args;

    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    tree_dirs(folder);
    snprintf(full, sizeof(full), "%s/%s", sysfs_tree, path);
    FILE *file = fopen(full, "w");

    assert_non_null(file);
    va_start(args, fmt);
    vfprintf(file, fmt, args);
    va_end(args);
    fclose(file);
}

__attribute__((unused)) static void tree_link(const char *path, const char *target)
{
    char full[PATH_MAX], folder[PATH_MAX], to[PATH_MAX];

    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    tree_dirs(folder);
    tree_dirs(target);
    snprintf(full, sizeof(full), "%s/%s", sysfs_tree, path);
    snprintf(to, sizeof(to), "%s/%s", sysfs_tree, target);
    (void)unlink(full);
    assert_int_equal(symlink(to, full), 0);
}

__attribute__((unused)) static void tree_begin(void)
{
    strcpy(sysfs_tree + strlen(sysfs_tree) - 6, "XXXXXX");
    assert_non_null(mkdtemp(sysfs_tree));
    sl_sysfs_replace(sysfs_tree);
}

static int tree_remove(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status, (void)kind, (void)at;
    return remove(path);
}

__attribute__((unused)) static void tree_end(void)
{
    sl_sysfs_replace(NULL);
    nftw(sysfs_tree, tree_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* A PCI device, with the bridges above it: "pci0000:15/0000:15:01.0/0000:16:00.0". */
__attribute__((unused)) static void tree_pci(const char *path, int node)
{
    char at[PATH_MAX], place[PATH_MAX];

    snprintf(at, sizeof(at), "devices/%s", path);
    for (char *end = at + strlen(at); strchr(at + strlen("devices/"), '/') != NULL;
         end = strrchr(at, '/'), *end = '\0') {
        char link[PATH_MAX + 32];

        snprintf(link, sizeof(link), "%s/subsystem", at);
        tree_link(link, "bus/pci");
        snprintf(link, sizeof(link), "%s/numa_node", at);
        tree_file(link, "%d\n", node);
        snprintf(place, sizeof(place), "bus/pci/devices/%s", strrchr(at, '/') + 1);
        tree_link(place, at);
    }
}

/* An RDMA device on a PCI device. */
__attribute__((unused)) static void tree_rdma(const char *name, const char *path, int node)
{
    char link[PATH_MAX], target[PATH_MAX];

    tree_pci(path, node);
    snprintf(link, sizeof(link), "class/infiniband/%s/device", name);
    snprintf(target, sizeof(target), "devices/%s", path);
    tree_link(link, target);
}

/* A NUMA node with those cores; costs: of reaching each node that is there. */
__attribute__((unused)) static void tree_node(unsigned node, const char *cores, const char *costs)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "devices/system/node/node%u/cpulist", node);
    tree_file(path, "%s\n", cores);
    snprintf(path, sizeof(path), "devices/system/node/node%u/distance", node);
    tree_file(path, "%s\n", costs);
}

__attribute__((unused)) static void tree_nodes(const char *online)
{
    tree_file("devices/system/node/online", "%s\n", online);
}

/*
 * A DGX H100: two processors of 56 cores with two threads each; below each four root ports with a
 * switch, on which a GPU and the NIC of its number are; and NICs for storage, two to a processor.
 * GPUs are 0000:1b:00.0 and so on, as below.
 */
__attribute__((unused)) static const unsigned tree_dgx_bus[8] = {0x15, 0x37, 0x48, 0x59,
                                                                 0x97, 0xb7, 0xc7, 0xd7};

__attribute__((unused)) static const char *tree_dgx_gpu(unsigned gpu)
{
    static char address[32];

    snprintf(address, sizeof(address), "0000:%02x:00.0", tree_dgx_bus[gpu] + 6);
    return address;
}

__attribute__((unused)) static void tree_dgx(const char *nic, const char *storage)
{
    char path[PATH_MAX], name[64];

    tree_nodes("0-1");
    tree_node(0, "0-55,112-167", "10 21");
    tree_node(1, "56-111,168-223", "21 10");
    for (unsigned i = 0; i < 8; i++) {
        unsigned bus = tree_dgx_bus[i];

        snprintf(path, sizeof(path),
                 "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:00.0/0000:%02x:00.0", bus,
                 bus, bus + 1, bus + 2, bus + 3);
        snprintf(name, sizeof(name), "%s%u", nic, i);
        tree_rdma(name, path, i >= 4);
        snprintf(path, sizeof(path),
                 "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/0000:%02x:01.0/0000:%02x:00.0", bus,
                 bus, bus + 1, bus + 2, bus + 6);
        tree_pci(path, i >= 4);
    }
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", 0x26 + 0x80 * i,
                 0x26 + 0x80 * i, 0x29 + 0x80 * i);
        snprintf(name, sizeof(name), "%s%u", storage, i);
        tree_rdma(name, path, (int)i);
    }
}

#endif
