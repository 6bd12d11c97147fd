/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of events, and their names. */
#include "core/event.h"

#include "core/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- kinds ---- */

/* A kind that is registered: number is final, set tells its area. */
struct known {
    struct sl_event_kind kind;
    const struct sl_event_set *set;
    uint8_t area;
};

/* These are there from the start. */
static const struct sl_event_set core_set = {.area = "core"};
static const struct known core_known[] = {
    {{SL_EVENT_PEER_LOST, "peer_lost", "status", "", SL_EVENT_SHOW}, &core_set, 0},
    {{SL_EVENT_COMM_FAILED, "comm_failed", "status", "", SL_EVENT_SHOW}, &core_set, 0}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who registers */
static struct known storage[SL_EVENT_KINDS_MAX];         /* by number; read through known[] */
static const struct known *_Atomic known[SL_EVENT_KINDS_MAX] = {
    [SL_EVENT_PEER_LOST] = &core_known[0], [SL_EVENT_COMM_FAILED] = &core_known[1]};
static uint8_t areas = 1; /* given so far */

static const struct known *find(unsigned kind)
{
    return kind < SL_EVENT_KINDS_MAX ? atomic_load_explicit(&known[kind], memory_order_acquire)
                                     : NULL;
}

/* By its words: the library and its modules each have their own copy of a set that lies below
 * several transports. */
static bool is_same(const struct known *there, const struct sl_event_set *set,
                    const struct sl_event_kind *kind)
{
    return there != NULL && strcmp(there->set->area, set->area) == 0 &&
           strcmp(there->kind.name, kind->name) == 0;
}

static bool is_registered(const struct sl_event_set *set)
{
    unsigned same = 0;

    for (unsigned i = 0; i < SL_EVENT_KINDS_MAX; i++)
        if (find(i) != NULL && find(i)->set == set)
            return true;
    for (unsigned i = 0; i < set->count; i++)
        same += is_same(find(set->kinds[i].number), set, &set->kinds[i]);
    return set->count > 0 && same == set->count;
}

/* The first of count free numbers in a row, outside of those for this tree; or SL_EVENT_FREE. */
static uint16_t find_free(unsigned count)
{
    for (unsigned first = SL_EVENT_OWN; first + count <= SL_EVENT_KINDS_MAX; first++) {
        unsigned n = 0;

        while (n < count && find(first + n) == NULL)
            n++;
        if (n == count)
            return (uint16_t)first;
    }
    return SL_EVENT_FREE;
}

static int check_set(const struct sl_event_set *set, uint16_t first)
{
    for (unsigned i = 0; i < set->count; i++) {
        unsigned number = set->kinds[i].number;

        if (number == SL_EVENT_FREE ? first == SL_EVENT_FREE : number >= SL_EVENT_KINDS_MAX)
            return sl_fail(-ENOSPC, "there is no number for the event %s of %s", set->kinds[i].name,
                           set->area);
        if (number != SL_EVENT_FREE && find(number) != NULL)
            return sl_fail(-EEXIST, "the event %s of %s has number %u, which is that of %s",
                           set->kinds[i].name, set->area, number, find(number)->kind.name);
    }
    return 0;
}

static int add_set(const struct sl_event_set *set)
{
    unsigned next = 0;
    uint16_t first = SL_EVENT_FREE;

    if (is_registered(set))
        return 0;
    for (unsigned i = 0; i < set->count; i++)
        next += set->kinds[i].number == SL_EVENT_FREE;
    if (next > 0)
        first = find_free(next);
    int err = check_set(set, first);

    if (err != 0)
        return err;
    if (next > 0 && set->first != NULL)
        *set->first = first;
    for (unsigned i = 0; i < set->count; i++) {
        struct sl_event_kind kind = set->kinds[i];

        if (kind.number == SL_EVENT_FREE)
            kind.number = first++;
        storage[kind.number] = (struct known){kind, set, areas};
        atomic_store_explicit(&known[kind.number], &storage[kind.number], memory_order_release);
    }
    areas++;
    return 0;
}

int sl_event_register(const struct sl_event_set *set)
{
    int err = 0;

    pthread_mutex_lock(&lock);
    for (; set != NULL && err == 0; set = set->also)
        err = add_set(set);
    pthread_mutex_unlock(&lock);
    return err;
}

/* ---- writing ---- */

void sl_event_ring_init(struct sl_event_ring *ring)
{
    for (unsigned i = 0; i < SL_EVENT_KINDS_MAX; i++) {
        const struct known *at = find(i);
        struct sl_event_row *row = &ring->rows[i];

        if (at == NULL)
            continue;
        snprintf(row->name, sizeof(row->name), "%s", at->kind.name);
        snprintf(row->area, sizeof(row->area), "%s", at->set->area);
        snprintf(row->a, sizeof(row->a), "%s", at->kind.a);
        snprintf(row->b, sizeof(row->b), "%s", at->kind.b);
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

    if (event->kind < SL_EVENT_KINDS_MAX) {
        own.area = sl_event_area(event->kind);
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
    for (unsigned i = 0; i < SL_EVENT_KINDS_MAX; i++)
        out->counts[i] = atomic_load_explicit(&ring->rows[i].count, memory_order_relaxed);
}

/* ---- text ---- */

const char *sl_event_name(unsigned kind)
{
    return find(kind) != NULL ? find(kind)->kind.name : "unknown";
}

uint8_t sl_event_area(unsigned kind)
{
    return find(kind) != NULL ? find(kind)->area : 0;
}

enum sl_event_show sl_event_shown(unsigned kind)
{
    return find(kind) != NULL ? find(kind)->kind.show : SL_EVENT_SHOW;
}

void sl_event_text(const struct sl_event *event, char *out, size_t cap)
{
    const struct known *at = find(event->kind);
    const char *a = at != NULL ? at->kind.a : "a", *b = at != NULL ? at->kind.b : "b";
    const char *area = at != NULL ? at->set->area : "unknown";
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
