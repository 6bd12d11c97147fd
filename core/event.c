/* SPDX-License-Identifier: Apache-2.0 */
/* Names of events, and how they are taken out of their ring. */
#include "core/event.h"

#include "core/err.h"

#include <stdio.h>

static const char *const area_names[] = {
#define X(constant, name) #name,
    SL_EVENT_AREAS(X)
#undef X
};

static const struct {
    const char *name, *a, *b;
} kinds[] = {
#define X(constant, name, area, a, b) {#name, a, b},
    SL_EVENT_KINDS(X)
#undef X
};

const uint8_t sl_event_areas[SL_EVENT_KIND_COUNT] = {
#define X(constant, name, area, a, b) SL_AREA_##area,
    SL_EVENT_KINDS(X)
#undef X
};

size_t sl_event_read(struct sl_event_ring *ring, struct sl_event *out, size_t cap)
{
    uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    size_t count = 0;

    while (at != end && count < cap)
        out[count++] = ring->slots[at++ % SL_EVENT_RING];
    /* The writer reuses a slot only after it was copied. */
    atomic_store_explicit(&ring->read, at, memory_order_release);
    return count;
}

void sl_event_totals(const struct sl_event_ring *ring, struct sl_event_totals *out)
{
    out->dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    for (unsigned i = 0; i < SL_EVENT_KIND_COUNT; i++)
        out->counts[i] = atomic_load_explicit(&ring->counts[i], memory_order_relaxed);
}

const char *sl_event_name(unsigned kind)
{
    return kind < SL_ARRAY_LEN(kinds) ? kinds[kind].name : "unknown";
}

void sl_event_text(const struct sl_event *event, char *out, size_t cap)
{
    const char *a = event->kind < SL_ARRAY_LEN(kinds) ? kinds[event->kind].a : "a";
    const char *b = event->kind < SL_ARRAY_LEN(kinds) ? kinds[event->kind].b : "b";
    const char *area = event->area < SL_ARRAY_LEN(area_names) ? area_names[event->area] : "unknown";
    char peer[32] = "", first[48] = "", second[48] = "";

    if (event->peer != SL_EVENT_NOBODY)
        snprintf(peer, sizeof(peer), " peer %u", event->peer);
    if (a[0] != '\0')
        snprintf(first, sizeof(first), " %s %lld", a, (long long)event->a);
    if (b[0] != '\0')
        snprintf(second, sizeof(second), " %s %lld", b, (long long)event->b);
    snprintf(out, cap, "%llu.%09llu %s %s%s%s%s",
             (unsigned long long)(event->time_ns / SL_NS_PER_S),
             (unsigned long long)(event->time_ns % SL_NS_PER_S), area, sl_event_name(event->kind),
             peer, first, second);
}
