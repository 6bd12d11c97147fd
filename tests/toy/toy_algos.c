/* SPDX-License-Identifier: Apache-2.0 */
/* The toy's algorithms. */
#include "tests/toy/toy.h"

#include "core/err.h"
#include "schedules/build.h"

#include <stdlib.h>

enum { WORKS, SENDS, RECVS }; /* channels */

/* How a piece of so many elements lies in the wire buffer. */
struct codec {
    unsigned runner;
    bool open;      /* its length is known at run time only */
    unsigned bytes; /* of an element, at most */
};

static const struct codec variable = {TOY_VARIABLE, true, 5}, fixed = {TOY_FIXED, false, 4};

static struct sl_wire take(struct sl_schedule *s, const struct codec *codec, uint64_t count)
{
    return sl_wire_take(s, count * codec->bytes);
}

struct oneshot {
    struct sl_schedule *s;
    const struct sl_shape *shape;
    const struct codec *codec;
    struct sl_wire mine[64]; /* this rank's shards, by their owner */
    uint32_t encoded[64];
    uint64_t width, len; /* of a shard, and of this rank's own */
};

static uint64_t shard_len(const struct oneshot *o, uint32_t owner)
{
    return sl_part_len(o->shape->count, o->width, owner);
}

/* Every shard of this rank encoded, and sent where it belongs. */
static void give_shards(struct oneshot *o)
{
    for (uint32_t p = 0; p < o->shape->size; p++) {
        uint64_t len = shard_len(o, p);

        if (len == 0)
            continue;
        o->mine[p] = take(o->s, o->codec, len);
        o->encoded[p] = sl_add_encode(o->s, WORKS, o->codec->runner, sl_in(p * o->width),
                                      &o->mine[p], len, o->codec->open, SL_NO_DEP);
        if (p != o->shape->rank)
            sl_add_send_wire(o->s, SENDS, p, &o->mine[p], len, o->encoded[p]);
    }
}

/* What rank r gave, this one's own too, decoded into the sum in TMP. */
static uint32_t add_shard(struct oneshot *o, uint32_t r, const struct sl_wire *wire, uint32_t there,
                          uint32_t before)
{
    bool last = r + 1 == o->shape->size;
    uint32_t step =
        r == 0 ? sl_add_decode(o->s, WORKS, o->codec->runner, wire, sl_tmp(0), o->len, there)
               : sl_add_decode_reduce(o->s, WORKS, o->codec->runner, wire, sl_tmp(0), o->len,
                                      last ? SL_STEP_FINAL : 0, there);

    if (r != 0)
        sl_add_dep(o->s, before);
    return step;
}

static uint32_t sum_shards(struct oneshot *o)
{
    uint32_t sum = SL_NO_DEP;
    struct sl_wire theirs[64];
    uint32_t came[64];

    for (uint32_t r = 0; r < o->shape->size; r++) {
        if (r == o->shape->rank)
            continue;
        theirs[r] = take(o->s, o->codec, o->len);
        came[r] = sl_add_recv_wire(o->s, RECVS, r, &theirs[r], o->len, o->codec->open, SL_NO_DEP);
    }
    for (uint32_t r = 0; r < o->shape->size; r++) {
        bool own = r == o->shape->rank;

        sum = add_shard(o, r, own ? &o->mine[r] : &theirs[r], own ? o->encoded[r] : came[r], sum);
    }
    return sum;
}

/* The sum, encoded once, to all; the owner too has what comes out of the codec. */
static void give_sum(struct oneshot *o, uint32_t sum)
{
    uint32_t rank = o->shape->rank;
    struct sl_wire wire = take(o->s, o->codec, o->len);
    uint32_t encoded =
        sl_add_encode(o->s, WORKS, o->codec->runner, sl_tmp(0), &wire, o->len, o->codec->open, sum);

    for (uint32_t p = 0; p < o->shape->size; p++)
        if (p != rank)
            sl_add_send_wire(o->s, SENDS, p, &wire, o->len, encoded);
    sl_add_decode(o->s, WORKS, o->codec->runner, &wire, sl_out(rank * o->width), o->len, encoded);
}

static void take_sums(struct oneshot *o)
{
    for (uint32_t p = 0; p < o->shape->size; p++) {
        uint64_t len = shard_len(o, p);

        if (p == o->shape->rank || len == 0)
            continue;
        struct sl_wire wire = take(o->s, o->codec, len);
        uint32_t came = sl_add_recv_wire(o->s, RECVS, p, &wire, len, o->codec->open, SL_NO_DEP);

        sl_add_decode(o->s, WORKS, o->codec->runner, &wire, sl_out(p * o->width), len, came);
    }
}

static int build_oneshot(const struct sl_shape *shape, struct sl_schedule *out, const char *name,
                         const struct codec *codec)
{
    struct oneshot o = {.s = out, .shape = shape, .codec = codec};

    sl_schedule_init(out, name);
    if (shape->size > 64 || shape->size < 2)
        return sl_fail(-ENOTSUP, "%s is for 2 to 64 ranks", name);
    o.width = sl_ceil_div(shape->count, shape->size);
    o.len = shard_len(&o, shape->rank);
    out->tmp_count = o.len;
    give_shards(&o);
    if (o.len != 0)
        give_sum(&o, sum_shards(&o));
    take_sums(&o);
    return sl_schedule_finish(out);
}

static int build_variable(const struct sl_shape *shape, struct sl_schedule *out)
{
    return build_oneshot(shape, out, "toy_oneshot", &variable);
}

static int build_fixed(const struct sl_shape *shape, struct sl_schedule *out)
{
    return build_oneshot(shape, out, "toy_oneshot_fixed", &fixed);
}

static int build_ring(const struct sl_shape *shape, struct sl_schedule *out)
{
    uint32_t n = shape->size, next = (shape->rank + 1) % n, before = (shape->rank + n - 1) % n;
    struct sl_wire wire;

    sl_schedule_init(out, "toy_ring");
    if (n < 2)
        return sl_fail(-ENOTSUP, "toy_ring is for more than one rank");
    wire = take(out, &variable, shape->count);
    uint32_t there =
        sl_add_encode(out, WORKS, TOY_VARIABLE, sl_in(0), &wire, shape->count, true, SL_NO_DEP);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t owner = (shape->rank + n - i) % n;

        sl_add_decode(out, WORKS, TOY_VARIABLE, &wire, sl_out(owner * shape->count), shape->count,
                      there);
        if (i + 1 == n)
            break;
        sl_add_send_wire(out, SENDS, next, &wire, shape->count, there);
        wire = take(out, &variable, shape->count);
        there = sl_add_recv_wire(out, RECVS, before, &wire, shape->count, true, SL_NO_DEP);
    }
    return sl_schedule_finish(out);
}

static int build_dma(const struct sl_shape *shape, struct sl_schedule *out)
{
    uint32_t n = shape->size, sum = SL_NO_DEP;
    uint32_t came[64];

    sl_schedule_init(out, "toy_dma");
    if (n < 2 || n > 64 || shape->in_place)
        return sl_fail(-ENOTSUP, "toy_dma is for 2 to 64 ranks and two buffers");
    out->tmp_count = n * shape->count;
    for (uint32_t r = 0; r < n; r++) {
        uint64_t slot = r * shape->count;

        if (r != shape->rank) {
            sl_add_send(out, SENDS, r, sl_in(0), shape->count, SL_NO_DEP);
            came[r] = sl_add_recv(out, RECVS, r, sl_tmp(slot), shape->count, SL_NO_DEP);
            continue;
        }
        came[r] = sl_add_copy(out, WORKS, sl_in(0), sl_tmp(slot), shape->count, SL_NO_DEP);
        sl_by_runner(out, TOY_VARIABLE);
    }
    for (uint32_t r = 0; r < n; r++) {
        uint64_t slot = r * shape->count;

        sum = r == 0 ? sl_add_copy(out, WORKS, sl_tmp(slot), sl_out(0), shape->count, came[r])
                     : sl_add_reduce(out, WORKS, sl_tmp(slot), sl_out(0), shape->count,
                                     r + 1 == n ? SL_STEP_FINAL : 0, sum);
        sl_by_runner(out, TOY_VARIABLE);
        if (r != 0)
            sl_add_dep(out, came[r]);
    }
    return sl_schedule_finish(out);
}

static double cost(const struct sl_shape *shape, const struct sl_costs *costs)
{
    (void)shape;
    (void)costs;
    return -1;
}

const struct sl_algo toy_oneshot = {.name = "toy_oneshot",
                                    .colls = SL_BIT(SL_ALLREDUCE),
                                    .source = "",
                                    .build = build_variable,
                                    .cost = cost};
const struct sl_algo toy_oneshot_fixed = {.name = "toy_oneshot_fixed",
                                          .colls = SL_BIT(SL_ALLREDUCE),
                                          .source = "",
                                          .build = build_fixed,
                                          .cost = cost};
const struct sl_algo toy_ring = {.name = "toy_ring",
                                 .colls = SL_BIT(SL_ALL_GATHER),
                                 .source = "",
                                 .build = build_ring,
                                 .cost = cost};
const struct sl_algo toy_dma = {.name = "toy_dma",
                                .colls = SL_BIT(SL_ALLREDUCE),
                                .source = "",
                                .build = build_dma,
                                .cost = cost};

struct sl_recipe toy_recipe(const struct sl_algo *algo, struct sl_runner *runners[2],
                            struct toy *first, struct toy *second)
{
    runners[0] = &first->base;
    runners[1] = &second->base;
    return (struct sl_recipe){.algo = algo, .runners = runners, .runner_count = 2};
}
