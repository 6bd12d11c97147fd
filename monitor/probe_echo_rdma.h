/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers probes over RDMA: the life of a process of its own, begun when another agent that has the
 * secret asks where to send, and over a minute after the last probe. Queue pairs are held for no
 * longer than that. What it says to the agent goes through a pipe, as records.
 */
#ifndef SL_MONITOR_PROBE_ECHO_RDMA_H
#define SL_MONITOR_PROBE_ECHO_RDMA_H

#include "monitor/probe_list.h"

#define SL_PROBE_RECORD_MAGIC 0x534c5052u

enum sl_probe_record_type {
    SL_PROBE_RECORD_PORT,  /* another port that is listened at */
    SL_PROBE_RECORD_READY, /* these were all */
    SL_PROBE_RECORD_NONE,  /* none, and why; it ends */
    SL_PROBE_RECORD_COUNTS
};

struct sl_probe_record {
    uint32_t magic, type;
    struct sl_probe_port port;
    uint64_t answered, foreign, beyond; /* since the last */
    char why[SL_PROBE_WHY];
};

struct sl_probe_echo_order {
    const char *rdma_root, *library;
    uint64_t rate; /* packets that are answered in a second */
    char host[SL_PROBE_HOST];
    uint8_t key[SL_DIGEST_BYTES];
    uint64_t idle_ns; /* after which it ends */
};

/* arg: a struct sl_probe_echo_order. The process's exit status. */
int sl_probe_echo_rdma_run(const void *arg, int fd);

#endif
