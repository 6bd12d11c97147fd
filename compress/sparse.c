/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the few elements that are kept: sizes, writing, adding up. */
#include "compress/sparse.h"

#include "compress/elements.h"
#include "compress/sparse_tile.h"
#include "core/err.h"

/* Elements of the tile that begins at first. */
static uint32_t tile_count(size_t first, size_t count)
{
    return count - first < SL_SPARSE_TILE ? (uint32_t)(count - first) : SL_SPARSE_TILE;
}

size_t sl_sparse_bound(const struct sl_sparse_spec *spec, size_t count, size_t kept)
{
    size_t tiles = count / SL_SPARSE_TILE + (count % SL_SPARSE_TILE != 0);
    size_t list = kept * 2, bitmap = count / 8 + tiles;

    /* A word, and up to 3 bytes of padding after places and after values of each tile. */
    return tiles * 12 + (list < bitmap ? list : bitmap) + kept * (spec->bf16 ? 2 : 4);
}

/* The one that goes first of two cursors, or both and the sum of their values. False: both are
 * done. */
static bool take(struct sl_sparse_cursor *a, struct sl_sparse_cursor *b, uint32_t *index,
                 float *value)
{
    *index = a->index < b->index ? a->index : b->index;
    if (*index == SL_SPARSE_DONE)
        return false;
    if (a->index == b->index)
        *value = sl_sparse_value(a) + sl_sparse_value(b);
    else
        *value = sl_sparse_value(a->index == *index ? a : b);
    if (a->index == *index)
        sl_sparse_next(a);
    if (b->index == *index)
        sl_sparse_next(b);
    return true;
}

static const struct sl_sparse_cursor nothing = {.index = SL_SPARSE_DONE};

/* What a tile will be. */
struct shape {
    uint32_t kept;
    uint8_t kind, rice;
    size_t places; /* bytes, padded */
};

/* Bits of the gaps with a Rice parameter. */
static uint64_t rice_bits(struct sl_sparse_cursor a, struct sl_sparse_cursor b, unsigned rice)
{
    uint64_t bits = 0;
    uint32_t next = 0, index;
    float value;

    for (; take(&a, &b, &index, &value); next = index + 1)
        bits += ((index - next) >> rice) + 1 + rice;
    return bits;
}

static struct shape shape_of(const struct sl_sparse_spec *spec, const struct sl_sparse_cursor *a,
                             const struct sl_sparse_cursor *b, uint32_t most)
{
    struct sl_sparse_cursor x = *a, y = *b;
    struct shape s = {.kept = 0};
    uint32_t index;
    float value;

    while (take(&x, &y, &index, &value))
        s.kept++;
    s.kind = sl_sparse_plain_kind(s.kept, most);
    s.places = sl_sparse_plain_len(s.kept, most);
    if (!spec->rice || s.kept == 0)
        return s;
    /* The best parameter for gaps at random is the mean's logarithm, or one below. */
    unsigned mean = 31 - (unsigned)__builtin_clz(most / s.kept);

    for (unsigned rice = mean > 1 ? mean - 2 : 0; rice <= mean && rice < 16; rice++) {
        size_t len = sl_sparse_round4((rice_bits(*a, *b, rice) + 7) / 8);

        if (len < s.places) {
            s.kind = SL_SPARSE_RICE;
            s.rice = (uint8_t)rice;
            s.places = len;
        }
    }
    return s;
}

/* Places and values, into zeroed memory. */
static void write_elements(const struct shape *s, bool bf16, struct sl_sparse_cursor a,
                           struct sl_sparse_cursor b, uint8_t *places, uint8_t *values)
{
    struct sl_bits_out bits = {.at = places};
    size_t width = bf16 ? 2 : 4;
    uint32_t next = 0, index;
    float value;

    for (size_t i = 0; take(&a, &b, &index, &value); i++, next = index + 1) {
        uint16_t place = (uint16_t)index;

        if (s->kind == SL_SPARSE_LIST)
            memcpy(places + i * 2, &place, sizeof(place));
        else if (s->kind == SL_SPARSE_BITMAP)
            places[index / 8] |= (uint8_t)(1u << index % 8);
        else
            sl_bits_put_rice(&bits, index - next, s->rice);
        sl_elements_narrow(bf16 ? SLUICE_BF16 : SLUICE_F32, &value, 1, values + i * width);
    }
    sl_bits_end(&bits);
}

uint8_t *sl_sparse_write_tile(const struct sl_sparse_spec *spec, const struct sl_sparse_cursor *a,
                              const struct sl_sparse_cursor *b, uint32_t most, uint8_t *out)
{
    const struct sl_sparse_cursor *with = b != NULL ? b : &nothing;
    struct shape s = shape_of(spec, a, with, most);
    size_t values = sl_sparse_round4((size_t)s.kept * (spec->bf16 ? 2 : 4));
    uint32_t head = s.kept | (uint32_t)s.kind << 17 | (uint32_t)s.rice << 19;

    memcpy(out, &head, sizeof(head));
    out += sizeof(head);
    memset(out, 0, s.places);
    if (values > 0)
        memset(out + s.places + values - 4, 0, 4);
    write_elements(&s, spec->bf16, *a, *with, out, out + s.places);
    return out + s.places + values;
}

size_t sl_sparse_write(const struct sl_sparse_spec *spec, const uint32_t *index, const float *value,
                       size_t kept, size_t count, void *out)
{
    uint8_t *at = out;

    for (size_t first = 0, i = 0; first < count; first += SL_SPARSE_TILE) {
        uint32_t most = tile_count(first, count), here = 0;
        struct sl_sparse_cursor c;

        while (i + here < kept && index[i + here] - first < most)
            here++;
        sl_sparse_open_arrays(&c, index + i, value + i, here, (uint32_t)first);
        at = sl_sparse_write_tile(spec, &c, NULL, most, at);
        i += here;
    }
    return (size_t)(at - (uint8_t *)out);
}

int sl_sparse_check(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                    size_t *kept)
{
    const uint8_t *at = in, *end = at + len;
    size_t found = 0;

    for (size_t first = 0; first < count; first += SL_SPARSE_TILE) {
        struct sl_sparse_cursor c;
        int err = sl_sparse_open_tile(&c, spec, &at, end, tile_count(first, count));

        if (err != 0)
            return err;
        found += c.index == SL_SPARSE_DONE ? 0 : c.left + 1;
    }
    if (at != end)
        return sl_fail(-EBADMSG, "a sparse message has %zu bytes after its last tile",
                       (size_t)(end - at));
    *kept = found;
    return 0;
}

int sl_sparse_read(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                   size_t cap, uint32_t *index, float *value, size_t *kept)
{
    const uint8_t *at = in, *end = at + len;
    size_t found = 0, i = 0;
    int err = sl_sparse_check(spec, in, len, count, &found);

    if (err != 0)
        return err;
    if (found > cap)
        return sl_fail(-ENOSPC, "a sparse message of %zu elements does not fit into %zu", found,
                       cap);
    for (size_t first = 0; first < count; first += SL_SPARSE_TILE) {
        struct sl_sparse_cursor c;

        (void)sl_sparse_open_tile(&c, spec, &at, end, tile_count(first, count));
        for (; c.index != SL_SPARSE_DONE; sl_sparse_next(&c), i++) {
            index[i] = (uint32_t)first + c.index;
            value[i] = sl_sparse_value(&c);
        }
    }
    *kept = found;
    return 0;
}

int sl_sparse_add(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                  float *sum)
{
    const uint8_t *at = in, *end = at + len;
    size_t kept;
    int err = sl_sparse_check(spec, in, len, count, &kept);

    for (size_t first = 0; err == 0 && first < count; first += SL_SPARSE_TILE) {
        struct sl_sparse_cursor c;

        err = sl_sparse_open_tile(&c, spec, &at, end, tile_count(first, count));
        for (; err == 0 && c.index != SL_SPARSE_DONE; sl_sparse_next(&c))
            sum[first + c.index] += sl_sparse_value(&c);
    }
    return err;
}

int sl_sparse_merge(const struct sl_sparse_spec *spec, const void *a, size_t a_len, const void *b,
                    size_t b_len, size_t count, void *out, size_t *out_len)
{
    const uint8_t *at_a = a, *end_a = at_a + a_len, *at_b = b, *end_b = at_b + b_len;
    uint8_t *to = out;
    size_t kept;
    int err = sl_sparse_check(spec, a, a_len, count, &kept);

    if (err == 0)
        err = sl_sparse_check(spec, b, b_len, count, &kept);
    if (err != 0)
        return err;
    for (size_t first = 0; first < count; first += SL_SPARSE_TILE) {
        uint32_t most = tile_count(first, count);
        struct sl_sparse_cursor x, y;

        (void)sl_sparse_open_tile(&x, spec, &at_a, end_a, most);
        (void)sl_sparse_open_tile(&y, spec, &at_b, end_b, most);
        to = sl_sparse_write_tile(spec, &x, &y, most, to);
    }
    *out_len = (size_t)(to - (uint8_t *)out);
    return 0;
}
