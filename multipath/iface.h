/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all connections of an interface share. The owner of the lanes embeds it as its first member,
 * fills in what is marked so, and calls sl_mp_run() and sl_mp_run_timers() from its progress. Clock
 * and chance are those of the worker: nothing here has any of its own.
 */
#ifndef SL_MULTIPATH_IFACE_H
#define SL_MULTIPATH_IFACE_H

#include "core/event.h"
#include "core/list.h"
#include "core/mem.h"
#include "core/path_watch.h"
#include "core/transport.h"
#include "gdr/gpu.h"
#include "multipath/grant.h"
#include "multipath/lane.h"
#include "multipath/message.h"
#include "multipath/pool.h"

#define SL_MP_TX_FRAMES 512 /* of an interface: frames until their completion */
#define SL_MP_FRAME_PLACES (SL_MP_TX_FRAMES + 2) /* that they take, and pings */
#define SL_MP_STAGES_MAX 16                      /* CUDA contexts whose memory is registered */
#define SL_MP_KEYS_BEHIND 64 /* generations of keys that a rail is behind the latest, at most */
#define SL_MP_OPENS 16       /* lanes opened in one round of progress: each takes the kernel long */

struct sl_gpu_stage;

/* The owner's choices, fixed while the interface is open. */
struct sl_mp_settings {
    int64_t connect_timeout_ms;
    int64_t path_wait_ms; /* without a path, before a connection ends */
    int64_t piece_bytes;  /* of a write, at most; 0: the protocol's choice */
    bool fallback;        /* without a path data goes over the sideband, where the peer agrees */
    bool listed;          /* the user lists paths, and means these for what this end sends */
    bool lazy;            /* paths are made when they are needed ... */
    bool standby;         /* ... but one to another rail as soon as the first is used */
    bool reserve;         /* data goes by one rail at a time, the first that has a path */
    uint16_t magic;       /* in addresses: both ends have lanes of this kind */
};

/* Memory that the user registered, or a part of the protocol's own. The owner embeds it. */
struct sl_mp_region {
    size_t len;
    uint32_t rkeys[SL_MP_RAILS_MAX]; /* by rail: what a CTS tells the peer */
    uint16_t rails; /* where it is registered, a bit each: paths of no others carry it */
    bool is_gpu;
    struct sl_gpu_memory gpu;
    struct sl_gpu_stage *stage;
};

struct sl_mp_iface {
    struct sl_iface base;
    /* by the owner, before sl_mp_iface_open() */
    const struct sl_mp_lanes *lanes;
    const struct sl_mp_grants *grants; /* NULL: a CTS has the keys of its region */
    /* Lanes that reach all memory of the host: what stands for it, on all rails. Nothing is
     * registered then, and no message of memory of its own passes through staging. NULL: what is
     * registered counts. */
    struct sl_mp_region *everywhere;
    struct sl_mp_settings settings;
    struct sl_iface *sideband; /* opened with sl_mp_sideband_handler(); closed by the owner */
    struct sl_mp_rail *rails[SL_MP_RAILS_MAX];
    unsigned rail_count; /* all of them are to have what is registered, and may lack some of it */
    uint32_t eager_bytes;
    uint32_t piece_bytes;       /* the protocol's: that of the settings, or SL_MP_PIECE_LEAST */
    uint32_t probe_bytes;       /* the most that a path's will be, at either end */
    struct sl_path_watch table; /* initialised with its file, or zero: there is none */
    /* Room for a frame, by sl_mp_iface_init(): its header, and eager_bytes or a control message; or
     * probe_bytes. */
    uint32_t slot_bytes;
    uint8_t *frame_bytes;   /* memory for SL_MP_FRAME_PLACES frames, that lanes can send from */
    uint8_t *staging_bytes; /* and for staging, that they can write to as well */
    size_t staging_len;     /* memory.h */
    uint32_t staging_rkeys[SL_MP_RAILS_MAX];
    uint16_t staging_rails;
    bool uneven; /* some memory may lack a rail; from the loss of one until the owner sees that none
                  * does */
    uint8_t keys;            /* how often a rail's registrations began anew: sl_mp_rail_renewed() */
    struct sl_mem_cache mem; /* what users registered; handles are struct sl_mp_region */

    /* the protocol's */
    struct sl_mp_tx_frame tx_frames[SL_MP_TX_FRAMES];
    const uint8_t *pings[2]; /* all are the same; and of an end that has seen enough of them */
    struct sl_node free_frames;
    unsigned free_frame_count;
    struct sl_mp_chunks tx_chunks, rx_chunks;
    /* of struct sl_mp_tx_msg, rx_msg, tx_cts, control */
    struct sl_mp_pool tx_msgs, rx_msgs, tx_cts, controls;
    struct sl_node conns, active, timed;
    unsigned conn_count, connecting;
    unsigned opens;                /* lanes that this round of progress may still open */
    uint64_t round, next_timer_ns; /* rounds.h */
    bool in_progress;              /* work requests may be collected until its end */
    bool has_failed; /* a path has; its owner hears the sideband next, which may say why */
    /* When timers ran last: the time for what need not be exact; and before. What has completed by
     * then has been looked for since, whatever kept this end from it. */
    uint64_t ticked_ns, ticked_before_ns;
    uint64_t watch_ns; /* when paths are looked at next: watch.c */
    uint32_t steered;  /* how often the path table has changed */
    bool is_steering;  /* ... and not all connections go by it yet */
    bool is_rerouting; /* some connection is */
    uint64_t faded_ns;
    struct sl_gpu_stage *stages[SL_MP_STAGES_MAX];
    unsigned stage_count;
};

/* Lists and counters, so that sl_mp_iface_fini() may be called. */
void sl_mp_iface_init(struct sl_mp_iface *iface);
/* Frames and `chunks` pieces of staging, of the memory that the owner has. -ENOMEM. */
int sl_mp_iface_open(struct sl_mp_iface *iface, unsigned chunks);
/* All connections are gone. */
void sl_mp_iface_fini(struct sl_mp_iface *iface);

/* What the interface's sideband calls. */
struct sl_handler sl_mp_sideband_handler(const struct sl_mp_settings *settings);

/* In each round of the owner's progress: acts for the connections that have something to do. How
 * many things moved. */
int sl_mp_run(struct sl_mp_iface *iface);
/* Once in a while: what waits for a time. */
void sl_mp_run_timers(struct sl_mp_iface *iface, uint64_t now_ns);
/* May its owner sleep, as far as the protocol goes? */
bool sl_mp_may_sleep(const struct sl_mp_iface *iface);
/* The operation `delivers`. */
uint32_t sl_mp_delivers(const struct sl_iface *iface);
/* A rail has changed, for better or worse: peers hear of it; retry: idle paths try again now. */
void sl_mp_rails_changed(struct sl_mp_iface *iface, bool retry);
/* How it looks to the peer. */
static inline void sl_mp_rail_describe(const struct sl_mp_iface *iface,
                                       const struct sl_mp_rail *rail, struct sl_mp_rail_info *out)
{
    iface->lanes->describe(rail, out);
    out->keys = rail->keys;
}
/* Its device is another one than before, and everything is registered there: staging_rkeys and the
 * keys of all regions are new. Comes before it is usable again. */
void sl_mp_rail_renewed(struct sl_mp_iface *iface, struct sl_mp_rail *rail);
/* Regions are registered on one more rail: what was cleared to send without it is said again. */
void sl_mp_rail_joined(struct sl_mp_iface *iface);
/* Its receive buffers are to go: what waits in them for its receive moves out. */
void sl_mp_rail_vacate(struct sl_mp_iface *iface, const struct sl_mp_rail *rail);

/* A bit for each. */
static inline uint16_t sl_mp_rails_all(const struct sl_mp_iface *iface)
{
    return (uint16_t)((1u << iface->rail_count) - 1);
}

static inline struct sl_mp_iface *sl_mp_iface_of(struct sl_iface *iface)
{
    return (struct sl_mp_iface *)iface;
}

/* Gives a receive buffer back; rail NULL: it was none. */
static inline void sl_mp_release(const struct sl_mp_iface *iface, struct sl_mp_rail *rail,
                                 uint32_t buffer)
{
    if (SL_LIKELY(rail != NULL))
        iface->lanes->release(rail, buffer);
}

/* A piece of staging. */
static inline uint8_t *sl_mp_chunk_bytes(const struct sl_mp_iface *iface, uint16_t chunk)
{
    return iface->staging_bytes + (size_t)chunk * SL_MP_CHUNK_BYTES;
}

/* A line in the event ring; peer as in core/event.h. */
static inline void sl_mp_event(const struct sl_mp_iface *iface, unsigned kind, int peer, uint64_t a,
                               uint64_t b)
{
    sl_event(iface->base.worker, kind, peer < 0 ? SL_EVENT_NOBODY : (uint32_t)peer, a, b);
}

/* The registration of a range, given by the caller or found, or what stands for all memory; NULL:
 * none, or its memory went away. */
static inline struct sl_mp_region *sl_mp_region_find(struct sl_mp_iface *iface,
                                                     const struct sl_mr *given, const void *addr,
                                                     size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL && iface->everywhere != NULL)
        return iface->everywhere;
    if (region == NULL)
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && !region->dead ? region->handle : NULL;
}

/* The region of GPU memory that a message lies in, dead or alive; NULL: it is not GPU memory. */
static inline const struct sl_mem_region *
sl_mp_gpu_region(struct sl_mp_iface *iface, const struct sl_mr *given, const void *addr, size_t len)
{
    const struct sl_mem_region *region = (const struct sl_mem_region *)given;

    if (region == NULL && SL_UNLIKELY(iface->mem.gpu_regions != 0))
        region = sl_mem_cache_find(&iface->mem, addr, len);
    return region != NULL && SL_UNLIKELY(!sl_mem_is_host(region->kind)) ? region : NULL;
}

#endif
