/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Errors: every function that can fail returns 0 (or a count) or a negative errno value, and leaves
 * one sentence about it in a text of the calling thread.
 *
 *   -EAGAIN        full for now; nothing was taken; test other requests and call again
 *   -EINVAL        the caller's arguments
 *   -ENODEV        no such device, transport or launcher here
 *   -ENOTSUP       this build, device or kind of memory cannot
 *   -ETIMEDOUT     a peer was silent past the deadline
 *   -ECONNRESET    a peer is gone
 *   -EHOSTUNREACH  no path to a peer
 *   -EPROTO        peers disagree: version, type, count, operator, root or order of calls
 *   -EBADMSG       bytes arrived damaged
 *   -ECANCELED     the communicator was aborted or torn down
 *   -EBUSY         memory goes away that is still registered
 *   -ENOMEM        setup lacked memory (later none is asked for)
 */
#ifndef SLUICE_ERROR_H
#define SLUICE_ERROR_H

#include <sluice/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The sentence that goes with the last error of the calling thread; "" when there was none.
 *
 * Memory  The text belongs to the thread and lasts until its next failing call.
 */
SLUICE_API const char *sluice_last_error(void);

/**
 * Parts of the calling thread's last error: its code, the rank to blame, the part of Sluice that
 * detected it, and its sentence, that of sluice_last_error().
 *
 * Units   The code is 0 while there was no error. The rank is one of the communicator that failed,
 *         or -1 where nobody is to blame or nobody knows. The area is a short word such as "tcp",
 *         "launch" or "comm", "" while there was no error; it may be another one in later versions.
 * Memory  The texts belong to the thread and last until its next failing call.
 */
SLUICE_API int sluice_error_code(void);
SLUICE_API int sluice_error_culprit(void);
SLUICE_API const char *sluice_error_area(void);
SLUICE_API const char *sluice_error_text(void);

/** A short fixed name of a negative errno as Sluice uses it: "ETIMEDOUT: peer silent". */
SLUICE_API const char *sluice_strerror(int code);

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0
/** The version of these headers: major * 10000 + minor * 100 + patch. */
#define SLUICE_VERSION                                                                             \
    (SLUICE_VERSION_MAJOR * 10000 + SLUICE_VERSION_MINOR * 100 + SLUICE_VERSION_PATCH)

/** Version of the library that is loaded: major * 10000 + minor * 100 + patch. */
SLUICE_API int sluice_version(void);

/** The same as text, with the build's commit where known: "0.1.0 (a1b2c3d)". Static storage. */
SLUICE_API const char *sluice_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
