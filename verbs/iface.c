/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: the ports, pools and sideband that all connections of a worker share. */
#include "verbs/iface.h"

#include "multipath/rounds.h"
#include "verbs/config.h"
#include "verbs/gpu.h"
#include "verbs/near.h"
#include "verbs/offer.h"
#include "verbs/verbs.h"
#include "verbs/window.h"

#include "core/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MAGIC 0x5642u /* "BV": of addresses */
#define MTU_MIN 256u
#define MTU_MAX 4096u

void sl_verbs_iface_close(struct sl_iface *base)
{
    struct sl_verbs_iface *iface = sl_verbs_iface_of(base);

    if (base == NULL)
        return;
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        sl_verbs_rejoin_end(&iface->rails[i]);
    sl_mem_cache_fini(&iface->mp.mem);
    sl_mp_iface_fini(&iface->mp);
    sl_verbs_pool_fini(iface, &iface->frames);
    sl_verbs_pool_fini(iface, &iface->staging);
    for (unsigned i = 0; i < SL_MP_RAILS_MAX; i++)
        sl_verbs_rail_close(&iface->rails[i]);
    sl_verbs_windows_free(iface);
    if (iface->mp.sideband != NULL)
        iface->mp.sideband->ops->close(iface->mp.sideband);
    if (iface->epoll_fd >= 0)
        close(iface->epoll_fd);
    free(iface->paths);
    free(iface);
}

static void fork_prepare(const struct sl_verbs_iface *iface)
{
    struct utsname name;
    int major = 0, minor = 0;

    if (sl_verbs_config(iface->config)->fork == SL_OFF)
        return;
    /* From 5.12 on the kernel copies pinned pages at fork() by itself. */
    if (sl_verbs_config(iface->config)->fork == SL_AUTO && uname(&name) == 0 &&
        sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
        (major > 5 || (major == 5 && minor >= 12)))
        return;
    int err = iface->ibv->ibv_fork_init();

    if (err != 0)
        sl_warn("verbs", "fork() is not safe for registered memory: %s", sluice_strerror(-err));
}

/* "rxe0:1: port is DOWN …; rxe1:1: …", and "; ..." for those that there is no room for. */
static void reason_add(char *out, size_t cap, const char *name, const char *why)
{
    static const char more[] = "; ...";
    size_t used = strlen(out);

    if (used >= strlen(more) && strcmp(out + used - strlen(more), more) == 0)
        return;
    if (!sl_text_add(out, cap - sizeof(more), "%s%s: %s", used > 0 ? "; " : "", name, why))
        snprintf(out + used, cap - used, "%s", more);
}

/* Those that should be rails, from all of this host or the one that was asked for; why gets the
 * reasons of those that are not usable. */
static int ports_choose(const struct sl_verbs_iface *iface, const struct sl_device *dev,
                        struct sl_verbs_port *ports, size_t *count, char *why, size_t cap)
{
    size_t found = 0, kept = 0;
    int err = sl_verbs_ports_list(iface->config, ports, SL_VERBS_PORTS_MAX, &found);

    for (size_t i = 0; i < found && i < SL_VERBS_PORTS_MAX && err == 0; i++) {
        if (dev != NULL && strcmp(dev->name, ports[i].name) != 0)
            continue;
        if (ports[i].why[0] != '\0')
            reason_add(why, cap, ports[i].name, ports[i].why);
        if (kept != i)
            ports[kept] = ports[i];
        kept++;
    }
    *count = sl_verbs_ports_pick(ports, kept, SL_MP_RAILS_MAX);
    return err;
}

/* One that carries while the others need not; in reserve are those that are far, or all others.
 * count: there is none. */
static size_t first_choice(const struct sl_verbs_port *ports, size_t count, bool by_distance)
{
    for (size_t i = 0; i < count; i++)
        if (ports[i].why[0] == '\0' && !(by_distance && ports[i].is_far))
            return i;
    return count;
}

/* What is in reserve sleeps until a path needs it, unless all is to be there from the start. One
 * without a link is opened: it is to be heard when it gets one. */
static bool may_sleep(const struct sl_verbs_iface *iface, const struct sl_verbs_rail *rail,
                      bool is_first)
{
    return iface->mp.settings.lazy && !iface->mp.settings.listed && !is_first &&
           rail->port.why[0] == '\0' && (rail->base.is_far || iface->mp.settings.reserve);
}

static int rail_begin(struct sl_verbs_rail *rail, bool in_reserve)
{
    char where[SL_VERBS_WHERE_MAX];
    int err = in_reserve ? sl_verbs_rail_rest(rail) : 0;

    if (err == 0 && !rail->base.usable) {
        err = sl_verbs_rail_open(rail);
        if (err == 0)
            sl_verbs_rail_refresh(rail);
    }
    if (err != 0)
        return err;
    if (!rail->base.usable)
        sl_info("verbs", "%s waits until it can be used: %s", rail->port.name, rail->base.why);
    sl_verbs_near_text(&rail->port, where, sizeof(where));
    if (rail->base.is_far)
        sl_info("verbs", "%s carries while no nearer port can: %s", rail->port.name, where);
    if (rail->is_asleep)
        sl_info("verbs", "%s is in reserve, and opened when a path needs it", rail->port.name);
    return 0;
}

/* Who registers memory or connects is to hear at once what is wrong with it: one has to be open. */
static bool one_is_open(struct sl_verbs_iface *iface)
{
    bool is_open = false;

    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        is_open |= iface->rails[i].base.usable && !iface->rails[i].is_asleep;
    for (unsigned i = 0; i < iface->mp.rail_count && !is_open; i++)
        is_open = iface->rails[i].is_asleep && sl_verbs_rail_wake(&iface->rails[i]) == 0;
    return is_open;
}

/* Ports that are down are opened too: they join when they come up, and until then keep their
 * number, which is the same on all hosts. */
static int rails_open(struct sl_verbs_iface *iface, const struct sl_device *dev)
{
    struct sl_verbs_port *ports = calloc(SL_VERBS_PORTS_MAX, sizeof(*ports));
    char why[SL_ERROR_TEXT_MAX] = "";
    size_t count = 0, first;
    int err = ports == NULL ? sl_fail(-ENOMEM, "no memory to list ports") : 0;

    sl_verbs_devices_keep();
    if (err == 0)
        err = ports_choose(iface, dev, ports, &count, why, sizeof(why));
    first = first_choice(ports, count, dev == NULL);
    for (size_t i = 0; i < count && err == 0; i++) {
        struct sl_verbs_rail *rail = &iface->rails[iface->mp.rail_count];

        *rail =
            (struct sl_verbs_rail){.iface = iface,
                                   .port = ports[i],
                                   .has_memory = sl_verbs_config(iface->config)->mp.lazy == SL_OFF,
                                   .retry_ns = SL_VERBS_RETURN_NS};
        rail->base.name = rail->port.name;
        rail->base.idx = iface->mp.rail_count;
        rail->base.speed = ports[i].speed;
        rail->base.is_far = dev == NULL && ports[i].is_far;
        if (rail_begin(rail, may_sleep(iface, rail, i == first)) != 0) {
            reason_add(why, sizeof(why), ports[i].name, sluice_last_error());
            sl_warn("verbs", "%s", sluice_last_error());
            continue;
        }
        iface->mp.rails[iface->mp.rail_count++] = &rail->base;
    }
    sl_verbs_devices_unkeep();
    free(ports);
    if (err == 0 && !one_is_open(iface))
        err = sl_fail(-ENODEV, "no RDMA port is usable%s%s", why[0] != '\0' ? ": " : "", why);
    return err;
}

/* Soft-RoCE loses count when it repeats packets, and takes one for another. A write of one packet
 * has its place, its bytes and its number together. A frame of two has the number of its header in
 * the first, and its own in the last. (docs/design/0007-rdma.md) */
static void fit_soft_roce(struct sl_verbs_iface *iface)
{
    struct sl_mp_iface *mp = &iface->mp;
    uint32_t wanted = (uint32_t)sl_verbs_config(iface->config)->mtu, mtu = MTU_MAX;
    bool is_soft = false;

    for (unsigned i = 0; i < mp->rail_count; i++) {
        uint32_t bytes = 128u << iface->rails[i].port.mtu;

        is_soft |= iface->rails[i].is_soft;
        mtu = bytes >= MTU_MIN && bytes < mtu ? bytes : mtu;
    }
    if (!is_soft)
        return;
    while (wanted != 0 && mtu > MTU_MIN && mtu > wanted)
        mtu /= 2;
    if (mp->settings.piece_bytes == 0)
        mp->settings.piece_bytes = mtu;
    if (mp->eager_bytes > 2 * mtu - SL_MP_FRAME_BYTES)
        mp->eager_bytes = 2 * mtu - SL_MP_FRAME_BYTES;
    mp->base.eager_max = mp->eager_bytes;
}

static int pools_init(struct sl_verbs_iface *iface)
{
    struct sl_mp_iface *mp = &iface->mp;
    unsigned chunks = sl_mp_chunks_of(&sl_verbs_config(iface->config)->mp);
    int err;

    err = sl_verbs_pool_init(iface, (size_t)mp->slot_bytes * SL_MP_FRAME_PLACES, SL_VERBS_OURS,
                             &iface->frames);
    if (err == 0)
        err = sl_verbs_pool_init(iface, (size_t)chunks * SL_MP_CHUNK_BYTES, SL_VERBS_PEERS,
                                 &iface->staging);
    if (err != 0)
        return err;
    mp->frame_bytes = iface->frames.bytes;
    mp->staging_bytes = iface->staging.bytes;
    for (unsigned i = 0; i < mp->rail_count; i++)
        sl_verbs_staging_told(iface, i);
    return sl_mp_iface_open(mp, chunks);
}

/* Who asked for encryption should not believe to have it. */
static void say_what_is_in_clear(const struct sl_config *config)
{
    static _Atomic bool said;

    if (config->tcp_tls == SL_ON && !atomic_exchange(&said, true))
        sl_warn("verbs", "SLUICE_TCP_TLS encrypts TCP alone: what goes by RDMA goes in clear; "
                         "SLUICE_TRANSPORT=shm,tcp keeps to what it covers");
}

int sl_verbs_iface_open(struct sl_worker *worker, const struct sl_device *dev,
                        const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_verbs_iface *iface = calloc(1, sizeof(*iface));
    int err;

    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a verbs interface");
    iface->mp.base = (struct sl_iface){.worker = worker,
                                       .caps = SL_CAP_WAKEUP | SL_CAP_REPAIRS | SL_CAP_CHANNELS};
    if (handler != NULL)
        iface->mp.base.handler = *handler;
    iface->mp.base.ops = sl_transport_complete(&sl_verbs_ops, &iface->ops);
    iface->config = worker->config;
    iface->mp.lanes = &sl_verbs_lanes;
    iface->mp.settings = sl_mp_settings_of(&sl_verbs_config(iface->config)->mp,
                                           iface->config->connect_timeout_ms, MAGIC);
    sl_path_watch_init(&iface->mp.table, iface->config->paths_table, iface->config->paths_agent,
                       iface->config->job);
    iface->mp.eager_bytes = (uint32_t)sl_verbs_config(iface->config)->mp.eager_bytes;
    iface->mp.probe_bytes = MTU_MAX;
    sl_mp_iface_init(&iface->mp);
    sl_verbs_mem_init(iface);
    sl_list_init(&iface->dirty);
    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    err = iface->epoll_fd < 0 ? sl_fail(-errno, "epoll_create1 failed: %s", sluice_strerror(-errno))
                              : sl_ibv_get(&iface->ibv);
    if (err == 0) {
        iface->mlx5dv = sl_mlx5dv_get();
        fork_prepare(iface);
        if (sl_verbs_config(iface->config)->keys == SL_VERBS_KEYS_WINDOW)
            err = sl_verbs_windows_new(iface);
    }
    if (err == 0)
        err = rails_open(iface, dev);
    if (err == 0)
        fit_soft_roce(iface);
    if (err == 0 && sl_verbs_gpu_possible(iface))
        iface->mp.base.caps |= SL_CAP_GPU;
    if (err == 0)
        err = pools_init(iface);
    if (err == 0)
        err = sl_mp_sideband_open(&iface->mp);
    if (err == 0) {
        struct epoll_event event = {.events = EPOLLIN};
        int fd = iface->mp.sideband->ops->fd(iface->mp.sideband);

        if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
            err = sl_fail(-errno, "the sideband's events cannot be waited for: %s",
                          sluice_strerror(-errno));
    }
    if (err != 0) {
        sl_verbs_iface_close(&iface->mp.base);
        return err;
    }
    say_what_is_in_clear(iface->config);
    *out = &iface->mp.base;
    return 0;
}
