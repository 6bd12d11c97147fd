/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of all ranks to all ranks, of any length: an encoding each, which everybody decodes and
 * adds in the order of ranks, so that all have the same bits. What a rank receives grows with their
 * number: for few ranks, or for messages that are small beside the elements (top-k).
 */
#ifndef SL_TRAIN_MESSAGES_H
#define SL_TRAIN_MESSAGES_H

#include "compress/train/net.h"

struct sl_messages {
    const struct sl_net *net;
    size_t most;    /* bytes of a message */
    size_t stride;  /* from one to the next in all, after sl_messages_gather() */
    char *own;      /* most bytes: to be filled by the caller */
    char *all;      /* ranks messages */
    uint64_t *lens; /* of each */
};

void sl_messages_lay(struct sl_messages *m, const struct sl_net *net, size_t most,
                     struct sl_room *room);

/* len bytes of own go to everybody. -EBADMSG: a rank says that it has more than there can be. */
int sl_messages_gather(struct sl_messages *m, size_t len);

static inline const char *sl_messages_of(const struct sl_messages *m, uint32_t rank)
{
    return m->all + rank * m->stride;
}

/* out = the mean of what the messages decode to; they were encoded at sl_train_at(). */
int sl_messages_mean(const struct sl_messages *m, const struct sl_codec_spec *spec, uint32_t step,
                     size_t count, float *out);

/* Where rank's random numbers are: ranks differ, but where encodings are to be added. */
struct sl_codec_at sl_train_at(const struct sl_codec_spec *spec, uint32_t rank, uint32_t step,
                               size_t first);

#endif
