/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs: elements to fewer bytes and back, as pure functions over the caller's memory.
 *
 * A message is a row of *tiles* of SL_TILE elements, each encoded alone: a shard or a slice of a
 * pipeline is a whole number of tiles, and only the last tile of a message may hold fewer elements.
 * Inside a tile scales come first, then codes. All numbers are little-endian.
 *
 * Every path (plain C, AVX2, AVX-512, CUDA) gives the same bytes. What that takes is pinned in
 * docs/design/0041-codecs.md: integer absolute maxima, correctly rounded division, no contraction
 * of a product and a sum, random numbers by element index (compress/philox.h).
 *
 * No function allocates, keeps state, or looks at the clock. State of a sender (residuals, factors)
 * is the caller's (compress/feedback.h).
 */
#ifndef SL_COMPRESS_CODEC_H
#define SL_COMPRESS_CODEC_H

#include <sluice/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_TILE 4096               /* elements */
#define SL_TILE_MOST (2 * SL_TILE) /* of any codec (sl_codec_tile()) */

/* What a codec is, for those who choose and plan. */
enum {
    SL_CODEC_FIXED = 1 << 0,      /* its size is a function of spec and count alone */
    SL_CODEC_LINEAR = 1 << 1,     /* encoded messages may be added (sl_codec.add) */
    SL_CODEC_LOSSLESS = 1 << 2,   /* decodes to the same bits */
    SL_CODEC_STOCHASTIC = 1 << 3, /* can round at random (SL_SPEC_STOCHASTIC) */
    SL_CODEC_UNBIASED = 1 << 4,   /* its mean is the input, when it rounds at random */
    SL_CODEC_SPARSE = 1 << 5      /* keeps few elements as they are: sums of messages have more */
};

/* Numbers on the wire and in files: never change one, add new ones. */
enum sl_codec_id {
    SL_CODEC_RAW = 0,
    SL_CODEC_BF16 = 1,
    SL_CODEC_FP16 = 2,
    SL_CODEC_BQ8 = 3,
    SL_CODEC_BQ4 = 4,
    SL_CODEC_BQ2 = 5,
    SL_CODEC_E4M3 = 6,
    SL_CODEC_E5M2 = 7,
    SL_CODEC_MXFP8 = 8,
    SL_CODEC_MXFP4 = 9,
    SL_CODEC_NVFP4 = 10,
    SL_CODEC_E3M0 = 11,
    SL_CODEC_SIGN = 12,
    SL_CODEC_TOPK = 13,
    SL_CODEC_RANDK = 14,
    SL_CODEC_SHIQ = 15,
    SL_CODEC_SKETCH = 16,
    SL_CODEC_DCT = 17,
    SL_CODEC_KMEANS = 18,
    SL_CODEC_PALETTE = 19,
    SL_CODEC_RANS = 20,
    SL_CODEC_ROW8 = 21,
    SL_CODEC_ROWE4M3 = 22,
    SL_CODEC_ID_COUNT
};

enum {
    SL_SPEC_STOCHASTIC = 1 << 0, /* round at random, by seed, stream and step */
    SL_SPEC_ROTATED = 1 << 1     /* Hadamard rotation of each block before it is quantised */
};

/*
 * All that ranks must have alike; what it does not use is 0. Compared and hashed when a plan is
 * made, never sent with the data.
 */
struct sl_codec_spec {
    uint8_t id;     /* enum sl_codec_id */
    uint8_t dtype;  /* enum sluice_dtype of the elements: SLUICE_F32, SLUICE_BF16 or SLUICE_F16 */
    uint8_t flags;  /* SL_SPEC_... */
    uint8_t bits;   /* of a code, where that is a choice */
    uint32_t k;     /* elements kept of each tile (top-k, Rand-k, DCT), columns of a sketch */
    uint16_t rows;  /* of a sketch */
    uint16_t row;   /* elements that share a scale, where that is a choice */
    uint32_t ranks; /* how many messages may be added (shared-scale integers) */
    uint64_t seed;  /* key of the random numbers */
};

/* Where a message lies in the sequence of random numbers: the same on all who must draw alike. */
struct sl_codec_at {
    uint64_t first; /* index of its first element, a multiple of SL_TILE */
    uint32_t stream, step;
};

struct sl_codec {
    const char *name; /* "bq8" */
    const char *help; /* one line for people */
    uint8_t id;
    uint8_t flags; /* SL_CODEC_... */

    /* -EINVAL and a sentence for what cannot be; NULL: nothing is a choice. */
    int (*check)(const struct sl_codec_spec *spec);

    /* Bytes of an encoded message of count elements: exact where SL_CODEC_FIXED, otherwise the
     * most. 0 for 0 elements. Does not overflow for count up to SL_CODEC_COUNT_MOST. */
    size_t (*size)(const struct sl_codec_spec *spec, size_t count);

    /* in: count elements of spec->dtype, any alignment. out: size() bytes, aligned to 16. Returns
     * the bytes written. Never fails: NaN and infinities have codes (each codec says which). */
    size_t (*encode)(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                     size_t count, void *out);

    /* in: len bytes that a peer or a file gave, aligned to 16. -EBADMSG and a sentence where they
     * are no message of count elements; out is then unspecified. */
    int (*decode)(const struct sl_codec_spec *spec, const struct sl_codec_at *at, const void *in,
                  size_t len, size_t count, void *out);

    /* sum[i] += element i, in f32. */
    int (*decode_add)(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                      const void *in, size_t len, size_t count, float *sum);

    /* Of SL_CODEC_LINEAR: sum = sum + in, both encoded messages of count elements. */
    int (*add)(const struct sl_codec_spec *spec, void *sum, const void *in, size_t len,
               size_t count);

    /* NULL, or the bytes and the residual of sl_codec_encode_feedback() in fewer passes, of whole
     * tiles. Returns 0 where it has none for this spec. */
    size_t (*feedback)(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                       const void *in, float *residual, size_t count, void *out);
};

#define SL_CODEC_COUNT_MOST (SIZE_MAX / 16)

/* NULL: there is none. */
const struct sl_codec *sl_codec_by_id(unsigned id);
const struct sl_codec *sl_codec_by_name(const char *name);
/* All of them, from 0 up, then NULL. */
const struct sl_codec *sl_codec_row(size_t idx);

/* Elements of a tile: SL_TILE, but of codecs with a scale for each row, whose tiles are whole rows
 * and which have neither random numbers nor feedback. */
size_t sl_codec_tile(const struct sl_codec_spec *spec);

/* -EINVAL and a sentence for a spec that no codec can fulfil, or that sets what its codec has no
 * use for: so equal codecs have equal specs, byte for byte. */
int sl_codec_check(const struct sl_codec_spec *spec);

/* "bq8", "topk:k=41,stochastic=on": fills all of *out, checks it. -EINVAL and a sentence that names
 * the choices. dtype F32, seed 0 where the text does not say. */
int sl_codec_parse(const char *text, struct sl_codec_spec *out);
/* The same text again. Returns what snprintf() does. */
int sl_codec_print(const struct sl_codec_spec *spec, char *out, size_t cap);

/*
 * out = encode((sum over w of decode(in[w])) * factor), tile by tile, in the order of w, in f32:
 * the first is decoded, each of the others added to it, then one product. One pass, no scratch but
 * the stack. in_spec and out_spec may differ. factor: 1, or 1/W for averages. Only for
 * SL_CODEC_FIXED, whose messages are the tiles' in a row. len: of each in. *out_len: bytes written.
 */
int sl_codec_reduce(const struct sl_codec_spec *in_spec, const struct sl_codec_at *in_at,
                    const void *const *in, unsigned ranks, size_t len, float factor,
                    const struct sl_codec_spec *out_spec, const struct sl_codec_at *out_at,
                    size_t count, void *out, size_t *out_len);

/*
 * sum = (sum + decode(in)) * factor: decode_add() and the product of an average, tile by tile where
 * messages are SL_CODEC_FIXED, so that the sum is in the nearest cache for both. With factor 1 it
 * is decode_add().
 */
int sl_codec_decode_mean(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                         const void *in, size_t len, size_t count, float factor, float *sum);

/*
 * Error feedback: out = encode(in + residual), residual = in + residual - decode(out), tile by tile
 * in one pass; sums in f32, and encoded as such, but for SL_CODEC_LOSSLESS, which get elements of
 * their dtype. Only for SL_CODEC_FIXED. residual: count floats. Where in or the difference is NaN
 * or infinite, the residual becomes 0.
 * Source: F. Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; S. P. Karimireddy
 * et al., "Error feedback fixes SignSGD", ICML 2019.
 */
size_t sl_codec_encode_feedback(const struct sl_codec_spec *spec, const struct sl_codec_at *at,
                                const void *in, float *residual, size_t count, void *out);

#endif
