/* SPDX-License-Identifier: Apache-2.0 */
/* Where a device sits in this machine, as sysfs tells. */
#ifndef SL_CORE_SYSFS_H
#define SL_CORE_SYSFS_H

#include <stddef.h>

struct sl_device;

/* Fills in pci_path and numa_node of the PCI device that a directory of sysfs belongs to: itself,
 * or the nearest above (virtio's device lies under one). None: "" and -1. */
void sl_sysfs_pci(const char *directory, struct sl_device *out);

/* The same for a network interface, with its MAC address as guid. */
void sl_sysfs_netif(const char *name, struct sl_device *out);

#endif
