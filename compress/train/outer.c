/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of what ranks reach by steps of their own, fragment by fragment, late or at once. */
#include "compress/train/outer.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

static void lay(struct sl_outer *o, const struct sl_outer_config *config, struct sl_room *room)
{
    *o = (struct sl_outer){.config = *config};
    o->anchor = sl_room_floats(room, config->count);
    o->u = sl_room_floats(room, config->count);
    o->delta = sl_room_floats(room, config->count);
    if (config->keep_steps)
        o->start = sl_room_floats(room, config->count);
    o->pending = sl_room_take(room, config->fragments * sizeof(*o->pending));
}

int sl_outer_size(const struct sl_outer_config *config, size_t *size)
{
    struct sl_room room = {0};
    struct sl_outer o;

    if (config->fragments == 0 || config->interval < config->fragments ||
        config->delay > config->interval)
        return sl_fail(-EINVAL,
                       "%u fragments take turns in %u steps, and are there %u steps later: 1 to as "
                       "many fragments as steps, and a delay of as many steps at most",
                       config->fragments, config->interval, config->delay);
    lay(&o, config, &room);
    *size = room.used;
    return 0;
}

void sl_outer_init(struct sl_outer *o, const struct sl_outer_config *config, const float *theta,
                   void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(o, config, &room);
    memset(memory, 0, room.used);
    memcpy(o->anchor, theta, config->count * sizeof(*theta));
}

size_t sl_outer_fragment(const struct sl_outer *o, uint32_t fragment, size_t *first)
{
    size_t each = o->config.count / o->config.fragments,
           more = o->config.count % o->config.fragments;

    *first = fragment * each + (fragment < more ? fragment : more);
    return each + (fragment < more);
}

/* The fragment whose turn comes after that many steps: turns are spread over the interval. */
static int turn(const struct sl_outer *o, uint32_t steps)
{
    uint32_t interval = o->config.interval, within = steps % interval;

    for (uint32_t f = 0; f < o->config.fragments; f++)
        if (within == (uint64_t)(f + 1) * interval / o->config.fragments % interval)
            return (int)f;
    return -1;
}

int sl_outer_begins(const struct sl_outer *o, uint32_t step)
{
    return turn(o, step + 1);
}

int sl_outer_ends(const struct sl_outer *o, uint32_t step)
{
    int fragment = step + 1 > o->config.delay ? turn(o, step + 1 - o->config.delay) : -1;

    /* In the first interval, nothing has begun. */
    return fragment >= 0 && o->pending[fragment] ? fragment : -1;
}

void sl_outer_begin(struct sl_outer *o, uint32_t fragment, const float *theta)
{
    size_t first, n = sl_outer_fragment(o, fragment, &first);

    sl_assert(!o->pending[fragment]);
    for (size_t i = first; i < first + n; i++)
        o->delta[i] = o->anchor[i] - theta[i];
    if (o->config.keep_steps)
        memcpy(o->start + first, theta + first, n * sizeof(*theta));
    o->pending[fragment] = 1;
}

/* NaN stays NaN. */
static float clipped(float x, float most)
{
    if (most == 0)
        return x;
    return x > most ? most : x < -most ? -most : x;
}

void sl_outer_end(struct sl_outer *o, uint32_t fragment, float *theta)
{
    size_t first, n = sl_outer_fragment(o, fragment, &first);
    float m = o->config.momentum, mix = o->config.mix;
    float penalty = o->config.penalty != 0 ? o->config.penalty : 1;

    sl_assert(o->pending[fragment]);
    o->pending[fragment] = 0;
    for (size_t i = first; i < first + n; i++) {
        float delta = o->delta[i] / penalty, move;

        o->u[i] = clipped(m * o->u[i] + delta, o->config.clip);
        move = o->config.nesterov ? delta + m * o->u[i] : o->u[i];
        o->anchor[i] -= o->config.rate * move;
        if (o->config.keep_steps)
            theta[i] = o->anchor[i] + (theta[i] - o->start[i]);
        else
            theta[i] = mix == 0 ? o->anchor[i] : mix * theta[i] + (1 - mix) * o->anchor[i];
    }
}

size_t sl_outer_state(const struct sl_outer *o, uint64_t id, struct sl_state_part parts[5])
{
    float *data[4] = {o->anchor, o->u, o->delta, o->start};
    size_t n = 0;

    for (unsigned i = 0; i < 4; i++)
        if (data[i] != NULL)
            parts[n++] = (struct sl_state_part){.id = id + i,
                                                .kind = SL_STATE_RESIDUAL,
                                                .data = data[i],
                                                .len = o->config.count * sizeof(float)};
    parts[n++] = (struct sl_state_part){.id = id + 4,
                                        .kind = SL_STATE_RESIDUAL,
                                        .data = o->pending,
                                        .len = o->config.fragments * sizeof(*o->pending)};
    return n;
}

int sl_outer_mean_plain(void *net, float *x, size_t first, size_t count)
{
    return sl_net_mean(net, x, count);
}

int sl_outer_step(struct sl_outer *o, sl_outer_mean *mean, void *arg, uint32_t step, float *theta)
{
    int ends = o->config.delay > 0 ? sl_outer_ends(o, step) : -1, begins = sl_outer_begins(o, step);
    size_t first, n;
    int err;

    if (ends >= 0)
        sl_outer_end(o, (uint32_t)ends, theta);
    if (begins < 0)
        return 0;
    n = sl_outer_fragment(o, (uint32_t)begins, &first);
    sl_outer_begin(o, (uint32_t)begins, theta);
    err = mean(arg, o->delta + first, first, n);
    if (err == 0 && o->config.delay == 0)
        sl_outer_end(o, (uint32_t)begins, theta);
    return err;
}
