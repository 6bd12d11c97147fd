/* SPDX-License-Identifier: Apache-2.0 */
/* A state page in words, for people. Without memory, locks or printf: the handler of a signal
 * prints it. The output is text, whatever the page holds. */
#ifndef SL_CORE_STATE_TEXT_H
#define SL_CORE_STATE_TEXT_H

#include "core/err.h"
#include "core/state_read.h"

/* The longest line. */
#define SL_STATE_LINE (1024 + SL_ERROR_TEXT_MAX)

/* Gets lines, each with its end. False: no more of them. */
typedef bool sl_state_line_fn(void *arg, const char *text, size_t len);

/* "allreduce number 12 (1000 f32 sum, ring) at step 7 of 42, waits for a message of rank 3 by shm,
 * 4096 bytes so far, no progress for 3.100 s". Cuts at cap. Returns the length. */
size_t sl_state_op_text(const struct sl_state_op *op, char *out, size_t cap);

/* Each communicator, and below it its operations. False: line() wanted no more. */
bool sl_state_text_comms(const struct sl_state_reader *reader, sl_state_line_fn *line, void *arg);

/* All: also the process, whether it lives, its paths, and the events that are there. now_ns: of
 * CLOCK_MONOTONIC. */
bool sl_state_text_all(const struct sl_state_reader *reader, bool lives, uint64_t now_ns,
                       sl_state_line_fn *line, void *arg);

#endif
