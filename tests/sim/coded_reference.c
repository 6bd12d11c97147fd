/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed collectives, one tile after the other. */
#include "tests/sim/coded_reference.h"

#include "tests/sim/added_reference.h"

#include "compress/elements.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define ROOM (1 << 16) /* bytes of an encoded tile, at most */

static uint64_t in_count(const struct coded_reference *ref)
{
    bool blocks = ref->coll == SL_REDUCE_SCATTER || ref->coll == SL_ALL_TO_ALL;

    return ref->count * (blocks ? ref->ranks : 1);
}

void coded_reference_init(struct coded_reference *ref)
{
    if (!ref->feedback)
        return;
    ref->residuals = calloc(ref->ranks, sizeof(*ref->residuals));
    ref->owners = calloc(ref->count + SL_TILE_MOST, sizeof(*ref->owners));
    for (uint32_t r = 0; r < ref->ranks; r++)
        ref->residuals[r] = calloc(in_count(ref) + SL_TILE_MOST, sizeof(float));
}

void coded_reference_fini(struct coded_reference *ref)
{
    for (uint32_t r = 0; ref->residuals != NULL && r < ref->ranks; r++)
        free(ref->residuals[r]);
    free(ref->residuals);
    free(ref->owners);
}

static size_t esize(const struct coded_reference *ref)
{
    return ref->spec.dtype == SLUICE_F32 ? 4 : 2;
}

/* n elements of dtype through the codec, to floats, or added to them. residual may be NULL. */
static void through_to(const struct coded_reference *ref, unsigned dtype,
                       const struct sl_codec_at *at, const void *in, size_t n, float *residual,
                       float *out, bool add)
{
    static _Alignas(64) unsigned char wire[ROOM];
    const struct sl_codec *codec = sl_codec_by_id(ref->spec.id);
    struct sl_codec_spec spec = ref->spec;
    uint16_t halves[SL_TILE_MOST];
    size_t len;

    spec.dtype = (uint8_t)dtype;
    sl_assert(n <= SL_TILE_MOST && codec->size(&spec, n) <= ROOM);
    len = residual != NULL ? sl_codec_encode_feedback(&spec, at, in, residual, n, wire)
                           : codec->encode(&spec, at, in, n, wire);
    if ((codec->flags & SL_CODEC_LOSSLESS) != 0 && dtype != SLUICE_F32) {
        sl_assert(codec->decode(&spec, at, wire, len, n, halves) == 0);
        sl_elements_widen(dtype, halves, n, out);
        return;
    }
    spec.dtype = SLUICE_F32;
    sl_assert((add ? codec->decode_add(&spec, at, wire, len, n, out)
                   : codec->decode(&spec, at, wire, len, n, out)) == 0);
}

static void through(const struct coded_reference *ref, unsigned dtype, const struct sl_codec_at *at,
                    const void *in, size_t n, float *residual, float *out)
{
    through_to(ref, dtype, at, in, n, residual, out, false);
}

/* One tile: of element `first` in the rank's in, in tile number `tile` of its stream. */
static void given(const struct coded_reference *ref, uint32_t rank, uint32_t turn, uint64_t tile,
                  const void *in, uint64_t first, size_t n, float *out)
{
    struct sl_codec_at at = {.first = tile * SL_TILE, .stream = rank, .step = turn};
    float *residual =
        ref->feedback && ref->coll != SL_ALL_TO_ALL ? ref->residuals[rank] + first : NULL;

    through(ref, ref->spec.dtype, &at, (const char *)in + first * esize(ref), n, residual, out);
}

static void summed(const struct coded_reference *ref, uint32_t turn, uint64_t tile,
                   const void *const *ins, uint64_t first, size_t n, float *sum)
{
    float part[SL_TILE_MOST], factor = 1.0f / (float)ref->ranks;

    for (uint32_t r = 0; r < ref->ranks; r++) {
        given(ref, r, turn, tile, ins[r], first, n, r == 0 ? sum : part);
        for (size_t i = 0; r > 0 && i < n; i++)
            sum[i] += part[i];
    }
    for (size_t i = 0; ref->op == SLUICE_AVG && i < n; i++)
        sum[i] *= factor;
}

static void put(const struct coded_reference *ref, const float *from, size_t n, void *out,
                uint64_t at)
{
    sl_elements_narrow(ref->spec.dtype, from, n, (char *)out + at * esize(ref));
}

static uint32_t rank_at(const struct coded_reference *ref, uint32_t host, uint32_t local)
{
    return ref->dealt ? local * ref->hosts + host : host * (ref->ranks / ref->hosts) + local;
}

/* Within a host nothing is lost. Each host's sum is encoded by its rank with the owner's place. */
static void summed_by_hosts(const struct coded_reference *ref, uint32_t turn, uint64_t tile,
                            uint32_t place, const void *const *ins, size_t n, float *sum)
{
    uint64_t first = tile * sl_codec_tile(&ref->spec);
    float part[SL_TILE_MOST], coded[SL_TILE_MOST], factor = 1.0f / (float)ref->ranks;

    for (uint32_t host = 0; host < ref->hosts; host++) {
        uint32_t sender = rank_at(ref, host, place / ref->hosts);
        struct sl_codec_at at = {
            .first = tile * SL_TILE, .stream = ref->ranks + sender, .step = turn};
        float *residual = ref->feedback ? ref->residuals[sender] + first : NULL;

        memset(part, 0, sizeof(part));
        for (uint32_t local = 0; local < ref->ranks / ref->hosts; local++) {
            const char *in = ins[rank_at(ref, host, local)];
            float x[SL_TILE_MOST];

            sl_elements_widen(ref->spec.dtype, in + first * esize(ref), n, x);
            for (size_t i = 0; i < n; i++)
                part[i] = local == 0 ? x[i] : part[i] + x[i];
        }
        through(ref, SLUICE_F32, &at, part, n, residual, coded);
        for (size_t i = 0; i < n; i++)
            sum[i] = host == 0 ? coded[i] : sum[i] + coded[i];
    }
    for (size_t i = 0; ref->op == SLUICE_AVG && i < n; i++)
        sum[i] *= factor;
}

/* From the rank behind the owner on, each adds its own elements as they are and encodes the sum. */
static void round_the_ring(const struct coded_reference *ref, uint32_t turn, uint64_t tile,
                           uint32_t owner, const void *const *ins, uint64_t first, size_t n,
                           float *sum)
{
    uint32_t giver = (owner + 1) % ref->ranks;
    const void *from = (const char *)ins[giver] + first * esize(ref);
    float factor = 1.0f / (float)ref->ranks;
    unsigned dtype = ref->spec.dtype;

    for (uint32_t hop = 2; hop <= ref->ranks; hop++) {
        uint32_t r = (owner + hop) % ref->ranks;
        struct sl_codec_at at = {.first = tile * SL_TILE, .stream = giver, .step = turn};
        float *residual = ref->feedback ? ref->residuals[giver] + first : NULL;
        float own[SL_TILE_MOST];

        sl_elements_widen(ref->spec.dtype, (const char *)ins[r] + first * esize(ref), n, own);
        through_to(ref, dtype, &at, from, n, residual, own, true);
        from = memcpy(sum, own, n * sizeof(*sum));
        dtype = SLUICE_F32;
        giver = r;
    }
    for (size_t i = 0; ref->op == SLUICE_AVG && i < n; i++)
        sum[i] *= factor;
}

static bool by_ring(const struct coded_reference *ref)
{
    return ref->recipe != NULL && strcmp(ref->recipe, "ring") == 0;
}

/* Asked for, or of a codec that keeps few elements: for two ranks, and for a tile. */
static bool by_gathering(const struct coded_reference *ref)
{
    bool sparse = (sl_codec_by_id(ref->spec.id)->flags & SL_CODEC_SPARSE) != 0;

    return ref->recipe != NULL
               ? strcmp(ref->recipe, "gather") == 0
               : sparse && (ref->ranks == 2 || ref->count <= sl_codec_tile(&ref->spec));
}

/* An owner has whole tiles. */
static void allreduce(const struct coded_reference *ref, uint32_t turn, const void *const *ins,
                      void *const *outs)
{
    size_t tile = sl_codec_tile(&ref->spec);
    uint64_t tiles = (ref->count + tile - 1) / tile;
    uint64_t shard = ((ref->count + ref->ranks - 1) / ref->ranks + tile - 1) / tile;
    float sum[SL_TILE_MOST], coded[SL_TILE_MOST];

    for (uint64_t t = 0; t < tiles; t++) {
        uint64_t first = t * tile;
        size_t n = ref->count - first < tile ? ref->count - first : tile;
        uint32_t owner = (uint32_t)(t / shard), stream = ref->ranks + owner;

        if (by_ring(ref)) {
            round_the_ring(ref, turn, t, owner, ins, first, n, sum);
            stream = owner;
        } else if (by_gathering(ref)) {
            summed(ref, turn, t, ins, first, n, sum);
            for (uint32_t r = 0; r < ref->ranks; r++)
                put(ref, sum, n, outs[r], first);
            continue;
        } else if (ref->hosts > 1) {
            summed_by_hosts(ref, turn, t, owner, ins, n, sum);
            stream = 2 * ref->ranks + rank_at(ref, owner % ref->hosts, owner / ref->hosts);
        } else {
            summed(ref, turn, t, ins, first, n, sum);
        }
        struct sl_codec_at at = {.first = t * SL_TILE, .stream = stream, .step = turn};

        through(ref, SLUICE_F32, &at, sum, n, ref->feedback ? ref->owners + first : NULL, coded);
        for (uint32_t r = 0; r < ref->ranks; r++)
            put(ref, coded, n, outs[r], first);
    }
}

/* Every other: block `from` of a rank's in to the block `to` of a rank's out. */
static void blocks(const struct coded_reference *ref, uint32_t turn, const void *const *ins,
                   void *const *outs)
{
    size_t tile = sl_codec_tile(&ref->spec);
    uint64_t tiles = (ref->count + tile - 1) / tile;
    bool all = ref->coll == SL_ALL_TO_ALL, sums = ref->coll == SL_REDUCE_SCATTER;
    float coded[SL_TILE_MOST];

    for (uint32_t r = 0; r < ref->ranks; r++) {
        for (uint64_t t = 0; t < ref->ranks * tiles; t++) {
            uint32_t block = (uint32_t)(t / tiles);
            uint64_t off = t % tiles * tile, first = block * ref->count + off;
            size_t n = ref->count - off < tile ? ref->count - off : tile;

            if (sums && r == 0) { /* of all ranks, for the owner of the block */
                if (by_ring(ref))
                    round_the_ring(ref, turn, t, block, ins, first, n, coded);
                else
                    summed(ref, turn, t, ins, first, n, coded);
                put(ref, coded, n, outs[block], off);
            } else if (all && block == r) { /* stays as it is */
                memcpy((char *)outs[r] + first * esize(ref),
                       (const char *)ins[r] + first * esize(ref), n * esize(ref));
            } else if (all) {
                given(ref, r, turn, t, ins[r], first, n, coded);
                put(ref, coded, n, outs[block], r * ref->count + off);
            }
        }
    }
}

/* all_gather: every rank's block; broadcast: the root's. */
static void spread(const struct coded_reference *ref, uint32_t turn, const void *const *ins,
                   void *const *outs)
{
    bool gather = ref->coll == SL_ALL_GATHER;
    size_t tile = sl_codec_tile(&ref->spec);
    float coded[SL_TILE_MOST];

    for (uint32_t r = gather ? 0 : ref->root; r < (gather ? ref->ranks : ref->root + 1); r++) {
        for (uint64_t off = 0; off < ref->count; off += tile) {
            size_t n = ref->count - off < tile ? ref->count - off : tile;

            given(ref, r, turn, off / tile, ins[r], off, n, coded);
            for (uint32_t to = 0; to < ref->ranks; to++)
                put(ref, coded, n, outs[to], off + (gather ? r * ref->count : 0));
        }
    }
}

void coded_reference_run(struct coded_reference *ref, uint32_t turn, const void *const *ins,
                         void *const *outs)
{
    if (added_reference_knows(ref)) {
        added_reference_run(ref, turn, ins, outs);
        return;
    }
    switch (ref->coll) {
    case SL_ALLREDUCE: allreduce(ref, turn, ins, outs); break;
    case SL_ALL_GATHER:
    case SL_BROADCAST: spread(ref, turn, ins, outs); break;
    default: blocks(ref, turn, ins, outs);
    }
}
