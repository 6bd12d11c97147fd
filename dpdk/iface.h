/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: the ports, flows and sideband that all connections of a worker share. */
#ifndef SL_DPDK_IFACE_H
#define SL_DPDK_IFACE_H

#include "core/config.h"
#include "core/nap.h"
#include "core/transport.h"
#include "dpdk/flows.h"
#include "dpdk/port/port.h"
#include "dpdk/proto/flow.h"
#include "dpdk/rail.h"
#include "multipath/iface.h"

#define SL_DPDK_BUDGET 64 /* packets of a port in one look at it */

struct sl_dpdk_iface {
    struct sl_mp_iface mp;
    struct sl_transport_ops ops; /* sl_dpdk_ops, completed */
    const struct sl_config *config;
    struct sl_mp_region everywhere; /* all memory of the host */
    struct sl_dp_engine engine;
    bool has_engine;
    struct sl_dpdk_user *user;
    struct sl_dpdk_port *ports[SL_DPDK_PORTS_MAX];
    size_t port_count;
    struct sl_dpdk_rail rails[SL_MP_RAILS_MAX];
    struct sl_dpdk_flows flows;
    struct sl_dpdk_lane **lanes; /* by place */
    uint32_t lane_cap;
    struct sl_node telling; /* lanes with something to tell */
    uint64_t next_look_ns;  /* at the ports' links */
    /* sleep.c */
    int epoll_fd;
    struct sl_nap nap;
    bool is_armed;
};

static inline struct sl_dpdk_iface *sl_dpdk_iface_of(struct sl_iface *iface)
{
    return (struct sl_dpdk_iface *)iface;
}

int sl_dpdk_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                       const struct sl_handler *handler, struct sl_iface **out);
void sl_dpdk_iface_close(struct sl_iface *base);
/* What the settings ask of the ports. */
struct sl_dpdk_port_settings sl_dpdk_ports_wanted(const struct sl_config *config, int rank);

/* Takes what came, lets the flows send and answer, passes on what they tell. How many things
 * moved. */
unsigned sl_dpdk_move(struct sl_dpdk_iface *iface, unsigned budget);
/* What was posted since leaves. */
void sl_dpdk_flush_all(struct sl_dpdk_iface *iface);
/* Looks at links, if it is time. How many changed. */
int sl_dpdk_look(struct sl_dpdk_iface *iface, uint64_t now_ns);

/* sleep.c */
int sl_dpdk_sleep_open(struct sl_dpdk_iface *iface);
void sl_dpdk_sleep_close(struct sl_dpdk_iface *iface);
int sl_dpdk_fd(struct sl_iface *base);
int sl_dpdk_arm(struct sl_iface *base);
void sl_dpdk_disarm(struct sl_iface *base);

#endif
