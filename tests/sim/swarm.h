/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the swarm: what its seed draws, what every rank does and what must come out. */
#ifndef SL_TESTS_SIM_SWARM_H
#define SL_TESTS_SIM_SWARM_H

#include "collectives/comm.h"
#include "testing/sim/sim.h"

#include <sluice/sluice.h>

#define SWARM_RANKS 16       /* as many as a seed draws */
#define SWARM_RANKS_MAX 1024 /* as many as it may be given */
#define SWARM_CALLS 10
#define SWARM_FAULTS 8
#define SWARM_COMMS 2

/* What kind of end a run may have. */
enum swarm_mode {
    SWARM_WELL,     /* faults that pass: everything ends well */
    SWARM_FATAL,    /* ranks crash, hang, are cut off: well, or an error that names a rank */
    SWARM_MISMATCH, /* one rank calls something else: -EPROTO on every rank */
    SWARM_ABORT,    /* one rank aborts: -ECANCELED */
};

struct swarm_call {
    enum sl_coll coll; /* SL_SEND: every rank sends to the next and receives from the one before */
    enum sluice_dtype dtype;
    enum sluice_op op;
    uint32_t root, comm;
    size_t count;
    bool in_place, blocking;
    bool persistent; /* made as an operation, and started */
};

struct swarm {
    uint64_t seed;
    enum swarm_mode mode;
    struct sl_sim *sim;
    struct sl_sim_params params;
    struct sl_sim_fault faults[SWARM_FAULTS];
    struct sl_config config;
    uint32_t ranks, host[SWARM_RANKS_MAX];
    bool split; /* comm 1 is made of the ranks with the same parity of this rank ... */
    bool anew;  /* ... over a meeting of theirs, and not by a split */
    struct swarm_call calls[SWARM_CALLS];
    unsigned call_count;
    struct swarm_call wrong; /* MISMATCH: what culprit calls in place of calls[odd] */
    unsigned odd;
    uint32_t culprit;  /* MISMATCH, ABORT */
    unsigned abort_at; /* ABORT: before this call */
    struct swarm_rank *rank;
    struct sl_sim_meeting *meeting, *halves[2];
    int ran; /* of sl_sim_run() */
    FILE *trace;
};

/* What one rank met. */
struct swarm_rank {
    struct swarm *swarm;
    uint32_t rank;
    struct sl_exchange *exchange, *half;
    struct sluice_comm *comm[SWARM_COMMS];
    int made;                        /* result of making the communicators */
    int result[SWARM_CALLS];         /* 1: not reached */
    char text[SWARM_CALLS + 1][256]; /* the sentences; the last is that of made */
    char wrong[256];                 /* the first wrong byte, or "" */
};

/* swarm_draw.c: everything from seed, but for the ranks unless these are 0. */
void swarm_draw(struct swarm *swarm, uint64_t seed, uint32_t ranks);
void swarm_print(const struct swarm *swarm, FILE *out);

/* swarm_judge.c: runs it. False: why tells what went wrong. What ranks met stays until the
 * clean-up. */
bool swarm_run(struct swarm *swarm, char *why, size_t cap);
void swarm_clean_up(struct swarm *swarm);

/* swarm_program.c: what a rank does. arg is struct swarm_rank. */
void swarm_program(void *arg);

/* swarm_values.c: the reference. */
struct swarm_part { /* of a call on one communicator, as one rank sees it */
    const struct swarm_call *call;
    uint32_t size, rank;
    uint64_t salt; /* keeps calls and communicators apart */
};
uint64_t swarm_in_count(const struct swarm_part *part);
uint64_t swarm_out_count(const struct swarm_part *part);
/* Element idx of the input of rank. */
int64_t swarm_input(const struct swarm_part *part, uint32_t rank, uint64_t idx);
/* Element idx of this rank's output; false: it must be left as it was. */
bool swarm_expected(const struct swarm_part *part, uint64_t idx, int64_t *value);
/* Small whole numbers, as every type holds them exactly. */
void swarm_store(void *at, enum sluice_dtype dtype, int64_t value);
/* Blocks of all_to_all_v: elements from one rank to another. */
size_t swarm_v_count(const struct swarm_part *part, uint32_t from, uint32_t to);

#endif
