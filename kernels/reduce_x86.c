/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of x86-64, and what each needs of CPU and kernel. */
#include "core/err.h"

#include "kernels/reduce_kernels.h"

#include <cpuid.h>
#include <stdbool.h>

/* __builtin_cpu_supports() also asks whether the kernel saves the wide registers; of F16C, which
 * has none of its own, not every compiler knows the name. */
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
           : !__builtin_cpu_supports("bmi2")     ? "BMI2"
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

const struct sl_kernels_choice sl_kernels_choices[] = {
    {SL_KERNEL_AVX512, &sl_kernels_avx512, avx512_lacks},
    {SL_KERNEL_AVX2, &sl_kernels_avx2, avx2_lacks},
    {SL_KERNEL_C, &sl_kernels_c, c_lacks},
};
const size_t sl_kernels_choice_count = SL_ARRAY_LEN(sl_kernels_choices);
