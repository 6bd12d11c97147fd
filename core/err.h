/* SPDX-License-Identifier: Apache-2.0 */
/* The last error of a thread, assertions, and attributes that every file uses. */
#ifndef SL_CORE_ERR_H
#define SL_CORE_ERR_H

#include <sluice/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SL_CACHE_LINE 64

/* Why each rail of a connection is out, and the operation that it ended. */
#define SL_ERROR_TEXT_MAX 4096
#define SL_ERROR_AREA_MAX 16

/* One failure. It goes whole from the file that detects it to the report. */
struct sl_error {
    int code;                     /* a negative errno; 0: none */
    int32_t culprit;              /* the rank to blame; -1: none */
    char area[SL_ERROR_AREA_MAX]; /* the folder whose file detected it: "tcp" */
    char text[SL_ERROR_TEXT_MAX]; /* one sentence */
};

/* The file that detects an error calls sl_fail(): it keeps one sentence as the calling thread's
 * last error and returns code (a negative errno). Callers pass the code up as it is. */
int sl_fail_in(const char *file, int code, const char *fmt, ...) SL_PRINTF(3, 4);
#ifdef __clang_analyzer__
#define sl_fail(code, ...) (sl_fail_in(__FILE__, (code), __VA_ARGS__), (code)) /* never 0 */
#else
#define sl_fail(code, ...) sl_fail_in(__FILE__, code, __VA_ARGS__)
#endif

/* Keeps an error of a request, a communicator or another thread as this thread's last one. Returns
 * its code. */
int sl_fail_error(const struct sl_error *error);
#ifdef __clang_analyzer__
#define sl_fail_error(error) ((sl_fail_error)(error), -1)
#endif

/* A text on the heap, of any length: it is replaced, and becomes NULL where there is no memory. The
 * arguments may lie in it. */
void sl_text_set(char **text, const char *fmt, ...) SL_PRINTF(2, 3);
static inline const char *sl_text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* Adds to the end of a text in an array. False: what there was no room for is cut. */
bool sl_text_add(char *out, size_t cap, const char *fmt, ...) SL_PRINTF(3, 4);

/* A sentence part made elsewhere becomes this thread's last error. */
#define sl_fail_text(code, text) sl_fail(code, "%s", text)

/* *out: the calling thread's last error, with this code: clean-up may fail, too. */
void sl_error_take(int code, struct sl_error *out);

/* Text of a peer, a launcher or another process, before it goes to a log or a terminal: each
 * control character becomes a question mark. */
void sl_tame_text(char *text);

/* Our own mistakes: prints place and expression, then aborts. Kept in release, since wrong
 * gradients are worse than a restart. sl_dassert is for the data path: debug builds only. */
_Noreturn void sl_assert_failed(const char *expr, const char *file, int line);
#define sl_assert(x) (SL_LIKELY(x) ? (void)0 : sl_assert_failed(#x, __FILE__, __LINE__))
#ifdef SL_DEBUG
#define sl_dassert(x) sl_assert(x)
#else
#define sl_dassert(x) ((void)sizeof(!(x)))
#endif

/* The structure that a member lies in; the caller minds const. */
#define sl_container_of(ptr, type, member) ((type *)((uintptr_t)(ptr)-offsetof(type, member)))
#define SL_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
