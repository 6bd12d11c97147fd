/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank does in one collective, as data.
 *
 * Builders are pure: same shape, same bytes, no I/O. So a schedule can be printed, hashed, compared
 * across ranks, and proved (testing/check.c) before the executor (exec.c) walks it over any
 * transport.
 *
 * Execution. Steps belong to channels. Steps of one channel start in the order of the list; a step
 * starts when the steps that it depends on have *completed*. Asynchronous ones (sl_step_is_async)
 * start without waiting for completion, so several of one channel can be under way; all others
 * complete as they start, and AWAIT keeps its channel until its condition holds.
 * On one endpoint messages meet in order, so all SENDs to one peer are in one channel, and all
 * receives from one peer are in one channel.
 *
 * Windows. Ranks of one host can share a window each: memory that all of them map. A schedule may
 * write its own window (dst_buf SL_BUF_WIN), read those of its group (REDUCE_WIN, GET), and tell
 * progress through a counter that each rank keeps in its window: POST raises it, AWAIT waits for
 * a peer's. Rules for builders, proved by testing/check.c:
 *   - every rank of the group POSTs at least once, with rising values, and the last POST of every
 *     rank is win_values;
 *   - a window place is overwritten only after every reader of its old content is known (by AWAIT)
 *     to have finished reading;
 *   - at the start nobody reads a window: whatever earlier operations left there is over.
 * The first SL_WIN_INLINE_BYTES of a window share the counter's cache line: messages
 * that fit there cost one line transfer. Offsets from SL_WIN_INLINE_BYTES on are 64-byte aligned.
 */
#ifndef SL_SCHEDULES_SCHEDULE_H
#define SL_SCHEDULES_SCHEDULE_H

#include "core/code.h"
#include "schedules/step.h"

#include <sluice/types.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SL_WIN_INLINE_BYTES 48
#define SL_WIN_SHORT_BYTES                                                                         \
    (SL_WIN_INLINE_BYTES +                                                                         \
     1024) /* so many of a window are there many times (collectives/window.h) */

enum sl_coll {
    SL_ALLREDUCE,
    SL_REDUCE_SCATTER,
    SL_ALL_GATHER,
    SL_BROADCAST,
    SL_REDUCE,
    SL_GATHER,
    SL_SCATTER,
    SL_ALL_TO_ALL,
    SL_ALL_TO_ALL_V,
    SL_BARRIER,
    SL_SEND,
    SL_RECV,
    SL_COLL_COUNT
};

struct sl_algo;

/* What a builder may look at: equal on all ranks of the call, but for rank and the v-counts. */
struct sl_shape {
    enum sl_coll coll;
    uint32_t rank, size;
    uint32_t root;        /* SL_SEND, SL_RECV: the peer */
    uint64_t count;       /* elements as in the public call: per rank's block where it has blocks */
    uint32_t esize;       /* bytes per element */
    bool in_place;        /* in and out overlap as the public call allows */
    uint64_t chunk;       /* wished elements per piece; 0: the builder's own choice */
    uint64_t win_count;   /* elements that fit in a window; 0: no windows */
    const uint32_t *host; /* host[rank], numbered from 0 by first appearance; NULL: one host */
    const uint16_t *speed;       /* speed[rank] of its links, 1 to SL_SPEED_MAX; NULL: all alike */
    const struct sl_code *code;  /* what is sent is encoded by runner SL_CODE_RUNNER; NULL: raw */
    const struct sl_code *inner; /* ... and within hosts by SL_INNER_RUNNER; NULL: none is */
    const struct sl_algo *within[SL_CODE_TERMS_MAX]; /* that reduce the terms of code; or NULL */
    /* SL_ALL_TO_ALL_V: of this rank, [size] each; otherwise NULL */
    const uint64_t *in_counts, *in_offs, *out_counts, *out_offs;
};

struct sl_schedule {
    const char *algo;      /* static storage */
    struct sl_step *steps; /* owned */
    uint32_t step_count, step_cap;
    uint32_t *deps; /* owned */
    uint32_t dep_count, dep_cap;
    uint32_t channel_count;
    uint32_t win_values; /* last POST of every rank of the group; 0: windows are not used */
    uint64_t win_count;  /* elements of the window used */
    bool win_alike;      /* as many by every rank of the group: so all can decide by it */
    uint64_t tmp_count;  /* elements of SL_BUF_TMP */
    bool wide_tmp;       /* they are f32, whatever the call's are: for runners alone */
    bool in_bytes; /* all places and counts are bytes (step.h): elements are of several types */
    uint64_t wire_bytes; /* of SL_BUF_WIRE */
    uint32_t *group;     /* owned: ranks whose windows are used, ascending, with this one */
    uint32_t group_count;
    int error; /* builders: first failure of an append; see sl_schedule_finish */
};

void sl_schedule_init(struct sl_schedule *schedule, const char *algo);
void sl_schedule_fini(struct sl_schedule *schedule);

/* Appends a copy of *step, which depends on nothing yet; returns its index. Memory failures are
 * kept in schedule->error, so builders need no test per step. */
uint32_t sl_schedule_add(struct sl_schedule *schedule, const struct sl_step *step);

/* The newest step depends on that earlier one, too. */
void sl_schedule_depend(struct sl_schedule *schedule, uint32_t dep);

/* 0, or the first error of the appends; sets channel_count. */
int sl_schedule_finish(struct sl_schedule *schedule);

/* Writes one line per step, for people. */
void sl_schedule_print(const struct sl_schedule *schedule, FILE *out);

/* Of what all ranks of a call must agree on: algorithm, collective, sizes, root, chunk, hosts. */
uint32_t sl_shape_hash(const struct sl_shape *shape, const char *algo);

/* Numbers of a term of the shape's whole vector; 0: the code has no such term, or not of so many
 * ranks. And what those who reduce it see: an allreduce of these numbers, in place. terms.c */
bool sl_has_terms(const struct sl_shape *shape); /* all that its code has */
uint64_t sl_term_count(const struct sl_shape *shape, unsigned term);
void sl_term_shape(const struct sl_shape *shape, unsigned term, struct sl_shape *out);

/* Elements of in and out that a call of this shape lends. */
uint64_t sl_shape_in_count(const struct sl_shape *shape);
uint64_t sl_shape_out_count(const struct sl_shape *shape);

const char *sl_coll_name(enum sl_coll coll);
bool sl_coll_reduces(enum sl_coll coll);
bool sl_coll_has_root(enum sl_coll coll); /* one rank gives or gets for all */

/*
 * Measured costs that the selector feeds to an algorithm's cost function. Times in ns, rates in ns
 * per byte of one rank.
 */
struct sl_link_cost {
    double alpha; /* one message of no length, post to completion at the peer */
    double beta;  /* per byte, one stream */
};

struct sl_costs {
    struct sl_link_cost shm; /* send and recv inside a host */
    struct sl_link_cost net; /* send and recv between hosts (or by tcp inside one) */
    double sync;         /* every rank POSTs, every rank has seen it; with crowded cores' waits */
    double copy, reduce; /* per byte: COPY or GET; REDUCE_WIN or RECV_REDUCE, per operand */
    double cross;        /* per byte of a peer's window, on top: from that core's caches to ours */
    double step;         /* executor's own cost of a step */
    double code; /* per byte of f32 in the caches: encoded by the codec that all others' work is
                    told in (core/code.h) */
    uint32_t ranks_per_core; /* of this host, at least 1: work of that many ranks adds up */
};

/* One algorithm for one or several collectives. */
struct sl_algo {
    const char *name;   /* as in SLUICE_ALGO */
    uint32_t colls;     /* bit 1 << enum sl_coll */
    bool needs_windows; /* all ranks on one host with windows (hier: on each host) */
    bool needs_hosts;   /* several, with the same number of ranks, more than one each */
    bool needs_terms;   /* a code whose encodings add, and within[] of the shape */
    bool needs_unequal; /* pays only where the ranks' links are not alike; builds without, too */
    const char *source; /* the paper, or "" */
    const char *recipe; /* of encodings: the word that asks for it (recipe=); NULL: nobody can */
    /* Of encodings: whether it may be taken for a shape unasked; NULL: wherever it builds. Looks at
     * what is alike on all ranks, and at nothing that is measured. */
    bool (*unasked)(const struct sl_shape *shape);
    /* 0; -ENOTSUP: this shape is not for it (the sentence says why); -ENOMEM. */
    int (*build)(const struct sl_shape *shape, struct sl_schedule *out);
    /* Predicted time in ns, < 0 when the shape is not for it. shape->chunk is as build will see
     * it. */
    double (*cost)(const struct sl_shape *shape, const struct sl_costs *costs);
};

/* All algorithms, NULL-terminated; algos.c. */
extern const struct sl_algo *const sl_algos[];

/* Those that send encodings, for shapes with a code; NULL-terminated. Of those that may
 * be taken unasked the cheapest is, and the first one where nobody asks for the cost; those whose
 * cost is NULL are never the cheapest. A code that has terms goes by the one that needs them. */
extern const struct sl_algo *const sl_coded_algos[];

#define SL_CODE_RUNNER 1 /* of their steps */
#define SL_INNER_RUNNER 2

#endif
