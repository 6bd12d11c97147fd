/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that come before their receive, where receive buffers are few: they are kept in memory
 * that was taken when the endpoint was made. And messages that a peer must not send. */
#include "tests/unit/verbs/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define LEN 3000

static unsigned allocations;
static bool counting;

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);

void *__wrap_malloc(size_t len)
{
    allocations += counting && len > LEN - SL_MP_CREDITS &&
                   len <= LEN + 1; /* as a message has; fakes have more */
    return __real_malloc(len);
}

static uint8_t bytes[2 * SL_MP_CREDITS][LEN], got[LEN];
static uint32_t slots[SL_MP_RAILS_MAX * 4];

static int fresh(void **state)
{
    (void)state;
    world_prepare(NULL);
    world_join();
    for (unsigned i = 0; i < 2 * SL_MP_CREDITS; i++)
        memset(bytes[i], (int)i + 1, LEN);
    for (unsigned i = 0; i < world_ep(0)->path_count; i++) {
        slots[i] = sl_verbs_path_of(world_ep(0)->paths[i])->own_slots;
        sl_verbs_path_of(world_ep(0)->paths[i])->own_slots =
            100000; /* so that what is there is little */
    }
    return 0;
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < world_ep(0)->path_count; i++)
        sl_verbs_path_of(world_ep(0)->paths[i])->own_slots = slots[i];
    world_end();
    return 0;
}

/* They arrive at the NIC, not further. */
static void send_ahead(unsigned count)
{
    static struct sl_buf bufs[2 * SL_MP_CREDITS];
    static struct sl_req reqs[2 * SL_MP_CREDITS];

    for (unsigned i = 0; i < count; i++) {
        bufs[i] = (struct sl_buf){.addr = bytes[i], .len = LEN - i};
        assert_true(world_send(1, &bufs[i], i, &reqs[i]) >= 0);
    }
}

/* What the fakes allocate does not count. */
static void until_held(unsigned count)
{
    while (world_ep(0)->held < count) {
        fake_ibv_run(world_fake, 3);
        counting = true;
        world[0].iface->ops->progress(world[0].iface, 64);
        counting = false;
        loop_pass(world_loop, 2000);
    }
}

static void what_comes_early_is_kept_without_asking_for_memory(void **state)
{
    struct sl_mp_conn *ep = world_ep(0);

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        send_ahead(SL_MP_CREDITS);
        until_held(SL_MP_CREDITS);
        assert_int_equal(ep->copies_used, (UINT32_C(1) << SL_MP_CREDITS) - 1);
        assert_int_equal(allocations, 0);
        for (unsigned i = 0; i < SL_MP_CREDITS; i++) {
            struct sl_sink sink = {.dst = got, .len = LEN - i, .tag = i};
            struct sl_req req;

            assert_true(world_recv(0, &sink, &req) >= 0);
            WORLD_UNTIL(req.status != SL_PENDING);
            assert_int_equal(req.status, 0);
            assert_memory_equal(got, bytes[i], LEN - i);
        }
        assert_int_equal(ep->copies_used, 0);
        assert_int_equal(ep->held, 0);
    }
}

static void a_peer_that_sends_beyond_its_credits_is_refused(void **state)
{
    (void)state;
    send_ahead(SL_MP_CREDITS);
    world_ep(1)->credits++; /* that nobody gave */
    bytes[SL_MP_CREDITS][0] = 1;
    static struct sl_buf buf = {.addr = bytes[SL_MP_CREDITS], .len = LEN};
    static struct sl_req req;

    assert_true(world_send(1, &buf, 99, &req) >= 0);
    WORLD_UNTIL(world[0].downs == 1);
    assert_non_null(
        strstr(world_ep(0)->why, "sends more than the 16 frames that there is room for"));
}

/* Over, or ahead of a receive that is not: once is enough. */
static void a_message_that_comes_twice_is_refused(void **state)
{
    static struct sl_sink sinks[2] = {{.dst = got, .len = 8, .tag = 0},
                                      {.dst = got, .len = 8, .tag = 0}};
    static struct sl_req reqs[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_true(world_recv(0, &sinks[i], &reqs[i]) >= 0);
    for (unsigned i = 0; i < 2; i++) { /* the second message, and again */
        struct sl_mp_tx_frame *frame = sl_mp_frame_new(world_ep(1), SL_MP_EAGER, 0, 1);

        assert_non_null(frame);
        ((struct sl_mp_frame *)(void *)frame->bytes)->value = 8;
        memset(frame->bytes + SL_MP_FRAME_BYTES, 0, 8);
        sl_mp_frame_post(world_ep(1), frame, 8);
    }
    WORLD_UNTIL(world[0].downs == 1);
    assert_int_equal(reqs[1].status, 0);
    assert_int_equal(reqs[0].status, -EPROTO);
    assert_non_null(strstr(world_ep(0)->why, "message 1 of rank 1 comes twice"));
}

/* The connection ends at side 0 for a frame of side 1, which says one thing that is wrong. */
static void refused_at_0(struct sl_mp_tx_frame *frame, const char *sentence)
{
    sl_mp_frame_post(world_ep(1), frame, 0);
    WORLD_UNTIL(world[0].downs == 1);
    assert_int_equal(world_ep(0)->down_status, -EPROTO);
    assert_non_null(strstr(world_ep(0)->why, sentence));
}

static struct sl_mp_frame *credit_frame(struct sl_mp_tx_frame **out)
{
    *out = sl_mp_frame_new(world_ep(1), SL_MP_CREDIT, 0, 0);
    assert_non_null(*out);
    return (struct sl_mp_frame *)(void *)(*out)->bytes;
}

/* It was received, and its place is another message's by now. */
static void a_message_that_is_over_does_not_come_again(void **state)
{
    struct sl_mp_tx_frame *frame;

    (void)state;
    world_message(100);
    frame = sl_mp_frame_new(world_ep(1), SL_MP_EAGER, 0, 0);
    assert_non_null(frame);
    refused_at_0(frame, "message 0 of rank 1 comes twice");
}

static void a_frame_out_of_its_turn_is_refused(void **state)
{
    struct sl_mp_tx_frame *frame;

    (void)state;
    credit_frame(&frame)->fseq++;
    refused_at_0(frame, "when 0 was due");
}

static void more_credits_than_there_are_are_refused(void **state)
{
    struct sl_mp_tx_frame *frame;

    (void)state;
    credit_frame(&frame)->credits = 1; /* all of them are here */
    refused_at_0(frame, "gives back 1 credits of 0");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_comes_early_is_kept_without_asking_for_memory),
        CASE(a_message_that_comes_twice_is_refused),
        CASE(a_peer_that_sends_beyond_its_credits_is_refused),
        CASE(a_message_that_is_over_does_not_come_again),
        CASE(a_frame_out_of_its_turn_is_refused),
        CASE(more_credits_than_there_are_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
