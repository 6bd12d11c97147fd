/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averaging of what ranks reach by many steps of their own: fewer messages, and messages that
 * travel while the ranks go on. Between begin and end lies an all-reduce (average) of the fragment,
 * which is the caller's: encoded or not, waited for or under way for some steps.
 *
 *   begin: delta = anchor - theta           what this rank has moved, as a gradient
 *   (all-reduce of delta to its mean)
 *   end:   d = delta / penalty;  u = clip(momentum * u + d)
 *          anchor -= rate * (nesterov: d + momentum * u, or u)
 *          theta moves to the anchor, as the kind says
 *
 * - DiLoCo: begin and end in one place, each interval steps, of all elements; theta = anchor.
 * - Streaming DiLoCo: fragments take turns, end comes delay steps after begin, and theta becomes a
 *   mix of both: mix * theta + (1 - mix) * anchor, so that the steps since begin are not lost.
 * - CO2: one interval of delay: begin of round r, then end with the mean of round r - 1. theta gets
 *   the anchor's move and keeps its own steps since begin. As the mean is out of date, it counts
 *   less (penalty), and no element of u becomes larger than clip. Its authors' program has a
 *   constant penalty, as here; the caller may change config.penalty between ends.
 *
 * Source: A. Douillard et al., "DiLoCo: distributed low-communication training of language models",
 * 2023; A. Douillard et al., "Streaming DiLoCo with overlapping communication", 2025; W. Sun et
 * al., "CO2: efficient distributed training with full communication-computation overlap", ICLR
 * 2024.
 */
#ifndef SL_TRAIN_OUTER_H
#define SL_TRAIN_OUTER_H

#include "compress/state.h"
#include "compress/train/net.h"

struct sl_outer_config {
    size_t count;
    float rate, momentum; /* 0.7 and 0.9; 1 and 0: plain averages */
    bool nesterov;
    float penalty, clip;      /* CO2; 0: none */
    float mix;                /* of theta, with the anchor: 0 DiLoCo, 0.5 streaming */
    bool keep_steps;          /* what theta did since begin is added to the anchor (CO2) */
    uint32_t interval, delay; /* steps from turn to turn of a fragment, and from begin to end */
    uint32_t fragments;       /* that take turns, of elements one after the other */
};

struct sl_outer {
    struct sl_outer_config config;
    float *anchor, *u; /* the same on all ranks */
    float *delta;      /* between begin and end: the caller's to reduce */
    float *start;      /* theta at begin, with keep_steps */
    uint32_t *pending; /* of each fragment: between begin and end */
};

/* -EINVAL: fragments that take turns in fewer steps than there are, or a delay beyond interval. */
int sl_outer_size(const struct sl_outer_config *config, size_t *size);
/* theta: what all ranks start with. memory: lent, aligned to 16. */
void sl_outer_init(struct sl_outer *o, const struct sl_outer_config *config, const float *theta,
                   void *memory);

/* Elements of a fragment. */
size_t sl_outer_fragment(const struct sl_outer *o, uint32_t fragment, size_t *first);

/* The fragment that begins, or ends, after inner step number step (from 0 on), or -1. Of both after
 * one step, the end comes first, but where delay is 0. */
int sl_outer_begins(const struct sl_outer *o, uint32_t step);
int sl_outer_ends(const struct sl_outer *o, uint32_t step);

/* delta of the fragment, at o->delta + first; theta is whole. */
void sl_outer_begin(struct sl_outer *o, uint32_t fragment, const float *theta);
/* o->delta + first is the mean now. */
void sl_outer_end(struct sl_outer *o, uint32_t fragment, float *theta);

/* Between steps, with what is pending. theta is the caller's to save. */
size_t sl_outer_state(const struct sl_outer *o, uint64_t id, struct sl_state_part parts[5]);

/* Makes elements first to first + count - 1, at x, their mean over the ranks. */
typedef int sl_outer_mean(void *arg, float *x, size_t first, size_t count);

/* All of the above after inner step number step, with a mean that is waited for; with delay, what
 * it gives is applied later. Returns 0 or what mean returned. */
int sl_outer_step(struct sl_outer *o, sl_outer_mean *mean, void *arg, uint32_t step, float *theta);

/* The mean as it is, of a struct sl_net. */
int sl_outer_mean_plain(void *net, float *x, size_t first, size_t count);

#endif
