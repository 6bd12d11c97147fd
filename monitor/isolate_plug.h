/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a node is taken out and brought back: rows of a table, a file each. All of a plug but check()
 * runs in a child process (job.h): it may take until the order's deadline, and is killed after it.
 */
#ifndef SL_MONITOR_ISOLATE_PLUG_H
#define SL_MONITOR_ISOLATE_PLUG_H

#include "monitor/actions.h"
#include "monitor/config.h"
#include "monitor/isolate.h"

/* A class of verdicts, as a condition of the node. */
struct sl_isolate_told {
    char condition[32];
    bool is_bad;
    char mark[SL_ISOLATE_MARK]; /* it is bad: by this verdict */
    char text[SL_MON_TEXT + SL_MON_NAME + 8];
};

#define SL_ISOLATE_TOLD 32

struct sl_isolate_order {
    const struct sl_mon_config *config;
    struct sl_isolate_rules rules;
    struct sl_mon_action action; /* act() */
    enum sl_isolate_kind kind;
    char mark[SL_ISOLATE_MARK];
    char node[SL_MON_NAME];
    struct sl_isolate_told told[SL_ISOLATE_TOLD]; /* tell() */
    unsigned told_count;
    uint64_t wall_ns, deadline_ns; /* of CLOCK_MONOTONIC */
};

struct sl_isolate_answer {
    int32_t result;    /* enum sl_isolate_result */
    uint64_t retry_ns; /* not before; 0: whenever */
    bool is_out;       /* find(): by us, and by which verdict */
    char mark[SL_ISOLATE_MARK];
    char why[SL_MON_TEXT];
};

struct sl_isolate_plug {
    const char *name;
    /* In the agent: whether the configuration says what is needed. -EINVAL, -ENOTSUP. */
    int (*check)(const struct sl_mon_config *config);
    void (*act)(const struct sl_isolate_order *order, struct sl_isolate_answer *out);
    /* Is the node out by us? NULL: it cannot be asked. */
    void (*find)(const struct sl_isolate_order *order, struct sl_isolate_answer *out);
    /* Tells all classes, of which some are bad. NULL: nobody wants to know. */
    void (*tell)(const struct sl_isolate_order *order, struct sl_isolate_answer *out);
};

extern const struct sl_isolate_plug sl_isolate_exec;  /* isolate_exec.c */
extern const struct sl_isolate_plug sl_isolate_slurm; /* isolate_slurm.c */
extern const struct sl_isolate_plug sl_isolate_kube;  /* isolate_kube.c, isolate_kube_absent.c */

/* act() and find() of a plug whose controller can be asked. */
void sl_isolate_act(const struct sl_isolate_ops *ops, void *arg,
                    const struct sl_isolate_order *order, struct sl_isolate_answer *out);
void sl_isolate_look(const struct sl_isolate_ops *ops, void *arg, struct sl_isolate_answer *out);
/* The thread's last error, as an answer. */
void sl_isolate_failed(int err, struct sl_isolate_answer *out);
/* "NICDown mlx5_0:1: the port is down", of printable characters without quotes. */
void sl_isolate_reason(const struct sl_mon_action *action, char *out, size_t cap);

#endif
