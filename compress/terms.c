/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings that add, tile by tile: what is the same for all codecs. */
#include "compress/elements.h"
#include "compress/kernels.h"
#include "compress/terms_codecs.h"

static const struct sl_terms *terms_of(const struct sl_codec_spec *spec, bool vote)
{
    switch (spec->id) {
    case SL_CODEC_RANDK:
    case SL_CODEC_SKETCH: return &sl_terms_floats;
    case SL_CODEC_SHIQ: return &sl_terms_shiq;
    case SL_CODEC_SIGN: return vote ? &sl_terms_vote : NULL;
    default: return NULL;
    }
}

void sl_terms_of(const struct sl_codec_spec *spec, bool vote, struct sl_code *code)
{
    const struct sl_terms *terms = terms_of(spec, vote);

    code->term_count = terms != NULL ? terms->count : 0;
    if (terms != NULL)
        terms->types(spec, code->terms);
}

uint64_t sl_terms_len(const struct sl_codec_spec *spec, bool vote, unsigned term, uint32_t ranks,
                      uint64_t count)
{
    const struct sl_terms *terms = terms_of(spec, vote);
    uint64_t rest = count % SL_TILE;

    if (terms->ranks_most != NULL && ranks > terms->ranks_most(spec))
        return 0;
    return count / SL_TILE * terms->len(spec, term, ranks, SL_TILE) +
           (rest > 0 ? terms->len(spec, term, ranks, rest) : 0);
}

/* Bytes of the numbers of a whole tile. */
static size_t bytes_of(const struct sl_terms_at *at, unsigned term)
{
    const struct sl_terms *terms = terms_of(at->spec, at->vote);
    struct sl_code_term types[SL_CODE_TERMS_MAX];

    terms->types(at->spec, types);
    return terms->len(at->spec, term, at->ranks, SL_TILE) *
           sluice_dtype_size((enum sluice_dtype)types[term].dtype);
}

/* Goes over a message's tiles: of which elements, and where their numbers are. */
struct walk {
    const struct sl_terms *terms;
    struct sl_terms_at at; /* of this tile */
    size_t first, count, whole;
    size_t step, step_before; /* bytes of numbers, from tile to tile */
    size_t off;               /* of this tile's */
};

static struct walk begin(const struct sl_terms_at *at, size_t count)
{
    struct walk w = {.terms = terms_of(at->spec, at->vote), .at = *at, .whole = count};

    w.count = count < SL_TILE ? count : SL_TILE;
    w.step = bytes_of(at, at->term);
    if (at->term > 0)
        w.step_before = bytes_of(at, at->term - 1);
    return w;
}

static void next(struct walk *w)
{
    w->first += SL_TILE;
    w->count = w->whole - w->first < SL_TILE ? w->whole - w->first : SL_TILE;
    w->at.at.first += SL_TILE;
    w->off += w->step;
    if (w->at.before != NULL)
        w->at.before = (const char *)w->at.before + w->step_before;
}

static size_t bytes_before(unsigned dtype, size_t elements)
{
    return elements * (dtype == SLUICE_F32 ? 4 : 2);
}

/* What a tile's own numbers, out, lack of x. */
static void look_back(const struct walk *w, const float *x, const void *out, float *residual,
                      double *power, double *error)
{
    float sent[SL_TILE];

    w->terms->decode(&w->at, out, 1, w->count, sent);
    for (size_t i = 0; error != NULL && i < w->count; i++) {
        double lacks = (double)x[i] - sent[i];

        *power += (double)x[i] * x[i];
        *error += lacks * lacks;
    }
    if (residual != NULL)
        sl_codec_kernels()->feedback_rest(x, sent, w->count, residual + w->first);
}

void sl_terms_encode(const struct sl_terms_at *at, unsigned dtype, const void *in, float *residual,
                     size_t count, void *out, double *power, double *error)
{
    struct walk w = begin(at, count);
    bool last = at->term + 1 == w.terms->count;
    float sum[SL_TILE];

    for (; w.first < count; next(&w)) {
        const float *x = sl_elements_floats(dtype, (const char *)in + bytes_before(dtype, w.first),
                                            w.count, sum);

        if (residual != NULL) {
            sl_codec_kernels()->feedback_sum(x, residual + w.first, w.count, sum);
            x = sum;
        }
        w.terms->encode(&w.at, x, w.count, (char *)out + w.off);
        if (last && (residual != NULL || error != NULL))
            look_back(&w, x, (char *)out + w.off, residual, power, error);
    }
}

void sl_terms_decode(const struct sl_terms_at *at, unsigned dtype, const void *in, size_t count,
                     float factor, void *out)
{
    bool in_place = dtype == SLUICE_F32 && (uintptr_t)out % sizeof(float) == 0;
    struct walk w = begin(at, count);
    float scratch[SL_TILE];

    for (; w.first < count; next(&w)) {
        float *sum = in_place ? (float *)out + w.first : scratch;

        w.terms->decode(&w.at, (const char *)in + w.off, at->ranks, w.count, sum);
        for (size_t i = 0; factor != 1 && i < w.count; i++)
            sum[i] *= factor;
        if (!in_place)
            sl_elements_narrow(dtype, sum, w.count, (char *)out + bytes_before(dtype, w.first));
    }
}
