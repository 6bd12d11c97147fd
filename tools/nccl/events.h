/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of NCCL's profiler interface, in a file of shared memory that has the form of a state
 * page (core/state.h): docs/nccl.md lists its sections.
 *
 * Two tables of the same records. *Slots* hold open events: a start takes a slot and its stop
 * gives it back, and a reader sees the state of each one and its time, which tells a slow peer from
 * a slow network. The *ring* holds past events: its oldest record
 * gives way to a new one.
 *
 * Writers are all of NCCL's threads; none ever waits. A reader may read at any time: a record
 * counts when it has the expected turn before and after it was copied.
 */
#ifndef SL_NCCL_EVENTS_H
#define SL_NCCL_EVENTS_H

#include "core/state.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_NCCL_EVENTS_COMMS 64
#define SL_NCCL_EVENTS_SLOTS 4096
#define SL_NCCL_EVENTS_PATH "/dev/shm/sluice-nccl" /* -PID-RANK */

/* One communicator of the process. A place keeps its words after the communicator has ended, as
 * long as there are others. */
struct sl_nccl_event_comm {
    _Atomic uint64_t turn; /* as in core/state.h */
    uint64_t id;           /* the same on all its ranks */
    uint64_t start_ns;
    int32_t rank, ranks, nodes;
    _Atomic uint32_t lives; /* 0: it has ended */
    char name[32];
    _Atomic uint64_t calls; /* collectives that have begun, also those whose events were dropped */
};

/* Bits of NCCL's own kinds (abi_profiler.h) are numbered from 0. */
enum sl_nccl_event_type {
    SL_NCCL_EVENT_COLL = 1,
    SL_NCCL_EVENT_P2P = 2,
    SL_NCCL_EVENT_PROXY_OP = 3,
    SL_NCCL_EVENT_PROXY_STEP = 4,
    SL_NCCL_EVENT_KERNEL_CH = 6,
    SL_NCCL_EVENT_KERNEL_PHASE = 15
};

struct sl_nccl_event_record {
    /* A slot's: odd while it is taken, one more with each take and give, below SL_NCCL_WRITING;
     * from there on a count that is odd while the slot is being written. A ring's: its number from
     * 1, 0 while it is being written. */
    _Atomic uint64_t turn;
    uint64_t id, parent;        /* handles, 0: none (or another process's) */
    uint64_t start_ns, stop_ns; /* CLOCK_MONOTONIC; stop 0: going on */
    uint64_t state_ns;          /* when it came to its state */
    uint8_t type;               /* enum sl_nccl_event_type */
    uint8_t state;              /* NCCL's number, 0: none yet */
    uint16_t comm;              /* place in the table */
    int32_t rank;
    union {
        struct {
            /* NCCL's, per communicator and function; of p2p our own, per communicator */
            uint64_t seq;
            uint64_t count; /* elements */
            int32_t root;   /* of p2p: the peer */
            uint16_t channels;
            uint16_t symmetric; /* 1: a kernel for symmetric memory (NCCL 2.31 and later) */
            char func[16], datatype[8], algo[8], proto[8];
            uint64_t tag; /* of the program's call, 0: none (NCCL 2.31 and later) */
        } op;
        struct {
            int32_t pid; /* of the operation's process */
            uint32_t channel;
            int32_t peer;
            int32_t steps, chunk_bytes, is_send;
            uint64_t bytes; /* moved by steps that are over */
        } proxy;
        struct {
            int32_t step, is_send;
            uint64_t bytes;
            uint64_t wait_ns[3]; /* for the GPU, for the peer, for the network */
            uint64_t polls;      /* while the peer had not asked for it */
        } step;
        struct {
            uint64_t channel, gpu_start_ns, gpu_stop_ns;
            uint64_t phase; /* of KERNEL_PHASE: 0 ranks meet, 1 the work, 2 ranks meet again */
        } kernel;
        uint8_t bytes[72];
    };
};

/* Numbers by themselves, outside of the turn. */
struct sl_nccl_event_head {
    uint64_t turn; /* 2 */
    uint64_t start_ns;
    _Atomic uint64_t written; /* records that ever went into the ring */
    _Atomic uint64_t dropped; /* events that found no slot */
    _Atomic uint64_t late;    /* stops and states of events that were over */
};

#define SL_NCCL_EVENTS_SECTIONS 5

/* The begin of the file; the slots and the ring follow. */
struct sl_nccl_events {
    struct sl_state_header header;
    struct sl_state_section sections[SL_NCCL_EVENTS_SECTIONS];
    struct sl_state_process process;
    struct sl_nccl_event_head head;
    uint64_t room[2];
    struct sl_nccl_event_comm comm[SL_NCCL_EVENTS_COMMS];
};

static_assert(sizeof(struct sl_nccl_event_comm) == 80, "as the document says");
static_assert(sizeof(struct sl_nccl_event_head) == 40, "as the document says");
static_assert(sizeof(struct sl_nccl_event_record) == 128, "as the document says");
static_assert(offsetof(struct sl_nccl_event_record, op) == 56, "as the document says");
static_assert(sizeof(struct sl_nccl_events) % 64 == 0,
              "records share no more lines than they must");

/* All but the turn, word by word: a reader, or a writer that is a whole ring behind, may be at it
 * too. */
static inline void sl_nccl_record_copy(struct sl_nccl_event_record *to,
                                       const struct sl_nccl_event_record *from)
{
    uint64_t *out = &to->id;
    const uint64_t *in = &from->id;
    size_t words = (sizeof(*to) - offsetof(struct sl_nccl_event_record, id)) / sizeof(*out);

    for (size_t i = 0; i < words; i++)
        __atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Puts a record into its place in the ring. The turn is 0 before any word of it is new, and its own
 * after all are: a reader that compares the turns before and after copying sees two, as in
 * core/seqlock.h. */
static inline void sl_nccl_record_put(struct sl_nccl_event_record *place, uint64_t turn,
                                      const struct sl_nccl_event_record *record)
{
    atomic_store_explicit(&place->turn, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    sl_nccl_record_copy(place, record);
    atomic_store_explicit(&place->turn, turn, memory_order_release);
}

/* ---- slots ---- */

#define SL_NCCL_WRITING (UINT64_C(1) << 40) /* as many turns as no process lives to see */

static inline uint64_t sl_nccl_slot_turn(uint64_t word)
{
    return word & (SL_NCCL_WRITING - 1);
}

/* Does it hold an event, whole? Ask before and after copying: another word is another writing. */
static inline bool sl_nccl_slot_is_whole(uint64_t word)
{
    return word % 2 == 1 && (word & SL_NCCL_WRITING) == 0;
}

/* To another word, from *word: fails where another thread was faster. The words
 * of the slot that are stored from here on are not seen without it. */
static inline bool sl_nccl_slot_move(struct sl_nccl_event_record *slot, uint64_t *word, uint64_t to)
{
    if (!atomic_compare_exchange_strong_explicit(&slot->turn, word, to, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return false;
    *word = to;
    /* An exchange alone would not do: later stores may pass the store half of it on 64-bit ARM. */
    atomic_thread_fence(memory_order_release);
    return true;
}

/* Takes a free slot, to be written; false: it is taken. */
static inline bool sl_nccl_slot_take(struct sl_nccl_event_record *slot, uint64_t *word)
{
    *word = atomic_load_explicit(&slot->turn, memory_order_relaxed);
    return *word % 2 == 0 && sl_nccl_slot_move(slot, word, *word + 1 + SL_NCCL_WRITING);
}

/* Begins to write a slot that is taken; false: it is another's, or another thread writes it. */
static inline bool sl_nccl_slot_change(struct sl_nccl_event_record *slot, uint64_t turn,
                                       uint64_t *word)
{
    *word = atomic_load_explicit(&slot->turn, memory_order_relaxed);
    return sl_nccl_slot_turn(*word) == turn && (*word & SL_NCCL_WRITING) == 0 &&
           sl_nccl_slot_move(slot, word, *word + SL_NCCL_WRITING);
}

/* Ends the writing. The slot may have been given back meanwhile: then it stays so. */
static inline void sl_nccl_slot_written(struct sl_nccl_event_record *slot, uint64_t word)
{
    atomic_compare_exchange_strong_explicit(&slot->turn, &word, word + SL_NCCL_WRITING,
                                            memory_order_release, memory_order_relaxed);
}

/* Gives it back, and copies its event; false: another thread was faster. */
static inline bool sl_nccl_slot_give(struct sl_nccl_event_record *slot, uint64_t turn,
                                     struct sl_nccl_event_record *out)
{
    uint64_t word = atomic_load_explicit(&slot->turn, memory_order_relaxed), given;

    do {
        if (sl_nccl_slot_turn(word) != turn)
            return false;
        sl_nccl_record_copy(out, slot); /* again, if it was written meanwhile */
        given = word + 1 + (word & SL_NCCL_WRITING);
    } while (!sl_nccl_slot_move(slot, &word, given));
    return true;
}

#endif
