/* SPDX-License-Identifier: Apache-2.0 */
/* Means of encodings, shard by shard, with residuals on one side or on both. */
#include "compress/train/feedback.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

static size_t shard_of(size_t count, uint32_t ranks)
{
    size_t tiles = count / SL_TILE + (count % SL_TILE != 0);

    return (tiles + ranks - 1) / ranks * SL_TILE;
}

/* Elements of a rank's shard. */
static size_t shard_count(const struct sl_feedback *f, uint32_t rank)
{
    size_t first = rank * f->shard, count = f->config.count;

    if (first >= count)
        return 0;
    return count - first < f->shard ? count - first : f->shard;
}

static void lay(struct sl_feedback *f, const struct sl_feedback_config *config,
                const struct sl_net *net, struct sl_room *room)
{
    *f = (struct sl_feedback){.config = *config, .net = net};
    f->shard = shard_of(config->count, net->ranks);
    f->up_len = sl_codec_by_id(config->up.id)->size(&config->up, f->shard);
    f->down_len = sl_codec_by_id(config->down.id)->size(&config->down, f->shard);
    if (config->sides >= SL_FEEDBACK_ONE_SIDED)
        f->residual = sl_room_floats(room, config->count);
    if (config->sides == SL_FEEDBACK_TWO_SIDED)
        f->owner = sl_room_floats(room, f->shard);
    f->sum = sl_room_floats(room, f->shard);
    f->out = sl_room_take(room, f->up_len * net->ranks);
    f->in = sl_room_take(room, f->up_len * net->ranks);
    f->own = sl_room_take(room, f->down_len);
    f->all = sl_room_take(room, f->down_len * net->ranks);
}

static int check(const struct sl_codec_spec *spec)
{
    int err = sl_codec_check(spec);

    if (err == 0 &&
        ((sl_codec_by_id(spec->id)->flags & SL_CODEC_FIXED) == 0 || spec->dtype != SLUICE_F32))
        err = sl_fail(-EINVAL, "codec %s has no shards of f32 whose sizes are known before",
                      sl_codec_by_id(spec->id)->name);
    return err;
}

int sl_feedback_size(const struct sl_feedback_config *config, const struct sl_net *net,
                     size_t *size)
{
    struct sl_room room = {0};
    struct sl_feedback f;
    int err = check(&config->up);

    if (err == 0)
        err = check(&config->down);
    if (err != 0)
        return err;
    lay(&f, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_feedback_init(struct sl_feedback *f, const struct sl_feedback_config *config,
                      const struct sl_net *net, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(f, config, net, &room);
    memset(memory, 0, room.used);
}

static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                     const float *in, float *residual, size_t count, void *out)
{
    if (residual == NULL)
        return sl_codec_by_id(spec->id)->encode(spec, at, in, count, out);
    return sl_codec_encode_feedback(spec, at, in, residual, count, out);
}

/* f->sum = the mean of this rank's shard of all ranks' encodings, in f->in. */
static int reduce(struct sl_feedback *f)
{
    const struct sl_codec *codec = sl_codec_by_id(f->config.up.id);
    size_t n = shard_count(f, f->net->rank), len = codec->size(&f->config.up, n);
    int err = 0;

    for (uint32_t w = 0; err == 0 && w < f->net->ranks; w++) {
        struct sl_codec_at at = sl_train_at(&f->config.up, w, f->step, f->net->rank * f->shard);
        const char *message = f->in + w * f->up_len;

        if (w == 0)
            err = codec->decode(&f->config.up, &at, message, len, n, f->sum);
        else
            err = codec->decode_add(&f->config.up, &at, message, len, n, f->sum);
    }
    if (err == 0)
        sl_scale(f->sum, 1 / (float)f->net->ranks, n);
    return err;
}

static int spread(struct sl_feedback *f, float *out)
{
    const struct sl_codec_spec *spec = &f->config.down;
    size_t n = shard_count(f, f->net->rank);
    /* Other numbers than those of the first encoding, where ranks need not draw alike. */
    struct sl_codec_at at =
        sl_train_at(spec, f->net->rank + f->net->ranks, f->step, f->net->rank * f->shard);
    int err;

    encode(spec, &at, f->sum, f->owner, n, f->own);
    err = f->net->gather(f->net->arg, f->own, f->down_len, f->all);
    for (uint32_t w = 0; err == 0 && w < f->net->ranks; w++) {
        n = shard_count(f, w);
        at = sl_train_at(spec, w + f->net->ranks, f->step, w * f->shard);
        if (n > 0)
            err = sl_codec_by_id(spec->id)->decode(spec, &at, f->all + w * f->down_len,
                                                   sl_codec_by_id(spec->id)->size(spec, n), n,
                                                   out + w * f->shard);
    }
    return err;
}

int sl_feedback_mean(struct sl_feedback *f, const float *in, float *out)
{
    int err;

    for (uint32_t w = 0; w < f->net->ranks; w++) {
        size_t first = w * f->shard, n = shard_count(f, w);
        struct sl_codec_at at = sl_train_at(&f->config.up, f->net->rank, f->step, first);

        if (n > 0)
            encode(&f->config.up, &at, in + first, f->residual != NULL ? f->residual + first : NULL,
                   n, f->out + w * f->up_len);
    }
    err = f->net->exchange(f->net->arg, f->out, f->up_len, f->in);
    if (err == 0 && shard_count(f, f->net->rank) > 0)
        err = reduce(f);
    if (err == 0)
        err = spread(f, out);
    f->step++;
    return err;
}

size_t sl_feedback_state(const struct sl_feedback *f, uint64_t id, struct sl_state_part parts[2])
{
    size_t n = 0, own = shard_count(f, f->net->rank);

    if (f->residual != NULL)
        parts[n++] = (struct sl_state_part){.id = id,
                                            .kind = SL_STATE_RESIDUAL,
                                            .data = f->residual,
                                            .len = f->config.count * sizeof(float)};
    if (f->owner != NULL && own > 0)
        parts[n++] = (struct sl_state_part){.id = id,
                                            .first = f->net->rank * f->shard,
                                            .kind = SL_STATE_SHARD_RESIDUAL,
                                            .data = f->owner,
                                            .len = own * sizeof(float)};
    return n;
}

int sl_efsign_step(struct sl_feedback *f, float rate, const float *gradient, float *theta,
                   float *update)
{
    int err;

    for (size_t i = 0; i < f->config.count; i++)
        update[i] = rate * gradient[i];
    err = sl_feedback_mean(f, update, update);
    if (err == 0)
        sl_add_scaled(theta, -1, update, f->config.count);
    return err;
}
