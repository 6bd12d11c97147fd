/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one process of Sluice says of itself, in one form whether it comes from its state page
 * (docs/state.md), from `sluice-bench --status --json`, or from a node agent's /v1/ranks; and how
 * that becomes a part of a job.
 *
 * Times of a page are CLOCK_MONOTONIC of its host; wall_ns is added to them, so that pages of
 * several hosts can be compared.
 */
#ifndef SL_MONITOR_READ_PAGE_H
#define SL_MONITOR_READ_PAGE_H

#include "core/state.h"
#include "monitor/diagnosis/job.h"

#define SL_PAGE_WINDOWS 4 /* of the quickest messages: an edge is of the last ones (core/state.h) */

struct json_object;
struct sl_read_in;

enum sl_page_life { SL_PAGE_UNKNOWN, SL_PAGE_LIVES, SL_PAGE_DEAD };

struct sl_page_comm {
    uint64_t number; /* of the process */
    uint64_t id;
    uint32_t rank, size, flags;
    int32_t error;
    uint32_t disputed;
    uint64_t made_ns, updated_ns; /* 0: not told */
    uint64_t begun[2], ended[2];  /* collectives; sends and receives */
    struct sl_state_shape last;   /* the last collective; coll "": not known */
};

/* The last windows of the quickest messages that looks at one path saw, the newest first. */
struct sl_page_windows {
    uint64_t comm; /* its id */
    int32_t peer, number;
    char name[sizeof(((struct sl_state_path *)NULL)->name)];
    struct sl_state_quickest of[SL_PAGE_WINDOWS]; /* window 0: none */
};

struct sl_page {
    struct sl_state_process self;
    enum sl_page_life life;
    char halt[64];   /* why it does not run; "": it does, or not known */
    int64_t wall_ns; /* of a time of the page, to have nanoseconds since 1970 */
    int64_t now_ns;  /* of the page's clock, when it was looked at; SL_JOB_NEVER: not known */
    uint64_t window; /* of quickest messages, when it was looked at; 0: that of now_ns */
    struct sl_page_comm *comms;
    struct sl_state_op *ops;
    struct sl_state_path *paths;
    struct sl_state_call *calls; /* that are over, in no order */
    /* Of several looks (sl_page_join_windows()), by the order of paths; NULL: each path's own two
     * are all that is known. */
    struct sl_page_windows *windows;
    uint32_t comm_count, op_count, path_count, call_count, window_count;
};

/* Of a file, or of memory that is aligned to 8 bytes. -EPROTO: it is no state page. -ENOMEM. The
 * caller frees. */
int sl_page_read_fd(int fd, struct sl_page *out);
int sl_page_read_memory(const void *bytes, size_t len, struct sl_page *out);
/* One of the pages of sluice-bench --status, or a rank of an agent's answer. -EBADMSG, -ENOMEM. */
int sl_page_of_status(struct json_object *object, struct sl_page *out);
int sl_page_of_agent(struct json_object *rank, const char *host, int64_t now_ns,
                     struct sl_page *out);
/* Each rank of the answer, in turn; found() owns the page, its negative result ends it.
 * -EBADMSG. */
int sl_page_each_of_agent(struct json_object *answer, int (*found)(void *arg, struct sl_page *page),
                          void *arg);
void sl_page_free(struct sl_page *page);

/* The file lies where its process put it, on this host: its time, and whether the process lives. */
void sl_page_in_place(struct sl_page *page, int fd);
/* The state of a process in /proc, if it is the one that started then; '?': it is not, or it has
 * ended and nobody has waited for it. */
char sl_page_process_state(int pid, uint64_t start_ticks);
/* All of a file, in memory, where the caller frees it: aligned to 8 bytes. -ENOMEM, also where it
 * is longer than `most`; or what reading gave. */
int sl_page_read_all(struct sl_read_in *in, size_t most, void **out, size_t *len);
/* What added to CLOCK_MONOTONIC gives nanoseconds since 1970, on this host. */
int64_t sl_page_wall_ns(void);
/* "2026-11-25T20:39:11.123Z" in nanoseconds since 1970, or SL_JOB_NEVER. */
int64_t sl_page_time_of(const char *text);

/* The process as sl_job_rank_of() knows it; 0: it does not say when it began. */
uint32_t sl_page_identity(struct sl_job *job, const struct sl_state_process *self);
/* Into the job. earlier: the same page some time before, for what passed since; or NULL. -EBADMSG
 * with a sentence: another process has said that it is this rank. */
int sl_page_take(struct sl_job *job, const struct sl_page *page, const struct sl_page *earlier);

/* The calls of an earlier look at the same process that the page's ring has forgotten since come to
 * those of the page: `most` in all, and none that ended before since_ns of its clock. Nothing where
 * calls between the two looks are missing. Sorts the calls of both. -ENOMEM. */
int sl_page_join_calls(struct sl_page *page, struct sl_page *before, uint64_t since_ns,
                       uint32_t most);

/* A path says two windows of the quickest messages: those of earlier looks that it has forgotten
 * since come to them. before: the look before, with its windows; NULL: there was none. -ENOMEM. */
int sl_page_join_windows(struct sl_page *page, const struct sl_page *before);

/* A path as sluice-bench writes it, of --status and of --stats; its communicator is 0 there. */
void sl_page_path_of(struct json_object *from, struct sl_state_path *to);
/* What went by it, as an edge whose ends the caller has set, and what came, where that was
 * measured, as one of the other direction. -ENOMEM. */
int sl_page_take_edge(struct sl_job *job, const struct sl_state_path *path,
                      struct sl_job_edge *edge);

/* Do both speak of one communicator? */
bool sl_page_share(const struct sl_page *a, const struct sl_page *b);
/* The same process? */
bool sl_page_is_same(const struct sl_page *a, const struct sl_page *b);
/* The latest time in it, of its own clock; 0: none. */
uint64_t sl_page_latest(const struct sl_page *page);

#endif
