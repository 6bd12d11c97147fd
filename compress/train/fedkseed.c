/* SPDX-License-Identifier: Apache-2.0 */
/* FedKSeed: sums of scalars, and the walk that they stand for. */
#include "compress/philox.h"
#include "compress/seedscalar.h"
#include "compress/train/fedkseed.h"

#include <string.h>

#define CHOICE 0xffffffffu /* stream of the choices: no direction has it */

static void lay(struct sl_fedkseed *f, const struct sl_fedkseed_config *config,
                struct sl_room *room)
{
    *f = (struct sl_fedkseed){.config = *config};
    f->start = sl_room_floats(room, config->count);
    f->work = sl_room_floats(room, config->count);
    f->a = sl_room_floats(room, config->seeds);
}

size_t sl_fedkseed_size(const struct sl_fedkseed_config *config)
{
    struct sl_room room = {0};
    struct sl_fedkseed f;

    lay(&f, config, &room);
    return room.used;
}

void sl_fedkseed_init(struct sl_fedkseed *f, const struct sl_fedkseed_config *config,
                      const struct sl_net *net, const float *theta, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(f, config, &room);
    memset(memory, 0, room.used);
    memcpy(f->start, theta, config->count * sizeof(*theta));
    f->net = net;
}

static struct sl_direction direction(const struct sl_fedkseed *f, uint32_t j)
{
    return (struct sl_direction){.seed = f->config.seed, .stream = 0, .step = j};
}

/* Of f->work, which is theta moved along z. */
static double loss_at(struct sl_fedkseed *f, const struct sl_direction *z, const float *theta,
                      float by)
{
    memcpy(f->work, theta, f->config.count * sizeof(*theta));
    sl_direction_apply(z, 0, by, f->config.count, f->work);
    return f->config.loss(f->config.arg, f->work);
}

float sl_fedkseed_step(struct sl_fedkseed *f, float *theta)
{
    const uint32_t counter[4] = {f->net->rank, 0, CHOICE, f->step++};
    struct sl_direction z;
    uint32_t chosen[4], j;
    double above, below;
    float g;

    sl_philox(counter, f->config.seed, chosen);
    j = (uint32_t)((uint64_t)chosen[0] * f->config.seeds >> 32);
    z = direction(f, j);
    above = loss_at(f, &z, theta, f->config.epsilon);
    below = loss_at(f, &z, theta, -f->config.epsilon);
    g = (float)((above - below) / (2 * (double)f->config.epsilon));
    sl_direction_apply(&z, 0, -f->config.rate * g, f->config.count, theta);
    f->a[j] += g;
    return g;
}

int sl_fedkseed_round(struct sl_fedkseed *f, float *theta)
{
    int err = sl_net_mean(f->net, f->a, f->config.seeds);

    if (err != 0)
        return err;
    for (uint32_t j = 0; j < f->config.seeds; j++) {
        struct sl_direction z = direction(f, j);

        if (f->a[j] != 0)
            sl_direction_apply(&z, 0, -f->config.rate * f->a[j], f->config.count, f->start);
    }
    memcpy(theta, f->start, f->config.count * sizeof(*theta));
    memset(f->a, 0, f->config.seeds * sizeof(*f->a));
    return 0;
}

size_t sl_fedkseed_state(const struct sl_fedkseed *f, uint64_t id, struct sl_state_part parts[2])
{
    parts[0] = (struct sl_state_part){.id = id,
                                      .kind = SL_STATE_RESIDUAL,
                                      .data = f->start,
                                      .len = f->config.count * sizeof(float)};
    parts[1] = (struct sl_state_part){.id = id + 1,
                                      .kind = SL_STATE_RESIDUAL,
                                      .data = f->a,
                                      .len = f->config.seeds * sizeof(float)};
    return 2;
}
