/* SPDX-License-Identifier: Apache-2.0 */
/* MASHA: extra steps around an anchor, with differences compressed both ways. */
#include "compress/train/masha.h"
#include "compress/philox.h"

#include <string.h>

#define COIN 0xffffffffu /* stream of the coin's numbers */

static void lay(struct sl_masha *m, const struct sl_masha_config *config, const struct sl_net *net,
                struct sl_room *room)
{
    float **arrays[] = {&m->z,        &m->w,     &m->mean_at_w, &m->own_at_w,
                        &m->residual, &m->owner, &m->half,      &m->d};

    *m = (struct sl_masha){.config = *config, .net = net};
    for (unsigned i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        *arrays[i] = sl_room_floats(room, config->count);
    m->down =
        sl_room_take(room, sl_codec_by_id(config->down.id)->size(&config->down, config->count));
    sl_messages_lay(&m->messages, net,
                    sl_codec_by_id(config->up.id)->size(&config->up, config->count), room);
}

int sl_masha_size(const struct sl_masha_config *config, const struct sl_net *net, size_t *size)
{
    struct sl_room room = {0};
    struct sl_masha m;
    int err = sl_codec_check(&config->up);

    if (err == 0)
        err = sl_codec_check(&config->down);
    if (err != 0)
        return err;
    lay(&m, config, net, &room);
    *size = room.used;
    return 0;
}

/* w = z, and F there. */
static int refresh(struct sl_masha *m)
{
    size_t len = m->config.count * sizeof(float);

    memcpy(m->w, m->z, len);
    m->config.f(m->config.arg, m->w, m->own_at_w);
    memcpy(m->mean_at_w, m->own_at_w, len);
    return sl_net_mean(m->net, m->mean_at_w, m->config.count);
}

int sl_masha_init(struct sl_masha *m, const struct sl_masha_config *config,
                  const struct sl_net *net, const float *z, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(m, config, net, &room);
    memset(memory, 0, room.used);
    memcpy(m->z, z, config->count * sizeof(*z));
    return refresh(m);
}

/* x = what its encoding decodes to; residual, if not NULL, joins before and keeps the rest. */
static int pass(const struct sl_codec_spec *spec, const struct sl_codec_at *at, float *residual,
                size_t count, float *x, void *message, size_t *len)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    int err;

    for (size_t i = 0; residual != NULL && i < count; i++)
        residual[i] = x[i] += residual[i];
    *len = codec->encode(spec, at, x, count, message);
    err = codec->decode(spec, at, message, *len, count, x);
    for (size_t i = 0; residual != NULL && i < count; i++)
        residual[i] -= x[i];
    return err;
}

/* m->d = what all ranks move by, from this rank's difference. */
static int agree(struct sl_masha *m)
{
    struct sl_codec_at up = sl_train_at(&m->config.up, m->net->rank, m->step, 0),
                       down = sl_train_at(&m->config.down, m->net->ranks, m->step, 0);
    bool feedback = m->config.feedback;
    size_t count = m->config.count, len;
    int err =
        pass(&m->config.up, &up, feedback ? m->residual : NULL, count, m->d, m->messages.own, &len);

    if (err == 0)
        err = sl_messages_gather(&m->messages, len);
    if (err == 0)
        err = sl_messages_mean(&m->messages, &m->config.up, m->step, count, m->d);
    if (err == 0)
        err = pass(&m->config.down, &down, feedback ? m->owner : NULL, count, m->d, m->down, &len);
    return err;
}

int sl_masha_step(struct sl_masha *m)
{
    float tau = m->config.tau, gamma = m->config.gamma;
    const uint32_t counter[4] = {0, 0, COIN, m->step};
    size_t count = m->config.count;
    uint32_t coin[4];
    int err;

    for (size_t i = 0; i < count; i++)
        m->half[i] = tau * m->z[i] + (1 - tau) * m->w[i] - gamma * m->mean_at_w[i];
    m->config.f(m->config.arg, m->half, m->d);
    for (size_t i = 0; i < count; i++)
        m->d[i] = (m->config.feedback ? gamma : 1) * (m->d[i] - m->own_at_w[i]);
    err = agree(m);
    if (err != 0)
        return err;
    for (size_t i = 0; i < count; i++)
        m->z[i] = m->half[i] - (m->config.feedback ? 1 : gamma) * m->d[i];
    sl_philox(counter, m->config.seed, coin);
    m->step++;
    return (double)coin[0] * 0x1p-32 < 1 - (double)tau ? refresh(m) : 0;
}

size_t sl_masha_state(const struct sl_masha *m, uint64_t id, struct sl_state_part parts[6])
{
    float *data[6] = {m->z, m->w, m->mean_at_w, m->own_at_w, m->residual, m->owner};

    for (unsigned i = 0; i < 6; i++)
        parts[i] = (struct sl_state_part){.id = id + i,
                                          .kind = SL_STATE_RESIDUAL,
                                          .data = data[i],
                                          .len = m->config.count * sizeof(float)};
    return 6;
}
