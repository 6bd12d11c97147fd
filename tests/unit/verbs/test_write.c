/* SPDX-License-Identifier: Apache-2.0 */
/* Grants that cannot be, and bytes that nobody granted: a peer reads and writes what it may, and
 * nothing else. And how large the pieces are that are written. */
#include "tests/unit/verbs/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LEN 100000
#define TAG 5

static uint8_t memory[2 * LEN], got[2 * LEN];
static struct sl_req request, sent;
static struct sl_mr *region;

static int fresh(void **state)
{
    (void)state;
    memset(memory, 7, LEN);
    memset(memory + LEN, 's', LEN); /* what lies behind the message is nobody's business */
    memset(got, 0, sizeof(got));
    request = sent = (struct sl_req){.status = SL_PENDING};
    world_prepare(NULL);
    world_join();
    return 0;
}

static int clean(void **state)
{
    (void)state;
    if (region != NULL)
        sl_verbs_ops.mr_dereg(world[1].iface, region);
    region = NULL;
    world_end();
    return 0;
}

/* Side 1 says to side 0 what its own receives would never say: into its staging, which takes all of
 * it. */
static void grant(uint32_t number, uint64_t total, uint64_t off, uint64_t len, uint8_t flags)
{
    struct sl_mp_conn *ep = world_ep(1);
    const struct sl_verbs_iface *iface = world_iface(1);
    struct sl_mp_tx_frame *frame = sl_mp_frame_new(ep, SL_MP_CTS, 0, number);
    struct sl_mp_cts told = {
        .off = off,
        .len = len,
        .addr = (uintptr_t)iface->staging.bytes,
        .id = 1,
        .keys = {.count = (uint8_t)iface->mp.rail_count, .rails = iface->mp.staging_rails}};
    struct sl_mp_frame *header;

    assert_non_null(frame);
    for (unsigned i = 0; i < iface->mp.rail_count; i++)
        told.rkeys[i] = iface->staging.mr[i]->rkey;
    header = (struct sl_mp_frame *)(void *)frame->bytes;
    header->tag = TAG;
    header->value = total;
    header->flags = flags;
    sl_mp_cts_write(&told, told.rkeys, frame->bytes + SL_MP_FRAME_BYTES);
    sl_mp_frame_post(ep, frame, (uint32_t)sl_mp_cts_size(told.keys.count));
}

static int send_it(size_t len)
{
    static struct sl_buf buf;

    buf = (struct sl_buf){.addr = memory, .len = len};
    return sl_verbs_ops.send(world[0].ep, &buf, TAG, &request);
}

/* The connection ends at side 0, with this code and sentence, and the send with it. */
static void ends_with(int code, const char *sentence)
{
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, code);
    assert_int_equal(world[0].downs, 1);
    assert_non_null(strstr(world_ep(0)->why, sentence));
    assert_int_equal(world_channel(0)->early_count, 0);
    /* Nothing from behind the message has left. */
    assert_null(memchr(world_iface(1)->staging.bytes, 's', world_iface(1)->staging.len));
}

static void early_grants_that_fit_are_written(void **state)
{
    (void)state;
    /* In any order, all in all the message. */
    grant(0, LEN, 30000, LEN - 30000, 0);
    grant(0, LEN, 0, 30000, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    assert_int_equal(sl_mp_tx_at(world_channel(0), 0)->covered, LEN);
    WORLD_UNTIL(request.status != SL_PENDING || world_ep(1)->failing);
}

static void a_second_early_grant_for_another_length_is_refused(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, 0);
    grant(0, UINT64_C(1) << 30, UINT64_C(1) << 29, 65536, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "and as another one");
}

static void a_byte_past_the_end_is_not_read(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN - 29, 0);
    grant(0, LEN + 30, LEN + 1, 29, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "and as another one");
}

static void the_same_bytes_are_not_granted_twice(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, 0);
    grant(0, LEN, 0, LEN, 0);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN), 0);
    ends_with(-EPROTO, "of which 100000 are granted");
}

static void nor_when_the_second_grant_comes_after_the_send(void **state)
{
    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, 0, 60000, 0);
    grant(0, LEN, 50000, 50000, 0);
    ends_with(
        -EPROTO,
        "grants 50000 bytes at 50000 of message 0, which has 100000, of which 60000 are granted");
}

static void a_shorter_message_is_granted_once_too(void **state)
{
    (void)state;
    grant(0, LEN, 0, LEN, SL_MP_FLAG_SHORTER);
    grant(0, LEN, 0, LEN, SL_MP_FLAG_SHORTER);
    WORLD_UNTIL(world_channel(0)->early_count == 2);
    assert_int_equal(send_it(LEN / 2), 0);
    ends_with(-EPROTO, "of which 50000 are granted");
}

static void a_grant_past_its_own_length_is_refused_at_once(void **state)
{
    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, LEN - 10, 11, 0);
    ends_with(-EBADMSG, "grants bytes past the end of message 0");
}

/* What was granted is being written when the peer says that it does not want it: libFuzzer. */
static void a_message_with_a_grant_is_not_dropped(void **state)
{
    struct sl_mp_tx_frame *frame;

    (void)state;
    assert_int_equal(send_it(LEN), 0);
    grant(0, LEN, 0, LEN, 0);
    frame = sl_mp_frame_new(world_ep(1), SL_MP_DROP, 0, 0);
    assert_non_null(frame);
    sl_mp_frame_post(world_ep(1), frame, 0);
    ends_with(-EPROTO, "drops message 0, for which it granted memory");
}

/* ---- the granting side ---- */

/* Side 1 grants memory of its own for a message of LEN bytes. */
static struct sl_mp_rx_cts *granted(bool shorter)
{
    static struct sl_sink sink;
    struct sl_mem mem = {.addr = got, .len = sizeof(got)};
    struct sl_key key;

    assert_int_equal(sl_verbs_ops.mr_reg(world[1].iface, &mem, &region, &key), 0);
    sink = (struct sl_sink){.dst = got, .len = LEN, .tag = TAG, .mr = region, .shorter = shorter};
    assert_int_equal(sl_verbs_ops.recv(world[1].ep, &sink, &request), 0);
    assert_true(world_ep(1)->rx_cts[0].used);
    return &world_ep(1)->rx_cts[0];
}

static uint32_t id_of(const struct sl_mp_rx_cts *grant)
{
    for (uint32_t id = 0; id < 1 << 16; id++)
        if (sl_mp_rx_cts_at(world_ep(1), id) == grant)
            return id;
    fail_msg("the grant has no id");
    return 0;
}

static void refused_at_1(const char *sentence)
{
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, -EPROTO);
    assert_non_null(strstr(world_ep(1)->why, sentence));
}

static void bytes_beyond_a_grant_end_the_connection(void **state)
{
    struct sl_mp_rx_cts *grant = granted(false);
    uint32_t id = id_of(grant);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id, 60000);
    assert_int_equal(grant->got, 60000);
    assert_false(world_ep(1)->failing);
    sl_mp_on_write(world_ep(1)->paths[0], id, 40001);
    refused_at_1("wrote 40001 bytes where nothing was granted");
}

static void bytes_for_a_grant_that_is_over_end_the_connection(void **state)
{
    struct sl_mp_rx_cts *grant = granted(false);
    uint32_t id = id_of(grant);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id + SL_MP_RX_CTS_MAX, 100);
    refused_at_1("wrote 100 bytes where nothing was granted");
}

static void more_bytes_than_the_message_has_end_the_connection(void **state)
{
    struct sl_buf buf = {.addr = memory, .len = LEN / 2};
    struct sl_mp_rx_cts *grant = granted(true);

    (void)state;
    sl_mp_on_write(world_ep(1)->paths[0], id_of(grant), LEN / 2 + 1);
    WORLD_UNTIL(world_channel(0)->early_count == 1);
    assert_int_equal(sl_verbs_ops.send(world[0].ep, &buf, TAG, &sent), 0);
    WORLD_UNTIL(request.status != SL_PENDING);
    assert_int_equal(request.status, -EPROTO);
}

/* ---- pieces ---- */

#define GBIT_400 128 /* of a lane of four: enum ibv's active_speed, as are the others */
#define GBIT_200 64
#define GBIT_100 32
#define WIDTH_4 2
#define WIDTH_1 1
#define MIB (1u << 20)

static uint8_t speed[2], width[2]; /* of the first device of a side, and of the second */

static void by_speed(struct fake_ibv_device *params)
{
    unsigned rail = params->name[1] - '0';

    params->ports[0].attr.active_speed = speed[rail];
    params->ports[0].attr.active_width = width[rail];
}

/* So many rails of these speeds, and pieces as they are by default. */
static void join_by_speed(unsigned rails)
{
    world_rails[0] = world_rails[1] = rails;
    world_prepare(by_speed);
    for (unsigned side = 0; side < 2; side++)
        assert_int_equal(sl_config_set(&world[side].config, "VERBS_PIECE_BYTES", "0"), 0);
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == rails && world_ep(1)->paths_up == rails);
}

static void join_two(uint8_t first, uint8_t second, uint8_t second_width)
{
    speed[0] = first;
    speed[1] = second;
    width[0] = WIDTH_4;
    width[1] = second_width;
    join_by_speed(2);
}

static uint32_t largest, pieces;      /* of the last message */
static uint32_t parts[2], longest[2]; /* of it, by path: bytes, and the largest piece */
static uint64_t ahead;                /* the most that one had under way */

/* What side 0 has posted to a path since. */
static void count_writes(unsigned idx, uint32_t since)
{
    const struct sl_mp_path *path = world_ep(0)->paths[idx];

    assert_true(path->posted - since <= SL_MP_WINDOW);
    for (uint32_t at = since; at != path->posted; at++) {
        const struct sl_mp_wr *wr = &path->wrs[at % SL_MP_WINDOW];

        if (wr->kind != SL_MP_WR_WRITE)
            continue;
        pieces++;
        parts[idx] += wr->len;
        longest[idx] = wr->len > longest[idx] ? wr->len : longest[idx];
        largest = wr->len > largest ? wr->len : largest;
    }
}

/* From side 0 to side 1, between registered memory or not; disturb() comes in the midst. */
static void long_message(size_t len, bool registered, void (*disturb)(void))
{
    uint8_t *from = malloc(len), *to = calloc(1, len);
    struct sl_mem mem[2] = {{.addr = from, .len = len}, {.addr = to, .len = len}};
    struct sl_mr *mr[2] = {NULL, NULL};
    unsigned count = world_ep(0)->path_count;
    uint32_t seen[2];
    struct sl_key key;

    assert_true(from != NULL && to != NULL);
    for (size_t i = 0; i < len; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 13);
    for (unsigned side = 0; side < 2 && registered; side++)
        assert_int_equal(sl_verbs_ops.mr_reg(world[side].iface, &mem[side], &mr[side], &key), 0);
    struct sl_buf buf = {.addr = from, .len = len, .mr = mr[0]};
    struct sl_sink sink = {.dst = to, .len = len, .tag = TAG, .mr = mr[1]};

    largest = pieces = parts[0] = parts[1] = longest[0] = longest[1] = 0;
    ahead = 0;
    for (unsigned i = 0; i < count; i++)
        seen[i] = world_ep(0)->paths[i]->posted;
    assert_true(world_recv(1, &sink, &request) >= 0);
    assert_true(world_send(0, &buf, TAG, &sent) >= 0);
    while (request.status == SL_PENDING || sent.status == SL_PENDING) {
        for (unsigned i = 0; i < count; i++) {
            const struct sl_mp_path *path = world_ep(0)->paths[i];

            ahead = path->in_flight > ahead ? path->in_flight : ahead;
            if (path->posted < seen[i])
                seen[i] = 0; /* another epoch */
            count_writes(i, seen[i]);
            seen[i] = path->posted;
        }
        if (disturb != NULL && pieces > 2) {
            disturb();
            disturb = NULL;
        }
        world_progress();
    }
    for (unsigned i = 0; i < count; i++)
        count_writes(i, seen[i]);
    assert_int_equal(request.status, 0);
    assert_int_equal(sent.status, 0);
    assert_memory_equal(from, to, len);
    for (unsigned side = 0; side < 2 && registered; side++)
        sl_verbs_ops.mr_dereg(world[side].iface, mr[side]);
    free(from);
    free(to);
}

static void a_piece_takes_the_line_as_long_on_any_link(void **state)
{
    static const struct {
        uint8_t speed, width;
        uint32_t bytes;
    } links[] = {{4, WIDTH_1, 64 << 10},         {GBIT_100, WIDTH_1, 64 << 10},
                 {GBIT_100, WIDTH_4, 256 << 10}, {GBIT_200, WIDTH_4, 512 << 10},
                 {GBIT_400, WIDTH_4, MIB},       {GBIT_400, 4, MIB}};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(links); i++) {
        speed[0] = links[i].speed;
        width[0] = links[i].width;
        join_by_speed(1);
        for (unsigned side = 0; side < 2; side++)
            assert_int_equal(world_ep(side)->paths[0]->piece_bytes, links[i].bytes);
        long_message(8 * MIB, true, NULL);
        assert_int_equal(largest, links[i].bytes);
        if (i + 1 < SL_ARRAY_LEN(links))
            world_end();
    }
}

static void rails_share_a_message_whatever_their_pieces(void **state)
{
    (void)state;
    join_two(GBIT_400, GBIT_400, WIDTH_4);
    for (size_t len = MIB / 2; len <= 16 * MIB; len *= 2) {
        long_message(len, true, NULL);
        assert_int_equal(parts[0] + parts[1], len);
        assert_in_range(parts[0], len / 4, len - len / 4);
        assert_int_equal(largest, len / 2 < MIB ? len / 2 : MIB);
        assert_true(pieces <= len / MIB + 12);
        /* Four, the last of which was begun just below; and the end of the message. */
        assert_true(ahead <= 5 * MIB + (128 << 10));
    }
}

static void the_piece_is_the_paths_own(void **state)
{
    (void)state;
    join_two(GBIT_400, GBIT_100, WIDTH_1); /* 25 Gbit/s */
    world_ep(0)->paths[0]->is_avoided = true;
    world_ep(0)->uneven = true;
    long_message(4 * MIB, true, NULL);
    assert_int_equal(parts[0], 0);
    assert_int_equal(largest, 64 << 10);
    world_ep(0)->paths[0]->is_avoided = false;
    world_ep(0)->paths[1]->is_avoided = true;
    long_message(4 * MIB, true, NULL);
    assert_int_equal(parts[1], 0);
    assert_int_equal(largest, MIB);
}

static void pieces_of_a_path_with_less_weight_are_smaller(void **state)
{
    (void)state;
    speed[0] = GBIT_400;
    width[0] = WIDTH_4;
    join_by_speed(1);
    world_ep(0)->paths[0]->weight = 25;
    long_message(8 * MIB, true, NULL);
    assert_int_equal(largest, 256 << 10);
}

static void memory_that_is_copied_goes_by_its_chunks(void **state)
{
    (void)state;
    speed[0] = GBIT_400;
    width[0] = WIDTH_4;
    join_by_speed(1);
    long_message(4 * MIB, false, NULL);
    assert_int_equal(largest, SL_MP_CHUNK_BYTES);
}

static void first_goes(void)
{
    fake_ibv_port_set(world_fake, 0, 1, IBV_PORT_DOWN);
}

static void what_a_fast_path_lost_goes_by_a_slow_one_in_its_pieces(void **state)
{
    (void)state;
    join_two(GBIT_400, GBIT_100, WIDTH_1);
    long_message(16 * MIB, true, first_goes);
    assert_int_equal(longest[0], MIB);
    assert_true(world_ep(0)->paths[0]->stats.resent > 0);
    assert_int_equal(longest[1], 64 << 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {CASE(early_grants_that_fit_are_written),
                                       CASE(a_second_early_grant_for_another_length_is_refused),
                                       CASE(a_byte_past_the_end_is_not_read),
                                       CASE(the_same_bytes_are_not_granted_twice),
                                       CASE(nor_when_the_second_grant_comes_after_the_send),
                                       CASE(a_shorter_message_is_granted_once_too),
                                       CASE(a_grant_past_its_own_length_is_refused_at_once),
                                       CASE(a_message_with_a_grant_is_not_dropped),
                                       CASE(bytes_beyond_a_grant_end_the_connection),
                                       CASE(bytes_for_a_grant_that_is_over_end_the_connection),
                                       CASE(more_bytes_than_the_message_has_end_the_connection),
#define OWN(name) cmocka_unit_test_teardown(name, clean)
                                       OWN(a_piece_takes_the_line_as_long_on_any_link),
                                       OWN(rails_share_a_message_whatever_their_pieces),
                                       OWN(the_piece_is_the_paths_own),
                                       OWN(pieces_of_a_path_with_less_weight_are_smaller),
                                       OWN(memory_that_is_copied_goes_by_its_chunks),
                                       OWN(what_a_fast_path_lost_goes_by_a_slow_one_in_its_pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
