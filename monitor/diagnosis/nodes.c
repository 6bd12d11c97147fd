/* SPDX-License-Identifier: Apache-2.0 */
/* Probabilities are an order of trust, not measured: a connection that broke is above a time that
 * has passed, and what an agent calls fatal above what it calls degraded. */
#include "monitor/diagnosis/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SURE 0.95
#define LIKELY 0.9

static struct sl_object host_object(uint32_t host)
{
    return (struct sl_object){
        .kind = SL_OBJECT_HOST, .a = SL_JOB_NONE, .b = SL_JOB_NONE, .name = host};
}

/* One start of the agent's is one silence, however often it is found. */
static int accuse_silent(const struct sl_job *job, const struct sl_job_node *node,
                         struct sl_verdicts *verdicts)
{
    struct sl_verdict *verdict = sl_verdict_add(
        verdicts, SL_VERDICT_NODE_SILENT, host_object(node->host), node->is_dead ? SURE : LIKELY);
    int err;

    if (verdict == NULL)
        return -ENOMEM;
    verdict->since_ns = node->last_ns;
    snprintf(verdict->episode, sizeof(verdict->episode), "epoch %" PRIu64, node->epoch);
    err = sl_verdict_say(verdict, "%s",
                         node->is_dead      ? "the broker lost its agent, or the agent ended"
                         : node->epoch == 0 ? "it was never heard of"
                                            : "nothing is heard of its agent any more");
    if (err == 0 && node->why != 0)
        err = sl_verdict_say(verdict, "%s", sl_job_string(job, node->why));
    return err;
}

/* The agent's own verdict, which it opened once. */
static int accuse_told(const struct sl_job *job, size_t place, struct sl_verdicts *verdicts)
{
    const struct sl_job_event *event = &job->events[place];
    struct sl_verdict *verdict = sl_verdict_add(
        verdicts, SL_VERDICT_NODE_FAULT, host_object(event->host), event->is_fatal ? SURE : LIKELY);

    if (verdict == NULL)
        return -ENOMEM;
    verdict->since_ns = event->at_ns;
    verdict->event = (uint32_t)place + 1;
    snprintf(verdict->episode, sizeof(verdict->episode), "verdict %" PRIu64 " of %" PRId64,
             event->number, event->at_ns);
    return sl_verdict_say(verdict, "%.40s %.100s, %.60s (%.40s, %s): %.300s",
                          sl_job_string(job, event->kind), sl_job_string(job, event->subject),
                          sl_job_string(job, event->check), sl_job_string(job, event->cls),
                          event->is_fatal ? "fatal" : "degraded", sl_job_string(job, event->text));
}

int sl_nodes_find(const struct sl_job *job, struct sl_verdicts *verdicts)
{
    int err = 0;

    if (job->rank_count > 0 || job->node_count == 0)
        return 0;
    for (size_t i = 0; i < job->node_count && err == 0; i++)
        if (job->nodes[i].is_silent)
            err = accuse_silent(job, &job->nodes[i], verdicts);
    for (size_t i = 0; i < job->event_count && err == 0; i++)
        if (job->events[i].number != 0)
            err = accuse_told(job, i, verdicts);
    return err;
}
