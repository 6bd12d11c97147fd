/* SPDX-License-Identifier: Apache-2.0 */
/* The words that builders are written in: one function per kind of step, cuts and groups. */
#include "schedules/build.h"

#include "core/err.h"

#include <stdlib.h>

static const struct sl_place nowhere = {SL_BUF_NONE, 0};

static struct sl_place on_wire(const struct sl_wire *wire)
{
    return (struct sl_place){SL_BUF_WIRE, wire->off};
}

static uint32_t add(struct sl_schedule *s, const struct sl_step *step, uint32_t dep)
{
    uint32_t idx = sl_schedule_add(s, step);

    sl_add_dep(s, dep);
    return idx;
}

/* A step that takes elements from one place to another. */
static struct sl_step moves(enum sl_step_kind kind, unsigned channel, struct sl_place src,
                            struct sl_place dst, uint64_t count)
{
    return (struct sl_step){.kind = (uint8_t)kind,
                            .channel = (uint16_t)channel,
                            .src_buf = src.buf,
                            .src_off = src.off,
                            .dst_buf = dst.buf,
                            .dst_off = dst.off,
                            .count = count};
}

uint32_t sl_add_send(struct sl_schedule *s, unsigned channel, uint32_t peer, struct sl_place src,
                     uint64_t count, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_SEND, channel, src, nowhere, count);

    step.peer = peer;
    return add(s, &step, dep);
}

uint32_t sl_add_recv(struct sl_schedule *s, unsigned channel, uint32_t peer, struct sl_place dst,
                     uint64_t count, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_RECV, channel, nowhere, dst, count);

    step.peer = peer;
    return add(s, &step, dep);
}

uint32_t sl_add_recv_reduce(struct sl_schedule *s, unsigned channel, uint32_t peer,
                            struct sl_place src, struct sl_place dst, uint64_t count,
                            unsigned flags, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_RECV_REDUCE, channel, src, dst, count);

    step.flags = (uint8_t)flags;
    step.peer = peer;
    return add(s, &step, dep);
}

uint32_t sl_add_copy(struct sl_schedule *s, unsigned channel, struct sl_place src,
                     struct sl_place dst, uint64_t count, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_COPY, channel, src, dst, count);

    return add(s, &step, dep);
}

uint32_t sl_add_reduce(struct sl_schedule *s, unsigned channel, struct sl_place src,
                       struct sl_place dst, uint64_t count, unsigned flags, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_REDUCE, channel, src, dst, count);

    step.flags = (uint8_t)flags;
    return add(s, &step, dep);
}

uint32_t sl_add_post(struct sl_schedule *s, unsigned channel, uint32_t value, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_POST, channel, nowhere, nowhere, 0);

    s->win_values = value;
    step.value = value;
    return add(s, &step, dep);
}

uint32_t sl_add_await(struct sl_schedule *s, unsigned channel, uint32_t peer, uint32_t value,
                      uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_AWAIT, channel, nowhere, nowhere, 0);

    step.peer = peer;
    step.value = value;
    return add(s, &step, dep);
}

uint32_t sl_add_reduce_win(struct sl_schedule *s, unsigned channel, struct sl_place src,
                           uint64_t win_off, struct sl_place dst, uint64_t count, unsigned flags,
                           uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_REDUCE_WIN, channel, src, dst, count);

    step.flags = (uint8_t)flags;
    step.win_off = win_off;
    return add(s, &step, dep);
}

uint32_t sl_add_get(struct sl_schedule *s, unsigned channel, uint32_t peer, uint64_t win_off,
                    struct sl_place dst, uint64_t count, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_GET, channel, nowhere, dst, count);

    step.peer = peer;
    step.win_off = win_off;
    return add(s, &step, dep);
}

struct sl_wire sl_wire_take(struct sl_schedule *s, uint64_t len)
{
    struct sl_wire wire = {.off = sl_ceil_div(s->wire_bytes, 64) * 64, .len = len, SL_NO_DEP};

    s->wire_bytes = wire.off + len;
    return wire;
}

/* Adds a step that fills the wire. */
static uint32_t add_writer(struct sl_schedule *s, struct sl_step *step, struct sl_wire *wire,
                           bool up_to, uint32_t dep)
{
    uint32_t idx;

    step->flags = up_to ? SL_STEP_UP_TO : 0;
    step->wire_len = wire->len;
    idx = add(s, step, dep);
    wire->from = up_to ? idx : SL_NO_DEP;
    return idx;
}

uint32_t sl_add_encode(struct sl_schedule *s, unsigned channel, unsigned runner,
                       struct sl_place src, struct sl_wire *wire, uint64_t count, bool up_to,
                       uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_ENCODE, channel, src, on_wire(wire), count);

    step.runner = (uint8_t)runner;
    return add_writer(s, &step, wire, up_to, dep);
}

uint32_t sl_add_recv_wire(struct sl_schedule *s, unsigned channel, uint32_t peer,
                          struct sl_wire *wire, uint64_t count, bool up_to, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_RECV, channel, nowhere, on_wire(wire), count);

    step.peer = peer;
    return add_writer(s, &step, wire, up_to, dep);
}

/* Adds a step that reads the wire. */
static uint32_t add_reader(struct sl_schedule *s, struct sl_step *step, const struct sl_wire *wire,
                           uint32_t dep)
{
    step->wire_len = wire->len;
    step->length_from = wire->from == SL_NO_DEP ? 0 : wire->from + 1;
    return add(s, step, dep);
}

uint32_t sl_add_send_wire(struct sl_schedule *s, unsigned channel, uint32_t peer,
                          const struct sl_wire *wire, uint64_t count, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_SEND, channel, on_wire(wire), nowhere, count);

    step.peer = peer;
    return add_reader(s, &step, wire, dep);
}

uint32_t sl_add_decode(struct sl_schedule *s, unsigned channel, unsigned runner,
                       const struct sl_wire *wire, struct sl_place dst, uint64_t count,
                       uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_DECODE, channel, on_wire(wire), dst, count);

    step.runner = (uint8_t)runner;
    return add_reader(s, &step, wire, dep);
}

uint32_t sl_add_decode_reduce(struct sl_schedule *s, unsigned channel, unsigned runner,
                              const struct sl_wire *wire, struct sl_place dst, uint64_t count,
                              unsigned flags, uint32_t dep)
{
    struct sl_step step = moves(SL_STEP_DECODE_REDUCE, channel, on_wire(wire), dst, count);

    step.flags = (uint8_t)flags;
    step.runner = (uint8_t)runner;
    return add_reader(s, &step, wire, dep);
}

void sl_in_stream(struct sl_schedule *s, unsigned stage, uint32_t stream, uint64_t tile)
{
    if (s->error != 0)
        return;
    struct sl_step *step = &s->steps[s->step_count - 1];

    step->stage = (uint8_t)stage;
    step->stream = stream;
    step->tile = (uint32_t)tile;
}

void sl_by_runner(struct sl_schedule *s, unsigned runner)
{
    if (s->error == 0)
        s->steps[s->step_count - 1].runner = (uint8_t)runner;
}

void sl_add_dep(struct sl_schedule *s, uint32_t dep)
{
    if (dep != SL_NO_DEP)
        sl_schedule_depend(s, dep);
}

uint64_t sl_part_width(uint64_t count, uint32_t parts, uint32_t esize)
{
    uint64_t width = sl_ceil_div(count, parts);
    uint64_t line = esize < 64 ? 64 / esize : 1;

    /* Below this, rounding up would cost more balance than whole cache lines give back. */
    if (width < 4 * line)
        return sl_max(width, 1);
    return sl_ceil_div(width, line) * line;
}

uint64_t sl_piece(const struct sl_shape *shape, uint64_t default_bytes)
{
    uint64_t piece = shape->chunk != 0 ? shape->chunk : default_bytes / shape->esize;
    uint64_t line = shape->esize < 64 ? 64 / shape->esize : 1;

    if (piece > line)
        piece -= piece % line;
    return sl_max(piece, 1);
}

uint32_t *sl_host_members(const struct sl_shape *shape, uint32_t *count)
{
    uint32_t *members = malloc(shape->size * sizeof(*members));

    if (members == NULL)
        return NULL;
    *count = 0;
    for (uint32_t i = 0; i < shape->size; i++) {
        if (shape->host == NULL || shape->host[i] == shape->host[shape->rank])
            members[(*count)++] = i;
    }
    return members;
}

void sl_group_all(struct sl_schedule *s, const struct sl_shape *shape)
{
    s->group = malloc(shape->size * sizeof(*s->group));
    if (s->group == NULL) {
        s->error = sl_fail(-ENOMEM, "no memory for a group of %u ranks", shape->size);
        return;
    }
    s->group_count = shape->size;
    for (uint32_t i = 0; i < shape->size; i++)
        s->group[i] = i;
}
