/* SPDX-License-Identifier: Apache-2.0 */
/* A hash with open addressing: numbers of flows to lanes. */
#include "dpdk/flows.h"

#include <stdlib.h>

#define ENTRIES_MIN 64

static struct sl_dpdk_flow_entry *place(const struct sl_dpdk_flows *flows, uint32_t number)
{
    uint32_t at = number * UINT32_C(0x9e3779b1);

    at ^= at >> 15;
    while (flows->entries[at & flows->mask].number != 0 &&
           flows->entries[at & flows->mask].number != number)
        at++;
    return &flows->entries[at & flows->mask];
}

static int grow(struct sl_dpdk_flows *flows)
{
    uint32_t cap = flows->entries == NULL ? ENTRIES_MIN : 2 * (flows->mask + 1);
    uint32_t old_cap = flows->entries == NULL ? 0 : flows->mask + 1;
    struct sl_dpdk_flow_entry *old = flows->entries, *entries = calloc(cap, sizeof(*entries));

    if (entries == NULL)
        return sl_fail(-ENOMEM, "no memory for a table of %u flows", cap);
    flows->entries = entries;
    flows->mask = cap - 1;
    for (uint32_t i = 0; i < old_cap; i++)
        if (old[i].number != 0)
            *place(flows, old[i].number) = old[i];
    free(old);
    return 0;
}

int sl_dpdk_flows_add(struct sl_dpdk_flows *flows, uint32_t number, struct sl_dpdk_lane *lane)
{
    if (flows->entries == NULL || 2 * (flows->count + 1) > flows->mask) {
        int err = grow(flows);

        if (err != 0)
            return err;
    }
    *place(flows, number) = (struct sl_dpdk_flow_entry){number, lane};
    flows->count++;
    return 0;
}

void sl_dpdk_flows_remove(struct sl_dpdk_flows *flows, uint32_t number)
{
    struct sl_dpdk_flow_entry *entry = flows->entries == NULL ? NULL : place(flows, number);

    flows->last = (struct sl_dpdk_flow_entry){0};
    if (entry == NULL || entry->number != number)
        return;
    flows->count--;
    *entry = (struct sl_dpdk_flow_entry){0};
    /* Those behind it in the same run may have been pushed there by it. */
    for (uint32_t i = (uint32_t)(entry - flows->entries) + 1;
         flows->entries[i & flows->mask].number != 0; i++) {
        struct sl_dpdk_flow_entry moved = flows->entries[i & flows->mask];

        flows->entries[i & flows->mask].number = 0;
        *place(flows, moved.number) = moved;
    }
}

struct sl_dpdk_lane *sl_dpdk_flows_look(struct sl_dpdk_flows *flows, uint32_t number)
{
    const struct sl_dpdk_flow_entry *entry = flows->entries == NULL ? NULL : place(flows, number);

    if (entry == NULL || entry->number != number || number == 0)
        return NULL;
    flows->last = *entry;
    return entry->lane;
}

void sl_dpdk_flows_fini(struct sl_dpdk_flows *flows)
{
    free(flows->entries);
    *flows = (struct sl_dpdk_flows){0};
}
