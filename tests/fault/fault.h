/* SPDX-License-Identifier: Apache-2.0 */
/* One fault run: its draw, what its processes share, and their parts. */
#ifndef SL_TESTS_FAULT_H
#define SL_TESTS_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RANKS_MAX 5
#define TIMEOUT_MS 600 /* SLUICE_TIMEOUT_MS of the runs */
#define SLACK_MS 2500  /* beyond it, on a machine that does other things too */
#define UNHARMED_ROUNDS 30

enum fault_kind {
    FAULT_KILL,    /* SIGKILL */
    FAULT_STOP,    /* SIGSTOP beyond the timeout, then SIGCONT */
    FAULT_RESET,   /* a connected socket of the victim is reset */
    FAULT_HALF,    /* nothing that the victim sends arrives any more, nothing is closed */
    FAULT_ABORT,   /* sluice_comm_abort() from another thread */
    FAULT_DESTROY, /* sluice_comm_destroy() while the others are inside */
    FAULT_GARBAGE, /* strangers send bytes to the meeting place during the start */
    FAULT_SLOW,    /* strangers connect there and send a byte from time to time */
    FAULT_KINDS
};

/* What one rank tells. Times are CLOCK_MONOTONIC, in ns. */
struct rank_report {
    _Atomic int running;       /* it has made its communicator and ended a collective */
    _Atomic uint64_t ended_ns; /* when it saw the error, or had ended its rounds */
    int code;                  /* 0, or the error of its requests */
    char text[640];            /* the sentence of that error */
    char complaint[256];       /* what was wrong with the rank itself; "": nothing */
    uint32_t rounds;
};

/* Lies in memory shared by the processes of a run. */
struct fault_run {
    uint64_t seed;
    const char *transport; /* shm, epoll, uring */
    enum fault_kind kind;
    int ranks, victim, port;
    uint32_t moment_us; /* after all ranks run */
    _Atomic int fire;   /* to the victim, for faults that it does to itself; to strangers: stop */
    _Atomic uint64_t fired_ns;
    struct rank_report report[RANKS_MAX];
};

uint64_t now_ns(void);

/* rank.c: the life of a rank; ends the process. */
_Noreturn void rank_main(struct fault_run *run, int rank);

/* stranger.c: bothers the meeting place until run->fire; ends the process. */
_Noreturn void stranger_main(const struct fault_run *run);

/* cut.c: a network of its own for this process and its children, in which packets can be dropped.
 * NULL, or why it cannot be made. */
const char *cut_prepare(void);
/* Drops all packets of processes with user id CUT_UID. */
int cut_now(void);
#define CUT_UID 65534

#endif
