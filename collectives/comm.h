/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator: the ranks that work together, how each is reached, the windows that ranks of one
 * host share, the operations under way and the plans they walk.
 *
 * One buffer's way: lib/sluice.c checks the call → plan.c finds or builds the schedule for its
 * shape (select.c chooses the algorithm) → exec.c walks the schedule → the endpoint's transport.
 * wait.c makes progress while somebody waits; health.c notices ranks that died, hang or disagree.
 */
#ifndef SL_COLLECTIVES_COMM_H
#define SL_COLLECTIVES_COMM_H

#include "collectives/costs.h"
#include "collectives/peers.h"
#include "kernels/reduce.h"
#include "schedules/schedule.h"
#include "collectives/window.h"
#include "core/config.h"
#include "core/err.h"
#include "core/event.h"
#include "core/exchange.h"
#include "core/list.h"
#include "core/state.h"
#include "core/transport.h"
#include "core/worker.h"

#include <sluice/sluice.h>

#include <pthread.h>
#include <stdatomic.h>

#define SL_COSTS_SOURCE_MAX 240
#define SL_HISTORY 256 /* calls whose signature is remembered; a power of two */

/* What stands for all calls up to one, in the low half of messages' tags and in windows: who has it
 * in common called the same from the first on. One to one in both arguments, so ranks that once
 * called differently stay apart. */
static inline uint32_t sl_run_on(uint32_t run, uint32_t fingerprint)
{
    run = (run ^ fingerprint) * UINT32_C(0x9e3779b1);
    return run ^ run >> 15;
}

struct sl_coding;
struct sl_recall_table;
struct sl_family;
struct sl_plan;
struct sl_op;
struct sluice_req;

/* Which transport, and which of its devices; borrowed for the communicator's life. */
struct sl_comm_transport {
    const struct sl_transport_ops *ops;
    const struct sl_device *dev; /* NULL: the transport's own choice */
};

struct sl_comm_params {
    const struct sl_config *config; /* copied */
    const struct sl_clock *clock;   /* borrowed for the worker's life */
    uint64_t seed;
    void (*idle)(struct sl_worker *worker); /* see core/worker.h; NULL in real programs */
    void *idle_arg;
    void (*poke)(void *arg); /* see struct sl_waits; NULL: nothing but ours moves */
    void *poke_arg;
    const struct sl_wire_ops *wire;             /* see core/worker.h; NULL: sockets */
    const struct sl_comm_transport *transports; /* NULL: those of config->transport */
    size_t transport_count;
    const char *(*codec_name)(uint32_t number);            /* as in struct sluice_comm */
    void (*encode)(const void *in, size_t len, void *out); /* as in struct sluice_comm */
    const char *host_id; /* ranks with the same text share a host; NULL: config, or the kernel's */
};

/* The windows of this rank and its place in them: window.c opens and closes, exec.c uses them. */
struct sl_windows {
    struct sl_win_slot *slots; /* of this rank; NULL: the communicator has no windows */
    uint32_t area;             /* of the family's segment */
    bool whole;                /* all of the area is backed */
    size_t bytes;              /* payload of a half */
    uint64_t ticket, serving;  /* one operation at a time uses the windows */
    uint64_t base;             /* counter at which the next operation starts */
    uint64_t shorts, longs;    /* operations so far that used an area */
    uint64_t begun;            /* all ranks are known to have begun those before this ticket */
    /* an area is written again when all have begun those before this ticket */
    uint64_t free[SL_WIN_AREAS];
    struct { /* by ticket % SL_WIN_SLOTS, of the last ones served */
        uint64_t base;
        uint32_t seq;
    } past[SL_WIN_SLOTS];
};

/* Operations (exec.c) and the plans that they walk (plan.c). */
struct sl_calls {
    struct sl_node active; /* sluice_req.link, in order of the calls */
    uint32_t active_count; /* requests that are not given back */
    uint32_t at_work;      /* steps that runners have: nothing wakes a thread that waits for them */
    uint32_t kept;         /* persistent operations that are not freed */
    uint32_t paced;        /* calls since it was looked how fast they come (status.h) */
    bool is_timed;         /* they come slowly enough */
    uint64_t paced_ns;     /* when that was looked at */
    uint32_t seq;          /* collectives called so far */
    uint32_t run;          /* of these */
    struct sl_signature history[SL_HISTORY];
    struct sl_plan **plans;    /* hash table */
    struct sl_plan *last_plan; /* the one found last: mostly the next one too */
    struct sl_node plan_lru;
    uint32_t plan_count;
};

/* The ladder of waiting: wait.c. */
struct sl_waits {
    bool oversubscribed; /* more ranks on this host than cores */
    bool apart; /* and the scheduler does not let them run by a yield of one: see core/host.h */
    uint64_t spin_ns;
    uint32_t idle_passes;   /* since something moved, be it a control message */
    uint64_t idle_since_ns; /* of the ladder; 0: not known yet */
    uint64_t steps_run;
    uint64_t messages;   /* that have ended */
    uint64_t moves;      /* messages and steps, when they last changed */
    uint64_t traffic;    /* of the worker's interfaces, then */
    uint64_t bytes;      /* of this communicator's endpoints, when last asked */
    uint64_t idle_ns;    /* time in which they did not */
    uint64_t checked_ns; /* when that was last looked at; 0: not yet */

    /* Another library's progress, which a waiting thread makes beside ours from time to time (the
     * preload shim: MPI's, whose peers may wait for this rank there). NULL: there is none. */
    void (*poke)(void *arg);
    void *poke_arg;
};

/* Lost, silent and disagreeing ranks: health.c, dispute.c. */
struct sl_health {
    uint64_t told_ns;        /* when the status was last sent to the peers */
    uint32_t told_number;    /* of it */
    bool tell_soon;          /* what a peer said changes what this rank says */
    struct sl_relay *relays; /* statuses to be passed on, one of an origin at most; owned */
    uint32_t relay_count, relay_room;
    uint64_t mismatch_ns;  /* when a disagreement, or an earlier one, was noticed; 0: none */
    uint32_t mismatch_seq; /* the first that is known of */
    /* An error that is about to become this one's: an endpoint was lost, the culprit is its rank;
     * or, with told_len set, a peer tells an abort. */
    uint64_t pending_ns; /* since when; 0: none */
    struct sl_error pending;
    uint32_t teller;         /* who tells the abort */
    uint16_t told, told_len; /* bytes of pending that it told, and that there are */
    bool *rank_sets;         /* [2 * size]: scratch of verdicts */
    struct sl_error error;   /* of the broken communicator; code 0: it is whole */
    bool torn_down;          /* after an error: the endpoints are gone */
    bool is_speaker;         /* ... and of the ranks that live, this one tells people */
    _Atomic int abort_asked;
};

/* What calls' plans go by while speeds of links change: speeds.c. */
struct sl_agreed_speeds {
    bool exchanges;      /* the same on all ranks */
    const uint16_t *now; /* [size]; NULL: all alike */
    uint32_t next_at;    /* number of the operation from which on an exchange ends and begins */
    uint32_t own, *said; /* of the exchange; said [size] is owned */
    uint16_t *table;     /* [size]: owned; of now, once that is not sluice_comm.speed */
    struct sluice_operation *exchange;  /* owned; NULL: none was needed yet */
    const struct sluice_req *under_way; /* NULL: none since the last one was taken */
};

struct sluice_comm {
    uint32_t rank, size;
    uint64_t life;            /* of the process that made it: core/fork.h */
    uint64_t id;              /* the same on all its ranks */
    struct sl_family *family; /* NULL once it is destroyed */
    struct sl_node of_family;
    uint32_t channel;          /* of links */
    const uint32_t *family_of; /* [size]: its ranks in the family; NULL: they are the same */
    struct sl_worker *worker;
    struct sl_member member; /* of the worker */
    uint8_t state_place;     /* on the state page, from 1, for its events; 0: none */
    struct sl_config config;
    struct sl_peers peers;
    const uint32_t *host; /* [size]: numbered from 0 by first appearance */
    uint16_t *speed;      /* [size]: what each rank's links deliver; owned; NULL: all alike */
    struct sl_agreed_speeds speeds; /* ... and what they do since */
    uint32_t host_count;
    uint32_t local_size;                          /* ranks of this host */
    uint32_t most_local;                          /* ranks of the host that has most */
    struct sl_shared *held_host, *held_family_of; /* hold the two tables */
    bool has_tree; /* control messages reach its neighbours of the tree, or will (reach.c) */
    bool created;  /* all ranks have met: who does not answer may be computing */
    const struct sl_kernels *kernels;
    struct sl_coding *coding; /* how calls are compressed: code.h; counted; NULL: they are not */
    struct sl_recall_table *recalls; /* what calls keep for it: recall.h; owned; NULL: nothing */
    const void *recall_as; /* what calls are of, if not of the memory they lend; or NULL */
    void *device_stream;   /* of the user's, which calls on a GPU's memory begin after */
    /* The name of a codec by the number that marks have (core/code.h); NULL: nobody knows any. */
    const char *(*codec_name)(uint32_t number);
    /* Encodes len bytes of f32 by the codec that costs.code is of, to no more than len; NULL: its
     * cost is the usual one. */
    void (*encode)(const void *in, size_t len, void *out);
    struct sl_costs costs;
    struct sl_correction correction;        /* of what the costs predict */
    char costs_source[SL_COSTS_SOURCE_MAX]; /* where they come from, for --explain */
    size_t stream_min; /* results of at least this many bytes bypass the caches */

    struct sl_windows win;
    struct sl_calls calls;
    struct sl_waits wait;
    struct sl_health health;
    /* on the state page: status.c */
    struct sl_state_calls *shown; /* the page's, or unseen */
    struct sl_state_calls unseen;
    struct sl_status *status; /* NULL: nothing but the counts above is written */
    uint64_t page_written_ns;

    struct sl_node buffers; /* of sluice_alloc() */
    bool closed;            /* destroyed, but requests or operations are still to be given back */
};

/*
 * Makes a communicator over exchange, which stays the caller's. Blocks until all ranks are
 * connected. Errors as sluice_comm_create().
 */
int sl_comm_create(struct sl_exchange *exchange, const struct sl_comm_params *params,
                   struct sluice_comm **out);
void sl_comm_destroy(struct sluice_comm *comm);
/* While it is made: exchange->allgather() of what all ranks say. Transports that have to answer in
 * time go on doing so, as others may still wait for what this rank sent. */
int sl_comm_gather(struct sluice_comm *comm, struct sl_exchange *exchange, const void *in,
                   size_t len, void *out);

/* For comm.c and child.c: memory, with settings and tables; its end; how long it polls. */
int sl_comm_alloc(const struct sl_config *config, uint32_t rank, uint32_t size,
                  struct sluice_comm **out);
void sl_comm_free(struct sluice_comm *comm);
void sl_comm_set_spin(struct sluice_comm *comm);

/* After a request or a persistent operation was given back: frees a destroyed communicator with the
 * last of them. */
void sl_comm_release(struct sluice_comm *comm);

/* One pass over everything that can move. Returns how much moved; 0: nothing. Never fails: errors
 * end requests. */
unsigned sl_comm_progress(struct sluice_comm *comm);

/* wait.c: from now on its worker moves it, too. */
int sl_comm_join(struct sluice_comm *comm);

/* wait.c: the first operation since none was in flight begins: the time until now counts against
 * nobody. */
static inline void sl_comm_begin_waiting(struct sluice_comm *comm)
{
    comm->wait.idle_ns = 0;
    comm->wait.checked_ns = 0;
    comm->wait.idle_since_ns = 0;
}

/* wait.c: after a pass that moved nothing (moved 0) or something. Polls, yields or sleeps, and from
 * time to time looks after deadlines and health. may_sleep false: returns at once (sluice_test). */
void sl_comm_idle(struct sluice_comm *comm, unsigned moved, bool may_sleep);

/* wait.c: progress until *status is no longer SL_PENDING. */
void sl_comm_wait(struct sluice_comm *comm, const int *status);

/* Breaks the communicator: every operation ends with code and the sentence; the peers are told. The
 * first failure stays. culprit: the rank to blame, or -1. */
void sl_comm_fail(struct sluice_comm *comm, int code, int32_t culprit, const char *fmt, ...)
    SL_PRINTF(4, 5);

/* May be read for every rank; written if sl_peers_make() was called for it (endpoints, plans). */
static inline struct sl_peer *sl_comm_peer(const struct sluice_comm *comm, uint32_t rank)
{
    return sl_peers_at(&comm->peers, rank);
}

#endif
