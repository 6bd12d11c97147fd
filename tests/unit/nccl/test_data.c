/* SPDX-License-Identifier: Apache-2.0 */
/* What goes through connections of the network plugin, and what NCCL's profiler sees of it. */
#include "tests/unit/nccl/ends.h"
#include "tests/unit/nccl/over.h"
#include "tools/nccl/net_event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#define BIG (3u << 20)

static const struct sl_nccl_net_v11 *const net = &ncclNetPlugin_v11;

static void messages_of_every_size_arrive_whole(void **state)
{
    static const size_t lens[] = {0, 1, 63, 64, 4095, 4096, 65537, 1 << 20, BIG};
    uint8_t *in = malloc(BIG), *out = malloc(BIG);
    struct ends e;

    (void)state;
    ends_make(&e);
    for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        int sent = -1, got = -1;
        void *recv = ends_irecv(&e, out, lens[i], 3), *send;

        ends_fill(in, lens[i], i);
        memset(out, 0, BIG);
        send = ends_isend(&e, in, lens[i], 3);
        ends_finish_both(send, &sent, recv, &got);
        assert_int_equal(sent, lens[i]);
        assert_int_equal(got, lens[i]);
        assert_memory_equal(in, out, lens[i]);
    }
    ends_part(&e);
    free(in);
    free(out);
}

static void a_short_message_leaves_the_rest_alone_and_a_long_one_is_cut(void **state)
{
    static uint8_t in[300000], out[300000];
    static const size_t sends[] = {10, 300000, 0, 200000}, recvs[] = {100, 200000, 300000, 299999};
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(in, sizeof(in), 1);
    for (unsigned i = 0; i < 4; i++) {
        size_t len = sends[i] < recvs[i] ? sends[i] : recvs[i];
        int sent = -1, got = -1;
        void *recv = ends_irecv(&e, out, recvs[i], 3), *send;

        memset(out, 0xee, sizeof(out));
        send = ends_isend(&e, in, sends[i], 3);
        ends_finish_both(send, &sent, recv, &got);
        assert_int_equal(sent, len);
        assert_int_equal(got, len);
        assert_memory_equal(in, out, len);
        for (size_t k = len; k < sizeof(out); k++)
            assert_int_equal(out[k], 0xee);
    }
    ends_part(&e);
}

static void nothing_is_sent_that_was_not_announced(void **state)
{
    static uint8_t in[8] = "message", out[8];
    void *request = (void *)(uintptr_t)77, *recv;
    struct ends e;

    (void)state;
    ends_make(&e);
    for (int i = 0; i < 50; i++)
        assert_int_equal(net->isend(e.send, in, 8, 1, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request);
    recv = ends_irecv(&e, out, 8, 2);
    for (int i = 0; i < 50; i++)
        assert_int_equal(net->isend(e.send, in, 8, 1, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request); /* another tag */
    ends_finish_both(ends_isend(&e, in, 8, 2), NULL, recv, NULL);
    assert_string_equal((char *)out, "message");
    ends_part(&e);
}

static void a_group_takes_its_sends_in_any_order(void **state)
{
    static uint8_t in[8][5000], out[8][5000];
    static const unsigned order[8] = {3, 7, 0, 1, 6, 2, 5, 4};
    struct ends e;

    (void)state;
    ends_make(&e);
    for (unsigned round = 0; round < 40; round++) {
        void *data[8], *mrs[8] = {NULL}, *parents[8] = {NULL}, *recv = NULL, *sends[8];
        int tags[8], sizes[8], size, count = 1 + (int)(round % 8);
        size_t lens[8];

        for (int i = 0; i < count; i++) {
            data[i] = out[i];
            lens[i] = 5000;
            tags[i] = 100 + i / 2; /* pairs of equal ones: in their order */
            ends_fill(in[i], 5000, round * 8 + (unsigned)i);
            memset(out[i], 0, 5000);
        }
        assert_int_equal(net->irecv(e.recv, count, data, lens, tags, mrs, parents, &recv),
                         SL_NCCL_SUCCESS);
        assert_non_null(recv);
        for (int k = 0, n = 0; k < 8; k++) {
            int i = (int)order[k];

            if (i >= count)
                continue;
            sends[n++] = ends_isend(&e, in[i], (size_t)(round + 100 * i), tags[i]);
        }
        for (int i = 0; i < count; i++)
            ends_finish(sends[i], &size);
        ends_finish(recv, sizes);
        for (int i = 0; i < count; i++) {
            /* Which of a pair came first is known from order[]: 3 before 2, 7 before 6, 5 before
             * 4. */
            static const int from[8] = {0, 1, 3, 2, 5, 4, 7, 6};
            int source = from[i] < count && (from[i] ^ 1) < count ? from[i] : i;

            assert_int_equal(sizes[i], round + 100 * source);
            assert_memory_equal(out[i], in[source], (size_t)sizes[i]);
        }
    }
    ends_part(&e);
}

static void as_many_requests_as_nccl_has_are_in_flight(void **state)
{
    static uint8_t in[256][1000], out[256][1000];
    void *recvs[33], *sends[256];
    struct ends e;

    (void)state;
    ends_make(&e);
    ends_fill(&in[0][0], sizeof(in), 5);
    for (int r = 0; r < 32; r++) {
        void *data[8], *mrs[8] = {NULL}, *parents[8] = {NULL};
        size_t lens[8];
        int tags[8];

        for (int i = 0; i < 8; i++) {
            data[i] = out[8 * r + i];
            lens[i] = 1000;
            tags[i] = i;
        }
        recvs[r] = NULL;
        assert_int_equal(net->irecv(e.recv, 8, data, lens, tags, mrs, parents, &recvs[r]),
                         SL_NCCL_SUCCESS);
        assert_non_null(recvs[r]);
    }
    assert_null(
        ends_irecv(&e, out[0], 1000, 1)); /* one too many: to be asked again, not an error */
    for (int s = 0; s < 256; s++)
        sends[s] = ends_isend(&e, in[s], 1000, s % 8);
    for (int s = 255; s >= 0; s--)
        ends_finish(sends[s], NULL);
    for (int r = 31; r >= 0; r--)
        ends_finish(recvs[r], NULL);
    assert_memory_equal(in, out, sizeof(in));
    ends_part(&e);
}

static void registered_memory_is_used_and_put_away(void **state)
{
    uint8_t *in = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *out = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *mr_in = NULL, *mr_out = NULL, *send = NULL, *recv = NULL, *parent = NULL, *data = out;
    size_t len = BIG;
    int tag = 9;
    struct ends e;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;

    (void)state;
    ends_make(&e);
    assert_int_equal(net->reg_mr(e.send, in, BIG, SL_NCCL_PTR_HOST, &mr_in), SL_NCCL_SUCCESS);
    assert_int_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_HOST, &mr_out), SL_NCCL_SUCCESS);
    assert_non_null(mr_in);
    assert_int_not_equal(net->reg_mr(e.recv, out, BIG, SL_NCCL_PTR_CUDA, &parent), SL_NCCL_SUCCESS);
    assert_null(parent); /* this device did not say that it takes it, and this is none */
    assert_int_equal(net->reg_mr(e.recv, out, BIG, 7, &parent), SL_NCCL_INVALID_ARGUMENT);
    assert_null(parent);
    ends_fill(in, BIG, 3);
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr_out, &parent, &recv),
                     SL_NCCL_SUCCESS);
    while (send == NULL && ends_now() < end)
        assert_int_equal(net->isend(e.send, in, BIG, tag, mr_in, NULL, &send), SL_NCCL_SUCCESS);
    ends_finish_both(send, NULL, recv, NULL);
    assert_memory_equal(in, out, BIG);
    assert_int_equal(net->dereg_mr(e.send, mr_in), SL_NCCL_SUCCESS);
    assert_int_equal(net->dereg_mr(e.recv, mr_out), SL_NCCL_SUCCESS);
    ends_part(&e);
    munmap(in, BIG);
    munmap(out, BIG);
}

/* ---- what must not be left behind ---- */

/* NULL, also over the mark that NCCL leaves where a receive may be told as done early. */
static void what_cannot_be_taken_now_is_no_request(void **state)
{
    static uint8_t out[SL_NCCL_REQUESTS + 1][8];
    void *mr = NULL, *parent = NULL, *request, *data, *requests[SL_NCCL_REQUESTS];
    size_t len = 8;
    int tag = 1;
    struct ends e;

    (void)state;
    ends_make(&e);
    request = SL_NCCL_RECV_OPTIONAL;
    assert_int_equal(net->isend(e.send, out[0], len, tag, NULL, NULL, &request), SL_NCCL_SUCCESS);
    assert_null(request); /* nothing is announced */
    for (int i = 0; i < SL_NCCL_REQUESTS; i++)
        assert_non_null(requests[i] = ends_irecv(&e, out[i], len, tag));
    data = out[SL_NCCL_REQUESTS];
    request = SL_NCCL_RECV_OPTIONAL;
    assert_int_equal(net->irecv(e.recv, 1, &data, &len, &tag, &mr, &parent, &request),
                     SL_NCCL_SUCCESS);
    assert_null(request); /* there are as many as may be */
    for (int i = 0; i < SL_NCCL_REQUESTS; i++)
        ends_finish_both(ends_isend(&e, out[i], len, tag), NULL, requests[i], NULL);
    ends_part(&e);
}

/* ---- the profiler ---- */

static struct {
    unsigned starts, stops;
    bool takes;
    struct sl_nccl_net_event last;
    void *parent;
} told;

static enum sl_nccl_result profile(void **event, int kind, void *parent, int64_t id, void *data)
{
    assert_int_equal(id, SL_NCCL_NET_EVENT_ID);
    if (kind == SL_NCCL_EVENT_START) {
        assert_null(*event);
        told.starts++;
        told.last = *(const struct sl_nccl_net_event *)data;
        told.parent = parent;
        if (told.takes)
            *event = &told;
    } else {
        assert_int_equal(kind, SL_NCCL_EVENT_STOP);
        assert_ptr_equal(*event, &told);
        told.stops++;
    }
    return SL_NCCL_SUCCESS;
}

static void event_of_a_lost_request_ends(struct ends *e, unsigned stops)
{
    static uint8_t out[8];
    void *data = out, *mr = NULL, *parent = out, *recv = NULL;
    uint64_t end = ends_now() + ENDS_PATIENCE_NS;
    size_t len = sizeof(out);
    int tag = 1, done = 0;

    assert_int_equal(net->irecv(e->recv, 1, &data, &len, &tag, &mr, &parent, &recv),
                     SL_NCCL_SUCCESS);
    assert_int_equal(net->close_send(e->send), SL_NCCL_SUCCESS);
    e->send = NULL;
    while (net->test(recv, &done, NULL) == SL_NCCL_SUCCESS && ends_now() < end)
        ;
    assert_int_equal(told.stops, stops);
}

static void requests_are_events_of_the_profiler(void **state)
{
    struct sl_nccl_net_config_v10 config = {.traffic_class = SL_NCCL_UNDEFINED};
    uint8_t in[64] = "", out[2][64];
    struct ends e;

    (void)state;
    for (int takes = 0; takes < 2; takes++) {
        void *data[2] = {out[0], out[1]}, *mrs[2] = {NULL}, *parents[2] = {&in[0], &in[1]},
             *recv = NULL, *send = NULL;
        size_t lens[2] = {64, 63};
        int tags[2] = {4, 5};

        memset(&told, 0, sizeof(told));
        told.takes = takes != 0;
        memset(&e, 0, sizeof(e));
        assert_int_equal(net->init(&e.ctx, 1, &config, ends_logger, profile), SL_NCCL_SUCCESS);
        ends_listen(&e);
        ends_meet(&e);
        assert_int_equal(net->irecv(e.recv, 2, data, lens, tags, mrs, parents, &recv),
                         SL_NCCL_SUCCESS);
        assert_int_equal(told.starts, 2);
        assert_ptr_equal(told.parent, &in[1]);
        assert_int_equal(told.last.is_send, 0);
        assert_int_equal(told.last.tag, 5);
        assert_int_equal(told.last.len, 63);
        assert_true(told.last.transport[0] != '\0' && told.last.peer[0] != '\0');
        while (send == NULL)
            assert_int_equal(net->isend(e.send, in, 60, 5, NULL, &in[5], &send), SL_NCCL_SUCCESS);
        assert_int_equal(told.starts, 3); /* not of those that were not taken */
        assert_ptr_equal(told.parent, &in[5]);
        assert_true(told.last.is_send == 1 && told.last.len == 60);
        ends_finish_both(ends_isend(&e, in, 64, 4), NULL, send,
                         NULL); /* without a parent: no event */
        assert_int_equal(told.starts, 3);
        ends_finish(recv, NULL);
        assert_int_equal(told.stops, takes ? 3 : 0);
        event_of_a_lost_request_ends(&e, takes ? 4 : 0);
        ends_part(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_every_size_arrive_whole),
        cmocka_unit_test(a_short_message_leaves_the_rest_alone_and_a_long_one_is_cut),
        cmocka_unit_test(nothing_is_sent_that_was_not_announced),
        cmocka_unit_test(a_group_takes_its_sends_in_any_order),
        cmocka_unit_test(as_many_requests_as_nccl_has_are_in_flight),
        cmocka_unit_test(registered_memory_is_used_and_put_away),
        cmocka_unit_test(what_cannot_be_taken_now_is_no_request),
        cmocka_unit_test(requests_are_events_of_the_profiler),
    };

    return cmocka_run_group_tests_name("data", tests, before_all, after_all);
}
