/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a frame in the software switch, by the rules of struct sl_fabric_rule. */
#ifndef SL_TESTING_DPDK_FAULT_H
#define SL_TESTING_DPDK_FAULT_H

#include "testing/dpdk/fabric.h"

struct sl_fault {
    bool lost, twice, damaged, late;
    uint64_t delay_ns;
};

/* Every rule that names the frame draws for itself. frame has in and out. */
struct sl_fault sl_fault_draw(struct sl_fabric *fabric, const struct sl_fabric_frame *frame);
/* Another value of one bit behind the Ethernet header. */
void sl_fault_damage(struct sl_fabric *fabric, struct sl_fabric_frame *frame);
/* Sets "congestion experienced". False: its sender does not understand marks (not ECT), or it is
 * marked already. */
bool sl_fault_mark(struct sl_fabric_frame *frame);

/* The differentiated services code point; negative: the frame has none. */
int sl_fault_dscp(const struct sl_fabric_frame *frame);

#endif
