/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: the ports, flows and sideband that all connections of a worker share. */
#include "dpdk/iface.h"

#include "core/log.h"
#include "dpdk/cc/cc.h"
#include "dpdk/config.h"
#include "dpdk/dpdk.h"
#include "dpdk/events.h"
#include "dpdk/lane.h"
#include "multipath/memory.h"
#include "multipath/rounds.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x4450u /* "PD": of addresses */
#define LOOK_NS (5 * SL_NS_PER_MS)

/* ---- settings ---- */

struct sl_dpdk_port_settings sl_dpdk_ports_wanted(const struct sl_config *config, int rank)
{
    const struct sl_dpdk_config *own = sl_dpdk_config(config);

    return (struct sl_dpdk_port_settings){.list = own->ports,
                                          .inject = own->inject,
                                          .memory_mib = (uint32_t)own->memory_mib,
                                          .mtu = (uint32_t)own->mtu,
                                          .udp_port = (uint16_t)own->udp_port,
                                          .rank = rank,
                                          .local_rank = (int)config->local_rank,
                                          .local_count = (int)config->local_size};
}

static const struct sl_dp_cc *cc_of(const struct sl_dpdk_config *own)
{
    static const struct sl_dp_cc *const all[] = {
        [SL_DPDK_CC_SWIFT] = &sl_dp_swift,
        [SL_DPDK_CC_TIMELY] = &sl_dp_timely,
        [SL_DPDK_CC_FIXED] = &sl_dp_fixed,
    };

    return all[own->cc];
}

/* The next lower power of two. */
static uint32_t window_of(int64_t packets)
{
    return UINT32_C(1) << (31 - __builtin_clz((uint32_t)packets));
}

static void settings_read(struct sl_dpdk_iface *iface)
{
    const struct sl_config *config = iface->config;
    const struct sl_dpdk_config *own = sl_dpdk_config(config);

    iface->mp.settings = sl_mp_settings_of(&own->mp, config->connect_timeout_ms, MAGIC);
    iface->engine.settings = (struct sl_dp_settings){
        .window = window_of(own->window),
        .rto_least_ns = (uint64_t)own->rto_min_ms * SL_NS_PER_MS,
        .dead_ns = (uint64_t)own->timeout_ms * SL_NS_PER_MS,
        .target_ns = (uint64_t)own->target_us * 1000,
        .cc = cc_of(own),
        .crc = own->crc == SL_ON,
    };
}

/* ---- the engine ---- */

static void *engine_alloc(void *arg, size_t len)
{
    (void)arg;
    return calloc(1, len);
}

static void engine_free(void *arg, void *memory, size_t len)
{
    (void)arg, (void)len;
    free(memory);
}

static int engine_open(struct sl_dpdk_iface *iface)
{
    int err;

    iface->engine.ops = &sl_dpdk_flow_ops;
    iface->engine.alloc = engine_alloc;
    iface->engine.free = engine_free;
    err = sl_dp_engine_init(&iface->engine, sl_now(iface->mp.base.worker->clock));
    iface->has_engine = err == 0;
    return err;
}

void sl_dpdk_flush_all(struct sl_dpdk_iface *iface)
{
    for (size_t i = 0; i < iface->port_count; i++)
        sl_dpdk_flush(iface->user, iface->ports[i]);
}

unsigned sl_dpdk_move(struct sl_dpdk_iface *iface, unsigned budget)
{
    uint64_t now_ns = sl_now(iface->mp.base.worker->clock);
    unsigned came = 0, moved;

    sl_dp_engine_tick(&iface->engine, now_ns);
    for (size_t i = 0; i < iface->port_count; i++)
        came += sl_dpdk_user_poll(iface->user, iface->ports[i], budget);
    if (came > 0)
        sl_nap_moved(&iface->nap, now_ns);
    moved = came + sl_dpdk_tell(iface);
    moved += sl_dp_engine_run(&iface->engine, now_ns, budget);
    moved += sl_dpdk_tell(iface);
    sl_dpdk_flush_all(iface);
    return moved;
}

/* ---- links ---- */

int sl_dpdk_look(struct sl_dpdk_iface *iface, uint64_t now_ns)
{
    int changed = 0;

    if (now_ns < iface->next_look_ns)
        return 0;
    iface->next_look_ns = now_ns + LOOK_NS;
    for (unsigned i = 0; i < iface->mp.rail_count; i++) {
        struct sl_dpdk_rail *rail = &iface->rails[i];

        if (!sl_dpdk_rail_look(rail, now_ns))
            continue;
        changed++;
        sl_log(rail->base.usable ? SL_LOG_INFO : SL_LOG_WARN, "dpdk", "the link of %s is %s",
               rail->base.name, rail->base.usable ? "up" : "down");
        sl_mp_event(&iface->mp, rail->base.usable ? SL_EVENT_DPDK_PORT_UP : SL_EVENT_DPDK_PORT_DOWN,
                    -1, i, 0);
        sl_mp_rails_changed(&iface->mp, rail->base.usable);
    }
    return changed;
}

/* ---- open, close ---- */

/* The one that is to come before the others becomes the first rail. */
static void first_comes_first(struct sl_dpdk_iface *iface)
{
    const char *first = sl_dpdk_config(iface->config)->first;
    struct sl_dpdk_port_info info;

    for (size_t i = 1; i < iface->port_count && first[0] != '\0'; i++) {
        struct sl_dpdk_port *port = iface->ports[i];

        sl_dpdk_port_info(port, &info);
        if (strcmp(info.name, first) != 0)
            continue;
        memmove(&iface->ports[1], &iface->ports[0], i * sizeof(iface->ports[0]));
        iface->ports[0] = port;
    }
}

static int ports_open(struct sl_dpdk_iface *iface, const struct sl_device *dev)
{
    struct sl_dpdk_port_settings wanted =
        sl_dpdk_ports_wanted(iface->config, iface->mp.base.worker->rank);
    uint64_t now_ns = sl_now(iface->mp.base.worker->clock);
    int err = sl_dpdk_ports_get(&wanted, iface->ports, SL_DPDK_PORTS_MAX, &iface->port_count);

    if (err != 0)
        return err;
    first_comes_first(iface);
    for (size_t i = 0; i < iface->port_count && iface->mp.rail_count < SL_MP_RAILS_MAX; i++) {
        struct sl_dpdk_rail *rail = &iface->rails[iface->mp.rail_count];

        sl_dpdk_rail_init(rail, iface, iface->mp.rail_count, iface->ports[i], now_ns);
        if (dev == NULL || strcmp(dev->name, rail->info.name) == 0)
            iface->mp.rails[iface->mp.rail_count++] = &rail->base;
    }
    if (iface->mp.rail_count == 0)
        return sl_fail(-ENODEV, "SLUICE_DPDK_PORTS names no port%s%s",
                       dev != NULL ? " called " : "", dev != NULL ? dev->name : "");
    return 0;
}

/* Packets are copied from and to any memory of the host, or read from there: nothing is
 * registered. */
static int memory_open(struct sl_dpdk_iface *iface)
{
    iface->everywhere =
        (struct sl_mp_region){.len = SIZE_MAX, .rails = sl_mp_rails_all(&iface->mp)};
    iface->mp.everywhere = &iface->everywhere;
    return sl_mp_memory_open(&iface->mp, sl_mp_chunks_of(&sl_dpdk_config(iface->config)->mp));
}

/* Who asked for encryption should not believe to have it. */
static void say_what_is_in_clear(const struct sl_config *config)
{
    static _Atomic bool said;

    if (config->tcp_tls == SL_ON && !atomic_exchange(&said, true))
        sl_warn("dpdk", "SLUICE_TCP_TLS encrypts TCP alone: what goes by DPDK goes in clear; "
                        "SLUICE_TRANSPORT=shm,tcp keeps to what it covers");
}

void sl_dpdk_iface_close(struct sl_iface *base)
{
    struct sl_dpdk_iface *iface = sl_dpdk_iface_of(base);

    if (base == NULL)
        return;
    sl_mp_iface_fini(&iface->mp);
    sl_mem_cache_fini(&iface->mp.mem);
    if (iface->user != NULL)
        sl_dpdk_user_close(iface->user);
    if (iface->has_engine)
        sl_dp_engine_fini(&iface->engine);
    for (unsigned i = 0; i < SL_MP_RAILS_MAX; i++)
        sl_dpdk_rail_fini(&iface->rails[i]);
    sl_dpdk_ports_put(iface->ports, iface->port_count);
    for (uint32_t i = 0; i < iface->lane_cap; i++)
        free(iface->lanes[i]); /* whose payload was in a port's queue to the end */
    free(iface->lanes);
    sl_dpdk_flows_fini(&iface->flows);
    sl_mp_memory_close(&iface->mp);
    sl_dpdk_sleep_close(iface);
    if (iface->mp.sideband != NULL)
        iface->mp.sideband->ops->close(iface->mp.sideband);
    free(iface);
}

static void iface_init(struct sl_dpdk_iface *iface, struct sl_worker *worker,
                       const struct sl_handler *handler)
{
    static const struct sl_mem_device no_device;

    iface->mp.base = (struct sl_iface){
        .worker = worker, .caps = SL_CAP_WAKEUP | SL_CAP_REPAIRS | SL_CAP_TIMELY | SL_CAP_CHANNELS};
    if (handler != NULL)
        iface->mp.base.handler = *handler;
    iface->mp.base.ops = sl_transport_complete(&sl_dpdk_ops, &iface->ops);
    iface->config = worker->config;
    iface->mp.lanes = &sl_dpdk_lanes;
    iface->epoll_fd = iface->nap.fd = -1;
    settings_read(iface);
    sl_path_watch_init(&iface->mp.table, iface->config->paths_table, iface->config->paths_agent,
                       iface->config->job);
    iface->mp.eager_bytes = (uint32_t)sl_dpdk_config(iface->config)->mp.eager_bytes;
    iface->mp.probe_bytes = SL_DPDK_PROBE_BYTES;
    sl_mp_iface_init(&iface->mp);
    sl_mem_cache_init(&iface->mp.mem, &no_device, 0, 0);
    sl_list_init(&iface->telling);
}

int sl_dpdk_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                       const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_dpdk_iface *iface;
    int err;

    if (sl_dpdk_config(worker->config)->ports[0] == '\0')
        return sl_fail(-ENODEV, "SLUICE_DPDK_PORTS names no port (docs/dpdk.md)");
    iface = calloc(1, sizeof(*iface));
    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a DPDK interface");
    iface_init(iface, worker, handler);
    err = engine_open(iface);
    if (err == 0)
        err = ports_open(iface, dev);
    if (err == 0)
        err = sl_dpdk_user_open(sl_dpdk_on_packet, sl_dpdk_on_sent, iface, &iface->user);
    if (err == 0)
        err = memory_open(iface);
    if (err == 0)
        err = sl_mp_sideband_open(&iface->mp);
    if (err == 0)
        err = sl_dpdk_sleep_open(iface);
    if (err != 0) {
        sl_dpdk_iface_close(&iface->mp.base);
        return err;
    }
    say_what_is_in_clear(iface->config);
    *out = &iface->mp.base;
    return 0;
}
