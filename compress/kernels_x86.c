/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of x86-64, and what each needs of CPU and operating system. */
#include "compress/kernels.h"

#include "core/err.h"

#include <cpuid.h>

/* Of F16C, which has no registers of its own, not every compiler knows the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static const char *avx512_lacks(void)
{
    __builtin_cpu_init();
    return !__builtin_cpu_supports("avx512f")    ? "AVX512F"
           : !__builtin_cpu_supports("avx512bw") ? "AVX512BW"
           : !__builtin_cpu_supports("avx512dq") ? "AVX512DQ"
           : !__builtin_cpu_supports("avx512vl") ? "AVX512VL"
           : !has_f16c()                         ? "F16C"
                                                 : NULL;
}

static const char *avx2_lacks(void)
{
    __builtin_cpu_init();
    return !__builtin_cpu_supports("avx2") ? "AVX2" : !has_f16c() ? "F16C" : NULL;
}

static const char *c_lacks(void)
{
    return NULL;
}

const struct sl_codec_kernels_choice sl_codec_kernels_choices[] = {
    {&sl_codec_kernels_avx512, avx512_lacks},
    {&sl_codec_kernels_avx2, avx2_lacks},
    {&sl_codec_kernels_c, c_lacks},
};
const size_t sl_codec_kernels_choice_count = SL_ARRAY_LEN(sl_codec_kernels_choices);
