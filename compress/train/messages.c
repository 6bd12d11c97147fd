/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of all ranks to all ranks, in two gathers: of lengths, then of as many bytes as the
 * longest has. */
#include "compress/train/messages.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

void sl_messages_lay(struct sl_messages *m, const struct sl_net *net, size_t most,
                     struct sl_room *room)
{
    m->net = net;
    m->most = (most + 15) & ~(size_t)15;
    m->stride = m->most;
    m->own = sl_room_take(room, m->most);
    m->all = sl_room_take(room, m->most * net->ranks);
    m->lens = sl_room_take(room, sizeof(*m->lens) * net->ranks);
}

int sl_messages_gather(struct sl_messages *m, size_t len)
{
    uint64_t mine = len, longest = 0;
    int err = m->net->gather(m->net->arg, &mine, sizeof(mine), m->lens);

    for (uint32_t w = 0; err == 0 && w < m->net->ranks; w++) {
        if (m->lens[w] > m->most)
            err = sl_fail(-EBADMSG, "rank %u has a message of %llu bytes, where %zu is the most", w,
                          (unsigned long long)m->lens[w], m->most);
        longest = m->lens[w] > longest ? m->lens[w] : longest;
    }
    if (err != 0)
        return err;
    m->stride = (longest + 15) & ~(size_t)15;
    /* No rank's old bytes go over the wire. */
    memset(m->own + len, 0, m->stride - len);
    return m->stride == 0 ? 0 : m->net->gather(m->net->arg, m->own, m->stride, m->all);
}

struct sl_codec_at sl_train_at(const struct sl_codec_spec *spec, uint32_t rank, uint32_t step,
                               size_t first)
{
    bool alike = (sl_codec_by_id(spec->id)->flags & SL_CODEC_LINEAR) != 0;

    return (struct sl_codec_at){.first = first, .stream = alike ? 0 : rank, .step = step};
}

int sl_messages_mean(const struct sl_messages *m, const struct sl_codec_spec *spec, uint32_t step,
                     size_t count, float *out)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    int err = 0;

    memset(out, 0, count * sizeof(*out));
    for (uint32_t w = 0; err == 0 && w < m->net->ranks; w++) {
        struct sl_codec_at from = sl_train_at(spec, w, step, 0);

        err = codec->decode_add(spec, &from, sl_messages_of(m, w), m->lens[w], count, out);
    }
    if (err == 0)
        sl_scale(out, 1 / (float)m->net->ranks, count);
    return err;
}
