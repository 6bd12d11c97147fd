/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An action on the node as a line of JSON, for journals and pipes, and for who asks:
 *
 *     {"version":1,"type":"action","time":"...","result":"done","id":3,"key":"n1/3f2a/17/out", ...}
 */
#ifndef SL_MONITOR_ACTION_LINE_H
#define SL_MONITOR_ACTION_LINE_H

#include "monitor/actions.h"

#include <stdio.h>

struct json_object;

/* One line, ended. What out cannot take is lost: the action is in the store. */
void sl_mon_action_line(const struct sl_mon_action *action, const char *result, uint64_t wall_ns,
                        FILE *out);
/* Adds its keys. */
void sl_mon_action_json(const struct sl_mon_action *action, struct json_object *out);

#endif
