/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of f32, bf16 and f16, as floats and back. */
#include "compress/elements.h"

void sl_elements_widen(unsigned dtype, const void *in, size_t count, float *out)
{
    const char *from = in;
    uint16_t half;

    if (dtype == SLUICE_F32) {
        memcpy(out, in, count * sizeof(float));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(&half, from + i * sizeof(half), sizeof(half));
        out[i] = dtype == SLUICE_BF16 ? sl_f32_of_bf16(half) : sl_f32_of_f16(half);
    }
}

void sl_elements_narrow(unsigned dtype, const float *in, size_t count, void *out)
{
    char *to = out;
    uint16_t half;

    if (dtype == SLUICE_F32) {
        memcpy(out, in, count * sizeof(float));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        half = dtype == SLUICE_BF16 ? sl_bf16_of(in[i]) : sl_f16_of(in[i]);
        memcpy(to + i * sizeof(half), &half, sizeof(half));
    }
}

const float *sl_elements_floats(unsigned dtype, const void *in, size_t count, float *scratch)
{
    if (dtype == SLUICE_F32 && (uintptr_t)in % sizeof(float) == 0)
        return in;
    sl_elements_widen(dtype, in, count, scratch);
    return scratch;
}
