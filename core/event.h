/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events with time and peer: records in a ring, for paths that cannot afford text. The ring lies
 * on the state page (core/state.h), where other processes read it too.
 *
 * Any thread writes, none waits. The oldest record gives way to a new one, so each reader keeps a
 * place of its own and counts its misses. Counts per kind, and when a kind came first and last,
 * are never lost.
 *
 * Writer of number n                       Reader of number n
 *   turn = 0, from the turn of a lap ago     turn == n + 1                (acquire)
 *   release fence                            copy the words
 *   the words                                acquire fence
 *   turn = n + 1             (release)       turn == n + 1 still
 */
#ifndef SL_CORE_EVENT_H
#define SL_CORE_EVENT_H

#include "core/clock.h"
#include "core/probe.h"
#include "core/worker.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds that any part may note. Those of a transport are its own: a set that is registered with it
 * (sl_transport_ops.events). */
enum { SL_EVENT_PEER_LOST = 12, SL_EVENT_COMM_FAILED = 13 };

#define SL_EVENT_RING 512u         /* records; a power of two */
#define SL_EVENT_KINDS_MAX 32u     /* that a ring counts */
#define SL_EVENT_OWN 24u           /* kinds below are for this tree */
#define SL_EVENT_FREE UINT16_MAX   /* instead of a kind's number */
#define SL_EVENT_NOBODY UINT32_MAX /* no peer: the event is this process's own */

struct sl_event {
    uint64_t time_ns; /* of the worker's clock */
    uint16_t kind;    /* its number */
    uint8_t area;     /* number of its set, in the order of registration; 0: core */
    uint8_t comm;     /* place of its communicator on the state page, from 1; 0: on none */
    uint32_t peer;    /* rank, or SL_EVENT_NOBODY */
    uint64_t a, b;    /* what the kind's row says; a negative errno as int64_t */
};

struct sl_event_record {
    _Atomic uint64_t turn; /* number of the event, from 1; 0: it is being written */
    struct sl_event event;
};

/* A kind, in words, so that a reader needs no table of its own; and how often it came. */
struct sl_event_row {
    _Atomic uint64_t turn; /* 2 once the words are there */
    char name[24], area[16], a[12], b[12];
    _Atomic uint64_t count, first_ns, last_ns;
};

_Static_assert(sizeof(struct sl_event) == 32 && sizeof(struct sl_event_record) == 40 &&
                   sizeof(struct sl_event_row) == 96,
               "as docs/state.md says");

struct sl_event_ring {
    _Atomic uint64_t written; /* numbers given out */
    _Atomic uint64_t dropped; /* events whose record another thread was still writing */
    struct sl_event_row rows[SL_EVENT_KINDS_MAX];
    struct sl_event_record slots[SL_EVENT_RING];
};

/* The kinds that reports of a run show. */
enum sl_event_show {
    SL_EVENT_SHOW,       /* each */
    SL_EVENT_SHOW_FIRST, /* rank 0's alone: it comes at every start */
    SL_EVENT_SHOW_NONE,  /* there are many */
};

struct sl_event_kind {
    /* Its number, for probes and in the code: below SL_EVENT_KINDS_MAX, and never another
     * one. 0 to 23 are for this tree. SL_EVENT_FREE: the set gets free ones, one after the other,
     * from *first on. */
    uint16_t number;
    const char *name, *a, *b; /* "path_down"; what a and b are, "" where they mean nothing */
    enum sl_event_show show;
};

struct sl_event_set {
    const char *area; /* "verbs" */
    const struct sl_event_kind *kinds;
    unsigned count;
    const struct sl_event_set *also; /* registered with it: of what lies below; or NULL */
    uint16_t *first;                 /* out, with SL_EVENT_FREE */
};

/* Before rings are made that are to have its words. Again, or another copy of it: nothing happens.
 * -EEXIST: a number is taken; -ENOSPC: no number is free. The set stays for the life of the
 * process. */
int sl_event_register(const struct sl_event_set *set);

/* Makes zeroed memory a ring: fills in the words of all kinds that there are by now. */
void sl_event_ring_init(struct sl_event_ring *ring);

/* Notes an event. On any thread, in no signal handler. */
void sl_event_put(struct sl_event_ring *ring, const struct sl_event *event);

/* Of the communicator with that place on the state page. On the worker's thread. A worker without
 * a ring has no events (but probes). */
static inline void sl_event_of(const struct sl_worker *worker, uint8_t place, unsigned kind,
                               uint32_t peer, uint64_t a, uint64_t b)
{
    SL_PROBE4(event, (uint32_t)kind, peer, a, b);
    if (worker->events == NULL)
        return;
    const struct sl_event event = {.time_ns = sl_now(worker->clock),
                                   .kind = (uint16_t)kind,
                                   .comm = place,
                                   .peer = peer,
                                   .a = a,
                                   .b = b};

    sl_event_put(worker->events, &event);
}

static inline void sl_event(const struct sl_worker *worker, unsigned kind, uint32_t peer,
                            uint64_t a, uint64_t b)
{
    sl_event_of(worker, worker->state_place, kind, peer, a, b);
}

/* Where a reader is in a ring: { ring, 0 } reads from the oldest that is still there. */
struct sl_event_reader {
    const struct sl_event_ring *ring;
    uint64_t next;   /* number of the next, from 0 */
    uint64_t missed; /* those that gave way before they were read */
};

/* Copies up to cap events that the reader has not had, the oldest first. Returns how many. */
size_t sl_event_read(struct sl_event_reader *reader, struct sl_event *out, size_t cap);

/* Since the ring was made. */
struct sl_event_totals {
    uint64_t dropped;
    uint64_t counts[SL_EVENT_KINDS_MAX];
};

void sl_event_totals(const struct sl_event_ring *ring, struct sl_event_totals *out);

/* "path_down"; "unknown" for other numbers. */
const char *sl_event_name(unsigned kind);

/* Number of a kind's set, and whether reports show it; of other numbers: 0, and each. */
uint8_t sl_event_area(unsigned kind);
enum sl_event_show sl_event_shown(unsigned kind);

/* One line: "12.345678901 verbs path_down peer 5 path 2 status 12". Cuts at cap. */
void sl_event_text(const struct sl_event *event, char *out, size_t cap);

#endif
