/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages that are lent, and read out of the sender's memory. */
#include "shm/ring.h"
#include "tests/unit/shm/side.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

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

static struct shm_cell *withdrawn_while; /* while its bytes are read, as their owner would */
static void (*dies_while)(
    void); /* what the kernel does when the owner dies, while bytes are read */
static struct side *closes_while;
static int error_after_death;
static unsigned reads;

int __real_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);
int __wrap_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len);

int __wrap_shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len)
{
    int err = __real_shm_read_some(pid, addr, dst, len);

    reads++;
    if (withdrawn_while != NULL)
        atomic_store(&withdrawn_while->head,
                     shm_cell_head(0, SHM_CELL_WITHDRAWN, SHM_WITHDRAWN_ALL, 0));
    if (closes_while != NULL)
        sl_shm_ops.channel_close(closes_while->ep, 3);
    closes_while = NULL;
    if (dies_while != NULL) {
        dies_while();
        return error_after_death;
    }
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
    withdrawn_while = &inside(&a)->tx.cells[0];
    assert_int_equal(sl_shm_ops.recv(b.ep, &sink, &recv), 0);
    PUMP(&b, NULL, recv.status != SL_PENDING);
    withdrawn_while = NULL;
    assert_int_equal(recv.status, -ECONNRESET);
    assert_int_equal(fed, 0);
    side_close(&a);
    side_close(&b);
    free(from);
}

/* ---- one channel of several takes back what it lent ---- */

/* As above, but its owner closes the channel: the endpoint and other channels go on. */
static void what_a_closed_channel_lent_is_not_used(void **state)
{
    static const char word[] = "behind it";
    struct sl_sink sink[3] = {{.len = LARGE, .tag = 4, .granule = 1, .channel = 3, .consume = feed},
                              {.len = LARGE, .tag = 5, .granule = 1, .channel = 3, .consume = feed},
                              {.len = sizeof(word), .tag = 6, .channel = 3}};
    uint8_t *from = calloc(1, LARGE), got[sizeof(word)];
    struct side a, b;

    (void)state;
    for (int while_read = 0; while_read < 2; while_read++) {
        struct sl_req send[3] = {0}, recv[3] = {0};

        open_reading(&a, &b);
        assert_int_equal(sl_shm_ops.channel_open(a.ep, 3), 0);
        assert_int_equal(sl_shm_ops.channel_open(b.ep, 3), 0);
        fed = reads = 0;
        sink[2].dst = got;
        for (unsigned i = 0; i < 3; i++) {
            struct sl_buf buf = {
                .addr = i < 2 ? (const void *)from : word, .len = sink[i].len, .channel = 3};

            assert_true(sl_shm_ops.send(a.ep, &buf, 4 + i, &send[i]) >= 0);
        }
        if (while_read)
            closes_while = &a;
        else
            sl_shm_ops.channel_close(a.ep, 3);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(sl_shm_ops.recv(b.ep, &sink[i], &recv[i]), 0);
        PUMP(&b, NULL, recv[2].status != SL_PENDING);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(send[i].status, -ECANCELED);
            assert_int_equal(recv[i].status, -ECANCELED);
            assert_int_equal(recv[i].tag, 4 + i);
        }
        assert_int_equal(reads, while_read);
        assert_int_equal(fed, 0);
        assert_int_equal(recv[2].status, 0); /* it was whole, and meets its own receive */
        assert_memory_equal(got, word, sizeof(word));
        assert_int_equal(b.downs, 0);
        side_close(&a);
        side_close(&b);
    }
    free(from);
}

/* Whoever ends its endpoint says so in the ring, before it says so to the owner of the bytes; and
 * nothing is read then. */
static void who_leaves_withdraws_what_it_lent(void **state)
{
    uint8_t *from = calloc(1, LARGE), *to = calloc(1, LARGE);
    struct sl_req send = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    assert_int_equal(side_send(&a, from, LARGE, 1, &send), 0);
    assert_int_equal(shm_cell_kind(shm_next_head(inside(&b))), SHM_CELL_LENT);
    sl_shm_ops.ep_destroy(a.ep);
    assert_int_equal(send.status, -ECANCELED);
    assert_int_equal(shm_cell_kind(shm_next_head(inside(&b))), SHM_CELL_WITHDRAWN);
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

/* ---- the owner's process dies in the middle of a read, and its pid is somebody else's ---- */

static struct side *reader, *dying;

/* The socket's other end is closed. */
static void hangs_up(void)
{
    shutdown(inside(dying)->source.fd, SHUT_RDWR);
}

/* A child of the dead holds the socket: the pidfd alone knows. */
static void ends(void)
{
    int ended = eventfd(1, EFD_CLOEXEC);

    assert_true(ended >= 0);
    assert_int_equal(dup2(ended, inside(reader)->death.fd), inside(reader)->death.fd);
    close(ended);
}

/* What was read may be of the process that has the pid now, or nothing, where that has no such
 * address. */
static void dies(void (*how)(void), int error)
{
    struct sl_sink sink = {.len = SHM_LARGE_MIN, .tag = 4, .granule = 1, .consume = feed};
    uint8_t *from = calloc(1, SHM_LARGE_MIN);
    struct sl_req send = {0}, recv = {0};
    struct side a, b;

    open_reading(&a, &b);
    dying = &a;
    reader = &b;
    fed = 0;
    assert_int_equal(side_send(&a, from, SHM_LARGE_MIN, 4, &send), 0);
    assert_int_equal(sl_shm_ops.recv(b.ep, &sink, &recv), 0);
    dies_while = how;
    error_after_death = error;
    PUMP(&b, NULL, recv.status != SL_PENDING);
    dies_while = NULL;
    assert_int_equal(recv.status, -ECONNRESET);
    assert_int_equal(fed, 0);
    assert_int_equal(b.down_status, -ECONNRESET);
    assert_string_equal(b.why, "its process is gone");
    side_close(&a);
    side_close(&b);
    free(from);
}

static void bytes_of_who_has_a_dead_peers_pid_are_not_used(void **state)
{
    (void)state;
    dies(hangs_up, 0);
    dies(hangs_up, -EFAULT);
    dies(ends, 0);
    dies(ends, -EFAULT);
}

static void a_direct_read_of_a_dead_peer_fails(void **state)
{
    uint64_t word = 5, got = 0;
    struct sl_req req = {0};
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    assert_int_equal(sl_shm_ops.read(b.ep, (uintptr_t)&word, &got, sizeof(got), &req), 1);
    assert_int_equal(got, 5);
    dying = &a;
    hangs_up();
    assert_int_equal(sl_shm_ops.read(b.ep, (uintptr_t)&word, &got, sizeof(got), &req), -ECONNRESET);
    side_close(&a);
    side_close(&b);
}

/* ---- how long bytes are lent ---- */

/* Two messages are lent, the peer takes the first: the second is its own until it takes that,
 * too. */
static void a_lent_message_ends_when_its_own_cell_is_taken(void **state)
{
    uint8_t *from = calloc(1, LARGE), *to = calloc(1, LARGE);
    struct sl_req send[2] = {0}, recv = {0};
    struct sl_sink sink;
    struct side a, b;
    int rc = -EAGAIN;

    (void)state;
    open_reading(&a, &b);
    for (int i = 0; i < 2; i++)
        assert_int_equal(side_send(&a, from, LARGE, 1, &send[i]), 0);
    for (int taken = 0; taken < 2; taken++) {
        for (int i = 0; i < 1000; i++)
            sl_shm_ops.progress(a.iface, 64);
        assert_int_equal(send[taken].status, SL_PENDING);
        /* Nor is there anything to do, which would keep its owner awake. */
        assert_false(shm_ep_ready(inside(&a)));
        PUMP(&a, NULL, (rc = shm_arm(a.iface)) != -EAGAIN);
        assert_int_equal(rc, 0);
        shm_disarm(a.iface);
        assert_true(side_recv(&b, &sink, to, LARGE, 1, &recv) >= 0);
        PUMP(&b, NULL, recv.status != SL_PENDING);
        if (taken == 0) {
            assert_true(shm_ep_ready(inside(&a)));
            PUMP(&a, NULL, send[0].status == 0);
        }
    }
    sl_shm_ops.ep_destroy(a.ep); /* it was taken, though its owner had not looked yet */
    assert_int_equal(send[1].status, 0);
    sl_shm_ops.close(a.iface);
    side_close(&b);
    free(from);
    free(to);
}

/* Nothing of a lent message stays: what comes next is read from the ring, also by a receive that
 * waits for it. */
static void a_small_message_may_follow_a_lent_one(void **state)
{
    uint8_t *from = calloc(1, LARGE), *to = calloc(1, LARGE);
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    for (int i = 0; i < 4; i++) {
        size_t len = i % 2 == 0 ? LARGE : 8;
        struct sl_req send = {0}, recv = {0};
        struct sl_sink sink;

        fill(from, len, (unsigned)i);
        assert_int_equal(side_recv(&b, &sink, to, len, 1, &recv), 0);
        assert_true(side_send(&a, from, len, 1, &send) >= 0);
        PUMP(&a, &b, recv.status != SL_PENDING);
        assert_int_equal(recv.status, 0);
        assert_memory_equal(from, to, len);
    }
    side_close(&a);
    side_close(&b);
    free(from);
    free(to);
}

/* A peer that leaves will not read what is lent to it: what it sent does not put its loss off. */
static void a_peer_that_leaves_without_having_read_is_lost_at_once(void **state)
{
    uint8_t *from = calloc(1, LARGE);
    struct sl_req send = {0}, small = {0};
    struct side a, b;

    (void)state;
    open_reading(&a, &b);
    assert_int_equal(side_send(&a, from, LARGE, 1, &send), 0);
    assert_int_equal(side_send(&b, "unread", 6, 1, &small), 1);
    sl_shm_ops.ep_destroy(b.ep);
    PUMP(&a, NULL, send.status != SL_PENDING);
    assert_int_equal(send.status, -ECONNRESET);
    assert_int_equal(a.downs, 1);
    sl_shm_ops.close(b.iface);
    side_close(&a);
    free(from);
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
    atomic_store(&cell->head, shm_cell_head(0, SHM_CELL_LENT, 0, 0));
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
        cmocka_unit_test(what_a_closed_channel_lent_is_not_used),
        cmocka_unit_test(who_leaves_withdraws_what_it_lent),
        cmocka_unit_test(bytes_of_who_has_a_dead_peers_pid_are_not_used),
        cmocka_unit_test(a_direct_read_of_a_dead_peer_fails),
        cmocka_unit_test(a_lent_message_ends_when_its_own_cell_is_taken),
        cmocka_unit_test(a_small_message_may_follow_a_lent_one),
        cmocka_unit_test(a_peer_that_leaves_without_having_read_is_lost_at_once),
        cmocka_unit_test(addresses_and_lengths_that_cannot_be_lose_the_peer),
        cmocka_unit_test(switched_off_nothing_is_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
