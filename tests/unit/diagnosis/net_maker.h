/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose messages tests make up: who sends to whom, and what each part of the network costs. */
#ifndef SL_TESTS_DIAGNOSIS_NET_MAKER_H
#define SL_TESTS_DIAGNOSIS_NET_MAKER_H

#include "core/rng.h"
#include "monitor/diagnosis/comm.h"
#include "monitor/diagnosis/job.h"

/* By how much what goes from src to dst on a path is slower; 1: not at all. */
typedef double net_factor(const void *context, uint32_t src, uint32_t dst, uint32_t path);

struct net {
    struct sl_job *job;
    struct sl_rng rng;
    net_factor *factor; /* NULL: nobody is slow */
    const void *context;
    double noise;      /* of a cell, at most, as a share: 0.02 */
    uint64_t messages; /* of a cell */
    uint64_t size;     /* bytes of each */
    uint32_t paths;    /* 0: they have no names */
};

void net_begin(struct net *net, uint32_t ranks, uint64_t seed);
void net_host(struct net *net, uint32_t rank, const char *host);
/* Where the host's device leads ("" : all of it). */
void net_port(struct net *net, const char *host, const char *device, const char *leaf);
/* What goes from src to dst, on each path. */
void net_edge(struct net *net, uint32_t src, uint32_t dst);
/* Each rank to the one that is `step` after it. */
void net_ring(struct net *net, uint32_t step);
void net_all_to_all(struct net *net);
/* "slow_link 3>4 +2" of each verdict (its class, whom it accuses, how many others), with a comma
 * between them. The job is judged, and freed with the next net_begin() or here. */
const char *net_judge(struct net *net);
/* The verdicts of the last net_judge(). */
const struct sl_verdicts *net_verdicts(void);
/* Is there a sentence with these words? */
bool net_says(const char *words);
void net_end(struct net *net);

#endif
