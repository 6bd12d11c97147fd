/* SPDX-License-Identifier: Apache-2.0 */
/* What whoever asks another agent does over any transport: asks whether somebody is there, sends
 * packets at their times, and takes answers. For a process of its own, as it waits. */
#ifndef SL_MONITOR_PROBE_ASK_H
#define SL_MONITOR_PROBE_ASK_H

#include "monitor/probe.h"

#include <sys/socket.h>

#define SL_PROBE_TIME_MAX_S 60
#define SL_PROBE_RAIL 64

/* What is asked for. */
struct sl_probe_order {
    struct sockaddr_storage to, from; /* from: of family 0: the kernel's choice */
    socklen_t to_len, from_len;
    char device[16]; /* interface; "": the kernel's choice */
    uint32_t count, bytes;
    uint64_t gap_ns; /* between two packets */
    uint8_t key[SL_DIGEST_BYTES];
    uint64_t session; /* by chance */

    /* Over RDMA; then to is where the other agent answers probes over UDP. */
    bool is_rdma;
    uint8_t traffic_class;
    char rail[SL_PROBE_RAIL], to_rail[SL_PROBE_RAIL]; /* "mlx5_0:1"; to_rail "": as fits */
    const char *rdma_root, *library;                  /* borrowed: the agent's configuration */
};

/* What came of it, as it goes from one process to the other. */
struct sl_probe_report {
    struct sl_probe_result result;
    uint64_t wall_ns;         /* when it began */
    char host[SL_PROBE_HOST]; /* who answered; "": nobody */
    char why[256];            /* it could not be done, or nobody answered; "" */
    /* over RDMA */
    char to_rail[SL_PROBE_RAIL];
    uint8_t gid[16], to_gid[16];
    unsigned gid_index, mtu;
};

/* One who asks; arg and what follows are the transport's. */
struct sl_probe_asker {
    const struct sl_probe_order *order;
    struct sl_probe_report *out;
    struct sl_probe_time *times; /* order->count */
    uint32_t sent, answered;
    bool is_heard, is_over; /* is_over: nothing can be sent any more, out->why says why */
    uint8_t bytes[SL_PROBE_MOST];

    void *arg;
    int fd;           /* readable when something has come */
    uint64_t spin_ns; /* after a packet left, answers are looked for without sleeping */
    /* What does not leave is lost. */
    void (*send)(struct sl_probe_asker *asker, const uint8_t *bytes, uint32_t len);
    /* Gives sl_probe_take() all that has come, without waiting. */
    void (*take)(struct sl_probe_asker *asker);
};

/* -ENOMEM, with out->why. */
int sl_probe_asker_init(struct sl_probe_asker *asker, const struct sl_probe_order *order,
                        struct sl_probe_report *out);
void sl_probe_asker_fini(struct sl_probe_asker *asker);
/* A packet has come; came_ns of CLOCK_REALTIME. */
void sl_probe_take(struct sl_probe_asker *asker, const uint8_t *bytes, size_t len,
                   uint64_t came_ns);
/* Up to eight packets of LEAST bytes, for less than a second: does somebody answer? So nobody is
 * flooded who has not the secret. */
bool sl_probe_is_there(struct sl_probe_asker *asker);
/* Sends them all, and fills out->result. Takes count times gap and half a second; on a busy host up
 * to four more, and if it was not let run, fewer packets are sent. */
void sl_probe_run(struct sl_probe_asker *asker);

uint64_t sl_probe_wall(void); /* CLOCK_REALTIME */
uint64_t sl_probe_mono(void); /* CLOCK_MONOTONIC */

#endif
