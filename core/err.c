/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps each thread's last error sentence and names error codes. */
#include "core/err.h"
#include "core/stderr_line.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 1024
#define SPARE_MAX 96

/*
 * The text lies on the heap and not in the thread's static block: libraries that are opened at run
 * time (ours in plugins and preload modules, beside many others) share some 1.6 KB of that. A
 * thread without any memory left has a few words' room.
 */
static _Thread_local char *last_error;
static _Thread_local char spare[SPARE_MAX];
static pthread_key_t text_key;
static pthread_once_t text_once = PTHREAD_ONCE_INIT;
static int text_key_missing;

static void free_text(void *text)
{
    last_error = NULL; /* whatever else ends with the thread may fail, too */
    free(text);
}

static void make_key(void)
{
    text_key_missing = pthread_key_create(&text_key, free_text);
}

/* Where the thread's text goes. *cap: how long it may be. */
static char *text_of_thread(size_t *cap)
{
    *cap = TEXT_MAX;
    if (last_error != NULL && last_error != spare)
        return last_error;
    pthread_once(&text_once, make_key);
    char *text = text_key_missing == 0 ? malloc(TEXT_MAX) : NULL;

    if (text != NULL && pthread_setspecific(text_key, text) == 0)
        return last_error = text;
    free(text);
    *cap = SPARE_MAX;
    return last_error = spare;
}

#undef sl_fail /* the analyzer's */
int sl_fail(int code, const char *fmt, ...)
{
    char text[TEXT_MAX]; /* apart, as arguments may point into last_error */
    va_list args;
    size_t cap;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    char *place = text_of_thread(&cap);

    memcpy(place, text, cap);
    place[cap - 1] = '\0';
    return code;
}

int sl_fail_text(int code, const char *text)
{
    return sl_fail(code, "%s", text);
}

void sl_tame_text(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

void sl_assert_failed(const char *expr, const char *file, int line)
{
    sl_stderr_line("sluice: internal error at %s:%d: %s; please report it", file, line, expr);
    abort();
}

const char *sluice_last_error(void)
{
    return last_error != NULL ? last_error : "";
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
