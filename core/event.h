/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened, when, to whom: records of 32 bytes in a ring per worker, for paths that cannot
 * afford text.
 *
 * The worker's thread writes, one reader (any thread) copies out. When the ring is full the new
 * record is dropped and counted: the first of a burst tells most about its cause. Counts per kind
 * are never dropped.
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

#define SL_EVENT_RING 1024u        /* records; a power of two */
#define SL_EVENT_NOBODY UINT32_MAX /* no peer: the event is this process's own */

struct sl_event {
    uint64_t time_ns; /* of the worker's clock */
    uint16_t kind;    /* enum sl_event_kind */
    uint8_t area;     /* enum sl_event_area */
    uint8_t zero;
    uint32_t peer; /* rank, or SL_EVENT_NOBODY */
    uint64_t a, b; /* what the kind's row says; a negative errno as int64_t */
};

_Static_assert(sizeof(struct sl_event) == 32, "records of events are 32 bytes");

struct sl_event_ring {
    _Atomic uint64_t written; /* by the writer; the reader trusts slots before it */
    _Atomic uint64_t read;    /* by the reader; the writer reuses slots before it */
    _Atomic uint64_t dropped;
    _Atomic uint64_t counts[SL_EVENT_KIND_COUNT]; /* also of those dropped */
    struct sl_event slots[SL_EVENT_RING];
};

extern const uint8_t sl_event_areas[SL_EVENT_KIND_COUNT]; /* by kind */

/* One writer: no locked instruction. */
static inline void sl_event_bump(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* On the worker's thread. A worker without a ring has no events (but probes). */
static inline void sl_event(const struct sl_worker *worker, enum sl_event_kind kind, uint32_t peer,
                            uint64_t a, uint64_t b)
{
    struct sl_event_ring *ring = worker->events;

    SL_PROBE4(event, (uint32_t)kind, peer, a, b);
    if (ring == NULL)
        return;
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);

    sl_event_bump(&ring->counts[kind]);
    if (at - atomic_load_explicit(&ring->read, memory_order_acquire) >= SL_EVENT_RING) {
        sl_event_bump(&ring->dropped);
        return;
    }
    ring->slots[at % SL_EVENT_RING] = (struct sl_event){.time_ns = sl_now(worker->clock),
                                                        .kind = (uint16_t)kind,
                                                        .area = sl_event_areas[kind],
                                                        .peer = peer,
                                                        .a = a,
                                                        .b = b};
    atomic_store_explicit(&ring->written, at + 1, memory_order_release);
}

/* Takes up to cap records out, the oldest first. Returns how many. One reader at a time. */
size_t sl_event_read(struct sl_event_ring *ring, struct sl_event *out, size_t cap);

/* Since the ring was made. */
struct sl_event_totals {
    uint64_t dropped;
    uint64_t counts[SL_EVENT_KIND_COUNT];
};

void sl_event_totals(const struct sl_event_ring *ring, struct sl_event_totals *out);

/* "path_down"; "unknown" for what is no kind. */
const char *sl_event_name(unsigned kind);

/* One line: "12.345678901 verbs path_down peer 5 path 2 status 12". Cuts at cap. */
void sl_event_text(const struct sl_event *event, char *out, size_t cap);

#endif
