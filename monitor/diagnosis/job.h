/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a job, in one form, whatever files or agents it came from: ranks, communicators
 * with their members, the operations of each rank, counts of operations, what passed from rank to
 * rank, and numbers that a rank was measured by. Readers (monitor/read/) fill it; the rules
 * (hang.h, slow.h, matrix.h) only look at it.
 *
 *     struct sl_job *job = sl_job_new();
 *     sl_read_file(job, "_dump_0");                    as many as there are, in any order
 *     sl_job_seal(job);
 *     sl_hang_find(job, &options, &verdicts);
 *     sl_job_free(job);
 *
 * Ranks are those of the whole job (global). Times are nanoseconds of the clock of the rank that
 * says them, SL_JOB_NEVER where the source does not tell; clocks of different ranks may differ.
 * Texts are interned: equal texts have equal numbers, 0 is "".
 *
 * One thread at a time. Functions that add return 0, -ENOMEM, or -EBADMSG with a sentence where
 * what comes contradicts what is known or exceeds a limit; a job stays usable then.
 */
#ifndef SL_MONITOR_DIAGNOSIS_JOB_H
#define SL_MONITOR_DIAGNOSIS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_JOB_NONE UINT32_MAX      /* no rank, no communicator, no step */
#define SL_JOB_NEVER INT64_MIN      /* a time that is not known */
#define SL_JOB_RANKS_MAX (1u << 20) /* more is a damaged file */

enum sl_job_kind {
    SL_JOB_OTHER,
    SL_JOB_ALLREDUCE,
    SL_JOB_ALLGATHER,
    SL_JOB_REDUCE_SCATTER,
    SL_JOB_BROADCAST,
    SL_JOB_REDUCE,
    SL_JOB_GATHER,
    SL_JOB_SCATTER,
    SL_JOB_ALLTOALL,
    SL_JOB_BARRIER,
    SL_JOB_SEND,
    SL_JOB_RECV,
    SL_JOB_COMPUTE, /* the rank's own work; of no communicator */
    SL_JOB_KINDS
};

enum sl_job_state {
    SL_JOB_ISSUED,  /* the program called it */
    SL_JOB_STARTED, /* the GPU, or the engine, is at it */
    SL_JOB_DONE,
    SL_JOB_FAILED
};

struct sl_job_op {
    uint32_t rank, comm;
    uint32_t peer;  /* of SEND and RECV: the other rank, else SL_JOB_NONE */
    uint32_t name;  /* as the source has it ("nccl:all_reduce"): text */
    uint32_t shape; /* all that must be alike at all members (sizes, types, reduction): text */
    uint32_t step;  /* of training, or SL_JOB_NONE */
    uint64_t seq;   /* which of its communicator's collectives, or of its pair's messages */
    uint64_t bytes; /* 0: not told */
    int64_t issue_ns, start_ns, end_ns;
    uint8_t kind, state;
    bool is_seq_own; /* of SEND and RECV: seq counts what this rank alone did, and its peer's number
                      * of the same message may be another */
    uint32_t
        peer_place; /* the peer's place in comm plus 1: sl_job_seal() sets peer; 0: peer is it */
    uint32_t awaits_place; /* of a pending collective: the place in comm plus 1 of the member whose
                            * data it waits for now, as the rank itself says; 0: not told */
};

/* Of a rank in a communicator, where the source counts and does not list (NCCL RAS). */
struct sl_job_count {
    uint32_t rank, comm;
    uint8_t kind; /* SL_JOB_KINDS: collectives of all kinds, and issued is the last's seq */
    uint64_t issued, done; /* done UINT64_MAX: not told */
    int64_t at_ns;         /* when it was counted, or SL_JOB_NEVER */
};

/* Where the time of messages from src to dst went, in seconds, summed over `messages`. */
enum sl_job_wait {
    SL_JOB_WAIT_GPU,      /* the sender's data was not ready */
    SL_JOB_WAIT_PEER,     /* the receiver had given no room */
    SL_JOB_WAIT_WIRE,     /* under way */
    SL_JOB_WAIT_DATA,     /* the receiver waited for data */
    SL_JOB_WAIT_FLUSH,    /* into GPU memory */
    SL_JOB_WAIT_CONSUMER, /* the receiver's GPU had not taken it */
    SL_JOB_WAITS
};

struct sl_job_edge {
    uint32_t src, dst, comm;
    uint32_t path;                  /* device, port, rail: text */
    uint64_t messages, bytes, lost; /* lost: sent again */
    double wait_s[SL_JOB_WAITS];
    uint32_t src_place, dst_place; /* places in comm plus 1, as an operation's; 0: src, dst */
};

/* A number that a rank was measured by at a time: an iteration's seconds, a gauge. */
struct sl_job_sample {
    uint32_t rank, name;
    int64_t at; /* ns, or the number of the iteration where there is no time */
    double value;
};

/* What the node agent of a host told (docs/monitor-api.md): a condition that was bad from at_ns
 * until end_ns at least. check 0: nothing is wrong there as far as this answer goes: the agent
 * was heard at at_ns, with all of its sources. */
struct sl_job_event {
    uint32_t host;                         /* text */
    uint32_t kind, subject, check, source; /* texts: "port", "mlx5_0:1", "link_flap", "rtnetlink" */
    uint32_t text;                         /* the sentence of its evidence */
    int64_t at_ns, end_ns; /* UTC; at_ns may be SL_JOB_NEVER; end_ns at least at_ns */
    /* Of a verdict that the agent has open: its number there, which is never 0, and its class. */
    uint64_t number;
    uint32_t cls;
    bool is_fatal;
};

/* A node that is watched, whether a rank of the job is on it or not. */
struct sl_job_node {
    uint32_t host, why; /* texts; why: nothing is heard of it */
    uint64_t epoch;     /* when its agent began; 0: it was never heard of */
    int64_t last_ns;    /* when it was heard of last, or SL_JOB_NEVER */
    bool is_silent;     /* nothing is heard of it any more, */
    bool is_dead;       /* and its connection broke, or its agent said that it ends */
};

/* A fault that a node had: its history. Times all of one clock, UTC or from the history's begin. */
struct sl_job_fault {
    uint32_t host, cls, text; /* texts: "GPU", "NIC", ...; what it was */
    int64_t at_ns;
};

/* Where a port of a host's adapter leads. Texts, 0: not told. */
struct sl_job_port {
    uint32_t host, device; /* device 0: all of the host's */
    uint32_t leaf, rail, plane;
    uint32_t mbps; /* 0: not told */
};

/* A switch above the leaves that messages from src to dst pass. path 0: on all paths. */
struct sl_job_route {
    uint32_t src, dst, path;
    uint32_t via; /* text */
};

struct sl_job_rank {
    uint32_t host, process;          /* texts; process: "pid", a pod's name, ... */
    uint32_t replica, stage, tensor; /* data, pipeline, tensor parallel, where told: else NONE */
    bool is_told;    /* some source speaks for it: it is no mere member of a communicator */
    bool is_gone;    /* some source says that its process has ended */
    int64_t last_ns; /* the latest time in what it says */
    /* When it last looked after what it has begun, SL_JOB_NEVER: not told. What is pending for
     * longer than that is moved by nobody. */
    int64_t moved_ns;
    uint32_t halt;  /* why its process does not run ("is stopped"): text, or "" */
    uint64_t begun; /* collectives that it had called when it was heard of last: of is_watched */
};

struct sl_job_comm {
    uint32_t name, label; /* texts: unique; for people */
    uint32_t *members;    /* global ranks, in the communicator's order */
    uint32_t member_count;
};

struct sl_job {
    struct sl_job_rank *ranks;
    uint32_t rank_count;
    struct sl_job_comm *comms;
    uint32_t comm_count;
    struct sl_job_op *ops; /* after sl_job_seal(): by rank, then in the order of their issue */
    size_t op_count;
    size_t *first_op; /* after sl_job_seal(): of rank r, ops[first_op[r]] to ops[first_op[r + 1]] */
    struct sl_job_count *counts;
    size_t count_count;
    struct sl_job_edge *edges;
    size_t edge_count;
    struct sl_job_sample *samples;
    size_t sample_count;
    struct sl_job_event *events;
    size_t event_count;
    struct sl_job_fault *faults;
    size_t fault_count;
    struct sl_job_node *nodes;
    size_t node_count;
    struct sl_job_port *ports;
    size_t port_count;
    struct sl_job_route *routes;
    size_t route_count;
    int64_t now_ns; /* when the job was looked at (a dump's time), or SL_JOB_NEVER */
    /* By somebody who looks again and again: times of one incident differ from look to look by some
     * ms, what ranks have begun does not. Ids go by that. */
    bool is_watched;
    struct sl_job_inside *inside;
};

struct sl_job *sl_job_new(void);
void sl_job_free(struct sl_job *job);

#define SL_JOB_TEXT_MAX (64u << 10)

/* A text's number, or SL_JOB_NONE: there is no memory, or it is longer than SL_JOB_TEXT_MAX. */
uint32_t sl_job_text(struct sl_job *job, const char *text, size_t len);
const char *sl_job_string(const struct sl_job *job, uint32_t text);

/* Makes the rank be there, and all below it. */
int sl_job_add_rank(struct sl_job *job, uint32_t rank);
/* The communicator of that name, which is made where it is not there. */
int sl_job_add_comm(struct sl_job *job, uint32_t name, uint32_t *comm);
/* All members at once, in order; the same again is good, others are -EBADMSG. */
int sl_job_set_members(struct sl_job *job, uint32_t comm, const uint32_t *ranks, uint32_t count);
/* Where each member only knows itself: this rank has that place among `size`. sl_job_seal() makes
 * members of them; a place that nobody told is the one rank of the job that nobody else could be,
 * or gets a number of its own behind all others. */
int sl_job_add_member(struct sl_job *job, uint32_t comm, uint32_t place, uint32_t size,
                      uint32_t rank);

/* These make the ranks that they name be there. An op, a count and a sample are of a rank that some
 * source speaks for (is_told). */
int sl_job_add_op(struct sl_job *job, const struct sl_job_op *op);
int sl_job_add_count(struct sl_job *job, const struct sl_job_count *count);
int sl_job_add_edge(struct sl_job *job, const struct sl_job_edge *edge);
int sl_job_add_sample(struct sl_job *job, const struct sl_job_sample *sample);
/* These are of hosts; a host needs no rank. */
int sl_job_add_event(struct sl_job *job, const struct sl_job_event *event);
int sl_job_add_fault(struct sl_job *job, const struct sl_job_fault *fault);
int sl_job_add_node(struct sl_job *job, const struct sl_job_node *node);
int sl_job_add_port(struct sl_job *job, const struct sl_job_port *port);
int sl_job_add_route(struct sl_job *job, const struct sl_job_route *route);

/* All was read: sorts. More may be added after, then it is called again. -ENOMEM. Ops of a rank
 * without a time of issue go after the one that was added before them. */
int sl_job_seal(struct sl_job *job);

/* SL_JOB_OTHER where it is none of them: of NCCL's, PyTorch's, MPI's and our own names. */
enum sl_job_kind sl_job_kind_of(const char *name, size_t len);
const char *sl_job_kind_name(enum sl_job_kind kind);

#endif
