/* SPDX-License-Identifier: Apache-2.0 */
/* The table of other ranks: what it holds, in which order, and that it costs what is used. */
#include "collectives/peers.h"
#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void ranks_that_nobody_used_say_nothing(void **state)
{
    static const struct sl_peer nothing;
    struct sl_peers peers;

    (void)state;
    assert_int_equal(sl_peers_init(&peers, 20), 0);
    for (uint32_t rank = 0; rank < 20; rank++)
        assert_memory_equal(sl_peers_at(&peers, rank), &nothing, sizeof(nothing));
    assert_int_equal(sl_peers_next(&peers, 0), 20);
    sl_peers_fini(&peers);
}

static void a_rank_stays_where_it_was_made(void **state)
{
    struct sl_peers peers;

    (void)state;
    assert_int_equal(sl_peers_init(&peers, 10000), 0);
    struct sl_peer *first = sl_peers_make(&peers, 5003);

    assert_non_null(first);
    first->seen = 7;
    for (uint32_t rank = 0; rank < 10000; rank += 37) {
        struct sl_peer *peer = sl_peers_make(&peers, rank);

        assert_non_null(peer);
        assert_ptr_equal(peer, sl_peers_at(&peers, rank));
    }
    assert_ptr_equal(sl_peers_at(&peers, 5003), first);
    assert_ptr_equal(sl_peers_make(&peers, 5003), first);
    assert_int_equal(first->seen, 7);
    sl_peers_fini(&peers);
}

/* Pages made in any order are walked in that of the ranks, and nobody else is. */
static void the_walk_sees_used_ranks_in_order(void **state)
{
    static const uint32_t used[] = {9999, 0, 5000, 64, 65, 4096, 100};
    struct sl_peers peers;
    uint32_t last = 0, seen = 0, walked = 0;

    (void)state;
    assert_int_equal(sl_peers_init(&peers, 10000), 0);
    for (unsigned i = 0; i < SL_ARRAY_LEN(used); i++)
        sl_peers_make(&peers, used[i])->seen = 1;
    sl_peers_foreach(&peers, rank)
    {
        assert_true(walked == 0 || rank > last);
        last = rank;
        walked++;
        seen += sl_peers_at(&peers, rank)->seen != 0;
    }
    assert_int_equal(seen, SL_ARRAY_LEN(used));
    assert_true(walked <= SL_ARRAY_LEN(used) * SL_PEERS_PAGE);
    sl_peers_fini(&peers);
}

/* The last page is longer than the ranks. */
static void the_walk_ends_at_the_last_rank(void **state)
{
    struct sl_peers peers;
    uint32_t walked = 0;

    (void)state;
    assert_int_equal(sl_peers_init(&peers, 11), 0);
    assert_non_null(sl_peers_make(&peers, 10));
    sl_peers_foreach(&peers, rank)
    {
        assert_in_range(rank, 8, 10);
        walked++;
    }
    assert_int_equal(walked, 3);
    sl_peers_fini(&peers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_nobody_used_say_nothing),
        cmocka_unit_test(a_rank_stays_where_it_was_made),
        cmocka_unit_test(the_walk_sees_used_ranks_in_order),
        cmocka_unit_test(the_walk_ends_at_the_last_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
