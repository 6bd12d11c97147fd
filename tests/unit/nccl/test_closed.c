/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that the peer has closed, over a transport and a clock that the test moves by hand:
 * what becomes of sends that were under way. */
#include "core/registry.h"
#include "core/transport.h"
#include "tools/nccl/adapt.h"
#include "tools/nccl/flow.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define TAG 7
#define POLLS 1000 /* more than any patience that is counted in polls */

static const struct sl_transport_ops pigeon;
static struct sl_iface wire = {.ops = &pigeon, .caps = SL_CAP_CHANNELS};
static struct sl_ep far = {.iface = &wire};
static struct sl_req *sent;   /* under way; NULL: none */
static struct sl_req *called; /* the first receive of an announcement */
static void *call_room;
static bool starves;
static uint64_t now_ns;

static uint64_t now_by_hand(const struct sl_clock *clock)
{
    (void)clock;
    return now_ns;
}

static const struct sl_clock by_hand = {.now_ns = now_by_hand};

static int probe(const struct sl_config *config, struct sl_device *out, size_t cap, size_t *count)
{
    (void)config, (void)cap;
    out[0] = (struct sl_device){.name = "p0"};
    *count = 1;
    return 0;
}

static int send_one(struct sl_ep *ep, const struct sl_buf *buf, uint64_t tag, struct sl_req *req)
{
    (void)ep, (void)buf, (void)tag;
    sent = req;
    return 0;
}

static int recv_one(struct sl_ep *ep, const struct sl_sink *sink, struct sl_req *req)
{
    (void)ep;
    if (called == NULL) {
        called = req;
        call_room = sink->dst;
    }
    return 0;
}

static bool channel_starves(const struct sl_ep *ep, uint32_t channel)
{
    (void)ep, (void)channel;
    return starves;
}

static void ep_destroy(struct sl_ep *ep)
{
    (void)ep;
}

static const struct sl_transport_ops pigeon = {.abi = SL_TRANSPORT_ABI,
                                               .name = "pigeon",
                                               .number = 20,
                                               .place = -1,
                                               .probe = probe,
                                               .send = send_one,
                                               .recv = recv_one,
                                               .channel_starves = channel_starves,
                                               .ep_destroy = ep_destroy};

struct world {
    struct sl_nccl_ctx *ctx;
    struct sl_nccl_engine *engine;
    struct sl_nccl_comm *comm;
};

/* A sender, and the receiver's announcement of one message. */
static void make(struct world *w)
{
    const struct sl_nccl_call call = {.count = 1, .tags = {TAG}, .sizes = {100}};
    const uint8_t peer[SL_WIREUP_ID_BYTES] = {1};
    struct sl_nccl_flow *flow;

    sent = called = NULL;
    starves = false;
    now_ns = SL_NS_PER_S;
    assert_int_equal(sl_nccl_ctx_open(NULL, SL_NCCL_UNDEFINED, &w->ctx), 0);
    assert_int_equal(sl_nccl_engine_get(w->ctx, 0, SL_NCCL_UNDEFINED, &w->engine), 0);
    sl_nccl_lock(w->engine);
    w->engine->worker.clock = &by_hand;
    assert_int_equal(sl_nccl_flow_new(w->engine, peer, &flow), 0);
    flow->number = 0;
    flow->ep = &far;
    assert_int_equal(sl_nccl_comm_new(w->engine, w->ctx, true, &w->comm), 0);
    w->comm->ep = &far;
    w->comm->channel = 1;
    sl_nccl_flow_join(flow, w->comm);
    assert_int_equal(sl_nccl_comm_start(w->comm), 0);
    called->len = sl_nccl_call_encode(&call, call_room);
    sl_req_end(called, 0);
    sl_nccl_unlock(w->engine);
}

static void end(struct world *w)
{
    sl_nccl_lock(w->engine);
    sl_nccl_comm_free(w->comm);
    sl_nccl_unlock(w->engine);
    sl_nccl_engine_put(w->engine);
    sl_nccl_ctx_close(w->ctx);
}

static void poll_often(struct world *w)
{
    sl_nccl_lock(w->engine);
    for (unsigned i = 0; i < POLLS; i++) {
        sl_nccl_progress(w->engine);
        sl_nccl_flows_tidy(w->engine);
    }
    sl_nccl_unlock(w->engine);
}

static struct sl_nccl_req *send_first(struct world *w)
{
    static uint8_t bytes[100];
    struct sl_nccl_req *request = NULL;

    assert_int_equal(sl_nccl_isend(w->comm, bytes, sizeof(bytes), TAG, NULL, &request), 0);
    assert_non_null(request);
    assert_non_null(sent);
    return request;
}

static void what_the_peer_had_before_it_closed_ends_well(void **state)
{
    struct world w;
    struct sl_nccl_req *request;

    (void)state;
    make(&w);
    request = send_first(&w);
    starves = true;
    poll_often(&w);
    assert_int_equal(sl_nccl_test(request, NULL), 0);
    sl_req_end(sent, 0);
    assert_int_equal(sl_nccl_test(request, NULL), 1);
    poll_often(&w);
    assert_int_equal(w.comm->lost, -ECONNRESET);
    end(&w);
}

static void what_it_never_took_fails_after_a_while(void **state)
{
    struct world w;
    struct sl_nccl_req *request;

    (void)state;
    make(&w);
    request = send_first(&w);
    starves = true;
    poll_often(&w);
    now_ns += 10 * SL_NS_PER_S;
    poll_often(&w);
    assert_int_equal(sl_nccl_test(request, NULL), -ECONNRESET);
    end(&w);
}

/* A thread that had no processor for long has not heard what had come before. */
static void time_without_a_poll_does_not_count(void **state)
{
    struct world w;
    struct sl_nccl_req *request;

    (void)state;
    make(&w);
    request = send_first(&w);
    starves = true;
    sl_nccl_lock(w.engine);
    sl_nccl_flows_tidy(w.engine);
    now_ns += 10 * SL_NS_PER_S;
    sl_nccl_flows_tidy(w.engine);
    sl_nccl_unlock(w.engine);
    assert_int_equal(sl_nccl_test(request, NULL), 0);
    end(&w);
}

static void without_one_under_way_it_is_lost_at_once(void **state)
{
    struct world w;

    (void)state;
    make(&w);
    starves = true;
    sl_nccl_lock(w.engine);
    sl_nccl_flows_tidy(w.engine);
    sl_nccl_unlock(w.engine);
    assert_int_equal(w.comm->lost, -ECONNRESET);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_peer_had_before_it_closed_ends_well),
        cmocka_unit_test(what_it_never_took_fails_after_a_while),
        cmocka_unit_test(time_without_a_poll_does_not_count),
        cmocka_unit_test(without_one_under_way_it_is_lost_at_once),
    };

    setenv("SLUICE_TRANSPORT", "pigeon", 1);
    if (sl_transport_register(&pigeon) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
