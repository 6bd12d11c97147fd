/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What paths deliver, against one who knows how each of them is: two ends of up to 16 rails and 64
 * paths over simulated routes (mp_routes.c), of which some lose packets, lose only large ones, are
 * slow, far, or carry nothing, from a moment on; a rail goes, the path table gives some paths
 * weights or has them avoided, and the sideband breaks now and then. Side 0 sends long messages
 * without pause, and each is answered by a short one. From two seconds after that moment on most of
 * what the good routes can carry must arrive; a route that is slow, or has a weight, gets what it
 * is worth, one to be avoided nothing; every byte is right, and no byte of memory changes once its
 * message is over. In the end the rail returns, as another device perhaps, and carries. Arguments:
 * seeds.h.
 */
#include "multipath/conn.h"
#include "multipath/repair.h"
#include "tests/fake/loop.h"
#include "tests/sim/mp_lanes.h"
#include "tests/sim/seeds.h"

#include "core/config.h"
#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES_MOST 16 /* under way */
#define MESSAGE_BYTES (64u << 10)
#define BYTES_PER_PATH (64u << 10) /* under way: some pieces more than wait for each of them */
#define PIECE_BYTES 4096
#define PS_PER_BYTE 200000 /* of a good route: 5 MB/s; of more than eight of them: less */
#define PATHS_FAST 8
#define LATENCY_NS 20000
#define FAR_NS (30 * SL_NS_PER_MS) /* one way, where a route is congested */
#define REPEAT_NS (67 * SL_NS_PER_MS)
#define REPEAT_TIMES 6
#define BEGIN_NS SL_NS_PER_S       /* of the trouble */
#define GRACE_NS (2 * SL_NS_PER_S) /* after it began */
#define MEASURE_NS (6 * SL_NS_PER_S)
#define STEP_NS (200 * 1000)
#define STALL_NS (50 * SL_NS_PER_MS)
#define RESET_NS SL_NS_PER_S /* between losses of the sideband, about */
#define RESET_APART_NS (20 * SL_NS_PER_MS)
#define RETURN_NS (2 * SL_NS_PER_S) /* for a rail that returns */
#define TAG 7

enum quality { GOOD, HOLE, SLOW, DEAD, LOSSY, FAR, GONE };

static const char *const quality_names[] = {"good", "loses large packets", "slow", "dead", "lossy",
                                            "far",  "gone with its rail"};
#define NO_RAIL UINT32_MAX

struct message {
    struct sl_req req[2], answer[2];
    struct sl_buf buf, word;
    struct sl_sink sink, answer_sink;
    struct sl_mr *mr[2];
    uint8_t *bytes[2];
    uint8_t said[8], heard[8];
    uint64_t sent_ns;
    bool under_way;
};

static struct run {
    struct sl_rng rng;
    struct loop *loop;
    struct lanes *lanes;
    struct sl_config config;
    struct sl_worker worker[2];
    struct lanes_side side;
    struct sl_transport_ops ops;
    struct sl_iface *iface[2];
    struct sl_ep *ep[2];
    struct message messages[MESSAGES_MOST];
    unsigned message_count;
    size_t message_bytes;
    uint64_t next, over, answers; /* messages begun, and at an end */
    unsigned path_count;          /* the i-th is of rail i % rails */
    uint64_t ps_per_byte;         /* of a good route */
    enum quality quality[SL_MP_PATHS_MAX];
    uint32_t loss_ppm[SL_MP_PATHS_MAX];
    unsigned weight[SL_MP_PATHS_MAX]; /* of side 0's path table; 0: to be avoided */
    unsigned gone_rail, gone_side;    /* NO_RAIL: none goes */
    bool returns_anew, has_table, resets;
    uint64_t reset_ns; /* the sideband breaks next */
    /* measured */
    uint64_t bytes, bytes_at_grace, sent_at_grace[SL_MP_PATHS_MAX], moved_ns, longest_ns, worst_ns;
    unsigned stalls;
    bool measures;
    char wrong[300];
} run;

static void wrong(const char *fmt, ...)
{
    va_list args;

    if (run.wrong[0] != '\0')
        return;
    va_start(args, fmt);
    vsnprintf(run.wrong, sizeof(run.wrong), fmt, args);
    va_end(args);
}

/* ---- what is drawn ---- */

static unsigned rail_of(unsigned path)
{
    return path % run.side.rails;
}

static void draw_sides(void)
{
    bool large = sl_rng_chance(&run.rng, 8);
    unsigned rails = 2 + (unsigned)sl_rng_below(&run.rng, large ? LANES_RAILS - 1 : 3);

    run.side = (struct lanes_side){.settings = {.connect_timeout_ms = 20000,
                                                .path_wait_ms = 60000,
                                                .piece_bytes = PIECE_BYTES},
                                   .eager_bytes = 256,
                                   .rails = rails,
                                   .paths = 1,
                                   .buffers = 128};
    if (sl_rng_chance(&run.rng, large ? 2 : 8))
        run.side.paths += (unsigned)sl_rng_below(&run.rng, LANES_TURNS);
    run.path_count = rails * run.side.paths;
    run.ps_per_byte = PS_PER_BYTE;
    if (run.path_count > PATHS_FAST)
        run.ps_per_byte = run.ps_per_byte * run.path_count / PATHS_FAST;
    run.message_count = run.path_count < 4               ? 4
                        : run.path_count < MESSAGES_MOST ? run.path_count
                                                         : MESSAGES_MOST;
    run.message_bytes = (size_t)BYTES_PER_PATH * run.path_count / run.message_count;
    if (run.message_bytes < MESSAGE_BYTES)
        run.message_bytes = MESSAGE_BYTES;
    run.message_bytes &= ~(size_t)7;
}

static void draw_qualities(void)
{
    static const uint32_t losses[] = {20000, 100000, 300000, 500000};

    for (unsigned i = 1; i < run.path_count; i++) {
        run.quality[i] = (enum quality)sl_rng_below(&run.rng, FAR + 1);
        run.loss_ppm[i] = losses[sl_rng_below(&run.rng, 4)];
    }
    /* Any of them may be the first, by which frames go. */
    unsigned good = (unsigned)sl_rng_below(&run.rng, run.path_count);

    run.quality[0] = run.quality[good];
    run.loss_ppm[0] = run.loss_ppm[good];
    run.quality[good] = GOOD;
    run.gone_rail = NO_RAIL;
    if (sl_rng_chance(&run.rng, 4))
        run.gone_rail = (unsigned)sl_rng_below(&run.rng, run.side.rails);
    if (run.gone_rail == rail_of(good))
        run.gone_rail = NO_RAIL;
    run.gone_side = (unsigned)sl_rng_below(&run.rng, 2);
    run.returns_anew = sl_rng_chance(&run.rng, 2);
    for (unsigned i = 0; i < run.path_count; i++) {
        if (rail_of(i) == run.gone_rail)
            run.quality[i] = GONE;
        run.weight[i] = SL_PATH_TABLE_WEIGHT_MAX;
    }
    run.has_table = sl_rng_chance(&run.rng, 4);
    for (unsigned i = 0; i < run.path_count && run.has_table; i++)
        if (i != good && sl_rng_chance(&run.rng, 3))
            run.weight[i] = 25 * (unsigned)sl_rng_below(&run.rng, 4);
}

static void draw(uint64_t seed)
{
    memset(&run, 0, sizeof(run));
    sl_rng_init(&run.rng, seed);
    draw_sides();
    run.side.settings.lazy = seed % 2 != 0;
    run.side.settings.standby = seed / 2 % 2 != 0;
    draw_qualities();
    run.resets = sl_rng_chance(&run.rng, 4);
}

static void tell(uint64_t seed)
{
    printf("# seed %" PRIu64 ": %u rails%s:", seed, run.side.rails,
           run.resets ? ", the sideband breaks" : "");
    for (unsigned i = 0; i < run.path_count; i++) {
        printf("%s %s", i > 0 ? "," : "", quality_names[run.quality[i]]);
        if (run.quality[i] == LOSSY)
            printf(" (%u %%)", run.loss_ppm[i] / 10000);
        if (run.weight[i] != SL_PATH_TABLE_WEIGHT_MAX)
            printf(" (weight %u)", run.weight[i]);
    }
    printf("\n");
}

static struct lanes_route route_of(unsigned path, bool trouble)
{
    struct lanes_route route = {.ps_per_byte = run.ps_per_byte, .latency_ns = LATENCY_NS};
    enum quality quality = trouble ? run.quality[path] : GOOD;

    if (quality == LOSSY)
        route.loss_ppm = run.loss_ppm[path];
    else if (quality == HOLE)
        route.largest = LANES_PACKET - 1;
    else if (quality == SLOW)
        route.ps_per_byte *= 10;
    else if (quality == DEAD)
        route.loss_ppm = 1000000;
    else if (quality == FAR)
        route.latency_ns = FAR_NS;
    return route;
}

static void routes_set(bool trouble)
{
    for (unsigned i = 0; i < run.path_count; i++) {
        struct lanes_route route = route_of(i, trouble);

        lanes_route(run.lanes, rail_of(i), rail_of(i), i / run.side.rails, &route);
    }
}

/* What side 0's path table says of each path. */
static void table_set(void)
{
    struct sl_path_rule rules[SL_MP_PATHS_MAX];

    for (unsigned i = 0; i < run.path_count; i++) {
        rules[i] = sl_path_rule_empty();
        rules[i].path = (int32_t)i;
        if (run.weight[i] == 0)
            rules[i].avoid = 1;
        else
            rules[i].weight = (int16_t)run.weight[i];
    }
    lanes_path_table(run.lanes, 0, rules, run.path_count);
}

static void trouble_begins(void)
{
    routes_set(true);
    if (run.has_table)
        table_set();
    if (run.gone_rail != NO_RAIL)
        lanes_rail(run.lanes, run.gone_side, run.gone_rail, false);
    run.reset_ns = run.resets ? loop_now(run.loop) : SL_NEVER;
}

static void trouble_ends(void)
{
    routes_set(false);
    lanes_path_table(run.lanes, 0, NULL, 0);
    run.reset_ns = SL_NEVER;
    loop_redials(run.loop, 0);
    if (run.gone_rail == NO_RAIL)
        return;
    if (run.returns_anew)
        lanes_rail_anew(run.lanes, run.gone_side, run.gone_rail);
    lanes_rail(run.lanes, run.gone_side, run.gone_rail, true);
}

static void sideband_turn(void)
{
    uint64_t now_ns = loop_now(run.loop);

    if (now_ns < run.reset_ns)
        return;
    loop_redials(run.loop, 3);
    loop_lose(run.loop, (unsigned)sl_rng_below(&run.rng, loop_ep_count(run.loop)), -ECONNRESET,
              RESET_APART_NS);
    run.reset_ns = now_ns + RESET_NS / 2 + sl_rng_below(&run.rng, RESET_NS);
}

/* ---- by one who knows all ---- */

static double worth(enum quality quality)
{
    return quality == GOOD ? 1 : quality == SLOW ? 0.1 : 0;
}

/* What those of full weight carry on average, at least: the others have their weight of it. */
static double full_worth(void)
{
    double sum = 0;
    unsigned count = 0;

    for (unsigned i = 0; i < run.path_count; i++)
        if (run.weight[i] == SL_PATH_TABLE_WEIGHT_MAX) {
            sum += worth(run.quality[i]);
            count += run.quality[i] != GONE && run.quality[i] != DEAD && run.quality[i] != HOLE;
        }
    return sum / count;
}

/* What a path deserves, of a good one's rate. */
static double part_of(unsigned path)
{
    double most = worth(run.quality[path]), part;

    if (run.weight[path] == SL_PATH_TABLE_WEIGHT_MAX)
        return most;
    part = full_worth() * run.weight[path] / SL_PATH_TABLE_WEIGHT_MAX;
    return part < most ? part : most;
}

static double good_rate(void)
{
    return 1e12 / (double)run.ps_per_byte;
}

/* Bytes in a second over the routes that deserve traffic. */
static double oracle(void)
{
    double sum = 0;

    for (unsigned i = 0; i < run.path_count; i++)
        sum += part_of(i);
    return sum * good_rate();
}

/* ---- messages ---- */

static void fill(uint8_t *bytes, uint64_t number)
{
    for (size_t i = 0; i < run.message_bytes; i += 8) {
        uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + i;

        memcpy(bytes + i, &word, sizeof(word));
    }
}

static bool is_filled(const uint8_t *bytes, uint64_t number)
{
    for (size_t i = 0; i < run.message_bytes; i += 8) {
        uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + i;

        if (memcmp(bytes + i, &word, sizeof(word)) != 0)
            return false;
    }
    return true;
}

static void messages_open(void)
{
    for (unsigned i = 0; i < run.message_count; i++)
        for (unsigned side = 0; side < 2; side++) {
            struct message *m = &run.messages[i];
            struct sl_mem mem = {.len = run.message_bytes, .fd = -1};

            mem.addr = m->bytes[side] = malloc(run.message_bytes);
            sl_assert(m->bytes[side] != NULL);
            fill(m->bytes[side], UINT64_MAX);
            if (run.ops.mr_reg(run.iface[side], &mem, &m->mr[side], NULL) != 0)
                wrong("mr_reg: %s", sluice_last_error());
        }
}

static void messages_close(void)
{
    for (unsigned i = 0; i < run.message_count; i++)
        for (unsigned side = 0; side < 2; side++) {
            run.ops.mr_dereg(run.iface[side], run.messages[i].mr[side]);
            free(run.messages[i].bytes[side]);
        }
}

/* What ended is looked at again before its memory serves the next one: nothing may have come since.
 * False: the transport takes no more now. */
static bool post(struct message *m)
{
    if (!is_filled(m->bytes[1],
                   run.next < run.message_count ? UINT64_MAX : run.next - run.message_count))
        wrong("memory of message %" PRIu64 " was changed after its end",
              run.next - run.message_count);
    m->sink =
        (struct sl_sink){.dst = m->bytes[1], .len = run.message_bytes, .tag = TAG, .mr = m->mr[1]};
    m->answer_sink = (struct sl_sink){.dst = m->heard, .len = sizeof(m->heard), .tag = TAG};
    m->buf = (struct sl_buf){.addr = m->bytes[0], .len = run.message_bytes, .mr = m->mr[0]};
    for (unsigned i = 0; i < 2; i++)
        m->req[i] = m->answer[i] = (struct sl_req){.status = SL_PENDING};
    fill(m->bytes[0], run.next);
    memset(m->bytes[1], 0, run.message_bytes);
    if (run.ops.recv(run.ep[1], &m->sink, &m->req[1]) < 0 ||
        run.ops.recv(run.ep[0], &m->answer_sink, &m->answer[0]) < 0) {
        wrong("a receive was refused: %s", sluice_last_error());
        return false;
    }
    m->under_way = true;
    run.next++;
    return true;
}

static void judge(struct message *m, uint64_t number)
{
    uint64_t now_ns = loop_now(run.loop);

    if (m->req[1].status != 0 || !is_filled(m->bytes[1], number))
        wrong("message %" PRIu64 " is not what was sent (%s)", number,
              sluice_strerror(m->req[1].status));
    run.bytes += run.message_bytes;
    if (run.measures && now_ns - m->sent_ns > run.worst_ns)
        run.worst_ns = now_ns - m->sent_ns;
}

/* Each message: sent, received, answered. */
static void message_turn(struct message *m, uint64_t number)
{
    if (m->buf.addr != NULL && run.ops.send(run.ep[0], &m->buf, TAG, &m->req[0]) >= 0) {
        m->buf.addr = NULL;
        m->sent_ns = loop_now(run.loop);
    }
    if (m->req[1].status != SL_PENDING && m->word.addr == NULL) {
        judge(m, number);
        m->word = (struct sl_buf){.addr = m->said, .len = sizeof(m->said)};
    }
}

static void answer_turn(struct message *m)
{
    if (m->word.addr == NULL || m->word.len == 0)
        return;
    if (run.ops.send(run.ep[1], &m->word, TAG, &m->answer[1]) >= 0)
        m->word.len = 0;
}

static bool is_over(const struct message *m)
{
    return m->under_way && m->buf.addr == NULL && m->word.addr != NULL && m->word.len == 0 &&
           m->req[0].status != SL_PENDING && m->answer[0].status != SL_PENDING &&
           m->answer[1].status != SL_PENDING;
}

/* In their order, as both ends number them. posts: new ones begin. */
static void messages_turn(bool posts)
{
    for (uint64_t number = run.over; number != run.next; number++)
        message_turn(&run.messages[number % run.message_count], number);
    for (; run.answers != run.next; run.answers++) {
        struct message *m = &run.messages[run.answers % run.message_count];

        answer_turn(m);
        if (m->word.addr == NULL || m->word.len != 0)
            break;
    }
    while (run.over != run.next && is_over(&run.messages[run.over % run.message_count])) {
        struct message *m = &run.messages[run.over++ % run.message_count];

        m->under_way = false;
        m->word.addr = NULL;
    }
    while (posts && run.next - run.over < run.message_count &&
           post(&run.messages[run.next % run.message_count]))
        ;
}

/* ---- time ---- */

static uint64_t arrived_bytes(void)
{
    const struct sl_mp_conn *conn = sl_mp_conn_of(run.ep[1]);
    uint64_t sum = 0;

    for (unsigned i = 0; i < conn->path_count; i++)
        sum += conn->paths[i] != NULL ? conn->paths[i]->stats.received_bytes : 0;
    return sum;
}

static void gap_measure(uint64_t *last)
{
    uint64_t bytes = arrived_bytes(), now_ns = loop_now(run.loop);

    if (bytes == *last)
        return;
    *last = bytes;
    if (run.moved_ns != 0 && now_ns - run.moved_ns > STALL_NS)
        run.stalls++;
    if (run.moved_ns != 0 && now_ns - run.moved_ns > run.longest_ns)
        run.longest_ns = now_ns - run.moved_ns;
    run.moved_ns = now_ns;
}

static void world_turn(void)
{
    uint64_t next_ns;

    for (unsigned side = 0; side < 2; side++)
        run.ops.progress(run.iface[side], 64);
    sideband_turn();
    next_ns = lanes_move(run.lanes);
    uint64_t now_ns = loop_now(run.loop);
    uint64_t step_ns = next_ns > now_ns ? next_ns - now_ns : 0;

    loop_pass(run.loop, step_ns < STEP_NS ? step_ns : STEP_NS);
    if (lanes_misuse(run.lanes) != NULL)
        wrong("misuse: %s", lanes_misuse(run.lanes));
}

static void play_until(uint64_t until_ns, bool posts)
{
    uint64_t last = arrived_bytes();

    run.moved_ns = 0;
    while (loop_now(run.loop) < until_ns && run.wrong[0] == '\0' &&
           (posts || run.over != run.next)) {
        messages_turn(posts);
        world_turn();
        gap_measure(&last);
    }
}

/* ---- the world ---- */

static void on_down(void *arg, struct sl_ep *ep, int status, const char *why)
{
    (void)arg, (void)ep;
    wrong("the connection ended with %s: %s", sluice_strerror(status), why);
}

static void world_open(uint64_t seed)
{
    struct sl_handler handler = {.down = on_down};

    sl_config_defaults(&run.config);
    run.loop = loop_create(seed);
    run.lanes = lanes_create(seed * 3 + 1, run.loop);
    lanes_repeat(run.lanes, REPEAT_NS, REPEAT_TIMES);
    routes_set(false);
    sl_transport_complete(&lanes_ops, &run.ops);
    for (unsigned side = 0; side < 2; side++) {
        lanes_side(run.lanes, side, &run.side);
        run.worker[side] = (struct sl_worker){
            .clock = loop_clock(run.loop), .config = &run.config, .rank = (int)side};
        sl_rng_init(&run.worker[side].rng, seed * 2 + side);
        if (run.ops.open(&run.worker[side], NULL, &handler, &run.iface[side]) != 0)
            wrong("open: %s", sluice_last_error());
    }
}

static void world_connect(void)
{
    struct sl_req req[2] = {{.status = SL_PENDING}, {.status = SL_PENDING}};
    struct sl_addr addr[2];
    uint64_t limit_ns = loop_now(run.loop) + 10 * SL_NS_PER_S;

    for (unsigned side = 0; side < 2; side++) {
        run.ops.ep_create(run.iface[side], &run.ep[side]);
        run.ep[side]->peer = !side;
        run.ops.ep_addr(run.ep[side], &addr[side]);
    }
    for (unsigned side = 0; side < 2; side++)
        run.ops.ep_connect(run.ep[side], &addr[!side], &req[side]);
    while ((req[0].status == SL_PENDING || req[1].status == SL_PENDING) &&
           loop_now(run.loop) < limit_ns)
        world_turn();
    if (req[0].status != 0 || req[1].status != 0)
        wrong("not connected: %s", sluice_last_error());
}

static void world_close(void)
{
    for (unsigned side = 0; side < 2; side++)
        run.ops.ep_destroy(run.ep[side]);
    messages_close();
    for (unsigned side = 0; side < 2; side++)
        run.ops.close(run.iface[side]);
    if (lanes_misuse(run.lanes) != NULL)
        wrong("misuse: %s", lanes_misuse(run.lanes));
    if (loop_misuse(run.loop) != NULL || loop_live(run.loop) > 0 || lanes_live(run.lanes) > 0)
        wrong("something is left: %u lanes, %u of the sideband", lanes_live(run.lanes),
              loop_live(run.loop));
    lanes_destroy(run.lanes);
    loop_destroy(run.loop);
    run.loop = NULL;
}

/* ---- what must hold ---- */

static unsigned count_of(enum quality quality)
{
    unsigned count = 0;

    for (unsigned i = 0; i < run.path_count; i++)
        count += run.quality[i] == quality;
    return count;
}

static const struct sl_mp_path *path_at(unsigned idx)
{
    const struct sl_mp_conn *conn = sl_mp_conn_of(run.ep[0]);

    return idx < conn->path_count ? conn->paths[idx] : NULL;
}

static uint64_t sent_by(unsigned path)
{
    return path_at(path) != NULL ? path_at(path)->stats.sent_bytes : 0;
}

static void measure_begin(void)
{
    run.bytes_at_grace = run.bytes;
    for (unsigned i = 0; i < run.path_count; i++)
        run.sent_at_grace[i] = sent_by(i);
    run.measures = true;
}

static void judge_rate(bool told)
{
    double got = (double)(run.bytes - run.bytes_at_grace) * 1e9 / MEASURE_NS, all = oracle();

    if (told)
        printf("# %.2f of the oracle's %.1f MB/s; %u stalls, the longest %.1f ms; a message took "
               "%.1f ms at most\n",
               got / all, all / 1e6, run.stalls, (double)run.longest_ns / 1e6,
               (double)run.worst_ns / 1e6);
    if (got < 0.85 * all)
        wrong("%.2f of what the good routes carry: %.2f of %.2f MB/s", got / all, got / 1e6,
              all / 1e6);
}

static void tell_path(unsigned path, double share)
{
    const struct sl_mp_path *p = path_at(path);

    printf("# path %u, %s, weight %u: %.2f of a good one", path, quality_names[run.quality[path]],
           run.weight[path], share);
    if (p != NULL)
        printf("; up %u times, failed %u times: %s", (unsigned)p->stats.ups,
               (unsigned)p->stats.failures, p->why);
    printf("\n");
}

/* A slow route carries what it can, and no more waits for it; one that has a weight no more than
 * that. */
static void judge_share(unsigned path, double share)
{
    double part = part_of(path);

    if (run.weight[path] == 0 && share > 0)
        wrong("path %u, which is to be avoided, got %.3f of a good one's share", path, share);
    else if (run.weight[path] != SL_PATH_TABLE_WEIGHT_MAX &&
             share > 0.05 + run.weight[path] / (double)SL_PATH_TABLE_WEIGHT_MAX)
        wrong("path %u, of weight %u, got %.3f of a good one's share", path, run.weight[path],
              share);
    else if (run.quality[path] == SLOW && (share < part / 2 || share > 0.15))
        wrong("path %u, a tenth as fast as the others, got %.3f of a good one's share", path,
              share);
}

static void judge_shares(bool told)
{
    for (unsigned i = 0; i < run.path_count; i++) {
        double sent = (double)(sent_by(i) - run.sent_at_grace[i]);
        double share = sent / good_rate() * 1e9 / MEASURE_NS;

        if (told)
            tell_path(i, share);
        judge_share(i, share);
    }
}

/* A route that loses large packets alone stops data once: by small ones it does not come back. */
static void judge_stalls(void)
{
    unsigned bad = count_of(HOLE) + count_of(DEAD) + count_of(GONE);

    if (count_of(LOSSY) == 0 && run.stalls > bad)
        wrong("data stood still %u times, with %u routes that carry nothing", run.stalls, bad);
}

/* A rail that is back is used within two seconds. */
static void rail_carries_again(void)
{
    uint64_t sent[SL_MP_PATHS_MAX];

    if (run.gone_rail == NO_RAIL)
        return;
    play_until(loop_now(run.loop) + RETURN_NS, true);
    for (unsigned i = run.gone_rail; i < run.path_count; i += run.side.rails)
        sent[i] = sent_by(i);
    play_until(loop_now(run.loop) + RETURN_NS / 4, true);
    for (unsigned i = run.gone_rail; i < run.path_count && run.wrong[0] == '\0';
         i += run.side.rails)
        if (sent_by(i) == sent[i])
            wrong("path %u carries nothing, %u ms after its rail is back: %s", i,
                  (unsigned)(RETURN_NS / SL_NS_PER_MS), path_at(i) != NULL ? path_at(i)->why : "");
}

static bool run_seed(uint64_t seed, bool told, bool trace, char *why, size_t cap)
{
    (void)trace;
    draw(seed);
    if (told)
        tell(seed);
    world_open(seed);
    world_connect();
    messages_open();
    uint64_t start_ns = loop_now(run.loop);

    play_until(start_ns + BEGIN_NS, true);
    trouble_begins();
    play_until(start_ns + BEGIN_NS + GRACE_NS, true);
    measure_begin();
    play_until(start_ns + BEGIN_NS + GRACE_NS + MEASURE_NS, true);
    if (run.wrong[0] == '\0') {
        judge_rate(told);
        judge_shares(told);
        judge_stalls();
    }
    trouble_ends();
    rail_carries_again();
    play_until(loop_now(run.loop) + 20 * SL_NS_PER_S, false);
    if (run.over != run.next)
        wrong("%u messages do not end", (unsigned)(run.next - run.over));
    world_close();
    snprintf(why, cap, "%s", run.wrong);
    return run.wrong[0] == '\0';
}

static uint64_t now_ns(void)
{
    return run.loop != NULL ? loop_now(run.loop) : 0;
}

int main(int argc, char **argv)
{
    static const struct seeds seeds = {"sim_paths", run_seed, now_ns};

    return seeds_main(&seeds, argc, argv);
}
