/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on standard error that stay whole when the ranks of a job share it. */
#ifndef SL_CORE_STDERR_LINE_H
#define SL_CORE_STDERR_LINE_H

#include "core/err.h"

/* Longer lines are cut; with the newline this is PIPE_BUF, which a pipe takes whole or not at
 * all. */
#define SL_STDERR_LINE_MAX 4095

/* Writes the text and a newline by one write(2). fprintf() on the unbuffered stderr does so as well
 * up to glibc 2.36; later ones write every 128 bytes, and the lines of ranks run into each other.
 * errno is as before. */
void sl_stderr_line(const char *fmt, ...) SL_PRINTF(1, 2);

#endif
