/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels do the work of a codec's step. */
#include "compress/cuda/gpu_work.h"

#include "compress/cuda/gpu.h"
#include "compress/cuda/gpu_sums.h"
#include "core/err.h"
#include "gdr/cuda_dl.h"

static int no_such_codec(const struct sl_codec *codec, const char *with)
{
    char names[256] = "";

    for (size_t i = 0; sl_codec_row(i) != NULL; i++)
        if (sl_gpu_codecs_have(sl_codec_row(i)->id) &&
            (sl_codec_row(i)->flags & SL_CODEC_FIXED) != 0)
            sl_text_add(names, sizeof(names), "%s%s", names[0] != '\0' ? ", " : "",
                        sl_codec_row(i)->name);
    if (names[0] == '\0')
        return sl_fail(-ENOTSUP, "this build has no kernels for GPUs: build with nvcc, or pass "
                                 "host memory");
    return sl_fail(-ENOTSUP, "%s%s does not work on GPU memory: these do: %s", codec->name, with,
                   names);
}

int sl_gpu_work_init(struct sl_gpu_work *gpu, const struct sl_cuda *cuda,
                     const struct sl_code_runner *plain)
{
    const struct sl_codec *codec = plain->codec;
    int err;

    *gpu = (struct sl_gpu_work){.cuda = cuda, .plain = plain};
    if ((codec->flags & SL_CODEC_FIXED) == 0 || !sl_gpu_codecs_have(codec->id))
        return no_such_codec(codec, "");
    if ((plain->codes[0].spec.flags & SL_SPEC_ROTATED) != 0)
        return no_such_codec(codec, " with rotated=on");
    if (plain->codes[0].vote)
        return no_such_codec(codec, " with vote=on");
    if (plain->measure)
        return no_such_codec(codec, " with measure=on");
    err = sl_gpu_codecs_create(&gpu->codecs);
    err = err ?: sl_gpu_codecs_load(gpu->codecs, codec->id);
    err = err ?: sl_gpu_sums_create(&gpu->sums);
    if (err != 0)
        sl_gpu_work_fini(gpu);
    return err;
}

void sl_gpu_work_fini(struct sl_gpu_work *gpu)
{
    sl_gpu_sums_destroy(gpu->sums);
    sl_gpu_codecs_destroy(gpu->codecs);
    *gpu = (struct sl_gpu_work){0};
}

static const struct sl_codec_spec *spec_of(const struct sl_gpu_work *gpu, enum sluice_dtype dtype)
{
    const struct sl_code *code = sl_code_runner_code(gpu->plain, dtype, false);

    return code != NULL ? &sl_container_of(code, struct sl_codec_code, base)->spec : NULL;
}

/* Of encodings of sums, as of elements. */
static const struct sl_codec_spec *side(const struct sl_gpu_work *gpu, const struct sl_work *work,
                                        bool wide)
{
    return spec_of(gpu, wide ? SLUICE_F32 : work->dtype);
}

static int check_message(const struct sl_gpu_work *gpu, const struct sl_work *work)
{
    size_t size = gpu->plain->codec->size(spec_of(gpu, work->dtype), work->count);

    return work->src_len == size
               ? 0
               : sl_fail(-EBADMSG, "a %s message of %llu elements has %zu bytes, not %zu",
                         gpu->plain->codec->name, (unsigned long long)work->count, size,
                         work->src_len);
}

static int check_encode(const struct sl_gpu_work *gpu, const struct sl_work *work, uint64_t *len)
{
    const struct sl_codec *codec = gpu->plain->codec;

    *len = codec->size(side(gpu, work, work->src_wide), work->count);
    if (*len <= work->dst_len)
        return 0;
    return sl_fail(-EMSGSIZE, "%zu bytes have no room for %llu elements by %s", work->dst_len,
                   (unsigned long long)work->count, codec->name);
}

static int check_sum(const struct sl_gpu_work *gpu, const struct sl_work *work)
{
    if (work->op != SLUICE_SUM || (!work->dst_wide && work->dtype != SLUICE_F32))
        return sl_fail(-ENOTSUP, "a codec adds to sums in f32 alone");
    return check_message(gpu, work);
}

static int check_copy(const struct sl_work *work)
{
    if (!work->src_wide && work->dst_wide && work->dtype != SLUICE_F32)
        return sl_fail(-ENOTSUP, "no kernel makes sums in f32 of elements of %s",
                       sluice_dtype_name(work->dtype));
    return 0;
}

int sl_gpu_work_check(const struct sl_gpu_work *gpu, const struct sl_work *work, uint64_t *len)
{
    *len = 0;
    if (spec_of(gpu, work->dtype) == NULL)
        return sl_fail(-ENOTSUP, "%s takes no elements of %s", gpu->plain->codec->name,
                       sluice_dtype_name(work->dtype));
    switch (work->kind) {
    case SL_WORK_COPY: return check_copy(work);
    case SL_WORK_ENCODE: return check_encode(gpu, work, len);
    case SL_WORK_DECODE: return check_message(gpu, work);
    case SL_WORK_DECODE_REDUCE: return check_sum(gpu, work);
    default: return sl_fail(-ENOTSUP, "a codec cannot do work %d", (int)work->kind);
    }
}

static int encode(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream)
{
    const struct sl_codec_at at = {
        .first = work->tile * SL_TILE, .stream = work->stream, .step = work->turn};
    float *residual = sl_code_state_at(work->state, work->stage, work->tile, work->count);

    if (residual != NULL)
        return sl_gpu_encode_feedback(gpu->codecs, side(gpu, work, work->src_wide), &at, work->src,
                                      residual, work->count, work->dst, stream);
    return sl_gpu_encode(gpu->codecs, side(gpu, work, work->src_wide), &at, work->src, work->count,
                         work->dst, stream);
}

static int decode(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream)
{
    return sl_gpu_decode(gpu->codecs, side(gpu, work, work->dst_wide), work->src, work->src_len,
                         work->count, work->dst, stream);
}

static int decode_reduce(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream)
{
    int err = sl_gpu_decode_add(gpu->codecs, spec_of(gpu, SLUICE_F32), work->src, work->src_len,
                                work->count, work->dst, stream);

    if (err == 0 && work->divisor > 1)
        err = sl_gpu_sums_scale(gpu->sums, work->dst, work->count, 1.0f / (float)work->divisor,
                                stream);
    return err;
}

static int copy(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream)
{
    if (work->src_wide && !work->dst_wide && work->dtype != SLUICE_F32)
        return sl_gpu_sums_narrow(gpu->sums, work->dtype, work->src, work->count, work->dst,
                                  stream);
    int result = gpu->cuda->cuMemcpyDtoDAsync_v2((uintptr_t)work->dst, (uintptr_t)work->src,
                                                 work->dst_len, stream);

    return result == SL_CUDA_SUCCESS ? 0
                                     : sl_cuda_fail(gpu->cuda, -EIO, "cuMemcpyDtoDAsync", result);
}

int sl_gpu_work_launch(const struct sl_gpu_work *gpu, const struct sl_work *work, void *stream)
{
    switch (work->kind) {
    case SL_WORK_COPY: return copy(gpu, work, stream);
    case SL_WORK_ENCODE: return encode(gpu, work, stream);
    case SL_WORK_DECODE: return decode(gpu, work, stream);
    default: return decode_reduce(gpu, work, stream);
    }
}
