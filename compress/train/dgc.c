/* SPDX-License-Identifier: Apache-2.0 */
/* Deep gradient compression: clip, gather momentum, send the largest, mask what was sent. */
#include "compress/train/dgc.h"
#include "compress/tree.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

void sl_dgc_warm_up(struct sl_dgc_config *config, uint32_t stage_steps)
{
    static const float ratios[] = {0.25f, 0.063f, 0.016f, 0.004f, 0.001f};

    config->stages = 0;
    config->stage_steps = stage_steps;
    for (unsigned i = 0; i < SL_ARRAY_LEN(ratios); i++)
        if (ratios[i] > config->ratio)
            config->warm_ratio[config->stages++] = ratios[i];
}

size_t sl_dgc_kept(const struct sl_dgc_config *config, uint32_t step)
{
    uint32_t stage = config->stage_steps > 0 ? step / config->stage_steps : config->stages;
    float ratio = stage < config->stages ? config->warm_ratio[stage] : config->ratio;
    size_t k = (size_t)((double)ratio * (double)config->count);

    return k > 0 ? k : config->count > 0;
}

static size_t kept_most(const struct sl_dgc_config *config)
{
    size_t most = 0;

    for (uint32_t i = 0; i <= config->stages; i++) {
        size_t k = sl_dgc_kept(config, i * config->stage_steps);

        most = k > most ? k : most;
    }
    /* Room for twice as many saves passes, and serves thresholds that are reused. */
    return 2 * most < config->count ? 2 * most : config->count;
}

static void lay(struct sl_dgc *d, const struct sl_dgc_config *config, const struct sl_net *net,
                struct sl_room *room)
{
    size_t cap = kept_most(config);

    *d = (struct sl_dgc){.config = *config, .net = net};
    d->u = sl_room_floats(room, config->count);
    d->v = sl_room_floats(room, config->count);
    d->topk = sl_room_take(room, sizeof(*d->topk));
    d->work = sl_room_take(room, sizeof(*d->work));
    d->kept.cap = cap;
    d->kept.index = sl_room_take(room, cap * sizeof(*d->kept.index));
    d->kept.value = sl_room_floats(room, cap);
    sl_sparse_sum_lay(&d->sum, net, &config->sparse, config->count, cap, room);
}

int sl_dgc_size(const struct sl_dgc_config *config, const struct sl_net *net, size_t *size)
{
    bool good = config->ratio > 0 && config->ratio <= 1 && config->stages <= SL_DGC_STAGES_MOST;
    struct sl_room room = {0};
    struct sl_dgc d;

    for (uint32_t i = 0; good && i < config->stages; i++)
        good = config->warm_ratio[i] > 0 && config->warm_ratio[i] <= 1;
    if (!good)
        return sl_fail(-EINVAL, "a part of elements that are sent lies above 0 and is 1 at most");
    if (config->count > SL_SPARSE_COUNT_MOST)
        return sl_fail(-EINVAL, "%zu elements are more than sparse messages can number",
                       config->count);
    lay(&d, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_dgc_init(struct sl_dgc *d, const struct sl_dgc_config *config, const struct sl_net *net,
                 void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(d, config, net, &room);
    memset(memory, 0, room.used);
}

/* What the gradient is multiplied by. */
static float clipped(const struct sl_dgc *d, const float *gradient)
{
    double most = (double)d->config.clip / __builtin_sqrt(d->net->ranks);
    double norm;

    if (d->config.clip == 0)
        return 1;
    norm = __builtin_sqrt(sl_tree_dot(gradient, gradient, d->config.count));
    return norm > most ? (float)(most / norm) : 1;
}

static void gather_momentum(struct sl_dgc *d, const float *gradient)
{
    float by = clipped(d, gradient), m = d->config.momentum;

    for (size_t i = 0; i < d->config.count; i++) {
        float g = by * gradient[i];

        if (d->config.nesterov) {
            d->u[i] = m * (d->u[i] + g);
            d->v[i] += d->u[i] + g;
        } else {
            d->u[i] = m * d->u[i] + g;
            d->v[i] += d->u[i];
        }
    }
}

static size_t choose(struct sl_dgc *d)
{
    size_t k = sl_dgc_kept(&d->config, d->step), kept;

    if (d->config.reused)
        kept = sl_topk_reused(d->topk, d->v, d->config.count, k, d->work, &d->kept);
    else
        kept = sl_topk_exact(d->v, d->config.count, k, 0, d->work, &d->kept, NULL);
    for (size_t i = 0; i < kept; i++) {
        d->v[d->kept.index[i]] = 0;
        if (!d->config.keep_momentum)
            d->u[d->kept.index[i]] = 0;
    }
    return kept;
}

int sl_dgc_step(struct sl_dgc *d, const float *gradient, float *out)
{
    size_t kept;
    int err;

    gather_momentum(d, gradient);
    kept = choose(d);
    d->step++;
    err = sl_sparse_sum(&d->sum, d->kept.index, d->kept.value, kept, out);
    d->sent = d->sum.sent;
    if (err == 0)
        sl_scale(out, 1 / (float)d->net->ranks, d->config.count);
    return err;
}

size_t sl_dgc_state(const struct sl_dgc *d, uint64_t id, struct sl_state_part parts[3])
{
    size_t len = d->config.count * sizeof(float);

    parts[0] =
        (struct sl_state_part){.id = id, .kind = SL_STATE_RESIDUAL, .data = d->v, .len = len};
    parts[1] =
        (struct sl_state_part){.id = id + 1, .kind = SL_STATE_RESIDUAL, .data = d->u, .len = len};
    parts[2] = (struct sl_state_part){
        .id = id, .kind = SL_STATE_THRESHOLD, .data = d->topk, .len = sizeof(*d->topk)};
    return 3;
}
