/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a codec's steps on the thread that asks. */
#include "compress/runner.h"

#include "compress/elements.h"
#include "compress/terms.h"
#include "compress/work.h"
#include "core/err.h"

#include <string.h>

/* Elements between two calls of progress(): some ten microseconds of work. */
#define SPENT_MAX 65536

static const enum sluice_dtype dtypes[SL_CODE_DTYPES] = {SLUICE_F32, SLUICE_BF16, SLUICE_F16};

static uint64_t code_bytes(const struct sl_code *code, uint64_t count)
{
    const struct sl_codec_spec *spec = &sl_container_of(code, struct sl_codec_code, base)->spec;

    return sl_codec_by_id(spec->id)->size(spec, count);
}

static uint64_t code_term_len(const struct sl_code *code, unsigned term, uint32_t ranks,
                              uint64_t count)
{
    const struct sl_codec_code *c = sl_container_of(code, struct sl_codec_code, base);

    return sl_terms_len(&c->spec, c->vote, term, ranks, count);
}

static const struct sl_codec_code *code_of(const struct sl_code_runner *runner,
                                           enum sluice_dtype dtype)
{
    for (unsigned i = 0; i < SL_CODE_DTYPES; i++)
        if (dtypes[i] == dtype)
            return &runner->codes[i];
    return NULL;
}

static bool is_exact(const struct sl_code_runner *runner)
{
    return (runner->codec->flags & SL_CODEC_LOSSLESS) != 0;
}

const struct sl_code *sl_code_runner_code(const struct sl_code_runner *runner,
                                          enum sluice_dtype dtype, bool sums)
{
    const struct sl_codec_code *code = code_of(runner, dtype);

    return code == NULL || (is_exact(runner) && sums && dtype != SLUICE_F32) ? NULL : &code->base;
}

/* The spec of a job whose elements are those of the call, or wide. Encodings are the same for both,
 * but for those that have the elements' own bytes. */
static const struct sl_codec_spec *spec_of(const struct sl_code_runner *runner,
                                           const struct sl_work *work, bool wide)
{
    return &code_of(runner, wide && !is_exact(runner) ? SLUICE_F32 : work->dtype)->spec;
}

/* Such bytes become floats by adding them to nothing. */
static bool adds_to_nothing(const struct sl_code_runner *runner, const struct sl_work *work)
{
    return work->dst_wide && is_exact(runner) && work->dtype != SLUICE_F32;
}

static struct sl_codec_at at_of(const struct sl_work *work)
{
    return (struct sl_codec_at){
        .first = work->tile * SL_TILE, .stream = work->stream, .step = work->turn};
}

/* Adds to the tally what the encoding lacks, tile by tile. */
static void measure(struct sl_code_runner *runner, const struct sl_codec_spec *spec,
                    const struct sl_work *work)
{
    size_t tile = sl_codec_tile(spec), elem = spec->dtype == SLUICE_F32 ? 4 : 2;
    size_t step = runner->codec->size(spec, tile);
    size_t len = runner->codec->size(spec, work->count);
    struct sl_codec_spec floats = *spec;
    double power = 0, error = 0;

    floats.dtype = SLUICE_F32;
    for (uint64_t first = 0; first < work->count; first += tile) {
        size_t n = work->count - first < tile ? work->count - first : tile;
        size_t off = first / tile * step;
        struct sl_codec_at at = at_of(work);
        float sent[SL_TILE_MOST], given[SL_TILE_MOST];

        at.first += first;
        if (runner->codec->decode(&floats, &at, (const char *)work->dst + off,
                                  n == tile ? step : len - off, n, sent) != 0)
            return;
        sl_elements_widen(spec->dtype, (const char *)work->src + first * elem, n, given);
        for (size_t i = 0; i < n; i++) {
            double lacks = (double)given[i] - sent[i];

            power += (double)given[i] * given[i];
            error += lacks * lacks;
        }
    }
    sl_code_tally_add(&runner->tally.power, power);
    sl_code_tally_add(&runner->tally.error, error);
}

static int encode(struct sl_code_runner *runner, const struct sl_work *work, uint64_t *len)
{
    const struct sl_codec_spec *spec = spec_of(runner, work, work->src_wide);
    const struct sl_codec *codec = runner->codec;
    struct sl_codec_at at = at_of(work);
    float *residual = sl_code_state_at(work->state, work->stage, work->tile, work->count);

    if (work->src_wide && is_exact(runner) && work->dtype != SLUICE_F32)
        return sl_fail(-ENOTSUP, "%s has no bytes for sums of %s", codec->name,
                       sluice_dtype_name(work->dtype));
    if (codec->size(spec, work->count) > work->dst_len)
        return sl_fail(-EMSGSIZE, "%zu bytes have no room for %llu elements by %s", work->dst_len,
                       (unsigned long long)work->count, codec->name);
    if (residual != NULL)
        *len = sl_codec_encode_feedback(spec, &at, work->src, residual, work->count, work->dst);
    else
        *len = codec->encode(spec, &at, work->src, work->count, work->dst);
    runner->tally.messages++;
    runner->tally.elements += work->count;
    runner->tally.bytes += *len;
    if (runner->measure && (codec->flags & SL_CODEC_FIXED) != 0)
        measure(runner, spec, work);
    return 0;
}

static int decode(const struct sl_code_runner *runner, const struct sl_work *work)
{
    const struct sl_codec_spec *spec = spec_of(runner, work, work->dst_wide);
    struct sl_codec_at at = at_of(work);

    if (!adds_to_nothing(runner, work))
        return runner->codec->decode(spec, &at, work->src, work->src_len, work->count, work->dst);
    memset(work->dst, 0, work->dst_len);
    return runner->codec->decode_add(spec, &at, work->src, work->src_len, work->count, work->dst);
}

static int decode_reduce(const struct sl_code_runner *runner, const struct sl_work *work)
{
    const struct sl_codec_spec *spec = spec_of(runner, work, true);
    struct sl_codec_at at = at_of(work);
    float factor = work->divisor > 1 ? 1.0f / (float)work->divisor : 1.0f;

    if (work->op != SLUICE_SUM || (!work->dst_wide && work->dtype != SLUICE_F32))
        return sl_fail(-ENOTSUP, "a codec adds to sums in f32 alone");
    return sl_codec_decode_mean(spec, &at, work->src, work->src_len, work->count, factor,
                                work->dst);
}

/* ---- encodings that add ---- */

/* Which term, of elements on work's other side, whose numbers fill the room that there is. */
static int term_of(const struct sl_code_runner *runner, const struct sl_work *work, size_t room,
                   struct sl_terms_at *out)
{
    const struct sl_codec_code *code = code_of(runner, work->dtype);
    const struct sl_code *base = &code->base;

    if (work->term >= base->term_count || (work->term > 0) != (work->before != NULL))
        return sl_fail(-ENOTSUP, "%s has no term %u", runner->codec->name, work->term);
    size_t len = base->term_len(base, work->term, work->ranks, work->count) *
                 sluice_dtype_size((enum sluice_dtype)base->terms[work->term].dtype);

    if (len == 0 || len != room)
        return sl_fail(-EMSGSIZE, "%llu elements of %u ranks have %zu bytes by %s, not %zu",
                       (unsigned long long)work->count, work->ranks, len, runner->codec->name,
                       room);
    *out = (struct sl_terms_at){.spec = &code->spec,
                                .vote = code->vote,
                                .at = at_of(work),
                                .term = work->term,
                                .ranks = work->ranks,
                                .before = work->before};
    return 0;
}

static int encode_term(struct sl_code_runner *runner, const struct sl_work *work, uint64_t *len)
{
    float *residual = sl_code_state_at(work->state, work->stage, work->tile, work->count);
    struct sl_code_tally *tally = &runner->tally;
    double power = 0, error = 0;
    struct sl_terms_at at;
    int err = term_of(runner, work, work->dst_len, &at);

    if (err != 0)
        return err;
    sl_terms_encode(&at, work->dtype, work->src, residual, work->count, work->dst,
                    runner->measure ? &power : NULL, runner->measure ? &error : NULL);
    sl_code_tally_add(&tally->power, power);
    sl_code_tally_add(&tally->error, error);
    *len = work->dst_len;
    tally->messages += work->term == 0;
    tally->elements += work->term == 0 ? work->count : 0;
    tally->bytes += work->dst_len;
    return 0;
}

static int decode_sum(const struct sl_code_runner *runner, const struct sl_work *work)
{
    struct sl_terms_at at;
    int err = term_of(runner, work, work->src_len, &at);

    if (err == 0)
        sl_terms_decode(&at, work->dtype, work->src, work->count,
                        work->divisor > 1 ? 1.0f / (float)work->divisor : 1, work->dst);
    return err;
}

static int copy(const struct sl_work *work)
{
    if (work->src_wide && !work->dst_wide && work->dtype != SLUICE_F32)
        sl_elements_narrow(work->dtype, work->src, work->count, work->dst);
    else if (!work->src_wide && work->dst_wide && work->dtype != SLUICE_F32)
        sl_elements_widen(work->dtype, work->src, work->count, work->dst);
    else
        memmove(work->dst, work->src, work->dst_len);
    return 0;
}

static int perform(struct sl_code_runner *runner, const struct sl_work *work, uint64_t *len)
{
    if (code_of(runner, work->dtype) == NULL)
        return sl_fail(-ENOTSUP, "%s takes no elements of %s", runner->codec->name,
                       sluice_dtype_name(work->dtype));
    switch (work->kind) {
    case SL_WORK_COPY: return copy(work);
    case SL_WORK_ENCODE: return encode(runner, work, len);
    case SL_WORK_DECODE: return decode(runner, work);
    case SL_WORK_DECODE_REDUCE: return decode_reduce(runner, work);
    case SL_WORK_ENCODE_TERM: return encode_term(runner, work, len);
    case SL_WORK_DECODE_SUM: return decode_sum(runner, work);
    default: return sl_fail(-ENOTSUP, "a codec cannot do work %d", (int)work->kind);
    }
}

static int start(struct sl_runner *base, const struct sl_work *work, struct sl_req *req)
{
    struct sl_code_runner *runner = (struct sl_code_runner *)base;
    uint64_t len = 0;

    if (runner->spent >= SPENT_MAX)
        return -EAGAIN;
    runner->spent += work->count;
    int err = perform(runner, work, &len);

    req->len = len;
    req->status = err;
    return err == 0 ? 1 : err;
}

static unsigned progress(struct sl_runner *base, unsigned budget)
{
    ((struct sl_code_runner *)base)->spent = 0;
    return 0;
}

static void cancel(struct sl_runner *base, struct sl_req *req)
{
    sl_assert(false); /* all jobs are done when start() returns */
}

static const struct sl_runner_ops ops = {
    .name = "codec", .start = start, .progress = progress, .cancel = cancel};

void sl_code_runner_init(struct sl_code_runner *runner, const struct sl_codec_spec *spec)
{
    *runner = (struct sl_code_runner){.base.ops = &ops, .codec = sl_codec_by_id(spec->id)};
    uint32_t hash = 2166136261u;
    char text[256];

    sl_codec_print(spec, text, sizeof(text));
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (unsigned i = 0; i < SL_CODE_DTYPES; i++) {
        runner->codes[i].base =
            (struct sl_code){.bytes = code_bytes,
                             .tile = (uint32_t)sl_codec_tile(spec),
                             .up_to = (runner->codec->flags & SL_CODEC_FIXED) == 0,
                             .exact = (runner->codec->flags & SL_CODEC_LOSSLESS) != 0,
                             .sparse = (runner->codec->flags & SL_CODEC_SPARSE) != 0,
                             .mark = sl_code_mark(spec->id, hash ^ hash >> 16),
                             .term_len = code_term_len};
        sl_terms_of(spec, false, &runner->codes[i].base);
        runner->codes[i].spec = *spec;
        runner->codes[i].spec.dtype = (uint8_t)dtypes[i];
        runner->codes[i].base.work = sl_codec_work(spec);
        runner->codes[i].base.usual = sl_codec_usual(&runner->codes[i].spec);
    }
}

int sl_code_runner_vote(struct sl_code_runner *runner)
{
    if (runner->codec->id != SL_CODEC_SIGN)
        return sl_fail(-EINVAL, "vote=on is for codec sign: %s has no signs to count",
                       runner->codec->name);
    for (unsigned i = 0; i < SL_CODE_DTYPES; i++) {
        struct sl_codec_code *code = &runner->codes[i];

        code->vote = true;
        code->base.mark = sl_code_mark(runner->codec->id, code->base.mark * UINT32_C(0x9e3779b1));
        sl_terms_of(&code->spec, true, &code->base);
    }
    return 0;
}
