/* SPDX-License-Identifier: Apache-2.0 */
/* What is answered over HTTP: JSON, mostly. The agent's answers and those of a cluster's instance
 * have this in common. No I/O. */
#ifndef SL_MONITOR_HTTP_ANSWER_H
#define SL_MONITOR_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_object;

struct sl_http_answer {
    int status; /* of HTTP */
    const char *type;
    char *body; /* owned by whoever asked: free() */
    size_t len;
};

/* {"version":1}, to be added to; NULL without memory. */
struct json_object *sl_http_object(void);

/* The object as a line, and puts it. -ENOMEM. */
int sl_http_write(struct json_object *object, FILE *out);
/* The same as an answer, with what else of it is set. -ENOMEM. */
int sl_http_answer_object(struct json_object *object, struct sl_http_answer *out);
/* {"version":1,"error":"..."}. -ENOMEM. */
int sl_http_answer_error(int status, const char *why, struct sl_http_answer *out);
/* Of metrics: OpenMetrics, or the text format before it. */
const char *sl_http_metrics_type(bool openmetrics);

#endif
