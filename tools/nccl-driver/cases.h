/* SPDX-License-Identifier: Apache-2.0 */
/* The cases: each runs on every rank of its own, in threads of one process or in processes. */
#pragma once

#include "tools/nccl-driver/flow.h"

enum case_flag {
    CASE_THREADS = 1,   /* makes sense in one process */
    CASE_PROCESSES = 2, /* … in several */
    CASE_ANYWHERE = 3,
    CASE_NETNS = 4,  /* in a network namespace of its own */
    CASE_DIES = 8,   /* rank 1 is killed by the case */
    CASE_FAULT = 16, /* a fault beneath the plugin */
    CASE_EXTRA = 32, /* by name only: what a plugin without deadlines of its own cannot pass */
};

struct driver_case {
    const char *name;
    int (*run)(struct rank *r);
    int ranks;
    unsigned flags;
};
#define NAMED(run) #run, run

extern const struct driver_case cases_basic[], cases_life[], cases_fault[];
extern const unsigned cases_basic_count, cases_life_count, cases_fault_count;

/* Path of a file that appears when the network has been broken; a case waits for it. */
extern const char *case_until;
/* How long after a fault requests may stay undone. */
extern uint64_t case_fault_ns;

#define CONNS_MOST 24

extern const size_t case_small[], case_mixed[];
extern const unsigned case_small_count, case_mixed_count;

/* count connections, to and fro between neighbours. */
void case_ring(const struct rank *r, struct conn *conns, unsigned count, int first_id);
/* The flows of this rank on these connections, shaped like `like`; ended, checked and undone. */
int case_carry(struct rank *r, struct conn *conns, unsigned count, const struct flow *like);
/* The two halves of it: *flows is malloc'd, for the ends that this rank has. */
int case_begin(struct rank *r, struct conn *conns, unsigned count, const struct flow *like,
               struct flow **flows, unsigned *flow_count);
int case_end(struct rank *r, struct flow *flows, unsigned flow_count);
/* Waits until the plugin has taken so many requests of each of them. */
int case_asked(struct flow *flows, unsigned flow_count, unsigned requests);
/* Waits until each of them has moved so many messages. */
int case_moved(struct rank *r, struct flow *flows, unsigned flow_count, unsigned messages);
/* One connection each way, 20 messages, closed again. */
int case_quick(struct rank *r, int first_id);
/* As NCCL ends what failed: the progress thread, registrations, memory, comms, finalize;
 * mode is what becomes of the memory. Frees flows. */
enum case_abort { ABORT_PROTECT, ABORT_POISON };
int case_abort(struct rank *r, struct conn *conns, unsigned count, struct flow *flows,
               unsigned flow_count, enum case_abort mode);
