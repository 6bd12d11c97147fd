/* SPDX-License-Identifier: Apache-2.0 */
#include "core/stderr_line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* A signal or a full terminal may end a write() early. */
static void write_all(const char *at, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, at, len);

        if (n == 0 || (n < 0 && errno != EINTR))
            return;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
}

void sl_stderr_line(const char *fmt, ...)
{
    char line[SL_STDERR_LINE_MAX + 1];
    int error = errno;
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, args);

    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1;

    line[len] = '\n';
    write_all(line, len + 1);
    errno = error;
}
