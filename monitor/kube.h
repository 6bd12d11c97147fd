/* SPDX-License-Identifier: Apache-2.0 */
/* One question to the API of Kubernetes; [isolate] says where it is, and with which token. */
#ifndef SL_MONITOR_KUBE_H
#define SL_MONITOR_KUBE_H

#include "monitor/config.h"

/* In a child process (child.h), once. what: for sentences. *body: ended by 0, the process'.
 * -EINVAL, -ENOTSUP, -EACCES, -ETIMEDOUT, -EIO, ... with a sentence. */
int sl_kube_get(const struct sl_mon_config *config, uint64_t deadline_ns, const char *what,
                const char *path, char **body, size_t *len);

#endif
