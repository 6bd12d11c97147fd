/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats that go with the others of an x86-64 CPU. */
#include "compress/scaled.h"

const struct sl_scaled_kernels *sl_scaled_kernels_of(const struct sl_codec_kernels *kernels)
{
    return kernels == &sl_codec_kernels_avx512 ? &sl_scaled_avx512
           : kernels == &sl_codec_kernels_avx2 ? &sl_scaled_avx2
                                               : &sl_scaled_c;
}
