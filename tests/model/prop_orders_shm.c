/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of shm's rings, of its sleepers, and of memory that it lends (prop_orders.c). */
#include "tests/model/story.h"

#include "shm/ring.h"

/* ---- rings ---- */

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

    for (unsigned i = 0; i < 2; i++)
        sl_channels_fini(&ends[i].channels);
    memset(ends, 0, sizeof(ends));
    for (unsigned i = 0; i < 2; i++) {
        struct shm_ep *ep = &ends[i];

        sl_assert(shm_channels_init(ep) == 0);
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

/* ---- sleeping ---- */

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

/* ---- lent memory that is withdrawn ---- */

static struct sl_req lent_req;
static struct sl_sink lent_sink;
static struct sl_req taker_req;
static uint64_t *const lent_words = (void *)(model_shared + 1024);

/* A message lies in the ring, on channel 5. */
static void lent_begin(void)
{
    uint64_t head = shm_cell_head(0, SHM_CELL_LENT, 0, 5);

    shm_begin();
    sl_assert(shm_channel_open(&ends[0].base, 5) == 0 && shm_channel_open(&ends[1].base, 5) == 0);
    lent_words[0] = lent_words[1] = 1;
    lent_req = taker_req = (struct sl_req){.status = SL_PENDING};
    ends[0].lent_count = 1;
    ends[0].lent[0] = (struct shm_lent){0, SHM_LARGE_MIN, &lent_req, 5};
    ends[0].tx_pos = 1;
    atomic_store(&ends[1].rx.cells[0].head, head);
    lent_sink = (struct sl_sink){.dst = got[0], .len = 16, .channel = 5};
    /* Its header was taken; the bytes come next. */
    ends[1].rx_open = ends[1].rx_lent = true;
    ends[1].rx_sink = &lent_sink;
    ends[1].rx_req = &taker_req;
    ends[1].rx_len = 16;
    ends[1].rx_channel = 5;
    ends[1].rx_addr = (uintptr_t)lent_words;
    ends[1].rx_head = head;
}

/* The owner writes there. */
static void overwrite_lent(void)
{
    static const uint64_t other[2] = {2, 2};

    model_check(lent_req.status != SL_PENDING);
    model_copy_words(lent_words, other, 16);
}

static void lender(void)
{
    shm_ep_end_posted(&ends[0], -ECANCELED);
    overwrite_lent();
}

static void closer(void)
{
    shm_channel_close(&ends[0].base, 5);
    overwrite_lent();
}

static void taker(void)
{
    uint64_t word[2];
    unsigned budget = 9;

    shm_ep_run(&ends[1], &budget);
    if (taker_req.status != 0)
        return;
    memcpy(word, got[0], 16);
    model_check(word[0] == 1 && word[1] == 1);
}

static void what_was_withdrawn_is_not_delivered(void **state)
{
    static const struct model_story story = {lent_begin, {lender, taker}, NULL};
    static const struct model_story channel = {lent_begin, {closer, taker}, NULL};

    (void)state;
    run_story(&story, 8, 60000);
    run_story(&channel, 8, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_through_a_ring_arrive_whole),
        cmocka_unit_test(a_sleeper_is_woken_or_sees_the_message),
        cmocka_unit_test(what_was_withdrawn_is_not_delivered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
