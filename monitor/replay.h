/* SPDX-License-Identifier: Apache-2.0 */
/* Puts what a bundle (monitor/bundle.h) has through the engine once more, and compares. No clock,
 * and nothing of this host. */
#ifndef SL_MONITOR_REPLAY_H
#define SL_MONITOR_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_replay_result {
    uint64_t lines, inputs;
    uint64_t recorded, replayed; /* transitions and events */
    uint64_t differences;
    bool is_whole; /* the recording did not run out of room, or end within a line */
};

struct sl_replay_sink {
    /* One that the engine made now, as a line of JSON without its end. */
    void (*on_event)(void *arg, const char *line);
    /* At that line: recorded and replayed; of one that is missing on either side, NULL. */
    void (*on_difference)(void *arg, uint64_t line, const char *recorded, const char *replayed);
    void *arg;
};

/* name: for sentences. -EINVAL with "NAME:LINE: ..." for what is no bundle. */
int sl_replay(FILE *file, const char *name, const struct sl_replay_sink *sink,
              struct sl_replay_result *out);

#endif
