/* SPDX-License-Identifier: Apache-2.0 */
/* The array "ranks" in an answer: each source that knows of a process adds its keys to the same
 * object, which is found by the process' number. */
#ifndef SL_MONITOR_RANKS_JSON_H
#define SL_MONITOR_RANKS_JSON_H

#include "monitor/ranks.h"

struct json_object;

/* The object of this process, with who it is; borrowed. NULL: there is no memory. */
struct json_object *sl_mon_rank_json(struct json_object *out, const struct sl_mon_rank *rank);
void sl_mon_json_text(struct json_object *out, const char *key, const char *text);
void sl_mon_json_number(struct json_object *out, const char *key, int64_t value);
/* Of nanoseconds. */
void sl_mon_json_seconds(struct json_object *out, const char *key, uint64_t ns);

#endif
