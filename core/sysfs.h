/* SPDX-License-Identifier: Apache-2.0 */
/* Where a device sits in this machine, as sysfs tells. */
#ifndef SL_CORE_SYSFS_H
#define SL_CORE_SYSFS_H

#include "core/err.h"

#include <stddef.h>

struct sl_device;

/* A path below sysfs: "class/net/eth0/address" becomes "/sys/class/net/eth0/address". */
void sl_sysfs_path(char *out, size_t cap, const char *fmt, ...) SL_PRINTF(3, 4);

/* Fills in pci_path and numa_node of the PCI device that a directory of sysfs belongs to: itself,
 * or the nearest above (virtio's device lies under one). None: "" and -1. */
void sl_sysfs_pci(const char *directory, struct sl_device *out);

/* The same for a network interface, with its MAC address as guid. */
void sl_sysfs_netif(const char *name, struct sl_device *out);

/* For tests: from now on sysfs is this directory. NULL: the machine's own. */
void sl_sysfs_replace(const char *root);

#endif
