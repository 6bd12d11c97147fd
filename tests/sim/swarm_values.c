/* SPDX-License-Identifier: Apache-2.0 */
/* The plain reference: what each collective must leave, computed element by element. Values are
 * small whole numbers, so that sums and products are exact in every type and in any order. */
#include "tests/sim/swarm.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

size_t swarm_v_count(const struct swarm_part *part, uint32_t from, uint32_t to)
{
    return mix(part->salt * 64 + from * 8191 + to) % (part->call->count + 1);
}

static bool blocks_in(enum sl_coll coll)
{
    return coll == SL_REDUCE_SCATTER || coll == SL_SCATTER || coll == SL_ALL_TO_ALL;
}

static bool blocks_out(enum sl_coll coll)
{
    return coll == SL_ALL_GATHER || coll == SL_GATHER || coll == SL_ALL_TO_ALL;
}

uint64_t swarm_in_count(const struct swarm_part *part)
{
    uint64_t sum = 0;

    if (part->call->coll == SL_BARRIER)
        return 0;
    if (part->call->coll != SL_ALL_TO_ALL_V)
        return part->call->count * (blocks_in(part->call->coll) ? part->size : 1);
    for (uint32_t r = 0; r < part->size; r++)
        sum += swarm_v_count(part, part->rank, r);
    return sum;
}

uint64_t swarm_out_count(const struct swarm_part *part)
{
    uint64_t sum = 0;

    if (part->call->coll == SL_BARRIER)
        return 0;
    if (part->call->coll != SL_ALL_TO_ALL_V)
        return part->call->count * (blocks_out(part->call->coll) ? part->size : 1);
    for (uint32_t r = 0; r < part->size; r++)
        sum += swarm_v_count(part, r, part->rank);
    return sum;
}

int64_t swarm_input(const struct swarm_part *part, uint32_t rank, uint64_t idx)
{
    bool reduces = sl_coll_reduces(part->call->coll);

    /* The same on all ranks, so that the sum divides evenly and fits 8 bits. */
    if (reduces && part->call->op == SLUICE_AVG)
        return (int64_t)(mix(part->salt * 31 + idx) % 8);
    /* At most 2^4. */
    if (reduces && part->call->op == SLUICE_PROD)
        return rank % 4 == 0 && rank < 16 ? (int64_t)(mix(part->salt + idx * 64 + rank) % 2 + 1)
                                          : 1;
    return (int64_t)(mix(part->salt + idx * 64 + rank) % (reduces ? 8 : 100));
}

static int64_t reduced(const struct swarm_part *part, uint64_t idx)
{
    int64_t acc = swarm_input(part, 0, idx);

    for (uint32_t r = 1; r < part->size; r++) {
        int64_t v = swarm_input(part, r, idx);

        switch (part->call->op) {
        case SLUICE_PROD: acc *= v; break;
        case SLUICE_MAX: acc = v > acc ? v : acc; break;
        case SLUICE_MIN: acc = v < acc ? v : acc; break;
        default: acc += v; break;
        }
    }
    return part->call->op == SLUICE_AVG ? acc / part->size : acc;
}

static int64_t expected_v(const struct swarm_part *part, uint64_t idx)
{
    uint32_t from = 0;
    uint64_t at = 0;

    while (idx >= swarm_v_count(part, from, part->rank))
        idx -= swarm_v_count(part, from++, part->rank);
    for (uint32_t r = 0; r < part->rank; r++)
        at += swarm_v_count(part, from, r);
    return swarm_input(part, from, at + idx);
}

bool swarm_expected(const struct swarm_part *part, uint64_t idx, int64_t *value)
{
    const struct swarm_call *c = part->call;
    uint64_t n = c->count;

    switch (c->coll) {
    case SL_ALLREDUCE: *value = reduced(part, idx); return true;
    case SL_REDUCE: *value = reduced(part, idx); return part->rank == c->root;
    case SL_REDUCE_SCATTER: *value = reduced(part, part->rank * n + idx); return true;
    case SL_ALL_GATHER: *value = swarm_input(part, (uint32_t)(idx / n), idx % n); return true;
    case SL_GATHER:
        *value = swarm_input(part, (uint32_t)(idx / n), idx % n);
        return part->rank == c->root;
    case SL_BROADCAST: *value = swarm_input(part, c->root, idx); return true;
    case SL_SCATTER: *value = swarm_input(part, c->root, part->rank * n + idx); return true;
    case SL_ALL_TO_ALL:
        *value = swarm_input(part, (uint32_t)(idx / n), part->rank * n + idx % n);
        return true;
    case SL_ALL_TO_ALL_V: *value = expected_v(part, idx); return true;
    case SL_SEND:
        *value = swarm_input(part, (part->rank + part->size - 1) % part->size, idx);
        return true;
    default: return false;
    }
}

/* Whole numbers up to 2^10 as binary16. */
static uint16_t half_of(int64_t value)
{
    unsigned exp = 0;

    if (value == 0)
        return 0;
    while (value >> (exp + 1) != 0)
        exp++;
    return (uint16_t)((exp + 15) << 10 | ((value << (10 - exp)) & 0x3ff));
}

void swarm_store(void *at, enum sluice_dtype dtype, int64_t value)
{
    float f = (float)value;
    double d = (double)value;
    uint16_t h = half_of(value);
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    switch (dtype) {
    case SLUICE_F16: memcpy(at, &h, sizeof(h)); break;
    case SLUICE_BF16:
        h = (uint16_t)(bits >> 16);
        memcpy(at, &h, sizeof(h));
        break;
    case SLUICE_F32: memcpy(at, &f, sizeof(f)); break;
    case SLUICE_F64: memcpy(at, &d, sizeof(d)); break;
    default: memcpy(at, &value, sluice_dtype_size(dtype)); break; /* little endian */
    }
}
