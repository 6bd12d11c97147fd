/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: the ports, pools and sideband that all connections of a worker share. */
#ifndef SL_VERBS_IFACE_H
#define SL_VERBS_IFACE_H

#include "core/config.h"
#include "core/err.h"
#include "core/event.h"
#include "core/mem.h"
#include "core/transport.h"
#include "verbs/gpu.h"
#include "multipath/message.h"
#include "verbs/rail.h"
#include "verbs/region.h"

struct sl_mp_path;

#define SL_MP_TX_FRAMES 512 /* of an interface: frames until their completion */
#define SL_VERBS_MAKES 16   /* queue pairs in one round of progress: each takes the kernel long */

struct sl_verbs_iface {
    struct sl_iface base;
    struct sl_transport_ops ops; /* sl_verbs_ops, completed */
    const struct sl_config *config;
    const struct sl_ibv *ibv;
    const struct sl_mlx5dv *mlx5dv;
    struct sl_iface *sideband;
    struct sl_verbs_rail rails[SL_MP_RAILS_MAX];
    unsigned rail_count;
    uint32_t eager_bytes, slot_bytes;
    struct sl_verbs_pool frames, staging;
    struct sl_mp_tx_frame tx_frames[SL_MP_TX_FRAMES];
    struct sl_mp_tx_frame ping; /* all are the same, so one place is enough */
    struct sl_node free_frames;
    unsigned free_frame_count;
    struct sl_mp_chunks tx_chunks, rx_chunks;
    struct sl_node eps, active, timed, dirty;
    bool batching; /* inside progress: work requests are posted at its end */
    unsigned ep_count, connecting;
    unsigned makes;          /* queue pairs that this round of progress may still make */
    struct sl_mem_cache mem; /* handles are struct sl_verbs_mr */
    struct sl_gpu_stage *stages[SL_MP_STAGES_MAX];
    unsigned stage_count;
    struct sl_mp_path **paths; /* by slot */
    uint32_t path_cap;
    uint64_t round, next_timer_ns;
    uint64_t ticked_ns; /* when timers ran last: the time for what need not be exact */
    int epoll_fd;
    unsigned budget;
};

/* A line in the event ring; peer as in core/event.h. */
static inline void sl_mp_event(const struct sl_verbs_iface *iface, enum sl_event_kind kind,
                               int peer, uint64_t a, uint64_t b)
{
    sl_event(iface->base.worker, kind, peer < 0 ? SL_EVENT_NOBODY : (uint32_t)peer, a, b);
}

static inline struct sl_verbs_iface *sl_verbs_iface_of(struct sl_iface *iface)
{
    return (struct sl_verbs_iface *)iface;
}

int sl_verbs_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out);
void sl_verbs_iface_close(struct sl_iface *base);

/* The registration of a range, given by the caller or found; NULL: none, or its memory went
 * away. */
static inline struct sl_verbs_mr *sl_mp_region_find(struct sl_verbs_iface *iface,
                                                    const struct sl_mr *given, const void *addr,
                                                    size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL)
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && !region->dead ? region->handle : NULL;
}
/* The region of GPU memory that a message lies in, dead or alive; NULL: it is not GPU memory. */
static inline const struct sl_mem_region *sl_mp_gpu_region(struct sl_verbs_iface *iface,
                                                           const struct sl_mr *given,
                                                           const void *addr, size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL && SL_UNLIKELY(iface->mem.gpu_regions != 0))
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && SL_UNLIKELY(!sl_mem_is_host(region->kind)) ? region : NULL;
}

#endif
