/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that share endpoints: how many there are, what each keeps for itself, what happens to
 * all, and what a peer may say about their channels. */
#include "tests/unit/nccl/ends.h"
#include "tests/unit/nccl/over.h"
#ifdef OVER_FAKE_RAILS
#include "tests/fake/fake_ibv.h"
#endif
#include "tools/nccl/flow.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <cmocka.h>

#define MANY 8u
#define BIG (3u << 20)

static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

/* Connections of one context to itself; e[0] has the context. */
static void make(struct ends *e, unsigned count, unsigned flows)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", flows);
    setenv("SLUICE_NCCL_FLOWS", text, 1);
    memset(e, 0, count * sizeof(*e));
    for (unsigned i = 0; i < count; i++) {
        e[i].ctx = i == 0 ? ends_open_ctx() : e[0].ctx;
        ends_listen(&e[i]);
        ends_meet(&e[i]);
        assert_int_equal(net->close_listen(e[i].listen), SL_NCCL_SUCCESS);
        e[i].listen = NULL;
    }
    unsetenv("SLUICE_NCCL_FLOWS");
}

static void part(struct ends *e, unsigned count)
{
    while (count-- > 0) {
        if (count > 0)
            e[count].ctx = NULL;
        ends_part(&e[count]);
    }
}

static void carry(struct ends *e, uint64_t seed)
{
    static uint8_t in[70000], out[sizeof(in)];
    void *recv = ends_irecv(e, out, sizeof(out), 1);

    ends_fill(in, sizeof(in), seed);
    ends_finish_both(ends_isend(e, in, sizeof(in), 1), NULL, recv, NULL);
    assert_memory_equal(in, out, sizeof(in));
}

/* Descriptors, and queue pairs. */
static unsigned held(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
#ifdef OVER_FAKE_RAILS
    count += 1024 * fake_ibv_live_of(rails_fake, FAKE_IBV_QP);
#endif
    return count;
}

static unsigned held_by(unsigned connections, unsigned flows)
{
    struct ends e[MANY];
    unsigned count;

    make(e, connections, flows);
    count = held();
    for (unsigned i = 0; i < connections; i++)
        carry(&e[i], i);
    part(e, connections);
    return count;
}

static void there_are_as_many_endpoints_as_are_set_and_not_more(void **state)
{
    unsigned two = held_by(2, 2), all = held_by(MANY, MANY);

    (void)state;
    assert_int_equal(held_by(2, MANY), two);
    assert_int_equal(held_by(MANY, 2), two);
    assert_true(all > two);
}

static unsigned listeners(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        socklen_t len = sizeof(int);
        int listens = 0;

        count += getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens != 0;
    }
    return count;
}

/* The endpoints are found again by whoever connects later (above). */
static void the_engine_does_not_listen_on_for_its_endpoints(void **state)
{
    struct ends e[3];
    unsigned before;

    (void)state;
    make(e, 2, 1);
    before = listeners();
    e[2] = (struct ends){.ctx = e[0].ctx};
    ends_listen(&e[2]);
    assert_true(listeners() > before);
    ends_meet(&e[2]);
    assert_int_equal(net->close_listen(e[2].listen), SL_NCCL_SUCCESS);
    e[2].listen = NULL;
    assert_int_equal(listeners(), before);
    carry(&e[2], 1);
    part(e, 3);
}

/* Receives in one order, sends in another, two of different length on each. */
static void each_connection_has_an_order_of_its_own(void **state)
{
    static const size_t lens[2] = {8, 200000};
    static uint8_t in[MANY][2][200000], out[MANY][2][200000];
    void *recvs[MANY][2], *sends[MANY][2];
    struct ends e[MANY];

    (void)state;
    make(e, MANY, 1);
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < MANY; i++)
            recvs[i][k] = ends_irecv(&e[i], out[i][k], lens[k], (int)k);
    for (unsigned i = MANY; i-- > 0;)
        for (unsigned k = 0; k < 2; k++) {
            ends_fill(in[i][k], lens[k], 10 * i + k);
            sends[i][k] = ends_isend(&e[i], in[i][k], lens[k], (int)k);
        }
    for (unsigned i = 0; i < MANY; i++)
        for (unsigned k = 0; k < 2; k++) {
            ends_finish_both(sends[i][k], NULL, recvs[i][k], NULL);
            assert_memory_equal(in[i][k], out[i][k], lens[k]);
        }
    part(e, MANY);
}

static enum sl_nccl_result test_until_failed(void *request)
{
    enum sl_nccl_result result = SL_NCCL_SUCCESS;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int done = 0;

    while (result == SL_NCCL_SUCCESS && !done && ends_now() < end)
        result = net->test(request, &done, NULL);
    assert_false(done);
    return result;
}

static enum sl_nccl_result send_until_failed(struct ends *e)
{
    enum sl_nccl_result result = SL_NCCL_SUCCESS;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    static uint8_t bytes[8];
    void *request = NULL;

    while (result == SL_NCCL_SUCCESS && request == NULL && ends_now() < end)
        result = net->isend(e->send, bytes, sizeof(bytes), 1, NULL, NULL, &request);
    assert_null(request);
    return result;
}

static void a_connection_that_is_closed_ends_alone(void **state)
{
    static uint8_t in[60000], out[sizeof(in)];
    struct ends e[4];
    void *send, *recv, *idle;

    (void)state;
    make(e, 4, 1);
    idle = ends_irecv(&e[1], out, 100, 1);
    assert_int_equal(net->close_send(e[1].send), SL_NCCL_SUCCESS);
    e[1].send = NULL;
    assert_int_equal(test_until_failed(idle), SL_NCCL_REMOTE_ERROR);
    if (strstr(ends_warning, "has closed it") == NULL)
        fail_msg("why it ended is not said: %s", ends_warning);
    ends_fill(in, sizeof(in), 3);
    recv = ends_irecv(&e[2], out, sizeof(out), 1);
    send = ends_isend(&e[2], in, sizeof(in), 1);
    ends_finish(send, NULL);
    assert_int_equal(net->close_send(e[2].send), SL_NCCL_SUCCESS); /* and yet it arrives */
    e[2].send = NULL;
    ends_finish(recv, NULL);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(net->close_recv(e[3].recv), SL_NCCL_SUCCESS);
    e[3].recv = NULL;
    assert_int_equal(send_until_failed(&e[3]), SL_NCCL_REMOTE_ERROR);
    carry(&e[0], 1);
    part(e, 4);
}

static void memory_that_is_put_away_ends_its_connection_alone(void **state)
{
    uint8_t *in = malloc(BIG),
            *out = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ends e[2];
    void *recv;

    (void)state;
    make(e, 2, 1);
    memset(in, 1, BIG);
    assert_int_equal(net->reg_mr(e[0].recv, out, BIG, SL_NCCL_PTR_HOST, &e[0].recv_mr),
                     SL_NCCL_SUCCESS);
    recv = ends_irecv(&e[0], out, BIG, 1);
    ends_isend(&e[0], in, BIG, 1);
    assert_int_equal(net->dereg_mr(e[0].recv, e[0].recv_mr), SL_NCCL_SUCCESS);
    munmap(out, BIG); /* a touch is a crash */
    for (unsigned i = 0; i < 20; i++)
        carry(&e[1], i);
    assert_int_not_equal(test_until_failed(recv), SL_NCCL_SUCCESS);
    part(e, 2);
    free(in);
}

/* NCCL goes on without a word when another connection came first; its context may end then. */
static void what_is_asked_for_and_not_needed_disturbs_nobody(void **state)
{
    struct ends e[3];

    (void)state;
    make(e, 1, 1);
    for (unsigned i = 1; i < 3; i++) {
        e[i] = (struct ends){.ctx = e[0].ctx};
        ends_listen(&e[i]);
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(net->connect(e[0].ctx, 0, e[1].handle, &e[1].send, NULL), SL_NCCL_SUCCESS);
        assert_int_equal(net->connect(e[0].ctx, 0, e[2].handle, &e[2].send, NULL), SL_NCCL_SUCCESS);
    }
    assert_null(e[1].send);
    assert_int_equal(net->close_listen(e[1].listen), SL_NCCL_SUCCESS);
    e[1].listen = NULL;
    carry(&e[0], 1);
    assert_int_equal(net->connect(e[0].ctx, 0, e[1].handle, &e[1].send, NULL), SL_NCCL_SUCCESS);
    assert_null(e[1].send);
    ends_meet(&e[2]);
    carry(&e[2], 2);
    assert_int_equal(net->finalize(e[0].ctx), SL_NCCL_SUCCESS);
    e[0].ctx = e[2].listen = NULL;
    carry(&e[0], 3);
    carry(&e[2], 4);
    e[1].ctx = e[2].ctx = NULL;
    part(e, 3);
}

/* ---- words ---- */

static void hear(void *comm, uint32_t kind, uint32_t channel, uint64_t token, size_t len)
{
    struct sl_nccl_comm *of = comm;
    const struct sl_nccl_word word = {
        .kind = (enum sl_nccl_word_kind)kind, .channel = channel, .token = token};
    uint8_t bytes[SL_NCCL_WORD_BYTES + 1] = {0};

    sl_nccl_word_encode(&word, bytes);
    sl_nccl_lock(of->engine);
    sl_nccl_flow_hear(of->flow, bytes, len);
    sl_nccl_unlock(of->engine);
}

/* The sending end has dialed: odd channels are its own. */
static void nonsense_ends_all_connections_of_the_endpoint(void **state)
{
    static const struct {
        uint32_t kind, channel;
        uint64_t token;
        size_t len;
    } wrong[] = {
        {SL_NCCL_OPEN, 2, 1, SL_NCCL_WORD_BYTES - 1},
        {SL_NCCL_OPEN, 2, 1, SL_NCCL_WORD_BYTES + 1},
        {0, 2, 0, SL_NCCL_WORD_BYTES},
        {SL_NCCL_GIVEN_UP + 1, 2, 0, SL_NCCL_WORD_BYTES},
        {SL_NCCL_OPEN, 0, 1, SL_NCCL_WORD_BYTES},
        {SL_NCCL_OPEN, 1, 1, SL_NCCL_WORD_BYTES},
        {SL_NCCL_REFUSED, 2, 1, SL_NCCL_WORD_BYTES},
    };

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(wrong); i++) {
        struct ends e[3];

        make(e, 3, 1);
        hear(e[0].send, wrong[i].kind, wrong[i].channel, wrong[i].token, wrong[i].len);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(send_until_failed(&e[k]), SL_NCCL_REMOTE_ERROR);
        part(e, 3);
    }
}

static void words_about_channels_that_nobody_knows_change_nothing(void **state)
{
    struct ends e[2];

    (void)state;
    make(e, 2, 1);
    for (uint32_t kind = SL_NCCL_ACCEPTED; kind <= SL_NCCL_GIVEN_UP; kind++)
        for (uint32_t channel = 5; channel < 9; channel++)
            hear(e[0].send, kind, channel, 0, SL_NCCL_WORD_BYTES);
    for (uint32_t kind = SL_NCCL_ACCEPTED; kind <= SL_NCCL_GIVEN_UP; kind++)
        hear(e[0].send, kind, 1, 0, SL_NCCL_WORD_BYTES);        /* of one that is agreed on */
    hear(e[0].send, SL_NCCL_OPEN, 2, 4711, SL_NCCL_WORD_BYTES); /* and of a listener */
    carry(&e[0], 1);
    carry(&e[1], 2);
    part(e, 2);
}

static void a_peer_that_asks_without_end_is_lost(void **state)
{
    struct sl_nccl_handle handle;
    struct ends e[2];

    (void)state;
    make(e, 1, 1);
    e[1] = (struct ends){.ctx = e[0].ctx};
    ends_listen(&e[1]);
    assert_int_equal(sl_nccl_handle_decode(e[1].handle, &handle), 0);
    for (uint32_t i = 1; i <= SL_NCCL_ASKS_MAX; i++)
        hear(e[0].send, SL_NCCL_OPEN, 2 * i, handle.token, SL_NCCL_WORD_BYTES);
    carry(&e[0], 1);
    hear(e[0].send, SL_NCCL_OPEN, 2 * SL_NCCL_ASKS_MAX + 2, handle.token, SL_NCCL_WORD_BYTES);
    assert_int_equal(send_until_failed(&e[0]), SL_NCCL_REMOTE_ERROR);
    assert_int_equal(net->close_listen(e[1].listen), SL_NCCL_SUCCESS);
    part(e, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_as_many_endpoints_as_are_set_and_not_more),
        cmocka_unit_test(the_engine_does_not_listen_on_for_its_endpoints),
        cmocka_unit_test(each_connection_has_an_order_of_its_own),
        cmocka_unit_test(a_connection_that_is_closed_ends_alone),
        cmocka_unit_test(memory_that_is_put_away_ends_its_connection_alone),
        cmocka_unit_test(what_is_asked_for_and_not_needed_disturbs_nobody),
        cmocka_unit_test(nonsense_ends_all_connections_of_the_endpoint),
        cmocka_unit_test(words_about_channels_that_nobody_knows_change_nothing),
        cmocka_unit_test(a_peer_that_asks_without_end_is_lost),
    };

    return cmocka_run_group_tests_name("flows", tests, before_all, after_all);
}
