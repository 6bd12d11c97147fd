/* SPDX-License-Identifier: Apache-2.0 */
/* Paths set from outside: what the path table says counts while messages go, and nothing else of it
 * does. */
#include "tests/unit/verbs/world.h"

#include "core/state.h"
#include "multipath/stats.h"
#include "multipath/plan.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define HEAD "sluice-paths 1\n"
#define SOON_NS (100 * SL_NS_PER_MS)
#define MESSAGE (1u << 20)

static char folder[64], file[96], agent[96];

/* Beside it and renamed, as writers do. */
static void put_into(const char *name, const char *text)
{
    char fresh[128];

    snprintf(fresh, sizeof(fresh), "%s.new", name);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_int_equal(rename(fresh, name), 0);
}

static void put(const char *text)
{
    put_into(file, text);
}

static void prepare_with(void (*more)(struct fake_ibv_device *params))
{
    snprintf(folder, sizeof(folder), "/tmp/sluice-steer-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/table", folder);
    snprintf(agent, sizeof(agent), "%s/agent", folder);
    world_prepare(more);
    for (unsigned side = 0; side < 2; side++) {
        snprintf(world[side].config.paths_table, SL_TEXT_MAX, "%s", file);
        snprintf(world[side].config.paths_agent, SL_TEXT_MAX, "%s", agent);
        snprintf(world[side].config.job, SL_TEXT_MAX, "train");
        world[side].worker.rank = (int)side;
    }
}

static void prepare(void)
{
    prepare_with(NULL);
}

static void join_with(void (*more)(struct fake_ibv_device *params))
{
    prepare_with(more);
    world_join();
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == world_rails[0]);
}

static int fresh(void **state)
{
    (void)state;
    join_with(NULL);
    return 0;
}

static int clean(void **state)
{
    unlink(file);
    rmdir(folder);
    return world_clean(state);
}

static struct sl_mp_path *path_of(unsigned side, unsigned idx)
{
    return world_ep(side)->paths[idx];
}

static void pass(uint64_t ns)
{
    uint64_t until_ns = loop_now(world_loop) + ns;

    while (loop_now(world_loop) < until_ns) {
        world_progress();
        loop_pass(world_loop, SL_NS_PER_MS);
    }
}

/* The second path's part of what side 0 sends, in per cent. */
static unsigned part_of_second(unsigned messages)
{
    uint64_t before[2] = {path_of(0, 0)->stats.sent_bytes, path_of(0, 1)->stats.sent_bytes};

    for (unsigned i = 0; i < messages; i++)
        world_message(MESSAGE);
    uint64_t first = path_of(0, 0)->stats.sent_bytes - before[0];
    uint64_t second = path_of(0, 1)->stats.sent_bytes - before[1];

    return (unsigned)(100 * second / (first + second));
}

static void weights_are_shares_of_long_messages(void **state)
{
    uint64_t start_ns;

    (void)state;
    assert_in_range(part_of_second(16), 28, 60);
    put(HEAD "job=train rank=0 peer=1 path=1 weight=25\nend 1\n");
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(path_of(0, 1)->weight == 25);
    assert_true(loop_now(world_loop) - start_ns <= SOON_NS);
    assert_in_range(part_of_second(16), 17, 22);            /* 25 of 125 */
    put(HEAD "path=0 weight=1\npath=1 weight=10\nend 2\n"); /* one against the other */
    WORLD_UNTIL(path_of(0, 1)->weight == 10);
    assert_in_range(part_of_second(16), 88, 93);
    assert_int_equal(unlink(file), 0);
    WORLD_UNTIL(path_of(0, 1)->weight == 100);
    assert_in_range(part_of_second(16), 28, 60);
}

static void a_path_to_be_avoided_carries_nothing_more(void **state)
{
    struct sl_mp_path *first = world_ep(0)->frame_path, *other;
    char text[128];
    uint64_t start_ns, sent;

    (void)state;
    world_message(MESSAGE);
    other = path_of(0, !first->idx);
    snprintf(text, sizeof(text), HEAD "rank=0 path=%u avoid\nend 1\n", first->idx);
    put(text);
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(world_ep(0)->frame_path == other && world_ep(0)->paths_up == 2 &&
                world_ep(1)->paths_up == 2);
    assert_true(first->is_avoided);
    assert_true(loop_now(world_loop) - start_ns <= SOON_NS);
    sent = first->stats.sent_bytes;
    for (unsigned i = 0; i < 4; i++)
        world_message(MESSAGE);
    world_message(10);
    assert_int_equal(first->stats.sent_bytes, sent);
    assert_int_equal(first->stats.resent, 0);
    assert_int_equal(first->losses, 0); /* nothing is held against it */
    /* The other end sends as it likes. */
    assert_true(path_of(1, first->idx)->stats.sent_bytes > MESSAGE);
}

static void a_path_to_be_avoided_is_better_than_none(void **state)
{
    (void)state;
    put(HEAD "path=0 avoid\nend 1\n");
    WORLD_UNTIL(path_of(0, 0)->is_avoided && path_of(1, 0)->is_avoided &&
                world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    world_message(MESSAGE);
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_ACTIVE);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    pass(SOON_NS);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    assert_ptr_equal(world_ep(0)->frame_path, path_of(0, 1));
    assert_int_equal(part_of_second(4), 100);
}

static void paths_that_are_all_to_be_avoided_carry_as_ever(void **state)
{
    (void)state;
    put(HEAD "avoid\nend 1\n");
    WORLD_UNTIL(path_of(0, 0)->is_avoided && path_of(0, 1)->is_avoided);
    assert_in_range(part_of_second(16), 28, 60);
    assert_int_equal(path_of(0, 0)->stats.ups, 1);
    assert_int_equal(path_of(0, 1)->stats.ups, 1);
}

static void rules_for_others_change_nothing(void **state)
{
    (void)state;
    put(HEAD "job=other avoid\nrank=1 path=1 avoid\nrank=0 peer=7 weight=1\npath=5 weight=1\nend "
             "4\n");
    WORLD_UNTIL(path_of(1, 1)->is_avoided);
    pass(SOON_NS);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(path_of(0, i)->is_avoided);
        assert_int_equal(path_of(0, i)->weight, 100);
    }
    assert_false(path_of(1, 0)->is_avoided);
}

/* By the node agent, in a file of its own; what people say of the same path counts more. */
static void a_rule_of_a_port_is_for_all_paths_by_it(void **state)
{
    const char *name;
    char text[256];

    (void)state;
    name = path_of(0, 1)->rail->name;
    snprintf(text, sizeof(text), HEAD "port=%s avoid\nend 1\n", name);
    put_into(agent, text);
    WORLD_UNTIL(path_of(0, 1)->is_avoided && world_ep(0)->paths_up == 2 &&
                world_ep(1)->paths_up == 2);
    assert_false(path_of(0, 0)->is_avoided);
    assert_int_equal(part_of_second(4), 0);
    put(HEAD "rank=0 use\nend 1\n");
    WORLD_UNTIL(!path_of(0, 1)->is_avoided);
    assert_in_range(part_of_second(16), 28, 60);
    assert_int_equal(unlink(agent), 0);
}

/* Rails of a path are chosen after it was made, by the other end for one of the two. */
static void a_rule_of_a_port_counts_for_new_paths(void **state)
{
    (void)state;
    prepare();
    put_into(agent, HEAD "port=a0:1 avoid\nport=a1:1 weight=25\nport=b1:1 avoid\nend 3\n");
    world_join();
    for (unsigned side = 0; side < 2; side++)
        WORLD_UNTIL(world_ep(side)->paths_up == world_rails[0]);
    for (unsigned i = 0; i < 2; i++) {
        const struct sl_mp_path *ours = path_of(0, i), *theirs = path_of(1, i);
        bool is_first = strcmp(ours->rail->name, "a0:1") == 0;

        assert_true(is_first || strcmp(ours->rail->name, "a1:1") == 0);
        assert_int_equal(ours->is_avoided, is_first);
        assert_int_equal(ours->weight, is_first ? 100 : 25);
        assert_int_equal(theirs->is_avoided, strcmp(theirs->rail->name, "b1:1") == 0);
    }
    assert_int_equal(unlink(agent), 0);
}

static void a_torn_table_changes_nothing(void **state)
{
    (void)state;
    put(HEAD "path=1 weight=25\nend 1\n");
    WORLD_UNTIL(path_of(0, 1)->weight == 25);
    put(HEAD "path=0 avoid\npath=1 weight=1\n");
    pass(SOON_NS);
    assert_false(path_of(0, 0)->is_avoided);
    assert_int_equal(path_of(0, 1)->weight, 25);
}

static void a_new_connection_has_it_from_the_start(void **state)
{
    (void)state;
    prepare();
    put(HEAD "path=0 avoid\nend 1\n");
    world_join();
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    pass(SOON_NS);
    WORLD_UNTIL(world_ep(0)->paths_up == 2 && world_ep(1)->paths_up == 2);
    for (unsigned side = 0; side < 2; side++) {
        uint64_t sent = path_of(side, 0)->stats.sent_bytes;

        assert_true(path_of(side, 0)->is_avoided);
        world_message(MESSAGE);
        assert_int_equal(path_of(side, 0)->stats.sent_bytes, sent);
    }
}

/* ---- labels ---- */

static void mlx5(struct fake_ibv_device *params)
{
    params->mlx5 = true;
}

static int fresh_mlx5(void **state)
{
    (void)state;
    join_with(mlx5);
    return 0;
}

static int fresh_alone(void **state)
{
    (void)state;
    world_rails[0] = world_rails[1] = 1;
    join_with(NULL);
    return 0;
}

static uint32_t label_of(unsigned side, unsigned idx)
{
    return sl_verbs_path_of(path_of(side, idx))->flow_label;
}

static struct fake_ibv_qp_info info_of(unsigned side, unsigned idx)
{
    struct fake_ibv_qp_info info;

    fake_ibv_qp_info(world_fake, sl_verbs_path_of(path_of(side, idx))->qp, &info);
    return info;
}

/* In its queue pair: by the address vector; where it was set, the port itself. */
static uint32_t wired_label(unsigned side, unsigned idx)
{
    return info_of(side, idx).flow_label;
}

static uint16_t wired_port(unsigned side, unsigned idx)
{
    return info_of(side, idx).udp_sport;
}

static bool both_up(void)
{
    return world_ep(0)->paths_up == world_rails[0] && world_ep(1)->paths_up == world_rails[0];
}

/* Messages go until it is so; both ends keep a path all the while. */
#define MESSAGES_UNTIL(condition)                                                                  \
    do {                                                                                           \
        for (unsigned i = 0; !(condition); i++) {                                                  \
            world_message(MESSAGE);                                                                \
            assert_true(i < 1000);                                                                 \
            assert_true(world_ep(0)->paths_up > 0 && world_ep(1)->paths_up > 0);                   \
        }                                                                                          \
    } while (0)

static void a_label_is_changed_in_place_where_the_device_can(void **state)
{
    struct sl_state_path shown[2];
    uint32_t was = label_of(0, 1), others = label_of(0, 0), peers = label_of(1, 1);
    uint64_t start_ns;

    (void)state;
    put(HEAD "rank=0 peer=1 path=1 label=beef\nend 1\n");
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(label_of(0, 1) == 0xbeef);
    assert_true(loop_now(world_loop) - start_ns <= SOON_NS);
    assert_int_equal(wired_port(0, 1), sl_mp_udp_sport(0xbeef));
    assert_int_equal(label_of(0, 0), others);
    assert_int_equal(label_of(1, 1), peers);
    world_message(MESSAGE);
    sl_mp_ep_stats(world[0].ep, shown, 2);
    assert_int_equal(shown[1].label, 0xbeef);
    assert_int_equal(shown[1].source_port, sl_mp_udp_sport(0xbeef));
    assert_int_equal(shown[1].weight, 100);
    assert_int_equal(shown[0].label, others);
    put(HEAD "path=1 weight=50\nend 1\n");
    WORLD_UNTIL(label_of(0, 1) == was);
    assert_int_equal(wired_port(0, 1), sl_mp_udp_sport(was));
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(path_of(side, i)->epoch, 1);
            assert_int_equal(path_of(side, i)->stats.ups, 1);
        }
}

static void a_path_is_made_anew_for_its_label_where_it_cannot(void **state)
{
    uint32_t was = label_of(0, 1), other = path_of(0, 0)->epoch;

    (void)state;
    put(HEAD "rank=0 path=1 label=beef\nend 1\n");
    MESSAGES_UNTIL(label_of(0, 1) == 0xbeef && both_up());
    assert_int_equal(wired_label(0, 1), 0xbeef);
    assert_int_equal(path_of(0, 1)->epoch, 2);
    assert_int_equal(path_of(0, 1)->losses + path_of(0, 1)->tries + path_of(0, 1)->misses, 0);
    assert_int_equal(path_of(1, 1)->losses + path_of(1, 1)->tries + path_of(1, 1)->misses, 0);
    assert_int_equal(unlink(file), 0);
    MESSAGES_UNTIL(label_of(0, 1) == was && both_up());
    assert_int_equal(wired_label(0, 1), was);
    pass(SOON_NS);
    assert_int_equal(path_of(0, 1)->epoch, 3);
    assert_int_equal(path_of(0, 0)->epoch, other);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void all_labels_change_one_after_the_other(void **state)
{
    (void)state;
    put(HEAD "rank=0 path=0 label=a0\nrank=0 path=1 label=a1\nrank=1 path=0 label=b0\n"
             "rank=1 path=1 label=b1\nend 4\n");
    MESSAGES_UNTIL(label_of(0, 0) == 0xa0 && label_of(0, 1) == 0xa1 && label_of(1, 0) == 0xb0 &&
                   label_of(1, 1) == 0xb1 && both_up());
    for (unsigned side = 0; side < 2; side++)
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(wired_label(side, i), label_of(side, i));
            assert_in_range(path_of(side, i)->epoch, 2, 3);
        }
}

static void the_only_path_is_made_anew_too(void **state)
{
    uint64_t start_ns;

    (void)state;
    put(HEAD "rank=1 label=5\nend 1\n");
    start_ns = loop_now(world_loop);
    WORLD_UNTIL(label_of(1, 0) == 5 && both_up());
    assert_true(loop_now(world_loop) - start_ns <= SOON_NS);
    assert_int_equal(path_of(0, 0)->epoch, 2);
    world_message(MESSAGE);
}

static void the_last_one_that_is_up_waits_for_another_and_not_for_ever(void **state)
{
    uint64_t start_ns;

    (void)state;
    fake_ibv_port_set(world_fake, 1, 1, IBV_PORT_DOWN);
    WORLD_UNTIL(world_ep(0)->paths_up == 1 && world_ep(1)->paths_up == 1);
    put(HEAD "rank=0 path=0 label=beef\nend 1\n");
    start_ns = loop_now(world_loop);
    pass(SL_NS_PER_S / 2);
    assert_int_equal(path_of(0, 0)->epoch, 1);
    WORLD_UNTIL(label_of(0, 0) == 0xbeef && world_ep(0)->paths_up == 1);
    assert_true(loop_now(world_loop) - start_ns <= 2 * SL_NS_PER_S);
    world_message(MESSAGE);
}

static void the_drivers_own_label_needs_another_queue_pair(void **state)
{
    (void)state;
    put(HEAD "rank=0 path=0 label=0\nend 1\n");
    MESSAGES_UNTIL(label_of(0, 0) == 0 && both_up());
    assert_int_equal(path_of(0, 0)->epoch, 2);
    assert_int_equal(wired_port(0, 0), 0);
}

static void so_does_a_device_that_refuses(void **state)
{
    (void)state;
    fake_ibv_mlx5(world_fake)->mlx5dv_modify_qp_udp_sport = NULL;
    put(HEAD "rank=0 path=0 label=beef\nend 1\n");
    MESSAGES_UNTIL(label_of(0, 0) == 0xbeef && both_up());
    assert_int_equal(path_of(0, 0)->epoch, 2);
    assert_int_equal(wired_label(0, 0), 0xbeef);
}

static void a_new_connection_has_its_labels_from_the_start(void **state)
{
    (void)state;
    prepare();
    put(HEAD "path=0 label=c0de\nend 1\n");
    world_join();
    WORLD_UNTIL(both_up());
    pass(SOON_NS);
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(wired_label(side, 0), 0xc0de);
        assert_int_equal(path_of(side, 0)->epoch, 1);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(weights_are_shares_of_long_messages),
        CASE(a_path_to_be_avoided_carries_nothing_more),
        CASE(a_path_to_be_avoided_is_better_than_none),
        CASE(paths_that_are_all_to_be_avoided_carry_as_ever),
        CASE(rules_for_others_change_nothing),
        CASE(a_rule_of_a_port_is_for_all_paths_by_it),
        cmocka_unit_test_teardown(a_rule_of_a_port_counts_for_new_paths, clean),
        CASE(a_torn_table_changes_nothing),
        cmocka_unit_test_teardown(a_new_connection_has_it_from_the_start, clean),
        cmocka_unit_test_setup_teardown(a_label_is_changed_in_place_where_the_device_can,
                                        fresh_mlx5, clean),
        CASE(a_path_is_made_anew_for_its_label_where_it_cannot),
        CASE(all_labels_change_one_after_the_other),
        cmocka_unit_test_setup_teardown(the_only_path_is_made_anew_too, fresh_alone, clean),
        CASE(the_last_one_that_is_up_waits_for_another_and_not_for_ever),
        cmocka_unit_test_setup_teardown(the_drivers_own_label_needs_another_queue_pair, fresh_mlx5,
                                        clean),
        cmocka_unit_test_setup_teardown(so_does_a_device_that_refuses, fresh_mlx5, clean),
        cmocka_unit_test_teardown(a_new_connection_has_its_labels_from_the_start, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
