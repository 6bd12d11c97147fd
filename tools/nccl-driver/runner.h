/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function on ranks that are threads of one process or processes, and watches over them. */
#pragma once

#include "tools/nccl-driver/cases.h"

enum placement { PLACE_THREADS, PLACE_PROCESSES };

struct run_options {
    const char *path;
    int version, dev;
    enum placement placement;
    uint64_t seed, deadline_ns, call_ns;
    const char *env[16]; /* "0:NAME=VALUE", for the process of that rank */
    unsigned env_count;
};

enum run_verdict { RUN_PASSED, RUN_FAILED, RUN_SKIPPED };

/* text: what failed, or why it was skipped. */
enum run_verdict run_case(const struct run_options *o, const struct driver_case *c, char *text,
                          size_t cap);
/* Whether a plugin can be loaded and has the version, seen by a process of its own. */
enum run_verdict run_probe(const char *path, int version, char *why, size_t cap);
/* Once, before the first: memory that children share with this process. */
int run_prepare(void);

/* bench.c */
struct bench_options {
    size_t from, to;
    unsigned in_flight, connections, repeats;
    bool both, json;
    uint64_t time_ns;
};
extern struct bench_options bench_options;
int bench_run(const struct run_options *o);
int bench_socket(const struct run_options *o);
