/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/dpdk/live_pair.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/list.h"
#include "dpdk/cc/cc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS 16u /* of content: messages differ from those near them */
#define BUDGET 256

static uint8_t content[LIVE_MESSAGE + SLOTS * 64];

static const uint8_t *message(uint32_t number)
{
    return content + (number % SLOTS) * 64;
}

/* ---- what the protocol asks for ---- */

static struct live_end *end_of(const struct sl_dp_flow *flow)
{
    return sl_dp_flow_owner(flow);
}

static int packet(struct sl_dp_flow *flow, const struct sl_dp_packet *packet)
{
    struct live_end *end = end_of(flow);
    int status = sl_dpdk_send(end->user, end->port, &end->way, packet->head, packet->head_len,
                              packet->payload, packet->payload_len,
                              packet->has_tail ? &packet->tail : NULL, false, 0);

    return status < 0 ? status : 0;
}

static void *place(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t off, uint32_t len)
{
    (void)is_write;
    if ((uint64_t)off + len > LIVE_MESSAGE)
        return NULL;
    return end_of(flow)->places + (size_t)(imm % LIVE_POSTED) * LIVE_MESSAGE + off;
}

static void arrived(struct sl_dp_flow *flow, bool is_write, uint32_t imm, uint32_t len)
{
    struct live_end *end = end_of(flow);
    uint8_t *at = end->places + (size_t)(imm % LIVE_POSTED) * LIVE_MESSAGE;

    end->wrong += !is_write || imm != end->arrived || len != LIVE_MESSAGE ||
                  memcmp(at, message(imm), LIVE_MESSAGE) != 0;
    memset(at, 0, LIVE_MESSAGE);
    end->arrived++;
}

static void retired(struct sl_dp_flow *flow, uint32_t ordinal)
{
    end_of(flow)->retired = ordinal + 1;
}

static void failed(struct sl_dp_flow *flow, int status, const char *why)
{
    snprintf(end_of(flow)->failed, sizeof(end_of(flow)->failed), "%d: %s", status, why);
}

static const struct sl_dp_ops ops = {
    .packet = packet, .place = place, .arrived = arrived, .retired = retired, .failed = failed};

static void on_packet(void *arg, struct sl_dpdk_port *port, uint32_t flow, const void *bytes,
                      size_t len, bool is_marked)
{
    struct live_end *end = arg;

    (void)port;
    if (end->flow != NULL && flow == end->number)
        (void)sl_dp_flow_receive(end->flow, bytes, len, is_marked, sl_now(&sl_clock_monotonic));
}

static void on_sent(void *arg, uint64_t cookie)
{
    (void)arg, (void)cookie;
}

static void *alloc(void *arg, size_t len)
{
    (void)arg;
    return calloc(1, len);
}

static void release(void *arg, void *memory, size_t len)
{
    (void)arg, (void)len;
    free(memory);
}

/* ---- open, close ---- */

static uint64_t draw(void)
{
    return sl_seed() | 1;
}

static int open_end(struct live_end *end, const char *list, unsigned idx)
{
    struct sl_dpdk_port_settings settings = {.list = list, .rank = -1, .local_rank = -1};
    int err = sl_dpdk_ports_get(&settings, end->ports, SL_DPDK_PORTS_MAX, &end->port_count);

    if (err != 0)
        return err;
    end->port = end->ports[idx];
    end->places = calloc(LIVE_POSTED, LIVE_MESSAGE);
    end->engine.ops = &ops;
    end->engine.alloc = alloc;
    end->engine.free = release;
    end->engine.settings = (struct sl_dp_settings){.window = 1024,
                                                   .rto_least_ns = 20 * SL_NS_PER_MS,
                                                   .dead_ns = 5000 * SL_NS_PER_MS,
                                                   .target_ns = 50000,
                                                   .cc = &sl_dp_swift};
    err = end->places == NULL ? -ENOMEM
                              : sl_dp_engine_init(&end->engine, sl_now(&sl_clock_monotonic));
    return err != 0 ? err : sl_dpdk_user_open(on_packet, on_sent, end, &end->user);
}

static int open_flow(struct live_pair *pair, unsigned idx)
{
    struct live_end *own = &pair->end[idx], *peer = &pair->end[!idx];
    struct sl_dpdk_port_info info;
    struct sl_dp_ends ends = {.own_number = own->number,
                              .peer_number = peer->number,
                              .own_secret = own->secret,
                              .peer_secret = peer->secret,
                              .version = SL_DP_VERSION,
                              .routes = 1,
                              .payload_least = 1400,
                              .payload_most = 8900};
    int err;

    sl_dpdk_port_info(peer->port, &info);
    err = sl_dpdk_way_make(own->port, &info.address, (uint16_t)(50000 + idx), 0, &own->way);
    own->posted = own->retired = own->arrived = 0;
    return err != 0 ? err : sl_dp_flow_open(&own->engine, &ends, own, &own->flow);
}

int live_renew(struct live_pair *pair)
{
    int err = 0;

    for (unsigned i = 0; i < 2 && err == 0; i++) {
        struct live_end *end = &pair->end[i];

        sl_dp_flow_close(end->flow);
        end->flow = NULL;
        if (end->number != 0)
            sl_dpdk_flow_forget(end->user, end->number);
        end->secret = draw();
        err = sl_dpdk_flow_number(end->user, &end->number);
    }
    for (unsigned i = 0; i < 2 && err == 0; i++)
        err = open_flow(pair, i);
    return err;
}

int live_open(struct live_pair *pair, const char *list)
{
    int err = 0;

    memset(pair, 0, sizeof(*pair));
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = (uint8_t)(i * 131 + (i >> 7) * 29 + 1);
    for (unsigned i = 0; i < 2 && err == 0; i++)
        err = open_end(&pair->end[i], list, i);
    return err != 0 ? err : live_renew(pair);
}

void live_close(struct live_pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        struct live_end *end = &pair->end[i];

        sl_dp_flow_close(end->flow);
        sl_dpdk_user_close(end->user);
        sl_dp_engine_fini(&end->engine);
        sl_dpdk_ports_put(end->ports, end->port_count);
        free(end->places);
    }
}

/* ---- a run ---- */

/* Of the processor: what others take meanwhile does not count. */
static uint64_t used_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * SL_NS_PER_S + (uint64_t)used.tv_nsec;
}

static void step(struct live_pair *pair, unsigned idx, uint32_t until)
{
    struct live_end *end = &pair->end[idx];
    uint64_t now_ns = sl_now(&sl_clock_monotonic), since_ns = used_ns();

    sl_dp_engine_tick(&end->engine, now_ns);
    (void)sl_dpdk_user_poll(end->user, end->port, BUDGET);
    while (end->posted < until && end->posted - end->retired < LIVE_POSTED) {
        sl_dp_flow_post(end->flow, true, end->posted, 0, message(end->posted), LIVE_MESSAGE);
        end->posted++;
    }
    (void)sl_dp_engine_run(&end->engine, now_ns, BUDGET);
    (void)sl_dpdk_flush(end->user, end->port);
    pair->busy_ns += used_ns() - since_ns;
}

bool live_run(struct live_pair *pair, bool both, uint32_t messages, unsigned ms,
              void (*between)(void *arg), void *arg)
{
    struct live_end *a = &pair->end[0], *b = &pair->end[1];
    uint32_t until_a = a->posted + messages, until_b = b->posted + (both ? messages : 0);
    uint64_t end_ns = sl_now(&sl_clock_monotonic) + ms * SL_NS_PER_MS;

    while (a->retired < until_a || b->retired < until_b) {
        step(pair, 0, until_a);
        if (between != NULL)
            between(arg);
        step(pair, 1, until_b);
        if (a->failed[0] != '\0' || b->failed[0] != '\0' || sl_now(&sl_clock_monotonic) > end_ns)
            return false;
    }
    return a->wrong == 0 && b->wrong == 0 && b->arrived == until_a && a->arrived == until_b;
}
