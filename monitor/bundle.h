/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inputs of an agent (times, samples) and its outputs (transitions), as lines of JSON: so that
 * one finds out later, and elsewhere, why it reported something.
 *
 *     {"bundle":1,"version":"0.1.0","subjects":4096,"next_id":5}
 *     {"in":"time","mono":...,"wall":...,"boot":...}            before what came at that time
 *     {"in":"sample","kind":"port","subject":"mlx5_0:1","check":"link_down","bad":true,...}
 *     {"out":{"version":1,"type":"transition",...}}             as monitor/event_line.h has it
 *
 * A "bundle" line begins an agent anew. What reads them is monitor/replay.h.
 */
#ifndef SL_MONITOR_BUNDLE_H
#define SL_MONITOR_BUNDLE_H

#include "monitor/engine.h"

#define SL_BUNDLE_VERSION 1

struct sl_bundle;

/* Goes on at the end of the file, until it has bytes_max. -EACCES, ..., -ENOMEM. */
int sl_bundle_open(const char *path, uint64_t bytes_max, struct sl_bundle **out);
void sl_bundle_close(struct sl_bundle *bundle);

void sl_bundle_begin(struct sl_bundle *bundle, const char *version, size_t subjects_max,
                     uint64_t next_id);
void sl_bundle_input(struct sl_bundle *bundle, const struct sl_mon_time *time,
                     const struct sl_mon_input_record *input);
void sl_bundle_output(struct sl_bundle *bundle, const struct sl_mon_transition *transition);
/* What was said so far is in the file. */
void sl_bundle_flush(struct sl_bundle *bundle);
/* It takes nothing more: it is full, or cannot be written. */
bool sl_bundle_is_over(const struct sl_bundle *bundle);

#endif
