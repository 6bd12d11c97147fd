/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection tells of its paths, and what it notes in the event ring: two ends with two
 * rails each over the fake libibverbs, in its time. */
#include "core/state.h"
#include "tests/fake/fake_ibv.h"
#include "verbs/config.h"
#include "verbs/events.h"
#include "tests/fake/loop.h"
#include "verbs/memlock.h"
#include "multipath/conn.h"
#include "multipath/events.h"
#include "multipath/fallback.h"
#include "verbs/iface.h"
#include "multipath/repair.h"
#include "multipath/setup.h"
#include "verbs/queue_pair.h"
#include "verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LONG_BYTES (1u << 20)
#define LIMIT_NS (60 * SL_NS_PER_S)

struct side {
    struct sl_config config;
    struct sl_worker worker;
    struct sl_event_ring events;
    struct sl_iface *iface;
    struct sl_ep *ep;
};

static struct fake_ibv *fake;
static struct loop *loop;
static struct side sides[2];
static uint8_t *sent, *got;

/* The machine's own limit is not what is tested. */
bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap);

bool __wrap_sl_verbs_memlock_fits(uint64_t more, char *why, size_t cap)
{
    (void)more, (void)why, (void)cap;
    return true;
}

static void look(void *arg)
{
    fake_ibv_run(arg, 2);
}

static void world_make(enum sl_mp_fallback_choice fallback)
{
    struct fake_ibv_device params;

    fake = fake_ibv_create(3);
    loop = loop_create(3);
    loop_on_look(loop, look, fake);
    sl_ibv_replace(fake_ibv_table(fake), fake_ibv_mlx5(fake));
    memset(sides, 0, sizeof(sides));
    for (unsigned i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof(name), "%c%u", 'a' + i / 2, i % 2);
        fake_ibv_device_init(&params, name);
        params.keeps_wcs = true;
        fake_ibv_device_add(fake, &params);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct side *s = &sides[i];

        sl_config_defaults(&s->config);
        snprintf(sl_verbs_config_edit(&s->config)->devices, SL_TEXT_MAX, "%c*", 'a' + i);
        sl_verbs_config_edit(&s->config)->mp.fallback = fallback;
        sl_verbs_config_edit(&s->config)->mp.staging_bytes = 2 << 20;
        sl_verbs_config_edit(&s->config)->mp.piece_bytes = 64 << 10;
        sl_verbs_config_edit(&s->config)->mp.lazy = SL_OFF;
        s->worker = (struct sl_worker){
            .clock = loop_clock(loop), .config = &s->config, .events = &s->events, .rank = (int)i};
        sl_rng_init(&s->worker.rng, i + 1);
        if (sl_verbs_ops.open(&s->worker, NULL, NULL, &s->iface) != 0 ||
            s->iface->ops->ep_create(s->iface, &s->ep) != 0)
            fail_msg("%s", sluice_last_error());
        s->ep->peer = (int)!i;
    }
    sent = malloc(LONG_BYTES);
    got = malloc(LONG_BYTES);
    for (size_t i = 0; i < LONG_BYTES; i++)
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void progress_both(void)
{
    int moved = 0;

    for (unsigned i = 0; i < 2; i++) {
        fake_ibv_run(fake, 3);
        int n = sides[i].iface->ops->progress(sides[i].iface, 64);

        assert_true(n >= 0);
        moved += n;
    }
    loop_pass(loop, moved != 0 ? 2000 : 100000);
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t limit_ns = loop_now(loop) + LIMIT_NS;                                             \
                                                                                                   \
        while (!(condition)) {                                                                     \
            if (loop_now(loop) > limit_ns)                                                         \
                fail_msg("in time: %s", #condition);                                               \
            progress_both();                                                                       \
        }                                                                                          \
    } while (0)

static void join(void)
{
    struct sl_addr addr[2];
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};

    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sides[i].iface->ops->ep_addr(sides[i].ep, &addr[i]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sides[i].iface->ops->ep_connect(sides[i].ep, &addr[!i], &req[i]), 0);
    UNTIL(req[0].status != SL_PENDING && req[1].status != SL_PENDING);
    assert_int_equal(req[0].status, 0);
    assert_int_equal(req[1].status, 0);
}

static struct sl_req send_req, recv_req;
static struct sl_sink sink;

/* From 0 to 1, len bytes; pending when it returns. */
static void message_start(size_t len)
{
    struct sl_buf buf = {.addr = sent, .len = len};

    memset(got, 0, LONG_BYTES);
    sink = (struct sl_sink){.dst = got, .len = len, .tag = 7};
    recv_req = send_req = (struct sl_req){.status = SL_PENDING};
    assert_true(sides[1].iface->ops->recv(sides[1].ep, &sink, &recv_req) >= 0);
    assert_true(sides[0].iface->ops->send(sides[0].ep, &buf, 7, &send_req) >= 0);
}

static void message(size_t len)
{
    message_start(len);
    UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(sent, got, len);
}

static size_t stats_of(unsigned i, struct sl_state_path out[4])
{
    memset(out, 0xee, 4 * sizeof(*out));
    return sides[i].iface->ops->ep_stats(sides[i].ep, out, 4);
}

static uint64_t count_of(unsigned i, unsigned kind)
{
    struct sl_event_totals totals;

    sl_event_totals(&sides[i].events, &totals);
    return totals.counts[kind];
}

/* The first of that kind; they stay in the ring. */
static const struct sl_event *event_of(unsigned i, unsigned kind)
{
    for (uint64_t at = 0; at < sides[i].events.written; at++)
        if (sides[i].events.slots[at].event.kind == kind)
            return &sides[i].events.slots[at].event;
    fail_msg("side %u: no event %s", i, sl_event_name(kind));
    return NULL;
}

static int clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        sides[i].iface->ops->ep_destroy(sides[i].ep);
    for (unsigned i = 0; i < 2; i++)
        sides[i].iface->ops->close(sides[i].iface);
    free(sent);
    free(got);
    assert_null(fake_ibv_misuse(fake));
    assert_null(loop_misuse(loop));
    assert_int_equal(fake_ibv_live(fake), 0);
    fake_ibv_destroy(fake);
    loop_destroy(loop);
    sl_ibv_replace(NULL, NULL);
    return 0;
}

static void a_path_counts_what_it_carries(void **state)
{
    struct sl_state_path mine[4], theirs[4];

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message(LONG_BYTES);
    message(16);
    assert_int_equal(stats_of(0, mine), 2);
    assert_int_equal(stats_of(1, theirs), 2);
    uint64_t bytes = 0, times = 0;

    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(mine[i].number, i);
        assert_int_equal(mine[i].peer, 1);
        assert_string_equal(mine[i].state, "up");
        assert_string_equal(mine[i].why, "");
        assert_int_equal(mine[i].ups, 1);
        assert_int_equal(mine[i].failures + mine[i].resent, 0);
        assert_true(theirs[i].received_bytes >= mine[i].sent_bytes);
        bytes += mine[i].sent_bytes;
        times += sl_histogram_total(mine[i].histogram);
    }
    /* 16 pieces, the frames around them, and the short message. */
    assert_in_range(bytes, LONG_BYTES + 16, LONG_BYTES + 4096);
    assert_in_range(times, 16, 64);
    assert_string_equal(mine[0].name, "a0:1 > 10.0.0.3");
    assert_string_equal(mine[1].name, "a1:1 > 10.0.0.4");
    assert_string_equal(theirs[1].name, "b1:1 > 10.0.0.2");
    assert_int_equal(count_of(0, SL_EVENT_PATH_UP), 2);
    assert_int_equal(count_of(0, SL_EVENT_PORT_UP), 2);
    assert_int_equal(count_of(0, SL_EVENT_PATH_DOWN) + count_of(0, SL_EVENT_GID_CHANGE), 0);
}

/* Writes of two windows of time, with a pause between that is in neither. */
static void a_path_counts_the_time_in_which_writes_are_under_way(void **state)
{
    const uint64_t window_ns = SL_STATE_WINDOW_NS;
    struct sl_state_path mine[4], theirs[4];
    uint32_t pieces[2] = {0}, last = 0;

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message(LONG_BYTES);
    message(16);
    loop_pass(loop, 5 * window_ns);
    message(LONG_BYTES);
    assert_int_equal(stats_of(0, mine), 2);
    assert_int_equal(stats_of(1, theirs), 2);
    for (unsigned i = 0; i < 2; i++)
        last = mine[i].quickest[0].window > last ? mine[i].quickest[0].window : last;
    assert_int_equal(last, loop_now(loop) / window_ns + 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(theirs[i].quickest[0].window, 0); /* it has sent frames alone */
        for (unsigned k = 0; k < 2; k++) {
            const struct sl_state_quickest *it = &mine[i].quickest[k];

            if (it->window == 0)
                continue;
            assert_int_equal(it->bytes, 64 << 10);
            assert_in_range(it->ns, 1, SL_NS_PER_S / 100);
            pieces[it->window == last] += it->messages;
        }
    }
    assert_int_equal(pieces[0], LONG_BYTES / (64 << 10));
    assert_int_equal(pieces[1], LONG_BYTES / (64 << 10));
}

static void it_says_how_many_there_are_and_fills_no_more_than_asked(void **state)
{
    struct sl_state_path out[2];

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    assert_int_equal(sides[0].iface->ops->ep_stats(sides[0].ep, NULL, 0), 0);
    join();
    memset(out, 0x55, sizeof(out));
    assert_int_equal(sides[0].iface->ops->ep_stats(sides[0].ep, NULL, 0), 2);
    assert_int_equal(sides[0].iface->ops->ep_stats(sides[0].ep, out, 1), 2);
    assert_int_equal(out[0].number, 0);
    assert_int_equal(out[1].number, 0x55555555);
}

static void a_port_that_fails_shows_in_state_reason_and_events(void **state)
{
    struct sl_state_path mine[4];

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message_start(LONG_BYTES);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN); /* a0 */
    UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_memory_equal(sent, got, LONG_BYTES);
    UNTIL(count_of(0, SL_EVENT_PORT_DOWN) != 0 && count_of(1, SL_EVENT_PATH_DOWN) != 0);
    UNTIL(stats_of(0, mine) == 2 && strcmp(mine[0].state, "down") == 0);
    assert_int_equal(count_of(0, SL_EVENT_PATH_FENCED), 1);
    assert_int_equal(mine[0].failures, 1);
    assert_string_not_equal(mine[0].why, "");
    assert_string_equal(mine[1].state, "up");
    assert_int_equal(mine[1].failures, 0);
    assert_int_equal(event_of(0, SL_EVENT_PORT_DOWN)->a, 0);
    assert_int_equal(event_of(0, SL_EVENT_PORT_DOWN)->b, IBV_PORT_DOWN);
    assert_int_equal(event_of(0, SL_EVENT_PORT_DOWN)->peer, SL_EVENT_NOBODY);
    assert_int_equal(event_of(0, SL_EVENT_PATH_DOWN)->a, 0);
    assert_int_equal(event_of(0, SL_EVENT_PATH_DOWN)->peer, 1);
    assert_int_equal(event_of(1, SL_EVENT_PATH_DOWN)->peer, 0);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_ACTIVE);
    UNTIL(count_of(0, SL_EVENT_PATH_UP) == 3);
    assert_int_equal(stats_of(0, mine), 2);
    assert_string_equal(mine[0].state, "up");
    assert_int_equal(mine[0].ups, 2);
    assert_string_not_equal(mine[0].why, ""); /* its last failure stays */
    assert_int_equal(count_of(0, SL_EVENT_CONN_WAITS), 0);
}

static void what_a_dead_path_did_not_deliver_is_counted_as_resent(void **state)
{
    struct fake_ibv_qp_info info = {0};
    struct sl_state_path mine[4];
    uint64_t resent = 0;

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message(LONG_BYTES); /* both paths have a rate */
    message_start(LONG_BYTES);
    struct sl_mp_path *path = sl_mp_conn_of(sides[0].ep)->paths[0];

    /* Posted, and not at the peer yet. */
    while (path->writes == 0 || info.posted == info.executed) {
        assert_int_equal(send_req.status, SL_PENDING);
        progress_both();
        fake_ibv_qp_info(fake, sl_verbs_path_of(path)->qp, &info);
    }
    fake_ibv_kill(fake, sl_verbs_path_of(path)->qp, 0, 0, 0);
    UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_memory_equal(sent, got, LONG_BYTES);
    assert_int_equal(stats_of(0, mine), 2);
    assert_true(mine[0].resent > 0);
    assert_non_null(strstr(mine[0].why, "retry"));
    for (uint64_t at = 0; at < sides[0].events.written; at++)
        if (sides[0].events.slots[at].event.kind == SL_EVENT_RESEND)
            resent += sides[0].events.slots[at].event.b;
    assert_int_equal(resent, mine[0].resent + mine[1].resent);
    assert_int_equal(event_of(0, SL_EVENT_PATH_DOWN)->b, IBV_WC_RETRY_EXC_ERR);
}

static int (*fake_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static unsigned posts_to_dead;

static int watched_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_ibv_qp_info info;

    fake_ibv_qp_info(fake, qp, &info);
    posts_to_dead += info.state == IBV_QPS_ERR && (uint32_t)wr->wr_id != SL_VERBS_DRAIN;
    return fake_post_send(qp, wr, bad);
}

/* The record that says so was posted to the dead path itself once, and again for ever as it did not
 * arrive. */
static void nothing_is_posted_to_a_path_that_the_peer_has_ended(void **state)
{
    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message(16);
    struct sl_verbs_rail *rail = &sl_verbs_iface_of(sides[1].iface)->rails[0];

    posts_to_dead = 0;
    fake_post_send = rail->device->context->ops.post_send;
    rail->device->context->ops.post_send = watched_post_send;
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN); /* of side 0; side 1 is told */
    UNTIL(count_of(0, SL_EVENT_PATH_FENCED) != 0 && count_of(1, SL_EVENT_PATH_FENCED) != 0);
    assert_non_null(strstr(sl_mp_conn_of(sides[1].ep)->paths[0]->why, "ended by the peer"));
    assert_int_equal(posts_to_dead, 0);
    message(LONG_BYTES);
    rail->device->context->ops.post_send = fake_post_send;
}

/* The grant of a registered receive crosses the sender's RTS; the write that follows it goes by the
 * other path, and all is over at the receiver when the RTS comes. */
static void a_request_to_send_may_come_after_its_message(void **state)
{
    struct sl_mr *mr[2];

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    message(16);
    struct sl_mp_path *frames = sl_mp_conn_of(sides[0].ep)->frame_path;
    struct ibv_cq *cq = sl_verbs_iface_of(sides[1].iface)->rails[frames->remote_rail].cq;

    for (unsigned i = 0; i < 2; i++) {
        struct sl_mem mem = {.addr = i == 0 ? sent : got, .len = LONG_BYTES, .fd = -1};

        assert_int_equal(sides[i].iface->ops->mr_reg(sides[i].iface, &mem, &mr[i], NULL), 0);
    }
    frames->ps_per_byte = 1000 * 1000 * 1000; /* so slow that a write takes the other one */
    frames->last_done_ns = loop_now(loop);
    fake_ibv_cq_hold(fake, cq, true);
    message_start(32 << 10);
    UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, 0);
    assert_memory_equal(sent, got, 32 << 10);
    fake_ibv_cq_hold(fake, cq, false);
    frames->ps_per_byte = 0;
    message(16);
    message(LONG_BYTES);
    for (unsigned i = 0; i < 2; i++)
        sides[i].iface->ops->mr_dereg(sides[i].iface, mr[i]);
}

/* Its grant is there when it is sent: from then on the receiver has to hear nothing that would need
 * an answer. */
static void a_message_shorter_than_its_room_needs_no_answer(void **state)
{
    struct sl_buf buf = {.len = 200001};
    struct sl_mr *mr[2];
    uint64_t end_ns;

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    buf.addr = sent;
    for (unsigned i = 0; i < 2; i++) {
        struct sl_mem mem = {.addr = i == 0 ? sent : got, .len = LONG_BYTES, .fd = -1};

        assert_int_equal(sides[i].iface->ops->mr_reg(sides[i].iface, &mem, &mr[i], NULL), 0);
    }
    memset(got, 0, LONG_BYTES);
    sink = (struct sl_sink){.dst = got, .len = LONG_BYTES, .tag = 7, .shorter = true};
    recv_req = send_req = (struct sl_req){.status = SL_PENDING};
    assert_int_equal(sides[1].iface->ops->recv(sides[1].ep, &sink, &recv_req), 0);
    UNTIL(sl_mp_channel_of(sl_mp_conn_of(sides[0].ep)->channels.last)->early_count == 1);
    assert_int_equal(sides[0].iface->ops->send(sides[0].ep, &buf, 7, &send_req), 0);
    assert_true(sides[0].iface->ops->progress(sides[0].iface, 64) > 0);
    end_ns = loop_now(loop) + LIMIT_NS;
    while (recv_req.status == SL_PENDING && loop_now(loop) < end_ns) {
        fake_ibv_run(fake, 3);
        sides[1].iface->ops->progress(sides[1].iface, 64);
        loop_pass(loop, 2000);
    }
    assert_int_equal(recv_req.status, 0);
    assert_int_equal(recv_req.len, buf.len);
    assert_memory_equal(sent, got, buf.len);
    assert_int_equal(got[buf.len], 0);
    assert_int_equal(send_req.status, SL_PENDING); /* it has not looked since */
    UNTIL(send_req.status == 0);
    message(LONG_BYTES);
    for (unsigned i = 0; i < 2; i++)
        sides[i].iface->ops->mr_dereg(sides[i].iface, mr[i]);
}

static void pass(uint64_t ns)
{
    uint64_t until_ns = loop_now(loop) + ns;

    while (loop_now(loop) < until_ns)
        progress_both();
}

static bool is_over(const struct sl_mp_path *path, unsigned *most)
{
    if (path->writes > *most)
        *most = path->writes;
    return send_req.status != SL_PENDING && recv_req.status != SL_PENDING;
}

/* How many pieces of a long message were under way by the path at a time. */
static unsigned most_under_way(const struct sl_mp_path *path)
{
    unsigned most = 0;

    message_start(LONG_BYTES);
    UNTIL(is_over(path, &most));
    assert_int_equal(recv_req.status, 0);
    return most;
}

static void a_path_that_was_slow_is_tried_again_after_a_while(void **state)
{
    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    struct sl_mp_path *path = sl_mp_conn_of(sides[0].ep)->paths[0];

    message(LONG_BYTES);
    path->ps_per_byte = 1000 * 1000 * 1000;
    path->last_done_ns = loop_now(loop);
    uint64_t writes = path->stats.sent_bytes;

    message(LONG_BYTES);
    assert_true(path->stats.sent_bytes < writes + (64 << 10)); /* frames, but no piece */
    pass(1500 * SL_NS_PER_MS);
    message(LONG_BYTES);
    assert_true(path->stats.sent_bytes <
                writes + (64 << 10)); /* a thousandth of the rate is still slow */
    pass(1500 * SL_NS_PER_MS);
    assert_int_equal(most_under_way(path), 1);
    assert_true(path->stats.sent_bytes > writes + (64 << 10));
    assert_true(path->ps_per_byte < 1000 * 1000); /* as it was measured, and nothing of before */
    pass(100 * SL_NS_PER_MS);
    assert_true(most_under_way(path) > 1);
}

/* Paths that do nothing for a while forget as much, and are no worse than each other. */
static void paths_that_were_idle_together_are_used_at_once(void **state)
{
    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    const struct sl_mp_conn *conn = sl_mp_conn_of(sides[0].ep);

    message(LONG_BYTES);
    for (unsigned i = 0; i < conn->path_count; i++)
        conn->paths[i]->ps_per_byte = (2 + i) * conn->paths[i]->nominal_ps;
    pass(1500 * SL_NS_PER_MS);
    message(LONG_BYTES);
    for (unsigned i = 0; i < conn->path_count; i++)
        assert_int_equal(conn->paths[i]->writes_most, SL_MP_WRITES_ANY);
}

static bool waits_for_a_time(unsigned i)
{
    return !sl_list_empty(&sl_verbs_iface_of(sides[i].iface)->mp.timed);
}

/* So progress walks over no connection at which nothing is amiss, however many there are. */
static void a_connection_waits_for_a_time_only_while_something_is_to_come(void **state)
{
    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    assert_false(waits_for_a_time(0));
    join();
    unsigned leading = sl_mp_conn_of(sides[1].ep)->leads;

    message(LONG_BYTES);
    UNTIL(!waits_for_a_time(0) && !waits_for_a_time(1));
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    UNTIL(count_of(0, SL_EVENT_PATH_FENCED) != 0 && count_of(1, SL_EVENT_PATH_FENCED) != 0);
    assert_true(waits_for_a_time(leading)); /* until it tries again */
    UNTIL(!waits_for_a_time(!leading));
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_ACTIVE);
    UNTIL(count_of(0, SL_EVENT_PATH_UP) == 3 && count_of(1, SL_EVENT_PATH_UP) == 3);
    UNTIL(!waits_for_a_time(0) && !waits_for_a_time(1));
    loop_lose(loop, 0, -ETIMEDOUT, 0);
    UNTIL(waits_for_a_time(0) && waits_for_a_time(1)); /* pings */
    message(16);
}

/* Soft-RoCE shows them although their queue pair is gone, when that of the next epoch has
 * pinged. */
static void completions_of_an_epoch_that_is_over_mean_nothing_to_the_next(void **state)
{
    struct sl_mp_path *path;
    struct ibv_cq *cq;

    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    path = sl_mp_conn_of(sides[0].ep)->frame_path;
    cq = sl_verbs_path_of(path)->rail->cq;
    fake_ibv_cut(fake, sl_verbs_path_of(path)->qp, true);
    message_start(16); /* it is flushed, and … */
    fake_ibv_cq_hold(fake, cq, true);
    fake_ibv_qp_fatal(fake, sl_verbs_path_of(sl_mp_conn_of(sides[1].ep)->paths[path->idx])->qp);
    UNTIL(path->epoch == 2 &&
          (path->state == SL_MP_PATH_PINGING || path->state == SL_MP_PATH_ACCEPTED));
    UNTIL(path->posted > 0 || path->state == SL_MP_PATH_ACCEPTED);
    fake_ibv_cq_hold(fake, cq, false); /* … only now is that told */
    UNTIL(path->state == SL_MP_PATH_UP);
    assert_int_equal(path->epoch, 2);
    UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, 0);
    message(LONG_BYTES);
}

static void a_gid_that_changes_is_an_event_with_its_index(void **state)
{
    (void)state;
    world_make(SL_MP_FALLBACK_OFF);
    join();
    unsigned old = sl_verbs_iface_of(sides[0].iface)->rails[0].gid.index;

    fake_ibv_gid_move(fake, 0, 1, old, 9);
    UNTIL(count_of(0, SL_EVENT_GID_CHANGE) != 0);
    assert_int_equal(event_of(0, SL_EVENT_GID_CHANGE)->a, 0);
    assert_int_equal(event_of(0, SL_EVENT_GID_CHANGE)->b,
                     sl_verbs_iface_of(sides[0].iface)->rails[0].gid.index);
    UNTIL(count_of(0, SL_EVENT_PATH_UP) == 3);
}

static void the_way_over_tcp_is_told_of_once_it_was_used(void **state)
{
    struct sl_state_path mine[4], theirs[4];

    (void)state;
    world_make(SL_MP_FALLBACK_TCP);
    join();
    message(LONG_BYTES);
    assert_int_equal(stats_of(0, mine), 2);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_DOWN);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_DOWN);
    UNTIL(count_of(0, SL_EVENT_FALLBACK_ON) != 0 && count_of(1, SL_EVENT_FALLBACK_ON) != 0);
    assert_int_equal(event_of(0, SL_EVENT_CONN_WAITS)->a, 2);
    message(LONG_BYTES);
    assert_int_equal(stats_of(0, mine), 3);
    assert_int_equal(stats_of(1, theirs), 3);
    assert_string_equal(mine[2].name, "tcp (fallback)");
    assert_string_equal(mine[2].state, "up");
    assert_int_equal(mine[2].number, -1);
    assert_int_equal(mine[2].ups, 1);
    assert_true(mine[2].sent_bytes >= LONG_BYTES && theirs[2].received_bytes >= LONG_BYTES);
    assert_true(sl_histogram_total(mine[2].histogram) > 0);
    fake_ibv_port_set(fake, 0, 1, IBV_PORT_ACTIVE);
    fake_ibv_port_set(fake, 1, 1, IBV_PORT_ACTIVE);
    UNTIL(count_of(0, SL_EVENT_FALLBACK_OFF) != 0 && count_of(1, SL_EVENT_FALLBACK_OFF) != 0);
    assert_int_equal(stats_of(0, mine), 3);
    assert_string_equal(mine[2].state, "resting");
    assert_in_range(event_of(0, SL_EVENT_FALLBACK_OFF)->a, 0, 1);
    message(LONG_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_path_counts_what_it_carries, clean),
        cmocka_unit_test_teardown(a_path_counts_the_time_in_which_writes_are_under_way, clean),
        cmocka_unit_test_teardown(it_says_how_many_there_are_and_fills_no_more_than_asked, clean),
        cmocka_unit_test_teardown(a_port_that_fails_shows_in_state_reason_and_events, clean),
        cmocka_unit_test_teardown(what_a_dead_path_did_not_deliver_is_counted_as_resent, clean),
        cmocka_unit_test_teardown(nothing_is_posted_to_a_path_that_the_peer_has_ended, clean),
        cmocka_unit_test_teardown(a_request_to_send_may_come_after_its_message, clean),
        cmocka_unit_test_teardown(a_message_shorter_than_its_room_needs_no_answer, clean),
        cmocka_unit_test_teardown(a_path_that_was_slow_is_tried_again_after_a_while, clean),
        cmocka_unit_test_teardown(paths_that_were_idle_together_are_used_at_once, clean),
        cmocka_unit_test_teardown(a_connection_waits_for_a_time_only_while_something_is_to_come,
                                  clean),
        cmocka_unit_test_teardown(completions_of_an_epoch_that_is_over_mean_nothing_to_the_next,
                                  clean),
        cmocka_unit_test_teardown(a_gid_that_changes_is_an_event_with_its_index, clean),
        cmocka_unit_test_teardown(the_way_over_tcp_is_told_of_once_it_was_used, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
