/* SPDX-License-Identifier: Apache-2.0 */
/* Template: the row of kernels of the including file, which has all of them under these names and
 * defines KERNELS and KERNELS_NAME. */

const struct sl_codec_kernels KERNELS = {
    .name = KERNELS_NAME,
    .fence = fence,
    .maxima = maxima,
    .scales = scales,
    .codes = codes,
    .decode = decode,
    .rotate = rotate,
    .sign_encode = sign_encode,
    .sign_decode = sign_decode,
    .narrow = narrow,
    .widen = widen,
    .random = random_bits,
    .times = times,
    .feedback_sum = feedback_sum,
    .feedback_rest = feedback_rest,
    .feedback_maxima = feedback_maxima,
    .feedback_codes = feedback_codes,
    .feedback_sign = feedback_sign,
    .feedback_sign_sum = feedback_sign_sum,
    .feedback_narrow = feedback_narrow,
};
