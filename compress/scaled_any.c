/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of small floats where plain C is all there is. */
#include "compress/scaled.h"

const struct sl_scaled_kernels *sl_scaled_kernels_of(const struct sl_codec_kernels *kernels)
{
    return &sl_scaled_c;
}
