/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of sluice-bench share: options, one measured row, and the results of a run. */
#ifndef SB_BENCH_H
#define SB_BENCH_H

#include <sluice/sluice.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* In the order of the table in colls.c. */
enum sb_coll_id {
    SB_ALLREDUCE,
    SB_ALL_GATHER,
    SB_REDUCE_SCATTER,
    SB_BROADCAST,
    SB_REDUCE,
    SB_GATHER,
    SB_SCATTER,
    SB_ALL_TO_ALL,
    SB_ALL_TO_ALL_V,
    SB_BARRIER,
    SB_SENDRECV,
    SB_COLL_COUNT
};

enum sb_average { SB_RANK0, SB_MEAN, SB_MIN, SB_MAX };

enum sb_mode { SB_RUN, SB_HELP, SB_VERSION, SB_LIST, SB_EXPLAIN, SB_SCHEDULE, SB_STATUS };

#define SB_CODECS_MAX 16
#define SB_CODEC_TEXT 96

struct sb_options {
    enum sb_mode mode;
    int ranks;                   /* started here; 0: the launcher started them */
    int hosts;                   /* that these pretend to be on; 0: the one they are on */
    uint32_t colls, dtypes, ops; /* bit sets */
    uint64_t min_bytes, max_bytes;
    uint64_t step_bytes; /* 0: multiply by factor */
    double factor;
    int iters;            /* 0: by time */
    double budget_s;      /* time for each size and placement when iters is 0 */
    int compute_us;       /* of processor time before each operation; 0: none */
    uint64_t touch_bytes; /* that the computing goes over */
    int warmup, check, agg, cycles;
    int root; /* -1: all */
    enum sb_average average;
    bool blocking, persistent, stats, timestamps, memory, register_buffers, shared_buffers;
    unsigned unaligned;                    /* elements that buffers are shifted by */
    double timeout_s;                      /* 0: the library's */
    const char *transport, *algo, *kernel; /* NULL: environment */
    const char *json, *csv, *plot;         /* NULL: none */
    /* compared with each other; 0: as the environment has it. "raw": none */
    char codecs[SB_CODECS_MAX][SB_CODEC_TEXT];
    int codec_count;
    int status_pid;
};

/* One rank's times of one operation, in seconds. */
struct sb_stat {
    double mean; /* of the batch, without a clock inside */
    double min, p50, p99,
        max; /* of single operations in a pass of their own; 0 when it was not run */
};

/* A size, out-of-place or in-place. */
struct sb_cell {
    bool valid;
    double time_s;       /* over the ranks, as -a says */
    double p50_s, p99_s; /* the same; 0 when single operations were not timed */
    double algbw, busbw; /* GB/s; no number where nothing was done: one rank, in place */
    int64_t wrong;       /* elements on all ranks; -1: not checked */
    double wire_bytes;   /* that a rank sent in an operation, encoded; 0: it was not */
    double wire_ratio;   /* to the bytes of what was encoded */
    double error; /* of results: mean square over that of the exact ones; -1: not looked at */
    uint64_t iters;
    struct sb_stat *ranks; /* [size], owned by the row's results */
};

struct sb_row {
    enum sb_coll_id coll;
    enum sluice_dtype dtype;
    int op;            /* -1: none */
    int root;          /* -1: none */
    const char *codec; /* NULL: not asked for */
    uint64_t bytes, count;
    struct sb_cell cell[2]; /* out-of-place, in-place */
};

/* What the head of every report says. */
struct sb_facts {
    int ranks, hosts;
    const char *version, *paths, *algo, *kernel, *allocation;
};

struct sb_paths;

struct sb_results {
    struct sb_facts facts;
    const struct sb_options *options;
    struct sb_row *rows; /* owned */
    size_t row_count, row_cap;
    uint64_t wrong;     /* elements */
    uint64_t differing; /* allreduce results that were not the same bits on all ranks */
    double busbw_sum;
    unsigned busbw_count;
    const struct sb_paths *paths; /* NULL: not asked for */
    const char *error;            /* what ended the run early, or NULL */
};

#endif
