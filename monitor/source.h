/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source: one thing of this host that is read in one way, and what its readings say to the
 * engine. The agent knows sources as rows of a table (monitor/sources.c) and nothing else of them:
 * a new one is a file and a line there.
 *
 *     create --> open --> tick, read, tick, ... --> close --> open ... --> destroy
 *                 ^                                   |
 *                 +------- again, in 10 s ------------+  it failed: probe_up is 0, with the reason
 *
 * Called by one thread. None of these calls may wait: what can hang is in a process of its own.
 */
#ifndef SL_MONITOR_SOURCE_H
#define SL_MONITOR_SOURCE_H

#include "monitor/config.h"
#include "monitor/metrics.h"

struct json_object;
struct sl_mon_ranks;

/* What a source is given; borrowed, for as long as the source is there. */
struct sl_source_host {
    struct sl_mon *mon; /* its time is set before each call */
    const struct sl_mon_config *config;
    struct sl_mon_ranks *ranks; /* processes that are watched (monitor/ranks.h) */
    /* Numbers that a source keeps within one boot, over restarts of the agent: 0 before the first.
     * NULL: nothing is kept. */
    uint64_t (*recall)(void *arg, const char *key);
    void (*note)(void *arg, const char *key, uint64_t value);
    void *arg;
};

struct sl_source_class {
    const char *name, *how; /* sluice_probe_up{probe="link",how="rtnetlink"} */
    size_t wanted;          /* where in struct sl_mon_config its enum sl_mon_wanted is */
    uint64_t period_ns;     /* between ticks, at least; 0: the agent's period */
    uint64_t quiet;         /* checks whose silence is good while this source is up, a bit each */

    /* Memory, and what is counted from the agent's begin to its end. No I/O. -ENOMEM. */
    int (*create)(const struct sl_source_host *host, void **out);
    void (*destroy)(void *source); /* closed before */
    /* -ENODEV, -ENOTSUP: there is no such thing here, which is an alarm only where it is asked for
     * ("on"). Others: it cannot be had now. With a sentence that says what to install or allow. */
    int (*open)(void *source);
    void (*close)(void *source);

    /* What may be NULL: */
    int (*fd)(const void *source); /* to wait for; after open() */
    /* fd is readable: takes what has come, within bounds. How much, or a negative errno: it is
     * closed, and opened again later. */
    int (*read)(void *source);
    int (*tick)(void *source);               /* once a period: 0, or as above */
    uint64_t (*dropped)(const void *source); /* events lost, in all */
    /* Its ports, for metrics and for people: how many, at most so many. */
    unsigned (*ports)(void *source, const struct sl_mon_port **out, unsigned most);
    /* Families of metrics of its own, whole (HELP, TYPE, samples), also while it is closed:
     * counters are there from the start, at 0. monitor/metrics.h has the calls. */
    void (*metrics)(void *source, enum sl_mon_format format, FILE *out);
    /* Keys of its own in the answer to /v1/NAME. */
    void (*json)(void *source, struct json_object *out);
};

#define SL_SOURCE_QUIET(check) (UINT64_C(1) << SL_MON_CHECK_##check)

extern const struct sl_source_class *const sl_source_classes[];
extern const unsigned sl_source_class_count;

/* One row each, in the file of its name. */
extern const struct sl_source_class sl_source_link;   /* source_link.c */
extern const struct sl_source_class sl_source_rdma;   /* source_rdma.c */
extern const struct sl_source_class sl_source_kmsg;   /* source_kmsg.c */
extern const struct sl_source_class sl_source_ranks;  /* source_ranks.c */
extern const struct sl_source_class sl_source_sluice; /* source_sluice.c */
extern const struct sl_source_class sl_source_echo;   /* source_echo.c */
extern const struct sl_source_class sl_source_bpf_retransmit, sl_source_bpf_window,
    sl_source_bpf_reset, sl_source_bpf_checksum;        /* source_bpf_tcp.c */
extern const struct sl_source_class sl_source_bpf_drop; /* source_bpf_drop.c */
extern const struct sl_source_class sl_source_bpf_xmit, sl_source_bpf_timeout, sl_source_bpf_qdisc,
    sl_source_bpf_stall;                                 /* source_bpf_queue.c */
extern const struct sl_source_class sl_source_bpf_sched; /* source_bpf_sched.c */
extern const struct sl_source_class sl_source_bpf_qp, sl_source_bpf_rdma_event; /* ..._qp.c */

extern const struct sl_source_class sl_source_tcp;    /* source_tcp.c */
extern const struct sl_source_class sl_source_queues; /* source_queues.c */
extern const struct sl_source_class sl_source_pcie;   /* source_pcie.c */
extern const struct sl_source_class sl_source_gpu;    /* source_gpu.c */
extern const struct sl_source_class sl_source_nldev;  /* source_nldev.c */
extern const struct sl_source_class sl_source_async;  /* source_async.c */

/* What sources of ports share. A port that lost half of its lanes is as slow after a restart of the
 * agent, when nobody would remember what it did before: its best speed is kept, within a boot. */
void sl_source_port_begin(const struct sl_source_host *host, struct sl_mon_port *port,
                          struct sl_mon_subject *subject);
void sl_source_port_read(const struct sl_source_host *host, struct sl_mon_port *port,
                         const char *source, const struct sl_mon_reading *reading);

#endif
