/* SPDX-License-Identifier: Apache-2.0 */
/* The table of channels, and messages that are kept until their receives come. */
#include "core/channel.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct own {
    struct sl_channel base;
    int mark;
};

static struct sl_channels channels;

static int start(void **state)
{
    (void)state;
    return sl_channels_init(&channels, sizeof(struct own));
}

static int stop(void **state)
{
    (void)state;
    sl_channels_cancel(&channels, -ECANCELED);
    sl_channels_fini(&channels);
    return 0;
}

static struct sl_channel *open_channel(uint32_t id)
{
    struct sl_channel *channel = NULL;

    assert_int_equal(sl_channels_open(&channels, id, &channel), 0);
    assert_int_equal(channel->id, id);
    return channel;
}

/* As a transport fills one. */
static struct sl_kept *keep(struct sl_channel *channel, uint64_t tag, const char *text)
{
    struct sl_kept *kept = sl_channel_keep(&channels, channel, tag, strlen(text));

    assert_non_null(kept);
    memcpy(kept->sink.dst, text, strlen(text));
    return kept;
}

/* A peer names the length before a byte of the message is here. */
static void a_length_takes_no_memory_without_end(void **state)
{
    (void)state;
    assert_null(sl_channel_keep(&channels, open_channel(1), 0, SL_KEPT_MAX + 1));
    assert_null(sl_channel_keep(&channels, open_channel(2), 0, UINT64_MAX));
}

static void many_channels(void **state)
{
    struct sl_channel *channel;
    uint32_t visited = 0, ids = 0;

    (void)state;
    for (uint32_t id = 1; id <= 1000; id++)
        ((struct own *)open_channel(id * 7))->mark = (int)id;
    for (uint32_t id = 1; id <= 1000; id++) {
        channel = sl_channels_find(&channels, id * 7);
        assert_non_null(channel);
        assert_int_equal(((struct own *)channel)->mark, id);
    }
    assert_null(sl_channels_find(&channels, 8));
    for (channel = NULL; (channel = sl_channels_next(&channels, channel)) != NULL;) {
        visited++;
        ids += channel->id;
    }
    assert_int_equal(visited, 1001);
    assert_int_equal(ids, 7 * 1000 * 1001 / 2);
    assert_true(sl_channels_find(&channels, 0)->open);
    assert_int_equal(sl_channels_open(&channels, 7, &channel), -EINVAL);
    assert_int_equal(channels.unopened, 0);
}

static void the_peer_is_first(void **state)
{
    struct sl_channel *channel = sl_channels_get(&channels, 5);

    (void)state;
    assert_non_null(channel);
    assert_false(channel->open);
    assert_int_equal(channels.unopened, 1);
    assert_ptr_equal(open_channel(5), channel);
    assert_true(channel->open);
    assert_int_equal(channels.unopened, 0);
}

static void a_peer_names_too_many(void **state)
{
    (void)state;
    for (uint32_t id = 1; id <= SL_CHANNELS_UNOPENED_MAX; id++)
        assert_non_null(sl_channels_get(&channels, id));
    assert_null(sl_channels_get(&channels, SL_CHANNELS_UNOPENED_MAX + 1));
    assert_non_null(strstr(sluice_last_error(), "not open here"));
    open_channel(3);
    assert_non_null(sl_channels_get(&channels, SL_CHANNELS_UNOPENED_MAX + 1));
}

static void bytes_moved_count_on_their_channel(void **state)
{
    struct sl_iface iface = {.traffic = 1};
    struct sl_ep ep = {.iface = &iface};
    struct sl_channel *a = open_channel(1), *b = open_channel(2);

    (void)state;
    sl_channel_moved(&ep, a, 100);
    sl_channel_moved(&ep, b, 20);
    sl_channel_moved(&ep, a, 3);
    assert_int_equal(iface.traffic, 124);
    assert_ptr_equal(sl_channels_find(&channels, 2), b);
    assert_int_equal(sl_channels_traffic(&channels, 1), 103);
    assert_ptr_equal(channels.last, b); /* whoever only asks does not move it */
    assert_int_equal(sl_channels_traffic(&channels, 2), 20);
    assert_int_equal(sl_channels_traffic(&channels, 0), 0);
    assert_int_equal(sl_channels_traffic(&channels, 3), 0);
}

static void who_waits(void **state)
{
    struct sl_channel *a = open_channel(1), *b = open_channel(2);

    (void)state;
    assert_false(sl_channels_wanting(&channels, a));
    sl_channel_wants(&channels, a, 1);
    assert_false(sl_channels_wanting(&channels, a));
    assert_true(sl_channels_wanting(&channels, b));
    sl_channel_wants(&channels, a, -1);
    assert_false(sl_channels_wanting(&channels, b));
}

static void kept_then_received(void **state)
{
    struct sl_channel *channel = open_channel(1);
    struct sl_kept *kept = keep(channel, 9, "gradient");
    char out[8];
    struct sl_sink sink = {.dst = out, .len = sizeof(out), .tag = 9, .channel = 1};
    struct sl_req req = {0}, second = {0};

    (void)state;
    sl_req_end(&kept->req, 0);
    assert_false(sl_channels_due(&channels));
    assert_true(sl_channel_claim(&channels, channel, &sink, &req));
    assert_int_equal(req.status, SL_PENDING);
    assert_false(sl_channel_claim(&channels, channel, &sink, &second));
    assert_true(sl_channels_due(&channels));
    assert_int_equal(sl_channels_settle(&channels, 8), 1);
    assert_int_equal(req.status, 0);
    assert_int_equal(req.len, 8);
    assert_int_equal(req.tag, 9);
    assert_memory_equal(out, "gradient", 8);
}

static void received_while_it_comes(void **state)
{
    struct sl_channel *channel = open_channel(1);
    struct sl_kept *first = keep(channel, 1, "one"), *other = keep(channel, 2, "two");
    char out[2][3];
    struct sl_sink sinks[2] = {{.dst = out[0], .len = 3, .tag = 1, .channel = 1},
                               {.dst = out[1], .len = 3, .tag = 2, .channel = 1}};
    struct sl_req reqs[2] = {{0}, {0}};

    (void)state;
    assert_true(sl_channel_claim(&channels, channel, &sinks[0], &reqs[0]));
    assert_true(sl_channel_claim(&channels, channel, &sinks[1], &reqs[1]));
    assert_false(sl_channels_due(&channels));
    sl_req_end(&other->req, 0);
    assert_int_equal(sl_channels_settle(&channels, 1), 1);
    assert_int_equal(reqs[1].status, 0);
    assert_int_equal(reqs[0].status, SL_PENDING);
    sl_req_end(&first->req, 0);
    assert_int_equal(sl_channels_settle(&channels, 1), 1);
    assert_memory_equal(out, "onetwo", 6);
}

static void another_than_expected(void **state)
{
    struct sl_channel *channel = open_channel(1);
    char out[8] = "";
    struct sl_sink tag = {.dst = out, .len = 3, .tag = 8, .channel = 1};
    struct sl_sink len = {.dst = out, .len = 4, .tag = 7, .channel = 1};
    struct sl_sink room = {.dst = out, .len = 4, .tag = 7, .shorter = true, .channel = 1};
    struct sl_req reqs[3] = {{0}};

    (void)state;
    for (int i = 0; i < 3; i++)
        sl_req_end(&keep(channel, 7, "abc")->req, 0);
    assert_true(sl_channel_claim(&channels, channel, &tag, &reqs[0]));
    assert_true(sl_channel_claim(&channels, channel, &len, &reqs[1]));
    assert_true(sl_channel_claim(&channels, channel, &room, &reqs[2]));
    assert_int_equal(sl_channels_settle(&channels, 8), 3);
    assert_int_equal(reqs[0].status, -EPROTO);
    assert_int_equal(reqs[0].tag, 7);
    assert_int_equal(reqs[1].status, -EMSGSIZE);
    assert_int_equal(reqs[1].len, 3);
    assert_int_equal(reqs[2].status, 0);
    assert_string_equal(out, "abc");
}

static void closed_with_all_kinds(void **state)
{
    struct sl_channel *channel = open_channel(1);
    struct sl_kept *due = keep(channel, 1, "due"), *filling = keep(channel, 2, "filling");
    char out[8];
    struct sl_sink sinks[2] = {{.dst = out, .len = 3, .tag = 1, .channel = 1},
                               {.dst = out, .len = 7, .tag = 2, .channel = 1}};
    struct sl_req reqs[2] = {{0}, {0}};

    (void)state;
    sl_req_end(&keep(channel, 3, "nobody's")->req, 0);
    sl_req_end(&due->req, 0);
    assert_true(sl_channel_claim(&channels, channel, &sinks[0], &reqs[0]));
    assert_true(sl_channel_claim(&channels, channel, &sinks[1], &reqs[1]));
    channel->came = 3;
    sl_channel_close(&channels, channel, -ECANCELED);
    assert_int_equal(reqs[0].status, -ECANCELED);
    assert_int_equal(reqs[1].status, -ECANCELED);
    assert_false(sl_channels_due(&channels));
    sl_req_end(&filling->req, 0); /* frees it: the leak checker sees */
    assert_false(sl_channel_over(channel));
    sl_channel_peer_closed(channel, 4);
    assert_false(sl_channel_over(channel));
    channel->came++;
    assert_true(sl_channel_over(channel));
    sl_channels_remove(&channels, channel);
    assert_null(sl_channels_find(&channels, 1));
}

static void lost_with_all_kinds(void **state)
{
    struct sl_channel *channel = open_channel(1), *other = open_channel(2);
    struct sl_kept *due = keep(channel, 1, "due"), *part = keep(channel, 2, "part"), *behind[2];
    char out[8];
    struct sl_sink sinks[4];
    struct sl_req reqs[4] = {{0}};

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        sinks[i] = (struct sl_sink){.dst = out, .len = 7, .tag = i + 1, .shorter = true};
    sl_req_end(&due->req, 0);
    sl_req_end(&keep(channel, 3, "whole")->req, 0);
    for (unsigned i = 0; i < 2; i++)
        behind[i] = keep(other, 4, "behind");
    sl_req_end(&behind[1]->req, 0); /* nobody's, after a part of a message that is nobody's */
    assert_true(sl_channel_claim(&channels, channel, &sinks[0], &reqs[0]));
    assert_true(sl_channel_claim(&channels, channel, &sinks[1], &reqs[1]));
    sl_channels_lost(&channels, -ECONNRESET);
    sl_req_end(&part->req, -ECONNRESET); /* both are freed: the leak checker sees */
    sl_req_end(&behind[0]->req, -ECONNRESET);
    assert_int_equal(reqs[0].status, SL_PENDING);
    assert_int_equal(reqs[1].status, -ECONNRESET);
    assert_true(sl_channel_claim(&channels, channel, &sinks[2], &reqs[2]));
    assert_false(sl_channel_claim(&channels, channel, &sinks[3], &reqs[3]));
    assert_false(sl_channel_claim(&channels, other, &sinks[3], &reqs[3]));
    assert_int_equal(sl_channels_settle(&channels, 1), 1);
    assert_int_equal(reqs[0].status, 0);
    assert_memory_equal(out, "due", 3);
    assert_int_equal(sl_channels_settle(&channels, 8), 1);
    assert_int_equal(reqs[2].status, 0);
    assert_memory_equal(out, "whole", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_channels, start, stop),
        cmocka_unit_test_setup_teardown(a_length_takes_no_memory_without_end, start, stop),
        cmocka_unit_test_setup_teardown(the_peer_is_first, start, stop),
        cmocka_unit_test_setup_teardown(a_peer_names_too_many, start, stop),
        cmocka_unit_test_setup_teardown(bytes_moved_count_on_their_channel, start, stop),
        cmocka_unit_test_setup_teardown(who_waits, start, stop),
        cmocka_unit_test_setup_teardown(kept_then_received, start, stop),
        cmocka_unit_test_setup_teardown(received_while_it_comes, start, stop),
        cmocka_unit_test_setup_teardown(another_than_expected, start, stop),
        cmocka_unit_test_setup_teardown(closed_with_all_kinds, start, stop),
        cmocka_unit_test_setup_teardown(lost_with_all_kinds, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
