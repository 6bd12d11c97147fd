/* SPDX-License-Identifier: Apache-2.0 */
/* The shm transport's table of operations; opening, closing and progress of an interface. */
#include "shm/shm.h"
#include "shm/config.h"

#include "core/cache.h"
#include "core/config.h"
#include "core/fork.h"
#include "core/host.h"
#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Progress calls between two readings of the clock, and time between two polls of sockets: a dead
 * peer or an abort is noticed within about this time. */
#define POLLS_PER_CLOCK 16
#define LOOK_NS SL_NS_PER_MS

#define EVENTS_MAX 64

extern const struct sl_transport_ops sl_shm_ops;

/* ---- events ---- */

int shm_watch(struct shm_iface *iface, struct shm_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) != 0)
        return sl_fail(-errno, "epoll refused a descriptor: %s; see fs.epoll.max_user_watches",
                       strerror(errno));
    return 0;
}

void shm_source_close(struct shm_iface *iface, struct shm_source *source)
{
    if (source->fd < 0)
        return;
    /* Explicitly: a fork of this process may hold the same socket, which close() would not end. */
    epoll_ctl(iface->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    close(source->fd);
    source->fd = -1;
}

static int look(struct shm_iface *iface)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(iface->epoll_fd, events, EVENTS_MAX, 0), moved = 0;

    for (int i = 0; i < count; i++) {
        struct shm_source *source = events[i].data.ptr;

        source->ready(iface, source);
        moved += source != &iface->event && source != &iface->timer;
    }
    return moved + shm_settle(iface, sl_now(iface->base.worker->clock));
}

/* Is it time to poll the sockets? Mostly the answer costs a decrement. */
static bool look_due(struct shm_iface *iface)
{
    uint64_t now_ns;

    if (iface->events_due || iface->connecting > 0) {
        iface->events_due = false;
        return true;
    }
    if (++iface->polls < POLLS_PER_CLOCK)
        return false;
    iface->polls = 0;
    now_ns = sl_now(iface->base.worker->clock);
    if (now_ns < iface->look_ns)
        return false;
    iface->look_ns = now_ns + LOOK_NS;
    return true;
}

static int iface_progress(struct sl_iface *base, unsigned budget)
{
    struct shm_iface *iface = shm_iface_of(base);
    int moved = 0;

    sl_list_foreach(&iface->active, node)
    {
        if (budget == 0)
            break;
        moved += shm_ep_run(sl_container_of(node, struct shm_ep, active), &budget);
    }
    if (SL_UNLIKELY(look_due(iface)))
        moved += look(iface);
    return moved;
}

/* ---- open and close ---- */

static int open_page(struct shm_iface *iface)
{
    void *base;
    int err = shm_file_create("a shared page", "free some memory", sizeof(struct shm_page),
                              sizeof(struct shm_page), &iface->page_fd);

    if (err != 0)
        return err;
    base =
        mmap(NULL, sizeof(struct shm_page), PROT_READ | PROT_WRITE, MAP_SHARED, iface->page_fd, 0);
    if (base == MAP_FAILED)
        return sl_fail(-errno, "a shared page could not be mapped: %s", strerror(errno));
    iface->page = base;
    sl_fork_hides(base, sizeof(struct shm_page));
    if (getrandom(&iface->page->trial, sizeof(iface->page->trial), 0) < 0)
        return sl_fail(-errno, "the kernel gave no random bytes: %s", strerror(errno));
    /* Peers may read it, not write. Kernels before 5.1 do not know this seal. */
    (void)fcntl(iface->page_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    return 0;
}

static int open_events(struct shm_iface *iface)
{
    int err;

    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (iface->epoll_fd < 0)
        return shm_fail_fd(-errno, "epoll");
    iface->event.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (iface->event.fd < 0)
        return shm_fail_fd(-errno, "an event");
    iface->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (iface->timer.fd < 0)
        return shm_fail_fd(-errno, "a timer");
    err = shm_listen(iface->name, &iface->name_len, &iface->listener.fd);
    if (err != 0)
        return err;
    iface->event.ready = iface->timer.ready = shm_park_ready;
    iface->listener.ready = shm_listener_ready;
    err = shm_watch(iface, &iface->event, EPOLLIN | EPOLLET);
    if (err == 0)
        err = shm_watch(iface, &iface->timer, EPOLLIN | EPOLLET);
    if (err == 0)
        err = shm_watch(iface, &iface->listener, EPOLLIN);
    return err;
}

static void iface_close(struct sl_iface *base)
{
    struct shm_iface *iface = shm_iface_of(base);

    if (base == NULL)
        return;
    sl_list_foreach(&iface->eps, node)
    {
        shm_ep_destroy(&sl_container_of(node, struct shm_ep, node)->base);
    }
    shm_stop_listening(base);
    sl_list_foreach(&iface->regions, region)
    {
        sl_list_remove(region);
        free(sl_container_of(region, struct shm_region, node));
    }
    shm_source_close(iface, &iface->event);
    shm_source_close(iface, &iface->timer);
    if (iface->page != NULL)
        munmap(iface->page, sizeof(*iface->page));
    if (iface->page_fd >= 0)
        close(iface->page_fd);
    if (iface->epoll_fd >= 0)
        close(iface->epoll_fd);
    free(iface->stage);
    free(iface);
}

static size_t stream_min(const struct sl_config *config)
{
    if (config->shm_stream_min_bytes >= 0)
        return (size_t)config->shm_stream_min_bytes;
    return sl_cache_last_level() / 2; /* source and destination of a copy share it */
}

static int iface_open(struct sl_worker *worker, const struct sl_device *dev,
                      const struct sl_handler *handler, struct sl_iface **out)
{
    struct shm_iface *iface = calloc(1, sizeof(*iface));
    int err;

    (void)dev; /* there is one */
    if (iface == NULL)
        return sl_fail(-ENOMEM, "no memory for a shm interface");
    iface->base.ops = sl_transport_complete(&sl_shm_ops, &iface->ops);
    iface->base.worker = worker;
    if (handler != NULL)
        iface->base.handler = *handler;
    iface->base.caps = SL_CAP_MAP | SL_CAP_WAKEUP | SL_CAP_LOCAL | SL_CAP_CHANNELS;
    iface->base.eager_max = shm_ring_bytes(worker->config, 1);
    iface->page_fd = iface->epoll_fd = iface->spare_fd = -1;
    iface->listener.fd = iface->event.fd = iface->timer.fd = -1;
    sl_list_init(&iface->eps);
    sl_list_init(&iface->active);
    sl_list_init(&iface->gone);
    sl_pending_init(&iface->pending, "shm", SHM_PENDING_MOST, &iface->pending_log);
    sl_list_init(&iface->regions);
    iface->stream_min = stream_min(worker->config);
    iface->barrier = shm_barrier_register();
    sl_host_id(worker->config, iface->host);
    err = open_events(iface);
    if (err == 0)
        err = open_page(iface);
    shm_spare_keep(iface);
    if (err != 0) {
        iface_close(&iface->base);
        return err;
    }
    iface->read_reason = shm_read_refused(worker->config);
    if (iface->read_reason == NULL)
        iface->base.caps |= SL_CAP_READ;
    else if (sl_shm_config(worker->config)->read == SL_ON)
        sl_warn("shm", "shm: no direct reads: %s", iface->read_reason);
    *out = &iface->base;
    return 0;
}

static int iface_probe(const struct sl_config *config, struct sl_device *out, size_t cap,
                       size_t *count)
{
    const char *refused = shm_read_refused(config);
    int fd, err = shm_file_create("a shared page", "free some memory", 4096, 4096, &fd);

    if (err != 0)
        return err;
    close(fd);
    *count = 1;
    if (cap > 0) {
        memset(out, 0, sizeof(*out));
        out->reach = SL_REACH_HOST;
        out->numa_node = -1;
        snprintf(out->name, sizeof(out->name), "shm0");
        snprintf(out->detail, sizeof(out->detail), "ranks of this host; reads of peer memory: %s",
                 refused == NULL ? "yes, if a trial read works" : refused);
    }
    return 0;
}

static void ep_describe(const struct sl_ep *base, char *out, size_t cap)
{
    const struct shm_ep *ep = (const struct shm_ep *)base;
    static const char *const states[] = {"new",       "dialling", "asked", "awaited",
                                         "answering", "failed",   "up",    "lost"};
    char large[64];

    shm_large_describe(ep, large, sizeof(large));
    snprintf(out, cap,
             "shm, %s%s%s, pid %d, rings of %u KiB, %u cells, sent %llu bytes, received %llu; "
             "posted: %u sends, %u receives; %s",
             states[ep->state], ep->state == SHM_LOST ? ": " : "", ep->why, (int)ep->peer_pid,
             ep->ring_bytes >> 10, ep->cells, (unsigned long long)ep->sent,
             (unsigned long long)ep->received, ep->send_count + ep->lent_count,
             ep->channels.wanting + (ep->rx_req != NULL), large);
}

const struct sl_transport_ops sl_shm_ops = {
    .abi = SL_TRANSPORT_ABI,
    .name = "shm",
    .number = 1,
    .place = 10,
    .traits = SL_TRAIT_LOCAL,
    .config = &sl_shm_section,
    .probe = iface_probe,
    .open = iface_open,
    .close = iface_close,
    .mem_alloc = shm_mem_alloc,
    .mem_back = shm_mem_back,
    .mem_unback = shm_mem_unback,
    .mem_free = shm_mem_free,
    .mr_reg = shm_mr_reg,
    .mr_dereg = shm_mr_dereg,
    .map = shm_map,
    .unmap = shm_unmap,
    .ep_create = shm_ep_create,
    .ep_addr = shm_ep_addr,
    .ep_connect = shm_ep_connect,
    .ep_destroy = shm_ep_destroy,
    .channel_open = shm_channel_open,
    .channel_close = shm_channel_close,
    .channel_traffic = shm_channel_traffic,
    .channel_starves = shm_channel_starves,
    .stop_listening = shm_stop_listening,
    .send = shm_send,
    .recv = shm_recv,
    .read = shm_read,
    .ctrl = shm_ctrl,
    .progress = iface_progress,
    .fd = shm_fd,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .wake = shm_wake,
    .ep_describe = ep_describe,
};
