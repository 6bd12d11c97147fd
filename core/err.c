/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps each thread's last error sentence and names error codes. */
#include "core/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 1024

static _Thread_local char last_error[TEXT_MAX];

int sl_fail(int code, const char *fmt, ...)
{
    char text[TEXT_MAX]; /* apart, as arguments may point into last_error */
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(last_error, text, sizeof(text));
    return code;
}

int sl_fail_text(int code, const char *text)
{
    return sl_fail(code, "%s", text);
}

void sl_assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "sluice: internal error at %s:%d: %s; please report it\n", file, line, expr);
    abort();
}

const char *sluice_last_error(void)
{
    return last_error;
}

const char *sluice_strerror(int code)
{
    static const struct {
        int code;
        const char *text;
    } names[] = {
        {0, "OK"},
        {-EAGAIN, "EAGAIN: full for now, nothing was taken"},
        {-EINVAL, "EINVAL: invalid argument"},
        {-ENODEV, "ENODEV: no such device here"},
        {-ENOTSUP, "ENOTSUP: not supported by this build, device or memory"},
        {-ETIMEDOUT, "ETIMEDOUT: a peer was silent"},
        {-ECONNRESET, "ECONNRESET: a peer is gone"},
        {-ECONNREFUSED, "ECONNREFUSED: a peer refused the connection"},
        {-EHOSTUNREACH, "EHOSTUNREACH: no path to a peer"},
        {-EPROTO, "EPROTO: peers disagree"},
        {-EBADMSG, "EBADMSG: bytes arrived damaged"},
        {-EMSGSIZE, "EMSGSIZE: a message is longer than the room for it"},
        {-ECANCELED, "ECANCELED: aborted or torn down"},
        {-EBUSY, "EBUSY: memory goes away that is still registered"},
        {-ENOMEM, "ENOMEM: out of memory"},
        {-EMFILE, "EMFILE: out of file descriptors"},
    };

    for (size_t i = 0; i < SL_ARRAY_LEN(names); i++)
        if (names[i].code == code)
            return names[i].text;
    return strerrordesc_np(code < 0 ? -code : code) ?: "unknown error";
}
