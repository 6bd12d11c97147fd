/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes: death, stops, and sleepers that must not miss a message. */
#include "tests/unit/shm/side.h"

#include "core/rng.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct peer {
    pid_t pid;
    int socket; /* addresses, and whatever the story needs */
};

/* In the child a failure is an exit status. */
static void must(int ok)
{
    if (!ok)
        _exit(3);
}

static void connect_over(struct side *s, int socket)
{
    struct sl_addr theirs;
    uint64_t end = test_now() + TEST_DEADLINE_NS;

    must(write(socket, &s->addr, sizeof(s->addr)) == (ssize_t)sizeof(s->addr));
    must(read(socket, &theirs, sizeof(theirs)) == (ssize_t)sizeof(theirs));
    must(sl_shm_ops.ep_connect(s->ep, &theirs, &s->connected) == 0);
    while (s->connected.status == SL_PENDING && test_now() < end)
        sl_shm_ops.progress(s->iface, 64);
    must(s->connected.status == 0);
}

/* Runs story in a child that is connected to s. */
static struct peer start(struct side *s, void (*story)(struct side *, int socket))
{
    struct peer peer;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fflush(NULL);
    peer.pid = fork();
    assert_true(peer.pid >= 0);
    if (peer.pid == 0) {
        struct side mine;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        side_open(&mine);
        connect_over(&mine, pair[1]);
        story(&mine, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    peer.socket = pair[0];
    side_open(s);
    connect_over(s, peer.socket);
    return peer;
}

static void finish(struct peer *peer, int status)
{
    int got = 0;

    assert_int_equal(waitpid(peer->pid, &got, 0), peer->pid);
    assert_int_equal(got, status);
    close(peer->socket);
}

static void sit(struct side *s, int socket)
{
    char byte;

    (void)s;
    must(read(socket, &byte, 1) >= 0); /* until the parent lets go */
}

static void tell(int socket)
{
    must(write(socket, "!", 1) == 1);
}

static void hear(int socket)
{
    char byte;

    assert_int_equal(read(socket, &byte, 1), 1);
}

/* The kernel has taken it down, which may take long: a sanitizer's process has much memory. */
static void await_death(pid_t pid)
{
    siginfo_t info;

    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void a_death_is_noticed_within_ten_milliseconds(void **state)
{
    uint64_t best = SL_NEVER;

    (void)state;
    /* The best of some tries: the machine may be busy with something else. */
    for (unsigned i = 0; i < 10; i++) {
        struct sl_req recv = {0};
        struct sl_sink sink;
        uint64_t dead;
        struct side s;
        struct peer peer = start(&s, sit);
        char to[8];

        assert_int_equal(side_recv(&s, &sink, to, sizeof(to), 1, &recv), 0);
        kill(peer.pid, SIGKILL);
        await_death(peer.pid);
        dead = test_now();
        PUMP(&s, NULL, recv.status != SL_PENDING);
        assert_int_equal(recv.status, -ECONNRESET);
        assert_int_equal(s.downs, 1);
        assert_string_equal(s.why, "its process is gone");
        if (s.down_ns - dead < best)
            best = s.down_ns - dead;
        finish(&peer, SIGKILL);
        side_close(&s);
    }
    assert_true(best < 10 * SL_NS_PER_MS);
}

/* The child forks a grandchild, which inherits its sockets, and lives on after it. */
static void leave_an_orphan(struct side *s, int socket)
{
    (void)s;
    pid_t orphan = fork();

    if (orphan == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        sit(s, socket);
        _exit(0);
    }
    must(orphan > 0);
    tell(socket);
    for (;;)
        pause();
}

static void a_kill_is_noticed_though_a_child_of_the_dead_holds_its_sockets(void **state)
{
    struct side s;
    struct peer peer = start(&s, leave_an_orphan);

    (void)state;
    hear(peer.socket);
    kill(peer.pid, SIGKILL);
    PUMP(&s, NULL, s.downs == 1);
    assert_int_equal(s.down_status, -ECONNRESET);
    finish(&peer, SIGKILL); /* closes the socket, which ends the orphan */
    side_close(&s);
}

enum { LAST_WORDS = 20 };

static void say_and_die(struct side *s, int socket)
{
    static uint8_t big[100000];
    struct sl_req req;

    memset(big, 0x77, sizeof(big));
    for (uint64_t i = 0; i < LAST_WORDS; i++)
        must(side_send(s, &i, sizeof(i), i, &req) == 1);
    must(side_send(s, big, sizeof(big), 99, &req) == 1);
    (void)socket;
    raise(SIGKILL);
}

static void what_was_sent_before_a_death_is_delivered(void **state)
{
    static uint8_t big[100000];
    struct sl_req recv[LAST_WORDS + 2] = {0};
    struct sl_sink sink[LAST_WORDS + 2];
    uint64_t got[LAST_WORDS];
    struct peer peer;
    struct side s;

    (void)state;
    /* By the ring alone: a message that is lent is not sent before it is read, so its sender must
     * live. */
    side_read = SL_OFF;
    peer = start(&s, say_and_die);
    side_read = SL_AUTO;
    finish(&peer, SIGKILL);
    for (unsigned i = 0; i < LAST_WORDS; i++)
        assert_true(side_recv(&s, &sink[i], &got[i], sizeof(got[i]), i, &recv[i]) >= 0);
    PUMP(&s, NULL, s.downs == 1);
    for (unsigned i = 0; i < LAST_WORDS; i++) {
        assert_int_equal(recv[i].status, 0);
        assert_int_equal(got[i], i);
    }
    /* Even after the loss was told, what lies in the ring is still there. */
    assert_int_equal(side_recv(&s, &sink[LAST_WORDS], big, sizeof(big), 99, &recv[LAST_WORDS]), 1);
    assert_int_equal(big[77777], 0x77);
    assert_int_equal(side_recv(&s, &sink[0], big, sizeof(big), 99, &recv[0]), -ECONNRESET);
    side_close(&s);
}

static void lend_and_sit(struct side *s, int socket)
{
    static uint8_t big[16u << 20];
    uint64_t end = test_now() + TEST_DEADLINE_NS;
    struct sl_req req;

    /* The other side offers to read once it is up, which may be a little later than this one. */
    while (atomic_load(&inside(s)->tx.offer->reads) == 0 && test_now() < end)
        sl_shm_ops.progress(s->iface, 64);
    must(side_send(s, big, sizeof(big), 1, &req) == 0);
    sit(s, socket);
}

static void a_kill_of_a_sender_whose_bytes_are_being_read_loses_it(void **state)
{
    static uint8_t to[16u << 20];
    struct sl_req recv = {0};
    struct sl_sink sink;
    struct peer peer;
    struct side s;

    (void)state;
    side_read = SL_ON;
    peer = start(&s, lend_and_sit);
    side_read = SL_AUTO;
    if (inside(&s)->read_state == 1) {
        assert_int_equal(side_recv(&s, &sink, to, sizeof(to), 1, &recv), 0);
        PUMP(&s, NULL, inside(&s)->rx_lent && inside(&s)->rx_off > 0);
        assert_int_equal(recv.status, SL_PENDING);
        kill(peer.pid, SIGKILL);
        finish(&peer, SIGKILL);
        PUMP(&s, NULL, recv.status != SL_PENDING);
        assert_int_equal(recv.status, -ECONNRESET);
        assert_int_equal(s.downs, 1);
        assert_string_equal(s.why, "its process is gone");
        side_close(&s);
        return;
    }
    kill(peer.pid, SIGKILL);
    finish(&peer, SIGKILL);
    side_close(&s);
    print_message("memory of other processes cannot be read here\n");
    skip();
}

static void send_when_woken(struct side *s, int socket)
{
    uint64_t word = 5;
    struct sl_req req;

    must(side_send(s, &word, sizeof(word), 5, &req) == 1);
    sit(s, socket);
}

static void a_stopped_peer_is_not_a_lost_one(void **state)
{
    struct sl_req recv = {0}, second = {0};
    struct sl_sink sink, sink2;
    uint64_t word = 0, end;
    struct side s;
    struct peer peer = start(&s, send_when_woken);
    int status;

    (void)state;
    assert_true(side_recv(&s, &sink, &word, sizeof(word), 5, &recv) >= 0);
    PUMP(&s, NULL, recv.status != SL_PENDING);
    kill(peer.pid, SIGSTOP);
    assert_int_equal(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(side_recv(&s, &sink2, &word, sizeof(word), 6, &second), 0);
    /* Many times as long as a death takes to be seen. */
    for (end = test_now() + 100 * SL_NS_PER_MS; test_now() < end;)
        sl_shm_ops.progress(s.iface, 64);
    assert_int_equal(s.downs, 0);
    assert_int_equal(second.status, SL_PENDING);
    kill(peer.pid, SIGCONT);
    tell(peer.socket);
    finish(&peer, 0);
    side_close(&s);
}

enum { ROUNDS = 20000 };

/* Waits for req as a parked rank does: a few polls, then sleep. A lost wake-up shows as a sleep
 * that does not end. */
static bool park_for(struct side *s, struct sl_req *req, unsigned polls, unsigned *slept)
{
    uint64_t end = test_now() + TEST_DEADLINE_NS;

    while (req->status == SL_PENDING) {
        struct pollfd p = {.fd = sl_shm_ops.fd(s->iface), .events = POLLIN};

        for (unsigned i = 0; i < polls && req->status == SL_PENDING; i++)
            sl_shm_ops.progress(s->iface, 64);
        if (req->status != SL_PENDING)
            break;
        if (test_now() > end || s->downs > 0)
            return false;
        if (sl_shm_ops.arm(s->iface) != 0)
            continue;
        if (poll(&p, 1, 5000) <= 0)
            return false;
        (*slept)++;
        sl_shm_ops.disarm(s->iface);
    }
    return req->status == 0;
}

static bool play(struct side *s, bool first, unsigned *slept)
{
    struct sl_rng rng;

    sl_rng_init(&rng, first ? 1 : 2);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct sl_req send = {0}, recv = {0};
        struct sl_sink sink;
        uint64_t got = 0;

        if (first && side_send(s, &i, sizeof(i), i, &send) != 1)
            return false;
        if (side_recv(s, &sink, &got, sizeof(got), i, &recv) < 0)
            return false;
        if (!park_for(s, &recv, 1 + (unsigned)sl_rng_below(&rng, 20), slept) || got != i)
            return false;
        if (!first && side_send(s, &i, sizeof(i), i, &send) != 1)
            return false;
    }
    return true;
}

static void play_second(struct side *s, int socket)
{
    unsigned slept = 0;

    must(play(s, false, &slept));
    sit(s, socket);
}

static void play_second_without_barrier(struct side *s, int socket)
{
    shm_iface_of(s->iface)->barrier = false;
    play_second(s, socket);
}

static void sleepers_miss_no_message(void **state)
{
    unsigned slept = 0;
    struct side s;
    struct peer peer = start(&s, play_second);

    (void)state;
    assert_true(play(&s, true, &slept));
    assert_true(slept > 0);
    tell(peer.socket);
    finish(&peer, 0);
    side_close(&s);
}

static void sleepers_miss_no_message_where_membarrier_is_missing(void **state)
{
    unsigned slept = 0;
    struct side s;
    struct peer peer = start(&s, play_second_without_barrier);

    (void)state;
    shm_iface_of(s.iface)->barrier = false;
    assert_true(play(&s, true, &slept));
    tell(peer.socket);
    finish(&peer, 0);
    side_close(&s);
}

static bool is_mapped(const void *at)
{
    return msync((void *)((uintptr_t)at & ~(uintptr_t)4095), 4096, MS_ASYNC) == 0;
}

static bool child_has(const void *at)
{
    int status;

    fflush(NULL);
    pid_t child = fork();

    if (child == 0)
        _exit(is_mapped(at));
    assert_int_equal(waitpid(child, &status, 0), child);
    return status != 0;
}

/* Memory of ours that no child shall have. */
static bool can_be_kept_from_children(void)
{
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(page != MAP_FAILED);
    bool kept = madvise(page, 4096, MADV_DONTFORK) == 0 && !child_has(page);

    munmap(page, 4096);
    return kept;
}

/* It would keep the peer's memory, and could write there what its parent never sent. */
static void a_forked_child_maps_nothing_of_a_peer(void **state)
{
    struct side a, b;

    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("the sanitizer's memory in a child may lie where the peer's was\n");
    skip();
#endif
    if (!can_be_kept_from_children()) {
        print_message("children of an emulated process have all of its memory\n");
        skip();
    }
    side_open(&a);
    side_open(&b);
    sides_connect(&a, &b);
    for (unsigned i = 0; i < 2; i++) {
        const struct shm_ep *ep = inside(i == 0 ? &a : &b);

        assert_true(is_mapped(ep->segment.base) && is_mapped(ep->peer_page));
        assert_false(child_has(ep->segment.base) || child_has(ep->peer_page));
    }
    side_close(&a);
    side_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_noticed_within_ten_milliseconds),
        cmocka_unit_test(a_kill_is_noticed_though_a_child_of_the_dead_holds_its_sockets),
        cmocka_unit_test(what_was_sent_before_a_death_is_delivered),
        cmocka_unit_test(a_kill_of_a_sender_whose_bytes_are_being_read_loses_it),
        cmocka_unit_test(a_stopped_peer_is_not_a_lost_one),
        cmocka_unit_test(a_forked_child_maps_nothing_of_a_peer),
        cmocka_unit_test(sleepers_miss_no_message),
        cmocka_unit_test(sleepers_miss_no_message_where_membarrier_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
