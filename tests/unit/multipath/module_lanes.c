/* SPDX-License-Identifier: Apache-2.0 */
/* A transport in a module with lanes that never carry anything: it has the protocol compiled in,
 * and its sideband is the process's. */
#include "core/config.h"
#include "core/module.h"
#include "multipath/config.h"
#include "multipath/events.h"
#include "multipath/memory.h"
#include "multipath/rounds.h"

#include <stdlib.h>

static const struct sl_event_kind kinds[] = {
    {SL_EVENT_FREE, "kite_up", "rail", "", SL_EVENT_SHOW},
};
static uint16_t first;
static const struct sl_event_set events = {
    .area = "kites", .kinds = kinds, .count = 1, .also = &sl_mp_events, .first = &first};

static unsigned poll(struct sl_mp_iface *iface, unsigned budget)
{
    (void)iface, (void)budget;
    return 0;
}

static int port_events(struct sl_mp_iface *iface, uint64_t now_ns)
{
    (void)iface, (void)now_ns;
    return 0;
}

static void flush(struct sl_mp_iface *iface)
{
    sl_mp_event(iface, first, -1, 7, 0);
}

static const struct sl_mp_rounds rounds = {.poll = poll, .events = port_events, .flush = flush};
static const struct sl_mp_lanes lanes;

static int progress(struct sl_iface *iface, unsigned budget)
{
    return sl_mp_progress(sl_mp_iface_of(iface), &rounds, budget);
}

static void close_iface(struct sl_iface *base)
{
    struct sl_mp_iface *iface = sl_mp_iface_of(base);

    sl_mp_iface_fini(iface);
    sl_mp_memory_close(iface);
    if (iface->sideband != NULL)
        iface->sideband->ops->close(iface->sideband);
    free(iface);
}

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out);

static const struct sl_transport_ops kites_ops = {.abi = SL_TRANSPORT_ABI,
                                                  .name = "kites",
                                                  .number = 21,
                                                  .place = 60,
                                                  .events = &events,
                                                  .open = open_iface,
                                                  .close = close_iface,
                                                  .progress = progress};

static int open_iface(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct sl_mp_iface *iface = calloc(1, sizeof(*iface));
    int err;

    (void)dev, (void)handler;
    sl_assert(iface != NULL);
    iface->base = (struct sl_iface){.ops = &kites_ops, .worker = worker};
    iface->lanes = &lanes;
    iface->settings = sl_mp_settings_of(
        &(struct sl_mp_config){.paths = "auto", .path_wait_ms = 1000}, 1000, 0x4b4b);
    iface->eager_bytes = 4096;
    sl_path_watch_init(&iface->table, worker->config->paths_table, worker->config->paths_agent,
                       worker->config->job);
    sl_mp_iface_init(iface);
    err = sl_mp_memory_open(iface, 4);
    if (err == 0)
        err = sl_mp_sideband_open(iface);
    if (err != 0) {
        close_iface(&iface->base);
        return err;
    }
    *out = &iface->base;
    return 0;
}

SL_MODULE(kites_ops)
