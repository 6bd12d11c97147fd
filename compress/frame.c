/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: a header before an encoded message. */
#include "compress/frame.h"

#include "compress/padding.h"
#include "core/crc.h"
#include "core/err.h"

#include <assert.h>
#include <string.h>

#define TILE_LOG2 12
#define RAW 1 /* flags */
#define SPEC_SHIFT 1
#define SPEC_FLAGS (SL_SPEC_STOCHASTIC | SL_SPEC_ROTATED)
#define KNOWN_FLAGS (RAW | SPEC_FLAGS << SPEC_SHIFT)

static_assert(SL_TILE == 1 << TILE_LOG2, "frames say how large tiles are");

/* As it lies in memory: no padding. */
struct head {
    uint32_t magic;
    uint8_t version, id, dtype, flags;
    uint64_t count, payload;
    uint8_t bits, tile_log2;
    uint16_t row;
    uint32_t k;
    uint64_t seed;
    uint32_t stream, step, tile, rows, ranks, crc;
};

static_assert(sizeof(struct head) == SL_FRAME_HEAD, "the header of a frame");
static_assert(offsetof(struct head, crc) == SL_FRAME_HEAD - 4, "the checksum is last");

static uint32_t crc_of(const struct head *head, const void *payload)
{
    uint32_t crc = sl_crc32c(0, head, offsetof(struct head, crc));

    return sl_crc32c(crc, payload, head->payload);
}

static size_t raw_len(uint8_t dtype, size_t count)
{
    return count * sluice_dtype_size((enum sluice_dtype)dtype);
}

/* What of fixed size would not shrink is not encoded at all. */
static bool stays_raw(const struct sl_codec_spec *spec, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);

    return (codec->flags & SL_CODEC_FIXED) != 0 &&
           codec->size(spec, count) >= raw_len(spec->dtype, count);
}

size_t sl_frame_bound(const struct sl_codec_spec *spec, size_t count)
{
    const struct sl_codec *codec = sl_codec_by_id(spec->id);
    size_t raw = raw_len(spec->dtype, count), size = codec->size(spec, count);

    if ((codec->flags & SL_CODEC_FIXED) != 0)
        return SL_FRAME_HEAD + (size < raw ? size : raw);
    return SL_FRAME_HEAD + (size > raw ? size : raw);
}

size_t sl_frame_write(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t count, void *out)
{
    size_t raw = raw_len(spec->dtype, count);
    uint8_t *payload = (uint8_t *)out + SL_FRAME_HEAD;
    bool stays = stays_raw(spec, count);
    struct head head = {
        .magic = SL_FRAME_MAGIC,
        .version = SL_FRAME_VERSION,
        .id = spec->id,
        .dtype = spec->dtype,
        .flags = (uint8_t)(spec->flags << SPEC_SHIFT),
        .count = count,
        .bits = spec->bits,
        .tile_log2 = TILE_LOG2,
        .row = spec->row,
        .k = spec->k,
        .seed = spec->seed,
        .stream = at->stream,
        .step = at->step,
        .tile = (uint32_t)(at->first / SL_TILE),
        .rows = spec->rows,
        .ranks = spec->ranks,
    };

    /* Rows, which may begin elsewhere, have no use for it. */
    sl_assert((spec->row != 0 || at->first % SL_TILE == 0) && at->first / SL_TILE <= UINT32_MAX);
    if (!stays) {
        head.payload = sl_codec_by_id(spec->id)->encode(spec, at, in, count, payload);
        stays = head.payload >= raw;
    }
    if (stays) {
        head.flags |= RAW;
        head.payload = raw;
        if (raw > 0)
            memcpy(payload, in, raw);
    }
    head.crc = crc_of(&head, payload);
    memcpy(out, &head, sizeof(head));
    return SL_FRAME_HEAD + head.payload;
}

/* What a header says before the checksum can be looked at. */
static int check_start(const struct head *head, size_t len)
{
    if (len < SL_FRAME_HEAD)
        return sl_fail(-EBADMSG, "a frame has at least %d bytes, not %zu", SL_FRAME_HEAD, len);
    if (head->magic != SL_FRAME_MAGIC)
        return sl_fail(-EBADMSG, "this is no frame: it starts with 0x%08x, not 0x%08x", head->magic,
                       SL_FRAME_MAGIC);
    if (head->version != SL_FRAME_VERSION)
        return sl_fail(-EBADMSG, "the frame is of version %u, and this Sluice reads version %d",
                       head->version, SL_FRAME_VERSION);
    if (head->payload > len - SL_FRAME_HEAD)
        return sl_fail(-EBADMSG, "the frame is cut off: %zu bytes of a payload of %llu",
                       len - SL_FRAME_HEAD, (unsigned long long)head->payload);
    return 0;
}

/* Of a payload that is as it was sent. */
static int check_fields(const struct head *head)
{
    if ((head->flags & ~KNOWN_FLAGS) != 0)
        return sl_fail(-EBADMSG, "the frame uses flags that version %d has reserved: 0x%02x",
                       SL_FRAME_VERSION, head->flags);
    if (head->rows > UINT16_MAX)
        return sl_fail(-EBADMSG, "the frame is of a sketch of %u rows, and none has as many",
                       head->rows);
    if (head->tile_log2 != TILE_LOG2)
        return sl_fail(-EBADMSG, "the frame has tiles of 2^%u elements, and this Sluice 2^%d",
                       head->tile_log2, TILE_LOG2);
    if (head->count > SL_CODEC_COUNT_MOST)
        return sl_fail(-EBADMSG, "the frame has more elements than can be: %llu",
                       (unsigned long long)head->count);
    return 0;
}

static int check_payload(const struct sl_frame *frame)
{
    const struct sl_codec *codec = sl_codec_by_id(frame->spec.id);
    size_t most = frame->raw ? raw_len(frame->spec.dtype, frame->count)
                             : codec->size(&frame->spec, frame->count);
    bool exact = frame->raw || (codec->flags & SL_CODEC_FIXED) != 0;

    if (exact ? frame->payload != most : frame->payload > most)
        return sl_fail(-EBADMSG,
                       "the frame has %llu bytes for %llu elements, which as %s take %s%zu",
                       (unsigned long long)frame->payload, (unsigned long long)frame->count,
                       frame->raw ? "they are" : codec->name, exact ? "" : "at most ", most);
    return 0;
}

int sl_frame_read(const void *bytes, size_t len, struct sl_frame *out)
{
    struct head head = {0};
    struct sl_frame frame;
    uint32_t crc;
    int err;

    memcpy(&head, bytes, len < sizeof(head) ? len : sizeof(head));
    err = check_start(&head, len);
    if (err != 0)
        return err;
    crc = crc_of(&head, (const uint8_t *)bytes + SL_FRAME_HEAD);
    if (crc != head.crc)
        return sl_fail(-EBADMSG, "the frame was damaged: its CRC-32C is 0x%08x, not 0x%08x", crc,
                       head.crc);
    err = check_fields(&head);
    if (err != 0)
        return err;
    frame = (struct sl_frame){
        .spec = {.id = head.id,
                 .dtype = head.dtype,
                 .flags = (head.flags >> SPEC_SHIFT) & SPEC_FLAGS,
                 .bits = head.bits,
                 .k = head.k,
                 .rows = (uint16_t)head.rows,
                 .row = head.row,
                 .ranks = head.ranks,
                 .seed = head.seed},
        .at = {(uint64_t)head.tile * SL_TILE, head.stream, head.step},
        .count = head.count,
        .payload = head.payload,
        .raw = (head.flags & RAW) != 0,
    };
    if (sl_codec_check(&frame.spec) != 0)
        return sl_fail(-EBADMSG, "the frame is of what cannot be: %s", sluice_last_error());
    err = check_payload(&frame);
    if (err == 0 && !frame.raw)
        err = sl_codec_check_padding(&frame.spec, (const uint8_t *)bytes + SL_FRAME_HEAD,
                                     frame.count);
    if (err == 0)
        *out = frame;
    return err;
}

int sl_frame_decode(const struct sl_frame *frame, const void *bytes, void *out)
{
    const uint8_t *payload = (const uint8_t *)bytes + SL_FRAME_HEAD;

    if (!frame->raw)
        return sl_codec_by_id(frame->spec.id)
            ->decode(&frame->spec, &frame->at, payload, frame->payload, frame->count, out);
    if (frame->payload > 0)
        memcpy(out, payload, frame->payload);
    return 0;
}
