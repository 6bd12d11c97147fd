/* SPDX-License-Identifier: Apache-2.0 */
/* The key of probes, of the file that the configuration names. */
#ifndef SL_MONITOR_PROBE_SECRET_H
#define SL_MONITOR_PROBE_SECRET_H

#include "monitor/probe.h"

/* -EINVAL, -EPERM, or the system's codes, with a sentence that says what to do. */
int sl_probe_secret(const char *path, uint8_t key[SL_DIGEST_BYTES]);

#endif
