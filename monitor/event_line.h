/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transition as a line of JSON, for journals and pipes:
 *
 *     {"version":1,"id":17,"time":"2026-11-25T20:39:11.123Z","subject":"mlx5_0:1","kind":"port",
 *      "check":"link_down","class":"NICDown","from":"ok","to":"bad","cause":"confirmed", ...}
 *
 * Fields are added and never change their meaning; version is raised where a reader would misread.
 */
#ifndef SL_MONITOR_EVENT_LINE_H
#define SL_MONITOR_EVENT_LINE_H

#include "monitor/store.h"

#include <stdio.h>

#define SL_MON_EVENT_VERSION 1

/* What is kept of it. */
void sl_mon_record_of(const struct sl_mon_transition *transition, struct sl_mon_record *out);

/* One line, ended. -ENOMEM; -EIO: out could not take it. */
int sl_mon_event_line(const struct sl_mon_record *record, FILE *out);

/* "2026-11-25T20:39:11.123Z", of nanoseconds since 1970. */
void sl_mon_time_text(uint64_t wall_ns, char *out, size_t cap);

#endif
