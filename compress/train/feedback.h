/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mean over ranks of what a codec makes of their elements, with error feedback: what an
 * encoding lacks is kept, and added to the next one's elements.
 *
 * Each rank owns a shard of whole tiles: it gets the encodings of this shard from all ranks, adds
 * them in the order of ranks, and its encoding of the mean goes to all, itself included. One-sided:
 * ranks keep residuals of their own elements. Two-sided: owners keep one of the shard, too.
 *
 * sl_efsign is that with the codec "sign", of learning rate times gradient: EF-signSGD. sl_econtrol
 * has, in the place of the residual alone, an estimate h of the gradient that ranks and owner both
 * follow, and adds a part eta of the residual: one message carries both, and ranks whose data
 * differ do not drift apart.
 *
 * Source: F. Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
 * distributed training of speech DNNs", Interspeech 2014 (residuals); S. P. Karimireddy et al.,
 * "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019 (EF-signSGD); H.
 * Tang et al., "DoubleSqueeze", ICML 2019 (both sides); Y. Gao, R. Islamov, S. Stich, "EControl:
 * fast distributed optimization with compression and error control", ICLR 2024.
 */
#ifndef SL_TRAIN_FEEDBACK_H
#define SL_TRAIN_FEEDBACK_H

#include "compress/state.h"
#include "compress/train/messages.h"

enum sl_feedback_sides {
    SL_FEEDBACK_NONE = 0,
    SL_FEEDBACK_ONE_SIDED = 1,
    SL_FEEDBACK_TWO_SIDED = 2
};

/* up: of ranks' elements, down: of the owners' means; both SL_CODEC_FIXED, of f32. */
struct sl_feedback_config {
    struct sl_codec_spec up, down;
    enum sl_feedback_sides sides;
    size_t count;
};

struct sl_feedback {
    struct sl_feedback_config config;
    const struct sl_net *net;
    uint32_t step;
    size_t shard;    /* elements of each but the last ones */
    float *residual; /* of count elements, what the encodings lack so far; NULL: not kept */
    float *owner;    /* of this rank's shard */
    float *sum;
    char *out, *in, *own, *all;
    size_t up_len, down_len; /* of a whole shard */
};

/* Bytes of memory for sl_feedback_init(); -EINVAL: not with this codec. */
int sl_feedback_size(const struct sl_feedback_config *config, const struct sl_net *net,
                     size_t *size);
/* memory: lent as long as f is used, aligned to 16. net: likewise. All residuals are 0. */
void sl_feedback_init(struct sl_feedback *f, const struct sl_feedback_config *config,
                      const struct sl_net *net, void *memory);

/* out = about the mean of in over the ranks, the same bits on all. out may be in. */
int sl_feedback_mean(struct sl_feedback *f, const float *in, float *out);

/* For sl_state_save() and _load(): returns how many parts there are, 2 at most. The step number is
 * the saver's to keep. id: of these elements. */
size_t sl_feedback_state(const struct sl_feedback *f, uint64_t id, struct sl_state_part parts[2]);

/* theta -= the mean of sign encodings of rate * gradient, and of residuals. f: with codec "sign".
 * update: count floats of scratch. */
int sl_efsign_step(struct sl_feedback *f, float rate, const float *gradient, float *theta,
                   float *update);

struct sl_econtrol_config {
    struct sl_codec_spec spec; /* any codec of f32 */
    size_t count;
    float eta; /* 0.1, say; 0: no feedback (EF21) */
};

struct sl_econtrol {
    struct sl_econtrol_config config;
    const struct sl_net *net;
    uint32_t step;
    float *residual, *h; /* this rank's */
    float *mean;         /* that of all ranks' h, by their messages */
    float *delta;
    struct sl_messages messages;
};

int sl_econtrol_size(const struct sl_econtrol_config *config, const struct sl_net *net,
                     size_t *size);
void sl_econtrol_init(struct sl_econtrol *e, const struct sl_econtrol_config *config,
                      const struct sl_net *net, void *memory);

/* out = the estimate of the mean gradient: the same bits on all ranks. */
int sl_econtrol_step(struct sl_econtrol *e, const float *gradient, float *out);
size_t sl_econtrol_state(const struct sl_econtrol *e, uint64_t id, struct sl_state_part parts[3]);

#endif
