/* SPDX-License-Identifier: Apache-2.0 */
/* Distributed Lion: signs go to the owner of a shard, and the count or its outcome to all. */
#include "compress/train/lion.h"
#include "compress/vote.h"

#include <string.h>

/* Planes that go to all: the counters, or who won and where nobody did. */
static unsigned sent_planes(const struct sl_lion *l)
{
    return l->config.average ? l->planes : 2;
}

static void lay(struct sl_lion *l, const struct sl_lion_config *config, const struct sl_net *net,
                struct sl_room *room)
{
    size_t words = (sl_vote_words(config->count) + net->ranks - 1) / net->ranks, word = 8;

    *l = (struct sl_lion){
        .config = *config, .net = net, .words = words, .planes = sl_vote_planes(net->ranks)};
    l->m = sl_room_floats(room, config->count);
    l->c = sl_room_floats(room, config->count);
    l->signs = sl_room_take(room, words * net->ranks * word);
    l->in = sl_room_take(room, words * net->ranks * word);
    l->counters = sl_room_take(room, words * (l->planes + 2) * word);
    l->all = sl_room_take(room, words * net->ranks * sent_planes(l) * word);
    l->whole = sl_room_take(room, words * net->ranks * sent_planes(l) * word);
}

size_t sl_lion_size(const struct sl_lion_config *config, const struct sl_net *net)
{
    struct sl_room room = {0};
    struct sl_lion l;

    lay(&l, config, net, &room);
    return room.used;
}

void sl_lion_init(struct sl_lion *l, const struct sl_lion_config *config, const struct sl_net *net,
                  void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(l, config, net, &room);
    memset(memory, 0, room.used);
}

/* l->counters of this rank's shard, from the signs of all ranks. Returns what all are sent. */
static const uint64_t *count_votes(struct sl_lion *l)
{
    uint64_t *outcome = l->counters + l->planes * l->words;

    memset(l->counters, 0, l->planes * l->words * sizeof(*l->counters));
    for (uint32_t w = 0; w < l->net->ranks; w++)
        sl_vote_add(l->counters, l->planes, l->in + w * l->words, l->words);
    if (l->config.average)
        return l->counters;
    sl_vote_majority(l->counters, l->planes, l->net->ranks, l->words, outcome, outcome + l->words);
    return outcome;
}

/* The planes of shards, one after the other, become planes of all elements. */
static void join(struct sl_lion *l)
{
    unsigned planes = sent_planes(l);

    for (uint32_t w = 0; w < l->net->ranks; w++)
        for (unsigned p = 0; p < planes; p++)
            memcpy(l->whole + (p * l->net->ranks + w) * l->words,
                   l->all + (w * planes + p) * l->words, l->words * sizeof(*l->whole));
}

static void outcome_of(const struct sl_lion *l, float *out)
{
    const uint64_t *below = l->whole, *ties = l->whole + l->net->ranks * l->words;

    for (size_t i = 0; i < l->config.count; i++) {
        uint64_t bit = UINT64_C(1) << i % 64;

        out[i] = (ties[i / 64] & bit) != 0 ? 0.0f : (below[i / 64] & bit) != 0 ? -1.0f : 1.0f;
    }
}

/* The sum of votes is taken of rows of as many words as the elements have. */
static void mean_of(struct sl_lion *l, float *out)
{
    size_t words = sl_vote_words(l->config.count), row = l->net->ranks * l->words;

    for (unsigned p = 1; p < l->planes && words < row; p++)
        memmove(l->whole + p * words, l->whole + p * row, words * sizeof(*l->whole));
    sl_vote_sum(l->whole, l->planes, l->net->ranks, 1 / (float)l->net->ranks, l->config.count, out);
}

int sl_lion_step(struct sl_lion *l, const float *gradient, float *out)
{
    float b1 = l->config.beta1, b2 = l->config.beta2;
    size_t len = l->words * sizeof(uint64_t);
    int err;

    for (size_t i = 0; i < l->config.count; i++) {
        l->c[i] = b1 * l->m[i] + (1 - b1) * gradient[i];
        l->m[i] = b2 * l->m[i] + (1 - b2) * gradient[i];
    }
    memset(l->signs, 0, len * l->net->ranks);
    sl_vote_signs(l->c, l->config.count, l->signs);
    err = l->net->exchange(l->net->arg, l->signs, len, l->in);
    if (err == 0)
        err = l->net->gather(l->net->arg, count_votes(l), len * sent_planes(l), l->all);
    if (err != 0)
        return err;
    join(l);
    if (l->config.average)
        mean_of(l, out);
    else
        outcome_of(l, out);
    return 0;
}

void sl_lion_apply(const float *update, float rate, float decay, size_t count, float *theta)
{
    for (size_t i = 0; i < count; i++)
        theta[i] -= rate * (update[i] + decay * theta[i]);
}

size_t sl_lion_state(const struct sl_lion *l, uint64_t id, struct sl_state_part parts[1])
{
    parts[0] = (struct sl_state_part){
        .id = id, .kind = SL_STATE_RESIDUAL, .data = l->m, .len = l->config.count * sizeof(float)};
    return 1;
}
