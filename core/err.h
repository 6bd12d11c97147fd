/* SPDX-License-Identifier: Apache-2.0 */
/* The last-error sentence of a thread, assertions, and attributes that every file uses. */
#ifndef SL_CORE_ERR_H
#define SL_CORE_ERR_H

#include <sluice/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SL_CACHE_LINE 64

/* Keeps one sentence as the calling thread's last error and returns code (a negative errno).
 * Whoever detects an error calls it; callers pass the code up as it is. Cuts long texts. */
int sl_fail(int code, const char *fmt, ...) SL_PRINTF(2, 3);
#ifdef __clang_analyzer__
#define sl_fail(code, ...) ((sl_fail)((code), __VA_ARGS__), (code)) /* never 0 */
#endif

/* Keeps a sentence made elsewhere (a request's, another thread's) as this thread's last error. */
int sl_fail_text(int code, const char *text);

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
