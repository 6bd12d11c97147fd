/* SPDX-License-Identifier: Apache-2.0 */
/* EControl: residuals under control, and an estimate that ranks and owner both follow. */
#include "compress/train/feedback.h"

#include <string.h>

static void lay(struct sl_econtrol *e, const struct sl_econtrol_config *config,
                const struct sl_net *net, struct sl_room *room)
{
    *e = (struct sl_econtrol){.config = *config, .net = net};
    e->residual = sl_room_floats(room, config->count);
    e->h = sl_room_floats(room, config->count);
    e->mean = sl_room_floats(room, config->count);
    e->delta = sl_room_floats(room, config->count);
    sl_messages_lay(&e->messages, net,
                    sl_codec_by_id(config->spec.id)->size(&config->spec, config->count), room);
}

int sl_econtrol_size(const struct sl_econtrol_config *config, const struct sl_net *net,
                     size_t *size)
{
    struct sl_room room = {0};
    struct sl_econtrol e;
    int err = sl_codec_check(&config->spec);

    if (err != 0)
        return err;
    lay(&e, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_econtrol_init(struct sl_econtrol *e, const struct sl_econtrol_config *config,
                      const struct sl_net *net, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(e, config, net, &room);
    memset(memory, 0, room.used);
}

int sl_econtrol_step(struct sl_econtrol *e, const float *gradient, float *out)
{
    const struct sl_codec_spec *spec = &e->config.spec;
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    struct sl_codec_at at = sl_train_at(spec, e->net->rank, e->step, 0);
    size_t count = e->config.count, len;
    int err;

    /* delta = C(eta e + g - h), e += g - h - delta, h += delta */
    for (size_t i = 0; i < count; i++)
        e->delta[i] = e->config.eta * e->residual[i] + gradient[i] - e->h[i];
    len = codec->encode(spec, &at, e->delta, count, e->messages.own);
    err = codec->decode(spec, &at, e->messages.own, len, count, e->delta);
    for (size_t i = 0; err == 0 && i < count; i++) {
        e->residual[i] += gradient[i] - e->h[i] - e->delta[i];
        e->h[i] += e->delta[i];
    }
    if (err == 0)
        err = sl_messages_gather(&e->messages, len);
    if (err == 0)
        err = sl_messages_mean(&e->messages, spec, e->step, count, e->delta);
    if (err != 0)
        return err;
    sl_add_scaled(e->mean, 1, e->delta, count);
    memcpy(out, e->mean, count * sizeof(*out));
    e->step++;
    return 0;
}

size_t sl_econtrol_state(const struct sl_econtrol *e, uint64_t id, struct sl_state_part parts[3])
{
    float *data[3] = {e->residual, e->h, e->mean};

    for (unsigned i = 0; i < 3; i++)
        parts[i] = (struct sl_state_part){.id = id + i,
                                          .kind = SL_STATE_RESIDUAL,
                                          .data = data[i],
                                          .len = e->config.count * sizeof(float)};
    return 3;
}
