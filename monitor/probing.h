/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes that somebody asks this agent for, one after another, each in a process of its own; what
 * came of the latest is kept for who asks.
 */
#ifndef SL_MONITOR_PROBING_H
#define SL_MONITOR_PROBING_H

#include "monitor/config.h"
#include "monitor/engine.h"
#include "monitor/metrics.h"
#include "monitor/probe_ask.h"

struct json_object;
struct sl_probing;

#define SL_PROBING_WAITING 64 /* at most */
#define SL_PROBING_KEPT 64
#define SL_PROBING_RAIL SL_PROBE_RAIL

/* As it is asked for. */
struct sl_probing_wish {
    char to[64], from[64];      /* "192.0.2.2:9495"; "192.0.2.1", or "" */
    char rail[SL_PROBING_RAIL]; /* "mlx5_0:1", "eth0", or "" */
    bool is_rdma;
    char to_rail[SL_PROBING_RAIL]; /* over RDMA: the port there, or "" */
    unsigned count, bytes, gap_us, traffic_class;
};

/* config: borrowed. -ENOMEM. */
int sl_probing_open(const struct sl_mon_config *config, struct sl_probing **out);
void sl_probing_close(struct sl_probing *probing);
/* Its number, from 1 on. -EINVAL, -EPERM: it cannot be done; -EAGAIN: too many wait. With a
 * sentence. */
int sl_probing_ask(struct sl_probing *probing, const struct sl_probing_wish *wish,
                   const struct sl_mon_time *now, uint64_t *id);
/* Begins the next one, and sees whether one is over. */
void sl_probing_tick(struct sl_probing *probing, const struct sl_mon_time *now);
void sl_probing_metrics(const struct sl_probing *probing, enum sl_mon_format format, FILE *out);
/* Adds "probing" to out: what waits, and what came of the latest. */
void sl_probing_json(const struct sl_probing *probing, struct json_object *out);

#endif
