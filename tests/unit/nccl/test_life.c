/* SPDX-License-Identifier: Apache-2.0 */
/* How connections of the network plugin end, and what outlives what; their properties. */
#include "tests/unit/nccl/ends.h"
#include "tests/unit/nccl/over.h"
#ifdef OVER_FAKE_RAILS
#include "tests/fake/fake_ibv.h"
#endif
#include "tools/nccl/abi_v12.h"
#include "tools/nccl/abi_v6.h"
#include "tools/nccl/wire.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>
#include <unistd.h>

#define BIG (3u << 20)

extern const struct sl_nccl_net_v6 ncclNetPlugin_v6;
extern const struct sl_nccl_net_v12 ncclNetPlugin_v12;
static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

static void memory_that_is_put_away_under_a_request_is_not_touched_again(void **state)
{
    uint8_t *in = malloc(BIG),
            *out = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *mr = NULL, *recv = NULL, *parent = NULL, *data = out, *send;
    size_t len = BIG;
    int tag = 1, done = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    memset(in, 1, BIG);
    assert_int_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_HOST, &mr), SL_NCCL_SUCCESS);
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr, &parent, &recv),
                     SL_NCCL_SUCCESS);
    send = ends_isend(&e, in, BIG, 1);
    assert_int_equal(net->dereg_mr(e.recv, mr), SL_NCCL_SUCCESS);
    munmap(out, BIG); /* a touch is a crash */
    for (int i = 0; i < 1000 && !done; i++)
        if (net->test(send, &done, NULL) != SL_NCCL_SUCCESS)
            break;
    assert_int_not_equal(net->test(recv, &done, NULL), SL_NCCL_SUCCESS);
    assert_false(done);
    ends_part(&e);
    free(in);
}

/* The same at the other end, whose bytes the transport may still be reading. */
static void memory_that_is_put_away_under_a_send_is_not_read_again(void **state)
{
    uint8_t *in = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            *out = malloc(BIG);
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    void *mr = NULL, *send = NULL;
    int done = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.send, in, BIG, SL_NCCL_PTR_HOST, &mr), SL_NCCL_SUCCESS);
    ends_irecv(&e, out, BIG, 1);
    while (send == NULL && ends_now() < end)
        assert_int_equal(net->isend(e.send, in, BIG, 1, mr, NULL, &send), SL_NCCL_SUCCESS);
    assert_int_equal(net->dereg_mr(e.send, mr), SL_NCCL_SUCCESS);
    munmap(in, BIG); /* a touch is a crash */
    assert_int_not_equal(net->test(send, &done, NULL), SL_NCCL_SUCCESS);
    assert_false(done);
    ends_part(&e);
    free(out);
}

static void memory_of_another_connection_is_refused(void **state)
{
    static uint8_t bytes[4096];
    void *mr = NULL, *request = bytes;
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_HOST, &mr),
                     SL_NCCL_SUCCESS);
    assert_int_equal(net->isend(e.send, bytes, 8, 1, mr, NULL, &request), SL_NCCL_INVALID_ARGUMENT);
    assert_null(request);
    assert_int_equal(net->dereg_mr(e.recv, mr), SL_NCCL_SUCCESS);
    ends_part(&e);
}

static void what_was_sent_arrives_though_the_sender_closes(void **state)
{
    uint8_t *in = malloc(BIG), *out = malloc(BIG);
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(in, BIG, 8);
    for (int i = 0; i < 8; i++) {
        void *recv = ends_irecv(&e, out, 60000, i), *send = ends_isend(&e, in, 60000, i);

        if (i < 7) {
            ends_finish_both(send, NULL, recv, NULL);
            continue;
        }
        ends_finish(send, NULL);
        assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
        e.send = NULL;
        ends_finish(recv, NULL);
        assert_memory_equal(in, out, 60000);
    }
    ends_part(&e);
    free(in);
    free(out);
}

/* A few bytes are the sender's again when a transport has a copy of them, which may not have left
 * yet. */
static void what_was_copied_arrives_though_the_sender_closes_at_once(void **state)
{
    uint8_t in[512], out[512];
    struct ends e;

    (void)state;
    for (size_t len = 1; len <= sizeof(in); len *= 8) {
        void *recv, *send;

        ends_make(&e);
        ends_fill(in, len, len);
        recv = ends_irecv(&e, out, len, 1);
        send = ends_isend(&e, in, len, 1);
        ends_finish(send, NULL);
        assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
        e.send = NULL;
        ends_finish(recv, NULL);
        assert_memory_equal(in, out, len);
        ends_part(&e);
    }
}

/* These transports have no use for GPU memory and say so: NCCL asks for none then. Who registers
 * some all the same is told, and what a flush would wait for has happened. */
static void gpu_memory_is_refused_where_no_transport_takes_it(void **state)
{
    struct sl_nccl_net_props_v11 props;
    uint8_t bytes[64];
    void *mr = bytes, *data = bytes, *request = bytes;
    int len = sizeof(bytes);
    struct ends e;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->get_properties(0, &props), SL_NCCL_SUCCESS);
    assert_int_equal(props.ptr_support, SL_NCCL_PTR_HOST);
    assert_int_equal(net->reg_mr_dmabuf(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_HOST, 0, 0, &mr),
                     SL_NCCL_INVALID_ARGUMENT);
    assert_null(mr);
    mr = bytes;
    assert_int_not_equal(
        net->reg_mr_dmabuf(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_CUDA, 0, 0, &mr),
        SL_NCCL_SUCCESS);
    assert_null(mr);
    mr = bytes;
    assert_int_not_equal(net->reg_mr(e.recv, bytes, sizeof(bytes), SL_NCCL_PTR_CUDA, &mr),
                         SL_NCCL_SUCCESS);
    assert_null(mr);
    assert_int_equal(net->iflush(e.recv, 1, &data, &len, &mr, &request), SL_NCCL_SUCCESS);
    assert_null(request);
    ends_part(&e);
}

static void a_peer_that_is_gone_is_a_remote_error(void **state)
{
    static uint8_t out[100];
    enum sl_nccl_result result = SL_NCCL_SUCCESS;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    struct ends e;
    void *recv, *request = (void *)(uintptr_t)1;
    int done = 0;

    (void)state;
    ends_make(&e);
    ends_warnings = 0;
    recv = ends_irecv(&e, out, sizeof(out), 1);
    assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
    e.send = NULL;
    while (result == SL_NCCL_SUCCESS && !done && ends_now() < end)
        result = net->test(recv, &done, NULL);
    assert_int_equal(result, SL_NCCL_REMOTE_ERROR);
    assert_false(done);
    if (strstr(ends_warning, "the peer at ") == NULL || strstr(ends_warning, "rank -1") != NULL)
        fail_msg("who is gone is not said: %s", ends_warning);
    assert_int_equal(net->irecv(e.recv, 1, (void *[]){out}, (size_t[]){1}, (int[]){1},
                                (void *[]){NULL}, (void *[]){NULL}, &request),
                     SL_NCCL_REMOTE_ERROR);
    assert_null(request);
    for (int i = 0; i < 100; i++)
        assert_int_equal(net->test(recv, &done, NULL), SL_NCCL_REMOTE_ERROR);
    assert_int_equal(ends_warnings, 1); /* NCCL asks on; its log has the line */
    ends_part(&e);
}

/* More than a transport takes at once: those that wait for room here have no error of their own. */
static void all_requests_of_a_peer_that_is_gone_end(void **state)
{
    static uint8_t out[32][8][100];
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    struct ends e;
    void *recvs[32];

    (void)state;
    ends_make(&e);
    for (int r = 0; r < 32; r++) {
        void *data[8], *none[8] = {NULL};
        size_t lens[8];
        int tags[8];

        for (int i = 0; i < 8; i++) {
            data[i] = out[r][i];
            lens[i] = sizeof(out[r][i]);
            tags[i] = i;
        }
        assert_int_equal(net->irecv(e.recv, 8, data, lens, tags, none, none, &recvs[r]),
                         SL_NCCL_SUCCESS);
        assert_non_null(recvs[r]);
    }
    assert_int_equal(net->close_send(e.send), SL_NCCL_SUCCESS);
    e.send = NULL;
    for (int r = 31; r >= 0; r--) {
        enum sl_nccl_result result = SL_NCCL_SUCCESS;
        int done = 0;

        while (result == SL_NCCL_SUCCESS && !done && ends_now() < end)
            result = net->test(recvs[r], &done, NULL);
        assert_int_equal(result, SL_NCCL_REMOTE_ERROR);
    }
    ends_part(&e);
}

#ifndef OVER_FAKE_RAILS
/* In the child: 0, or the line that was not as it should be. */
#define CHILD_EXPECT(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 255 + 1);                                                             \
    } while (0)

static void in_a_child(struct ends *e, void *request)
{
    uint8_t bytes[100] = {0}, handle[SL_NCCL_HANDLE_BYTES];
    void *memory = bytes, *mr = NULL, *other = NULL;
    size_t size = sizeof(bytes);
    int tag = 1, done = 0;

    CHILD_EXPECT(net->isend(e->send, bytes, sizeof(bytes), 1, NULL, NULL, &other) ==
                 SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->irecv(e->recv, 1, &memory, &size, &tag, &mr, NULL, &other) ==
                 SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->test(request, &done, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->reg_mr(e->send, bytes, sizeof(bytes), 1, &mr) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->listen(e->ctx, 0, handle, &other) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->connect(e->ctx, 0, e->handle, &other, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(net->accept(e->listen, &other, NULL) == SL_NCCL_INVALID_ARGUMENT);
    CHILD_EXPECT(strstr(ends_warning, "before it forked this one") != NULL);
    CHILD_EXPECT(net->close_send(e->send) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->close_recv(e->recv) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->close_listen(e->listen) == SL_NCCL_SUCCESS);
    CHILD_EXPECT(net->finalize(e->ctx) == SL_NCCL_SUCCESS);
    _exit(0);
}

static void a_forked_child_is_refused_and_harms_nothing(void **state)
{
    uint8_t sent[100], got[100] = {0};
    int status = -1, size = 0;
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(sent, sizeof(sent), 3);
    void *recv = ends_irecv(&e, got, sizeof(got), 1);
    pid_t pid = fork();

    if (pid == 0)
        in_a_child(&e, recv);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ends_finish_both(ends_isend(&e, sent, sizeof(sent), 1), NULL, recv, &size);
    assert_int_equal(size, sizeof(sent));
    assert_memory_equal(sent, got, sizeof(sent));
    ends_part(&e);
}

static void contexts_come_and_go_apart(void **state)
{
    struct ends a, b;

    (void)state;
    ends_make(&a);
    ends_make(&b);
    ends_part(&a);
    ends_make(&a);
    ends_part(&b);
    ends_part(&a);
    assert_int_equal(net->finalize(NULL), SL_NCCL_SUCCESS);
}
#endif

static void a_connection_outlives_its_context(void **state)
{
    static uint8_t in[100] = "late", out[100];
    struct ends e;
    void *recv;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->finalize(e.ctx), SL_NCCL_SUCCESS);
    e.ctx = e.listen = NULL;
    recv = ends_irecv(&e, out, sizeof(out), 1);
    ends_finish_both(ends_isend(&e, in, sizeof(in), 1), NULL, recv, NULL);
    assert_string_equal((char *)out, "late");
    ends_part(&e);
}

#ifdef OVER_FAKE_RAILS /* whose devices move the bytes */
#define CONTEXTS 8u

static unsigned descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void carry_a_word(struct ends *e, uint64_t seed)
{
    uint8_t in[64], out[64];
    void *recv = ends_irecv(e, out, sizeof(out), 1);

    ends_fill(in, sizeof(in), seed);
    ends_finish_both(ends_isend(e, in, sizeof(in), 1), NULL, recv, NULL);
    assert_memory_equal(in, out, sizeof(in));
}

/* Interfaces, staging and wire-up are there once: as many connections of one context need as much.
 * A context that closes takes nothing from the others. */
static void contexts_with_equal_settings_share_what_a_device_needs(void **state)
{
    unsigned live[2], fds[2];

    (void)state;
    for (unsigned many = 0; many < 2; many++) {
        struct ends e[CONTEXTS] = {0};

        for (unsigned i = 0; i < CONTEXTS; i++) {
            e[i].ctx = many || i == 0 ? ends_open_ctx() : e[0].ctx;
            ends_listen(&e[i]);
            ends_meet(&e[i]);
        }
        live[many] = fake_ibv_live(rails_fake);
        fds[many] = descriptors();
        for (unsigned i = 0; i < CONTEXTS; i++) {
            if (many || i == 0)
                assert_int_equal(net->finalize(e[i].ctx), SL_NCCL_SUCCESS);
            e[i].ctx = NULL;
            carry_a_word(&e[CONTEXTS - 1 - i], i);
        }
        for (unsigned i = 0; i < CONTEXTS; i++)
            ends_part(&e[i]);
        assert_int_equal(fake_ibv_live(rails_fake), 0);
    }
    assert_int_equal(live[0], live[1]);
    assert_int_equal(fds[0], fds[1]);
}

static bool is_connected_by_tcp(int fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);

    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
           (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
}

/* Both of its ends are in this process. Each flow is an endpoint, which has one. */
static void contexts_of_two_processes_have_one_socket_beside_their_paths(void **state)
{
    struct ends e[CONTEXTS] = {0};
    unsigned before = 0, count = 0;

    (void)state;
    setenv("SLUICE_NCCL_FLOWS", "1", 1);
    for (int fd = 0; fd < 1024; fd++)
        before += is_connected_by_tcp(fd);
    for (unsigned i = 0; i < CONTEXTS; i++)
        ends_make(&e[i]);
    for (int fd = 0; fd < 1024; fd++)
        count += is_connected_by_tcp(fd);
    for (unsigned i = 0; i < CONTEXTS; i++)
        carry_a_word(&e[i], i);
    for (unsigned i = 0; i < CONTEXTS; i++)
        ends_part(&e[i]);
    unsetenv("SLUICE_NCCL_FLOWS");
    assert_int_equal(count - before, 2);
}
#endif

/* ---- properties ---- */

static void every_property_is_filled(void **state)
{
    struct sl_nccl_net_props_v12 a, b;
    void *ctx = ends_open_ctx();
    int count = 0;

    (void)state;
    assert_int_equal(net->devices(&count), SL_NCCL_SUCCESS);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        memset(&a, 0x11, sizeof(a));
        memset(&b, 0xee, sizeof(b));
        assert_int_equal(ncclNetPlugin_v12.get_properties(i, &a), SL_NCCL_SUCCESS);
        assert_int_equal(ncclNetPlugin_v12.get_properties(i, &b), SL_NCCL_SUCCESS);
        assert_memory_equal(&a, &b, sizeof(a));
        assert_true(strlen(a.name) > 0);
        assert_int_equal(a.ptr_support, SL_NCCL_PTR_HOST);
        assert_int_equal(a.recvs_max, SL_NCCL_GROUP_MAX);
        assert_true(a.speed > 0);
        assert_int_equal(a.joined.count, 1);
        assert_int_equal(a.joined.devs[0], i);
        assert_int_equal(a.rail_id, -1);
        assert_true(a.pci_path == NULL || access(a.pci_path, F_OK) == 0);
    }
    assert_int_equal(net->get_properties(count, (void *)&a), SL_NCCL_INVALID_ARGUMENT);
    assert_int_equal(net->get_properties(-1, (void *)&a), SL_NCCL_INVALID_ARGUMENT);
    net->finalize(ctx);
}

#ifndef OVER_FAKE_RAILS
/* The table without contexts, and NULL in the one with them, share the same one. */
static void callers_without_a_context_are_served(void **state)
{
    const struct sl_nccl_net_v6 *old = &ncclNetPlugin_v6;
    uint8_t handle[SL_NCCL_HANDLE_BYTES], out[16] = "";
    void *listen = NULL, *send = NULL, *recv = NULL, *request = NULL, *sent = NULL, *data = out,
         *mr = NULL;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    int len = 16, tag = 0, count;

    (void)state;
    assert_int_equal(old->init(ends_logger), SL_NCCL_SUCCESS);
    assert_int_equal(old->devices(&count), SL_NCCL_SUCCESS);
    assert_int_equal(old->listen(0, handle, &listen), SL_NCCL_SUCCESS);
    while ((send == NULL || recv == NULL) && ends_now() < end) {
        if (send == NULL)
            assert_int_equal(net->connect(NULL, 0, handle, &send, NULL), SL_NCCL_SUCCESS);
        if (recv == NULL)
            assert_int_equal(old->accept(listen, &recv), SL_NCCL_SUCCESS);
    }
    assert_true(send != NULL && recv != NULL);
    assert_int_equal(old->irecv(recv, 1, &data, &len, &tag, &mr, &request), SL_NCCL_SUCCESS);
    while (sent == NULL && ends_now() < end)
        assert_int_equal(
            old->isend(send, (void *)(uintptr_t) "fifteen letters", 16, 0, NULL, &sent),
            SL_NCCL_SUCCESS);
    ends_finish_both(sent, NULL, request, NULL);
    assert_string_equal((char *)out, "fifteen letters");
    old->close_send(send);
    old->close_recv(recv);
    old->close_listen(listen);
    assert_int_equal(net->finalize(NULL), SL_NCCL_SUCCESS);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_put_away_under_a_request_is_not_touched_again),
        cmocka_unit_test(memory_that_is_put_away_under_a_send_is_not_read_again),
        cmocka_unit_test(memory_of_another_connection_is_refused),
        cmocka_unit_test(what_was_sent_arrives_though_the_sender_closes),
        cmocka_unit_test(what_was_copied_arrives_though_the_sender_closes_at_once),
        cmocka_unit_test(gpu_memory_is_refused_where_no_transport_takes_it),
        cmocka_unit_test(a_peer_that_is_gone_is_a_remote_error),
        cmocka_unit_test(all_requests_of_a_peer_that_is_gone_end),
        cmocka_unit_test(a_connection_outlives_its_context),
        cmocka_unit_test(every_property_is_filled),
#ifdef OVER_FAKE_RAILS
        cmocka_unit_test(contexts_with_equal_settings_share_what_a_device_needs),
        cmocka_unit_test(contexts_of_two_processes_have_one_socket_beside_their_paths),
#else /* the fake is for one engine, and none that stays */
        cmocka_unit_test(a_forked_child_is_refused_and_harms_nothing),
        cmocka_unit_test(contexts_come_and_go_apart),
        cmocka_unit_test(callers_without_a_context_are_served),
#endif
    };

    return cmocka_run_group_tests_name("life", tests, before_all, after_all);
}
