/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a host, which cores this process may use, and whose the processes beside it
 * are. */
#ifndef SL_CORE_HOST_H
#define SL_CORE_HOST_H

#include "core/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ucred;

#define SL_CPU_WORDS 32 /* 2048 cores */

/* Hash of the common identity of ranks on one host: config->host_id, or the kernel's boot id and
 * the network namespace (two namespaces are two hosts: they share no addresses). */
uint64_t sl_host_hash(const struct sl_config *config);
/* The same in 128 bits, of which those are the first. */
#define SL_HOST_ID_BYTES 16
void sl_host_id(const struct sl_config *config, uint8_t out[SL_HOST_ID_BYTES]);

/* Hash of the influences on measurements here, but for the host itself: name, kernel, processors
 * that are on. */
uint64_t sl_host_facts(void);

/* Hash of the group of threads among which the kernel's scheduler heeds a yield: the
 * control group for processors, or, where sessions have groups of their own (autogroup), the
 * session. */
uint64_t sl_host_sched_group(void);

/* Is the process at the other end of this unix socket of this user? Where user namespaces leave
 * that open, it is not. */
bool sl_host_same_user(int fd, struct ucred *peer);

/* The first line of a file, without its end: a value in sysfs. false: it cannot be read. */
bool sl_host_line(const char *path, char *out, size_t cap);

/* FNV-1a, for what ranks compare; start: SL_HASH_START, or what came before. */
#define SL_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t sl_hash(uint64_t start, const void *bytes, size_t len);
uint64_t sl_hash_text(const char *text);

/* Bit per core that this process may run on. */
void sl_host_cores(uint64_t mask[SL_CPU_WORDS]);

/* How often another thread took the core that this one wanted, since this one began. */
uint64_t sl_host_switches(void);

/* Keeps this process to one core, the idx-th of those it may use, when there are at least count of
 * them: ranks that change cores lose their caches. Does nothing otherwise. */
void sl_host_bind(unsigned idx, unsigned count);

#endif
