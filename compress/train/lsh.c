/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens by their like: hashes, buckets, and the all-to-all of centroids and back. */
#include "compress/train/lsh.h"
#include "compress/elements.h"
#include "compress/seedscalar.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

#define TURNS 3 /* signs and Hadamard, so often */

static void lay(struct sl_lsh *l, const struct sl_lsh_config *config, const struct sl_net *net,
                struct sl_room *room)
{
    size_t tokens = config->tokens, block = tokens * config->dim;

    *l = (struct sl_lsh){.config = *config, .net = net, .padded = 1, .slots = 4};
    while (l->padded < config->dim)
        l->padded *= 2;
    while (l->slots < 2 * tokens)
        l->slots *= 2;
    l->rotated = sl_room_floats(room, l->padded);
    l->codes = sl_room_take(room, tokens * sizeof(*l->codes));
    l->bucket = sl_room_take(room, tokens * sizeof(*l->bucket));
    l->table = sl_room_take(room, l->slots * sizeof(*l->table));
    l->size = sl_room_take(room, tokens * sizeof(*l->size));
    l->centroids = sl_room_floats(room, block);
    l->counts = sl_room_take(room, net->ranks * sizeof(*l->counts));
    l->from = sl_room_take(room, net->ranks * net->ranks * sizeof(*l->from));
    l->out = sl_room_floats(room, net->ranks * block);
    l->in = sl_room_floats(room, net->ranks * block);
}

int sl_lsh_size(const struct sl_lsh_config *config, const struct sl_net *net, size_t *size)
{
    struct sl_room room = {0};
    struct sl_lsh l;

    if (config->dim == 0 || config->dim > SL_LSH_DIM_MOST || config->hashes == 0 ||
        config->hashes > SL_LSH_HASHES_MOST || config->tokens >= UINT32_MAX)
        return sl_fail(-EINVAL, "tokens have 1 to %u elements and 1 to %u hashes, not %u and %u",
                       SL_LSH_DIM_MOST, SL_LSH_HASHES_MOST, config->dim, config->hashes);
    lay(&l, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_lsh_init(struct sl_lsh *l, const struct sl_lsh_config *config, const struct sl_net *net,
                 void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(l, config, net, &room);
    memset(memory, 0, room.used);
}

static void hadamard(float *x, uint32_t count)
{
    for (uint32_t far = 1; far < count; far *= 2)
        for (uint32_t i = 0; i < count; i += 2 * far)
            for (uint32_t j = i; j < i + far; j++) {
                float a = x[j], b = x[j + far];

                x[j] = a + b;
                x[j + far] = a - b;
            }
}

/* 2 * coordinate, and 1 more where it is below zero. */
static uint32_t corner(struct sl_lsh *l, const float *token, uint32_t hash)
{
    uint32_t best = 0, largest = 0;

    memset(l->rotated, 0, l->padded * sizeof(float));
    memcpy(l->rotated, token, l->config.dim * sizeof(float));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct sl_direction z = {.seed = l->config.seed, .stream = hash, .step = turn};
        float signs[128];

        for (uint32_t first = 0; first < l->padded; first += 128) {
            uint32_t n = l->padded - first < 128 ? l->padded - first : 128;

            sl_direction_fill(&z, first, n, signs);
            for (uint32_t i = 0; i < n; i++)
                l->rotated[first + i] *= signs[i];
        }
        hadamard(l->rotated, l->padded);
    }
    for (uint32_t i = 0; i < l->padded; i++) {
        uint32_t bits = sl_f32_bits(l->rotated[i]);

        if ((bits & SL_BITS_ABS) > largest || i == 0) {
            largest = bits & SL_BITS_ABS;
            best = 2 * i + (bits >> 31);
        }
    }
    return best;
}

uint64_t sl_lsh_code(struct sl_lsh *l, const float *token)
{
    uint64_t code = 0;

    for (uint32_t h = 0; h < l->config.hashes; h++)
        code = (code ^ corner(l, token, h)) * 0x9e3779b97f4a7c15u + h;
    return code;
}

/* The bucket of a code, a new one where there is none. */
static uint32_t bucket_of(struct sl_lsh *l, uint64_t code, uint32_t *buckets)
{
    size_t slot = (code ^ code >> 32) & (l->slots - 1);

    while (l->table[slot] != 0 && l->codes[l->table[slot] - 1] != code)
        slot = (slot + 1) & (l->slots - 1);
    if (l->table[slot] == 0) {
        l->codes[*buckets] = code;
        l->size[*buckets] = 0;
        l->table[slot] = ++*buckets;
    }
    return l->table[slot] - 1;
}

uint32_t sl_lsh_compress(struct sl_lsh *l, const float *tokens, size_t count, uint32_t *bucket,
                         float *centroids)
{
    uint32_t dim = l->config.dim, buckets = 0;

    memset(l->table, 0, l->slots * sizeof(*l->table));
    for (size_t i = 0; i < count; i++) {
        uint32_t before = buckets, b = bucket_of(l, sl_lsh_code(l, tokens + i * dim), &buckets);

        if (buckets > before)
            memset(centroids + (size_t)b * dim, 0, dim * sizeof(float));
        sl_add_scaled(centroids + (size_t)b * dim, 1, tokens + i * dim, dim);
        bucket[i] = b;
        l->size[b]++;
    }
    for (uint32_t b = 0; b < buckets; b++)
        sl_scale(centroids + (size_t)b * dim, 1 / (float)l->size[b], dim);
    return buckets;
}

void sl_lsh_restore(const struct sl_lsh *l, const uint32_t *bucket, const float *centroids,
                    const float *expert, size_t count, float *tokens)
{
    uint32_t dim = l->config.dim;

    for (size_t i = 0; i < count; i++) {
        const float *c = centroids + (size_t)bucket[i] * dim, *e = expert + (size_t)bucket[i] * dim;

        for (uint32_t j = 0; j < dim; j++)
            tokens[i * dim + j] = e[j] + (tokens[i * dim + j] - c[j]);
    }
}

/* Most centroids that any rank has for any other: blocks have room for so many. l->from: from each
 * rank to this one. */
static int agree(struct sl_lsh *l, uint32_t *block)
{
    uint32_t ranks = l->net->ranks, rank = l->net->rank;
    int err = l->net->gather(l->net->arg, l->counts, ranks * sizeof(*l->counts), l->from);

    sl_assert(ranks > 0);
    *block = 0;
    for (uint32_t i = 0; err == 0 && i < ranks * ranks; i++) {
        if (l->from[i] > l->config.tokens)
            return sl_fail(-EBADMSG, "rank %u has %u centroids for rank %u, where %zu are the most",
                           i / ranks, l->from[i], i % ranks, l->config.tokens);
        *block = l->from[i] > *block ? l->from[i] : *block;
    }
    for (uint32_t w = 0; err == 0 && w < ranks; w++)
        l->from[w] = l->from[w * ranks + rank];
    return err;
}

int sl_lsh_round(struct sl_lsh *l, float *tokens, const uint32_t *counts, sl_lsh_expert *expert,
                 void *arg, size_t *sent)
{
    size_t dim = l->config.dim, first = 0, centroids = 0, len;
    uint32_t block;
    int err;

    for (uint32_t w = 0; w < l->net->ranks; first += counts[w++]) {
        if (counts[w] > l->config.tokens - first)
            return sl_fail(-EINVAL, "there is room for %zu tokens", l->config.tokens);
        l->counts[w] = sl_lsh_compress(l, tokens + first * dim, counts[w], l->bucket + first,
                                       l->centroids + first * dim);
        centroids += l->counts[w];
    }
    err = agree(l, &block);
    if (err != 0)
        return err;
    len = block * dim * sizeof(float);
    first = 0;
    memset(l->out, 0, l->net->ranks * len);
    for (uint32_t w = 0; w < l->net->ranks; first += counts[w++])
        memcpy(l->out + w * block * dim, l->centroids + first * dim,
               l->counts[w] * dim * sizeof(float));
    err = len > 0 ? l->net->exchange(l->net->arg, l->out, len, l->in) : 0;
    for (uint32_t w = 0; err == 0 && w < l->net->ranks; w++)
        expert(arg, l->in + w * block * dim, l->from[w]);
    if (err == 0 && len > 0)
        err = l->net->exchange(l->net->arg, l->in, len, l->out);
    if (err != 0)
        return err;
    first = 0;
    for (uint32_t w = 0; w < l->net->ranks; first += counts[w++])
        sl_lsh_restore(l, l->bucket + first, l->centroids + first * dim, l->out + w * block * dim,
                       counts[w], tokens + first * dim);
    if (sent != NULL)
        *sent = centroids;
    return 0;
}
