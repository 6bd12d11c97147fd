/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce by encodings that add: each rank's elements through the codec once, and the sum of what
 * they became decoded once. */
#include "tests/sim/added_reference.h"

#include "compress/elements.h"
#include "compress/shiq.h"
#include "core/err.h"

#include <math.h>
#include <string.h>

#define ROOM (1 << 16) /* bytes of an encoded tile, at most */

/* A tile of all ranks: its elements, and what the ranks have of it. */
struct tile {
    const struct coded_reference *ref;
    struct sl_codec_spec spec; /* of floats */
    struct sl_codec_at at;
    const void *const *ins;
    size_t n;
};

static size_t esize(const struct coded_reference *ref)
{
    return ref->spec.dtype == SLUICE_F32 ? 4 : 2;
}

/* What a rank encodes. */
static void operand(const struct tile *t, uint32_t rank, float *x)
{
    const float *residual = t->ref->feedback ? t->ref->residuals[rank] + t->at.first : NULL;

    sl_elements_widen(t->ref->spec.dtype, (const char *)t->ins[rank] + t->at.first * esize(t->ref),
                      t->n, x);
    for (size_t i = 0; residual != NULL && i < t->n; i++)
        x[i] += residual[i];
}

static void keep(const struct tile *t, uint32_t rank, const float *x, const float *sent)
{
    for (size_t i = 0; t->ref->feedback && i < t->n; i++) {
        float lacks = x[i] - sent[i];

        t->ref->residuals[rank][t->at.first + i] = isfinite(lacks) ? lacks : 0;
    }
}

/* Scales are the largest of all ranks, and codes are added as whole numbers. */
static void scaled(const struct tile *t, float *sum)
{
    struct sl_codec_spec spec = t->spec;
    uint32_t scales[SL_TILE / SL_SHIQ_BLOCK] = {0}, own[SL_TILE / SL_SHIQ_BLOCK];
    int32_t codes[SL_TILE] = {0};
    float x[SL_TILE], sent[SL_TILE];
    int16_t wide[SL_TILE];
    int8_t narrow[SL_TILE];

    spec.ranks = spec.ranks > t->ref->ranks ? spec.ranks : t->ref->ranks;
    for (uint32_t r = 0; r < t->ref->ranks; r++) {
        operand(t, r, x);
        sl_shiq_scales(&spec, x, t->n, own);
        for (size_t b = 0; b < sl_shiq_scale_count(t->n); b++)
            scales[b] = own[b] > scales[b] ? own[b] : scales[b];
    }
    for (uint32_t r = 0; r < t->ref->ranks; r++) {
        struct sl_codec_at at = {.first = t->at.first, .stream = r, .step = t->at.step};

        operand(t, r, x);
        sl_shiq_quantise(&spec, &at, x, t->n, scales,
                         spec.bits == 16 ? (void *)wide : (void *)narrow);
        for (size_t i = 0; i < t->n; i++) {
            /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): written above */
            int code = spec.bits == 16 ? wide[i] : narrow[i];

            codes[i] += code;
            sent[i] = (float)code * sl_f32_of(scales[i / SL_SHIQ_BLOCK]);
        }
        keep(t, r, x, sent);
    }
    for (size_t i = 0; i < t->n; i++)
        sum[i] = (float)codes[i] * sl_f32_of(scales[i / SL_SHIQ_BLOCK]);
}

/* Messages of floats, made alike by all ranks. Exact, so that the order does not count. */
static void floats(const struct tile *t, float *sum)
{
    static _Alignas(64) float all[ROOM / 4], own[ROOM / 4];
    const struct sl_codec *codec = sl_codec_by_id(t->spec.id);
    size_t len = codec->size(&t->spec, t->n);
    float x[SL_TILE], sent[SL_TILE];

    sl_assert(len <= ROOM);
    memset(all, 0, len);
    for (uint32_t r = 0; r < t->ref->ranks; r++) {
        operand(t, r, x);
        codec->encode(&t->spec, &t->at, x, t->n, own);
        for (size_t i = 0; i < len / sizeof(float); i++)
            all[i] += own[i];
        sl_assert(codec->decode(&t->spec, &t->at, own, len, t->n, sent) == 0);
        keep(t, r, x, sent);
    }
    sl_assert(codec->decode(&t->spec, &t->at, all, len, t->n, sum) == 0);
}

bool added_reference_knows(const struct coded_reference *ref)
{
    return ref->coll == SL_ALLREDUCE && ref->recipe == NULL &&
           (sl_codec_by_id(ref->spec.id)->flags & SL_CODEC_LINEAR) != 0;
}

void added_reference_run(const struct coded_reference *ref, uint32_t turn, const void *const *ins,
                         void *const *outs)
{
    float sum[SL_TILE], factor = ref->op == SLUICE_AVG ? 1.0f / (float)ref->ranks : 1;

    for (uint64_t first = 0; first < ref->count; first += SL_TILE) {
        struct tile t = {.ref = ref, .spec = ref->spec, .ins = ins};

        t.spec.dtype = SLUICE_F32;
        t.at = (struct sl_codec_at){.first = first, .step = turn};
        t.n = ref->count - first < SL_TILE ? ref->count - first : SL_TILE;
        if (ref->spec.id == SL_CODEC_SHIQ)
            scaled(&t, sum);
        else
            floats(&t, sum);
        for (size_t i = 0; factor != 1 && i < t.n; i++)
            sum[i] *= factor;
        for (uint32_t r = 0; r < ref->ranks; r++)
            sl_elements_narrow(ref->spec.dtype, sum, t.n, (char *)outs[r] + first * esize(ref));
    }
}
