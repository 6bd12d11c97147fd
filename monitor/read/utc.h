/* SPDX-License-Identifier: Apache-2.0 */
/* Times as the agent's API writes them. */
#ifndef SL_MONITOR_READ_UTC_H
#define SL_MONITOR_READ_UTC_H

#include <stddef.h>
#include <stdint.h>

/* "2026-11-25T20:39:11.123Z", with as many digits after the point as there are: nanoseconds since
 * 1970. SL_JOB_NEVER: it is no such time. */
int64_t sl_utc_ns(const char *text, size_t len);

#endif
