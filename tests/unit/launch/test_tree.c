/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the tree, the pieces of a result, and the small bodies that travel in it. */
#include "launch/descriptors.h"
#include "launch/seat.h"
#include "launch/tree.h"
#include "launch/wire.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE_MAX_HERE 700

/* Its children cut what is behind it without a gap, and each calls it its parent. */
static void check_children(const struct sl_tree *tree)
{
    int at = tree->rank + 1, height = 0;

    assert_true(tree->count <= SL_TREE_DEGREE);
    for (int i = 0; i < tree->count; i++) {
        struct sl_tree child;

        sl_tree_make(tree->child[i], tree->size, &child);
        assert_int_equal(child.rank, at);
        assert_int_equal(child.parent, tree->rank);
        assert_int_equal(child.depth, tree->depth + 1);
        assert_int_equal(child.end, tree->child[i + 1]);
        height = child.height + 1 > height ? child.height + 1 : height;
        at = child.end;
    }
    assert_int_equal(at, tree->end);
    assert_int_equal(tree->height, height);
}

static void a_subtree_is_a_range_of_ranks(void **state)
{
    struct sl_tree tree;

    (void)state;
    for (int size = 1; size <= SIZE_MAX_HERE; size += size < 90 ? 1 : 61)
        for (int rank = 0; rank < size; rank++) {
            sl_tree_make(rank, size, &tree);
            assert_int_equal(tree.parent < 0, rank == 0);
            check_children(&tree);
        }
}

static void a_tree_of_many_ranks_is_flat(void **state)
{
    struct sl_tree tree;

    (void)state;
    sl_tree_make(0, 5, &tree);
    assert_int_equal(tree.height, 1);
    sl_tree_make(0, 1024, &tree);
    assert_int_equal(tree.height, 5);
    sl_tree_make(0, 10000, &tree);
    assert_int_equal(tree.height, 7);
}

/* Every share once, in order, and none in a piece that is cut by the edge of a subtree. */
static void check_pieces(int size, size_t len)
{
    struct sl_piece *pieces = calloc((size_t)size + 1, sizeof(*pieces));
    unsigned count = sl_tree_pieces(size, len, 24, pieces), from, to;
    struct sl_tree tree;
    int next = 0;

    for (unsigned i = 0; i < count; i++) {
        size_t bytes = (size_t)(pieces[i].end - pieces[i].first) * len;

        assert_int_equal(pieces[i].first, next);
        assert_true(bytes <= SL_PIECE_BYTES || pieces[i].end == pieces[i].first + 1);
        assert_int_equal(pieces[i + 1].at, pieces[i].at + bytes + 24);
        next = pieces[i].end;
    }
    assert_int_equal(next, size);
    for (int rank = 1; rank < size; rank++) {
        sl_tree_make(rank, size, &tree);
        sl_tree_pieces_of(pieces, count, rank, tree.end, &from, &to);
        if (from == to) { /* all of it is in a larger one, which is small */
            assert_true((size_t)(tree.end - rank) * len < SL_PIECE_BYTES);
            continue;
        }
        assert_int_equal(pieces[from].first, rank);
        assert_int_equal(pieces[to - 1].end, tree.end);
    }
    free(pieces);
}

static void pieces_hold_whole_subtrees(void **state)
{
    static const size_t lens[] = {0, 1, 96, 320, 5000, 20000};

    (void)state;
    for (size_t i = 0; i < SL_ARRAY_LEN(lens); i++)
        for (int size = 1; size <= SIZE_MAX_HERE; size += size < 45 ? 1 : 131)
            check_pieces(size, lens[i]);
}

static void missing_ranks_travel_as_ranges(void **state)
{
    uint8_t body[SL_MISSING_MAX], bad[SL_MISSING_MAX + 8] = {0};
    bool missing[512], back[512];

    (void)state;
    for (int i = 0; i < 512; i++)
        missing[i] = i >= 7 && i < 500 && i % 9 != 0;
    memset(back, 0, sizeof(back));
    size_t len = sl_missing_make(missing, 512, body);
    assert_int_equal(sl_missing_parse(body, len, 7, 500, back), 0);
    assert_memory_equal(missing, back, sizeof(back));
    assert_int_equal(sl_missing_parse(body, len, 8, 500, back), -EBADMSG);
    assert_int_equal(sl_missing_parse(body, len, 7, 499, back), -EBADMSG);
    assert_int_equal(sl_missing_parse(body, len - 1, 7, 500, back), -EBADMSG);
    assert_int_equal(sl_missing_parse(body, 0, 7, 500, back), -EBADMSG);
    assert_int_equal(sl_missing_parse(bad, sizeof(bad), 0, 500, back), -EBADMSG);
    for (int i = 0; i < 512; i++)
        missing[i] = i % 2 == 0; /* more than fit: the first ones */
    assert_int_equal(sl_missing_make(missing, 512, body), SL_MISSING_MAX);
}

static void a_seat_travels_with_its_addresses(void **state)
{
    struct sl_seat seat, back;
    struct sl_listeners nearby, network;
    uint8_t bytes[SL_SEAT_BYTES];
    struct sl_config config;

    (void)state;
    sl_config_defaults(&config);
    assert_int_equal(sl_seat_open(&seat, &nearby), 0);
    assert_true(nearby.has_nearby && nearby.count == 0 && seat.id != 0);
    assert_int_equal(sl_seat_pack(&seat, bytes), 8);
    assert_int_equal(sl_seat_unpack(bytes, 8, &back), 0);
    assert_true(back.id == seat.id && !back.network);
    assert_int_equal(sl_seat_open_network(&config, &seat, &network), 0);
    assert_true(network.count > 0 && !network.has_nearby);
    assert_int_equal(sl_seat_pack(&seat, bytes), SL_SEAT_BYTES);
    assert_int_equal(sl_seat_unpack(bytes, sizeof(bytes), &back), 0);
    assert_true(back.network && back.card.port == network.port &&
                back.card.count == seat.card.count);
    assert_int_equal(sl_seat_unpack(bytes, sizeof(bytes) - 1, &back), -EINVAL);
    bytes[60] ^= 1;
    assert_int_equal(sl_seat_unpack(bytes, sizeof(bytes), &back), -EINVAL);
    sl_listeners_close(&nearby);
    sl_listeners_close(&network);
}

/* In a process of its own: a hard limit does not come back. */
static int raise_within(rlim_t soft, rlim_t hard, unsigned count)
{
    struct rlimit limit = {soft, hard};
    struct sl_descriptors raised;

    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 90;
    int err = sl_descriptors_raise(count, &raised);
    getrlimit(RLIMIT_NOFILE, &limit);
    if (err != 0)
        return err == -EMFILE && strstr(sluice_last_error(), "raise 'ulimit -n'") != NULL &&
                       limit.rlim_cur == soft
                   ? 1
                   : 91;
    if (limit.rlim_cur < count)
        return 92;
    sl_descriptors_restore(&raised);
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == soft ? 0 : 93;
}

static int raise_apart(rlim_t soft, rlim_t hard, unsigned count)
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(raise_within(soft, hard, count));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static void the_limit_on_descriptors_is_raised_for_a_while(void **state)
{
    (void)state;
    assert_int_equal(raise_apart(64, 500, 400), 0);
    assert_int_equal(raise_apart(500, 500, 400), 0);
}

static void too_low_a_limit_says_what_is_needed(void **state)
{
    (void)state;
    assert_int_equal(raise_apart(64, 300, 400), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subtree_is_a_range_of_ranks),
        cmocka_unit_test(a_tree_of_many_ranks_is_flat),
        cmocka_unit_test(pieces_hold_whole_subtrees),
        cmocka_unit_test(missing_ranks_travel_as_ranges),
        cmocka_unit_test(a_seat_travels_with_its_addresses),
        cmocka_unit_test(the_limit_on_descriptors_is_raised_for_a_while),
        cmocka_unit_test(too_low_a_limit_says_what_is_needed),
    };

    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
