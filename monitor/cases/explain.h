/* SPDX-License-Identifier: Apache-2.0 */
/* A verdict in prose, for people: what was seen, what it was compared with, why others were
 * excluded, what would decide, what to do next. */
#ifndef SL_MONITOR_CASES_EXPLAIN_H
#define SL_MONITOR_CASES_EXPLAIN_H

#include "monitor/cases/case.h"

#include <stdio.h>

/* it: where the result is of; its verdict. -ENOMEM. */
int sl_explain(const struct sl_case *it, struct sl_case_result *result,
               const struct sl_verdict *verdict, FILE *out);

#endif
