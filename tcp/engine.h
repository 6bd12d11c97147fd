/* SPDX-License-Identifier: Apache-2.0 */
/* How sockets report that they became readable or writable: one small contract, two engines. Events
 * are edges: an engine reports each change once, and flags keep it until a call says EAGAIN. */
#ifndef SL_TCP_ENGINE_H
#define SL_TCP_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of SLUICE_TCP_ENGINE's choices. */
enum sl_tcp_engine_kind { SL_TCP_ENGINE_AUTO, SL_TCP_ENGINE_URING, SL_TCP_ENGINE_EPOLL };

enum sl_tcp_watch_kind {
    SL_TCP_WATCH_LISTENER,
    SL_TCP_WATCH_PENDING,
    SL_TCP_WATCH_CONN,
    SL_TCP_WATCH_KNOCK,
};

struct sl_tcp_watch {
    int fd;       /* -1: none */
    uint8_t kind; /* enum sl_tcp_watch_kind */
    bool readable, writable;
    bool hung_up;    /* the peer sends no more, or there is an error: only a read tells which */
    uint32_t handle; /* the engine's */
};

/* Does it tell of room to write, too? */
static inline bool sl_tcp_watch_writes(const struct sl_tcp_watch *watch)
{
    return watch->kind == SL_TCP_WATCH_CONN || watch->kind == SL_TCP_WATCH_KNOCK;
}

/* Called by poll() for every watch with news; its flags are set already. */
typedef void sl_tcp_event_fn(void *arg, struct sl_tcp_watch *watch);

struct sl_tcp_engine_ops {
    enum sl_tcp_engine_kind kind;
    const char *name;
    /* -ENOTSUP and friends with a sentence: the kernel or a sandbox refuses. */
    int (*open)(void **out);
    void (*close)(void *engine);
    int (*add)(void *engine, struct sl_tcp_watch *watch);
    /* No event of watch comes after it. */
    void (*del)(void *engine, struct sl_tcp_watch *watch);
    /* Never blocks. How many events there were; negative: the engine is broken. */
    int (*poll)(void *engine, sl_tcp_event_fn *event, void *arg);
    /* Readable when poll() would find something. */
    int (*fd)(void *engine);
};

extern const struct sl_tcp_engine_ops sl_tcp_epoll, sl_tcp_uring;

/* -ENOTSUP and friends: it, or with auto any, cannot be had here. */
int sl_tcp_engine_open(enum sl_tcp_engine_kind kind, const struct sl_tcp_engine_ops **ops,
                       void **engine);

#endif
