/* SPDX-License-Identifier: Apache-2.0 */
/* Decoupled momentum: coefficients of all ranks, averaged over those that sent them. */
#include "compress/train/demo.h"
#include "compress/dct.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

static void lay(struct sl_demo *d, const struct sl_demo_config *config, const struct sl_net *net,
                struct sl_room *room)
{
    size_t whole = sl_dct_count(config->count);

    *d = (struct sl_demo){.config = *config, .net = net};
    d->delta = sl_room_floats(room, config->count);
    d->own = sl_room_floats(room, config->count);
    d->coefficients = sl_room_floats(room, whole);
    d->senders = sl_room_take(room, whole * sizeof(*d->senders));
    sl_messages_lay(&d->messages, net,
                    sl_codec_by_id(config->spec.id)->size(&config->spec, config->count), room);
}

int sl_demo_size(const struct sl_demo_config *config, const struct sl_net *net, size_t *size)
{
    struct sl_room room = {0};
    struct sl_demo d;
    int err = sl_codec_check(&config->spec);

    if (err == 0 && (config->spec.id != SL_CODEC_DCT || config->spec.dtype != SLUICE_F32))
        err = sl_fail(-EINVAL, "decoupled momentum is sent by the codec dct of f32");
    if (err != 0)
        return err;
    lay(&d, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_demo_init(struct sl_demo *d, const struct sl_demo_config *config, const struct sl_net *net,
                  void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(d, config, net, &room);
    memset(memory, 0, room.used);
}

/* d->coefficients = the mean of each over those that sent it. */
static int average(struct sl_demo *d)
{
    size_t whole = sl_dct_count(d->config.count);
    int err = 0;

    memset(d->coefficients, 0, whole * sizeof(*d->coefficients));
    memset(d->senders, 0, whole * sizeof(*d->senders));
    for (uint32_t w = 0; err == 0 && w < d->net->ranks; w++)
        err = sl_dct_add_coefficients(&d->config.spec, sl_messages_of(&d->messages, w),
                                      d->messages.lens[w], d->config.count, d->coefficients,
                                      d->senders);
    for (size_t i = 0; i < whole; i++)
        if (d->senders[i] > 1)
            d->coefficients[i] /= (float)d->senders[i];
    return err;
}

int sl_demo_step(struct sl_demo *d, float rate, const float *gradient, float *out)
{
    const struct sl_codec *codec = sl_codec_by_id(SL_CODEC_DCT);
    const struct sl_codec_spec *spec = &d->config.spec;
    size_t count = d->config.count, len;
    struct sl_codec_at at = {0};
    int err;

    for (size_t i = 0; i < count; i++)
        d->delta[i] = d->config.decay * d->delta[i] + rate * gradient[i];
    len = codec->encode(spec, &at, d->delta, count, d->messages.own);
    err = codec->decode(spec, &at, d->messages.own, len, count, d->own);
    if (err == 0)
        err = sl_messages_gather(&d->messages, len);
    if (err == 0)
        err = average(d);
    if (err != 0)
        return err;
    sl_add_scaled(d->delta, -1, d->own, count);
    sl_dct_back(d->coefficients, count, out);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)((out[i] > 0) - (out[i] < 0));
    return 0;
}

size_t sl_demo_state(const struct sl_demo *d, uint64_t id, struct sl_state_part parts[1])
{
    parts[0] = (struct sl_state_part){.id = id,
                                      .kind = SL_STATE_RESIDUAL,
                                      .data = d->delta,
                                      .len = d->config.count * sizeof(float)};
    return 1;
}
