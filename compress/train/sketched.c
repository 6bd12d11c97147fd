/* SPDX-License-Identifier: Apache-2.0 */
/* Sketched averages, with momentum and residual in the sketch. */
#include "compress/train/sketched.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

static size_t cells(const struct sl_sketched_config *config)
{
    return (size_t)config->sketch.rows * config->sketch.columns;
}

static void lay(struct sl_sketched *s, const struct sl_sketched_config *config,
                struct sl_room *room)
{
    size_t cap = 2 * config->k < config->count ? 2 * config->k : config->count;

    *s = (struct sl_sketched){.config = *config};
    s->table = sl_room_floats(room, cells(config));
    s->u = sl_room_floats(room, cells(config));
    s->e = sl_room_floats(room, cells(config));
    s->scratch = sl_room_floats(room, config->count);
    s->work = sl_room_take(room, sizeof(*s->work));
    s->kept.cap = cap;
    s->kept.index = sl_room_take(room, cap * sizeof(*s->kept.index));
    s->kept.value = sl_room_floats(room, cap);
}

int sl_sketched_size(const struct sl_sketched_config *config, size_t *size)
{
    uint32_t rows = config->sketch.rows;
    struct sl_room room = {0};
    struct sl_sketched s;

    if (rows % 2 == 0 || rows > SL_SKETCH_ROWS_MOST || config->sketch.columns == 0 ||
        (config->k == 0 && rows != 1))
        return sl_fail(-EINVAL,
                       "a sketch has an odd number of rows up to %u, one where all elements are "
                       "taken, and columns, not %u and %u",
                       SL_SKETCH_ROWS_MOST, rows, config->sketch.columns);
    lay(&s, config, &room);
    *size = room.used;
    return 0;
}

void sl_sketched_init(struct sl_sketched *s, const struct sl_sketched_config *config,
                      const struct sl_net *net, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(s, config, &room);
    memset(memory, 0, room.used);
    s->net = net;
}

/* out = the k largest of e, which leave e and u. */
static void extract(struct sl_sketched *s, float *out)
{
    const struct sl_sketch *sketch = &s->config.sketch;
    size_t count = s->config.count;
    size_t kept = sl_sketch_topk(sketch, s->e, count, s->config.k, s->scratch, s->work, &s->kept);

    memset(out, 0, count * sizeof(*out));
    memset(s->table, 0, cells(&s->config) * sizeof(float));
    for (size_t i = 0; i < kept; i++)
        out[s->kept.index[i]] = s->kept.value[i];
    sl_sketch_add(sketch, 0, out, count, s->table);
    for (size_t i = 0; i < cells(&s->config); i++) {
        s->e[i] -= s->table[i];
        s->u[i] = s->table[i] != 0 ? 0 : s->u[i];
    }
}

int sl_sketched_step(struct sl_sketched *s, float rate, const float *gradient, float *out)
{
    const struct sl_sketch *sketch = &s->config.sketch;
    size_t n = cells(&s->config), count = s->config.count;
    int err;

    memset(s->table, 0, n * sizeof(float));
    sl_sketch_add(sketch, 0, gradient, count, s->table);
    err = sl_net_mean(s->net, s->table, n);
    if (err != 0)
        return err;
    if (s->config.k == 0) {
        sl_sketch_estimate(sketch, s->table, 0, count, out);
        sl_scale(out, rate, count);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        s->u[i] = s->config.momentum * s->u[i] + s->table[i];
        s->e[i] += rate * s->u[i];
    }
    extract(s, out);
    return 0;
}

size_t sl_sketched_state(const struct sl_sketched *s, uint64_t id, struct sl_state_part parts[2])
{
    float *data[2] = {s->u, s->e};

    for (unsigned i = 0; i < 2; i++)
        parts[i] = (struct sl_state_part){.id = id + i,
                                          .kind = SL_STATE_RESIDUAL,
                                          .data = data[i],
                                          .len = cells(&s->config) * sizeof(float)};
    return 2;
}
