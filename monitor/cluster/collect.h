/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks agents over HTTP what they observe (GET /v1/observation), each once a period, so many at a
 * time, and gives it to the model. Each answer has a deadline and a largest size; an agent that
 * does not answer is asked less and less often, up to once in 30 s, and its node says why.
 *
 * No thread: the owner waits for sl_collect_fd() to be readable, or for sl_collect_wait_ms(), and
 * calls sl_collect_turn(). libcurl is opened when there is somebody to ask.
 */
#ifndef SL_MONITOR_CLUSTER_COLLECT_H
#define SL_MONITOR_CLUSTER_COLLECT_H

#include "monitor/cluster/members.h"
#include "monitor/cluster/model.h"

#define SL_COLLECT_AT_ONCE 256 /* questions under way */

struct sl_collect;

/* config: borrowed. -ENOMEM, or no epoll. */
int sl_collect_new(const struct sl_mon_config *config, struct sl_cluster_model *model,
                   struct sl_collect **out);
void sl_collect_free(struct sl_collect *collect);

/* Whom to ask from now on; nodes of agents that are not in it any more are forgotten. -ENOTSUP:
 * libcurl is not installed. */
int sl_collect_set(struct sl_collect *collect, const struct sl_members_list *members,
                   uint64_t now_ns);
int sl_collect_fd(const struct sl_collect *collect);
/* -1: for ever. */
int sl_collect_wait_ms(struct sl_collect *collect, uint64_t now_ns);
void sl_collect_turn(struct sl_collect *collect, uint64_t now_ns);

struct sl_collect_counts {
    unsigned agents, failing, under_way;
    uint64_t answers, failures;
};

struct sl_collect_counts sl_collect_counts(const struct sl_collect *collect);

#endif
