/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open device. A process has each device open once, however many interfaces use it: they share
 * its context, its protection domain and what is registered with it.
 *
 * Any thread. Opening and closing take one lock of the process; registering takes one of the
 * device. What is fixed once a device is open is read without a lock. Completion queues, queue
 * pairs and receive buffers are an interface's own, and it looks its messages' memory up among its
 * own claims (multipath/iface.h), so its data path meets no other thread here.
 *
 * Asynchronous events come to the context, so one of its interfaces reads what is meant for all:
 * each has a listener, a place where the others leave events for it. An event is acknowledged at
 * once, because libibverbs destroys no queue pair before. (docs/design/0027-devices-once.md)
 */
#ifndef SL_VERBS_OPEN_DEVICE_H
#define SL_VERBS_OPEN_DEVICE_H

#include "core/list.h"
#include "core/mem.h"
#include "verbs/ibv_dl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SL_VERBS_EVENTS_MAX 64       /* that wait at a listener */
#define SL_VERBS_GONE_MAX 8          /* ranges of memory that wait there */
#define SL_VERBS_SOFT_ROCE 0xffffffu /* its vendor, as ibv_query_device() says */

struct sl_verbs_event {
    enum ibv_event_type type;
    uint32_t subject; /* number of the port, or of the queue pair */
};

struct sl_verbs_range {
    uintptr_t addr, end;
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
    struct sl_verbs_range gone[SL_VERBS_GONE_MAX];
    unsigned gone_count;
};

/* Who writes to registered memory: this end alone, peers too, or peers by the keys of windows. What
 * they cannot write to, a faulty one cannot damage. */
enum sl_verbs_writers { SL_VERBS_OURS, SL_VERBS_PEERS, SL_VERBS_WINDOW_KEYS };

/* What is registered with a device, by whether the NIC may reorder its writes there, and by whose
 * keys peers write: settings (SLUICE_VERBS_RELAXED_ORDERING, _KEYS), in which two interfaces may
 * differ. */
struct sl_verbs_memory {
    struct sl_verbs_device *device;
    bool relaxed;
    enum sl_verbs_writers writers; /* of what users register */
    struct sl_mem_cache cache;     /* with memory_lock; handles are struct ibv_mr */
    struct ibv_mr *ready;          /* with memory_lock: made already, for who adopts it */
};

/* One of them, held. */
struct sl_verbs_claim {
    struct ibv_mr *mr;
    struct sl_mem_region *region; /* NULL: nothing */
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

    pthread_mutex_t memory_lock; /* held while memory is registered: the kernel takes its time */
    struct ibv_pd *pd;           /* made with the first use, then fixed */
    bool asked_dmabuf, takes_dmabuf;
    struct sl_verbs_memory memory[4]; /* strict, relaxed; and so for windows */

    pthread_mutex_t event_lock; /* held while events are read and handed out */
    struct sl_node listeners;
};

/* The device of that name; given, which may be NULL, is its place in a list of devices that the
 * caller has. The error is that of ibv_open_device(). */
int sl_verbs_device_get(const struct sl_ibv *ibv, const char *name, struct ibv_device *given,
                        struct sl_verbs_device **out);
/* Asks the device. One that is dead stays so. */
bool sl_verbs_device_is_alive(struct sl_verbs_device *device);
/* The last one closes it. Takes NULL. */
void sl_verbs_device_put(struct sl_verbs_device *device);

/* From here to the matching call devices stay open though nobody uses them for a moment: for one
 * who lists all of them first, and then uses some. */
void sl_verbs_devices_keep(void);
void sl_verbs_devices_unkeep(void);

/* Its protection domain. -ENOMEM, or what the device says. */
int sl_verbs_device_pd(struct sl_verbs_device *device, struct ibv_pd **out);
/* Does it take memory of others, GPUs' for one? */
bool sl_verbs_device_takes_dmabuf(struct sl_verbs_device *device);

/* Before and after its life. */
void sl_verbs_memory_init(struct sl_verbs_device *device);
void sl_verbs_memory_fini(struct sl_verbs_device *device);
/* A registration that covers mem until it is put, made or found: 1, it was made; 0, it was there,
 * made by this interface or another one. The caller has asked for the domain before. -ENOTSUP: no
 * GPU memory; the error of ibv_reg_mr(), as a sentence about limits where it is one. */
int sl_verbs_memory_get(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                        struct sl_verbs_claim *out);
/* The same of a registration that the caller has made for mem. Takes it in any case: where mem is
 * registered already, it ends. */
int sl_verbs_memory_adopt(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                          struct ibv_mr *made, struct sl_verbs_claim *out);
/* Would sl_verbs_memory_get() find it there? */
bool sl_verbs_memory_has(struct sl_verbs_memory *memory, const struct sl_mem *mem);
/* True: it was the last one, and the device has let go of that memory. Takes an empty claim. */
bool sl_verbs_memory_put(struct sl_verbs_memory *memory, struct sl_verbs_claim *claim);
/* The same for memory that is looked up for nobody, and found nowhere: our own, as what a user
 * forgot to take back may lie at the same addresses; and such that is to be adopted. No lock is
 * held. */
int sl_verbs_memory_make(struct sl_verbs_memory *memory, const struct sl_mem *mem,
                         enum sl_verbs_writers writers, struct ibv_mr **out);
void sl_verbs_memory_end(struct sl_verbs_memory *memory, struct ibv_mr *mr);

/* [addr, addr+len) goes away: nobody finds its registrations any more, and all listeners hear of
 * it where there are claims left. */
void sl_verbs_device_mem_gone(struct sl_verbs_device *device, const void *addr, size_t len);
/* What went away since it was asked last; how many. */
unsigned sl_verbs_device_gone(struct sl_verbs_device *device, struct sl_verbs_listener *listener,
                              struct sl_verbs_range out[SL_VERBS_GONE_MAX]);

/* From here on listener gets the device's events. */
void sl_verbs_device_listen(struct sl_verbs_device *device, struct sl_verbs_listener *listener);
/* What had it as its context is destroyed. Does nothing for one that does not listen. */
void sl_verbs_device_unlisten(struct sl_verbs_device *device, struct sl_verbs_listener *listener);
/* Reads what the device has to say, and leaves it where it belongs. Returns how many events were
 * there for listener; *overflowed: some queue pairs failed of which it does not hear. */
unsigned sl_verbs_device_events(struct sl_verbs_device *device, struct sl_verbs_listener *listener,
                                struct sl_verbs_event out[SL_VERBS_EVENTS_MAX], bool *overflowed);

#endif
