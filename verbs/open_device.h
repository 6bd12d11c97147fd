/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open device. A process has each device open once, however many interfaces use it: they share
 * its context and its protection domain.
 *
 * Any thread. Opening and closing take one lock of the process. What is fixed once a device is open
 * is read without a lock. Completion queues, queue pairs and receive buffers are an interface's
 * own, so its data path meets no other thread here.
 *
 * Asynchronous events come to the context, so one of its interfaces reads what is meant for all:
 * each has a listener, a place where the others leave events for it. An event is acknowledged at
 * once, because libibverbs destroys no queue pair before. (docs/design/0027-devices-once.md)
 */
#ifndef SL_VERBS_OPEN_DEVICE_H
#define SL_VERBS_OPEN_DEVICE_H

#include "core/list.h"
#include "verbs/ibv_dl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_VERBS_EVENTS_MAX 32 /* that wait at a listener */

struct sl_verbs_event {
    enum ibv_event_type type;
    uint32_t subject; /* number of the port, or of the queue pair */
};

/* Where events for one user of a device wait. The user embeds it, and gives its address as the
 * context of its queue pairs, completion queues and receive queues. */
struct sl_verbs_listener {
    struct sl_node link;
    uint32_t port; /* whose events it wants */
    int bell;      /* an eventfd, rung when others leave something here */
    /* with the device's event_lock */
    bool rung;
    struct sl_verbs_event events[SL_VERBS_EVENTS_MAX];
    unsigned count;
    bool overflowed; /* there was no room for all of those about queue pairs */
};

struct sl_verbs_device {
    struct sl_node link; /* of the process's */
    unsigned refs;       /* with the lock of the process */
    const struct sl_ibv *ibv;
    char name[IBV_SYSFS_NAME_MAX];
    struct ibv_context *context;
    bool is_mlx5;
    uint8_t lag_ports;    /* of a bond: how many; else 0 */
    _Atomic bool is_dead; /* for good: the next who wants it opens it anew */

    pthread_mutex_t memory_lock;
    struct ibv_pd *pd; /* made with the first use */
    bool asked_dmabuf, takes_dmabuf;

    pthread_mutex_t event_lock; /* held while events are read and handed out */
    struct sl_node listeners;
};

/* The device of that name; given, which may be NULL, is its place in a list of devices that the
 * caller has. The error is that of ibv_open_device(). */
int sl_verbs_device_get(const struct sl_ibv *ibv, const char *name, struct ibv_device *given,
                        struct sl_verbs_device **out);
/* The last one closes it. Takes NULL. */
void sl_verbs_device_put(struct sl_verbs_device *device);

/* From here to the matching call devices stay open though nobody uses them for a moment: for one
 * who lists all of them first, and then uses some. */
void sl_verbs_devices_keep(void);
void sl_verbs_devices_unkeep(void);

/* Its protection domain. -ENOMEM, or what the device says. */
int sl_verbs_device_pd(struct sl_verbs_device *device, struct ibv_pd **out);
/* Does it take memory of others, GPUs' for one (gpu.c)? */
bool sl_verbs_device_takes_dmabuf(struct sl_verbs_device *device);

/* From here on listener gets the device's events. */
void sl_verbs_device_listen(struct sl_verbs_device *device, struct sl_verbs_listener *listener);
/* What had it as its context is destroyed. Does nothing for one that does not listen. */
void sl_verbs_device_unlisten(struct sl_verbs_device *device, struct sl_verbs_listener *listener);
/* Reads what the device has to say, and leaves it where it belongs. Returns how many events were
 * there for listener; *overflowed: some queue pairs failed of which it does not hear. */
unsigned sl_verbs_device_events(struct sl_verbs_device *device, struct sl_verbs_listener *listener,
                                struct sl_verbs_event out[SL_VERBS_EVENTS_MAX], bool *overflowed);

#endif
