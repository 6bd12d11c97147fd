/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps each thread's last error and names error codes. */
#include "core/err.h"
#include "core/stderr_line.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_MAX 96

/*
 * The text lies on the heap and not in the thread's static block: libraries that are opened at run
 * time (ours in plugins and preload modules, beside many others) share some 1.6 KB of that. A
 * thread without any memory left has a few words' room.
 */
static _Thread_local char *last_text;
static _Thread_local char spare[SPARE_MAX];
static _Thread_local char last_area[SL_ERROR_AREA_MAX];
static _Thread_local int last_code;
static _Thread_local int32_t last_culprit; /* 0 before the first error, whose code tells */
static pthread_key_t text_key;
static pthread_once_t text_once = PTHREAD_ONCE_INIT;
static int text_key_missing;

static void free_text(void *text)
{
    last_text = NULL; /* whatever else ends with the thread may fail, too */
    free(text);
}

static void make_key(void)
{
    text_key_missing = pthread_key_create(&text_key, free_text);
}

/* The place of the thread's text. *cap: its room. */
static char *text_of_thread(size_t *cap)
{
    *cap = SL_ERROR_TEXT_MAX;
    if (last_text != NULL && last_text != spare)
        return last_text;
    pthread_once(&text_once, make_key);
    char *text = text_key_missing == 0 ? malloc(SL_ERROR_TEXT_MAX) : NULL;

    if (text != NULL && pthread_setspecific(text_key, text) == 0)
        return last_text = text;
    free(text);
    *cap = SPARE_MAX;
    return last_text = spare;
}

/* The folder of a source file: "../tools/nccl/dial.c" is of nccl. */
static void area_of(const char *file, char out[SL_ERROR_AREA_MAX])
{
    const char *end = strrchr(file, '/'), *start = end;

    while (start != NULL && start > file && start[-1] != '/')
        start--;
    snprintf(out, SL_ERROR_AREA_MAX, "%.*s", (int)(end - start), start != NULL ? start : "");
}

int sl_fail_in(const char *file, int code, const char *fmt, ...)
{
    char text[SL_ERROR_TEXT_MAX]; /* apart, as arguments may point into last_text */
    va_list args;
    size_t cap;

    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    char *place = text_of_thread(&cap);

    if (len < 0)
        len = 0;
    if ((size_t)len > cap - 1)
        len = (int)cap - 1;
    memcpy(place, text, (size_t)len);
    place[len] = '\0';
    area_of(file, last_area);
    last_code = code;
    last_culprit = -1;
    return code;
}

#undef sl_fail_error /* the analyzer's */
int sl_fail_error(const struct sl_error *error)
{
    sl_fail(error->code, "%s", error->text);
    memcpy(last_area, error->area, sizeof(last_area));
    last_culprit = error->culprit;
    return error->code;
}

void sl_error_take(int code, struct sl_error *out)
{
    out->code = code;
    out->culprit = sluice_error_culprit();
    memcpy(out->area, last_area, sizeof(out->area));
    snprintf(out->text, sizeof(out->text), "%s", sluice_error_text());
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
    return last_text != NULL ? last_text : "";
}

int sluice_error_code(void)
{
    return last_code;
}

int sluice_error_culprit(void)
{
    return last_code != 0 ? last_culprit : -1;
}

const char *sluice_error_area(void)
{
    return last_area;
}

const char *sluice_error_text(void)
{
    return sluice_last_error();
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
    if (code == INT_MIN) /* a hostile page says so */
        return "unknown error";
    return strerrordesc_np(code < 0 ? -code : code) ?: "unknown error";
}
