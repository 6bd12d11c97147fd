/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of DPDK: SLUICE_DPDK_*. */
#ifndef SL_DPDK_CONFIG_H
#define SL_DPDK_CONFIG_H

#include "core/config.h"
#include "multipath/config.h"

#define SL_DPDK_PORTS_BYTES 2048 /* of SLUICE_DPDK_PORTS: 16 virtual devices with their arguments */

/* In the order of their rows' choices. */
enum sl_dpdk_cc { SL_DPDK_CC_SWIFT, SL_DPDK_CC_TIMELY, SL_DPDK_CC_FIXED };

struct sl_dpdk_config {
    struct sl_mp_config mp;
    char ports[SL_DPDK_PORTS_BYTES], inject[SL_TEXT_MAX];
    enum sl_dpdk_cc cc;
    int64_t routes, mtu, window, target_us, rto_min_ms, timeout_ms, crc;
    int64_t traffic_class, high_class, udp_port, memory_mib;
    char first[80]; /* no variable: the port that comes before all others, by sl_dpdk_prefer() */
};

SL_CONFIG_SECTION(dpdk)

struct sl_device;

/* sl_transport_ops.prefer */
void sl_dpdk_prefer(struct sl_config *config, const struct sl_device *dev, int traffic_class);
/* Traffic class of answers and short messages. */
uint8_t sl_dpdk_high_class(const struct sl_dpdk_config *config);
/* The paths that the user asks for. */
struct sl_mp_path_wishes sl_dpdk_path_wishes(const struct sl_config *config);

#endif
