/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes over flows: where bytes go, what strangers can do, paths that fail and routes that move. */
#include "tests/unit/dpdk/dpdk_world.h"

#include "core/state.h"
#include "dpdk/cc/cc.h"
#include "dpdk/events.h"
#include "multipath/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LONG (3u << 20)

static int prepare(void **state)
{
    (void)state;
    world_prepare();
    return 0;
}

static struct sl_dp_flow_stats stats_of(unsigned side, unsigned idx)
{
    struct sl_dp_flow_stats stats = {0};

    if (world_lane(side, idx)->flow != NULL)
        sl_dp_flow_stats(world_lane(side, idx)->flow, &stats);
    return stats;
}

static bool is_up(unsigned side, unsigned idx)
{
    return world_lane(side, idx)->base.state == SL_MP_PATH_UP;
}

static void bytes_go_straight_to_where_they_belong(void **state)
{
    struct sl_mp_chunks *chunks;
    unsigned before;

    (void)state;
    world_join();
    chunks = &world_conn(1)->iface->rx_chunks;
    before = chunks->free_count;
    chunks->free_count = 0; /* there is no staging */
    world_conn(0)->iface->tx_chunks.free_count = 0;
    world_conn(0)->iface->rx_chunks.free_count = 0;
    world_conn(1)->iface->tx_chunks.free_count = 0;
    world_message(LONG);
    chunks->free_count = before;
    world_conn(0)->iface->rx_chunks.free_count = before;
    world_conn(0)->iface->tx_chunks.free_count = before;
    world_conn(1)->iface->tx_chunks.free_count = before;
    assert_true(world_lane(0, 0)->base.stats.sent_bytes > LONG / 8);
    assert_true(world_lane(0, 1)->base.stats.sent_bytes > LONG / 8);
}

static void gpu_memory_is_refused_and_left_to_the_engine(void **state)
{
    struct sl_mem mem = {.addr = state, .len = 8, .kind = SL_MEM_CUDA, .fd = -1};
    struct sl_mr *mr = NULL;

    world_join();
    assert_int_equal(world[0].iface->ops->mr_reg(world[0].iface, &mem, &mr, NULL), -ENOTSUP);
    assert_int_equal(world[0].iface->caps & SL_CAP_GPU, 0);
}

static void what_the_wire_loses_is_repeated(void **state)
{
    (void)state;
    world_join();
    fake_port_weather(&(struct fake_port_weather){.lost = 20, .doubled = 30, .held = 10});
    for (unsigned i = 0; i < 4; i++)
        world_message(LONG / 4);
    fake_port_weather(&(struct fake_port_weather){0});
    assert_true(stats_of(0, 0).resent_packets > 0);
    assert_true(stats_of(1, 1).repeated_packets > 0);
    assert_int_equal(world_lane(0, 0)->base.stats.failures, 0);
}

static void payload_is_lent_until_the_port_has_read_it(void **state)
{
    (void)state;
    fake_port_weather(&(struct fake_port_weather){.keeps = true, .slow = 5});
    world_join();
    for (unsigned i = 0; i < 4; i++)
        world_message(100000);
    WORLD_UNTIL(world_lane(0, 0)->lent == 0 && world_lane(1, 0)->lent == 0);
}

static void a_port_that_takes_nothing_gives_its_payload_back_when_its_path_ends(void **state)
{
    static uint8_t bytes[200000], got[200000];
    struct sl_buf buf = {.addr = bytes, .len = sizeof(bytes)};
    struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 1};
    struct sl_req send_req = {.status = SL_PENDING}, recv_req = {.status = SL_PENDING};

    (void)state;
    memset(bytes, 7, sizeof(bytes));
    fake_port_weather(&(struct fake_port_weather){.keeps = true});
    sl_dpdk_config_edit(&world[0].config)->timeout_ms = 50;
    sl_dpdk_config_edit(&world[1].config)->timeout_ms = 50;
    world_join();
    fake_port_stuck("a0", true);
    WORLD_UNTIL(world[1].iface->ops->recv(world[1].ep, &sink, &recv_req) >= 0);
    WORLD_UNTIL(world[0].iface->ops->send(world[0].ep, &buf, 1, &send_req) >= 0);
    WORLD_UNTIL(send_req.status != SL_PENDING && recv_req.status != SL_PENDING);
    assert_int_equal(send_req.status, 0);
    assert_memory_equal(bytes, got, sizeof(got));
    assert_false(is_up(0, 0));
    assert_int_equal(world_lane(0, 0)->lent, 0);
    fake_port_stuck("a0", false);
    WORLD_UNTIL(is_up(0, 0) && is_up(1, 0));
}

static void a_path_that_dies_says_port_source_port_and_peer(void **state)
{
    char name[128], expected[160];

    (void)state;
    sl_dpdk_config_edit(&world[0].config)->timeout_ms = 50;
    world_join();
    world_message(LONG);
    snprintf(expected, sizeof(expected), "UDP source port %u to 10.1.0.",
             sl_dpdk_lane_port(world_lane(0, 0)));
    world_lane(0, 0)->base.lanes->name(&world_lane(0, 0)->base, name, sizeof(name));
    fake_port_cut("a0", 0, true);
    fake_port_cut("b0", 0, true);
    world_message(LONG);
    WORLD_UNTIL(world_lane(0, 0)->base.stats.failures == 1);
    world_message(LONG); /* by the other one */
    if (strstr(world_lane(0, 0)->base.why, expected) == NULL &&
        strstr(world_lane(0, 0)->base.why, "nothing came back") == NULL)
        fail_msg("%s is not in '%s'", expected, world_lane(0, 0)->base.why);
    snprintf(expected, sizeof(expected), "a0:%u > 10.1.0.", sl_dpdk_lane_port(world_lane(0, 0)));
    assert_int_equal(strncmp(name, "a0:", 3), 0);
    fake_port_cut("a0", 0, false);
    fake_port_cut("b0", 0, false);
    WORLD_UNTIL(is_up(0, 0) && is_up(1, 0));
    world_message(LONG);
    assert_int_equal(world[0].downs + world[1].downs, 0);
}

static void a_link_that_goes_takes_its_paths_and_brings_them_back(void **state)
{
    (void)state;
    sl_dpdk_config_edit(&world[0].config)->timeout_ms = 100;
    sl_dpdk_config_edit(&world[1].config)->timeout_ms = 100;
    world_join();
    fake_port_link("b1", false);
    WORLD_UNTIL(!world_iface(1)->rails[1].base.usable);
    world_message(LONG);
    WORLD_UNTIL(!is_up(0, 1));
    fake_port_link("b1", true);
    WORLD_UNTIL(is_up(0, 1) && is_up(1, 1));
    world_message(LONG);
}

static void a_link_that_comes_late_is_waited_for(void **state)
{
    (void)state;
    fake_port_neighbours(40);
    world_join();
    world_message(LONG);
}

static void labels_are_source_ports_and_move_at_once(void **state)
{
    struct sl_state_path paths[4] = {0};
    struct sl_dpdk_lane *lane;
    uint16_t before, other;

    (void)state;
    world_join();
    lane = world_lane(0, 0);
    before = sl_dpdk_lane_port(lane);
    other = sl_dpdk_lane_port(world_lane(0, 1));
    assert_true(before >= 0xc000 && other >= 0xc000 && before != other);
    assert_int_equal(world[0].iface->ops->ep_stats(world[0].ep, paths, 4), 2);
    assert_int_equal(paths[0].source_port, before);
    assert_int_equal(paths[0].label, lane->label);
    world_message(LONG);
    lane->base.label = 0xbeef;
    assert_int_equal(lane->base.lanes->route(&lane->base), 0);
    assert_int_equal(sl_dpdk_lane_port(lane), sl_mp_udp_sport(0xbeef));
    assert_int_equal(lane->routes[0].way.head[34] << 8 | lane->routes[0].way.head[35],
                     sl_mp_udp_sport(0xbeef));
    assert_int_equal(lane->base.shown.source_port, sl_mp_udp_sport(0xbeef));
    fake_port_cut("a0", before, true); /* nothing goes by it any more */
    world_message(LONG);
    assert_int_equal(lane->base.stats.failures, 0);
    assert_int_equal(stats_of(0, 0).timeouts, 0);
}

static void a_lane_sprays_over_its_routes(void **state)
{
    struct sl_dp_route_stats route;

    (void)state;
    sl_dpdk_config_edit(&world[0].config)->routes = 4;
    sl_dpdk_config_edit(&world[1].config)->routes = 2;
    world_join();
    world_message(LONG);
    for (unsigned i = 0; i < 4; i++) {
        sl_dp_route_stats(world_lane(0, 0)->flow, i, &route);
        assert_true(route.sent_packets > 0);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(world_lane(0, 0)->routes[i].source_port,
                                 world_lane(0, 0)->routes[j].source_port);
    }
    assert_int_equal(world_lane(1, 0)->route_count, 2);
}

static void a_route_that_dies_is_left_and_told(void **state)
{
    struct sl_event_totals totals;

    (void)state;
    sl_dpdk_config_edit(&world[0].config)->routes = 4;
    world_join();
    world_message(LONG);
    fake_port_cut("a0", world_lane(0, 0)->routes[2].source_port, true);
    for (unsigned i = 0; i < 8; i++)
        world_message(LONG);
    sl_event_totals(&world[0].events, &totals);
    assert_true(totals.counts[SL_EVENT_DPDK_ROUTE_DOWN] > 0);
    assert_int_equal(world_lane(0, 0)->base.stats.failures, 0);
    fake_port_cut("a0", world_lane(0, 0)->routes[2].source_port, false);
    WORLD_UNTIL(
        (sl_event_totals(&world[0].events, &totals), totals.counts[SL_EVENT_DPDK_ROUTE_UP] > 0));
}

/* A path table with these rules. */
static void write_table(const char *file, const char *rules, unsigned count)
{
    FILE *out;

    unlink(file);
    out = fopen(file, "w");
    assert_non_null(out);
    fprintf(out, "sluice-paths 1\n%send %u\n", rules, count);
    fclose(out);
}

static uint64_t sent_by(unsigned route)
{
    struct sl_dp_route_stats stats;

    sl_dp_route_stats(world_lane(0, 0)->flow, route, &stats);
    return stats.sent_packets;
}

static void each_route_is_shown_and_weighed_by_its_number(void **state)
{
    char folder[] = "/tmp/sl-routes-XXXXXX", file[64];
    struct sl_state_path paths[16] = {0};
    struct sl_dp_route_stats route;
    struct sl_event_totals totals;
    uint64_t avoided;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/table", folder);
    write_table(file, "path=512 avoid\npath=768 weight=10\n", 2);
    snprintf(world[0].config.paths_table, SL_TEXT_MAX, "%s", file);
    sl_dpdk_config_edit(&world[0].config)->routes = 4;
    world_join();
    for (unsigned i = 0; i < 4; i++)
        world_message(LONG);
    assert_int_equal(world[0].iface->ops->ep_stats(world[0].ep, paths, 16), 2 + 8);
    for (unsigned i = 0; i < 8; i++) {
        const struct sl_state_path *shown = &paths[2 + i];
        const struct sl_dpdk_lane *lane = world_lane(0, i / 4);

        assert_int_equal(shown->number, i / 4 + 256 * (i % 4 + 1));
        assert_int_equal(shown->peer, 1);
        assert_int_equal(shown->source_port, lane->routes[i % 4].source_port);
        assert_string_equal(shown->state, "up");
        assert_int_equal(shown->weight, i == 2 ? 10 : 100);
        assert_int_equal(shown->is_avoided, i == 1);
    }
    assert_int_equal(world[0].iface->ops->ep_stats(world[0].ep, paths, 3), 2 + 8);
    assert_true(paths[2].sent_bytes > 0 && paths[2].sent_messages == sent_by(0));
    avoided = sent_by(1);
    assert_in_range(sent_by(2), 1, sent_by(0) / 2);
    world_message(LONG);
    assert_int_equal(sent_by(1), avoided);
    write_table(file, "path=512 weight=50\n", 1);
    WORLD_UNTIL((sl_dp_route_stats(world_lane(0, 0)->flow, 1, &route), !route.is_avoided));
    assert_int_equal(route.weight, 50);
    world_message(LONG);
    assert_true(sent_by(1) > avoided);
    sl_event_totals(&world[0].events, &totals);
    assert_true(totals.counts[SL_EVENT_PATH_SET] >= 4);
    unlink(file);
    rmdir(folder);
}

static void answers_and_short_messages_have_a_traffic_class_of_their_own(void **state)
{
    uint64_t high, other, all;

    (void)state;
    sl_dpdk_config_edit(&world[1].config)->high_class = 0x40; /* the other one has the default */
    world_join();
    high = fake_port_sent_in(80);
    other = fake_port_sent_in(0x40);
    world_message(8);
    high = fake_port_sent_in(80) - high;
    other = fake_port_sent_in(0x40) - other;
    assert_true(high >= 2); /* a message, and an answer */
    assert_true(other >= 2);
    all = fake_port_sent_in(0);
    world_message(LONG);
    assert_true(fake_port_sent_in(0) - all > 2 * LONG / 9000);
}

static void who_chose_a_traffic_class_has_all_in_it_unless_he_says_more(void **state)
{
    struct sl_dpdk_config config = {.high_class = -1};

    (void)state;
    assert_int_equal(sl_dpdk_high_class(&config), 80);
    config.traffic_class = 104;
    assert_int_equal(sl_dpdk_high_class(&config), 104);
    config.high_class = 0;
    assert_int_equal(sl_dpdk_high_class(&config), 0);
    config = (struct sl_dpdk_config){.traffic_class = 2, .high_class = -1}; /* ECN's bits alone */
    assert_int_equal(sl_dpdk_high_class(&config), 80);
}

static void without_a_wish_a_named_wire_has_one_route_and_any_other_four(void **state)
{
    (void)state;
    world_join();
    assert_int_equal(world_lane(0, 0)->route_count, world_lane(0, 0)->is_direct ? 1 : 4);
    world_lane(0, 0)->is_direct = !world_lane(0, 0)->is_direct;
    assert_int_equal(sl_dpdk_routes_wanted(world_lane(0, 0)), world_lane(0, 0)->is_direct ? 1 : 4);
    sl_dpdk_config_edit(&world[0].config)->routes = 3;
    assert_int_equal(sl_dpdk_routes_wanted(world_lane(0, 0)), 3);
}

static void a_long_message_is_posted_as_it_is_sent_so_that_others_wait_for_little(void **state)
{
    static uint8_t bytes[LONG], got[LONG];
    struct sl_buf buf = {.addr = bytes, .len = sizeof(bytes)};
    struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 1};
    struct sl_req send_req = {.status = SL_PENDING}, recv_req = {.status = SL_PENDING};
    unsigned waited = 0;

    (void)state;
    world_join();
    WORLD_UNTIL(world[1].iface->ops->recv(world[1].ep, &sink, &recv_req) >= 0);
    WORLD_UNTIL(world[0].iface->ops->send(world[0].ep, &buf, 1, &send_req) >= 0);
    while (send_req.status == SL_PENDING || recv_req.status == SL_PENDING) {
        world_progress();
        for (unsigned i = 0; i < 2; i++) {
            const struct sl_dpdk_lane *lane = world_lane(0, i);

            waited += lane->pieces_wait;
            assert_in_range(sl_dp_flow_unsent(lane->flow), 0,
                            SL_DPDK_AHEAD_BYTES + lane->base.piece_bytes);
        }
    }
    assert_true(waited > 0);
    assert_int_equal(send_req.status, 0);
    assert_int_equal(recv_req.status, 0);
}

static bool count_large(void *arg, const uint8_t *bytes, size_t len)
{
    (void)bytes;
    *(unsigned *)arg += len > 1024;
    return true;
}

static void a_long_message_fills_its_packets(void **state)
{
    unsigned count = 0, fewest;

    (void)state;
    world_join();
    world_message(LONG); /* finds out what packets of the wire take */
    fewest = 2 * (LONG / world_lane(0, 0)->base.packet_bytes + 1); /* there, and back */
    assert_true(fewest + 8 < 2 * 8 * (LONG / SL_MP_PIECE_LEAST));
    fake_port_watch(count_large, &count);
    world_message(LONG);
    fake_port_watch(NULL, NULL);
    assert_in_range(count, fewest, fewest + 8);
}

/* Packets of writes, by lane: how many, of how many the answer may wait, and that of the last? */
struct asked {
    unsigned count[2], waiting[2];
    bool last_waits[2];
};

static bool note_asked(void *arg, const uint8_t *bytes, size_t len)
{
    struct asked *asked = arg;
    struct sl_dp_head head;

    if (len <= 1024)
        return true;
    memcpy(&head, bytes, sizeof(head));
    for (unsigned i = 0; i < 2; i++) {
        if (head.flow != world_lane(1, i)->number)
            continue;
        asked->last_waits[i] = (head.flags & SL_DP_FLAG_MORE) != 0;
        asked->waiting[i] += asked->last_waits[i];
        asked->count[i]++;
    }
    return true;
}

/* Each lane's last packet of a message is answered at once, as no other one follows. */
static void pieces_ask_where_their_lane_has_no_more_of_the_message(void **state)
{
    struct asked asked = {0};

    (void)state;
    sl_dpdk_config_edit(&world[0].config)->mp.piece_bytes = 64 << 10;
    world_join();
    world_message(LONG); /* windows grow */
    world_message(LONG);
    fake_port_watch(note_asked, &asked);
    world_message(LONG);
    fake_port_watch(NULL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(asked.count[i] > 100);
        assert_true(asked.waiting[i] > asked.count[i] * 9 / 10);
        assert_false(asked.last_waits[i]);
    }
}

static void each_kind_of_congestion_control_can_be_had(void **state)
{
    static const char *const kinds[] = {"swift", "timely", "fixed"};

    for (unsigned i = 0; i < SL_ARRAY_LEN(kinds); i++) {
        for (unsigned k = 0; k < 2; k++)
            assert_int_equal(sl_config_set(&world[k].config, "DPDK_CC", kinds[i]), 0);
        world_join();
        assert_string_equal(world_iface(0)->engine.settings.cc->name, kinds[i]);
        world_message(LONG);
        world_clean(state);
        world_prepare();
    }
}

static void paths_between_two_ports_have_ports_of_their_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        sl_dpdk_config_edit(&world[i].config)->mp.paths_per_rail = 3;
    world_join();
    assert_int_equal(world_conn(0)->path_count, 6);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(sl_dpdk_lane_port(world_lane(0, i)),
                                 sl_dpdk_lane_port(world_lane(0, j)));
    world_message(LONG);
}

static void a_preferred_port_comes_first_and_carries(void **state)
{
    const struct sl_device dev = {.name = "a1"};

    (void)state;
    sl_dpdk_prefer(&world[0].config, &dev, 0x68);
    sl_dpdk_prefer(&world[1].config, &(const struct sl_device){.name = "b1"}, -1);
    assert_int_equal(sl_dpdk_config(&world[0].config)->traffic_class, 0x68);
    assert_int_equal(sl_dpdk_config(&world[1].config)->traffic_class, 0);
    world_join();
    assert_string_equal(world_iface(0)->rails[0].base.name, "a1");
    assert_string_equal(world_iface(0)->rails[1].base.name, "a0");
    world_message(LONG);
    assert_true(world_lane(0, 0)->base.stats.sent_bytes > LONG);
    assert_true(world_lane(0, 1)->base.stats.sent_bytes < LONG / 8);
    fake_port_link("a1", false);
    world_message(LONG); /* by the other one */
    fake_port_link("a1", true);
}

static void without_receive_buffers_frames_wait(void **state)
{
    struct sl_dpdk_rail *rail;
    unsigned all;

    (void)state;
    world_join();
    rail = (struct sl_dpdk_rail *)world_conn(1)->frame_path->rail;
    all = rail->buffers.free_count;
    assert_true(all > 0);
    rail->buffers.free_count = 0;
    for (unsigned i = 0; i < 200; i++)
        world_progress();
    rail->buffers.free_count = all;
    world_message(100);
    assert_int_equal(world[1].downs, 0);
}

static void the_last_receive_buffer_is_for_the_frame_that_is_next(void **state)
{
    struct sl_dpdk_lane *lane;
    struct sl_dpdk_rail *rail;
    uint32_t next;
    unsigned all;

    (void)state;
    world_join();
    world_message(100);
    lane = (struct sl_dpdk_lane *)world_conn(1)->frame_path;
    rail = lane->rail;
    next = lane->base.arrived;
    all = rail->buffers.free_count;
    assert_true(next > 0 && all > 2);
    rail->buffers.free_count = 2;
    for (uint32_t i = 1; i < 4; i++) { /* the first of them did not come */
        void *to = sl_dpdk_flow_ops.place(lane->flow, false, (next + i) << 16, 0, 100);

        assert_true(to != NULL && (to == SL_DP_LATER) == (i > 1));
    }
    assert_true(sl_dpdk_flow_ops.place(lane->flow, false, next << 16, 0, 100) != SL_DP_LATER);
    assert_int_equal(rail->buffers.free_count, 0);
    for (uint32_t i = 0; i < 2; i++)
        lane->buffers[(next + i) % SL_DP_MESSAGES_MAX] = SL_DPDK_NO_BUFFER;
    rail->buffers.free_count = all;
    world_message(100);
}

/* ---- strangers ---- */

/* A packet to side 1's flow, by who knows as much of it as is said. */
static void forge(bool has_secret, uint32_t seq, bool is_write, uint32_t imm, uint32_t off,
                  uint32_t len)
{
    static uint8_t packet[SL_DP_HEAD_BYTES + 4096];
    const struct sl_dpdk_lane *lane = world_lane(1, 0);
    struct sl_dp_head head = {.kind_version = SL_DP_DATA << 4 | SL_DP_VERSION,
                              .flags =
                                  (uint8_t)(SL_DP_FLAG_LAST | (is_write ? SL_DP_FLAG_WRITE : 0)),
                              .flow = lane->number,
                              .secret = has_secret ? lane->secret : 0x1234,
                              .seq = seq,
                              .imm = imm,
                              .offset = off};

    sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    memset(packet + sizeof(head), 0xee, len);
    fake_port_inject(lane->number, packet, sizeof(head) + len);
    for (unsigned i = 0; i < 4; i++)
        world_progress();
}

static void a_stranger_changes_nothing(void **state)
{
    (void)state;
    world_join();
    for (unsigned i = 0; i < 100; i++)
        forge(false, i, i % 2 == 0, i << 16, i * 100, 1000);
    assert_true(world_iface(1)->engine.dropped_secret >= 100);
    assert_true(is_up(1, 0));
    world_message(LONG);
    assert_int_equal(world_lane(1, 0)->base.stats.failures, 0);
}

static uint32_t next_seq(void)
{
    return (uint32_t)stats_of(0, 0).sent_packets; /* nothing was lost, and parts are none */
}

static void a_peer_cannot_write_where_nothing_was_granted(void **state)
{
    uint32_t seq;

    (void)state;
    world_join();
    seq = next_seq();
    forge(true, seq, true, 0, 0, 1000);
    WORLD_UNTIL(world_lane(1, 0)->base.stats.failures == 1);
    world_message(1000);
}

static void a_peer_cannot_write_past_what_was_granted(void **state)
{
    static uint8_t block[3 * 8192];
    static const struct sl_sink sink = {.dst = block + 8192, .len = 8192, .tag = 1};
    static struct sl_req req = {.status = SL_PENDING};
    uint32_t id = UINT32_MAX;

    (void)state;
    world_join();
    WORLD_UNTIL(world[1].iface->ops->recv(world[1].ep, &sink, &req) >= 0);
    for (unsigned i = 0; i < SL_MP_RX_CTS_MAX; i++)
        if (world_conn(1)->rx_cts[i].used)
            id = (uint32_t)world_conn(1)->rx_cts[i].generation << 6 | i;
    assert_int_not_equal(id, UINT32_MAX);
    /* Its last byte would be one too far; or in the next 2 GiB; or it ends behind all offsets. */
    forge(true, next_seq(), true, id, 8192 - 999, 1000);
    WORLD_UNTIL(world_lane(1, 0)->base.stats.failures == 1);
    WORLD_UNTIL(is_up(0, 0) && is_up(1, 0));
    forge(true, next_seq(), true, 1u << 16 | id, 0, 1000);
    WORLD_UNTIL(world_lane(1, 0)->base.stats.failures == 2);
    WORLD_UNTIL(is_up(0, 0) && is_up(1, 0));
    forge(true, next_seq(), true, id, UINT32_MAX - 99, 100); /* none of a message */
    for (unsigned i = 0; i < sizeof(block); i++)
        assert_int_equal(block[i], 0);
}

static void a_frame_is_not_longer_than_its_buffer(void **state)
{
    (void)state;
    world_join();
    forge(true, next_seq(), false, 63u << 16, world_iface(1)->mp.slot_bytes - 10, 11);
    WORLD_UNTIL(world_lane(1, 0)->base.stats.failures == 1);
    assert_non_null(strstr(world_lane(1, 0)->base.why, "no place for 11 bytes"));
    world_message(1000);
}

static void buffers_of_frames_that_never_were_whole_come_back(void **state)
{
    const struct sl_dpdk_buffers *buffers;
    unsigned before;
    uint32_t seq;

    (void)state;
    world_join();
    world_message(1000);
    buffers = &((struct sl_dpdk_rail *)world_lane(1, 0)->base.rail)->buffers;
    before = buffers->free_count;
    seq = next_seq();
    forge(true, seq + 1, false, 60u << 16, 100, 100); /* what is before it does not come */
    assert_int_equal(buffers->free_count, before - 1);
    forge(true, seq + 2, true, 0, 0, 1000);
    WORLD_UNTIL(world_lane(1, 0)->base.stats.failures == 1);
    WORLD_UNTIL(is_up(0, 0) && is_up(1, 0));
    world_message(1000);
    assert_int_equal(buffers->free_count, before);
}

/* ---- what leaves ---- */

static void a_send_outside_of_progress_leaves_at_once(void **state)
{
    struct sl_buf buf = {.addr = "hello", .len = 5};
    struct sl_req req = {.status = SL_PENDING};
    uint64_t before;

    (void)state;
    world_join();
    for (unsigned i = 0; i < 100; i++)
        world_progress();
    before = fake_port_sent();
    assert_int_equal(world[0].iface->ops->send(world[0].ep, &buf, 1, &req), 1);
    assert_int_equal(fake_port_sent(), before + 1);
}

static struct sl_dp_head seen;

static bool see(void *arg, const uint8_t *bytes, size_t len)
{
    (void)arg;
    if (len > sizeof(seen) && bytes[0] == (SL_DP_DATA << 4 | SL_DP_VERSION))
        memcpy(&seen, bytes, sizeof(seen));
    return true;
}

/* Nobody sends so much in a test: the packet alone is looked at. */
static void a_place_far_into_a_message_is_named_in_two_parts(void **state)
{
    struct sl_mp_tx_cts cts = {.cts.id = 0x123};
    struct sl_mp_piece piece = {
        .cts = &cts, .off = (UINT64_C(5) << 31) + 4096, .len = 64, .chunk = 0};

    (void)state;
    world_join();
    fake_port_watch(see, NULL);
    world_lane(0, 0)->base.lanes->write(&world_lane(0, 0)->base, &piece);
    fake_port_watch(NULL, NULL);
    assert_int_equal(seen.imm, 5u << 16 | 0x123);
    assert_int_equal(seen.offset, 4096);
    assert_int_equal(seen.flags & SL_DP_FLAG_WRITE, SL_DP_FLAG_WRITE);
}

/* ---- one end leaves ---- */

static uint64_t wakes_ns; /* the other end's process does not run before */

static void run_when_awake(void *arg)
{
    (void)arg;
    if (loop_now(world_loop) >= wakes_ns)
        (void)world[1].iface->ops->progress(world[1].iface, 64);
}

/* A short message is over for its sender at once; then the sender leaves, while the peer is kept
 * from its processor for so long. Returns how long that takes. */
static uint64_t leave_beside_a_sleeper(uint64_t ns, struct sl_req *recv_req)
{
    static uint8_t got[64], sent[64];
    static struct sl_sink sink = {.dst = got, .len = sizeof(got), .tag = 7};
    const struct sl_transport_ops *ops = world[0].iface->ops;
    struct sl_buf buf = {.addr = sent, .len = sizeof(sent)};
    struct sl_req send_req = {.status = SL_PENDING};
    uint64_t since_ns = loop_now(world_loop);

    *recv_req = (struct sl_req){.status = SL_PENDING};
    assert_int_equal(ops->recv(world[1].ep, &sink, recv_req), 0);
    assert_int_equal(ops->send(world[0].ep, &buf, 7, &send_req), 1);
    wakes_ns = since_ns + ns;
    loop_on_look(world_loop, run_when_awake, NULL);
    ops->ep_destroy(world[0].ep);
    world[0].ep = NULL;
    loop_on_look(world_loop, NULL, NULL);
    return loop_now(world_loop) - since_ns;
}

static void who_leaves_waits_until_the_peer_has_run_and_has_all(void **state)
{
    struct sl_req recv_req;
    uint64_t took_ns;

    (void)state;
    world_join();
    took_ns = leave_beside_a_sleeper(700 * SL_NS_PER_MS, &recv_req);
    assert_in_range(took_ns, 700 * SL_NS_PER_MS, 800 * SL_NS_PER_MS);
    WORLD_UNTIL(recv_req.status != SL_PENDING);
    assert_int_equal(recv_req.status, 0);
}

static void who_leaves_does_not_wait_for_a_peer_that_stands_still(void **state)
{
    struct sl_req recv_req;

    (void)state;
    world_join();
    assert_true(leave_beside_a_sleeper(SL_NEVER / 2, &recv_req) < 1500 * SL_NS_PER_MS);
    WORLD_UNTIL(recv_req.status != SL_PENDING);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, prepare, world_clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_go_straight_to_where_they_belong),
        CASE(gpu_memory_is_refused_and_left_to_the_engine),
        CASE(what_the_wire_loses_is_repeated),
        CASE(payload_is_lent_until_the_port_has_read_it),
        CASE(a_port_that_takes_nothing_gives_its_payload_back_when_its_path_ends),
        CASE(a_path_that_dies_says_port_source_port_and_peer),
        CASE(a_link_that_goes_takes_its_paths_and_brings_them_back),
        CASE(a_link_that_comes_late_is_waited_for),
        CASE(labels_are_source_ports_and_move_at_once),
        CASE(a_lane_sprays_over_its_routes),
        CASE(a_route_that_dies_is_left_and_told),
        CASE(each_route_is_shown_and_weighed_by_its_number),
        CASE(answers_and_short_messages_have_a_traffic_class_of_their_own),
        CASE(who_chose_a_traffic_class_has_all_in_it_unless_he_says_more),
        CASE(without_a_wish_a_named_wire_has_one_route_and_any_other_four),
        CASE(a_long_message_is_posted_as_it_is_sent_so_that_others_wait_for_little),
        CASE(a_long_message_fills_its_packets),
        CASE(pieces_ask_where_their_lane_has_no_more_of_the_message),
        CASE(each_kind_of_congestion_control_can_be_had),
        CASE(paths_between_two_ports_have_ports_of_their_own),
        CASE(a_preferred_port_comes_first_and_carries),
        CASE(without_receive_buffers_frames_wait),
        CASE(the_last_receive_buffer_is_for_the_frame_that_is_next),
        CASE(a_stranger_changes_nothing),
        CASE(a_peer_cannot_write_where_nothing_was_granted),
        CASE(a_peer_cannot_write_past_what_was_granted),
        CASE(a_frame_is_not_longer_than_its_buffer),
        CASE(buffers_of_frames_that_never_were_whole_come_back),
        CASE(a_send_outside_of_progress_leaves_at_once),
        CASE(a_place_far_into_a_message_is_named_in_two_parts),
        CASE(who_leaves_waits_until_the_peer_has_run_and_has_all),
        CASE(who_leaves_does_not_wait_for_a_peer_that_stands_still),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
