/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rANS of the exponents of floats: the message around the blocks.
 *
 *     raw plane     sl_lossless_raw_bytes(), see lossless.h
 *     head of 16    u8: 1 where tables follow, 0: the receiver has one; 15 bytes of zero
 *     S tables      struct sl_rans_table, one for each SL_RANS_SEGMENT elements
 *     B x 4         of each block u16 words, u16 escapes; words = 0xffff: it is stored
 *     B bodies      words (u16), 32 states (u32), escapes; or its exponents
 *
 * A block has SL_RANS_BLOCK elements; the last one what is left, rounded up to SL_GROUP.
 */
#include "compress/rans.h"

#include "compress/codecs.h"
#include "compress/lossless.h"
#include "compress/rans_by.h"
#include "core/err.h"

#include <string.h>

#define HEAD 16
#define TABLE sizeof(struct sl_rans_table)
#define ENTRY 4
#define STORED 0xffff
#define STATES (4 * SL_RANS_LANES)
#define AT_ONCE 4 /* blocks that a decoder has in hand */
_Static_assert(SL_RANS_SEGMENT % (AT_ONCE * SL_RANS_BLOCK) == 0, "they have one table");

static size_t block_count(size_t count)
{
    return (count + SL_RANS_BLOCK - 1) / SL_RANS_BLOCK;
}

static size_t segment_count(size_t count)
{
    return (count + SL_RANS_SEGMENT - 1) / SL_RANS_SEGMENT;
}

static size_t size(const struct sl_codec_spec *spec, size_t count)
{
    return count == 0
               ? 0
               : sl_lossless_raw_bytes(spec->dtype, count) + HEAD + segment_count(count) * TABLE +
                     block_count(count) * ENTRY + sl_lossless_round(count);
}

/* ---- encoding ---- */

struct scratch {
    uint8_t exponents[SL_RANS_BLOCK] __attribute__((aligned(64)));
    uint16_t words[SL_RANS_BLOCK + 32] __attribute__((aligned(64)));
    uint8_t escapes[SL_RANS_BLOCK + 64];
    uint32_t states[SL_RANS_LANES] __attribute__((aligned(64)));
    char tile[SL_TILE * 4] __attribute__((aligned(64)));
};

/* The body of a block whose exponents are in scratch. Returns its bytes. */
static size_t encode_block(const struct sl_lossless_path *path, const struct sl_rans_table *table,
                           struct scratch *s, size_t n, uint8_t entry[ENTRY], uint8_t *body)
{
    struct sl_rans_coded coded =
        path->rans_encode(table, s->exponents, n, s->words, s->states, s->escapes);
    size_t words = 2 * (size_t)coded.words;
    uint16_t counts[2] = {(uint16_t)coded.words, (uint16_t)coded.escapes};

    if (words + STATES + coded.escapes >= n) {
        counts[0] = STORED;
        counts[1] = 0;
        memcpy(entry, counts, ENTRY);
        memcpy(body, s->exponents, n);
        return n;
    }
    memcpy(entry, counts, ENTRY);
    memcpy(body, s->words, words);
    memcpy(body + words, s->states, STATES);
    memcpy(body + words + STATES, s->escapes, coded.escapes);
    return words + STATES + coded.escapes;
}

/* The exponents of a block go to scratch, the rest to its place. Returns their number. */
static size_t split_block(const struct sl_lossless_path *path, unsigned dtype, const void *in,
                          size_t first, size_t count, bool stream, struct scratch *s, uint8_t **raw)
{
    size_t n, done = 0;

    for (size_t end = first + count; first < end; first += SL_TILE, done += n) {
        size_t wanted = end - first < SL_TILE ? end - first : SL_TILE;
        const void *tile = sl_lossless_tile(dtype, in, first, wanted, s->tile, &n);

        path->split(dtype, tile, n, *raw, s->exponents + done, stream);
        *raw += sl_lossless_raw_bytes(dtype, n);
    }
    return done;
}

size_t sl_rans_encode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                         const struct sl_rans_table *table, const void *in, size_t count, void *out)
{
    size_t width = sl_lossless_width(spec->dtype);
    bool stream = count * width >= SL_LOSSLESS_STREAM_BYTES, own = table == NULL;
    uint8_t *raw = out, *tables, *entry, *body;
    struct sl_rans_table segment;
    struct scratch s;

    if (count == 0)
        return 0;
    tables = raw + sl_lossless_raw_bytes(spec->dtype, count);
    memset(tables, 0, HEAD);
    tables[0] = own;
    tables += HEAD;
    entry = tables + (own ? segment_count(count) * TABLE : 0);
    body = entry + block_count(count) * ENTRY;
    for (size_t first = 0; first < count; first += SL_RANS_BLOCK, entry += ENTRY) {
        size_t left = count - first, n;

        if (own && first % SL_RANS_SEGMENT == 0) {
            sl_rans_table_build(spec, (const char *)in + first * width,
                                left < SL_RANS_SEGMENT ? left : SL_RANS_SEGMENT, &segment);
            table = &segment;
            memcpy(tables, table, TABLE);
            tables += TABLE;
        }
        n = split_block(path, spec->dtype, in, first, left < SL_RANS_BLOCK ? left : SL_RANS_BLOCK,
                        stream, &s, &raw);
        body += encode_block(path, table, &s, n, entry, body);
    }
    if (stream)
        path->fence();
    return (size_t)(body - (uint8_t *)out);
}

size_t sl_rans_encode_shared(const struct sl_codec_spec *spec, const struct sl_rans_table *table,
                             const void *in, size_t count, void *out)
{
    sl_assert(table->escape != SL_RANS_NO_ESCAPE);
    return sl_rans_encode_by(sl_lossless_path(), spec, table, in, count, out);
}

/* ---- decoding ---- */

/* A message, and how far it is decoded. */
struct reader {
    struct sl_rans_table table; /* of this segment */
    const uint8_t *raw, *tables, *entry, *body, *end;
    size_t first, count;
    bool own; /* the tables are in the message */
};

static int reader_begin(const struct sl_codec_spec *spec, const struct sl_rans_table *shared,
                        const void *in, size_t len, size_t count, struct reader *r)
{
    size_t raw = sl_lossless_raw_bytes(spec->dtype, count);
    size_t heads = HEAD + block_count(count) * ENTRY;

    *r = (struct reader){.raw = in, .count = count, .own = shared == NULL};
    if (r->own)
        heads += segment_count(count) * TABLE;
    if (len < raw + heads)
        return sl_fail(-EBADMSG, "an rANS message of %zu elements has %zu bytes, not %zu or more",
                       count, len, raw + heads);
    if (r->raw[raw] != r->own)
        return sl_fail(-EBADMSG, r->own ? "the rANS message was encoded by a table that it does "
                                          "not have"
                                        : "the rANS message has tables, where both sides have one");
    r->end = r->raw + len;
    r->tables = r->raw + raw + HEAD;
    r->body = r->raw + raw + heads;
    r->entry = r->body - block_count(count) * ENTRY;
    if (shared != NULL)
        r->table = *shared;
    return shared != NULL ? sl_rans_table_check(shared) : 0;
}

static int next_table(struct reader *r)
{
    if (!r->own || r->first % SL_RANS_SEGMENT != 0)
        return 0;
    memcpy(&r->table, r->tables, TABLE);
    r->tables += TABLE;
    return sl_rans_table_check(&r->table);
}

/* The next block; its exponents will go to `exponents`, or lie there at once (words NULL). */
static int read_block(struct reader *r, uint8_t *exponents, struct sl_rans_block *out)
{
    size_t wanted = r->count - r->first < SL_RANS_BLOCK ? r->count - r->first : SL_RANS_BLOCK;
    size_t n = sl_lossless_round(wanted), left = (size_t)(r->end - r->body), used;
    uint16_t counts[2];

    memcpy(counts, r->entry, ENTRY);
    used = counts[0] == STORED ? n : 2 * (size_t)counts[0] + STATES + counts[1];
    if (used > left)
        return sl_fail(-EBADMSG, "a block of an rANS message has %zu bytes, but %zu are left", used,
                       left);
    *out = (struct sl_rans_block){.exponents = exponents, .count = (uint32_t)n};
    if (counts[0] == STORED) {
        memcpy(exponents, r->body, n);
    } else {
        out->words = r->body;
        out->word_count = counts[0];
        out->states = r->body + 2 * (size_t)counts[0];
        out->escapes = out->states + STATES;
        out->escape_count = counts[1];
    }
    r->entry += ENTRY;
    r->body += used;
    r->first += wanted;
    return 0;
}

/* Up to AT_ONCE blocks. *n: their elements; the exponents are those of as many, rounded up. */
static int read_exponents(const struct sl_lossless_path *path, struct reader *r, size_t *n,
                          uint8_t exponents[AT_ONCE * SL_RANS_BLOCK])
{
    struct sl_rans_block blocks[AT_ONCE];
    size_t before = r->first;
    unsigned coded = 0;
    int err = next_table(r); /* segments are whole numbers of AT_ONCE blocks */

    if (err != 0)
        return err;
    for (unsigned b = 0; b < AT_ONCE && r->first < r->count; b++) {
        err = read_block(r, exponents + b * SL_RANS_BLOCK, &blocks[coded]);
        if (err != 0)
            return err;
        coded += blocks[coded].words != NULL;
    }
    *n = r->first - before;
    if (coded > 0 && !path->rans_decode(&r->table, blocks, coded))
        return sl_fail(-EBADMSG, "a block of an rANS message does not end as it began: its bytes "
                                 "are not what was encoded");
    return 0;
}

static int reader_end(const struct reader *r)
{
    if (r->body == r->end)
        return 0;
    return sl_fail(-EBADMSG, "an rANS message has %zu bytes too many", (size_t)(r->end - r->body));
}

/* Decodes to out, or adds to sum where out is NULL. */
static int decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                     const struct sl_rans_table *shared, const void *in, size_t len, size_t count,
                     char *out, float *sum)
{
    uint8_t exponents[AT_ONCE * SL_RANS_BLOCK] __attribute__((aligned(64)));
    char room[SL_TILE * 4] __attribute__((aligned(64)));
    size_t width = sl_lossless_width(spec->dtype), some = 0;
    bool stream = out != NULL && count * width >= SL_LOSSLESS_STREAM_BYTES;
    struct reader r = {0};
    int err;

    if (count == 0)
        return len == 0 ? 0 : sl_fail(-EBADMSG, "an rANS message of nothing has %zu bytes", len);
    err = reader_begin(spec, shared, in, len, count, &r);
    for (size_t done = 0; err == 0 && done < count; done += some) {
        err = read_exponents(path, &r, &some, exponents);
        for (size_t at = 0; err == 0 && at < some; at += SL_TILE) {
            size_t n = some - at < SL_TILE ? some - at : SL_TILE;
            bool direct = out != NULL && n % SL_GROUP == 0;
            char *to = direct ? out + (done + at) * width : room;

            path->join(spec->dtype, r.raw, exponents + at, sl_lossless_round(n), to,
                       stream && direct);
            r.raw += sl_lossless_raw_bytes(spec->dtype, n);
            if (out == NULL)
                sl_lossless_add(spec->dtype, room, n, sum + done + at);
            else if (!direct)
                memcpy(out + (done + at) * width, room, n * width);
        }
    }
    if (stream)
        path->fence();
    return err != 0 ? err : reader_end(&r);
}

int sl_rans_decode_by(const struct sl_lossless_path *path, const struct sl_codec_spec *spec,
                      const struct sl_rans_table *shared, const void *in, size_t len, size_t count,
                      void *out)
{
    return decode_by(path, spec, shared, in, len, count, out, NULL);
}

int sl_rans_decode_shared(const struct sl_codec_spec *spec, const struct sl_rans_table *table,
                          const void *in, size_t len, size_t count, void *out)
{
    return sl_rans_decode_by(sl_lossless_path(), spec, table, in, len, count, out);
}

/* ---- the row ---- */

static size_t encode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t count, void *out)
{
    (void)at;
    return sl_rans_encode_by(sl_lossless_path(), spec, NULL, in, count, out);
}

static int decode(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                  size_t len, size_t count, void *out)
{
    (void)at;
    return sl_rans_decode_by(sl_lossless_path(), spec, NULL, in, len, count, out);
}

static int decode_add(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, float *sum)
{
    (void)at;
    return decode_by(sl_lossless_path(), spec, NULL, in, len, count, NULL, sum);
}

const struct sl_codec sl_codec_rans = {
    .name = "rans",
    .help = "lossless: exponents in as many bits as they need, at half the speed of palette",
    .id = SL_CODEC_RANS,
    .flags = SL_CODEC_LOSSLESS,
    .size = size,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
