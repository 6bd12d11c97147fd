/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes of a benchmark and the link between them: loopback, or a veth pair between two
 * network namespaces, whole or held to a rate (needs root). */
#ifndef SL_BENCH_LINK_H
#define SL_BENCH_LINK_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

/* Runs side() as rank 0 and rank 1, each in a process pinned to a core of that number; meet is a
 * stream between them. Not 0: one of them failed. */
int sl_link_run(int (*side)(int rank, int meet, void *arg), void *arg);
/* Both give len bytes and get the other's. -EPIPE: the other process is gone. */
int sl_link_swap(int meet, const void *out, void *in, size_t len);
/* Processor time of the calling process so far. */
double sl_link_cpu_us(void);

struct sl_link {
    const char *name;
    uint64_t bytes_per_s;   /* 0: as fast as it goes */
    struct in_addr addr[2]; /* of ranks 0 and 1 */
};

/* Both processes call it. The process goes into a namespace of its own, unless where is "lo". */
int sl_link_open(struct sl_link *link, const char *where, int rank, int meet);
/* One more connection between both, ready for use; or a negative errno. */
int sl_link_connect(const struct sl_link *link, int rank, int meet);

#endif
