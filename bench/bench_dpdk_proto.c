/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the protocol of the DPDK transport costs a packet, both sides: two flows joined in memory.
 * Headers are copied from one to the other, payloads only where the receiver puts them; the time of
 * those copies alone is measured and told apart.
 *
 *     bench_dpdk_proto [MESSAGE PAYLOAD COUNT [ROUTES]]
 */
#include "core/err.h"
#include "dpdk/cc/cc.h"
#include "dpdk/proto/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS 256u
#define BURST 32u
#define SLOT_BYTES (SL_DP_HEAD_BYTES + SL_DP_PAYLOAD_MOST + SL_DP_CRC_BYTES)

struct side {
    struct sl_dp_engine engine;
    struct sl_dp_flow *flow;
    uint8_t (*slot)[SLOT_BYTES]; /* what comes to it */
    uint32_t len[SLOTS], head, tail;
    uint64_t retired, arrived;
};

static struct side sides[2];
static uint8_t *message, *scratch;
static uint64_t virtual_ns = 1000;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int on_packet(struct sl_dp_flow *flow, const struct sl_dp_packet *packet)
{
    struct side *to = flow == sides[0].flow ? &sides[1] : &sides[0];
    uint32_t at = to->tail % SLOTS;

    if (to->tail - to->head == SLOTS)
        return -EAGAIN;
    memcpy(to->slot[at], packet->head, SL_DP_HEAD_BYTES);
    to->len[at] = packet->head_len + packet->payload_len;
    if (packet->has_tail) { /* an answer */
        memcpy(to->slot[at] + SL_DP_HEAD_BYTES, packet->payload, packet->payload_len);
        memcpy(to->slot[at] + to->len[at], &packet->tail, SL_DP_CRC_BYTES);
        to->len[at] += SL_DP_CRC_BYTES;
    }
    to->tail++;
    return 0;
}

static void *on_place(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off,
                      uint32_t len)
{
    return scratch + off % (1u << 20);
}

static void on_arrived(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len)
{
    sides[flow == sides[1].flow].arrived++;
}

static void on_retired(struct sl_dp_flow *flow, uint32_t ordinal)
{
    sides[flow == sides[1].flow].retired = (uint64_t)ordinal + 1;
}

static void on_failed(struct sl_dp_flow *flow, int status, const char *why)
{
    fprintf(stderr, "bench_dpdk_proto: %s\n", why);
    exit(1);
}

static void *alloc(void *arg, size_t len)
{
    return calloc(1, len);
}

static void release(void *arg, void *memory, size_t len)
{
    free(memory);
}

static void open_sides(uint32_t payload, unsigned routes)
{
    static const struct sl_dp_ops ops = {on_packet,  on_place,  on_arrived,
                                         on_retired, on_failed, NULL};

    for (unsigned i = 0; i < 2; i++) {
        struct side *side = &sides[i];
        struct sl_dp_ends ends = {.own_number = 1 + i,
                                  .peer_number = 2 - i,
                                  .own_secret = 77 + i,
                                  .peer_secret = 78 - i,
                                  .version = SL_DP_VERSION,
                                  .routes = (uint8_t)routes,
                                  .payload_least = payload,
                                  .payload_most = payload};

        side->engine = (struct sl_dp_engine){.ops = &ops,
                                             .settings = {.window = 1024,
                                                          .rto_least_ns = 20000000,
                                                          .dead_ns = UINT64_C(5000000000),
                                                          .target_ns = 50000,
                                                          .cc = &sl_dp_swift},
                                             .alloc = alloc,
                                             .free = release};
        if (side->slot == NULL)
            side->slot = calloc(SLOTS, SLOT_BYTES);
        side->head = side->tail = 0;
        side->retired = side->arrived = 0;
        if (side->slot == NULL || sl_dp_engine_init(&side->engine, virtual_ns) != 0 ||
            sl_dp_flow_open(&side->engine, &ends, NULL, &side->flow) != 0)
            exit(1);
    }
}

static void close_sides(void)
{
    for (unsigned i = 0; i < 2; i++) {
        sl_dp_flow_close(sides[i].flow);
        sl_dp_engine_fini(&sides[i].engine);
    }
}

static void progress(struct side *side)
{
    for (unsigned n = 0; n < BURST && side->head != side->tail; n++, side->head++)
        sl_dp_flow_receive(side->flow, side->slot[side->head % SLOTS],
                           side->len[side->head % SLOTS], false, virtual_ns);
    sl_dp_engine_run(&side->engine, virtual_ns, BURST);
}

/* ns for copies of that many packets as the receiver makes them. */
static double copies(uint32_t payload, uint64_t packets)
{
    double start = seconds();

    for (uint64_t i = 0; i < packets; i++) {
        memcpy(scratch + i * payload % (1u << 20), sides[1].slot[i % SLOTS] + SL_DP_HEAD_BYTES,
               payload);
        __asm__ volatile("" ::: "memory");
    }
    return (seconds() - start) * 1e9;
}

static void measure(uint32_t len, uint32_t payload, uint64_t count, unsigned routes)
{
    struct sl_dp_flow_stats stats;
    uint64_t posted = 0;
    double ns, copy_ns;

    open_sides(payload, routes);
    ns = seconds();
    while (sides[0].retired < count) {
        unsigned depth = len > 4096 ? 4 : 1;

        while (posted < count && posted - sides[0].retired < depth)
            sl_dp_flow_post(sides[0].flow, true, (uint32_t)posted++ << 16, 0, message, len);
        progress(&sides[1]);
        virtual_ns += 1500;
        progress(&sides[0]);
        virtual_ns += 1500;
    }
    ns = (seconds() - ns) * 1e9;
    sl_dp_flow_stats(sides[0].flow, &stats);
    copy_ns = copies(len < payload ? len : payload, stats.sent_packets);
    printf(
        "messages of %7u, packets of %4u, %2u routes: %7.1f ns a packet, %6.1f of them the copy; "
        "%.1f acks a packet, %llu again\n",
        len, payload, routes, ns / (double)stats.sent_packets, copy_ns / (double)stats.sent_packets,
        (double)stats.acks_received / (double)stats.sent_packets,
        (unsigned long long)stats.resent_packets);
    close_sides();
}

int main(int argc, char **argv)
{
    message = calloc(1, 1u << 20);
    scratch = calloc(1, (1u << 20) + SL_DP_PAYLOAD_MOST);
    if (message == NULL || scratch == NULL)
        return 1;
    if (argc >= 4) {
        measure((uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]), (uint64_t)atoll(argv[3]),
                argc > 4 ? (unsigned)atoi(argv[4]) : 1);
        return 0;
    }
    measure(1u << 20, 8900, 2000, 1);
    measure(1u << 20, 8900, 2000, 4);
    measure(1u << 20, 1400, 400, 1);
    measure(1u << 20, 1400, 400, 4);
    measure(8, 1400, 300000, 1);
    return 0;
}
