/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: the ports, pools and sideband that all connections of a worker share. */
#ifndef SL_VERBS_IFACE_H
#define SL_VERBS_IFACE_H

#include "core/config.h"
#include "core/transport.h"
#include "multipath/iface.h"
#include "verbs/rail.h"
#include "verbs/region.h"

struct sl_verbs_path;

struct sl_verbs_iface {
    struct sl_mp_iface mp;
    struct sl_transport_ops ops; /* sl_verbs_ops, completed */
    const struct sl_config *config;
    const struct sl_ibv *ibv;
    const struct sl_mlx5dv *mlx5dv;
    struct sl_verbs_rail rails[SL_MP_RAILS_MAX];
    struct sl_verbs_pool frames, staging;
    struct sl_verbs_windows *windows; /* NULL: regions' own keys are told */
    struct sl_node regions;           /* struct sl_verbs_mr: what users registered */
    struct sl_node dirty;             /* paths with a batch, inside progress */
    struct sl_verbs_path **paths;     /* by slot */
    uint32_t path_cap;
    int epoll_fd;
};

static inline struct sl_verbs_iface *sl_verbs_iface_of(struct sl_iface *iface)
{
    return (struct sl_verbs_iface *)iface;
}

int sl_verbs_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out);
void sl_verbs_iface_close(struct sl_iface *base);
/* What its rails deliver now, in thousandths of what they do when all are usable; at least 1. */
uint32_t sl_verbs_delivers(const struct sl_iface *base);

#endif
