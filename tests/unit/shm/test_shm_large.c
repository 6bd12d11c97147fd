/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages that are lent, and read out of the sender's memory. */
#include "tests/unit/shm/side.h"

#include <stdlib.h>

#define LARGE 300001u

/* Both sides in this process, whose memory the kernel lets it read: unless a sandbox forbids it. */
static void open_reading(struct side *a, struct side *b)
{
    side_read = SL_ON;
    side_open(a);
    side_open(b);
    side_read = SL_AUTO;
    sides_connect(a, b);
    if (shm_iface_of(a->iface)->read_reason != NULL) {
        print_message("%s\n", shm_iface_of(a->iface)->read_reason);
        side_close(a);
        side_close(b);
        print_message("memory of other processes cannot be read here\n");
        skip();
    }
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static void more_than_can_be_posted_arrive_in_order_among_small_ones(void **state)
{
    enum { N = SHM_POSTED_MAX + 20 };
    static struct sl_req send[2 * N];
    uint8_t *from = malloc(LARGE + N), *to = malloc(LARGE);
    struct side a, b;
    uint64_t word, numbers[2 * N];
    int sent = 0;

    (void)state;
    open_reading(&a, &b);
    memset(send, 0, sizeof(send));
    fill(from, LARGE + N, 3);
    for (unsigned i = 0; i < 2 * N; i++)
        numbers[i] = i;
    for (int i = 0; i < 2 * N; i++) {
        struct sl_req recv = {0};
        struct sl_sink sink;

        while (sent < 2 * N) {
            int rc = sent % 2 ? side_send(&a, &numbers[sent], sizeof(word), 5, &send[sent])
                              : side_send(&a, from + sent / 2, LARGE, 6, &send[sent]);
            if (rc == -EAGAIN)
                break;
            assert_true(rc >= 0);
            if (sent == 0)
                assert_int_equal(rc, 0); /* lent: it cannot be done before b has read it */
            sent++;
        }
        memset(to, 0, LARGE);
        if (i % 2)
            assert_true(side_recv(&b, &sink, &word, sizeof(word), 5, &recv) >= 0);
        else
            assert_true(side_recv(&b, &sink, to, LARGE, 6, &recv) >= 0);
        PUMP(&a, &b, recv.status != SL_PENDING);
        assert_int_equal(recv.status, 0);
        if (i % 2)
            assert_int_equal(word, i);
        else
            assert_memory_equal(to, from + i / 2, LARGE);
    }
    for (int i = 0; i < 2 * N; i++)
        PUMP(&a, &b, send[i].status == 0);
    assert_int_equal(inside(&a)->lent_count, 0);
    side_close(&a);
    side_close(&b);
    free(from);
    free(to);
}

static uint8_t *eaten;
static size_t eaten_len;

static void eat(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    assert_int_equal(off, eaten_len);
    assert_true(len % sink->granule == 0 || off + len == sink->len);
    memcpy(eaten + off, bytes, len);
    eaten_len += len;
}

static void consume_gets_whole_elements_in_order(void **state)
{
    struct sl_sink sink = {.len = LARGE, .tag = 4, .granule = 12, .consume = eat};
    uint8_t *from = malloc(LARGE);
    struct sl_req send = {0}, recv = {0};
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    eaten = malloc(LARGE);
    eaten_len = 0;
    fill(from, LARGE, 9);
    assert_int_equal(side_send(&a, from, LARGE, 4, &send), 0);
    assert_int_equal(sl_shm_ops.recv(b.ep, &sink, &recv), 0);
    PUMP(&a, &b, send.status != SL_PENDING && recv.status != SL_PENDING);
    assert_int_equal(recv.status, 0);
    assert_int_equal(eaten_len, LARGE);
    assert_memory_equal(eaten, from, LARGE);
    side_close(&a);
    side_close(&b);
    free(from);
    free(eaten);
}

static void a_wrong_tag_or_length_drops_that_message_alone(void **state)
{
    uint8_t *from = calloc(1, LARGE), *to = calloc(1, LARGE);
    struct sl_req send[3] = {0}, recv[3] = {0};
    struct sl_sink sink[3];
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    memset(from, 7, LARGE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(side_send(&a, from, LARGE, 1, &send[i]), 0);
    assert_int_equal(side_recv(&b, &sink[0], to, LARGE, 2, &recv[0]), 0);
    assert_int_equal(side_recv(&b, &sink[1], to, LARGE - 1, 1, &recv[1]), 0);
    PUMP(&a, &b, send[1].status != SL_PENDING);
    assert_int_equal(recv[0].status, -EPROTO);
    assert_int_equal(recv[0].tag, 1);
    assert_int_equal(recv[1].status, -EMSGSIZE);
    assert_int_equal(recv[1].len, LARGE);
    assert_int_equal(send[0].status, 0);
    assert_int_equal(send[1].status, 0);
    assert_int_equal(to[0], 0); /* not a byte of them */
    assert_int_equal(side_recv(&b, &sink[2], to, LARGE, 1, &recv[2]), 0);
    PUMP(&a, &b, send[2].status != SL_PENDING);
    assert_int_equal(recv[2].status, 0);
    assert_memory_equal(from, to, LARGE);
    side_close(&a);
    side_close(&b);
    free(from);
    free(to);
}

static void what_its_sender_withdrew_is_not_delivered(void **state)
{
    size_t len = 16u << 20;
    uint8_t *from = calloc(1, len), *to = calloc(1, len);
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    assert_int_equal(side_send(&a, from, len, 1, &send), 0);
    assert_int_equal(side_recv(&b, &sink, to, len, 1, &recv), 0);
    PUMP(&b, NULL, inside(&b)->rx_off > 0);
    assert_int_equal(recv.status, SL_PENDING); /* in the middle: one call reads a part alone */
    sl_shm_ops.ep_destroy(a.ep);
    assert_int_equal(send.status, -ECANCELED);
    PUMP(&b, NULL, recv.status != SL_PENDING);
    assert_int_equal(recv.status, -ECONNRESET);
    assert_int_equal(b.downs, 1);
    sl_shm_ops.close(a.iface);
    side_close(&b);
    free(from);
    free(to);
}

/* ---- withdrawn in the middle of a read ---- */

static _Atomic uint32_t *withdrawn_while; /* set while bytes are read, as its owner would */
static unsigned reads;

int __real_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);
int __wrap_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);

int __wrap_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len)
{
    int err = __real_shm_read_some(pid, addr, dst, len);

    reads++;
    if (withdrawn_while != NULL)
        atomic_store(withdrawn_while, 1);
    return err;
}

static unsigned fed;

static void feed(const struct sl_sink *sink, const void *bytes, size_t off, size_t len)
{
    (void)sink, (void)bytes, (void)off, (void)len;
    fed++;
}

/* The owner of the bytes lets them go, and may have written there before the read was over. */
static void what_is_withdrawn_during_a_read_is_not_used(void **state)
{
    struct sl_sink sink = {.len = LARGE, .tag = 4, .granule = 1, .consume = feed};
    uint8_t *from = calloc(1, LARGE);
    struct sl_req send = {0}, recv = {0};
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    fed = 0;
    assert_int_equal(side_send(&a, from, LARGE, 4, &send), 0);
    withdrawn_while = &inside(&a)->tx.offer->withdrawn;
    assert_int_equal(sl_shm_ops.recv(b.ep, &sink, &recv), 0);
    PUMP(&b, NULL, recv.status != SL_PENDING);
    withdrawn_while = NULL;
    assert_int_equal(recv.status, -ECONNRESET);
    assert_int_equal(fed, 0);
    side_close(&a);
    side_close(&b);
    free(from);
}

/* Whoever ends its endpoint says so in the ring, before it says so to the owner of the bytes; and nothing is read then. */
static void who_leaves_withdraws_what_it_lent(void **state)
{
    uint8_t *from = calloc(1, LARGE), *to = calloc(1, LARGE);
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    assert_int_equal(side_send(&a, from, LARGE, 1, &send), 0);
    assert_int_equal(atomic_load(&inside(&b)->rx.offer->withdrawn), 0);
    sl_shm_ops.ep_destroy(a.ep);
    assert_int_equal(send.status, -ECANCELED);
    assert_int_equal(atomic_load(&inside(&b)->rx.offer->withdrawn), 1);
    reads = 0;
    assert_int_equal(side_recv(&b, &sink, to, LARGE, 1, &recv), 0);
    PUMP(&b, NULL, recv.status != SL_PENDING);
    assert_int_equal(recv.status, -ECONNRESET);
    assert_int_equal(reads, 0);
    sl_shm_ops.close(a.iface);
    side_close(&b);
    free(from);
    free(to);
}

/* a's ring says that it lends len bytes at addr. */
static void lies(uint64_t addr, uint64_t len, const char *why)
{
    uint8_t *to = malloc(LARGE);
    struct sl_req recv = {0};
    struct sl_sink sink;
    struct side a, b;

    open_reading(&a, &b);
    struct shm_cell *cell = &inside(&a)->tx.cells[0];

    assert_int_equal(side_recv(&b, &sink, to, LARGE, 9, &recv), 0);
    cell->tag = 9;
    cell->len = len;
    cell->addr = addr;
    atomic_store(&cell->head, shm_cell_head(0, SHM_CELL_LENT, 0));
    PUMP(&b, NULL, recv.status != SL_PENDING);
    assert_int_equal(recv.status, -EBADMSG);
    assert_int_equal(b.down_status, -EBADMSG);
    assert_true(strstr(b.why, why) != NULL);
    side_close(&a);
    side_close(&b);
    free(to);
}

static void addresses_and_lengths_that_cannot_be_lose_the_peer(void **state)
{
    (void)state;
    lies(16, LARGE, "could not be read: Bad address");
    lies(UINT64_MAX - 100, LARGE, "impossible numbers");
    lies(4096, 0, "impossible numbers");
}

static void switched_off_nothing_is_lent(void **state)
{
    uint8_t *from = calloc(1, LARGE);
    struct sl_req send = {0};
    struct side a, b;
    char text[400];

    (void)state;
    side_read = SL_OFF;
    side_open(&a);
    side_open(&b);
    side_read = SL_AUTO;
    sides_connect(&a, &b);
    assert_int_equal(side_send(&a, from, LARGE, 1, &send), 1); /* the ring has room for it */
    sl_shm_ops.ep_describe(a.ep, text, sizeof(text));
    assert_true(strstr(text, "large by ring") != NULL);
    side_close(&a);
    side_close(&b);
    open_reading(&a, &b);
    sl_shm_ops.ep_describe(a.ep, text, sizeof(text));
    assert_true(strstr(text, "large by read") != NULL);
    side_close(&a);
    side_close(&b);
    free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_can_be_posted_arrive_in_order_among_small_ones),
        cmocka_unit_test(consume_gets_whole_elements_in_order),
        cmocka_unit_test(a_wrong_tag_or_length_drops_that_message_alone),
        cmocka_unit_test(what_its_sender_withdrew_is_not_delivered),
        cmocka_unit_test(what_is_withdrawn_during_a_read_is_not_used),
        cmocka_unit_test(who_leaves_withdraws_what_it_lent),
        cmocka_unit_test(addresses_and_lengths_that_cannot_be_lose_the_peer),
        cmocka_unit_test(switched_off_nothing_is_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
