/* SPDX-License-Identifier: Apache-2.0 */
/* Checks tiles of sparse messages, and walks over their elements. */
#include "compress/sparse_tile.h"

#include "compress/elements.h"
#include "core/err.h"

static uint16_t load16(const uint8_t *at)
{
    uint16_t x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static uint64_t bitmap_word(const struct sl_sparse_cursor *c)
{
    uint32_t at = c->base * 8;
    uint64_t word = 0;

    memcpy(&word, c->places + at, c->len - at < 8 ? c->len - at : 8);
    return word;
}

void sl_sparse_next(struct sl_sparse_cursor *c)
{
    uint32_t gap = 0;

    if (c->left == 0) {
        c->index = SL_SPARSE_DONE;
        return;
    }
    c->left--;
    c->value = c->after;
    c->after += c->bf16 ? 2 : 4;
    switch (c->kind) {
    case SL_SPARSE_LIST:
        c->index = load16(c->places);
        c->places += 2;
        return;
    case SL_SPARSE_ARRAYS: c->index = *c->array++ - c->base; return;
    case SL_SPARSE_BITMAP:
        while (c->word == 0) { /* ends, as there is a bit for each that is left */
            c->base++;
            c->word = bitmap_word(c);
        }
        c->index = c->base * 64 + (uint32_t)__builtin_ctzll(c->word);
        c->word &= c->word - 1;
        return;
    default:
        (void)sl_bits_get_rice(&c->bits, c->rice, SL_SPARSE_TILE, &gap);
        c->index += gap + 1; /* from UINT32_MAX, the first time */
    }
}

float sl_sparse_value(const struct sl_sparse_cursor *c)
{
    uint32_t bits;

    if (c->bf16)
        return sl_f32_of_bf16(load16(c->value));
    memcpy(&bits, c->value, sizeof(bits));
    return sl_f32_of(bits);
}

void sl_sparse_open_arrays(struct sl_sparse_cursor *c, const uint32_t *index, const float *value,
                           uint32_t kept, uint32_t base)
{
    *c = (struct sl_sparse_cursor){.left = kept,
                                   .kind = SL_SPARSE_ARRAYS,
                                   .array = index,
                                   .base = base,
                                   .after = (const uint8_t *)value};
    sl_sparse_next(c);
}

static int check_list(const uint8_t *places, uint32_t kept, uint32_t most)
{
    uint32_t wrong = 0;

    if (kept == 0)
        return 0;
    for (uint32_t i = 1; i < kept; i++)
        wrong |= load16(places + 2 * (size_t)(i - 1)) >= load16(places + 2 * (size_t)i);
    if (wrong || load16(places + 2 * (size_t)(kept - 1)) >= most)
        return sl_fail(-EBADMSG,
                       "a sparse tile of %u elements lists places that do not ascend or lie "
                       "outside",
                       most);
    return 0;
}

static int check_bitmap(struct sl_sparse_cursor *c, uint32_t kept, uint32_t most)
{
    uint32_t bits = 0;

    c->len = sl_sparse_bitmap_len(most);
    for (c->base = 0; c->base * 8 < c->len; c->base++)
        bits += (uint32_t)__builtin_popcountll(bitmap_word(c));
    if (bits != kept || (most % 8 != 0 && c->places[c->len - 1] >> most % 8 != 0))
        return sl_fail(-EBADMSG, "a sparse tile of %u elements has a bitmap of %u instead of %u",
                       most, bits, kept);
    c->base = 0;
    c->word = bitmap_word(c);
    return 0;
}

/* Rice's are checked by reading them. *len: their bytes. */
static int check_rice(struct sl_sparse_cursor *c, const uint8_t *end, uint32_t kept, uint32_t most,
                      size_t *len)
{
    struct sl_bits_in bits = {.at = c->places, .end = end};
    uint32_t next = 0, gap;

    for (uint32_t i = 0; i < kept; i++) {
        if (next >= most || !sl_bits_get_rice(&bits, c->rice, most - 1 - next, &gap))
            return sl_fail(-EBADMSG,
                           "a sparse tile of %u elements has gaps that lead outside or end early",
                           most);
        next += gap + 1;
    }
    if (!sl_bits_close(&bits))
        return sl_fail(-EBADMSG, "gaps of a sparse tile end in bits that are not zero");
    *len = (size_t)(bits.at - c->places);
    if (sl_sparse_round4(*len) >= sl_sparse_plain_len(kept, most))
        return sl_fail(-EBADMSG, "gaps of a sparse tile take more bytes than its places");
    c->bits = (struct sl_bits_in){.at = c->places, .end = bits.at};
    c->index = UINT32_MAX;
    return 0;
}

static int check_zeros(const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != 0)
            return sl_fail(-EBADMSG, "a sparse tile has padding that is not zero");
    return 0;
}

/* Checks places, and finds their length without and with padding. */
static int check_places(struct sl_sparse_cursor *c, const uint8_t *end, uint32_t kept,
                        uint32_t most, size_t *len, size_t *padded)
{
    int err;

    *padded = sl_sparse_plain_len(kept, most);
    if (c->kind != SL_SPARSE_RICE && *padded > (size_t)(end - c->places))
        return sl_fail(-EBADMSG, "a sparse tile of %u elements ends in its places", most);
    if (c->kind == SL_SPARSE_LIST) {
        *len = (size_t)kept * 2;
        return check_list(c->places, kept, most);
    }
    if (c->kind == SL_SPARSE_BITMAP) {
        *len = sl_sparse_bitmap_len(most);
        return check_bitmap(c, kept, most);
    }
    err = check_rice(c, end, kept, most, len);
    if (err == 0)
        *padded = sl_sparse_round4(*len);
    return err;
}

int sl_sparse_open_tile(struct sl_sparse_cursor *c, const struct sl_sparse_spec *spec,
                        const uint8_t **in, const uint8_t *end, uint32_t most)
{
    uint32_t head, kept;
    size_t len = 0, padded = 0, values;
    int err;

    if (end - *in < 4)
        return sl_fail(-EBADMSG, "a sparse message ends before its last tile");
    memcpy(&head, *in, sizeof(head));
    kept = head & 0x1ffff;
    *c = (struct sl_sparse_cursor){.left = kept,
                                   .kind = head >> 17 & 3,
                                   .rice = head >> 19 & 15,
                                   .bf16 = spec->bf16,
                                   .places = *in + 4};
    if (kept > most || head >> 23 != 0 ||
        (c->kind == SL_SPARSE_RICE ? !spec->rice
                                   : c->kind != sl_sparse_plain_kind(kept, most) || c->rice != 0))
        return sl_fail(-EBADMSG, "a sparse tile of %u elements begins with 0x%x, which cannot be",
                       most, head);
    err = check_places(c, end, kept, most, &len, &padded);
    if (err != 0)
        return err;
    values = (size_t)kept * (spec->bf16 ? 2 : 4);
    c->after = c->places + padded;
    if (padded > (size_t)(end - c->places) || sl_sparse_round4(values) > (size_t)(end - c->after))
        return sl_fail(-EBADMSG, "a sparse tile of %u elements ends in its values", most);
    *in = c->after + sl_sparse_round4(values);
    err = check_zeros(c->places + len, padded - len);
    if (err == 0)
        err = check_zeros(c->after + values, sl_sparse_round4(values) - values);
    if (err == 0)
        sl_sparse_next(c);
    return err;
}
