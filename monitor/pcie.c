/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/pcie.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MOST 32 /* PCI Express Base Specification, 7.5.3.6 */

uint32_t sl_mon_pcie_speed(const char *text)
{
    char *end;
    double giga = strtod(text, &end);

    if (end == text || strncmp(end, " GT/s", 5) != 0 || !(giga >= 2.5 && giga <= 1024))
        return 0;
    return (uint32_t)(giga * 1000);
}

uint32_t sl_mon_pcie_lanes(const char *text)
{
    char *end;
    unsigned long lanes = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || (*end != '\0' && *end != '\n') || lanes > LANES_MOST)
        return 0;
    return (uint32_t)lanes;
}

bool sl_mon_pcie_kind(const char *text, enum sl_mon_kind *out)
{
    unsigned long class = strtoul(text, NULL, 16);

    switch (class >> 16) {
    case 0x02: *out = SL_MON_NIC; return true;
    case 0x03:
    case 0x12: *out = SL_MON_GPU; return true;
    default: return false;
    }
}

static uint32_t less(uint32_t left, uint32_t right)
{
    if (left == 0 || right == 0)
        return left + right;
    return left < right ? left : right;
}

struct sl_mon_pcie_link sl_mon_pcie_common(struct sl_mon_pcie_link device,
                                           struct sl_mon_pcie_link slot)
{
    return (struct sl_mon_pcie_link){.mega_transfers =
                                         less(device.mega_transfers, slot.mega_transfers),
                                     .lanes = less(device.lanes, slot.lanes)};
}

void sl_mon_pcie_judge(struct sl_mon *mon, struct sl_mon_subject *subject,
                       struct sl_mon_pcie_link now, struct sl_mon_pcie_link most)
{
    enum sl_mon_check check =
        subject->kind == SL_MON_GPU ? SL_MON_CHECK_GPU_PCIE : SL_MON_CHECK_NIC_PCIE;
    bool is_narrow = now.lanes != 0 && now.lanes < most.lanes;
    bool is_slow = now.mega_transfers != 0 && now.mega_transfers < most.mega_transfers;
    bool may_be_slow = subject->kind == SL_MON_GPU && !sl_mon_in_use(mon, subject);
    struct sl_mon_evidence evidence = {.source = "sysfs", .before = most.lanes, .after = now.lanes};

    if (now.lanes == 0 || most.lanes == 0)
        return; /* a virtual machine's, or one that sleeps: nobody knows */
    if (!is_narrow && is_slow && may_be_slow)
        return;
    snprintf(evidence.text, sizeof(evidence.text),
             "its PCIe link has %u lanes of %.1f GT/s, and both ends can %u of %.1f", now.lanes,
             now.mega_transfers / 1e3, most.lanes, most.mega_transfers / 1e3);
    sl_mon_sample(mon, subject, check, is_narrow || is_slow, &evidence);
}

void sl_mon_pcie_presence(struct sl_mon *mon, struct sl_mon_subject *nic,
                          const struct sl_mon_presence *presence)
{
    bool is_gone = presence->pci_gone && presence->class_gone;
    struct sl_mon_evidence evidence = {.source = "sysfs, rtnetlink"};

    if (is_gone && !presence->was_used)
        return;
    if (!is_gone && (presence->pci_gone || presence->class_gone))
        return; /* one source says so: a driver that was unbound, a file that cannot be read */
    snprintf(evidence.text, sizeof(evidence.text),
             "the device is not on the PCI bus, and its interface is gone too; it was in use");
    sl_mon_sample(mon, nic, SL_MON_CHECK_NIC_GONE, is_gone, &evidence);
}
