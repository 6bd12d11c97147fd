/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent answers to a request (monitor/api_request.h): JSON, or metrics. Its fields are in
 * docs/monitor-api.md; they are added to and never change their meaning.
 */
#ifndef SL_MONITOR_API_ANSWER_H
#define SL_MONITOR_API_ANSWER_H

#include "monitor/agent.h"
#include "monitor/api_request.h"
#include "monitor/http_answer.h"

struct sl_api_asker {
    bool may_write;      /* acknowledge and clear */
    bool openmetrics;    /* rather than the text format before it */
    const char *by;      /* who it is, for what is kept: "uid 0" */
    const char *refusal; /* why it may not write */
};

/* -ENOMEM. What cannot be answered is an answer too, with its status. */
int sl_api_answer(struct sl_agent *agent, const struct sl_api_request *request,
                  const struct sl_api_asker *asker, struct sl_http_answer *out);
/* "ok", "degraded", "bad", as in /v1/status. */
const char *sl_api_health(struct sl_agent *agent);

/* Is there an event after that one? Also where the numbers have begun anew. */
bool sl_api_has_news(struct sl_agent *agent, uint64_t since);

#endif
