/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: levels by area, one replaceable sink. The data path writes no text. */
#ifndef SL_CORE_LOG_H
#define SL_CORE_LOG_H

#include "core/err.h"

enum sl_log_level { SL_LOG_ERROR, SL_LOG_WARN, SL_LOG_INFO, SL_LOG_DEBUG, SL_LOG_TRACE };

/* Gets one whole line without a newline: "tcp rank 3: connected to rank 5 at 10.0.0.5:4711". */
typedef void sl_log_sink(void *arg, enum sl_log_level level, const char *area, const char *line);

/* Parses "verbs:debug,info" (areas first, then the level of all others). -EINVAL names the part
 * that was not understood; the words before it are in force. Not thread safe: at start. */
int sl_log_configure(const char *spec);

/* NULL goes back to stderr. arg is handed to every call. */
void sl_log_set_sink(sl_log_sink *sink, void *arg);

/* The rank that lines of this thread carry; negative: none. */
void sl_log_set_rank(int rank);

int sl_log_enabled(const char *area, enum sl_log_level level);

void sl_log_write(enum sl_log_level level, const char *area, const char *fmt, ...) SL_PRINTF(3, 4);

/* area is a string literal: the folder's name. */
#define sl_log(level, area, ...)                                                                   \
    (sl_log_enabled(area, level) ? sl_log_write(level, area, __VA_ARGS__) : (void)0)
#define sl_error(area, ...) sl_log(SL_LOG_ERROR, area, __VA_ARGS__)
#define sl_warn(area, ...) sl_log(SL_LOG_WARN, area, __VA_ARGS__)
#define sl_info(area, ...) sl_log(SL_LOG_INFO, area, __VA_ARGS__)
#define sl_debug(area, ...) sl_log(SL_LOG_DEBUG, area, __VA_ARGS__)

#endif
