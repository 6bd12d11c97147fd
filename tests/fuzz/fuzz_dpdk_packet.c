/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer of a DPDK flow, who may know its secret: sequences of packets to an end that has
 * messages under way. Nothing is read or written outside of the packet and of what place() gave,
 * and it never sends for ever.
 *
 * Input: packets of two bytes (how it is made right; its length's upper bits and a step of time),
 * one byte of length, and that many bytes, the header first. Bits of the first byte: 0 the flow's
 * number and secret are put in, 1 the header's check, 2 the payload's CRC, 3 numbers are taken
 * relative to where the flow is, 4 the end runs after it, 5 a message is posted after it.
 */
#include "core/crc.h"
#include "core/err.h"
#include "dpdk/cc/cc.h"
#include "dpdk/proto/inside.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER 7
#define SECRET UINT64_C(0x0123456789abcdef)
#define MEMORY 6000
#define SENT_MOST 200000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_dp_engine engine;
static struct sl_dp_flow *flow;
static uint8_t *memory, *message;
static unsigned sent, posted, retired;
static uint64_t now_ns;
static size_t held;

static int on_packet(struct sl_dp_flow *of, const struct sl_dp_packet *packet)
{
    volatile uint8_t sum = 0;

    for (uint32_t i = 0; i < packet->head_len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)packet->head)[i]);
    for (uint32_t i = 0; i < packet->payload_len; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)packet->payload)[i]);
    sl_assert(of == flow && packet->route < 2 && ++sent < SENT_MOST);
    return sent % 7 == 0 ? -EAGAIN : 0;
}

static void *on_place(struct sl_dp_flow *of, bool is_write, uint32_t imm, uint32_t off,
                      uint32_t len)
{
    (void)of, (void)is_write;
    if (imm % 16 == 1)
        return SL_DP_LATER;
    return off <= MEMORY && len <= MEMORY - off ? memory + off : NULL;
}

static void on_arrived(struct sl_dp_flow *of, bool is_write, uint32_t imm, uint32_t len)
{
    (void)of, (void)is_write, (void)imm;
    sl_assert(len <= MEMORY);
}

static void on_retired(struct sl_dp_flow *of, uint32_t ordinal)
{
    (void)of;
    sl_assert(ordinal >= retired && ordinal < posted);
    retired = ordinal + 1;
}

static void on_failed(struct sl_dp_flow *of, int status, const char *why)
{
    (void)of;
    sl_assert(status < 0 && why[0] != '\0');
}

static void *on_alloc(void *arg, size_t len)
{
    (void)arg;
    held += len;
    return calloc(1, len);
}

static void on_free(void *arg, void *bytes, size_t len)
{
    (void)arg;
    held -= len;
    free(bytes);
}

static void begin(void)
{
    static const struct sl_dp_ops ops = {on_packet,  on_place,  on_arrived,
                                         on_retired, on_failed, NULL};
    static const struct sl_dp_ends ends = {.own_number = NUMBER,
                                           .peer_number = NUMBER + 1,
                                           .own_secret = SECRET,
                                           .peer_secret = SECRET + 1,
                                           .version = SL_DP_VERSION,
                                           .routes = 2,
                                           .payload_least = 500,
                                           .payload_most = 2000};

    now_ns = 1000000;
    sent = posted = retired = 0;
    engine = (struct sl_dp_engine){.ops = &ops,
                                   .settings = {.window = 256,
                                                .rto_least_ns = 1000000,
                                                .dead_ns = 1000000000,
                                                .target_ns = 50000,
                                                .cc = &sl_dp_swift},
                                   .alloc = on_alloc,
                                   .free = on_free};
    memory = malloc(MEMORY);
    message = calloc(1, MEMORY);
    sl_assert(memory != NULL && message != NULL);
    sl_assert(sl_dp_engine_init(&engine, now_ns) == 0);
    sl_assert(sl_dp_flow_open(&engine, &ends, NULL, &flow) == 0);
}

static void post(void)
{
    if (posted - retired == SL_DP_MESSAGES_MAX)
        return;
    posted++;
    sl_dp_flow_post(flow, true, posted << 16, 0, message, 1 + posted * 997 % MEMORY);
}

/* What the first byte asks for. */
static size_t make_right(uint8_t *packet, size_t len, uint8_t how)
{
    struct sl_dp_head head;
    uint32_t sum;

    if (len < sizeof(head))
        return len;
    memcpy(&head, packet, sizeof(head));
    if ((how & 1) != 0) {
        head.flow = NUMBER;
        head.secret = SECRET;
    }
    if ((how & 8) != 0) {
        bool is_ack = head.kind_version >> 4 == SL_DP_ACK;

        head.kind_version = (uint8_t)((head.kind_version & 0xf0) | SL_DP_VERSION);
        head.seq = (is_ack ? flow->una : flow->due) + head.seq % 128;
        head.imm = is_ack ? head.seq + 256 : head.imm % 64;
        head.offset %= MEMORY + 100;
        head.route %= 4;
    }
    if ((how & 2) != 0)
        sl_dp_head_seal(&head);
    memcpy(packet, &head, sizeof(head));
    if ((how & 4) == 0 || len < sizeof(head) + sizeof(sum))
        return len;
    sum = sl_dp_payload_crc(&head, packet + sizeof(head), len - sizeof(head) - sizeof(sum));
    memcpy(packet + len - sizeof(sum), &sum, sizeof(sum));
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    post();
    post();
    while (size >= 3) {
        uint8_t how = data[0], step = data[1];
        size_t len = data[2], wanted = len + (step & 3) * 500;
        uint8_t *packet; /* of its exact length: the sanitizer sees what lies beyond */

        data += 3;
        size -= 3;
        len = len < size ? len : size;
        packet = calloc(1, wanted + 1);
        sl_assert(packet != NULL);
        memcpy(packet, data, len);
        data += len;
        size -= len;
        packet = realloc(packet, wanted > 0 ? wanted : 1);
        sl_assert(packet != NULL);
        sl_dp_flow_receive(flow, packet, make_right(packet, wanted, how), (step & 4) != 0, now_ns);
        free(packet);
        now_ns += (uint64_t)1 << (step >> 3);
        if ((how & 16) != 0)
            sl_dp_engine_run(&engine, now_ns, 64);
        if ((how & 32) != 0)
            post();
    }
    for (unsigned i = 0; i < 50; i++)
        sl_dp_engine_run(&engine, now_ns += 10000000, 64);
    sl_dp_flow_close(flow);
    sl_dp_engine_fini(&engine);
    sl_assert(held == 0);
    free(memory);
    free(message);
    return 0;
}
