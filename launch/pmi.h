/* SPDX-License-Identifier: Apache-2.0 */
/* The PMI-1 wire protocol, spoken with a launcher such as MPICH's mpiexec over an inherited
 * socket. */
#ifndef SL_LAUNCH_PMI_H
#define SL_LAUNCH_PMI_H

#include <stddef.h>
#include <stdint.h>

#define SL_PMI_LINE_MAX 2048
#define SL_PMI_NAME_MAX 256

struct sl_pmi {
    int fd;
    int value_max; /* longest value that the launcher keeps */
    char kvs[SL_PMI_NAME_MAX];
};

/* The value of key in one line ("cmd=get_result rc=0 value=x"), once its cmd is as expected and its
 * rc, where there is one, is 0. key NULL: only these checks. -EPROTO quotes what was wrong;
 * -EMSGSIZE: the value does not fit. */
int sl_pmi_parse(const char *line, const char *cmd, const char *key, char *out, size_t cap);

/* Introduces this process on fd, which stays the caller's. Every call ends by the deadline (of the
 * monotonic clock) with -ETIMEDOUT. */
int sl_pmi_init(struct sl_pmi *pmi, int fd, uint64_t deadline_ns);
int sl_pmi_put(struct sl_pmi *pmi, const char *key, const char *value, uint64_t deadline_ns);
int sl_pmi_barrier(struct sl_pmi *pmi, uint64_t deadline_ns);
int sl_pmi_get(struct sl_pmi *pmi, const char *key, char *out, size_t cap, uint64_t deadline_ns);
int sl_pmi_finalize(struct sl_pmi *pmi, uint64_t deadline_ns);

/* Hands text of rank 0 (NULL on the others) to all ranks, over the socket that PMI_FD names (fd).
 * Introduces this process the first time, and takes leave when it exits. */
int sl_pmi_share(int fd, const char *text, char *out, size_t cap, uint64_t timeout_ms);

#endif
