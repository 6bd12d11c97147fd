/* SPDX-License-Identifier: Apache-2.0 */
/* Channels in the rings: what closes leave there, who may wait, and peers that tell nonsense. */
#include "shm/ring.h"
#include "tests/unit/shm/side.h"

#include <sys/socket.h>

#define A UINT32_C(7)
#define B UINT32_C(0x80000001)

static int send_on(struct side *s, uint32_t channel, const void *bytes, size_t len, uint64_t tag,
                   struct sl_req *req)
{
    struct sl_buf buf = {.addr = bytes, .len = len, .channel = channel};

    return sl_shm_ops.send(s->ep, &buf, tag, req);
}

static int recv_on(struct side *s, uint32_t channel, struct sl_sink *sink, void *dst, size_t len,
                   uint64_t tag, struct sl_req *req)
{
    *sink = (struct sl_sink){.dst = dst, .len = len, .tag = tag, .channel = channel};
    return sl_shm_ops.recv(s->ep, sink, req);
}

static void open_both(struct side *a, struct side *b, uint32_t channel)
{
    assert_int_equal(sl_shm_ops.channel_open(a->ep, channel), 0);
    assert_int_equal(sl_shm_ops.channel_open(b->ep, channel), 0);
}

/* The smallest ring, through which nothing is lent; A and B are open. */
static void connect_small(struct side *a, struct side *b)
{
    side_read = SL_OFF;
    side_open(a);
    side_open(b);
    side_read = SL_AUTO;
    sl_shm_config_edit(&a->config)->ring_bytes = sl_shm_config_edit(&b->config)->ring_bytes = 1;
    sides_connect(a, b);
    open_both(a, b, A);
    open_both(a, b, B);
}

static void close_both(struct side *a, struct side *b)
{
    side_close(a);
    side_close(b);
}

/* A byte from a to b: nothing on the channel is in its way, nothing before it is counted. */
static void check_flows(struct side *a, struct side *b, uint32_t channel)
{
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    uint8_t byte = 0xa7, got = 0;

    assert_true(recv_on(b, channel, &sink, &got, 1, 1, &recv) >= 0);
    assert_true(send_on(a, channel, &byte, 1, 1, &send) >= 0);
    PUMP(a, b, send.status != SL_PENDING && recv.status != SL_PENDING);
    assert_int_equal(send.status, 0);
    assert_int_equal(recv.status, 0);
    assert_int_equal(got, byte);
}

/* Cells of an endpoint with nothing posted are left alone, unless someone waits. */
static void progress_some(struct side *s)
{
    for (int i = 0; i < 50; i++)
        sl_shm_ops.progress(s->iface, 64);
}

static void a_channel_that_is_not_open_takes_nothing(void **state)
{
    struct sl_req req = {0};
    struct sl_sink sink;
    struct side a, b;
    uint8_t byte = 0;

    (void)state;
    connect_small(&a, &b);
    assert_int_equal(send_on(&a, 99, &byte, 1, 1, &req), -EINVAL);
    assert_int_equal(recv_on(&a, 99, &sink, &byte, 1, 1, &req), -EINVAL);
    assert_non_null(strstr(sluice_last_error(), "channel 99 "));
    sl_shm_ops.channel_close(a.ep, A);
    assert_int_equal(send_on(&a, A, &byte, 1, 1, &req), -EINVAL);
    assert_int_equal(recv_on(&a, A, &sink, &byte, 1, 1, &req), -EINVAL);
    check_flows(&a, &b, B);
    check_flows(&b, &a, 0);
    close_both(&a, &b);
}

/* Fills a's ring and its queue with messages of A. Returns how many were taken. */
static unsigned fill_with(struct side *a, struct sl_req *reqs, unsigned most, const void *bytes,
                          size_t len)
{
    unsigned taken = 0;

    while (taken < most && send_on(a, A, bytes, len, taken, &reqs[taken]) >= 0)
        taken++;
    assert_true(taken < most);
    return taken;
}

static void a_full_queue_of_one_channel_has_a_place_for_each_other(void **state)
{
    static struct sl_req reqs[400];
    struct sl_req send[2] = {0}, again = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;
    uint8_t word[8] = "seven", got[8];
    unsigned taken;

    (void)state;
    memset(reqs, 0, sizeof(reqs));
    connect_small(&a, &b);
    taken = fill_with(&a, reqs, SL_ARRAY_LEN(reqs), word, 8);
    assert_int_equal(send_on(&a, B, word, 8, 1, &send[0]), 0);
    assert_int_equal(send_on(&a, B, word, 8, 2, &again), -EAGAIN);
    assert_int_equal(send_on(&a, 0, word, 8, 1, &send[1]), 0);
    assert_int_equal(recv_on(&b, B, &sink, got, 8, 1, &recv), 0);
    PUMP(&a, &b, recv.status != SL_PENDING);
    assert_int_equal(recv.status, 0);
    assert_memory_equal(got, word, 8);
    for (unsigned i = 0; i < taken; i++) {
        struct sl_req kept = {0};

        assert_true(recv_on(&b, A, &sink, got, 8, i, &kept) >= 0);
        PUMP(&a, &b, kept.status != SL_PENDING);
        assert_int_equal(kept.status, 0);
    }
    assert_int_equal(send[0].status, 0);
    close_both(&a, &b);
}

/* ---- what a close leaves in the ring ---- */

static void a_message_of_which_a_part_is_in_the_ring_ends_there(void **state)
{
    static uint8_t big[64 << 10], to[64 << 10];
    struct sl_req send[2] = {0}, recv[2] = {0};
    struct sl_sink sink[2];
    struct side a, b;

    (void)state;
    for (int met = 0; met < 2; met++) {
        memset(send, 0, sizeof(send));
        memset(recv, 0, sizeof(recv));
        connect_small(&a, &b);
        assert_int_equal(send_on(&a, A, big, sizeof(big), 1, &send[0]), 0);
        assert_int_equal(send_on(&a, A, big, 8, 2, &send[1]), 0);
        assert_int_equal(recv_on(&b, A, &sink[0], to, sizeof(to), 1, &recv[0]), 0);
        assert_int_equal(recv_on(&b, A, &sink[1], to, 8, 2, &recv[1]), 0);
        if (met)
            PUMP(&b, NULL, inside(&b)->rx_off > 0);
        sl_shm_ops.channel_close(a.ep, A);
        assert_int_equal(send[0].status, -ECANCELED);
        assert_int_equal(send[1].status, -ECANCELED);
        check_flows(&a, &b, B);
        assert_int_equal(recv[0].status, -ECANCELED);
        assert_int_equal(recv[1].status, SL_PENDING); /* never sent */
        sl_shm_ops.channel_close(b.ep, A);
        assert_int_equal(recv[1].status, -ECANCELED);
        PUMP(&a, &b, shm_channel_find(inside(&a), A) == NULL);
        assert_null(shm_channel_find(inside(&b), A));
        check_flows(&b, &a, 0);
        close_both(&a, &b);
    }
}

static void the_rest_of_a_message_whose_receiver_closed_is_dropped(void **state)
{
    static uint8_t big[64 << 10], to[64 << 10];
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;

    (void)state;
    connect_small(&a, &b);
    memset(big, 1, sizeof(big));
    assert_int_equal(send_on(&a, A, big, sizeof(big), 1, &send), 0);
    assert_int_equal(recv_on(&b, A, &sink, to, sizeof(to), 1, &recv), 0);
    PUMP(&b, NULL, inside(&b)->rx_off > 0);
    sl_shm_ops.channel_close(b.ep, A);
    assert_int_equal(recv.status, -ECANCELED);
    memset(to, 2, sizeof(to));
    PUMP(&a, &b, send.status != SL_PENDING);
    assert_int_equal(send.status, 0);
    for (size_t i = 0; i < sizeof(to); i++)
        assert_int_equal(to[i], 2);
    check_flows(&a, &b, B);
    close_both(&a, &b);
}

static void a_close_waits_for_a_free_cell(void **state)
{
    static struct sl_req reqs[400];
    struct sl_req recv = {0};
    struct sl_sink sink;
    struct side a, b;
    uint8_t word[8] = "eleven", got[8];
    unsigned taken, left;

    (void)state;
    memset(reqs, 0, sizeof(reqs));
    connect_small(&a, &b);
    taken = fill_with(&a, reqs, SL_ARRAY_LEN(reqs), word, 8);
    left = inside(&a)->send_count;
    assert_int_equal(left, SHM_POSTED_MAX);
    sl_shm_ops.channel_close(a.ep, A);
    for (unsigned i = 0; i < taken; i++)
        assert_int_equal(reqs[i].status, i < taken - left ? 0 : -ECANCELED);
    assert_false(sl_list_empty(&inside(&a)->sends));
    for (unsigned i = 0; i < taken - left; i++) { /* all that are whole arrive */
        recv.status = 0;
        assert_true(recv_on(&b, A, &sink, got, 8, i, &recv) >= 0);
        PUMP(&a, &b, recv.status != SL_PENDING);
        assert_int_equal(recv.status, 0);
    }
    sl_shm_ops.channel_close(b.ep, A);
    PUMP(&a, &b,
         shm_channel_find(inside(&a), A) == NULL && shm_channel_find(inside(&b), A) == NULL);
    check_flows(&a, &b, 0);
    close_both(&a, &b);
}

static void a_channel_may_close_before_the_connection_is_made(void **state)
{
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    open_both(&a, &b, A);
    sl_shm_ops.channel_close(a.ep, A);
    sides_connect(&a, &b);
    sl_shm_ops.channel_close(b.ep, A);
    PUMP(&a, &b,
         shm_channel_find(inside(&a), A) == NULL && shm_channel_find(inside(&b), A) == NULL);
    check_flows(&a, &b, 0);
    close_both(&a, &b);
}

/* ---- who sleeps ---- */

static void what_is_dropped_is_work_and_what_waits_is_not(void **state)
{
    struct sl_req send = {0};
    struct side a, b;
    uint8_t byte = 1;
    int rc = -EAGAIN;

    (void)state;
    connect_small(&a, &b);
    sl_shm_ops.channel_close(b.ep, A);
    progress_some(&b);
    assert_int_equal(send_on(&a, A, &byte, 1, 1, &send), 1);
    assert_true(shm_ep_ready(inside(&b)));
    PUMP(&b, NULL, !shm_ep_unread(inside(&b)));
    assert_int_equal(send_on(&a, B, &byte, 1, 1, &send), 1); /* its receive is not posted */
    assert_false(shm_ep_ready(inside(&b)));
    PUMP(&b, NULL, (rc = shm_arm(b.iface)) != -EAGAIN);
    assert_int_equal(rc, 0);
    shm_disarm(b.iface);
    sl_shm_ops.channel_close(a.ep, A);
    progress_some(&b);
    assert_non_null(shm_channel_find(inside(&b), A)); /* its close is behind the message of B */
    close_both(&a, &b);
}

/* ---- a peer that leaves ---- */

static void kept_messages_of_a_peer_that_left_are_received(void **state)
{
    struct sl_req send = {0}, wait = {0}, recv = {0};
    struct sl_sink sink[2];
    struct side a, b;
    uint8_t word[8] = "thirty", got[8];

    (void)state;
    for (int waiting = 0; waiting < 2; waiting++) {
        wait = recv = (struct sl_req){0};
        connect_small(&a, &b);
        assert_int_equal(recv_on(&b, B, &sink[0], got, 8, 1, &wait), 0);
        assert_int_equal(send_on(&a, A, word, 8, 5, &send), 1);
        PUMP(&b, NULL, !shm_ep_unread(inside(&b))); /* kept */
        if (!waiting) {
            assert_int_equal(send_on(&a, B, word, 8, 1, &send), 1);
            PUMP(&b, NULL, wait.status != SL_PENDING);
        }
        sl_shm_ops.ep_destroy(a.ep);
        if (waiting) { /* for what will never come */
            PUMP(&b, NULL, wait.status != SL_PENDING);
            assert_int_equal(wait.status, -ECONNRESET);
            assert_int_equal(b.downs, 1);
        } else {
            PUMP(&b, NULL, inside(&b)->leaving);
            progress_some(&b);
            assert_int_equal(b.downs, 0);
            assert_int_equal(recv_on(&b, A, &sink[1], got, 8, 5, &recv), 0);
            PUMP(&b, NULL, recv.status != SL_PENDING);
            assert_int_equal(recv.status, 0);
            assert_memory_equal(got, word, 8);
            PUMP(&b, NULL, b.downs == 1);
        }
        sl_shm_ops.close(a.iface);
        side_close(&b);
    }
}

/* Its close is no message that would have to be received first. */
static void a_peer_that_closed_its_channels_and_left_is_lost(void **state)
{
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;
    uint8_t byte = 9, got = 0;

    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        recv = (struct sl_req){0};
        connect_small(&a, &b);
        sl_shm_ops.channel_close(a.ep, A);
        if (behind)
            assert_int_equal(send_on(&a, B, &byte, 1, 1, &send), 1);
        sl_shm_ops.ep_destroy(a.ep);
        if (behind) { /* but this is one */
            PUMP(&b, NULL, inside(&b)->leaving);
            progress_some(&b);
            assert_int_equal(b.downs, 0);
            assert_int_equal(recv_on(&b, B, &sink, &got, 1, 1, &recv), 1);
            assert_int_equal(got, byte);
        }
        PUMP(&b, NULL, b.downs == 1);
        sl_shm_ops.close(a.iface);
        side_close(&b);
    }
}

/* What was kept comes first, then what is left in the ring. */
static void no_message_is_skipped_when_the_peer_dies(void **state)
{
    struct sl_req send = {0}, wait = {0}, recv[3] = {{0}};
    struct sl_sink sink[4];
    struct side a, b;
    uint8_t got[2][8];

    (void)state;
    connect_small(&a, &b);
    assert_int_equal(recv_on(&b, B, &sink[3], got[0], 8, 1, &wait), 0);
    assert_int_equal(send_on(&a, A, "message1", 8, 5, &send), 1);
    assert_int_equal(send_on(&a, B, "message2", 8, 1, &send), 1);
    PUMP(&b, NULL, wait.status != SL_PENDING);
    assert_int_equal(send_on(&a, A, "message3", 8, 5, &send), 1);
    shutdown(inside(&a)->source.fd, SHUT_RDWR);
    PUMP(&b, NULL, b.downs == 1);
    assert_int_equal(recv_on(&b, A, &sink[0], got[0], 8, 5, &recv[0]), 0);
    assert_int_equal(recv_on(&b, A, &sink[1], got[1], 8, 5, &recv[1]), 1);
    assert_int_equal(recv_on(&b, A, &sink[2], got[1], 8, 5, &recv[2]), -ECONNRESET);
    PUMP(&b, NULL, recv[0].status != SL_PENDING);
    assert_int_equal(recv[0].status, 0);
    assert_memory_equal(got[0], "message1", 8);
    assert_memory_equal(got[1], "message3", 8);
    close_both(&a, &b);
}

/* ---- nonsense ---- */

struct lie {
    unsigned kind, n;
    uint32_t channel;
    uint64_t len;
};

/* b receives on A and 0; a's ring says these. */
static void damaged(const struct lie *lies, unsigned count)
{
    static uint8_t to[2][256];
    struct sl_req recv[2] = {0};
    struct sl_sink sink[2];
    struct side a, b;

    connect_small(&a, &b);
    assert_int_equal(recv_on(&b, A, &sink[0], to[0], sizeof(to[0]), 9, &recv[0]), 0);
    assert_int_equal(recv_on(&b, 0, &sink[1], to[1], sizeof(to[1]), 9, &recv[1]), 0);
    for (unsigned i = 0; i < count; i++) {
        struct shm_cell *cell = &inside(&a)->tx.cells[i];

        assert_int_equal(b.downs, 0);
        cell->tag = 9;
        cell->len = lies[i].len;
        cell->off = 0;
        cell->piece = 64;
        atomic_store(&cell->head, shm_cell_head(i, lies[i].kind, lies[i].n, lies[i].channel));
        if (i + 1 < count)
            PUMP(&b, NULL, inside(&b)->rx_pos == i + 1);
    }
    PUMP(&b, NULL, b.downs == 1);
    assert_int_equal(b.down_status, -EBADMSG);
    assert_int_equal(recv[0].status, -EBADMSG);
    assert_int_equal(recv[1].status, -EBADMSG);
    close_both(&a, &b);
}

static void cells_that_break_the_order_of_channels_lose_the_peer(void **state)
{
    static const struct lie zero_closes[] = {{SHM_CELL_CLOSE, 0, 0, 0}},
                            twice[] = {{SHM_CELL_CLOSE, 0, B, 0}, {SHM_CELL_CLOSE, 0, B, 0}},
                            after[] = {{SHM_CELL_CLOSE, 0, B, 0}, {SHM_CELL_INLINE, 1, B, 0}},
                            foreign[] = {{SHM_CELL_FIRST, 0, A, 256}, {SHM_CELL_MORE, 0, 0, 256}},
                            between[] = {{SHM_CELL_FIRST, 0, A, 256}, {SHM_CELL_INLINE, 1, A, 0}},
                            closes[] = {{SHM_CELL_FIRST, 0, A, 256}, {SHM_CELL_CLOSE, 0, B, 0}};

    (void)state;
    damaged(zero_closes, SL_ARRAY_LEN(zero_closes));
    damaged(twice, SL_ARRAY_LEN(twice));
    damaged(after, SL_ARRAY_LEN(after));
    damaged(foreign, SL_ARRAY_LEN(foreign));
    damaged(between, SL_ARRAY_LEN(between));
    damaged(closes, SL_ARRAY_LEN(closes));
}

/* The receiver forgets the channel in the middle of a message that should not be there. */
static void a_peer_that_sends_on_after_its_close_hurts_nobody(void **state)
{
    static const unsigned kinds[] = {SHM_CELL_CLOSE, SHM_CELL_FIRST, SHM_CELL_MORE, SHM_CELL_MORE,
                                     SHM_CELL_MORE};
    static uint8_t to[256];
    struct sl_req recv[2] = {0};
    struct sl_sink sink[2];
    struct side a, b;

    (void)state;
    connect_small(&a, &b);
    assert_int_equal(recv_on(&b, A, &sink[0], to, sizeof(to), 9, &recv[0]), 0);
    assert_int_equal(recv_on(&b, 0, &sink[1], to, sizeof(to), 9, &recv[1]), 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(kinds); i++) {
        struct shm_cell *cell = &inside(&a)->tx.cells[i];

        cell->tag = 9;
        cell->len = sizeof(to);
        cell->off = 0;
        cell->piece = sizeof(to) / 4;
        atomic_store(&cell->head, shm_cell_head(i, kinds[i], 0, A));
        PUMP(&b, NULL, inside(&b)->rx_pos == i + 1);
        if (kinds[i] == SHM_CELL_FIRST) {
            sl_shm_ops.channel_close(b.ep, A);
            assert_int_equal(recv[0].status, -ECANCELED);
            assert_null(shm_channel_find(inside(&b), A));
        }
    }
    assert_int_equal(b.downs, 0);
    assert_int_equal(recv[1].status, SL_PENDING);
    close_both(&a, &b);
}

static void a_peer_that_names_too_many_channels_is_lost(void **state)
{
    struct sl_req recv = {0};
    struct sl_sink sink;
    struct side a, b;
    uint8_t to[8];

    (void)state;
    connect_small(&a, &b);
    assert_int_equal(recv_on(&b, 0, &sink, to, 8, 1, &recv), 0);
    for (uint32_t i = 0; b.downs == 0; i++) {
        struct shm_lane *lane = &inside(&a)->tx;
        struct shm_cell *cell = &lane->cells[i & lane->cell_mask];

        assert_true(i <= SL_CHANNELS_UNOPENED_MAX);
        atomic_store(&cell->head, shm_cell_head(i, SHM_CELL_INLINE, 1, 1000 + i));
        PUMP(&b, NULL, inside(&b)->rx_pos == i + 1 || b.downs > 0);
    }
    assert_int_equal(b.down_status, -EBADMSG);
    assert_int_equal(recv.status, -EBADMSG);
    close_both(&a, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_channel_that_is_not_open_takes_nothing),
        cmocka_unit_test(a_full_queue_of_one_channel_has_a_place_for_each_other),
        cmocka_unit_test(a_message_of_which_a_part_is_in_the_ring_ends_there),
        cmocka_unit_test(the_rest_of_a_message_whose_receiver_closed_is_dropped),
        cmocka_unit_test(a_close_waits_for_a_free_cell),
        cmocka_unit_test(a_channel_may_close_before_the_connection_is_made),
        cmocka_unit_test(what_is_dropped_is_work_and_what_waits_is_not),
        cmocka_unit_test(kept_messages_of_a_peer_that_left_are_received),
        cmocka_unit_test(a_peer_that_closed_its_channels_and_left_is_lost),
        cmocka_unit_test(no_message_is_skipped_when_the_peer_dies),
        cmocka_unit_test(cells_that_break_the_order_of_channels_lose_the_peer),
        cmocka_unit_test(a_peer_that_sends_on_after_its_close_hurts_nobody),
        cmocka_unit_test(a_peer_that_names_too_many_channels_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
