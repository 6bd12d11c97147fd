/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened, when, to whom: records in a ring, for paths that cannot afford text. The ring lies
 * on the state page (core/state.h), where other processes read it too.
 *
 * Any thread writes, none waits. The oldest record gives way to a new one, so each reader keeps a
 * place of its own and counts what it missed. Counts per kind, and when a kind came first and last,
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

#define SL_EVENT_AREAS(X) X(CORE, core) X(VERBS, verbs)

/* X(constant, name, area, what a is, what b is): "" where it means nothing. New kinds go to the
 * end: the numbers are what probes show. */
#define SL_EVENT_KINDS(X)                                                                          \
    X(PATH_UP, path_up, VERBS, "path", "epoch")                                                    \
    X(PATH_DOWN, path_down, VERBS, "path", "status")                                               \
    X(PATH_FENCED, path_fenced, VERBS, "path", "arrived")                                          \
    X(RESEND, resend, VERBS, "path", "pieces")                                                     \
    X(PORT_DOWN, port_down, VERBS, "rail", "state")                                                \
    X(PORT_UP, port_up, VERBS, "rail", "state")                                                    \
    X(GID_CHANGE, gid_change, VERBS, "rail", "index")                                              \
    X(CONN_WAITS, conn_waits, VERBS, "paths", "")                                                  \
    X(FALLBACK_ON, fallback_on, VERBS, "", "")                                                     \
    X(FALLBACK_OFF, fallback_off, VERBS, "path", "")                                               \
    X(MR_REG, mr_reg, VERBS, "bytes", "ns")                                                        \
    X(MR_DEREG, mr_dereg, VERBS, "bytes", "")                                                      \
    X(PEER_LOST, peer_lost, CORE, "status", "")                                                    \
    X(COMM_FAILED, comm_failed, CORE, "status", "")

enum sl_event_area {
#define X(constant, name) SL_AREA_##constant,
    SL_EVENT_AREAS(X)
#undef X
};

enum sl_event_kind {
#define X(constant, name, area, a, b) SL_EVENT_##constant,
    SL_EVENT_KINDS(X)
#undef X
        SL_EVENT_KIND_COUNT
};

#define SL_EVENT_RING 512u         /* records; a power of two */
#define SL_EVENT_KINDS_MAX 32u     /* that a ring counts */
#define SL_EVENT_NOBODY UINT32_MAX /* no peer: the event is this process's own */

struct sl_event {
    uint64_t time_ns; /* of the worker's clock */
    uint16_t kind;    /* enum sl_event_kind */
    uint8_t area;     /* enum sl_event_area */
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

/* Makes zeroed memory a ring: fills in the words of all kinds that there are by now. */
void sl_event_ring_init(struct sl_event_ring *ring);

/* Notes an event. On any thread, in no signal handler. */
void sl_event_put(struct sl_event_ring *ring, const struct sl_event *event);

/* On the worker's thread. A worker without a ring has no events (but probes). */
static inline void sl_event(const struct sl_worker *worker, enum sl_event_kind kind, uint32_t peer,
                            uint64_t a, uint64_t b)
{
    SL_PROBE4(event, (uint32_t)kind, peer, a, b);
    if (worker->events == NULL)
        return;
    const struct sl_event event = {.time_ns = sl_now(worker->clock),
                                   .kind = (uint16_t)kind,
                                   .comm = worker->state_place,
                                   .peer = peer,
                                   .a = a,
                                   .b = b};

    sl_event_put(worker->events, &event);
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
    uint64_t counts[SL_EVENT_KIND_COUNT];
};

void sl_event_totals(const struct sl_event_ring *ring, struct sl_event_totals *out);

/* "path_down"; "unknown" for what is no kind. */
const char *sl_event_name(unsigned kind);

/* enum sl_event_area of a kind that there is. */
uint8_t sl_event_area(enum sl_event_kind kind);

/* One line: "12.345678901 verbs path_down peer 5 path 2 status 12". Cuts at cap. */
void sl_event_text(const struct sl_event *event, char *out, size_t cap);

#endif
