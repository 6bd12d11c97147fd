/* SPDX-License-Identifier: Apache-2.0 */
/* Rings: edges of cells and pieces, and peers that write nonsense into them. */
#include "core/cache.h"
#include "shm/config.h"
#include "tests/unit/shm/side.h"

#include <stdlib.h>

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

/* Sends len bytes from a to b and checks them. */
static void pass(struct side *a, struct side *b, size_t len, unsigned seed)
{
    uint8_t *from = malloc(len + 1), *to = calloc(1, len + 1);
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;

    fill(from, len, seed);
    assert_true(side_send(a, from, len, seed, &send) >= 0);
    assert_true(side_recv(b, &sink, to, len, seed, &recv) >= 0);
    PUMP(a, b, send.status != SL_PENDING && recv.status != SL_PENDING);
    assert_int_equal(send.status, 0);
    assert_int_equal(recv.status, 0);
    assert_int_equal(recv.len, len);
    assert_int_equal(recv.tag, seed);
    assert_memory_equal(from, to, len);
    free(from);
    free(to);
}

static void every_size_around_an_edge_arrives_whole(void **state)
{
    static const size_t edges[] = {0, SHM_INLINE_MAX, 64, 4096, 8192, 65536, 131072, 524288};
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    for (unsigned i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        for (int delta = -1; delta <= 1; delta++)
            if (edges[i] > 0 || delta >= 0)
                pass(delta == 0 ? &b : &a, delta == 0 ? &a : &b, edges[i] + (size_t)delta, i);
    side_close(&a);
    side_close(&b);
}

static void the_smallest_ring_carries_messages_much_larger(void **state)
{
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sl_shm_config_edit(&a.config)->ring_bytes = sl_shm_config_edit(&b.config)->ring_bytes = 1;
    sides_connect(&a, &b);
    assert_int_equal(inside(&a)->ring_bytes, SHM_RING_MIN);
    for (unsigned i = 0; i < 40; i++)
        pass(i % 2 ? &a : &b, i % 2 ? &b : &a, 1000 * i + i, i);
    pass(&a, &b, 1 << 20, 7);
    side_close(&a);
    side_close(&b);
}

/* The first of many peers has no larger ring than the last one. */
static void a_ring_is_as_large_as_the_peers_to_come_allow(void **state)
{
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    a.worker.near = b.worker.near = 63;
    sides_connect(&a, &b);
    assert_int_equal(inside(&a)->ring_bytes, shm_ring_bytes(&a.config, 63));
    assert_true(inside(&a)->ring_bytes < shm_ring_bytes(&a.config, 1));
    side_close(&a);
    side_close(&b);
}

/* A pass ends as many requests as it was given, and leaves the rest to the next: other endpoints
 * have their turn. */
static void a_pass_ends_no_more_sends_than_it_was_asked_for(void **state)
{
    static struct sl_req send[2000];
    struct sl_sink sink;
    struct side a, b;
    unsigned count = 0, waiting = 0;
    uint8_t word = 7, got;

    (void)state;
    side_open(&a);
    side_open(&b);
    sl_shm_config_edit(&a.config)->ring_bytes = sl_shm_config_edit(&b.config)->ring_bytes = 1;
    sides_connect(&a, &b);
    memset(send, 0, sizeof(send));
    for (; waiting < 3; count++) {
        assert_true(count < SL_ARRAY_LEN(send));
        assert_true(side_send(&a, &word, 1, count, &send[count]) >= 0);
        waiting += send[count].status == SL_PENDING;
    }
    for (unsigned i = 0; i < count - 3; i++) { /* makes room */
        struct sl_req recv = {0};

        assert_true(side_recv(&b, &sink, &got, 1, i, &recv) >= 0);
        for (int pass = 0; recv.status == SL_PENDING && pass < 1000; pass++)
            sl_shm_ops.progress(b.iface, 64);
        assert_int_equal(recv.status, 0);
    }
    for (unsigned left = 3; left > 0; left--) {
        unsigned pending = 0;

        for (unsigned i = count - 3; i < count; i++)
            pending += send[i].status == SL_PENDING;
        assert_int_equal(pending, left);
        sl_shm_ops.progress(a.iface, 1);
    }
    assert_int_equal(send[count - 1].status, 0);
    side_close(&a);
    side_close(&b);
}

static uint8_t *eaten;
static size_t eaten_len, message_len;

/* Source and destination of a copy share the cache; SLUICE_SHM_STREAM_MIN_BYTES has the last
 * word. */
static void copies_of_half_the_cache_go_past_it(void **state)
{
    struct side a;

    (void)state;
    side_open(&a);
    assert_int_equal(shm_iface_of(a.iface)->stream_min, sl_cache_last_level() / 2);
    side_close(&a);
}

static void eat(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    assert_int_equal(off, eaten_len);
    assert_true(len % sink->granule == 0 || off + len == message_len);
    memcpy(eaten + off, bytes, len);
    eaten_len += len;
}

/* Elements of 12 bytes, which no piece holds a whole number of; the last one may be cut short by
 * its sender. */
static void consume_gets_whole_elements_of_what_came(void **state)
{
    static const size_t lens[] = {0, 5, 12, 48, 49, 8195, 65536, 300001, 300012};
    const size_t room = 300012;
    uint8_t *from = malloc(room);
    struct side a, b;

    (void)state;
    side_read = SL_OFF;
    side_open(&a);
    side_open(&b);
    side_read = SL_AUTO;
    sides_connect(&a, &b);
    eaten = malloc(room);
    fill(from, room, 5);
    for (unsigned i = 0; i < 2 * SL_ARRAY_LEN(lens); i++) {
        bool shorter = i % 2;
        struct sl_req send = {0}, recv = {0};
        struct sl_sink sink = {.len = shorter ? room : lens[i / 2],
                               .tag = 4,
                               .granule = 12,
                               .shorter = shorter,
                               .consume = eat};

        eaten_len = 0;
        message_len = lens[i / 2];
        assert_true(side_send(&a, from, message_len, 4, &send) >= 0);
        assert_true(sl_shm_ops.recv(b.ep, &sink, &recv) >= 0);
        PUMP(&a, &b, send.status != SL_PENDING && recv.status != SL_PENDING);
        assert_int_equal(recv.status, 0);
        assert_int_equal(recv.len, message_len);
        assert_int_equal(eaten_len, message_len);
        assert_memory_equal(eaten, from, message_len);
    }
    side_close(&a);
    side_close(&b);
    free(from);
    free(eaten);
}

static void small_messages_fill_the_cells_then_wait_then_flow(void **state)
{
    enum { N = 400 };
    struct sl_req send[N] = {0}, recv = {0};
    struct sl_sink sink;
    uint64_t numbers[N], got;
    struct side a, b;
    int taken = 0, rc;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    for (;; taken++) {
        numbers[taken] = (uint64_t)taken;
        rc = side_send(&a, &numbers[taken], sizeof(uint64_t), 1, &send[taken]);
        if (rc == -EAGAIN)
            break;
        assert_int_equal(rc, (unsigned)taken < inside(&a)->cells ? 1 : 0);
        assert_true(taken < N - 1);
    }
    assert_int_equal(taken, inside(&a)->cells + SHM_POSTED_MAX);
    for (int i = 0; i < taken; i++) {
        assert_true(side_recv(&b, &sink, &got, sizeof(got), 1, &recv) >= 0);
        PUMP(&a, &b, recv.status != SL_PENDING);
        assert_int_equal(got, i);
        assert_int_equal(recv.status, 0);
    }
    side_close(&a);
    side_close(&b);
}

/* A receive waits at b; hurt() damages what a's ring says; b must lose a, and only that. */
static void damaged(void (*hurt)(struct shm_ep *from))
{
    struct sl_req recv = {0};
    struct sl_sink sink;
    uint8_t to[256];
    struct side a, b;

    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    assert_int_equal(side_recv(&b, &sink, to, sizeof(to), 9, &recv), 0);
    hurt(inside(&a));
    PUMP(&b, NULL, recv.status != SL_PENDING);
    assert_int_equal(recv.status, -EBADMSG);
    assert_int_equal(b.downs, 1);
    assert_int_equal(b.down_status, -EBADMSG);
    assert_int_equal(side_send(&b, to, 8, 1, &recv), -EBADMSG);
    side_close(&a);
    side_close(&b);
}

static void put(struct shm_ep *from, unsigned kind, unsigned n, uint64_t len, uint32_t off,
                uint32_t piece)
{
    struct shm_cell *cell = &from->tx.cells[0];

    cell->tag = 9;
    cell->len = len;
    cell->off = off;
    cell->piece = piece;
    atomic_store(&cell->head, shm_cell_head(0, kind, n, 0));
}

static void hurt_kind(struct shm_ep *e)
{
    put(e, 77, 0, 256, 0, 256);
}
static void hurt_inline(struct shm_ep *e)
{
    put(e, SHM_CELL_INLINE, SHM_INLINE_MAX + 1, 0, 0, 0);
}
static void hurt_off(struct shm_ep *e)
{
    put(e, SHM_CELL_FIRST, 0, 256, e->ring_bytes - 64, 256);
}
static void hurt_off_far(struct shm_ep *e)
{
    put(e, SHM_CELL_FIRST, 0, 256, 0xffffffc0u, 256);
}
static void hurt_crooked(struct shm_ep *e)
{
    put(e, SHM_CELL_FIRST, 0, 256, 8, 256);
}
static void hurt_piece(struct shm_ep *e)
{
    put(e, SHM_CELL_FIRST, 0, 256, 0, 320);
}
static void hurt_empty(struct shm_ep *e)
{
    put(e, SHM_CELL_FIRST, 0, 256, 0, 0);
}
static void hurt_order(struct shm_ep *e)
{
    put(e, SHM_CELL_MORE, 0, 256, 0, 256);
}

static void impossible_cells_lose_the_peer_and_nothing_else(void **state)
{
    (void)state;
    damaged(hurt_kind);
    damaged(hurt_inline);
    damaged(hurt_off);
    damaged(hurt_off_far);
    damaged(hurt_crooked);
    damaged(hurt_piece);
    damaged(hurt_empty);
    damaged(hurt_order);
}

static void an_impossible_count_of_taken_cells_loses_the_peer(void **state)
{
    static uint8_t big[4 << 20];
    struct sl_req send = {0};
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    atomic_store(inside(&b)->rx.taken, UINT64_C(1) << 40);
    assert_int_equal(side_send(&a, big, sizeof(big), 1, &send), 0);
    PUMP(&a, NULL, send.status != SL_PENDING);
    assert_int_equal(send.status, -EBADMSG);
    assert_int_equal(a.downs, 1);
    side_close(&a);
    side_close(&b);
}

static void pieces_that_belie_their_header_lose_the_peer(void **state)
{
    struct sl_req recv = {0};
    struct sl_sink sink;
    static uint8_t to[65536];
    struct side a, b;

    (void)state;
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    assert_int_equal(side_recv(&b, &sink, to, sizeof(to), 9, &recv), 0);
    put(inside(&a), SHM_CELL_FIRST, 0, sizeof(to), 0, 8192);
    PUMP(&b, NULL, inside(&b)->rx_pos == 1);
    struct shm_cell *cell = &inside(&a)->tx.cells[1];

    cell->off = 8192;
    cell->piece = 65536; /* 57344 are left */
    atomic_store(&cell->head, shm_cell_head(1, SHM_CELL_MORE, 0, 0));
    PUMP(&b, NULL, recv.status != SL_PENDING);
    assert_int_equal(recv.status, -EBADMSG);
    side_close(&a);
    side_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_half_the_cache_go_past_it),
        cmocka_unit_test(a_pass_ends_no_more_sends_than_it_was_asked_for),
        cmocka_unit_test(every_size_around_an_edge_arrives_whole),
        cmocka_unit_test(the_smallest_ring_carries_messages_much_larger),
        cmocka_unit_test(a_ring_is_as_large_as_the_peers_to_come_allow),
        cmocka_unit_test(consume_gets_whole_elements_of_what_came),
        cmocka_unit_test(small_messages_fill_the_cells_then_wait_then_flow),
        cmocka_unit_test(impossible_cells_lose_the_peer_and_nothing_else),
        cmocka_unit_test(an_impossible_count_of_taken_cells_loses_the_peer),
        cmocka_unit_test(pieces_that_belie_their_header_lose_the_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
