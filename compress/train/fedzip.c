/* SPDX-License-Identifier: Apache-2.0 */
/* FedZip. A message: the bytes of each layer as u32, zeros up to 16, then the layers' messages,
 * each with zeros up to 16. */
#include "compress/codecs.h"
#include "compress/train/fedzip.h"
#include "core/err.h"

#include <errno.h>
#include <string.h>

static size_t head_of(const struct sl_fedzip_config *config)
{
    return sl_codec_round16(config->layer_count * sizeof(uint32_t));
}

static void lay(struct sl_fedzip *f, const struct sl_fedzip_config *config,
                const struct sl_net *net, struct sl_room *room)
{
    const struct sl_codec *codec = sl_codec_by_id(config->spec.id);
    size_t most = head_of(config);

    *f = (struct sl_fedzip){.config = *config, .net = net};
    for (uint32_t i = 0; i < config->layer_count; i++)
        most += sl_codec_round16(codec->size(&config->spec, config->layers[i]));
    sl_messages_lay(&f->messages, net, most, room);
}

int sl_fedzip_size(const struct sl_fedzip_config *config, const struct sl_net *net, size_t *size)
{
    struct sl_room room = {0};
    struct sl_fedzip f;
    int err = sl_codec_check(&config->spec);

    for (uint32_t i = 0; err == 0 && i < config->layer_count; i++)
        if (sl_codec_by_id(config->spec.id)->size(&config->spec, config->layers[i]) > UINT32_MAX)
            err = sl_fail(-EINVAL, "layer %u has more elements than a message can have", i);
    if (err != 0)
        return err;
    lay(&f, config, net, &room);
    *size = room.used;
    return 0;
}

void sl_fedzip_init(struct sl_fedzip *f, const struct sl_fedzip_config *config,
                    const struct sl_net *net, void *memory)
{
    struct sl_room room = {.memory = memory};

    lay(f, config, net, &room);
    memset(memory, 0, room.used);
}

static size_t encode(struct sl_fedzip *f, const float *change)
{
    const struct sl_codec_spec *spec = &f->config.spec;
    size_t len = head_of(&f->config);

    memset(f->messages.own, 0, f->messages.most);
    for (uint32_t i = 0; i < f->config.layer_count; i++) {
        struct sl_codec_at at = sl_train_at(spec, f->net->rank, f->step, 0);
        uint32_t n = (uint32_t)sl_codec_by_id(spec->id)->encode(
            spec, &at, change, f->config.layers[i], f->messages.own + len);

        memcpy(f->messages.own + i * sizeof(n), &n, sizeof(n));
        len += sl_codec_round16(n);
        change += f->config.layers[i];
    }
    return len;
}

/* out += the message of one rank. */
static int decode(const struct sl_fedzip *f, uint32_t rank, float *out)
{
    const char *message = sl_messages_of(&f->messages, rank);
    const struct sl_codec_spec *spec = &f->config.spec;
    size_t at_byte = head_of(&f->config), len = f->messages.lens[rank];
    int err = 0;

    if (len < at_byte)
        return sl_fail(-EBADMSG, "rank %u has sent %zu bytes, which do not say where layers are",
                       rank, len);
    for (uint32_t i = 0; err == 0 && i < f->config.layer_count; i++) {
        struct sl_codec_at at = sl_train_at(spec, rank, f->step, 0);
        uint32_t n;

        memcpy(&n, message + i * sizeof(n), sizeof(n));
        if (n > len - at_byte)
            return sl_fail(-EBADMSG, "layer %u of rank %u has %u bytes, where %zu are left", i,
                           rank, n, len - at_byte);
        err = sl_codec_by_id(spec->id)->decode_add(spec, &at, message + at_byte, n,
                                                   f->config.layers[i], out);
        at_byte += sl_codec_round16(n);
        if (err == 0 && at_byte > len)
            err = sl_fail(-EBADMSG, "layer %u of rank %u ends past its message", i, rank);
        out += f->config.layers[i];
    }
    return err;
}

int sl_fedzip_mean(struct sl_fedzip *f, const float *change, float *out)
{
    size_t count = 0;
    int err;

    for (uint32_t i = 0; i < f->config.layer_count; i++)
        count += f->config.layers[i];
    f->sent = encode(f, change);
    err = sl_messages_gather(&f->messages, f->sent);
    memset(out, 0, count * sizeof(*out));
    for (uint32_t w = 0; err == 0 && w < f->net->ranks; w++)
        err = decode(f, w, out);
    if (err == 0)
        sl_scale(out, 1 / (float)f->net->ranks, count);
    f->step++;
    return err;
}
