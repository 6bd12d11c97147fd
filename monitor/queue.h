/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transmit queues of network interfaces: does what should leave the host leave it?
 *
 * The kernel queues packets in a qdisc, hands them to the driver, and the device counts what it
 * sent. A queue stands still where packets wait in it, or are thrown away, or go into it, while
 * nothing of it is sent. Messages of rtnetlink (RTM_NEWQDISC, RTM_NEWSTATS) and two readings in,
 * samples out; no I/O.
 */
#ifndef SL_MONITOR_QUEUE_H
#define SL_MONITOR_QUEUE_H

#include "monitor/engine.h"

#define SL_MON_QUEUES_MAX 1024 /* of all interfaces */
#define SL_MON_QUEUE_NETIFS_MAX 128

struct nlmsghdr;

/* A qdisc that sends, as a message tells of it. Counts since it was made. */
struct sl_mon_qdisc {
    unsigned ifindex;
    uint32_t handle, parent;
    bool is_root, is_many; /* it is only a folder of one queue each (mq) */
    uint64_t bytes;        /* handed to the driver */
    uint32_t backlog, drops, requeues, overlimits;
};

/* False: it is none, or says too little. */
bool sl_mon_qdisc_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_qdisc *out);

/* What an interface sent. */
struct sl_mon_sent {
    unsigned ifindex;
    uint64_t bytes, dropped;
    bool is_down; /* it has no link, which no message of this kind says: whoever asks sets it */
};

bool sl_mon_sent_parse(const struct nlmsghdr *message, size_t len, struct sl_mon_sent *out);

/* A queue of the driver, in sysfs: bytes that the device has and has not sent yet, and how often
 * the driver gave up on it. */
struct sl_mon_tx {
    bool has_inflight, has_timeouts;
    uint64_t inflight, timeouts; /* bytes */
};

/* A line of /proc/net/softnet_stat: hexadecimal numbers. False: it is none. */
bool sl_mon_softnet_parse(const char *line, uint64_t *dropped, uint64_t *squeezed);

struct sl_mon_queues;

int sl_mon_queues_create(struct sl_mon *mon, struct sl_mon_queues **out); /* -ENOMEM */
void sl_mon_queues_destroy(struct sl_mon_queues *queues);

/* A reading: begin, then what there is in any order, then end. */
void sl_mon_queues_begin(struct sl_mon_queues *queues);
void sl_mon_queues_netif(struct sl_mon_queues *queues, const char *name,
                         const struct sl_mon_sent *sent);
/* Those of interfaces that were given before; others are left out. */
void sl_mon_queues_qdisc(struct sl_mon_queues *queues, const struct sl_mon_qdisc *qdisc);
void sl_mon_queues_tx(struct sl_mon_queues *queues, unsigned ifindex, unsigned queue,
                      const struct sl_mon_tx *tx);
void sl_mon_queues_end(struct sl_mon_queues *queues);

/* What is known of an interface. Counts since the agent began. */
struct sl_mon_queue_view {
    const char *name;
    unsigned ifindex;
    uint64_t backlog; /* bytes, now */
    uint64_t drops, requeues, timeouts;
};
/* False: there is no such place; one that is free has no name (""). */
bool sl_mon_queues_view(const struct sl_mon_queues *queues, unsigned i,
                        struct sl_mon_queue_view *out);

#endif
