/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of what keeps a part, and saved state, of peers and files: nothing is read outside them,
 * nothing written outside the elements. A sparse message that is accepted has the only bytes that
 * its elements can have, and can be merged.
 *
 * Input: u8 kind: 0 to 3 a sparse message (bit 0: bf16, bit 1: gaps may be coded), 4 topk, 5 dct, 6
 * kmeans, 7 state; u8 k (of state, bit 0: with a checksum that is right); u16 count; then the
 * message, of topk and dct cut or filled up to the length
 * that it must have.
 */
#include "compress/codec.h"
#include "compress/sparse.h"
#include "compress/state.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 4

/* Exactly as much memory as is needed, so that a sanitizer sees what goes beyond. */
static void *copy_of(const void *bytes, size_t have, size_t len)
{
    void *copy = calloc(1, len + 1);

    sl_assert(copy != NULL);
    memcpy(copy, bytes, have < len ? have : len);
    return copy;
}

static void try_merge(const struct sl_sparse_spec *spec, const void *in, size_t len, size_t count,
                      size_t kept)
{
    void *sum = copy_of("", 0, sl_sparse_bound(spec, count, 2 * kept));
    size_t sum_len, sum_kept;

    sl_assert(sl_sparse_merge(spec, in, len, in, len, count, sum, &sum_len) == 0);
    sl_assert(sum_len <= sl_sparse_bound(spec, count, 2 * kept));
    sl_assert(sl_sparse_check(spec, sum, sum_len, count, &sum_kept) == 0 && sum_kept == kept);
    free(sum);
}

static void try_sparse(unsigned kind, size_t count, const uint8_t *bytes, size_t len)
{
    const struct sl_sparse_spec spec = {.bf16 = kind & 1, .rice = kind & 2};
    uint8_t *in = copy_of(bytes, len, len), *again;
    float *value = calloc(count + 1, sizeof(*value)), *sum = calloc(count + 1, sizeof(*sum));
    uint32_t *index = calloc(count + 1, sizeof(*index));
    size_t kept, read, written;
    int err = sl_sparse_check(&spec, in, len, count, &kept);

    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(sl_sparse_add(&spec, in, len, count, sum) == err);
    if (err == 0) {
        sl_assert(kept <= count);
        sl_assert(sl_sparse_read(&spec, in, len, count, kept, index, value, &read) == 0);
        sl_assert(read == kept);
        again = copy_of("", 0, sl_sparse_bound(&spec, count, kept));
        written = sl_sparse_write(&spec, index, value, kept, count, again);
        /* Of Rice's parameters there is a choice, and NaN of bf16 are narrowed to one. */
        for (size_t i = 0; !spec.rice && i < kept && value[i] == value[i]; i++)
            if (i + 1 == kept)
                sl_assert(written == len && memcmp(again, in, len) == 0);
        free(again);
        try_merge(&spec, in, len, count, kept);
    }
    free(in);
    free(value);
    free(sum);
    free(index);
}

static void try_codec(unsigned kind, unsigned k, size_t count, const uint8_t *bytes, size_t len)
{
    static const uint8_t ids[] = {SL_CODEC_TOPK, SL_CODEC_DCT, SL_CODEC_KMEANS};
    struct sl_codec_spec spec = {.id = ids[kind - 4],
                                 .dtype = SLUICE_F32,
                                 .bits = kind == 6  ? 2 + k % 3
                                         : k & 0x80 ? 32
                                                    : 0,
                                 .k = 1 + k % 64};
    const struct sl_codec *codec = sl_codec_by_id(spec.id);
    const struct sl_codec_at at = {0};
    size_t have = len;
    float *out = calloc(count + 1, sizeof(*out));
    void *in;
    int err;

    sl_assert(sl_codec_check(&spec) == 0);
    if ((codec->flags & SL_CODEC_FIXED) != 0)
        len = codec->size(&spec, count);
    in = copy_of(bytes, have, len);
    err = codec->decode(&spec, &at, in, len, count, out);
    sl_assert(err == 0 || err == -EBADMSG);
    sl_assert(codec->decode_add(&spec, &at, in, len, count, out) == err);
    free(in);
    free(out);
}

/* The checksum that state.c would make, so that what it guards is reached. */
static void seal(uint8_t *at, size_t len)
{
    uint64_t sum = 0xcbf29ce484222325, word;

    memset(at + 16, 0, sizeof(sum));
    for (size_t i = 0; i + 8 <= len; i += 8) {
        memcpy(&word, at + i, sizeof(word));
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29;
    }
    memcpy(at + 16, &sum, sizeof(sum));
}

static void try_state(bool sealed, bool turns, const uint8_t *bytes, size_t len)
{
    float residual[20], shard[10], factor[6];
    uint32_t turn[2];
    const struct sl_state_part parts[] = {
        {1, 0, SL_STATE_RESIDUAL, residual, 12 * 4},
        {1, 12, SL_STATE_RESIDUAL, residual + 12, 8 * 4},
        {1, 5, SL_STATE_SHARD_RESIDUAL, shard, sizeof(shard)},
        {2, 0, SL_STATE_FACTOR, factor, sizeof(factor)},
        {3, 0, SL_STATE_TURN, &turn[0], 4, .count = 12, .mark = 0x4000001},
        {3, 12, SL_STATE_TURN, &turn[1], 4, .count = 8, .mark = 0x4000001},
    };
    void *in = copy_of(bytes, len, len);
    int err;

    if (sealed && len >= 24)
        seal(in, len);
    err = sl_state_load(parts, turns ? 6 : 4, 4, in, len, NULL);
    sl_assert(err == 0 || err == -EBADMSG || err == -EINVAL);
    free(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned kind;
    uint16_t count;

    if (size < HEAD)
        return 0;
    kind = data[0] & 7;
    memcpy(&count, data + 2, sizeof(count));
    if (kind < 4) /* up to three tiles */
        try_sparse(kind, (size_t)count * 3, data + HEAD, size - HEAD);
    else if (kind < 7)
        try_codec(kind, data[1], count % 10000, data + HEAD, size - HEAD);
    else
        try_state(data[1] & 1, data[1] & 2, data + HEAD, size - HEAD);
    return 0;
}
