/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts for people and for programs. */
#ifndef SL_MONITOR_DIAGNOSIS_VERDICT_TEXT_H
#define SL_MONITOR_DIAGNOSIS_VERDICT_TEXT_H

#include "monitor/diagnosis/verdict.h"

#include <stdio.h>

struct json_object;

/* "rank 9 (host h2)", "the link from rank 3 to rank 4", "the program". */
void sl_object_text(const struct sl_job *job, const struct sl_object *object, char *out,
                    size_t cap);
void sl_verdicts_print(const struct sl_job *job, const struct sl_verdicts *verdicts, FILE *out);
/* Class and accused of each that accuses, a line each: equal texts are equal verdicts. To be freed;
 * NULL: no memory. */
char *sl_verdicts_names(const struct sl_job *job, const struct sl_verdicts *verdicts);
/* An array of objects; the caller's. */
struct json_object *sl_verdicts_json(const struct sl_job *job, const struct sl_verdicts *verdicts);

#endif
