/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the protocol of the DPDK transport makes of its routes, in numbers and virtual time: goodput
 * against loss on one and four routes, one bad route of four (sprayed, and dealt over by pieces as
 * multipath/ would), incast into a shaped port, a short message beside a long one.
 */
#include "dpdk/cc/cc.h"
#include "tests/sim/dp_traffic.h"
#include "tests/sim/seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define GBIT UINT64_C(125000000) /* bytes per second */
#define MIB (UINT32_C(1) << 20)
#define ROUTES 4u

static struct dp_wire wire;
static struct dp_traffic traffic;
static struct dp_queue queues[ROUTES];
static unsigned cases, failures;

static const struct sl_dp_settings settings = {.window = 1024,
                                               .rto_least_ns = 20 * MS,
                                               .dead_ns = 5 * SECOND,
                                               .target_ns = 50 * US,
                                               .cc = &sl_dp_swift};

static void judge(bool good, const char *what)
{
    cases++;
    failures += !good;
    printf("%s %u - %s\n", good ? "ok" : "not ok", cases, what);
}

static void begin(uint64_t seed)
{
    dp_wire_init(&wire, seed);
    dp_traffic_init(&traffic, &wire);
}

static void finish(void)
{
    if (traffic.wrong[0] != '\0') {
        printf("# %s\n", traffic.wrong);
        judge(false, "nothing goes wrong on the way");
    }
    dp_wire_fini(&wire);
    dp_traffic_fini(&traffic);
}

static struct sl_dp_ends ends_of(unsigned routes, uint32_t payload)
{
    return (struct sl_dp_ends){.version = 1,
                               .routes = (uint8_t)routes,
                               .payload_least = payload < 1400 ? payload : 1400,
                               .payload_most = payload};
}

/* A node with a port of that speed. */
static struct dp_node *node_of(uint64_t rate)
{
    struct dp_node *node = dp_node_add(&wire, &settings);

    node->rate = rate;
    return node;
}

/* Messages of 1 MiB, more than there is time for. */
static struct dp_stream *endless(struct dp_end *from, unsigned count)
{
    struct dp_stream *stream = dp_stream_add(&traffic, from, count, 8);

    stream->is_bulk = true;
    for (unsigned i = 0; i < count; i++)
        dp_message_size(stream, i, MIB, true);
    return stream;
}

static double gbits(uint64_t bytes, uint64_t ns)
{
    return (double)bytes * 8 / (double)ns;
}

static void tell_routes(const char *what, const struct dp_end *end, unsigned routes)
{
    struct sl_dp_flow_stats s;

    sl_dp_flow_stats(end->flow, &s);
    printf("#   %s: again %.2f %%, in vain %.2f %%, timeouts %" PRIu64 ", probes %" PRIu64
           ", payload %u;",
           what, (double)s.resent_packets * 100 / (double)s.sent_packets,
           (double)s.spurious_packets * 100 / (double)s.sent_packets, s.timeouts, s.probes,
           s.payload_bytes);
    for (unsigned r = 0; r < routes; r++) {
        struct sl_dp_route_stats route;

        sl_dp_route_stats(end->flow, r, &route);
        printf(" [%u%s: %" PRIu64 ", lost %" PRIu64 ", rtt %.1f us, window %" PRIu64 " KiB]", r,
               route.is_up ? "" : " down", route.sent_packets, route.lost_packets,
               (double)route.rtt_ns / 1e3, route.window_bytes >> 10);
    }
    printf("\n");
}

/* ---- loss ---- */

/* One flow sprayed over routes of 25 Gbit/s each, for 100 ms after 20 ms of start. */
static double sprayed(unsigned routes, uint32_t loss_ppm, uint32_t first_ppm, uint32_t payload)
{
    struct sl_dp_ends ends = ends_of(routes, payload);
    struct dp_end *end[2];
    struct dp_stream *stream;
    uint64_t before;
    double speed;

    begin(routes * 1000 + loss_ppm);
    dp_flow_add(&wire, node_of(routes * 25 * GBIT), node_of(routes * 25 * GBIT), &ends,
                &dp_traffic_user, end);
    for (unsigned r = 0; r < routes; r++) {
        queues[r] =
            (struct dp_queue){.rate = 25 * GBIT, .limit_bytes = 1 << 20, .mark_bytes = 100000};
        end[0]->path[r].queue = &queues[r];
        end[0]->path[r].delay_ns = end[1]->path[r].delay_ns = 5 * US;
        end[0]->path[r].loss_ppm = r == 0 ? first_ppm : loss_ppm;
    }
    stream = endless(end[0], 4000);
    dp_traffic_run(&traffic, wire.now_ns + 20 * MS);
    before = stream->arrived_bytes;
    dp_traffic_run(&traffic, wire.now_ns + 100 * MS);
    speed = gbits(stream->arrived_bytes - before, 100 * MS);
    printf("# %u route%s, %.1f %% loss, first %.1f %%, packets of %u: %.2f Gbit/s\n", routes,
           routes > 1 ? "s" : "", loss_ppm / 1e4, first_ppm / 1e4, payload, speed);
    tell_routes("sender", end[0], routes);
    finish();
    return speed;
}

static void goodput_against_loss(void)
{
    char what[160];

    for (unsigned routes = 1; routes <= ROUTES; routes += ROUTES - 1) {
        double none = sprayed(routes, 0, 0, 8900), some = sprayed(routes, 1000, 1000, 8900),
               much = sprayed(routes, 10000, 10000, 8900);

        snprintf(what, sizeof(what), "%u route(s) are full without loss: %.3f of the wire", routes,
                 none / (25 * routes));
        judge(none >= 0.93 * 25 * routes, what);
        snprintf(what, sizeof(what), "%u route(s) keep 0.95 at 0.1 %% loss: %.3f", routes,
                 some / none);
        judge(some >= 0.95 * none, what);
        snprintf(what, sizeof(what), "%u route(s) keep 0.8 at 1 %% loss: %.3f", routes,
                 much / none);
        judge(much >= 0.8 * none, what);
    }
}

/* ---- one bad route of four ---- */

static struct dp_stream *lanes[ROUTES];

/* A simple dealer over lanes of one route each: a piece goes where it would arrive first, by what
 * is under way there and what the lane delivered of late. */
static void deal(unsigned *left, uint64_t began_ns)
{
    while (*left > 0) {
        unsigned best = ROUTES;
        double best_ns = 1e18;

        for (unsigned i = 0; i < ROUTES; i++) {
            const struct dp_stream *lane = lanes[i];
            unsigned waits = lane->count - lane->retired;
            double each_ns = ((double)(wire.now_ns - began_ns) + 20000) / (lane->retired + 1);

            if (waits < 32 && each_ns * (waits + 1) < best_ns) {
                best_ns = each_ns * (waits + 1);
                best = i;
            }
        }
        if (best == ROUTES)
            return;
        lanes[best]->count++;
        dp_stream_pump(lanes[best]);
        --*left;
    }
}

static double dealt(uint32_t first_ppm)
{
    struct sl_dp_ends ends = ends_of(1, 8900);
    struct dp_node *a, *b;
    unsigned left = 1u << 15;
    uint64_t bytes = 0, began_ns;

    begin(first_ppm + 77);
    a = node_of(100 * GBIT);
    b = node_of(100 * GBIT);
    for (unsigned i = 0; i < ROUTES; i++) {
        struct dp_end *end[2];

        dp_flow_add(&wire, a, b, &ends, &dp_traffic_user, end);
        queues[i] =
            (struct dp_queue){.rate = 25 * GBIT, .limit_bytes = 1 << 20, .mark_bytes = 100000};
        end[0]->path[0].queue = &queues[i];
        end[0]->path[0].delay_ns = end[1]->path[0].delay_ns = 5 * US;
        end[0]->path[0].loss_ppm = i == 0 ? first_ppm : 0;
        lanes[i] = dp_stream_add(&traffic, end[0], 1u << 15, 32);
        lanes[i]->is_bulk = true;
        for (unsigned m = 0; m < lanes[i]->count; m++)
            dp_message_size(lanes[i], m, 65536, true);
        lanes[i]->count = 0;
    }
    began_ns = wire.now_ns;
    while (wire.now_ns < began_ns + 120 * MS && traffic.wrong[0] == '\0') {
        deal(&left, began_ns);
        dp_wire_run(&wire, wire.now_ns + 5 * US);
    }
    for (unsigned i = 0; i < ROUTES; i++)
        bytes += lanes[i]->arrived_bytes;
    printf("# four lanes dealt over by 64 KiB pieces, first %.0f %% loss: %.2f Gbit/s (%u %u %u "
           "%u pieces)\n",
           first_ppm / 1e4, gbits(bytes, 120 * MS), lanes[0]->arrived, lanes[1]->arrived,
           lanes[2]->arrived, lanes[3]->arrived);
    finish();
    return gbits(bytes, 120 * MS);
}

static void one_bad_route_of_four(void)
{
    double three = sprayed(3, 0, 0, 8900), four = sprayed(4, 0, 200000, 8900);
    char what[160];

    snprintf(what, sizeof(what), "with one of four routes at 20 %% loss: %.3f of the other three",
             four / three);
    judge(four >= 0.95 * three, what);
    dealt(0);
    dealt(200000);
}

/* ---- incast ---- */

static void incast(unsigned senders)
{
    struct sl_dp_ends ends = ends_of(1, 8900);
    struct dp_queue *queue = &queues[0];
    struct dp_stream *stream[8];
    uint64_t before[8], sum = 0, least = UINT64_MAX, most = 0;
    struct dp_node *sink;
    double average;
    char what[160];

    begin(senders);
    *queue = (struct dp_queue){
        .rate = 25 * GBIT, .limit_bytes = 1 << 20, .mark_bytes = 40000, .is_phantom = true};
    sink = node_of(25 * GBIT);
    for (unsigned i = 0; i < senders; i++) {
        struct dp_end *end[2];

        dp_flow_add(&wire, node_of(25 * GBIT), sink, &ends, &dp_traffic_user, end);
        end[0]->path[0].queue = queue;
        end[0]->path[0].delay_ns = end[1]->path[0].delay_ns = (5 + i) * US;
        end[0]->path[0].jitter_ns = end[1]->path[0].jitter_ns = US;
        stream[i] = endless(end[0], 400);
    }
    dp_traffic_run(&traffic, wire.now_ns + 50 * MS);
    queue->depth_sum = 0;
    queue->packets = queue->drops = queue->marks = queue->depth_most = 0;
    for (unsigned i = 0; i < senders; i++)
        before[i] = stream[i]->arrived_bytes;
    dp_traffic_run(&traffic, wire.now_ns + 200 * MS);
    for (unsigned i = 0; i < senders; i++) {
        uint64_t got = stream[i]->arrived_bytes - before[i];

        sum += got;
        least = got < least ? got : least;
        most = got > most ? got : most;
        printf("%s%.2f", i == 0 ? "# " : ", ", gbits(got, 200 * MS));
    }
    average = queue->depth_sum / (double)(queue->packets + 1) * 1e6 / (double)queue->rate;
    printf(" Gbit/s; queue %.1f us on average, %.1f at most, drops %" PRIu64 ", marks %.2f %%\n",
           average, (double)queue->depth_most * 1e6 / (double)queue->rate, queue->drops,
           (double)queue->marks * 100 / (double)(queue->packets + 1));
    tell_routes("a sender", stream[0]->from, 1);
    snprintf(what, sizeof(what), "%u senders fill one port: %.3f of it", senders,
             gbits(sum, 200 * MS) / 25);
    judge(gbits(sum, 200 * MS) >= 0.85 * 25, what);
    snprintf(what, sizeof(what), "and share it: %.3f to %.3f of the fair share",
             (double)least * senders / (double)sum, (double)most * senders / (double)sum);
    judge((double)least * senders >= 0.9 * (double)sum &&
              (double)most * senders <= 1.1 * (double)sum,
          what);
    snprintf(what, sizeof(what), "its queue stays below the target of 50 us: %.1f", average);
    judge(average < 50, what);
    finish();
}

/* ---- a short message beside a long flow ---- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

#define SHORTS 1000u

static void short_times(bool is_beside, bool has_marks, bool has_high, uint64_t *half_ns,
                        uint64_t *p99_ns)
{
    struct sl_dp_ends ends = ends_of(1, 8900);
    struct dp_node *a, *b, *c;
    struct dp_end *end[2];
    struct dp_stream *stream;
    unsigned count = SHORTS;

    begin(5);
    a = node_of(25 * GBIT);
    b = node_of(25 * GBIT);
    c = node_of(25 * GBIT);
    queues[0] = (struct dp_queue){.rate = 25 * GBIT,
                                  .limit_bytes = 1 << 20,
                                  .mark_bytes = has_marks ? 40000 : 0,
                                  .is_phantom = true,
                                  .has_high = has_high};
    if (is_beside) {
        dp_flow_add(&wire, c, b, &ends, &dp_traffic_user, end);
        end[0]->path[0].queue = &queues[0];
        end[0]->path[0].delay_ns = end[1]->path[0].delay_ns = 5 * US;
        endless(end[0], 400);
    }
    dp_flow_add(&wire, a, b, &ends, &dp_traffic_user, end);
    end[0]->path[0].queue = &queues[0];
    end[0]->path[0].delay_ns = end[1]->path[0].delay_ns = 5 * US;
    stream = dp_stream_add(&traffic, end[0], count, 16);
    stream->sent_ns = calloc(count, sizeof(uint64_t));
    stream->took_ns = calloc(count, sizeof(uint64_t));
    for (unsigned i = 0; i < count; i++)
        dp_message_size(stream, i, 64, false);
    stream->count = 0;
    dp_traffic_run(&traffic, wire.now_ns + 20 * MS);
    while (stream->count < count) {
        stream->count++;
        dp_stream_pump(stream);
        dp_wire_run(&wire, wire.now_ns + 100 * US);
    }
    dp_wire_run(&wire, wire.now_ns + 10 * MS);
    qsort(stream->took_ns, count, sizeof(uint64_t), compare);
    *half_ns = stream->took_ns[count / 2];
    *p99_ns = stream->took_ns[count * 99 / 100];
    printf("# a short message %s%s%s: p50 %.1f us, p99 %.1f us, at most %.1f us\n",
           is_beside ? "beside a long flow" : "alone", has_marks ? "" : ", without marks",
           has_high ? ", in a class of its own" : "", (double)*half_ns / 1e3, (double)*p99_ns / 1e3,
           (double)stream->took_ns[count - 1] / 1e3);
    finish();
}

static void short_beside_long(void)
{
    uint64_t idle_ns, p99_ns, first_ns, none;
    char what[160];

    short_times(false, true, false, &idle_ns, &none);
    short_times(true, true, false, &none, &p99_ns);
    snprintf(what, sizeof(what), "a short message's p99 beside a long flow: %.1f of its idle p50",
             (double)p99_ns / (double)idle_ns);
    judge(p99_ns <= 5 * idle_ns, what);
    short_times(true, false, false, &none, &p99_ns);
    short_times(true, false, true, &none, &first_ns);
    snprintf(what, sizeof(what), "%.1f where no switch marks, and %.1f where it goes first",
             (double)p99_ns / (double)idle_ns, (double)first_ns / (double)idle_ns);
    judge(first_ns <= idle_ns + 4 * US, what); /* the packet on the wire has 2.9 us, a poll 1 */
}

/* ---- two ends that share a core ---- */

/* A wire that loses nothing and blocks when 1,024 frames wait, as memif does; each end runs while
 * the other one does not. */
static double sharing(uint64_t slice_ns)
{
    struct sl_dp_ends ends = ends_of(1, 8900);
    struct dp_end *end[2];
    struct dp_stream *stream;
    uint64_t before;
    double speed;

    begin(slice_ns);
    for (unsigned i = 0; i < 2; i++) {
        struct dp_node *node = node_of(100 * GBIT);

        node->slice_ns = slice_ns;
        node->is_odd = i == 1;
        node->inbox_most = 1024;
        node->ring_ns = 10 * MS;
    }
    dp_flow_add(&wire, &wire.node[0], &wire.node[1], &ends, &dp_traffic_user, end);
    end[0]->path[0].delay_ns = end[1]->path[0].delay_ns = 500;
    stream = endless(end[0], 8000);
    dp_traffic_run(&traffic, wire.now_ns + 200 * MS);
    before = stream->arrived_bytes;
    dp_traffic_run(&traffic, wire.now_ns + 400 * MS);
    speed = gbits(stream->arrived_bytes - before, 400 * MS);
    printf("# two ends on one core, slices of %.1f ms: %.2f Gbit/s\n", (double)slice_ns / 1e6,
           speed);
    tell_routes("sender", end[0], 1);
    finish();
    return speed;
}

static void ends_that_share_a_core(void)
{
    char what[160];

    for (uint64_t slice_ns = MS; slice_ns <= 16 * MS; slice_ns *= 4) {
        /* A window of packets goes in each pair of slices. */
        double most = gbits(1024 * 8900, 2 * slice_ns), speed;

        if (most > 45)
            most = 45;
        speed = sharing(slice_ns);
        snprintf(what, sizeof(what), "slices of %.0f ms leave %.3f of what the window allows",
                 (double)slice_ns / 1e6, speed / most);
        judge(speed >= 0.5 * most, what);
    }
}

int main(void)
{
    seeds_quiet();
    goodput_against_loss();
    one_bad_route_of_four();
    incast(8);
    short_beside_long();
    ends_that_share_a_core();
    printf("1..%u\n", cases);
    return failures != 0;
}
