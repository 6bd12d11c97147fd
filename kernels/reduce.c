/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the reduction kernels by name and CPU. */
#include "kernels/reduce.h"

#include "kernels/reduce_kernels.h"
#include "core/err.h"

#include <string.h>

int sl_kernels_select(const char *name, const struct sl_kernels **out)
{
    for (size_t i = 0; i < sl_kernels_choice_count; i++) {
        const struct sl_kernels_choice *choice = &sl_kernels_choices[i];
        const char *lacks = choice->lacks();

        if (strcmp(name, "auto") == 0 ? lacks != NULL : strcmp(name, choice->kernels->name) != 0)
            continue;
        if (lacks != NULL)
            return sl_fail(-ENOTSUP,
                           "this CPU cannot run the %s kernels: it lacks %s; set "
                           "SLUICE_KERNEL to auto",
                           name, lacks);
        *out = choice->kernels;
        return 0;
    }
    if (strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0)
        return sl_fail(-ENOTSUP,
                       "this build has no %s kernels, which are for x86-64; set "
                       "SLUICE_KERNEL to auto",
                       name);
    if (strcmp(name, "neon") == 0)
        return sl_fail(-ENOTSUP, "this build has no neon kernels, which are for 64-bit ARM; set "
                                 "SLUICE_KERNEL to auto");
    return sl_fail(-EINVAL,
                   "there are no kernels named '%s'; set SLUICE_KERNEL to auto, avx512, "
                   "avx2, neon or c",
                   name);
}
