/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of ranks: what two readings of them say of the port that they go over.
 *
 * A path that fails accuses its port only where another path to the same peer, over another port,
 * carries meanwhile: the peer lives then, and so do the program and the fabric behind it. All paths
 * of a rank that died fail, and so do those of a job that ends.
 */
#ifndef SL_MONITOR_PATH_H
#define SL_MONITOR_PATH_H

#include "monitor/engine.h"

#include "core/state.h"

#define SL_MON_PATH_FRESH_NS (4 * SL_MON_S) /* a path that carried since then carries */

/* What is remembered of a path between readings. */
struct sl_mon_path {
    uint64_t turn, comm; /* 0: there is none in this place */
    uint64_t sent, received, failures, resent, ups;
    uint64_t moved_ns;  /* when it was first seen to have carried more; 0: never */
    uint64_t failed_ns; /* the same, of failures */
    int32_t peer;
    int16_t port; /* number of it, with its reader; -1: none that is known */
    bool is_up;
};

struct sl_mon_path_change {
    uint64_t failures, resent, bytes; /* since the last reading */
};

/* "rxe0:1 > 198.51.100.2", "mlx5_0:1@2 > fe80::1": the port's name. False: it has none. */
bool sl_mon_path_port(const char *name, char *out, size_t cap);

/* One more reading of the path in this place, at that time. port: of its name. */
struct sl_mon_path_change sl_mon_path_read(struct sl_mon_path *path, uint64_t now_ns, int16_t port,
                                           const struct sl_state_path *record);
/* It is not there any more. */
void sl_mon_path_end(struct sl_mon_path *path);

/* Of the paths of one rank: adds up for each port, by its number, what its paths say now. */
struct sl_mon_path_verdict {
    unsigned paths, down;
    unsigned carries; /* paths that carried lately */
    unsigned accuse;  /* that are down or failed lately, while another port carries to that peer */
};

void sl_mon_path_judge(const struct sl_mon_path *paths, unsigned count, uint64_t now_ns,
                       uint64_t since_ns, struct sl_mon_path_verdict *ports, unsigned port_count);

/* A sample of the port, by what the paths of all ranks say. Nothing, where they say nothing. */
void sl_mon_path_sample(struct sl_mon *mon, struct sl_mon_subject *port,
                        const struct sl_mon_path_verdict *verdict, uint64_t failures_before,
                        uint64_t failures);

#endif
