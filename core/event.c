/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of events, and their names. */
#include "core/event.h"

#include "core/err.h"

#include <stdbool.h>
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

static const uint8_t kind_areas[] = {
#define X(constant, name, area, a, b) SL_AREA_##area,
    SL_EVENT_KINDS(X)
#undef X
};

_Static_assert(SL_EVENT_KIND_COUNT <= SL_EVENT_KINDS_MAX, "a ring counts all kinds");

/* ---- writing ---- */

void sl_event_ring_init(struct sl_event_ring *ring)
{
    for (unsigned i = 0; i < SL_EVENT_KIND_COUNT; i++) {
        struct sl_event_row *row = &ring->rows[i];

        snprintf(row->name, sizeof(row->name), "%s", kinds[i].name);
        snprintf(row->area, sizeof(row->area), "%s", area_names[kind_areas[i]]);
        snprintf(row->a, sizeof(row->a), "%s", kinds[i].a);
        snprintf(row->b, sizeof(row->b), "%s", kinds[i].b);
        atomic_store_explicit(&row->turn, 2, memory_order_release);
    }
}

static void count(struct sl_event_row *row, uint64_t now_ns)
{
    if (atomic_fetch_add_explicit(&row->count, 1, memory_order_relaxed) == 0)
        atomic_store_explicit(&row->first_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&row->last_ns, now_ns, memory_order_relaxed);
}

/* The record is this writer's until it gives it its own turn. false: another thread, a lap behind
 * or ahead, has it. */
static bool take_record(struct sl_event_record *record, uint64_t number)
{
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_relaxed);

    if (turn > number || (turn == 0 && number >= SL_EVENT_RING))
        return false;
    return atomic_compare_exchange_strong_explicit(&record->turn, &turn, 0, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Word by word: a reader may be at it too. */
static void copy_event(struct sl_event *to, const struct sl_event *from)
{
    uint64_t *out = (uint64_t *)to;
    const uint64_t *in = (const uint64_t *)from;

    for (size_t i = 0; i < sizeof(*to) / sizeof(*out); i++)
        __atomic_store_n(&out[i], __atomic_load_n(&in[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void sl_event_put(struct sl_event_ring *ring, const struct sl_event *event)
{
    struct sl_event own = *event;

    if (event->kind < SL_EVENT_KIND_COUNT) {
        own.area = sl_event_area((enum sl_event_kind)event->kind);
        count(&ring->rows[event->kind], event->time_ns);
    }
    uint64_t number = atomic_fetch_add_explicit(&ring->written, 1, memory_order_relaxed);
    struct sl_event_record *record = &ring->slots[number % SL_EVENT_RING];

    if (!take_record(record, number)) {
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    atomic_thread_fence(memory_order_release);
    copy_event(&record->event, &own);
    atomic_store_explicit(&record->turn, number + 1, memory_order_release);
}

/* ---- reading ---- */

/* -1: it has given way; 0: it is not there yet; 1: copied. */
static int read_one(const struct sl_event_record *record, uint64_t number, struct sl_event *out)
{
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_acquire);

    if (turn != number + 1)
        return turn > number ? -1 : 0;
    copy_event(out, &record->event);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&record->turn, memory_order_relaxed) == turn ? 1 : -1;
}

size_t sl_event_read(struct sl_event_reader *reader, struct sl_event *out, size_t cap)
{
    const struct sl_event_ring *ring = reader->ring;
    uint64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    size_t got = 0;

    if (end - reader->next > SL_EVENT_RING) {
        reader->missed += end - SL_EVENT_RING - reader->next;
        reader->next = end - SL_EVENT_RING;
    }
    for (; reader->next != end && got < cap; reader->next++) {
        int is = read_one(&ring->slots[reader->next % SL_EVENT_RING], reader->next, &out[got]);

        if (is == 0)
            break;
        got += is > 0;
        reader->missed += is < 0;
    }
    return got;
}

void sl_event_totals(const struct sl_event_ring *ring, struct sl_event_totals *out)
{
    out->dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    for (unsigned i = 0; i < SL_EVENT_KIND_COUNT; i++)
        out->counts[i] = atomic_load_explicit(&ring->rows[i].count, memory_order_relaxed);
}

/* ---- text ---- */

const char *sl_event_name(unsigned kind)
{
    return kind < SL_ARRAY_LEN(kinds) ? kinds[kind].name : "unknown";
}

uint8_t sl_event_area(enum sl_event_kind kind)
{
    return kind_areas[kind];
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
