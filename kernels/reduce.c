/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the reduction kernels by setting and CPU. */
#include "kernels/reduce.h"

#include "kernels/reduce_kernels.h"
#include "core/err.h"

int sl_kernels_select(enum sl_kernel kind, const struct sl_kernels **out)
{
    for (size_t i = 0; i < sl_kernels_choice_count; i++) {
        const struct sl_kernels_choice *choice = &sl_kernels_choices[i];
        const char *lacks = choice->lacks();

        if (kind == SL_KERNEL_AUTO ? lacks != NULL : kind != choice->kind)
            continue;
        if (lacks != NULL)
            return sl_fail(-ENOTSUP,
                           "this CPU cannot run the %s kernels: it lacks %s; set "
                           "SLUICE_KERNEL to auto",
                           choice->kernels->name, lacks);
        *out = choice->kernels;
        return 0;
    }
    if (kind == SL_KERNEL_NEON)
        return sl_fail(-ENOTSUP, "this build has no neon kernels, which are for 64-bit ARM; set "
                                 "SLUICE_KERNEL to auto");
    return sl_fail(-ENOTSUP,
                   "this build has no %s kernels, which are for x86-64; set SLUICE_KERNEL to auto",
                   kind == SL_KERNEL_AVX512 ? "avx512" : "avx2");
}
