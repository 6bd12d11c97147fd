/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of f32, bf16 and f16, as floats and back. */
#include "compress/elements.h"

#include "compress/kernels.h"

void sl_elements_widen(unsigned dtype, const void *in, size_t count, float *out)
{
    if (dtype != SLUICE_F32)
        sl_codec_kernels()->widen(dtype, in, count, SL_PUT_STORE, out);
    else if (count > 0)
        memcpy(out, in, count * sizeof(float));
}

void sl_elements_narrow(unsigned dtype, const float *in, size_t count, void *out)
{
    if (dtype != SLUICE_F32)
        sl_codec_kernels()->narrow(dtype, in, count, NULL, false, out);
    else if (count > 0)
        memcpy(out, in, count * sizeof(float));
}

const float *sl_elements_floats(unsigned dtype, const void *in, size_t count, float *scratch)
{
    if (dtype == SLUICE_F32 && (uintptr_t)in % sizeof(float) == 0)
        return in;
    sl_elements_widen(dtype, in, count, scratch);
    return scratch;
}
