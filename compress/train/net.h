/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What algorithms of training need of a network, handed in by the caller: over Sluice it is a call
 * each, in a test it may be ranks of one process.
 *
 * All ranks make the same calls in the same order. Each returns 0 when its result is there, or a
 * negative errno, after which the algorithm's state means nothing more.
 */
#ifndef SL_TRAIN_NET_H
#define SL_TRAIN_NET_H

#include "compress/codec.h"

struct sl_net {
    void *arg; /* of the functions */
    uint32_t rank, ranks;
    /* x[count] becomes its sum over the ranks: the same bits on all of them. */
    int (*sum)(void *arg, float *x, size_t count);
    /* len bytes of each rank; out: ranks * len, in the order of ranks. */
    int (*gather)(void *arg, const void *in, size_t len, void *out);
    /* Block w of len bytes goes to rank w; block w of out came from rank w. */
    int (*exchange)(void *arg, const void *in, size_t len, void *out);
};

/*
 * The caller's memory, cut into pieces. An algorithm lays its pieces out twice, by one function:
 * with memory NULL, to say how many bytes it wants, and then for good.
 */
struct sl_room {
    char *memory; /* aligned to 16; NULL: only counted */
    size_t used;
};

static inline void *sl_room_take(struct sl_room *room, size_t len)
{
    void *piece = room->memory != NULL ? room->memory + room->used : NULL;

    room->used += (len + 15) & ~(size_t)15;
    return piece;
}

static inline float *sl_room_floats(struct sl_room *room, size_t count)
{
    return sl_room_take(room, count * sizeof(float));
}

/* x *= by */
static inline void sl_scale(float *x, float by, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= by;
}

/* y += by * x */
static inline void sl_add_scaled(float *y, float by, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += by * x[i];
}

/* x = its mean over the ranks: the sum, by the nearest 1 / ranks. */
static inline int sl_net_mean(const struct sl_net *net, float *x, size_t count)
{
    int err = net->sum(net->arg, x, count);

    if (err == 0)
        sl_scale(x, 1 / (float)net->ranks, count);
    return err;
}

#endif
