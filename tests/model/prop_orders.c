/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The orders of the lock-free structures, on a machine with weak memory (machine.h): the product's
 * own code, compiled for it, in stories of two or three threads. With one of its orders weakened a
 * story fails: its case prints which execution, and why.
 */
#include "tests/model/machine.h"

#include "collectives/kin.h"
#include "core/event.h"
#include "core/seqlock.h"
#include "shm/shm.h"
#include "tools/nccl/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define POLLS 5 /* a thread that waits looks so many times, then goes */

static void run_story(const struct model_story *story, unsigned switches, long limit)
{
    long count = model_run(story, switches, limit);

    print_message("# %ld executions\n", count < 0 ? -count : count);
    if (count < 0)
        fail_msg("execution %ld: %s", -count, model_why);
}

/* Threads that look for what others do. */
#define UNTIL(condition)                                                                           \
    for (int polls = 0; !(condition); polls++) {                                                   \
        if (polls == POLLS)                                                                        \
            return;                                                                                \
        model_yield();                                                                             \
    }

/* ---- the machine itself: what each order does, and what its absence does not ---- */

static struct {
    _Atomic uint64_t x, y;
    uint64_t plain;
} *const words = (void *)model_shared;
static uint64_t saw[2];
static bool seen_both_old, seen_reordered;
static memory_order store_order, load_order;
static bool fenced;

static void no_begin(void)
{
    saw[0] = saw[1] = 1;
}

static void message_writer(void)
{
    atomic_store_explicit(&words->x, 1, memory_order_relaxed);
    atomic_store_explicit(&words->y, 1, store_order);
}

static void message_reader(void)
{
    if (atomic_load_explicit(&words->y, load_order) == 1)
        seen_reordered |= atomic_load_explicit(&words->x, memory_order_relaxed) == 0;
}

static bool message_is_reordered(memory_order store, memory_order load)
{
    static const struct model_story story = {no_begin, {message_writer, message_reader}, NULL};

    store_order = store;
    load_order = load;
    seen_reordered = false;
    assert_true(model_run(&story, 8, 100000) > 0);
    return seen_reordered;
}

static void left(void)
{
    atomic_store_explicit(&words->x, 1, memory_order_relaxed);
    if (fenced)
        atomic_thread_fence(memory_order_seq_cst);
    saw[0] = atomic_load_explicit(&words->y, memory_order_relaxed);
}

static void right(void)
{
    atomic_store_explicit(&words->y, 1, memory_order_relaxed);
    if (fenced)
        atomic_thread_fence(memory_order_seq_cst);
    saw[1] = atomic_load_explicit(&words->x, memory_order_relaxed);
}

static void note_both(void)
{
    seen_both_old |= saw[0] == 0 && saw[1] == 0;
}

static bool both_may_miss_each_other(bool with_fences)
{
    static const struct model_story story = {no_begin, {left, right}, note_both};

    fenced = with_fences;
    seen_both_old = false;
    assert_true(model_run(&story, 8, 100000) > 0);
    return seen_both_old;
}

static void plain_writer(void)
{
    words->plain = 7;
    atomic_store_explicit(&words->y, 1, store_order);
}

static void plain_reader(void)
{
    if (atomic_load_explicit(&words->y, load_order) == 1)
        model_check(words->plain == 7);
}

static void the_machine_is_as_weak_as_the_orders_allow(void **state)
{
    static const struct model_story plain = {no_begin, {plain_writer, plain_reader}, NULL};

    (void)state;
    assert_false(message_is_reordered(memory_order_release, memory_order_acquire));
    assert_true(message_is_reordered(memory_order_relaxed, memory_order_acquire));
    assert_true(message_is_reordered(memory_order_release, memory_order_relaxed));
    assert_false(both_may_miss_each_other(true));
    assert_true(both_may_miss_each_other(false));

    store_order = memory_order_release;
    load_order = memory_order_acquire;
    assert_true(model_run(&plain, 8, 100000) > 0);
    store_order = memory_order_relaxed;
    assert_true(model_run(&plain, 8, 100000) < 0);
    assert_non_null(strstr(model_why, "data race"));
}

/* ---- shm: rings ---- */

#define CELLS 2
#define ROOM 256
#define LONG_BYTES 100 /* two pieces */

static struct shm_iface ifaces[2];
static struct shm_ep ends[2]; /* [0] sends, [1] receives */
static uint64_t rooms_end[2][CELLS];
static uint8_t sent[3][LONG_BYTES], got[3][LONG_BYTES];
static unsigned timers;
static bool asleep;

int model_timerfd_settime(int fd, int flags, const void *value, void *old);
int model_timerfd_settime(int fd, int flags, const void *value, void *old)
{
    (void)fd, (void)flags, (void)value, (void)old;
    timers++;
    return 0;
}

/* The stories' peers live, and are read here. */
bool model_still_there(const struct shm_ep *ep);
bool model_still_there(const struct shm_ep *ep)
{
    (void)ep;
    return true;
}

void model_ep_lose(struct shm_ep *ep, int status, const char *why);
void model_ep_lose(struct shm_ep *ep, int status, const char *why)
{
    (void)why;
    ep->state = SHM_LOST;
    ep->status = status;
}

int model_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);
int model_read_some(pid_t pid, uint64_t addr, void *dst, size_t len)
{
    (void)pid;
    model_copy_words(dst, (const void *)(uintptr_t)addr, len < 16 ? len : 16);
    return 0;
}

/* The lane, the page of the receiver and what may be lent, a line or more each. */
static void shm_begin(void)
{
    struct shm_lane lane = {.taken = (void *)model_shared,
                            .offer = (void *)(model_shared + 64),
                            .cells = (void *)(model_shared + 128),
                            .room = model_shared + 256,
                            .cell_mask = CELLS - 1,
                            .room_len = ROOM};

    memset(ends, 0, sizeof(ends));
    for (unsigned i = 0; i < 2; i++) {
        struct shm_ep *ep = &ends[i];

        ifaces[i] =
            (struct shm_iface){.stream_min = SIZE_MAX, .page = (void *)(model_shared + 512)};
        sl_list_init(&ifaces[i].active);
        ep->base.iface = &ifaces[i].base;
        ep->base.peer_asleep = &shm_always_awake;
        ep->state = SHM_UP;
        ep->cells = CELLS;
        ep->segment = (struct shm_segment){.base = model_shared, .tx = lane, .rx = lane};
        ep->tx = ep->rx = lane;
        ep->piece_max = 64;
        ep->room_end = rooms_end[i];
        ep->peer_event = 9;
        ep->source.fd = 9;
    }
    for (unsigned k = 0; k < 3; k++)
        for (unsigned i = 0; i < LONG_BYTES; i++)
            sent[k][i] = (uint8_t)(k * 50 + i + 1);
    memset(got, 0, sizeof(got));
    timers = 0;
    asleep = false;
}

static size_t length_of(unsigned message)
{
    return message == 1 ? LONG_BYTES : 8;
}

static void ring_sender(void)
{
    for (unsigned k = 0; k < 3; k++) {
        struct sl_buf buf = {.addr = sent[k], .len = length_of(k)};
        struct sl_req req = {.status = SL_PENDING};
        unsigned budget = 9;

        if (shm_send(&ends[0].base, &buf, k, &req) == 0) {
            UNTIL((shm_ep_run(&ends[0], &budget), req.status != SL_PENDING));
        }
    }
}

static void ring_receiver(void)
{
    for (unsigned k = 0; k < 3; k++) {
        struct sl_sink sink = {.dst = got[k], .len = length_of(k), .tag = k};
        struct sl_req req = {.status = SL_PENDING};
        unsigned budget = 9;

        if (shm_recv(&ends[1].base, &sink, &req) == 0) {
            UNTIL((shm_ep_run(&ends[1], &budget), req.status != SL_PENDING));
        }
        model_check(req.status == 0 && req.tag == k);
        model_check(memcmp(got[k], sent[k], length_of(k)) == 0);
    }
}

/* Cells and room are used again and again: what is given back is taken up. */
static void messages_through_a_ring_arrive_whole(void **state)
{
    static const struct model_story story = {shm_begin, {ring_sender, ring_receiver}, NULL};

    (void)state;
    run_story(&story, 5, 60000);
}

/* ---- shm: sleeping ---- */

static void sleepers_begin(void)
{
    shm_begin();
    ifaces[1].barrier = true;
    ends[0].base.peer_asleep = &ifaces[1].page->asleep;
}

static void timed_begin(void)
{
    sleepers_begin();
    ifaces[1].barrier = false;
}

static void waker(void)
{
    struct sl_buf buf = {.addr = sent[0], .len = 8};
    struct sl_req req = {.status = SL_PENDING};

    model_check(shm_send(&ends[0].base, &buf, 0, &req) == 1);
}

static void sleeper(void)
{
    struct sl_sink sink = {.dst = got[0], .len = 8};
    struct sl_req req = {.status = SL_PENDING};
    unsigned budget = 9;

    if (shm_recv(&ends[1].base, &sink, &req) == 1)
        return;
    while (shm_ep_run(&ends[1], &budget) == 0) {
        if (shm_arm(&ifaces[1].base) == 0) {
            asleep = true;
            return;
        }
    }
}

static void nobody_sleeps_for_good(void)
{
    model_check(!asleep || model_wakes > 0 || timers > 0);
}

static void a_sleeper_is_woken_or_sees_the_message(void **state)
{
    static const struct model_story story = {
        sleepers_begin, {waker, sleeper}, nobody_sleeps_for_good};
    static const struct model_story timed = {timed_begin, {waker, sleeper}, nobody_sleeps_for_good};

    (void)state;
    run_story(&story, 8, 60000);
    run_story(&timed, 8, 60000);
}

/* ---- shm: lent memory that is withdrawn ---- */

static struct sl_req lent_req;
static struct sl_sink lent_sink;
static struct sl_req taker_req;
static uint64_t *const lent_words = (void *)(model_shared + 1024);

static void lent_begin(void)
{
    shm_begin();
    lent_words[0] = lent_words[1] = 1;
    ends[0].lent_count = 1;
    ends[0].lent[0] = (struct shm_lent){0, SHM_LARGE_MIN, &lent_req};
    ends[0].tx_pos = 1;
    ends[1].tx.cells[0].tag = 0;
    ends[1].tx.cells[0].len = 16;
    ends[1].tx.cells[0].addr = (uintptr_t)lent_words;
    lent_req = taker_req = (struct sl_req){.status = SL_PENDING};
    lent_sink = (struct sl_sink){.dst = got[0], .len = 16};
    /* Its header was taken; the bytes come next. */
    ends[1].rx_open = ends[1].rx_lent = true;
    ends[1].rx_len = 16;
    ends[1].rx_addr = (uintptr_t)lent_words;
}

/* Its request has ended: the owner writes there. */
static void lender(void)
{
    static const uint64_t other[2] = {2, 2};

    shm_ep_end_posted(&ends[0], -ECANCELED);
    model_copy_words(lent_words, other, 16);
}

static void taker(void)
{
    uint64_t word[2];

    if (shm_large_take(&ends[1], &ends[1].rx.cells[0], &lent_sink) != 1)
        return;
    memcpy(word, got[0], 16);
    model_check(word[0] == 1 && word[1] == 1);
}

static void what_was_withdrawn_is_not_delivered(void **state)
{
    static const struct model_story story = {lent_begin, {lender, taker}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
}

/* ---- windows ---- */

static struct sl_win_slot *slot_of(unsigned rank, uint64_t op)
{
    return (struct sl_win_slot *)(void *)(model_shared + 1024 * rank) + op % 2;
}

static void nothing_to_begin(void)
{
}

static bool shows(unsigned rank, uint64_t op, uint64_t counter)
{
    return sl_win_passed(sl_win_word(slot_of(rank, op)), counter * SL_WIN_UNIT);
}

static void show(unsigned rank, uint64_t op, uint64_t counter)
{
    sl_win_publish(slot_of(rank, op), counter * SL_WIN_UNIT, op);
}

/* One rank of two: each op writes its slot, reads the other's, says so, and may write again. */
static void window_rank(unsigned self)
{
    for (uint64_t op = 1; op <= 2; op++) {
        uint64_t *out = (uint64_t *)(void *)slot_of(self, 0)->payload;
        const uint64_t *in = (const uint64_t *)(const void *)slot_of(1 - self, 0)->payload;

        *out = op * 10 + self;
        show(self, 0, op * 2 - 1);
        UNTIL(shows(1 - self, 0, op * 2 - 1));
        model_check(*in == op * 10 + 1 - self);
        show(self, 0, op * 2);
        UNTIL(shows(1 - self, 0, op * 2));
    }
}

static void window_rank_0(void)
{
    window_rank(0);
}

static void window_rank_1(void)
{
    window_rank(1);
}

static void windows_hold_what_was_published(void **state)
{
    static const struct model_story story = {
        nothing_to_begin, {window_rank_0, window_rank_1}, NULL};

    (void)state;
    run_story(&story, 5, 60000);
}

/* A root runs ahead, here with two slots: it writes one again when the other rank has begun the
 * operation after the one that was in it. That rank says so before it reads what that operation
 * brings. */
static void window_root(void)
{
    for (uint64_t op = 1; op <= 4; op++) {
        if (op > 2)
            UNTIL(shows(1, op - 1, op - 1));
        *(uint64_t *)(void *)slot_of(0, op)->payload = op * 10;
        show(0, op, op);
    }
}

static void window_taker(void)
{
    for (uint64_t op = 1; op <= 4; op++) {
        show(1, op, op);
        UNTIL(shows(0, op, op));
        model_check((sl_win_word(slot_of(0, op)) & SL_WIN_TAG_MASK) == op);
        model_check(*(const uint64_t *)(const void *)slot_of(0, op)->payload == op * 10);
    }
}

static void a_root_that_runs_ahead_overwrites_nothing_unread(void **state)
{
    static const struct model_story story = {nothing_to_begin, {window_root, window_taker}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
}

/* ---- events ---- */

static struct sl_event_ring *const ring = (void *)model_shared;

/* A lap has been written: each new event takes the place of an old one. Its words are its number,
 * twice. */
static void events_begin(void)
{
    atomic_store_explicit(&ring->written, SL_EVENT_RING, memory_order_relaxed);
    for (unsigned i = 0; i < 2; i++) {
        ring->slots[i].event = (struct sl_event){.a = i, .b = i};
        atomic_store_explicit(&ring->slots[i].turn, i + 1, memory_order_relaxed);
    }
}

static void note(uint64_t number)
{
    const struct sl_event event = {.kind = UINT16_MAX, .a = number, .b = number};

    sl_event_put(ring, &event);
}

static void event_writer(void)
{
    note(SL_EVENT_RING);
    note(SL_EVENT_RING + 1);
}

static void read_from(uint64_t next)
{
    struct sl_event_reader reader = {.ring = ring, .next = next};

    for (unsigned i = 0; i < 2; i++) {
        struct sl_event out[2];
        size_t count = sl_event_read(&reader, out, 2);

        for (size_t k = 0; k < count; k++)
            model_check(out[k].a == out[k].b && out[k].a >= next && out[k].a < reader.next);
    }
}

static void event_reader(void)
{
    read_from(0);
}

static void late_reader(void)
{
    read_from(SL_EVENT_RING);
}

/* Two threads at one record, one of them a lap behind. */
static void slow_writer(void)
{
    note(SL_EVENT_RING);
}

static void next_lap_writer(void)
{
    if (atomic_load_explicit(&ring->written, memory_order_relaxed) != SL_EVENT_RING + 1)
        return;
    atomic_store_explicit(&ring->written, 2 * SL_EVENT_RING, memory_order_relaxed);
    note(2 * SL_EVENT_RING);
}

static void lap_reader(void)
{
    const struct sl_event_record *record = &ring->slots[0];
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_acquire);
    struct sl_event copy;

    if (turn == 0)
        return;
    model_copy_words(&copy, &record->event, sizeof(copy));
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&record->turn, memory_order_relaxed) == turn)
        model_check(copy.a == turn - 1 && copy.b == turn - 1);
}

/* An event of a later lap does not give way to an earlier one. */
static void laps_end(void)
{
    if (atomic_load_explicit(&ring->written, memory_order_relaxed) == 2 * SL_EVENT_RING + 1 &&
        atomic_load_explicit(&ring->slots[0].turn, memory_order_relaxed) == SL_EVENT_RING + 1)
        model_check(atomic_load_explicit(&ring->dropped, memory_order_relaxed) == 1);
}

static void events_are_read_whole_while_they_give_way(void **state)
{
    static const struct model_story full = {events_begin, {event_writer, event_reader}, NULL};
    static const struct model_story late = {events_begin, {event_writer, late_reader}, NULL};
    static const struct model_story laps = {
        events_begin, {slow_writer, next_lap_writer, lap_reader}, laps_end};

    (void)state;
    run_story(&full, 4, 60000);
    run_story(&late, 4, 60000);
    run_story(&laps, 4, 60000);
}

/* ---- pages that are written while they are read ---- */

static struct {
    _Atomic uint64_t version;
    uint64_t text[2];
} *const page = (void *)model_shared;

static void page_writer(void)
{
    for (uint64_t i = 1; i <= 2; i++) {
        uint64_t text[2] = {i, i};

        sl_seq_write_begin(&page->version);
        model_copy_words(page->text, text, sizeof(text));
        sl_seq_write_end(&page->version);
    }
}

static void page_reader(void)
{
    uint64_t text[2], before = sl_seq_read_begin(&page->version);

    model_copy_words(text, page->text, sizeof(text));
    if (sl_seq_read_whole(&page->version, before))
        model_check(text[0] == text[1] && text[0] == before / 2);
}

static void a_torn_page_is_told(void **state)
{
    static const struct model_story story = {nothing_to_begin, {page_writer, page_reader}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
}

/* ---- records of NCCL's events, in a ring of one ---- */

static struct sl_nccl_event_record *const place = (void *)model_shared;

static void record_writer(void)
{
    for (uint64_t turn = 1; turn <= 2; turn++) {
        struct sl_nccl_event_record record = {.id = turn, .stop_ns = turn};

        sl_nccl_record_put(place, turn, &record);
    }
}

static void record_reader(void)
{
    struct sl_nccl_event_record record;
    uint64_t turn = atomic_load_explicit(&place->turn, memory_order_relaxed);

    /* As events_view.c does with files. */
    atomic_thread_fence(memory_order_acquire);
    sl_nccl_record_copy(&record, place);
    atomic_thread_fence(memory_order_acquire);
    if (turn != 0 && atomic_load_explicit(&place->turn, memory_order_relaxed) == turn)
        model_check(record.id == turn && record.stop_ns == turn);
}

static void a_record_is_of_its_turn_or_not_there(void **state)
{
    static const struct model_story story = {
        nothing_to_begin, {record_writer, record_reader}, NULL};

    (void)state;
    run_story(&story, 3, 20000);
}

/* ---- slots of NCCL's events: taken, changed, given back, taken by another ---- */

static void slot_put(struct sl_nccl_event_record *slot, uint64_t word, uint64_t id, uint64_t state)
{
    struct sl_nccl_event_record record = {.id = id, .state_ns = state, .op.tag = id + state};

    sl_nccl_record_copy(slot, &record);
    sl_nccl_slot_written(slot, word);
}

static void slot_owner(void)
{
    struct sl_nccl_event_record record;
    uint64_t word;

    for (uint64_t turn = 1; turn <= 3; turn += 2) {
        model_check(sl_nccl_slot_take(place, &word));
        slot_put(place, word, turn, 1);
        model_check(sl_nccl_slot_change(place, turn, &word));
        slot_put(place, word, turn, 2);
        model_check(sl_nccl_slot_give(place, turn, &record));
        model_check(record.id == turn && record.op.tag == turn + 2);
    }
}

static void slot_reader(void)
{
    struct sl_nccl_event_record record;
    uint64_t word = atomic_load_explicit(&place->turn, memory_order_relaxed);

    atomic_thread_fence(memory_order_acquire);
    sl_nccl_record_copy(&record, place);
    atomic_thread_fence(memory_order_acquire);
    if (sl_nccl_slot_is_whole(word) &&
        atomic_load_explicit(&place->turn, memory_order_relaxed) == word)
        model_check(record.id == sl_nccl_slot_turn(word) &&
                    record.op.tag == record.id + record.state_ns);
}

/* A stop by one thread beside a change by another, which NCCL does not do: the slot is given back
 * once, and stays so. */
static void slot_begin(void)
{
    uint64_t word;

    model_check(sl_nccl_slot_take(place, &word));
    slot_put(place, word, 1, 1);
}

static void slot_changer(void)
{
    uint64_t word;

    if (sl_nccl_slot_change(place, 1, &word))
        slot_put(place, word, 1, 2);
}

static void slot_giver(void)
{
    struct sl_nccl_event_record record;

    model_check(sl_nccl_slot_give(place, 1, &record));
    model_check(!sl_nccl_slot_give(place, 1, &record));
}

static void slot_is_free(void)
{
    uint64_t word = atomic_load_explicit(&place->turn, memory_order_relaxed);

    model_check(sl_nccl_slot_turn(word) == 2 && (word & SL_NCCL_WRITING) == 0);
}

static void a_slot_is_read_whole_or_not_at_all(void **state)
{
    static const struct model_story read = {nothing_to_begin, {slot_owner, slot_reader}, NULL};
    static const struct model_story given = {slot_begin, {slot_changer, slot_giver}, slot_is_free};

    (void)state;
    run_story(&read, 3, 60000);
    run_story(&given, 5, 20000);
}

/* ---- claims of communicators ---- */

static struct sluice_comm *comms; /* two */
static uint64_t *const guarded = (void *)model_shared;
static char one_thread, another_thread;

/* What a pass over a communicator touches. */
void model_mend(struct sluice_comm *comm);
void model_mend(struct sluice_comm *comm)
{
    (void)comm;
    ++*guarded;
}

unsigned model_progress(struct sluice_comm *comm);
unsigned model_progress(struct sluice_comm *comm)
{
    model_mend(comm);
    return 0;
}

void model_idle(struct sluice_comm *comm, unsigned moved, bool may_sleep);
void model_idle(struct sluice_comm *comm, unsigned moved, bool may_sleep)
{
    (void)comm, (void)moved, (void)may_sleep;
}

static void no_idle(struct sl_worker *idle)
{
    (void)idle;
}

static void claims_begin(void)
{
    memset(comms, 0, 2 * sizeof(*comms));
    comms->kept = true;
}

static void call(void)
{
    sl_kin_claim(comms);
    ++*guarded;
    sl_kin_release(comms);
}

static void caller(void)
{
    call();
    call();
}

static void keeper(void)
{
    sl_kin_look_after(comms);
    sl_kin_look_after(comms);
}

/* One thread has called both communicators, the second of which is no more. */
static void only_begin(void)
{
    memset(comms, 0, 2 * sizeof(*comms));
    for (unsigned i = 0; i < 2; i++) {
        comms[i].worker.idle = no_idle;
        comms[i].worker.idle_arg = &one_thread;
        sl_kin_join(&comms[i]);
    }
    call();
    sl_kin_leave(&comms[1]);
}

/* It makes another one, and waits there. */
static void maker(void)
{
    atomic_fetch_add(&sl_kin_count, 1);
    sl_kin_progress(&comms[1]);
    atomic_fetch_sub(&sl_kin_count, 1);
}

static void other_caller(void)
{
    comms[0].worker.idle_arg = &another_thread;
    call();
}

static void only_end(void)
{
    sl_kin_leave(&comms[0]);
}

static void one_at_a_time_is_inside_a_communicator(void **state)
{
    static const struct model_story kept = {claims_begin, {caller, keeper, caller}, NULL};
    static const struct model_story only = {only_begin, {maker, other_caller}, only_end};

    (void)state;
    comms = calloc(2, sizeof(*comms));
    run_story(&kept, 4, 60000);
    run_story(&only, 4, 60000);
    free(comms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_is_as_weak_as_the_orders_allow),
        cmocka_unit_test(messages_through_a_ring_arrive_whole),
        cmocka_unit_test(a_sleeper_is_woken_or_sees_the_message),
        cmocka_unit_test(what_was_withdrawn_is_not_delivered),
        cmocka_unit_test(windows_hold_what_was_published),
        cmocka_unit_test(a_root_that_runs_ahead_overwrites_nothing_unread),
        cmocka_unit_test(events_are_read_whole_while_they_give_way),
        cmocka_unit_test(a_torn_page_is_told),
        cmocka_unit_test(a_record_is_of_its_turn_or_not_there),
        cmocka_unit_test(a_slot_is_read_whole_or_not_at_all),
        cmocka_unit_test(one_at_a_time_is_inside_a_communicator),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
