/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PCIe link of a NIC or GPU: is it as wide and as fast as both of its ends can be? And is the
 * device still there? What sysfs says in, samples out; no I/O.
 */
#ifndef SL_MONITOR_PCIE_H
#define SL_MONITOR_PCIE_H

#include "monitor/engine.h"

/* One state of a link; 0: not known. */
struct sl_mon_pcie_link {
    uint32_t mega_transfers; /* a second, each lane: 32000 of "32.0 GT/s PCIe" */
    uint32_t lanes;
};

/* "16.0 GT/s PCIe", "8 GT/s"; 0 of "Unknown" and all else. */
uint32_t sl_mon_pcie_speed(const char *text);
/* "16"; 0 of what is no number of lanes. */
uint32_t sl_mon_pcie_lanes(const char *text);
/* SL_MON_NIC, SL_MON_GPU of "0x020000", "0x030200", "0x120000"; false: it is neither. */
bool sl_mon_pcie_kind(const char *text, enum sl_mon_kind *out);

/* What two ends can: the less of both, where both are known. */
struct sl_mon_pcie_link sl_mon_pcie_common(struct sl_mon_pcie_link device,
                                           struct sl_mon_pcie_link slot);

/* A GPU that has nothing to do slows its link down: only under load its speed counts. */
void sl_mon_pcie_judge(struct sl_mon *mon, struct sl_mon_subject *subject,
                       struct sl_mon_pcie_link now, struct sl_mon_pcie_link most);

/* What two sources say of a NIC that was there: one is PCI (sysfs, or its configuration space),
 * the other the network's (rtnetlink) or RDMA's list of devices. */
struct sl_mon_presence {
    bool pci_gone, class_gone;
    bool was_used; /* when it was seen last: what carries nothing may be taken away */
};

void sl_mon_pcie_presence(struct sl_mon *mon, struct sl_mon_subject *nic,
                          const struct sl_mon_presence *presence);

#endif
