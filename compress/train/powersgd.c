/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD over all layers, in two messages. */
#include "compress/train/powersgd.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

/* Where layer i begins after those before it; *p counts elements and messages up to its end. */
static struct sl_powersgd_place place_next(struct sl_powersgd *p, unsigned i)
{
    const struct sl_layer *layer = &p->config.layers[i];
    size_t least = layer->rows < layer->columns ? layer->rows : layer->columns;
    struct sl_powersgd_place at = {
        .shape = {.rows = layer->rows,
                  .columns = layer->columns,
                  .rank = p->config.rank < least ? p->config.rank : (uint32_t)least},
        .first = p->count,
        .count = layer->rows * layer->columns,
        .left = p->left,
        .right = p->right};

    at.factored = least > 1 && sl_lowrank_pays(&at.shape, (double)p->config.times);
    p->count += at.count;
    p->left += at.factored ? sl_lowrank_p_count(&at.shape) : at.count;
    p->right += at.factored ? sl_lowrank_q_count(&at.shape) : 0;
    return at;
}

static struct sl_feedback_config codec_config(const struct sl_powersgd *p, unsigned side)
{
    return (struct sl_feedback_config){
        .up = *p->config.codec, .down = *p->config.codec, .count = side == 0 ? p->left : p->right};
}

static int lay(struct sl_powersgd *p, const struct sl_powersgd_config *config,
               const struct sl_net *net, struct sl_room *room)
{
    int err = 0;

    *p = (struct sl_powersgd){.config = *config, .net = net};
    p->places = sl_room_take(room, config->layer_count * sizeof(*p->places));
    for (unsigned i = 0; i < config->layer_count; i++) {
        struct sl_powersgd_place at = place_next(p, i);

        if (p->places != NULL)
            p->places[i] = at;
    }
    p->residual = sl_room_floats(room, p->count);
    p->q = sl_room_floats(room, p->right);
    p->m = sl_room_floats(room, p->count);
    p->p = sl_room_floats(room, p->left);
    p->q_new = sl_room_floats(room, p->right);
    for (unsigned side = 0; err == 0 && config->codec != NULL && side < 2; side++) {
        struct sl_feedback_config c = codec_config(p, side);
        size_t size = 0;
        void *memory;

        err = sl_feedback_size(&c, net, &size);
        memory = sl_room_take(room, size);
        if (err == 0 && memory != NULL)
            sl_feedback_init(&p->codec[side], &c, net, memory);
    }
    return err;
}

int sl_powersgd_size(const struct sl_powersgd_config *config, const struct sl_net *net,
                     size_t *size)
{
    struct sl_room room = {0};
    struct sl_powersgd p;
    int err;

    if (config->layer_count > SL_POWERSGD_LAYERS_MOST || config->rank == 0)
        return sl_fail(-EINVAL, "low rank takes %u layers and rank 1 at least, not %u and %u",
                       SL_POWERSGD_LAYERS_MOST, config->layer_count, config->rank);
    err = lay(&p, config, net, &room);
    if (err == 0)
        *size = room.used;
    return err;
}

void sl_powersgd_init(struct sl_powersgd *p, const struct sl_powersgd_config *config,
                      const struct sl_net *net, void *memory)
{
    struct sl_room room = {.memory = memory};

    sl_assert(lay(p, config, net, &room) == 0);
    memset(p->residual, 0, p->count * sizeof(float));
    memset(p->q, 0, p->right * sizeof(float));
}

static int mean(struct sl_powersgd *p, unsigned side, float *x, size_t count)
{
    if (count == 0)
        return 0;
    return p->config.codec != NULL ? sl_feedback_mean(&p->codec[side], x, x)
                                   : sl_net_mean(p->net, x, count);
}

/* p->p = M Q of each layer, or the layer. */
static void go_left(struct sl_powersgd *p)
{
    for (unsigned i = 0; i < p->config.layer_count; i++) {
        const struct sl_powersgd_place *at = &p->places[i];
        const float *m = p->m + at->first;

        if (!at->factored) {
            memcpy(p->p + at->left, m, at->count * sizeof(*m));
            continue;
        }
        if (p->config.cold)
            memset(p->q + at->right, 0, sl_lowrank_q_count(&at->shape) * sizeof(*p->q));
        sl_lowrank_refill(&at->shape, p->config.seed, i, p->step, p->q + at->right);
        sl_lowrank_left(&at->shape, m, p->q + at->right, p->p + at->left);
    }
}

static void go_right(struct sl_powersgd *p)
{
    for (unsigned i = 0; i < p->config.layer_count; i++) {
        const struct sl_powersgd_place *at = &p->places[i];
        if (!at->factored)
            continue;
        sl_lowrank_orthogonalise(&at->shape, p->p + at->left);
        sl_lowrank_right(&at->shape, p->m + at->first, p->p + at->left, p->q_new + at->right);
    }
}

static void decode(struct sl_powersgd *p, float *out)
{
    for (unsigned i = 0; i < p->config.layer_count; i++) {
        const struct sl_powersgd_place *at = &p->places[i];
        if (at->factored)
            sl_lowrank_decode(&at->shape, p->p + at->left, p->q_new + at->right, out + at->first);
        else
            memcpy(out + at->first, p->p + at->left, at->count * sizeof(*out));
        for (size_t j = at->first; j < at->first + at->count; j++)
            p->residual[j] = at->factored ? p->m[j] - out[j] : 0;
    }
    memcpy(p->q, p->q_new, p->right * sizeof(*p->q));
}

int sl_powersgd_step(struct sl_powersgd *p, const float *gradient, float *out)
{
    int err;

    for (size_t i = 0; i < p->count; i++)
        p->m[i] = gradient[i] + p->residual[i];
    go_left(p);
    err = mean(p, 0, p->p, p->left);
    if (err != 0)
        return err;
    go_right(p);
    err = mean(p, 1, p->q_new, p->right);
    if (err != 0)
        return err;
    decode(p, out);
    p->step++;
    return 0;
}

size_t sl_powersgd_state(const struct sl_powersgd *p, uint64_t id, struct sl_state_part parts[2])
{
    parts[0] = (struct sl_state_part){
        .id = id, .kind = SL_STATE_RESIDUAL, .data = p->residual, .len = p->count * sizeof(float)};
    parts[1] = (struct sl_state_part){
        .id = id, .kind = SL_STATE_FACTOR, .data = p->q, .len = p->right * sizeof(float)};
    return p->right > 0 ? 2 : 1;
}
