/* SPDX-License-Identifier: Apache-2.0 */
/* Two interfaces of a transport in one process, with any number of connections between them: what
 * bench_dpdk_scale and bench_verbs_scale share. Whatever fails ends the program with a sentence. */
#ifndef SL_BENCH_SCALE_H
#define SL_BENCH_SCALE_H

#include "core/config.h"
#include "core/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scale_side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_iface *iface;
    struct sl_ep **eps;
    struct sl_req *connects, *recvs, *sends;
    struct sl_sink *sinks;
};

/* The program's name, for messages; first of all. */
void scale_start(const char *program);
_Noreturn void scale_die(const char *what);
/* count * size bytes of zeros. */
void *scale_zeroed(size_t count, size_t size);
double scale_seconds(uint64_t since_ns);
/* "Name:  123 kB" of a file of /proc; 0 if it is not there. */
unsigned long scale_kib(const char *path, const char *name);

/* An interface of the transport of that name, with `setting` as in sl_config_set() and room for n
 * endpoints. */
void scale_open(struct scale_side *side, const char *transport, const char *setting,
                const char *value, int rank, size_t n);
void scale_progress(struct scale_side sides[2]);
/* Until all that was posted is done. */
void scale_run(struct scale_side sides[2], const char *what);
/* n endpoints of either side, connected. */
void scale_connect(struct scale_side sides[2], size_t n);
/* Endpoint i of side k sends len bytes from src, and receives as many in dst. */
void scale_post(struct scale_side sides[2], int k, size_t i, const void *src, void *dst,
                size_t len);
/* Endpoint i of side k receives. */
void scale_receive(struct scale_side sides[2], int k, size_t i, void *dst, size_t len,
                   uint64_t tag);
/* Seconds that it took. */
double scale_close(struct scale_side sides[2], size_t n);

/* measure(arg, n) in a process of its own, so that no size lives on what another has left in the
 * heap. False: it failed. */
bool scale_apart(void (*measure)(const void *arg, size_t n), const void *arg, size_t n);
/* A number of connections, up to most; 0 after a sentence. */
size_t scale_count(const char *word, size_t most);

#endif
