/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast of encodings along a chain: the root encodes once, each rank passes on the bytes as
 * they came, and all decode them, the root too. */
#include "schedules/code_cost.h"
#include "schedules/pieces.h"

#include "core/err.h"

enum { WORKS, SENDS, RECVS }; /* channels */

#define SLOTS 16 /* pieces under way: see sl_code_ahead() */
#define PARTS 16 /* the chain is filled by one piece per link */

static void build_chain(struct sl_schedule *s, const struct sl_shape *shape)
{
    const struct sl_code *code = shape->code;
    uint32_t pos = (shape->rank + shape->size - shape->root) % shape->size;
    uint32_t next = (shape->rank + 1) % shape->size;
    uint32_t prev = (shape->rank + shape->size - 1) % shape->size;
    uint32_t sent[SLOTS], decoded[SLOTS];
    uint64_t piece = sl_code_piece(shape, shape->count, PARTS),
             most = code->bytes(code, sl_min(piece, shape->count));
    struct sl_wire wires[SLOTS];

    for (unsigned i = 0; i < SLOTS; i++)
        sent[i] = decoded[i] = SL_NO_DEP;
    for (unsigned i = 0; i < SLOTS && i * piece < shape->count; i++)
        wires[i] = sl_wire_take(s, most);
    for (uint64_t off = 0, round = 0; off < shape->count; off += piece, round++) {
        uint64_t len = sl_min(piece, shape->count - off);
        unsigned slot = round % SLOTS;
        struct sl_wire *wire = &wires[slot];
        uint32_t there;

        wire->len = code->bytes(code, len);
        wire->from = SL_NO_DEP;
        if (pos == 0) {
            there = sl_add_encode(s, WORKS, SL_CODE_RUNNER, sl_in(off), wire, len, code->up_to,
                                  sent[slot]);
            sl_in_stream(s, 0, shape->root, off / code->tile);
        } else {
            there = sl_add_recv_wire(s, RECVS, prev, wire, len, code->up_to, sent[slot]);
        }
        sl_add_dep(s, decoded[slot]);
        if (pos + 1 < shape->size)
            sent[slot] = sl_add_send_wire(s, SENDS, next, wire, len, there);
        decoded[slot] = sl_add_decode(s, WORKS, SL_CODE_RUNNER, wire, sl_out(off), len, there);
        sl_in_stream(s, 0, shape->root, off / code->tile);
    }
}

static int build(const struct sl_shape *shape, struct sl_schedule *out)
{
    sl_schedule_init(out, "code_chain");
    if (shape->size < 2 || shape->code == NULL)
        return sl_fail(-ENOTSUP, "code_chain needs 2 ranks and a codec");
    if (shape->count != 0)
        build_chain(out, shape);
    return sl_schedule_finish(out);
}

/* Of a rank in the middle, or of the root, which encodes in place of receiving; the last one begins
 * when a piece has gone all along the chain. */
static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    const struct sl_link_cost *link = sl_cost_link(shape, costs);
    const struct sl_code_work *work = &shape->code->work;
    uint64_t count = shape->count;

    if (shape->size < 2 || count == 0)
        return -1;
    uint64_t piece = sl_min(sl_code_piece(shape, count, PARTS), count);
    double rounds = (double)sl_ceil_div(count, piece);
    struct sl_code_time first = {.rounds = 1}, all = {.rounds = rounds};

    sl_code_time_send(costs, link, shape->code, piece, 1, 1, &first);
    sl_code_time_send(costs, link, shape->code, count, rounds, 1, &all);
    all.work += sl_code_work_ns(costs, (double)count, work->encode) +
                sl_code_work_ns(costs, (double)count, work->decode);
    all.latency = (shape->size - 1) * link->alpha * sl_cost_crowd(costs) +
                  (shape->size - 2) * sl_code_time_total(&first);
    return sl_code_time_total(&all);
}

const struct sl_algo sl_algo_code_chain = {
    .name = "code_chain",
    .colls = SL_BIT(SL_BROADCAST),
    .source = "",
    .build = build,
    .cost = cost,
};
