/* SPDX-License-Identifier: Apache-2.0 */
/* Palette-3: exponents of floats in three bits, and what does not fit beside them. */
#include "compress/palette.h"

#include "compress/codecs.h"
#include "core/err.h"

#include <string.h>

/* More escapes than one of so many elements, and a palette may do better than windows. */
#define PALETTE_TRIED 16
#define PALETTE_SAMPLE 16 /* every 16th exponent is counted */

struct head {
    uint8_t bytes[8]; /* bases or palette */
    uint16_t escapes;
    uint8_t mode;
    uint8_t zero[5];
};
_Static_assert(sizeof(struct head) == SL_PALETTE_HEAD, "it is on the wire");

/* A tile on its way, small enough for the first-level cache. */
struct scratch {
    uint8_t exponents[SL_TILE + 64] __attribute__((aligned(64))); /* and one more: put() */
    uint64_t planes[SL_PALETTE_WORDS] __attribute__((aligned(64)));
    uint64_t other[SL_PALETTE_WORDS] __attribute__((aligned(64))); /* by the palette */
    uint8_t escapes[SL_TILE + 64];
    char tile[SL_TILE * 4] __attribute__((aligned(64))); /* the last one, made whole */
};

static size_t size(const struct sl_codec_spec *spec, size_t count)
{
    return sl_lossless_raw_bytes(spec->dtype, count) + sl_lossless_tiles(count) * SL_PALETTE_HEAD +
           sl_lossless_round(count);
}

/* ---- encoding ---- */

/* The seven most frequent of a sample, the smaller of equals first. */
static void choose_palette(const uint8_t *exponents, size_t n, uint8_t palette[SL_PALETTE_CODES])
{
    uint16_t counts[256] = {0};
    uint8_t seen[256];
    unsigned kinds = 0;

    for (size_t i = 0; i < n; i += PALETTE_SAMPLE)
        if (counts[exponents[i]]++ == 0)
            seen[kinds++] = exponents[i];
    for (unsigned k = 0; k < SL_PALETTE_CODES; k++) {
        uint32_t best = 0; /* how often, above how small */

        for (unsigned i = 0; i < kinds; i++) {
            uint32_t rank = (uint32_t)counts[seen[i]] << 8 | (255u - seen[i]);

            best = rank > best ? rank : best;
        }
        palette[k] = best >> 8 != 0 ? (uint8_t)(255 - (best & 255)) : palette[0];
        counts[palette[k]] = 0;
    }
}

/* The body of a tile whose exponents are in scratch. Returns its bytes. */
static size_t encode_body(const struct sl_lossless_path *path, struct scratch *s, size_t n,
                          struct head *head, uint8_t *body)
{
    const uint64_t *planes = s->planes;
    size_t escapes = path->window(s->exponents, n, head->bytes, s->planes);

    if (escapes > n / PALETTE_TRIED) {
        uint8_t palette[8] = {0};
        size_t others;

        choose_palette(s->exponents, n, palette);
        others = path->match(s->exponents, n, palette, s->other);
        if (others < escapes) {
            escapes = others;
            planes = s->other;
            head->mode = SL_PALETTE_TABLE;
            memcpy(head->bytes, palette, sizeof(palette));
        }
    }
    if (3 * (n / 8) + escapes >= n) {
        *head = (struct head){.mode = SL_PALETTE_STORED};
        memcpy(body, s->exponents, n);
        return n;
    }
    head->escapes = (uint16_t)escapes;
    path->take(s->exponents, planes, n, s->escapes);
    memcpy(body, planes, 3 * (n / 8));
    memcpy(body + 3 * (n / 8), s->escapes, escapes);
    return 3 * (n / 8) + escapes;
}

size_t sl_palette_encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                            const void *in, size_t count, void *out)
{
    uint8_t *raw = out, *heads = raw + sl_lossless_raw_bytes(spec->dtype, count);
    uint8_t *body = heads + sl_lossless_tiles(count) * SL_PALETTE_HEAD;
    bool stream = count * sl_lossless_width(spec->dtype) >= SL_LOSSLESS_STREAM_BYTES;
    struct scratch s;

    for (size_t first = 0; first < count; first += SL_TILE) {
        size_t wanted = count - first < SL_TILE ? count - first : SL_TILE, n;
        const void *tile = sl_lossless_tile(spec->dtype, in, first, wanted, s.tile, &n);
        struct head head = {0};

        path->split(spec->dtype, tile, n, raw, s.exponents, stream);
        raw += sl_lossless_raw_bytes(spec->dtype, n);
        body += encode_body(path, &s, n, &head, body);
        memcpy(heads, &head, sizeof(head));
        heads += sizeof(head);
    }
    if (stream)
        path->fence();
    return (size_t)(body - (uint8_t *)out);
}

/* ---- decoding ---- */

/* The exponents of a tile of n elements, from a body of at most len bytes. *used: its bytes. */
static int decode_body(const struct sl_lossless_path *path, const struct head *head,
                       const uint8_t *body, size_t len, size_t n, uint8_t *exponents, size_t *used)
{
    uint8_t tables[SL_PALETTE_BLOCKS][8];
    size_t asked;

    if (head->mode > SL_PALETTE_STORED)
        return sl_fail(-EBADMSG, "a palette tile has mode %u, which is none", head->mode);
    *used = head->mode == SL_PALETTE_STORED ? n : 3 * (n / 8) + head->escapes;
    if (*used > len)
        return sl_fail(-EBADMSG, "a palette tile has %zu bytes, but %zu are left", *used, len);
    if (head->mode == SL_PALETTE_STORED) {
        memcpy(exponents, body, n);
        return 0;
    }
    for (unsigned b = 0; b < SL_PALETTE_BLOCKS; b++)
        for (unsigned c = 0; c < 8; c++)
            tables[b][c] =
                head->mode == SL_PALETTE_TABLE ? head->bytes[c] : (uint8_t)(head->bytes[b] - c);
    path->expand(body, n, (const uint8_t(*)[8])tables, exponents);
    asked = path->put(exponents, body, n, body + 3 * (n / 8), head->escapes);
    if (asked != head->escapes)
        return sl_fail(-EBADMSG, "a palette tile has %u escapes, but %zu codes of one",
                       head->escapes, asked);
    return 0;
}

/* Where the parts of a message lie, and how far it is decoded. */
struct reader {
    const uint8_t *raw, *heads, *body, *end;
    size_t first, count;
};

static int reader_begin(const struct sl_codec_spec *spec, const void *in, size_t len, size_t count,
                        struct reader *out)
{
    size_t raw = sl_lossless_raw_bytes(spec->dtype, count);
    size_t least = raw + sl_lossless_tiles(count) * SL_PALETTE_HEAD;

    if (len < least)
        return sl_fail(-EBADMSG, "a palette message of %zu elements has %zu bytes, not %zu or more",
                       count, len, least);
    *out = (struct reader){.raw = in, .count = count};
    out->heads = out->raw + raw;
    out->body = out->raw + least;
    out->end = out->raw + len;
    return 0;
}

/* The next tile. *n: its elements; the exponents are those of as many, rounded up. */
static int read_exponents(const struct sl_lossless_path *path, struct reader *r, size_t *n,
                          uint8_t *exponents)
{
    struct head head;
    size_t used = 0;
    int err;

    *n = r->count - r->first < SL_TILE ? r->count - r->first : SL_TILE;
    memcpy(&head, r->heads, sizeof(head));
    err = decode_body(path, &head, r->body, (size_t)(r->end - r->body), sl_lossless_round(*n),
                      exponents, &used);
    if (err != 0)
        return err;
    r->heads += sizeof(head);
    r->body += used;
    r->first += *n;
    return 0;
}

static int reader_end(const struct reader *r)
{
    if (r->body == r->end)
        return 0;
    return sl_fail(-EBADMSG, "a palette message has %zu bytes too many",
                   (size_t)(r->end - r->body));
}

int sl_palette_decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                         const void *in, size_t len, size_t count, void *out)
{
    size_t width = sl_lossless_width(spec->dtype), n;
    bool stream = count * width >= SL_LOSSLESS_STREAM_BYTES;
    struct scratch s;
    struct reader r = {0};
    char *to = out;
    int err = reader_begin(spec, in, len, count, &r);

    while (err == 0 && r.first < count) {
        err = read_exponents(path, &r, &n, s.exponents);
        if (err != 0)
            break;
        bool whole = n % SL_GROUP == 0;

        path->join(spec->dtype, r.raw, s.exponents, sl_lossless_round(n), whole ? to : s.tile,
                   stream && whole);
        if (!whole)
            memcpy(to, s.tile, n * width);
        r.raw += sl_lossless_raw_bytes(spec->dtype, n);
        to += n * width;
    }
    if (stream)
        path->fence();
    return err != 0 ? err : reader_end(&r);
}

/* ---- the row ---- */

static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t count, void *out)
{
    (void)at;
    return sl_palette_encode_by(sl_lossless_path(), spec, in, count, out);
}

static int decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                  size_t len, size_t count, void *out)
{
    (void)at;
    return sl_palette_decode_by(sl_lossless_path(), spec, in, len, count, out);
}

static int decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, float *sum)
{
    const struct sl_lossless_path *path = sl_lossless_path();
    struct scratch s;
    struct reader r = {0};
    size_t n;
    int err = reader_begin(spec, in, len, count, &r);

    (void)at;
    while (err == 0 && r.first < count) {
        float *to = sum + r.first;

        err = read_exponents(path, &r, &n, s.exponents);
        if (err != 0)
            break;
        path->join(spec->dtype, r.raw, s.exponents, sl_lossless_round(n), s.tile, false);
        sl_lossless_add(spec->dtype, s.tile, n, to);
        r.raw += sl_lossless_raw_bytes(spec->dtype, n);
    }
    return err != 0 ? err : reader_end(&r);
}

const struct sl_codec sl_codec_palette = {
    .name = "palette",
    .help = "lossless: exponents in 3 bits, at memory speed",
    .id = SL_CODEC_PALETTE,
    .flags = SL_CODEC_LOSSLESS,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
