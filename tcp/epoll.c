/* SPDX-License-Identifier: Apache-2.0 */
/* The epoll engine: edge-triggered, one epoll instance per interface. Works wherever sockets do. */
#include "core/err.h"
#include "tcp/engine.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BATCH 64

struct epoll_engine {
    int fd;
};

static int engine_open(void **out)
{
    struct epoll_engine *engine = malloc(sizeof(*engine));
    int err;

    if (engine == NULL)
        return sl_fail(-ENOMEM, "no memory for the epoll engine");
    engine->fd = epoll_create1(EPOLL_CLOEXEC);
    if (engine->fd < 0) {
        err = -errno;
        free(engine);
        return sl_fail(err, "epoll_create1 failed: %s%s", sluice_strerror(err),
                       err == -EMFILE ? "; raise 'ulimit -n'" : "");
    }
    *out = engine;
    return 0;
}

static void engine_close(void *arg)
{
    struct epoll_engine *engine = arg;

    if (engine == NULL)
        return;
    close(engine->fd);
    free(engine);
}

static int engine_add(void *arg, struct sl_tcp_watch *watch)
{
    struct epoll_engine *engine = arg;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = watch};

    if (sl_tcp_watch_writes(watch))
        event.events |= EPOLLOUT;
    if (epoll_ctl(engine->fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
        return sl_fail(-errno, "epoll_ctl failed: %s", sluice_strerror(-errno));
    return 0;
}

static void engine_del(void *arg, struct sl_tcp_watch *watch)
{
    struct epoll_engine *engine = arg;

    epoll_ctl(engine->fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

static int engine_poll(void *arg, sl_tcp_event_fn *event, void *event_arg)
{
    struct epoll_engine *engine = arg;
    struct epoll_event events[BATCH];
    int count = epoll_wait(engine->fd, events, BATCH, 0);

    if (count < 0)
        return errno == EINTR ? 0
                              : sl_fail(-errno, "epoll_wait failed: %s", sluice_strerror(-errno));
    /* All flags first: an event's handler may close a watch that comes later in the batch, and
     * closed watches stay valid memory but have fd -1. */
    for (int i = 0; i < count; i++) {
        struct sl_tcp_watch *watch = events[i].data.ptr;

        if ((events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
            watch->readable = true;
        if ((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
            watch->hung_up = true;
        if ((events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
            watch->writable = true;
    }
    for (int i = 0; i < count; i++) {
        struct sl_tcp_watch *watch = events[i].data.ptr;

        if (watch->fd >= 0)
            event(event_arg, watch);
    }
    return count;
}

static int engine_fd(void *arg)
{
    return ((struct epoll_engine *)arg)->fd;
}

const struct sl_tcp_engine_ops sl_tcp_epoll = {
    .kind = SL_TCP_ENGINE_EPOLL,
    .name = "epoll",
    .open = engine_open,
    .close = engine_close,
    .add = engine_add,
    .del = engine_del,
    .poll = engine_poll,
    .fd = engine_fd,
};
