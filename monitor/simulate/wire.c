/* SPDX-License-Identifier: Apache-2.0 */
/* The wires of a played job. */
#include "monitor/simulate/wire.h"
#include "core/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NIC 50e9        /* bytes a second: 400 Gbit/s */
#define INSIDE 300e9    /* within a host */
#define LATENCY 5e-6    /* of a message */
#define CHUNKS_MOST 256 /* messages of a collective by one edge that are told of */
#define ALL 65536u

bool sl_play_wire_is_inside(const struct sl_play_plan *plan, uint32_t a, uint32_t b)
{
    return sl_play_host(plan, a) == sl_play_host(plan, b);
}

bool sl_play_wire_is_hit(const struct sl_play_plan *plan, uint32_t src, uint32_t dst)
{
    const struct sl_play_fault *fault = &plan->fault;

    if (sl_play_wire_is_inside(plan, src, dst))
        return false;
    switch (fault->cls) {
    case SL_VERDICT_SLOW_SENDER: return src == fault->rank;
    case SL_VERDICT_SLOW_RECEIVER: return dst == fault->rank;
    case SL_VERDICT_SLOW_LINK: return src == fault->rank && dst == fault->peer;
    case SL_VERDICT_SLOW_GROUP:
        return sl_play_passes(plan, src, dst, (enum sl_play_group)fault->group, fault->rank);
    default: return false;
    }
}

/* What lasts. */
static double factor_of(const struct sl_play_plan *plan, uint32_t src, uint32_t dst)
{
    return sl_play_wire_is_hit(plan, src, dst) ? plan->fault.strength : 1;
}

static int add(struct sl_play_wire *wire, uint32_t *count, uint32_t *cap, uint32_t comm,
               uint32_t src, uint32_t dst, double share, uint32_t messages)
{
    if (*count == *cap) {
        uint32_t more = *cap + *cap / 2 + 256;
        struct sl_play_edge *edges = reallocarray(wire->edges, more, sizeof(*edges));

        if (edges == NULL)
            return sl_fail(-ENOMEM, "no memory for the wires of a job");
        wire->edges = edges;
        *cap = more;
    }
    wire->edges[(*count)++] =
        (struct sl_play_edge){.src = src,
                              .dst = dst,
                              .comm = comm,
                              .share = (uint32_t)(share * ALL),
                              .messages = messages < CHUNKS_MOST ? messages : CHUNKS_MOST,
                              .factor = factor_of(wire->plan, src, dst)};
    return 0;
}

/* The k-th ring takes every stride-th member, so that neighbours differ; the stride has no divisor
 * in common with the number of members. */
static uint32_t stride_of(uint32_t count, uint32_t k)
{
    for (uint32_t stride = 1;; stride++) {
        uint32_t a = count, b = stride;

        while (b != 0) {
            uint32_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1 && k-- == 0)
            return stride % count;
        if (stride > count)
            return 1;
    }
}

static int add_comm(struct sl_play_wire *wire, uint32_t comm, uint32_t *count, uint32_t *cap)
{
    const struct sl_play_plan *plan = wire->plan;
    enum sl_play_comm_kind kind = sl_play_comm_kind(plan, comm);
    uint32_t first, step, members = sl_play_members(plan, comm, &first, &step);
    uint8_t algorithm = kind == SL_PLAY_REPLICA  ? plan->algorithm
                        : kind == SL_PLAY_EXPERT ? SL_PLAY_ALLTOALL
                                                 : SL_PLAY_RING;
    uint32_t channels = kind == SL_PLAY_REPLICA ? plan->channels : 1;
    int err = 0;

    if (kind == SL_PLAY_WORLD) /* eight bytes: no edge of it tells anything */
        return 0;
    if (kind == SL_PLAY_PIPELINE) {
        for (uint32_t i = 0; i + 1 < members && err == 0; i++) {
            uint32_t src = first + i * step, dst = src + step;

            err = add(wire, count, cap, comm, src, dst, 1, 1);
            if (err == 0)
                err = add(wire, count, cap, comm, dst, src, 1, 1);
        }
        return err;
    }
    for (uint32_t i = 0; i < members && err == 0; i++) {
        uint32_t src = first + i * step;

        switch (algorithm) {
        case SL_PLAY_RING:
            for (uint32_t k = 0; k < channels && err == 0; k++) {
                uint32_t dst = first + (i + stride_of(members, k)) % members * step;

                err = add(wire, count, cap, comm, src, dst,
                          (double)(members - 1) / members / channels, members - 1);
            }
            break;
        case SL_PLAY_TREE:
            if (i == 0)
                break;
            err = add(wire, count, cap, comm, src, first + (i - 1) / 2 * step, 1, 8);
            if (err == 0)
                err = add(wire, count, cap, comm, first + (i - 1) / 2 * step, src, 1, 8);
            break;
        default:
            for (uint32_t k = 0; k < members && err == 0; k++)
                if (k != i)
                    err = add(wire, count, cap, comm, src, first + k * step, 1.0 / members, 1);
        }
    }
    return err;
}

int sl_play_wire_init(struct sl_play_wire *wire, const struct sl_play_plan *plan)
{
    uint32_t comms = sl_play_comms(plan), count = 0, cap = 0;
    int err = 0;

    *wire = (struct sl_play_wire){.plan = plan};
    sl_rng_init(&wire->rng, plan->seed ^ UINT64_C(0x77697265));
    wire->first = calloc(comms + 1, sizeof(*wire->first));
    if (wire->first == NULL)
        return sl_fail(-ENOMEM, "no memory for the wires of a job");
    for (uint32_t comm = 0; comm < comms && err == 0; comm++) {
        err = add_comm(wire, comm, &count, &cap);
        wire->first[comm + 1] = count;
    }
    if (err != 0)
        sl_play_wire_fini(wire);
    return err;
}

void sl_play_wire_fini(struct sl_play_wire *wire)
{
    free(wire->edges);
    free(wire->first);
    *wire = (struct sl_play_wire){.plan = NULL};
}

/* ---- time ---- */

/* Near enough to a normal deviate for what it is for, and bounded: the sum of four. */
static double deviate(struct sl_rng *rng)
{
    uint64_t bits = sl_rng_u64(rng);
    double sum = 0;

    for (unsigned i = 0; i < 4; i++)
        sum += (double)(bits >> (16 * i) & 0xffff);
    return (sum / 65536.0 - 2) * 1.7320508;
}

static double pass(struct sl_play_wire *wire, struct sl_play_edge *edge, double bytes,
                   uint32_t messages)
{
    double speed = sl_play_wire_is_inside(wire->plan, edge->src, edge->dst) ? INSIDE : NIC;
    double spread = wire->plan->jitter / sqrt(messages);
    double seconds =
        (bytes / speed + messages * LATENCY) * edge->factor * exp(spread * deviate(&wire->rng));

    edge->count += messages;
    edge->bytes += (uint64_t)bytes;
    edge->wire_s += seconds;
    return seconds;
}

double sl_play_wire_collective(struct sl_play_wire *wire, uint32_t comm, uint64_t bytes)
{
    uint32_t from = wire->first[comm], to = wire->first[comm + 1];
    double slowest = LATENCY;

    for (uint32_t i = from; i < to; i++) {
        struct sl_play_edge *edge = &wire->edges[i];
        double seconds = pass(wire, edge, (double)bytes * edge->share / ALL, edge->messages);

        edge->data_s -= seconds;
        slowest = fmax(slowest, seconds);
    }
    for (uint32_t i = from; i < to; i++) /* its receiver waited while the slowest was at it */
        wire->edges[i].data_s += slowest;
    return slowest;
}

static struct sl_play_edge *edge_of(struct sl_play_wire *wire, uint32_t comm, uint32_t src,
                                    uint32_t dst)
{
    for (uint32_t i = wire->first[comm]; i < wire->first[comm + 1]; i++)
        if (wire->edges[i].src == src && wire->edges[i].dst == dst)
            return &wire->edges[i];
    return NULL;
}

double sl_play_wire_message(struct sl_play_wire *wire, uint32_t comm, uint32_t src, uint32_t dst,
                            uint64_t bytes)
{
    struct sl_play_edge *edge = edge_of(wire, comm, src, dst);

    return edge != NULL ? pass(wire, edge, (double)bytes, 1) : LATENCY;
}

struct sl_play_edge *sl_play_wire_stuck(const struct sl_play_wire *wire, uint32_t comm,
                                        uint32_t src)
{
    struct sl_play_edge *stuck = NULL;

    for (uint32_t i = wire->first[comm]; i < wire->first[comm + 1]; i++) {
        struct sl_play_edge *edge = &wire->edges[i];

        if (edge->src == src &&
            (stuck == NULL || (sl_play_wire_is_inside(wire->plan, src, stuck->dst) &&
                               !sl_play_wire_is_inside(wire->plan, src, edge->dst))))
            stuck = edge;
    }
    return stuck;
}

void sl_play_wire_stick(struct sl_play_wire *wire, uint32_t comm, uint32_t src, double seconds)
{
    const struct sl_play_edge *stuck = sl_play_wire_stuck(wire, comm, src);

    for (uint32_t i = wire->first[comm]; i < wire->first[comm + 1]; i++) {
        if (&wire->edges[i] == stuck)
            wire->edges[i].wire_s += seconds;
        else
            wire->edges[i].data_s += seconds;
    }
}
