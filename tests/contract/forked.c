/* SPDX-License-Identifier: Apache-2.0 */
/* Contract cases whose peer is another process; addresses and keys are swapped over a socket
 * pair. */
#include "core/err.h"
#include "tests/contract/pair.h"
#include "tests/contract/stage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/contract/cases.h"

#define CHILD 1

/* This process' end of a pair: side 0 is the parent's, side 1 the child's. */
struct half {
    struct pair p;
    unsigned mine;
    int sock;
    pid_t child; /* parent only */
};

static void swap(struct half *h, const void *give, void *take, size_t len)
{
    assert_int_equal(send(h->sock, give, len, MSG_NOSIGNAL), len);
    assert_int_equal(recv(h->sock, take, len, MSG_WAITALL), len);
}

static struct side *own(struct half *h)
{
    return &h->p.side[h->mine];
}

static void half_connect(struct half *h)
{
    struct sl_addr addr = {0}, peer;
    struct sl_req req = {.status = SL_PENDING};
    struct side *s = own(h);

    memset(&h->p, 0, sizeof(h->p));
    stage_reset();
    pair_open_side(&h->p, h->mine);
    assert_int_equal(contract_ops->ep_create(s->iface, &s->ep), 0);
    s->ep->peer = (int)!h->mine;
    assert_int_equal(contract_ops->ep_addr(s->ep, &addr), 0);
    swap(h, &addr, &peer, sizeof(addr));
    if (contract_ops->ep_connect(s->ep, &peer, &req) < 0)
        fail_msg("ep_connect: %s", sluice_last_error());
    PUMP_UNTIL(&h->p, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
}

/* Runs part(h) in a child, which passes when it gets to the end, and hands the parent's half
 * back. */
static void half_split(struct half *h, void (*part)(struct half *))
{
    int sock[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
    h->child = fork();
    assert_true(h->child >= 0);
    h->mine = h->child == 0 ? CHILD : 0;
    h->sock = sock[h->mine];
    close(sock[!h->mine]);
    if (h->child == 0) {
        /* A failed assertion here must end the child, not run the parent's other cases. */
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        alarm(60);
        part(h);
        _exit(0);
    }
}

static void half_end(struct half *h, bool killed)
{
    int status;

    pair_close(&h->p);
    close(h->sock);
    assert_int_equal(waitpid(h->child, &status, 0), h->child);
    if (killed)
        assert_true(WIFSIGNALED(status));
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Messages of seeded sizes in both directions, every fourth through consume. Sizes and order are
 * known to both sides from the tag. */
static size_t size_of(uint64_t tag)
{
    struct sl_rng rng;

    sl_rng_init(&rng, tag);
    return sl_rng_below(&rng, UINT64_C(1) << sl_rng_range(&rng, 0, 20));
}

static struct msg *next_recv(struct half *h, uint64_t tag)
{
    return tag % 4 == 0 ? msg_consume(own(h), size_of(tag), tag, 1, false)
                        : msg_recv(own(h), size_of(tag), tag);
}

static void traffic(struct half *h)
{
    enum { N = 200, OPEN = 16 };
    struct msg *send[N] = {0}, *recv[N] = {0};
    uint64_t mine = h->mine * 10000, theirs = 10000 - mine;

    for (unsigned i = 0; i < N + OPEN; i++) {
        if (i < N) {
            recv[i] = next_recv(h, theirs + i);
            send[i] = msg_send(own(h), size_of(mine + i), mine + i);
            post_recv(&h->p, recv[i], NULL);
            post_send(&h->p, send[i], NULL);
        }
        if (i < OPEN)
            continue;
        PUMP_UNTIL(&h->p, recv[i - OPEN]->ended && send[i - OPEN]->ended);
        msg_check_received(recv[i - OPEN]);
        msg_check_ended(send[i - OPEN], 0);
        msg_free(recv[i - OPEN]);
        msg_free(send[i - OPEN]);
    }
}

/* Both sides are here: nothing that either sent is still needed. */
static void meet(struct half *h)
{
    struct msg *send = msg_send(own(h), 1, 5), *recv = msg_recv(own(h), 1, 5);

    post_recv(&h->p, recv, NULL);
    post_send(&h->p, send, NULL);
    PUMP_UNTIL(&h->p, recv->ended && send->ended);
    msg_check_received(recv);
    msg_free(send);
    msg_free(recv);
}

static void child_traffic(struct half *h)
{
    half_connect(h);
    traffic(h);
    meet(h);
    /* The parent closes first: its loss must be a report here, never a signal or a crash. */
    PUMP_UNTIL(&h->p, own(h)->downs == 1);
    pair_close(&h->p);
}

static void processes_swap_messages(void **state)
{
    struct half h = {0};

    (void)state;
    half_split(&h, child_traffic);
    half_connect(&h);
    traffic(&h);
    meet(&h);
    half_end(&h, false);
}

struct shared_note {
    _Atomic uint32_t flag;
    uint32_t value[1000];
};

static void child_maps(struct half *h)
{
    struct sl_key key, none = {0};
    struct shared_note *note;
    void *ptr;
    int rc = 0;

    half_connect(h);
    swap(h, &none, &key, sizeof(key));
    PUMP_UNTIL(&h->p, (rc = contract_ops->map(own(h)->ep, &key, sizeof(*note), &ptr)) != -EAGAIN);
    assert_int_equal(rc, 0);
    note = ptr;
    PUMP_UNTIL(&h->p, atomic_load_explicit(&note->flag, memory_order_acquire) == 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(note->value[i], i * 3);
        note->value[i] = i * 5;
    }
    atomic_store_explicit(&note->flag, 2, memory_order_release);
    sl_ep_wake(own(h)->ep);
    meet(h);
    pair_close(&h->p);
}

static void processes_share_a_mapped_region(void **state)
{
    struct half h = {0};
    struct sl_mem mem;
    struct sl_key key = {0}, none;
    struct sl_mr *mr = NULL;
    struct shared_note *note;

    (void)state;
    half_split(&h, child_maps);
    half_connect(&h);
    assert_int_equal(contract_ops->mem_alloc(own(&h)->iface, sizeof(*note), sizeof(*note), &mem),
                     0);
    assert_int_equal(contract_ops->mr_reg(own(&h)->iface, &mem, &mr, &key), 0);
    swap(&h, &key, &none, sizeof(key));
    note = mem.addr;
    for (uint32_t i = 0; i < 1000; i++)
        note->value[i] = i * 3;
    atomic_store_explicit(&note->flag, 1, memory_order_release);
    sl_ep_wake(own(&h)->ep);
    PUMP_UNTIL(&h.p, atomic_load_explicit(&note->flag, memory_order_acquire) == 2);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(note->value[i], i * 5);
    meet(&h);
    contract_ops->mr_dereg(own(&h)->iface, mr);
    contract_ops->mem_free(own(&h)->iface, &mem);
    half_end(&h, false);
}

static void child_lends(struct half *h)
{
    uint8_t *lent = malloc(500000);
    uint64_t addr = (uintptr_t)lent, none;

    half_connect(h);
    for (size_t i = 0; i < 500000; i++)
        lent[i] = (uint8_t)(i * 13 + (i >> 8));
    swap(h, &addr, &none, sizeof(addr));
    meet(h);
    pair_close(&h->p);
    free(lent);
}

static void a_process_reads_the_memory_of_another(void **state)
{
    struct sl_req req = {.status = SL_PENDING};
    uint64_t addr = 0, none = 0;
    uint8_t *to = calloc(1, 500000);
    struct half h = {0};
    int rc = 0;

    (void)state;
    half_split(&h, child_lends);
    half_connect(&h);
    swap(&h, &none, &addr, sizeof(addr));
    PUMP_UNTIL(&h.p, (rc = contract_ops->read(own(&h)->ep, addr, to, 500000, &req)) != -EAGAIN);
    assert_true(rc >= 0);
    PUMP_UNTIL(&h.p, req.status != SL_PENDING);
    assert_int_equal(req.status, 0);
    for (size_t i = 0; i < 500000; i++)
        assert_int_equal(to[i], (uint8_t)(i * 13 + (i >> 8)));
    free(to);
    meet(&h);
    half_end(&h, false);
}

static void child_sends_for_ever(struct half *h)
{
    half_connect(h);
    for (uint64_t tag = 0;; tag++) {
        struct msg *send = msg_send(own(h), 100000, tag);

        post_send(&h->p, send, NULL);
        PUMP_UNTIL(&h->p, send->ended);
        msg_free(send);
    }
}

/* 20 MB of receives: more than any transport keeps for a receiver that is not there. */
#define KILL_WAITS 200

static void a_killed_process_is_reported_once_and_ends_what_waits(void **state)
{
    struct half h = {0};
    struct msg *recv, *waits[KILL_WAITS];

    (void)state;
    half_split(&h, child_sends_for_ever);
    half_connect(&h);
    for (uint64_t tag = 0; tag < 20; tag++) {
        recv = msg_recv(own(&h), 100000, tag);
        post_recv(&h.p, recv, NULL);
        PUMP_UNTIL(&h.p, recv->ended);
        msg_check_received(recv);
        msg_free(recv);
    }
    assert_int_equal(kill(h.child, SIGKILL), 0);
    /* More than can have been sent: the last of them must end with an error. */
    for (unsigned i = 0; i < KILL_WAITS; i++) {
        int rc = 0;

        waits[i] = msg_recv(own(&h), 100000, 20 + i);
        PUMP_UNTIL(&h.p, (rc = try_recv(waits[i], NULL)) != -EAGAIN);
        if (rc < 0) {
            waits[i]->ended = 1;
            waits[i]->req.status = rc;
        }
    }
    for (unsigned i = 0; i < KILL_WAITS; i++)
        PUMP_UNTIL(&h.p, waits[i]->ended);
    PUMP_UNTIL(&h.p, own(&h)->downs > 0);
    assert_int_equal(own(&h)->downs, 1);
    assert_int_equal(own(&h)->down_status, -ECONNRESET);
    assert_true(waits[KILL_WAITS - 1]->req.status < 0);
    for (unsigned i = 0; i < KILL_WAITS; i++) {
        assert_int_equal(waits[i]->ended, 1);
        msg_free(waits[i]);
    }
    half_end(&h, true);
}

int contract_forked_cases(void)
{
    static const struct contract_case cases[] = {
        {0, cmocka_unit_test(processes_swap_messages)},
        {SL_CAP_MAP, cmocka_unit_test(processes_share_a_mapped_region)},
        {SL_CAP_READ, cmocka_unit_test(a_process_reads_the_memory_of_another)},
        {0, cmocka_unit_test(a_killed_process_is_reported_once_and_ends_what_waits)},
    };

    return contract_run(cases, SL_ARRAY_LEN(cases));
}
