/* SPDX-License-Identifier: Apache-2.0 */
/* From the number of a flow, as its packets carry it, to its lane. */
#ifndef SL_DPDK_FLOWS_H
#define SL_DPDK_FLOWS_H

#include "core/err.h"

#include <stddef.h>
#include <stdint.h>

struct sl_dpdk_lane;

struct sl_dpdk_flows {
    struct sl_dpdk_flow_entry {
        uint32_t number; /* 0: empty */
        struct sl_dpdk_lane *lane;
    } * entries;
    uint32_t mask, count;
    struct sl_dpdk_flow_entry last; /* packets of one flow come one after the other */
};

/* -ENOMEM. */
int sl_dpdk_flows_add(struct sl_dpdk_flows *flows, uint32_t number, struct sl_dpdk_lane *lane);
void sl_dpdk_flows_remove(struct sl_dpdk_flows *flows, uint32_t number);
void sl_dpdk_flows_fini(struct sl_dpdk_flows *flows);
struct sl_dpdk_lane *sl_dpdk_flows_look(struct sl_dpdk_flows *flows, uint32_t number);

/* NULL: there is no such flow. number is not 0. */
static inline struct sl_dpdk_lane *sl_dpdk_flows_find(struct sl_dpdk_flows *flows, uint32_t number)
{
    if (SL_LIKELY(flows->last.number == number))
        return flows->last.lane;
    return sl_dpdk_flows_look(flows, number);
}

#endif
