/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/jobs.h"

#include "core/err.h"

#include <errno.h>
#include <stdlib.h>

bool sl_cluster_is_silent(const struct sl_cluster_node *node, uint64_t silent_before_ns)
{
    return node->is_dead || node->heard_ns < silent_before_ns;
}

static int64_t last_ms(const struct sl_cluster_node *node)
{
    int64_t last = 0;

    for (unsigned i = 0; i < SL_OBSERVE_SOURCES; i++)
        last = node->obs[i].time_ms > last ? node->obs[i].time_ms : last;
    return last;
}

struct sl_facts_seen sl_cluster_seen(const struct sl_cluster_node *node, uint64_t silent_before_ns)
{
    return (struct sl_facts_seen){.facts = &node->facts,
                                  .is_silent = sl_cluster_is_silent(node, silent_before_ns),
                                  .is_dead = node->is_dead,
                                  .last_ms = last_ms(node),
                                  .why = node->why};
}

int sl_cluster_jobs_find(struct sl_cluster_model *model, uint64_t silent_before_ns,
                         struct sl_facts_jobs *out)
{
    unsigned count;
    struct sl_cluster_node *const *nodes = sl_cluster_nodes(model, &count);
    struct sl_facts_seen *seen = reallocarray(NULL, (size_t)count + 1, sizeof(*seen));
    int err;

    *out = (struct sl_facts_jobs){.count = 0};
    if (seen == NULL)
        return sl_fail(-ENOMEM, "no memory for the cluster's jobs");
    for (unsigned i = 0; i < count; i++)
        seen[i] = sl_cluster_seen(nodes[i], silent_before_ns);
    err = sl_facts_jobs_find(seen, count, out);
    free(seen);
    return err;
}
