/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody asks of a cluster's instance: a method and a target, as they came over a socket,
 * made into a request that is right in all its parts, or refused with a sentence. No I/O.
 */
#ifndef SL_MONITOR_CLUSTER_REQUEST_H
#define SL_MONITOR_CLUSTER_REQUEST_H

#include "monitor/observe.h"

#define SL_CLUSTER_LIMIT 256
#define SL_CLUSTER_LIMIT_MAX 1000
#define SL_CLUSTER_TARGET_MAX 1024 /* bytes */

enum sl_cluster_what {
    SL_CLUSTER_PAGE,
    SL_CLUSTER_INDEX,
    SL_CLUSTER_HEALTH,
    SL_CLUSTER_METRICS,
    SL_CLUSTER_STATE,
    SL_CLUSTER_NODES,
    SL_CLUSTER_MAP,
    SL_CLUSTER_NODE,
    SL_CLUSTER_JOBS,
    SL_CLUSTER_MATRIX,
    SL_CLUSTER_GRAPH,
    SL_CLUSTER_PORTS,
    SL_CLUSTER_VERDICTS,
    SL_CLUSTER_BUNDLE,
    SL_CLUSTER_LIVE
};

struct sl_cluster_request {
    enum sl_cluster_what what;
    char name[SL_OBSERVE_NODE];      /* of a node; in a list: those after it; "": all */
    char job[64], state[16], id[17]; /* id: of a verdict, 16 hexadecimal digits */
    bool is_open_only;
    unsigned limit;
    int status; /* of HTTP: 200, or why it is refused */
    char why[160];
};

void sl_cluster_parse(const char *method, const char *target, struct sl_cluster_request *out);
/* The endpoints, for people: NULL after the last one. */
const char *sl_cluster_endpoint(unsigned i, const char **help);

#endif
