/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What paths deliver, against one who knows how each of them is: two ends over simulated routes
 * (mp_routes.c), of which some lose packets, lose only large ones, are slow, far, or carry nothing,
 * from a moment on. Side 0 sends long messages without pause, and each is answered by a short one.
 * From two seconds after that moment on most of what the good routes can carry must arrive; a route
 * that is slow gets what it is worth; every byte is right, and no byte of memory changes once its
 * message is over. Arguments: seeds.h.
 */
#include "multipath/conn.h"
#include "multipath/repair.h"
#include "tests/fake/loop.h"
#include "tests/sim/mp_lanes.h"
#include "tests/sim/seeds.h"

#include "core/config.h"
#include "core/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 4 /* under way */
#define MESSAGE_BYTES (64u << 10)
#define PIECE_BYTES 4096
#define PS_PER_BYTE 200000 /* of a good route: 5 MB/s */
#define LATENCY_NS 20000
#define FAR_NS (30 * SL_NS_PER_MS) /* one way, where a route is congested */
#define REPEAT_NS (67 * SL_NS_PER_MS)
#define REPEAT_TIMES 6
#define BEGIN_NS SL_NS_PER_S       /* of the trouble */
#define GRACE_NS (2 * SL_NS_PER_S) /* after it began */
#define MEASURE_NS (6 * SL_NS_PER_S)
#define STEP_NS (200 * 1000)
#define STALL_NS (50 * SL_NS_PER_MS)
#define TAG 7

enum quality { GOOD, HOLE, SLOW, DEAD, LOSSY, FAR };

static const char *const quality_names[] = {"good", "loses large packets", "slow", "dead", "lossy",
                                            "far"};

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
    struct message messages[MESSAGES];
    uint64_t next, over, answers; /* messages begun, and at an end */
    enum quality quality[LANES_RAILS];
    uint32_t loss_ppm[LANES_RAILS];
    /* measured */
    uint64_t bytes, bytes_at_grace, sent_at_grace[LANES_RAILS], moved_ns, longest_ns, worst_ns;
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

static void draw(uint64_t seed)
{
    static const uint32_t losses[] = {20000, 100000, 300000, 500000};

    memset(&run, 0, sizeof(run));
    sl_rng_init(&run.rng, seed);
    run.side = (struct lanes_side){.settings = {.connect_timeout_ms = 20000,
                                                .path_wait_ms = 60000,
                                                .piece_bytes = PIECE_BYTES},
                                   .eager_bytes = 256,
                                   .rails = 2 + (unsigned)sl_rng_below(&run.rng, 3),
                                   .paths = 1,
                                   .buffers = 128};
    for (unsigned i = 1; i < run.side.rails; i++) {
        run.quality[i] = (enum quality)sl_rng_below(&run.rng, FAR + 1);
        run.loss_ppm[i] = losses[sl_rng_below(&run.rng, 4)];
    }
    /* Any of them may be the first, by which frames go. */
    unsigned good = (unsigned)sl_rng_below(&run.rng, run.side.rails);

    run.quality[0] = run.quality[good];
    run.loss_ppm[0] = run.loss_ppm[good];
    run.quality[good] = GOOD;
}

static void tell(uint64_t seed)
{
    printf("# seed %" PRIu64 ":", seed);
    for (unsigned i = 0; i < run.side.rails; i++) {
        printf("%s %s", i > 0 ? "," : "", quality_names[run.quality[i]]);
        if (run.quality[i] == LOSSY)
            printf(" (%u %%)", run.loss_ppm[i] / 10000);
    }
    printf("\n");
}

static struct lanes_route route_of(unsigned rail, bool trouble)
{
    struct lanes_route route = {.ps_per_byte = PS_PER_BYTE, .latency_ns = LATENCY_NS};
    enum quality quality = trouble ? run.quality[rail] : GOOD;

    if (quality == LOSSY)
        route.loss_ppm = run.loss_ppm[rail];
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
    for (unsigned i = 0; i < run.side.rails; i++) {
        struct lanes_route route = route_of(i, trouble);

        lanes_route(run.lanes, i, i, &route);
    }
}

/* Bytes in a second over the routes that deserve traffic, by one who knows them. */
static double oracle(void)
{
    double sum = 0;

    for (unsigned i = 0; i < run.side.rails; i++)
        sum += run.quality[i] == GOOD ? 1 : run.quality[i] == SLOW ? 0.1 : 0;
    return sum * 1e12 / PS_PER_BYTE;
}

/* ---- messages ---- */

static void fill(uint8_t *bytes, uint64_t number)
{
    for (size_t i = 0; i < MESSAGE_BYTES; i += 8) {
        uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + i;

        memcpy(bytes + i, &word, sizeof(word));
    }
}

static bool is_filled(const uint8_t *bytes, uint64_t number)
{
    for (size_t i = 0; i < MESSAGE_BYTES; i += 8) {
        uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + i;

        if (memcmp(bytes + i, &word, sizeof(word)) != 0)
            return false;
    }
    return true;
}

static void messages_open(void)
{
    for (unsigned i = 0; i < MESSAGES; i++)
        for (unsigned side = 0; side < 2; side++) {
            struct message *m = &run.messages[i];
            struct sl_mem mem = {.len = MESSAGE_BYTES, .fd = -1};

            mem.addr = m->bytes[side] = malloc(MESSAGE_BYTES);
            sl_assert(m->bytes[side] != NULL);
            fill(m->bytes[side], UINT64_MAX);
            if (run.ops.mr_reg(run.iface[side], &mem, &m->mr[side], NULL) != 0)
                wrong("mr_reg: %s", sluice_last_error());
        }
}

static void messages_close(void)
{
    for (unsigned i = 0; i < MESSAGES; i++)
        for (unsigned side = 0; side < 2; side++) {
            run.ops.mr_dereg(run.iface[side], run.messages[i].mr[side]);
            free(run.messages[i].bytes[side]);
        }
}

/* What ended is looked at again before its memory serves the next one: nothing may have come since.
 * False: the transport takes no more now. */
static bool post(struct message *m)
{
    if (!is_filled(m->bytes[1], run.next < MESSAGES ? UINT64_MAX : run.next - MESSAGES))
        wrong("memory of message %" PRIu64 " was changed after its end", run.next - MESSAGES);
    m->sink =
        (struct sl_sink){.dst = m->bytes[1], .len = MESSAGE_BYTES, .tag = TAG, .mr = m->mr[1]};
    m->answer_sink = (struct sl_sink){.dst = m->heard, .len = sizeof(m->heard), .tag = TAG};
    m->buf = (struct sl_buf){.addr = m->bytes[0], .len = MESSAGE_BYTES, .mr = m->mr[0]};
    for (unsigned i = 0; i < 2; i++)
        m->req[i] = m->answer[i] = (struct sl_req){.status = SL_PENDING};
    fill(m->bytes[0], run.next);
    memset(m->bytes[1], 0, MESSAGE_BYTES);
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
    run.bytes += MESSAGE_BYTES;
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
        message_turn(&run.messages[number % MESSAGES], number);
    for (; run.answers != run.next; run.answers++) {
        struct message *m = &run.messages[run.answers % MESSAGES];

        answer_turn(m);
        if (m->word.addr == NULL || m->word.len != 0)
            break;
    }
    while (run.over != run.next && is_over(&run.messages[run.over % MESSAGES])) {
        struct message *m = &run.messages[run.over++ % MESSAGES];

        m->under_way = false;
        m->word.addr = NULL;
    }
    while (posts && run.next - run.over < MESSAGES && post(&run.messages[run.next % MESSAGES]))
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

    for (unsigned i = 0; i < run.side.rails; i++)
        count += run.quality[i] == quality;
    return count;
}

static uint64_t sent_by(unsigned rail)
{
    return sl_mp_conn_of(run.ep[0])->paths[rail]->stats.sent_bytes;
}

static void measure_begin(void)
{
    run.bytes_at_grace = run.bytes;
    for (unsigned i = 0; i < run.side.rails; i++)
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

/* A slow route carries what it can, and no more waits for it. */
static void judge_shares(bool told)
{
    for (unsigned i = 0; i < run.side.rails; i++) {
        double sent = (double)(sent_by(i) - run.sent_at_grace[i]);
        double share = sent * PS_PER_BYTE / 1e12 * 1e9 / MEASURE_NS;

        if (told)
            printf("# route %u, %s: %.2f of a good one; up %u times, failed %u times: %s\n", i,
                   quality_names[run.quality[i]], share,
                   (unsigned)sl_mp_conn_of(run.ep[0])->paths[i]->stats.ups,
                   (unsigned)sl_mp_conn_of(run.ep[0])->paths[i]->stats.failures,
                   sl_mp_conn_of(run.ep[0])->paths[i]->why);
        if (run.quality[i] == SLOW && (share < 0.05 || share > 0.15))
            wrong("route %u, a tenth as fast as the others, got %.3f of a good one's share", i,
                  share);
    }
}

/* A route that loses large packets alone stops data once: by small ones it does not come back. */
static void judge_stalls(void)
{
    unsigned bad = count_of(HOLE) + count_of(DEAD);

    if (count_of(LOSSY) == 0 && run.stalls > bad)
        wrong("data stood still %u times, with %u routes that carry nothing", run.stalls, bad);
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
    routes_set(true);
    play_until(start_ns + BEGIN_NS + GRACE_NS, true);
    measure_begin();
    play_until(start_ns + BEGIN_NS + GRACE_NS + MEASURE_NS, true);
    if (run.wrong[0] == '\0') {
        judge_rate(told);
        judge_shares(told);
        judge_stalls();
    }
    routes_set(false);
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
