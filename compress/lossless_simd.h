/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template: what the paths of wide vectors have in common, behind their loops. The including file
 * defines VECTOR, the bytes of its own, PATH and PATH_NAME, RANS_ENCODE and RANS_DECODE.
 */

/* Stores past the caches take whole vectors at their own alignment. */
static void split(unsigned dtype, const void *in, size_t n, uint8_t *raw, uint8_t *exponents,
                  bool stream)
{
    stream = stream && (uintptr_t)raw % VECTOR == 0 && n == SL_TILE;
    if (dtype == SLUICE_F32)
        split_32(in, n, raw, exponents, stream);
    else if (dtype == SLUICE_BF16)
        split_16(SLUICE_BF16, in, n, raw, exponents, stream);
    else
        split_16(SLUICE_F16, in, n, raw, exponents, stream);
}

static void join(unsigned dtype, const uint8_t *raw, const uint8_t *exponents, size_t n, void *out,
                 bool stream)
{
    stream = stream && (uintptr_t)out % VECTOR == 0;
    if (dtype == SLUICE_F32)
        join_32(raw, exponents, n, out, stream);
    else if (dtype == SLUICE_BF16)
        join_16(SLUICE_BF16, raw, exponents, n, out, stream);
    else
        join_16(SLUICE_F16, raw, exponents, n, out, stream);
}

static void fence(void)
{
    _mm_sfence();
}

const struct sl_lossless_path PATH = {
    .name = PATH_NAME,
    .lacks = lacks,
    .split = split,
    .join = join,
    .fence = fence,
    .window = window,
    .match = match,
    .expand = expand,
    .take = sl_palette_take,
    .put = sl_palette_put,
    .rans_encode = RANS_ENCODE,
    .rans_decode = RANS_DECODE,
};
