/* SPDX-License-Identifier: Apache-2.0 */
/* The module sluice-dpdk.so: this transport, with multipath/ and DPDK's libraries, apart from
 * libsluice.so, which needs neither. */
#include "core/transport.h"

#include "core/module.h"
#include "dpdk/dpdk.h"

SL_MODULE(sl_dpdk_ops)
