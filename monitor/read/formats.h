/* SPDX-License-Identifier: Apache-2.0 */
/* The formats that are read, one a file. */
#ifndef SL_MONITOR_READ_FORMATS_H
#define SL_MONITOR_READ_FORMATS_H

#include "monitor/read/read.h"

extern const struct sl_read_format sl_read_trace;          /* Chrome's and Kineto's traces */
extern const struct sl_read_format sl_read_minibatch;      /* times of mini-batches, CSV */
extern const struct sl_read_format sl_read_xpu_timer;      /* a scrape, Prometheus's text */
extern const struct sl_read_format sl_read_inspector;      /* NCCL Inspector, lines of JSON */
extern const struct sl_read_format sl_read_inspector_prom; /* the same, Prometheus's text */
extern const struct sl_read_format sl_read_agent;          /* a node agent's answers */
extern const struct sl_read_format sl_read_agent_lines;    /* lines of its events */
extern const struct sl_read_format sl_read_history;        /* faults that nodes had */
extern const struct sl_read_format sl_read_probe;          /* probes of agents, lines of JSON */
extern const struct sl_read_format sl_read_nccl;           /* NCCL's events, of Sluice's plugin */
extern const struct sl_read_format sl_read_nccl_trace;     /* of NCCL's example plugin */
extern const struct sl_read_format sl_read_bench;          /* sluice-bench --json */
extern const struct sl_read_format sl_read_page;           /* a state page of Sluice */
extern const struct sl_read_format sl_read_status;         /* the same, of sluice-bench --status */
extern const struct sl_read_format sl_read_agent_ranks;    /* ranks of a node agent */
extern const struct sl_read_format sl_read_observations;   /* what agents publish, lines of JSON */
extern const struct sl_read_format sl_read_edges;          /* what passed from rank to rank, CSV */
extern const struct sl_read_format sl_read_ibnetdiscover;  /* where ports of hosts lead */

struct json_object;

/* What an answer to /v1/ports, or one with its "host", "time" and "ports", says is wrong with them.
 * -ENOMEM. */
int sl_read_agent_ports(struct sl_job *job, struct json_object *answer);

#endif
