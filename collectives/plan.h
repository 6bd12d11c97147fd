/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: schedules compiled for one communicator and kept by the shape of the call, and the
 * operations (sluice_req) that walk them. All memory that an operation needs comes with it, so that
 * the second call of a shape allocates nothing.
 */
#ifndef SL_COLLECTIVES_PLAN_H
#define SL_COLLECTIVES_PLAN_H

#include "collectives/comm.h"
#include "core/step.h"

/* The first tile and the number of tiles that a stage of a plan encodes. */
struct sl_coding_extent {
    uint64_t first, count;
};

#define SL_CODING_STAGES 3

/* A call as the public function got it, checked. */
struct sl_call {
    enum sl_coll coll;
    enum sluice_dtype dtype;
    enum sluice_op op; /* SLUICE_SUM where nothing is reduced */
    uint32_t root;     /* or the peer of SL_SEND and SL_RECV */
    uint64_t count;
    bool in_place;
    bool on_device; /* in and out are memory that the processor must not touch: device.h */
    const uint64_t *in_counts, *in_offs, *out_counts, *out_offs; /* all_to_all_v; borrowed */
};

/* How a plan is made otherwise than by the call alone. */
struct sl_recipe {
    const struct sl_algo *algo;         /* NULL: the selector's choice */
    struct sl_runner *const *runners;   /* steps name them from 1 on; lent for the plan's life */
    uint32_t runner_count;              /* at most SL_RUNNERS_MAX */
    struct sl_coding *coding;           /* code.h: counted for the plan; NULL: none */
    const struct sl_code *code, *inner; /* of it; inner NULL: none */
    struct sl_coding *spared; /* would be for the call, and is dearer; counted for the plan; NULL */
    double raw_ns;            /* that the call should take without coding; 0: not known */
};

#define SL_RUNNERS_MAX 4

/* One direction to one peer that a plan posts to, and how often. */
struct sl_use {
    struct sl_peer *peer;
    uint32_t rank; /* of it */
    uint32_t posts;
    bool recv;
};

enum sl_go {
    SL_GO_BLOCKED, /* try again on a later pass */
    SL_GO_ON,      /* the step is under way: its request ends it */
    SL_GO_OVER,    /* the step is over */
};

/* Runs step index of the operation's schedule as far as it goes. */
typedef enum sl_go sl_step_fn(struct sluice_req *op, const struct sl_step *step, uint32_t index);

/* A step in the order of its channel. */
struct sl_turn {
    sl_step_fn *run;
    uint32_t step;
    bool windows; /* the operation must have entered the windows */
};

/* How steps of one of the code's terms reduce. */
struct sl_term_plan {
    uint32_t esize;
    sl_reduce_fn *reduce;
};

struct sl_plan {
    struct sl_plan *next; /* in its hash bucket */
    struct sl_node lru;
    struct sl_call call;
    uint64_t *counts; /* owned copy of the v-arrays, [4 * size]; or NULL */
    struct sl_shape shape;
    struct sl_schedule schedule;
    uint32_t fingerprint;
    bool p2p;                      /* a send or a receive */
    uint64_t shown_shape;          /* on the state page, as struct sl_state_calls has it */
    enum sl_win_size win_size;     /* of what it shows in windows */
    bool win_ahead;                /* calls of this kind run ahead, and fit in a slot */
    struct sl_signature signature; /* of this call, but for its number */
    uint32_t esize;                /* of what steps count: 1 where these are bytes */
    uint32_t divisor;              /* of FINAL reductions: size for averages, otherwise 1 */
    sl_reduce_fn *reduce,
        *reduce_out; /* _out: into the user's memory, past the caches if that pays */
    sl_copy_fn *copy, *copy_out;
    struct sl_term_plan terms[SL_CODE_TERMS_MAX];
    struct sl_turn *turns;    /* steps by channel */
    uint32_t *channel_first;  /* [channel_count + 1] into turns[] */
    uint32_t open_channels;   /* those with steps */
    struct sl_peer **peer_of; /* [step]: that it names; NULL: none, or the group */
    struct sl_peer **group;   /* [group_count], as the schedule's; NULL: this rank */
    uint32_t *post_of;        /* [step]: index of its sl_post or sl_job, for asynchronous steps */
    uint32_t *use_of;         /* [post]: index into uses[] */
    struct sl_use *uses;
    uint32_t post_count, use_count, job_count;
    struct sl_runner *runners[SL_RUNNERS_MAX];
    uint32_t runner_count;
    struct sl_coding *coding;  /* counted; NULL: none */
    struct sl_coding *account; /* of its calls: coding, or one that was dearer; counted; NULL */
    double raw_ns;             /* that a call should take without coding; 0: not known */
    bool has_lengths;          /* some are known at run time only */
    struct sl_node spare;      /* operations that nobody uses */
    uint32_t busy;             /* operations in use */
    /* Whether its calls keep residuals (recall.h), and of which tiles. */
    bool recalls;
    struct sl_coding_extent extents[SL_CODING_STAGES];
    /* a persistent operation's own, which no table holds; rests is called when busy falls to 0 */
    struct sluice_operation *owner;
    void *const *state; /* the owner's, for runners */
    void (*rests)(struct sl_plan *plan);
    /* calibrate.c: what its calls take, beside what they should */
    uint32_t calls, sample_mask; /* call number & mask == 1 is timed */
    uint32_t samples;
    uint64_t least_ns;
    double predicted_ns;
};

/* A message under way. */
struct sl_post {
    struct sl_req req;
    struct sl_sink sink;
    struct sluice_req *op;
    const struct sl_step *step;
    bool posted;
};

/* A step that a runner has. */
struct sl_job {
    struct sl_req req;
    struct sluice_req *op;
    const struct sl_step *step;
    bool busy;
};

/* One collective under way: what the public API calls a request. */
struct sluice_req {
    struct sl_node link; /* in comm->calls.active, or in plan->spare */
    struct sluice_comm *comm;
    struct sl_plan *plan;
    int status;      /* SL_PENDING, 0, or a negative errno */
    bool given_back; /* sluice_req_free() came first: goes back to the plan when it ends */
    bool in_windows; /* its turn at the windows has begun */
    uint8_t slot;    /* of the windows */
    int8_t area;     /* of the windows, or SL_WIN_NO_AREA */
    uint8_t shown;   /* place on the state page, from 1; 0: on none */
    uint8_t *base[SL_BUF_COUNT];
    uint32_t seq;
    uint64_t tag;
    uint64_t win_ticket, win_base;
    size_t win_at; /* where in each window its payload begins */
    uint32_t open_channels, in_flight;
    uint64_t bytes;     /* moved so far, for reports */
    uint64_t began_ns;  /* 0: not timed */
    uint64_t called_ns; /* for the state page; 0: not timed */
    uint64_t shown_ns;  /* when it came to the state page */
    uint32_t *next;     /* [channel]: place in plan->turns */
    uint8_t *done;      /* [step]; NULL when no step depends on another */
    struct sl_post *posts;
    struct sl_job *jobs;
    uint32_t at_work;   /* jobs that runners have */
    uint64_t *lengths;  /* [step]: bytes that it left in the wire buffer; NULL: none asks */
    uint64_t *tickets;  /* [use] */
    uint32_t *use_left; /* [use]: posts to come */
    const void **srcs;  /* [group_count] */
    void *tmp, *wire;
    /* Residuals of calls with this buffer; NULL: none. */
    struct sl_recalled *recalled;
};

/* The plan of this call: found, or built and kept. -EINVAL, -ENOTSUP (forced algorithm),
 * -ENOMEM. */
int sl_plan_get(struct sluice_comm *comm, const struct sl_call *call, struct sl_plan **out);

/* A plan that no table holds. recipe NULL: by comm's coding, if it has one that is for this call.
 * Not busy when it is destroyed. */
int sl_plan_create(struct sluice_comm *comm, const struct sl_call *call,
                   const struct sl_recipe *recipe, struct sl_plan **out);
void sl_plan_destroy(struct sl_plan *plan);

/* Takes from the table the plans that go by what links deliver. What is in flight ends first. */
void sl_plans_forget(struct sluice_comm *comm);

/* Takes all plans from the table. What is in flight goes on by its plan. */
void sl_plans_drop(struct sluice_comm *comm);

/* Frees every plan of the table; none may be busy. */
void sl_plans_fini(struct sluice_comm *comm);

/* A spare operation of the plan, or a new one. */
int sl_op_get(struct sluice_comm *comm, struct sl_plan *plan, struct sluice_req **out);
void sl_op_put(struct sluice_req *op);

/* The shape that builders see for a call on this communicator. */
void sl_call_shape(const struct sluice_comm *comm, const struct sl_call *call,
                   struct sl_shape *out);

#endif
