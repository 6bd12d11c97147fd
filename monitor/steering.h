/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the ranks of this host by which ports to send no more, by verdicts of the agent (steer.h
 * has the rules): in a path table of its own, which their transports watch (docs/paths.md), told as
 * lines of JSON and counted. In shadow mode all but the table.
 *
 * The table says until when it counts, a minute ahead, and is written again before that: rules of
 * an agent that died end by themselves.
 */
#ifndef SL_MONITOR_STEERING_H
#define SL_MONITOR_STEERING_H

#include "monitor/config.h"
#include "monitor/metrics.h"
#include "monitor/port.h"

struct json_object;
struct sl_steering;

struct sl_steering_options {
    const struct sl_mon_config *config; /* borrowed for as long as it is open */
    struct sl_mon *mon;                 /* the same */
    FILE *log;                          /* the same: lines of JSON */
    /* Keeps a number of this boot over restarts; recall: 0: there is none. */
    uint64_t (*recall)(void *arg, const char *key);
    void (*note)(void *arg, const char *key, uint64_t value);
    void *arg;
};

/* *out is NULL where nobody asks for it. -EINVAL: the configuration names a check that there is
 * not; -ENOMEM. */
int sl_steering_open(const struct sl_steering_options *options, struct sl_steering **out);
/* What the table says stays, until its time is over. Takes NULL. */
void sl_steering_close(struct sl_steering *steering);
/* Once a period, after the sources. ports: of all sources; those of RDMA devices count. Takes
 * NULL. */
void sl_steering_tick(struct sl_steering *steering, const struct sl_mon_port *const *ports,
                      unsigned count);
/* These take NULL, too: then nothing is steered. */
void sl_steering_metrics(const struct sl_steering *steering, enum sl_mon_format format, FILE *out);
/* Adds "steering" to out. */
void sl_steering_json(const struct sl_steering *steering, struct json_object *out);

#endif
