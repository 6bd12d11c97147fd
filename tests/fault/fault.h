/* SPDX-License-Identifier: Apache-2.0 */
/* One fault run: its draw, what its processes share, and their parts. */
#ifndef SL_TESTS_FAULT_H
#define SL_TESTS_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 5
#define TIMEOUT_MS 600 /* SLUICE_TIMEOUT_MS of the runs */
#define SLACK_MS 2500  /* beyond it, on a machine that does other things too */
#define NS_PER_MS UINT64_C(1000000)
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
    FAULT_LINK,    /* a port of the victim loses its link, which comes back */
    FAULT_GONE,    /* one of its ports loses all links for good; some runs have a second one */
    FAULT_KINDS
};

/* What ranks take, and how often each fault is drawn. */
struct fault_transport {
    const char *name;               /* of --transport */
    const char *transport, *engine; /* SLUICE_TRANSPORT, SLUICE_TCP_ENGINE */
    unsigned weight[FAULT_KINDS];
    const char *(*missing)(void); /* why it cannot be had here, or NULL; may be NULL */
};

/* What one rank tells. Times are CLOCK_MONOTONIC, in ns. */
struct rank_report {
    _Atomic int running;       /* it has made its communicator and ended a collective */
    _Atomic uint64_t ended_ns; /* when it saw the error, or had ended its rounds */
    int code;                  /* 0, or the error of its requests */
    char text[640];            /* the sentence of that error */
    char complaint[256];       /* what was wrong with the rank itself; "": nothing */
    uint32_t rounds;
    uint64_t stall_ns; /* its longest round that ended after the fault */
};

/* Lies in memory shared by the processes of a run. */
struct fault_run {
    uint64_t seed;
    const struct fault_transport *transport;
    enum fault_kind kind;
    int ranks, victim, port;
    int rails;                   /* ports to each other rank, of dpdk; else 0 */
    char dir[32];                /* of their sockets */
    uint32_t moment_us;          /* after all ranks run */
    _Atomic uint32_t last_round; /* after which ranks that nothing harms end; 0: not known yet */
    _Atomic int fire; /* to the victim, for faults that it does to itself; to strangers: stop */
    _Atomic uint64_t fired_ns;
    struct rank_report report[RANKS_MAX];
};

uint64_t now_ns(void);

/* transport.c. The one of that name; ends the program when there is none. */
const struct fault_transport *fault_transport(const char *name);
bool fault_has_ports(const struct fault_run *run);
/* The folder of a run's ports, and the variable of one of its ranks; NULL, or what is wrong. */
const char *fault_folder_make(struct fault_run *run);
void fault_ports(const struct fault_run *run, int rank);
/* The sockets of the first port cannot be reached any more. */
void fault_folder_hide(const struct fault_run *run);
/* False: something was left in it by a rank that ended by itself. */
bool fault_folder_remove(struct fault_run *run, char *why, size_t cap);

/* judge.c. Does every rank end well? */
bool fault_harms_nobody(const struct fault_run *run);
bool fault_has_strangers(const struct fault_run *run);
/* False, with a sentence; and how long after the fault the last rank ended. */
bool fault_judge(const struct fault_run *run, char *why, size_t cap, uint64_t *worst_ns);

/* rank.c: the life of a rank; ends the process. */
_Noreturn void rank_main(struct fault_run *run, int rank);

/* sockets.c: ends connections, or links, of this process, as the fault asks. */
void fault_sockets(const struct fault_run *run);

/* stranger.c: bothers the meeting place until run->fire; ends the process. */
_Noreturn void stranger_main(const struct fault_run *run);

/* cut.c: a network of its own for this process and its children, in which packets can be dropped.
 * NULL, or why it cannot be made. */
const char *cut_prepare(void);
/* Drops all packets of processes with user id CUT_UID. */
int cut_now(void);
#define CUT_UID 65534

#endif
